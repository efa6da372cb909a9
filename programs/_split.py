"""What split, compress and radix sort share: counts of the ones of a mask, and moving elements by them
(arXiv 2505.15112, section 6; two generations of the authors' code).

The older generation scans the mask on all cores, cubes and vectors (`scan`). The younger lets the vector
cores sum their shares of the mask and exchange the sums (`reduce`); the cubes have nothing to do.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from npusim import Builder, Kernel, Macro, Pipe, isa
from npusim.errors import ConfigError
from npusim.program.stream import Unknown
from npusim.units import align_up, ceil_div

from ._carries import PART, Item, Pieces, Steps
from ._counted import COUNTING
from ._cube_scan import RowScan
from ._kept import Body, Kept
from ._mcscan import CubeAgain, CubeSide, Method, Scan, VectorSide
from ._multi_core import Arena, Exchange, span
from ._prefix_sum import rows_bound
from ._share import ai_cores

Generation = Literal["scan", "reduce"]
Side = Literal[32, 64, 128]
"""Tiles of int8 are at least one fractal of 32 wide."""
Share = Annotated[float, Field(ge=0, le=1)]
Span = tuple[int, int]
"""First element, and the one behind the last."""
ARENA = 22
"""Bytes of the unified buffer for each element of a piece; halves with indices take most of them."""


def known(value: Any, declared: int) -> int:
    """Return a value of the stream, or what was declared for a run that has no values."""
    return declared if isinstance(value, Unknown) else int(value)


def sizes(program: str, inputs: Mapping[str, np.ndarray]) -> dict[str, object]:
    """Return the parameters that input arrays decide.

    Raises `ConfigError` where they have not as many elements each.
    """
    found: dict[str, object] = {}
    counts = {name: inputs[name].size for name in ("x", "mask", "index") if name in inputs}
    for name, count in counts.items():
        first = next(iter(counts))
        if count != counts[first]:
            raise ConfigError(
                f"{program}: input {name} has {count} elements, but {first} has {counts[first]}; give as many"
            )
        found["n"] = count
    if "x" in inputs:
        found["dtype"] = inputs["x"].dtype.name
    return found


def evenly(n: int, ones: int) -> Callable[[int], int]:
    """Return the ones among the first elements of n, where `ones` are spread evenly."""
    return lambda i: i * ones // n


class Counts:
    """How many ones a mask has before each piece of s * s / 2 elements: who counts, and where.

    `mask` has `n` elements, or more, which are zeros. `ones(i)` is declared to be the ones among the first i
    elements, for runs without values.
    """

    def __init__(
        self,
        k: Builder,
        mask: isa.Tile,
        n: int,
        s: int,
        generation: Generation,
        cores: int | None,
        ones: Callable[[int], int],
    ) -> None:
        self.n, self.mask, self.ones, self.piece = n, mask, ones, s * s // 2
        self.scan: Scan | None = None
        per_block, most = k.chip.cores.vector_per_cube, ai_cores(k, cores)
        if generation == "scan":
            lower = k.constant("lower", np.tril(np.ones((s, s), np.int8)))
            method = Method(
                scan=lambda c: RowScan(c, s, lower, isa.S32),
                complete=lambda pieces, slot: pieces.add_to_rows(slot, self.piece, s),
                piece=self.piece,
                buffers=2,
                inside=lambda given, sums: rows_bound(given, sums, s, s),
            )
            positions = k.workspace("positions", (mask.size,), "int32")
            self.scan = Scan(k, mask, positions, s * s, method, l2_split=False, cores=cores)
            self.vectors = self.scan.vectors
        else:
            pieces = ceil_div(n, self.piece)
            self.vectors = min(most * per_block, pieces)
            self.sums = k.workspace("sums", (self.vectors,), "int32")
        self.shared = Kept()

    def spans(self, number: int) -> list[Span]:
        """Return the pieces of a vector core that have elements."""
        pieces = ceil_div(self.n, self.piece)
        mine = span(number, ceil_div(pieces, self.vectors), pieces)
        if self.scan is not None:
            mine = self.scan.pieces_of(self.scan.stretches[0], number)
        starts = (i * self.piece for i in mine if i * self.piece < self.n)
        return [(start, min(start + self.piece, self.n)) for start in starts]

    def launch(
        self,
        k: Builder,
        name: str,
        vector: Callable[[Kernel, CoreCounts], Steps],
        cube: Callable[[Kernel, CubeSide], Steps],
    ) -> None:
        """Start the streams of a program; there are none for cubes that have nothing to do."""
        scan = self.scan

        def on_vector(c: Kernel) -> Steps:
            counts: CoreCounts = CoreScan(self, scan, c) if scan is not None else CoreSums(self, c)
            yield from counts.start()
            yield from vector(c, counts)
            yield from counts.stop()

        if scan is None:
            k.launch(name, vector=on_vector, blocks=self.vectors)
            return

        def on_cube(c: Kernel) -> Steps:
            side = CubeAgain(scan, c)
            yield from side.start()
            yield from cube(c, side)
            yield from side.stop()

        k.launch(name, vector=on_vector, cube=on_cube, blocks=scan.blocks)


class CoreCounts:
    """The counts as one vector core has them; `run` makes them, and all cores meet in it."""

    def __init__(self, counts: Counts, c: Kernel, number: int) -> None:
        self.counts, self.c, self.number = counts, c, number
        self.arena = Arena(c, ARENA * counts.piece)
        """Where the phases of the program have their buffers; the first has those of the counts."""
        self.spans = counts.spans(number)
        """Pieces of the core."""
        self.total = 0
        """Ones of the whole mask, once `run` has ended."""
        self.kept = Kept()

    def start(self) -> Steps:
        """Give all buffers free."""
        raise NotImplementedError

    def stop(self) -> Steps:
        """Wait for what is still under way."""
        raise NotImplementedError

    def run(self) -> Steps:
        """Count, with all other cores."""
        raise NotImplementedError

    def before(self, start: int) -> Generator[Item, Any, int]:
        """Return the ones before a piece."""
        raise NotImplementedError

    def count(self, kept: int) -> int:
        """Take note of the ones of the piece that was asked for last, and return them."""
        return kept

    def once(self, make: Callable[..., Iterator[isa.Instruction]], *which: object) -> Macro:
        """Return a macro of what `make` yields, which all cores share: they reserve alike."""
        key = tuple(getattr(w, "__qualname__", w) for w in (make, *which))
        return self.counts.shared.macro(key, lambda: make(*which))


class CoreScan(CoreCounts):
    """Counts from a scan of the mask, which the scalar unit reads piece by piece."""

    def __init__(self, counts: Counts, scan: Scan, c: Kernel) -> None:
        super().__init__(counts, c, scan.per_block * c.block + c.core.number)
        self._positions = scan.y
        self._side = VectorSide(scan, c, self.arena.ub)

    def start(self) -> Steps:
        """Give all buffers free."""
        yield from self._side.start()

    def stop(self) -> Steps:
        """Wait for what is still under way."""
        yield from self._side.stop()

    def run(self) -> Steps:
        """Scan the mask."""
        yield from self.c.counter(self.counts.piece)
        # each piece of the mask is loaded twice, so the two buffers have their turns as the time before
        yield from self.kept.again("run", self._side.run)
        yield from self.c.sync_all()
        self.total = yield from self._read(self.counts.n)

    def before(self, start: int) -> Generator[Item, Any, int]:
        """Read the sum of the element before."""
        return (yield from self._read(start))

    def _read(self, end: int) -> Generator[Item, Any, int]:
        if not end:
            return 0
        clean, read = self.kept.again(("read", end), lambda: self._reads(end))
        yield clean
        value = yield read
        return known(value, self.counts.ones(end))

    def _reads(self, end: int) -> Steps:
        last = self._positions.flat(end - 1, 1)
        yield isa.DataCacheCleanAndInvalid(at=last)
        yield isa.GetValue(reg=PART.index, src=last)


class CoreSums(CoreCounts):
    """Counts from the sums of all cores' shares; inside its share a core counts what it keeps."""

    def __init__(self, counts: Counts, c: Kernel) -> None:
        super().__init__(counts, c, c.block)
        self._pieces = Pieces(c, counts.piece, isa.S32, 2, counts.shared, self.arena.ub)
        self._exchange = Exchange(c, counts.sums, c.block)
        self._before = self._loads = 0

    def start(self) -> Steps:
        """Give all buffers free."""
        yield from self._pieces.start()

    def stop(self) -> Steps:
        """Wait for what is still under way."""
        yield from self._pieces.stop()

    def run(self) -> Steps:
        """Sum the core's share, and the shares of the cores before."""
        yield from self.c.counter(self.counts.piece)
        yield from self._exchange.start()
        yield from self.kept.again(("sum", self._loads % 2), self._sum)  # by the buffer of the first piece
        self._loads += len(self.spans)
        yield from self._exchange.publish()
        yield from self.c.sync_all()
        before, total = yield from self._exchange.collect_all()
        first = self.spans[0][0] if self.spans else 0
        self._before = known(before, self.counts.ones(first))
        self.total = known(total, self.counts.ones(self.counts.n))

    def _sum(self) -> Steps:
        size, mask, pieces = self.counts.piece, self.counts.mask, self._pieces
        for start, stop in self.spans:
            part = mask.flat(start, stop - start)
            load = pieces.load(part) if part.size == size else pieces.load_short(part, size)
            slot = yield from load
            yield from pieces.sum_up(slot, size, isa.S8)

    def before(self, start: int) -> Generator[Item, Any, int]:
        """Return what is known already."""
        yield from ()
        return self._before

    def count(self, kept: int) -> int:
        """Count."""
        self._before += kept
        return kept


