"""What cube cores do in the stages of the layer: one product of tiles after the other."""

from __future__ import annotations

from npusim import Kernel, Pipe, isa

from ._gdn import Steps
from ._kept import Kept


class Products:
    """Products of tiles of L1 on one cube core, one at a time, as the published kernels do them.

    A product brings both operands to L0, multiplies, and lets the scalar unit wait for the result; what is
    issued behind it may use the result, and overwrite the operands. Results wait in one of two accumulators.
    `kept` has the macros of products of all cores of a launch.
    """

    def __init__(self, c: Kernel, side: int, dtype: isa.DType, kept: Kept) -> None:
        self._a, self._b = c.l0a((side, side), dtype), c.l0b((side, side), dtype)
        self._acc = [c.l0c((side, side), isa.F32) for _ in range(2)]
        self._loaded = [c.flag(Pipe.MTE2, Pipe.MTE1) for _ in range(2)]
        self._arrivals = self._used = 0
        self._ready = c.flag(Pipe.MTE1, Pipe.M)
        self._moved, self._multiplied = c.flag(Pipe.MTE1, Pipe.S), c.flag(Pipe.M, Pipe.S)
        self._stored = [c.flag(Pipe.FIX, Pipe.M) for _ in range(2)]
        self._busy = [False, False]
        self._kept = kept

    def loaded(self) -> Steps:
        """Say that operands of a product have been loaded; at most two products may be ahead."""
        yield self._loaded[self._arrivals % 2].set
        self._arrivals += 1

    def multiply(
        self,
        acc: int,
        left: isa.Tile,
        right: isa.Tile,
        extents: tuple[int, int, int],
        *,
        turn_left: bool = False,
        turn_right: bool = False,
    ) -> Steps:
        """Multiply (m, k) by (k, n) into an accumulator, once `loaded` operands are there.

        A turned operand lies in L1 as its transpose.
        """
        yield self._loaded[self._used % 2].wait
        self._used += 1
        if self._busy[acc]:
            yield self._stored[acc].wait
            self._busy[acc] = False
        key = acc, left, right, extents, turn_left, turn_right
        yield self._kept.macro(key, lambda: self._product(*key))

    def _product(
        self,
        acc: int,
        left: isa.Tile,
        right: isa.Tile,
        extents: tuple[int, int, int],
        turn_left: bool,
        turn_right: bool,
    ) -> Steps:
        m, k, n = extents
        yield isa.load_a(self._a, left, m, k, transpose=turn_left)
        yield isa.load_b(self._b, right, k, n, transpose=not turn_right)
        yield self._ready.set
        yield self._moved.set
        yield self._ready.wait
        yield isa.mmad(self._acc[acc], self._a, self._b, m, k, n, init=True)
        yield self._multiplied.set
        yield self._moved.wait
        yield self._multiplied.wait

    def store(
        self, dst: isa.Operand, acc: int, height: int, columns: int, rows: int = 0, pitch: int = 0
    ) -> Steps:
        """Store a result of `height` rows, or its first `rows`, rounded to the type of `dst`.

        Rows are dense where no pitch is given.
        """
        pitch = pitch or columns
        yield isa.store_nd(dst, self._acc[acc], rows or height, columns, pitch=pitch, height=height)
        yield self._stored[acc].set
        self._busy[acc] = True

    def stop(self) -> Steps:
        """Wait for the stores that nobody waited for."""
        for acc, busy in enumerate(self._busy):
            if busy:
                yield self._stored[acc].wait


def load_matrix(dst: isa.Tile, src: isa.Operand, rows: int, columns: int, pitch: int = 0) -> Steps:
    """Load rows of a matrix into fractals, over zeros where there are fewer than the tile has."""
    height = dst.shape[0]
    if rows < height:
        yield isa.Fill(dst=dst.as_type(isa.U16), value=0, block_num=dst.nbytes // 32)
        yield isa.PipeBarrier(on=Pipe.MTE2)
    yield isa.nd_to_nz(dst, src, rows, columns, pitch=pitch or None, height=height)
