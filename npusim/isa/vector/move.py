"""Moving and filling inside UB: Copy, Duplicate, CreateVecIndex, Brcb."""

from __future__ import annotations

from math import ceil
from typing import ClassVar

import numpy as np

from npusim.config.chip import Chip
from npusim.isa.dtype import BF16, F16, F32, S16, S32, U16, U32, DType
from npusim.isa.instruction import Array, CoreView, UbIn, UbOut, Work, instruction
from npusim.isa.operand import Access, Scalar
from npusim.isa.state import State
from npusim.isa.vector.banks import Walk
from npusim.isa.vector.lanes import LaneWise, Repeated, ub, value_of
from npusim.isa.vector.layout import layout_of
from npusim.isa.vector.walk import Plan, Step, counted_plan, plan_of
from npusim.units import BLOCK_BYTES, REPEAT_BYTES, ceil_div

WORDS = frozenset({F16, BF16, F32, S16, U16, S32, U32})


@instruction
class Copy(LaneWise):
    """Copy inside UB under a mask: `dst = src`.

    In counter mode the mask counts the elements of one repeat, of which there are `repeat`. Block strides go
    to 65,535 and repeat strides to 4,095 (asc-devkit Copy page). Types of 16 and 32 bits. Cost: class copy.
    """

    dst: UbOut
    src: UbIn
    dst_block: int = 1
    dst_repeat: int = 8
    src_block: int = 1
    src_repeat: int = 8

    types: ClassVar[frozenset[DType]] = WORDS
    cost_class: ClassVar[str] = "copy"
    max_stride: ClassVar[int] = 65_535

    def check_fields(self) -> None:
        """Check strides; those between repeats have 12 bits."""
        super(Copy, self).check_fields()
        for name in ("dst_repeat", "src_repeat"):
            stride = getattr(self, name)
            if stride > 4095:
                raise self.error(f"{name} must be 0..4,095, not {stride:,}; it counts blocks of 32 bytes")

    def plan(self, state: State) -> Plan:
        """Return the walk; in counter mode every repeat has as many elements as the mask counts."""
        geometry = layout_of(Copy).geometry(self)
        return (
            counted_plan(state.mask, geometry) if state.counter_mode else plan_of(False, state.mask, geometry)
        )

    def compute(self, core: CoreView, state: State, *sources: Array) -> Array:
        """Return a copy."""
        return sources[0].copy()

    def work(self, chip: Chip, state: State) -> Work:
        """Return the cost; a repeat of counter mode takes as many steps of 256 bytes as its elements fill."""
        work = super(Copy, self).work(chip, state)
        if not state.counter_mode or not work.element_ops:
            return work
        table = chip.vector.cycles_per_repeat[self.cost_class]
        price = table.get(self.dst.dtype.short, table["default"])
        steps = self.repeat * ceil_div(state.mask * self.dst.dtype.size, REPEAT_BYTES)
        return work._replace(cycles=max(work.cycles, chip.vector.head_cycles + ceil(steps * price)))

    @classmethod
    def example(cls) -> Copy:
        """Copy two repeats."""
        return cls(dst=ub(F32, 0x10000), src=ub(F32, 0), repeat=2)


@instruction
class Duplicate(LaneWise):
    """Fill with a value: `dst = scalar`.

    Types of 16 and 32 bits. Cost: class fill.
    """

    dst: UbOut
    scalar: Scalar
    dst_block: int = 1
    dst_repeat: int = 8

    types: ClassVar[frozenset[DType]] = WORDS
    cost_class: ClassVar[str] = "fill"

    @property
    def scalar_dtype(self) -> DType:
        """The element type of the destination."""
        return self.dst.dtype

    def compute(self, core: CoreView, state: State, *sources: Array) -> Array:
        """Return the value, for all lanes."""
        return np.asarray(value_of(core, self.scalar, self.dst.dtype))

    @classmethod
    def example(cls) -> Duplicate:
        """Clear two repeats."""
        return cls(dst=ub(F32, 0), scalar=0.0, repeat=2)


