"""Arithmetic on exact fractions, rounded once: what the documents say a vector instruction computes.

Values are Python floats (every f16, bf16 and f32 is one), infinities and NaN among them, or integers. Nothing
here uses NumPy arithmetic or the simulator's numerics.
"""

from __future__ import annotations

import math
import struct
from fractions import Fraction

import mpmath

FORMATS = {"f16": (11, -14, 15), "bf16": (8, -126, 127), "f32": (24, -126, 127)}
"""Precision with the hidden bit, smallest and largest exponent of normal numbers."""
NAN_BITS = {"f16": 0x7E00, "bf16": 0x7FC0, "f32": 0x7FC00000}
WIDTH = {
    "f16": 16,
    "bf16": 16,
    "f32": 32,
    "s4": 4,
    "s8": 8,
    "u8": 8,
    "s16": 16,
    "u16": 16,
    "s32": 32,
    "u32": 32,
    "s64": 64,
    "u64": 64,
}


def largest(name: str) -> float:
    """Return the largest finite number of a format."""
    precision, _, emax = FORMATS[name]
    return math.ldexp(2 - 2.0 ** (1 - precision), emax)


def smallest_normal(name: str) -> float:
    """Return the smallest normal number of a format."""
    return math.ldexp(1.0, FORMATS[name][1])


def decode(bits: int, name: str) -> float | int:
    """Return the number that bits stand for."""
    width = WIDTH[name]
    if name == "f16":
        return float(struct.unpack("<e", struct.pack("<H", bits))[0])
    if name in ("bf16", "f32"):
        return float(struct.unpack("<f", struct.pack("<I", bits << (32 - width)))[0])
    if name[0] == "s" and bits >> (width - 1):
        return bits - (1 << width)
    return bits


def encode(value: float | int, name: str) -> int:
    """Return the bits of a number that the format holds exactly; NaN is the canonical one."""
    if name not in FORMATS:
        return int(value) & ((1 << WIDTH[name]) - 1)
    if math.isnan(value):
        return NAN_BITS[name]
    if name == "f16":
        return int(struct.unpack("<H", struct.pack("<e", value))[0])
    return int(struct.unpack("<I", struct.pack("<f", value))[0]) >> (32 - WIDTH[name])


def to_integer(x: Fraction, mode: str) -> int:
    """Round to an integer in one of the modes of the vendor's RoundMode."""
    down = math.floor(x)
    rest = x - down
    if mode in ("NONE", "RINT"):
        up = rest > Fraction(1, 2) or (rest == Fraction(1, 2) and down % 2 == 1)
    elif mode == "ROUND":
        up = rest > Fraction(1, 2) or (rest == Fraction(1, 2) and x > 0)
    elif mode == "FLOOR":
        up = False
    elif mode == "CEIL":
        up = rest > 0
    elif mode == "TRUNC":
        up = rest > 0 and x < 0
    else:
        assert mode == "ODD"
        toward_zero = down + (rest > 0 and x < 0)
        return toward_zero if rest == 0 or toward_zero % 2 else toward_zero + (1 if x > 0 else -1)
    return down + up


def to_format(x: Fraction, name: str, mode: str = "RINT", *, zero: float = 0.0) -> float:
    """Round a fraction to a format; `zero` is the result where the fraction is zero (it has a sign)."""
    if x == 0:
        return zero
    precision, emin, emax = FORMATS[name]
    sign = -1 if x < 0 else 1
    size = abs(x)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    if size < Fraction(2) ** exponent:
        exponent -= 1
    unit = Fraction(2) ** (max(exponent, emin) - precision + 1)
    rounded = sign * abs(to_integer(x / unit, mode)) * unit
    if abs(rounded) >= Fraction(2) ** (emax + 1):
        inward = mode in ("TRUNC", "ODD") or (mode == "FLOOR" and x > 0) or (mode == "CEIL" and x < 0)
        return math.copysign(largest(name) if inward else math.inf, x)
    return math.copysign(float(rounded), x)


def clamp(value: float, name: str, *, saturate: bool) -> float:
    """Apply the saturation of CTRL[48], which float32 arithmetic does not have."""
    if saturate and name != "f32":
        if math.isnan(value):
            return 0.0
        if math.isinf(value):
            return math.copysign(largest(name), value)
    return value


def wrap(value: int, name: str, *, saturate: bool) -> int:
    """Bring an integer into the range of a type: clamped, or its low bits."""
    width = WIDTH[name]
    low, high = (-(1 << (width - 1)), (1 << (width - 1)) - 1) if name[0] == "s" else (0, (1 << width) - 1)
    if saturate:
        return min(max(value, low), high)
    return (value - low) % (1 << width) + low


