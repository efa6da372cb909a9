"""CastDequant: integers scaled on their way to a narrower type."""

from __future__ import annotations

from typing import ClassVar

from npusim.isa.dtype import F16, F32, S8, S16, S32, U8, DType
from npusim.isa.instruction import Array, CoreView, UbIn, UbOut, instruction
from npusim.isa.numerics.cast import dequant_s32_f16, requant_b8
from npusim.isa.operand import Access
from npusim.isa.state import State
from npusim.isa.vector.lanes import LaneWise, immediate, ub
from npusim.isa.vector.walk import Plan, Strided, load, plan_of, repeated, runs_of, store
from npusim.units import BLOCK_BYTES

HALF_BYTES = BLOCK_BYTES // 2


@instruction
class CastDequant(LaneWise):
    """Scale integers and convert them: s32 to f16, or s16 to s8 or u8.

    s32: `dst = src * deq_scale`, rounded once to nearest even. s16: `dst = src * deq_scale + quant_offset`,
    rounded once and saturated; the 16 results of a block go to the lower half of a block of `dst`, or with
    `high_half` to the upper one. Scale, offset and sign are control state, the vendor's SetDeqScale. Cost:
    class two_source.
    """

    dst: UbOut
    src: UbIn
    high_half: bool = False
    dst_block: int = 1
    dst_repeat: int = 8
    src_block: int = 1
    src_repeat: int = 8

    cost_class: ClassVar[str] = "two_source"
    in_rows: ClassVar[bool] = False

    @property
    def to_bytes(self) -> bool:
        """Whether results are bytes, half a block of them for every block of the source."""
        return self.src.dtype is S16

    def check_types(self) -> None:
        """Refuse other pairs of types."""
        self.check_type("src", self.src.dtype, frozenset({S16, S32}))
        self.check_type("dst", self.dst.dtype, frozenset({S8, U8} if self.to_bytes else {F16}))
        if self.high_half and not self.to_bytes:
            raise self.error("high_half must be false for f16 results, not true")

    def check_mask(self, state: State) -> None:
        """Check the mask, and that the sign of the results is the one in the state."""
        super(CastDequant, self).check_mask(state)
        if self.to_bytes and state.quant_signed is not (self.dst.dtype is S8):
            wanted = "s8" if state.quant_signed else "u8"
            raise self.error(
                f"dst must be {wanted} while quant_signed is {int(state.quant_signed)}, not "
                f"{self.dst.dtype.short}; set it with SetControl"
            )

    def plan(self, state: State) -> Plan:
        """Return the walk; bytes lie as far apart as 16-bit elements."""
        dst = S16 if self.to_bytes else self.dst.dtype
        walked = (dst, self.dst_block, self.dst_repeat, self.src.dtype, self.src_block, self.src_repeat)
        return plan_of(state.counter_mode, state.mask, (self.repeat, *walked))

    def strided(self) -> tuple[Strided, ...]:
        """Return the walked operands; bytes lie as far apart as 16-bit elements."""
        dst = self.dst.as_type(S16) if self.to_bytes else self.dst
        return (
            Strided(dst, self.dst_block, self.dst_repeat),
            Strided(self.src, self.src_block, self.src_repeat),
        )

    def touched(self, state: State) -> dict[str, list[Access]]:
        """Return the lanes that run; of bytes, the halves of blocks."""
        found = super(CastDequant, self).touched(state)
        if self.to_bytes:
            found["dst"] = [
                repeated(
                    self.dst,
                    (piece.first * step + block * self.dst_block) * BLOCK_BYTES + self._half + start,
                    stop - start,
                    piece.repeats,
                    step * BLOCK_BYTES,
                )
                for step in (self.dst_repeat,)
                for piece in self.plan(state).pieces
                for block in range(8)
                for start, stop in runs_of(piece.bits >> HALF_BYTES * block & 0xFFFF)
            ]
        return found

    @property
    def _half(self) -> int:
        return HALF_BYTES if self.high_half else 0

    def execute(self, core: CoreView, state: State) -> None:
        """Convert all repeats at once, or one by one where they write the same bytes."""
        if not self.to_bytes:
            super(CastDequant, self).execute(core, state)
            return
        plan = self.plan(state)
        for step in plan.serial if plan.rewrites else plan.steps:
            x = load(core, self.src, step.windows[1], step.piece.lanes)
            to = step.windows[0]
            halves = to._replace(offset=to.offset + self._half, strides=(*to.strides[:2], 1))
            store(core, self.dst, halves, step, self.compute(core, state, x))

    def compute(self, core: CoreView, state: State, *sources: Array) -> Array:
        """Return the scaled elements."""
        scale = immediate(state.deq_scale, F32)
        if self.to_bytes:
            return requant_b8(sources[0], scale, state.quant_offset, self.dst.dtype)
        return dequant_s32_f16(sources[0], scale, saturate=state.saturate)

    def cost_dtype(self) -> DType:
        """Element type that selects the column of the cost table."""
        return self.src.dtype

    @classmethod
    def example(cls) -> CastDequant:
        """Convert 128 integers to halves."""
        return cls(dst=ub(F16, 0x10000), src=ub(S32, 0x900), dst_repeat=4, repeat=2)
