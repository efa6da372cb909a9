"""Errors of the chip model in the words of its file: place, path, rule, value and at most one suggestion."""

from __future__ import annotations

import types
from collections.abc import Callable
from functools import cache
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from npusim.config.chip import COST_CLASSES, Chip
from npusim.config.document import KeyPath, dotted, show
from npusim.errors import did_you_mean

_KINDS = {
    "int_type": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "string_type": "text",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "tuple_type": "a list of three whole numbers (m, n, k)",
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
    """Return the key path and the line `PLACE: PATH: RULE, VALUE` of every error, in the order of the file.

    `above` is the key path at which the validated data hangs.
    """
    lines: dict[KeyPath, str] = {}
    for detail in error.errors(include_url=False):
        path = (*above, *(p for p in detail["loc"] if p != "[key]"))
        path, rule = _tuple_length(path, detail) or (path, _rule(path, detail))
        lines.setdefault(path, f"{place(path)}: {dotted(path)}: {rule}")
    return list(lines.items())


def unknown(path: KeyPath, siblings: tuple[str, ...]) -> str:
    """Say that a field is unknown and suggest a sibling, else the full path of a field of that name."""
    word = str(path[-1])
    near = did_you_mean(word, siblings)
    if not near:
        full = next((p for p in field_paths(Chip) if p.rpartition(".")[2] == word), None)
        near = f"; did you mean {full}?" if full else did_you_mean(dotted(path), field_paths(Chip))
    return f"unknown field{near}"


@cache
def field_paths(model: type[BaseModel]) -> tuple[str, ...]:
    """Return the dotted paths of all fields and sections of a model, as a file spells them."""
    paths: list[str] = []
    for name, info in model.model_fields.items():
        key = info.alias or name
        paths.append(key)
        inner = _model_in(info.annotation)
        if inner:
            paths += [f"{key}.{below}" for below in field_paths(inner)]
        elif name == "cycles_per_repeat":
            paths += [f"{key}.{cost_class}" for cost_class in COST_CLASSES]
    return tuple(paths)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) in (Union, types.UnionType):
        return next((m for m in map(_model_in, get_args(annotation)) if m), None)
    return None


def model_at(path: KeyPath) -> type[BaseModel] | None:
    """Return the model of the section at a key path, where it is one."""
    model: type[BaseModel] | None = Chip
    for part in path:
        if model is None:
            return None
        fields = {info.alias or name: info.annotation for name, info in model.model_fields.items()}
        model = _model_in(fields.get(str(part)))
    return model


def field_names(model: type[BaseModel] | None) -> tuple[str, ...]:
    """Return the names of a model's fields, as a file spells them; a chip's file may also have `extends`."""
    names = tuple(info.alias or name for name, info in model.model_fields.items()) if model else ()
    return (*names, "extends") if model is Chip else names


def _rule(path: KeyPath, detail: ErrorDetails) -> str:
    kind, ctx = detail["type"], detail.get("ctx", {})
    got = show(detail["input"])
    if kind == "extra_forbidden":
        return unknown(path, field_names(model_at(path[:-1])))
    if kind == "missing":
        return "required, but missing"
    if kind in _KINDS:
        return f"must be {_KINDS[kind]}, got {got}"
    if kind in _BOUNDS:
        words, key = _BOUNDS[kind]
        return f"must be {words} {ctx[key]}, got {got}"
    if kind == "literal_error":
        known = [word.strip("'") for word in ctx["expected"].replace(" or ", ", ").split(", ")]
        near = did_you_mean(str(detail["input"]), known)
        return f"must be one of {', '.join(known)}, got {got}{near}"
    if kind == "string_too_short":
        return "must not be empty"
    if kind == "value_error":
        return str(ctx["error"])
    return f"{detail['msg'][0].lower()}{detail['msg'][1:]}, got {got}"


def _tuple_length(path: KeyPath, detail: ErrorDetails) -> tuple[KeyPath, str] | None:
    """Fold the errors of a list that is too short or too long into one at the list."""
    if detail["type"] == "too_long" or (detail["type"] == "missing" and isinstance(path[-1], int)):
        at = path if detail["type"] == "too_long" else path[:-1]
        count = len(detail["input"])
        return at, f"must be a list of three whole numbers (m, n, k), got {count}"
    return None