WORDS = {2: isa.U16, 4: isa.U32}
"""Type of the bits for elements of so many bytes."""
_AGAIN = (isa.SetMaskNorm(), isa.SetMaskCount())


class Splitter:
    """What a vector core does to move elements: those with a one go, in order, behind the ones before them;
    those with a zero, if they are wanted, likewise behind all ones.

    One piece at a time: mask and elements come in, the mask becomes bits, GatherMask packs the elements and
    counts them, and as many are stored.
    """

    def __init__(self, counts: CoreCounts, types: list[isa.DType], *, zeros: bool) -> None:
        """Reserve buffers for pieces of each type; `zeros` also keeps what has a zero."""
        c, size, ub = counts.c, counts.counts.piece, counts.arena.ub
        self._counts = counts
        counts.arena.reset()
        self._mask, self._half = ub(size, isa.S8), ub(size, isa.F16)
        self._bits = [ub(size // 8, isa.U8) for _ in range(1 + zeros)]
        self._in = [ub(size, dtype) for dtype in types]
        self._out = [[ub(size, dtype) for dtype in types] for _ in self._bits]
        self._loaded, self._free = c.flag(Pipe.MTE2, Pipe.V), c.flag(Pipe.V, Pipe.MTE2)
        self._packed, self._stored = c.flag(Pipe.V, Pipe.MTE3), c.flag(Pipe.MTE3, Pipe.V)
        self._kept_stores: dict[object, dict[int, tuple[tuple[Span, ...], Body]]] = {}
        """Places and stores of every piece by target: without values they are the same in every pass."""
        self._gathers = [
            isa.GatherMask(dst=out, src=source, bits=bits.as_type(WORDS[out.dtype.size]))
            for bits, outs in zip(self._bits, self._out, strict=True)
            for source, out in zip(self._in, outs, strict=True)
        ]

    def run(self, mask: isa.Tile, arrays: list[tuple[isa.Tile, isa.Tile]]) -> Steps:
        """Move the elements of the core's pieces of every array from the first to the second tile."""
        counts = self._counts
        yield self._free.set
        yield self._stored.set
        spans = counts.spans
        sources, targets = [source for source, _ in arrays], [target for _, target in arrays]
        kept_stores = self._kept_stores.setdefault(tuple(targets), {})
        loads = counts.kept.again(("load", *sources), lambda: self._loads(mask, sources))
        ahead = 3 + len(sources)
        yield from loads[:ahead]
        for i, (start, stop) in enumerate(spans):
            count = stop - start
            yield counts.once(self._make_bits, count)
            before = yield from counts.before(start)
            yield self._stored.wait
            declared = counts.counts.ones(stop) - counts.counts.ones(start)
            kept = counts.count(known((yield from self._pack()), declared))
            yield self._free.set
            yield self._packed.set
            yield from loads[(i + 1) * ahead : (i + 2) * ahead]
            yield self._packed.wait
            places = ((before, kept), (counts.total + start - before, count - kept))
            if kept_stores.get(i, ((), ()))[0] != places:
                kept_stores[i] = (places, tuple(self._stores(places, targets)))
            yield from kept_stores[i][1]
            yield self._stored.set
        yield self._free.wait
        yield self._stored.wait

    def _stores(self, places: tuple[Span, ...], targets: list[isa.Tile]) -> Steps:
        """Store packed elements at the places (first, count) of those with a one and those with a zero."""
        for (first, size), outs in zip(places, self._out, strict=False):
            for out, target in zip(outs, targets, strict=True):
                if size:
                    yield isa.copy_out(target.flat(first, size), out.flat(0, size))

    def _loads(self, mask: isa.Tile, sources: list[isa.Tile]) -> Steps:
        """Load the pieces of the core, each with so many instructions."""
        for start, stop in self._counts.spans:
            count = stop - start
            yield self._free.wait
            yield isa.copy_in(self._mask.flat(0, count), mask.flat(start, count))
            for tile, source in zip(self._in, sources, strict=True):
                yield isa.copy_in(tile.flat(0, count), source.flat(start, count))
            yield self._loaded.set

    def _make_bits(self, count: int) -> Iterator[isa.Instruction]:
        """Turn bytes into bits by way of halves, which can be compared; behind `count` there are zeros."""
        barrier = isa.PipeBarrier(on=Pipe.V)
        whole = align_up(count, 128)
        yield self._loaded.wait
        yield isa.SetMaskCount()
        if whole > count:
            yield from isa.contiguous(isa.Duplicate, count=whole, state=COUNTING, dst=self._half, scalar=0)
            yield barrier
        yield from isa.contiguous(isa.Cast, count=count, state=COUNTING, dst=self._half, src=self._mask)
        yield barrier
        yield isa.SetVectorMask(mask=whole)
        for value, bits in zip((1, 0), self._bits, strict=False):
            yield isa.Compares(dst=bits, src0=self._half, scalar=value, mode=isa.CompareMode.EQ)
        yield isa.SetVectorMask(mask=count)
        yield barrier

    def _pack(self) -> Generator[Item, Any, Any]:
        """Keep what the bits select, and return how much the first bits did.

        As the vendor's call, each GatherMask enters counter mode and leaves it again.
        """
        first, *others = self._gathers
        kept = yield first
        for gather in others:
            yield from _AGAIN
            yield gather
        yield _AGAIN[0]
        return kept
