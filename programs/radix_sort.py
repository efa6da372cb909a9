"""Radix sort, one bit a pass, each a SplitInd on all cores (arXiv 2505.15112, section 6.2)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, PositiveInt

from npusim import Builder, Expected, Kernel, Pipe, isa, program
from npusim.units import ceil_div

from ._carries import Item, Steps
from ._counted import BARRIER, counted
from ._mcscan import CubeSide
from ._split import CoreCounts, Counts, Generation, Side, Splitter, evenly

Word = Literal["float16", "int16", "uint16"]
SIGN = 15
Ops = Iterator[isa.Instruction]
Made = Callable[..., Ops]


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
        yield from keys_of.start()
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
        yield from keys_of.stop()

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
    """What a vector core does with the keys of its pieces between two splits: two buffers in turn are loaded,
    computed and stored.
    """

    def __init__(self, counts: CoreCounts) -> None:
        """Reserve buffers, for a phase of its own."""
        c, size, ub = counts.c, counts.counts.piece, counts.arena.ub
        self._counts, self._size = counts, size
        counts.arena.reset()
        self._in = [ub(size, isa.S16) for _ in range(2)]
        self._out = [ub(2 * size, isa.S16) for _ in range(2)]
        self._constant, self._work, self._half = ub(size, isa.S16), ub(size, isa.S16), ub(size, isa.F16)
        self._loaded = [c.flag(Pipe.MTE2, Pipe.V) for _ in range(2)]
        self._free = [c.flag(Pipe.V, Pipe.MTE2) for _ in range(2)]
        self._done = [c.flag(Pipe.V, Pipe.MTE3) for _ in range(2)]
        self._stored = [c.flag(Pipe.MTE3, Pipe.V) for _ in range(2)]
        self._turn = 0

    def start(self) -> Steps:
        """Give the buffers free."""
        for event in (*self._free, *self._stored):
            yield event.set

    def stop(self) -> Steps:
        """Wait for what is still under way."""
        for event in (*self._free, *self._stored):
            yield event.wait

    def clear(self, tail: isa.Tile) -> Steps:
        """Write zeros."""
        for start in range(0, tail.size, 4 * self._size):
            part = tail.flat(start, min(4 * self._size, tail.size - start))
            yield from self._make(part, self._zeros)

    def number(self, index: isa.Tile) -> Steps:
        """Write the numbers of the elements."""
        for start, stop in self._counts.spans:
            yield from self._make(index.flat(start, stop - start), self._numbers, start, stop - start)

    def code(self, source: isa.Tile, target: isa.Tile) -> Steps:
        """Flip all bits but the sign where the sign is set, which undoes itself: `(x | m) & ~(x & m)`."""
        yield self._counts.once(self._fill, 0x7FFF)
        yield from self._change(source, target, self._coded)

    def bits(self, source: isa.Tile, mask: isa.Tile, bit: int, *, inverted: bool) -> Steps:
        """Write one bit of every key as a byte, or its opposite."""
        yield self._counts.once(self._fill, (1 << bit) - (1 << 16) * (bit == SIGN))
        yield from self._change(source, mask, self._bit, bit, inverted)

    def _change(self, source: isa.Tile, target: isa.Tile, make: Made, *which: object) -> Steps:
        """Load, compute and store the pieces of the core."""
        copies = self._counts.kept.again(
            ("change", source, target, self._turn), lambda: self._copies(source, target)
        )
        for (start, stop), load, store in zip(self._counts.spans, copies[::2], copies[1::2], strict=True):
            slot = self._turn
            yield self._free[slot].wait
            yield load
            yield self._loaded[slot].set
            yield self._counts.once(self._loaded_body, make, slot, stop - start, *which)
            yield from self._store(store)

    def _copies(self, source: isa.Tile, target: isa.Tile) -> Ops:
        """Yield the load and the store of every piece of the core."""
        for i, (start, stop) in enumerate(self._counts.spans, self._turn):
            count = stop - start
            given, made = self._in[i % 2].as_type(source.dtype), self._out[i % 2].as_type(target.dtype)
            yield isa.copy_in(given.flat(0, count), source.flat(start, count))
            yield isa.copy_out(target.flat(start, count), made.flat(0, count))

    def _make(self, target: isa.Tile, make: Made, *which: object) -> Steps:
        """Compute and store a piece."""
        slot = self._turn
        yield isa.SetMaskCount()
        yield self._stored[slot].wait
        yield from make(slot, *which)
        yield self._done[slot].set
        yield from self._store(
            isa.copy_out(target, self._out[slot].as_type(target.dtype).flat(0, target.size))
        )

    def _store(self, copy: Item) -> Steps:
        slot = self._turn
        self._turn = 1 - slot
        yield self._done[slot].wait
        yield copy
        yield self._stored[slot].set

    def _fill(self, word: int) -> Ops:
        """Fill the constant operand of And, which has no form with a value."""
        yield BARRIER
        yield isa.SetMaskCount()
        yield from counted(isa.Duplicate, self._size, dst=self._constant, scalar=word)
        yield BARRIER

    def _loaded_body(self, make: Made, slot: int, count: int, *which: object) -> Ops:
        yield self._loaded[slot].wait
        yield self._stored[slot].wait
        yield isa.SetMaskCount()
        yield from make(slot, count, *which)
        yield self._done[slot].set

    def _zeros(self, slot: int) -> Ops:
        yield from counted(isa.Duplicate, 2 * self._size, dst=self._out[slot], scalar=0)

    def _numbers(self, slot: int, start: int, count: int) -> Ops:
        yield from counted(isa.CreateVecIndex, count, dst=self._out[slot].as_type(isa.S32), scalar=start)

    def _coded(self, slot: int, count: int) -> Ops:
        x, out, m = self._in[slot], self._out[slot], self._work
        yield from counted(isa.ShiftRight, count, dst=m, src=x, scalar=SIGN)
        yield BARRIER
        yield from counted(isa.And, count, dst=m, src0=m, src1=self._constant)
        yield BARRIER
        yield from counted(isa.Or, count, dst=out, src0=x, src1=m)
        yield from counted(isa.And, count, dst=m, src0=x, src1=m)
        yield self._free[slot].set
        yield BARRIER
        yield from counted(isa.Not, count, dst=m, src=m)
        yield BARRIER
        yield from counted(isa.And, count, dst=out, src0=out, src1=m)

    def _bit(self, slot: int, count: int, bit: int, inverted: bool) -> Ops:
        x, m, words = self._in[slot], self._work, self._work.as_type(isa.U16)
        if inverted:
            yield from counted(isa.Not, count, dst=m, src=x)
            yield BARRIER
        yield from counted(isa.And, count, dst=m, src0=m if inverted else x, src1=self._constant)
        yield self._free[slot].set
        yield BARRIER
        yield from counted(isa.ShiftRight, count, dst=words, src=words, scalar=bit)
        yield BARRIER
        yield from counted(isa.Cast, count, dst=self._half, src=m)
        yield BARRIER
        yield from counted(isa.Cast, count, dst=self._out[slot].as_type(isa.S8), src=self._half)


@radix_sort.from_inputs
def _sizes(inputs: Mapping[str, np.ndarray]) -> dict[str, object]:
    x = inputs["x"]
    return {"n": x.size, "dtype": x.dtype.name}
