"""Where the time of a pipe went: work, waits by cause, and the tail, which add up to the total."""

from __future__ import annotations

from array import array
from enum import IntEnum

from npusim.isa.operand import Pipe
from npusim.program.core import CoreId


class Cause(IntEnum):
    """Why a pipe spent cycles; there is no other."""

    WORK = 0
    """Its unit was occupied, or its data moved as fast as its own port allows."""
    FLAG = 1
    """It waited for a flag of another pipe of its core."""
    CROSS_CORE = 2
    """It waited for another core."""
    BARRIER = 3
    """It waited for its own earlier instructions to be done."""
    LINK = 4
    """Its data waited for L2, main memory, or for a transfer to come back."""
    ISSUE = 5
    """Nothing was in its queue: the scalar unit had not issued it yet."""
    QUEUE = 6
    """The scalar unit waited for room in the queue of a pipe."""


class Spans:
    """Who did what, why, from when to when: columns, for traces."""

    def __init__(self) -> None:
        self.pipe = array("i")
        """Index into the clocks of the launch."""
        self.op = array("q")
        """Position in the stream of the core; -1 where none."""
        self.cause = array("b")
        self.start = array("q")
        self.stop = array("q")

    def add(self, pipe: int, op: int, cause: Cause, start: int, stop: int) -> None:
        """Append one span."""
        self.pipe.append(pipe)
        self.op.append(op)
        self.cause.append(cause)
        self.start.append(start)
        self.stop.append(stop)


class Moves:
    """The data of transfers with global memory, which moves from `start` to `stop`: columns, for traces."""

    def __init__(self) -> None:
        self.start = array("q")
        self.stop = array("q")
        self.write = array("b")
        self.nbytes = array("q")
        """Bytes between core and L2."""
        self.hit = array("q")
        """Those of them that L2 took without main memory."""
        self.fetched = array("q")
        """Bytes read from main memory."""
        self.evicted = array("q")
        """Bytes that left L2 for main memory because of the transfer."""

    def begin(self, start: int, write: bool, nbytes: int, hit: int, fetched: int, evicted: int) -> int:
        """Append a transfer whose end is not known and return its row."""
        self.start.append(start)
        self.stop.append(start)
        self.write.append(write)
        self.nbytes.append(nbytes)
        self.hit.append(hit)
        self.fetched.append(fetched)
        self.evicted.append(evicted)
        return len(self.start) - 1


_ISSUE = int(Cause.ISSUE)  # Python 3.11 looks a member of an enum up as slowly as it calls a function


class PipeClock:
    """The cycles of one pipe by cause, complete up to `cursor`."""

    __slots__ = ("core", "cursor", "cycles", "index", "instructions", "pipe", "spans")

    def __init__(self, core: CoreId, pipe: Pipe, index: int, spans: Spans | None) -> None:
        self.core = core
        self.pipe = pipe
        self.index = index
        self.spans = spans
        self.instructions = 0
        self.cursor = 0
        self.cycles = [0] * len(Cause)

    @property
    def name(self) -> str:
        """Core and pipe, as `core0.vec0.V`."""
        return f"{self.core}.{self.pipe.name}"

    def until(self, cause: Cause, time: int, op: int) -> None:
        """Put the time from the cursor on down to a cause; nothing where the cursor is there already."""
        start = self.cursor
        if time > start:
            self.cycles[cause] += time - start
            self.cursor = time
            if self.spans is not None:
                self.spans.add(self.index, op, cause, start, time)

    def spend(self, cause: Cause, start: int, stop: int, op: int) -> None:
        """Put the time from the cursor to `start` down to issue, and from there to `stop` to a cause."""
        if self.spans is not None:
            self.until(Cause.ISSUE, start, op)
            self.until(cause, stop, op)
            return
        cursor, cycles = self.cursor, self.cycles
        if start > cursor:
            cycles[_ISSUE] += start - cursor
            cursor = self.cursor = start
        if stop > cursor:
            cycles[cause] += stop - cursor
            self.cursor = stop
