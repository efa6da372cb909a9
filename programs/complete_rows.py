"""Completing row scans: the second half of MCScan by itself (arXiv 2505.15112, section 5.2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
from pydantic import PositiveInt

from npusim import Builder, Expected, Kernel, program
from npusim.units import ceil_div

from ._carries import Pieces, Steps
from ._kept import Kept
from ._multi_core import Exchange, first_carry, span
from ._prefix_sum import completed_sums, elements, sizes
from ._share import ai_cores


@program
def complete_rows(
    k: Builder,
    *,
    n: PositiveInt = 1 << 20,
    s: Literal[16, 32, 64, 128] = 128,
    dtype: Literal["float32", "int32"] = "float32",
    cores: PositiveInt | None = None,
) -> None:
    """Add carries to rows of s local sums on all vector cores: down-sweep of MCScan.

    `x` holds sums inside rows, `r` the sum of all elements of every vector core. Vector core v starts from
    the sum of those before it, adds it to its first row, and goes on with the last entry of every row, which
    it reads back. It works on half tiles of s / 2 rows, two in flight. `cores` is the number of AI cores, by
    default all that have a tile.
    """
    half = s * s // 2
    tiles = ceil_div(n, 2 * half)
    per_block = k.chip.cores.vector_per_cube
    vectors = per_block * min(ai_cores(k, cores), tiles)
    x = k.input("x", (n,), dtype, elements(dtype, n))
    r = k.input("r", (vectors,), dtype, elements(dtype, vectors))
    y = k.output("y", (n,), dtype)

    def pieces_of(vector: int) -> range:
        each = ceil_div(2 * ceil_div(tiles * per_block, vectors), per_block)
        return span(vector, each, ceil_div(n, half))

    kept = Kept()

    def vector(c: Kernel) -> Steps:
        pieces = Pieces(c, half, y.dtype, 2, kept)
        exchange = Exchange(c, r, c.block)
        yield from pieces.start()
        yield from first_carry(y, None)
        yield from exchange.collect()
        for piece in pieces_of(c.block):
            start, count = piece * half, min(half, n - piece * half)
            slot = yield from pieces.load(x.flat(start, count))
            yield from pieces.add_to_rows(slot, count, s)
            yield from pieces.store(slot, y.flat(start, count))
        yield from pieces.stop()

    k.launch("complete_rows", vector=vector, blocks=vectors)

    @k.reference
    def expected(inputs: Mapping[str, np.ndarray]) -> dict[str, Expected]:
        owned = [pieces_of(v) for v in range(vectors)]
        ends = [(min(o.start * half, n), min(o.stop * half, n)) for o in owned]
        return {"y": completed_sums(inputs["x"], inputs["r"], ends, s)}


complete_rows.from_inputs(sizes)
