"""Deep merge of chip documents, the sources of their numbers, and overrides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from numbers import Integral, Real
from typing import Any

from pydantic import TypeAdapter, ValidationError

from npusim.config.chip import Source
from npusim.config.document import Document, KeyPath, dotted, parse_value
from npusim.config.explain import explain, field_paths, unknown
from npusim.errors import ConfigError, did_you_mean

OVERRIDE = Source.model_construct(source="override", confidence="L")
"""Source of an overridden number: an assumption of the user, so never better than L."""

PLACE = "override"
"""Place of an overridden value in errors."""

_FIXED = ("schema", "extends", "sources")
"""What an override may not touch."""


@cache
def _sources_adapter() -> TypeAdapter[dict[str, Source]]:
    return TypeAdapter(dict[str, Source])


def merge(below: Document, above: Document) -> Document:
    """Lay one document over another: mappings merge, anything else replaces, null removes.

    A null for a key that is not there stays, so that the model can refuse an unknown one.
    """
    return Document(_laid(below.data, above.data), below.places | above.places)


def _laid(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    result = dict(below)
    for key, value in above.items():
        old = result.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            result[key] = _laid(old, value)
        elif value is None and key in result:
            del result[key]
        else:
            result[key] = value
    return result


def numbers(data: Mapping[str, Any], above: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """Yield every number of a document with its key path; a list that holds a number counts as one."""
    for key, value in data.items():
        path = (*above, key)
        if isinstance(value, dict):
            yield from numbers(value, path)
        elif any(map(_is_number, value if isinstance(value, list | tuple) else [value])):
            yield path, value


def _is_number(value: object) -> bool:
    return isinstance(value, int | float)


@dataclass
class FileSources:
    """The sources of one file, spread over its numbers."""

    found: dict[str, Source] = field(default_factory=dict)
    """Source of every number, by dotted path."""
    unsourced: dict[str, str] = field(default_factory=dict)
    """Numbers without a source, and their places."""
    unmatched: dict[str, str] = field(default_factory=dict)
    """Keys of `sources` that match no number, and the lines that say so."""
    errors: list[str] = field(default_factory=list)


def file_sources(document: Document) -> FileSources:
    """Find the source of every number of one file in the `sources` of that file."""
    given = document.data.get("sources", {})
    try:
        entries = _sources_adapter().validate_python(given)
    except ValidationError as error:
        return FileSources(errors=[line for _, line in explain(error, document.place, ("sources",))])
    own = {dotted(path): document.place(path) for path, _ in numbers(document.data)}
    result = FileSources({path: source for path in own if (source := _nearest(entries, path))})
    result.unsourced = {path: place for path, place in own.items() if path not in result.found}
    for key in entries:
        if not any(path == key or path.startswith(f"{key}.") for path in own):
            place = document.place(("sources", key))
            rule = f"matches no number of this file{did_you_mean(key, own)}"
            result.unmatched[key] = f"{place}: sources.{key}: {rule}"
    return result


def _nearest(entries: dict[str, Source], path: str) -> Source | None:
    while path and path not in entries:
        path = path.rpartition(".")[0]
    return entries.get(path)


def override_pairs(overrides: Mapping[str, object] | Sequence[str]) -> list[tuple[str, Any]]:
    """Return (dotted path, value) of overrides given as a mapping or as `a.b=value` strings."""
    if isinstance(overrides, str):
        raise TypeError(f"overrides must be a mapping or a list of 'path=value', got the text '{overrides}'")
    if isinstance(overrides, Mapping):
        return [(str(path), _plain(value)) for path, value in overrides.items()]
    pairs = []
    for item in overrides:
        if not isinstance(item, str):
            raise TypeError(f"an override must be text 'path=value', got {type(item).__name__}")
        path, equals, text = item.partition("=")
        if not equals or not text.strip():
            raise ConfigError(f"override '{item}': must have the form path=value")
        try:
            pairs.append((path.strip(), parse_value(text)))
        except ConfigError as error:
            raise ConfigError(f"override '{item}': {error}") from None
    return pairs


def override(document: Document, pairs: list[tuple[str, Any]]) -> tuple[Document, set[str], list[str]]:
    """Lay overrides over a resolved document.

    Returns the new document, the dotted paths of the numbers that changed, and the errors.
    """
    errors: list[str] = []
    before = {dotted(path): value for path, value in numbers(document.data)}
    for name, value in pairs:
        path = tuple(name.split("."))
        if path[0] in _FIXED:
            errors.append(f"{PLACE}: {name}: {path[0]} cannot be overridden")
        elif not all(path):
            errors.append(f"override '{name}': must be a dotted path")
        elif (gap := _gap(document.data, path)) is None:
            data: Any = value
            for key in reversed(path):
                data = {key: data}
            document = merge(document, Document(data, dict.fromkeys(_paths(value, path), PLACE)))
        elif name in field_paths():
            errors.append(f"{PLACE}: {name}: the chip has no {gap}; give the whole section")
        else:
            errors.append(f"{PLACE}: {name}: {unknown(path)}")
    after = {dotted(path): value for path, value in numbers(document.data)}
    changed = {name for name, value in after.items() if name not in before or before[name] != value}
    return document, changed, errors


def _gap(data: Any, path: KeyPath) -> str | None:
    """Return the first section on the way to `path` that is not there, None if all are."""
    for i, key in enumerate(path[:-1]):
        data = data.get(key)
        if not isinstance(data, dict):
            return dotted(path[: i + 1])
    return None


def _paths(value: Any, path: KeyPath) -> Iterator[KeyPath]:
    yield path
    if isinstance(value, dict):
        for key, below in value.items():
            yield from _paths(below, (*path, key))


def _plain(value: object) -> Any:
    """Turn what a caller may pass (mappings, tuples, NumPy numbers) into the types of a document."""
    if isinstance(value, Mapping):
        return {str(key): _plain(below) for key, below in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, bool):
        return value
    if isinstance(value, Integral):
        return int(value)
    return float(value) if isinstance(value, Real) else value
