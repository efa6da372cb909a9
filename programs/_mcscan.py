"""The scans on all cores: what MCScan and MCScanUL1 have in common (arXiv 2505.15112, section 5.2).

Phase 1: cubes make local sums of tiles, while vector cores sum their share of the input, which they read for
themselves. All cores meet. Phase 2: the vector cores add to the local sums what comes before them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from npusim import Builder, Expected, Kernel, isa
from npusim.units import ceil_div

from ._carries import Body, Pieces, Steps
from ._cube_scan import BlockScan, RowScan
from ._multi_core import Exchange, Padding, Part, first_carry, l2_elements, parts, span
from ._prefix_sum import multi_core_sums


@dataclass(frozen=True, kw_only=True)
class Method:
    """How one of the algorithms differs from the other."""

    scan: Callable[[Kernel], RowScan | BlockScan]
    """Makes what sums tiles on a cube core."""
    complete: Callable[[Pieces, int], Body]
    """Returns what completes the piece in a buffer."""
    piece: int
    """Elements that a vector core works on at a time."""
    buffers: int
    """Pieces that it has in flight."""
    inside: Callable[[np.ndarray, np.ndarray], np.ndarray]
    """Bounds the error of one vector core's sums from its elements and the sums."""


def multi_core_scan(
    k: Builder,
    name: str,
    x: isa.Tile,
    y: isa.Tile,
    tile: int,
    method: Method,
    *,
    exclusive: bool = False,
    l2_split: bool = True,
    cores: int | None = None,
) -> None:
    """Build the launch and the reference.

    Core b of B takes the next ceil(T / B) of the T tiles. Half tiles are shared in the same way, so each of
    the two vector cores of a group has one half of what its cube has; of whole tiles vector core v takes the
    next ceil(T / V). A stretch that is no whole number of tiles is copied into a workspace with zeros behind
    it, and its local sums are made in a second workspace; those of others in `y`, except where the result is
    moved by one element.
    """
    n, size = x.size, method.piece
    stretches = parts(n, tile, l2_elements(k.chip, x.dtype.size + y.dtype.size) if l2_split else None)
    most = max(part.tiles for part in stretches)
    blocks = min(cores or k.chip.cores.cube, most)
    per_block = k.chip.cores.vector_per_cube
    vectors = blocks * per_block
    sums = k.workspace("sums", (vectors,), y.dtype)
    padded, local = x, y
    if any(part.padded for part in stretches):
        padded = k.workspace("padded", (most * tile,), x.dtype)
    if exclusive or any(part.padded for part in stretches):
        local = k.workspace("local", (most * tile,), y.dtype)

    def given(part: Part) -> isa.Tile:
        return padded if part.padded else x.flat(part.start, part.count)

    def found(part: Part) -> isa.Tile:
        return local if part.padded or exclusive else y.flat(part.start, part.count)

    def tiles_of(part: Part, block: int) -> range:
        return span(block, ceil_div(part.tiles, blocks), part.tiles)

    def pieces_of(part: Part, vector: int) -> range:
        per_tile = tile // size
        if per_tile == 1:
            return span(vector, ceil_div(part.tiles, vectors), part.tiles)
        of_block = ceil_div(part.tiles, blocks) * per_tile
        return span(vector, ceil_div(of_block, per_block), part.tiles * per_tile)

    bodies: dict[object, Body] = {}

    def cube(c: Kernel) -> Steps:
        scan = method.scan(c)
        yield from scan.start()
        for part in stretches:
            if part.padded:
                yield from c.sync_all()
            source, target = given(part), found(part)
            for t in tiles_of(part, c.block):
                yield from scan.tile(source.flat(t * tile, tile), target.flat(t * tile, tile))
            yield from c.sync_all()
            if part is not stretches[-1]:
                yield from c.sync_all()
        yield from scan.stop()

    def vector(c: Kernel) -> Steps:
        number = per_block * c.block + c.core.number
        pieces = Pieces(c, size, y.dtype, method.buffers, bodies)
        exchange, padding = Exchange(c, sums, number), Padding(c, pieces, size, x.dtype)
        yield from pieces.start()
        if exclusive and number == 0:
            yield isa.SetValue(dst=y, value=0)
            yield isa.DataCacheCleanAndInvalid(at=y)
        for part in stretches:
            mine, source, target = pieces_of(part, number), given(part), found(part)
            if part.padded:
                yield from padding.copy(padded, x.flat(part.start, part.count), mine)
                yield from c.sync_all()

            yield from exchange.start()
            for piece in mine:
                slot = yield from pieces.load(source.flat(piece * size, size))
                yield from pieces.sum_up(slot, size, x.dtype)
            yield from exchange.publish()
            yield from c.sync_all()

            yield from first_carry(y, part.start - (not exclusive) if part.start else None)
            yield from exchange.collect()
            for piece in mine:
                start = piece * size
                if start < part.count:
                    slot = yield from pieces.load(target.flat(start, size))
                    yield from method.complete(pieces, slot)
                    first = part.start + start + exclusive
                    last = min(part.start + min(start + size, part.count) + exclusive, n)
                    yield from pieces.store(slot, y.flat(first, last - first))
            if part is not stretches[-1]:
                yield from c.sync_all()
        yield from pieces.stop()

    k.launch(name, cube=cube, vector=vector, blocks=blocks)

    @k.reference
    def expected(inputs: Mapping[str, np.ndarray]) -> dict[str, Expected]:
        def elements_of(part: Part) -> list[tuple[int, int]]:
            owned = [pieces_of(part, v) for v in range(vectors)]
            ends = [(min(o.start * size, part.count), min(o.stop * size, part.count)) for o in owned]
            return [(part.start + a, part.start + b) for a, b in ends]

        value, bound = multi_core_sums(inputs["x"], map(elements_of, stretches), size, method.inside)
        if exclusive:
            value, bound = (np.concatenate([a[:1] * 0, a[:-1]]) for a in (value, bound))
        if y.dtype is isa.S32:
            return {"y": Expected(value.astype(np.int32))}
        return {"y": Expected(value, bound)}
