"""The multiply-accumulate of the cube, bit for bit as a `CubeNumerics` rule says.

    matmul(rule, a, b, acc, saturate=...)     acc + a @ b, a new (m, n) array
    prepare(rule, x, side)                    an operand converted and measured once, to keep with its tile

Decisions of the project where no vendor page says more: a zero result is +0; NaN is 0x7FC00000; the K tail is
padded with products of zero; the accumulator joins its block; int32 saturates once per Mmad (asc-devkit
Mmad.md: "integers only saturate").
"""

from __future__ import annotations

import math

import numpy as np

from npusim.isa.dtype import F32
from npusim.isa.numerics.accumulator import bound
from npusim.isa.numerics.aligned import fused_aligned
from npusim.isa.numerics.chains import sequential, tree
from npusim.isa.numerics.formats import SINGLE, Array, canonical_nan, clamp_to_f32
from npusim.isa.numerics.fused import fused_exact
from npusim.isa.numerics.operand import Prepared, prepare
from npusim.isa.numerics.profile import CubeNumerics
from npusim.isa.numerics.small import small_tile

__all__ = ["Prepared", "matmul", "prepare"]

# glibc hands freed temporaries of over 128 KiB back to the system and faults them in again at the next Mmad,
# which doubles the time of a 128-cube tile. Freeing one large block raises that threshold for the process.
np.empty(1 << 24, np.uint8)

_FLOAT32_EXACT = 1 << 24
_INT32 = np.iinfo(np.int32)


def matmul(
    rule: CubeNumerics,
    a: Array | Prepared,
    b: Array | Prepared,
    acc: Array | None,
    *,
    saturate: bool,
) -> Array:
    """Return `acc + a @ b` as a new array: `a` (m, k), `b` (k, n), `acc` (m, n), or `None` for zero.

    Operands are float16, bfloat16 or float32 (both the same) with a float32 `acc` and result; for the
    `integer` rule int8 or uint8 (int4 values held in int8) with int32. Either may be `Prepared` under an
    equal rule.

    `saturate` is the state of CTRL[48]. `True` (bit 0, the reset value) reads infinities as the largest
    number of their format and NaN as 0, in the operands and in `acc` (pto-isa mad.md, `sat`), and does the
    same to each value written to the accumulator, once per block of `k0`. `False` is IEEE 754. Integers
    always saturate.

    Raises `ValueError` for shapes that do not fit or a `Prepared` made for another rule or side, `TypeError`
    for element types the rule does not take.
    """
    left = a if isinstance(a, Prepared) else prepare(rule, a, "left")
    right = b if isinstance(b, Prepared) else prepare(rule, b, "right")
    _check(rule, left, right, acc)
    if rule.summation == "integer":
        return _integer(left, right, acc)
    if rule.summation == "float64" and left.k and left.rows * right.rows:
        result = _whole(left, right, acc, saturate=saturate)
        return np.add(result, np.float32(0), out=result)
    shape = left.rows, right.rows
    state = np.zeros(shape, np.float32) if acc is None else np.array(acc, np.float32, order="C")
    if not state.size or not left.k:
        return state + np.float32(0)
    if rule.subnormals == "flush":
        state[np.abs(state) < SINGLE.smallest_normal] = 0
    small = small_tile(rule, left, right, None if acc is None else state)
    if small is not None:
        result = small
    else:
        result = _accumulate(rule, left, right, state, fresh=acc is None, saturate=saturate)
    return np.add(result, np.float32(0), out=result)


def _check(rule: CubeNumerics, left: Prepared, right: Prepared, acc: Array | None) -> None:
    if left.side != "left" or right.side != "right":
        raise ValueError(f"matmul takes a left and a right operand, not {left.side} and {right.side}")
    for operand in (left, right):
        if operand.rule is not rule and operand.rule != rule:
            raise ValueError(f"operand was prepared under {operand.rule}, not {rule}")
    if left.k != right.k:
        raise ValueError(f"a ({left.rows}, {left.k}) does not fit b ({right.k}, {right.rows})")
    integer = rule.summation == "integer"
    if left.dtype != right.dtype and not integer:
        raise TypeError(f"both operands must have one element type, not {left.dtype} and {right.dtype}")
    if acc is not None:
        if acc.shape != (left.rows, right.rows):
            raise ValueError(f"acc must be ({left.rows}, {right.rows}), not {acc.shape}")
        if acc.dtype != (np.int32 if integer else np.float32):
            raise TypeError(f"acc must be {'int32' if integer else 'float32'}, not {acc.dtype}")


