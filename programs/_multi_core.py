"""How the scan programs share work among cores: who does what, and how sums travel between cores."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, NamedTuple

from npusim import Kernel, Pipe, isa
from npusim.config.chip import Chip
from npusim.units import BLOCK_BYTES, align_up, ceil_div

from ._carries import CARRY, PART, TOTAL, Item, Pieces, Steps, add_to


def span(index: int, each: int, total: int) -> range:
    """Return the numbers that core `index` has of `total`, where every core takes the next `each`."""
    return range(min(index * each, total), min((index + 1) * each, total))


class Part(NamedTuple):
    """A stretch of the input that all cores scan together."""

    start: int
    count: int
    tiles: int
    padded: bool
    """Whether it is no whole number of tiles."""


def parts(n: int, tile: int, limit: int | None) -> list[Part]:
    """Split n elements into stretches of at most `limit`."""
    step = n if limit is None else limit
    made = []
    for start in range(0, n, step):
        count = min(step, n - start)
        made.append(Part(start, count, ceil_div(count, tile), count % tile != 0))
    return made


def l2_elements(chip: Chip, nbytes: int) -> int:
    """Return how many elements fill L2 with `nbytes` each, rounded up to 256 (as the authors' host code)."""
    return align_up(chip.l2.size_mib * 1024 * 1024 // nbytes, 256)


def first_carry(y: isa.Tile, before: int | None) -> Steps:
    """Start from zero, or from the sum that element `before` of `y` has, which other cores stored."""
    if before is None:
        yield isa.ScalarAlu(op=isa.ScalarOp.MOV, reg=CARRY.index, a=0, dtype=y.dtype)
        return
    last = y.flat(before, 1)
    yield isa.DataCacheCleanAndInvalid(at=last)
    yield isa.GetValue(reg=CARRY.index, src=last)


class Arena:
    """A stretch of the unified buffer that the phases of a stream reserve anew, one after the other.

    Between two phases all pipes of the core must have met, as in a `SyncAll`.
    """

    def __init__(self, c: Kernel, nbytes: int) -> None:
        self._all = c.ub(nbytes, isa.U8)
        self._used = 0

    def ub(self, count: int, dtype: isa.DType) -> isa.Tile:
        """Reserve elements, from a block boundary on."""
        start = self._used
        self._used = align_up(start + dtype.bytes_of(count), BLOCK_BYTES)
        return isa.Tile(self._all.flat(start, dtype.bytes_of(count)).as_type(dtype), (count,))

    def reset(self) -> None:
        """Give everything back, for the next phase."""
        self._used = 0


class Exchange:
    """The sums of all vector cores in global memory, as one vector core sees them."""

    def __init__(self, c: Kernel, sums: isa.Tile, number: int) -> None:
        self._sums, self._number = sums, number
        self._mine = c.ub(8, sums.dtype)
        self._all = c.ub(sums.size, sums.dtype)
        self._read = c.flag(Pipe.MTE2, Pipe.S)
        self._written = c.flag(Pipe.S, Pipe.MTE3)
        # made once, since programs exchange again and again
        self._reads = [isa.GetValue(reg=PART.index, src=self._all.flat(i, 1)) for i in range(sums.size)]
        self._add = add_to(TOTAL, PART, sums.dtype)

    def start(self) -> Steps:
        """Set the core's own sum to zero."""
        yield isa.ScalarAlu(op=isa.ScalarOp.MOV, reg=TOTAL.index, a=0, dtype=self._sums.dtype)

    def publish(self) -> Steps:
        """Store the core's own sum; a `SyncAll` must follow before the others read it."""
        yield isa.SetValue(dst=self._mine, value=TOTAL)
        yield self._written.set
        yield self._written.wait
        yield isa.copy_out(self._sums.flat(self._number, 1), self._mine.flat(0, 1))

    def collect(self) -> Steps:
        """Add the sums of all cores before this one to the carry."""
        yield isa.copy_in(self._all, self._sums)
        yield self._read.set
        yield self._read.wait
        for core in range(self._number):
            yield isa.GetValue(reg=PART.index, src=self._all.flat(core, 1))
            yield add_to(CARRY, PART, self._sums.dtype)

    def collect_all(self) -> Generator[Item, Any, tuple[Any, Any]]:
        """Return the sums of the cores before this one and of all cores, which timing alone does not know."""
        before = yield isa.ScalarAlu(op=isa.ScalarOp.MOV, reg=TOTAL.index, a=0, dtype=self._sums.dtype)
        yield isa.copy_in(self._all, self._sums)
        yield self._read.set
        yield self._read.wait
        total = before
        for core, read in enumerate(self._reads):
            yield read
            total = yield self._add
            if core < self._number:
                before = total
        return before, total


class Padding:
    """Copies of a part into a workspace that holds whole tiles, by one vector core."""

    def __init__(self, c: Kernel, pieces: Pieces, size: int, dtype: isa.DType) -> None:
        self._size = size
        tiles = [source.as_type(dtype).flat(0, size) for source in pieces.sources]
        self._queue = c.queue(Pipe.MTE2, Pipe.MTE3, tiles)
        self._zeroed = c.flag(Pipe.V, Pipe.MTE2)

    def copy(self, padded: isa.Tile, x: isa.Tile, mine: range) -> Steps:
        """Copy the pieces `mine` of `x`, and zeros where it has ended."""
        size = self._size
        for piece in mine:
            count = max(0, min(size, x.size - piece * size))
            tile = yield from self._queue.alloc()
            if count == size:
                yield isa.copy_in(tile, x.flat(piece * size, size))
            else:
                yield from self._last(tile, x, piece * size, count)
            yield from self._queue.enque()
            tile = yield from self._queue.deque()
            yield isa.copy_out(padded.flat(piece * size, size), tile)
            yield from self._queue.free()

    def _last(self, tile: isa.Tile, x: isa.Tile, start: int, count: int) -> Steps:
        """Load a piece of fewer elements over zeros."""
        words = tile.as_type(isa.U16)
        yield isa.PipeBarrier(on=Pipe.ALL)  # this store may still read the tile
        yield isa.SetVectorMask(mask=words.size)
        yield isa.Duplicate(dst=words, scalar=0)
        yield self._zeroed.set
        yield self._zeroed.wait
        if count:
            size = x.dtype.size
            yield isa.DataCopyPad(
                dst=tile,
                src=x.flat(start, count),
                block_len=count * size,
                right_pad=-count % (32 // size),
            )
