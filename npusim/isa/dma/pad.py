"""Copies of rows of any number of bytes between GM and the unified buffer."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from npusim.config.chip import Chip
from npusim.isa.dma.movement import GM, UB, Movement, port_work, store_gm, touched
from npusim.isa.dtype import F32
from npusim.isa.instruction import CoreView, Role, Work, instruction
from npusim.isa.operand import Access, Operand, Pipe
from npusim.isa.state import Atomic, State
from npusim.units import BLOCK_BYTES, align_up


@instruction
class DataCopyPad(Movement):
    """Copy `block_count` rows of `block_len` bytes between GM and UB; rows start at block boundaries in UB
    only.

    A load may put `left_pad` and `right_pad` elements of the pad value (`SetControl(PAD_BITS)`) before and
    behind every row, and fills the rest of the last 32-byte block with the first element of the row. A store
    writes exactly the bytes. A gap is what lies between the end of a row and the start of the next, in bytes
    in GM, in 32-byte blocks in UB. Stores to GM obey the atomic mode. With `l2_bypass` the cache stays as it
    is, except for bytes that it holds already.
    Cost: the port of the core to GM.
    """

    dst: Annotated[Operand, Role((UB, GM), writes=True)]
    src: Annotated[Operand, Role((UB, GM), reads=True)]
    block_len: int
    block_count: int = 1
    src_gap: int = 0
    dst_gap: int = 0
    left_pad: int = 0
    right_pad: int = 0
    l2_bypass: bool = False

    @property
    def pipe(self) -> Pipe:
        """MTE2 for a load, MTE3 for a store."""
        return Pipe.MTE2 if self.src.space is GM else Pipe.MTE3

    @property
    def _loads(self) -> bool:
        return self.src.space is GM

    @property
    def _row(self) -> int:
        """Bytes of a row in UB, up to the end of its last block."""
        return align_up(self.block_len + (self.left_pad + self.right_pad) * self.src.dtype.size, BLOCK_BYTES)

    def check_rules(self, chip: Chip, state: State) -> None:
        """Check the path, the limits of the fields, the element types, the padding and the atomic mode."""
        if self.src.space is self.dst.space:
            raise self.error(f"there is no path {self.src.space.short} -> {self.dst.space.short}")
        self.check_one_type(self.dst.dtype, self.src.dtype)
        if self.src.dtype.bits < 8:
            raise self.error(
                f"elements must have whole bytes, not {self.src.dtype.short}; use u8 for pairs of s4"
            )
        size = self.src.dtype.size
        self.check_range("block_count", 1, 4095)
        self.check_range("block_len", 1, 2_097_151, "bytes")
        if self.block_len % size:
            raise self.error(
                f"block_len must be a multiple of the {size} bytes of an element, not {self.block_len}"
            )
        for name, space in (("src_gap", self.src.space), ("dst_gap", self.dst.space)):
            if space is GM:
                self.check_range(name, 0, 2**32 - 1, "bytes")
            else:
                self.check_range(name, 0, 65535, "blocks of 32 bytes")
        for name in ("left_pad", "right_pad"):
            self.check_range(name, 0, BLOCK_BYTES // size if self._loads else 0, "elements")
        self.check_atomic(self.dst, state)

    def reads(self, state: State) -> tuple[Access, ...]:
        """Return the rows of the source, and those of the destination where a store is atomic."""
        size = self.block_len
        if self._loads:
            return (touched(self.src, 0, size, (self.block_count, size + self.src_gap)),)
        rows = touched(self.src, 0, size, (self.block_count, self._row + self.src_gap * BLOCK_BYTES))
        return (rows,) if state.atomic is Atomic.NONE else (rows, *self.writes(state))

    def writes(self, state: State) -> tuple[Access, ...]:
        """Return the rows of the destination: whole blocks in UB, exact bytes in GM."""
        if self._loads:
            row = self._row
            return (touched(self.dst, 0, row, (self.block_count, row + self.dst_gap * BLOCK_BYTES)),)
        return (touched(self.dst, 0, self.block_len, (self.block_count, self.block_len + self.dst_gap)),)

    def execute(self, core: CoreView, state: State) -> None:
        """Copy the rows; a load then fills the padding and the rest of the blocks."""
        dtype, count = self.src.dtype, self.block_count
        size = dtype.size
        shape = (count, self.block_len // size)
        if not self._loads:
            src = core.view(self.src, shape, (self._row + self.src_gap * BLOCK_BYTES, size))
            dst = core.view(self.dst, shape, (self.block_len + self.dst_gap, size))
            store_gm(dst, src, state)
            return
        src = core.view(self.src, shape, (self.block_len + self.src_gap, size))
        whole = core.view(
            self.dst, (count, self._row // size), (self._row + self.dst_gap * BLOCK_BYTES, size)
        )
        left, end = self.left_pad, self.left_pad + shape[1]
        whole[:, left:end] = src
        if left or self.right_pad:
            bits = state.pad_bits & ((1 << dtype.bits) - 1)
            value = np.array(bits, f"u{size}").view(dtype.np)
            whole[:, :left] = value
            whole[:, end : end + self.right_pad] = value
        rest = end + self.right_pad
        if rest < whole.shape[1]:
            whole[:, rest:] = src[:, :1]

    def work(self, chip: Chip, state: State) -> Work:
        """Return the cost of the port."""
        elements = self.block_count * self.block_len // self.src.dtype.size
        rows = self.reads(state)[0] if self._loads else self.writes(state)[0]
        name = "gm_to_ub" if self._loads else "ub_to_gm"
        return port_work(chip, name, rows, elements, write=not self._loads, bypass=self.l2_bypass)

    @classmethod
    def example(cls) -> DataCopyPad:
        """Load three rows of five floats, zero-padded to eight."""
        return cls(dst=Operand(UB, F32, 0), src=Operand(GM, F32, 0), block_count=3, block_len=20, right_pad=3)
