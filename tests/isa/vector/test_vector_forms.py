"""Contiguous forms: what they expand to, and what they leave out."""

from __future__ import annotations

from typing import Any

import pytest
import vector_exact as exact
from vector_bench import Bench

from npusim.config.chip import Chip
from npusim.isa.control import SetVectorMask
from npusim.isa.dtype import F16, F32, S8, S16, S32, U8, U32, DType
from npusim.isa.instruction import Instruction, OriginKind
from npusim.isa.operand import Tile
from npusim.isa.state import FULL_MASK, RESET, State
from npusim.isa.sync import PipeBarrier
from npusim.isa.vector import (
    Add,
    Adds,
    Brcb,
    Cast,
    CastDequant,
    Duplicate,
    MulAddDst,
    Select,
    SelectMode,
    WholeReduceSum,
)
from npusim.isa.vector.forms import contiguous, gather_mask, masked, reduce_sum
from npusim.isa.vector.lanes import ub


def names(instructions: list[Instruction]) -> list[str]:
    """Return mnemonics, with the operand of a mask."""
    return [
        f"{op.mnemonic} {op.mask}" if isinstance(op, SetVectorMask) else op.mnemonic for op in instructions
    ]


def behind(instructions: list[Instruction], state: State) -> State:
    """Return the state behind instructions."""
    for op in instructions:
        state = op.update(state)
    return state


def test_contiguous_enters_counter_mode_once() -> None:
    operands = {"dst": ub(F32, 0), "src": ub(F32, 0), "scalar": 1.0}
    first = contiguous(Adds, count=100, state=RESET, **operands)
    assert names(first) == ["SetMaskCount", "SetVectorMask 100", "Adds"]
    state = behind(first, RESET)
    assert names(contiguous(Adds, count=100, state=state, **operands)) == ["Adds"]
    assert names(contiguous(Adds, count=7, state=state, **operands)) == ["SetVectorMask 7", "Adds"]
    assert {op.origin for op in first} == {OriginKind.EXPANSION}


def test_contiguous_gives_narrower_operands_smaller_strides() -> None:
    (*_, cast) = contiguous(Cast, count=64, state=RESET, dst=ub(F32, 0x1000), src=ub(F16, 0))
    assert (cast.dst_repeat, cast.src_repeat) == (8, 4)  # type: ignore[attr-defined]
    (*_, fma) = contiguous(
        MulAddDst, count=64, state=RESET, dst=ub(F32, 0), src0=ub(F16, 0x1000), src1=ub(F16, 0x2000)
    )
    assert (fma.dst_repeat, fma.src0_repeat, fma.src1_repeat) == (8, 4, 4)  # type: ignore[attr-defined]


def test_contiguous_keeps_strides_that_are_given() -> None:
    (*_, add) = contiguous(
        Add, count=64, state=RESET, dst=ub(F32, 0), src0=ub(F32, 0), src1=ub(F32, 0x900), src1_repeat=0
    )
    assert (add.src0_repeat, add.src1_repeat) == (8, 0)  # type: ignore[attr-defined]


def test_contiguous_covers_more_than_255_repeats(chip: Chip) -> None:
    bench = Bench(chip)
    count = 255 * 64 + 100
    state = RESET
    for op in contiguous(Duplicate, count=count, state=RESET, dst=ub(F32, 0x100), scalar=3.0):
        op.check(chip, state)
        op.execute(bench.core, state)
        state = op.update(state)
    filled = bench.core.view(ub(F32, 0), (count + 65,))
    assert filled[64 : 64 + count].tolist() == [3.0] * count
    assert filled[63] != 3.0
    assert filled[64 + count] != 3.0


def test_masked_returns_to_normal_mode() -> None:
    counting = State(counter_mode=True, mask=100)
    fields = {"dst": ub(F32, 0), "scalar": 0.0, "repeat": 3}
    assert names(masked(Duplicate, state=counting, **fields)) == [
        "SetMaskNorm", f"SetVectorMask {FULL_MASK}", "Duplicate",
    ]  # fmt: skip
    assert names(masked(Duplicate, state=RESET, mask=0xF, **fields)) == ["SetVectorMask 15", "Duplicate"]
    assert names(masked(Duplicate, state=RESET, **fields)) == ["Duplicate"]


def run_all(chip: Chip, bench: Bench, steps: Any) -> Any:
    """Check and execute a generator of instructions, and return its value."""
    state, value = RESET, None
    try:
        while True:
            op = steps.send(value)
            op.check(chip, state)
            value = op.execute(bench.core, state) if not isinstance(op, PipeBarrier) else None
            state = op.update(state)
    except StopIteration as stop:
        return stop.value, state


