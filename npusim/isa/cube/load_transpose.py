"""The load that transposes squares of fractals, for types whose fractal is no square."""

from __future__ import annotations

from npusim.config.chip import Chip
from npusim.isa.cube.layout import C0, ROWS
from npusim.isa.cube.load_data import Load
from npusim.isa.dma.movement import L0B, L1, touched
from npusim.isa.dtype import S8
from npusim.isa.instruction import CoreView, Work, instruction
from npusim.isa.operand import Access, Operand
from npusim.isa.state import State
from npusim.units import FRACTAL_BYTES


@instruction
class LoadDataWithTranspose(Load):
    """Transpose `repeat` square matrices from L1 to L0A or L0B, also of 8- and 32-bit types.

    A square is as many adjoining fractals as make one: a 16 x 16 fractal of 16 bits, two 16 x 32 fractals of
    8 bits one above the other, two 16 x 8 fractals of 32 bits side by side. Square i comes from position
    `start + i * src_stride` of the source, in squares. It is transposed and cut into fractals again; the
    first goes `i * (1 + dst_gap)` fractals behind the destination, the second `1 + dst_frac_gap` fractals
    behind the first. Absent on coupled chips.
    Cost: issue + bytes / rate of the path, then its latency.
    """

    repeat: int
    start: int = 0
    src_stride: int = 1
    dst_gap: int = 0
    dst_frac_gap: int = 0

    @property
    def _fractals(self) -> int:
        """Fractals of a square."""
        return 1 if self.src.dtype.bits == 16 else 2

    @property
    def _pitches(self) -> tuple[int, int, int]:
        """Bytes between squares of the source, of the destination, and between the fractals of a square
        there.
        """
        square = self._fractals * FRACTAL_BYTES
        down = (1 + self.dst_gap) * FRACTAL_BYTES
        return self.src_stride * square, down, (1 + self.dst_frac_gap) * FRACTAL_BYTES

    def check_rules(self, chip: Chip, state: State) -> None:
        """Check the chip, the element types and the limits of the fields."""
        if chip.coupled:
            raise self.error(f"{chip.name} does not have it; transpose 16-bit fractals with LoadData2D")
        self.check_one_type(self.dst.dtype, self.src.dtype)
        if self.src.dtype.bits not in (8, 16, 32):
            raise self.error(f"elements must have 8, 16 or 32 bits, not {self.src.dtype.short}")
        self.check_range("repeat", 1, 255, "squares")
        for name in ("start", "src_stride", "dst_gap", "dst_frac_gap"):
            unit = "fractals" if name.startswith("dst") else "squares"
            self.check_range(name, 0, 65535, unit)
        _, down, apart = self._pitches
        target = touched(self.dst, 0, FRACTAL_BYTES, (self._fractals, apart), (self.repeat, down))
        self.check_disjoint(target, "fractals of two squares land on one place; change dst_gap")

    def reads(self, state: State) -> tuple[Access, ...]:
        """Return the squares."""
        square, pitch = self._fractals * FRACTAL_BYTES, self._pitches[0]
        return (touched(self.src, self.start * square, square, (self.repeat, pitch)),)

    def writes(self, state: State) -> tuple[Access, ...]:
        """Return the fractals of the transposed squares."""
        _, down, apart = self._pitches
        return tuple(
            touched(self.dst, i * apart, FRACTAL_BYTES, (self.repeat, down)) for i in range(self._fractals)
        )

    def execute(self, core: CoreView, state: State) -> None:
        """Transpose all squares at once."""
        size = self.src.dtype.size
        pitch, down, apart = self._pitches
        count, wide = self._fractals, C0 // size
        source = self.src.offset(self.start * count * FRACTAL_BYTES)
        # Squares as (repeat, row, column): fractals stacked for 8 bits, side by side for 32 bits.
        if size < 4:
            shape, strides = (self.repeat, count * ROWS, wide), (pitch, C0, size)
            squares = core.view(source, shape, strides)
        else:
            shape4 = (self.repeat, ROWS, count, wide)
            squares = core.view(source, shape4, (pitch, C0, FRACTAL_BYTES, size))
            squares = squares.reshape(self.repeat, ROWS, count * wide)
        turned = squares.transpose(0, 2, 1)
        target = core.view(self.dst, (self.repeat, count, ROWS, wide), (down, apart, C0, size))
        if size < 4:
            target[...] = turned.reshape(self.repeat, count, ROWS, wide)
        else:
            target[...] = turned.reshape(self.repeat, ROWS, count, wide).transpose(0, 2, 1, 3)

    def work(self, chip: Chip, state: State) -> Work:
        """Return the cost of the path."""
        return self.fractals_work(chip, self.repeat * self._fractals)

    @classmethod
    def example(cls) -> LoadDataWithTranspose:
        """Turn a 96 x 32 matrix of bytes into a right operand."""
        return cls(dst=Operand(L0B, S8, 0), src=Operand(L1, S8, 0), repeat=3, dst_gap=1)