def _accumulate(
    rule: CubeNumerics, left: Prepared, right: Prepared, acc: Array, *, fresh: bool, saturate: bool
) -> Array:
    if saturate:
        left = left if left.certificate.finite else left.normalised()
        right = right if right.certificate.finite else right.normalised()
    bounds = bound(left, right, None if fresh else acc)
    if saturate and math.isinf(bounds.acc):
        clamp_to_f32(acc)
        bounds = bound(left, right, acc)
    # on ordinary data nothing can overflow, and saturation costs nothing
    per_write = rule.subnormals == "flush" or (saturate and not bounds.calm)
    summation = rule.summation
    if summation == "sequential" and _wide(rule, left):
        summation = "fused-exact"  # of one product: an FMA
    add = {
        "fused-exact": fused_exact,
        "fused-aligned": fused_aligned,
        "sequential": sequential,
        "tree": tree,
    }[summation]
    result = add(rule, bounds, acc, per_write=per_write, saturate=saturate)
    if not (saturate or bounds.calm):
        result[np.isnan(result)] = canonical_nan(F32)
    return result


def _whole(left: Prepared, right: Prepared, acc: Array | None, *, saturate: bool) -> Array:
    """The `float64` rule: all of K in float64 BLAS and one cast, so that the last bit depends on the BLAS.

    Where every sum of products fits 24 bits, float32 BLAS gives the same bits in a third of the time: sums
    are exact in any order, and an addition of two float32 is rounded the same by way of float64.
    """
    result: Array
    if _fits_float32(left, right):
        result = left.narrow.reshape(-1, left.rows).T @ right.narrow.reshape(-1, right.rows)
        if acc is not None:
            result += acc
    else:
        result = _rounded_once(left, right, acc)
    flat = result.reshape(-1)
    # a sum of squares is the cheapest way to see that all are finite
    if not math.isfinite(np.dot(flat, flat)) and not np.isfinite(result).all():
        if saturate:
            if acc is not None:
                acc = np.array(acc, np.float32)
                clamp_to_f32(acc)
            result = _rounded_once(left.normalised(), right.normalised(), acc)
            clamp_to_f32(result)
        result[np.isnan(result)] = canonical_nan(F32)
    return result


def _rounded_once(left: Prepared, right: Prepared, acc: Array | None) -> Array:
    total = left.flat.T @ right.flat
    if acc is not None:
        total += acc
    return total.astype(np.float32)


def _fits_float32(left: Prepared, right: Prepared) -> bool:
    """Whether every sum of products, in any order, is a whole number of units that float32 holds exactly."""
    unit = left.lowest_bit * right.lowest_bit
    return left.k * left.reach * right.reach <= _FLOAT32_EXACT and unit >= SINGLE.smallest_normal


def _wide(rule: CubeNumerics, operand: Prepared) -> bool:
    """Whether products may exceed 24 bits, so that a float64 FMA would round twice."""
    return operand.dtype == np.float32 and (rule.input_frac is None or rule.input_frac > 11)


def _integer(left: Prepared, right: Prepared, acc: Array | None) -> Array:
    """Exact integer product, added to `acc` and clamped to int32.

    float32 BLAS is exact, in any order, while every partial sum fits 24 bits: K up to 1024 for int8 by int8.
    """
    largest = [255 if x.dtype == np.uint8 else 128 for x in (left, right)]
    step = _FLOAT32_EXACT // (largest[0] * largest[1])
    a, b = left.values, right.values
    if left.k <= step:
        total = (a @ b).astype(np.int32)
        if acc is None or not acc.size:
            return total
        reach = left.k * largest[0] * largest[1]
        if acc.max() <= _INT32.max - reach and acc.min() >= _INT32.min + reach:
            return total + acc
        wide = total.astype(np.int64)
    else:
        wide = np.zeros((left.rows, right.rows), np.int64)
        for k in range(0, left.k, step):
            wide += (a[:, k : k + step] @ b[k : k + step]).astype(np.int64)
    if acc is not None:
        wide += acc
    return np.clip(wide, _INT32.min, _INT32.max).astype(np.int32)
