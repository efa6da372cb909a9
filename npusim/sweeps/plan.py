"""From a space to its points: values of the axes, all combinations, the chips, and a key for every point."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from npusim.config.chip import Chip
from npusim.config.find import is_path
from npusim.config.load import load_chip
from npusim.errors import ConfigError, did_you_mean
from npusim.isa.numerics.profile import get_profile
from npusim.machine.timing.l2 import L2State
from npusim.program.discover import find_program
from npusim.program.program import ProgramMaker
from npusim.report.model import MODEL_REVISION
from npusim.sweeps.axes import axis_values
from npusim.sweeps.origin import program_digest
from npusim.sweeps.space import Space, SpaceSource
from npusim.sweeps.where import Condition

MOST_POINTS = 1_000_000
"""Points that a sweep may have; more is a mistake in its space."""


@dataclass(frozen=True, slots=True)
class Point:
    """One run of a sweep; all that a worker needs to know of it."""

    program: str
    """What `find_program` is asked for."""
    origin: str
    """Digest of the program's files."""
    name: str
    """Name of the program."""
    chip: Chip
    chip_name: str
    params: dict[str, Any]
    """Values of all parameters."""
    seed: int
    l2: L2State
    numerics: str | None
    check: bool
    timing_only: bool
    coords: dict[str, Any]
    """Value of every axis."""

    @property
    def stream_key(self) -> str:
        """Hash of what decides the streams and values, apart from the chip."""
        return _digest(
            [self.origin, self.name, self.params, self.seed, self.numerics, self.check, self.timing_only]
        )

    @property
    def key(self) -> str:
        """Hash of all that can change the row: 12 hex digits, known before the run."""
        chip = self.chip.identity()
        return _digest([self.stream_key, chip, self.chip_name, self.coords, self.l2, MODEL_REVISION])


@dataclass(frozen=True, slots=True)
class Plan:
    """The points of a sweep, in the order of the axes; the last axis moves first."""

    space: Space
    program: ProgramMaker
    axes: tuple[str, ...]
    """Names of the axes; `chip` is the first where there are several chips."""
    together: tuple[tuple[str, ...], ...]
    """The axes in groups that move together."""
    points: tuple[Point, ...]
    left_out: int
    """Points that `where` leaves out."""


def make_plan(source: SpaceSource) -> Plan:
    """Work out the points of a space.

    Raises `ConfigError`, with the place in the space file, for an unknown program, chip, parameter or number,
    for values that these refuse, and for axes that do not fit together.
    """
    grid = make_grid(source)
    if grid.size > MOST_POINTS:
        raise source.error(("axes",), f"give {grid.size:,} points, at most {MOST_POINTS:,}")
    every = itertools.product(*map(range, grid.sizes))
    points = tuple(point for at in every if (point := grid.point(at)) is not None)
    if not points:
        raise source.error(("where",), f"leaves none of the {grid.size:,} points")
    _check_distinct(source, points)
    return Plan(grid.space, grid.program, grid.axes, grid.together, points, grid.size - len(points))


def make_grid(source: SpaceSource) -> Grid:
    """Check a space and return all its combinations, of which none is a point yet; raises as `make_plan`."""
    return _Planner(source).grid()


@dataclass(frozen=True, slots=True)
class _OnChip:
    """A chip of a space, and the axes as they are on it."""

    name: str
    chip: Chip
    values: dict[str, list[Any]]
    conditions: list[Condition]


class Grid:
    """All combinations of a space: which are made into points one by one."""

    def __init__(
        self, planner: _Planner, together: tuple[tuple[str, ...], ...], on_chips: list[_OnChip]
    ) -> None:
        several = len(on_chips) > 1
        self.space = planner.space
        self.program = planner.maker
        self.axes: tuple[str, ...] = (*(["chip"] if several else []), *planner.space.axes)
        """Names of the axes; `chip` is the first where there are several chips."""
        self.together: tuple[tuple[str, ...], ...] = (*([("chip",)] if several else []), *together)
        """The axes in groups that move together."""
        self.sizes = (len(on_chips), *(len(on_chips[0].values[group[0]]) for group in together))
        """Number of chips, and of values of every other group."""
        self._planner, self._groups, self._on_chips = planner, together, on_chips

    @property
    def size(self) -> int:
        """Number of combinations, those that `where` leaves out included."""
        return math.prod(self.sizes)

    def values(self, axis: str) -> list[Any]:
        """Return the values of an axis on the first chip; of `chip`, the names of the chips."""
        first = self._on_chips[0]
        return [on.chip.name for on in self._on_chips] if axis == "chip" else first.values[axis]

    def numbers(self) -> dict[str, Any]:
        """Return what conditions may name besides axes: parameters and numbers of the first chip."""
        return self._planner.fixed(self._on_chips[0].chip)

    def point(self, at: Sequence[int]) -> Point | None:
        """Return the point with some positions of chip and groups; None where `where` leaves it out.

        Raises `ConfigError` where the program or the chip refuses the combination.
        """
        on = self._on_chips[at[0]]
        coords = {
            axis: on.values[axis][index]
            for group, index in zip(self._groups, at[1:], strict=True)
            for axis in group
        }
        if not self._planner.wanted(on.conditions, on.chip, coords):
            return None
        return self._planner.point(on.name, on.chip.name, coords)


