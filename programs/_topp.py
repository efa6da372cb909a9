"""What the sampling programs share: thresholds without rounding, and the exact reference of a sample."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import floor, ldexp
from typing import Annotated, Any, NamedTuple

import numpy as np
from pydantic import Field

from npusim import Reg, isa
from npusim.errors import ConfigError

from ._prefix_sum import UNIT

Theta = Annotated[float, Field(ge=0, lt=1)]
THETA_BITS = 24
"""Binary digits of theta behind the point: what generators of float32 numbers below one give."""

CHOSEN, WHOLE = Reg(8), Reg(9)
"""Registers: the threshold of a sample, and the sum it is a share of."""
_HIGH, _LOW, _NEAR, _LOST, _TERM = (Reg(i) for i in range(10, 15))
_HALF_BITS = 12


# ---- thresholds --------------------------------------------------------------------------------------------


def share_of(theta: float) -> int:
    """Return theta in units of 2^-24, rounded down."""
    return floor(ldexp(theta, THETA_BITS))


def float_below(value: float) -> float:
    """Return the largest float32 that is not above a value: what float32 numbers are compared with in its
    place.
    """
    near = np.float32(value)
    return float(near if float(near) <= value else np.nextafter(near, np.float32(-np.inf)))


def float_threshold(theta: int) -> Iterator[isa.Instruction]:
    """Compute theta * `WHOLE` in float32, rounded down: then a float32 is above `CHOSEN` exactly where it is
    above the product.

    The product is rounded to nearest, and so is what it lost, out of products of halves of 12 bits that are
    exact (Dekker 1971). Where it was rounded up, the float32 below has bits that are one less.
    """
    high = ldexp(theta >> _HALF_BITS, _HALF_BITS - THETA_BITS)
    low = ldexp(theta % (1 << _HALF_BITS), -THETA_BITS)
    yield _alu(isa.ScalarOp.AND, _HIGH, WHOLE, -(1 << _HALF_BITS), isa.S32)
    yield _alu(isa.ScalarOp.SUB, _LOW, WHOLE, _HIGH)
    yield _alu(isa.ScalarOp.MUL, _NEAR, WHOLE, high + low)
    yield _alu(isa.ScalarOp.MUL, _LOST, _HIGH, high)
    yield _alu(isa.ScalarOp.SUB, _LOST, _LOST, _NEAR)
    for part, factor in ((_HIGH, low), (_LOW, high), (_LOW, low)):
        yield _alu(isa.ScalarOp.MUL, _TERM, part, factor)
        yield _alu(isa.ScalarOp.ADD, _LOST, _LOST, _TERM)
    yield _alu(isa.ScalarOp.SHR, _LOST, _LOST, 31, isa.U32)  # the sign
    yield _alu(isa.ScalarOp.SUB, CHOSEN, _NEAR, _LOST, isa.S32)


def whole_threshold(theta: int) -> Iterator[isa.Instruction]:
    """Compute the whole part of theta * `WHOLE`, an int32 of 0 or more."""
    yield _alu(isa.ScalarOp.MUL, CHOSEN, WHOLE, theta, isa.S64)
    yield _alu(isa.ScalarOp.SHR, CHOSEN, CHOSEN, THETA_BITS, isa.S64)


def _alu(op: isa.ScalarOp, reg: Reg, a: Any, b: Any, dtype: isa.DType = isa.F32) -> isa.Instruction:
    return isa.ScalarAlu(op=op, reg=reg.index, a=a, b=b, dtype=dtype)


# ---- references --------------------------------------------------------------------------------------------


def check_weights(name: str, what: str, x: np.ndarray) -> None:
    """Raise `ConfigError` where a weight is NaN, infinite, negative or -0, or sums of int8 leave int32."""
    wrong = np.flatnonzero(~np.isfinite(x) | np.signbit(x)) if x.dtype.kind == "f" else np.flatnonzero(x < 0)
    if wrong.size:
        i = int(wrong[0])
        raise ConfigError(f"{name}: input x: {what} must be finite and 0 or more, but element {i} is {x[i]}")
    total = 0 if x.dtype.kind == "f" else int(x.sum(dtype=np.int64))
    if total >= 1 << 31:
        raise ConfigError(f"{name}: input x: {what} must add up to less than 2^31, but add up to {total}")


class Sums(NamedTuple):
    """Inclusive prefix sums, and how far those that a program makes may be off."""

    value: np.ndarray
    """In float64, or in int64 for integers."""
    bound: np.ndarray


def exactly(value: np.ndarray, bound: np.ndarray, x: np.ndarray) -> Sums:
    """Return sums without error where float32 can hold all of them, whatever the order of additions: where
    the total has at most 2^24 units of the last binary digit that any element has.
    """
    if x.dtype.kind != "f":
        return Sums(value, np.zeros(value.size))
    given = x[x > 0].astype(np.float64)
    if not given.size:
        return Sums(value, np.zeros(value.size))
    digits = (np.frexp(given)[0] * 2.0**24).astype(np.int64)  # whole, as float32 has no more digits
    last = np.log2((digits & -digits).astype(np.float64)) + np.frexp(given)[1]
    if value[-1] <= 2.0 ** last.min():
        return Sums(value, np.zeros(value.size))
    return Sums(value, 1.01 * bound.astype(np.float64) + 2.0**-48 * value[-1])


class Range(NamedTuple):
    """The first and the last place where something can be."""

    first: int
    last: int


def first_above(sums: Sums, theta: int, total: int) -> Range:
    """Return where the first of the first `total` sums above theta times the last of them can be."""
    value, bound = sums.value[:total], sums.bound[:total]
    if value.dtype.kind == "i":
        return _same(int(np.searchsorted(value, int(value[-1]) * theta >> THETA_BITS, side="right")))
    share = ldexp(theta, -THETA_BITS)
    lost = share * bound[-1]
    first = int(np.argmax(value + bound > share * value[-1] - lost))
    sure = value - bound > share * value[-1] + lost
    return Range(first, int(np.argmax(sure)) if sure.any() else total - 1)


def _same(place: int) -> Range:
    return Range(place, place)


def expected_place(places: Range, of: np.ndarray | None = None) -> tuple[np.ndarray, float]:
    """Return value and tolerance of a place, or of what an array holds there, which is compared only where
    the place is certain.
    """
    first, last = places
    if of is None:
        return np.array([(first + last) / 2]), (last - first) / 2
    return of[first : first + 1], 0.0 if first == last else np.inf


def half_ulp(value: np.ndarray) -> np.ndarray:
    """Return what rounding to float32 can lose."""
    return np.asarray(UNIT * np.abs(value) + 2.0**-150)


def sizes(inputs: Mapping[str, np.ndarray]) -> dict[str, object]:
    """Return the parameters that the input decides."""
    return {"n": inputs["x"].size, "dtype": inputs["x"].dtype.name}
