"""Comparisons to bit masks, and selection by bit masks."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

import numpy as np

from npusim.config.chip import Chip
from npusim.isa.dtype import F16, F32, S8, S32, U8, DType
from npusim.isa.instruction import Array, CoreView, UbIn, UbOut, Work, instruction
from npusim.isa.numerics import vector as numerics
from npusim.isa.operand import Access, Scalar
from npusim.isa.state import State
from npusim.isa.vector.banks import Walk
from npusim.isa.vector.lanes import Repeated, VectorInstruction, ub, value_of
from npusim.isa.vector.walk import Piece, Strided, accesses, blocks_of, load, pieces_of, window_of
from npusim.units import BLOCK_BYTES

FLOATS = frozenset({F16, F32})
BYTES = frozenset({S8, U8})
CMPMASK_BYTES = 16


class CompareMode(Enum):
    """What `Compare` asks of `src0` and `src1`."""

    LT = "src0 < src1"
    GT = "src0 > src1"
    EQ = "src0 == src1"
    LE = "src0 <= src1"
    GE = "src0 >= src1"
    NE = "src0 != src1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison(Repeated):
    """Base of the comparisons that write one bit an element to UB, first element in the lowest bit.

    The lane mask has no effect. A repeat takes 256 bytes of each source and writes its bits behind those of
    the repeat before; counter mode counts whole repeats (asc-devkit Compare page; H).
    """

    dst: UbOut
    src0: UbIn
    mode: CompareMode
    src0_block: int = 1
    src0_repeat: int = 8

    cost_class: ClassVar[str] = "compare"
    types: ClassVar[frozenset[DType]] = FLOATS | {S32}

    def sources(self) -> tuple[Strided, ...]:
        """Return the walked sources."""
        return (Strided(self.src0, self.src0_block, self.src0_repeat),)

    def lanes(self) -> int:
        """Elements of a repeat."""
        return 256 // self.src0.dtype.size

    def check_types(self) -> None:
        """Check the element types, and that int32 is compared for equality only."""
        self.check_type("dst", self.dst.dtype, BYTES)
        for name, role in self.roles.items():
            if role.reads:
                self.check_type(name, getattr(self, name).dtype)
                self.check_same("src0", name)
        if self.src0.dtype is S32 and self.mode is not CompareMode.EQ:
            raise self.error(f"mode must be EQ for s32, not {self.mode.name}; convert to f32 for the others")

    def check_mask(self, state: State) -> None:
        """Refuse counts that are no whole repeats; the hardware would leave the rest out."""
        if state.counter_mode and state.mask % self.lanes():
            raise self.error(
                f"the count must be a multiple of {self.lanes()} elements, not {state.mask}; "
                f"pad the operands to whole repeats"
            )

    def check_bounds(self, chip: Chip, state: State) -> None:
        """Check bounds, and that bits and sources have nothing in common."""
        super(Comparison, self).check_bounds(chip, state)
        for name, role in self.roles.items():
            if role.reads:
                self.check_apart(state, "dst", name)

    def repeats(self, state: State) -> int:
        """Return the number of repeats that run."""
        return state.mask // self.lanes() if state.counter_mode else self.repeat

    def touched(self, state: State) -> dict[str, list[Access]]:
        """Return whole repeats of the sources, and their bits."""
        repeats, lanes = self.repeats(state), self.lanes()
        if not repeats:
            return {}
        pieces = (Piece(0, repeats, lanes, None),)
        names = [name for name, role in self.roles.items() if role.reads]
        found = {n: accesses(s, pieces) for n, s in zip(names, self.sources(), strict=True)}
        at = self.dst
        return {"dst": [Access(at.space, at.segment, at.address, repeats * lanes // 8)], **found}

    def compare(self, core: CoreView, *sources: Array) -> Array:
        """Return a boolean for every element."""
        raise NotImplementedError

    def execute(self, core: CoreView, state: State) -> None:
        """Write the bits of all repeats."""
        repeats, lanes = self.repeats(state), self.lanes()
        if not repeats:
            return
        piece = Piece(0, repeats, lanes, None)
        sources = [
            load(core, s.at, window_of(piece, s.at.dtype, s.block, s.repeat), lanes) for s in self.sources()
        ]
        bits = np.packbits(self.compare(core, *sources), axis=1, bitorder="little").reshape(-1)
        core.view(self.dst.as_type(U8), bits.shape)[...] = bits

    def work(self, chip: Chip, state: State) -> Work:
        """Return head + repeats x the larger of throughput and bank conflicts."""
        repeats, lanes = self.repeats(state), self.lanes()
        reads = tuple(
            Walk(s.at.address, s.block * BLOCK_BYTES, s.repeat * BLOCK_BYTES, 8) for s in self.sources()
        )
        writes = (Walk(self.dst.address, BLOCK_BYTES, lanes // 8, 1),)
        return self.cost(chip, self.src0.dtype, repeats, repeats * lanes, reads, writes)


@instruction
class Compare(Comparison):
    """Compare element by element and write one bit an element: `dst[i] = src0[i] ? src1[i]`.

    All modes on f16 and f32, EQ on s32; bits go to u8 or s8. Cost: class compare.
    """

    src1: UbIn
    src1_block: int = 1
    src1_repeat: int = 8

    def sources(self) -> tuple[Strided, ...]:
        """Return the walked sources."""
        return (
            Strided(self.src0, self.src0_block, self.src0_repeat),
            Strided(self.src1, self.src1_block, self.src1_repeat),
        )

    def compare(self, core: CoreView, *sources: Array) -> Array:
        """Return a boolean for every element."""
        return numerics.compare(self.mode.name, *sources)

    @classmethod
    def example(cls) -> Compare:
        """Compare 128 floats."""
        return cls(dst=ub(U8, 0x10000), src0=ub(F32, 0), src1=ub(F32, 0x900), mode=CompareMode.LT, repeat=2)


@instruction
class Compares(Comparison):
    """Compare every element with a value and write one bit an element: `dst[i] = src0[i] ? scalar`.

    All modes on f16 and f32, EQ on s32; bits go to u8 or s8. Cost: class compare.
    """

    scalar: Scalar

    @property
    def scalar_dtype(self) -> DType:
        """The element type of the source."""
        return self.src0.dtype

    def compare(self, core: CoreView, *sources: Array) -> Array:
        """Return a boolean for every element."""
        return numerics.compare(self.mode.name, sources[0], value_of(core, self.scalar, self.src0.dtype))

    @classmethod
    def example(cls) -> Compares:
        """Find the positive ones of 128 floats."""
        return cls(dst=ub(U8, 0x10000), src0=ub(F32, 0), scalar=0.0, mode=CompareMode.GT, repeat=2)


# ---- the compare-mask register -----------------------------------------------------------------------------


@instruction
class CompareToMask(VectorInstruction):
    """Compare one repeat and keep the bits in the compare-mask register (Compare without a destination).

    Lanes that the mask leaves out give zero (not documented; L); counter mode counts at most one repeat.
    Types f16, f32. Cost: class compare, one repeat.
    """

    src0: UbIn
    src1: UbIn
    mode: CompareMode
    src0_block: int = 1
    src1_block: int = 1

    types: ClassVar[frozenset[DType]] = FLOATS
    cost_class: ClassVar[str] = "compare"

    def piece(self, state: State) -> Piece | None:
        """Return the lanes that run."""
        lanes = 256 // self.src0.dtype.size
        pieces = pieces_of(state.counter_mode, state.mask, 1, lanes)
        return pieces[0] if pieces else None

    def check_mask(self, state: State) -> None:
        """Refuse counts of more than one repeat."""
        lanes = 256 // self.src0.dtype.size
        if state.counter_mode and state.mask > lanes:
            raise self.error(f"the count must be at most {lanes} elements, not {state.mask}; use Compare")

    def touched(self, state: State) -> dict[str, list[Access]]:
        """Return the lanes that run of both sources."""
        piece = self.piece(state)
        if piece is None:
            return {}
        return {
            "src0": accesses(Strided(self.src0, self.src0_block, 0), (piece,)),
            "src1": accesses(Strided(self.src1, self.src1_block, 0), (piece,)),
        }

    def execute(self, core: CoreView, state: State) -> None:
        """Set the register."""
        piece = self.piece(state)
        core.compare_mask = 0
        if piece is None:
            return
        dtype = self.src0.dtype
        a = load(core, self.src0, window_of(piece, dtype, self.src0_block, 0), piece.lanes)
        b = load(core, self.src1, window_of(piece, dtype, self.src1_block, 0), piece.lanes)
        bits = np.packbits(numerics.compare(self.mode.name, a[0], b[0]), bitorder="little")
        value = int.from_bytes(bits.tobytes(), "little")
        core.compare_mask = value if piece.mask is None else value & piece.mask

    def work(self, chip: Chip, state: State) -> Work:
        """Return head + one repeat."""
        piece = self.piece(state)
        lanes = piece.lanes if piece else 0
        blocks = blocks_of(lanes, self.src0.dtype)
        reads = (
            Walk(self.src0.address, self.src0_block * BLOCK_BYTES, 0, blocks),
            Walk(self.src1.address, self.src1_block * BLOCK_BYTES, 0, blocks),
        )
        return self.cost(chip, self.src0.dtype, 1 if piece else 0, lanes, reads, ())

    @classmethod
    def example(cls) -> CompareToMask:
        """Compare 64 floats."""
        return cls(src0=ub(F32, 0), src1=ub(F32, 0x900), mode=CompareMode.LT)


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskMove(VectorInstruction):
    """Base of the moves between UB and the compare-mask register, 16 bytes from a multiple of 16."""

    types: ClassVar[frozenset[DType]] = frozenset(d for d in DType if d.bits >= 8)
    cost_class: ClassVar[str] = "copy"
    counts: ClassVar[bool] = False

    def alignment(self, name: str) -> int:
        """Bytes to which the start of an operand is aligned."""
        return CMPMASK_BYTES

    def touched(self, state: State) -> dict[str, list[Access]]:
        """Return the 16 bytes."""
        ((name, at),) = ((name, getattr(self, name)) for name in self.roles)
        return {name: [Access(at.space, at.segment, at.address, CMPMASK_BYTES)]}

    def work(self, chip: Chip, state: State) -> Work:
        """Return head + one repeat."""
        ((name, role),) = self.roles.items()
        walks = (Walk(getattr(self, name).address, 0, 0, 1),)
        return self.cost(
            chip, U8, 1, CMPMASK_BYTES * 8, walks if role.reads else (), walks if role.writes else ()
        )


@instruction
class SetCmpMask(MaskMove):
    """Load the 128 bits of the compare-mask register from UB.

    Cost: class copy, one repeat.
    """

    src: UbIn

    def execute(self, core: CoreView, state: State) -> None:
        """Load the register."""
        core.compare_mask = int.from_bytes(
            core.view(self.src.as_type(U8), (CMPMASK_BYTES,)).tobytes(), "little"
        )

    @classmethod
    def example(cls) -> SetCmpMask:
        """Load from the start of UB."""
        return cls(src=ub(U8, 0))


@instruction
class GetCmpMask(MaskMove):
    """Store the 128 bits of the compare-mask register to UB.

    Cost: class copy, one repeat.
    """

    dst: UbOut

    def execute(self, core: CoreView, state: State) -> None:
        """Store the register."""
        data = core.compare_mask.to_bytes(CMPMASK_BYTES, "little")
        core.view(self.dst.as_type(U8), (CMPMASK_BYTES,))[...] = np.frombuffer(data, np.uint8)

    @classmethod
    def example(cls) -> GetCmpMask:
        """Store to the start of UB."""
        return cls(dst=ub(U8, 0))
