"""One YAML file as plain data that remembers the place of every key.

The dialect is the part of YAML 1.2 that a chip needs: mappings, lists and scalars of the core schema. What
YAML 1.1 would silently turn into another value (`on`, `1:30`, `017`) stays text, so that the type of the
field refuses it. Duplicate keys, tags and aliases are errors.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources.abc import Traversable
from typing import Any

import yaml

from npusim.errors import ConfigError

MAX_LINES = 10
"""Errors shown at once."""
MAX_DEPTH = 20
"""Levels of nesting that a file may have; a chip needs four."""

KeyPath = tuple[str | int, ...]

_DIGITS = "-+0123456789"
_FLOAT = r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9_]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
_SPECIAL = r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
_SCALARS = (
    ("null", r"^(?:~|null|Null|NULL|)$", ["~", "n", "N", ""]),
    ("bool", r"^(?:true|True|TRUE|false|False|FALSE)$", ["t", "T", "f", "F"]),
    ("int", r"^[-+]?(?:0|[1-9][0-9_]*)$", list(_DIGITS)),
    ("float", f"^(?:{_FLOAT}|{_SPECIAL})$", [*_DIGITS, "."]),
)
_KINDS = {"str", *(name for name, _, _ in _SCALARS)}


class _Loader(yaml.SafeLoader):
    """A YAML loader that resolves scalars by the rules above."""


_Loader.yaml_implicit_resolvers = {}
for _name, _pattern, _first in _SCALARS:
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_name}", re.compile(_pattern), _first)


@dataclass
class Document:
    """The mapping of a file, and for every key path in it `FILE:LINE`."""

    data: dict[str, Any]
    places: dict[KeyPath, str] = field(default_factory=dict)

    def place(self, path: KeyPath) -> str:
        """Return the place of a key path, or of the nearest enclosing key that has one."""
        while path not in self.places and path:
            path = path[:-1]
        return self.places[path]


def read_document(
    file: Traversable,
    shown: str,
    what: str = "a chip",
    holds: str = "schema, name and sections",
    instead: str = "repeat the value or use extends",
) -> Document:
    """Read a YAML file that holds one mapping; `shown` is its name in errors, `what` what it describes, and
    `instead` what to do without aliases.
    """
    return parse_document(_text(file, shown), shown, what, holds, instead)


@lru_cache(maxsize=64)
def parse_document(
    text: str,
    shown: str,
    what: str = "a chip",
    holds: str = "schema, name and sections",
    instead: str = "repeat the value or use extends",
) -> Document:
    """Parse YAML text that holds one mapping; `shown` is the name of its file in errors.

    A sweep parses the same text for every point, so results are kept; a caller must not change them.
    """
    root = _compose(text, shown)
    if root is None:
        raise ConfigError(f"{shown}:1: the file is empty; {what} is a mapping with {holds}")
    errors: list[str] = []
    document = Document({}, {(): f"{shown}:1"})
    data = _Builder(shown, document.places, errors, instead).build(root, ())
    raise_errors(errors)
    if not isinstance(data, dict):
        line = root.start_mark.line + 1
        raise ConfigError(f"{shown}:{line}: {what} must be a mapping, got {show(data)}")
    document.data = data
    return document


def parse_value(text: str) -> Any:
    """Parse a YAML scalar or flow collection from the command line; `ConfigError` without a subject."""
    try:
        root = _compose(text, "")
    except ConfigError as error:
        raise ConfigError(str(error).partition(": ")[2]) from None
    if root is None:
        return None
    errors: list[str] = []
    value = _Builder("", {}, errors, "repeat the value").build(root, ())
    if errors:
        raise ConfigError(errors[0].partition(": ")[2])
    return value


def raise_errors(lines: list[str]) -> None:
    """Raise one `ConfigError` with a line per error, the first `MAX_LINES` of them, if there are any."""
    if not lines:
        return
    more = len(lines) - MAX_LINES
    raise ConfigError("\n".join([*lines[:MAX_LINES], *([f"... and {more} more"] if more > 0 else [])]))


def show(value: object) -> str:
    """Describe a value in an error: what it is, shortened."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    if isinstance(value, str):
        return f"text '{value if len(value) <= 40 else value[:37] + '...'}'"
    if isinstance(value, int | float):
        return _number(value)
    return type(value).__name__


