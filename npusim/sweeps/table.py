"""What a sweep and a search have in common: rows of points of a space."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from npusim.errors import ConfigError, did_you_mean
from npusim.sweeps.rows import Row
from npusim.sweeps.space import Space


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of points of a space."""

    space: Space
    axes: tuple[str, ...]
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    """One row a point, by column."""

    @property
    def failed(self) -> tuple[Row, ...]:
        """Rows of runs that failed, with their `error`."""
        return tuple(row for row in self.rows if row["status"] == "failed")

    @property
    def wrong(self) -> tuple[Row, ...]:
        """Rows whose values differ from the reference; they count for no formula of a search."""
        return tuple(row for row in self.rows if row["status"] == "wrong")

    def column(self, name: str, *, failed: Any = None) -> list[Any]:
        """Return a column in the order of the rows, `failed` where a row has no value.

        Raises `ConfigError` for a name that is no column.
        """
        if name not in self.columns:
            near = did_you_mean(name, self.columns) or "; the attribute columns holds all names"
            raise ConfigError(f"sweep: no column {name!r}{near}")
        return [row.get(name, failed) for row in self.rows]
