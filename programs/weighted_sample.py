"""Weighted sampling by a scan and a split (arXiv 2505.15112, appendix B.3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
from pydantic import PositiveInt

from npusim import Builder, Expected, Kernel, Pipe, isa, program
from npusim.units import align_up

from ._carries import PART, Steps
from ._counted import BARRIER, LANES, counted
from ._inner import InnerBuilder
from ._mcscan import CubeSide
from ._split import CoreCounts, Counts, Generation, Side, Splitter
from ._topp import (
    CHOSEN,
    WHOLE,
    Theta,
    check_weights,
    exactly,
    expected_place,
    first_above,
    float_threshold,
    share_of,
    sizes,
    whole_threshold,
)
from .mcscan import mcscan


@program
def weighted_sample(
    k: Builder,
    *,
    n: PositiveInt = 1 << 18,
    theta: Theta = 0.5,
    s: Side = 128,
    dtype: Literal["float16", "int8"] = "float16",
    generation: Generation = "scan",
    cores: PositiveInt | None = None,
) -> None:
    """Find the first of n weights whose prefix sum is above theta times the sum of all.

    In two launches: MCScan, and `weighted_sample`, a SplitInd of the numbers 0..n-1 by that predicate, of
    which the first is the sample. With theta evenly distributed element i is sampled as often as its weight
    says. Weights are finite and 0 or more; where all are 0 the sample is -1.

    theta is rounded down to 24 binary digits. The sample is that of exact arithmetic for int8, whose sums are
    int32 and must stay below 2^31, and for float16 where the sum has at most 2^24 units of the last digit of
    any weight; otherwise float32 sums decide. `generation` and `cores` as in `split`. A run with
    `--timing-only` takes all weights as equal.
    """

    def make(generator: np.random.Generator) -> np.ndarray:
        return generator.integers(0, 64, n).astype(dtype)

    def check(x: np.ndarray) -> None:
        check_weights("weighted_sample", "weights", x)

    x = k.input("x", (n,), dtype, make, check)
    sample = k.output("sample", (1,), "int32")
    sums = k.workspace("prefix_sums", (n,), "int32" if dtype == "int8" else "float32")
    numbers = k.constant("numbers", np.arange(n, dtype=np.int32))
    order = k.workspace("order", (n,), "int32")
    mask = k.workspace("mask", (align_up(n, s * s),), "int8")
    scan = InnerBuilder(k, "mcscan", x=x, y=sums)
    mcscan.function(scan, n=n, s=s, dtype=dtype, exclusive=False, l2_split=True, cores=cores)
    place = int(theta * n)
    counts = Counts(k, mask, n, s, generation, cores, lambda i: max(0, i - place))

    def cube(c: Kernel, side: CubeSide) -> Steps:
        yield from c.sync_all()
        yield from side.run()
        yield from c.sync_all()
        yield from c.sync_all()

    def vector(c: Kernel, mine: CoreCounts) -> Steps:
        splitter = Splitter(mine, [numbers.dtype], zeros=True)
        predicate = Predicate(mine, sums.dtype)
        last = sums.flat(n - 1, 1)
        yield isa.DataCacheCleanAndInvalid(at=last)
        yield isa.GetValue(reg=WHOLE.index, src=last)
        yield from (whole_threshold if dtype == "int8" else float_threshold)(share_of(theta))
        yield from predicate.run(sums, mask, last=mine.number == counts.vectors - 1)
        yield from c.sync_all()
        yield from mine.run()
        yield from splitter.run(mask, [(numbers, order)])
        yield from c.sync_all()
        if mine.number == 0:
            yield isa.DataCacheCleanAndInvalid(at=order)
            if mine.total:
                yield isa.GetValue(reg=PART.index, src=order.flat(0, 1))
            yield isa.SetValue(dst=sample, value=PART if mine.total else -1)
            yield isa.DataCacheCleanAndInvalid(at=sample)

    counts.launch(k, "weighted_sample", vector, cube)

    @k.reference
    def expected(inputs: Mapping[str, np.ndarray]) -> dict[str, Expected]:
        w = inputs["x"]
        if not w.any():
            return {"sample": Expected(np.array([-1], np.int32))}
        total = np.cumsum(w, dtype=np.int64 if dtype == "int8" else np.float64)
        found = exactly(total, np.asarray(scan.expected({"x": w})["y"].tolerance), w)
        return {"sample": Expected(*expected_place(first_above(found, share_of(theta), n)))}


weighted_sample.from_inputs(sizes)


class Predicate:
    """What a vector core does to make its part of the mask: a one for every sum above `CHOSEN`."""

    def __init__(self, counts: CoreCounts, dtype: isa.DType) -> None:
        """Reserve 16 bytes for each element of a piece."""
        c, size, ub = counts.c, counts.counts.piece, counts.arena.ub
        counts.arena.reset()
        self._counts, self._size = counts, size
        self._sums = [ub(size, dtype) for _ in range(2)]
        self._half, self._ones, self._bits = ub(size, isa.F16), ub(size, isa.F16), ub(size // 8, isa.U8)
        self._out = [ub(size, isa.S8) for _ in range(2)]
        self._loaded = [c.flag(Pipe.MTE2, Pipe.V) for _ in range(2)]
        self._free = [c.flag(Pipe.V, Pipe.MTE2) for _ in range(2)]
        self._done = [c.flag(Pipe.V, Pipe.MTE3) for _ in range(2)]
        self._stored = [c.flag(Pipe.MTE3, Pipe.V) for _ in range(2)]
        self._make = self._of_whole if dtype is isa.S32 else self._of_floats

    def run(self, sums: isa.Tile, mask: isa.Tile, *, last: bool) -> Steps:
        """Make the mask of the core's pieces; the last core also writes the zeros behind all."""
        yield isa.SetMaskCount()
        for tile in self._sums:
            yield from counted(isa.Duplicate, self._size, dst=tile, scalar=0)
        yield from counted(isa.Duplicate, self._size, dst=self._ones, scalar=1)
        yield isa.PipeBarrier(on=Pipe.ALL)
        for event in (*self._free, *self._stored):
            yield event.set
        turn = 0
        for turn, (start, stop) in enumerate(self._counts.spans, 1):
            slot, count = turn % 2, stop - start
            yield self._free[slot].wait
            yield isa.copy_in(self._sums[slot].flat(0, count), sums.flat(start, count))
            yield self._loaded[slot].set
            yield self._loaded[slot].wait
            yield from self._make(slot, count)
            yield from self._store(slot, mask.flat(start, count))
        if last:
            yield from self._clear(turn + 1, mask, sums.size)
        for event in (*self._free, *self._stored):
            yield event.wait

    def _clear(self, turn: int, mask: isa.Tile, n: int) -> Steps:
        for start in range(n, mask.size, self._size):
            slot, count = turn % 2, min(self._size, mask.size - start)
            turn += 1
            yield from counted(isa.Duplicate, count, dst=self._half, scalar=0)
            yield from self._store(slot, mask.flat(start, count))

    def _of_floats(self, slot: int, count: int) -> Steps:
        yield isa.SetVectorMask(mask=align_up(count, LANES))
        yield isa.Compares(dst=self._bits, src0=self._sums[slot], scalar=CHOSEN, mode=isa.CompareMode.GT)
        yield self._free[slot].set
        yield BARRIER
        scalar = isa.SelectMode.TENSOR_SCALAR
        yield from counted(
            isa.Select, count, dst=self._half, src0=self._ones, bits=self._bits, scalar=0, mode=scalar
        )

    def _of_whole(self, slot: int, count: int) -> Steps:
        """Clamp to the threshold and the number above it, of which the first becomes zero, the other one;
        there is no comparison of int32 but for equality.
        """
        x = self._sums[slot]
        words = self._half.as_type(isa.S16)
        alu = isa.ScalarAlu
        yield alu(op=isa.ScalarOp.ADD, reg=PART.index, a=CHOSEN, b=1)
        yield from counted(isa.Maxs, count, dst=x, src=x, scalar=CHOSEN)
        yield BARRIER
        yield from counted(isa.Mins, count, dst=x, src=x, scalar=PART)
        yield BARRIER
        yield alu(op=isa.ScalarOp.SUB, reg=PART.index, a=0, b=CHOSEN)
        yield from counted(isa.Adds, count, dst=x, src=x, scalar=PART)
        yield BARRIER
        yield from counted(isa.Cast, count, dst=words, src=x)
        yield self._free[slot].set
        yield BARRIER
        yield from counted(isa.Cast, count, dst=self._half, src=words)

    def _store(self, slot: int, mask: isa.Tile) -> Steps:
        """Store the halves as bytes."""
        yield self._stored[slot].wait
        yield BARRIER
        yield from counted(isa.Cast, mask.size, dst=self._out[slot], src=self._half)
        yield BARRIER
        yield self._done[slot].set
        yield self._done[slot].wait
        yield isa.copy_out(mask, self._out[slot].flat(0, mask.size))
        yield self._stored[slot].set
