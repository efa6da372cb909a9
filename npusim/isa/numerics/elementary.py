"""Exp, Ln, Sqrt, Rsqrt and Rec: correctly rounded, the same on every host.

NumPy's float32 and float16 `exp` and `log` give different bits on different CPUs (they are dispatched to SIMD
code), and its float64 ones differ in their last bits. So float32 results come from float64, checked: if the
interval of 2^-48 around the float64 value rounds to one float32, that is the answer, else `decimal` decides
(Ziv's strategy). float16 has only 65,536 inputs: each function is a table, built when first used.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Context, Decimal
from functools import cache

import numpy as np

from npusim.isa.dtype import F16, F32, DType
from npusim.isa.numerics.flush import flushed
from npusim.isa.numerics.formats import FORMATS, HALF, Array, Format, canonical_nan, round_real
from npusim.isa.numerics.profile import VectorNumerics

_PRECISE = Context(prec=60)
_TRUST = 2.0**-48  # float64 library functions are within 2^-51 or so
_FLOAT64: dict[str, Callable[[Array], Array]] = {
    "exp": np.exp,
    "ln": np.log,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "rec": lambda x: 1.0 / x,
}
_DECIMAL: dict[str, Callable[[Decimal], Decimal]] = {
    "exp": _PRECISE.exp,
    "ln": _PRECISE.ln,
    "sqrt": _PRECISE.sqrt,
    "rsqrt": lambda x: _PRECISE.divide(Decimal(1), _PRECISE.sqrt(x)),
    "rec": lambda x: _PRECISE.divide(Decimal(1), x),
}


def exp(x: Array, dtype: DType, rules: VectorNumerics, *, saturate: bool) -> Array:
    """e to the power of `x` (documented: 1 ulp, subnormals not supported; M)."""
    return _elementary("exp", x, dtype, rules, saturate=saturate)


def ln(x: Array, dtype: DType, rules: VectorNumerics, *, saturate: bool) -> Array:
    """Natural logarithm; -infinity of 0 and NaN of negative numbers, before saturation (documented 1 ulp; M).

    The vendor calls both results unknown (L).
    """
    return _elementary("ln", x, dtype, rules, saturate=saturate)


def sqrt(x: Array, dtype: DType, rules: VectorNumerics, *, saturate: bool) -> Array:
    """Square root; NaN of negative numbers, before saturation (documented: 1 ulp; M)."""
    return _elementary("sqrt", x, dtype, rules, saturate=saturate)


def rsqrt(x: Array, dtype: DType, rules: VectorNumerics, *, saturate: bool) -> Array:
    """One over the square root, rounded to `rules.rec_bits_*` if set (documented: worse than 1 ulp; L)."""
    return _elementary("rsqrt", x, dtype, rules, saturate=saturate)


def rec(x: Array, dtype: DType, rules: VectorNumerics, *, saturate: bool) -> Array:
    """One over `x`, rounded to `rules.rec_bits_*` if set (documented: worse than 1 ulp; L)."""
    return _elementary("rec", x, dtype, rules, saturate=saturate)


def _elementary(name: str, x: Array, dtype: DType, rules: VectorNumerics, *, saturate: bool) -> Array:
    if dtype is not F16 and dtype is not F32:
        raise TypeError(f"the vector unit has no {name} of {dtype.short}")
    bits = None
    if name in ("rec", "rsqrt"):
        bits = rules.rec_bits_f16 if dtype is F16 else rules.rec_bits_f32
    if dtype is F16:
        table = _half_table(name, rules.daz, rules.ftz, bits, saturate)
        return table.take(x.view(np.uint16))
    return _single(name, x, rules.daz, rules.ftz, bits)


def _single(name: str, x: Array, daz: bool, ftz: bool, bits: int | None) -> Array:
    if daz:
        x = flushed(x, F32)
    if name == "sqrt":
        result = np.sqrt(x)  # IEEE 754 rounds these two correctly on every host
    elif name == "rec":
        result = np.divide(np.float32(1), x)
    else:
        result = correctly_rounded(name, x.astype(np.float64), F32)
    if bits is not None:
        result = _to_bits(result, F32, bits)
    if ftz:
        result = flushed(result, F32)
    result[np.isnan(result)] = canonical_nan(F32)
    return result


@cache
def _half_table(name: str, daz: bool, ftz: bool, bits: int | None, saturate: bool) -> Array:
    x = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    if daz:
        x = flushed(x, F16)
    result = correctly_rounded(name, x.astype(np.float64), F16)
    if bits is not None:
        result = _to_bits(result, F16, bits)
    if ftz:
        result = flushed(result, F16)
    if saturate:
        wide = np.nan_to_num(result.astype(np.float32), nan=0.0, posinf=HALF.largest, neginf=-HALF.largest)
        result = wide.astype(np.float16)
    result[np.isnan(result)] = canonical_nan(F16)
    return result


def correctly_rounded(name: str, x: Array, dtype: DType) -> Array:
    """The function `name` of float64 `x`, rounded to `dtype` (float16 or float32) to nearest even, once."""
    y = _FLOAT64[name](x)
    low, high = (y * (1 - _TRUST)).astype(dtype.np), (y * (1 + _TRUST)).astype(dtype.np)
    for i in np.flatnonzero((low != high) & np.isfinite(y)):
        low.flat[i] = _decide(name, float(x.flat[i])).astype(dtype.np)
    return low


def _decide(name: str, x: float) -> np.float64:
    """The function of `x` rounded to odd in float64, by decimal arithmetic of 60 digits."""
    value = _DECIMAL[name](Decimal(x))
    nearest = np.float64(float(value))
    error = _PRECISE.compare(value, Decimal(float(nearest)))
    if error != 0 and not int(nearest.view(np.int64)) & 1:
        nearest = np.nextafter(nearest, np.inf if error > 0 else -np.inf)
    return nearest


def _to_bits(x: Array, dtype: DType, bits: int) -> Array:
    fmt = FORMATS[dtype]
    return round_real(x, Format(bits, fmt.emin, fmt.emax)).astype(dtype.np)
