"""What the scan programs share: element types, inputs, parameters that an input decides, and the exact
reference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from npusim import Expected

ACCUMULATOR = {"float16": "float32", "float32": "float32", "int8": "int32"}
"""Type of the sums by type of the elements."""

UNIT = 2.0**-24
"""Half a unit in the last place of a float32 of 1."""


def sizes(inputs: Mapping[str, np.ndarray]) -> dict[str, object]:
    """Return the parameters that an input array decides."""
    return {"n": inputs["x"].size, "dtype": inputs["x"].dtype.name} if "x" in inputs else {}


def elements(dtype: str, n: int) -> Any:
    """Return a maker of inputs: all of a byte, or numbers from -1 to 1 that keep long sums of floats
    short.
    """

    def make(generator: np.random.Generator) -> np.ndarray:
        if dtype.startswith("int"):
            return generator.integers(-128, 128, n, dtype=dtype)
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
    magnitude = np.abs(x.astype(np.float64))
    rows = np.arange(x.size) // tile + 1
    inside = np.cumsum(magnitude)
    inside -= np.repeat(np.concatenate([[0.0], inside[tile - 1 : -1 : tile]]), tile)[: x.size]
    peak = np.maximum.accumulate(np.abs(y))
    bound = UNIT * (inside * min(s, tile) + 2 * peak * rows) + 1e-30
    bound[peak > np.finfo(np.float32).max] = np.inf if np.isfinite(x).all() else 0.0
    if np.isfinite(x).all():
        return bound  # behind a sum that float32 cannot hold nothing is compared
    return np.where(np.isfinite(bound), bound, 0.0)  # what is infinite or NaN must be exactly that


def row_rounding(x: np.ndarray, s: int) -> np.ndarray:
    """Return what rounding the sum of each row of s to float16 can change, at the row's first element: half a
    unit, and all that is lost above 65504, where row sums saturate.

    Sum it up for the error of all elements behind, which is what scans of whole tiles lose.
    """
    rows = -(-x.size // s)
    padded = np.zeros(rows * s)
    padded[: x.size] = x
    row_sums = np.abs(padded.reshape(rows, s).sum(axis=1))
    lost = np.zeros(x.size)
    lost[::s] = np.maximum(row_sums * 2.0**-11, 2.0**-25) + np.maximum(row_sums - 65504.0, 0.0)
    return lost


# ---- scans that several cores share ------------------------------------------------------------------------


def rows_bound(x: np.ndarray, y: np.ndarray, width: int, additions: int) -> np.ndarray:
    """Return a bound on the error of float32 sums of rows of `width` to which carries are added row after
    row.

    A row's own sums lose half a unit of the row's magnitude for each of so many additions; each carry loses
    half a unit of the sum that it gives, which stays with all that follows.
    """
    rows = -(-x.size // width)
    padded = np.zeros(rows * width)
    padded[: x.size] = np.abs(x)
    inside = additions * UNIT * padded.reshape(rows, width).sum(axis=1)
    ends = np.abs(y[np.minimum(np.arange(1, rows + 1) * width, x.size) - 1])
    before = np.concatenate([[0.0], np.cumsum(inside + UNIT * ends)[:-1]])
    bound: np.ndarray = np.repeat(before + inside, width)[: x.size] + UNIT * np.abs(y)
    return bound


def local_sums(x: np.ndarray, width: int) -> np.ndarray:
    """Return sums that start anew every `width` elements: exact for integers, in float64 otherwise."""
    padded = np.zeros(-(-x.size // width) * width, np.int64 if x.dtype.kind in "iu" else np.float64)
    padded[: x.size] = x
    sums: np.ndarray = padded.reshape(-1, width).cumsum(axis=1).ravel()[: x.size]
    return sums


def multi_core_sums(
    x: np.ndarray,
    spans: Iterable[list[tuple[int, int]]],
    piece: int,
    inside: Callable[[np.ndarray, np.ndarray], np.ndarray],
) -> tuple[np.ndarray, np.ndarray]:
    """Return prefix sums as cores make them, and a bound on the error of float32.

    `spans` has for each stretch that is scanned at once the elements of every vector core. A core starts from
    the sum before its stretch and the sums of the cores before it, which the vector unit made out of trees of
    `piece` elements: it lets NaN and infinities through, while inside a core's elements the cube has replaced
    them. `inside` bounds the error of one core's sums from its elements and sums.
    """
    integers = x.dtype.kind in "iu"
    value = np.zeros(x.size, np.int64 if integers else np.float64)
    bound = np.zeros(x.size, np.float32)
    carry: float = 0
    error = 0.0
    for cores in spans:
        base, lost = carry, error
        for start, stop in cores:
            if start == stop:
                continue
            given, own = saturated(x[start:stop]), value[start:stop]
            np.cumsum(given, dtype=own.dtype, out=own)
            own += base
            if not integers:
                finite = np.isfinite(own)
                limit = np.where(finite, inside(given, np.where(finite, own, 0.0)), 0.0)
                bound[start:stop] = 1.01 * (limit + lost) + 1e-37
                mass = np.abs(given, dtype=np.float64).sum()
                lost += UNIT * (piece.bit_length() + (stop - start) // piece + 1) * mass
            carry, error = own[-1], float(bound[stop - 1])
            base = base + x[start:stop].sum(dtype=own.dtype)
            if np.isfinite(base):
                lost += UNIT * abs(base)
    return value, bound


def completed_sums(x: np.ndarray, r: np.ndarray, spans: Iterable[tuple[int, int]], width: int) -> Expected:
    """Return what adding carries to sums inside rows of `width` gives: `spans` are the elements of each core,
    which starts from the sum of the entries of `r` before its own.
    """
    kind = np.int64 if x.dtype.kind in "iu" else np.float64
    value, bound = np.zeros(x.size, kind), np.zeros(x.size, np.float32)
    starts = np.concatenate([[0], np.cumsum(r, dtype=kind)])
    lost = UNIT * np.concatenate([[0.0], np.cumsum(np.abs(starts[1:]))])
    for core, (start, stop) in enumerate(spans):
        own = x[start:stop].astype(kind)
        ends = own[width - 1 :: width]
        before = starts[core] + np.concatenate([[0], np.cumsum(ends)])[: -(-own.size // width)]
        value[start:stop] = own + np.repeat(before, width)[: own.size]
        last = np.cumsum(np.abs(before))  # each carry was rounded once, and so is each sum
        error = lost[core] + UNIT * (np.repeat(last, width)[: own.size] + np.abs(value[start:stop]))
        bound[start:stop] = np.where(np.isfinite(error), 1.01 * error + 1e-37, 0.0)
    if x.dtype == np.int32:
        return Expected(value.astype(np.int32))
    return Expected(value, bound)
