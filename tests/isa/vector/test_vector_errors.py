"""Errors of vector instructions, as whole messages."""

from __future__ import annotations

from typing import Any

import pytest
from vector_bench import Bench

from npusim.config.chip import Chip
from npusim.errors import OperandError
from npusim.isa.dtype import BF16, F16, F32, S4, S8, S16, S32, S64, U8, U16, U32
from npusim.isa.numerics.cast import RoundMode
from npusim.isa.operand import Operand, Space
from npusim.isa.state import RESET, State
from npusim.isa.vector import (
    Abs,
    Add,
    Adds,
    And,
    Axpy,
    BlockReduceMax,
    Brcb,
    Cast,
    CastDequant,
    Compare,
    CompareMode,
    CompareToMask,
    Copy,
    Duplicate,
    Gather,
    GatherMask,
    Max,
    MulAddDst,
    MulCast,
    PairReduceSum,
    ReduceOrder,
    Select,
    SelectMode,
    SetCmpMask,
    ShiftLeft,
    ShiftRight,
    TransDataTo5HD,
    Transpose,
    WholeReduceMax,
    WholeReduceSum,
)
from npusim.isa.vector.lanes import ub

A, B, C = ub(F32, 0), ub(F32, 0x900), ub(F32, 0x10000)
ROWS = tuple(range(0, 512, 32))
IN_PART = (
    "must be the same bytes or have none in common within a repeat, not overlap in part; "
    "give dst a place of its own"
)
FED = "what repeat 0 wrote to dst; keep the two apart, or let every repeat work in place"
SMALLER = "use fewer repeats, smaller strides or a lower address"
ADDED = "which the hardware would add to the addresses"
FAR = tuple(0x10000 + r for r in ROWS)


def add(**changes: Any) -> Add:
    """An Add of floats with some fields changed."""
    return Add(**{"dst": C, "src0": A, "src1": B, **changes})


