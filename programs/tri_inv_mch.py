"""MCH: the product form of the Neumann series (arXiv 2605.21325; pto-kernels@abe6ecb, the "trick" kernel)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

import numpy as np
from pydantic import PositiveInt

from npusim import Builder, Expected, Kernel, isa, program
from npusim.isa.dtype import element_type
from npusim.study.triangular_inputs import Family

from ._tri import (
    Overflow,
    Triangle,
    expected_inverse,
    identity,
    inverse_output,
    keep_infinities,
    places,
    sizes,
    triangular_input,
)
from ._tri_bounds import product_form, settled
from ._tri_chain import Chain, Played, Transfer


@program
def tri_inv_mch(
    k: Builder,
    *,
    n: Literal[16, 32, 64, 96, 128] = 64,
    batch: PositiveInt = 40,
    dtype: Literal["float16", "bfloat16"] = "float16",
    out: Literal["auto", "float16", "bfloat16", "float32"] = "float32",
    triangle: Triangle = "upper",
    block: Literal[0, 16, 32, 64] = 0,
    family: Family = "uniform",
    scale: float = 0.1,
    overflow: Overflow = "ieee",
) -> None:
    """Invert I + A for a batch of strictly triangular matrices by (I - A)(I + A^2)(I + A^4)..., on the cubes.

    As the published kernel: one matrix for each block of the launch, one buffer of each kind, so that every
    step waits for the one before. Where A is zero outside diagonal blocks, `block` (0: n) stops the doubling
    there. The entries of powers grow like binomials before they vanish: float16 overflows for A of ones from
    n=32 on, and the result is NaN, or wrong with `overflow=saturate`.
    """
    at = places("tri_inv_mch", n, batch)
    a = triangular_input(k, at, dtype, family, scale, triangle)
    result = dtype if out == "auto" else out
    t = inverse_output(k, at, result)
    kind = element_type(dtype)
    one, minus = identity(k, "one", n, 1.0, kind), identity(k, "minus", n, -1.0, kind)
    levels = ((block or n) - 1).bit_length() - 1
    played: list[Played] = []

    def cube(c: Kernel) -> Iterator[isa.Instruction]:
        yield from keep_infinities(overflow)
        if not played:
            played.append(product_chain(Chain(c, n, kind, 1), levels))

        def memory(transfer: Transfer) -> Iterator[isa.Instruction]:
            source = (a.flat(c.block * n * n, n * n), one, minus)
            if transfer.number < len(source):
                yield isa.nd_to_nz(transfer.tile, source[transfer.number], n, n)
            else:
                yield isa.store_nd(t.flat(c.block * n * n, n * n), transfer.tile, n, n)

        yield from played[0].stream(memory)

    k.launch("tri_inv_mch", cube=cube, blocks=batch)

    @k.reference
    def expected(inputs: Mapping[str, np.ndarray]) -> dict[str, Expected]:
        def bound(lower: np.ndarray) -> np.ndarray:
            return settled(product_form(lower, kind.np, levels=levels).error)

        return {"t": expected_inverse("tri_inv_mch", inputs, at, triangle, result, bound)}


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
