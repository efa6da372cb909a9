"""Fractal layouts: where the elements of a matrix lie in L1, L0A, L0B and L0C.

A fractal is 16 rows of 32 bytes (C0); in L0C it is 16 x 16 elements. A layout is two letters: the order of
the fractals, then the order inside one; Z goes along rows first, N along columns first. L1 is NZ, L0A ZZ (NZ
on 3510), L0B ZN, L0C NZ (asc-devkit Mmad and LoadData pages, H).
"""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple, cast

import numpy as np

from npusim.config.chip import Chip
from npusim.isa.dma.movement import touched
from npusim.isa.dtype import S4, DType
from npusim.isa.instruction import Array, CoreView
from npusim.isa.operand import Access, Operand
from npusim.units import ceil_div

ROWS = 16
"""Rows of a fractal, and columns of one in L0C."""
C0 = 32
"""Bytes of a row of a fractal outside L0C."""


class Order(Enum):
    """Order of the fractals in L0A."""

    ZZ = "ZZ"
    """Row by row of fractals (2201 and before)."""
    NZ = "NZ"
    """Column by column of fractals (3510)."""


def l0a_order(core: CoreView) -> Order:
    """Return the order of the fractals in L0A of the chip that a core belongs to."""
    chip: Chip = cast(Any, core).chip
    return Order(chip.cube.l0a_layout)


class Part(NamedTuple):
    """Blocks along one axis that all hold the same number of items."""

    first: int
    blocks: int
    size: int


def parts(extent: int, block: int) -> tuple[Part, ...]:
    """Cut an extent into whole blocks and a tail; what is empty is left out."""
    whole, tail = divmod(extent, block)
    found = (Part(0, whole, block), Part(whole, 1, tail))
    return tuple(p for p in found if p.blocks and p.size)


def c0_elements(dtype: DType) -> int:
    """Elements in a row of a fractal: the k0 of the cube."""
    return C0 * 8 // dtype.bits


def gather(
    core: CoreView, at: Operand, rows: int, depth: int, *, row_stride: int, column_stride: int
) -> Array:
    """Return `rows` x `depth` elements that lie in fractals with C0 along the depth, as a new row-major
    array.

    `S4` elements come out as one `int8` each. The lanes of the last fractals beyond the extents are skipped.
    """
    packed = at.dtype is S4
    nbytes = 1 if packed else at.dtype.size
    shape = ceil_div(rows, ROWS), ceil_div(depth, c0_elements(at.dtype)), ROWS, C0 // nbytes
    blocks = core.view(at, shape, (row_stride, column_stride, C0, nbytes))
    matrix = blocks.transpose(0, 2, 1, 3).reshape(shape[0] * ROWS, -1)
    if packed:
        matrix = unpack_s4(matrix)
    return matrix[:rows, :depth]


def unpack_s4(packed: Array) -> Array:
    """Return one `int8` per nibble of a byte matrix, the low nibble first."""
    signed = packed.view(np.int8)
    pairs = np.stack((np.left_shift(signed, 4) >> 4, signed >> 4), axis=-1)
    return pairs.reshape(packed.shape[0], -1)


def l0c_accesses(at: Operand, m: int, n: int, rows: int) -> tuple[Access, ...]:
    """Return the bytes of an m x n tile of 4-byte elements in L0C whose columns of fractals are `rows` rows
    high.
    """
    return tuple(
        touched(at, p.first * rows * 64, p.size * 4, (p.blocks, rows * 64), (m, 64)) for p in parts(n, ROWS)
    )


def l0c_views(core: CoreView, at: Operand, m: int, n: int, rows: int) -> list[tuple[Part, Array]]:
    """Return the columns of fractals of an L0C tile as views (fractals, m, columns), whole ones first."""
    return [
        (p, core.view(at.offset(p.first * rows * 64), (p.blocks, m, p.size), (rows * 64, 64, 4)))
        for p in parts(n, ROWS)
    ]
