"""What the scan programs share: element types, inputs, parameters that an input decides, and the exact
reference.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

ACCUMULATOR = {"float16": "float32", "float32": "float32", "int8": "int32"}
"""Type of the sums by type of the elements."""


def sizes(inputs: Mapping[str, np.ndarray]) -> dict[str, object]:
    """Return the parameters that an input array decides."""
    return {"n": inputs["x"].size, "dtype": inputs["x"].dtype.name} if "x" in inputs else {}


def elements(dtype: str, n: int) -> Any:
    """Return a maker of inputs: all of int8, or numbers from -1 to 1 that keep long sums of floats short."""

    def make(generator: np.random.Generator) -> np.ndarray:
        if dtype == "int8":
            return generator.integers(-128, 128, n, dtype=np.int8)
        return generator.uniform(-1.0, 1.0, n).astype(dtype)

    return make


def saturated(x: np.ndarray) -> np.ndarray:
    """Return what the cube reads in its saturating mode: NaN as zero, infinities as the largest finite
    number.
    """
    if x.dtype.kind != "f":
        return x
    largest = np.finfo(x.dtype).max
    return np.nan_to_num(x, nan=0.0, posinf=largest, neginf=-largest)


def exact_sums(x: np.ndarray) -> np.ndarray:
    """Return inclusive prefix sums: exact for integers, in float64 otherwise (far better than float32)."""
    return np.cumsum(x, dtype=np.int64 if x.dtype.kind in "iu" else np.float64)


def chain_bound(x: np.ndarray, y: np.ndarray, s: int, tile: int) -> np.ndarray:
    """Return a bound on the error of float32 prefix sums of rows of `s` to which carries are added row after
    row.

    Inside a row every one of at most `s` additions loses half a unit of the magnitude summed so far; each
    carry loses half a unit of the sum. The magnitudes are those of the whole prefix, so the bound is
    generous, not tight. Where sums have left the range of float32 there is no bound.
    """
    unit = 2.0**-24
    magnitude = np.abs(x.astype(np.float64))
    rows = np.arange(x.size) // tile + 1
    inside = np.cumsum(magnitude)
    inside -= np.repeat(np.concatenate([[0.0], inside[tile - 1 : -1 : tile]]), tile)[: x.size]
    peak = np.maximum.accumulate(np.abs(y))
    bound = unit * (inside * min(s, tile) + 2 * peak * rows) + 1e-30
    bound[peak > np.finfo(np.float32).max] = np.inf if np.isfinite(x).all() else 0.0
    if np.isfinite(x).all():
        return bound  # behind a sum that float32 cannot hold nothing is compared
    return np.where(np.isfinite(bound), bound, 0.0)  # what is infinite or NaN must be exactly that
