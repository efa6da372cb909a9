"""Radix sort, one bit a pass, each a SplitInd on all cores (arXiv 2505.15112, section 6.2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, PositiveInt

from npusim import Builder, Expected, Kernel, Pipe, isa, program
from npusim.units import ceil_div

from ._carries import Steps
from ._mcscan import CubeSide
from ._split import CoreCounts, Counts, Generation, Side, Splitter, evenly

Word = Literal["float16", "int16", "uint16"]
SIGN = 15


@program
def radix_sort(
    k: Builder,
    *,
    n: PositiveInt = 1 << 20,
    s: Side = 128,
    dtype: Word = "float16",
    order: Literal["ascending", "descending"] = "ascending",
    passes: Annotated[int, Field(ge=1, le=16)] = 16,
    generation: Generation = "scan",
    cores: PositiveInt | None = None,
) -> None:
    """Sort n elements of 16 bits with their int32 indices, stably, by one bit a pass from the lowest up.

    A pass makes a mask of one bit of every key, counts the ones on all cores, and splits keys and indices.
    Keys of float16 keep the sign bit and have the others flipped where it is set; the last pass puts negative
    ones first. So -0 comes before +0, and a NaN beyond the infinity of its sign; keys are moved as they are.
    Fewer than 16 `passes` sort by so many lowest bits of the keys. `generation` and `cores` as in `split`. A
    run with `--timing-only`, which has no values, takes half of every bit as ones, evenly spread.
    """
    x = k.input("x", (n,), dtype, lambda generator: _random(generator, dtype, n))
    y, y_index = k.output("y", (n,), dtype), k.output("y_index", (n,), "int32")
    tiles = ceil_div(n, s * s)
    mask = k.workspace("mask", (tiles * s * s,), "int8")
    coded = dtype == "float16"
    keys = [k.workspace(f"keys{i}", (n,), dtype) for i in range(2 if coded else min(2, passes - 1))]
    index = [k.workspace(f"index{i}", (n,), "int32") for i in range(min(2, passes))]
    counts = Counts(k, mask, n, s, generation, cores, evenly(n, n // 2))

    def arrays_of(bit: int) -> list[tuple[isa.Tile, isa.Tile]]:
        """Return where a pass finds keys and indices, and where it puts them."""
        last = bit == passes - 1
        source = keys[bit % 2] if coded else keys[(bit - 1) % 2] if bit else x
        target = keys[(bit + 1) % 2] if coded else y if last else keys[bit % 2]
        return [(source, target), (index[bit % 2], y_index if last else index[(bit + 1) % 2])]

    def cube(c: Kernel, side: CubeSide) -> Steps:
        for _ in range(passes):
            yield from c.sync_all()
            yield from side.run()
            yield from c.sync_all()
            yield from c.sync_all()

    def vector(c: Kernel, mine: CoreCounts) -> Steps:
        splitter = Splitter(mine, [x.dtype, isa.S32], zeros=True)
        keys_of = Keys(mine)
        if mine.number == 0 and mask.size > n:
            yield from keys_of.clear(mask.flat(n, mask.size - n))
        yield from keys_of.number(index[0])
        if coded:
            yield from keys_of.code(x, keys[0])
        for bit in range(passes):
            arrays = arrays_of(bit)
            zeros_first = (order == "ascending") != (bit == SIGN and dtype != "uint16")
            yield isa.PipeBarrier(on=Pipe.ALL)
            yield from keys_of.bits(arrays[0][0], mask, bit, inverted=zeros_first)
            yield from c.sync_all()
            yield from mine.run()
            yield from splitter.run(mask, arrays)
            yield from c.sync_all()
        if coded:
            yield from keys_of.code(keys[passes % 2], y)

    counts.launch(k, "radix_sort", vector, cube)

    @k.reference
    def expected(inputs: Mapping[str, np.ndarray]) -> dict[str, Expected]:
        bits = inputs["x"].view(np.uint16).astype(np.int64)
        negative = bits >> SIGN == 1
        if coded:
            bits = np.where(negative, bits ^ 0x7FFF, bits)
        low = bits & ((1 << passes) - 1)
        if passes == 16 and dtype != "uint16":
            low ^= 1 << SIGN
        first = np.argsort(low if order == "ascending" else -low, kind="stable")
        return {"y": Expected(inputs["x"][first]), "y_index": Expected(first.astype(np.int32))}


def _random(generator: np.random.Generator, dtype: str, n: int) -> np.ndarray:
    """Return normal numbers, or any integers."""
    if dtype == "float16":
        return generator.standard_normal(n).astype(dtype)
    info = np.iinfo(dtype)
    return generator.integers(info.min, info.max + 1, n, dtype)


class Keys:
    """What a vector core does with the keys of its pieces between two splits."""

    def __init__(self, counts: CoreCounts) -> None:
        """Reserve buffers, for a phase of its own."""
        c, size, ub = counts.c, counts.counts.piece, counts.arena.ub
        self._c, self._spans = c, counts.spans
        counts.arena.reset()
        self._in = c.queue(Pipe.MTE2, Pipe.V, [ub(size, isa.S16) for _ in range(2)])
        self._out = c.queue(Pipe.V, Pipe.MTE3, [ub(2 * size, isa.S16) for _ in range(2)])
        self._constant, self._work, self._half = ub(size, isa.S16), ub(size, isa.S16), ub(size, isa.F16)

    def clear(self, tail: isa.Tile) -> Steps:
        """Write zeros."""
        size = self._constant.nbytes // 2
        for start in range(0, tail.size, 2 * size):
            count = min(2 * size, tail.size - start)
            out = yield from self._out.alloc()
            yield from self._c.vector(isa.Duplicate, count=size, dst=out, scalar=0)
            yield from self._store(tail.flat(start, count))

    def number(self, index: isa.Tile) -> Steps:
        """Write the numbers of the elements."""
        for start, stop in self._spans:
            out = (yield from self._out.alloc()).as_type(isa.S32)
            yield from self._c.vector(isa.CreateVecIndex, count=stop - start, dst=out, scalar=start)
            yield from self._store(index.flat(start, stop - start))

    def code(self, source: isa.Tile, target: isa.Tile) -> Steps:
        """Flip all bits but the sign where the sign is set, which undoes itself: `(x | m) & ~(x & m)`."""
        barrier = isa.PipeBarrier(on=Pipe.V)
        yield from self._fill(0x7FFF)
        for start, stop in self._spans:
            count = stop - start
            x = yield from self._load(source.flat(start, count))
            out = yield from self._out.alloc()
            m = self._work
            yield from self._c.vector(isa.ShiftRight, count=count, dst=m, src=x, scalar=SIGN)
            yield barrier
            yield from self._c.vector(isa.And, count=count, dst=m, src0=m, src1=self._constant)
            yield barrier
            yield from self._c.vector(isa.Or, count=count, dst=out, src0=x, src1=m)
            yield from self._c.vector(isa.And, count=count, dst=m, src0=x, src1=m)
            yield from self._in.free()
            yield barrier
            yield from self._c.vector(isa.Not, count=count, dst=m, src=m)
            yield barrier
            yield from self._c.vector(isa.And, count=count, dst=out, src0=out, src1=m)
            yield from self._store(target.flat(start, count))

    def bits(self, source: isa.Tile, mask: isa.Tile, bit: int, *, inverted: bool) -> Steps:
        """Write one bit of every key as a byte, or its opposite."""
        barrier = isa.PipeBarrier(on=Pipe.V)
        yield from self._fill((1 << bit) - (1 << 16) * (bit == SIGN))
        for start, stop in self._spans:
            count = stop - start
            x = yield from self._load(source.flat(start, count))
            out = yield from self._out.alloc()
            m, words = self._work, self._work.as_type(isa.U16)
            if inverted:
                yield from self._c.vector(isa.Not, count=count, dst=m, src=x)
                yield barrier
            yield from self._c.vector(
                isa.And, count=count, dst=m, src0=m if inverted else x, src1=self._constant
            )
            yield from self._in.free()
            yield barrier
            yield from self._c.vector(isa.ShiftRight, count=count, dst=words, src=words, scalar=bit)
            yield barrier
            yield from self._c.vector(isa.Cast, count=count, dst=self._half, src=m)
            yield barrier
            bytes_ = out.as_type(isa.S8)
            yield from self._c.vector(isa.Cast, count=count, dst=bytes_, src=self._half)
            yield from self._store(mask.flat(start, count))

    def _fill(self, word: int) -> Steps:
        """Fill the constant operand of And, which has no form with a value."""
        yield isa.PipeBarrier(on=Pipe.V)
        yield from self._c.vector(isa.Duplicate, count=self._constant.size, dst=self._constant, scalar=word)
        yield isa.PipeBarrier(on=Pipe.V)

    def _load(self, source: isa.Tile) -> Steps:
        tile = yield from self._in.alloc()
        yield isa.copy_in(tile.as_type(source.dtype).flat(0, source.size), source)
        yield from self._in.enque()
        return (yield from self._in.deque())

    def _store(self, target: isa.Tile) -> Steps:
        yield from self._out.enque()
        tile = yield from self._out.deque()
        yield isa.copy_out(target, tile.as_type(target.dtype).flat(0, target.size))
        yield from self._out.free()


@radix_sort.from_inputs
def _sizes(inputs: Mapping[str, np.ndarray]) -> dict[str, object]:
    x = inputs["x"]
    return {"n": x.size, "dtype": x.dtype.name}
