"""Batched scans: prefix sums of each row of a batch on all cores (arXiv 2505.15112, sections 4.1, 6.4)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

import numpy as np
from pydantic import PositiveInt

from npusim import Builder, Expected, Kernel, Pipe, isa, program
from npusim.errors import ConfigError
from npusim.units import ceil_div

from ._carries import Pieces, Steps
from ._cube_scan import READY, TAKEN, RowScan
from ._kept import Kept
from ._multi_core import first_carry, span
from ._prefix_sum import ACCUMULATOR, chain_bound, elements, exact_sums, row_rounding, saturated
from ._share import ai_cores
from ._whole_tiles import add_carries, pieces, sum_tiles

Algorithm = Literal["scan_u", "scan_ul1"]


@program
def scan_batch(
    k: Builder,
    *,
    batch: PositiveInt = 80,
    length: PositiveInt = 1 << 16,
    algorithm: Algorithm = "scan_u",
    s: Literal[16, 32, 64, 128] = 128,
    dtype: Literal["float16", "float32", "int8"] = "float16",
    cores: PositiveInt | None = None,
) -> None:
    """Inclusive prefix sums of each row of a batch, on all cores, with carries inside a row only.

    `algorithm=scan_u` gives a cube core as many rows of the batch as it has vector cores, two on a 910B: the
    cube sums rows of s of a tile of each in turn, and every vector core completes one of them, two rows of s
    at a time. Rows of the batch no longer than s need no carries: the cubes sum s of them at once.
    `algorithm=scan_ul1` gives a cube core one row, whose tiles it sums whole as in `scan_ul1`; float16 only,
    with row sums rounded to float16. Rows may have any length: tails are loaded and stored as they are, where
    the authors' code copies such a batch into a padded workspace. float16 and float32 give float32, int8
    gives int32 (which wraps). NaN reads as zero and infinities as the largest finite number, since the cube
    saturates. `cores` is the number of AI cores, of which no more are launched than there are rows.
    """
    if dtype == "int8" and s == 16:
        raise ConfigError("scan_batch: s=16 is half a fractal of int8, which is 32 wide; use s=32 or more")
    if algorithm == "scan_ul1" and dtype != "float16":
        raise ConfigError(
            f"scan_batch: dtype={dtype}: algorithm=scan_ul1 passes row sums through float16; use "
            f"dtype=float16, or algorithm=scan_u"
        )
    size = batch * length
    make = elements(dtype, size)
    x = k.input("x", (batch, length), dtype, lambda generator: make(generator).reshape(batch, length))
    y = k.output("y", (batch, length), ACCUMULATOR[dtype])
    most = ai_cores(k, cores)
    if algorithm == "scan_ul1":
        _whole_tiles(k, x, y, s, most)
    elif length <= s:
        _short_rows(k, x, y, s, most)
    else:
        _row_pairs(k, x, y, s, most)

    @k.reference
    def expected(inputs: Mapping[str, np.ndarray]) -> dict[str, Expected]:
        given = saturated(inputs["x"])
        sums = np.stack([exact_sums(row) for row in given])
        if dtype == "int8":
            return {"y": Expected(sums.astype(np.int32))}
        tile = s * s if algorithm == "scan_ul1" else s
        bounds = [chain_bound(row, total, s, tile) for row, total in zip(given, sums, strict=True)]
        if algorithm == "scan_ul1":
            bounds = [b + np.cumsum(row_rounding(row, s)) for b, row in zip(bounds, given, strict=True)]
        return {"y": Expected(sums, np.stack(bounds))}


def _rows(array: isa.Tile) -> list[isa.Tile]:
    """Return the rows of a batch as flat arrays."""
    batch, length = array.shape
    return [array.flat(row * length, length) for row in range(batch)]


def _row_pairs(k: Builder, x: isa.Tile, y: isa.Tile, s: int, cores: int) -> None:
    """Launch ScanU: groups of rows in turn, one row for each vector core of a group of cores.

    There are as many blocks as rows, as in the authors' code, so that some have none where rows are few.
    """
    lower = k.constant("lower", np.tril(np.ones((s, s), x.dtype.np)))
    lanes, tile = k.chip.cores.vector_per_cube, s * s
    groups = ceil_div(x.shape[0], lanes)
    blocks = min(cores, x.shape[0])
    sources, targets = _rows(x), _rows(y)
    starts = range(0, x.shape[1], tile)
    kept = Kept()

    def rows_of(group: int) -> range:
        return span(group, lanes, len(sources))

    def cube(c: Kernel) -> Iterator[isa.Instruction]:
        rows = RowScan(c, s, lower, y.dtype)
        yield from rows.start()
        for group in range(c.block, groups, blocks):
            for start in starts:
                for row in rows_of(group):
                    count = min(tile, sources[row].size - start)
                    yield from rows.tile(sources[row].flat(start, count), targets[row].flat(start, count))
                yield isa.CrossCoreSetFlag(group=isa.Group.CUBE_VECTOR, on=Pipe.FIX, id=READY)
                yield isa.CrossCoreWaitFlag(group=isa.Group.CUBE_VECTOR, id=TAKEN)
        yield from rows.stop()

    def vector(c: Kernel) -> Steps:
        taken = isa.CrossCoreSetFlag(group=isa.Group.CUBE_VECTOR, on=Pipe.MTE3, id=TAKEN)
        ready = isa.CrossCoreWaitFlag(group=isa.Group.CUBE_VECTOR, id=READY)
        parts = Pieces(c, tile, y.dtype, 1, kept)
        yield from parts.start()
        for group in range(c.block, groups, blocks):
            mine = rows_of(group)[c.core.number :][:1]
            yield from first_carry(y, None)
            for start in starts:
                yield taken
                yield ready
                for row in mine:  # none where the batch has ended
                    part = targets[row].flat(start, min(tile, targets[row].size - start))
                    slot = yield from parts.load(part)
                    yield from parts.add_to_row_pairs(slot, part.size, s)
                    yield from parts.store(slot, part)
        yield from parts.stop()

    k.launch("scan_batch", cube=cube, vector=vector, blocks=blocks)


def _short_rows(k: Builder, x: isa.Tile, y: isa.Tile, s: int, cores: int) -> None:
    """Launch the cubes alone: s rows of at most s elements are a tile."""
    lower = k.constant("lower", np.tril(np.ones((s, s), x.dtype.np)))
    batch, length = x.shape
    tiles = ceil_div(batch, s)
    blocks = min(cores, tiles)

    def cube(c: Kernel) -> Iterator[isa.Instruction]:
        rows = RowScan(c, s, lower, y.dtype)
        yield from rows.start()
        yield from rows.clear()
        for t in span(c.block, ceil_div(tiles, blocks), tiles):
            count = min(s, batch - t * s)
            at, size = t * s * length, count * length
            yield from rows.columns(x.flat(at, size), y.flat(at, size), count, length)
        yield from rows.stop()

    k.launch("scan_batch", cube=cube, blocks=blocks)


def _whole_tiles(k: Builder, x: isa.Tile, y: isa.Tile, s: int, cores: int) -> None:
    """Launch ScanUL1: one row for each group of cores in turn."""
    upper = k.constant("upper", np.triu(np.ones((s, s), np.float16)))
    strict = k.constant("strict", np.tril(np.ones((s, s), np.float16), -1))
    batch, tile = x.shape[0], s * s
    blocks = min(cores, batch)
    sources, targets = _rows(x), _rows(y)

    def cube(c: Kernel) -> Iterator[isa.Instruction]:
        mine = range(c.block, batch, blocks)
        given = [part for row in mine for part in pieces(sources[row], tile)]
        found = [part for row in mine for part in pieces(targets[row], tile)]
        yield from sum_tiles(c, s, upper, strict, list(zip(given, found, strict=True)))

    def vector(c: Kernel) -> Iterator[isa.Instruction]:
        yield from add_carries(c, s, targets[c.block :: blocks])

    k.launch("scan_batch", cube=cube, vector=vector, blocks=blocks)


@scan_batch.from_inputs
def _sizes(inputs: Mapping[str, np.ndarray]) -> dict[str, object]:
    x = inputs["x"]
    return {"batch": x.shape[0], "length": x.shape[1], "dtype": x.dtype.name}
