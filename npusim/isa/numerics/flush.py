"""Flushing subnormals to zero, as the approximate instructions of the vector unit do."""

from __future__ import annotations

from typing import Any

import numpy as np

from npusim.isa.dtype import F16, DType
from npusim.isa.numerics.formats import Array
from npusim.isa.numerics.profile import VectorNumerics

_HALF: tuple[Any, Any, Any] = (np.uint16, np.uint16(0x7C00), np.uint16(0x8000))
_SINGLE: tuple[Any, Any, Any] = (np.uint32, np.uint32(0x7F800000), np.uint32(0x80000000))


def flush_inputs(x: Array, dtype: DType, rules: VectorNumerics) -> Array:
    """`x` with its subnormals read as zero of their sign, if `rules.daz`; `x` itself if it has none."""
    return flushed(x, dtype) if rules.daz else x


def flush_results(x: Array, dtype: DType, rules: VectorNumerics) -> Array:
    """`x` with its subnormals written as zero of their sign, if `rules.ftz`; `x` itself if it has none."""
    return flushed(x, dtype) if rules.ftz else x


def flushed(x: Array, dtype: DType) -> Array:
    """`x` (float16 or float32) with subnormals made zero of their sign."""
    unsigned, exponent, sign = _HALF if dtype is F16 else _SINGLE
    u = x.view(unsigned)
    small = (u & exponent) == 0  # subnormal, or zero, which keeps its sign as well
    return np.where(small, u & sign, u).view(dtype.np) if small.any() else x
