"""Row scan: the cube part of MCScan by itself (arXiv 2505.15112, section 5.2 and figure 6.4)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

import numpy as np
from pydantic import PositiveInt

from npusim import Builder, Expected, Kernel, isa, program
from npusim.errors import ConfigError
from npusim.units import ceil_div

from ._cube_scan import RowScan
from ._multi_core import span
from ._prefix_sum import ACCUMULATOR, UNIT, elements, local_sums, saturated, sizes
from ._share import ai_cores


@program
def row_scan(
    k: Builder,
    *,
    n: PositiveInt = 1 << 20,
    s: Literal[16, 32, 64, 128] = 128,
    dtype: Literal["float16", "int8"] = "float16",
    cores: PositiveInt | None = None,
) -> None:
    """Prefix sums inside rows of s elements, on the cubes of all cores: up-sweep of MCScan.

    Core b of B multiplies the next ceil(T / B) of the T tiles of s x s by the upper triangular matrix of
    ones. float16 gives float32, int8 gives int32. NaN reads as zero and infinities as the largest finite
    number. `cores` is the number of cores, by default all that have a tile.
    """
    if dtype == "int8" and s == 16:
        raise ConfigError("row_scan: s=16 is half a fractal of int8, which is 32 wide; use s=32 or more")
    x = k.input("x", (n,), dtype, elements(dtype, n))
    y = k.output("y", (n,), ACCUMULATOR[dtype])
    lower = k.constant("lower", np.tril(np.ones((s, s), x.dtype.np)))
    tile = s * s
    tiles = ceil_div(n, tile)
    blocks = min(ai_cores(k, cores), tiles)

    def cube(c: Kernel) -> Iterator[isa.Instruction]:
        rows = RowScan(c, s, lower, y.dtype)
        yield from rows.start()
        for t in span(c.block, ceil_div(tiles, blocks), tiles):
            at, count = t * tile, min(tile, n - t * tile)
            yield from rows.tile(x.flat(at, count), y.flat(at, count))
        yield from rows.stop()

    k.launch("row_scan", cube=cube, blocks=blocks)

    @k.reference
    def expected(inputs: Mapping[str, np.ndarray]) -> dict[str, Expected]:
        given = saturated(inputs["x"])
        sums = local_sums(given, s)
        if dtype == "int8":
            return {"y": Expected(sums)}
        return {"y": Expected(sums, s * UNIT * local_sums(np.abs(given), s) + 1e-37)}


row_scan.from_inputs(sizes)
