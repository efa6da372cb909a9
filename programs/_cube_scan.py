"""What the cube does in the scan programs: prefix sums inside rows, and inside whole tiles.

Both keep one tile at every level (L1, L0, L0C), so what overlaps is different levels at work on different
tiles, as in the kernels of arXiv 2505.15112.
"""

from __future__ import annotations

from collections.abc import Iterator

from npusim import Kernel, Pipe, isa

Steps = Iterator[isa.Instruction]

READY, TAKEN = 0, 1
"""Flags between a cube core and its vector cores: local sums are stored; those before are completed."""


class RowScan:
    """Prefix sums of rows of s on one cube core: tiles of s x s times the upper triangular matrix of ones."""

    def __init__(self, c: Kernel, s: int, lower: isa.Tile, y: isa.DType) -> None:
        x = lower.dtype
        self._s, self._lower = s, lower
        self._a1, self._u1 = c.l1((s, s), x), c.l1((s, s), x)
        a0, self._u0 = c.l0a((s, s), x), c.l0b((s, s), x)
        self._acc = c.l0c((s, s), y)
        self._loaded, a1_free = c.flag(Pipe.MTE2, Pipe.MTE1), c.flag(Pipe.MTE1, Pipe.MTE2)
        ready, a0_free = c.flag(Pipe.MTE1, Pipe.M), c.flag(Pipe.M, Pipe.MTE1)
        done, acc_free = c.flag(Pipe.M, Pipe.FIX), c.flag(Pipe.FIX, Pipe.M)
        self._free = (a1_free, a0_free, acc_free)
        self._product = (
            self._loaded.set,
            self._loaded.wait,
            a0_free.wait,
            isa.load_a(a0, self._a1, s, s),
            a1_free.set,
            ready.set,
            ready.wait,
            acc_free.wait,
            isa.mmad(self._acc, a0, self._u0, s, s, s, init=True),
            a0_free.set,
            done.set,
            done.wait,
        )

    def start(self) -> Steps:
        """Load the matrix, which lies transposed in global memory: so the plain load already gives the layout
        of a right operand.
        """
        s = self._s
        yield isa.nd_to_nz(self._u1, self._lower, s, s)
        yield self._loaded.set
        yield self._loaded.wait
        yield isa.load_b(self._u0, self._u1, s, s, transpose=False)
        for free in self._free:
            yield free.set

    def tile(self, x: isa.Tile, y: isa.Tile) -> Steps:
        """Sum the rows of up to s x s elements of `x` into `y`."""
        a1_free, _, acc_free = self._free
        yield a1_free.wait
        yield from load_tile(self._a1, x, self._s)
        yield from self._product
        yield from store_tile(y, self._acc, self._s)
        yield acc_free.set

    def clear(self) -> Steps:
        """Write zeros where the tile is, for what `columns` leaves of it."""
        yield isa.Fill(dst=self._a1.as_type(isa.U16), value=0, block_num=self._a1.nbytes // 32)
        yield isa.PipeBarrier(on=Pipe.MTE2)

    def columns(self, x: isa.Tile, y: isa.Tile, rows: int, width: int) -> Steps:
        """Sum rows of fewer than s elements of `x` into `y`; nothing depends on what lies beside them."""
        a1_free, _, acc_free = self._free
        yield a1_free.wait
        yield isa.nd_to_nz(self._a1, x, rows, width, height=self._s)
        yield from self._product
        yield isa.store_nd(y, self._acc, rows, width, height=self._s)
        yield acc_free.set

    def stop(self) -> Steps:
        """Wait for what is still under way."""
        for free in self._free:
            yield free.wait


class BlockScan:
    """Prefix sums of whole tiles of s x s float16 elements on one cube core: A U + L (A J), with U upper
    triangular, L strictly lower triangular and J all ones; the row sums A J pass through L1 as float16.
    """

    def __init__(self, c: Kernel, s: int, upper: isa.Tile, strict: isa.Tile) -> None:
        self._s, self._upper, self._strict = s, upper, strict
        self._a1, self._u1, c1 = (c.l1((s, s), isa.F16) for _ in range(3))
        self._start1 = c.l1((s, s), isa.F16)  # L and J pass through here
        a0, self._l0 = c.l0a((s, s), isa.F16), c.l0a((s, s), isa.F16)
        self._j0, b0 = c.l0b((s, s), isa.F16), c.l0b((s, s), isa.F16)
        self._acc = c.l0c((s, s), isa.F32)
        self._loaded, a1_free = c.flag(Pipe.MTE2, Pipe.MTE1), c.flag(Pipe.MTE1, Pipe.MTE2)
        ready, free = c.flag(Pipe.MTE1, Pipe.M), c.flag(Pipe.M, Pipe.MTE1)
        b0_ready, b0_free = c.flag(Pipe.MTE1, Pipe.M), c.flag(Pipe.M, Pipe.MTE1)
        done, acc_free = c.flag(Pipe.M, Pipe.FIX), c.flag(Pipe.FIX, Pipe.M)
        c1_ready, c1_free = c.flag(Pipe.FIX, Pipe.MTE1), c.flag(Pipe.MTE1, Pipe.FIX)
        self._free = (a1_free, free, b0_free, acc_free, c1_free)
        small = (s // 16) ** 2 < c.chip.cube.interlock_fractals
        self._products = (
            self._loaded.wait,
            free.wait,
            isa.load_a(a0, self._a1, s, s),
            a1_free.set,
            ready.set,
            ready.wait,
            acc_free.wait,
            isa.mmad(self._acc, a0, self._j0, s, s, s, init=True),  # every column holds the row sums
            done.set,
            done.wait,
            c1_free.wait,
            isa.store_nz(c1, self._acc, s, s),
            acc_free.set,
            c1_ready.set,
            b0_free.wait,
            isa.load_b(b0, self._u1, s, s),
            b0_ready.set,
            b0_ready.wait,
            acc_free.wait,
            isa.mmad(self._acc, a0, b0, s, s, s, init=True),
            free.set,
            b0_free.set,
            b0_free.wait,
            c1_ready.wait,
            isa.load_b(b0, c1, s, s),
            c1_free.set,
            b0_ready.set,
            b0_ready.wait,
            *([isa.PipeBarrier(on=Pipe.M)] if small else []),
            isa.mmad(self._acc, self._l0, b0, s, s, s),
            b0_free.set,
            done.set,
            done.wait,
        )

    def start(self) -> Steps:
        """Load U and L from global memory, and make J."""
        s, a1_free = self._s, self._free[0]
        yield isa.nd_to_nz(self._u1, self._upper, s, s)
        yield isa.nd_to_nz(self._start1, self._strict, s, s)
        yield self._loaded.set
        yield self._loaded.wait
        yield isa.load_a(self._l0, self._start1, s, s)
        yield a1_free.set
        yield a1_free.wait
        yield isa.Fill(dst=self._start1, value=1.0, block_num=self._start1.nbytes // 32)
        yield self._loaded.set
        yield self._loaded.wait
        yield isa.load_b(self._j0, self._start1, s, s, transpose=False)
        for event in self._free:
            yield event.set

    def load(self, x: isa.Tile) -> Steps:
        """Load up to s x s elements."""
        yield self._free[0].wait
        yield from load_tile(self._a1, x, self._s)
        yield self._loaded.set

    def tile(self, x: isa.Tile, y: isa.Tile) -> Steps:
        """Sum up to s x s elements of `x` into `y`."""
        yield from self.load(x)
        yield from self.finish(y)

    def finish(self, y: isa.Tile) -> Steps:
        """Sum the tile that was loaded into `y`."""
        yield from self._products
        yield from store_tile(y, self._acc, self._s)
        yield self._free[3].set

    def stop(self) -> Steps:
        """Wait for what is still under way."""
        for event in self._free:
            yield event.wait


def load_tile(a1: isa.Tile, part: isa.Tile, s: int) -> Steps:
    """Load elements as an s x s tile in L1; what they do not fill of the tile is zero."""
    rows, rest = divmod(part.size, s)
    if rows < s:
        yield isa.Fill(dst=a1.as_type(isa.U16), value=0, block_num=a1.nbytes // 32)
        yield isa.PipeBarrier(on=Pipe.MTE2)
    if rows:
        yield isa.nd_to_nz(a1, part, rows, s, height=s)
    if rest:
        at = a1.offset(rows * 32)  # a row of a column of fractals is one block
        yield isa.nd_to_nz(at, part.flat(rows * s, rest), 1, rest, height=s)


def store_tile(part: isa.Tile, acc: isa.Tile, s: int) -> Steps:
    """Store the first elements of an s x s result row by row."""
    rows, rest = divmod(part.size, s)
    if rows:
        yield isa.store_nd(part, acc, rows, s, height=s)
    if rest:
        at = acc.offset(rows * 64)  # a row of a column of fractals is sixteen words
        yield isa.store_nd(part.flat(rows * s, rest), at, 1, rest, height=s)
