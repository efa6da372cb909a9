"""Copies of whole 32-byte blocks between memories."""

from __future__ import annotations

from typing import Annotated

from npusim.config.chip import Chip
from npusim.isa.dma.movement import (
    BT,
    FB,
    GM,
    L1,
    UB,
    Movement,
    path_work,
    port_work,
    raw,
    store_gm,
    touched,
)
from npusim.isa.dtype import BF16, F16, F32
from npusim.isa.instruction import CoreView, Role, Work, instruction
from npusim.isa.operand import Access, Operand, Pipe
from npusim.isa.state import Atomic, State
from npusim.units import BLOCK_BYTES

_ROUTES = {
    (GM, UB): (Pipe.MTE2, "gm_to_ub"),
    (GM, L1): (Pipe.MTE2, "gm_to_l1"),
    (UB, GM): (Pipe.MTE3, "ub_to_gm"),
    (UB, L1): (Pipe.MTE3, "ub_to_l1"),
    (L1, UB): (Pipe.MTE1, "l1_to_ub"),
    (L1, BT): (Pipe.MTE1, "l1_to_bt"),
    (L1, FB): (Pipe.FIX, "l1_to_fb"),
}
"""Pipe and path by (source, destination) (asc-devkit API pipe table, H)."""

_UNIT = {BT: 64, FB: 128}
"""Bytes of a block, and of a gap, on the way to the tables; 32 elsewhere (Ascend C guide, H)."""


@instruction
class DataCopy(Movement):
    """Copy `block_count` rows of `block_len` blocks: GM to UB or L1, UB to GM, L1 to the bias table or the
    fixpipe buffer, and UB to L1 and back where the chip has that path.

    A block is 32 bytes; on the way to the bias table 64, to the fixpipe buffer 128. A gap is what lies
    between the end of a row and the start of the next, in blocks of 32 bytes at the source, in blocks of the
    copy at the destination. Source and destination have one element type; a bias may widen from f16 or bf16
    to f32, and its blocks are those written. Stores to GM obey the atomic mode. With `l2_bypass` a transfer
    with GM leaves the cache as it is, except for bytes that it holds already (the vendor's cache hint).
    Cost: the port of the core to GM, or issue + bytes / rate of the path inside the core.
    """

    dst: Annotated[Operand, Role((GM, UB, L1, BT, FB), writes=True)]
    src: Annotated[Operand, Role((GM, UB, L1), reads=True)]
    block_len: int
    block_count: int = 1
    src_gap: int = 0
    dst_gap: int = 0
    l2_bypass: bool = False

    @property
    def pipe(self) -> Pipe:
        """MTE2 from GM, MTE3 from UB, MTE1 from L1, FIX into the fixpipe buffer."""
        return _ROUTES[self.src.space, self.dst.space][0] if self._known else Pipe.MTE2

    @property
    def _known(self) -> bool:
        return (self.src.space, self.dst.space) in _ROUTES

    @property
    def _unit(self) -> int:
        return _UNIT.get(self.dst.space, BLOCK_BYTES)

    @property
    def _widens(self) -> bool:
        return self.dst.space is BT and self.dst.dtype is F32 and self.src.dtype in (F16, BF16)

    @property
    def _read_size(self) -> int:
        return self.block_len * self._unit // (2 if self._widens else 1)

    def check_rules(self, chip: Chip, state: State) -> None:
        """Check the path, the limits of the fields, the element types and the atomic mode."""
        if not self._known:
            raise self.error(f"there is no path {self.src.space.short} -> {self.dst.space.short}")
        self.check_path(chip, _ROUTES[self.src.space, self.dst.space][1])
        if not chip.coupled and {self.src.space, self.dst.space} == {UB, L1}:
            raise self.error(f"ub and l1 are in different cores of {chip.name}; go through gm")
        if self.l2_bypass and GM not in (self.src.space, self.dst.space):
            raise self.error("l2_bypass is for transfers with gm; leave it out")
        unit = f"blocks of {self._unit} bytes"
        self.check_range("block_count", 1, 4095)
        short = self.block_len < 1 and UB in (self.src.space, self.dst.space)
        self.check_range("block_len", 1, 65535, unit, "use DataCopyPad for short rows" if short else "")
        self.check_range("src_gap", 0, 65535, "blocks of 32 bytes")
        self.check_range("dst_gap", 0, 65535, unit)
        if not self._widens:
            self.check_one_type(self.dst.dtype, self.src.dtype)
        self.check_atomic(self.dst, state)

    def reads(self, state: State) -> tuple[Access, ...]:
        """Return the rows of the source, and those of the destination where a store is atomic."""
        size = self._read_size
        rows = touched(self.src, 0, size, (self.block_count, size + self.src_gap * BLOCK_BYTES))
        if self.dst.space is GM and state.atomic is not Atomic.NONE:
            return (rows, *self.writes(state))
        return (rows,)

    def writes(self, state: State) -> tuple[Access, ...]:
        """Return the rows of the destination."""
        size = self.block_len * self._unit
        return (touched(self.dst, 0, size, (self.block_count, size + self.dst_gap * self._unit)),)

    def execute(self, core: CoreView, state: State) -> None:
        """Copy the rows, combine them with GM, or widen a bias."""
        size, read = self.block_len * self._unit, self._read_size
        pitches = size + self.dst_gap * self._unit, read + self.src_gap * BLOCK_BYTES
        if (self.dst.space is GM and state.atomic is not Atomic.NONE) or self._widens:
            shape = (self.block_count, size // self.dst.dtype.size)
            dst = core.view(self.dst, shape, (pitches[0], self.dst.dtype.size))
            src = core.view(self.src, shape, (pitches[1], self.src.dtype.size))
            if self._widens:
                dst[...] = src
            else:
                store_gm(dst, src, state)
            return
        shape = (self.block_count, size)
        core.view(raw(self.dst), shape, (pitches[0], 1))[...] = core.view(
            raw(self.src), shape, (pitches[1], 1)
        )

    def work(self, chip: Chip, state: State) -> Work:
        """Return the cost of the port or of the path."""
        name = _ROUTES[self.src.space, self.dst.space][1]
        nbytes = self.block_count * self.block_len * self._unit
        elements = nbytes * 8 // self.dst.dtype.bits
        if self.src.space is GM:
            return port_work(chip, name, self.reads(state)[0], elements, write=False, bypass=self.l2_bypass)
        if self.dst.space is GM:
            return port_work(chip, name, self.writes(state)[0], elements, write=True, bypass=self.l2_bypass)
        return path_work(chip, name, nbytes, elements)

    @classmethod
    def example(cls) -> DataCopy:
        """Load two rows of 64 floats out of a matrix with rows of 128."""
        return cls(dst=Operand(UB, F32, 0), src=Operand(GM, F32, 0), block_count=2, block_len=8, src_gap=8)
