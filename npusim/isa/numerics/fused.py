"""The `fused-exact` rule: a block of k0 products and the accumulator, added in real arithmetic, rounded once.

Per block, BLAS gives the float64 product P, whose summation order is unknown. Two proofs make the result
independent of it:

- *Exact*: the certificates of both operands show that P is the real sum. Then `s = P + acc` rounds once, and
  the float32 cast of `s` can only go wrong if the addition was inexact *and* left `s` on a float32 midpoint.
  If every value in play is a multiple of g and |s| <= 2^53 g, the addition was exact; beyond that, midpoints
  are looked up and the error of the addition (TwoSum) decides.
- *Interval*: otherwise |s - real sum| <= d, with d computed from the norms. If s - d and s + d round to the
  same float32 that is the answer; the few others are added exactly, in integer limbs.
"""

from __future__ import annotations

import numpy as np

from npusim.isa.numerics.accumulator import Bounds, after_write, error_of
from npusim.isa.numerics.exact import (
    HIDDEN_TIES,
    exact_sum_to_odd,
    suspect_ties,
    to_f32,
    to_odd,
    two_sum_error,
)
from npusim.isa.numerics.formats import Array
from npusim.isa.numerics.profile import CubeNumerics

_SMALL_TILE = 1024  # up to this many outputs the cost is calls, not elements


def fused_exact(rule: CubeNumerics, bounds: Bounds, acc: Array, *, per_write: bool, saturate: bool) -> Array:
    """`acc + a @ b`; `acc` is (m, n) float32 in C order and is used up. `saturate` needs finite values."""
    blocks = len(bounds.exact)
    parts = _parts(bounds) if blocks > 1 and bounds.finite and rule.rounding == "rne" else None
    if parts is not None:
        return _part_by_part(rule, bounds, acc, parts, per_write=per_write, saturate=saturate)
    # worth asking where it saves more than one block
    if blocks > 1 and not per_write and bounds.never_rounds(acc):
        a, b = bounds.left.flat, bounds.right.flat
        return (a.T @ b + acc).astype(np.float32)
    if rule.rounding != "rne":
        return _directed(rule, bounds, acc, per_write=per_write, saturate=saturate)
    if not per_write and acc.size <= _SMALL_TILE and 1 < blocks == sum(bounds.exact):
        done = _chain(bounds, acc)
        if done is not None:
            return done
    return _block_by_block(rule, bounds, acc, per_write=per_write, saturate=saturate)


def _block_by_block(
    rule: CubeNumerics, bounds: Bounds, acc: Array, *, per_write: bool, saturate: bool
) -> Array:
    few = bounds.at_risk() if acc.size > _SMALL_TILE and any(bounds.exact) else None
    if few is not None and few[0].size and all(bounds.exact) and not per_write:
        # mostly none of the few goes wrong, so they are looked at once, and the blocks done again if need be
        done = _blocks_unrepaired(bounds, acc, few)
        if done is not None:
            return done
    limit = bounds.exact_up_to()
    s, out = np.empty(acc.shape), np.empty(acc.shape, np.float32)
    for b, exact in enumerate(bounds.exact):
        np.matmul(bounds.left.values[b].T, bounds.right.values[b], out=s)
        np.add(s, acc, out=s)
        np.copyto(out, s, casting="unsafe")
        if not exact:
            _settle(bounds, out, s, acc, b)
        elif few is None:
            if not _within(out, limit):
                i, j = np.divmod(_suspects(s, out, limit, bounds.grid), bounds.right.rows)
                _repair(bounds, out, s, acc, b, i, j)
        else:
            i, j = few
            if i.size and not _within(out[i, j], limit):
                at = _suspects(s[i, j], out[i, j], limit, bounds.grid)
                _repair(bounds, out, s, acc, b, i[at], j[at])
        if per_write:
            after_write(rule, out, saturate=saturate)
        acc, out = out, acc
    return acc


def _blocks_unrepaired(bounds: Bounds, acc: Array, few: tuple[Array, Array]) -> Array | None:
    """All blocks, exact products given; `None`, and `acc` as it was, if an addition to one of the few outputs
    may have gone wrong.
    """
    at = few[0] * bounds.right.rows + few[1]
    seen = np.empty((len(bounds.exact), at.size), np.float32)
    s, out, spare = np.empty(acc.shape), np.empty(acc.shape, np.float32), np.empty(acc.shape, np.float32)
    before = acc
    for b, after in enumerate(seen):
        np.matmul(bounds.left.values[b].T, bounds.right.values[b], out=s)
        np.add(s, before, out=s)
        np.copyto(out, s, casting="unsafe")
        out.take(at, out=after, mode="clip")  # "raise" would go by way of a buffer
        before, out = out, spare if before is acc else before
    return before if _within(seen, bounds.exact_up_to()) else None


Part = tuple[int, int, int, int]
"""Rows and columns of the outputs, from and to, that a block of products can change."""


def _parts(bounds: Bounds) -> list[Part] | None:
    """The part of the outputs that each block can change, where that is far less than all; zeros elsewhere
    leave the accumulator as it is.

    Triangles and diagonal blocks, as in inverses of triangular matrices, are mostly zeros.
    """
    size = bounds.left.rows * bounds.right.rows
    if size <= _SMALL_TILE:
        return None
    spans = zip(bounds.left.spans, bounds.right.spans, strict=True)
    parts = [(*rows, *columns) for rows, columns in spans]
    few = 2 * sum((i1 - i0) * (j1 - j0) for i0, i1, j0, j1 in parts) <= size * len(parts)
    return parts if few else None


