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

from ._carries import Allocate, Pieces, Steps
from ._cube_scan import BlockScan, RowScan
from ._kept import Body, Kept
from ._multi_core import Exchange, Padding, Part, first_carry, l2_elements, parts, span
from ._prefix_sum import multi_core_sums
from ._share import ai_cores


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


class Scan:
    """A scan of `x` into `y` by all cores of a launch: the shares of the cores, and what each of them does.

    Core b of B takes the next ceil(T / B) of the T tiles. Half tiles are shared in the same way, so each of
    the two vector cores of a group has one half of what its cube has; of whole tiles vector core v takes the
    next ceil(T / V). A stretch that is no whole number of tiles is copied into a workspace with zeros behind
    it, and its local sums are made in a second workspace; those of others in `y`, except where the result is
    moved by one element.
    """

    def __init__(
        self,
        k: Builder,
        x: isa.Tile,
        y: isa.Tile,
        tile: int,
        method: Method,
        *,
        exclusive: bool = False,
        l2_split: bool = True,
        cores: int | None = None,
    ) -> None:
        self.x, self.y, self.tile, self.method, self.exclusive = x, y, tile, method, exclusive
        limit = l2_elements(k.chip, x.dtype.size + y.dtype.size) if l2_split else None
        self.stretches = parts(x.size, tile, limit)
        most = max(part.tiles for part in self.stretches)
        self.blocks = min(ai_cores(k, cores), most)
        self.per_block = k.chip.cores.vector_per_cube
        self.vectors = self.blocks * self.per_block
        self.sums = k.workspace("sums", (self.vectors,), y.dtype)
        self.padded, self.local = x, y
        if any(part.padded for part in self.stretches):
            self.padded = k.workspace("padded", (most * tile,), x.dtype)
        if exclusive or any(part.padded for part in self.stretches):
            self.local = k.workspace("local", (most * tile,), y.dtype)
        self.shared = Kept()

    def given(self, part: Part) -> isa.Tile:
        """Return where the elements of a stretch are, in whole tiles."""
        return self.padded if part.padded else self.x.flat(part.start, part.count)

    def found(self, part: Part) -> isa.Tile:
        """Return where the local sums of a stretch go."""
        return self.local if part.padded or self.exclusive else self.y.flat(part.start, part.count)

    def tiles_of(self, part: Part, block: int) -> range:
        """Return the tiles of a cube core."""
        return span(block, ceil_div(part.tiles, self.blocks), part.tiles)

    def pieces_of(self, part: Part, vector: int) -> range:
        """Return the pieces of a vector core."""
        per_tile = self.tile // self.method.piece
        if per_tile == 1:
            return span(vector, ceil_div(part.tiles, self.vectors), part.tiles)
        of_block = ceil_div(part.tiles, self.blocks) * per_tile
        return span(vector, ceil_div(of_block, self.per_block), part.tiles * per_tile)

    def expected(self, x: np.ndarray) -> Expected:
        """Return the sums, and what rounding may do to them."""
        size = self.method.piece

        def elements_of(part: Part) -> list[tuple[int, int]]:
            owned = [self.pieces_of(part, v) for v in range(self.vectors)]
            ends = [(min(o.start * size, part.count), min(o.stop * size, part.count)) for o in owned]
            return [(part.start + a, part.start + b) for a, b in ends]

        value, bound = multi_core_sums(x, map(elements_of, self.stretches), size, self.method.inside)
        if self.exclusive:
            value, bound = (np.concatenate([a[:1] * 0, a[:-1]]) for a in (value, bound))
        if self.y.dtype is isa.S32:
            return Expected(value.astype(np.int32))
        return Expected(value, bound)


