"""`npusim.sweep`: a space in, rows out."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Any

from npusim.errors import ConfigError
from npusim.sweeps.backends import Backend, check_backend, run_points
from npusim.sweeps.effects import Effect, effects
from npusim.sweeps.plan import Plan, make_plan
from npusim.sweeps.rows import Row, columns
from npusim.sweeps.space import Space, read_space
from npusim.sweeps.store import RowStore, read_record
from npusim.sweeps.table import Table

Progress = Callable[[int, int, int], None]
"""Called with the rows that are there, the number of points, and the rows that failed."""


@dataclass(frozen=True, slots=True)
class Sweep(Table):
    """What came out of a sweep: one row a point, in the order of the space."""

    effects: tuple[Effect, ...]
    left_out: int
    """Points that `where` left out."""
    resumed: int
    """Rows that were there before."""

    @property
    def without_effect(self) -> tuple[str, ...]:
        """Axes that changed no result."""
        return tuple(axis for effect in self.effects if effect.none for axis in effect.axes)

    def to_dict(self) -> dict[str, Any]:
        """Return the document `npusim.sweep-rows/1`."""
        return {
            "schema": "npusim.sweep-rows/1",
            "space": self.space.model_dump(mode="json", by_alias=True),
            "axes": list(self.axes),
            "effects": [asdict(e) for e in self.effects],
            "without_effect": list(self.without_effect),
            "left_out": self.left_out,
            "columns": list(self.columns),
            "rows": list(self.rows),
        }


def sweep(
    space: str | os.PathLike[str] | Mapping[str, Any] | Space,
    *,
    output: str | os.PathLike[str] | None = None,
    resume: bool = False,
    jobs: int = -1,
    backend: Backend = "loky",
    client: Any = None,
    progress: Progress | None = None,
) -> Sweep:
    """Run every point of a space and return the rows.

    `space` is a file, a mapping with the content of one, or a `Space`. `output` names a folder for
    `rows.jsonl` and `rows.csv`, to which every row is added when its run ends, and `sweep.json`; `resume`
    takes the rows that are there and runs the other points only. `jobs` processes run on this machine, -1
    for as many as it has cores; `backend` is `loky` for these, `sequential` for this process, or `dask` for
    the workers of `client`, of the current Dask client, or of a cluster on this machine for the sweep alone.

    The rows are the same on every backend. Streams of a program are played once a process and timed again on
    every chip that agrees in all numbers that the program, its checks and its streams read. A run that
    fails is a row with `status` failed and its `error`. Raises `ConfigError` for a space, a folder or a
    backend that cannot be used, before anything runs.
    """
    check_backend(backend, jobs)
    plan = make_plan(read_space(space))
    names = columns(plan)
    if output is None:
        if resume:
            raise ConfigError("sweep: resume needs the folder with the rows; name it as output")
        return _finish(plan, names, _collect(plan, None, backend, jobs, client, progress), resumed=0)
    shown = os.fspath(output)
    if "search" in read_record(output):
        raise ConfigError(
            f"{shown}: is the folder of a search; go on with npusim search --resume, or name a new folder"
        )
    with closing(
        RowStore(output, names, resume=resume, check=lambda rows: _check_known(plan, rows, shown))
    ) as store:
        resumed = len(store.rows)
        record = {
            "space": plan.space.model_dump(mode="json", by_alias=True),
            "program": {"name": plan.program.name, "digest": plan.points[0].origin},
            "axes": list(plan.axes),
            "points": len(plan.points),
            "columns": names,
        }
        store.record(record)
        found = _finish(plan, names, _collect(plan, store, backend, jobs, client, progress), resumed=resumed)
        store.record(record | {"effects": [asdict(e) for e in found.effects]})
    return found


def _check_known(plan: Plan, rows: Sequence[Row], shown: str) -> None:
    known = {point.key for point in plan.points}
    others = sum(row["point"] not in known for row in rows)
    if others:
        raise ConfigError(
            f"{shown}: {others} of {len(rows)} rows are no points of this space, program and model; "
            f"name a new folder"
        )


def _collect(
    plan: Plan, store: RowStore | None, backend: Backend, jobs: int, client: Any, progress: Progress | None
) -> dict[str, Row]:
    """Run the points that have no row yet, and return all rows by point."""
    rows = {row["point"]: row for row in (store.rows if store is not None else ())}
    todo = [point for point in plan.points if point.key not in rows]
    failed = sum(row["status"] == "failed" for row in rows.values())
    if progress is not None:
        progress(len(rows), len(plan.points), failed)
    for row in run_points(todo, backend=backend, jobs=jobs, client=client) if todo else ():
        if store is not None:
            store.append(row)
        rows[row["point"]] = row
        failed += row["status"] == "failed"
        if progress is not None:
            progress(len(rows), len(plan.points), failed)
    return rows


def _finish(plan: Plan, names: list[str], rows: dict[str, Row], *, resumed: int) -> Sweep:
    ordered = tuple(rows[point.key] for point in plan.points)
    return Sweep(
        plan.space,
        plan.axes,
        tuple(names),
        ordered,
        effects(plan.together, plan.axes, ordered),
        plan.left_out,
        resumed,
    )
