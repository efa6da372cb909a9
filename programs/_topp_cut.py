"""The end of top-p sampling on the vector cores, once probabilities are sorted and summed: cut, renormalise,
sample (arXiv 2505.15112, section 5.5, and the steps of the published sample_top_p).
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np

from npusim import Builder, Expected, Kernel, Pipe, Reg, isa
from npusim.errors import ConfigError
from npusim.isa.vector.forms import reduce_sum
from npusim.program.program import Check
from npusim.units import align_up, ceil_div

from ._carries import PART, TOTAL, Item, Steps, add_to
from ._counted import BARRIER, COUNTING, LANES, counted
from ._inner import InnerBuilder
from ._multi_core import span
from ._prefix_sum import UNIT
from ._split import Span, known
from ._topp import (
    CHOSEN,
    WHOLE,
    check_weights,
    exactly,
    expected_place,
    first_above,
    float_below,
    float_threshold,
    half_ulp,
    share_of,
)

PIECE = 4096
"""Most elements of a piece: two buffers for each array then fit into the unified buffer."""


def probabilities(n: int, dtype: str) -> Any:
    """Return a maker of probabilities that fall off as a softmax of normal numbers does. They are multiples
    of 2^-24 and add up to at most one, so that no sum of them is rounded.
    """

    def make(generator: np.random.Generator) -> np.ndarray:
        weights = np.exp(2 * generator.standard_normal(n))
        units = np.floor(weights / weights.sum() * 2.0**24)
        mantissa, exponent = np.frexp(units)
        return np.ldexp(np.floor(mantissa * 2.0**11), exponent - 35).astype(dtype)

    return make


def check_probabilities(name: str) -> Check:
    """Return what refuses NaN, infinities, negative numbers, -0, and nothing but zeros as probabilities."""

    def check(x: np.ndarray) -> None:
        check_weights(name, "probabilities", x)
        if not x.any():
            raise ConfigError(f"{name}: input x: one probability or more must be above 0, but all are 0")

    return check


class Cut:
    """One vector core's part: pass 1 zeroes what lies beyond p and sums the rest, pass 2 divides by the sum
    of all cores and counts the prefix sums that are not above the threshold.
    """

    def __init__(self, c: Kernel, size: int, dtype: isa.DType, parts: isa.Tile) -> None:
        """Reserve 36 bytes for each element of a piece; `parts` has a row of 64 bytes for each core,
        for two exchanges.
        """
        self._c, self._size, self._parts = c, size, parts
        self._given, self._sums, self._out = ([c.ub(size, isa.F32) for _ in range(2)] for _ in range(3))
        self._values = [tile.as_type(dtype).flat(0, size) for tile in self._given]
        self._work, self._ones, self._divisor = (c.ub(size, isa.F32) for _ in range(3))
        self._bits = c.ub(max(32, size // 8), isa.U8)
        self._tree = c.ub(max(8, size // 64), isa.F32)
        self._one = c.ub(8, isa.F32)
        self._sum, self._count = c.ub(8, isa.F32), c.ub(8, isa.S32)
        self._all = c.ub(parts.shape[1:], isa.S32)
        self._loaded = [c.flag(Pipe.MTE2, Pipe.V) for _ in range(2)]
        self._free = [c.flag(Pipe.V, Pipe.MTE2) for _ in range(2)]
        self._done = [c.flag(Pipe.V, Pipe.MTE3) for _ in range(2)]
        self._stored = [c.flag(Pipe.MTE3, Pipe.V) for _ in range(2)]
        self._read = c.flag(Pipe.MTE2, Pipe.S)

    def start(self) -> Steps:
        """Fill the buffers, since comparisons read whole repeats, and give them free."""
        yield isa.SetMaskCount()
        for tile in (*self._given, *self._sums, self._work):
            yield from counted(isa.Duplicate, self._size, dst=tile, scalar=0)
        yield from counted(isa.Duplicate, self._size, dst=self._ones, scalar=1)
        yield isa.PipeBarrier(on=Pipe.ALL)
        for event in (*self._free, *self._stored):
            yield event.set

    def stop(self) -> Steps:
        """Wait for what is still under way."""
        for event in (*self._free, *self._stored):
            yield event.wait

    def cut(self, p: float, v: isa.Tile, c: isa.Tile, probs: isa.Tile, spans: list[Span]) -> Steps:
        """Store each value, or zero where the sum of what comes before it is more than p; sum the values that
        are left, and count them.
        """
        yield from self._clear()
        for i, (start, stop) in enumerate(spans):
            slot, count = i % 2, stop - start
            given, sums, out, work = self._values[slot], self._sums[slot], self._out[slot], self._work
            yield from self._load(slot, start, count, (given, v), (sums, c))
            yield from counted(isa.Cast if given.dtype is isa.F16 else isa.Copy, count, dst=out, src=given)
            yield BARRIER
            yield from counted(isa.Sub, count, dst=work, src0=sums, src1=out)
            yield self._free[slot].set
            yield BARRIER
            yield from self._compare(work, p, count)
            yield from self._choose(out, out, count)
            yield from self._choose(work, self._ones, count)
            yield BARRIER
            yield from self._add_up(out, count, to_count=False)
            yield from self._add_up(work, count, to_count=True)
            yield from self._store(slot, probs, start, count)

    def renormalise(self, c: isa.Tile, probs: isa.Tile, spans: list[Span]) -> Steps:
        """Divide by `TOTAL`, and count the prefix sums that are not above `CHOSEN`."""
        yield from counted(isa.Duplicate, self._size, dst=self._divisor, scalar=TOTAL)
        yield from self._clear()
        for i, (start, stop) in enumerate(spans):
            slot, count = i % 2, stop - start
            given, sums, out = self._given[slot], self._sums[slot], self._out[slot]
            yield from self._load(slot, start, count, (given, probs), (sums, c))
            yield from counted(isa.Div, count, dst=out, src0=given, src1=self._divisor)
            yield from self._compare(sums, CHOSEN, count)
            yield self._free[slot].set
            yield from self._choose(self._work, self._ones, count)
            yield BARRIER
            yield from self._add_up(self._work, count, to_count=True)
            yield from self._store(slot, probs, start, count)

    def exchange(self, turn: int) -> Generator[Item, Any, Any]:
        """Leave the sum of all cores in `TOTAL`, and return how many elements they counted."""
        c = self._c
        yield isa.PipeBarrier(on=Pipe.ALL)
        parts = self._parts[turn]
        mine = parts[c.block]
        yield isa.copy_out(mine.flat(0, 8), self._sum.as_type(isa.S32))
        yield isa.copy_out(mine.flat(8, 8), self._count)
        yield from c.sync_all()
        yield isa.copy_in(self._all, parts)
        yield self._read.set
        yield self._read.wait
        yield from self._total(isa.F32, 0)
        yield isa.ScalarAlu(op=isa.ScalarOp.MOV, reg=WHOLE.index, a=TOTAL, dtype=isa.F32)
        count = yield from self._total(isa.S32, 8)
        yield isa.ScalarAlu(op=isa.ScalarOp.MOV, reg=TOTAL.index, a=WHOLE, dtype=isa.F32)
        return count

    def _total(self, dtype: isa.DType, at: int) -> Generator[Item, Any, Any]:
        """Add up an entry of all rows in `TOTAL`."""
        total = yield isa.ScalarAlu(op=isa.ScalarOp.MOV, reg=TOTAL.index, a=0, dtype=dtype)
        for row in range(self._all.shape[0]):
            yield isa.GetValue(reg=PART.index, src=self._all[row].as_type(dtype).flat(at, 1))
            total = yield add_to(TOTAL, PART, dtype)
        return total

    def _clear(self) -> Steps:
        for tile in (self._sum, self._count, self._one):
            yield from counted(isa.Duplicate, 8, dst=tile, scalar=0)
        yield BARRIER

    def _load(self, slot: int, start: int, count: int, *arrays: tuple[isa.Tile, isa.Tile]) -> Steps:
        yield self._free[slot].wait
        for tile, source in arrays:
            yield isa.copy_in(tile.flat(0, count), source.flat(start, count))
        yield self._loaded[slot].set
        yield self._loaded[slot].wait
        yield self._stored[slot].wait

    def _compare(self, tile: isa.Tile, limit: float | Reg, count: int) -> Steps:
        yield isa.SetVectorMask(mask=align_up(count, LANES))
        yield isa.Compares(dst=self._bits, src0=tile, scalar=limit, mode=isa.CompareMode.LE)
        yield BARRIER

    def _choose(self, dst: isa.Tile, src: isa.Tile, count: int) -> Steps:
        """Keep elements whose bit is one, with zeros for the others."""
        scalar = isa.SelectMode.TENSOR_SCALAR
        yield from counted(isa.Select, count, dst=dst, src0=src, bits=self._bits, scalar=0, mode=scalar)

    def _add_up(self, tile: isa.Tile, count: int, *, to_count: bool) -> Steps:
        """Add the sum of a tile to the core's own sum, or to its count."""
        yield from reduce_sum(self._one, tile, self._tree, count=count, state=COUNTING)
        yield BARRIER
        if not to_count:
            yield from counted(isa.Add, 1, dst=self._sum, src0=self._sum, src1=self._one)
            yield BARRIER
            return
        whole = self._one.as_type(isa.S32)
        yield from counted(isa.Cast, 1, dst=whole, src=self._one, mode=isa.RoundMode.RINT)
        yield BARRIER
        yield from counted(isa.Add, 1, dst=self._count, src0=self._count, src1=whole)
        yield BARRIER

    def _store(self, slot: int, probs: isa.Tile, start: int, count: int) -> Steps:
        yield self._done[slot].set
        yield self._done[slot].wait
        yield isa.copy_out(probs.flat(start, count), self._out[slot].flat(0, count))
        yield self._stored[slot].set


