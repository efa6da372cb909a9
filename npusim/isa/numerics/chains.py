"""The `sequential` and `tree` rules: float32 arithmetic in a stated order."""

from __future__ import annotations

import numpy as np

from npusim.isa.numerics.accumulator import Bounds, after_write
from npusim.isa.numerics.formats import Array
from npusim.isa.numerics.profile import CubeNumerics


def sequential(rule: CubeNumerics, bounds: Bounds, acc: Array, *, per_write: bool, saturate: bool) -> Array:
    """One float32 FMA per product, k ascending; `acc` (m, n) float32 is updated in place and returned.

    Operands have at most 12 significant bits. An FMA through float64 then rounds once: a product of at most
    24 bits and a float32 add in 53 >= 2 * 24 + 2 bits (Figueroa 1995), and where the product is outside the
    float32 range the sum is exact or far from any midpoint.
    """
    a, b = bounds.left.flat, bounds.right.flat
    if _products_are_float32(bounds):
        a, b = a.astype(np.float32), b.astype(np.float32)
    step = np.empty(acc.shape, a.dtype)
    for k in range(len(a)):
        np.multiply(a[k][:, None], b[k], out=step)
        if step.dtype == np.float32:
            np.add(acc, step, out=acc)
        else:
            np.add(step, acc, out=step)
            np.copyto(acc, step, casting="unsafe")
        if per_write:
            after_write(rule, acc, saturate=saturate)
    return acc


def tree(rule: CubeNumerics, bounds: Bounds, acc: Array, *, per_write: bool, saturate: bool) -> Array:
    """Float32 products, a balanced float32 tree over k0 of them, then one float32 add of the accumulator."""
    a, b = bounds.left.narrow, bounds.right.narrow
    for block in range(len(a)):
        pending: list[tuple[int, Array]] = []  # (height, partial sum): a binary counter of finished subtrees
        for k in range(rule.k0):
            height, partial = 0, a[block, k][:, None] * b[block, k]
            while pending and pending[-1][0] == height:
                partial = pending.pop()[1] + partial
                height += 1
            pending.append((height, partial))
        acc = acc + pending[0][1]
        if per_write:
            after_write(rule, acc, saturate=saturate)
    return acc


def _products_are_float32(bounds: Bounds) -> bool:
    """Whether every product is a float32: always for float16, else if none overflows or underflows."""
    if bounds.left.dtype == np.float16:
        return True
    la, lb = bounds.left.certificate, bounds.right.certificate
    return la.unit * lb.unit >= 2.0**-149 and max(la.norm2_max) * max(lb.norm2_max) < 2.0**252
