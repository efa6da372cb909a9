"""The stream of one core of the matrix product: packets to L1, base blocks to L0, products, results out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from npusim import Kernel, Macro, Pipe, isa
from npusim.program.kernel import Event
from npusim.units import align_up, ceil_div

from ._gemm import Blocking, TileAt, feed_left, feed_right, load_left, load_right
from ._kept import Body, Kept

Steps = Iterator[isa.Instruction]
Items = Iterator[isa.Instruction | Macro]


class Drain(Protocol):
    """How results leave L0C."""

    pipe: Pipe
    """The pipe that reads L0C."""

    def begin(self) -> Steps:
        """Yield what comes before the first result."""

    def store(self, at: TileAt, acc: isa.Tile, done: Event, free: Event) -> Steps:
        """Yield the way of a finished tile to global memory: wait for `done`, set `free` behind L0C."""

    def end(self) -> Steps:
        """Yield what comes behind the last result."""


class _Slot(NamedTuple):
    """A buffer, the flag that says it is full, and the flag that says it is free."""

    tile: isa.Tile
    full: Event
    free: Event


class _Chunk(NamedTuple):
    """Base blocks that need no new packet: all that their instructions depend on."""

    left: int
    """Slot in L1 of the packet, and the position of the first base block in it; the same for the right."""
    place_a: int
    right: int
    place_b: int
    parity: int
    """Slot in L0 of the first base block."""
    acc: int
    """Slot in L0C."""
    count: int
    last_depth: int
    """Elements along k of the last base block; the others are whole."""
    first: bool
    """Whether it starts the tile; then whether it ends the tile, and the packets."""
    last: bool
    ends_a: bool
    ends_b: bool
    height: int
    width: int


def product_stream(
    c: Kernel,
    cut: Blocking,
    a: isa.Tile,
    b: isa.Tile,
    tiles: Sequence[TileAt],
    drain: Drain,
    kept: Kept,
    *,
    l1: int,
    l0: int,
) -> Items:
    """Yield the products of the tiles of one core, with `l1` and `l0` buffers of each operand.

    Loads run ahead by one packet where L1 has two buffers, also into the next tile. What depends on the
    position in the buffers alone is made once, for all cores, and yielded again.
    """
    core = _Core(c, cut, l1, l0, drain.pipe)
    yield from core.free()
    yield from drain.begin()
    packets_a, packets_b = ceil_div(cut.steps, cut.step_a), ceil_div(cut.steps, cut.step_b)
    left = _Packets(
        core.left,
        [(t.row, p) for t in tiles for p in range(packets_a)],
        lambda dst, row, packet: load_left(cut, dst, a, row, packet),
        kept,
    )
    right = _Packets(
        core.right,
        [(t.column, p) for t in tiles for p in range(packets_b)],
        lambda dst, column, packet: load_right(cut, dst, b, column, packet),
        kept,
    )
    parity = 0
    for number, at in enumerate(tiles):
        step = 0
        while step < cut.steps:
            place_a, place_b = step % cut.step_a, step % cut.step_b
            # the right operand first: its packets are the shorter ones, so it is wanted sooner
            beside = iter(right.due(number * packets_b + step // cut.step_b))
            for slot, want in () if cut.together else beside:
                yield slot.free.wait
                yield from right.load(slot, want)
                yield slot.full.set
            for slot, want in left.due(number * packets_a + step // cut.step_a):
                yield slot.free.wait
                if cut.together:
                    yield from right.load(*next(beside))
                yield from left.load(slot, want)
                yield slot.full.set
            count = min(cut.step_a - place_a, cut.step_b - place_b, cut.steps - step)
            last = step + count == cut.steps
            chunk = _Chunk(
                left=(number * packets_a + step // cut.step_a) % l1,
                place_a=place_a,
                right=(number * packets_b + step // cut.step_b) % l1,
                place_b=place_b,
                parity=parity,
                acc=number % len(core.acc),
                count=count,
                last_depth=cut.depth(step + count - 1),
                first=step == 0,
                last=last,
                ends_a=last or place_a + count == cut.step_a,
                ends_b=last or place_b + count == cut.step_b,
                height=cut.height(at.row),
                width=cut.width(at.column),
            )
            yield kept.macro(chunk, partial(core.multiply, chunk))
            step += count
            parity = (parity + count) % l0
        acc = core.acc[number % len(core.acc)]
        yield from drain.store(at, acc.tile, acc.full, acc.free)
    yield from drain.end()
    yield from core.drained()


class _Packets:
    """The packets of one operand in the order of their use, by row or column of tiles and position along k,
    and which have been asked for.
    """

    def __init__(
        self,
        slots: Sequence[_Slot],
        packets: Sequence[tuple[int, int]],
        make: Callable[[isa.Tile, int, int], list[isa.Instruction]],
        kept: Kept,
    ) -> None:
        self._slots = slots
        self._packets = packets
        self._make = make
        self._asked = 0
        self._kept = kept

    def due(self, used: int) -> Iterator[tuple[_Slot, tuple[int, int]]]:
        """Return the packets to load before packet `used` is: it, and as many more as there are buffers."""
        while self._asked < min(len(self._packets), used + len(self._slots)):
            number = self._asked
            self._asked += 1
            yield self._slots[number % len(self._slots)], self._packets[number]

    def load(self, slot: _Slot, packet: tuple[int, int]) -> Body:
        """Return the load of a packet into a slot, made once for each address in L1."""
        key = (slot.tile.address, *packet)
        return self._kept.again(key, lambda: self._make(slot.tile, *packet))


class _Core:
    """The buffers and flags of a core, and the instructions that depend on nothing else."""

    def __init__(self, c: Kernel, cut: Blocking, l1: int, l0: int, out: Pipe) -> None:
        self._cut = cut
        self._interlock = c.chip.cube.interlock_fractals
        self.left = [
            _slot(c, c.l1((cut.bm, cut.bk * cut.step_a), cut.dtype), Pipe.MTE2, Pipe.MTE1) for _ in range(l1)
        ]
        self.right = []
        for left in self.left:
            tile = c.l1((cut.bn, cut.bk * cut.step_b), cut.dtype)
            shared = _Slot(tile, left.full, left.free)
            self.right.append(shared if cut.together else _slot(c, tile, Pipe.MTE2, Pipe.MTE1))
        self._l0 = [
            (c.l0a((cut.bm, cut.bk), cut.dtype), c.l0b((cut.bn, cut.bk), cut.dtype)) for _ in range(l0)
        ]
        self._l0_full = [c.flag(Pipe.MTE1, Pipe.M) for _ in range(l0)]
        self._l0_free = [c.flag(Pipe.M, Pipe.MTE1) for _ in range(l0)]
        sums = isa.S32 if cut.dtype is isa.S8 else isa.F32
        twice = 2 * cut.bm * cut.bn * 4 <= c.chip.capacity_bytes("l0c")
        self.acc = [_slot(c, c.l0c((cut.bm, cut.bn), sums), Pipe.M, out) for _ in range(1 + twice)]

    def _all_free(self) -> list[Event]:
        slots = [*self.left, *([] if self._cut.together else self.right), *self.acc]
        return [*(s.free for s in slots), *self._l0_free]

    def free(self) -> Steps:
        """Yield the flags of all buffers, which are free at the start."""
        return (event.set for event in self._all_free())

    def drained(self) -> Steps:
        """Yield the waits until all buffers are free again."""
        return (event.wait for event in self._all_free())

    def multiply(self, chunk: _Chunk) -> Steps:
        """Yield the loads into L0 and the products of some base blocks."""
        cut, left, right, acc = (
            self._cut,
            self.left[chunk.left],
            self.right[chunk.right],
            self.acc[chunk.acc],
        )
        if chunk.place_a == 0:
            yield left.full.wait
        if chunk.place_b == 0 and not cut.together:
            yield right.full.wait
        high, wide = cut.product_height(chunk.height), cut.product_width(chunk.width)
        small = ceil_div(high, 16) * ceil_div(wide, 16) < self._interlock
        for i in range(chunk.count):
            at = (chunk.parity + i) % len(self._l0)
            a0, b0 = self._l0[at]
            ends = i == chunk.count - 1
            depth = chunk.last_depth if ends else cut.bk
            yield self._l0_free[at].wait
            yield from feed_left(cut, a0, left.tile, chunk.place_a + i, chunk.height, depth)
            yield from feed_right(cut, b0, right.tile, chunk.place_b + i, depth, chunk.width)
            if ends and chunk.ends_a:
                yield left.free.set
            if ends and chunk.ends_b and not cut.together:
                yield right.free.set
            yield self._l0_full[at].set
            yield self._l0_full[at].wait
            first = chunk.first and i == 0
            if first:
                yield acc.free.wait
            yield isa.mmad(acc.tile, a0, b0, high, depth, wide, init=first)
            if small and not (ends and chunk.last):  # the cube keeps only large results in order by itself
                yield isa.PipeBarrier(on=Pipe.M)
            yield self._l0_free[at].set
        if chunk.last:
            yield acc.full.set


def _slot(c: Kernel, tile: isa.Tile, src: Pipe, dst: Pipe) -> _Slot:
    return _Slot(tile, c.flag(src, dst), c.flag(dst, src))


# ---- how results leave -------------------------------------------------------------------------------------


class FixpipeDrain:
    """Results go from L0C to global memory by the fixpipe, which converts them on the way."""

    pipe = Pipe.FIX

    def __init__(self, cut: Blocking, y: isa.Tile, relu: bool) -> None:
        self._cut, self._y, self._relu = cut, y, relu

    def begin(self) -> Steps:
        """Yield nothing."""
        return iter(())

    def store(self, at: TileAt, acc: isa.Tile, done: Event, free: Event) -> Steps:
        """Yield the store of a tile."""
        cut, y = self._cut, self._y
        dst = y.offset((at.row * cut.bm * cut.n + at.column * cut.bn) * y.dtype.size)
        yield done.wait
        yield isa.store_nd(dst, acc, cut.height(at.row), cut.width(at.column), pitch=cut.n, relu=self._relu)
        yield free.set

    def end(self) -> Steps:
        """Yield nothing."""
        return iter(())


class VectorDrain:
    """Results go from L0C through the vector unit, which may work on them, and UB, as coupled cores do it.

    A tile leaves in pieces of as many columns as fit UB twice.
    """

    pipe = Pipe.V

    def __init__(self, c: Kernel, cut: Blocking, y: isa.Tile, relu: bool) -> None:
        self._c, self._cut, self._y, self._relu = c, cut, y, relu
        room = c.chip.capacity_bytes("ub") // 2 // (cut.bm * y.dtype.size)
        self._wide = min(align_up(cut.bn, 16), room // 16 * 16)
        self._pieces = [_slot(c, c.ub((self._wide, cut.bm), y.dtype), Pipe.V, Pipe.MTE3) for _ in range(2)]
        self._next = 0

    def begin(self) -> Steps:
        """Yield the flags of the pieces, which are free at the start."""
        return (piece.free.set for piece in self._pieces)

    def store(self, at: TileAt, acc: isa.Tile, done: Event, free: Event) -> Steps:
        """Yield the way of a tile: to UB, the vector's work, to global memory."""
        cut = self._cut
        width, rows = cut.product_width(cut.width(at.column)), cut.product_height(cut.height(at.row))
        yield done.wait
        for first in range(0, width, self._wide):
            piece = self._pieces[self._next]
            self._next = 1 - self._next
            columns = min(self._wide, width - first)
            yield piece.free.wait
            yield isa.DataCopyEnhanced(
                dst=piece.tile, src=acc.offset(first * rows * 4), block_len=columns // 16 * rows // 16
            )
            if first + self._wide >= width:
                yield free.set
            if self._relu:
                yield isa.PipeBarrier(on=Pipe.V)
                yield from self._c.vector(isa.Relu, count=columns * rows, dst=piece.tile, src=piece.tile)
            yield piece.full.set
            yield piece.full.wait
            yield from self._to_memory(at, piece.tile, first, min(self._wide, cut.width(at.column) - first))
            yield piece.free.set

    def _to_memory(self, at: TileAt, piece: isa.Tile, first: int, columns: int) -> Steps:
        """Yield the stores of a piece: whole fractals at once, and the columns of a part of one."""
        cut, size = self._cut, self._y.dtype.size
        height = cut.height(at.row)
        rows = cut.product_height(height)
        dst = self._y.offset((at.row * cut.bm * cut.n + at.column * cut.bn + first) * size)
        whole = columns // 16 * 16 if cut.n <= 65535 else 0
        if whole:
            yield isa.DataCopyNz2Nd(
                dst=dst, src=piece, n_value=height, d_value=whole, src_rows=rows, dst_d_value=cut.n
            )
        for column in range(whole, columns, 16):
            some = min(16, columns - column)
            yield isa.DataCopyPad(
                dst=dst.offset(column * size),
                src=piece.offset(column * rows * size),
                block_count=height,
                block_len=some * size,
                src_gap=(16 * size - align_up(some * size, 32)) // 32,
                dst_gap=(cut.n - some) * size,
            )

    def end(self) -> Steps:
        """Yield the waits until the last pieces are stored."""
        return (piece.free.wait for piece in self._pieces)
