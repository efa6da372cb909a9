"""What both sides of ScanUL1 do with the tiles of arrays: whole tiles of s x s on the cube, one carry a tile
on the vector unit (arXiv 2505.15112, section 4.1).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from npusim import Kernel, Pipe, isa

from ._carries import CARRY
from ._cube_scan import READY, TAKEN, BlockScan


def pieces(array: isa.Tile, size: int) -> list[isa.Tile]:
    """Return the next `size` elements of a flat array again and again; the last piece may be shorter."""
    return [array.flat(at, min(size, array.size - at)) for at in range(0, array.size, size)]


def sum_tiles(
    c: Kernel, s: int, upper: isa.Tile, strict: isa.Tile, tiles: Sequence[tuple[isa.Tile, isa.Tile]]
) -> Iterator[isa.Instruction]:
    """Make the sums inside each tile, from the first of a pair into the second.

    The next tile is loaded before the scalar unit waits for the vector core.
    """
    blocks = BlockScan(c, s, upper, strict)
    yield from blocks.start()
    if tiles:
        yield from blocks.load(tiles[0][0])
    for t, (_, y) in enumerate(tiles):
        yield from blocks.finish(y)
        if t + 1 < len(tiles):
            yield from blocks.load(tiles[t + 1][0])
        yield isa.CrossCoreSetFlag(group=isa.Group.CUBE_VECTOR, on=Pipe.FIX, id=READY)
        yield isa.CrossCoreWaitFlag(group=isa.Group.CUBE_VECTOR, id=TAKEN)
    yield from blocks.stop()


def add_carries(c: Kernel, s: int, arrays: Iterable[isa.Tile]) -> Iterator[isa.Instruction]:
    """Add to each tile of an array what comes before it, array after array.

    The first vector core does it; any other only takes part in the flags.
    """
    taken = isa.CrossCoreSetFlag(group=isa.Group.CUBE_VECTOR, on=Pipe.MTE3, id=TAKEN)
    ready = isa.CrossCoreWaitFlag(group=isa.Group.CUBE_VECTOR, id=READY)
    tile = s * s
    if c.core.number:
        for array in arrays:
            for _ in range(0, array.size, tile):
                yield taken
                yield ready
        return
    source, sums = c.ub(tile, isa.F32), c.ub(tile, isa.F32)
    loaded, source_free = c.flag(Pipe.MTE2, Pipe.V), c.flag(Pipe.V, Pipe.MTE2)
    summed, stored = c.flag(Pipe.V, Pipe.MTE3), c.flag(Pipe.MTE3, Pipe.V)
    counted, read = c.flag(Pipe.V, Pipe.S), c.flag(Pipe.S, Pipe.V)
    zero = isa.ScalarAlu(op=isa.ScalarOp.MOV, reg=CARRY.index, a=0, dtype=isa.F32)
    yield zero
    for event in (source_free, stored, read):
        yield event.set
    for number, array in enumerate(arrays):
        if number:
            yield zero
        for part in pieces(array, tile):
            yield taken
            yield ready
            yield source_free.wait
            yield isa.copy_in(source.flat(0, part.size), part)
            yield loaded.set
            yield loaded.wait
            yield stored.wait
            yield read.wait
            yield from c.vector(isa.Adds, count=part.size, dst=sums, src=source, scalar=CARRY)
            yield source_free.set
            yield counted.set
            yield counted.wait
            yield isa.GetValue(reg=CARRY.index, src=sums.flat(part.size - 1, 1))
            yield read.set
            yield summed.set
            yield summed.wait
            yield isa.copy_out(part, sums.flat(0, part.size))
            yield stored.set
    for event in (source_free, stored, read):
        yield event.wait
