"""A run in the shape of what the vendor's operator profiler writes, for eyes and scripts that read that.

Folders, files, lanes and columns have the profiler's names (its user guide, pages on performance data of the
simulator and on PipeUtilization.csv); the numbers are those of the model. Not there: the lanes FLOWCTRL and
CACHEMISS, since the model has no instruction cache and waits are no instructions, `visualize_data.bin`, and
counters that the model does not have (`NA`).
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from npusim.errors import ConfigError
from npusim.isa.instruction import Array
from npusim.machine.timing.account import Cause
from npusim.report.model import PipePart, Report
from npusim.report.timeline import Timeline

LANES = {
    "S": "SCALAR",
    "V": "VECTOR",
    "M": "CUBE",
    "MTE1": "MTE1",
    "MTE2": "MTE2",
    "MTE3": "MTE3",
    "FIX": "FIXP",
}
_CORES = {"cube": "cubecore", "vec": "veccore"}
INSTRUCTIONS = ("instr", "addr", "pipe", "call_count", "cycles", "running_time(us)", "detail")
CODE = ("code", "call_count", "cycles", "running_time(us)")
_BLOCK = ("block_id", "sub_block_id")
_UNITS = (
    ("aiv_vec", "V"),
    ("aic_cube", "M"),
    ("aic_scalar", "S"),
    ("aiv_scalar", "S"),
    ("aic_fixpipe", "FIX"),
    ("aic_mte1", "MTE1"),
    ("aic_mte2", "MTE2"),
    ("aiv_mte2", "MTE2"),
    ("aic_mte3", "MTE3"),
    ("aiv_mte3", "MTE3"),
)
UTILIZATION = (
    *_BLOCK,
    "aic_time(us)",
    "aic_total_cycles",
    "aiv_time(us)",
    "aiv_total_cycles",
    *(f"{unit}_{what}" for unit, _ in _UNITS for what in ("time(us)", "ratio")),
    "aic_icache_miss_rate",
    "aiv_icache_miss_rate",
)
NA = "NA"
_OURS = {"simulator", "PipeUtilization.csv"}
_IDLE = (int(Cause.ISSUE), int(Cause.QUEUE))


def core_folder(core: str) -> str:
    """Return the profiler's name of a core: `core0.vec1` is `core0.veccore1`, a coupled core `core0`."""
    group, _, own = core.partition(".")
    kind = own.rstrip("0123456789")
    return f"{group}.{_CORES[kind]}{own[len(kind) :]}" if kind in _CORES else group


def write_msprof(timeline: Timeline, report: Report, folder: str | os.PathLike[str]) -> None:
    """Write `PipeUtilization.csv` and the folder `simulator` with a folder for every core.

    Raises `ConfigError` where the folder holds something else, or cannot be written.
    """
    target = Path(folder)
    shown = os.fspath(folder)
    try:
        if target.exists() and (not target.is_dir() or set(os.listdir(target)) - _OURS):
            raise ConfigError(f"{shown}: holds what is no export; name a new folder")
        everything: list[dict[str, Any]] = []
        for number, core in enumerate(timeline.cores):
            name = core_folder(core)
            place = target / "simulator" / name
            place.mkdir(parents=True, exist_ok=True)
            rows = _Rows(timeline, core)
            _table(place / f"{name}_instr_exe.csv", INSTRUCTIONS, rows.instructions())
            _table(place / f"{name}_code_exe.csv", CODE, rows.code())
            events = rows.events(name, number)
            everything += events
            _trace(place / "trace.json", events)
        _trace(target / "simulator" / "trace.json", everything)
        _table(target / "PipeUtilization.csv", UTILIZATION, _utilization(report))
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigError(f"{shown}: the export cannot be written: {reason}") from error


