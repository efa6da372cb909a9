"""Conversions of the fixpipe: which types an accumulator can become, and how."""

from __future__ import annotations

from typing import Any

import numpy as np

from npusim.isa.dtype import BF16, F16, F32, S8, S32, U8, DType
from npusim.isa.instruction import Array
from npusim.isa.numerics.cast import RoundMode, cast, dequant_s32_f16, requant_b8
from npusim.isa.state import State


def conversions(src: DType) -> tuple[DType, ...]:
    """Return the types that an accumulator type becomes, itself first (asc-devkit Fixpipe page, H)."""
    return {F32: (F32, F16, BF16, S8, U8), S32: (S32, F16, S8, U8)}.get(src, ())


def scaled(src: DType, dst: DType) -> bool:
    """Whether a conversion multiplies by a scale."""
    return dst in (S8, U8) or (src is S32 and dst is F16)


def convert(x: Array, src: DType, dst: DType, state: State, words: Array | None, *, relu: bool) -> Array:
    """Return accumulators as another type; `words` are the parameters of the columns, along the last axis.

    A word holds the float32 scale in its low 32 bits and the offset in bits 37 to 45 (the packing of the
    public aclnnTransQuantParamV2, M); whether the result is signed follows from its type. ReLU comes before
    the scale; the order, which shows with an offset only, is not published (L).
    """
    if relu:
        x = np.fmax(x, 0)
    if src is dst:
        return x
    if not scaled(src, dst):
        return cast(x, src, dst, RoundMode.RINT, saturate=state.saturate)
    scale: Any = np.uint32(state.quant_scale).view(np.float32)
    offset: Any = state.quant_offset
    if words is not None:
        scale, offset = words.astype(np.uint32).view(np.float32), words >> 37
    if dst is F16:
        return dequant_s32_f16(x, scale, saturate=True)
    return requant_b8(x, scale, offset, dst)
