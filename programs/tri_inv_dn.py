"""D+N: inverted diagonal blocks, then the product form of what is left, which is nilpotent in blocks
(megagdn-pto, issue 74).
"""

from __future__ import annotations

import numpy as np
from pydantic import FiniteFloat, PositiveInt

from npusim import Builder, isa, program

from ._tri import Family, Operands, Overflow, Result, Side, Triangle, declare, identity, places, sizes
from ._tri_bounds import block_diagonal, blocks_of, exact, identity_like, product_form, settled
from ._tri_chain import FRACTAL, Chain
from ._tri_cube import Setup, launch_chains, pair, product_blocks


class Tiles(Setup):
    """The tiles of `Setup`, one for the matrix itself, and one for the inverted blocks."""

    def __init__(self, chain: Chain) -> None:
        super().__init__(chain)
        self.blocks = chain.tile()


@program
def tri_inv_dn(
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
    """Invert I + D + N for a batch, D in the diagonal blocks of 16 and N outside, on the cubes.

    With B = (I + D)^-1 by the product form, and P = B N, which vanishes after n/16 powers, the inverse is
    (I - P)(I + P^2)(I + P^4)... B. The unstable product form is used on a bounded number of blocks twice.
    """
    at = places(k, n, batch)
    both = declare(k, "tri_inv_dn", at, dtype, out, triangle=triangle, family=family, scale=scale)
    kind = both.kind
    minus = identity(k, "minus", n, -1.0, kind)
    levels = max(0, (n // FRACTAL - 1).bit_length() - 1)

    def invert(s: Tiles, y: isa.Tile, number: int, turn: int) -> None:
        chain, (p, q) = s.chain, pair(turn, 2)
        product_blocks(s, y, p, q)  # B is in s.x, -A in s.negative
        if n == FRACTAL:
            chain.store(number, p)
            return
        chain.left(p, s.x)
        chain.right(p, s.negative)
        chain.settle(("b", p))
        for i in range(n // FRACTAL):
            chain.fractal(("b", p), s.zero, 0, i)
        chain.product(p, p, p)  # -P
        chain.keep(s.blocks, p)
        chain.left(q, s.blocks)
        chain.right(q, s.one)
        chain.left(p, s.one)
        chain.product(p, p, q)
        chain.product(p, q, q, add=True)
        chain.keep(y, p)  # Z = I - P
        for _ in range(levels):
            chain.left(q, s.blocks)
            chain.right(q, s.blocks)
            chain.product(q, q, q)  # the sign is gone from the first square on
            chain.keep(s.blocks, q)
            chain.left(p, y)
            chain.right(p, s.one)
            chain.product(p, p, p)
            chain.right(q, s.blocks)
            chain.product(p, p, q, add=True)
            chain.keep(y, p)
        chain.left(p, y)
        chain.right(p, s.x)
        chain.product(q, p, p)
        chain.store(number, q)

    launch_chains(k, both, [minus], Tiles, invert, overflow=overflow)

    def bound(lower: np.ndarray) -> np.ndarray:
        diagonal = blocks_of(lower, FRACTAL)
        inside = block_diagonal(product_form(diagonal, kind.np, levels=3))
        power = (inside @ exact(block_diagonal(exact(diagonal)).value - lower)).rounded(kind.np)
        z = (identity_like(lower) + power).rounded(kind.np)
        for _ in range(levels):
            power = (power @ power).rounded(kind.np)
            z = (z + z @ power).rounded(kind.np)
        return settled((z @ inside).error)

    both.check_with(k, bound)


tri_inv_dn.from_inputs(sizes)
