"""Segments of an array by offsets (CSR), on all cores: what the segmented scan, sums and SpMV share.

Cubes sum rows of s elements; the vector cores undo what a row has of the segment before (the "revert" of the
authors' segmented scans) and carry sums from row to row. A segment that began on another core gets what is
missing once all cores have told each other the sums of their last, open segments.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Generator
from typing import Any

import numpy as np

from npusim import Builder, Kernel, Pipe, Reg, isa
from npusim.errors import ConfigError
from npusim.units import ceil_div

from ._carries import CARRY, PART, Allocate, Item, Steps, add_to
from ._counted import LANES
from ._cube_scan import RowScan
from ._multi_core import Arena, span
from ._share import ai_cores
from ._split import known

RAW, VALUE, END = Reg(3), Reg(4), Reg(5)
CHUNK = 1024
"""Offsets or sums that a core has in its unified buffer at a time."""
Prepare = Callable[[Kernel, Allocate, int], Steps]


class Segments:
    """Elements `x` in segments: number j has those from `offsets[j]` up to `offsets[j + 1]`.

    The tiles of s x s elements are shared out as in MCScan: cube b takes the next ceil(T / B), its vector
    cores half each. Without values the segments are taken as equally long.
    """

    def __init__(
        self, k: Builder, x: isa.Tile, offsets: isa.Tile, y: isa.DType, s: int, cores: int | None
    ) -> None:
        self.x, self.offsets, self.dtype, self.s = x, offsets, y, s
        self.n, self.segments, self.piece = x.size, offsets.size - 1, s * s // 2
        self.tiles = ceil_div(self.n, s * s)
        self.blocks = min(ai_cores(k, cores), self.tiles)
        self.per_block = k.chip.cores.vector_per_cube
        self.vectors = self.blocks * self.per_block
        self.lower = k.constant("lower", np.tril(np.ones((s, s), x.dtype.np)))
        self.local = k.workspace("local", (self.n,), y)
        """Sums inside rows of s, as if there were no segments."""
        self.tails = k.workspace("tails", (2 * self.vectors,), y)
        """Two numbers of every vector core: the sum of its last, open segment so far, and 1 where that began
        in its share, so that nothing of the cores before belongs to it.
        """
        self.declared = [j * self.n // self.segments for j in range(1, self.segments + 1)]
        """Ends of segments, for runs without values."""

    def share(self, number: int) -> tuple[int, int]:
        """Return the first element of a vector core, and the one behind its last."""
        of_block = ceil_div(self.tiles, self.blocks) * 2
        mine = span(number, ceil_div(of_block, self.per_block), 2 * self.tiles)
        return min(mine.start * self.piece, self.n), min(mine.stop * self.piece, self.n)

    def launch(
        self,
        k: Builder,
        name: str,
        core: Callable[[Kernel, Allocate, int], CoreSegments],
        prepare: Prepare | None = None,
        advice: str = "use a smaller s",
    ) -> None:
        """Start all cores; `prepare` makes the elements on the vector cores.

        All cores meet when the elements are there (if they are made), when the rows are summed, and when the
        vector cores have stored their tails (in `CoreSegments.run`). `core` makes what a vector core does;
        `advice` ends the message where its buffers do not fit.

        Raises `ConfigError`, in the stream, where they do not.
        """
        tile = self.s * self.s

        def cube(c: Kernel) -> Steps:
            rows = RowScan(c, self.s, self.lower, self.dtype)
            yield from rows.start()
            if prepare is not None:
                yield from c.sync_all()
            for t in span(c.block, ceil_div(self.tiles, self.blocks), self.tiles):
                at, count = t * tile, min(tile, self.n - t * tile)
                yield from rows.tile(self.x.flat(at, count), self.local.flat(at, count))
            yield from rows.stop()
            yield from c.sync_all()  # rows are summed
            yield from c.sync_all()  # tails are stored

        def vector(c: Kernel) -> Steps:
            number = self.per_block * c.block + c.core.number
            room = k.chip.buffers.ub_kib * 1024
            arena = Arena(c, room)

            def ub(count: int, dtype: isa.DType) -> isa.Tile:
                try:
                    return arena.ub(count, dtype)
                except IndexError:
                    raise ConfigError(
                        f"{name}: s={self.s} needs more than the {room} bytes of ub; {advice}"
                    ) from None

            if prepare is not None:
                yield from prepare(c, ub, number)
                yield from c.sync_all()
                arena.reset()
            yield from c.sync_all()
            mine = core(c, ub, number)
            yield from mine.run()

        k.launch(name, cube=cube, vector=vector, blocks=self.blocks)


class Ends:
    """The ends of segments, which the scalar unit reads one by one out of a buffer."""

    def __init__(self, c: Kernel, ub: Allocate, of: Segments) -> None:
        self._of, self._buffer = of, ub(CHUNK, isa.S32)
        self._loaded, self._read = c.flag(Pipe.MTE2, Pipe.S), c.flag(Pipe.S, Pipe.MTE2)
        self._held = range(0)

    def seek(self, element: int) -> Generator[Item, Any, tuple[int, int]]:
        """Return the number of the segment that holds an element, and where it begins: a binary search in
        global memory for the segments that have ended before.
        """
        of = self._of
        low, high = 0, of.segments - 1
        while low < high:
            middle = (low + high) // 2
            end = yield isa.GetValue(reg=END.index, src=of.offsets.flat(middle + 1, 1))
            if known(end, of.declared[middle]) <= element:
                low = middle + 1
            else:
                high = middle
        start = yield isa.GetValue(reg=END.index, src=of.offsets.flat(low, 1))
        return low, known(start, of.declared[low - 1] if low else 0)

    def read(self, number: int) -> Generator[Item, Any, int]:
        """Return the end of a segment; behind the last there is one that never ends."""
        of = self._of
        if number == of.segments:
            return of.n + 1
        if number not in self._held:
            if self._held:
                yield self._read.set
                yield self._read.wait
            self._held = range(number, min(number + CHUNK, of.segments))
            count = len(self._held)
            yield isa.copy_in(self._buffer.flat(0, count), of.offsets.flat(number + 1, count))
            yield self._loaded.set
            yield self._loaded.wait
        end = yield isa.GetValue(reg=END.index, src=self._buffer.flat(number - self._held.start, 1))
        return known(end, of.declared[number])


class CoreSegments:
    """One vector core on its share: row after row, with the ends of the segments that lie in it.

    The carry is what an element of the row lacks: the sum of its segment before the row, or behind the end of
    a segment in the row minus the row's sum up to there. So every sum is one addition.
    """

    def __init__(self, c: Kernel, ub: Allocate, of: Segments, y: isa.Tile, number: int) -> None:
        """Reserve buffers and flags; sums go to `y`."""
        self.c, self.of, self.y, self.number = c, of, y, number
        self.start, self.stop = of.share(number)
        self.sources = [ub(of.piece, of.dtype) for _ in range(2)]
        self.sums = [ub(of.piece, of.dtype) for _ in range(2)]
        self._ends = Ends(c, ub, of)
        self._mine, self._all = ub(8, of.dtype), ub(of.tails.size, of.dtype)
        self._to_scalar = [c.flag(Pipe.MTE2, Pipe.S) for _ in range(2)]
        self._scalar_free = [c.flag(Pipe.S, Pipe.MTE2) for _ in range(2)]
        self.loaded = [c.flag(Pipe.MTE2, Pipe.V) for _ in range(2)]
        self.free = [c.flag(Pipe.V, Pipe.MTE2) for _ in range(2)]
        self._summed = [c.flag(Pipe.V, Pipe.MTE3) for _ in range(2)]
        self._stored = [c.flag(Pipe.MTE3, Pipe.V) for _ in range(2)]
        self._written, self._read = c.flag(Pipe.S, Pipe.MTE3), c.flag(Pipe.MTE2, Pipe.S)

    # ---- what a program says -------------------------------------------------------------------------------

    def add(self, slot: int, row: int, first: int, last: int) -> Steps:
        """Take note of elements `first` up to `last` of a row of a loaded piece, which lack the carry."""
        yield from ()

    def ended(self, number: int, *, empty: bool) -> Steps:
        """Take note of the end of a segment; `RAW` has the row's sum up to there."""
        yield from ()

    def finish(self) -> Steps:
        """Store what is left, before the cores meet."""
        yield from ()

    def head(self, first: int, end: int) -> isa.Tile | None:
        """Return which results lack what other cores have of the core's first segment, which is `first` and
        ends at element `end` or behind the share.
        """
        raise NotImplementedError

    # ---- what follows --------------------------------------------------------------------------------------

    def run(self) -> Steps:
        """Sum the share, tell the other cores, and add what they have."""
        for event in (*self.free, *self._stored, *self._scalar_free):
            yield event.set
        # the segment that the share starts in, and its extent; none for a core without a share
        first, begin, end = self.of.segments, self.stop, self.stop
        cut = 0
        yield from self._zero(CARRY)
        if self.start < self.stop:
            first, begin = (yield from self._ends.seek(self.start)) if self.start else (0, 0)
            end = yield from self._ends.read(first)
            cut = int(end <= self.stop)
            yield from self._walk(first, begin, end)
        yield from self.finish()
        yield from self._publish(cut)
        yield from self.c.sync_all()
        lacking = self.head(first, end) if begin < self.start else None
        if lacking is not None:
            yield from self._collect()
            yield from self._add_to(lacking)
        for event in (*self.free, *self._stored, *self._scalar_free):
            yield event.wait

    def _walk(self, number: int, begin: int, end: int) -> Steps:
        """Go through the share row by row, from segment `number` on, which goes from `begin` up to `end`."""
        of = self.of
        pieces = range(self.start, self.stop, of.piece)
        yield from self._load(0, pieces[0])
        for i, start in enumerate(pieces):
            slot, source = i % 2, self.sources[i % 2]
            if i + 1 < len(pieces):
                yield from self._load(1 - slot, pieces[i + 1])
            yield self._to_scalar[slot].wait
            yield self.loaded[slot].wait
            yield self._stored[slot].wait
            count = min(of.piece, self.stop - start)
            for row, a in enumerate(range(0, count, of.s)):
                at, b = a, min(a + of.s, count)  # the row has a..b; what lies before `at` is done
                while end <= start + b:
                    local = end - start
                    if end == begin:
                        yield from self.ended(number, empty=True)
                    else:
                        yield from self.add(slot, row, at - a, local - a)
                        yield isa.GetValue(reg=RAW.index, src=source.flat(local - 1, 1))
                        yield from self.ended(number, empty=False)
                        yield isa.ScalarAlu(op=isa.ScalarOp.SUB, reg=CARRY.index, a=0, b=RAW, dtype=of.dtype)
                        at = local
                    number, begin = number + 1, end
                    end = yield from self._ends.read(number)
                if at < b:
                    yield from self.add(slot, row, at - a, b - a)
                    yield isa.GetValue(reg=RAW.index, src=source.flat(b - 1, 1))
                    yield add_to(CARRY, RAW, of.dtype)
                else:
                    yield from self._zero(CARRY)
            yield self._scalar_free[slot].set
            yield self.free[slot].set
            yield self._summed[slot].set
            yield self._summed[slot].wait
            yield from self.store(slot, start, count)
            yield self._stored[slot].set

    def store(self, slot: int, start: int, count: int) -> Steps:
        """Store the sums of a piece, where there are any."""
        yield from ()

    def _load(self, slot: int, start: int) -> Steps:
        count = min(self.of.piece, self.stop - start)
        yield self._scalar_free[slot].wait
        yield self.free[slot].wait
        yield isa.copy_in(self.sources[slot].flat(0, count), self.of.local.flat(start, count))
        yield self._to_scalar[slot].set
        yield self.loaded[slot].set

    def _zero(self, reg: Reg) -> Steps:
        yield isa.ScalarAlu(op=isa.ScalarOp.MOV, reg=reg.index, a=0, dtype=self.of.dtype)

    def _publish(self, cut: int) -> Steps:
        """Store the sum of the open segment, and whether it began in the share."""
        yield isa.SetValue(dst=self._mine.flat(0, 1), value=CARRY)
        yield isa.SetValue(dst=self._mine.flat(1, 1), value=cut)
        yield self._written.set
        yield self._written.wait
        yield isa.copy_out(self.of.tails.flat(2 * self.number, 2), self._mine.flat(0, 2))

    def _collect(self) -> Steps:
        """Make the carry what the cores before have of the segment that is open at the share's start."""
        of = self.of
        yield isa.copy_in(self._all, of.tails)
        yield self._read.set
        yield self._read.wait
        yield from self._zero(CARRY)
        for core in range(self.number):
            start, stop = of.share(core)
            ended = bisect_right(of.declared, stop) - bisect_right(of.declared, start)
            cut = yield isa.GetValue(reg=PART.index, src=self._all.flat(2 * core + 1, 1))
            if known(cut, min(ended, 1)):
                yield from self._zero(CARRY)
            yield isa.GetValue(reg=PART.index, src=self._all.flat(2 * core, 1))
            yield add_to(CARRY, PART, of.dtype)

    def _add_to(self, lacking: isa.Tile) -> Steps:
        """Add the carry to results that are stored already."""
        for i, at in enumerate(range(0, lacking.size, self.of.piece)):
            slot, part = i % 2, lacking.flat(at, min(self.of.piece, lacking.size - at))
            source, sums = self.sources[slot], self.sums[slot]
            yield self.free[slot].wait
            yield isa.copy_in(source.flat(0, part.size), part)
            yield self.loaded[slot].set
            yield self.loaded[slot].wait
            yield self._stored[slot].wait
            yield from self.c.vector(isa.Adds, count=part.size, dst=sums, src=source, scalar=CARRY)
            yield self.free[slot].set
            yield self._summed[slot].set
            yield self._summed[slot].wait
            yield isa.copy_out(part, sums.flat(0, part.size))
            yield self._stored[slot].set


