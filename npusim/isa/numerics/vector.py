"""Element operations of the vector unit, with one answer on every host.

Functions return new arrays and broadcast, so that an operand may be a NumPy scalar of the element type. They
assume that the caller holds `np.errstate(all="ignore")`: nothing here enters it per call. A `dtype` without
the operation raises `TypeError`.

`saturate` is CTRL[48] = 0 for float16: an infinity becomes 65504 of its sign and NaN becomes 0. float32
ignores it and keeps both (asc-devkit asc_set_ctrl.md names half only; H). For integers it is CTRL[53] = 1:
overflow clamps, else it wraps (same page, which lists A2 and A3; H). Its reset value, 0, is documented for
the 950 (M).

float16 is computed in float32 and rounded once, which is correctly rounded for +, -, *, / and square root (24
>= 2 * 11 + 2 bits). NaN results are canonical. Exp and the like are in `npusim.isa.numerics.elementary`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from npusim.isa.dtype import F16, F32, DType
from npusim.isa.numerics.elementary import exp, ln, rec, rsqrt, sqrt
from npusim.isa.numerics.exact import round_sum_to_f32
from npusim.isa.numerics.flush import flush_inputs, flush_results
from npusim.isa.numerics.formats import Array, narrow_to_f16, quiet
from npusim.isa.numerics.profile import VectorNumerics

__all__ = [
    "abs_",
    "add",
    "and_",
    "compare",
    "div",
    "exp",
    "ln",
    "maximum",
    "minimum",
    "mul",
    "muladd",
    "not_",
    "or_",
    "rec",
    "relu",
    "rsqrt",
    "shift_left",
    "shift_right",
    "sqrt",
    "sub",
]

_COMPARISONS: dict[str, Callable[..., Any]] = {
    "LT": np.less,
    "GT": np.greater,
    "EQ": np.equal,
    "LE": np.less_equal,
    "GE": np.greater_equal,
    "NE": np.not_equal,
}


def add(a: Array, b: Array, dtype: DType, *, saturate: bool) -> Array:
    """`a + b`: correctly rounded with subnormals (vendor accuracy table, 0 ulp; H)."""
    return _arithmetic(np.add, a, b, dtype, saturate=saturate)


def sub(a: Array, b: Array, dtype: DType, *, saturate: bool) -> Array:
    """`a - b`: correctly rounded with subnormals (documented as Add of the negative; H)."""
    return _arithmetic(np.subtract, a, b, dtype, saturate=saturate)


def mul(a: Array, b: Array, dtype: DType, *, saturate: bool) -> Array:
    """`a * b`: correctly rounded with subnormals (vendor accuracy table, 0 ulp; H)."""
    return _arithmetic(np.multiply, a, b, dtype, saturate=saturate)


def div(a: Array, b: Array, dtype: DType, rules: VectorNumerics, *, saturate: bool) -> Array:
    """`a / b` for float16 and float32: correctly rounded, subnormals as `rules` say (documented 1 ulp; M)."""
    _require_float(dtype, "division")
    a, b = flush_inputs(a, dtype, rules), flush_inputs(b, dtype, rules)
    wide = np.divide(a, b, dtype=np.float32)
    return flush_results(_narrow(wide, dtype, saturate=saturate), dtype, rules)


def maximum(a: Array, b: Array, dtype: DType, rules: VectorNumerics, *, saturate: bool) -> Array:
    """The larger of both, +0 above -0, NaN as `rules` say (pto-spec ADR-0050; not documented for A2; M)."""
    if not dtype.is_float:
        return np.maximum(a, b)
    return _extreme(a, b, dtype, rules, saturate=saturate)


def minimum(a: Array, b: Array, dtype: DType, rules: VectorNumerics, *, saturate: bool) -> Array:
    """The smaller of both, -0 below +0, NaN as `rules` say (pto-spec ADR-0050; not documented for A2; M)."""
    if not dtype.is_float:
        return np.minimum(a, b)
    return _extreme(a, b, dtype, rules, saturate=saturate, smaller=True)


def muladd(a: Array, b: Array, c: Array, dtype: DType, *, saturate: bool) -> Array:
    """`a * b + c` rounded once (vendor accuracy table: equivalent to one FMA; H).

    `dtype` is the type of `c` and of the result; with float32, `a` and `b` may be float16 (Axpy, MulAddDst).
    """
    _require_float(dtype, "multiply-add")
    if dtype is F16:
        # 22 + 11 bits: wherever the float64 sum is near a float16 midpoint it is exact
        wide = np.multiply(a, b, dtype=np.float64) + c
        return _narrow(wide, dtype, saturate=saturate)
    if a.dtype == np.float16 and b.dtype == np.float16:
        return quiet(np.multiply(a, b, dtype=np.float32) + c)  # the product is exact
    product = np.multiply(a, b, dtype=np.float64)
    return quiet(round_sum_to_f32(product, np.broadcast_to(c, product.shape)))


def abs_(x: Array, dtype: DType, *, saturate: bool) -> Array:
    """`|x|`; the most negative integer wraps or clamps."""
    if dtype.is_float:
        return _narrow(np.abs(x, dtype=np.float32), dtype, saturate=saturate)
    if saturate:
        x = np.maximum(x, -np.iinfo(dtype.np).max)
    return np.abs(x)


def relu(x: Array, dtype: DType, rules: VectorNumerics, *, saturate: bool) -> Array:
    """`max(x, 0)`, +0 for -0; of NaN 0 where numbers win, else NaN (the vendor is silent; L)."""
    if not dtype.is_float:
        largest: Array = np.maximum(x, dtype.np.type(0))
        return largest
    pick = np.fmax if rules.nan == "number" else np.maximum
    wide = pick(x, np.float32(0), dtype=np.float32)
    wide += np.float32(0)
    return _narrow(wide, dtype, saturate=saturate)


def shift_left(x: Array, count: int, dtype: DType) -> Array:
    """Shift left by `count` bits; a signed number keeps its sign bit and drops the bits behind it.

    So 0xAAAA << 1 is 0xD554 as s16 (asc-devkit ShiftLeft.md; H).
    """
    width, unsigned = _shift(count, dtype)
    u = x.view(unsigned)
    value_bits = width - dtype.is_signed
    shifted = u << unsigned.type(count) if count < width else np.zeros_like(u)
    if dtype.is_signed:
        sign = unsigned.type(1 << value_bits)
        shifted = (shifted & ~sign) | (u & sign)
    result: Array = shifted.view(dtype.np)
    return result


def shift_right(x: Array, count: int, dtype: DType, *, round_half: bool = False) -> Array:
    """Shift right by `count` bits: arithmetic if signed, logical if not; the width and more give -1 or 0.

    `round_half` adds the last bit shifted out, so 17 >> 5 is 1 (asc-devkit ShiftRight.md, `roundEn`; H).
    """
    width, _ = _shift(count, dtype)
    kept = min(count, width - 1)
    shifted: Array = x >> dtype.np.type(kept)
    if count > kept and not dtype.is_signed:
        shifted = np.zeros_like(x)
    if round_half and 0 < count <= width:
        shifted = shifted + ((x >> dtype.np.type(count - 1)) & dtype.np.type(1))
    return shifted


def and_(a: Array, b: Array) -> Array:
    """Bitwise and of 16-bit elements."""
    return np.bitwise_and(a, b)


def or_(a: Array, b: Array) -> Array:
    """Bitwise or of 16-bit elements."""
    return np.bitwise_or(a, b)


def not_(x: Array) -> Array:
    """Bitwise complement of 16-bit elements."""
    return np.invert(x)


def compare(mode: str, a: Array, b: Array) -> Array:
    """Boolean array of `a mode b` for LT, GT, EQ, LE, GE or NE; with NaN only NE holds."""
    try:
        comparison = _COMPARISONS[mode]
    except KeyError:
        raise ValueError(f"comparison must be one of {', '.join(_COMPARISONS)}, not {mode}") from None
    # NumPy compares float16 element by element; converting first is exact and faster
    half = np.result_type(a, b) == np.float16
    result: Array = comparison(a, b, signature="ff->?") if half else comparison(a, b)
    return result


def _arithmetic(operation: np.ufunc, a: Array, b: Array, dtype: DType, *, saturate: bool) -> Array:
    if dtype is F32:
        return quiet(operation(a, b))
    if dtype is F16:
        return _narrow(operation(a, b, dtype=np.float32), dtype, saturate=saturate)
    _require(not dtype.is_float, dtype, "arithmetic")
    if not saturate:
        wrapped: Array = operation(a, b)
        return wrapped
    _require(dtype.bits <= 32, dtype, "saturating arithmetic")
    limits = np.iinfo(dtype.np)
    products_of_u32 = operation is np.multiply and not dtype.is_signed
    wide: Array = operation(a, b, dtype=np.uint64 if products_of_u32 else np.int64)
    return np.clip(wide, limits.min, limits.max).astype(dtype.np)


def _extreme(
    a: Array, b: Array, dtype: DType, rules: VectorNumerics, *, saturate: bool, smaller: bool = False
) -> Array:
    _require_float(dtype, "maximum and minimum")
    number, propagate = (np.fmin, np.minimum) if smaller else (np.fmax, np.maximum)
    wide = (number if rules.nan == "number" else propagate)(a, b, dtype=np.float32)
    if not wide.all():
        # the host's choice between two zeros is not specified; sums of zeros have the sign wanted
        zeros = (np.equal(a, 0)) & (np.equal(b, 0))
        sums = -(np.negative(a) - b) if smaller else np.add(a, b)
        np.copyto(wide, sums, where=zeros)
    return _narrow(wide, dtype, saturate=saturate)


def _narrow(wide: Array, dtype: DType, *, saturate: bool) -> Array:
    """Results computed in float32 or more, as `dtype`."""
    return quiet(wide) if dtype is F32 else narrow_to_f16(wide, saturate=saturate)


def _shift(count: int, dtype: DType) -> tuple[int, np.dtype[Any]]:
    _require(not dtype.is_float, dtype, "shift")
    if count < 0:
        raise ValueError(f"shift count must not be negative, but is {count}")
    return dtype.bits, np.dtype(f"u{dtype.size}")


def _require_float(dtype: DType, what: str) -> None:
    _require(dtype is F16 or dtype is F32, dtype, what)


def _require(holds: bool, dtype: DType, what: str) -> None:
    if not holds:
        raise TypeError(f"the vector unit has no {what} of {dtype.short}")
