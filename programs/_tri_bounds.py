"""How far rounding can take the methods of triangular inverses from the exact result: running error bounds.

A `Rough` is what matrices are in real arithmetic, with a bound on what their computed form may be off. The
methods are written down once more on such pairs, block by block, which is cheap, and independent of the
chains of products that the cube runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from npusim.isa.dtype import float_limits

SINGLE = 2.0**-24
"""Half a unit in the last place of a float32 of 1."""


@dataclass(frozen=True, slots=True)
class Rough:
    """Matrices in float64 (..., n, n) and the largest error of each element."""

    value: np.ndarray
    error: np.ndarray

    def __matmul__(self, other: Rough) -> Rough:
        """Return the product with float32 sums; each addition may lose half a unit of the magnitudes."""
        a, b = np.abs(self.value), np.abs(other.value)
        loss = (self.value.shape[-1] // 16 + 2) * SINGLE
        error = self.error @ (b + other.error) + a @ other.error + loss * (a @ b)
        return Rough(self.value @ other.value, error)

    def __add__(self, other: Rough) -> Rough:
        """Return the sum, which is rounded to float32."""
        value, error = self.value + other.value, self.error + other.error
        return Rough(value, error + SINGLE * (np.abs(value) + error))

    def __neg__(self) -> Rough:
        return Rough(-self.value, self.error)

    def rounded(self, dtype: Any) -> Rough:
        """Return what is left after rounding to an element type; infinite errors where it may overflow."""
        info = float_limits(dtype)
        reach = np.abs(self.value) + self.error
        error = self.error + float(info.eps) / 2 * reach + float(info.smallest_subnormal)
        spilled = ~(reach <= float(info.max))
        if spilled.any():  # whatever follows from such a matrix is lost
            error = np.where(spilled.any(axis=(-1, -2), keepdims=True), np.inf, error)
        return Rough(self.value, error)


def exact(value: np.ndarray) -> Rough:
    """Return matrices that are known exactly."""
    return Rough(value, np.zeros_like(value))


def identity_like(a: np.ndarray) -> Rough:
    """Return the identity in the shape of matrices."""
    return exact(np.broadcast_to(np.eye(a.shape[-1]), a.shape))


def settled(error: np.ndarray) -> np.ndarray:
    """Return errors without NaN: what came from infinite ones is infinite."""
    return np.where(np.isnan(error), np.inf, error)


def product_form(a: np.ndarray, dtype: Any, *, levels: int) -> Rough:
    """Bound (I - A)(I + A^2)(I + A^4)... with `levels` doublings."""
    y = exact(a)
    x = (identity_like(a) + -y).rounded(dtype)
    for _ in range(levels):
        y = (y @ y).rounded(dtype)
        x = (x + x @ y).rounded(dtype)
    return x


def merged(a: np.ndarray, x: Rough, size: int, dtype: Any) -> Rough:
    """Bound the doubling of inverted diagonal blocks of `size` until one is left: both products of
    -L A R are rounded.
    """
    n = a.shape[-1]
    value, error = x.value.copy(), x.error.copy()
    while size < n:
        for start in range(0, n - size, 2 * size):
            first, second = slice(start, start + size), slice(start + size, min(start + 2 * size, n))
            upper = Rough(value[:, first, first], error[:, first, first])
            lower = Rough(value[:, second, second], error[:, second, second])
            y = (lower @ exact(-a[:, second, first])).rounded(dtype)
            found = (y @ upper).rounded(dtype)
            value[:, second, first], error[:, second, first] = found.value, found.error
        error = np.where(value == 0, error, error * (1 + float(float_limits(dtype).eps) / 2))
        size *= 2
    return Rough(value, error)


def blocks_of(a: np.ndarray, size: int) -> np.ndarray:
    """Return the diagonal blocks of matrices, as (count, blocks, size, size)."""
    count, n, _ = a.shape
    cut = a.reshape(count, n // size, size, n // size, size)
    return np.stack([cut[:, i, :, i] for i in range(n // size)], axis=1)


def block_diagonal(blocks: Rough) -> Rough:
    """Return matrices with the given diagonal blocks."""
    count, number, size, _ = blocks.value.shape
    value = np.zeros((count, number, size, number, size))
    error = np.zeros_like(value)
    for i in range(number):
        value[:, i, :, i], error[:, i, :, i] = blocks.value[:, i], blocks.error[:, i]
    shape = (count, number * size, number * size)
    return Rough(value.reshape(shape), error.reshape(shape))
