"""Conversions of the fixpipe: which types an accumulator can become, and how."""

from __future__ import annotations

from typing import Any

import numpy as np

from npusim.isa.dtype import BF16, F16, F32, S8, S32, U8, DType
from npusim.isa.instruction import Array
from npusim.isa.state import State

_LARGEST: dict[DType, Any] = {F16: np.float16(65504), BF16: np.uint16(0x7F7F).view(BF16.np)}
_NAN: dict[DType, Any] = {F16: np.uint16(0x7E00).view(np.float16), BF16: np.uint16(0x7FC0).view(BF16.np)}


def conversions(src: DType) -> tuple[DType, ...]:
    """Return the types that an accumulator type becomes, itself first (asc-devkit Fixpipe page, H)."""
    return {F32: (F32, F16, BF16, S8, U8), S32: (S32, F16, S8, U8)}.get(src, ())


def scaled(src: DType, dst: DType) -> bool:
    """Whether a conversion multiplies by a scale."""
    return dst in (S8, U8) or (src is S32 and dst is F16)


def convert(x: Array, src: DType, dst: DType, state: State, words: Array | None, *, relu: bool) -> Array:
    """Return accumulators as another type; `words` are the scales of the columns, along the last axis."""
    if relu:
        x = np.fmax(x, 0)
    if src is dst:
        return x
    if not scaled(src, dst):
        return narrow(x, dst, saturate=state.saturate)
    raise NotImplementedError


def narrow(x: Array, dst: DType, *, saturate: bool) -> Array:
    """Round float32 to nearest even; overflow saturates and NaN becomes zero under CTRL[48] = 0."""
    made = x.astype(dst.np)
    if not np.isfinite(made).all():
        nan = np.isnan(made)
        if saturate:
            largest = _LARGEST[dst]
            made = np.where(np.isinf(made), np.copysign(largest, made), made)
            made[nan] = 0
        else:
            made[nan] = _NAN[dst]
    return made
