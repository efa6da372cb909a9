"""Newton-Schulz iteration for triangular inverses (arXiv 2605.21325; pto-kernels@abe6ecb)."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field, FiniteFloat, NonNegativeInt, PositiveInt

from npusim import Builder, isa, program
from npusim.isa.dtype import float_limits

from ._tri import (
    Family,
    Operands,
    Overflow,
    Result,
    Side,
    Triangle,
    declare,
    exact_inverse,
    identity,
    places,
    sizes,
)
from ._tri_chain import Chain
from ._tri_cube import launch_chains, pair


class Tiles:
    """Tiles of L1 that stay: X, Y, -I, I, 2I and the multiple of the identity that X starts from."""

    def __init__(self, chain: Chain) -> None:
        self.chain = chain
        self.x, self.y, self.minus, self.one, self.two, self.start = (chain.tile() for _ in range(6))
        chain.load(self.minus, -1)
        chain.load(self.start, -2)
        chain.left(0, self.minus)
        chain.right(0, self.minus)
        chain.product(0, 0, 0)
        chain.keep(self.one, 0)
        chain.product(0, 0, 0, add=True)
        chain.keep(self.two, 0)


@program
def tri_inv_newton(
    k: Builder,
    *,
    n: Side = 64,
    batch: PositiveInt = 40,
    dtype: Operands = "float16",
    out: Result = "float32",
    triangle: Triangle = "upper",
    iterations: NonNegativeInt = 0,
    start: Annotated[FiniteFloat, Field(ge=0)] = 0.0,
    family: Family = "uniform",
    scale: FiniteFloat = 0.1,
    overflow: Overflow = "ieee",
) -> None:
    """Invert I + A for a batch of strictly triangular matrices by Newton-Schulz iteration, on the cubes.

    X = I / (2 n), then X = 2 X - X (I + A) X, `iterations` times (0: 12, or twice the logarithm of n where
    that is more). `start` replaces 1 / (2 n). A step repairs what rounding did to X before, and the last sum
    leaves in float32, so float32 results are far better than those of direct methods. Every step is two
    products and one with 2 I, which brings X to the accumulator.
    """
    at = places(k, n, batch)
    both = declare(k, "tri_inv_newton", at, dtype, out, triangle=triangle, family=family, scale=scale)
    kind = both.kind
    constants = [
        identity(k, "minus", n, -1.0, kind),
        identity(k, "start", n, start or 0.5 / n, kind),
    ]
    count = iterations or max(12, 2 * (n - 1).bit_length())

    def invert(s: Tiles, m: isa.Tile, number: int, turn: int) -> None:
        chain, (p, q) = s.chain, pair(turn, 2)
        chain.left(p, s.minus)
        chain.right(p, m)
        chain.product(p, p, p)
        chain.right(q, s.one)
        chain.product(p, p, q, add=True)
        chain.keep(m, p)  # -(I + A)
        chain.right(p, m)
        chain.left(q, s.two)
        for step in range(count):
            source = s.x if step else s.start
            chain.left(p, source)
            chain.right(q, source)
            chain.product(p, p, p)
            chain.keep(s.y, p)
            chain.product(q, q, q)
            chain.left(p, s.y)
            chain.product(q, p, q, add=True)
            if step + 1 < count:
                chain.keep(s.x, q)
        chain.store(number, q)

    launch_chains(k, both, constants, Tiles, invert, overflow=overflow)

    def bound(lower: np.ndarray) -> np.ndarray:
        return newton_error(lower, count, start or 0.5 / n, kind.np)

    both.check_with(k, bound)


def newton_error(lower: np.ndarray, count: int, start: float, dtype: np.dtype) -> np.ndarray:
    """Return how far the iteration may be off after `count` steps.

    Once converged, X is the inverse T with an error d of half a unit of T, from rounding; a step leaves
    d (I + A) d, what rounding Y = -X (I + A) does to Y X, and float32 sums. What convergence leaves is the
    difference of exact iterates from T. Infinite where an iterate may overflow, or get so large that its
    rounding is not repaired in time.
    """
    info = float_limits(dtype)
    unit = float(info.eps)
    n = lower.shape[-1]
    eye = np.eye(n)
    matrix = eye + lower
    x = np.broadcast_to(start * eye, lower.shape)
    largest = np.zeros(len(lower))
    for _ in range(count):
        y = -x @ matrix
        for part in (x, y):
            largest = np.maximum(largest, np.abs(part).max(axis=(1, 2)))
        x = 2 * x + y @ x
    t = exact_inverse(lower)
    size = np.abs(t)
    d = 2 * unit * size + float(info.smallest_subnormal)
    whole = eye + np.abs(lower)
    reach = size @ whole
    y = unit * (eye + d @ whole) + float(info.smallest_subnormal)
    error = d @ whole @ d + y @ size + (n + 4) * 2.0**-24 * (size + reach @ size)
    error = 4 * error + np.abs(x - t)
    lost = ~(largest * unit < 1) | ~(np.abs(d @ whole).sum(axis=2).max(axis=1) < 0.5)
    return np.where(lost[:, None, None], np.inf, error)


tri_inv_newton.from_inputs(sizes)