CASES = [
    (add(dst=Operand(Space.L1, F32, 0)), "Add: dst must be in ub, not l1; copy it there first"),
    (add(src0=Operand(Space.GM, F32, 0)), "Add: src0 must be in ub, not gm; copy it there first"),
    (add(src1=ub(F32, 0x910)), "Add: src1 must start at a multiple of 32 bytes in ub, not at 0x910"),
    (add(dst=ub(F32, -32)), "Add: dst must start at a multiple of 32 bytes in ub, not at -0x20"),
    (
        add(repeat=256),
        "Add: repeat must be 0..255, not 256; split it, or count elements in counter mode",
    ),
    (add(dst_block=256), "Add: dst_block must be 0..255, not 256; it counts blocks of 32 bytes"),
    (add(src1_repeat=-1), "Add: src1_repeat must be 0..255, not -1; it counts blocks of 32 bytes"),
    (
        add(dst_block=0),
        "Add: dst_block must be 1 or more, not 0, where a repeat writes more than one block",
    ),
    (
        add(dst=ub(F32, 0x2FF00), repeat=2),
        f"Add: dst must stay inside the 196,608 bytes of ub, not end at byte 196,864; {SMALLER}",
    ),
    (
        add(dst=ub(F32, 0x2F000), dst_repeat=32, repeat=5),
        f"Add: dst must stay inside the 196,608 bytes of ub, not end at byte 196,864; {SMALLER}",
    ),
    (
        add(src1=ub(F32, 0x2FF00), src1_block=9),
        f"Add: src1 must stay inside the 196,608 bytes of ub, not end at byte 198,400; {SMALLER}",
    ),
    (add(dst=ub(BF16, 0x10000)), "Add: dst must be f16, f32, s16 or s32, not bf16"),
    (
        add(src1=ub(F16, 0x900)),
        "Add: dst and src1 must have one element type, not f32 and f16; convert one of them with Cast",
    ),
    (
        add(dst=ub(F32, 32)),
        f"Add: dst and src0 {IN_PART}",
    ),
    (
        add(dst=ub(F32, 256), repeat=2),
        f"Add: repeat 1 reads as src0 {FED}",
    ),
    (
        add(src1=ub(F32, 0xFF00), repeat=2),
        f"Add: repeat 1 reads as src1 {FED}",
    ),
    (
        add(src0=C, dst_repeat=0, src0_repeat=0, repeat=2),
        f"Add: repeat 1 reads as src0 {FED}",
    ),
    (
        Max(dst=ub(S16, 0), src0=ub(S16, 0x900), src1=ub(S16, 0), dst_repeat=0, src1_repeat=0, repeat=2),
        f"Max: repeat 1 reads as src1 {FED}",
    ),
    (
        MulAddDst(dst=C, src0=A, src1=B, dst_repeat=0, repeat=2),
        f"MulAddDst: repeat 1 reads as dst {FED}",
    ),
    (And(dst=ub(S32, 0), src0=ub(S32, 0), src1=ub(S32, 0)), "And: dst must be s16 or u16, not s32"),
    (Abs(dst=ub(S32, 0), src=ub(S32, 0)), "Abs: dst must be f16 or f32, not s32"),
    (
        Axpy(dst=ub(F16, 0x10000), src=A, scalar=1.0),
        "Axpy: dst must be f32 where src is f32, not f16; convert it with Cast",
    ),
    (
        MulAddDst(dst=C, src0=ub(F16, 0), src1=B),
        "MulAddDst: src0 and src1 must have one element type, not f16 and f32; convert one of them with Cast",
    ),
    (
        ShiftLeft(dst=ub(S16, 0), src=ub(S16, 0), scalar=17),
        "ShiftLeft: scalar must shift s16 by 0..16 bits, not 17",
    ),
    (
        ShiftRight(dst=ub(U32, 0), src=ub(U32, 0), scalar=1, round=True),
        "ShiftRight: round must be false for unsigned types, not true with u32",
    ),
    (
        Cast(dst=ub(U16, 0x10000), src=A),
        "Cast: dst must be one of f16 bf16 f32 s16 s32 s64 where src is f32, not u16",
    ),
    (
        Cast(dst=ub(U16, 0x10000), src=ub(U16, 0)),
        "Cast: src must be f16, bf16, f32, s4, s8, u8, s16, s32 or s64, not u16",
    ),
    (
        Cast(dst=ub(F16, 0x10000), src=ub(S16, 0), mode=RoundMode.ODD),
        "Cast: mode must be one of NONE RINT FLOOR CEIL ROUND TRUNC for s16 to f16, not ODD",
    ),
    (
        Cast(dst=C, src=ub(F16, 0x10000)),
        f"Cast: dst and src {IN_PART}",
    ),
    (
        MulCast(dst=ub(F16, 0x10000), src0=ub(F16, 0), src1=ub(F16, 0)),
        "MulCast: dst must be s8 or u8, not f16",
    ),
    (
        CastDequant(dst=ub(U8, 0x10000), src=ub(S16, 0)),
        "CastDequant: dst must be s8 while quant_signed is 1, not u8; set it with SetControl",
    ),
    (
        CastDequant(dst=ub(F16, 0x10000), src=ub(S32, 0), high_half=True),
        "CastDequant: high_half must be false for f16 results, not true",
    ),
    (
        Compare(dst=ub(U8, 0x10000), src0=ub(S32, 0), src1=ub(S32, 0x900), mode=CompareMode.LT),
        "Compare: mode must be EQ for s32, not LT; convert to f32 for the others",
    ),
    (
        Compare(dst=ub(U8, 0x20), src0=A, src1=B, mode=CompareMode.LT),
        "Compare: dst and src0 must have no bytes in common; give dst a place of its own",
    ),
    (
        SetCmpMask(src=ub(U8, 8)),
        "SetCmpMask: src must start at a multiple of 16 bytes in ub, not at 0x8",
    ),
    (Select(dst=C, src0=A, bits=ub(U8, 0x20000)), "Select: src1 must be given in mode TENSOR_TENSOR"),
    (
        Select(dst=C, src0=A, src1=B, mode=SelectMode.CMPMASK_SPR, bits=ub(U8, 0x20000)),
        "Select: bits must not be given in mode CMPMASK_SPR",
    ),
    (
        Copy(dst=C, src=A, dst_repeat=4096),
        "Copy: dst_repeat must be 0..4,095, not 4,096; it counts blocks of 32 bytes",
    ),
    (
        Duplicate(dst=ub(S8, 0), scalar=1),
        "Duplicate: dst must be f16, bf16, f32, s16, u16, s32 or u32, not s8",
    ),
    (
        Brcb(dst=C, src=A, dst_block=0),
        "Brcb: dst_block must be 1 or more, not 0, which the hardware takes for 1",
    ),
    (Brcb(dst=A, src=A), "Brcb: dst and src must have no bytes in common; give dst a place of its own"),
    (
        Transpose(dst=ub(F16, 32), src=ub(F16, 0)),
        "Transpose: dst and src must have no bytes in common; give dst a place of its own",
    ),
    (
        TransDataTo5HD(dst=FAR, src=ROWS[:15], dtype=F16),
        "TransDataTo5HD: src must be 16 addresses, not 15",
    ),
    (
        TransDataTo5HD(dst=(*FAR[:15], 0x10010), src=ROWS, dtype=F16),
        "TransDataTo5HD: dst[15] must start at a multiple of 32 bytes in ub, not at 0x10010",
    ),
    (
        TransDataTo5HD(dst=FAR, src=ROWS, dtype=F16, src_high_half=True),
        "TransDataTo5HD: halves of a row must be chosen for s8 and u8 only, not for f16",
    ),
    (
        TransDataTo5HD(dst=FAR, src=ROWS, dtype=F16, dst_repeat=16, src_repeat=1),
        f"TransDataTo5HD: dst_repeat and src_repeat must be 0 with one repeat, not 16 and 1, {ADDED}",
    ),
    (
        TransDataTo5HD(dst=tuple(r + 32 for r in ROWS), src=ROWS, dtype=F16),
        f"TransDataTo5HD: dst and src {IN_PART}",
    ),
    (
        TransDataTo5HD(dst=tuple(r + 512 for r in ROWS), src=ROWS, dtype=F16, repeat=2, src_repeat=16),
        "TransDataTo5HD: repeat 1 reads as src what repeat 0 wrote to dst; keep the two apart",
    ),
    (
        GatherMask(dst=C, src=A, pattern=8),
        "GatherMask: pattern must be 1..7, or 0 with bits in ub, not 8",
    ),
    (GatherMask(dst=C, src=A), "GatherMask: bits must be given with pattern 0"),
    (
        GatherMask(dst=C, src=A, bits=ub(U32, 0x20000), pattern=1),
        "GatherMask: bits must not be given with pattern 1",
    ),
    (GatherMask(dst=C, src=A, bits=ub(U16, 0x20000)), "GatherMask: bits must be u32, not u16"),
    (
        GatherMask(dst=ub(F32, 32), src=A, pattern=1),
        "GatherMask: dst and src must have no bytes in common; give dst a place of its own",
    ),
    (
        Gather(dst=C, src=A, offsets=ub(S32, 0x8000), src_bytes=64),
        "Gather: offsets must be u32, not s32",
    ),
    (
        Gather(dst=C, src=A, offsets=ub(U32, 0x8000), src_bytes=64, base=64),
        "Gather: base must be 0..63, inside src_bytes, not 64",
    ),
    (
        Gather(dst=C, src=A, offsets=ub(U32, 0x8000), src_bytes=66),
        "Gather: src_bytes must be a multiple of the element's 4 bytes, not 66",
    ),
    (
        WholeReduceSum(dst=ub(F32, 0x10002), src=A),
        "WholeReduceSum: dst must start at a multiple of 4 bytes in ub, not at 0x10002",
    ),
    (
        WholeReduceMax(dst=ub(F32, 0x10004), src=A),
        "WholeReduceMax: dst must start at a multiple of 8 bytes in ub, not at 0x10004",
    ),
    (
        WholeReduceMax(dst=C, src=A, order=ReduceOrder.ONLY_VALUE, dst_repeat=65536),
        "WholeReduceMax: dst_repeat must be 0..65,535, not 65,536; it counts units of 4 bytes",
    ),
    (
        BlockReduceMax(dst=ub(F16, 0x10008), src=ub(F16, 0)),
        "BlockReduceMax: dst must start at a multiple of 16 bytes in ub, not at 0x10008",
    ),
    (PairReduceSum(dst=ub(S32, 0x10000), src=ub(S32, 0)), "PairReduceSum: dst must be f16 or f32, not s32"),
    (
        WholeReduceSum(dst=ub(F32, 0x100), src=A, repeat=2),
        f"WholeReduceSum: repeat 1 reads as src {FED}",
    ),
]


