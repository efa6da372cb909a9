"""Bitwise operations and shifts."""

from __future__ import annotations

from typing import ClassVar

from npusim.config.chip import Chip
from npusim.isa.dtype import S16, S32, U16, U32, DType
from npusim.isa.instruction import Array, CoreView, instruction
from npusim.isa.numerics import vector as numerics
from npusim.isa.operand import Imm
from npusim.isa.state import State
from npusim.isa.vector.arithmetic import TwoSource
from npusim.isa.vector.unary import OneSource, WithScalar

BITS_16 = frozenset({S16, U16})
SHIFTED = frozenset({S16, U16, S32, U32})


@instruction
class And(TwoSource):
    """Combine bits: `dst = src0 & src1`.

    Types s16, u16. Cost: class two_source.
    """

    types: ClassVar[frozenset[DType]] = BITS_16

    def compute(self, core: CoreView, state: State, *sources: Array) -> Array:
        """Return the common bits."""
        return numerics.and_(*sources)


@instruction
class Or(TwoSource):
    """Combine bits: `dst = src0 | src1`.

    Types s16, u16. Cost: class two_source.
    """

    types: ClassVar[frozenset[DType]] = BITS_16

    def compute(self, core: CoreView, state: State, *sources: Array) -> Array:
        """Return the bits of either source."""
        return numerics.or_(*sources)


@instruction
class Not(OneSource):
    """Invert bits: `dst = ~src`.

    Types s16, u16. Cost: class one_source.
    """

    types: ClassVar[frozenset[DType]] = BITS_16

    def compute(self, core: CoreView, state: State, *sources: Array) -> Array:
        """Return the inverted bits."""
        return numerics.not_(sources[0])


@instruction
class ShiftLeft(WithScalar):
    """Shift bits up by a count of 0 to the width of the type: `dst = src << scalar`.

    A signed type keeps its sign bit and drops the bit below it (asc-devkit ShiftLeft page). Types s16, u16,
    s32, u32. Cost: class one_source.
    """

    types: ClassVar[frozenset[DType]] = SHIFTED

    def check(self, chip: Chip, state: State) -> None:
        """Refuse counts beyond the width of the type."""
        super(ShiftLeft, self).check(chip, state)
        _check_count(self)

    def compute(self, core: CoreView, state: State, *sources: Array) -> Array:
        """Return the shifted elements."""
        return numerics.shift_left(sources[0], int(self.value(core)), self.dst.dtype)


@instruction
class ShiftRight(WithScalar):
    """Shift bits down by a count of 0 to the width of the type: `dst = src >> scalar`.

    Signed types shift arithmetically. `round` adds the last bit shifted out, for signed types. Types s16,
    u16, s32, u32. Cost: class one_source.
    """

    round: bool = False

    types: ClassVar[frozenset[DType]] = SHIFTED

    def check(self, chip: Chip, state: State) -> None:
        """Refuse counts beyond the width of the type, and rounding of unsigned types."""
        super(ShiftRight, self).check(chip, state)
        _check_count(self)
        if self.round and not self.src.dtype.is_signed:
            raise self.error(f"round must be false for unsigned types, not true with {self.src.dtype.short}")

    def compute(self, core: CoreView, state: State, *sources: Array) -> Array:
        """Return the shifted elements."""
        count = int(self.value(core))
        return numerics.shift_right(sources[0], count, self.dst.dtype, round_half=self.round)


def _check_count(op: WithScalar) -> None:
    width = op.src.dtype.bits
    if type(op.scalar) is Imm and op.scalar.bits > width:
        raise op.error(f"scalar must shift {op.src.dtype.short} by 0..{width} bits, not {op.scalar.bits}")
