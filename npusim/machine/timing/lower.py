"""Turning instructions into what the timing machine needs of them: pipe, cycles, latency, traffic."""

from __future__ import annotations

from collections import Counter
from enum import IntEnum

from npusim.config.chip import Chip, Confidence
from npusim.isa.instruction import Instruction, Kind, Transfer
from npusim.isa.operand import Pipe, Space
from npusim.isa.scalar import DataCacheCleanAndInvalid, GetValue, SetValue
from npusim.isa.state import RESET, State
from npusim.isa.sync import PipeBarrier, SetFlag, WaitFlag

_KEPT = 1 << 16


class Code(IntEnum):
    """How the timing machine treats an instruction."""

    WORK = 0
    SCALAR = 1
    SCALAR_GM = 2
    """A scalar access to global memory, which may miss the data cache."""
    CLEAN = 3
    SET = 4
    WAIT = 5
    BARRIER = 6
    BARRIER_ALL = 7
    CROSS_SET = 8
    CROSS_WAIT = 9


_CODES = {
    Kind.WORK: Code.WORK,
    Kind.SCALAR: Code.SCALAR,
    Kind.STATE: Code.SCALAR,
    Kind.SET: Code.SET,
    Kind.WAIT: Code.WAIT,
    Kind.CROSS_SET: Code.CROSS_SET,
    Kind.CROSS_WAIT: Code.CROSS_WAIT,
}


class Lowered:
    """One instruction in one state, as the timing machine sees it."""

    __slots__ = (
        "after",
        "changes",
        "code",
        "confidence",
        "count",
        "cycles",
        "element_ops",
        "flag",
        "latency",
        "macs",
        "op",
        "pipe",
        "returns_value",
        "state",
        "transfer",
    )

    def __init__(self, op: Instruction, state: State) -> None:
        self.op = op
        self.state = state
        self.pipe: Pipe = op.pipe
        self.code: Code = Code.BARRIER
        self.changes = op.kind is Kind.STATE
        """Whether it changes the control state."""
        self.after: State | None = None
        """Control state behind it, once it is known."""
        self.flag: tuple[Pipe, Pipe, int] | None = None
        """Flag that it sets or waits for."""
        self.cycles = 0
        self.latency = 0
        self.transfer: Transfer | None = None
        self.macs = 0
        self.element_ops = 0
        self.confidence: Confidence | None = None
        self.returns_value = op.returns_value
        self.count = 0
        """How often it was issued."""

    @property
    def priced_cycles(self) -> int:
        """Cycles of work that the chip's numbers gave it."""
        return self.cycles if self.transfer is None else max(self.cycles, self.transfer.port_cycles)


class Lowering:
    """Lowers instructions once for every control state that they meet, and counts them."""

    def __init__(self, chip: Chip) -> None:
        self._chip = chip
        self._states: dict[State, State] = {RESET: RESET}
        self._kept: dict[tuple[int, int], Lowered] = {}
        self._last: dict[int, Lowered] = {}
        self.find = self._last.get
        """Look a lowered instruction up by the identity of the instruction; its state may be another."""
        self.tally = Tally()

    def lower(self, op: Instruction, state: State) -> Lowered:
        """Lower an instruction that was not found for its state, or return what is kept for it.

        States are those of `changed`, so that they are told apart by identity. Raises `OperandError` where
        it has no cost because it breaks a rule.
        """
        key = (id(op), id(state))
        low = self._kept.get(key)
        if low is None:
            low = self.make(op, state)
            if len(self._kept) >= _KEPT:
                self.count()
                self._kept.clear()
                self._last.clear()
            self._kept[key] = low
        self._last[id(op)] = low
        return low

    def make(self, op: Instruction, state: State) -> Lowered:
        """Lower an instruction without keeping it; who keeps it adds it to the tally.

        Raises `OperandError` where it has no cost because it breaks a rule.
        """
        low = Lowered(op, state)
        if op.kind is Kind.BARRIER:
            assert isinstance(op, PipeBarrier)
            low.code = Code.BARRIER_ALL if op.on is Pipe.ALL else Code.BARRIER
        else:
            low.code = _CODES[op.kind]
        if isinstance(op, SetFlag | WaitFlag):
            low.flag = (op.src, op.dst, op.id)
        if low.code is Code.WORK or low.code is Code.SCALAR:
            try:
                work = op.work(self._chip, state)
            except Exception:
                op.check(self._chip, state)  # timing alone checks nothing, but here there is something to say
                raise
            low.cycles, low.latency, low.transfer = work.cycles, work.latency, work.transfer
            low.macs, low.element_ops = work.macs, work.element_ops
            grades = {self._chip.confidence(price) for price in work.prices}
            low.confidence = "L" if "L" in grades else "M" if "M" in grades else "H" if grades else None
            if isinstance(op, DataCacheCleanAndInvalid):
                low.code = Code.CLEAN
            elif (isinstance(op, GetValue) and op.src.space is Space.GM) or (
                isinstance(op, SetValue) and op.dst.space is Space.GM
            ):
                low.code = Code.SCALAR_GM
        return low

    def changed(self, low: Lowered) -> State:
        """Return the control state behind an instruction that changes it."""
        if low.after is None:
            state = low.op.update(low.state)
            low.after = self._states.setdefault(state, state)
        return low.after

    def count(self) -> None:
        """Add all kept instructions to the tally, each as often as it was issued since."""
        for low in self._kept.values():
            self.tally.add(low)


class Tally:
    """What all instructions of a launch did, and how well their costs are known."""

    def __init__(self) -> None:
        self.macs = 0
        self.element_ops = 0
        self.priced: Counter[str] = Counter()
        """Work cycles by confidence."""

    def add(self, low: Lowered) -> None:
        """Add an instruction as often as it was issued, and start counting anew."""
        count, low.count = low.count, 0
        self.macs += low.macs * count
        self.element_ops += low.element_ops * count
        if low.confidence is not None:
            self.priced[low.confidence] += low.priced_cycles * count