def sample_sorted(
    k: Builder,
    values: isa.Tile,
    sums: isa.Tile,
    index: isa.Tile,
    probs: isa.Tile,
    token: isa.Tile,
    *,
    p: float,
    theta: float,
    piece: int,
    blocks: int,
) -> None:
    """Launch the end of top-p on `blocks` vector cores or fewer: `values` are sorted, `sums` their prefix
    sums and `index` their places in the input.

    What is sampled is the first element whose prefix sum is above theta times the last prefix sum that was
    kept, which is the sum of all that is kept.
    """
    n, size = values.size, min(PIECE, piece)
    pieces = ceil_div(n, size)
    blocks = min(blocks, pieces)
    parts = k.workspace("parts", (2, blocks, 16), "int32")
    limit = float_below(p)

    def stream(c: Kernel) -> Steps:
        core = Cut(c, size, values.dtype, parts)
        mine = span(c.block, ceil_div(pieces, blocks), pieces)
        spans = [(i * size, min((i + 1) * size, n)) for i in mine]
        yield from core.start()
        yield from core.cut(limit, values, sums, probs, spans)
        kept = known((yield from core.exchange(0)), max(1, round(p * n)))
        last = sums.flat(kept - 1, 1)
        yield isa.DataCacheCleanAndInvalid(at=last)
        yield isa.GetValue(reg=WHOLE.index, src=last)
        yield from float_threshold(share_of(theta))
        yield from core.renormalise(sums, probs, spans)
        place = known((yield from core.exchange(1)), round(theta * p * n))
        if c.block == 0:
            chosen = index.flat(min(place, n - 1), 1)
            yield isa.DataCacheCleanAndInvalid(at=chosen)
            yield isa.GetValue(reg=PART.index, src=chosen)
            yield isa.SetValue(dst=token, value=PART)
            yield isa.DataCacheCleanAndInvalid(at=token)
        yield from core.stop()

    k.launch("sample", vector=stream, blocks=blocks)


