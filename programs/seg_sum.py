"""Segmented sums (arXiv 2505.15112's repository: row scans with corrections by segment)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
from pydantic import PositiveInt

from npusim import Builder, Expected, program

from ._prefix_sum import ACCUMULATOR, elements
from ._seg_reference import expected_sums, last_sums, offsets_of
from ._segments import CoreSums, Segments
from ._split import Side
from .seg_scan import sizes


@program
def seg_sum(
    k: Builder,
    *,
    n: PositiveInt = 1 << 17,
    segments: PositiveInt = 1 << 10,
    s: Side = 128,
    dtype: Literal["float16", "float32", "int8"] = "float16",
    cores: PositiveInt | None = None,
) -> None:
    """Sum of each segment, which `offsets` give as in CSR; that of an empty one is zero.

    Cubes sum rows of s as if there were no segments; the scalar units of the vector cores read, of each row,
    the sums at the ends of segments and subtract what is not theirs. Precision, types, `cores` and runs with
    `--timing-only` are those of `seg_scan`.
    """
    x = k.input("x", (n,), dtype, elements(dtype, n))
    offsets = k.input("offsets", (segments + 1,), "int32", offsets_of(n, segments))
    y = k.output("y", (segments,), ACCUMULATOR[dtype])
    of = Segments(k, x, offsets, y.dtype, s, cores)
    of.launch(k, "seg_sum", lambda c, ub, number: CoreSums(c, ub, of, y, number))

    @k.reference
    def expected(inputs: Mapping[str, np.ndarray]) -> dict[str, Expected]:
        cuts = inputs["offsets"]
        sums, bound = expected_sums(inputs["x"], cuts, s, of.vectors)
        return {"y": Expected(last_sums(sums, cuts), last_sums(bound, cuts))}


@seg_sum.from_inputs
def _sizes(inputs: Mapping[str, np.ndarray]) -> dict[str, object]:
    return sizes("seg_sum", inputs)
