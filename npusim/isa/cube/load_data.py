"""Loads from L1 into L0A and L0B: single fractals, and whole matrices in one instruction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from npusim.config.chip import Chip
from npusim.isa.cube.layout import C0, ROWS, Order, l0a_order, parts
from npusim.isa.dma.movement import L0A, L0B, L1, Movement, path_work, raw, touched
from npusim.isa.dtype import F16, U16
from npusim.isa.instruction import CoreView, Role, Work, instruction
from npusim.isa.operand import Access, Operand, Pipe
from npusim.isa.state import State
from npusim.units import FRACTAL_BYTES, ceil_div

L0 = Annotated[Operand, Role((L0A, L0B), writes=True)]
L1In = Annotated[Operand, Role((L1,), reads=True)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Load(Movement):
    """Base of the loads into L0: element types, the transposition limit, and the cost of the path."""

    dst: L0
    src: L1In

    pipe: ClassVar[Pipe] = Pipe.MTE1

    def check_types(self, *, transpose: bool) -> None:
        """Raise where the types differ, or where elements of another width than 16 bits are transposed."""
        self.check_one_type(self.dst.dtype, self.src.dtype)
        if transpose and self.src.dtype.bits != 16:
            raise self.error(
                f"only 16-bit elements are transposed, not {self.src.dtype.short}; use LoadDataWithTranspose"
            )

    def fractals_work(self, chip: Chip, fractals: int) -> Work:
        """Return the cost of moving whole fractals."""
        name = "l1_to_l0a" if self.dst.space is L0A else "l1_to_l0b"
        nbytes = fractals * FRACTAL_BYTES
        return path_work(chip, name, nbytes, nbytes * 8 // self.src.dtype.bits)


@instruction
class LoadData2D(Load):
    """Copy `repeat` fractals of 512 bytes from L1 to L0A or L0B.

    Fractal i comes from position `start + i * src_stride` of the source and goes to position `i * (1 +
    dst_gap)` of the destination, in fractals. With `transpose` every 16 x 16 fractal of a 16-bit type is
    transposed on the way.
    Cost: issue + bytes / rate of the path, then its latency.
    """

    repeat: int
    start: int = 0
    src_stride: int = 1
    dst_gap: int = 0
    transpose: bool = False

    def check_rules(self, chip: Chip, state: State) -> None:
        """Check element types and the limits of the fields."""
        self.check_types(transpose=self.transpose)
        self.check_range("repeat", 1, 255, "fractals", "use LoadData3D for a whole matrix")
        self.check_range("start", 0, 65535, "fractals")
        self.check_range("src_stride", 0, 65535, "fractals")
        self.check_range("dst_gap", 0, 65535, "fractals")

    def reads(self, state: State) -> tuple[Access, ...]:
        """Return the fractals of the source."""
        start, stride = self.start * FRACTAL_BYTES, self.src_stride * FRACTAL_BYTES
        return (touched(self.src, start, FRACTAL_BYTES, (self.repeat, stride)),)

    def writes(self, state: State) -> tuple[Access, ...]:
        """Return the fractals of the destination."""
        return (touched(self.dst, 0, FRACTAL_BYTES, (self.repeat, (1 + self.dst_gap) * FRACTAL_BYTES)),)

    def execute(self, core: CoreView, state: State) -> None:
        """Copy or transpose the fractals."""
        strides = self.src_stride * FRACTAL_BYTES, (1 + self.dst_gap) * FRACTAL_BYTES
        src, dst = raw(self.src, self.start * FRACTAL_BYTES), raw(self.dst)
        if self.transpose:
            shape = (self.repeat, ROWS, ROWS)
            source = core.view(src.as_type(U16), shape, (strides[0], C0, 2))
            core.view(dst.as_type(U16), shape, (strides[1], 2, C0))[...] = source
        else:
            wide = (self.repeat, FRACTAL_BYTES)
            core.view(dst, wide, (strides[1], 1))[...] = core.view(src, wide, (strides[0], 1))

    def work(self, chip: Chip, state: State) -> Work:
        """Return the cost of the path."""
        return self.fractals_work(chip, self.repeat)

    @classmethod
    def example(cls) -> LoadData2D:
        """Extract the diagonal fractals of a 64 x 64 matrix of halves."""
        return cls(dst=Operand(L0A, F16, 0), src=Operand(L1, F16, 0), repeat=4, src_stride=5, dst_gap=4)


@instruction
class LoadData3D(Load):
    """Load an m x k part of an NZ matrix in L1 into L0A or L0B with one instruction (img2col with a 1 x 1
    kernel).

    The matrix in L1 has columns of fractals that are `rows` rows high; the part starts at row `m_start` and
    column `k_start` (a multiple of C0). In L0A the part is the left operand (m, k); in L0B it is the right
    operand transposed, (n, k) with n = m. With `transpose` (16-bit types) fractals are transposed and
    reordered on the way: the part is then the left operand transposed, (k, m), or the right operand as it is,
    (k, n) = (m, k). Fractals are dense at the destination, in the chip's order for L0A; lanes beyond m and k
    in the last ones become zero.
    Cost: issue + bytes of whole fractals / rate of the path, then its latency.
    """

    m: int
    k: int
    rows: int
    m_start: int = 0
    k_start: int = 0
    transpose: bool = False

    @property
    def _row_bytes(self) -> int:
        return self.k * self.src.dtype.bits // 8

    @property
    def _start(self) -> int:
        return self.k_start * self.src.dtype.bits // 8 * self.rows + self.m_start * C0

    def check_rules(self, chip: Chip, state: State) -> None:
        """Check element types, limits, and that the part lies inside the matrix."""
        self.check_types(transpose=self.transpose)
        self.check_range("m", 1, 65535, "rows")
        self.check_range("k", 1, 65535, "elements")
        self.check_range("rows", 1, 65535)
        self.check_range("m_start", 0, 65535)
        self.check_range("k_start", 0, 65535)
        c0 = C0 * 8 // self.src.dtype.bits
        if self.k_start % c0:
            raise self.error(f"k_start must be a multiple of {c0} elements, not {self.k_start}")
        if self.k * self.src.dtype.bits % 8:
            raise self.error(f"k must be even for {self.src.dtype.short}, not {self.k}")
        if self.m_start + self.m > self.rows:
            raise self.error(
                f"rows {self.m_start}..{self.m_start + self.m} leave the {self.rows} rows of the matrix"
            )

    @property
    def _fractals(self) -> int:
        return ceil_div(self.m, ROWS) * ceil_div(self._row_bytes, C0)

    def _strides(self, core: CoreView) -> tuple[int, int]:
        """Bytes between the fractals of the destination along m and along k of the part."""
        by_rows = self.dst.space is L0A and l0a_order(core) is Order.ZZ
        if by_rows != self.transpose:
            return ceil_div(self._row_bytes, C0) * FRACTAL_BYTES, FRACTAL_BYTES
        return FRACTAL_BYTES, ceil_div(self.m, ROWS) * FRACTAL_BYTES

    def reads(self, state: State) -> tuple[Access, ...]:
        """Return the rows of the part, to the last element."""
        column = self.rows * C0
        return tuple(
            touched(self.src, self._start + p.first * column, p.size, (p.blocks, column), (self.m, C0))
            for p in parts(self._row_bytes, C0)
        )

    def writes(self, state: State) -> tuple[Access, ...]:
        """Return the fractals of the destination."""
        return (touched(self.dst, 0, self._fractals * FRACTAL_BYTES),)

    def execute(self, core: CoreView, state: State) -> None:
        """Copy whole fractals at once, then the parts of fractals at the edges."""
        down, along = self._strides(core)
        if self.m % ROWS or self._row_bytes % C0:
            core.view(raw(self.dst), (self._fractals * FRACTAL_BYTES,))[...] = 0
        column, size = self.rows * C0, 2 if self.transpose else 1
        inner = (2, C0) if self.transpose else (C0, 1)
        for r in parts(self.m, ROWS):
            for c in parts(self._row_bytes, C0):
                shape = (r.blocks, c.blocks, r.size, c.size // size)
                src = raw(self.src, self._start + r.first * FRACTAL_BYTES + c.first * column)
                dst = raw(self.dst, r.first * down + c.first * along)
                if self.transpose:
                    src, dst = src.as_type(U16), dst.as_type(U16)
                source = core.view(src, shape, (FRACTAL_BYTES, column, C0, size))
                core.view(dst, shape, (down, along, *inner))[...] = source

    def work(self, chip: Chip, state: State) -> Work:
        """Return the cost of the path."""
        return self.fractals_work(chip, self._fractals)

    @classmethod
    def example(cls) -> LoadData3D:
        """Load a 32 x 64 left operand out of a 128 x 64 matrix of halves."""
        return cls(dst=Operand(L0A, F16, 0), src=Operand(L1, F16, 0), m=32, k=64, rows=128, m_start=16)
