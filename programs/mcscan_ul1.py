"""MCScanUL1: prefix sums on all cores, with whole tiles on the cube (arXiv 2505.15112, section 5.2)."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import PositiveInt

from npusim import Builder, program

from ._cube_scan import BlockScan
from ._mcscan import Method, multi_core_scan
from ._prefix_sum import elements, row_rounding, rows_bound, sizes


@program
def mcscan_ul1(
    k: Builder,
    *,
    n: PositiveInt = 1 << 20,
    s: Literal[16, 32, 64, 128] = 128,
    dtype: Literal["float16"] = "float16",
    l2_split: bool = True,
    cores: PositiveInt | None = None,
) -> None:
    """Prefix sums of n float16 elements on all cores: cubes sum whole tiles while vector cores sum their
    share of the input; then the vector cores add one carry to each tile.

    The cube part is that of `block_scan`: row sums are rounded to float16 and saturate at 65504, so results
    differ from exact sums by up to that, inside a tile. The vector cores work on whole tiles, one in flight.
    `l2_split`, `cores`, tails, NaN and infinities: see `mcscan`.
    """
    x = k.input("x", (n,), dtype, elements(dtype, n))
    y = k.output("y", (n,), "float32")
    upper = k.constant("upper", np.triu(np.ones((s, s), np.float16)))
    strict = k.constant("strict", np.tril(np.ones((s, s), np.float16), -1))
    tile = s * s
    method = Method(
        scan=lambda c: BlockScan(c, s, upper, strict),
        complete=lambda pieces, slot: pieces.add_to_tile(slot, tile, True),
        piece=tile,
        buffers=1,
        inside=lambda x, y: rows_bound(x, y, tile, 3 * s) + np.cumsum(row_rounding(x, s)),
    )
    multi_core_scan(k, "mcscan_ul1", x, y, tile, method, l2_split=l2_split, cores=cores)


mcscan_ul1.from_inputs(sizes)
