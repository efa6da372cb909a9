"""Block scan: the cube part of MCScanUL1 by itself (arXiv 2505.15112, sections 4.1 and 5.2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

import numpy as np
from pydantic import PositiveInt

from npusim import Builder, Expected, Kernel, isa, program
from npusim.units import ceil_div

from ._cube_scan import BlockScan
from ._multi_core import span
from ._prefix_sum import UNIT, elements, local_sums, row_rounding, saturated, sizes
from ._share import ai_cores


@program
def block_scan(
    k: Builder,
    *,
    n: PositiveInt = 1 << 20,
    s: Literal[16, 32, 64, 128] = 128,
    dtype: Literal["float16"] = "float16",
    cores: PositiveInt | None = None,
) -> None:
    """Prefix sums inside tiles of s x s elements, on the cubes of all cores: up-sweep of MCScanUL1.

    Core b of B takes the next ceil(T / B) of the T tiles; each is A U + L (A J), three products, as in
    `scan_ul1`: the row sums A J are rounded to float16. NaN reads as zero and infinities as the largest
    finite number. `cores` is the number of cores, by default all that have a tile.
    """
    x = k.input("x", (n,), dtype, elements(dtype, n))
    y = k.output("y", (n,), "float32")
    upper = k.constant("upper", np.triu(np.ones((s, s), np.float16)))
    strict = k.constant("strict", np.tril(np.ones((s, s), np.float16), -1))
    tile = s * s
    tiles = ceil_div(n, tile)
    blocks = min(ai_cores(k, cores), tiles)

    def cube(c: Kernel) -> Iterator[isa.Instruction]:
        scan = BlockScan(c, s, upper, strict)
        yield from scan.start()
        for t in span(c.block, ceil_div(tiles, blocks), tiles):
            at, count = t * tile, min(tile, n - t * tile)
            yield from scan.tile(x.flat(at, count), y.flat(at, count))
        yield from scan.stop()

    k.launch("block_scan", cube=cube, blocks=blocks)

    @k.reference
    def expected(inputs: Mapping[str, np.ndarray]) -> dict[str, Expected]:
        given = saturated(inputs["x"])
        bound = 3 * s * UNIT * local_sums(np.abs(given), tile) + local_sums(row_rounding(given, s), tile)
        return {"y": Expected(local_sums(given, tile), 1.01 * bound + 1e-37)}


block_scan.from_inputs(sizes)
