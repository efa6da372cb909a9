"""Element-wise arithmetic on one source, with or without a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from npusim.isa.dtype import F16, F32, S16, S32, DType
from npusim.isa.instruction import Array, CoreView, UbIn, UbOut, instruction
from npusim.isa.numerics import vector as numerics
from npusim.isa.operand import Scalar
from npusim.isa.state import State
from npusim.isa.vector.arithmetic import ALL, FLOATS
from npusim.isa.vector.lanes import LaneWise, ub, value_of


@dataclass(frozen=True, slots=True, kw_only=True)
class OneSource(LaneWise):
    """Base of `dst[i] = f(src[i])`."""

    dst: UbOut
    src: UbIn
    dst_block: int = 1
    dst_repeat: int = 8
    src_block: int = 1
    src_repeat: int = 8

    types: ClassVar[frozenset[DType]] = FLOATS

    @classmethod
    def example(cls) -> OneSource:
        """Two repeats, destination in another bank."""
        dtype = F32 if F32 in cls.types else S16
        return cls(dst=ub(dtype, 0x10000), src=ub(dtype, 0), repeat=2)


@instruction
class Exp(OneSource):
    """Raise e to every element: `dst = exp(src)`, correctly rounded.

    The numerics profile decides about subnormals. Types f16, f32. Cost: class transcendental.
    """

    cost_class: ClassVar[str] = "transcendental"

    def compute(self, core: CoreView, state: State, *sources: Array) -> Array:
        """Return the exponentials."""
        return numerics.exp(sources[0], self.dst.dtype, core.profile.vector, saturate=state.saturate)


@instruction
class Ln(OneSource):
    """Take the natural logarithm: `dst = ln(src)`, correctly rounded.

    The numerics profile decides about subnormals. Types f16, f32. Cost: class transcendental.
    """

    cost_class: ClassVar[str] = "transcendental"

    def compute(self, core: CoreView, state: State, *sources: Array) -> Array:
        """Return the logarithms."""
        return numerics.ln(sources[0], self.dst.dtype, core.profile.vector, saturate=state.saturate)


@instruction
class Abs(OneSource):
    """Take the absolute value: `dst = |src|`.

    Types f16, f32. Cost: class one_source.
    """

    def compute(self, core: CoreView, state: State, *sources: Array) -> Array:
        """Return the absolute values."""
        return numerics.abs_(sources[0], self.dst.dtype, saturate=state.saturate)


@instruction
class Reciprocal(OneSource):
    """Take the reciprocal: `dst = 1 / src`.

    Correctly rounded unless the numerics profile says how much worse the hardware is. Types f16, f32. Cost:
    class approx.
    """

    cost_class: ClassVar[str] = "approx"

    def compute(self, core: CoreView, state: State, *sources: Array) -> Array:
        """Return the reciprocals."""
        return numerics.rec(sources[0], self.dst.dtype, core.profile.vector, saturate=state.saturate)


@instruction
class Sqrt(OneSource):
    """Take the square root: `dst = sqrt(src)`, correctly rounded.

    The numerics profile decides about subnormals. Types f16, f32. Cost: class transcendental.
    """

    cost_class: ClassVar[str] = "transcendental"

    def compute(self, core: CoreView, state: State, *sources: Array) -> Array:
        """Return the square roots."""
        return numerics.sqrt(sources[0], self.dst.dtype, core.profile.vector, saturate=state.saturate)


@instruction
class Rsqrt(OneSource):
    """Take the reciprocal square root: `dst = 1 / sqrt(src)`.

    Correctly rounded unless the numerics profile says how much worse the hardware is. Types f16, f32. Cost:
    class approx.
    """

    cost_class: ClassVar[str] = "approx"

    def compute(self, core: CoreView, state: State, *sources: Array) -> Array:
        """Return the reciprocal square roots."""
        return numerics.rsqrt(sources[0], self.dst.dtype, core.profile.vector, saturate=state.saturate)


@instruction
class Relu(OneSource):
    """Clip below zero: `dst = max(src, 0)`.

    Types f16, f32, s32. Cost: class one_source.
    """

    types: ClassVar[frozenset[DType]] = frozenset({F16, F32, S32})

    def compute(self, core: CoreView, state: State, *sources: Array) -> Array:
        """Return the clipped elements."""
        dtype = self.dst.dtype
        return numerics.relu(sources[0], dtype, core.profile.vector, saturate=self.saturates(state, dtype))


# ---- one source and a value --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class WithScalar(LaneWise):
    """Base of `dst[i] = f(src[i], scalar)`; the value is an immediate or a register."""

    dst: UbOut
    src: UbIn
    scalar: Scalar
    dst_block: int = 1
    dst_repeat: int = 8
    src_block: int = 1
    src_repeat: int = 8

    types: ClassVar[frozenset[DType]] = ALL

    @property
    def scalar_dtype(self) -> DType:
        """The element type of the source."""
        return self.src.dtype

    def value(self, core: CoreView) -> Any:
        """Return the value as a NumPy scalar."""
        return value_of(core, self.scalar, self.src.dtype)

    @classmethod
    def example(cls) -> WithScalar:
        """Two repeats, with the immediate two."""
        dtype = F32 if F32 in cls.types else S16
        return cls(dst=ub(dtype, 0x10000), src=ub(dtype, 0), scalar=2, repeat=2)


@instruction
class Adds(WithScalar):
    """Add a value to every element: `dst = src + scalar`, rounded once to the element type.

    Types f16, f32, s16, s32. Cost: class one_source.
    """

    def compute(self, core: CoreView, state: State, *sources: Array) -> Array:
        """Return the sums."""
        dtype = self.dst.dtype
        return numerics.add(sources[0], self.value(core), dtype, saturate=self.saturates(state, dtype))


@instruction
class Muls(WithScalar):
    """Multiply every element by a value: `dst = src * scalar`, rounded once to the element type.

    Types f16, f32, s16, s32. Cost: class one_source.
    """

    def compute(self, core: CoreView, state: State, *sources: Array) -> Array:
        """Return the products."""
        dtype = self.dst.dtype
        return numerics.mul(sources[0], self.value(core), dtype, saturate=self.saturates(state, dtype))


@instruction
class Maxs(WithScalar):
    """Take the larger of every element and a value: `dst = max(src, scalar)`.

    The numerics profile decides about NaN. Types f16, f32, s16, s32. Cost: class one_source.
    """

    def compute(self, core: CoreView, state: State, *sources: Array) -> Array:
        """Return the larger elements."""
        dtype, rules = self.dst.dtype, core.profile.vector
        saturate = self.saturates(state, dtype)
        return numerics.maximum(sources[0], self.value(core), dtype, rules, saturate=saturate)


@instruction
class Mins(WithScalar):
    """Take the smaller of every element and a value: `dst = min(src, scalar)`.

    The numerics profile decides about NaN. Types f16, f32, s16, s32. Cost: class one_source.
    """

    def compute(self, core: CoreView, state: State, *sources: Array) -> Array:
        """Return the smaller elements."""
        dtype, rules = self.dst.dtype, core.profile.vector
        saturate = self.saturates(state, dtype)
        return numerics.minimum(sources[0], self.value(core), dtype, rules, saturate=saturate)


@instruction
class LeakyRelu(WithScalar):
    """Scale the negative elements: `dst = src` where `src >= 0`, else `src * scalar`, rounded once.

    Types f16, f32. Cost: class one_source.
    """

    types: ClassVar[frozenset[DType]] = FLOATS

    def compute(self, core: CoreView, state: State, *sources: Array) -> Array:
        """Return the elements, the negative ones scaled."""
        x, dtype = sources[0], self.dst.dtype
        scaled = numerics.mul(x, self.value(core), dtype, saturate=state.saturate)
        # times one, so that saturation and the canonical NaN apply to what passes through as well
        kept = numerics.mul(x, dtype.np.type(1), dtype, saturate=state.saturate)
        return np.where(x >= 0, kept, scaled)