class _Planner:
    def __init__(self, source: SpaceSource) -> None:
        self._source, self.space = source, source.space
        self._chips: dict[tuple[str, str], Chip] = {}
        self._reference = _near(source.folder, source.space.program)
        try:
            self.maker = find_program(self._reference)
        except ConfigError as error:
            raise source.error(("program",), str(error)) from None
        self._origin = program_digest(self._reference, self.maker)

    def grid(self) -> Grid:
        space = self.space
        self._check_parameters()
        self._check_settings()
        together = self._together()
        names = [_near(self._source.folder, c) if is_path(c) else c for c in space.chips]
        if len(set(names)) < len(names):
            raise self._source.error(("chips",), "a chip is there twice; name each once")
        on_chips = []
        for at, name in enumerate(names):
            chip = self._base_chip(at, name)
            values = {axis: self._values(axis, name, chip) for axis in space.axes}
            self._check_lengths(values)
            on_chips.append(_OnChip(name, chip, values, self._conditions(chip)))
        return Grid(self, together, on_chips)

    def _check_parameters(self) -> None:
        for name, value in self.space.params.items():
            self._check_parameter(("params", name), name, value)
        for axis in self.space.axes:
            head, _, name = axis.partition(".")
            if head == "program":
                if name in self.space.params:
                    raise self._source.error(("axes", axis), "is fixed in params, too; leave one of them out")
                self._check_parameter(("axes", axis), name, None)
            elif head == "chip" and name in self.space.set:
                raise self._source.error(("axes", axis), "is fixed in set, too; leave one of them out")
            elif axis == "chip.numerics":
                raise self._source.error(("axes", axis), "is no number of the hardware; use run.numerics")

    def _check_parameter(self, path: tuple[str, ...], name: str, value: Any) -> None:
        known = list(self.maker.model.model_fields)
        if name not in known:
            there = did_you_mean(name, known) or f"; parameters: {' '.join(known) or 'none'}"
            raise self._source.error(path, f"{self.maker.name} has no parameter {name}{there}")
        if value is not None:
            try:
                self.maker.validate({name: value})
            except ConfigError as error:
                raise self._source.error(path, str(error)) from None

    def _check_settings(self) -> None:
        for axis in self.space.axes:
            given = self.space.axes[axis]
            if not axis.startswith("run.") or not isinstance(given, list):
                continue
            for value in given:
                if axis == "run.numerics":
                    self._check_profile(("axes", axis), value)
                elif axis == "run.l2" and value not in ("cold", "warm", "dirty"):
                    raise self._source.error(("axes", axis), f"must be cold, warm or dirty, not {value!r}")
                elif axis == "run.seed" and (
                    isinstance(value, bool) or not isinstance(value, int) or value < 0
                ):
                    rule = f"must be whole numbers of 0 or more, not {value!r}"
                    raise self._source.error(("axes", axis), rule)
        if self.space.numerics is not None:
            self._check_profile(("numerics",), self.space.numerics)

    def _check_profile(self, path: tuple[str, ...], name: Any) -> None:
        try:
            get_profile(str(name))
        except ConfigError as error:
            raise self._source.error(path, str(error)) from None

    def _together(self) -> tuple[tuple[str, ...], ...]:
        """Return the axes in groups that move together, in the order of the axes."""
        group_of: dict[str, tuple[str, ...]] = {axis: (axis,) for axis in self.space.axes}
        for i, group in enumerate(self.space.zip):
            for axis in group:
                if axis not in group_of:
                    near = did_you_mean(axis, group_of) or f"; axes: {' '.join(group_of) or 'none'}"
                    raise self._source.error(("zip", i), f"no axis {axis}{near}")
                if len(group_of[axis]) > 1 or group.count(axis) > 1:
                    raise self._source.error(("zip", i), f"{axis} is there twice")
            group_of |= dict.fromkeys(group, tuple(group))
        return tuple(dict.fromkeys(group_of.values()))

    def _base_chip(self, at: int, name: str) -> Chip:
        try:
            return self._load(name, {})
        except ConfigError as error:
            path = ("set",) if str(error).startswith("override") else ("chips", at)
            raise self._source.error(path, str(error).removeprefix("override: ")) from None

    def _values(self, axis: str, chip_name: str, chip: Chip) -> list[Any]:
        """Return the values of an axis on a chip, each tried alone."""
        head, _, name = axis.partition(".")
        if head == "chip":
            base = chip.numbers().get(name)
        elif head == "program":
            base = self.space.params.get(name, self.maker.model.model_fields[name].default)
        else:
            base = self.space.seed if name == "seed" else None
        try:
            values = axis_values(self.space.axes[axis], base)
            for value in values:
                if head == "chip":
                    self._load(chip_name, {axis: value})
                elif head == "program":
                    self.maker.validate({name: value})
        except ConfigError as error:
            raise self._source.error(("axes", axis), str(error).removeprefix("override: ")) from None
        return values

    def _check_lengths(self, values: Mapping[str, Sequence[Any]]) -> None:
        for i, group in enumerate(self.space.zip):
            sizes = [len(values[axis]) for axis in group]
            if len(set(sizes)) > 1:
                told = ", ".join(f"{axis} has {size}" for axis, size in zip(group, sizes, strict=True))
                raise self._source.error(("zip", i), f"must have equally many values: {told}")

    def _conditions(self, chip: Chip) -> list[Condition]:
        try:
            names = self.fixed(chip).keys() | self.space.axes.keys()
            return [Condition(text, sorted(names)) for text in self.space.conditions]
        except ConfigError as error:
            raise self._source.error(("where",), str(error)) from None

    def fixed(self, chip: Chip) -> dict[str, Any]:
        """Return what a condition may name besides the axes."""
        space = self.space
        defaults = {n: f.default for n, f in self.maker.model.model_fields.items()}
        found = {f"program.{n}": v for n, v in (defaults | space.params).items()}
        found |= {f"chip.{n}": v for n, v in chip.numbers().items()}
        return found | {"chip": chip.name, "run.seed": space.seed, "run.l2": space.l2}

    def wanted(self, conditions: list[Condition], chip: Chip, coords: Mapping[str, Any]) -> bool:
        if not conditions:
            return True
        values = {**self.fixed(chip), **coords}
        try:
            return all(c.holds(values) for c in conditions)
        except ConfigError as error:
            raise self._source.error(("where",), str(error)) from None

    def point(self, name: str, chip_name: str, coords: dict[str, Any]) -> Point:
        space = self.space
        params = {a.partition(".")[2]: v for a, v in coords.items() if a.startswith("program.")}
        try:
            values = self.maker.validate(space.params | params)
            chip = self._load(name, {a: v for a, v in coords.items() if a.startswith("chip.")})
        except ConfigError as error:
            at = ", ".join(f"{a}={v}" for a, v in coords.items())
            raise self._source.error(("axes",), f"at {at}: {str(error).removeprefix('override: ')}") from None
        for axis in coords:  # as the program sees them: 1e6 may mean 1000000
            if axis.startswith("program."):
                coords[axis] = values[axis.partition(".")[2]]
        return Point(
            program=self._reference,
            origin=self._origin,
            name=self.maker.name,
            chip=chip,
            chip_name=chip_name,
            params=values,
            seed=coords.get("run.seed", space.seed),
            l2=coords.get("run.l2", space.l2),
            numerics=coords.get("run.numerics", space.numerics),
            check=space.check,
            timing_only=space.timing_only,
            coords=coords,
        )

    def _load(self, name: str, axes: dict[str, Any]) -> Chip:
        """Load a chip with the fixed numbers of the space and those of some axes; each once."""
        changes = self.space.set | {axis.partition(".")[2]: value for axis, value in axes.items()}
        key = (name, json.dumps(changes, sort_keys=True, default=str))
        if key not in self._chips:
            self._chips[key] = load_chip(name, overrides=changes)
        return self._chips[key]


def _near(folder: Path, name: str) -> str:
    """Return a file beside the space file by its full path, any other name as it is."""
    file, colon, program = name.partition(".py:")
    beside = folder / (f"{file}.py" if colon else name)
    looks = colon or is_path(name) or name.endswith((".py", ".asm"))
    if looks and beside.is_file():
        return f"{beside.resolve()}:{program}" if colon else str(beside.resolve())
    return name


def _check_distinct(source: SpaceSource, points: Sequence[Point]) -> None:
    seen: dict[str, Point] = {}
    for point in points:
        if seen.setdefault(point.key, point) is not point:
            at = ", ".join(f"{a}={v}" for a, v in point.coords.items()) or "the only point"
            raise source.error(("axes",), f"the point {at} is there twice; give every value once")


def _digest(parts: list[Any]) -> str:
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
