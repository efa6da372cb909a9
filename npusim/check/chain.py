"""One core in the flag-only bound, and its instructions, reduced to what the recurrence needs."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence

from npusim.config.chip import Chip
from npusim.isa.instruction import Instruction, Kind, Transfer
from npusim.isa.operand import Pipe, Space
from npusim.isa.scalar import DataCacheCleanAndInvalid, GetValue, SetValue
from npusim.isa.state import RESET, State
from npusim.program.core import CoreId
from npusim.program.macro import Item

WORK, SCALAR, SET, WAIT, BARRIER, CROSS_SET, CROSS_WAIT, GLOBAL = range(8)
"""How the recurrence treats an instruction."""


class Step:
    """One instruction in one state, reduced to what the recurrence needs."""

    __slots__ = (
        "after",
        "changes",
        "code",
        "cycles",
        "latency",
        "line",
        "op",
        "pipe",
        "returns",
        "state",
        "transfer",
    )

    def __init__(self, chip: Chip, op: Instruction, state: State) -> None:
        self.op = op
        self.state = state
        self.pipe = int(op.pipe)
        self.code = _CODES[op.kind]
        self.returns = op.returns_value
        self.changes = op.kind is Kind.STATE
        self.after: State | None = None
        """Control state behind it, once it is known."""
        self.cycles = self.latency = 0
        self.transfer: Transfer | None = None
        self.line: tuple[int, int] | None = None
        """Line of global memory that a scalar access needs in the data cache."""
        if op.kind in (Kind.WORK, Kind.SCALAR, Kind.STATE):
            work = op.work(chip, state)
            self.cycles, self.latency, self.transfer = work.cycles, work.latency, work.transfer
        at = op.at if isinstance(op, DataCacheCleanAndInvalid) else None
        if isinstance(op, GetValue) and op.src.space is Space.GM:
            at = op.src
        elif isinstance(op, SetValue) and op.dst.space is Space.GM:
            at = op.dst
        if at is not None:
            self.code = GLOBAL
            self.line = (at.segment, at.address // chip.scalar.dcache_line_bytes)


_CODES = {
    Kind.WORK: WORK,
    Kind.SCALAR: SCALAR,
    Kind.STATE: SCALAR,
    Kind.SET: SET,
    Kind.WAIT: WAIT,
    Kind.BARRIER: BARRIER,
    Kind.CROSS_SET: CROSS_SET,
    Kind.CROSS_WAIT: CROSS_WAIT,
}


class Chain:
    """One core in the recurrence: its position in the stream, and per pipe the times reached so far."""

    def __init__(self, chip: Chip, core: CoreId, items: Sequence[Item]) -> None:
        self.core = core
        self.items = items
        self.at = 0
        self.inside = 0
        """Position in the macro at `at`."""
        self.state: State = RESET
        self.issue = 0
        """When the scalar unit can issue the next instruction."""
        pipes = len(Pipe)
        self.free = [0] * pipes
        """When a pipe can start the next instruction, by pipe."""
        self.done = [0] * pipes
        """When everything that it has started is usable."""
        self.busy = [0] * pipes
        """Its cycles of work."""
        self.moving = [0] * pipes
        self.under_way: dict[str, deque[int]] = defaultdict(deque)
        """When the last transfers of a port are usable."""
        self.waiting: list[deque[tuple[int, Step]]] = [deque() for _ in range(pipes)]
        """Issued and not started, behind a wait for a flag that nobody has set yet."""
        depths = [getattr(chip.queues, p.name.lower(), 1) for p in Pipe]
        self.pops: list[deque[int]] = [deque(maxlen=d) for d in depths]
        """When the last instructions of a pipe left its queue, as many as the queue holds."""
        self.woken: deque[int] = deque()
        """Pipes with waiting instructions whose flags have been set since they were looked at."""
        self.flags: dict[tuple[Pipe, Pipe, int], deque[int]] = defaultdict(deque)
        self.lines: dict[tuple[int, int], None] = {}
        self.awaited: int | None = None
        """Pipe whose value the scalar unit waits for."""