def _number(value: int | float) -> str:
    if isinstance(value, int) and value.bit_length() > 200:
        return f"a number of {value.bit_length()} bits"
    return str(value)


def _text(file: Traversable, shown: str) -> str:
    if file.is_dir():
        raise ConfigError(f"{shown}: is a folder; expected a YAML file")
    try:
        raw = file.read_bytes()
    except OSError as error:
        raise ConfigError(f"{shown}: cannot be read: {(error.strerror or str(error)).lower()}") from None
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{shown}:{line}: not UTF-8 text: byte 0x{raw[error.start]:02x}") from None


def _compose(text: str, shown: str) -> yaml.Node | None:
    try:
        node: yaml.Node | None = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        problem = error.problem or error.context
        if problem and problem.startswith("but "):
            problem = f"{error.context}, {problem}"
        raise ConfigError(f"{shown}:{line}: YAML syntax: {problem}") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        rule = f"YAML syntax: character {error.character:#x} is not allowed"
        raise ConfigError(f"{shown}:{line}: {rule}") from None
    except RecursionError:
        raise ConfigError(f"{shown}:1: nested too deeply") from None
    return node


@dataclass
class _Builder:
    """Turns nodes into data, noting places and errors on the way."""

    shown: str
    places: dict[KeyPath, str]
    errors: list[str]
    instead: str
    seen: set[int] = field(default_factory=set)

    def build(self, node: yaml.Node, path: KeyPath) -> Any:
        if len(path) > MAX_DEPTH:
            return self.fail(node, path[:1], f"nested deeper than {MAX_DEPTH} levels")
        if id(node) in self.seen:  # the marks of the node are those of its first use
            rule = f"aliases are not supported; {self.instead}"
            self.errors.append(f"{self.places[path]}: {dotted(path)}: {rule}")
            return None
        self.seen.add(id(node))
        if isinstance(node, yaml.ScalarNode):
            return self.scalar(node, path)
        if isinstance(node, yaml.SequenceNode) and node.tag == "tag:yaml.org,2002:seq":
            return [self.item(child, (*path, i)) for i, child in enumerate(node.value)]
        if isinstance(node, yaml.MappingNode) and node.tag == "tag:yaml.org,2002:map":
            return dict(self.pairs(node, path))
        return self.fail(node, path, f"tag {_tag(node)} is not allowed")

    def item(self, node: yaml.Node, path: KeyPath) -> Any:
        self.places[path] = self.at(node)
        return self.build(node, path)

    def pairs(self, node: yaml.MappingNode, path: KeyPath) -> Iterator[tuple[str, Any]]:
        lines: dict[str, int] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode) or _kind(key_node) not in _KINDS:
                self.fail(key_node, path, "a key must be a word")
                continue
            key, line = key_node.value, key_node.start_mark.line + 1
            if key in lines:
                self.fail(key_node, (*path, key), f"given twice, first in line {lines[key]}")
                continue
            lines[key] = line
            self.places[(*path, key)] = self.at(key_node)
            yield key, self.build(value_node, (*path, key))

    def scalar(self, node: yaml.ScalarNode, path: KeyPath) -> Any:
        kind = _kind(node)
        text: str = node.value
        try:
            if kind == "str":
                return text
            if kind == "null":
                return None
            if kind == "bool" and text.lower() in ("true", "false"):
                return text.lower() == "true"
            if kind == "int":
                return int(text)
            if kind == "float":
                return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
        except ValueError:
            return self.fail(node, path, f"not a number that can be read: {show(text)}")
        return self.fail(node, path, f"tag {_tag(node)} is not allowed")

    def at(self, node: yaml.Node) -> str:
        return f"{self.shown}:{node.start_mark.line + 1}"

    def fail(self, node: yaml.Node, path: KeyPath, rule: str) -> None:
        self.errors.append(f"{self.at(node)}: {dotted(path)}: {rule}" if path else f"{self.at(node)}: {rule}")


def _kind(node: yaml.Node) -> str:
    return str(node.tag).removeprefix("tag:yaml.org,2002:")


def _tag(node: yaml.Node) -> str:
    return str(node.tag).replace("tag:yaml.org,2002:", "!!")


def dotted(path: KeyPath) -> str:
    """Write a key path as in `cube.rates.f16[0]`."""
    return "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in path).removeprefix(".")
