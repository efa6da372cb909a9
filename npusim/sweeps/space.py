"""The space file of a sweep, `npusim.sweep/1`: what varies, what is fixed, and which points count."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from npusim.config.document import Document, KeyPath, dotted, raise_errors, read_document, show
from npusim.errors import ConfigError, did_you_mean
from npusim.machine.timing.l2 import L2State

SCHEMA = "npusim.sweep/1"
SETTINGS = ("seed", "l2", "numerics")
"""Settings of a run that may be axes, as `run.seed`."""
AXIS = r"^(program\.\w+|chip\.[\w.]+|run\.(seed|l2|numerics))$"
"""Names of axes: a parameter of the program, a number of the chip, or a setting of the run."""

Scalar = bool | int | float | str
Number = int | float
Ends = Annotated[list[Number], Field(min_length=2, max_length=2)]


class _Part(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
        defer_build=True,  # schemas are built at first use, to keep the import short
    )


class Steps(_Part):
    """Values between two ends, both included: evenly spaced (`grid`) or by a constant factor (`geom`).

    Where both ends are whole numbers the values are rounded to whole numbers.
    """

    grid: Ends | None = None
    """First and last value, evenly spaced."""
    geom: Ends | None = None
    """First and last value, each a constant factor from the one before; both above 0."""
    steps: Annotated[int, Field(ge=2, le=10_000)]
    """Number of values."""

    @model_validator(mode="after")
    def _one_kind(self) -> Steps:
        if (self.grid is None) == (self.geom is None):
            raise ValueError("give exactly one of grid and geom")
        if self.geom is not None and min(self.geom) <= 0:
            raise ValueError("both ends of geom must be above 0")
        return self


class Scale(_Part):
    """Factors of the chip's own number, or of the fixed or default value of a parameter."""

    scale: Annotated[list[Number], Field(min_length=1)]
    """Factors; the values of whole numbers are rounded."""


AxisSpec = Annotated[list[Any], Field(min_length=1)] | Steps | Scale
AxisName = Annotated[str, Field(pattern=AXIS)]


class Space(_Part):
    """What a sweep runs: the points of a grid of axes, less those that `where` leaves out."""

    schema_id: Literal["npusim.sweep/1"] = Field("npusim.sweep/1", alias="schema")
    program: Annotated[str, Field(min_length=1)]
    """A shipped name, a file (`scan.py`, `scan.py:NAME`) beside the space file, or an entry point."""
    chips: Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=1)] = ["ascend-910b4"]
    """Chips to run on: names, or files beside the space file."""
    params: dict[str, Scalar] = {}
    """Parameters of the program that are the same for all points."""
    set: dict[str, Any] = {}
    """Numbers of the chips that are the same for all points, by dotted path."""
    axes: dict[AxisName, AxisSpec] = {}
    """What varies: `program.NAME`, `chip.PATH`, `run.seed`, `run.l2`, `run.numerics`, each a list of values,
    `{grid: [first, last], steps: N}`, `{geom: [first, last], steps: N}` or `{scale: [factors]}`."""
    zip: list[Annotated[list[str], Field(min_length=2)]] = []
    """Groups of axes that move together, value by value, instead of by all combinations."""
    where: str | list[str] = []
    """Conditions that a point must meet, such as `program.tile <= program.n`."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Seed of the inputs."""
    l2: L2State = "cold"
    """State of L2 at the start."""
    numerics: str | None = None
    """Numerics profile other than the chip's."""
    check: bool = True
    """Whether hazards and limits are checked."""
    timing_only: bool = False
    """Whether only time is simulated and no values are computed."""

    @property
    def conditions(self) -> list[str]:
        """The conditions as a list."""
        return [self.where] if isinstance(self.where, str) else list(self.where)


class SpaceSource:
    """A space with the places of its keys, for errors, and the folder that its files are looked up in."""

    def __init__(self, space: Space, document: Document, folder: Path) -> None:
        self.space = space
        self.folder = folder
        self._document = document

    def error(self, path: KeyPath, rule: str) -> ConfigError:
        """Return an error about what stands at a key path: place, path, rule."""
        return ConfigError(f"{self._document.place(path)}: {dotted(path)}: {rule}")


