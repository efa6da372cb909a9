"""MCH: the product form of the Neumann series (arXiv 2605.21325; pto-kernels@abe6ecb, the "trick" kernel)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np
from pydantic import FiniteFloat, PositiveInt

from npusim import Builder, Kernel, isa, program

from ._tri import (
    Family,
    Operands,
    Overflow,
    Result,
    Side,
    Triangle,
    declare,
    identity,
    keep_infinities,
    places,
    sizes,
)
from ._tri_bounds import product_form, settled
from ._tri_chain import Chain, Played, Transfer


@program
def tri_inv_mch(
    k: Builder,
    *,
    n: Side = 64,
    batch: PositiveInt = 40,
    dtype: Operands = "float16",
    out: Result = "float32",
    triangle: Triangle = "upper",
    block: Literal[0, 16, 32, 64] = 0,
    family: Family = "uniform",
    scale: FiniteFloat = 0.1,
    overflow: Overflow = "ieee",
) -> None:
    """Invert I + A for a batch of strictly triangular matrices by (I - A)(I + A^2)(I + A^4)..., on the cubes.

    As the published kernel: one matrix for each block of the launch, one buffer of each kind, so that every
    step waits for the one before. Where A is zero outside diagonal blocks, `block` (0: n) stops the doubling
    there. The entries of powers grow like binomials before they vanish: float16 overflows for A of ones from
    n=32 on, and the result is NaN, or wrong with `overflow=saturate`.
    """
    at = places(k, n, batch)
    both = declare(k, "tri_inv_mch", at, dtype, out, triangle=triangle, family=family, scale=scale)
    kind = both.kind
    one, minus = identity(k, "one", n, 1.0, kind), identity(k, "minus", n, -1.0, kind)
    levels = ((block or n) - 1).bit_length() - 1
    played: list[Played] = []

    def cube(c: Kernel) -> Iterator[isa.Instruction]:
        yield from keep_infinities(overflow)
        if not played:
            played.append(product_chain(Chain(c, n, kind, 1), levels))

        def memory(transfer: Transfer) -> Iterator[isa.Instruction]:
            source = (both.a.flat(c.block * n * n, n * n), one, minus)
            if transfer.number < len(source):
                yield isa.nd_to_nz(transfer.tile, source[transfer.number], n, n)
            else:
                yield isa.store_nd(both.t.flat(c.block * n * n, n * n), transfer.tile, n, n)

        yield from played[0].stream(memory)

    k.launch("tri_inv_mch", cube=cube, blocks=batch)

    def bound(lower: np.ndarray) -> np.ndarray:
        return settled(product_form(lower, kind.np, levels=levels).error)

    both.check_with(k, bound)


def product_chain(chain: Chain, levels: int) -> Played:
    """Return the chain of one matrix: X = I - A and Y = A; X += X Y with Y = A^2, A^4, ..., `levels` of them.

    Numbers 0 to 2 load the matrix, I and -I, number 3 stores. There are three tiles of L1: -I is in the place
    of X until X is there.
    """
    one, x, y = (chain.tile() for _ in range(3))
    for tile, number in ((y, 0), (one, 1), (x, 2)):
        chain.load(tile, number)
    chain.left(0, one)
    chain.right(0, one)
    chain.product(0, 0, 0)
    chain.left(0, x)
    chain.right(0, y)
    chain.product(0, 0, 0, add=True)
    chain.keep(x, 0)
    for level in range(levels):
        chain.left(0, y)
        chain.right(0, y)
        chain.product(0, 0, 0)
        chain.keep(y, 0)
        chain.left(0, x)
        chain.right(0, one)
        chain.product(0, 0, 0)
        chain.right(0, y)
        chain.product(0, 0, 0, add=True)
        if level + 1 < levels:
            chain.keep(x, 0)
    chain.store(3, 0)
    return chain.played()


tri_inv_mch.from_inputs(sizes)
