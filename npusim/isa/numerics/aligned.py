"""The `fused-aligned` rule of tensor cores: terms truncated under the largest exponent, then added."""

from __future__ import annotations

import numpy as np

from npusim.isa.numerics.accumulator import Bounds, after_write
from npusim.isa.numerics.formats import SINGLE, Array, round_real
from npusim.isa.numerics.profile import CubeNumerics, Rounding

_NO_TERM = -2000  # exponent of a term that is zero: never the largest
_LOWEST = -400  # below every exponent a term can have
_CHUNK = 1 << 15  # terms worked on at once, to stay in cache


def fused_aligned(
    rule: CubeNumerics, bounds: Bounds, acc: Array, *, per_write: bool, saturate: bool
) -> Array:
    """`acc + a @ b`: per block, each product and the accumulator lose the bits more than `align_frac` below
    the largest exponent; the sum is rounded to float32 once and overflows to infinity in every mode.

    The exponent of a product is the sum of its operands' exponents, not normalised; a subnormal counts with
    the lowest exponent of its format. Infinities and NaN need no care: they pass through every step as in any
    other sum.
    """
    left, right = bounds.left, bounds.right
    emin = left.format.emin
    ea, eb = _exponents(left.narrow, emin), _exponents(right.narrow, emin)
    rows = max(1, _CHUNK // max(1, rule.k0 * right.rows))
    total = np.empty(acc.shape)
    for block in range(len(left.values)):
        a, b = left.values[block], right.values[block]
        acc_exponent = _exponents(acc, SINGLE.emin)
        for i in range(0, left.rows, rows):
            at = slice(i, i + rows)
            total[at] = _block(rule, a[:, at], b, ea[block][:, at], eb[block], acc[at], acc_exponent[at])
        acc = _round(total, rule.rounding)
        if per_write:
            after_write(rule, acc, saturate=saturate)
    return acc


def _exponents(x: Array, emin: int) -> Array:
    """The exponent of each float32 as int32, at least `emin`; `_NO_TERM` for zero."""
    u = x.view(np.int32) & np.int32(0x7FFFFFFF)
    exponent: Array = np.maximum((u >> np.int32(23)) - np.int32(127), np.int32(emin))
    exponent[u == 0] = _NO_TERM
    return exponent


def _block(
    rule: CubeNumerics, a: Array, b: Array, ea: Array, eb: Array, acc: Array, acc_exponent: Array
) -> Array:
    """The exact sum of the truncated terms of one block: (k0, rows) times (k0, n), and acc (rows, n)."""
    lowest = _LOWEST if rule.align_min_exp is None else rule.align_min_exp
    top = np.maximum.reduce(ea[:, :, None] + eb[:, None, :], axis=0)
    np.maximum(top, acc_exponent, out=top)
    np.maximum(top, np.int32(lowest), out=top)
    assert rule.align_frac is not None
    # a power of two, put together from its exponent bits: scaling by it and back is exact
    scale = ((np.int64(1023 + rule.align_frac) - top) << np.int64(52)).view(np.float64)
    terms = a[:, :, None] * b[:, None, :]
    terms *= scale
    np.trunc(terms, out=terms)
    total: Array = np.add.reduce(terms, axis=0)
    total += np.trunc(acc * scale)
    total /= scale
    return total


def _round(total: Array, mode: Rounding) -> Array:
    """Round float64 to float32; 2^128 and above become infinity in every mode."""
    magnitude = np.abs(total)
    if mode == "rz" and not ((magnitude < SINGLE.smallest_normal) & (magnitude != 0)).any():
        kept = total.view(np.int64) & np.int64(~0x1FFFFFFF)
        down: Array = kept.view(np.float64).astype(np.float32)
        return down
    rounded = round_real(total, SINGLE, mode)
    over = magnitude >= 2.0 ** (SINGLE.emax + 1)
    return np.where(over, np.copysign(np.inf, total), rounded).astype(np.float32)
