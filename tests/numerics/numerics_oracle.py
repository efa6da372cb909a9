"""Slow references on exact rationals. Nothing here is shared with `npusim.isa.numerics`.

A finite value is a `Fraction`, or for the cube an integer in units of 2^-300, of which every product of two
float32 numbers is a whole number; infinities and NaN are floats.
"""

from __future__ import annotations

import math
from fractions import Fraction

import ml_dtypes
import numpy as np

UNIT = 300
FORMATS = {"f16": (11, -14, 15), "bf16": (8, -126, 127), "f32": (24, -126, 127)}
"""Significant bits, lowest and highest exponent."""
TYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32}
MODES = ("rne", "rz", "rd", "ru", "rna", "odd")


def largest(fmt):
    precision, _, emax = FORMATS[fmt] if isinstance(fmt, str) else fmt
    return (2 - Fraction(2) ** (1 - precision)) * Fraction(2) ** emax


def round_fraction(x, fmt, mode="rne"):
    """`x` rounded once: a Fraction, or a float infinity on overflow."""
    precision, emin, emax = FORMATS[fmt] if isinstance(fmt, str) else fmt
    if x == 0:
        return Fraction(0)
    negative, size = x < 0, abs(x)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= Fraction(2) ** exponent > size
    step = Fraction(2) ** (max(exponent, emin) - (precision - 1))
    down, rest = divmod(size, step)
    rounded = (down + _goes_up(int(down), rest, step, mode, negative)) * step
    top = largest((precision, emin, emax))
    if rounded <= top:
        return -rounded if negative else rounded
    to_infinity = {"rne": True, "rna": True, "rz": False, "odd": False, "ru": not negative, "rd": negative}[
        mode
    ]
    value = math.inf if to_infinity else top
    return -value if negative else value


def _goes_up(down, rest, step, mode, negative):
    """Whether `down` steps and a `rest` of less than one more become `down + 1` steps."""
    if mode == "rne":
        return 2 * rest > step or (2 * rest == step and down % 2 == 1)
    if mode == "rna":
        return 2 * rest >= step
    if mode == "odd":
        return rest != 0 and down % 2 == 0
    return rest != 0 and {"rz": False, "ru": not negative, "rd": negative}[mode]


# ---- the cube ----------------------------------------------------------------------------------------------


