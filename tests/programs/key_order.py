"""The order in which the sorts of 16-bit keys put them."""

from __future__ import annotations

import math


def rank(value, bits):
    """Return what the documented order compares: -0 lies below +0, NaN beyond the infinities.

    `value` is an element as Python has it, `bits` its bits as a whole number of 0 or more.
    """
    if not isinstance(value, float):
        return value
    if math.isnan(value):
        magnitude = bits & 0x7FFF
        return (1, magnitude) if bits < 0x8000 else (-1, -magnitude)
    return (0, value, math.copysign(1.0, value))