@instruction
class CreateVecIndex(LaneWise):
    """Fill with ascending numbers: element i of the walk becomes `scalar + i`, rounded once.

    Masked lanes count, but keep what they hold. Integers wrap. Types f16, f32, s16, s32. Cost: class fill.
    """

    dst: UbOut
    scalar: Scalar
    dst_block: int = 1
    dst_repeat: int = 8

    types: ClassVar[frozenset[DType]] = frozenset({F16, F32, S16, S32})
    cost_class: ClassVar[str] = "fill"
    in_rows: ClassVar[bool] = False

    @property
    def scalar_dtype(self) -> DType:
        """The element type of the destination."""
        return self.dst.dtype

    def compute_step(
        self, core: CoreView, state: State, plan: Plan, step: Step, sources: list[Array]
    ) -> Array:
        """Return the numbers of some repeats."""
        dtype, piece = self.dst.dtype, step.piece
        rows = (piece.first + np.arange(piece.repeats))[:, None]
        first = value_of(core, self.scalar, dtype)
        exact = (
            rows * plan.lanes
            + np.arange(piece.lanes)
            + (np.float64(first) if dtype.is_float else np.int64(first))
        )
        return exact.astype(dtype.np)

    @classmethod
    def example(cls) -> CreateVecIndex:
        """Number 128 elements from zero."""
        return cls(dst=ub(F32, 0), scalar=0.0, repeat=2)


@instruction
class Brcb(Repeated):
    """Spread elements over blocks: element i of `src` fills block i of `dst`, eight a repeat.

    The mask has no effect. `dst_block` is at least 1. Types of 16 and 32 bits. Cost: class brcb.
    """

    dst: UbOut
    src: UbIn
    dst_block: int = 1
    dst_repeat: int = 8

    types: ClassVar[frozenset[DType]] = WORDS
    cost_class: ClassVar[str] = "brcb"
    counts: ClassVar[bool] = False
    max_stride: ClassVar[int] = 65_535

    def check_fields(self) -> None:
        """Check strides; the hardware takes a block stride of 0 for 1."""
        super(Brcb, self).check_fields()
        if not self.dst_block:
            raise self.error("dst_block must be 1 or more, not 0, which the hardware takes for 1")

    def check_bounds(self, chip: Chip, state: State) -> None:
        """Check bounds, and that source and destination have nothing in common."""
        super(Brcb, self).check_bounds(chip, state)
        self.check_apart(state, "dst", "src")

    def touched(self, state: State) -> dict[str, list[Access]]:
        """Return eight elements and eight blocks a repeat."""
        if not self.repeat:
            return {}
        dst, src = self.dst, self.src
        stride = self.dst_block * BLOCK_BYTES
        counts, strides = (self.repeat, 8), (self.dst_repeat * BLOCK_BYTES, stride)
        return {
            "dst": [Access(dst.space, dst.segment, dst.address, BLOCK_BYTES, counts, strides)],
            "src": [Access(src.space, src.segment, src.address, 8 * self.repeat * src.dtype.size)],
        }

    def execute(self, core: CoreView, state: State) -> None:
        """Spread all repeats."""
        if not self.repeat:
            return
        size = self.dst.dtype.size
        source = core.view(self.src, (self.repeat, 8, 1))
        shape = (self.repeat, 8, BLOCK_BYTES // size)
        strides = (self.dst_repeat * BLOCK_BYTES, self.dst_block * BLOCK_BYTES, size)
        target = core.view(self.dst, shape, strides)
        for row in range(self.repeat):
            target[row] = source[row]

    def work(self, chip: Chip, state: State) -> Work:
        """Return head + repeats x the larger of throughput and bank conflicts."""
        size = self.dst.dtype.size
        reads = Walk(self.src.address, BLOCK_BYTES, 8 * size, 1)
        writes = Walk(self.dst.address, self.dst_block * BLOCK_BYTES, self.dst_repeat * BLOCK_BYTES, 8)
        elements = self.repeat * REPEAT_BYTES // size
        return self.cost(chip, self.dst.dtype, self.repeat, elements, (reads,), (writes,))

    @classmethod
    def example(cls) -> Brcb:
        """Spread sixteen floats over two repeats."""
        return cls(dst=ub(F32, 0x10000), src=ub(F32, 0), repeat=2)
