"""What top-k adds to split and radix sort: the search for a pivot, and what cores do on a window of keys."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from copy import copy
from dataclasses import dataclass
from typing import Any

from npusim import Kernel, Pipe, Reg, isa

from ._carries import PART, Item, Steps
from ._counted import BARRIER, counted
from ._kept import Kept
from ._split import CoreCounts, CoreSums, Counts, evenly, known
from .radix_sort import Keys

LOWEST, HIGHEST = -(1 << 15), (1 << 15) - 1
"""Range of a key."""
_ENDS = (Reg(3), Reg(4))
"""Registers: the smallest and the largest key."""
_LANES = 16
"""Keys of a block."""


@dataclass
class Search:
    """Bisection for the `want` largest of the keys in a window, which lie between two keys."""

    first: int
    stop: int
    want: int
    """How many of the window belong to the result."""
    low: int
    high: int

    @property
    def pivot(self) -> int | None:
        """The key that splits the window, or None where nothing is left to be split: none or all of it are
        wanted, or all its keys are equal.
        """
        if self.want in (0, self.stop - self.first) or self.low == self.high:
            return None
        return (self.low + self.high) // 2

    def go_on(self, pivot: int, larger: int) -> bool:
        """Choose the part of the window, split into so many larger keys and the others, that holds the last
        one wanted. Return whether the larger ones all belong to the result.
        """
        if larger > self.want:
            self.low, self.stop = pivot + 1, self.first + larger
            return False
        self.high, self.first = pivot, self.first + larger
        self.want -= larger
        return True


class Window(CoreSums):
    """Counts of the younger generation, of a window of the keys that every step narrows."""

    def __init__(self, counts: Counts, c: Kernel) -> None:
        super().__init__(copy(counts), c)

    def resize(self, count: int) -> None:
        """Count so many elements from now on, of which half are declared to be ones."""
        self.counts.n, self.counts.ones = count, evenly(count, count // 2)
        self.spans = self.counts.spans(self.number)
        self.kept = Kept()


class Pivots(Keys):
    """What a vector core does with the keys of its pieces between two splits of top-k."""

    def larger(self, keys: isa.Tile, mask: isa.Tile, pivot: int) -> Steps:
        """Write a one for every key above the pivot, and a zero for the others."""
        yield from self._change(keys, mask, self._larger, pivot)

    def _larger(self, slot: int, count: int, pivot: int) -> Iterator[isa.Instruction]:
        """Clamp to the pivot and the key above it, of which the first becomes zero and the other one."""
        x, m = self._in[slot], self._work
        yield from counted(isa.Maxs, count, dst=m, src=x, scalar=pivot)
        yield self._free[slot].set
        yield BARRIER
        yield from counted(isa.Mins, count, dst=m, src=m, scalar=pivot + 1)
        for term in (-pivot - 1, 1):  # in two steps, since the lowest pivot has no negative
            yield BARRIER
            yield from counted(isa.Adds, count, dst=m, src=m, scalar=term)
        yield BARRIER
        yield from counted(isa.Cast, count, dst=self._half, src=m)
        yield BARRIER
        yield from counted(isa.Cast, count, dst=self._out[slot].as_type(isa.S8), src=self._half)


class Extremes:
    """The smallest and the largest key, which the vector cores find together."""

    def __init__(self, counts: CoreCounts, ends: isa.Tile) -> None:
        """Reserve buffers; `ends` holds both keys of every core."""
        c, size, ub = counts.c, counts.counts.piece, counts.arena.ub
        self._counts, self._ends = counts, ends
        counts.arena.reset()
        self._in = [ub(size, isa.S16) for _ in range(2)]
        self._found = [ub(size, isa.S16) for _ in range(2)]
        self._mine, self._all = ub(_LANES, isa.S16), ub(ends.size, isa.S16)
        self._loaded = [c.flag(Pipe.MTE2, Pipe.V) for _ in range(2)]
        self._free = [c.flag(Pipe.V, Pipe.MTE2) for _ in range(2)]
        self._folded, self._written = c.flag(Pipe.V, Pipe.S), c.flag(Pipe.S, Pipe.MTE3)
        self._read = c.flag(Pipe.MTE2, Pipe.S)

    def run(self, keys: isa.Tile) -> Generator[Item, Any, tuple[int, int]]:
        """Return both; a run without values takes the whole range of keys."""
        counts, tiles = self._counts, list(zip((isa.Min, isa.Max), self._found, strict=True))
        yield isa.SetMaskCount()
        for (_, tile), start in zip(tiles, (HIGHEST, LOWEST), strict=True):
            yield from counted(isa.Duplicate, tile.size, dst=tile, scalar=start)
        yield BARRIER
        for event in self._free:
            yield event.set
        for i, (start, stop) in enumerate(counts.spans):
            slot, count = i % 2, stop - start
            part = self._in[slot].flat(0, count)
            yield self._free[slot].wait
            yield isa.copy_in(part, keys.flat(start, count))
            yield self._loaded[slot].set
            yield self._loaded[slot].wait
            for cls, tile in tiles:
                yield from counted(cls, count, dst=tile, src0=tile, src1=part)
            yield self._free[slot].set
            yield BARRIER
        for event in self._free:
            yield event.wait
        half = counts.counts.piece // 2
        while half >= _LANES:
            for cls, tile in tiles:
                yield from counted(cls, half, dst=tile, src0=tile, src1=tile.flat(half, half))
            yield BARRIER
            half //= 2
        yield self._folded.set
        yield self._folded.wait
        yield from self._fold([tile.flat(0, _LANES) for tile in self._found])
        for i, reg in enumerate(_ENDS):
            yield isa.SetValue(dst=self._mine.flat(i, 1), value=reg)
        yield self._written.set
        yield self._written.wait
        yield isa.copy_out(self._ends.flat(2 * counts.number, 2), self._mine.flat(0, 2))
        yield from counts.c.sync_all()
        yield isa.copy_in(self._all, self._ends)
        yield self._read.set
        yield self._read.wait
        both = yield from self._fold([self._all.flat(i, self._all.size - 1) for i in range(2)], step=2)
        yield isa.PipeBarrier(on=Pipe.ALL)
        return known(both[0], LOWEST), known(both[1], HIGHEST)

    def _fold(self, tiles: list[isa.Tile], step: int = 1) -> Generator[Item, Any, list[Any]]:
        """Leave the smallest of the first and the largest of the second tile in registers."""
        found: list[Any] = []
        for reg, op, tile in zip(_ENDS, (isa.ScalarOp.MIN, isa.ScalarOp.MAX), tiles, strict=True):
            yield self._counts.once(_extreme, reg, op, tile, tile.size, step)
            found.append((yield isa.ScalarAlu(op=isa.ScalarOp.MOV, reg=reg.index, a=reg, dtype=isa.S16)))
        return found


def _extreme(reg: Reg, op: isa.ScalarOp, tile: isa.Tile, size: int, step: int) -> Iterator[isa.Instruction]:
    """Read every `step`-th entry, and keep one of them in a register."""
    yield isa.GetValue(reg=reg.index, src=tile.flat(0, 1))
    for i in range(step, size, step):
        yield isa.GetValue(reg=PART.index, src=tile.flat(i, 1))
        yield isa.ScalarAlu(op=op, reg=reg.index, a=reg, b=PART, dtype=isa.S16)


class Mover:
    """Copies of the core's pieces from one place of global memory to another."""

    def __init__(self, counts: CoreCounts) -> None:
        """Reserve two buffers."""
        self._counts = counts
        counts.arena.reset()
        tiles = [counts.arena.ub(counts.counts.piece, isa.S32) for _ in range(2)]
        self._queue = counts.c.queue(Pipe.MTE2, Pipe.MTE3, tiles)

    def run(self, source: isa.Tile, target: isa.Tile) -> Steps:
        """Copy."""
        for start, stop in self._counts.spans:
            tile = (yield from self._queue.alloc()).as_type(source.dtype).flat(0, stop - start)
            yield isa.copy_in(tile, source.flat(start, tile.size))
            yield from self._queue.enque()
            yield from self._queue.deque()
            yield isa.copy_out(target.flat(start, tile.size), tile)
            yield from self._queue.free()
