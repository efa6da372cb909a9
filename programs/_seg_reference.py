"""Inputs and references of the programs on segments."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from npusim.errors import ConfigError

from ._prefix_sum import UNIT, saturated


def offsets_of(n: int, segments: int) -> Callable[[np.random.Generator], np.ndarray]:
    """Return a maker of offsets that cut n elements into segments at random places; some may be empty."""

    def make(generator: np.random.Generator) -> np.ndarray:
        cuts = np.sort(generator.integers(0, n + 1, segments - 1))
        return np.concatenate([[0], cuts, [n]]).astype(np.int32)

    return make


def check_offsets(program: str, name: str, offsets: np.ndarray, n: int | None) -> int:
    """Return the elements that offsets cut into segments.

    Raises `ConfigError` where they do not go from 0 up to the `n` elements there are.
    """
    offsets = offsets.ravel()  # of another rank they are refused with all inputs
    if offsets.size < 2:
        held = f"{offsets[0]} alone" if offsets.size else "nothing"
        raise ConfigError(
            f"{program}: input {name} holds {held}, which is no segment; give the end of each one, too"
        )
    if offsets[0] != 0:
        raise ConfigError(f"{program}: input {name} must start with 0, but element 0 is {offsets[0]}")
    falls = np.flatnonzero(offsets[1:] < offsets[:-1])
    if falls.size:
        i = int(falls[0])
        raise ConfigError(
            f"{program}: input {name} must never fall, but element {i + 1} is {offsets[i + 1]}, "
            f"after {offsets[i]}"
        )
    last = int(offsets[-1])
    if n is not None and last != n:
        raise ConfigError(f"{program}: {name} must end with {n}, the elements there are, not {last}")
    return last


def segment_sums(x: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return the sums inside segments, segment by segment: exact for integers, in float64 otherwise."""
    sums = np.empty(x.size, np.int64 if x.dtype.kind in "iu" else np.float64)
    for start, stop in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
        np.cumsum(x[start:stop], dtype=sums.dtype, out=sums[start:stop])
    return sums


def expected_sums(x: np.ndarray, offsets: np.ndarray, s: int, cores: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the sums inside segments that the programs make of `x`, and how far they may be off: not at all
    for integers.
    """
    given = saturated(x)
    sums = segment_sums(given, offsets)
    if given.dtype.kind in "iu":
        return sums, np.zeros(sums.size)
    return sums, segment_bound(given, sums, offsets, s, cores)


def last_sums(sums: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return the last entry of every segment, and zero for one that is empty."""
    empty = offsets[1:] == offsets[:-1]
    found: np.ndarray = np.where(empty, 0, sums[np.maximum(offsets[1:], 1) - 1])
    return found


def segment_bound(x: np.ndarray, sums: np.ndarray, offsets: np.ndarray, s: int, cores: int) -> np.ndarray:
    """Return a bound on the error of float32 sums inside segments that are made out of sums of rows of s.

    A sum is at most two sums of its own row and what its segment has in the rows before, each wrong by s
    roundings of the row's magnitude, whole, since a row begins with other segments; every carry from row to
    row, and from core to core, is rounded once. Where a row or a sum leaves the range of float32, nothing is
    compared in the segments that have a part of it.
    """
    with np.errstate(all="ignore"):
        n = x.size
        padded = np.zeros((-(-n // s), s))
        padded.ravel()[:n] = np.abs(x)
        mass = padded.sum(axis=1)
        ends = np.abs(sums[np.minimum(np.arange(1, mass.size + 1) * s, n) - 1])
        largest = np.finfo(np.float32).max
        lost = ~(mass < largest) | ~(ends < largest)
        each = np.where(lost, 0.0, UNIT * ((2 * s + 4) * mass + 2 * ends))
        total = np.concatenate([[0.0], np.cumsum(each)])
        bad = np.concatenate([[0], np.cumsum(lost)])
        bound = np.empty(n)
        for start, stop in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
            if start < stop:
                rows = np.arange(start, stop) // s
                peak = np.abs(sums[start:stop]).max()
                here = total[rows + 1] - total[start // s] + UNIT * (4 * cores + 10) * peak
                wrong = bad[(stop - 1) // s + 1] > bad[start // s] or not peak < largest
                bound[start:stop] = np.inf if wrong else 1.01 * here + 1e-30
    return bound
