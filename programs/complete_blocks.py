"""Completing scans of whole tiles: the second half of MCScanUL1 by itself (arXiv 2505.15112, section 5.2)."""

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
def complete_blocks(
    k: Builder,
    *,
    n: PositiveInt = 1 << 20,
    s: Literal[16, 32, 64, 128] = 128,
    dtype: Literal["float32", "int32"] = "float32",
    cores: PositiveInt | None = None,
) -> None:
    """Add one carry to each tile of s x s local sums on all vector cores: down-sweep of MCScanUL1.

    `x` holds sums inside tiles, `r` the sum of all elements of every vector core. Vector core v starts from
    the sum of those before it and goes on with the last entry of every tile, which it reads back. It works on
    half tiles, two in flight; between the halves of a tile nothing is read back. `cores` is the number of AI
    cores, by default all that have a tile.
    """
    half = s * s // 2
    tiles = ceil_div(n, 2 * half)
    vectors = k.chip.cores.vector_per_cube * min(ai_cores(k, cores), tiles)
    x = k.input("x", (n,), dtype, elements(dtype, n))
    r = k.input("r", (vectors,), dtype, elements(dtype, vectors))
    y = k.output("y", (n,), dtype)
    each = ceil_div(tiles, vectors)

    kept = Kept()

    def vector(c: Kernel) -> Steps:
        pieces = Pieces(c, half, y.dtype, 2, kept)
        exchange = Exchange(c, r, c.block)
        yield from pieces.start()
        yield from first_carry(y, None)
        yield from exchange.collect()
        for tile in span(c.block, each, tiles):
            stop = min((tile + 1) * 2 * half, n)
            for start in range(tile * 2 * half, stop, half):
                count = min(half, stop - start)
                slot = yield from pieces.load(x.flat(start, count))
                yield from pieces.add_to_tile(slot, count, start + count == stop)
                yield from pieces.store(slot, y.flat(start, count))
        yield from pieces.stop()

    k.launch("complete_blocks", vector=vector, blocks=vectors)

    @k.reference
    def expected(inputs: Mapping[str, np.ndarray]) -> dict[str, Expected]:
        width = 2 * half
        owned = [span(v, each, tiles) for v in range(vectors)]
        ends = [(min(o.start * width, n), min(o.stop * width, n)) for o in owned]
        return {"y": completed_sums(inputs["x"], inputs["r"], ends, width)}


complete_blocks.from_inputs(sizes)
