"""The `fused-exact` rule on a small tile, where the number of NumPy calls is the cost.

One bound for the whole tile proves that float64 makes no error anywhere; where it cannot, the general way is
taken. Let g be a power of two that all products and the accumulator are multiples of. Every partial sum, and
every accumulator rounded to float32 in between, is a multiple of g; by Cauchy-Schwarz none is larger than
|acc| + |a| |b| in Frobenius norms. If that is below 2^53 g, all of them are float64 numbers.
"""

from __future__ import annotations

import math

import numpy as np

from npusim.isa.numerics.formats import SINGLE, Array
from npusim.isa.numerics.operand import Prepared, smallest_magnitude
from npusim.isa.numerics.profile import CubeNumerics

_MOST = 4096
"""Most values of both operands: the norms of more say little about one sum."""
_ROUNDED = 1 + 2.0**-10
"""What the roundings of a sum of that many squares in float32 may hide, with room."""
_LOST = 2.0**-125
"""What underflow may take from the square of a float32 number."""


def small_tile(rule: CubeNumerics, left: Prepared, right: Prepared, acc: Array | None) -> Array | None:
    """Return `acc + a @ b`, (m, n) float32, or `None` where nothing is proved; then the general way must do.

    `acc` is (m, n) float32, `None` for zero; it is not changed. In the names below `reach` bounds the
    magnitude of every partial sum, and 2^`exponent` is the g of which all of them are multiples.
    """
    if left.values.size + right.values.size > _MOST or rule.summation != "fused-exact":
        return None
    if rule.rounding != "rne" or rule.subnormals == "flush":
        return None
    (norm2_a, exponent_a), (norm2_b, exponent_b) = left.coarse, right.coarse
    reach, exponent = math.sqrt(norm2_a * norm2_b), exponent_a + exponent_b
    if acc is not None:
        flat = acc.reshape(-1)
        reach += math.sqrt(float(np.dot(flat, flat)) + flat.size * _LOST)
        smallest = float(smallest_magnitude(flat, axis=None))
        if smallest < math.inf:
            lowest = math.frexp(max(smallest, SINGLE.smallest_normal))[1] - SINGLE.precision
            exponent = min(exponent, lowest)
    # written so that NaN fails; below 2^126 nothing overflows
    if not reach * _ROUNDED <= math.ldexp(1.0, min(53 + exponent, 126)):
        return None
    result = acc
    for a, b in zip(left.values, right.values, strict=True):
        total = a.T @ b
        if result is not None:
            total += result
        result = total.astype(np.float32)
    return result
