"""Selection of elements from two sources by bits."""

from __future__ import annotations

from enum import Enum
from typing import ClassVar

import numpy as np

from npusim.config.chip import Chip
from npusim.isa.dtype import F16, F32, U8, DType
from npusim.isa.instruction import Array, CoreView, UbIn, UbOut, instruction
from npusim.isa.operand import Access, Imm, Scalar
from npusim.isa.state import State
from npusim.isa.vector.lanes import LaneWise, ub, value_of
from npusim.isa.vector.layout import Layout, make_layout
from npusim.isa.vector.walk import Piece, Plan, Step, repeated, runs_of
from npusim.units import ceil_div


class SelectMode(Enum):
    """Where `Select` finds its bits and what a zero bit stands for (the vendor's SELMODE)."""

    CMPMASK_SPR = "the compare-mask register, the same bits in every repeat; src1"
    TENSOR_SCALAR = "bits in UB, consumed repeat by repeat; scalar"
    TENSOR_TENSOR = "bits in UB, consumed repeat by repeat; src1"


@instruction
class Select(LaneWise):
    """Choose by bits: `dst = src0` where the bit is one, else `src1` or, in mode TENSOR_SCALAR, `scalar`.

    `bits` holds one bit an element, first element lowest, and every repeat takes as many as it has lanes;
    mode CMPMASK_SPR takes the bits of the compare-mask register instead. Types f16, f32. Cost: class select.
    """

    dst: UbOut
    src0: UbIn
    src1: UbIn | None = None
    bits: UbIn | None = None
    scalar: Scalar = Imm(0)
    mode: SelectMode = SelectMode.TENSOR_TENSOR
    dst_block: int = 1
    dst_repeat: int = 8
    src0_block: int = 1
    src0_repeat: int = 8
    src1_block: int = 1
    src1_repeat: int = 8

    types: ClassVar[frozenset[DType]] = frozenset({F16, F32})
    cost_class: ClassVar[str] = "select"
    in_rows: ClassVar[bool] = False

    @property
    def scalar_dtype(self) -> DType:
        """The element type of the source."""
        return self.src0.dtype

    def layout(self) -> Layout:
        """Return which operands are walked: the second source only where there is one."""
        return _ONE if self.src1 is None else _TWO

    def check_types(self) -> None:
        """Check that the mode has the operands it needs, and their types."""
        needs = {
            "src1": self.mode is not SelectMode.TENSOR_SCALAR,
            "bits": self.mode is not SelectMode.CMPMASK_SPR,
        }
        for name, needed in needs.items():
            if needed != (getattr(self, name) is not None):
                raise self.error(f"{name} must {'' if needed else 'not '}be given in mode {self.mode.name}")
        self.check_type("dst", self.dst.dtype)
        self.check_same("dst", "src0")
        if self.src1 is not None:
            self.check_same("dst", "src1")

    def check_bounds(self, chip: Chip, state: State) -> None:
        """Check bounds and overlap, of the bits as well."""
        super(Select, self).check_bounds(chip, state)
        if self.bits is not None:
            self.check_apart(state, "dst", "bits")

    def touched(self, state: State) -> dict[str, list[Access]]:
        """Return the lanes that run, and the bytes that hold their bits."""
        found = super(Select, self).touched(state)
        if self.bits is not None:
            plan = self.plan(state)
            stride = plan.lanes // 8
            found["bits"] = [
                repeated(self.bits, piece.first * stride + start, stop - start, piece.repeats, stride)
                for piece in plan.pieces
                for start, stop in runs_of(_bytes_of(piece))
            ]
        return found

    def compute_step(
        self, core: CoreView, state: State, plan: Plan, step: Step, sources: list[Array]
    ) -> Array:
        """Choose lanes."""
        other = sources[1] if len(sources) > 1 else value_of(core, self.scalar, self.src0.dtype)
        return np.where(self._bits(core, plan, step.piece), sources[0], other)

    def _bits(self, core: CoreView, plan: Plan, piece: Piece) -> Array:
        """Return the bits of a piece as booleans, (repeats or 1, lanes)."""
        count = ceil_div(piece.lanes, 8)
        if self.bits is None:
            data = np.frombuffer(core.compare_mask.to_bytes(16, "little"), np.uint8)[None, :count]
        else:
            at = self.bits.as_type(U8).offset(piece.first * plan.lanes // 8)
            data = core.view(at, (piece.repeats, count), (plan.lanes // 8, 1))
        unpacked = np.unpackbits(data, axis=1, bitorder="little")
        return unpacked[:, : piece.lanes].astype(np.bool_)

    @classmethod
    def example(cls) -> Select:
        """Choose among 128 floats."""
        return cls(dst=ub(F32, 0x10000), src0=ub(F32, 0), src1=ub(F32, 0x900), bits=ub(U8, 0x20000), repeat=2)


_ONE = make_layout(Select, "dst", "src0")
_TWO = make_layout(Select, "dst", "src0", "src1")


def _bytes_of(piece: Piece) -> int:
    """Return which bytes of a repeat's bits hold any that count, as bits."""
    return sum(1 << i for i in range(ceil_div(piece.lanes, 8)) if piece.bits >> 8 * i & 0xFF)