class CubeSide:
    """What a cube core does in a scan, which may run again and again between `start` and `stop`."""

    def __init__(self, scan: Scan, c: Kernel) -> None:
        self._scan, self._c = scan, c
        self._local = scan.method.scan(c)

    def start(self) -> Steps:
        """Load what stays."""
        yield from self._local.start()

    def stop(self) -> Steps:
        """Wait for what is still under way."""
        yield from self._local.stop()

    def run(self) -> Steps:
        """Make local sums; a `SyncAll` must follow before others read the result."""
        scan, c, tile = self._scan, self._c, self._scan.tile
        for part in scan.stretches:
            if part.padded:
                yield from c.sync_all()
            source, target = scan.given(part), scan.found(part)
            for t in scan.tiles_of(part, c.block):
                yield from self._local.tile(source.flat(t * tile, tile), target.flat(t * tile, tile))
            yield from c.sync_all()
            if part is not scan.stretches[-1]:
                yield from c.sync_all()


class CubeAgain(CubeSide):
    """A cube core whose scan is the same each time that it runs."""

    def __init__(self, scan: Scan, c: Kernel) -> None:
        super().__init__(scan, c)
        self._kept = Kept()

    def run(self) -> Steps:
        """Make local sums; a `SyncAll` must follow before others read the result."""
        yield from self._kept.again("run", super().run)


class VectorSide:
    """What a vector core does in a scan, which may run again and again between `start` and `stop`."""

    def __init__(self, scan: Scan, c: Kernel, ub: Allocate | None = None) -> None:
        """Reserve buffers in `ub`, or in the core's unified buffer."""
        self._scan, self._c = scan, c
        self.number = scan.per_block * c.block + c.core.number
        """Number of the vector core."""
        size = scan.method.piece
        self.pieces = Pieces(c, size, scan.y.dtype, scan.method.buffers, scan.shared, ub)
        self.exchange = Exchange(c, scan.sums, self.number)
        self._padding = Padding(c, self.pieces, size, scan.x.dtype)

    def start(self) -> Steps:
        """Give all buffers free."""
        yield from self.pieces.start()

    def stop(self) -> Steps:
        """Wait for what is still under way."""
        yield from self.pieces.stop()

    def run(self) -> Steps:
        """Complete the local sums; a `SyncAll` must follow before others read the result."""
        scan, c, pieces, number = self._scan, self._c, self.pieces, self.number
        size, exclusive, y = scan.method.piece, scan.exclusive, scan.y
        if exclusive and number == 0:
            yield isa.SetValue(dst=y, value=0)
            yield isa.DataCacheCleanAndInvalid(at=y)
        for part in scan.stretches:
            mine, source, target = scan.pieces_of(part, number), scan.given(part), scan.found(part)
            if part.padded:
                yield from self._padding.copy(scan.padded, scan.x.flat(part.start, part.count), mine)
                yield from c.sync_all()

            yield from self.exchange.start()
            for piece in mine:
                slot = yield from pieces.load(source.flat(piece * size, size))
                yield from pieces.sum_up(slot, size, scan.x.dtype)
            yield from self.exchange.publish()
            yield from c.sync_all()

            yield from first_carry(y, part.start - (not exclusive) if part.start else None)
            yield from self.exchange.collect()
            for piece in mine:
                start = piece * size
                if start < part.count:
                    slot = yield from pieces.load(target.flat(start, size))
                    yield from scan.method.complete(pieces, slot)
                    first = part.start + start + exclusive
                    last = min(part.start + min(start + size, part.count) + exclusive, y.size)
                    yield from pieces.store(slot, y.flat(first, last - first))
            if part is not scan.stretches[-1]:
                yield from c.sync_all()


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
    """Build a launch that scans, and the reference."""
    scan = Scan(k, x, y, tile, method, exclusive=exclusive, l2_split=l2_split, cores=cores)

    def cube(c: Kernel) -> Steps:
        side = CubeSide(scan, c)
        yield from side.start()
        yield from side.run()
        yield from side.stop()

    def vector(c: Kernel) -> Steps:
        side = VectorSide(scan, c)
        yield from side.start()
        yield from side.run()
        yield from side.stop()

    k.launch(name, cube=cube, vector=vector, blocks=scan.blocks)

    @k.reference
    def expected(inputs: Mapping[str, np.ndarray]) -> dict[str, Expected]:
        return {"y": scan.expected(inputs["x"])}
