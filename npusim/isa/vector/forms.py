"""Convenient forms of vector instructions, as lists of the visible instructions they stand for.

A form changes the mask state only where it differs from the state it is given, and leaves it changed: the
next form profits. Instructions it makes have the origin `expansion`."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from npusim.isa.dtype import DType
from npusim.isa.instruction import Instruction, OriginKind
from npusim.isa.scalar import SetMaskCount, SetMaskNorm, SetVectorMask
from npusim.isa.state import FULL_MASK, State
from npusim.isa.vector.lanes import VectorInstruction, layout_of
from npusim.isa.vector.walk import BLOCK_BITS, lanes_of

EXPANSION = OriginKind.EXPANSION


def contiguous(
    cls: type[VectorInstruction], *, count: int, state: State, **operands: Any
) -> list[Instruction]:
    """Return an instruction on the first `count` elements of dense operands, in counter mode.

    `operands` are fields of the class; repeat strides that are not given are those of dense operands, smaller
    for the narrower of two types."""
    names = layout_of(cls).names
    strides = dense_strides(cls, tuple(operands[n].dtype for n in names))
    return [*counter_mode(count, state), cls(**{**strides, **operands}, origin=EXPANSION)]


def masked(
    cls: type[VectorInstruction], *, state: State, mask: int = FULL_MASK, **fields: Any
) -> list[Instruction]:
    """Return an instruction with the given fields in normal mode, under a lane mask."""
    return [*normal_mode(mask, state), cls(**fields, origin=EXPANSION)]


def counter_mode(count: int, state: State) -> list[Instruction]:
    """Return what brings a core from `state` into counter mode with a count of elements."""
    changes: list[Instruction] = []
    if not state.counter_mode:
        changes.append(SetMaskCount(origin=EXPANSION))
    if state.mask != count:
        changes.append(SetVectorMask(mask=count, origin=EXPANSION))
    return changes


def normal_mode(mask: int, state: State) -> list[Instruction]:
    """Return what brings a core from `state` into normal mode with a lane mask."""
    changes: list[Instruction] = []
    if state.counter_mode:
        changes.append(SetMaskNorm(origin=EXPANSION))
    if state.mask != mask:
        changes.append(SetVectorMask(mask=mask, origin=EXPANSION))
    return changes


@lru_cache(4096)
def dense_strides(cls: type[VectorInstruction], dtypes: tuple[DType, ...]) -> dict[str, int]:
    """Return the repeat strides of dense operands with these element types."""
    if not dtypes:
        return {}
    lanes = lanes_of(*dtypes)
    names = layout_of(cls).names
    return {f"{n}_repeat": lanes * d.bits // BLOCK_BITS for n, d in zip(names, dtypes, strict=True)}
