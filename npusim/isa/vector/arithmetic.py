"""Element-wise arithmetic on two sources, and the multiply-adds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from npusim.isa.dtype import F16, F32, S16, S32, DType
from npusim.isa.instruction import Array, CoreView, UbIn, UbInOut, UbOut, instruction
from npusim.isa.numerics import vector as numerics
from npusim.isa.operand import Scalar
from npusim.isa.state import State
from npusim.isa.vector.lanes import LaneWise, ub, value_of

ALL = frozenset({F16, F32, S16, S32})
FLOATS = frozenset({F16, F32})
RELU_SUMS = frozenset({F16, F32, S16})


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoSource(LaneWise):
    """Base of `dst[i] = f(src0[i], src1[i])`."""

    dst: UbOut
    src0: UbIn
    src1: UbIn
    dst_block: int = 1
    dst_repeat: int = 8
    src0_block: int = 1
    src0_repeat: int = 8
    src1_block: int = 1
    src1_repeat: int = 8

    cost_class: ClassVar[str] = "two_source"

    @classmethod
    def example(cls) -> TwoSource:
        """Two repeats, sources in different bank groups, destination in another bank."""
        dtype = F32 if F32 in cls.types else S16
        return cls(dst=ub(dtype, 0x10000), src0=ub(dtype, 0x0), src1=ub(dtype, 0x900), repeat=2)


@instruction
class Add(TwoSource):
    """Add element by element: `dst = src0 + src1`, rounded once to the element type.

    Types f16, f32, s16, s32. Cost: class two_source.
    """

    types: ClassVar[frozenset[DType]] = ALL
    accumulates: ClassVar[bool] = True

    def compute(self, core: CoreView, state: State, *sources: Array) -> Array:
        """Return the sums."""
        dtype = self.dst.dtype
        return numerics.add(sources[0], sources[1], dtype, saturate=self.saturates(state, dtype))


@instruction
class Sub(TwoSource):
    """Subtract element by element: `dst = src0 - src1`, rounded once to the element type.

    Types f16, f32, s16, s32. Cost: class two_source.
    """

    types: ClassVar[frozenset[DType]] = ALL
    accumulates: ClassVar[bool] = True

    def compute(self, core: CoreView, state: State, *sources: Array) -> Array:
        """Return the differences."""
        dtype = self.dst.dtype
        return numerics.sub(sources[0], sources[1], dtype, saturate=self.saturates(state, dtype))


@instruction
class Mul(TwoSource):
    """Multiply element by element: `dst = src0 * src1`, rounded once to the element type.

    Types f16, f32, s16, s32. Cost: class two_source.
    """

    types: ClassVar[frozenset[DType]] = ALL
    accumulates: ClassVar[bool] = True

    def compute(self, core: CoreView, state: State, *sources: Array) -> Array:
        """Return the products."""
        dtype = self.dst.dtype
        return numerics.mul(sources[0], sources[1], dtype, saturate=self.saturates(state, dtype))


@instruction
class Div(TwoSource):
    """Divide element by element: `dst = src0 / src1`.

    Correctly rounded; the numerics profile decides about subnormals. Types f16, f32. Cost: class div.
    """

    types: ClassVar[frozenset[DType]] = FLOATS
    cost_class: ClassVar[str] = "div"

    def compute(self, core: CoreView, state: State, *sources: Array) -> Array:
        """Return the quotients."""
        a, b = sources
        return numerics.div(a, b, self.dst.dtype, core.profile.vector, saturate=state.saturate)


@instruction
class Max(TwoSource):
    """Take the larger element: `dst = max(src0, src1)`.

    The numerics profile decides about NaN. Types f16, f32, s16, s32. Cost: class two_source.
    """

    types: ClassVar[frozenset[DType]] = ALL
    accumulates: ClassVar[bool] = True

    def compute(self, core: CoreView, state: State, *sources: Array) -> Array:
        """Return the larger elements."""
        a, b = sources
        dtype = self.dst.dtype
        return numerics.maximum(a, b, dtype, core.profile.vector, saturate=self.saturates(state, dtype))


@instruction
class Min(TwoSource):
    """Take the smaller element: `dst = min(src0, src1)`.

    The numerics profile decides about NaN. Types f16, f32, s16, s32. Cost: class two_source.
    """

    types: ClassVar[frozenset[DType]] = ALL
    accumulates: ClassVar[bool] = True

    def compute(self, core: CoreView, state: State, *sources: Array) -> Array:
        """Return the smaller elements."""
        a, b = sources
        dtype = self.dst.dtype
        return numerics.minimum(a, b, dtype, core.profile.vector, saturate=self.saturates(state, dtype))


@instruction
class AddRelu(TwoSource):
    """Add and clip below zero: `dst = max(src0 + src1, 0)`.

    Types f16, f32, s16. Cost: class two_source.
    """

    types: ClassVar[frozenset[DType]] = RELU_SUMS
    accumulates: ClassVar[bool] = True

    def compute(self, core: CoreView, state: State, *sources: Array) -> Array:
        """Return the clipped sums."""
        dtype, saturate = self.dst.dtype, self.saturates(state, self.dst.dtype)
        total = numerics.add(sources[0], sources[1], dtype, saturate=saturate)
        return numerics.relu(total, dtype, core.profile.vector, saturate=saturate)


@instruction
class SubRelu(TwoSource):
    """Subtract and clip below zero: `dst = max(src0 - src1, 0)`.

    Types f16, f32, s16. Cost: class two_source.
    """

    types: ClassVar[frozenset[DType]] = RELU_SUMS
    accumulates: ClassVar[bool] = True

    def compute(self, core: CoreView, state: State, *sources: Array) -> Array:
        """Return the clipped differences."""
        dtype, saturate = self.dst.dtype, self.saturates(state, self.dst.dtype)
        total = numerics.sub(sources[0], sources[1], dtype, saturate=saturate)
        return numerics.relu(total, dtype, core.profile.vector, saturate=saturate)


# ---- multiply-adds -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class MultiplyAdd(LaneWise):
    """Base of the instructions that multiply and add on the destination and two sources."""

    dst: UbInOut
    src0: UbIn
    src1: UbIn
    dst_block: int = 1
    dst_repeat: int = 8
    src0_block: int = 1
    src0_repeat: int = 8
    src1_block: int = 1
    src1_repeat: int = 8

    types: ClassVar[frozenset[DType]] = FLOATS
    cost_class: ClassVar[str] = "two_source"

    @classmethod
    def example(cls) -> MultiplyAdd:
        """Two repeats of floats."""
        return cls(dst=ub(F32, 0x10000), src0=ub(F32, 0x0), src1=ub(F32, 0x900), repeat=2)


@instruction
class MulAddDst(MultiplyAdd):
    """Multiply and add to the destination: `dst = src0 * src1 + dst`, rounded once.

    Types f16, f32, and f16 sources with an f32 destination. Cost: class muladd_dst.
    """

    cost_class: ClassVar[str] = "muladd_dst"

    def check_types(self) -> None:
        """Refuse other combinations of types."""
        _check_mixed(self, self.src0.dtype, "src0", "src1")

    def compute(self, core: CoreView, state: State, *sources: Array) -> Array:
        """Return the results."""
        dst, a, b = sources
        return numerics.muladd(a, b, dst, self.dst.dtype, saturate=state.saturate)


@instruction
class FusedMulAdd(MultiplyAdd):
    """Multiply the destination and add: `dst = src0 * dst + src1`, rounded once.

    Types f16, f32. Cost: class two_source; three operands at three places take two cycles a repeat, because
    24 blocks do not fit into 16 bank groups.
    """

    def compute(self, core: CoreView, state: State, *sources: Array) -> Array:
        """Return the results."""
        dst, a, b = sources
        return numerics.muladd(a, dst, b, self.dst.dtype, saturate=state.saturate)


@instruction
class MulAddRelu(MultiplyAdd):
    """Multiply the destination, add and clip below zero: `dst = max(src0 * dst + src1, 0)`.

    Types f16, f32. Cost: as FusedMulAdd.
    """

    def compute(self, core: CoreView, state: State, *sources: Array) -> Array:
        """Return the results."""
        dst, a, b = sources
        result = numerics.muladd(a, dst, b, self.dst.dtype, saturate=state.saturate)
        return numerics.relu(result, self.dst.dtype, core.profile.vector, saturate=state.saturate)


@instruction
class Axpy(LaneWise):
    """Multiply by a value and add to the destination: `dst = scalar * src + dst`, rounded once.

    Types f16, f32, and an f16 source with an f32 destination; the value has the type of the source. Cost:
    class one_source.
    """

    dst: UbInOut
    src: UbIn
    scalar: Scalar
    dst_block: int = 1
    dst_repeat: int = 8
    src_block: int = 1
    src_repeat: int = 8

    types: ClassVar[frozenset[DType]] = FLOATS

    @property
    def scalar_dtype(self) -> DType:
        """The element type of the source."""
        return self.src.dtype

    def check_types(self) -> None:
        """Refuse other combinations of types."""
        _check_mixed(self, self.src.dtype, "src")

    def compute(self, core: CoreView, state: State, *sources: Array) -> Array:
        """Return the results."""
        dst, x = sources
        value = value_of(core, self.scalar, self.src.dtype)
        return numerics.muladd(x, value, dst, self.dst.dtype, saturate=state.saturate)

    @classmethod
    def example(cls) -> Axpy:
        """Add two times an f16 row to an f32 row."""
        return cls(dst=ub(F32, 0x10000), src=ub(F16, 0x900), scalar=2.0, src_repeat=4, repeat=2)


def _check_mixed(op: LaneWise, source: DType, *others: str) -> None:
    """Raise unless all types are one of f16 and f32, or the sources f16 and the destination f32."""
    dst = op.dst.dtype  # type: ignore[attr-defined]  # both users have one
    op.check_type("dst", dst)
    op.check_type(others[0], source)
    for name in others[1:]:
        op.check_same(others[0], name)
    if dst is not source and (dst, source) != (F32, F16):
        raise op.error(f"dst must be f32 where {others[0]} is f32, not {dst.short}; convert it with Cast")
