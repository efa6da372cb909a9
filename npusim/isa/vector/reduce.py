"""Reductions inside a repeat, a block or a pair.

Sums are balanced trees over adjacent lanes, every addition rounded to the element type; lanes that do not run
count as zero (asc-devkit ReduceDataBlock page; H). Equal extremes give the lowest index.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar

import numpy as np

from npusim.config.chip import Chip
from npusim.isa.dtype import F16, F32, U16, U32, DType
from npusim.isa.instruction import ALIGNMENT, Array, CoreView, UbIn, UbOut, Work, instruction
from npusim.isa.numerics import reduce as numerics
from npusim.isa.operand import Access, Space
from npusim.isa.state import State
from npusim.isa.vector.banks import Walk
from npusim.isa.vector.lanes import Repeated, ub
from npusim.isa.vector.overlap import check_feed
from npusim.isa.vector.walk import (
    Piece,
    Plan,
    Strided,
    accesses,
    blocks_of,
    load,
    plan_of,
    repeated,
    runs_of,
)
from npusim.units import BLOCK_BYTES, ceil_div


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduction(Repeated):
    """Base of the reductions: every repeat gives some results, `dst_repeat` units behind those before.

    A unit is the room that a repeat's results take. A result none of whose lanes run is not written.
    """

    dst: UbOut
    src: UbIn
    dst_repeat: int = 1
    src_block: int = 1
    src_repeat: int = 8

    types: ClassVar[frozenset[DType]] = frozenset({F16, F32})
    max_stride: ClassVar[int] = 65_535

    # ---- what a subclass says ------------------------------------------------------------------------------

    def width(self, lanes: int) -> int:
        """Return the lanes that are reduced to one result."""
        raise NotImplementedError

    def unit(self) -> int:
        """Return the bytes of a unit."""
        raise NotImplementedError

    def reduce(self, core: CoreView, state: State, x: Array, mask: Array | None) -> Array:
        """Reduce (repeats, results, width) to (repeats, results), or (repeats, results, fields) as bits."""
        raise NotImplementedError

    # ---- what follows --------------------------------------------------------------------------------------

    def plan(self, state: State) -> Plan:
        """Return the walk of the source."""
        geometry = (self.repeat, self.src.dtype, self.src_block, self.src_repeat)
        return plan_of(state.counter_mode, state.mask, geometry)

    def alignment(self, name: str) -> int:
        """Bytes to which the start of an operand is aligned: the destination to its unit, 32 at most."""
        return min(self.unit(), BLOCK_BYTES) if name == "dst" else ALIGNMENT[Space.UB]

    def stride_unit(self, name: str) -> str:
        """Return what a stride field counts, in words."""
        return f"units of {self.unit()} bytes" if name == "dst_repeat" else "blocks of 32 bytes"

    def check_mask(self, state: State) -> None:
        """Raise where the mask selects no lane."""
        lanes = self.plan(state).lanes
        if not state.counter_mode and self.repeat and not state.mask & ((1 << lanes) - 1):
            raise self.error(
                f"the mask must select one of the {lanes} lanes, not none; set it with SetVectorMask"
            )

    def check_bounds(self, chip: Chip, state: State) -> None:
        """Check bounds, and that no repeat reads what an earlier one wrote."""
        super(Reduction, self).check_bounds(chip, state)
        plan = self.plan(state)
        if plan.pieces:
            step = self.dst_repeat * self.unit()
            source = Strided(self.src, self.src_block, self.src_repeat)
            check_feed(self.error, self.dst.address, step, self.unit(), source, plan)

    def touched(self, state: State) -> dict[str, list[Access]]:
        """Return the lanes that run, and the results that have any."""
        pieces = self.plan(state).pieces
        return {
            "dst": [a for piece in pieces for a in self._results(piece)],
            "src": accesses(Strided(self.src, self.src_block, self.src_repeat), pieces),
        }

    def _results(self, piece: Piece) -> list[Access]:
        """Return the bytes of the results of a piece."""
        step, lanes = self.dst_repeat * self.unit(), self.plan_lanes()
        size = self.unit() * self.width(lanes) // lanes
        return [
            repeated(self.dst, piece.first * step + first * size, (last - first) * size, piece.repeats, step)
            for first, last in runs_of(self.written(piece))
        ]

    def plan_lanes(self) -> int:
        """Return the lanes of a full repeat."""
        return 256 // self.src.dtype.size

    def written(self, piece: Piece) -> int:
        """Return which results of a repeat have lanes that run, as bits."""
        width = self.width(self.plan_lanes())
        some = (1 << width) - 1
        return sum(1 << i for i in range(ceil_div(piece.lanes, width)) if piece.bits >> i * width & some)

    def execute(self, core: CoreView, state: State) -> None:
        """Reduce, all repeats at once."""
        plan = self.plan(state)
        width = self.width(plan.lanes)
        for piece, step in zip(plan.pieces, plan.steps, strict=True):
            x = load(core, self.src, step.windows[0], piece.lanes)
            mask = step.chosen
            results = ceil_div(piece.lanes, width)
            if results * width != piece.lanes:
                mask = np.ones(piece.lanes, np.bool_) if mask is None else mask
                missing = results * width - piece.lanes
                x = np.pad(x, ((0, 0), (0, missing)))
                mask = np.pad(mask, (0, missing))
            grouped = None if mask is None else mask.reshape(results, width)
            reduced = self.reduce(core, state, x.reshape(piece.repeats, results, width), grouped)
            self._store(core, piece, reduced)

    def _store(self, core: CoreView, piece: Piece, reduced: Array) -> None:
        """Write the results that have lanes."""
        fields = reduced.shape[2] if reduced.ndim == 3 else 1
        flat = reduced.reshape(piece.repeats, -1)
        step = self.dst_repeat * self.unit()
        repeats = piece.repeats
        if not step:
            flat, repeats = flat[-1:], 1  # all repeats write to the same place; the last one stays
        size = flat.dtype.itemsize
        at = self.dst.as_type(BITS[flat.dtype]).offset(piece.first * step)
        target = core.view(at, flat[:repeats].shape, (step, size))
        written = self.written(piece)
        results = flat.shape[1] // fields
        if written == (1 << results) - 1:
            target[...] = flat
        else:
            chosen = np.array([written >> i & 1 for i in range(results)], np.bool_)
            np.copyto(target, flat, where=np.repeat(chosen, fields))

    def work(self, chip: Chip, state: State) -> Work:
        """Return head + repeats x the larger of throughput and bank conflicts."""
        plan = self.plan(state)
        lanes = plan.pieces[0].lanes if plan.pieces else 0
        blocks = blocks_of(lanes, self.src.dtype)
        reads = Walk(self.src.address, self.src_block * BLOCK_BYTES, self.src_repeat * BLOCK_BYTES, blocks)
        unit = self.unit()
        writes = Walk(self.dst.address, BLOCK_BYTES, self.dst_repeat * unit, ceil_div(unit, BLOCK_BYTES))
        return self.cost(chip, self.src.dtype, plan.repeats, plan.elements, (reads,), (writes,))

    @classmethod
    def example(cls) -> Reduction:
        """Reduce 128 floats."""
        return cls(dst=ub(F32, 0x10000), src=ub(F32, 0), repeat=2)


BITS: dict[Any, DType] = {
    F16.np: F16, F32.np: F32, np.dtype(np.uint16): U16, np.dtype(np.uint32): U32,
}  # fmt: skip


# ---- a repeat to one result --------------------------------------------------------------------------------


@instruction
class WholeReduceSum(Reduction):
    """Add up the lanes of every repeat: `dst[r] = sum(src[r])`.

    `dst_repeat` counts elements. Types f16, f32. Cost: class reduce_repeat.
    """

    cost_class: ClassVar[str] = "reduce_repeat"

    def width(self, lanes: int) -> int:
        """Return the lanes of a repeat."""
        return lanes

    def unit(self) -> int:
        """Return the bytes of an element."""
        return self.dst.dtype.size

    def reduce(self, core: CoreView, state: State, x: Array, mask: Array | None) -> Array:
        """Return the sums."""
        return numerics.tree_sum(x, self.src.dtype, mask=mask, saturate=state.saturate)


@instruction
class RepeatReduceSum(WholeReduceSum):
    """Add up the lanes of every repeat, as WholeReduceSum; the vendor's API has both names.

    Types f16, f32. Cost: class reduce_repeat.
    """


class ReduceOrder(Enum):
    """What WholeReduceMax and WholeReduceMin write for every repeat."""

    VALUE_INDEX = "the value, then its index as an unsigned integer of the element's width"
    INDEX_VALUE = "the index, then the value"
    ONLY_VALUE = "the value"
    ONLY_INDEX = "the index, as u32"


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeExtreme(Reduction):
    """Base of the extremes of a repeat, with the index of the lane that holds them."""

    order: ReduceOrder = ReduceOrder.VALUE_INDEX

    cost_class: ClassVar[str] = "reduce_repeat"

    def width(self, lanes: int) -> int:
        """Return the lanes of a repeat."""
        return lanes

    def unit(self) -> int:
        """Return the bytes of what is written for a repeat."""
        if self.order is ReduceOrder.ONLY_INDEX:
            return 4
        return self.dst.dtype.size * (1 if self.order is ReduceOrder.ONLY_VALUE else 2)

    def fields(self, values: Array, indices: Array) -> Array:
        """Return values and indices in order, as bits."""
        bits = np.dtype(f"u{values.dtype.itemsize}")
        if self.order is ReduceOrder.ONLY_VALUE:
            return values.view(bits)
        if self.order is ReduceOrder.ONLY_INDEX:
            return indices.astype(np.uint32)
        pair = [values.view(bits), indices.astype(bits)]
        if self.order is ReduceOrder.INDEX_VALUE:
            pair.reverse()
        return np.stack(pair, axis=-1)


@instruction
class WholeReduceMax(WholeExtreme):
    """Find the largest lane of every repeat and its index.

    `order` says what is written; `dst_repeat` counts that. Types f16, f32. Cost: class reduce_repeat.
    """

    def reduce(self, core: CoreView, state: State, x: Array, mask: Array | None) -> Array:
        """Return the maxima and their lanes."""
        return self.fields(*numerics.tree_max(x, self.src.dtype, core.profile.vector, mask=mask))


@instruction
class WholeReduceMin(WholeExtreme):
    """Find the smallest lane of every repeat and its index.

    `order` says what is written; `dst_repeat` counts that. Types f16, f32. Cost: class reduce_repeat.
    """

    def reduce(self, core: CoreView, state: State, x: Array, mask: Array | None) -> Array:
        """Return the minima and their lanes."""
        return self.fields(*numerics.tree_min(x, self.src.dtype, core.profile.vector, mask=mask))


# ---- a block to one result ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockReduction(Reduction):
    """Base of the reductions of every block of 32 bytes; a repeat gives eight results side by side."""

    cost_class: ClassVar[str] = "reduce_block"

    def width(self, lanes: int) -> int:
        """Return the lanes of a block."""
        return lanes // 8

    def unit(self) -> int:
        """Return the bytes of eight elements."""
        return 8 * self.dst.dtype.size


@instruction
class BlockReduceSum(BlockReduction):
    """Add up the lanes of every block: eight sums a repeat.

    `dst_repeat` counts eight elements. Types f16, f32. Cost: class reduce_block.
    """

    def reduce(self, core: CoreView, state: State, x: Array, mask: Array | None) -> Array:
        """Return the sums."""
        return numerics.tree_sum(x, self.src.dtype, mask=mask, saturate=state.saturate)


@instruction
class BlockReduceMax(BlockReduction):
    """Find the largest lane of every block: eight values a repeat.

    `dst_repeat` counts eight elements. Types f16, f32. Cost: class reduce_block.
    """

    def reduce(self, core: CoreView, state: State, x: Array, mask: Array | None) -> Array:
        """Return the maxima."""
        return numerics.tree_max(x, self.src.dtype, core.profile.vector, mask=mask)[0]


@instruction
class BlockReduceMin(BlockReduction):
    """Find the smallest lane of every block: eight values a repeat.

    `dst_repeat` counts eight elements. Types f16, f32. Cost: class reduce_block.
    """

    def reduce(self, core: CoreView, state: State, x: Array, mask: Array | None) -> Array:
        """Return the minima."""
        return numerics.tree_min(x, self.src.dtype, core.profile.vector, mask=mask)[0]


@instruction
class PairReduceSum(Reduction):
    """Add adjacent pairs of lanes: half as many results as lanes.

    `dst_repeat` counts 128 bytes. Types f16, f32. Cost: class reduce_pair.
    """

    cost_class: ClassVar[str] = "reduce_pair"

    def width(self, lanes: int) -> int:
        """Return two."""
        return 2

    def unit(self) -> int:
        """Return the bytes of half a repeat."""
        return 128

    def reduce(self, core: CoreView, state: State, x: Array, mask: Array | None) -> Array:
        """Return the sums."""
        return numerics.tree_sum(x, self.src.dtype, mask=mask, saturate=state.saturate)