@pytest.mark.parametrize(("op", "message"), CASES, ids=range(len(CASES)))
def test_message(chip: Chip, op: Any, message: str) -> None:
    with pytest.raises(OperandError) as caught:
        op.check(chip, RESET)
    assert str(caught.value) == message


STATES = [
    (
        add(),
        State(mask=1 << 64),
        "Add: the mask must select one of the 64 lanes, not none; set it with SetVectorMask",
    ),
    (
        WholeReduceSum(dst=C, src=A),
        State(mask=0),
        "WholeReduceSum: the mask must select one of the 64 lanes, not none; set it with SetVectorMask",
    ),
    (
        Compare(dst=ub(U8, 0x10000), src0=A, src1=B, mode=CompareMode.LT),
        State(counter_mode=True, mask=100),
        "Compare: the count must be a multiple of 64 elements, not 100; pad the operands to whole repeats",
    ),
    (
        CompareToMask(src0=A, src1=B, mode=CompareMode.LT),
        State(counter_mode=True, mask=65),
        "CompareToMask: the count must be at most 64 elements, not 65; use Compare",
    ),
    (
        Cast(dst=ub(S4, 0x10000), src=ub(F16, 0), dst_repeat=2),
        State(counter_mode=True, mask=7),
        "Cast: the mask must let both elements of an s4 byte run or none, not one of them",
    ),
    (
        Adds(dst=ub(F32, 0x2FF00), src=A, scalar=1.0),
        State(counter_mode=True, mask=65),
        f"Adds: dst must stay inside the 196,608 bytes of ub, not end at byte 196,612; {SMALLER}",
    ),
]


