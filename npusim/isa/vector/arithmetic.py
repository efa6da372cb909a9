"""Element-wise arithmetic: two sources, or one source and a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from npusim.isa.dtype import F16, F32, S16, S32, DType
from npusim.isa.instruction import Array, CoreView, UbIn, UbOut, instruction
from npusim.isa.numerics import vector as numerics
from npusim.isa.operand import Operand, Scalar, Space
from npusim.isa.state import State
from npusim.isa.vector.lanes import VectorInstruction

UB = Space.UB


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoSource(VectorInstruction):
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
        return cls(
            dst=Operand(UB, dtype, 0x10000),
            src0=Operand(UB, dtype, 0x0),
            src1=Operand(UB, dtype, 0x900),
            repeat=2,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WithScalar(VectorInstruction):
    """Base of `dst[i] = f(src[i], scalar)`."""

    dst: UbOut
    src: UbIn
    scalar: Scalar
    dst_block: int = 1
    dst_repeat: int = 8
    src_block: int = 1
    src_repeat: int = 8

    @property
    def scalar_dtype(self) -> DType:
        """The element type of the source."""
        return self.src.dtype

    @classmethod
    def example(cls) -> WithScalar:
        """Two repeats, with the immediate two."""
        dtype = F32 if F32 in cls.types else S16
        return cls(dst=Operand(UB, dtype, 0x10000), src=Operand(UB, dtype, 0), scalar=2, repeat=2)


@instruction
class Add(TwoSource):
    """Add element by element: `dst = src0 + src1`, rounded once to the element type."""

    types: ClassVar[frozenset[DType]] = frozenset({F16, F32, S16, S32})

    def compute(self, core: CoreView, state: State, *sources: Array) -> Array:
        """Return the sums."""
        return numerics.add(*sources, dtype=self.dst.dtype, saturate=state.saturate)


@instruction
class Adds(WithScalar):
    """Add a value to every element: `dst = src + scalar`, rounded once to the element type."""

    types: ClassVar[frozenset[DType]] = frozenset({F16, F32, S16, S32})

    def compute(self, core: CoreView, state: State, *sources: Array) -> Array:
        """Return the sums."""
        value = core.scalar(self.scalar, self.src.dtype)
        return numerics.add(sources[0], value, dtype=self.dst.dtype, saturate=state.saturate)
