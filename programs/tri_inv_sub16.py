"""The library baseline: substitution in sixteen-blocks on the vector unit, merges in float32 on the cube, as
the kernels of flash-linear-attention do it (facts in arXiv 2605.21325 and its code).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np
from pydantic import FiniteFloat, PositiveInt

from npusim import Builder, Kernel, Pipe, isa, program
from npusim.units import ceil_div

from ._tri import Family, Overflow, Side, Triangle, declare, keep_infinities, places, sizes
from ._tri_bounds import Rough, block_diagonal, blocks_of, exact, identity_like, merged, settled
from ._tri_sub16 import BLOCK, Substitution

Merge = Literal["blocks", "doubling"]


@program
def tri_inv_sub16(
    k: Builder,
    *,
    n: Side = 64,
    batch: PositiveInt = 40,
    dtype: Literal["float16", "bfloat16", "float32"] = "float16",
    triangle: Triangle = "lower",
    merge: Merge = "blocks",
    family: Family = "uniform",
    scale: FiniteFloat = 0.1,
    overflow: Overflow = "ieee",
) -> None:
    """Invert I + A for a batch by substitution in blocks of 16 on the vector units, and merges on the cubes.

    The first launch inverts the diagonal blocks in float32, eight at once, row after row, and leaves -A in
    float32. The second makes the other blocks of 16, diagonal by diagonal: T_ii times the sum of -A_ik T_kj;
    `merge=doubling` joins ever larger blocks instead, which takes fewer products. There is no way for
    float32 from L0C to L1, so each product goes through global memory, one after the other. Results are
    float32.
    """
    at = places(k, n, batch)
    both = declare(k, "tri_inv_sub16", at, dtype, "float32", triangle=triangle, family=family, scale=scale)
    a, t = both.a, both.t
    blocks = Substitution(k, n, batch, both.kind, triangle)
    negative = k.workspace("negative", at.shape, "float32") if n > BLOCK else None
    cores = min(k.chip.cores.cube * k.chip.cores.vector_per_cube, blocks.groups)

    def vector(c: Kernel) -> Iterator[isa.Instruction]:
        yield from keep_infinities(overflow)
        yield from blocks.stream(c, cores, a, t, negative)

    k.launch("tri_inv_sub16", vector=vector, blocks=cores, autosync=True)
    if negative is not None:
        cubes = min(k.chip.cores.cube, batch)
        pairs = list((diagonals if merge == "blocks" else doublings)(n, triangle))

        def cube(c: Kernel) -> Iterator[isa.Instruction]:
            yield from keep_infinities(overflow)
            yield from merge_stream(c, n, range(c.block, batch, cubes), negative, products, t, pairs)

        products = k.workspace("products", at.shape, "float32")
        k.launch("tri_inv_sub16_merge", cube=cube, blocks=cubes)

    def bound(lower: np.ndarray) -> np.ndarray:
        return settled(merged_error(lower, merge))

    both.check_with(k, bound)


def substituted(lower: np.ndarray) -> Rough:
    """Bound substitution in the diagonal blocks: sums of 16 products in float32, rows that depend on rows."""
    blocks = blocks_of(lower, BLOCK)
    found = identity_like(blocks)
    value, error = found.value.copy(), found.error.copy()
    for i in range(1, BLOCK):
        row = blocks[:, :, i : i + 1, :i]
        sums = row @ value[:, :, :i]
        reach = np.abs(row) @ (np.abs(value[:, :, :i]) + error[:, :, :i])
        value[:, :, i] -= sums[:, :, 0]
        lost = np.abs(row) @ error[:, :, :i] + 8 * 2.0**-24 * reach
        error[:, :, i] = lost[:, :, 0] + 2.0**-24 * np.abs(value[:, :, i])
    return block_diagonal(Rough(value, error))


def merged_error(lower: np.ndarray, merge: Merge) -> np.ndarray:
    """Bound the merges, whose products are kept in float32."""
    single = np.dtype(np.float32)
    x = substituted(lower)
    if merge == "doubling":
        return merged(lower, x, BLOCK, single).error
    value, error = x.value.copy(), x.error.copy()
    for (r0, r1), (c0, c1), (d0, d1) in diagonals(lower.shape[-1], "lower"):
        below = Rough(value[:, d0:d1, c0:c1], error[:, d0:d1, c0:c1])
        own = Rough(value[:, r0:r1, r0:r1], error[:, r0:r1, r0:r1])
        sums = (exact(-lower[:, r0:r1, d0:d1]) @ below).rounded(single)
        found = (own @ sums).rounded(single)
        value[:, r0:r1, c0:c1], error[:, r0:r1, c0:c1] = found.value, found.error
    return error


# ---- merges ------------------------------------------------------------------------------------------------


class _Pair(NamedTuple):
    """A part of the inverse to make, from and to: its rows, its columns, and what the products run over."""

    rows: tuple[int, int]
    columns: tuple[int, int]
    depth: tuple[int, int]


def diagonals(n: int, triangle: Triangle) -> Iterator[_Pair]:
    """Yield the blocks of 16 outside the diagonal, those close to it first."""
    for far in range(BLOCK, n, BLOCK):
        for start in range(0, n - far, BLOCK):
            first, second = (start, start + BLOCK), (start + far, start + far + BLOCK)
            if triangle == "lower":
                yield _Pair(second, first, (start, start + far))
            else:
                yield _Pair(first, second, (start + BLOCK, start + far + BLOCK))


def doublings(n: int, triangle: Triangle) -> Iterator[_Pair]:
    """Yield what joins two blocks, small ones first; the last one of a size may be smaller."""
    size = BLOCK
    while size < n:
        for start in range(0, n - size, 2 * size):
            first, second = (start, start + size), (start + size, min(start + 2 * size, n))
            rows, columns = (second, first) if triangle == "lower" else (first, second)
            yield _Pair(rows, columns, columns)
        size *= 2


def merge_stream(
    c: Kernel,
    n: int,
    matrices: range,
    negative: isa.Tile,
    products: isa.Tile,
    t: isa.Tile,
    pairs: list[_Pair],
) -> Iterator[isa.Instruction]:
    """Yield the merges of some matrices: for each pair two products, each stored before the next starts."""
    side = 1 << ((n - 1).bit_length() - 1)
    middle, outer, inner = (c.l1((side, side), isa.F32) for _ in range(3))
    a0, b0 = c.l0a((side, side), isa.F32), c.l0b((side, side), isa.F32)
    acc = c.l0c((side, side), isa.F32)
    loaded, ready = c.flag(Pipe.MTE2, Pipe.MTE1), c.flag(Pipe.MTE1, Pipe.M)
    done, stored = c.flag(Pipe.M, Pipe.FIX), c.flag(Pipe.FIX, Pipe.MTE2)

    def multiply(left: isa.Tile, m: int, depth: int, width: int, to: isa.Tile) -> Iterator[isa.Instruction]:
        """Multiply `left` (m, depth) by what `inner` holds and store it."""
        yield loaded.set
        yield loaded.wait
        yield isa.load_a(a0, left, m, depth)
        yield from turned(b0, inner, depth, width)
        yield ready.set
        yield ready.wait
        yield isa.mmad(acc, a0, b0, m, depth, width, init=True)
        yield done.set
        yield done.wait
        yield isa.store_nd(to, acc, m, width, pitch=n)
        yield stored.set
        yield stored.wait

    for index in matrices:
        for (r0, r1), (c0, c1), (d0, d1) in pairs:
            m, width, depth = r1 - r0, c1 - c0, d1 - d0
            start = index * n * n
            corner = start + r0 * n + c0
            yield isa.nd_to_nz(middle, negative.flat(start + r0 * n + d0, 1), m, depth, pitch=n)
            yield isa.nd_to_nz(outer, t.flat(start + r0 * n + r0, 1), m, m, pitch=n)
            yield from strips(inner, t, start + d0 * n + c0, depth, width, n)
            yield from multiply(middle, m, depth, width, products.flat(corner, 1))
            yield from strips(inner, products, corner, m, width, n)
            yield from multiply(outer, m, m, width, t.flat(corner, 1))


def strips(
    dst: isa.Tile, src: isa.Tile, at: int, rows: int, columns: int, n: int
) -> Iterator[isa.Instruction]:
    """Load a matrix in strips of 16 rows, in which the squares that are turned lie one behind the other."""
    for i in range(ceil_div(rows, BLOCK)):
        target = dst.flat(i * BLOCK * columns, 1)
        yield isa.nd_to_nz(target, src.flat(at + i * BLOCK * n, 1), BLOCK, columns, pitch=n, height=BLOCK)


def turned(b0: isa.Tile, src: isa.Tile, depth: int, width: int) -> Iterator[isa.Instruction]:
    """Move strips to a right operand (depth, width) of float32."""
    squares = width // BLOCK
    for i in range(depth // BLOCK):
        yield isa.LoadDataWithTranspose(
            dst=b0.offset(2 * i * squares * 512),
            src=src.flat(i * BLOCK * width, 1),
            repeat=squares,
            dst_frac_gap=squares - 1,
        )


tri_inv_sub16.from_inputs(sizes)
