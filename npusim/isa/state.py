"""The control state of a core: masks, atomics, quantisation and control bits.

State is set by visible instructions that take effect in program order; it is a value, so that an instruction
and the state it meets say together what it does and costs.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from npusim.isa.dtype import DType

FULL_MASK = (1 << 128) - 1
"""All lanes of a 16-bit repeat; wider types use the low bits."""


class Atomic(Enum):
    """What a store to global memory does with the value already there."""

    NONE = 0
    ADD = 1
    MAX = 2
    MIN = 3


@dataclass(frozen=True, slots=True)
class State:
    """Control state of one core; the defaults are the values after reset."""

    counter_mode: bool = False
    """Whether `mask` counts elements (counter mode) or selects lanes of every repeat (normal mode)."""
    mask: int = FULL_MASK
    """Lane bits in normal mode, number of elements in counter mode."""
    atomic: Atomic = Atomic.NONE
    """Operation of stores from UB, L1 and L0C to GM."""
    atomic_dtype: DType = DType.F32
    """Element type of that operation."""
    saturate: bool = True
    """CTRL[48] = 0: overflow gives the largest finite value and NaN gives zero (asc-devkit SetCtrlSpr page,
    reset value).
    """
    saturate_int: bool = False
    """Clamp integer vector arithmetic instead of wrapping (CTRL[53], reset value 0; asc-devkit SetCtrlSpr
    page).
    """
    hf32: bool = False
    """Round float32 cube operands to 11 fraction bits (10 on 3510) and run at the HF32 rate."""
    hf32_away: bool = False
    """Ties away from zero instead of to even when rounding to HF32."""
    deq_scale: int = 0x3F800000
    """Float32 bits of the scale of int32 -> float16 casts (reset to one)."""
    quant_scale: int = 0x3F800000
    """Float32 bits of the scalar scale of the fixpipe."""
    quant_offset: int = 0
    """Offset of the fixpipe's requantisation, -256..255."""
    quant_signed: bool = True
    """Whether requantised bytes are signed."""
    pad_bits: int = 0
    """Bits of the value that DataCopyPad fills with."""


RESET = State()
"""State at the start of a stream."""
