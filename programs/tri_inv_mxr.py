"""MXR: product form inside 16 x 16 blocks, then block recursion (arXiv 2605.21325; pto-kernels@abe6ecb)."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import FiniteFloat, PositiveInt

from npusim import Builder, isa, program

from ._tri import Family, Layout, Operands, Overflow, Result, Side, Triangle, declare, identity, places, sizes
from ._tri_bounds import block_diagonal, blocks_of, merged, product_form, settled
from ._tri_chain import FRACTAL
from ._tri_cube import Setup, launch_chains, merge_blocks, pair, product_blocks


@program
def tri_inv_mxr(
    k: Builder,
    *,
    n: Side = 64,
    batch: PositiveInt = 80,
    dtype: Operands = "float16",
    out: Result = "auto",
    triangle: Triangle = "upper",
    reuse: bool = False,
    squares: Literal["first", "last"] = "first",
    family: Family = "uniform",
    scale: FiniteFloat = 0.1,
    layout: Layout = "head_first",
    heads: PositiveInt = 1,
    lengths: str = "",
    overflow: Overflow = "ieee",
    buffers: Literal[2, 3, 4] = 2,
) -> None:
    """Invert I + A for a batch of strictly triangular n x n matrices on the cubes of all cores, by MXR.

    Sixteen-blocks on the diagonal are inverted by (I - D)(I + D^2)(I + D^4)(I + D^8); then blocks double:
    X = L + (I - L A) R, with L and R every other block of X. Results leave L0C rounded to `dtype` for L1
    and to `out` for global memory (auto: as `dtype`). `reuse` keeps X in the accumulator instead of bringing
    it back by a product with the identity. `squares` says whether Y = Y Y goes to the cube before X += X Y
    of the same level, as the published kernel is described, or behind it. A core takes 1, 2 or 4 matrices in
    turn, as the published kernel; with two `buffers` n=128 fills L0A, L0B and L0C. `seq_first` takes
    (tokens, heads, n), `lengths` packs sequences. `overflow=saturate` is the mode after reset: infinities
    become the largest number, NaN zero.
    """
    at = places(k, n, batch, layout, heads, lengths)
    both = declare(k, "tri_inv_mxr", at, dtype, out, triangle=triangle, family=family, scale=scale)
    minus = identity(k, "minus", n, -1.0, both.kind)

    def invert(s: Setup, y: isa.Tile, number: int, turn: int) -> None:
        p, q = pair(turn, buffers)
        product_blocks(s, y, p, q, reuse=reuse, squares_last=squares == "last")
        if n == FRACTAL:
            s.chain.store(number, p)
        else:
            merge_blocks(s, y, p, q, number, FRACTAL, lower=triangle == "lower")

    launch_chains(k, both, [minus], Setup, invert, buffers=buffers, overflow=overflow)

    def bound(lower: np.ndarray) -> np.ndarray:
        kind = both.kind.np
        blocks = block_diagonal(product_form(blocks_of(lower, FRACTAL), kind, levels=3))
        return settled(merged(lower, blocks, FRACTAL, kind).error)

    both.check_with(k, bound)


tri_inv_mxr.from_inputs(sizes)
