"""Conversions between element types, alone and behind an addition or a multiplication."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from npusim.isa.dtype import F16, F32, S4, S8, S16, S32, U8, DType
from npusim.isa.instruction import Array, CoreView, UbIn, UbOut, instruction
from npusim.isa.numerics import vector as numerics
from npusim.isa.numerics.cast import CAST_MODES, RoundMode, cast, dequant_s32_f16
from npusim.isa.state import State
from npusim.isa.vector.arithmetic import TwoSource
from npusim.isa.vector.lanes import LaneWise, immediate, ub

RELU_CASTS = frozenset({(F16, S8), (S16, S8), (F32, F16)})


@instruction
class Cast(LaneWise):
    """Convert elements to another type: `dst = src`, rounded as `mode` says.

    A repeat has as many elements as 256 bytes of the wider type; operands of a narrower type have a smaller
    repeat stride. Overflow saturates unless the control state says otherwise. s32 -> f16 multiplies by the
    dequantisation scale of the state and ignores the mode. Cost: class cast.
    """

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
        self.check_type("src", src, frozenset(s for s, _ in CAST_MODES))
        targets = [d for d in DType if (src, d) in CAST_MODES or (src, d) == (S32, F16)]
        if dst not in targets:
            raise self.error(
                f"dst must be one of {' '.join(d.short for d in targets)} where src is {src.short}, "
                f"not {dst.short}"
            )
        modes = CAST_MODES[src, dst]
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
                low = int("01" * 64, 2)
                if (piece.bits & low) << 1 != piece.bits & low << 1:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoSourceCast(TwoSource):
    """Base of the two-source operations that convert their result to a narrower type."""

    pairs: ClassVar[frozenset[tuple[DType, DType]]] = frozenset()
    """Element types of sources and destination."""

    def check_types(self) -> None:
        """Refuse other pairs of types."""
        src, dst = self.src0.dtype, self.dst.dtype
        self.check_type("src0", src, frozenset(s for s, _ in self.pairs))
        self.check_type("dst", dst, frozenset(d for s, d in self.pairs if s is src))
        self.check_same("src0", "src1")

    @classmethod
    def example(cls) -> TwoSourceCast:
        """Two repeats of halves."""
        return cls(dst=ub(S8, 0x10000), src0=ub(F16, 0x0), src1=ub(F16, 0x900), dst_repeat=4, repeat=2)


@instruction
class MulCast(TwoSourceCast):
    """Multiply and convert: `dst = round(src0 * src1)`, by way of f16 and then to the nearest integer.

    That the product is rounded to f16 first is not documented (L). f16 sources; u8 or s8 destination, which
    saturates unless the control state says otherwise. Cost: class two_source.
    """

    pairs: ClassVar[frozenset[tuple[DType, DType]]] = frozenset({(F16, S8), (F16, U8)})

    def compute(self, core: CoreView, state: State, *sources: Array) -> Array:
        """Return the converted products."""
        product = numerics.mul(sources[0], sources[1], F16, saturate=state.saturate)
        return cast(product, F16, self.dst.dtype, RoundMode.NONE, saturate=state.saturate)


@instruction
class AddReluCast(TwoSourceCast):
    """Add, clip below zero and convert: `dst = max(src0 + src1, 0)`.

    The sum is rounded to the type of the sources first (not documented; L). f16 to s8, s16 to s8, f32 to f16;
    ties go to even. Cost: class two_source.
    """

    pairs: ClassVar[frozenset[tuple[DType, DType]]] = RELU_CASTS

    def compute(self, core: CoreView, state: State, *sources: Array) -> Array:
        """Return the converted sums."""
        dtype = self.src0.dtype
        total = numerics.add(sources[0], sources[1], dtype, saturate=self.saturates(state, dtype))
        return _relu_cast(self, core, state, total)


@instruction
class SubReluCast(TwoSourceCast):
    """Subtract, clip below zero and convert: `dst = max(src0 - src1, 0)`, rounded as in AddReluCast.

    f16 to s8, s16 to s8, f32 to f16; ties go to even. Cost: class two_source.
    """

    pairs: ClassVar[frozenset[tuple[DType, DType]]] = RELU_CASTS

    def compute(self, core: CoreView, state: State, *sources: Array) -> Array:
        """Return the converted differences."""
        dtype = self.src0.dtype
        total = numerics.sub(sources[0], sources[1], dtype, saturate=self.saturates(state, dtype))
        return _relu_cast(self, core, state, total)


def _relu_cast(op: TwoSourceCast, core: CoreView, state: State, total: Array) -> Array:
    src, dst = op.src0.dtype, op.dst.dtype
    clipped = numerics.relu(total, src, core.profile.vector, saturate=op.saturates(state, src))
    if src is S16:
        return (np.minimum(clipped, 127) if state.saturate else clipped).astype(dst.np)
    return cast(clipped, src, dst, RoundMode.NONE, saturate=state.saturate)
