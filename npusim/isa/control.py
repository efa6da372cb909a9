"""Instructions that set the control state of a core: masks, atomics, control bits and parameters."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache
from typing import Any, ClassVar

from npusim.config.chip import Chip
from npusim.isa.dtype import F32, DType
from npusim.isa.instruction import CoreView, Instruction, Kind, Work, instruction
from npusim.isa.operand import Pipe
from npusim.isa.state import FULL_MASK, Atomic, State


@dataclass(frozen=True, slots=True, kw_only=True)
class StateInstruction(Instruction):
    """Base of the instructions that set control state, on the scalar unit."""

    kind: ClassVar[Kind] = Kind.STATE
    pipe: ClassVar[Pipe] = Pipe.S

    def execute(self, core: CoreView, state: State) -> None:
        """Change no memory; `update` gives the new state."""

    def work(self, chip: Chip, state: State) -> Work:
        """Return the time of one state change."""
        return Work(chip.scalar.state_cycles, prices=("scalar.state_cycles",))


@lru_cache(1 << 12)
def _masked(state: State, counter_mode: bool, mask: int) -> State:
    """Return a state with another mask; kept, since streams go from mask to mask and back."""
    return replace(state, counter_mode=counter_mode, mask=mask)


@instruction
class SetMaskCount(StateInstruction):
    """Enter counter mode: vector instructions process as many elements as the mask counts, whatever their
    repeat.
    """

    def update(self, state: State) -> State:
        """Return the state in counter mode."""
        return _masked(state, True, state.mask)

    @classmethod
    def example(cls) -> SetMaskCount:
        """Enter counter mode."""
        return cls()


@instruction
class SetMaskNorm(StateInstruction):
    """Enter normal mode: vector instructions process `repeat` repeats under a lane mask."""

    def update(self, state: State) -> State:
        """Return the state in normal mode."""
        return _masked(state, False, state.mask)

    @classmethod
    def example(cls) -> SetMaskNorm:
        """Enter normal mode."""
        return cls()


@instruction
class SetVectorMask(StateInstruction):
    """Set the mask: lane bits (bit i is lane i) in normal mode, the number of elements in counter mode."""

    mask: int

    def check(self, chip: Chip, state: State) -> None:
        """Refuse masks of more than 128 bits and counts of more than 32."""
        top = 2**32 - 1 if state.counter_mode else FULL_MASK
        if not 0 <= self.mask <= top:
            what = "an element count of at most 4,294,967,295" if state.counter_mode else "128 lane bits"
            raise self.error(f"mask must be {what}, not {self.mask:#x}")

    def update(self, state: State) -> State:
        """Return the state with the mask."""
        return _masked(state, state.counter_mode, self.mask)

    @classmethod
    def example(cls) -> SetVectorMask:
        """Enable the first 64 lanes."""
        return cls(mask=(1 << 64) - 1)


@instruction
class ResetMask(StateInstruction):
    """Enable all lanes in normal mode."""

    def update(self, state: State) -> State:
        """Return the state with the reset mask."""
        return _masked(state, False, FULL_MASK)

    @classmethod
    def example(cls) -> ResetMask:
        """Reset."""
        return cls()


@instruction
class SetAtomic(StateInstruction):
    """Make stores from UB, L1 and L0C to GM add to, or take the max or min with, the value there."""

    op: Atomic
    dtype: DType = F32

    def update(self, state: State) -> State:
        """Return the state with the atomic operation."""
        return replace(state, atomic=self.op, atomic_dtype=self.dtype)

    def check(self, chip: Chip, state: State) -> None:
        """Refuse element types without atomics (asc-devkit SetAtomic pages: s8 s16 f16 bf16 s32 f32 on 2201,
        H).
        """
        known = {"s8", "s16", "f16", "bf16", "s32", "f32"}
        if self.op is not Atomic.NONE and self.dtype.short not in known:
            raise self.error(
                f"element type {self.dtype.short} has no atomics; use one of {' '.join(sorted(known))}"
            )

    @classmethod
    def example(cls) -> SetAtomic:
        """Add floats."""
        return cls(op=Atomic.ADD, dtype=F32)


class Control(Enum):
    """Control bits and parameters that `SetControl` writes; each is a field of the control state."""

    SATURATE = "saturate"
    SATURATE_INT = "saturate_int"
    HF32 = "hf32"
    HF32_AWAY = "hf32_away"
    QUANT_SIGNED = "quant_signed"
    DEQ_SCALE = "deq_scale"
    QUANT_SCALE = "quant_scale"
    QUANT_OFFSET = "quant_offset"
    PAD_BITS = "pad_bits"


_SWITCHES = {
    Control.SATURATE,
    Control.SATURATE_INT,
    Control.HF32,
    Control.HF32_AWAY,
    Control.QUANT_SIGNED,
}


@instruction
class SetControl(StateInstruction):
    """Write one control bit or parameter of the core's state.

    Switches take 0 or 1; scales take float32 bits; the offset takes -256..255; pad bits are those of one
    element. The scales of the fixpipe and of dequantising casts may not be infinite, NaN or subnormal
    (asc-devkit Fixpipe page, H).
    """

    what: Control
    value: int

    def check(self, chip: Chip, state: State) -> None:
        """Refuse values outside the parameter's range."""
        if self.what in _SWITCHES:
            if self.value not in (0, 1):
                raise self.error(f"{self.what.value} must be 0 or 1, not {self.value}")
        elif self.what is Control.QUANT_OFFSET:
            if not -256 <= self.value <= 255:
                raise self.error(f"quant_offset must be -256..255, not {self.value}")
        elif not 0 <= self.value < 2**32:
            raise self.error(f"{self.what.value} must be 32 bits, not {self.value:#x}")
        elif self.what is not Control.PAD_BITS:
            exponent, fraction = self.value >> 23 & 0xFF, self.value & 0x7FFFFF
            if exponent == 0xFF or (exponent == 0 and fraction):
                raise self.error(
                    f"{self.what.value} may not be infinite, NaN or subnormal, not {self.value:#x}"
                )

    def update(self, state: State) -> State:
        """Return the state with the new value."""
        value: Any = bool(self.value) if self.what in _SWITCHES else self.value
        return replace(state, **{self.what.value: value})

    @classmethod
    def example(cls) -> SetControl:
        """Keep infinities and NaN."""
        return cls(what=Control.SATURATE, value=0)
