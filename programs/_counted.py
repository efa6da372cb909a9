"""Vector instructions on the first elements of dense tiles, by a core that is in counter mode."""

from __future__ import annotations

from typing import Any

from npusim import Pipe, isa
from npusim.isa.vector.lanes import VectorInstruction

COUNTING = isa.State(counter_mode=True, mask=0)
"""State for forms whose mask must be set, whatever it was."""
LANES = 64
"""Words of 32 bits in a repeat."""
BARRIER = isa.PipeBarrier(on=Pipe.V)
"""Keeps vector instructions behind those before."""


def counted(cls: type[VectorInstruction], count: int, **operands: Any) -> list[isa.Instruction]:
    """Return a vector instruction on the first `count` elements, with its mask; the core is in counter
    mode.
    """
    return isa.contiguous(cls, count=count, state=COUNTING, **operands)
