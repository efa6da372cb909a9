"""Errors of the chip model in the words of its file: place, path, rule, value and at most one suggestion."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from npusim.config.chip import Chip
from npusim.config.document import KeyPath, dotted, show
from npusim.config.fields import COST_CLASSES
from npusim.errors import did_you_mean

_RATE = "a list of three whole numbers (m, n, k)"
_KINDS = {
    "int_type": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "string_type": "text",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "tuple_type": _RATE,
}
_BOUNDS = {
    "greater_than": ("greater than", "gt"),
    "greater_than_equal": ("at least", "ge"),
    "less_than": ("less than", "lt"),
    "less_than_equal": ("at most", "le"),
}


def explain(
    error: ValidationError, place: Callable[[KeyPath], str], above: KeyPath = ()
) -> list[tuple[KeyPath, str]]:
    """Return the key path and the line `PLACE: PATH: RULE, VALUE` of every error.

    `above` is the key path at which the validated data hangs.
    """
    lines: dict[KeyPath, str] = {}
    missing: dict[str, list[KeyPath]] = {}
    for detail in error.errors(include_url=False):
        path = (*above, *(part for part in detail["loc"] if part != "[key]"))
        if detail["type"] == "missing" and isinstance(path[-1], str):
            missing.setdefault(place(path), []).append(path)
        elif detail["type"] == "too_long" or detail["type"] == "missing":
            path = path if detail["type"] == "too_long" else path[:-1]
            lines[path] = f"{place(path)}: {dotted(path)}: must be {_RATE}, got {len(detail['input'])}"
        else:
            lines.setdefault(path, f"{place(path)}: {dotted(path)}: {_rule(path, detail)}")
    for at, paths in missing.items():
        line = f"{at}: {listed(map(dotted, paths))}: required, but missing"
        lines |= dict.fromkeys(paths, line)
    return list(lines.items())


def listed(words: Iterable[str]) -> str:
    """Join the first three words and count the others."""
    words = list(words)
    return ", ".join(words[:3]) + (f" and {len(words) - 3} more" if len(words) > 3 else "")


def unknown(path: KeyPath) -> str:
    """Say that a field is unknown and suggest a sibling, else the full path of a field of that name."""
    word, full = str(path[-1]), dotted(path)
    near = did_you_mean(word, _fields(_type_at(path[:-1])))
    if not near:
        same = [p for p in field_paths() if p.rpartition(".")[2] == word]
        above = {dotted(path[:i]) for i in range(1, len(path)) if _fields(_type_at(path[:i]))}
        near = f"; did you mean {same[0]}?" if same else did_you_mean(full, set(field_paths()) - above)
    return f"unknown field{near}"


@cache
def field_paths(model: type[BaseModel] = Chip) -> tuple[str, ...]:
    """Return the dotted paths of all fields and sections of a model, as a file spells them."""
    paths: list[str] = []
    for key, annotation in _fields(model).items():
        paths.append(key)
        inner = _model_in(annotation)
        if inner:
            paths += [f"{key}.{below}" for below in field_paths(inner)]
        elif key == "cycles_per_repeat":
            paths += [f"{key}.{cost_class}" for cost_class in COST_CLASSES]
    return tuple(paths)


def _fields(model: Any) -> dict[str, Any]:
    """Return the fields of a section and their types, as a file spells them; none of anything else."""
    inner = _model_in(model)
    if inner is None:
        return {}
    fields = {info.alias or name: info.annotation for name, info in inner.model_fields.items()}
    return {**fields, "extends": str} if inner is Chip else fields


def _type_at(path: KeyPath) -> Any:
    """Return the type of what stands at a key path, None where nothing does."""
    at: Any = Chip
    for part in path:
        at = get_args(at)[1] if get_origin(at) is dict else _fields(at).get(str(part))
    return at


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) in (Union, types.UnionType):
        return next((model for model in map(_model_in, get_args(annotation)) if model), None)
    return None


def _rule(path: KeyPath, detail: ErrorDetails) -> str:
    kind, ctx = detail["type"], detail.get("ctx", {})
    got = show(detail["input"])
    if kind == "extra_forbidden":
        return unknown(path)
    if kind in _KINDS:
        return f"must be {_KINDS[kind]}, got {got}"
    if kind in _BOUNDS:
        words, key = _BOUNDS[kind]
        return f"must be {words} {ctx[key]:g}, got {got}"
    if kind == "literal_error":
        known = [word.strip("'") for word in ctx["expected"].replace(" or ", ", ").split(", ")]
        return f"must be one of {', '.join(known)}, got {got}{did_you_mean(str(detail['input']), known)}"
    if kind == "string_too_short":
        return "must not be empty"
    if kind == "value_error":
        return str(ctx["error"])
    return f"{detail['msg'][0].lower()}{detail['msg'][1:]}, got {got}"
