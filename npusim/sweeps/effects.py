"""Which axes of a sweep did anything: a number that silently acts on nothing misleads."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from npusim.sweeps.rows import Row


@dataclass(frozen=True, slots=True)
class Effect:
    """What moving an axis, or axes that move together, did while all others stood still."""

    axes: tuple[str, ...]
    compared: int
    """Sets of rows that differ in nothing but these axes; 0 where no two finished rows do."""
    changed: int
    """Sets in which the results differ."""

    @property
    def none(self) -> bool:
        """Whether rows could be compared and no result differed."""
        return self.compared > 0 and self.changed == 0

    def __str__(self) -> str:
        """Say it in one line."""
        name = " and ".join(self.axes) + (" together" if len(self.axes) > 1 else "")
        if not self.compared:
            return f"{name}: not compared, no two finished rows differ in nothing else"
        if self.none:
            return f"{name}: NO EFFECT on cycles, traffic or values"
        if self.changed < self.compared:
            return f"{name}: acts in {self.changed} of {self.compared} comparisons"
        return f"{name}: acts"


def effects(
    together: Iterable[tuple[str, ...]], axes: Sequence[str], rows: Iterable[Row]
) -> tuple[Effect, ...]:
    """Compare the rows of a sweep axis by axis, by the `result_id` of those that came to an end."""
    finished = [row for row in rows if row["status"] != "failed"]
    found = []
    for group in together:
        results: dict[str, list[str]] = {}
        for row in finished:
            others = json.dumps([row[axis] for axis in axes if axis not in group])
            results.setdefault(others, []).append(row["result_id"])
        several = [ids for ids in results.values() if len(ids) > 1]
        found.append(Effect(group, len(several), sum(len(set(ids)) > 1 for ids in several)))
    return tuple(found)
