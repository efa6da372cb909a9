"""Conversions of the fixpipe: which types an accumulator can become, and how."""

from __future__ import annotations

from typing import Any

import numpy as np

from npusim.isa.dtype import BF16, F16, F32, S8, S32, U8, DType
from npusim.isa.instruction import Array
from npusim.isa.state import State

_LARGEST: dict[DType, Any] = {F16: np.float16(65504), BF16: np.uint16(0x7F7F).view(BF16.np)}
_NAN: dict[DType, Any] = {F16: np.uint16(0x7E00).view(np.float16), BF16: np.uint16(0x7FC0).view(BF16.np)}

_SCALE_BITS = 0xFFFFE000
"""Bits of a float32 scale that the hardware reads: all but 13 of the fraction (asc-devkit Fixpipe page, H).
"""


def conversions(src: DType) -> tuple[DType, ...]:
    """Return the types that an accumulator type becomes, itself first (asc-devkit Fixpipe page, H)."""
    return {F32: (F32, F16, BF16, S8, U8), S32: (S32, F16, S8, U8)}.get(src, ())


def scaled(src: DType, dst: DType) -> bool:
    """Whether a conversion multiplies by a scale."""
    return dst in (S8, U8) or (src is S32 and dst is F16)


def convert(x: Array, src: DType, dst: DType, state: State, words: Array | None, *, relu: bool) -> Array:
    """Return accumulators as another type; `words` are the parameters of the columns, along the last axis.

    A word holds the float32 scale in its low 32 bits and the offset in bits 37 to 45 (the packing of the
    public aclnnTransQuantParamV2, M); whether the result is signed follows from its type. A product with a
    scale is formed exactly and rounded once, to nearest even, to the result; 8-bit results add the offset and
    saturate. The order of ReLU and scale, which shows with an offset only, is not published (L).
    """
    if relu:
        x = np.fmax(x, 0)
    if src is dst:
        return x
    if not scaled(src, dst):
        return narrow(x, dst, saturate=state.saturate)
    if words is None:
        scale: Any = np.uint32(state.quant_scale & _SCALE_BITS).view(np.float32)
        offset: Any = state.quant_offset
    else:
        scale = (words & _SCALE_BITS).astype(np.uint32).view(np.float32)
        offset = (words >> 37 & 0x1FF).astype(np.int64)
        offset = offset - ((offset & 0x100) << 1)
    product = x.astype(np.float64) * np.float64(scale)  # at most 32 + 11 significant bits: exact
    if dst is F16:
        return narrow(product, F16, saturate=True)
    lowest, highest = (-128, 127) if dst is S8 else (0, 255)
    rounded = np.rint(np.nan_to_num(product, nan=0.0, posinf=1e9, neginf=-1e9))
    clipped: Array = np.clip(rounded + offset, lowest, highest)
    return clipped.astype(dst.np)


def narrow(x: Array, dst: DType, *, saturate: bool) -> Array:
    """Round to nearest even; overflow saturates and NaN becomes zero under CTRL[48] = 0."""
    made = x.astype(dst.np)
    if not np.isfinite(made).all():
        nan = np.isnan(made)
        if saturate:
            made = np.where(np.isinf(made), np.copysign(_LARGEST[dst], made), made)
            made[nan] = 0
        else:
            made[nan] = _NAN[dst]
    return made
