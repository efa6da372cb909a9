"""`npusim.search`: points of a space chosen one after the other, each in view of the results before it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from npusim.errors import ConfigError
from npusim.sweeps.backends import run_points
from npusim.sweeps.goals import Goals, front_of
from npusim.sweeps.plan import Grid, Point, make_grid
from npusim.sweeps.rows import Row, columns
from npusim.sweeps.run import Progress
from npusim.sweeps.sampling import Sampler, Suggestions, check_search
from npusim.sweeps.space import Space, read_space
from npusim.sweeps.store import RowStore, read_record
from npusim.sweeps.table import Table


@dataclass(frozen=True, slots=True)
class Search(Table):
    """What came out of a search: one row a point that was tried, in the order in which they were chosen."""

    minimized: tuple[str, ...]
    """The formulas that were minimised."""
    values: tuple[tuple[float, ...] | None, ...]
    """What the formulas come to for every row; None for a run that failed or computed wrong values."""
    combinations: int
    """All combinations of the space."""
    resumed: int
    """Rows that were there before."""

    @property
    def front(self) -> tuple[int, ...]:
        """Positions of the rows that no other row beats in every formula, by the first of them; of one
        formula the best row, and those that equal it.
        """
        return front_of(self.values)

    def to_dict(self) -> dict[str, Any]:
        """Return the document `npusim.search/1`."""
        return {
            "schema": "npusim.search/1",
            "space": self.space.model_dump(mode="json", by_alias=True),
            "axes": list(self.axes),
            "minimized": list(self.minimized),
            "combinations": self.combinations,
            "front": [
                {"row": at, "values": list(self.values[at] or ()), **_place(self.rows[at], self.axes)}
                for at in self.front
            ],
            "columns": list(self.columns),
            "rows": list(self.rows),
        }


def search(
    space: str | os.PathLike[str] | Mapping[str, Any] | Space,
    *,
    minimize: str | Sequence[str] = "total_cycles",
    trials: int = 50,
    seed: int = 0,
    sampler: Sampler = "tpe",
    output: str | os.PathLike[str] | None = None,
    resume: bool = False,
    jobs: int = 1,
    progress: Progress | None = None,
) -> Search:
    """Look for the points of a space with the least of one formula, or the front of several.

    `space` is that of a sweep; its combinations are never all run. `minimize` names columns of the rows,
    parameters (`program.s`), numbers of the chip (`chip.l2.size_mib`), the proxies of its area
    (`area.sram_kib` and others of `npusim.sweeps.proxies`), or is arithmetic of these. `trials` different
    points run, or all where there are fewer. `sampler` is that of Optuna: `tpe`, `nsga2` or `random`; the
    same space, `seed`, `sampler` and `jobs` choose the same points. `jobs` points at a time are chosen and
    run, in as many processes.

    `output` and `resume` are as in `npusim.sweep`: a search that goes on chooses the points that it chose
    before, takes the rows that are there, and may have more trials. Needs `npusim[search]`. Raises
    `ConfigError` for a space, a formula or a folder that cannot be used, before anything runs.
    """
    check_search(trials, seed, sampler, jobs)
    grid = make_grid(read_space(space))
    names = columns(grid)
    goals = Goals([minimize] if isinstance(minimize, str) else list(minimize), grid, names)
    suggestions = Suggestions(grid, goals, seed, sampler)
    goals.check(suggestions.first)
    if output is None:
        if resume:
            raise ConfigError("search: resume needs the folder with the rows; name it as output")
        return _run(grid, names, goals, suggestions, trials, jobs, None, progress)
    record = {
        "space": grid.space.model_dump(mode="json", by_alias=True),
        "program": {"name": grid.program.name, "digest": suggestions.first.origin},
        "axes": list(grid.axes),
        "columns": names,
        "search": {"minimized": goals.texts, "seed": seed, "sampler": sampler, "jobs": jobs},
    }
    if resume:
        _check_same(record, read_record(output), os.fspath(output))
    with closing(RowStore(output, names, resume=resume)) as store:
        store.record(record)
        return _run(grid, names, goals, suggestions, trials, jobs, store, progress)


def _check_same(record: Mapping[str, Any], kept: Mapping[str, Any], shown: str) -> None:
    """Raise `ConfigError` where a folder holds rows of anything but the same search."""
    if kept and any(kept.get(key) != record[key] for key in ("space", "program", "search")):
        raise ConfigError(
            f"{shown}: holds rows of another search; space, program, formulas, seed, sampler and jobs must "
            f"be those of before: name a new folder"
        )


def _run(
    grid: Grid,
    names: Sequence[str],
    goals: Goals,
    suggestions: Suggestions,
    trials: int,
    jobs: int,
    store: RowStore | None,
    progress: Progress | None,
) -> Search:
    known = {row["point"]: row for row in (store.rows if store is not None else ())}
    resumed = 0
    rows: list[Row] = []
    values: list[tuple[float, ...] | None] = []
    while len(rows) < trials:
        chosen = suggestions.ask(min(jobs, trials - len(rows)))
        if not chosen:
            break
        for point, row in zip(chosen, _rows(chosen, known, jobs, store), strict=True):
            resumed += row is known.get(point.key)
            rows.append(row)
            values.append(goals.values(point, row))
            suggestions.tell(point, values[-1])
        if progress is not None:
            progress(len(rows), trials, sum(row["status"] == "failed" for row in rows))
    return Search(
        grid.space,
        grid.axes,
        tuple(names),
        tuple(rows),
        tuple(goals.texts),
        tuple(values),
        grid.size,
        resumed,
    )


def _rows(chosen: list[Point], known: Mapping[str, Row], jobs: int, store: RowStore | None) -> list[Row]:
    """Return the rows of some points, in their order; those that are not known run."""
    found = {point.key: known[point.key] for point in chosen if point.key in known}
    todo = [point for point in chosen if point.key not in found]
    for row in run_points(todo, backend="loky", jobs=jobs) if todo else ():
        if store is not None:
            store.append(row)
        found[row["point"]] = row
    return [found[point.key] for point in chosen]


def _place(row: Row, axes: Sequence[str]) -> dict[str, Any]:
    return {axis: row[axis] for axis in axes}
