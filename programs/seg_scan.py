"""Segmented scan: prefix sums that start anew in every segment (arXiv 2505.15112's repository)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
from pydantic import PositiveInt

from npusim import Builder, Expected, program

from ._prefix_sum import ACCUMULATOR, elements
from ._seg_reference import check_offsets, expected_sums, offsets_of
from ._segments import CoreScan, Segments
from ._split import Side


@program
def seg_scan(
    k: Builder,
    *,
    n: PositiveInt = 1 << 17,
    segments: PositiveInt = 1 << 10,
    s: Side = 128,
    dtype: Literal["float16", "float32", "int8"] = "float16",
    cores: PositiveInt | None = None,
) -> None:
    """Inclusive prefix sums inside segments, which `offsets` give as in CSR; some may be empty.

    Cubes sum rows of s as if there were no segments; vector cores subtract in each row what a segment is not
    to have of those before it, and carry sums from row to row. So what rounds are sums of one row, never of
    the whole array; the sums of integers below 2^24 are exact. NaN reads as zero and infinities as the
    largest finite number, since the cube saturates. float16 and float32 give float32, int8 gives int32.
    `cores` is the number of AI cores. A run with `--timing-only` takes the segments as equally long.
    """
    x = k.input("x", (n,), dtype, elements(dtype, n))
    offsets = k.input("offsets", (segments + 1,), "int32", offsets_of(n, segments))
    y = k.output("y", (n,), ACCUMULATOR[dtype])
    of = Segments(k, x, offsets, y.dtype, s, cores)
    of.launch(k, "seg_scan", lambda c, ub, number: CoreScan(c, ub, of, y, number))

    @k.reference
    def expected(inputs: Mapping[str, np.ndarray]) -> dict[str, Expected]:
        return {"y": Expected(*expected_sums(inputs["x"], inputs["offsets"], s, of.vectors))}


def sizes(name: str, inputs: Mapping[str, np.ndarray]) -> dict[str, object]:
    """Return the parameters that elements and offsets decide.

    Raises `ConfigError` for offsets that are none.
    """
    found: dict[str, object] = {}
    n = None
    if "x" in inputs:
        n = inputs["x"].size
        found |= {"n": n, "dtype": inputs["x"].dtype.name}
    if "offsets" in inputs:
        found["n"] = check_offsets(name, "offsets", inputs["offsets"], n)
        found["segments"] = inputs["offsets"].size - 1
    return found


@seg_scan.from_inputs
def _sizes(inputs: Mapping[str, np.ndarray]) -> dict[str, object]:
    return sizes("seg_scan", inputs)
