"""Convenient forms of vector instructions, as lists of the visible instructions they stand for.

A form changes the mask state only where it differs from the state it is given, and leaves it changed: the
next form profits. Instructions it makes have the origin `expansion`.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from typing import Any

from npusim.isa.control import SetMaskCount, SetMaskNorm, SetVectorMask
from npusim.isa.dtype import S16, DType
from npusim.isa.instruction import Instruction, OriginKind
from npusim.isa.operand import Operand, Pipe
from npusim.isa.state import FULL_MASK, State
from npusim.isa.sync import PipeBarrier
from npusim.isa.vector.dequantise import CastDequant
from npusim.isa.vector.gather import GatherMask
from npusim.isa.vector.lanes import VectorInstruction
from npusim.isa.vector.layout import layout_of
from npusim.isa.vector.reduce import WholeReduceSum
from npusim.isa.vector.walk import BLOCK_BITS, lanes_of
from npusim.units import ceil_div

EXPANSION = OriginKind.EXPANSION


def contiguous(
    cls: type[VectorInstruction], *, count: int, state: State, **operands: Any
) -> list[Instruction]:
    """Return an instruction on the first `count` elements of dense operands, in counter mode.

    `operands` are fields of the class; repeat strides that are not given are those of dense operands, smaller
    for the narrower of two types.
    """
    if not cls.counts:
        raise TypeError(f"{cls.__name__} does not count elements; give its repeats instead")
    names = [n for n in layout_of(cls).names if n in operands]
    key = (cls, *[operands[n].dtype for n in names])
    strides = _STRIDES.get(key)
    if strides is None:
        strides = _STRIDES[key] = _dense_strides(cls, dict(zip(names, key[1:], strict=True)))
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


_STRIDES: dict[Any, dict[str, int]] = {}


def _dense_strides(cls: type[VectorInstruction], dtypes: dict[str, DType]) -> dict[str, int]:
    """Return the repeat strides of dense operands with these element types."""
    if cls is CastDequant and dtypes["src"] is S16:
        dtypes = {**dtypes, "dst": S16}  # half a block of bytes for every block of the source
    lanes = lanes_of(*dtypes.values())
    return {f"{n}_repeat": lanes * d.bits // BLOCK_BITS for n, d in dtypes.items()}


def gather_mask(
    dst: Operand,
    src: Operand,
    *,
    count: int,
    state: State,
    pattern: int = 0,
    bits: Operand | None = None,
) -> Generator[Instruction, Any, int]:
    """Yield what keeps the chosen of the first `count` dense elements, and return how many were kept.

    As the vendor's call, it leaves the core in normal mode: `kept = yield from gather_mask(...)`.
    """
    yield from counter_mode(count, state)
    kept: int = yield GatherMask(dst=dst, src=src, bits=bits, pattern=pattern, origin=EXPANSION)
    yield SetMaskNorm(origin=EXPANSION)
    return kept


def reduce_sum(dst: Operand, src: Operand, work: Operand, *, count: int, state: State) -> list[Instruction]:
    """Return what adds up the first `count` elements of `src` into the first of `dst`.

    Every step adds up whole repeats with WholeReduceSum until one sum is left: trees inside a repeat, and
    trees over the sums of repeats (the vendor's ReduceSum on repeats). `work` holds one element for every
    repeat of `src`; where one repeat is enough it is not touched.
    """
    if count < 1:
        raise ValueError(f"count must be 1 or more, not {count}")
    lanes = lanes_of(src.dtype)
    made: list[Instruction] = []
    while True:
        sums = ceil_div(count, lanes)
        target = dst if sums == 1 else work
        made += contiguous(WholeReduceSum, count=count, state=state, dst=target, src=src)
        if sums == 1:
            return made
        made.append(PipeBarrier(on=Pipe.V, origin=EXPANSION))
        state = replace(state, counter_mode=True, mask=count)
        src, count = work, sums