def _part_by_part(
    rule: CubeNumerics, bounds: Bounds, acc: Array, parts: list[Part], *, per_write: bool, saturate: bool
) -> Array:
    """As `_block_by_block`, on the part of the outputs that each block can change."""
    limit = bounds.exact_up_to()
    for b, (i0, i1, j0, j1) in enumerate(parts):
        old = acc[i0:i1, j0:j1]
        if not old.size:
            continue
        s = bounds.left.values[b][:, i0:i1].T @ bounds.right.values[b][:, j0:j1]
        s += old
        out = s.astype(np.float32)
        if not bounds.exact[b]:
            _settle(bounds, out, s, old, b, (i0, j0))
        elif not _within(out, limit):
            i, j = np.divmod(_suspects(s, out, limit, bounds.grid), j1 - j0)
            _repair(bounds, out, s, old, b, i, j, (i0, j0))
        if per_write:
            after_write(rule, out, saturate=saturate)
        old[...] = out
    return acc


def _chain(bounds: Bounds, acc: Array) -> Array | None:
    """All blocks of a small tile, exact products given; `None` if an addition may have gone wrong."""
    product = np.matmul(bounds.left.values.transpose(0, 2, 1), bounds.right.values)
    states = np.empty((len(product) + 1, *acc.shape), np.float32)
    states[0] = acc
    for b, block in enumerate(product):
        np.add(block, states[b], out=states[b + 1], dtype=np.float64, casting="unsafe")
    before, after, limit = states[:-1], states[1:], bounds.exact_up_to()
    if not _within(after, limit):
        s = product + before
        at = _suspects(s, after, limit, bounds.grid)
        error = two_sum_error(s.ravel()[at], product.ravel()[at], before.ravel()[at].astype(np.float64))
        if error.any():
            return None
    last: Array = after[-1]
    return last


def _within(x: Array, limit: float) -> bool:
    return bool(np.maximum.reduce(x, None) <= limit and np.minimum.reduce(x, None) >= -limit)


def _suspects(s: Array, out: Array, limit: float, grid: float) -> Array:
    """Flat indices where `s`, cast to `out`, was a tie and may be inexact, or where ties cannot be seen."""
    beyond = np.flatnonzero(~(np.abs(out) <= limit))  # written so that NaN counts
    few = beyond.size * 8 < s.size
    seen = s.ravel()[beyond] if few else s.ravel()
    tie = suspect_ties(seen, hidden=grid < HIDDEN_TIES)
    suspects: Array = beyond[tie] if few else np.flatnonzero(tie)
    return suspects


def _repair(
    bounds: Bounds,
    out: Array,
    s: Array,
    acc: Array,
    b: int,
    i: Array,
    j: Array,
    start: tuple[int, int] = (0, 0),
) -> None:
    """Correct `out` at (i, j) where the addition that gave `s` was inexact; the products are exact.

    The arrays are the outputs from `start` on.
    """
    if i.size:
        left, right = bounds.left.values[b][:, i + start[0]], bounds.right.values[b][:, j + start[1]]
        product = np.add.reduce(left * right, axis=0)
        total = s[i, j]
        error = two_sum_error(total, product, acc[i, j].astype(np.float64))
        out[i, j] = to_odd(total, error).astype(np.float32)


def _settle(
    bounds: Bounds, out: Array, s: Array, acc: Array, b: int, start: tuple[int, int] = (0, 0)
) -> None:
    """Correct `out` where `s` may lie on the wrong side of a float32 midpoint; the arrays are the outputs
    from `start` on.
    """
    error = bounds.error(b)
    at = np.flatnonzero(_differ(s, error))
    if not at.size:
        return
    # one error bound for the whole tile is too much where norms differ widely
    i, j = np.divmod(at, out.shape[1])
    total = s[i, j]
    left, right = bounds.left.certificate.norm2[b], bounds.right.certificate.norm2[b]
    norm = np.sqrt(left[i + start[0]] * right[j + start[1]])
    error_here = error_of(len(bounds.left.values[b]), norm, np.abs(total))
    at = np.flatnonzero(_differ(total, error_here) & np.isfinite(total))
    if at.size:
        i, j = i[at], j[at]
        out[i, j] = _exact_elements(bounds, acc, b, i, j, start).astype(np.float32)


def _differ(s: Array, error: float | Array) -> Array:
    """Whether `s - error` and `s + error` round to different float32 bits."""
    end = s - error
    low = end.astype(np.float32)
    np.add(s, error, out=end)
    differ: Array = low.view(np.int32) != end.astype(np.float32).view(np.int32)
    return differ


def _exact_elements(
    bounds: Bounds, acc: Array, b: int, i: Array, j: Array, start: tuple[int, int] = (0, 0)
) -> Array:
    """Elements (i, j) of acc + block b, rounded to odd in float64; `acc` is the outputs from `start` on."""
    products = bounds.left.values[b][:, i + start[0]] * bounds.right.values[b][:, j + start[1]]
    return exact_sum_to_odd(np.vstack([products, acc[i, j]]).T)


def _directed(rule: CubeNumerics, bounds: Bounds, acc: Array, *, per_write: bool, saturate: bool) -> Array:
    """Any rounding mode: round each block sum to odd first. No preset needs it, so it is not tuned."""
    for b, exact in enumerate(bounds.exact):
        product = bounds.left.values[b].T @ bounds.right.values[b]
        s = product + acc
        odd = to_odd(s, two_sum_error(s, product, acc.astype(np.float64)))
        if not exact:
            i, j = np.nonzero(np.isfinite(s))
            odd[i, j] = _exact_elements(bounds, acc, b, i, j)
        acc = to_f32(odd, rule.rounding)
        if per_write:
            after_write(rule, acc, saturate=saturate)
    return acc
