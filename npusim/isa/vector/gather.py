"""Collecting elements by bits (GatherMask) and by offsets (Gather), and blocks by offsets (Gatherb)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from npusim.config.chip import Chip
from npusim.isa.dtype import F32, U8, U16, U32, DType
from npusim.isa.instruction import Array, CoreView, UbIn, UbOut, Work, instruction
from npusim.isa.operand import Access
from npusim.isa.state import State
from npusim.isa.vector.banks import Walk
from npusim.isa.vector.lanes import LaneWise, Repeated, ub
from npusim.isa.vector.move import WORDS
from npusim.isa.vector.walk import Piece, Plan, Step, Strided, accesses, load, repeated, window_of
from npusim.units import BLOCK_BYTES, REPEAT_BYTES, ceil_div

PATTERNS = {1: 0b01010101, 2: 0b10101010, 3: 0b00010001, 4: 0b00100010, 5: 0b01000100, 6: 0b10001000, 7: 0xFF}
"""Bits of eight successive elements, first element lowest (asc-devkit GatherMask page; H)."""


@instruction
class GatherMask(Repeated):
    """Keep the elements whose bit is one, side by side in `dst`, and return how many were kept.

    The bits are one of seven built-in patterns (1 even, 2 odd, 3 to 6 the first to fourth of every four, 7
    all), or with pattern 0 come from UB: `bits`, of the unsigned type as wide as the elements, one bit an
    element, `bits_repeat` blocks further on for every repeat. Normal mode takes 256 bytes a repeat and
    ignores the lane mask; in counter mode the mask counts the elements of one repeat. Types of 16 and 32
    bits. Cost: class gather_mask, by 256-byte steps.
    """

    dst: UbOut
    src: UbIn
    bits: UbIn | None = None
    pattern: int = 0
    src_block: int = 1
    src_repeat: int = 8
    bits_repeat: int = 0

    types: ClassVar[frozenset[DType]] = WORDS
    cost_class: ClassVar[str] = "gather_mask"
    returns_value: ClassVar[bool] = True
    max_stride: ClassVar[int] = 65_535

    def count(self, state: State) -> int:
        """Return the elements of one repeat."""
        return state.mask if state.counter_mode else REPEAT_BYTES // self.src.dtype.size

    def piece(self, state: State) -> Piece | None:
        """Return the repeats that run."""
        count = self.count(state)
        return Piece(0, self.repeat, count, None) if count and self.repeat else None

    def check_types(self) -> None:
        """Check the element types, and that there is one source of bits."""
        self.check_type("dst", self.dst.dtype)
        self.check_same("dst", "src")
        if not 0 <= self.pattern <= 7:
            raise self.error(f"pattern must be 1..7, or 0 with bits in ub, not {self.pattern}")
        if (self.pattern == 0) != (self.bits is not None):
            raise self.error(
                f"bits must {'not ' if self.pattern else ''}be given with pattern {self.pattern}"
            )
        if self.bits is not None:
            self.check_type("bits", self.bits.dtype, frozenset({U16 if self.src.dtype.bits == 16 else U32}))

    def check_bounds(self, chip: Chip, state: State) -> None:
        """Check bounds, and that no repeat reads what an earlier one may have written."""
        super(GatherMask, self).check_bounds(chip, state)
        piece = self.piece(state)
        if piece is None:
            return
        if self.bits is not None:
            self.check_apart(state, "dst", "bits")
        if self.dst.address == self.src.address and self.src_repeat * BLOCK_BYTES >= self._dense(piece):
            return  # in place: what is kept never passes what is still to be read
        self.check_apart(state, "dst", "src")

    def _dense(self, piece: Piece) -> int:
        return piece.lanes * self.src.dtype.size if piece.repeats > 1 else 0

    def touched(self, state: State) -> dict[str, list[Access]]:
        """Return what is read, and what is written; with bits in UB, what is written if all are ones."""
        piece = self.piece(state)
        if piece is None:
            return {}
        at, size = self.dst, self.dst.dtype.size
        per_repeat = self._pattern_bits(piece.lanes).sum() if self.pattern else piece.lanes
        found = {
            "dst": [Access(at.space, at.segment, at.address, int(per_repeat) * piece.repeats * size)],
            "src": accesses(Strided(self.src, self.src_block, self.src_repeat), (piece,)),
        }
        if self.bits is not None:
            row = ceil_div(piece.lanes, 8)
            found["bits"] = [repeated(self.bits, 0, row, piece.repeats, self.bits_repeat * BLOCK_BYTES)]
        return found

    def _pattern_bits(self, count: int) -> Array:
        eight = [bool(PATTERNS[self.pattern] >> i & 1) for i in range(8)]
        return np.resize(np.array(eight, np.bool_), count)

    def execute(self, core: CoreView, state: State) -> int:
        """Keep the chosen elements and return their number."""
        piece = self.piece(state)
        if piece is None:
            return 0
        dtype = self.src.dtype
        source = load(core, self.src, window_of(piece, dtype, self.src_block, self.src_repeat), piece.lanes)
        if self.bits is None:
            chosen = np.broadcast_to(self._pattern_bits(piece.lanes), source.shape)
        else:
            row = ceil_div(piece.lanes, 8)
            at = self.bits.as_type(U8)
            data = core.view(at, (piece.repeats, row), (self.bits_repeat * BLOCK_BYTES, 1))
            unpacked = np.unpackbits(data, axis=1, bitorder="little")[:, : piece.lanes]
            chosen = unpacked.astype(np.bool_)
        kept = source[chosen]
        core.view(self.dst, kept.shape)[...] = kept
        return len(kept)

    def work(self, chip: Chip, state: State) -> Work:
        """Return head + 256-byte steps x the larger of throughput and bank conflicts."""
        piece = self.piece(state)
        if piece is None:
            return self.cost(chip, self.src.dtype, 0, 0, (), ())
        size = self.src.dtype.size
        steps = ceil_div(piece.lanes * size, REPEAT_BYTES)
        stride = self.src_repeat if steps == 1 else self.src_block * 8
        blocks = min(8, ceil_div(piece.lanes * size, BLOCK_BYTES))
        reads = (Walk(self.src.address, self.src_block * BLOCK_BYTES, stride * BLOCK_BYTES, blocks),)
        elements = piece.lanes * piece.repeats
        return self.cost(chip, self.src.dtype, steps * piece.repeats, elements, reads, ())

    @classmethod
    def example(cls) -> GatherMask:
        """Keep the even elements of 128 floats."""
        return cls(dst=ub(F32, 0x10000), src=ub(F32, 0), pattern=1, repeat=2)


@instruction
class Gather(LaneWise):
    """Collect elements by byte offsets: `dst[i] = element at src + base + offsets[i]`.

    `offsets` (u32) are consumed lane by lane, one repeat behind the other. `src_bytes` is the size of what
    the offsets may reach from `src` on; an offset beyond it, or one that is not a multiple of the element
    size, is an error. Types of 16 and 32 bits. Cost: class gather.
    """

    dst: UbOut
    src: UbIn
    offsets: UbIn
    src_bytes: int
    base: int = 0
    dst_block: int = 1
    dst_repeat: int = 8

    types: ClassVar[frozenset[DType]] = WORDS
    cost_class: ClassVar[str] = "gather"
    in_rows: ClassVar[bool] = False
    max_stride: ClassVar[int] = 65_535

    def check_types(self) -> None:
        """Check the element types, and the reach of the offsets."""
        self.check_type("dst", self.dst.dtype)
        self.check_same("dst", "src")
        self.check_type("offsets", self.offsets.dtype, frozenset({U32}))
        size = self.src.dtype.size
        if not 0 <= self.base < self.src_bytes:
            raise self.error(f"base must be 0..{self.src_bytes - 1}, inside src_bytes, not {self.base}")
        for name in ("base", "src_bytes"):
            if getattr(self, name) % size:
                raise self.error(
                    f"{name} must be a multiple of the element's {size} bytes, not {getattr(self, name)}"
                )

    def check_bounds(self, chip: Chip, state: State) -> None:
        """Check bounds, and that the destination has nothing in common with the sources."""
        super(Gather, self).check_bounds(chip, state)
        self.check_apart(state, "dst", "src")
        self.check_apart(state, "dst", "offsets")

    def touched(self, state: State) -> dict[str, list[Access]]:
        """Return the lanes that run, their offsets, and all that offsets may reach."""
        plan = self.plan(state)
        if not plan.pieces:
            return {}
        src = self.src
        return {
            "dst": accesses(Strided(self.dst, self.dst_block, self.dst_repeat), plan.pieces),
            "src": [Access(src.space, src.segment, src.address + self.base, self.src_bytes - self.base)],
            "offsets": accesses(Strided(self.offsets, 1, plan.lanes * 4 // BLOCK_BYTES), plan.pieces),
        }

    def compute_step(
        self, core: CoreView, state: State, plan: Plan, step: Step, sources: list[Array]
    ) -> Array:
        """Return the collected elements of some repeats.

        Raises `OperandError` for an offset outside the source or off its elements.
        """
        window = window_of(step.piece, U32, 1, plan.lanes * 4 // BLOCK_BYTES)
        offsets = load(core, self.offsets, window, step.piece.lanes).astype(np.int64) + self.base
        if step.chosen is not None:
            offsets = np.where(step.chosen, offsets, self.base)
        size = self.src.dtype.size
        wrong = (offsets >= self.src_bytes) | (offsets % size != 0)
        if wrong.any():
            lane = tuple(int(i) for i in np.argwhere(wrong)[0])
            raise self.error(
                f"the offset of lane {lane[1]} in repeat {step.piece.first + lane[0]} must be a multiple of "
                f"{size} inside the {self.src_bytes} bytes of src, not {int(offsets[lane]) - self.base}"
            )
        table = core.view(self.src, (self.src_bytes // size,))
        return table[offsets // size]

    @classmethod
    def example(cls) -> Gather:
        """Collect 128 floats."""
        return cls(dst=ub(F32, 0x10000), src=ub(F32, 0), offsets=ub(U32, 0x1000), src_bytes=0x400, repeat=2)


@instruction
class Gatherb(Repeated):
    """Collect blocks of 32 bytes by byte offsets: block i of the walk becomes the block at src + offsets[i].

    A repeat takes eight offsets (u32), each a multiple of 32 inside the `src_bytes` that they may reach from
    `src` on. The mask has no effect. Types of 16 and 32 bits. Cost: class gather_block.
    """

    dst: UbOut
    src: UbIn
    offsets: UbIn
    src_bytes: int
    dst_block: int = 1
    dst_repeat: int = 8

    types: ClassVar[frozenset[DType]] = WORDS
    cost_class: ClassVar[str] = "gather_block"
    counts: ClassVar[bool] = False

    def check_types(self) -> None:
        """Check the element types, and the reach of the offsets."""
        self.check_type("dst", self.dst.dtype)
        self.check_same("dst", "src")
        self.check_type("offsets", self.offsets.dtype, frozenset({U32}))
        if self.src_bytes < BLOCK_BYTES or self.src_bytes % BLOCK_BYTES:
            raise self.error(f"src_bytes must be one or more blocks of 32 bytes, not {self.src_bytes} bytes")

    def check_mask(self, state: State) -> None:
        """Accept every mask; a repeat writes more than one block, so the blocks need a stride."""
        if self.repeat and not self.dst_block:
            raise self.error("dst_block must be 1 or more, not 0, where a repeat writes more than one block")

    def check_bounds(self, chip: Chip, state: State) -> None:
        """Check bounds, and that the destination has nothing in common with the sources."""
        super(Gatherb, self).check_bounds(chip, state)
        self.check_apart(state, "dst", "src")
        self.check_apart(state, "dst", "offsets")

    def touched(self, state: State) -> dict[str, list[Access]]:
        """Return the blocks that are written, the offsets, and all that they may reach."""
        if not self.repeat:
            return {}
        src, offsets = self.src, self.offsets
        lanes = REPEAT_BYTES // self.dst.dtype.size
        piece = Piece(0, self.repeat, lanes, None)
        return {
            "dst": accesses(Strided(self.dst, self.dst_block, self.dst_repeat), (piece,)),
            "src": [Access(src.space, src.segment, src.address, self.src_bytes)],
            "offsets": [Access(offsets.space, offsets.segment, offsets.address, 32 * self.repeat)],
        }

    def execute(self, core: CoreView, state: State) -> None:
        """Collect the blocks, repeat after repeat.

        Raises `OperandError` for an offset outside the source or off its blocks.
        """
        offsets = core.view(self.offsets, (self.repeat, 8)).astype(np.int64)
        wrong = (offsets >= self.src_bytes) | (offsets % BLOCK_BYTES != 0)
        if wrong.any():
            repeat, block = (int(i) for i in np.argwhere(wrong)[0])
            raise self.error(
                f"the offset of block {block} in repeat {repeat} must be a multiple of 32 inside the "
                f"{self.src_bytes} bytes of src, not {offsets[repeat, block]}"
            )
        blocks = core.view(self.src.as_type(U8), (self.src_bytes // BLOCK_BYTES, BLOCK_BYTES))
        strides = (self.dst_repeat * BLOCK_BYTES, self.dst_block * BLOCK_BYTES, 1)
        target = core.view(self.dst.as_type(U8), (self.repeat, 8, BLOCK_BYTES), strides)
        for repeat in range(self.repeat):
            target[repeat] = blocks[offsets[repeat] // BLOCK_BYTES]

    def work(self, chip: Chip, state: State) -> Work:
        """Return head + repeats x the larger of throughput and the bank conflicts of what is written."""
        writes = Walk(self.dst.address, self.dst_block * BLOCK_BYTES, self.dst_repeat * BLOCK_BYTES, 8)
        elements = self.repeat * REPEAT_BYTES // self.dst.dtype.size
        return self.cost(chip, self.dst.dtype, self.repeat, elements, (), (writes,))

    @classmethod
    def example(cls) -> Gatherb:
        """Collect sixteen blocks of floats."""
        return cls(dst=ub(F32, 0x10000), src=ub(F32, 0), offsets=ub(U32, 0x1000), src_bytes=0x400, repeat=2)
