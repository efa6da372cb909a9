"""Where the elements of a matrix lie in each memory, as index formulas written from the layout definitions.

Offsets are in elements; `c0` is the number of elements in 32 bytes.
"""

from __future__ import annotations

import numpy as np


def l1_offset(i: int, j: int, height: int, c0: int) -> int:
    """NZ: columns of fractals of `height` rows; row-major inside."""
    return j // c0 * height * c0 + i * c0 + j % c0


def l0a_offset(i: int, j: int, m: int, k: int, c0: int, order: str = "ZZ") -> int:
    """ZZ: rows of fractals; NZ: columns of fractals. Row-major inside."""
    down, along = -(-m // 16), -(-k // c0)
    fractal = (i // 16) * along + j // c0 if order == "ZZ" else (j // c0) * down + i // 16
    return fractal * 16 * c0 + i % 16 * c0 + j % c0


def l0b_offset(i: int, j: int, n: int, c0: int) -> int:
    """ZN: element (k = i, n = j); rows of fractals, column-major inside."""
    return (i // c0 * -(-n // 16) + j // 16) * 16 * c0 + j % 16 * c0 + i % c0


def l0c_offset(i: int, j: int, height: int) -> int:
    """NZ with fractals of 16 x 16 elements."""
    return j // 16 * height * 16 + i * 16 + j % 16


def spread(matrix: np.ndarray, offset: object, size: int, fill: object = 0) -> np.ndarray:
    """A flat array of `size` elements that holds element (i, j) at `offset(i, j)` and `fill` elsewhere."""
    flat = np.full(size, fill, matrix.dtype)
    for i in range(matrix.shape[0]):
        for j in range(matrix.shape[1]):
            flat[offset(i, j)] = matrix[i, j]
    return flat


def collect(flat: np.ndarray, offset: object, rows: int, columns: int) -> np.ndarray:
    """The matrix whose element (i, j) lies at `offset(i, j)`."""
    return np.array([[flat[offset(i, j)] for j in range(columns)] for i in range(rows)], flat.dtype)


def whole(extent: int, block: int) -> int:
    """An extent rounded up to whole blocks."""
    return -(-extent // block) * block
