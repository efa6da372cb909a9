"""YAML to Chip: lookup, `extends`, overrides, and errors that name file and line."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import ValidationError

from npusim.config.chip import Chip, Source
from npusim.config.document import Document, KeyPath, dotted, raise_errors, read_document, show
from npusim.config.explain import explain, listed
from npusim.config.find import Found, find_chip, is_path
from npusim.config.merge import (
    OVERRIDE,
    PLACE,
    FileSources,
    file_sources,
    merge,
    numbers,
    override,
    override_pairs,
)
from npusim.errors import ConfigError

SCHEMA = "npusim.chip/1"


def load_chip(
    name_or_path: str | os.PathLike[str] = "ascend-910b4",
    *,
    overrides: Mapping[str, object] | Sequence[str] = (),
) -> Chip:
    """Load a chip: a path, else a name in ./configs, else a shipped name, else an entry point.

    `overrides` are `path=value` strings, their values read as YAML, or a mapping from dotted paths to values.
    An overridden number has the source `override` and confidence L unless its value stays the same. Raises
    `ConfigError` with one line per error, at most ten.
    """
    pairs = override_pairs(overrides)
    name = os.fspath(name_or_path)
    found = find_chip(name, path=is_path(name) or not isinstance(name_or_path, str))
    resolved = _resolve(_chain(found))
    document, changed, wrong = override(resolved.document, pairs)
    if found.file.name.startswith("_") or str(document.data.get("name")).startswith("_"):
        raise ConfigError(f"{found.shown}: is a base for other chips and no chip; extend it")
    sources = resolved.sources | dict.fromkeys(changed, OVERRIDE)
    kept = [dotted(path) for path, _ in numbers(document.data)]
    # a header that is missing is told by its file; the whole chip need not miss it once more
    document.data = {"schema": SCHEMA, "name": "unnamed", **document.data}
    document.data["sources"] = {path: sources[path] for path in kept if path in sources}
    lines, bad, chip = [*resolved.errors, *wrong], set[str](), None
    try:
        chip = Chip.model_validate(document.data)
    except ValidationError as error:
        explained = explain(error, lambda path: _place(document, path))
        bad = {dotted(path) for path, _ in explained}
        lines += dict.fromkeys(line for _, line in explained)
    for file in resolved.files:
        lines += [line for key, line in file.unmatched.items() if not _touches(key, bad)]
        unsourced = {path: place for path, place in file.unsourced.items() if not _touches(path, bad)}
        if unsourced:
            place = next(iter(unsourced.values()))
            lines.append(f"{place}: no source for {listed(unsourced)}; list them in sources")
    once: dict[tuple[str, ...], str] = {}
    for line in lines:
        once.setdefault(tuple(line.split(": ")[:2]), line)
    raise_errors(sorted(once.values(), key=_by_place))
    assert chip is not None, "a chip that does not validate has at least one error line"
    return chip


@dataclass
class _Resolved:
    """A chain of files laid over each other, base first."""

    document: Document = field(default_factory=lambda: Document({}))
    sources: dict[str, Source] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    files: list[FileSources] = field(default_factory=list)


def _chain(found: Found) -> list[tuple[Found, Document]]:
    """Read a file and all that it extends, base first."""
    chain = [(found, read_document(found.file, found.shown))]
    while "extends" in chain[-1][1].data:
        near, document = chain[-1]
        place, parent = document.place(("extends",)), document.data["extends"]
        if not isinstance(parent, str) or not parent:
            raise ConfigError(f"{place}: extends: must be the name or the path of a chip, got {show(parent)}")
        walk = " -> ".join([*(f.shown for f, _ in chain), parent])
        try:
            found = find_chip(parent, path=is_path(parent), near=near)
        except ConfigError as error:
            raise ConfigError(f"{place}: extends: {error} ({walk})") from None
        if any(found.same(seen) for seen, _ in chain):
            raise ConfigError(f"{place}: extends: chips extend each other in a circle ({walk})")
        chain.append((found, read_document(found.file, found.shown)))
    return chain[::-1]


def _resolve(chain: list[tuple[Found, Document]]) -> _Resolved:
    """Merge a chain of files; what each file sets must have its source in the same file."""
    resolved = _Resolved()
    for _, document in chain:
        resolved.errors += _header(document)
        sources = file_sources(document)
        resolved.errors += sources.errors
        resolved.sources |= sources.found
        resolved.files.append(sources)
        body = {key: value for key, value in document.data.items() if key != "extends"}
        resolved.document = merge(resolved.document, Document(body, document.places))
    return resolved


def _header(document: Document) -> list[str]:
    """Check what a file does not inherit: its schema and its name."""
    schema, name = document.data.get("schema"), document.data.get("name")
    errors = []
    if schema != SCHEMA:
        got = (
            f"must be {SCHEMA}, got {show(schema)}" if "schema" in document.data else "required, but missing"
        )
        errors.append(f"{document.place(('schema',))}: schema: {got}")
    if "name" not in document.data:
        errors.append(f"{document.place(())}: name: required, but missing")
    elif not isinstance(name, str) or not name:
        errors.append(f"{document.place(('name',))}: name: must be text, got {show(name)}")
    return errors


def _place(document: Document, path: KeyPath) -> str:
    """Return the place of a key path; what an override changed a part of is the override's."""
    overridden = any(p[: len(path)] == path for p, at in document.places.items() if at == PLACE)
    return PLACE if overridden else document.place(path)


def _touches(path: str, others: set[str]) -> bool:
    """Whether a path is, contains or lies in one of the others."""
    return any(f"{path}.".startswith(f"{o}.") or f"{o}.".startswith(f"{path}.") for o in others)


def _by_place(line: str) -> tuple[bool, str, int]:
    """Sort key: lines of a file by number, overrides last."""
    match = re.match(r"(.*?):(\d+): ", line)
    return (False, match[1], int(match[2])) if match else (True, line, 0)