def add(a: float, b: float, name: str) -> float:
    """Add two numbers of a format."""
    if not (math.isfinite(a) and math.isfinite(b)):
        return a + b
    return to_format(Fraction(a) + Fraction(b), name, zero=a + b)


def mul(a: float, b: float, name: str) -> float:
    """Multiply two numbers of a format."""
    if not (math.isfinite(a) and math.isfinite(b)):
        return a * b
    return to_format(Fraction(a) * Fraction(b), name, zero=math.copysign(0.0, a) * math.copysign(1.0, b))


def fma(a: float, b: float, c: float, name: str) -> float:
    """Multiply two numbers and add a third, with one rounding."""
    if not (math.isfinite(a) and math.isfinite(b) and math.isfinite(c)):
        product = a * b if math.isfinite(a) != math.isfinite(b) or not math.isfinite(a) else 0.0
        return product + c
    zero = math.copysign(0.0, a) * math.copysign(1.0, b) + c
    return to_format(Fraction(a) * Fraction(b) + Fraction(c), name, zero=zero if zero == 0 else 0.0)


def flush(x: float, name: str) -> float:
    """Return zero of the same sign for a subnormal number."""
    return math.copysign(0.0, x) if abs(x) < smallest_normal(name) else x


def div(a: float, b: float, name: str) -> float:
    """Divide, with subnormal operands and results read and written as zero."""
    a, b = flush(a, name), flush(b, name)
    sign = math.copysign(1.0, a) * math.copysign(1.0, b)
    if math.isnan(a) or math.isnan(b) or (a == 0 and b == 0) or (math.isinf(a) and math.isinf(b)):
        return math.nan
    if math.isinf(a) or b == 0:
        return math.copysign(math.inf, sign)
    if math.isinf(b) or a == 0:
        return math.copysign(0.0, sign)
    return flush(to_format(Fraction(a) / Fraction(b), name), name)


def function(kind: str, x: float, name: str) -> float:
    """Return a correctly rounded function of a number, subnormals as in `div`."""
    x = flush(x, name)
    if math.isnan(x):
        return math.nan
    if kind == "rec":
        return div(1.0, x, name)
    if kind == "exp":
        if math.isinf(x):
            return x if x > 0 else 0.0
        if abs(x) > 200:
            return math.inf if x > 0 else 0.0
    elif x < 0:
        return math.nan
    elif x == 0:
        return {"ln": -math.inf, "sqrt": x, "rsqrt": math.copysign(math.inf, x)}[kind]
    elif math.isinf(x):
        return {"ln": x, "sqrt": x, "rsqrt": 0.0}[kind]
    with mpmath.workprec(200):
        value = {
            "exp": mpmath.exp,
            "ln": mpmath.log,
            "sqrt": mpmath.sqrt,
            "rsqrt": lambda v: 1 / mpmath.sqrt(v),
        }[kind](mpmath.mpf(x))
        sign, digits, exponent, _ = value._mpf_
    exact = (-1) ** sign * Fraction(int(digits)) * Fraction(2) ** exponent
    return flush(to_format(exact, name), name)


def larger(a: float, b: float) -> float:
    """Return the larger number: a number wins over NaN, and +0 over -0."""
    if math.isnan(a) or math.isnan(b):
        return b if math.isnan(a) else a
    if a == b:
        return a if math.copysign(1.0, a) > 0 else b
    return max(a, b)


def smaller(a: float, b: float) -> float:
    """Return the smaller number, by the same rule."""
    if math.isnan(a) or math.isnan(b):
        return b if math.isnan(a) else a
    return -larger(-a, -b)


def convert(value: float | int, src: str, dst: str, mode: str, *, saturate: bool) -> float | int:
    """Convert a number between types as Cast does: round first, then look at the range."""
    if dst in FORMATS:
        if src in FORMATS:
            x = float(value)
            if math.isnan(x):
                return 0.0 if saturate and dst != "f32" else math.nan
            if math.isinf(x):
                result = x
            elif src == dst:  # f32 -> f32: to an integral number
                whole = to_integer(Fraction(x), mode)
                return math.copysign(float(whole), x)
            else:
                result = to_format(Fraction(x), dst, mode, zero=x)
        else:
            result = to_format(Fraction(value), dst, mode)
        if saturate and math.isinf(result) and dst != "f32":
            return math.copysign(largest(dst), result)
        return result
    if src in FORMATS:
        x = float(value)
        if math.isnan(x):
            return 0
        if math.isinf(x):
            return wrap((1 if x > 0 else -1) << 200, dst, saturate=True)
        return wrap(to_integer(Fraction(x), mode), dst, saturate=saturate)
    return wrap(int(value), dst, saturate=saturate)