class _Rows:
    """What one core did; its time in waiting for issue and for room in queues is nobody's."""

    def __init__(self, timeline: Timeline, core: str) -> None:
        self._timeline = timeline
        spans = timeline.spans
        self._pipes = {
            number: lane.rpartition(".")[2]
            for number, lane in enumerate(timeline.lanes)
            if lane.rpartition(".")[0] == core
        }
        mine = np.isin(spans.lane, list(self._pipes)) & ~np.isin(spans.cause, _IDLE)
        self._at = np.flatnonzero(mine)
        self._cycles = (spans.stop - spans.start)[self._at]
        starts = np.array([start for _, start, _ in timeline.launches])
        launch = np.searchsorted(starts, spans.start[self._at], "right")
        self._calls = np.column_stack([launch, spans.lane[self._at], spans.op[self._at]])
        """What makes two spans parts of one instruction on one pipe."""

    def _sums(self, keys: Array) -> list[tuple[tuple[int, ...], int, int, int]]:
        """Return keys with their calls, cycles and first span, in order of time."""
        if not len(self._at):
            return []
        found, first, inverse = np.unique(keys, axis=0, return_index=True, return_inverse=True)
        inverse = inverse.reshape(-1)
        cycles = np.bincount(inverse, weights=self._cycles)
        calls = np.unique(np.column_stack([inverse, self._calls]), axis=0)
        counts = np.bincount(calls[:, 0])
        order = np.argsort(self._timeline.spans.start[self._at[first]], kind="stable")
        return [
            (tuple(found[i].tolist()), int(counts[i]), int(cycles[i]), int(self._at[first[i]])) for i in order
        ]

    def instructions(self) -> Iterable[Sequence[object]]:
        """Yield a row for every instruction, with its operands, on every pipe."""
        spans, texts = self._timeline.spans, self._timeline.texts
        keys = np.column_stack([spans.lane[self._at], spans.text[self._at]])
        for (lane, text), calls, cycles, first in self._sums(keys):
            name, _, detail = texts[text].partition(" ")
            pipe = LANES[self._pipes[lane]]
            yield name, hex(int(spans.op[first])), pipe, calls, cycles, self._us(cycles), detail

    def code(self) -> Iterable[Sequence[object]]:
        """Yield a row for every source line."""
        spans = self._timeline.spans
        keys = np.column_stack([spans.file[self._at], spans.line[self._at]])
        for _, calls, cycles, first in self._sums(keys):
            source = self._timeline.source(first)
            if source:
                yield source, calls, cycles, self._us(cycles)

    def events(self, name: str, number: int) -> list[dict[str, Any]]:
        """Return the work of the core as events of a Chrome trace."""
        timeline, spans = self._timeline, self._timeline.spans
        made: list[dict[str, Any]] = [
            {"ph": "M", "name": "process_name", "pid": number, "args": {"name": name}}
        ]
        tids = {lane: tid for tid, lane in enumerate(self._pipes, 1)}
        for lane, tid in tids.items():
            title = {"name": LANES[self._pipes[lane]]}
            made.append({"ph": "M", "name": "thread_name", "pid": number, "tid": tid, "args": title})
        starts, stops = timeline.ns(spans.start), timeline.ns(spans.stop)
        for i in self._at[spans.cause[self._at] == Cause.WORK].tolist():
            text = timeline.texts[int(spans.text[i])]
            made.append(
                {
                    "ph": "X",
                    "name": text.partition(" ")[0],
                    "pid": number,
                    "tid": tids[int(spans.lane[i])],
                    "ts": int(starts[i]) / 1000,
                    "dur": int(stops[i] - starts[i]) / 1000,
                    "args": {
                        "addr": hex(int(spans.op[i])),
                        "code": timeline.source(i),
                        "detail": text.partition(" ")[2],
                        "cycles": int(spans.stop[i] - spans.start[i]),
                    },
                }
            )
        return made

    def _us(self, cycles: int) -> float:
        return round(self._timeline.us(cycles), 6)


def _utilization(report: Report) -> Iterable[Sequence[object]]:
    """Yield a row for every core. A unit is active while it works or its data waits for shared links."""
    total, us = report.total_cycles, round(report.total_cycles / report.clock_mhz, 6)
    for core in dict.fromkeys(name.rpartition(".")[0] for name in report.pipes):
        group, _, own = core.partition(".")
        kind = own.rstrip("0123456789")
        families = {"cube": ("aic",), "vec": ("aiv",)}.get(kind, ("aic", "aiv"))
        row: dict[str, object] = dict.fromkeys(UTILIZATION, NA)
        names = {"cube": "cube", "vec": "vector"}
        row["block_id"] = int(group.removeprefix("core"))
        row["sub_block_id"] = f"{names.get(kind, kind)}{own[len(kind) :]}"
        for family in families:
            row[f"{family}_time(us)"], row[f"{family}_total_cycles"] = us, total
        for unit, pipe in _UNITS:
            part = report.pipes.get(f"{core}.{pipe}")
            if part is not None and unit.partition("_")[0] in families:
                active = _active(part)
                row[f"{unit}_time(us)"] = round(active / report.clock_mhz, 6)
                row[f"{unit}_ratio"] = round(active / total, 6) if total else 0.0
        yield list(row.values())


def _active(part: PipePart) -> int:
    return part.work + part.link


def _table(file: Path, head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    with open(file, "w", encoding="utf-8", newline="") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(head)
        writer.writerows(rows)


def _trace(file: Path, events: list[dict[str, Any]]) -> None:
    file.write_text(
        json.dumps({"displayTimeUnit": "ns", "traceEvents": events}, separators=(",", ":")) + "\n",
        encoding="utf-8",
    )
