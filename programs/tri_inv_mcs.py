"""MCS: the column sweep as a product of elementary matrices (arXiv 2605.21325)."""

from __future__ import annotations

import numpy as np
from pydantic import FiniteFloat, PositiveInt

from npusim import Builder, isa, program
from npusim.isa.dtype import float_limits

from ._tri import Family, Operands, Overflow, Result, Side, Triangle, declare, identity, places, sizes
from ._tri_bounds import SINGLE, settled
from ._tri_chain import FRACTAL, Chain
from ._tri_cube import Setup, launch_chains, pair


class Tiles(Setup):
    """The tiles of `Setup`, one for the elementary matrix, and sixteen fractals with a single one."""

    def __init__(self, chain: Chain) -> None:
        super().__init__(chain)
        self.step, self.units = chain.tile(), chain.fractals(FRACTAL)
        chain.load(self.units, -2)


@program
def tri_inv_mcs(
    k: Builder,
    *,
    n: Side = 32,
    batch: PositiveInt = 20,
    dtype: Operands = "float16",
    out: Result = "auto",
    triangle: Triangle = "upper",
    family: Family = "uniform",
    scale: FiniteFloat = 0.1,
    overflow: Overflow = "ieee",
) -> None:
    """Invert I + A for a batch by n - 1 products with elementary matrices, on the cubes.

    X = M_k X, column after column, where M_k is I with column k of -A. The published kernel, which is not
    public, has the vector unit make the M_k; here the cube makes them itself, as I + (-A) E_k with a one at
    (k, k) in E_k, while the product before is on its way. Three products a column; the ones are exact.
    """
    at = places(k, n, batch)
    both = declare(k, "tri_inv_mcs", at, dtype, out, triangle=triangle, family=family, scale=scale)
    kind = both.kind
    units = np.eye(FRACTAL)[:, None, :] * np.eye(FRACTAL)[:, :, None]
    constants = [
        identity(k, "minus", n, -1.0, kind),
        k.constant("units", units.reshape(-1, FRACTAL).astype(kind.np), kind),
    ]
    columns = range(n - 1) if triangle == "lower" else range(n - 1, 0, -1)

    def invert(s: Tiles, y: isa.Tile, number: int, turn: int) -> None:
        chain, (p, q) = s.chain, pair(turn, 2)
        chain.left(q, s.minus)
        chain.right(q, y)
        chain.product(q, q, q)
        chain.keep(s.negative, q)
        source = s.one
        for column in columns:
            place, unit = divmod(column, FRACTAL)
            chain.left(q, s.one)
            chain.right(q, s.one)
            chain.product(q, q, q)
            chain.left(q, s.negative)
            chain.right(q, s.zero)
            chain.settle(("b", q))
            chain.fractal(("b", q), s.units, unit, place)
            chain.product(q, q, q, add=True)
            chain.keep(s.step, q)
            chain.left(p, s.step)
            chain.right(p, source)
            chain.product(p, p, p)
            source = s.x
            if column != columns[-1]:
                chain.keep(s.x, p)
        chain.store(number, p)

    launch_chains(k, both, constants, Tiles, invert, at_once=1, overflow=overflow)

    def bound(lower: np.ndarray) -> np.ndarray:
        return settled(sweep_error(lower, kind.np))

    both.check_with(k, bound)


def sweep_error(lower: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return how far a column sweep may be off: every step adds one product to each element and rounds it."""
    info = float_limits(dtype)
    n = lower.shape[-1]
    value = np.broadcast_to(np.eye(n), lower.shape).copy()
    error = np.zeros_like(value)
    for column in range(n - 1):
        x, e = value[:, column, None, :], error[:, column, None, :]
        below = lower[:, :, column, None]
        error += np.abs(below) * e
        reach = np.abs(value) + error + np.abs(below * x)
        value = value - below * x
        touched = below != 0
        error += touched * (4 * SINGLE * reach)
        reach = np.abs(value) + error
        error += touched * (float(info.eps) / 2 * reach + float(info.smallest_subnormal))
        spilled = ~(reach <= float(info.max)).all(axis=(1, 2))
        error[spilled] = np.inf
    return error


tri_inv_mcs.from_inputs(sizes)
