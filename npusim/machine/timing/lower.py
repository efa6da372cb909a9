"""Turning instructions into what the timing machine needs of them: pipe, cycles, latency, traffic."""

from __future__ import annotations

from enum import IntEnum

from npusim.config.chip import Chip, Confidence
from npusim.isa.instruction import Instruction, Kind, Transfer
from npusim.isa.operand import Pipe, Space
from npusim.isa.scalar import DataCacheCleanAndInvalid, GetValue, SetValue
from npusim.isa.state import RESET, State
from npusim.isa.sync import PipeBarrier

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
        "code",
        "confidence",
        "cycles",
        "element_ops",
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
        self.cycles = 0
        self.latency = 0
        self.transfer: Transfer | None = None
        self.macs = 0
        self.element_ops = 0
        self.confidence: Confidence | None = None
        self.returns_value = op.returns_value


class Lowering:
    """Lowers the stream of one core in program order, keeping its control state."""

    def __init__(self, chip: Chip, cache: dict[int, Lowered], states: dict[State, State]) -> None:
        self._chip = chip
        self._cache = cache
        self._states = states
        self._state = RESET

    def __call__(self, op: Instruction) -> Lowered:
        """Return the lowered form of the next instruction."""
        low = self._cache.get(id(op))
        if low is None or low.state is not self._state:
            low = self._lower(op)
        if op.kind is Kind.STATE:
            state = op.update(self._state)
            self._state = self._states.setdefault(state, state)
        return low

    def _lower(self, op: Instruction) -> Lowered:
        low = Lowered(op, self._state)
        if op.kind is Kind.BARRIER:
            assert isinstance(op, PipeBarrier)
            low.code = Code.BARRIER_ALL if op.on is Pipe.ALL else Code.BARRIER
        else:
            low.code = _CODES[op.kind]
        if low.code is Code.WORK or low.code is Code.SCALAR:
            work = op.work(self._chip, self._state)
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
        if len(self._cache) >= _KEPT:
            self._cache.clear()
        self._cache[id(op)] = low
        return low
