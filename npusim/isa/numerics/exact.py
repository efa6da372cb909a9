"""Exact sums of floating-point numbers, the last resort of the cube emulation.

`two_sum_error` recovers what one float64 addition lost. `exact_sum_to_odd` adds any number of terms without a
single floating-point addition.
"""

from __future__ import annotations

import numpy as np

from npusim.isa.numerics.formats import SINGLE, Array, round_real
from npusim.isa.numerics.profile import Rounding

HIDDEN_TIES = 2.0**-125  # below it float32 midpoints are not where `_MIDPOINT` looks
_DROPPED = np.int64(0x1FFFFFFF)  # float64 bits that float32 does not have
_MIDPOINT = np.int64(0x10000000)
_CHUNK = 2048  # rows of limbs worked on at once, to bound memory


def two_sum_error(total: Array, x: Array, y: Array) -> Array:
    """The exact error `x + y - total` of the float64 addition `total = x + y` (Knuth's TwoSum)."""
    back = total - x
    error: Array = (x - (total - back)) + (y - back)
    return error


def to_odd(total: Array, error: Array) -> Array:
    """Round `total + error` to odd, for `total` the nearest float64: an inexact even neighbour moves by one.

    A further rounding to 51 or fewer bits, in any mode, is then the rounding of the real sum.
    """
    even = (np.ascontiguousarray(total).view(np.int64) & 1) == 0
    move = (error != 0) & even & np.isfinite(error)
    return np.where(move, np.nextafter(total, np.copysign(np.inf, error)), total)


def suspect_ties(s: Array, *, hidden: bool) -> Array:
    """Where the float32 cast of float64 `s` is a tie; only there can an inexact `s` have been cast wrong.

    With `hidden` also where `s` is too small for a tie to show in the bits.
    """
    tie: Array = (s.view(np.int64) & _DROPPED) == _MIDPOINT
    if hidden:
        tie |= (np.abs(s) < HIDDEN_TIES) & (s != 0)
    return tie


def round_sum_to_f32(x: Array, y: Array) -> Array:
    """`x + y` of float64 arrays of one shape as if with one rounding to float32."""
    s = x + y
    result = s.astype(np.float32)
    at = np.nonzero(suspect_ties(s, hidden=True))
    if at[0].size:
        total = s[at]
        result[at] = to_odd(total, two_sum_error(total, x[at], y[at].astype(np.float64))).astype(np.float32)
    return result


def to_f32(x: Array, mode: Rounding) -> Array:
    """Round float64 to float32 once, overflow as IEEE 754 says for `mode`."""
    if mode == "rne":
        return x.astype(np.float32)
    return round_real(x, SINGLE, mode).astype(np.float32)


def exact_sum_to_odd(terms: Array) -> Array:
    """Row sums of finite float64 `terms` (rows, n), rounded to odd at 37 or more significant bits.

    One further rounding to 24 or fewer bits, in any mode, is the correctly rounded sum. `n` is below 2^20.
    """
    terms = np.asarray(terms, np.float64)
    if len(terms) > _CHUNK:
        pieces = [exact_sum_to_odd(terms[i : i + _CHUNK]) for i in range(0, len(terms), _CHUNK)]
        return np.concatenate(pieces)
    fraction, exponent = np.frexp(terms)
    mantissa = np.ldexp(fraction, 53).astype(np.int64)
    sign, mantissa = np.sign(mantissa), np.abs(mantissa)
    live = mantissa != 0
    if not live.any():
        return np.zeros(len(terms))
    exponent = exponent.astype(np.int64) - 53
    base = int(exponent[live].min()) >> 4 << 4
    offset = np.where(live, exponent - base, 0)
    limbs, negative = _add_into_limbs(mantissa, sign, offset)
    return _read_limbs(limbs, negative, base)


def _add_into_limbs(mantissa: Array, sign: Array, offset: Array) -> tuple[Array, Array]:
    """Add `sign * mantissa * 2^offset` along each row into 16-bit limbs; return magnitudes and signs.

    A limb is an int64: each term adds at most 2^42 to two of them, so 2^20 terms cannot overflow it.
    """
    rows, terms = mantissa.shape
    count = (int(offset.max()) >> 4) + 8  # 53 + 15 bits above the last offset, carries, a sign limb
    limbs = np.zeros((rows, count), np.int64)
    row = np.arange(rows)
    for t in range(terms):
        low, high = mantissa[:, t] & 0x7FFFFFF, mantissa[:, t] >> 27
        for part, at in ((low, offset[:, t]), (high, offset[:, t] + 27)):
            limbs[row, at >> 4] += sign[:, t] * (part << (at & 15))
    _carry(limbs)
    negative = limbs[:, -1] < 0
    if negative.any():
        limbs[negative] = -limbs[negative]
        _carry(limbs)
    return limbs, negative


def _carry(limbs: Array) -> None:
    """Bring every limb but the last into 0..65535, in place."""
    for i in range(limbs.shape[1] - 1):
        carry = limbs[:, i] >> 16
        limbs[:, i] &= 0xFFFF
        limbs[:, i + 1] += carry


def _read_limbs(limbs: Array, negative: Array, base: int) -> Array:
    """Float64 of each row of limbs: the top three, four bits of the fourth, and a sticky bit for the rest."""
    rows, count = limbs.shape
    row = np.arange(rows)
    live = limbs != 0
    top = count - 1 - np.argmax(live[:, ::-1], axis=1)
    padded = np.concatenate([np.zeros((rows, 3), np.int64), limbs], axis=1)  # limb i is column i + 3
    first, second, third, fourth = (padded[row, top + 3 - i] for i in range(4))
    value = (((first << 16 | second) << 16 | third) << 4) | (fourth >> 12)
    live_up_to = np.cumsum(live, axis=1)
    below = np.where(top >= 4, live_up_to[row, np.maximum(top - 4, 0)] > 0, False)
    value |= ((fourth & 0xFFF) != 0) | below
    magnitude = np.ldexp(value.astype(np.float64), base + 16 * (top - 2) - 4)
    return np.where(live.any(axis=1), np.where(negative, -magnitude, magnitude), 0.0)
