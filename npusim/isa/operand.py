"""Where instructions find their data: spaces, operands, tiles, registers and immediates."""

from __future__ import annotations

import math
from collections.abc import Iterable
from enum import IntEnum
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from npusim.isa.dtype import DType


class Space(IntEnum):
    """A named memory. `GM` is shared by all cores and made of segments; the others belong to one core."""

    GM = 0
    L1 = 1
    L0A = 2
    L0B = 3
    L0C = 4
    UB = 5
    BT = 6
    FB = 7

    @property
    def short(self) -> str:
        """Lower-case name, as printed in assembly text and used in chip files."""
        return self.name.lower()


class Pipe(IntEnum):
    """An in-order queue and its unit. `ALL` exists only as the operand of a barrier."""

    S = 0
    V = 1
    M = 2
    MTE1 = 3
    MTE2 = 4
    MTE3 = 5
    FIX = 6
    ALL = 7


class Operand(NamedTuple):
    """A typed start address: space, element type, byte address, and the segment when the space is GM."""

    space: Space
    dtype: DType
    address: int
    segment: int = 0

    def offset(self, nbytes: int) -> Operand:
        """Return the operand `nbytes` further on."""
        return Operand(self.space, self.dtype, self.address + nbytes, self.segment)

    def as_type(self, dtype: DType) -> Operand:
        """Return the same address seen as another element type."""
        return Operand(self.space, dtype, self.address, self.segment)

    def __str__(self) -> str:
        name = f"gm{self.segment}" if self.space is Space.GM else self.space.short
        return f"{name}:{self.dtype.short}@{self.address:#x}"


class Tile(Operand):
    """A typed window into a space: an operand with a shape in elements, dense and row-major.

    A tile is the operand of its first element and is passed wherever an operand is; two tiles with the same
    start are equal as operands. Slicing along the first axis, `flat`, `reshape` and `as_type` give further
    tiles.
    """

    shape: tuple[int, ...]

    def __new__(cls, at: Operand, shape: tuple[int, ...]) -> Self:
        """Make a tile of `shape` elements that starts at an operand."""
        tile = super().__new__(cls, at.space, at.dtype, at.address, at.segment)
        tile.shape = shape
        return tile

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes from the first to the last element."""
        return self.dtype.bytes_of(self.size)

    def flat(self, start: int, count: int) -> Tile:
        """Return `count` elements from element `start` on, as one row.

        Raises `IndexError` where they leave the tile.
        """
        if start < 0 or count < 0 or start + count > self.size:
            raise IndexError(f"elements {start}..{start + count} leave a tile of {self.size} elements")
        return Tile(self.offset(self.dtype.bytes_of(start)), (count,))

    def __getitem__(self, index: int | slice) -> Tile:  # type: ignore[override]  # rows, not tuple items
        """Return a row, or the rows of a slice with step 1."""
        rows, inner = self.shape[0], self.shape[1:]
        width = math.prod(inner)
        if isinstance(index, slice):
            start, stop, step = index.indices(rows)
            if step != 1:
                raise IndexError("a tile is sliced with step 1")
            return Tile(self.offset(self.dtype.bytes_of(start * width)), (max(0, stop - start), *inner))
        if not -rows <= index < rows:
            raise IndexError(f"row {index} of a tile with {rows} rows")
        return Tile(self.offset(self.dtype.bytes_of(index % rows * width)), inner or (1,))

    def reshape(self, *shape: int) -> Tile:
        """Return the same elements under another shape.

        Raises `ValueError` where the number of elements differs.
        """
        if math.prod(shape) != self.size:
            raise ValueError(f"a tile of {self.size} elements has no shape {shape}")
        return Tile(self, shape)

    def as_type(self, dtype: DType) -> Tile:
        """Return the same bytes seen as another element type, as one row."""
        return Tile(super().as_type(dtype), (self.nbytes * 8 // dtype.bits,))

    def __repr__(self) -> str:
        return f"Tile({self}, shape={self.shape})"


class Reg(NamedTuple):
    """A scalar register used as a value; its content never decides addresses, lengths or control."""

    index: int  # type: ignore[assignment]  # hides tuple.index

    def __eq__(self, other: object) -> bool:  # a register is not the immediate of its number
        return type(other) is Reg and self.index == other.index

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((Reg, self.index))

    def __str__(self) -> str:
        return f"r{self.index}"


class Imm(NamedTuple):
    """An immediate value, as its bits."""

    bits: int

    @classmethod
    def of(cls, value: float, dtype: DType) -> Self:
        """Return the bits of a Python number as an element of `dtype`, rounded once.

        Raises `OverflowError` for an integer outside the type.
        """
        if dtype.is_float:
            element = np.float32(value).astype(dtype.np) if dtype is DType.BF16 else np.array(value, dtype.np)
        else:
            element = np.array(int(value), dtype.np)
        return cls(int(element.view(f"u{dtype.np.itemsize}")))

    def __str__(self) -> str:
        return f"{self.bits:#x}"


Scalar = Reg | Imm | float
"""A value operand: a register, an immediate, or a number that becomes an immediate of the operand's type."""

REGISTERS = 64
"""Scalar registers that a stream may name; on the device the compiler manages them, so the number is ours."""


def from_bits(bits: int, dtype: DType) -> Any:
    """Return the NumPy scalar that bits stand for."""
    size = dtype.size
    return np.array(bits & ((1 << 8 * size) - 1), f"u{size}").view(dtype.np)[()]


class Access(NamedTuple):
    """Bytes that an instruction touches: runs of `size` bytes from `start`, repeated by counts and strides.

    `counts` and `strides` go from the outermost repetition to the innermost.
    """

    space: Space
    segment: int
    start: int
    size: int
    counts: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()

    def runs(self) -> list[tuple[int, int]]:
        """Return the touched bytes as sorted, disjoint half-open intervals that do not adjoin."""
        if not self.counts:
            return [(self.start, self.start + self.size)] if self.size else []
        starts, stops = self.bounds()
        return list(zip(starts.tolist(), stops.tolist(), strict=True))

    def bounds(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the starts and the ends of `runs()`."""
        starts = np.array([self.start], np.int64)
        size = self.size
        for count, stride in zip(reversed(self.counts), reversed(self.strides), strict=True):
            if stride == size and len(starts) == 1:
                size *= count
                continue
            starts = (np.arange(count, dtype=np.int64)[:, None] * stride + starts).ravel()
        if not size or not len(starts):
            return starts[:0], starts[:0]
        if len(starts) == 1 or int(np.diff(starts).min()) > size:  # in order, apart, as rows of matrices are
            return starts, starts + size
        lows, highs = zip(*merge_runs((low, low + size) for low in starts.tolist()), strict=True)
        return np.array(lows, np.int64), np.array(highs, np.int64)

    @property
    def total(self) -> int:
        """Bytes named, counting a byte once for every run that names it."""
        count = self.size
        for extent in self.counts:
            count *= extent
        return count


def merge_runs(runs: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Sort half-open intervals and join those that overlap or adjoin; empty ones vanish."""
    merged: list[tuple[int, int]] = []
    for start, stop in sorted(runs):
        if start == stop:
            continue
        if merged and start <= merged[-1][1]:
            if stop > merged[-1][1]:
                merged[-1] = (merged[-1][0], stop)
        else:
            merged.append((start, stop))
    return merged