def scaled(x):
    """A finite float as an integer in units of 2^-150."""
    numerator, denominator = float(x).as_integer_ratio()
    return numerator * ((1 << 150) // denominator)


def round_f32(n, mode):
    """An integer in units of 2^-300 rounded to float32, in the same units, or a float infinity."""
    if n == 0:
        return 0
    size = abs(n)
    drop = max(size.bit_length() - 24, UNIT - 149)
    down, rest = size >> drop, size & ((1 << drop) - 1)
    rounded = (down + _goes_up(down, rest, 1 << drop, mode, n < 0)) << drop
    top = int(largest("f32")) << UNIT
    if rounded > top:
        to_infinity = {"rne": True, "rna": True, "rz": False, "odd": False, "ru": n > 0, "rd": n < 0}[mode]
        return math.copysign(math.inf, n) if to_infinity else (top if n > 0 else -top)
    return rounded if n > 0 else -rounded


def add(x, y, mode="rne"):
    """The float32 sum of two accumulator values."""
    if isinstance(x, float) or isinstance(y, float):
        return _as_float(x) + _as_float(y)
    return round_f32(x + y, mode)


def _as_float(x):
    return x if isinstance(x, float) else float(x > 0) - float(x < 0)


def product(x, y):
    """The exact product of two operands, integers in units of 2^-150 or special floats."""
    if isinstance(x, float) or isinstance(y, float):
        return _as_float(x) * _as_float(y)
    return x * y


def cube(rule, a, b, acc, *, saturate, fmt):
    """`acc + a @ b` for any float rule but `float64`, as float32."""
    a, b = read_operand(rule, a, fmt, saturate), read_operand(rule, b, fmt, saturate)
    (m, k), n = a.shape, b.shape[1]
    result = np.zeros((m, n), np.float32)
    for i in range(m):
        for j in range(n):
            value = 0 if acc is None else written(rule, read(acc[i, j], 1 << 150), saturate)
            for start in range(0, k, rule.k0):
                pairs = list(zip(a[i, start : start + rule.k0], b[start : start + rule.k0, j], strict=True))
                value = written(rule, SUMS[rule.summation](rule, pairs, value, fmt), saturate)
            result[i, j] = value if isinstance(value, float) else value / (1 << UNIT)
    result[np.isnan(result)] = np.uint32(0x7FC00000).view(np.float32)
    return result + np.float32(0)


def read(x, unit=1):
    return scaled(x) * unit if math.isfinite(x) else float(x)


def read_operand(rule, x, fmt, saturate):
    out = np.empty(x.shape, object)
    precision = rule.input_frac + 1 if rule.input_frac else FORMATS[fmt][0]
    stored = (precision, *FORMATS[fmt][1:])
    for at, value in np.ndenumerate(x):
        v = float(value)
        if rule.input_frac and math.isfinite(v):
            rounded = round_fraction(Fraction(v), stored, rule.input_rounding)
            v = rounded if isinstance(rounded, float) else float(rounded)
        if rule.subnormals == "flush" and abs(v) < 2.0 ** FORMATS[fmt][1]:
            v = 0.0
        if saturate and not math.isfinite(v):
            v = 0.0 if math.isnan(v) else math.copysign(float(largest(stored)), v)
        out[at] = read(v)
    return out


def written(rule, value, saturate):
    """What an accumulator write leaves."""
    if isinstance(value, float) and saturate:
        value = 0 if math.isnan(value) else int(math.copysign(1, value)) * (int(largest("f32")) << UNIT)
    if rule.subnormals == "flush" and not isinstance(value, float) and abs(value) < 1 << (UNIT - 126):
        value = 0
    return value


def _fused(rule, pairs, acc, fmt):
    every = [*(product(x, y) for x, y in pairs), acc]
    special = [t for t in every if isinstance(t, float)]
    return sum(special) if special else round_f32(sum(every), rule.rounding)


def _sequential(rule, pairs, acc, fmt):
    for x, y in pairs:
        acc = add(acc, product(x, y))
    return acc


def _tree(rule, pairs, acc, fmt):
    level = [add(0, product(x, y)) for x, y in pairs]
    level += [0] * (rule.k0 - len(level))
    while len(level) > 1:
        level = [add(level[i], level[i + 1]) for i in range(0, len(level), 2)]
    return add(acc, level[0])


def _aligned(rule, pairs, acc, fmt):
    every = [*(product(x, y) for x, y in pairs), acc]
    special = [t for t in every if isinstance(t, float)]
    if special:
        return sum(special)
    lowest = FORMATS[fmt][1]
    exponents = [exponent(x, 150, lowest) + exponent(y, 150, lowest) for x, y in pairs if x and y]
    exponents += [exponent(acc, UNIT, FORMATS["f32"][1])] if acc else []
    exponents += [rule.align_min_exp] if rule.align_min_exp is not None else []
    if not exponents:
        return 0
    drop = max(0, max(exponents) - rule.align_frac + UNIT)
    total = sum((abs(t) >> drop << drop) * (1 if t > 0 else -1) for t in every)
    if abs(total) >= 1 << (UNIT + 128):
        return math.copysign(math.inf, total)
    return round_f32(total, rule.rounding)


def exponent(n, unit, lowest):
    """The exponent of an integer in units of 2^-unit, not below `lowest`."""
    return max(abs(n).bit_length() - 1 - unit, lowest)


SUMS = {"fused-exact": _fused, "sequential": _sequential, "tree": _tree, "fused-aligned": _aligned}
