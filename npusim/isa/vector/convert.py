"""Conversions between element types, alone and behind an addition or a multiplication."""

from __future__ import annotations

from typing import ClassVar

from npusim.isa.dtype import F16, F32, S4, S32, DType
from npusim.isa.instruction import Array, CoreView, UbIn, UbOut, instruction
from npusim.isa.numerics.cast import CAST_MODES, RoundMode, cast, dequant_s32_f16
from npusim.isa.state import State
from npusim.isa.vector.lanes import LaneWise, immediate, ub


@instruction
class Cast(LaneWise):
    """Convert elements to another type: `dst = src`, rounded as `mode` says.

    A repeat has as many elements as 256 bytes of the wider type; operands of a narrower type have a smaller
    repeat stride. Overflow saturates unless the control state says otherwise. s32 -> f16 multiplies by the
    dequantisation scale of the state and ignores the mode. Cost: class cast."""

    dst: UbOut
    src: UbIn
    mode: RoundMode = RoundMode.NONE
    dst_block: int = 1
    dst_repeat: int = 8
    src_block: int = 1
    src_repeat: int = 8

    cost_class: ClassVar[str] = "cast"

    def check_types(self) -> None:
        """Refuse pairs of types, and modes, that the hardware does not have."""
        src, dst = self.src.dtype, self.dst.dtype
        if (src, dst) == (S32, F16):
            return
        modes = CAST_MODES.get((src, dst))
        if modes is None:
            targets = " ".join(d.short for d in DType if (src, d) in CAST_MODES or (src, d) == (S32, F16))
            if not targets:
                raise self.error(f"src of type {src.short} converts to nothing")
            raise self.error(f"{src.short} must be converted to one of {targets}, not {dst.short}")
        if self.mode not in modes:
            names = " ".join(m.name for m in RoundMode if m in modes)
            raise self.error(
                f"mode must be one of {names} for {src.short} to {dst.short}, not {self.mode.name}"
            )

    def check_mask(self, state: State) -> None:
        """Check the mask; two s4 elements share a byte, so they run together."""
        super(Cast, self).check_mask(state)
        if S4 in (self.src.dtype, self.dst.dtype):
            for piece in self.plan(state).pieces:
                mask = (1 << piece.lanes) - 1 if piece.mask is None else piece.mask
                pairs = int("01" * 64, 2)
                if (mask & pairs) << 1 != mask & pairs << 1:
                    raise self.error(
                        "the mask must let both elements of an s4 byte run or none, not one of them"
                    )

    def compute(self, core: CoreView, state: State, *sources: Array) -> Array:
        """Return the converted elements."""
        src, dst = self.src.dtype, self.dst.dtype
        if src is S32 and dst is F16:
            return dequant_s32_f16(sources[0], immediate(state.deq_scale, F32), saturate=state.saturate)
        return cast(sources[0], src, dst, self.mode, saturate=state.saturate)

    @classmethod
    def example(cls) -> Cast:
        """Widen 128 halves."""
        return cls(dst=ub(F32, 0x10000), src=ub(F16, 0), src_repeat=4, repeat=2)
