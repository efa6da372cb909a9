"""Sorting on vector cores alone: runs in the unified buffer by Sort32 and MrgSort, and merges of longer runs.

A record has 8 bytes, a float and its index; a run is a sequence of them in descending order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

import numpy as np

from npusim import Kernel, Pipe, isa
from npusim.isa.vector.forms import gather_mask
from npusim.program.stream import Unknown
from npusim.units import align_up

from ._carries import Steps
from ._counted import BARRIER
from ._multi_core import Arena
from ._split import Span

Chunk = Literal[128, 512, 2048, 8192]
RUN = 32
"""Records that one repeat of Sort32 sorts."""
WAYS = 4
"""Queues that MrgSort merges."""
SORT_REPEATS = 128
"""Repeats of a Sort32; it takes 255, but a whole chunk is a multiple of this."""
WORD = {isa.F16: isa.S16, isa.F32: isa.S32}


def floats(dtype: str, n: int) -> Callable[[np.random.Generator], np.ndarray]:
    """Return a maker of normal numbers."""
    return lambda generator: generator.standard_normal(n).astype(dtype)


def order_of(x: np.ndarray) -> np.ndarray:
    """Return the numbers that the sorter compares: sign and magnitude, so that -0 equals +0 and a NaN lies
    beyond the infinity of its sign.
    """
    bits = x.view(f"i{x.dtype.itemsize}").astype(np.int64)
    magnitude = bits & ((1 << (x.dtype.itemsize * 8 - 1)) - 1)
    order: np.ndarray = np.where(bits < 0, -magnitude, magnitude)
    return order


def sorted_order(x: np.ndarray, *, descending: bool) -> np.ndarray:
    """Return the indices of the elements in order, equal ones as they come."""
    keys = order_of(x)
    return np.argsort(-keys if descending else keys, kind="stable")


class ChunkSort:
    """One vector core makes sorted runs of up to `size` records, one chunk of the input after the other."""

    def __init__(self, c: Kernel, arena: Arena, size: int, dtype: isa.DType, *, descending: bool) -> None:
        """Reserve 20 bytes for each record of a chunk."""
        self._c, self._size, self._dtype, self._descending = c, size, dtype, descending
        arena.reset()
        self._values = arena.ub(size, dtype)
        self._records = [arena.ub(size, isa.U64) for _ in range(2)]
        self._loaded, self._free = c.flag(Pipe.MTE2, Pipe.V), c.flag(Pipe.V, Pipe.MTE2)
        self.run: isa.Tile
        """Where the run of the last chunk lies."""

    def start(self) -> Steps:
        """Give the buffer for values free."""
        yield self._free.set

    def stop(self) -> Steps:
        """Wait for what is still under way."""
        yield self._free.wait

    def load(self, x: isa.Tile, spans: Iterable[Span]) -> Steps:
        """Load a chunk, if there is one; the rest of its last 32 are values that come last in the order."""
        for start, stop in spans:
            part = x.flat(start, stop - start)
            values = self._values.flat(0, align_up(part.size, RUN))
            yield self._free.wait
            if part.size == values.size:
                yield isa.copy_in(values, part)
            else:
                yield from self._load_short(values, part)
            yield self._loaded.set

    def _load_short(self, values: isa.Tile, part: isa.Tile) -> Steps:
        word = WORD[self._dtype]
        last = -1 if self._descending else (1 << (word.bits - 1)) - 1
        yield isa.PipeBarrier(on=Pipe.ALL)
        yield from self._c.vector(isa.Duplicate, count=values.size, dst=values.as_type(word), scalar=last)
        yield isa.SetControl(what=isa.Control.PAD_BITS, value=last & ((1 << word.bits) - 1))
        yield isa.PipeBarrier(on=Pipe.ALL)
        pad = -part.nbytes % 32 // word.size
        yield isa.DataCopyPad(dst=values, src=part, block_len=part.nbytes, right_pad=pad)

    def sort(self, span: Span) -> Steps:
        """Sort the loaded chunk on the vector unit; `run` is where."""
        c, (start, stop) = self._c, span
        count = stop - start
        whole = align_up(count, RUN)
        records, other = self._records
        values, index = self._values, other.as_type(isa.S32)
        yield self._loaded.wait
        if not self._descending:
            yield from flip_signs(c, values, whole)
        yield from c.vector(isa.CreateVecIndex, count=whole, dst=index, scalar=start)
        yield BARRIER
        for first in range(0, whole // RUN, SORT_REPEATS):
            at = first * RUN
            yield isa.Sort32(
                dst=_as(records.flat(at, 1), self._dtype),
                src=values.flat(at, 1),
                index=index.flat(at, 1).as_type(isa.U32),
                repeat=min(SORT_REPEATS, whole // RUN - first),
            )
        yield self._free.set
        yield BARRIER
        length = RUN
        while length < count:
            yield from self._merge(records, other, length, count)
            yield BARRIER
            records, other = other, records
            length *= WAYS
        self.run = records.flat(0, count)

    def _merge(self, source: isa.Tile, target: isa.Tile, length: int, count: int) -> Steps:
        """Merge every four neighbouring runs; the last ones may be fewer, and the last of all shorter."""
        groups = count // (WAYS * length)
        if groups:
            runs = [source.flat(i * length, 1) for i in range(WAYS)]
            yield merge(target, runs, [length] * WAYS, self._dtype, repeat=groups)
        start = groups * WAYS * length
        if start < count:
            runs = [source.flat(at, 1) for at in range(start, count, length)]
            lengths = [min(length, count - at) for at in range(start, count, length)]
            yield from merge_or_copy(self._c, target.flat(start, count - start), runs, lengths, self._dtype)


def merge(
    target: isa.Tile,
    runs: list[isa.Tile],
    lengths: list[int],
    dtype: isa.DType,
    *,
    repeat: int = 1,
    suspend: bool = False,
) -> isa.MrgSort:
    """Return the instruction that merges two to four runs."""
    queues: list[Any] = [_as(run, dtype) for run in runs] + [None] * (WAYS - len(runs))
    return isa.MrgSort(
        dst=_as(target, dtype),
        src0=queues[0],
        src1=queues[1],
        src2=queues[2],
        src3=queues[3],
        lengths=tuple(lengths),
        repeat=repeat,
        suspend=suspend,
    )


def merge_or_copy(
    c: Kernel, target: isa.Tile, runs: list[isa.Tile], lengths: list[int], dtype: isa.DType
) -> Steps:
    """Merge runs, or copy the only one."""
    if len(runs) > 1:
        yield merge(target, runs, lengths, dtype)
        return
    words = 2 * lengths[0]
    yield from c.vector(isa.Copy, count=words, dst=_as(target, isa.U32), src=_as(runs[0], isa.U32))


def _as(tile: isa.Tile, dtype: isa.DType) -> isa.Operand:
    return isa.Operand.as_type(tile, dtype)


def flip_signs(c: Kernel, values: isa.Tile, count: int) -> Iterator[isa.Instruction]:
    """Negate floats by adding the sign bit to their words, which wraps and touches nothing else."""
    word = WORD[values.dtype]
    words = values.as_type(word)
    sign = -(1 << (word.bits - 1))
    yield from c.vector(isa.Adds, count=count, dst=words, src=words, scalar=sign)
    yield BARRIER


class RunMerge:
    """One vector core merges runs that lie in global memory, a window of each at a time.

    MrgSort stops where a window is used up and says how much of the others it took; then all windows are
    loaded anew from where they stand. A run without values takes all windows to be used up together.
    """

    def __init__(self, c: Kernel, arena: Arena, window: int, dtype: isa.DType) -> None:
        """Reserve 64 bytes for each record of a window."""
        self._c, self._window, self._dtype = c, window, dtype
        arena.reset()
        self._windows = [arena.ub(window, isa.U64) for _ in range(WAYS)]
        self._merged = arena.ub(WAYS * window, isa.U64)
        self._loaded, self._free = c.flag(Pipe.MTE2, Pipe.V), c.flag(Pipe.V, Pipe.MTE2)
        self._full, self._stored = c.flag(Pipe.V, Pipe.MTE3), c.flag(Pipe.MTE3, Pipe.V)

    def start(self) -> Steps:
        """Give the buffers free."""
        yield self._free.set
        yield self._stored.set

    def stop(self) -> Steps:
        """Wait for what is still under way."""
        yield self._free.wait
        yield self._stored.wait

    def run(self, source: isa.Tile, target: isa.Tile, runs: list[Span]) -> Steps:
        """Merge neighbouring runs of `source` to the same place of `target`."""
        at, heads = runs[0][0], [list(run) for run in runs]
        while heads:
            lengths = [min(self._window, stop - start) for start, stop in heads]
            tiles = [w.flat(0, n) for w, n in zip(self._windows, lengths, strict=False)]
            yield self._free.wait
            for tile, (start, _) in zip(tiles, heads, strict=True):
                yield isa.copy_in(tile, source.flat(start, tile.size))
            yield self._loaded.set
            yield self._loaded.wait
            yield self._stored.wait
            taken = lengths
            if len(heads) > 1 and any(
                n < stop - start for n, (start, stop) in zip(lengths, heads, strict=True)
            ):
                value = yield merge(self._merged, tiles, lengths, self._dtype, suspend=True)
                taken = lengths if isinstance(value, Unknown) else list(value)
            else:
                yield from merge_or_copy(self._c, self._merged, tiles, lengths, self._dtype)
            yield self._free.set
            yield self._full.set
            yield self._full.wait
            count = sum(taken)
            yield isa.copy_out(target.flat(at, count), self._merged.flat(0, count))
            yield self._stored.set
            at += count
            for head, n in zip(heads, taken, strict=True):
                head[0] += n
            heads = [head for head in heads if head[0] < head[1]]


class Unpack:
    """One vector core takes records apart into values and indices."""

    def __init__(self, c: Kernel, arena: Arena, size: int, dtype: isa.DType, *, descending: bool) -> None:
        """Reserve 32 bytes for each of `size` records."""
        self._c, self._dtype, self._descending, self.size = c, dtype, descending, size
        arena.reset()
        self._records = c.queue(Pipe.MTE2, Pipe.V, [arena.ub(size, isa.U64) for _ in range(2)])
        self._parts = c.queue(Pipe.V, Pipe.MTE3, [arena.ub(size, isa.U64) for _ in range(2)])

    def run(self, records: isa.Tile, y: isa.Tile, index: isa.Tile, spans: Iterable[Span]) -> Steps:
        """Store values and indices of the records of each span."""
        for start, stop in spans:
            count = stop - start
            tile = yield from self._records.alloc()
            yield isa.copy_in(tile.flat(0, count), records.flat(start, count))
            yield from self._records.enque()
            tile = yield from self._records.deque()
            parts = yield from self._parts.alloc()
            values, numbers = parts_of(parts, self._dtype)
            yield from take_apart(self._c, tile, values, numbers, count)
            if not self._descending:
                yield BARRIER
                yield from flip_signs(self._c, values, count)
            yield from self._records.free()
            yield from self._parts.enque()
            yield from self._parts.deque()
            yield isa.copy_out(y.flat(start, count), values.flat(0, count))
            yield isa.copy_out(index.flat(start, count), numbers.flat(0, count))
            yield from self._parts.free()


def parts_of(tile: isa.Tile, dtype: isa.DType) -> tuple[isa.Tile, isa.Tile]:
    """Return the halves of a tile of records, for as many values and indices."""
    half = tile.size // 2
    return tile.flat(0, half).as_type(dtype), tile.flat(half, half).as_type(isa.S32)


def take_apart(c: Kernel, records: isa.Tile, values: isa.Tile, numbers: isa.Tile, count: int) -> Steps:
    """Pick the first of every two or four elements, and the second of every two words."""
    each, pattern = (4, 3) if values.dtype is isa.F16 else (2, 1)
    source = _as(records, values.dtype)
    yield from gather_mask(values, source, count=each * count, state=c.state, pattern=pattern)
    words = _as(records, isa.S32)
    yield from gather_mask(numbers, words, count=2 * count, state=c.state, pattern=2)
