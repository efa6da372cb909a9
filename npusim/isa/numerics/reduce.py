"""Reductions of the vector unit: binary trees over adjacent lanes.

Each level adds lanes 0 and 1, 2 and 3, and so on, and rounds every sum to the element type (asc-devkit
ReduceSum.md and the vendor accuracy table; H). The reduction runs over the whole last axis: the caller shapes
repeats or blocks. The caller holds `np.errstate(all="ignore")`.
"""

from __future__ import annotations

import numpy as np

from npusim.isa.dtype import F16, F32, DType
from npusim.isa.numerics.formats import Array, canonical_nan, narrow_to_f16, quiet
from npusim.isa.numerics.profile import VectorNumerics


def tree_sum(x: Array, dtype: DType, *, mask: Array | None = None, saturate: bool) -> Array:
    """Sums along the last axis of float16 or float32 `x`, without it.

    Lanes where the boolean `mask` (same shape, or broadcasting) is false contribute nothing; with none left,
    or a width of zero, the sum is +0. `saturate` (CTRL[48] = 0) acts on every float16 addition.
    """
    _require_float(dtype)
    if mask is not None:
        x = np.where(mask, x, dtype.np.type(-0.0))  # what adds nothing, even to -0
    if not x.shape[-1]:
        return np.zeros(x.shape[:-1], dtype.np)
    while x.shape[-1] > 1:
        width = x.shape[-1]
        even, odd = x[..., 0 : width - 1 : 2], x[..., 1::2]
        sums = np.add(even, odd, dtype=np.float32)
        if dtype is F16:
            sums = narrow_to_f16(sums, saturate=saturate)
        x = np.concatenate([sums, x[..., -1:]], axis=-1) if width & 1 else sums
    result: Array = x[..., 0].copy()
    if mask is not None:
        result[~np.broadcast_to(mask, (*x.shape[:-1], np.shape(mask)[-1])).any(axis=-1)] = 0
    return quiet(result) if dtype is F32 else result


def tree_max(
    x: Array, dtype: DType, rules: VectorNumerics, *, mask: Array | None = None
) -> tuple[Array, Array]:
    """Largest values along the last axis of `x`, and the lowest lane that holds each (ReduceMax.md; H).

    Only lanes where `mask` is true count; with none left the value is -infinity at lane 0 (L). NaN counts as
    `rules.nan` says: a number wins over it, or the first NaN wins. Zeros of either sign are equal.
    """
    return _extreme(x, dtype, rules, mask, np.float32(1))


def tree_min(
    x: Array, dtype: DType, rules: VectorNumerics, *, mask: Array | None = None
) -> tuple[Array, Array]:
    """Smallest values along the last axis of `x`, and the lowest lane that holds each; see `tree_max`."""
    return _extreme(x, dtype, rules, mask, np.float32(-1))


def _extreme(
    x: Array, dtype: DType, rules: VectorNumerics, mask: Array | None, sign: np.float32
) -> tuple[Array, Array]:
    _require_float(dtype)
    if not x.shape[-1]:
        nothing = np.full(x.shape[:-1], -sign * np.inf, dtype.np)
        return nothing, np.zeros(x.shape[:-1], np.int64)
    key = np.multiply(x, sign, dtype=np.float32)  # the largest key wins
    nan = np.isnan(key)
    if mask is None and not nan.any():
        lane = key.argmax(axis=-1)
        return np.take_along_axis(x, lane[..., None], axis=-1)[..., 0], lane
    live = np.broadcast_to(True if mask is None else mask, x.shape)
    # rank a lane that does not count 0, a number 2, and NaN below or above; the highest rank wins
    rank = np.where(live, np.where(nan, 1 if rules.nan == "number" else 3, 2), 0)
    best = rank.max(axis=-1, keepdims=True)
    key = np.where(nan, np.float32(0), key)
    among = rank == best
    largest = np.where(among, key, np.float32(-np.inf)).max(axis=-1, keepdims=True)
    lane = (among & (key == largest)).argmax(axis=-1)
    value = np.take_along_axis(x, lane[..., None], axis=-1)[..., 0]
    value = np.where(best[..., 0] == 0, dtype.np.type(-sign * np.inf), value)
    lane = np.where(best[..., 0] == 0, 0, lane)
    value[np.isnan(value)] = canonical_nan(dtype)
    return value, lane


def _require_float(dtype: DType) -> None:
    if dtype is not F16 and dtype is not F32:
        raise TypeError(f"the vector unit reduces f16 and f32, not {dtype.short}")
