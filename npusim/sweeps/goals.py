"""What a search minimises: formulas of a row, of the numbers of its chip and of the proxies of its area."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from npusim.config.chip import Chip
from npusim.errors import ConfigError
from npusim.sweeps.plan import Grid, Point
from npusim.sweeps.proxies import NAMES, proxies
from npusim.sweeps.rows import Row
from npusim.sweeps.where import Formula

Values = tuple[float, ...]
"""What the formulas come to for a point, in their order; the less, the better."""
_EXAMPLES = "total_cycles, time_us, chip.l2.size_mib, area.sram_kib"


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
    return (
        f"{words}; use columns of the rows, numbers of the chip or area.*, as {_EXAMPLES}" if names else words
    )
