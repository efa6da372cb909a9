"""ScanUL1: prefix sums of whole tiles on the cube (arXiv 2505.15112, section 4.1; identity by Dakkak et al.,
ICS 2019).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

import numpy as np
from pydantic import PositiveInt

from npusim import Builder, Expected, Kernel, isa, program

from ._prefix_sum import chain_bound, elements, exact_sums, row_rounding, saturated, sizes
from ._whole_tiles import add_carries, pieces, sum_tiles


@program
def scan_ul1(
    k: Builder,
    *,
    n: PositiveInt = 1 << 20,
    s: Literal[16, 32, 64, 128] = 128,
    dtype: Literal["float16"] = "float16",
) -> None:
    """Inclusive prefix sums of n float16 elements: whole tiles of s x s on the cube, one carry a tile on the
    vector unit.

    scan(A) = A U + L (A J), with U upper triangular, L strictly lower triangular and J all ones. The row sums
    A J pass through L1 as float16, so they are rounded to 11 bits and overflow above 65504: results differ
    from exact sums by up to that, tile by tile. NaN reads as zero and infinities as the largest finite
    number, since the cube saturates. The single-core kernel of the paper is not public; this one loads the
    next tile before it waits for the vector core.
    """
    x = k.input("x", (n,), dtype, elements(dtype, n))
    y = k.output("y", (n,), "float32")
    upper = k.constant("upper", np.triu(np.ones((s, s), np.float16)))
    strict = k.constant("strict", np.tril(np.ones((s, s), np.float16), -1))
    tile = s * s

    def cube(c: Kernel) -> Iterator[isa.Instruction]:
        yield from sum_tiles(c, s, upper, strict, list(zip(pieces(x, tile), pieces(y, tile), strict=True)))

    def vector(c: Kernel) -> Iterator[isa.Instruction]:
        yield from add_carries(c, s, [y])

    k.launch("scan_ul1", cube=cube, vector=vector)

    @k.reference
    def expected(inputs: Mapping[str, np.ndarray]) -> dict[str, Expected]:
        given = saturated(inputs["x"])
        sums = exact_sums(given)
        return {"y": Expected(sums, chain_bound(given, sums, s, tile) + np.cumsum(row_rounding(given, s)))}


scan_ul1.from_inputs(sizes)