@pytest.mark.parametrize(("op", "state", "message"), STATES, ids=range(len(STATES)))
def test_message_in_a_state(chip: Chip, op: Any, state: State, message: str) -> None:
    with pytest.raises(OperandError) as caught:
        op.check(chip, state)
    assert str(caught.value) == message


def test_offset_out_of_reach(chip: Chip) -> None:
    bench = Bench(chip)
    bench.core.view(ub(U32, 0x8000), (64,))[...] = [*range(0, 24, 4), 62] + [0] * 57
    op = Gather(dst=C, src=A, offsets=ub(U32, 0x8000), src_bytes=64)
    with pytest.raises(OperandError) as caught:
        op.execute(bench.core, RESET)
    assert str(caught.value) == (
        "Gather: the offset of lane 6 in repeat 0 must be a multiple of 4 inside the 64 bytes of src, not 62"
    )


def test_what_the_rules_let_through(chip: Chip) -> None:
    """In place, shifted down, accumulating, and narrowing in place."""
    add(dst=A).check(chip, RESET)
    add(dst=A, src0=ub(F32, 256), src1=B, repeat=3).check(chip, RESET)
    add(src1=C, dst_repeat=0, src1_repeat=0, repeat=9).check(chip, RESET)
    Cast(dst=ub(F16, 0), src=A, dst_repeat=4, repeat=9, mode=RoundMode.RINT).check(chip, RESET)
    Cast(dst=ub(S64, 0x10000), src=ub(S32, 0), src_repeat=4).check(chip, RESET)
    add(dst=ub(F32, 0x2FFE0)).check(chip, State(mask=0xFF))