def expected_sample(x: np.ndarray, scan: InnerBuilder, p: float, theta: float) -> dict[str, Expected]:
    """Return the outputs of top-p, in float64; the reference of `scan` has the error of the prefix sums.

    Where the error leaves the cut open, nothing is compared; where it leaves the sample open, neither is the
    token.
    """
    order = np.argsort(-x, kind="stable")
    v = x[order]
    bound = np.asarray(scan.expected({"x": v})["y"].tolerance)
    sums = exactly(np.cumsum(v, dtype=np.float64), bound, v)
    before = sums.value - v
    lost = sums.bound + np.where(sums.bound > 0, half_ulp(before), 0.0)
    lost[0] = 0  # nothing comes before the first, whose sum is itself: it is kept whatever p is
    first, last = (int(np.count_nonzero(before + sign * lost <= float_below(p))) for sign in (1, -1))
    kept = v[:first].astype(np.float64)
    total = kept.sum()
    relative = 2 * UNIT * (1 + (0.0 if not sums.bound.any() else 40 + first / 64))
    probs = np.concatenate([kept / total, np.zeros(x.size - first)])
    tolerance = relative * probs + 2.0**-150
    token = expected_place(first_above(sums, share_of(theta), first), order.astype(np.int32))
    if first != last:
        tolerance, token = np.full(x.size, np.inf), (order[:1].astype(np.int32), np.inf)
    return {
        "index": Expected(order.astype(np.int32)),
        "probs": Expected(probs, tolerance),
        "token": Expected(*token),
    }
