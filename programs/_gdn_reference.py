"""The layer token by token in float64, and how far results in half precision may be off."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from npusim import Expected
from npusim.isa.dtype import float_limits

from ._gdn import Shape

_MARGIN = 4
"""Units of rounding, relative to sums of absolute values, that results may be off."""


@np.errstate(over="ignore", invalid="ignore")  # a state that grows without bound leaves float64, too
def recurrent(
    inputs: Mapping[str, np.ndarray], shape: Shape, unit: float, *, gate: bool
) -> dict[str, Expected]:
    """Return outputs `o` and `final` of the recurrence.

    For every token S = a S + k (beta (v - a S^T k))^T and o = S^T q with a = exp(g). A result may be off by
    4 units of rounding (half the epsilon of the element type) of what it would be if nothing in the sums
    that make it cancelled: absolute values of queries, keys, values and what the state knew of them. Nothing
    is compared for a head of a sequence in which some input is not finite, or in which such sums of absolute
    values leave the element type: products of chunks carry NaN and infinities to tokens before theirs.
    """
    given = {name: array.astype(np.float64) for name, array in inputs.items()}
    group = shape.heads // shape.key_heads
    q, k = (np.repeat(given[name], group, axis=1) for name in ("q", "k"))
    v, beta = given["v"], given["beta"]
    keep = np.ones_like(beta)
    if gate:  # of a gate of minus infinity the exponential is finite, but what the chunk makes of it is not
        keep = np.exp(np.where(np.isfinite(given["g"]), given["g"], np.nan))
    _spread_lost(shape, q, k, v, beta, keep)
    outputs = np.zeros(v.shape)
    reach = np.zeros(v.shape)
    finals, final_reach = [], []
    largest = float(float_limits(inputs["v"].dtype).max)
    start = 0
    for length in shape.lengths:
        peak = np.zeros(shape.heads)
        state = np.zeros((shape.heads, shape.dk, shape.dv))
        size = np.zeros_like(state)
        for t in range(start, start + length):
            state *= keep[t, :, None, None]
            size *= keep[t, :, None, None]
            known = np.einsum("hd,hde->he", k[t], state)
            news = beta[t, :, None] * (v[t] - known)
            added = np.abs(news) + beta[t, :, None] * np.abs(v[t])
            state += k[t, :, :, None] * news[:, None, :]
            size += np.abs(k[t])[:, :, None] * added[:, None, :]
            outputs[t] = np.einsum("hd,hde->he", q[t], state)
            reach[t] = np.einsum("hd,hde->he", np.abs(q[t]), size)
            peak = np.maximum(peak, np.maximum(size.max(axis=(1, 2)), reach[t].max(axis=1)))
        beyond = ~(peak <= largest)
        reach[start : start + length, beyond] = size[beyond] = np.inf
        finals.append(state)
        final_reach.append(size)
        start += length
    tolerance = _MARGIN * unit
    return {
        "o": _expected(outputs, tolerance * reach),
        "final": _expected(np.array(finals), tolerance * np.array(final_reach)),
    }


def _spread_lost(shape: Shape, *arrays: np.ndarray) -> None:
    """Make everything NaN that belongs to a head of a sequence with something that is not finite."""
    start = 0
    for length in shape.lengths:
        for head in range(shape.heads):
            parts = [array[start : start + length, head] for array in arrays]
            if not all(np.isfinite(part).all() for part in parts):
                for part in parts:
                    part[...] = np.nan
        start += length


def _expected(value: np.ndarray, error: np.ndarray) -> Expected:
    """Return what to expect; nothing in particular where the recurrence or its error is not finite."""
    lost = ~np.isfinite(value) | ~np.isfinite(error)
    return Expected(np.where(lost, 0, value), np.where(lost, np.inf, error + 1e-6))
