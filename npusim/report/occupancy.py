"""What fills over time: the buffers of a core with data that is still wanted, and the queues of its pipes.

A byte of a buffer is occupied from the moment in which an instruction begins to write it until the last one
that reads it is done, if any does before it is written again. An instruction is in its queue from the end of
its issue until its pipe begins to work on it; one that takes its pipe no time (a flag, a barrier) does not
count.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from npusim.config.chip import Chip
from npusim.errors import ConfigError, did_you_mean
from npusim.isa.instruction import Array, Instruction, Kind
from npusim.isa.operand import Access, Pipe, Space
from npusim.isa.state import RESET
from npusim.machine.timing.account import Cause
from npusim.machine.timing.engine import LaunchTiming
from npusim.report.array_file import open_arrays, save_arrays
from npusim.report.model import Report

SCHEMA = "npusim.occupancy/1"
BLOCK = 32
"""Bytes that are occupied together."""
BINS = 400
_SPACES = (Space.L1, Space.L0A, Space.L0B, Space.L0C, Space.UB)


@dataclass(frozen=True)
class Occupancy:
    """Means over equal stretches of time, one value for each."""

    program: str
    chip: str
    clock_mhz: int
    edges: Array
    """Cycles at which the stretches begin, and the end of the last."""
    buffers: dict[str, Array]
    """Occupied bytes by buffer, as `core0.vec0.UB`; those that were never written are left out."""
    sizes: dict[str, int]
    """Bytes of each of these buffers."""
    queues: dict[str, Array]
    """Instructions by queue, as `core0.vec0.MTE2`."""
    depths: dict[str, int]
    """Instructions that each of these queues holds."""

    @property
    def cores(self) -> list[str]:
        """Names of the cores."""
        return list(dict.fromkeys(name.rpartition(".")[0] for name in [*self.buffers, *self.queues]))

    def save(self, file: str | os.PathLike[str]) -> None:
        """Write a compressed `.npz` file."""
        head = {"program": self.program, "chip": self.chip, "clock_mhz": self.clock_mhz}
        head |= {"sizes": self.sizes, "depths": self.depths}
        arrays = {"edges": self.edges}
        arrays |= {f"buffer.{name}": values for name, values in self.buffers.items()}
        arrays |= {f"queue.{name}": values for name, values in self.queues.items()}
        save_arrays(file, SCHEMA, head, arrays)


def load_occupancy(file: str | os.PathLike[str]) -> Occupancy:
    """Read a file that `Occupancy.save` wrote.

    Raises `ConfigError` where it is no such file.
    """
    with open_arrays(file, SCHEMA, "occupancy") as (head, data):
        return Occupancy(
            edges=data["edges"],
            buffers={name: data[f"buffer.{name}"] for name in head["sizes"]},
            queues={name: data[f"queue.{name}"] for name in head["depths"]},
            **head,
        )


def occupancy(report: Report, cores: Sequence[str] = (), bins: int = BINS) -> Occupancy:
    """Return how full buffers and queues were in at most so many stretches of a run that kept its spans.

    Without `cores`, those of the first group. Raises `ConfigError` where the run kept no spans, and for a
    core that took no part.
    """
    chip = report.chip_used
    if chip is None or not report.timings or any(t.spans is None for t in report.timings):
        raise ConfigError(
            f"occupancy: the run of {report.program} kept no spans; simulate it again with spans=True"
        )
    known = list(dict.fromkeys(name.rpartition(".")[0] for name in report.pipes))
    for core in cores:
        if core not in known:
            raise ConfigError(f"{core}: no such core in this run{did_you_mean(core, known)}")
    group = known[0].partition(".")[0]
    chosen = set(cores or [core for core in known if core.partition(".")[0] == group])
    count = max(1, min(bins, report.total_cycles))
    found = Occupancy(
        report.program,
        report.chip,
        report.clock_mhz,
        np.linspace(0, max(1, report.total_cycles), count + 1),
        {},
        {},
        {},
        {},
    )
    begin = 0
    for timed in report.timings:
        for stream in timed.resolved:
            if str(stream.core) in chosen:
                _add_core(found, timed, str(stream.core), list(stream), begin, chip)
        begin += timed.cycles
    return found


def _add_core(
    found: Occupancy, timed: LaunchTiming, core: str, ops: list[Instruction], begin: int, chip: Chip
) -> None:
    """Add what one core did in one launch."""
    start, stop, issued = _times(timed, core, ops)
    worked = start >= 0
    depths = chip.queues.model_dump()
    for pipe in Pipe:
        mine = np.array([op.pipe is pipe for op in ops], bool) & worked & (issued >= 0)
        if pipe is not Pipe.S and mine.any():
            name = f"{core}.{pipe.name}"
            since, until = issued[mine] + begin, np.maximum(start, issued)[mine] + begin
            held = until > since
            values = _mean(since[held], until[held], np.ones(int(held.sum())), found.edges)
            found.queues[name] = found.queues.get(name, 0.0) + values
            found.depths[name] = int(depths[pipe.name.lower()])
    lives = {space: _Lives(chip.capacity_bytes(space.name.lower())) for space in _SPACES}
    events: list[tuple[int, int, Access]] = []  # reads of a moment count before its writes
    state = RESET
    for number, op in enumerate(ops):
        if op.kind is Kind.STATE:
            state = op.update(state)
        elif worked[number]:
            read = [a for a in op.reads(state) if a.space in lives]
            events += [(int(time), 0, a) for a in read for time in (start[number], stop[number])]
            events += [(int(start[number]), 1, a) for a in op.writes(state) if a.space in lives]
    for time, write, access in sorted(events, key=lambda e: (e[0], e[1])):
        lives[access.space].touch(time + begin, bool(write), access)
    for space, life in lives.items():
        if life.used:
            name = f"{core}.{space.name}"
            values = _mean(*life.ended(), found.edges)
            found.buffers[name] = found.buffers.get(name, 0.0) + values
            found.sizes[name] = chip.capacity_bytes(space.name.lower())


def _times(timed: LaunchTiming, core: str, ops: list[Instruction]) -> tuple[Array, Array, Array]:
    """Return start and end of the work of every instruction, and the end of its issue; -1 where none."""
    spans = timed.spans
    assert spans is not None
    pipe, op, cause, first, last = (
        np.array(c) for c in (spans.pipe, spans.op, spans.cause, spans.start, spans.stop)
    )
    busy = (cause == Cause.WORK) | (cause == Cause.LINK)
    start, stop, issued = (np.full(len(ops), -1, np.int64) for _ in range(3))
    own = np.array([o.pipe.value for o in ops])
    for clock in timed.clocks:
        if str(clock.core) != core:
            continue
        here = np.flatnonzero((pipe == clock.index) & busy & (op >= 0))
        numbers = op[here]
        mine = own[numbers] == clock.pipe.value
        if clock.pipe is Pipe.S:
            issued[numbers] = last[here]
        here, numbers = here[mine], numbers[mine]
        stop[numbers] = last[here]  # in order of time, so the last remains
        start[numbers[::-1]] = first[here[::-1]]  # and here the first
    return start, stop, issued


class _Lives:
    """When the blocks of a buffer were written, and read for the last time."""

    def __init__(self, size: int) -> None:
        self._written = np.full(-(-size // BLOCK), -1, np.int64)
        self._read = np.full(-(-size // BLOCK), -1, np.int64)
        self._done: list[tuple[Array, Array]] = []
        self.used = False
        """Whether anything was written."""

    def touch(self, time: int, write: bool, access: Access) -> None:
        """Note a write that begins, or a read that ends."""
        for low, high in access.runs():
            at = slice(low // BLOCK, -(-high // BLOCK))
            if not write:
                self._read[at] = time
                continue
            self.used = True
            fresh = self._written[at] < 0
            over = fresh | (self._read[at] > self._written[at])  # read before, so the old value is done
            self._close(at, over & ~fresh)
            self._written[at] = np.where(over, time, self._written[at])

    def _close(self, at: slice, which: Array) -> None:
        if which.any():
            self._done.append((self._written[at][which], self._read[at][which]))

    def ended(self) -> tuple[Array, Array, Array]:
        """Return since when, until when and how many bytes were occupied."""
        every = slice(0, len(self._written))
        self._close(every, (self._written >= 0) & (self._read > self._written))
        since, until = (np.concatenate([d[i] for d in self._done] or [np.zeros(0)]) for i in (0, 1))
        return since, until, np.full(len(since), BLOCK)


def _mean(since: Array, until: Array, amount: Array, edges: Array) -> Array:
    """Return the mean over every stretch of amounts that are there from one time until another."""
    times = np.concatenate([since, until]).astype(np.float64)
    if not len(times):
        return np.zeros(len(edges) - 1)
    steps = np.concatenate([amount, -np.asarray(amount)])
    order = np.argsort(times, kind="stable")
    times, level = times[order], np.cumsum(steps[order])
    area = np.concatenate([[0.0], np.cumsum(level[:-1] * np.diff(times))])
    found: Array = np.maximum(np.diff(np.interp(edges, times, area)) / np.diff(edges), 0.0)
    return found
