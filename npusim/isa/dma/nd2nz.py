"""The copy that turns a row-major matrix into columns of fractals."""

from __future__ import annotations

from typing import Annotated, ClassVar

from npusim.config.chip import Chip
from npusim.isa.dma.movement import GM, L1, Movement, copy_runs, port_work, raw, touched
from npusim.isa.dtype import F16
from npusim.isa.instruction import CoreView, Role, Work, instruction
from npusim.isa.operand import Access, Operand, Pipe
from npusim.isa.state import State
from npusim.units import BLOCK_BYTES, ceil_div


@instruction
class DataCopyNd2Nz(Movement):
    """Copy `nd_num` row-major matrices of `n_value` rows and `d_value` columns from GM into the NZ layout of
    L1.

    A row is cut into pieces of 32 bytes (C0). Piece j of row i lands at block `j * dst_c0_stride + i *
    dst_n_stride`, so that a matrix becomes columns of 16-row fractals, each 16 rows of 32 bytes, when
    `dst_c0_stride` is the number of rows rounded up to 16. The tail of the last piece is not written. Rows
    lie `src_d_value` elements apart, matrices `src_matrix_stride` elements in GM and `dst_matrix_stride`
    elements in L1. With `l2_bypass` the cache stays as it is.
    Cost: the port of the core to GM.
    """

    dst: Annotated[Operand, Role((L1,), writes=True)]
    src: Annotated[Operand, Role((GM,), reads=True)]
    n_value: int
    d_value: int
    src_d_value: int
    dst_c0_stride: int
    dst_n_stride: int = 1
    nd_num: int = 1
    src_matrix_stride: int = 0
    dst_matrix_stride: int = 1
    l2_bypass: bool = False

    pipe: ClassVar[Pipe] = Pipe.MTE2

    def check_rules(self, chip: Chip, state: State) -> None:
        """Check the limits of the fields, that pieces do not overlap, and the element types."""
        self.check_one_type(self.dst.dtype, self.src.dtype)
        if self.src.dtype.bits not in (8, 16, 32):
            raise self.error(
                f"elements must have 8, 16 or 32 bits, not {self.src.dtype.bits}; use u8 for pairs of s4"
            )
        self.check_range("nd_num", 1, 4095)
        self.check_range("n_value", 1, 16384, "rows")
        self.check_range("d_value", 1, 65535, "elements")
        self.check_range("src_d_value", 1, 65535, "elements")
        self.check_range("dst_c0_stride", 1, 16384, "blocks of 32 bytes")
        self.check_range("dst_n_stride", 1, 16384, "blocks of 32 bytes")
        self.check_range("src_matrix_stride", 0, 65535, "elements")
        self.check_range("dst_matrix_stride", 1, 65535, "elements")
        if self.dst_matrix_stride * self.dst.dtype.size % BLOCK_BYTES and self.nd_num > 1:
            raise self.error(
                f"dst_matrix_stride must be a multiple of 32 bytes, not {self.dst_matrix_stride} elements"
            )

        column, row = self.dst_c0_stride * BLOCK_BYTES, self.dst_n_stride * BLOCK_BYTES
        pieces = ceil_div(self.d_value * self.dst.dtype.size, BLOCK_BYTES)
        matrices = (self.nd_num, self.dst_matrix_stride * self.dst.dtype.size)
        self.check_disjoint(
            touched(self.dst, 0, BLOCK_BYTES, matrices, (pieces, column), (self.n_value, row)),
            f"pieces overlap in l1: dst_c0_stride {self.dst_c0_stride} and dst_n_stride {self.dst_n_stride} "
            f"leave no room for {self.n_value} rows; align the rows to 16 for dst_c0_stride",
        )

    @property
    def _pieces(self) -> list[tuple[int, int, int]]:
        """First piece, number of pieces and bytes of each: the whole ones, then the tail."""
        whole, tail = divmod(self.d_value * self.src.dtype.size, BLOCK_BYTES)
        return [p for p in ((0, whole, BLOCK_BYTES), (whole, 1, tail)) if p[1] and p[2]]

    def _source(self) -> Access:
        size = self.src.dtype.size
        return touched(
            self.src,
            0,
            self.d_value * size,
            (self.nd_num, self.src_matrix_stride * size),
            (self.n_value, self.src_d_value * size),
        )

    def reads(self, state: State) -> tuple[Access, ...]:
        """Return the rows of the matrices."""
        return (self._source(),)

    def writes(self, state: State) -> tuple[Access, ...]:
        """Return the pieces, without the tail of the last one of a row."""
        column, row = self.dst_c0_stride * BLOCK_BYTES, self.dst_n_stride * BLOCK_BYTES
        matrix = self.dst_matrix_stride * self.dst.dtype.size
        return tuple(
            touched(
                self.dst, first * column, size, (self.nd_num, matrix), (count, column), (self.n_value, row)
            )
            for first, count, size in self._pieces
        )

    def execute(self, core: CoreView, state: State) -> None:
        """Copy all whole pieces at once, then the tails."""
        size = self.src.dtype.size
        column, row = self.dst_c0_stride * BLOCK_BYTES, self.dst_n_stride * BLOCK_BYTES
        rows = self.src_matrix_stride * size, self.src_d_value * size
        for first, count, nbytes in self._pieces:
            shape = (self.nd_num, count, self.n_value, nbytes)
            source = core.view(raw(self.src, first * BLOCK_BYTES), shape, (rows[0], BLOCK_BYTES, rows[1], 1))
            strides = (self.dst_matrix_stride * size, column, row, 1)
            copy_runs(core.view(raw(self.dst, first * column), shape, strides), source)

    def work(self, chip: Chip, state: State) -> Work:
        """Return the cost of the port."""
        elements = self.nd_num * self.n_value * self.d_value
        source = self._source()
        return port_work(chip, "gm_to_l1", source, elements, write=False, bypass=self.l2_bypass)

    @classmethod
    def example(cls) -> DataCopyNd2Nz:
        """Load a 32 x 48 matrix of halves out of rows of 64."""
        dst, src = Operand(L1, F16, 0), Operand(GM, F16, 0)
        return cls(dst=dst, src=src, n_value=32, d_value=48, src_d_value=64, dst_c0_stride=32)