def read_space(source: str | os.PathLike[str] | Mapping[str, Any] | Space) -> SpaceSource:
    """Read a space file, or take a mapping or a `Space` with the same content.

    In a mapping, tuples, ranges and NumPy arrays stand for lists, and NumPy numbers for numbers.
    Raises `ConfigError` with one line per error, at most ten: file and line, key, rule, value.
    """
    if isinstance(source, Space):
        return SpaceSource(source, Document({}, {(): "space"}), Path())
    if isinstance(source, Mapping):
        document = Document(_plain(source), {(): "space"})
        return SpaceSource(_validated(document), document, Path())
    if not isinstance(source, str | os.PathLike):
        raise ConfigError(f"space: must be a file, a mapping or a Space, not {show(source)}")
    path = Path(source)
    instead = "repeat the values; axes that move together are listed in zip"
    document = read_document(path, str(source), "a space", "schema, program and axes", instead)
    if document.data.get("schema") != SCHEMA:
        got = (
            f"must be {SCHEMA}, got {show(document.data['schema'])}"
            if "schema" in document.data
            else f"required, but missing; begin with `schema: {SCHEMA}`"
        )
        raise ConfigError(f"{document.place(('schema',))}: schema: {got}")
    return SpaceSource(_validated(document), document, path.parent)


def _plain(value: Any) -> Any:
    """Return what a file would hold in place of a value from Python."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | range):
        return [_plain(item) for item in value]
    return value


def _validated(document: Document) -> Space:
    lines = _axis_errors(document)
    try:
        space = Space.model_validate(document.data)
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            path: KeyPath = detail["loc"]
            if path[0] != "axes" or len(path) == 1:
                lines.append(f"{document.place(path)}: {dotted(path)}: {_rule(path, detail)}")
        assert lines, "an error of an axis is found by both"
    raise_errors(sorted(dict.fromkeys(lines), key=_by_line))
    return space


def _by_line(line: str) -> int:
    found = re.match(r".*?:(\d+): ", line)
    return int(found[1]) if found else 0


_FORMS: dict[str, type[Steps] | type[Scale]] = {"grid": Steps, "geom": Steps, "scale": Scale}
_FORM = (
    "must be a list of values, {grid: [first, last], steps: N}, {geom: [first, last], steps: N} or "
    "{scale: [factors]}"
)


def _axis_errors(document: Document) -> list[str]:
    """Check names and forms of the axes; a union of forms would explain each of them."""
    axes = document.data.get("axes")
    lines = []
    for name, given in axes.items() if isinstance(axes, dict) else ():
        path = ("axes", name)
        rule = _name_rule(str(name)) or _form_rule(given)
        if rule:
            lines.append(f"{document.place(path)}: {dotted(path)}: {rule}")
    return lines


def _name_rule(name: str) -> str:
    if re.fullmatch(AXIS, name):
        return ""
    if name.startswith("run."):
        known = [f"run.{s}" for s in SETTINGS]
        return f"no setting of a run{did_you_mean(name, known) or '; settings: ' + ' '.join(known)}"
    return "an axis is named program.NAME, chip.PATH or run.NAME"


def _form_rule(given: Any) -> str:
    if isinstance(given, list):
        return "" if given else "must have one value or more"
    if not isinstance(given, dict) or not set(given) & set(_FORMS):
        return f"{_FORM}, got {show(given)}"
    model = _FORMS[next(key for key in given if key in _FORMS)]
    try:
        model.model_validate(given)
    except ValidationError as error:
        detail = error.errors(include_url=False)[0]
        if not detail["loc"]:
            return str(detail["ctx"]["error"]) if "ctx" in detail else detail["msg"]
        key = dotted(tuple(p for p in detail["loc"] if p not in ("int", "float")))
        if detail["type"] == "extra_forbidden":
            return f"unknown key {key}; {_FORM}"
        if detail["type"] == "missing":
            return f"{key}: required, but missing"
        if detail["type"].startswith("too_"):
            return f"{key}: must have {'one value or more' if model is Scale else 'a first and a last value'}"
        return f"{key}: {_plain_rule(detail if key == 'steps' else detail | {'type': 'float_type'})}"
    return ""


def _rule(path: KeyPath, detail: Any) -> str:
    kind = detail["type"]
    if kind == "extra_forbidden":
        known = [f.alias or name for name, f in Space.model_fields.items()]
        return f"unknown key{did_you_mean(str(path[-1]), known) or '; keys: ' + ' '.join(known)}"
    if kind == "missing":
        return "required, but missing"
    if kind == "too_short":
        return f"must have {detail['ctx']['min_length']} or more, got {detail['ctx']['actual_length']}"
    return _plain_rule(detail)


_WORDS = {
    "string_type": "text",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping",
    "finite_number": "a finite number",
    "string_too_short": "a name",
}


def _plain_rule(detail: Any) -> str:
    kind, got = detail["type"], show(detail["input"])
    ctx = detail.get("ctx", {})
    if kind == "literal_error":
        return f"must be one of {ctx['expected'].replace(' or ', ', ')}, got {got}"
    bounds = {"greater_than_equal": "at least", "less_than_equal": "at most"}
    if kind in bounds:
        return f"must be {bounds[kind]} {ctx['ge' if 'ge' in ctx else 'le']}, got {got}"
    return f"must be {_WORDS.get(kind, detail['msg'].lower())}, got {got}"