class CoreSums(CoreSegments):
    """Keeps the last sum of every segment, and zero for one that is empty; nothing needs the vector unit."""

    def __init__(self, c: Kernel, ub: Allocate, of: Segments, y: isa.Tile, number: int) -> None:
        super().__init__(c, ub, of, y, number)
        self._found = ub(CHUNK, of.dtype)
        self._made, self._gone = c.flag(Pipe.S, Pipe.MTE3), c.flag(Pipe.MTE3, Pipe.S)
        self._held = range(0)

    def ended(self, number: int, *, empty: bool) -> Steps:
        """Put the sum into a buffer, and store that when it is full."""
        if len(self._held) == CHUNK:
            yield from self.finish()
        self._held = range(self._held.start if self._held else number, number + 1)
        place = self._found.flat(len(self._held) - 1, 1)
        if empty:
            yield isa.SetValue(dst=place, value=0)
            return
        yield isa.ScalarAlu(op=isa.ScalarOp.ADD, reg=VALUE.index, a=RAW, b=CARRY, dtype=self.of.dtype)
        yield isa.SetValue(dst=place, value=VALUE)

    def finish(self) -> Steps:
        """Store the sums in the buffer."""
        count = len(self._held)
        if count:
            yield self._made.set
            yield self._made.wait
            yield isa.copy_out(self.y.flat(self._held.start, count), self._found.flat(0, count))
            yield self._gone.set
            yield self._gone.wait
        self._held = range(0)

    def head(self, first: int, end: int) -> isa.Tile | None:
        """Return the sum of the first segment, if it ends here."""
        return self.y.flat(first, 1) if end <= self.stop else None


class CoreScan(CoreSegments):
    """Stores all sums: the vector unit adds the carry to stretches of rows, under a mask of lanes."""

    def add(self, slot: int, row: int, first: int, last: int) -> Steps:
        """Add the carry to a stretch of a row."""
        source, sums, s = self.sources[slot], self.sums[slot], self.of.s
        whole = first == 0 and last == s
        for at in range(0, s, s) if whole else range(first // LANES * LANES, last, LANES):
            low, high = max(first - at, 0), min(last - at, LANES)
            place = row * s + at
            yield from isa.masked(
                isa.Adds,
                state=self.c.state,
                mask=(1 << high) - (1 << low),
                dst=sums.flat(place, 1),
                src=source.flat(place, 1),
                scalar=CARRY,
                repeat=ceil_div(s, LANES) if whole else 1,
            )

    def store(self, slot: int, start: int, count: int) -> Steps:
        """Store a piece."""
        yield isa.copy_out(self.y.flat(start, count), self.sums[slot].flat(0, count))

    def head(self, first: int, end: int) -> isa.Tile | None:
        """Return the sums of the first segment."""
        return self.y.flat(self.start, min(end, self.stop) - self.start)
