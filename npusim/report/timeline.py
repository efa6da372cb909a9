"""Who did what, why, from when to when, over all launches of a run: what traces and plots are made of.

A timeline is taken from a run that kept its spans and can be kept in a file of columns. Times are cycles from
the first instruction on; launches follow each other without the time that starts them, which is in no cycle
count.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from npusim.errors import ConfigError
from npusim.isa.instruction import Array
from npusim.machine.timing.account import Cause, Moves, Spans
from npusim.machine.timing.engine import LaunchTiming
from npusim.report.array_file import open_arrays, save_arrays
from npusim.report.flows import Flows, flows_of
from npusim.report.model import Report

SCHEMA = "npusim.spans/1"


@dataclass(frozen=True)
class SpanColumns:
    """Spans of all lanes, those of one lane in order of time."""

    lane: Array
    """Index into the lanes, int32."""
    op: Array
    """Position of the instruction in the stream of its core and launch, int64."""
    cause: Array
    """A `Cause`, int8."""
    start: Array
    stop: Array
    text: Array
    """Index into the texts, int32: the instruction as assembly text."""
    file: Array
    """Index into the files, int32; -1 where the stream is no code."""
    line: Array
    """Source line, int32; 0 where it has none."""


@dataclass(frozen=True)
class MoveColumns:
    """The data of all transfers with global memory, which moves from `start` to `stop`."""

    start: Array
    stop: Array
    write: Array
    """1 for stores, int8."""
    nbytes: Array
    """Bytes between core and L2."""
    hit: Array
    """Those of them that L2 took without main memory."""
    fetched: Array
    """Bytes read from main memory."""
    evicted: Array
    """Bytes that left L2 for main memory because of the transfer."""


@dataclass(frozen=True)
class FlowColumns:
    """Flags: the work before a set and the work behind the wait for it."""

    text: Array
    """Index into the texts: the wait."""
    from_lane: Array
    from_time: Array
    """End of the last work before the set."""
    to_lane: Array
    to_time: Array
    """Start of the first work behind the wait."""


@dataclass(frozen=True)
class Timeline:
    """A run as spans, flags and transfers."""

    program: str
    chip: str
    run_id: str
    clock_mhz: int
    cycles: int
    hbm_bytes_per_cycle: float
    """Sustained rate of main memory."""
    launches: list[tuple[str, int, int]]
    """Name, start and cycles."""
    lanes: list[str]
    """Pipes, as `core0.vec0.V`."""
    texts: list[str]
    files: list[str]
    spans: SpanColumns
    flows: FlowColumns
    moves: MoveColumns

    @property
    def cores(self) -> list[str]:
        """Names of the cores, as `core0.vec0`."""
        return list(dict.fromkeys(lane.rpartition(".")[0] for lane in self.lanes))

    def us(self, cycles: float) -> float:
        """Turn cycles into microseconds."""
        return cycles / self.clock_mhz

    def ns(self, cycles: Array) -> Array:
        """Turn cycles into whole nanoseconds, rounded down, so that what does not overlap still does not."""
        found: Array = cycles.astype(np.int64) * 1000 // self.clock_mhz
        return found

    def busy(self) -> dict[str, int]:
        """Return the cycles of work of every lane."""
        work = self.spans.cause == Cause.WORK
        length = np.where(work, self.spans.stop - self.spans.start, 0)
        sums = np.bincount(self.spans.lane, weights=length, minlength=len(self.lanes))
        return {lane: int(n) for lane, n in zip(self.lanes, sums, strict=True)}

    def source(self, span: int) -> str:
        """Return `file:line` of a span; empty where the stream is no code."""
        file, line = int(self.spans.file[span]), int(self.spans.line[span])
        return f"{self.files[file]}:{line}" if file >= 0 and line else ""

    def save(self, file: str | os.PathLike[str]) -> None:
        """Write a compressed `.npz` file."""
        head = {
            f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("spans", "flows", "moves")
        }
        columns = {
            f"{part}.{f.name}": getattr(getattr(self, part), f.name)
            for part, kind in _PARTS.items()
            for f in fields(kind)
        }
        save_arrays(file, SCHEMA, head, columns)


_PARTS: dict[str, Any] = {"spans": SpanColumns, "flows": FlowColumns, "moves": MoveColumns}


def load_timeline(file: str | os.PathLike[str]) -> Timeline:
    """Read a file that `Timeline.save` wrote.

    Raises `ConfigError` where it is no such file.
    """
    with open_arrays(file, SCHEMA, "spans") as (head, data):
        head["launches"] = [(name, start, cycles) for name, start, cycles in head["launches"]]
        parts = {
            part: kind(**{f.name: data[f"{part}.{f.name}"] for f in fields(kind)})
            for part, kind in _PARTS.items()
        }
        return Timeline(**head, **parts)


def kept_spans(report: Report) -> bool:
    """Whether the run of a report kept its spans."""
    return bool(report.timings) and all(t.spans is not None for t in report.timings)


def timeline(report: Report) -> Timeline:
    """Return the timeline of a run that kept its spans.

    Raises `ConfigError` where it kept none; simulate with `spans=True`.
    """
    if not kept_spans(report) or report.chip_used is None:
        raise ConfigError(
            f"timeline: the run of {report.program} kept no spans; simulate it again with spans=True"
        )
    made = _Maker(list(report.pipes))
    start = 0
    launches = []
    for timed in report.timings:
        made.add(timed, start)
        launches.append((timed.name, start, timed.cycles))
        start += timed.cycles
    return Timeline(
        program=report.program,
        chip=report.chip,
        run_id=report.run_id,
        clock_mhz=report.clock_mhz,
        cycles=report.total_cycles,
        hbm_bytes_per_cycle=report.chip_used.hbm_bytes_per_cycle,
        launches=launches,
        lanes=made.lanes,
        texts=list(made.texts),
        files=list(made.files),
        spans=SpanColumns(**made.joined("spans", SpanColumns)),
        flows=FlowColumns(**made.joined("flows", FlowColumns)),
        moves=MoveColumns(**made.joined("moves", MoveColumns)),
    )


class _Maker:
    """Puts launches one behind the other."""

    def __init__(self, lanes: list[str]) -> None:
        self.lanes = lanes
        self.texts: dict[str, int] = {"": 0}
        self.files: dict[str, int] = {}
        self._number = {name: i for i, name in enumerate(lanes)}
        self._kept: dict[str, list[dict[str, Array]]] = {"spans": [], "flows": [], "moves": []}

    def add(self, timed: LaunchTiming, begin: int) -> None:
        """Add a launch that begins at a time."""
        spans, moves = timed.spans, timed.moves
        assert spans is not None
        assert moves is not None
        tables = {stream.core: self._table(stream) for stream in timed.resolved}
        every = _columns(spans)
        flows = Flows()
        order = np.argsort(every["pipe"], kind="stable")
        ends = np.searchsorted(every["pipe"][order], np.arange(len(timed.clocks) + 1))
        for clock in timed.clocks:
            rows = order[ends[clock.index] : ends[clock.index + 1]]
            lane = self._number[clock.name]
            op, cause, start, stop = (every[n][rows] for n in ("op", "cause", "start", "stop"))
            text, line, file = tables[clock.core]
            here = {"lane": np.full(len(rows), lane, np.int32), "op": op, "cause": cause}
            here |= {"start": start + begin, "stop": stop + begin}
            here |= {"text": text[op], "line": line[op], "file": np.full(len(rows), file, np.int32)}
            self._kept["spans"].append(here)
            work = cause == Cause.WORK
            flows.add_lane(clock.core, clock.pipe, lane, op[work], start[work] + begin, stop[work] + begin)
        flows_of(timed.resolved, flows)
        self._kept["flows"].append(
            {
                "text": np.array([self._text(t) for t in flows.texts], np.int32),
                "from_lane": np.array(flows.from_lane, np.int32),
                "from_time": np.array(flows.from_time, np.int64),
                "to_lane": np.array(flows.to_lane, np.int32),
                "to_time": np.array(flows.to_time, np.int64),
            }
        )
        moved = _columns(moves)
        moved["start"], moved["stop"] = moved["start"] + begin, moved["stop"] + begin
        self._kept["moves"].append(moved)

    def _table(self, stream: Any) -> tuple[Array, Array, int]:
        """Return text and line of every instruction, one more for none, and the number of the file."""
        known: dict[int, int] = {}
        text = np.zeros(stream.count + 1, np.int32)
        line = np.zeros(stream.count + 1, np.int32)
        for number, op in enumerate(stream):
            found = known.get(id(op))
            if found is None:
                found = known[id(op)] = self._text(str(op))
            text[number] = found
            line[number] = stream.line(number)
        file = self.files.setdefault(stream.file, len(self.files)) if stream.file else -1
        return text, line, file

    def _text(self, text: str) -> int:
        return self.texts.setdefault(text, len(self.texts))

    def joined(self, part: str, kind: Any) -> dict[str, Array]:
        """Return the columns of all launches."""
        parts = self._kept[part]
        return {f.name: np.concatenate([p[f.name] for p in parts]) for f in fields(kind)}


def _columns(columns: Spans | Moves) -> dict[str, Array]:
    return {name: np.array(column) for name, column in vars(columns).items()}
