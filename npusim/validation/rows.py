"""The published rows of `validation/`, read and checked."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources.abc import Traversable
from typing import Final, Literal, TypeVar, get_args

from npusim.config.find import chip_names
from npusim.config.shipped import shipped
from npusim.errors import ConfigError, did_you_mean
from npusim.machine.timing.l2 import L2State

Metric = Literal[
    "time_us",
    "gb_per_s",
    "pipe_us",
    "pipe_cycles",
    "products_cycles",
    "launch_us",
    "slope_gb_per_s",
    "slope_gflop_per_s",
    "time_ratio",
]
"""What a row measures.

`time_us`: device time and the host constant of the row. `gb_per_s`: `amount` bytes over that time. `pipe_us`
and `pipe_cycles`: work and link cycles of the pipe `part`, mean over the cores on which it has any.
`products_cycles`: the same for pipe M until the last product can be used. `launch_us`: device time of the
launch `part`, with its start. `slope_gb_per_s` and
`slope_gflop_per_s`: `amount` bytes or operations over the difference in device time between `params` and
`versus`. `time_ratio`: device time of `versus` over that of `params`.
"""
UNITS: Final[Mapping[Metric, str]] = {
    "time_us": "us",
    "gb_per_s": "GB/s",
    "pipe_us": "us",
    "pipe_cycles": "cycles",
    "products_cycles": "cycles",
    "launch_us": "us",
    "slope_gb_per_s": "GB/s",
    "slope_gflop_per_s": "GFLOP/s",
    "time_ratio": "x",
}
_SLOPES = ("slope_gb_per_s", "slope_gflop_per_s")
Scored = Literal["yes", "no", "skip"]
"""yes: run and scored; no: run and shown; skip: kept as data, run and scored where all rows are wanted."""
PIPES = ("V", "M", "MTE1", "MTE2", "MTE3", "FIX")

Pairs = tuple[tuple[str, str], ...]
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Host:
    """Host time inside a published number; it belongs to the row, never to the chip."""

    name: str
    us: float
    source: str


@dataclass(frozen=True, slots=True)
class Group:
    """Rows that are scored together."""

    name: str
    title: str
    target_percent: float | None
    """Error allowed, in percent; None where no target is set."""
    rule: Literal["mean", "each"]
    """Whether the mean or every single row must meet the target."""
    short_us: float | None
    """Microseconds that short rows may be off; None where all rows are scored in percent."""
    overall: bool
    """Whether its rows count for the overall figures."""
    missing: str
    """The mechanism that a group which misses its target lacks; empty where none is named."""


@dataclass(frozen=True, slots=True)
class Row:
    """One published number and the run that reproduces it."""

    group: str
    id: str
    value: float
    unit: str
    metric: Metric
    amount: int
    """Bytes or operations that a rate counts; 0 where the row is no rate."""
    part: str
    """The pipe or the launch that the row is about; empty where it is about the whole run."""
    uncertainty: str
    how_obtained: str
    source: str
    device: str
    program: str
    params: Pairs
    versus: Pairs
    l2: L2State
    host: Host
    scored: Scored
    note: str

    @property
    def n(self) -> int | None:
        """Elements, where the program has such a parameter, or rows and their length."""
        params = dict(self.params)
        if "length" in params and "batch" in params:
            return int(params["batch"]) * int(params["length"])
        return int(params["n"]) if "n" in params else None

    @property
    def measured_us(self) -> float | None:
        """The published value as a time; None where it is none."""
        if self.metric in ("time_us", "pipe_us", "launch_us"):
            return self.value
        return self.amount / self.value / 1000 if self.metric == "gb_per_s" else None


@dataclass(frozen=True, slots=True)
class NotRun:
    """A published series that no program reproduces."""

    series: str
    rows: int
    what: str
    source: str
    why: str


@dataclass(frozen=True, slots=True)
class Published:
    """Everything in `validation/`."""

    groups: tuple[Group, ...]
    rows: tuple[Row, ...]
    not_run: tuple[NotRun, ...]

    def chosen(self, names: Sequence[str]) -> tuple[Group, ...]:
        """Return the groups of these names in their own order, all where none is named.

        Raises `ConfigError` for a name that is no group.
        """
        known = [g.name for g in self.groups]
        for name in names:
            if name not in known:
                near = did_you_mean(name, known) or f"; groups: {' '.join(known)}"
                raise ConfigError(f"validation: no group {name!r}{near}")
        return tuple(g for g in self.groups if not names or g.name in names)

    def of(self, group: Group) -> tuple[Row, ...]:
        """Return the rows of a group."""
        return tuple(r for r in self.rows if r.group == group.name)


def read_published(folder: Traversable | None = None) -> Published:
    """Read the groups, the host constants and the rows of `validation/`, or of another folder of that form.

    Raises `ConfigError`, with file and line, for anything that cannot be used.
    """
    folder = shipped("validation") if folder is None else folder
    hosts = {h.name: h for h in _read(folder, "host.csv", _host)}
    groups = _read(folder, "groups.csv", _group)
    _distinct([g.name for g in groups], "groups.csv", "group")
    rows: list[Row] = []
    files = {f.name for f in folder.joinpath("rows").iterdir() if f.name.endswith(".csv")}
    for name in sorted(files - {f"{g.name}.csv" for g in groups}):
        raise ConfigError(f"validation/rows/{name}: no such group; add it to validation/groups.csv")
    chips = chip_names()
    for group in groups:
        if f"{group.name}.csv" in files:
            reader = _RowReader(group.name, hosts, chips)
            rows += _read(folder, f"rows/{group.name}.csv", reader.row)
    _distinct([r.id for r in rows], "rows", "id")
    return Published(tuple(groups), tuple(rows), tuple(_read(folder, "not_run.csv", _not_run)))


class _Line:
    """One line of a table, and where it is."""

    def __init__(self, place: str, cells: Mapping[str, str]) -> None:
        self.place = place
        self._cells = cells

    def text(self, column: str, *, empty: bool = False) -> str:
        if column not in self._cells:
            raise self.error(column, "is missing from the first line of the table")
        cell = self._cells[column].strip()
        if not cell and not empty:
            raise self.error(column, "must not be empty")
        return cell

    def number(self, column: str, *, zero: bool = False) -> float:
        cell = self.text(column)
        try:
            value = float(cell)
        except ValueError:
            value = math.nan
        if not (math.isfinite(value) and (value > 0 or (zero and value == 0))):
            raise self.error(column, f"must be a number {'not below' if zero else 'above'} 0, not {cell!r}")
        return value

    def whole(self, column: str) -> int:
        cell = self.text(column)
        if not cell.isascii() or not cell.isdigit() or not int(cell):
            raise self.error(column, f"must be a whole number above 0, not {cell!r}")
        return int(cell)

    def choice(self, column: str, allowed: Sequence[str], *, empty: bool = False) -> str:
        cell = self.text(column, empty=empty)
        if cell not in allowed and (cell or not empty):
            near = did_you_mean(cell, allowed) or f"; one of {', '.join(allowed)}"
            raise self.error(column, f"{cell!r} is not known{near}")
        return cell

    def pairs(self, column: str) -> Pairs:
        found: dict[str, str] = {}
        for item in filter(None, self.text(column, empty=True).split(";")):
            name, equals, value = (part.strip() for part in item.partition("="))
            if not (name and equals and value) or name in found:
                raise self.error(column, f"must be name=value;name=value with distinct names, not {item!r}")
            found[name] = value
        return tuple(found.items())

    def error(self, column: str, rule: str) -> ConfigError:
        return ConfigError(f"{self.place}: {column} {rule}")


def _read(folder: Traversable, name: str, make: Callable[[_Line], _T]) -> list[_T]:
    """Return what `make` makes of every line of a table."""
    shown = f"validation/{name}"
    try:
        text = folder.joinpath(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{shown}: cannot be read: {error}") from None
    return [make(line) for line in _lines(shown, text)]


def _lines(shown: str, text: str) -> Iterator[_Line]:
    table = csv.DictReader(io.StringIO(text), strict=True)
    try:
        names = table.fieldnames or ()
        for cells in table:
            place = f"{shown}:{table.line_num}"
            if None in cells or None in cells.values():
                raise ConfigError(f"{place}: must have {len(names)} cells, as the first line has")
            yield _Line(place, cells)
    except csv.Error as error:
        raise ConfigError(f"{shown}:{table.line_num}: is no CSV: {error}") from None


def _host(line: _Line) -> Host:
    return Host(line.text("name"), line.number("us", zero=True), line.text("source"))


def _group(line: _Line) -> Group:
    return Group(
        line.text("group"),
        line.text("title"),
        line.number("target_percent") if line.text("target_percent", empty=True) else None,
        "each" if line.choice("rule", ("mean", "each")) == "each" else "mean",
        line.number("short_us") if line.text("short_us", empty=True) else None,
        line.choice("overall", ("yes", "no")) == "yes",
        line.text("missing", empty=True),
    )


def _not_run(line: _Line) -> NotRun:
    return NotRun(
        line.text("series"), line.whole("rows"), line.text("what"), line.text("source"), line.text("why")
    )


class _RowReader:
    """Makes rows of one group."""

    def __init__(self, group: str, hosts: Mapping[str, Host], chips: Sequence[str]) -> None:
        self._group, self._hosts, self._chips = group, hosts, chips

    def row(self, line: _Line) -> Row:
        metrics: tuple[Metric, ...] = get_args(Metric)
        metric = metrics[metrics.index(line.choice("metric", metrics))]
        caches: tuple[L2State, ...] = get_args(L2State)
        states: tuple[Scored, ...] = get_args(Scored)
        scored = states[states.index(line.choice("scored", states))]
        row = Row(
            group=line.choice("group", (self._group,)),
            id=line.text("id"),
            value=line.number("value"),
            unit=line.choice("unit", (UNITS[metric],)),
            metric=metric,
            amount=line.whole("amount") if metric in ("gb_per_s", *_SLOPES) else 0,
            part=line.text("part")
            if metric == "launch_us"
            else line.choice("part", PIPES, empty=metric not in ("pipe_us", "pipe_cycles")),
            uncertainty=line.text("uncertainty"),
            how_obtained=line.text("how_obtained"),
            source=line.text("source"),
            device=line.choice("device", self._chips),
            program=line.text("program"),
            params=line.pairs("params"),
            versus=line.pairs("versus"),
            l2=caches[caches.index(line.choice("l2", caches))],
            host=self._hosts[line.choice("host", tuple(self._hosts))],
            scored=scored,
            note=line.text("note", empty=scored == "yes"),
        )
        if bool(row.versus) != (metric in (*_SLOPES, "time_ratio")):
            raise line.error("versus", "must be given for slopes and time_ratio, and only there")
        if row.host.us and metric not in ("time_us", "gb_per_s"):
            raise line.error("host", f"must be none: {metric} has no host time in it")
        for name in ("n", "batch", "length"):
            count = dict(row.params).get(name, "1")
            if not count.isdigit():
                raise line.error("params", f"must give {name} as a whole number, not {count!r}")
        return row


def _distinct(names: Sequence[str], where: str, what: str) -> None:
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"validation/{where}: {what} {name!r} is there twice; give each its own")
