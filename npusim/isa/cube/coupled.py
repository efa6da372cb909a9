"""How results leave the cube on coupled chips, which have no fixpipe: through the vector unit and UB."""

from __future__ import annotations

from typing import Annotated, ClassVar

from npusim.config.chip import Chip
from npusim.isa.cube.layout import ROWS
from npusim.isa.cube.quantise import convert
from npusim.isa.dma.movement import GM, L0C, UB, Movement, path_work, port_work, store_gm, touched
from npusim.isa.dtype import F16, F32, S32
from npusim.isa.instruction import CoreView, Role, Work, instruction
from npusim.isa.operand import Access, Operand, Pipe
from npusim.isa.state import Atomic, State

_CELLS = ROWS * ROWS
"""Elements of a fractal of L0C."""


@instruction
class DataCopyEnhanced(Movement):
    """Copy `block_count` runs of `block_len` fractals (16 x 16 elements) from L0C to UB, on the vector pipe.

    f32 may become f16 (nearest even) on the way; f32 and s32 are also copied as they are. Gaps between runs
    are in fractals. Exists on coupled chips only, where it takes the place of the fixpipe.
    Cost: issue + bytes read / rate of the path, then its latency; the conversion is free.
    """

    dst: Annotated[Operand, Role((UB,), writes=True)]
    src: Annotated[Operand, Role((L0C,), reads=True)]
    block_len: int
    block_count: int = 1
    src_gap: int = 0
    dst_gap: int = 0

    pipe: ClassVar[Pipe] = Pipe.V
    example_chip: ClassVar[str] = "ascend-310"

    def check_rules(self, chip: Chip, state: State) -> None:
        """Check the path, the element types and the limits of the fields."""
        self.check_path(chip, "l0c_to_ub")
        if not chip.coupled:
            raise self.error(f"l0c and ub are in different cores of {chip.name}; use Fixpipe and gm")
        if (self.src.dtype, self.dst.dtype) not in ((F32, F32), (F32, F16), (S32, S32)):
            raise self.error(
                f"no conversion {self.src.dtype.short} -> {self.dst.dtype.short}; there are f32 -> f32, "
                "f32 -> f16, s32 -> s32"
            )
        self.check_range("block_count", 1, 4095)
        self.check_range("block_len", 1, 65535, "fractals")
        self.check_range("src_gap", 0, 65535, "fractals")
        self.check_range("dst_gap", 0, 65535, "fractals")

    def _rows(self, at: Operand, gap: int) -> Access:
        cell = _CELLS * at.dtype.size
        return touched(at, 0, self.block_len * cell, (self.block_count, (self.block_len + gap) * cell))

    def reads(self, state: State) -> tuple[Access, ...]:
        """Return the fractals of L0C."""
        return (self._rows(self.src, self.src_gap),)

    def writes(self, state: State) -> tuple[Access, ...]:
        """Return the fractals of UB."""
        return (self._rows(self.dst, self.dst_gap),)

    def execute(self, core: CoreView, state: State) -> None:
        """Copy or convert the fractals."""
        shape = (self.block_count, self.block_len * _CELLS)
        source, target = (
            core.view(at, shape, ((self.block_len + gap) * _CELLS * at.dtype.size, at.dtype.size))
            for at, gap in ((self.src, self.src_gap), (self.dst, self.dst_gap))
        )
        target[...] = convert(source, self.src.dtype, self.dst.dtype, state, None, relu=False)

    def work(self, chip: Chip, state: State) -> Work:
        """Return the cost of the path."""
        elements = self.block_count * self.block_len * _CELLS
        return path_work(chip, "l0c_to_ub", elements * self.src.dtype.size, elements)

    @classmethod
    def example(cls) -> DataCopyEnhanced:
        """Drain a 64 x 64 result as halves."""
        return cls(dst=Operand(UB, F16, 0), src=Operand(L0C, F32, 0), block_len=16)


@instruction
class DataCopyNz2Nd(Movement):
    """Store a result that lies in NZ in UB to GM as `n_value` rows of `d_value` columns.

    Columns of fractals are 16 elements wide and `src_rows` rows high; rows in GM lie `dst_d_value` elements
    apart. Coupled chips reorder on this path only. Stores obey the atomic mode.
    Cost: the port of the core to GM.
    """

    dst: Annotated[Operand, Role((GM,), writes=True)]
    src: Annotated[Operand, Role((UB,), reads=True)]
    n_value: int
    d_value: int
    src_rows: int
    dst_d_value: int

    pipe: ClassVar[Pipe] = Pipe.MTE3
    example_chip: ClassVar[str] = "ascend-310"

    def check_rules(self, chip: Chip, state: State) -> None:
        """Check the chip, the element types, the limits of the fields and the atomic mode."""
        if not chip.coupled:
            raise self.error(f"{chip.name} does not reorder on the way from ub to gm; use Fixpipe")
        self.check_one_type(self.dst.dtype, self.src.dtype)
        if self.src.dtype.bits not in (16, 32):
            raise self.error(f"elements must have 16 or 32 bits, not {self.src.dtype.short}")
        self.check_range("n_value", 1, 8192, "rows")
        self.check_range("d_value", 1, 8192, "columns")
        if self.d_value % ROWS:
            raise self.error(f"d_value must be a multiple of {ROWS}, not {self.d_value}")
        self.check_range("src_rows", 1, 65535)
        self.check_range("dst_d_value", self.d_value, 65535, "elements")
        self.check_atomic(self.dst, state)

    def reads(self, state: State) -> tuple[Access, ...]:
        """Return the rows of the columns of fractals, and the destination of an atomic store."""
        width = ROWS * self.src.dtype.size
        columns = (self.d_value // ROWS, self.src_rows * width)
        found = (touched(self.src, 0, width, columns, (self.n_value, width)),)
        return found if state.atomic is Atomic.NONE else found + self.writes(state)

    def writes(self, state: State) -> tuple[Access, ...]:
        """Return the rows in GM."""
        size = self.dst.dtype.size
        return (touched(self.dst, 0, self.d_value * size, (self.n_value, self.dst_d_value * size)),)

    def execute(self, core: CoreView, state: State) -> None:
        """Store all columns of fractals at once."""
        size, shape = self.dst.dtype.size, (self.d_value // ROWS, self.n_value, ROWS)
        source = core.view(self.src, shape, (self.src_rows * ROWS * size, ROWS * size, size))
        target = core.view(self.dst, shape, (ROWS * size, self.dst_d_value * size, size))
        store_gm(target, source, state)

    def work(self, chip: Chip, state: State) -> Work:
        """Return the cost of the port."""
        return port_work(chip, "ub_to_gm", self.writes(state)[0], self.n_value * self.d_value, write=True)

    @classmethod
    def example(cls) -> DataCopyNz2Nd:
        """Store a 64 x 64 tile of halves into a matrix with rows of 128."""
        dst, src = Operand(GM, F16, 0), Operand(UB, F16, 0)
        return cls(dst=dst, src=src, n_value=64, d_value=64, src_rows=64, dst_d_value=128)