def test_gather_mask_returns_the_count_and_leaves_normal_mode(chip: Chip) -> None:
    bench = Bench(chip)
    bench.core.view(ub(U32, 0x2000), (4,))[...] = [0xF0, 0, 0x1, 0xFFFFFFFF]
    source = bench.core.view(ub(S32, 0), (100,)).copy()
    steps = gather_mask(ub(S32, 0x1000), ub(S32, 0), count=100, state=RESET, bits=ub(U32, 0x2000))
    kept, state = run_all(chip, bench, steps)
    chosen = [4, 5, 6, 7, 64, 96, 97, 98, 99]
    assert kept == len(chosen)
    assert not state.counter_mode
    assert bench.core.view(ub(S32, 0x1000), (kept,)).tolist() == source[chosen].tolist()


@pytest.mark.parametrize("count", [1, 5, 64, 65, 1000, 64 * 64, 64 * 64 + 1])
def test_reduce_sum_is_a_tree_of_trees(chip: Chip, count: int) -> None:
    bench = Bench(chip)
    bench.numbers("s8", 0, 0x8000, 1)
    values = bench.core.view(ub(F32, 0), (8192,))
    values[...] = bench.core.view(ub(F32, 0).as_type(S32), (8192,)) % 1000 / 7
    steps = reduce_sum(ub(F32, 0x10004), ub(F32, 0), ub(F32, 0x18000), count=count, state=RESET)
    level = [float(v) for v in values[:count]]

    def generator() -> Any:
        yield from steps

    run_all(chip, bench, generator())
    while True:
        groups = [level[i : i + 64] for i in range(0, len(level), 64)]
        level = []
        for group in groups:
            while len(group) > 1:
                pairs = [exact.add(a, b, "f32") for a, b in zip(group[0::2], group[1::2], strict=False)]
                group = [*pairs, *([group[-1]] if len(group) % 2 else [])]
            level.append(group[0])
        if len(groups) == 1:
            break
    assert bench.core.view(ub(F32, 0x10004), (1,))[0] == level[0]


def test_reduce_sum_expands_to_visible_steps() -> None:
    steps = reduce_sum(ub(F16, 0x10000), ub(F16, 0), ub(F16, 0x8000), count=1000, state=RESET)
    assert names(steps) == [
        *("SetMaskCount", "SetVectorMask 1000", "WholeReduceSum"),
        "PipeBarrier",
        *("SetVectorMask 8", "WholeReduceSum"),
    ]
    assert [op.dst.address for op in steps if isinstance(op, WholeReduceSum)] == [0x8000, 0x10000]
    with pytest.raises(ValueError, match=r"^count must be 1 or more, not 0$"):
        reduce_sum(ub(F16, 0x10000), ub(F16, 0), ub(F16, 0x8000), count=0, state=RESET)


def test_forms_take_tiles() -> None:
    tile = Tile(ub(F32, 0), (4, 32))
    (*_, op) = contiguous(Adds, count=32, state=RESET, dst=tile[1], src=tile[2], scalar=1.0)
    assert (op.dst.address, op.src.address) == (128, 256)  # type: ignore[attr-defined]


def test_contiguous_needs_a_counter_mode() -> None:
    with pytest.raises(TypeError, match=r"^Brcb does not count elements; give its repeats instead$"):
        contiguous(Brcb, count=16, state=RESET, dst=ub(F32, 0x1000), src=ub(F32, 0))


@pytest.mark.parametrize("dtype", [F16, F32])
def test_contiguous_select_with_a_value(chip: Chip, dtype: DType) -> None:
    bench = Bench(chip, 9)
    steps = contiguous(
        Select, count=200, state=RESET, dst=ub(dtype, 0x1000), src0=ub(dtype, 0), bits=ub(U8, 0x8000),
        scalar=-1.0, mode=SelectMode.TENSOR_SCALAR,
    )  # fmt: skip
    source = bench.core.view(ub(dtype, 0), (200,)).copy()
    bits = bench.core.view(ub(U8, 0x8000), (25,)).copy()
    state = RESET
    for op in steps:
        op.check(chip, state)
        op.execute(bench.core, state)
        state = op.update(state)
    found = bench.core.view(ub(dtype, 0x1000), (200,))
    for i in range(200):
        wanted = source[i] if bits[i // 8] >> i % 8 & 1 else dtype.np.type(-1)
        assert found[i].tobytes() == wanted.tobytes()


def test_contiguous_bytes_of_castdequant_lie_in_halves_of_blocks() -> None:
    (*_, op) = contiguous(CastDequant, count=256, state=RESET, dst=ub(S8, 0x1000), src=ub(S16, 0))
    assert (op.dst_repeat, op.src_repeat) == (8, 8)  # type: ignore[attr-defined]
    (*_, op) = contiguous(CastDequant, count=256, state=RESET, dst=ub(F16, 0x1000), src=ub(S32, 0))
    assert (op.dst_repeat, op.src_repeat) == (4, 8)  # type: ignore[attr-defined]
