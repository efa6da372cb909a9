"""What is known of an accumulation before it is done, and what happens to each value it writes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from npusim.isa.numerics.formats import SINGLE, Array, clamp_to_f32
from npusim.isa.numerics.operand import Prepared, lowest_bit, smallest_magnitude
from npusim.isa.numerics.profile import CubeNumerics

_U = 2.0**-53
_ROUNDED = 1 + 2.0**-10  # a few thousand roundings to float32 do not grow a sum by more


@dataclass(slots=True)
class Bounds:
    """Bounds on `acc + a @ b` from the certificates of both operands and a look at `acc`."""

    left: Prepared
    right: Prepared
    finite: bool
    """Whether both operands are."""
    block: list[float]
    """Per block, the most the sum of the magnitudes of its products can be."""
    exact: list[bool]
    """Per block, whether float64 gives the sum of its products exactly, in any order."""
    acc: float
    """The largest magnitude in `acc`, infinity if it holds NaN."""
    acc_unit: float
    """A power of two that every value of `acc` is a multiple of."""
    total: float
    """The largest magnitude any accumulator can reach, rounding aside."""

    @property
    def calm(self) -> bool:
        """Whether nothing can overflow, so that there is neither infinity nor NaN anywhere."""
        return self.finite and self.total < 2.0**126

    @property
    def grid(self) -> float:
        """A power of two that every product and every accumulator is a multiple of."""
        return min(self.left.certificate.unit * self.right.certificate.unit, self.acc_unit)

    def exact_up_to(self) -> float:
        """An addition whose float32 result is within this limit was exact in float64.

        Sums below 2^53 grid are exact. That is a power of two: a larger sum cannot be rounded to below it. Or
        it is less than float32 has; then the result is 0, and either the accumulator was, or the two
        cancelled, which is exact (Sterbenz).
        """
        return 2.0**53 * (1 - 2.0**-20) * self.grid

    def at_risk(self) -> tuple[Array, Array] | None:
        """The outputs (i, j) whose additions may be inexact, by their own norms and units; `None` if many.

        The grid of a tile is often that of one small number in each operand, and only where their row and
        column meet does it matter.
        """
        left, right = self.left.certificate, self.right.certificate
        row_unit = np.minimum.reduce(left.units, axis=0)
        reach = np.dot([math.sqrt(x) for x in right.norm2_max], np.sqrt(left.norm2))
        reach = (reach + self.acc) * _ROUNDED
        rows = np.flatnonzero(reach > 2.0**53 * np.minimum(row_unit * right.unit, self.acc_unit))
        if rows.size * 4 > reach.size:
            return None
        units = row_unit[rows, None] * np.minimum.reduce(right.units, axis=0)
        i, j = np.nonzero(reach[rows, None] > 2.0**53 * np.minimum(units, self.acc_unit))
        return rows[i], j

    def error(self, block: int) -> float:
        """At least twice |s - real sum| in `block`: k0 roundings in the product, one in the addition."""
        reach = (self.acc + sum(self.block[: block + 1])) * _ROUNDED
        return float(error_of(self.left.values.shape[1], self.block[block], reach))

    def never_rounds(self, acc: Array) -> bool:
        """Whether every partial sum is a float32, so that the grouping of the products cannot be seen.

        True of small integers. The lowest bits are searched only if they might show it.
        """
        left, right = self.left, self.right
        if not self.calm or self.total > 2.0**24 * left.certificate.smallest * right.certificate.smallest:
            return False
        grid = min(left.lowest_bit * right.lowest_bit, lowest_bit(acc) if self.acc else math.inf)
        return grid >= 2.0**-149 and self.total <= 2.0**24 * grid


def bound(left: Prepared, right: Prepared, acc: Array | None) -> Bounds:
    """Look at `acc` (m, n) float32, not empty, or `None` for zero, and join what is known of the operands."""
    la, lb = left.certificate, right.certificate
    block = [math.sqrt(x * y) * (1 + 2.0**-40) for x, y in zip(la.norm2_max, lb.norm2_max, strict=True)]
    exact = [x * y <= 2.0**106 for x, y in zip(la.ratio_max, lb.ratio_max, strict=True)]
    largest, unit = 0.0, math.inf
    if acc is not None:
        largest = max(float(np.maximum.reduce(acc, None)), -float(np.minimum.reduce(acc, None)))
        if math.isnan(largest):
            largest = math.inf
        smallest = float(smallest_magnitude(acc, axis=None))
        if smallest < math.inf:
            exponent = math.frexp(max(smallest, SINGLE.smallest_normal))[1] - 1  # subnormals share a unit
            unit = 2.0 ** (exponent - (SINGLE.precision - 1))
    return Bounds(left, right, la.finite and lb.finite, block, exact, largest, unit, largest + sum(block))


def error_of(products: int, norm: Any, reach: Any) -> Any:
    """At least twice the float64 error of a sum up to `reach` with `products` products of norm `norm`."""
    return _U * ((2 * products + 8) * norm + 4 * reach)


def after_write(rule: CubeNumerics, acc: Array, *, saturate: bool) -> None:
    """What the rule and CTRL[48] do to each value written to the accumulator, in place."""
    if saturate:
        clamp_to_f32(acc)
    if rule.subnormals == "flush":
        acc[np.abs(acc) < SINGLE.smallest_normal] = 0
