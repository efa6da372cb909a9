"""MBH: block recursion from single elements up (Bunch and Hopcroft 1974; arXiv 2605.21325)."""

from __future__ import annotations

import numpy as np
from pydantic import FiniteFloat, PositiveInt

from npusim import Builder, isa, program

from ._tri import Family, Operands, Overflow, Result, Side, Triangle, declare, identity, places, sizes
from ._tri_bounds import identity_like, merged, settled
from ._tri_chain import FRACTAL, Chain
from ._tri_cube import Setup, launch_chains, merge_blocks, pair

_SIZES = (8, 4, 2)
"""Blocks smaller than a fractal that are cut out of sixteen-blocks."""


class Tiles(Setup):
    """The tiles of `Setup`, one for what is on its way, one for each size of blocks below a fractal, and the
    fractals that choose blocks: the first of each pair, the second, and the negative of that.
    """

    def __init__(self, chain: Chain) -> None:
        super().__init__(chain)
        self.cut = chain.tile()
        self.rest, *self.parts = (chain.tile() for _ in range(1 + len(_SIZES)))
        self.choose = chain.fractals(3 * len(_SIZES))
        chain.load(self.choose, -2)


@program
def tri_inv_mbh(
    k: Builder,
    *,
    n: Side = 64,
    batch: PositiveInt = 40,
    dtype: Operands = "float16",
    out: Result = "auto",
    triangle: Triangle = "upper",
    family: Family = "uniform",
    scale: FiniteFloat = 0.1,
    overflow: Overflow = "ieee",
) -> None:
    """Invert I + A for a batch by doubling inverted diagonal blocks from 1 x 1 to n x n, on the cubes.

    X = L + (I - L A) R, with L and R every other block of X. Blocks of 16 and more are picked fractal by
    fractal, as in MXR. Below, the parts of A that join two blocks are cut out of the sixteen-blocks by
    products with diagonal matrices of zeros and ones, which are exact, and X = X - (X part) X. Kernels of
    this method are not public; the cutting is this program's own.
    """
    at = places(k, n, batch)
    both = declare(k, "tri_inv_mbh", at, dtype, out, triangle=triangle, family=family, scale=scale)
    kind = both.kind
    lower = triangle == "lower"
    constants = [identity(k, "minus", n, -1.0, kind), k.constant("choose", choosers(lower, kind), kind)]

    def invert(s: Tiles, y: isa.Tile, number: int, turn: int) -> None:
        p, q = pair(turn, 2)
        small_blocks(s, y, p, q)
        if n == FRACTAL:
            s.chain.store(number, q)
        else:
            merge_blocks(s, y, p, q, number, FRACTAL, lower=lower)

    launch_chains(k, both, constants, Tiles, invert, overflow=overflow)

    def bound(strict: np.ndarray) -> np.ndarray:
        return settled(merged(strict, identity_like(strict), 1, kind.np).error)

    both.check_with(k, bound)


def choosers(lower: bool, kind: isa.DType) -> np.ndarray:
    """Return fractals that choose the rows of the first block of each pair of a size, the columns of the
    second, and the negative of that; the order of a pair is that of rows and columns of A.
    """
    found = []
    for size in _SIZES:
        second = np.arange(FRACTAL) // size % 2
        if lower:
            second = 1 - second
        found += [np.diag(1 - second), np.diag(second), np.diag(-second)]
    return np.concatenate(found).astype(np.float32).astype(kind.np)


def small_blocks(s: Tiles, y: isa.Tile, p: int, q: int) -> None:
    """Put inverted sixteen-blocks into `s.x` and -A into `s.negative`; blocks double from 1 to 16.

    What is left of -A in the diagonal blocks of a size has one part that joins pairs of half the size; so
    parts are cut off from 8 down to 2, and what then is left joins single elements.
    """
    chain = s.chain
    chain.left(p, s.minus)
    chain.right(p, y)
    chain.product(p, p, p)
    chain.keep(s.negative, p)
    chain.left(q, s.one)
    chain.right(q, s.zero)
    chain.settle(("b", q))
    chain.right_blocks(q, s.negative, range(chain.n // FRACTAL))
    chain.product(q, q, q)
    chain.keep(s.rest, q)
    for i, part in enumerate(s.parts):
        chain.repeated(("a", p), s.zero, s.choose, 3 * i)
        chain.right(p, s.rest)
        chain.product(q, p, p)
        chain.keep(s.cut, q)
        chain.product(p, q, p)  # I times what was left
        chain.left(p, s.cut)
        chain.repeated(("b", q), s.zero, s.choose, 3 * i + 1)
        chain.product(q, p, q)
        chain.keep(part, q)
        chain.repeated(("b", q), s.zero, s.choose, 3 * i + 2)
        chain.product(p, p, q, add=True)
        chain.keep(s.rest, p)
    chain.left(p, s.one)
    chain.right(p, s.one)
    chain.product(q, p, p)
    chain.right(q, s.rest)
    chain.product(q, p, q, add=True)
    chain.keep(s.x, q)
    for part in reversed(s.parts):
        chain.left(p, s.x)
        chain.right(p, part)
        chain.product(p, p, p)
        chain.keep(y, p)
        chain.right(q, s.one)
        chain.product(q, p, q)
        chain.left(p, y)
        chain.right(p, s.x)
        chain.product(q, p, p, add=True)
        chain.keep(s.x, q)


tri_inv_mbh.from_inputs(sizes)
