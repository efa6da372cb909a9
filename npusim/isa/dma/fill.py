"""Constant fill of the cube's memories."""

from __future__ import annotations

from typing import Annotated

from npusim.config.chip import Chip
from npusim.isa.dma.movement import L0A, L0B, L1, Movement, path_work, touched
from npusim.isa.dtype import F16, DType
from npusim.isa.instruction import CoreView, Role, Work, instruction
from npusim.isa.operand import Access, Operand, Pipe, Scalar
from npusim.isa.state import State
from npusim.units import BLOCK_BYTES, FRACTAL_BYTES


@instruction
class Fill(Movement):
    """Write a 16- or 32-bit value to `repeat` runs of `block_num` blocks in L1, L0A or L0B.

    A block is 32 bytes in L1 and a fractal of 512 bytes in L0; `dst_gap` blocks lie between two runs.
    Cost: the fill path of L1 on MTE2, the load path of L0A or L0B on MTE1.
    """

    dst: Annotated[Operand, Role((L1, L0A, L0B), writes=True)]
    value: Scalar
    block_num: int
    repeat: int = 1
    dst_gap: int = 0

    @property
    def pipe(self) -> Pipe:
        """MTE2 for L1, MTE1 for L0A and L0B."""
        return Pipe.MTE2 if self.dst.space is L1 else Pipe.MTE1

    @property
    def scalar_dtype(self) -> DType:
        """Element type of the destination."""
        return self.dst.dtype

    @property
    def _unit(self) -> int:
        return BLOCK_BYTES if self.dst.space is L1 else FRACTAL_BYTES

    def check_rules(self, chip: Chip, state: State) -> None:
        """Check the element type and the limits of the fields."""
        if self.dst.dtype.bits not in (16, 32):
            raise self.error(
                f"elements must have 16 or 32 bits, not {self.dst.dtype.short}; fill pairs of bytes as u16"
            )
        unit = f"blocks of {self._unit} bytes"
        self.check_range("repeat", 1, 32767)
        self.check_range("block_num", 1, 32767, unit)
        self.check_range("dst_gap", 0, 32767, unit)

    def writes(self, state: State) -> tuple[Access, ...]:
        """Return the runs."""
        unit = self._unit
        run = self.block_num * unit
        return (touched(self.dst, 0, run, (self.repeat, run + self.dst_gap * unit)),)

    def execute(self, core: CoreView, state: State) -> None:
        """Write the value."""
        size, unit = self.dst.dtype.size, self._unit
        run = self.block_num * unit
        target = core.view(self.dst, (self.repeat, run // size), (run + self.dst_gap * unit, size))
        target[...] = core.scalar(self.value, self.dst.dtype)

    def work(self, chip: Chip, state: State) -> Work:
        """Return the cost of the path."""
        name = {L1: "fill_l1", L0A: "l1_to_l0a", L0B: "l1_to_l0b"}[self.dst.space]
        nbytes = self.repeat * self.block_num * self._unit
        return path_work(chip, name, nbytes, nbytes // self.dst.dtype.size)

    @classmethod
    def example(cls) -> Fill:
        """Fill a 128 x 128 matrix of halves with ones."""
        return cls(dst=Operand(L1, F16, 0), value=1.0, block_num=1024)
