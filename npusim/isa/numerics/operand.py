"""Cube operands made ready for multiplication, with the bounds that prove a float64 product exact.

A machine keeps the `Prepared` next to the L0A or L0B tile it was made from, so that a tile used by many Mmads
is converted and measured once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from npusim.isa.numerics.formats import MAX_F32, Array, f32_round_frac, format_of
from npusim.isa.numerics.profile import CubeNumerics

Side = Literal["left", "right"]
_ROUNDED = 1 + 2.0**-12  # covers the rounding of squares and their sum in float32, for k0 up to 2^10
_ONE = np.uint32(1)
_ONE64 = np.uint64(1)
_EXPONENT = np.uint32(0x7F800000)
_ALL_ZERO = np.uint32(0xFF000001)  # twice the pattern of infinity, plus one


@dataclass(slots=True)
class Certificate:
    """Bounds on one operand, per block b of k0 and per row i of a (or column of b).

    Let `norm2` be the sum of squares and `unit` a power of two, at most the unit in the last place of the
    smallest non-zero number, of a (block, row). Every partial sum of a block product, in any order, is a
    multiple of unit_a unit_b and at most sqrt(norm2_a norm2_b) (Cauchy-Schwarz): it is exact in float64 if
    that is at most 2^53 unit_a unit_b. Non-finite values are left out.
    """

    norm2: Array
    """(blocks, rows) float32 or float64, as computed: up to 2^-13 below the truth."""
    norm2_max: list[float]
    """The largest of each block, rounded up."""
    units: Array
    """(blocks, rows) float64; infinity where all values are zero."""
    ratio_max: list[float]
    """The largest norm2 / unit^2 of each block, rounded up."""
    unit: float
    """The smallest unit of all; infinity if every value is zero."""
    smallest: float
    """The smallest non-zero magnitude of all, or just below it; infinity if every value is zero."""
    finite: bool
    """Whether all values are."""


class Prepared:
    """One operand of `matmul`: `a` (m, k) as `left` or `b` (k, n) as `right`.

    `values` holds it as (blocks, k0, rows) float64, K first, padded with zeros to whole blocks, and `narrow`
    the same as float32; for integers `values` is float32 in the shape given. Building one copies, so later
    writes to the tile are not seen.
    """

    def __init__(self, rule: CubeNumerics, x: Array, side: Side) -> None:
        if side not in ("left", "right"):
            raise ValueError(f"side must be left or right, not {side}")
        if x.ndim != 2:
            raise ValueError(f"a cube operand must have two dimensions, not {x.ndim}")
        self.dtype: np.dtype[Any] = x.dtype
        self.side = side
        self.rule = rule
        self.rows, self.k = x.shape if side == "left" else x.shape[::-1]
        self.values: Array
        if rule.summation == "integer":
            if x.dtype not in (np.int8, np.uint8):
                raise TypeError(f"the integer rule takes int8 or uint8, not {x.dtype}")
            self.values = x.astype(np.float32)
            return
        fmt = format_of(x.dtype)
        if fmt is None:
            raise TypeError(f"the {rule.summation} rule takes float16, bfloat16 or float32, not {x.dtype}")
        if rule.input_frac is not None and x.dtype != np.float32:
            raise TypeError(f"a rule that rounds its operands takes float32, not {x.dtype}")
        self.format = fmt
        # by way of float64, as NumPy converts float16 to that faster than to float32
        wide = (x.T if side == "left" else x).astype(np.float64, order="C")
        if rule.input_frac is not None or rule.subnormals == "flush":
            narrow = wide.astype(np.float32)
            if rule.input_frac is not None:
                narrow = f32_round_frac(narrow, rule.input_frac, rule.input_rounding)
            if rule.subnormals == "flush":
                narrow[np.abs(narrow) < fmt.smallest_normal] = 0
            wide = narrow.astype(np.float64)
        self.values = self._in_blocks(wide)

    def _in_blocks(self, x: Array) -> Array:
        k0 = self.rule.k0 or max(1, self.k)
        blocks = -(-self.k // k0)
        if blocks * k0 != self.k:
            x = np.concatenate([x, np.zeros((blocks * k0 - self.k, self.rows), x.dtype)])
        return x.reshape(blocks, k0, self.rows)

    @cached_property
    def narrow(self) -> Array:
        """`values` as float32, which holds them all."""
        return self.values.astype(np.float32)

    @cached_property
    def coarse(self) -> tuple[float, int]:
        """The sum of squares of all values, infinity or NaN if one is, and the exponent of a power of two
        that all are multiples of.

        A certificate in a handful of calls, where the certificate by rows would cost more than the product.
        """
        flat = self.values.reshape(-1)
        lowest = int(np.minimum.reduce((flat.view(np.uint64) << _ONE64) - _ONE64))  # zero becomes the largest
        exponent = max((lowest >> 53) - 1023, self.format.emin)
        fraction = self.rule.input_frac or self.format.precision - 1
        return float(np.dot(flat, flat)), exponent - fraction

    @cached_property
    def certificate(self) -> Certificate:
        """The bounds of this operand, worked out at first use."""
        certificate = self._certify(self.narrow)
        if certificate.finite:
            return certificate
        shown = np.where(np.isfinite(self.narrow), self.narrow, np.float32(0))
        seen = self._certify(shown)
        seen.finite = False
        return seen

    @cached_property
    def spans(self) -> list[tuple[int, int]]:
        """From and to of the rows that are not all zero, in each block of k."""
        there = self.certificate.norm2 != 0
        first, last = there.argmax(axis=1), there.shape[1] - there[:, ::-1].argmax(axis=1)
        empty = ~there.any(axis=1)
        first[empty] = last[empty] = 0
        return list(zip(first.tolist(), last.tolist(), strict=True))

    @cached_property
    def lowest_bit(self) -> float:
        """Of finite values: half of the lowest bit set in any of them, or more, but never above it."""
        return lowest_bit(self.narrow)

    @cached_property
    def reach(self) -> float:
        """The largest magnitude in units of `lowest_bit`, or more; infinity where a value is not finite."""
        largest = float(np.abs(self.narrow).max(initial=0))
        return largest / self.lowest_bit if math.isfinite(largest) else math.inf

    @property
    def flat(self) -> Array:
        """`values` as (k, rows)."""
        return self.values.reshape(-1, self.rows)

    def _certify(self, narrow: Array) -> Certificate:
        # squares of float16 values and their sums fit float32, where they are cheaper
        x = narrow if self.dtype == np.float16 else narrow.astype(np.float64)
        norm2 = np.add.reduce(x * x, axis=1)
        if not norm2.size:
            none = [0.0] * len(norm2)
            return Certificate(norm2, none, norm2, none, math.inf, math.inf, finite=True)
        smallest = smallest_magnitude(narrow, axis=1)
        fraction = self.rule.input_frac or self.format.precision - 1
        units = units_of(smallest, fraction, self.format.emin)
        norm2_max = [x * _ROUNDED for x in np.maximum.reduce(norm2, axis=1).tolist()]
        ratio_max = np.maximum.reduce(norm2 / (units * units), axis=1).tolist()
        return Certificate(
            norm2=norm2,
            norm2_max=norm2_max,
            units=units,
            ratio_max=[x * _ROUNDED for x in ratio_max],
            unit=float(np.minimum.reduce(units, axis=None)),
            smallest=float(np.minimum.reduce(smallest, axis=None)),
            finite=all(map(math.isfinite, norm2_max)),
        )

    def normalised(self) -> Prepared:
        """The operand with infinities made the largest number of its format, and NaN made 0."""
        limit = self.format.largest
        if self.rule.input_frac is not None:
            limit = f32_round_frac(np.array([MAX_F32]), self.rule.input_frac, "rz").item()
        other = object.__new__(Prepared)
        other.__dict__.update(self.__dict__)
        for found in ("certificate", "coarse", "lowest_bit", "spans", "reach"):
            other.__dict__.pop(found, None)
        other.narrow = np.nan_to_num(self.narrow, nan=0.0, posinf=limit, neginf=-limit)
        other.values = other.narrow.astype(np.float64)
        return other


def prepare(rule: CubeNumerics, x: Array, side: Side) -> Prepared:
    """Make `x` ready for `matmul` under `rule`: (m, k) for the left side, (k, n) for the right side.

    `TypeError` for an element type the rule cannot take, `ValueError` for a wrong shape or side.
    """
    return Prepared(rule, x, side)


def smallest_magnitude(values: Array, axis: int | None) -> Array:
    """The smallest non-zero magnitude of float32 `values` along `axis`, or the float32 just below it.

    NaN and infinity count as larger than any number; infinity where all values are zero.
    """
    u = values.view(np.uint32) << _ONE  # without the sign
    u -= _ONE  # zero becomes the largest
    lowest: Array = np.minimum(np.minimum.reduce(u, axis=axis), _ALL_ZERO)
    smallest: Array = (lowest >> _ONE).view(np.float32)
    return smallest


def units_of(magnitudes: Array, fraction: int, emin: int) -> Array:
    """The unit in the last place of float32 magnitudes in a format of `fraction` bits, as float64."""
    powers = (magnitudes.view(np.uint32) & _EXPONENT).view(np.float32).astype(np.float64)
    powers *= 2.0**-fraction
    return np.maximum(powers, 2.0 ** (emin - fraction))


def lowest_bit(values: Array) -> float:
    """Half of the lowest bit set in any of the finite float32 `values`, or more, but never above it.

    Clearing the lowest set bit of a bit pattern and subtracting leaves exactly that bit; for a power of two,
    where the bit belongs to the exponent, it leaves half of it or more. Infinity if all values are zero.
    """
    magnitude = np.abs(values)
    u = magnitude.view(np.uint32)
    cleared = u - _ONE
    cleared &= u
    magnitude -= cleared.view(np.float32)
    return float(smallest_magnitude(magnitude, axis=None))
