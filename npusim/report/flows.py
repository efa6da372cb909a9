"""Flags as arrows: from the work before a set to the work behind the wait that it lets go.

The n-th set of a flag belongs to the n-th wait for it, in the order of the streams; a cross-core flag counts
for every sender and receiver apart. Of a flag of all cores only the last arrival is an arrow: it is the one
that the others waited for.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from npusim.isa.instruction import Array
from npusim.isa.operand import Pipe
from npusim.isa.sync import CrossCoreSetFlag, CrossCoreWaitFlag, Group, SetFlag, WaitFlag
from npusim.machine.resolve import Resolved
from npusim.program.core import CoreId, cross_peers


class _Work(NamedTuple):
    """The work of one pipe: instructions in order of time, which is that of the stream."""

    lane: int
    op: Array
    start: Array
    stop: Array


class Flows:
    """Arrows of one launch, and the work of the pipes that they join."""

    def __init__(self) -> None:
        self._work: dict[tuple[CoreId, Pipe], _Work] = {}
        self.texts: list[str] = []
        self.from_lane: list[int] = []
        self.from_time: list[int] = []
        self.to_lane: list[int] = []
        self.to_time: list[int] = []

    def add_lane(self, core: CoreId, pipe: Pipe, lane: int, op: Array, start: Array, stop: Array) -> None:
        """Add the spans of work of a pipe."""
        self._work[core, pipe] = _Work(lane, op, start, stop)

    def before(self, core: CoreId, pipe: Pipe, number: int) -> tuple[int, int] | None:
        """Return lane and end of the last work up to an instruction."""
        work = self._work[core, pipe]
        at = int(np.searchsorted(work.op, number, "right")) - 1
        return (work.lane, int(work.stop[at])) if at >= 0 else None

    def behind(self, core: CoreId, pipe: Pipe, number: int) -> tuple[int, int] | None:
        """Return lane and start of the first work behind an instruction."""
        work = self._work[core, pipe]
        at = int(np.searchsorted(work.op, number, "right"))
        return (work.lane, int(work.start[at])) if at < len(work.op) else None

    def join(self, text: str, producer: tuple[int, int] | None, consumer: tuple[int, int] | None) -> None:
        """Add an arrow where there is work at both ends."""
        if producer is not None and consumer is not None:
            self.texts.append(text)
            self.from_lane.append(producer[0])
            self.from_time.append(producer[1])
            self.to_lane.append(consumer[0])
            self.to_time.append(consumer[1])


def flows_of(streams: Iterable[Resolved], flows: Flows) -> None:
    """Add the arrows of all flags of a launch."""
    streams = list(streams)
    cores = [s.core for s in streams]
    sent: dict[tuple[CoreId, int, CoreId], deque[tuple[int, int] | None]] = defaultdict(deque)
    waits: list[tuple[CoreId, CrossCoreWaitFlag, int]] = []
    for stream in streams:
        core = stream.core
        sets: dict[tuple[Pipe, Pipe, int], deque[int]] = defaultdict(deque)
        waited: list[tuple[WaitFlag, int]] = []
        for number, op in enumerate(stream):
            if isinstance(op, SetFlag):
                sets[op.src, op.dst, op.id].append(number)
            elif isinstance(op, WaitFlag):
                waited.append((op, number))
            elif isinstance(op, CrossCoreSetFlag):
                producer = flows.before(core, op.pipe, number)
                for receiver in cross_peers(core, op.group, cores, sending=True):
                    sent[receiver, op.id, core].append(producer)
            elif isinstance(op, CrossCoreWaitFlag):
                waits.append((core, op, number))
        for wait, number in waited:
            origin = sets[wait.src, wait.dst, wait.id].popleft()
            text = f"{wait.src.name}->{wait.dst.name}#{wait.id}"
            flows.join(text, flows.before(core, wait.src, origin), flows.behind(core, wait.dst, number))
    for core, op, number in waits:
        found = [
            sent[core, op.id, sender].popleft()
            for sender in cross_peers(core, op.group, cores, sending=False)
        ]
        known = [producer for producer in found if producer is not None]
        if op.group is Group.ALL and known:
            known = [max(known, key=lambda producer: producer[1])]
        for producer in known:
            flows.join(f"cross-core#{op.id}", producer, flows.behind(core, op.pipe, number))
