"""Prefix sums of an array on one vector core by the documented CumSum, with carries as in ScanU.

A tile is cast to float32 and transposed, so that its rows become columns; s - 1 dependent additions of whole
rows sum along them, each behind a barrier; it is transposed back and copied, and the rows receive their
carries one by one (steps of the vendor's CumSum in its line-by-line form).
"""

from __future__ import annotations

from collections.abc import Iterator

from npusim import Kernel, Pipe, Reg, isa

from ._carries import carry_row

CARRY = Reg(0)
SCALARS_PER_ADDRESS = 2
"""Scalar operations behind each entry of the address lists of a transpose: one to compute it, one to store
it.
"""


class CumSum:
    """One vector core that scans arrays, tile by tile of s x s."""

    def __init__(self, c: Kernel, s: int, dtype: isa.DType) -> None:
        self._c, self._s = c, s
        self._source = c.ub((s, s), dtype)
        self._sums, self._turned = c.ub((s, s), isa.F32), c.ub((s, s), isa.F32)
        self._loaded, self._free = c.flag(Pipe.MTE2, Pipe.V), c.flag(Pipe.V, Pipe.MTE2)
        self._cleared = c.flag(Pipe.V, Pipe.MTE2)
        self._stored, self._counted = c.flag(Pipe.MTE3, Pipe.V), c.flag(Pipe.V, Pipe.S)
        self._carries = {r: carry_row(self._turned[r], s, self._counted) for r in range(s)}
        self._there = transposes(self._turned, self._sums, s)
        self._back = transposes(self._sums, self._turned, s)

    def start(self) -> Iterator[isa.Instruction]:
        """Give the buffers free."""
        yield self._free.set
        yield self._stored.set

    def stop(self) -> Iterator[isa.Instruction]:
        """Wait for what is still under way."""
        yield self._free.wait
        yield self._stored.wait

    def scan(self, x: isa.Tile, y: isa.Tile) -> Iterator[isa.Instruction]:
        """Scan an array."""
        tile = self._s * self._s
        yield isa.ScalarAlu(op=isa.ScalarOp.MOV, reg=CARRY.index, a=0, dtype=isa.F32)
        for start in range(0, x.size, tile):
            count = min(tile, x.size - start)
            yield from self._tile(x.flat(start, count), y.flat(start, count))

    def _tile(self, x: isa.Tile, y: isa.Tile) -> Iterator[isa.Instruction]:
        c, s, count = self._c, self._s, x.size
        tile = s * s
        source, sums, turned = self._source, self._sums, self._turned
        barrier = isa.PipeBarrier(on=Pipe.V)
        if count < tile:  # the last tile: what is not loaded counts as zero
            yield from c.vector(isa.Duplicate, count=tile, dst=source, scalar=0)
            yield self._cleared.set
            yield self._cleared.wait
        yield self._free.wait
        yield isa.copy_in(source.flat(0, count), x)
        yield self._loaded.set
        yield self._loaded.wait
        if x.dtype is isa.F16:
            yield from c.vector(isa.Cast, count=tile, dst=sums, src=source)
        else:
            yield from c.vector(isa.Copy, count=tile, dst=sums, src=source)
        yield self._free.set
        yield barrier
        yield self._stored.wait
        yield from self._there
        yield barrier
        for r in range(1, s):
            yield from c.vector(isa.Add, count=s, dst=turned[r], src0=turned[r - 1], src1=turned[r])
            yield barrier
        yield from self._back
        yield barrier
        yield from c.vector(isa.Adds, count=tile, dst=turned, src=sums, scalar=0)
        yield barrier
        rows, rest = divmod(count, s)
        yield from c.counter(s)
        for r in range(rows):
            yield from self._carries[r]
        if rest:
            yield from c.counter(rest)
            yield from carry_row(turned.flat(rows * s, rest), rest, self._counted)
        yield isa.PipeBarrier(on=Pipe.ALL)
        yield isa.copy_out(y, turned.flat(0, count))
        yield self._stored.set


def transposes(dst: isa.Tile, src: isa.Tile, s: int) -> list[isa.Instruction]:
    """Transpose an s x s matrix of float32: 16 rows at a call, repeated over columns of eight elements.

    Each call needs a list of 16 addresses on either side, which the scalar unit sets up.
    """
    steps: list[isa.Instruction] = []
    for top in range(0, s, 16):
        rows = tuple(src.address + (top + i) * s * 4 for i in range(16))
        columns = tuple(dst.address + j * s * 4 + top * 4 + half * 32 for j in range(8) for half in (0, 1))
        steps.append(isa.ScalarWork(count=SCALARS_PER_ADDRESS * 32))
        steps.append(
            isa.TransDataTo5HD(
                dst=columns, src=rows, dtype=isa.F32, repeat=s // 8, dst_repeat=s, src_repeat=1
            )
        )
    return steps
