"""Transposes of 16 rows of 32 bytes: Transpose and TransDataTo5HD."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from npusim.config.chip import Chip
from npusim.isa.dtype import F16, F32, S8, S16, S32, U8, U16, U32, DType
from npusim.isa.instruction import Array, CoreView, UbIn, UbOut, Work, instruction
from npusim.isa.operand import Access, Operand, Space
from npusim.isa.state import State
from npusim.isa.vector.banks import Walk
from npusim.isa.vector.lanes import Repeated, VectorInstruction, ub
from npusim.units import BLOCK_BYTES, FRACTAL_BYTES

ROWS = 16


@instruction
class Transpose(VectorInstruction):
    """Transpose a matrix of 16 x 16 elements of 16 bits: `dst[j][i] = src[i][j]`.

    The mask has no effect. Types f16, s16, u16. Cost: class transpose, one repeat.
    """

    dst: UbOut
    src: UbIn

    types: ClassVar[frozenset[DType]] = frozenset({F16, S16, U16})
    cost_class: ClassVar[str] = "transpose"
    counts: ClassVar[bool] = False

    def check_bounds(self, chip: Chip, state: State) -> None:
        """Check bounds, and that source and destination are the same bytes or have none in common."""
        super(Transpose, self).check_bounds(chip, state)
        if self.dst.address != self.src.address:
            self.check_apart(state, "dst", "src")

    def touched(self, state: State) -> dict[str, list[Access]]:
        """Return both matrices."""
        return {
            name: [Access(at.space, at.segment, at.address, FRACTAL_BYTES)]
            for name, at in (("dst", self.dst), ("src", self.src))
        }

    def execute(self, core: CoreView, state: State) -> None:
        """Transpose."""
        source = core.view(self.src, (ROWS, ROWS))
        core.view(self.dst, (ROWS, ROWS))[...] = source.T.copy()

    def work(self, chip: Chip, state: State) -> Work:
        """Return head + one repeat."""
        reads = Walk(self.src.address, BLOCK_BYTES, 0, ROWS)
        writes = Walk(self.dst.address, BLOCK_BYTES, 0, ROWS)
        return self.cost(chip, self.dst.dtype, 1, ROWS * ROWS, (reads,), (writes,))

    @classmethod
    def example(cls) -> Transpose:
        """Transpose the first matrix of UB."""
        return cls(dst=ub(F16, 0x10000), src=ub(F16, 0))


@instruction
class TransDataTo5HD(Repeated):
    """Transpose 16 rows of 32 bytes that lie at 16 addresses each of `src` and `dst`.

    16-bit types: element j of row i goes to element i of row j. 32-bit types: element j of rows 0..7 goes to
    row 2j, of rows 8..15 to row 2j + 1. 8-bit types: as 16-bit ones on one half of every row, which
    `src_high_half` and `dst_high_half` choose. Later repeats add the repeat strides to all addresses. The
    mask has no effect. Cost: class transpose.
    """

    dst: tuple[int, ...]
    src: tuple[int, ...]
    dtype: DType
    dst_repeat: int = 0
    src_repeat: int = 0
    dst_high_half: bool = False
    src_high_half: bool = False

    types: ClassVar[frozenset[DType]] = frozenset({S8, U8, F16, S16, U16, F32, S32, U32})
    cost_class: ClassVar[str] = "transpose"
    counts: ClassVar[bool] = False
    max_stride: ClassVar[int] = 65_535

    def check_types(self) -> None:
        """Check the element type, and the addresses."""
        self.check_type("dtype", self.dtype)
        if self.dtype.bits > 8 and (self.dst_high_half or self.src_high_half):
            raise self.error(f"halves of a row must be chosen for s8 and u8 only, not for {self.dtype.short}")
        for name in ("dst", "src"):
            rows = getattr(self, name)
            if len(rows) != ROWS:
                raise self.error(f"{name} must be {ROWS} addresses, not {len(rows)}")
            for i, address in enumerate(rows):
                if address % BLOCK_BYTES or address < 0:
                    raise self.error(
                        f"{name}[{i}] must start at a multiple of {BLOCK_BYTES} bytes in ub, "
                        f"not at {address:#x}"
                    )

    def check_mask(self, state: State) -> None:
        """Refuse strides that a single repeat would add to its addresses, as the hardware does."""
        if self.repeat == 1 and (self.dst_repeat or self.src_repeat):
            raise self.error(
                f"dst_repeat and src_repeat must be 0 with one repeat, not {self.dst_repeat} and "
                f"{self.src_repeat}, which the hardware would add to the addresses"
            )

    def check_bounds(self, chip: Chip, state: State) -> None:
        """Check bounds and overlap."""
        super(TransDataTo5HD, self).check_bounds(chip, state)
        written: dict[int, int] = {}
        for repeat in range(self.repeat):
            here = {a + repeat * self.dst_repeat * BLOCK_BYTES for a in self.dst}
            there = {a + repeat * self.src_repeat * BLOCK_BYTES for a in self.src}
            for address in there & written.keys():
                raise self.error(
                    f"repeat {repeat} reads as src what repeat {written[address]} wrote to dst; "
                    f"keep the two apart"
                )
            if here & there and here != there:
                raise self.error(
                    "dst and src must be the same bytes or have none in common within a repeat, not "
                    "overlap in part; give dst a place of its own"
                )
            written |= dict.fromkeys(here - written.keys(), repeat)

    def touched(self, state: State) -> dict[str, list[Access]]:
        """Return the rows, or their halves."""
        return {
            "dst": self._rows(self.dst, self.dst_repeat, self.dst_high_half),
            "src": self._rows(self.src, self.src_repeat, self.src_high_half),
        }

    def reads(self, state: State) -> tuple[Access, ...]:
        """Return the source rows, or their halves."""
        return tuple(self._rows(self.src, self.src_repeat, self.src_high_half))

    def writes(self, state: State) -> tuple[Access, ...]:
        """Return the destination rows, or their halves."""
        return tuple(self._rows(self.dst, self.dst_repeat, self.dst_high_half))

    def _rows(self, addresses: tuple[int, ...], stride: int, high: bool) -> list[Access]:
        if not self.repeat:
            return []
        size, offset = BLOCK_BYTES, 0
        if self.dtype.bits == 8:
            size, offset = BLOCK_BYTES // 2, BLOCK_BYTES // 2 * high
        times: tuple[int, ...] = (self.repeat,) if self.repeat > 1 else ()
        steps: tuple[int, ...] = (stride * BLOCK_BYTES,) if times else ()
        step = _even_step(addresses)
        if step is not None:
            start = addresses[0] + offset
            return [Access(Space.UB, 0, start, size, (*times, ROWS), (*steps, step))]
        return [Access(Space.UB, 0, a + offset, size, times, steps) for a in addresses]

    def execute(self, core: CoreView, state: State) -> None:
        """Transpose all repeats."""
        if not self.repeat:
            return
        source = self._load(core)
        if self.dtype.bits == 32:
            halves = source.reshape(2, 8, self.repeat, 8)
            result = halves.transpose(3, 0, 2, 1).reshape(ROWS, self.repeat, 8)
        else:
            result = source.transpose(2, 1, 0)
        width, size, offset = self._width(self.dst_high_half)
        strides = (self.dst_repeat * BLOCK_BYTES, size)
        step = _even_step(self.dst)
        if step is not None:
            at = Operand(Space.UB, self.dtype, self.dst[0] + offset)
            core.view(at, (ROWS, self.repeat, width), (step, *strides))[...] = result
            return
        for row, address in zip(result, self.dst, strict=True):
            core.view(Operand(Space.UB, self.dtype, address + offset), row.shape, strides)[...] = row

    def _load(self, core: CoreView) -> Array:
        """Return the source as a new array, (row, repeat, element)."""
        width, size, offset = self._width(self.src_high_half)
        shape, strides = (self.repeat, width), (self.src_repeat * BLOCK_BYTES, size)
        step = _even_step(self.src)
        if step is not None:
            at = Operand(Space.UB, self.dtype, self.src[0] + offset)
            return core.view(at, (ROWS, *shape), (step, *strides)).copy()
        return np.stack(
            [core.view(Operand(Space.UB, self.dtype, a + offset), shape, strides) for a in self.src]
        )

    def _width(self, high: bool) -> tuple[int, int, int]:
        """Return elements of a row that take part, their size, and the offset of the first."""
        if self.dtype.bits == 8:
            return BLOCK_BYTES // 2, 1, BLOCK_BYTES // 2 * high
        return BLOCK_BYTES // self.dtype.size, self.dtype.size, 0

    def work(self, chip: Chip, state: State) -> Work:
        """Return head + repeats x the larger of throughput and bank conflicts."""
        reads = _walks(self.src, self.src_repeat)
        writes = _walks(self.dst, self.dst_repeat)
        elements = self.repeat * ROWS * self._width(False)[0]
        return self.cost(chip, self.dtype, self.repeat, elements, reads, writes)

    @classmethod
    def example(cls) -> TransDataTo5HD:
        """Transpose a matrix of 16 x 16 halves."""
        rows = [i * BLOCK_BYTES for i in range(ROWS)]
        return cls(dst=tuple(0x10000 + r for r in rows), src=tuple(rows), dtype=F16)


def _walks(addresses: tuple[int, ...], repeat: int) -> tuple[Walk, ...]:
    """Return how rows are visited."""
    step = _even_step(addresses)
    if step is not None:
        return (Walk(addresses[0], step, repeat * BLOCK_BYTES, ROWS),)
    return tuple(Walk(a, 0, repeat * BLOCK_BYTES, 1) for a in addresses)


def _even_step(addresses: tuple[int, ...]) -> int | None:
    """Return the distance between successive addresses if it is always the same and ascends."""
    step = addresses[1] - addresses[0]
    if step > 0 and addresses == tuple(range(addresses[0], addresses[0] + ROWS * step, step)):
        return step
    return None
