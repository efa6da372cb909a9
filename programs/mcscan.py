"""MCScan: prefix sums on all cores (arXiv 2505.15112, section 5.2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

import numpy as np
from pydantic import PositiveInt

from npusim import Builder, Expected, Kernel, isa, program
from npusim.errors import ConfigError
from npusim.units import ceil_div

from ._carries import CARRY, Pieces
from ._cube_scan import RowScan
from ._multi_core import Exchange, Padding, Part, l2_elements, parts, span
from ._prefix_sum import ACCUMULATOR, elements, multi_core_sums, rows_bound, sizes


@program
def mcscan(
    k: Builder,
    *,
    n: PositiveInt = 1 << 20,
    s: Literal[16, 32, 64, 128] = 128,
    dtype: Literal["float16", "int8"] = "float16",
    exclusive: bool = False,
    l2_split: bool = True,
    cores: PositiveInt | None = None,
) -> None:
    """Prefix sums of n elements on all cores: cubes sum rows while vector cores sum their share of the input;
    then the vector cores add the carries, row after row.

    float16 gives float32, int8 gives int32 (which wraps). With `exclusive` an element is the sum before it.
    `l2_split` works through the input in stretches that fill L2 with input and output, as the authors' code
    does; a stretch that is no whole number of s x s tiles is first copied into a workspace with zeros behind.
    `cores` is the number of cores (cube and vectors), by default all that have a tile. On the cube NaN reads
    as zero and infinities as the largest finite number; in the sums of whole cores they stay what they are.
    """
    if dtype == "int8" and s == 16:
        raise ConfigError("mcscan: s=16 does not fill a fractal of int8, which is 32 wide; use s=32 or more")
    x = k.input("x", (n,), dtype, elements(dtype, n))
    y = k.output("y", (n,), ACCUMULATOR[dtype])
    lower = k.constant("lower", np.tril(np.ones((s, s), x.dtype.np)))
    tile, half = s * s, s * s // 2
    stretches = parts(n, tile, l2_elements(k.chip, x.dtype.size + y.dtype.size) if l2_split else None)
    most = max(part.tiles for part in stretches)
    blocks = min(cores or k.chip.cores.cube, most)
    per_block = k.chip.cores.vector_per_cube
    sums = k.workspace("sums", (blocks * per_block,), y.dtype)
    padded, local = x, y
    if any(part.padded for part in stretches):
        padded = k.workspace("padded", (most * tile,), dtype)
    if exclusive or any(part.padded for part in stretches):
        local = k.workspace("local", (most * tile,), y.dtype)

    def source(part: Part) -> isa.Tile:
        return padded if part.padded else x.flat(part.start, part.count)

    def between(part: Part) -> isa.Tile:
        return local if part.padded or exclusive else y.flat(part.start, part.count)

    def halves(part: Part, vector: int) -> range:
        return span(vector, ceil_div(2 * ceil_div(part.tiles, blocks), per_block), 2 * part.tiles)

    def cube(c: Kernel) -> Iterator[isa.Instruction]:
        rows = RowScan(c, s, x.dtype, y.dtype)
        yield from rows.start(lower)
        for part in stretches:
            if part.padded:
                yield from c.sync_all()
            given, found = source(part), between(part)
            for t in span(c.block, ceil_div(part.tiles, blocks), part.tiles):
                yield from rows.tile(given.flat(t * tile, tile), found.flat(t * tile, tile))
            yield from c.sync_all()
            if part is not stretches[-1]:
                yield from c.sync_all()
        yield from rows.stop()

    def vector(c: Kernel) -> Iterator[isa.Instruction]:
        number = per_block * c.block + c.core.number
        pieces = Pieces(c, half, y.dtype, buffers=2)
        exchange, padding = Exchange(c, sums, number), Padding(c, pieces, half, x.dtype)
        yield from pieces.start()
        if exclusive and number == 0:
            yield isa.SetValue(dst=y, value=0)
            yield isa.DataCacheCleanAndInvalid(at=y)
        for part in stretches:
            mine, given, found = halves(part, number), source(part), between(part)
            if part.padded:
                yield from padding.copy(padded, x.flat(part.start, part.count), mine)
                yield from c.sync_all()

            yield from exchange.start()
            for piece in mine:
                slot = yield from pieces.load(given.flat(piece * half, half))
                yield from pieces.sum_up(slot, half, x.dtype)
            yield from exchange.publish()
            yield from c.sync_all()

            yield from first_carry(part)
            yield from exchange.collect()
            for piece in mine:
                start = piece * half
                if start < part.count:
                    slot = yield from pieces.load(found.flat(start, half))
                    yield from pieces.add_to_rows(slot, half, s)
                    first = part.start + start + exclusive
                    last = min(part.start + min(start + half, part.count) + exclusive, n)
                    yield from pieces.store(slot, y.flat(first, last - first))
            if part is not stretches[-1]:
                yield from c.sync_all()
        yield from pieces.stop()

    def first_carry(part: Part) -> Iterator[isa.Instruction]:
        """Start from zero, or from the last sum of the stretch before."""
        if part.start == 0:
            yield isa.ScalarAlu(op=isa.ScalarOp.MOV, reg=CARRY.index, a=0, dtype=y.dtype)
            return
        last = y.flat(part.start - (not exclusive), 1)
        yield isa.DataCacheCleanAndInvalid(at=last)
        yield isa.GetValue(reg=CARRY.index, src=last)

    k.launch("mcscan", cube=cube, vector=vector, blocks=blocks)

    @k.reference
    def expected(inputs: Mapping[str, np.ndarray]) -> dict[str, Expected]:
        def elements_of(part: Part) -> list[tuple[int, int]]:
            owned = [halves(part, v) for v in range(blocks * per_block)]
            ends = [(min(o.start * half, part.count), min(o.stop * half, part.count)) for o in owned]
            return [(part.start + a, part.start + b) for a, b in ends]

        value, bound = multi_core_sums(
            inputs["x"], map(elements_of, stretches), half, lambda a, sums: rows_bound(a, sums, s, s)
        )
        if exclusive:
            value, bound = (np.concatenate([a[:1] * 0, a[:-1]]) for a in (value, bound))
        if dtype == "int8":
            return {"y": Expected(value.astype(np.int32))}
        return {"y": Expected(value, bound)}


mcscan.from_inputs(sizes)
