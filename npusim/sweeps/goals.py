"""What a search minimises: formulas of a row, of the numbers of its chip and of the proxies of its area."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from npusim.config.chip import Chip
from npusim.errors import ConfigError
from npusim.sweeps.plan import Grid, Point
from npusim.sweeps.proxies import NAMES, proxies
from npusim.sweeps.rows import Row, failed_row, kinds
from npusim.sweeps.where import Formula

Values = tuple[float, ...]
"""What the formulas come to for a point, in their order; the less, the better."""
_USE = (
    "use columns of the rows, numbers of the chip or area.*, as total_cycles, time_us, chip.l2.size_mib, "
    "area.sram_kib"
)
_TURNS = 3
"""Rows that a formula is tried on: one may happen to divide by zero."""


class Goals:
    """Formulas to minimise."""

    def __init__(self, texts: Sequence[str], grid: Grid, columns: Sequence[str]) -> None:
        """Parse formulas of columns, parameters, numbers of the chip and proxies.

        Raises `ConfigError` for none, for one that comes twice, and for one that cannot be read.
        """
        if not texts:
            raise ConfigError("search: nothing to minimize; name a column, such as total_cycles")
        if len(set(texts)) < len(texts):
            raise ConfigError("search: a formula to minimize is there twice; name each once")
        numbers = [name for name in grid.numbers() if name.startswith(("chip.", "program."))]
        names = [*columns, *numbers, *NAMES]
        self.texts = list(texts)
        try:
            self._formulas = [Formula(text, names) for text in texts]
        except ConfigError as error:
            raise ConfigError(f"search: minimize: {_short(str(error))}") from None
        for formula in self._formulas:
            if not formula.names:
                raise ConfigError(f"search: minimize: '{formula.text}' is the same for every point; {_USE}")

    def check(self, point: Point) -> None:
        """Try the formulas on rows made up for a point, before anything runs.

        Raises `ConfigError` for a formula that gives a number for none of them.
        """
        made = [self._made_up(point, turn) for turn in range(_TURNS)]
        for formula in self._formulas:
            failed = []
            for named in made:
                try:
                    formula.value(named)
                except ConfigError as error:
                    failed.append(error)
            if len(failed) == len(made):
                raise ConfigError(f"search: minimize: {failed[0]}; {_USE}")

    @staticmethod
    def _made_up(point: Point, turn: int) -> dict[str, Any]:
        """Return what a row may hold: texts as they are, and numbers of which no two are the same."""
        named = {**_numbers(point.chip), **proxies(point.chip), **failed_row(point, "")}
        found = {name: _example(kind, point.timing_only) for name, kind in kinds().items()} | named
        numbers = (name for name, value in found.items() if isinstance(value, int | float))
        odd = {name: 1.0 + math.pi * (at * _TURNS + turn) for at, name in enumerate(numbers)}
        return found | odd

    def values(self, point: Point, row: Row) -> Values | None:
        """Return what the formulas come to; None for a run that failed or computed wrong values.

        Raises `ConfigError` where one gives no finite number.
        """
        if row["status"] != "ok":
            return None
        named = {**_numbers(point.chip), **proxies(point.chip), **row}
        try:
            return tuple(formula.value(named) for formula in self._formulas)
        except ConfigError as error:
            raise ConfigError(f"search: minimize: {error}") from None


def front_of(values: Sequence[Values | None]) -> tuple[int, ...]:
    """Return the positions of the values that none of the others beats, by the first formula.

    Values beat others that are nowhere less and somewhere more; equal ones do not beat each other.
    """
    known = sorted((v, at) for at, v in enumerate(values) if v is not None)
    kept: list[tuple[Values, int]] = []
    for mine, at in known:  # what beats it comes before it in this order
        if not any(_beats(other, mine) for other, _ in kept):
            kept.append((mine, at))
    return tuple(at for _, at in kept)


def _beats(other: Values, mine: Values) -> bool:
    return other != mine and all(a <= b for a, b in zip(other, mine, strict=True))


def _numbers(chip: Chip) -> Mapping[str, Any]:
    return {f"chip.{name}": value for name, value in chip.numbers().items()}


def _short(words: str) -> str:
    """Put examples in place of the list of all names, which are some hundred."""
    words, names, _ = words.partition("; names: ")
    return f"{words}; {_USE}" if names else words


def _example(kind: Any, timing_only: bool) -> Any:
    """Return a value of a column: a text or a number; None where a run without values has none."""
    if type(None) in get_args(kind):
        return None if timing_only else 1
    return 1 if kind in (bool, int, float) else ""
