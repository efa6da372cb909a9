"""Conversions between element types: the Cast instruction, dequantisation and the fixpipe's requantisation.

All round the exact value once and look at the range afterwards (asc-devkit precision_conversion.md; H). They
assume that the caller holds `np.errstate(all="ignore")`. Nothing goes from float64 to bfloat16 directly:
`ml_dtypes` would round twice.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np

from npusim.isa.dtype import BF16, F16, F32, S4, S8, S16, S32, S64, U8, DType
from npusim.isa.numerics.formats import (
    BFLOAT,
    FORMATS,
    Array,
    canonical_nan,
    narrow_to_f16,
    quiet,
    round_real,
    to_integral,
)
from npusim.isa.numerics.profile import Rounding


class RoundMode(IntEnum):
    """The rounding modes of Cast, with the vendor's meaning (asc-devkit precision_conversion.md; H).

    `ODD` adds one to the last bit kept if it is 0 and anything is dropped: rounding to odd, after which a
    second rounding to a narrower format is as good as one.
    """

    NONE = 0
    """Exact where the target can hold the value, else as `RINT`."""
    RINT = 1
    """To nearest, ties to even."""
    FLOOR = 2
    """Toward minus infinity."""
    CEIL = 3
    """Toward plus infinity."""
    ROUND = 4
    """To nearest, ties away from zero."""
    TRUNC = 5
    """Toward zero."""
    ODD = 6
    """To odd."""


_ROUNDINGS: dict[RoundMode, Rounding] = {
    RoundMode.NONE: "rne",
    RoundMode.RINT: "rne",
    RoundMode.FLOOR: "rd",
    RoundMode.CEIL: "ru",
    RoundMode.ROUND: "rna",
    RoundMode.TRUNC: "rz",
    RoundMode.ODD: "odd",
}
_EXACT = frozenset({RoundMode.NONE})
_FIVE = frozenset({RoundMode.RINT, RoundMode.FLOOR, RoundMode.CEIL, RoundMode.ROUND, RoundMode.TRUNC})

CAST_MODES: dict[tuple[DType, DType], frozenset[RoundMode]] = {
    (F32, F16): _FIVE | {RoundMode.ODD, RoundMode.NONE},
    (F32, BF16): _FIVE,
    (F32, F32): _FIVE,
    (F32, S16): _FIVE,
    (F32, S32): _FIVE,
    (F32, S64): _FIVE,
    (F16, S4): _FIVE | _EXACT,
    (F16, S8): _FIVE | _EXACT,
    (F16, U8): _FIVE | _EXACT,
    (F16, S16): _FIVE,
    (F16, S32): _FIVE,
    (BF16, S32): _FIVE,
    (S16, F16): _FIVE | _EXACT,
    (S32, F32): _FIVE | _EXACT,
    (S64, F32): _FIVE,
    (F16, F32): _EXACT,
    (BF16, F32): _EXACT,
    (S16, F32): _EXACT,
    (S8, F16): _EXACT,
    (U8, F16): _EXACT,
    (S4, F16): _EXACT,
    (S32, S64): _EXACT,
    (S32, S16): _EXACT,
    (S64, S32): _EXACT,
}
"""The conversions of A2 and A3 and their modes (asc-devkit Cast.md; H). s32 to f16 has no mode: it goes
through `dequant_s32_f16`. float32 to float32 rounds to integers."""


def cast(x: Array, src: DType, dst: DType, mode: RoundMode, *, saturate: bool) -> Array:
    """Return `x` of type `src` as a new array of type `dst`, whether or not a chip has the pair.

    | result    | saturating (the reset state)               | not saturating                          |
    |-----------|--------------------------------------------|-----------------------------------------|
    | f16, bf16 | overflow and infinity -> largest, NaN -> 0 | infinity; NaN stays                     |
    | f32       | infinity and NaN stay                      | the same                                |
    | integer   | clamps; NaN -> 0                           | low bits; infinity -> extreme; NaN -> 0 |

    (asc-devkit rounding_mode.md, SetCtrlSpr.md; H.) NaN results are canonical.
    """
    rounding = _ROUNDINGS[mode]
    if dst.is_float:
        if src.is_float:
            return _float_to_float(x, src, dst, rounding, saturate=saturate)
        return _int_to_float(x, src, dst, rounding, saturate=saturate)
    if src.is_float:
        wide = x.astype(np.float32) if dst.bits <= 16 else x.astype(np.float64)
        return _to_int(to_integral(wide, rounding), dst, saturate=saturate)
    return _wrap_or_clamp(x, dst, saturate=saturate)


def scale_1_8_10(scale: Any) -> Any:
    """A float32 scale as the dequantisation hardware reads it: without the low 13 bits of its fraction.

    Sign, 8 exponent bits and 10 fraction bits are left (asc-devkit Fixpipe.md, CastDequant.md; H).
    """
    bits = np.asarray(scale, np.float32).view(np.uint32) & np.uint32(0xFFFFE000)
    return bits.view(np.float32)


def dequant_s32_f16(x: Array, scale: Any, *, saturate: bool) -> Array:
    """`x * scale` of int32 `x` as float16, rounded once to nearest even: Cast with SetDeqScale, DEQF16.

    `scale` is one number or broadcasts against `x`, and is read as `scale_1_8_10` does, which leaves a
    float16 scale alone (CastDequant.md: RINT; H. That the product is not rounded before: L).
    """
    product = x.astype(np.float64) * scale_1_8_10(scale)  # 31 + 11 bits: exact
    return narrow_to_f16(product, saturate=saturate)


def requant_b8(x: Array, scale: Any, offset: Any, dst: DType) -> Array:
    """`x * scale + offset` as int8 or uint8, rounded once to nearest even, saturating; NaN becomes 0.

    `x` is int32 (fixpipe REQ8), float32 (QF322B8) or int16 (CastDequant). `scale` is read as `scale_1_8_10`
    does; `offset` is an integer of which the low nine bits count, signed. Both may broadcast against `x`
    (asc-devkit CastDequant.md, SetDeqScale.md; H. That nothing is rounded before the end: L).
    """
    if dst not in (S8, U8):
        raise TypeError(f"requantisation gives s8 or u8, not {dst.short}")
    nine = ((np.asarray(offset, np.int64) + 256) & 511) - 256
    value = x.astype(np.float64) * scale_1_8_10(scale)  # at most 32 + 11 bits: exact
    return _to_int(np.rint(value + nine), dst, saturate=True)


def _float_to_float(x: Array, src: DType, dst: DType, rounding: Rounding, *, saturate: bool) -> Array:
    if dst is F32:
        if src is F32:
            return quiet(to_integral(x, rounding))
        return quiet(x.astype(np.float32))
    if rounding == "rne":
        wide = x.astype(np.float32)
        return (
            narrow_to_f16(wide, saturate=saturate) if dst is F16 else _narrow_to_bf16(wide, saturate=saturate)
        )
    rounded = round_real(x.astype(np.float64), FORMATS[dst], rounding, saturate=saturate)
    result = rounded.astype(np.float32).astype(dst.np)  # both exact now
    result[np.isnan(rounded)] = canonical_nan(dst)
    return result


def _narrow_to_bf16(wide: Array, *, saturate: bool) -> Array:
    result = wide.astype(BF16.np)
    if np.isfinite(np.vdot(wide, wide)):  # then none is beyond 2^64
        return result
    nan = np.isnan(wide)
    if saturate:
        over = ~np.isfinite(result)
        result[over] = np.copysign(np.float32(BFLOAT.largest), wide[over]).astype(BF16.np)
    result[nan] = BF16.np.type(0) if saturate else canonical_nan(BF16)
    return result


def _int_to_float(x: Array, src: DType, dst: DType, rounding: Rounding, *, saturate: bool) -> Array:
    if src.bits <= 8:
        return x.astype(dst.np)  # exact in all three
    if dst is F32 and (rounding == "rne" or src.bits <= 16):
        return x.astype(np.float32)
    if dst is F16 and rounding == "rne" and src.bits <= 16:
        return narrow_to_f16(x.astype(np.float32), saturate=saturate)
    exact = x.astype(np.float64) if src.bits <= 32 else _int64_to_odd(x)
    return round_real(exact, FORMATS[dst], rounding, saturate=saturate).astype(np.float32).astype(dst.np)


def _int64_to_odd(x: Array) -> Array:
    """64-bit integers rounded to odd at 54 bits, which float64 holds: the low ten bits become one."""
    kept = (x >> 10) | ((x & 1023) != 0)
    return np.where(np.abs(x) < 1 << 52, x.astype(np.float64), kept.astype(np.float64) * 1024)


def _to_int(whole: Array, dst: DType, *, saturate: bool) -> Array:
    """Whole numbers in floating point as integers, clamped or by their low bits."""
    low, high = _limits(dst)
    if saturate and dst.bits <= 32:
        clamped = np.clip(whole, low, high)  # limits that float32, or float64 for 32 bits, has
        if np.isnan(np.vdot(whole, whole)):
            clamped[np.isnan(whole)] = 0
        return clamped.astype(np.int32 if dst.bits <= 16 else np.int64).astype(dst.np)
    whole = whole.astype(np.float64)
    at_top, at_bottom = whole >= float(high), whole <= float(low)
    if not saturate:
        at_top, at_bottom = whole == np.inf, whole == -np.inf
    plain = np.fmod(np.where(at_top | at_bottom | np.isnan(whole), 0.0, whole), 2.0**64)
    plain -= np.where(plain >= 2.0**63, 2.0**64, 0.0)
    plain += np.where(plain < -(2.0**63), 2.0**64, 0.0)  # now an int64 with the low bits wanted
    result = _wrap_or_clamp(plain.astype(np.int64), dst, saturate=False)
    result[at_top], result[at_bottom] = high, low
    return result


def _wrap_or_clamp(x: Array, dst: DType, *, saturate: bool) -> Array:
    low, high = _limits(dst)
    if saturate:
        return np.clip(x, *_within(x.dtype, low, high)).astype(dst.np)
    if dst is S4:
        return ((x.astype(np.int8) + np.int8(8)) & np.int8(15)) - np.int8(8)
    return x.astype(dst.np)


def _within(dtype: np.dtype[Any], low: int, high: int) -> tuple[int, int]:
    """The limits that a NumPy integer type can hold."""
    own = np.iinfo(dtype)
    return max(low, int(own.min)), min(high, int(own.max))


def _limits(dst: DType) -> tuple[int, int]:
    if dst is S4:
        return -8, 7
    info = np.iinfo(dst.np)
    return int(info.min), int(info.max)
