"""Substitution in diagonal blocks of 16 on the vector unit, eight blocks at once, in float32."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from npusim import Builder, Kernel, Pipe, isa
from npusim.units import ceil_div

from ._tri import Triangle

BLOCK = 16
TOGETHER = 8
"""Blocks that lie side by side in UB: element i of a repeat belongs to block i / 8."""
_LANES = 8
"""Floats of a block of 32 bytes; a row of 16 is two of them."""
_PIECE = 4096
"""Elements of -A that are made at once."""


class _Flags:
    """Flags of one way through UB: loaded, used, done, stored."""

    def __init__(self, c: Kernel) -> None:
        self.loaded, self.used = c.flag(Pipe.MTE2, Pipe.V), c.flag(Pipe.V, Pipe.MTE2)
        self.done, self.stored = c.flag(Pipe.V, Pipe.MTE3), c.flag(Pipe.MTE3, Pipe.V)


class Substitution:
    """The launch that inverts diagonal blocks into `t`, clears the rest of it, and leaves -A in float32.

    In UB, rows of the inverses lie as (row, half, block, lane) and coefficients, spread over lanes, as
    (row, column, block, lane), so that one repeat is half a row of eight blocks.
    """

    def __init__(self, k: Builder, n: int, batch: int, dtype: isa.DType, triangle: Triangle) -> None:
        self._n, self._batch, self._dtype, self._triangle = n, batch, dtype, triangle
        self._matrices = max(1, TOGETHER * BLOCK // n)
        self.groups = ceil_div(batch, self._matrices)
        """Groups of matrices whose blocks are inverted at once."""
        ones = np.zeros((BLOCK, 2, TOGETHER, _LANES), np.float32)
        for i in range(BLOCK):
            ones[i, i // _LANES, :, i % _LANES] = 1
        self._ones = k.constant("ones", ones.reshape(BLOCK, -1))

    def stream(
        self, c: Kernel, cores: int, a: isa.Tile, t: isa.Tile, negative: isa.Tile | None
    ) -> Iterator[isa.Instruction]:
        """Yield the work of one core, for a launch with automatic synchronisation."""
        row = 2 * TOGETHER * _LANES
        narrow = c.ub((TOGETHER, BLOCK, BLOCK), self._dtype)
        wide = c.ub((TOGETHER, BLOCK, BLOCK), isa.F32)
        spread = c.ub((BLOCK, BLOCK * TOGETHER * _LANES), isa.F32)
        x, parts, ones = (c.ub((BLOCK, row), isa.F32) for _ in range(3))
        piece = c.ub(_PIECE, self._dtype), c.ub(_PIECE, isa.F32), c.ub(_PIECE, isa.F32)
        way, other = _Flags(c), _Flags(c)
        yield isa.copy_in(ones, self._ones)
        yield way.loaded.set
        yield way.loaded.wait
        for event in (way.used, way.stored, other.used, other.stored):
            yield event.set
        if negative is not None:
            yield from c.vector(isa.Duplicate, count=_PIECE, dst=piece[2], scalar=0.0)
        for group in range(c.block, self.groups, cores):
            start = group * self._matrices
            mine = range(start, min(start + self._matrices, self._batch))
            if negative is not None:
                for index in mine:
                    yield from self._negate(c, other, piece, a, t, negative, index)
                yield isa.PipeBarrier(on=Pipe.MTE3)
            yield from self._invert(c, way, mine, a, t, narrow, wide, spread, x, parts, ones)
        for event in (way.used, way.stored, other.used, other.stored):
            yield event.wait

    def _negate(
        self,
        c: Kernel,
        way: _Flags,
        piece: tuple[isa.Tile, isa.Tile, isa.Tile],
        a: isa.Tile,
        t: isa.Tile,
        negative: isa.Tile,
        index: int,
    ) -> Iterator[isa.Instruction]:
        """Store -A of a matrix in float32, and zeros as its inverse."""
        narrow, wide, zeros = piece
        size = self._n * self._n
        for start in range(0, size, _PIECE):
            count, at = min(_PIECE, size - start), index * size + start
            yield way.used.wait
            yield isa.copy_in(narrow.flat(0, count), a.flat(at, count))
            yield way.loaded.set
            yield way.loaded.wait
            yield way.stored.wait
            source = narrow
            if self._dtype is not isa.F32:
                source = wide
                yield from c.vector(isa.Cast, count=count, dst=wide, src=narrow)
            yield from c.vector(isa.Muls, count=count, dst=wide, src=source, scalar=-1.0)
            yield way.used.set
            yield way.done.set
            yield way.done.wait
            yield isa.copy_out(negative.flat(at, count), wide.flat(0, count))
            yield isa.copy_out(t.flat(at, count), zeros.flat(0, count))
            yield way.stored.set

    def _invert(
        self,
        c: Kernel,
        way: _Flags,
        mine: range,
        a: isa.Tile,
        t: isa.Tile,
        narrow: isa.Tile,
        wide: isa.Tile,
        spread: isa.Tile,
        x: isa.Tile,
        parts: isa.Tile,
        ones: isa.Tile,
    ) -> Iterator[isa.Instruction]:
        n = self._n
        starts = [m * n * n + i * (n + 1) for m in mine for i in range(0, n, BLOCK)]
        yield way.used.wait
        for g, start in enumerate(starts):
            yield isa.copy_in(narrow[g], a.flat(start, 1), pitch=n)
        yield way.loaded.set
        yield way.loaded.wait
        source = narrow
        if self._dtype is not isa.F32:
            source = wide
            count = len(starts) * BLOCK * BLOCK
            yield from c.vector(isa.Cast, count=count, dst=wide, src=narrow)
        yield from isa.normal_mode((1 << len(starts) * _LANES) - 1, c.state)
        for g in range(len(starts)):
            yield isa.Brcb(
                dst=spread.offset(g * 32),
                src=source[g],
                repeat=BLOCK * BLOCK // 8,
                dst_block=TOGETHER,
                dst_repeat=8 * TOGETHER,
            )
        yield way.used.set
        yield way.stored.wait
        yield isa.Copy(dst=x, src=ones, repeat=2 * BLOCK)
        rows = range(1, BLOCK) if self._triangle == "lower" else range(BLOCK - 2, -1, -1)
        for i in rows:
            yield from _row(spread[i], x, parts, i)
        yield way.done.set
        yield way.done.wait
        for g, start in enumerate(starts):
            for h in range(2):
                yield isa.DataCopy(
                    dst=t.flat(start + h * _LANES, 1),
                    src=x.offset((h * TOGETHER + g) * 32),
                    block_count=BLOCK,
                    block_len=1,
                    src_gap=2 * TOGETHER - 1,
                    dst_gap=n // _LANES - 1,
                )
        yield way.stored.set


def _row(coefficients: isa.Tile, x: isa.Tile, parts: isa.Tile, i: int) -> Iterator[isa.Instruction]:
    """Yield row i of eight inverses: the products with all rows, which are added up in halves, and taken away
    from the row of the identity.
    """
    for h in range(2):
        yield isa.Mul(
            dst=parts.offset(h * TOGETHER * 32),
            src0=coefficients,
            src1=x.offset(h * TOGETHER * 32),
            repeat=BLOCK,
            dst_repeat=2 * TOGETHER,
            src1_repeat=2 * TOGETHER,
        )
    count = BLOCK
    while count > 1:
        count //= 2
        yield isa.Add(dst=parts, src0=parts, src1=parts[count], repeat=2 * count)
    yield isa.Sub(dst=x[i], src0=x[i], src1=parts, repeat=2)
