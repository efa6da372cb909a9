"""The memories of the functional machine: byte arrays, typed views, registers and the scalar data cache."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from npusim.config.chip import Chip
from npusim.errors import OperandError
from npusim.isa.dtype import S4, DType
from npusim.isa.instruction import Array
from npusim.isa.numerics.profile import NumericsProfile
from npusim.isa.operand import REGISTERS, Imm, Operand, Reg, Scalar, Space, from_bits
from npusim.units import grouped

_VIEWS_KEPT = 1 << 16
_L0C = Space.L0C


@dataclass(frozen=True, slots=True)
class Segment:
    """A named part of global memory and its bytes."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    data: Array
    """`uint8`, one entry per byte."""

    def fill(self, array: Array) -> None:
        """Put the elements of an array into the segment, S4 elements two to a byte, low nibble first."""
        flat: Array = array.reshape(-1).view(np.uint8)
        if self.dtype is S4:
            flat = flat & 0xF
            self.data[: flat.size // 2 + flat.size % 2] = flat[::2]
            self.data[: flat.size // 2] |= flat[1::2] << 4
        else:
            self.data[:] = flat

    def array(self) -> Array:
        """Return the segment as a typed array, which shares its bytes unless they hold two elements."""
        if self.dtype is S4:
            pairs = np.stack([self.data << 4, self.data & 0xF0], axis=-1).view(np.int8) >> 4
            return pairs.reshape(-1)[: math.prod(self.shape)].reshape(self.shape)
        return self.data[: math.prod(self.shape) * self.dtype.size].view(self.dtype.np).reshape(self.shape)


class CoreMemory:
    """The memories, registers and data cache of one core; the `CoreView` that instructions execute on."""

    def __init__(
        self, chip: Chip, spaces: tuple[Space, ...], segments: list[Segment], profile: NumericsProfile
    ) -> None:
        self.chip = chip
        self.profile = profile
        self.compare_mask = 0
        self._segments = segments
        self._bytes = {s: np.zeros(chip.capacity_bytes(s.short), np.uint8) for s in spaces}
        self._registers = [0] * REGISTERS
        self._views: dict[Any, Array] = {}
        self._result: tuple[Any, Array, Callable[[Array], None]] | None = None
        """The last product, not yet in L0C: its tile, the matrix, and what writes it."""
        self._lines: OrderedDict[tuple[int, int], tuple[Array, list[bool]]] = OrderedDict()

    def bytes_of(self, at: Operand) -> Array:
        """Return all bytes of the memory, or of the segment, that an operand lies in.

        Raises `OperandError` where the core does not have it.
        """
        if at.space is Space.GM:
            if not 0 <= at.segment < len(self._segments):
                raise OperandError(f"gm{at.segment}: no such segment; there are {len(self._segments)}")
            return self._segments[at.segment].data
        if self._result is not None and at.space is _L0C:
            self._put()
        try:
            return self._bytes[at.space]
        except KeyError:
            raise OperandError(f"{at}: this core has no {at.space.short}") from None

    def view(self, at: Operand, shape: tuple[int, ...], strides: tuple[int, ...] | None = None) -> Array:
        """Return a writable typed view; see `CoreView.view`.

        Raises `OperandError` where it leaves the memory.
        """
        if self._result is not None and at.space is _L0C:
            self._put()
        key = (at.space, at.segment, at.address, at.dtype, shape, strides)
        found = self._views.get(key)
        if found is not None:
            return found
        memory = self.bytes_of(at)
        try:
            made: Array = np.ndarray(shape, at.dtype.np, memory, at.address, strides)
        except (TypeError, ValueError) as error:
            room = grouped(memory.size)
            raise OperandError(
                f"{at}: {shape} elements leave the {room} bytes of {at.space.short}"
            ) from error
        if len(self._views) >= _VIEWS_KEPT:
            self._views.clear()
        self._views[key] = made
        return made

    def hold(self, tile: Any, result: Array, put: Callable[[Array], None]) -> None:
        """Keep a product back, since the next one most often adds to it; see `CoreView.hold`."""
        if self._result is not None and self._result[0] != tile:
            self._put()
        self._result = tile, result, put

    def held(self, tile: Any) -> Array | None:
        """Return the product that is kept for a tile, or None."""
        return self._result[1] if self._result is not None and self._result[0] == tile else None

    def _put(self) -> None:
        assert self._result is not None
        _, result, put = self._result
        self._result = None
        put(result)

    def scalar(self, value: Scalar, dtype: DType) -> Any:
        """Return a register or an immediate as a NumPy scalar of `dtype`."""
        if type(value) is Reg:
            bits = self._registers[value.index]
        else:
            assert type(value) is Imm
            bits = value.bits
        return from_bits(bits, dtype)

    def register(self, index: int) -> int:
        """Return the bits of a scalar register."""
        return self._registers[index]

    def set_register(self, index: int, bits: int) -> None:
        """Write the bits of a scalar register."""
        self._registers[index] = bits

    def load_scalar(self, at: Operand) -> int:
        """Return the bits of one element of UB or, through the data cache, of GM."""
        if at.space is not Space.GM:
            return int(self.view(Operand(at.space, _BITS_OF[at.dtype.size], at.address), (1,))[0])
        line, start = self._line(at)
        return int.from_bytes(line[start : start + at.dtype.size].tobytes(), "little")

    def store_scalar(self, at: Operand, bits: int) -> None:
        """Write one element of UB or, through the data cache, of GM."""
        if at.space is not Space.GM:
            self.view(Operand(at.space, _BITS_OF[at.dtype.size], at.address), (1,))[0] = bits
            return
        line, start = self._line(at, write=True)
        line[start : start + at.dtype.size] = np.frombuffer(bits.to_bytes(at.dtype.size, "little"), np.uint8)

    def clean_line(self, at: Operand) -> None:
        """Write back and drop the data-cache line that holds an address of GM."""
        self._evict((at.segment, at.address // self.chip.scalar.dcache_line_bytes))

    def clean_all(self) -> None:
        """Write back and drop every line of the data cache."""
        for key in list(self._lines):
            self._evict(key)

    def _line(self, at: Operand, *, write: bool = False) -> tuple[Array, int]:
        width = self.chip.scalar.dcache_line_bytes
        index, start = divmod(at.address, width)
        memory = self.bytes_of(at)
        if at.address < 0 or at.address + at.dtype.size > memory.size:
            raise OperandError(f"{at}: one element leaves the {grouped(memory.size)} bytes of the segment")
        key = (at.segment, index)
        if key not in self._lines:
            if len(self._lines) >= self.chip.scalar.dcache_lines:
                self._evict(next(iter(self._lines)))
            data = memory[index * width : (index + 1) * width].copy()
            self._lines[key] = (data, [False] * len(data))
        self._lines.move_to_end(key)
        data, dirty = self._lines[key]
        if write:
            for i in range(start, start + at.dtype.size):
                dirty[i] = True
        return data, start

    def _evict(self, key: tuple[int, int]) -> None:
        found = self._lines.pop(key, None)
        if found is None:
            return
        data, dirty = found
        start = key[1] * self.chip.scalar.dcache_line_bytes
        chosen = np.array(dirty)
        self._segments[key[0]].data[start : start + len(data)][chosen] = data[chosen]


_BITS_OF = {1: DType.U8, 2: DType.U16, 4: DType.U32, 8: DType.U64}
