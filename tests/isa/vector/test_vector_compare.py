"""Comparisons and selection against loops over single elements and bits."""

from __future__ import annotations

import math
import operator
from typing import Any

import pytest
import vector_exact as exact
from hypothesis import given
from hypothesis import strategies as st
from vector_bench import FEW, PLACES, Bench, Cells, place, run, running, states, value_of_type, walks

from npusim.config.chip import Chip
from npusim.isa.dtype import BY_NAME, U8
from npusim.isa.operand import Imm
from npusim.isa.state import State
from npusim.isa.vector import (
    Compare,
    CompareMode,
    Compares,
    CompareToMask,
    GetCmpMask,
    Select,
    SelectMode,
    SetCmpMask,
)
from npusim.isa.vector.lanes import ub

HOLDS = {m: getattr(operator, m.lower()) for m in ("LT", "GT", "EQ", "LE", "GE", "NE")}


def source(cells: Cells, op: Any, name: str, r: int, lane: int) -> Any:
    """Return a source element as a number."""
    dtype = getattr(op, name).dtype.short
    repeat = getattr(op, f"{name}_repeat", 0)
    bit = place(getattr(op, name).address, dtype, getattr(op, f"{name}_block"), repeat, r, lane)
    return exact.decode(cells.get(bit, exact.WIDTH[dtype]), dtype)


@st.composite
def modes(draw: st.DrawFn) -> tuple[str, str]:
    """An element type and a mode it has."""
    dtype = draw(st.sampled_from(["f16", "f32", "s32"]))
    return dtype, "EQ" if dtype == "s32" else draw(st.sampled_from(list(HOLDS)))


@pytest.mark.parametrize("with_value", [False, True])
@FEW
@given(data=st.data(), seed=st.integers(0, 1 << 30), mode=modes(), counted=st.booleans())
def test_compare(
    chip: Chip, with_value: bool, data: st.DataObject, seed: int, mode: tuple[str, str], counted: bool
) -> None:
    dtype, name = mode
    lanes = 2048 // exact.WIDTH[dtype]
    whole = data.draw(st.integers(0, 4))
    state = State(counter_mode=counted, mask=lanes * whole if counted else data.draw(st.integers(0, 9)))
    fields = data.draw(walks("src0") if with_value else walks("src0", "src1"))
    at: dict[str, Any] = {"dst": ub(U8, PLACES["dst"]), "src0": ub(BY_NAME[dtype], PLACES["src0"])}
    if with_value:
        at["scalar"] = Imm(data.draw(value_of_type(dtype)))
    else:
        at["src1"] = ub(BY_NAME[dtype], PLACES["src1"])
    op = (Compares if with_value else Compare)(**at, **fields, mode=CompareMode[name])

    def expect(cells: Cells, _: Bench) -> None:
        for r in range(whole if counted else op.repeat):
            for lane in range(lanes):
                a = source(cells, op, "src0", r, lane)
                b = exact.decode(op.scalar.bits, dtype) if with_value else source(cells, op, "src1", r, lane)
                cells.put(op.dst.address * 8 + r * lanes + lane, 1, int(HOLDS[name](a, b)))

    run(chip, op, state, seed, expect)


@FEW
@given(
    data=st.data(), seed=st.integers(0, 1 << 30), dtype=st.sampled_from(["f16", "f32"]),
    name=st.sampled_from(list(HOLDS)), blocks=st.tuples(st.integers(0, 4), st.integers(0, 4)),
)  # fmt: skip
def test_compare_to_mask(
    chip: Chip, data: st.DataObject, seed: int, dtype: str, name: str, blocks: tuple[int, int]
) -> None:
    lanes = 2048 // exact.WIDTH[dtype]
    counted = data.draw(st.booleans())
    mask = data.draw(st.integers(0, lanes) if counted else st.integers(1, (1 << 128) - 1))
    state = State(counter_mode=counted, mask=mask)
    op = CompareToMask(
        src0=ub(BY_NAME[dtype], PLACES["src0"]), src1=ub(BY_NAME[dtype], PLACES["src1"]),
        src0_block=blocks[0], src1_block=blocks[1], mode=CompareMode[name],
    )  # fmt: skip
    found = []

    def expect(cells: Cells, bench: Bench) -> None:
        bits = 0
        for repeat in list(running(state, 1, lanes))[:1]:
            for _, lane in repeat:
                a, b = source(cells, op, "src0", 0, lane), source(cells, op, "src1", 0, lane)
                bits |= int(HOLDS[name](a, b)) << lane
        found.extend([bits, bench])

    run(chip, op, state, seed, expect)
    assert found[1].core.compare_mask == found[0]


def test_compare_mask_register_moves_to_and_from_the_buffer(chip: Chip) -> None:
    bench = Bench(chip, 1)
    SetCmpMask(src=ub(U8, 0x4010)).execute(bench.core, State())
    assert bench.core.compare_mask == int.from_bytes(bench.memory[0x4010:0x4020].tobytes(), "little")
    GetCmpMask(dst=ub(U8, 0x8000)).execute(bench.core, State())
    assert bench.memory[0x8000:0x8010].tobytes() == bench.memory[0x4010:0x4020].tobytes()


@pytest.mark.parametrize("mode", SelectMode)
@FEW
@given(data=st.data(), seed=st.integers(0, 1 << 30), dtype=st.sampled_from(["f16", "f32"]))
def test_select(chip: Chip, mode: SelectMode, data: st.DataObject, seed: int, dtype: str) -> None:
    width = exact.WIDTH[dtype]
    lanes = 2048 // width
    state = data.draw(states(lanes))
    at: dict[str, Any] = {n: ub(BY_NAME[dtype], PLACES[n]) for n in ("dst", "src0")}
    names = ["dst", "src0"]
    if mode is SelectMode.TENSOR_SCALAR:
        at["scalar"] = Imm(data.draw(value_of_type(dtype)))
    else:
        at["src1"] = ub(BY_NAME[dtype], PLACES["src1"])
        names.append("src1")
    if mode is not SelectMode.CMPMASK_SPR:
        at["bits"] = ub(U8, 0x12000)
    op = Select(**at, **data.draw(walks(*names)), mode=mode)
    register = data.draw(st.integers(0, (1 << 128) - 1))

    def expect(cells: Cells, _: Bench) -> None:
        def where(name: str, r: int, lane: int) -> int:
            block, repeat = getattr(op, f"{name}_block"), getattr(op, f"{name}_repeat")
            return place(getattr(op, name).address, dtype, block, repeat, r, lane)

        for repeat in running(state, op.repeat, lanes):
            results = []
            for r, lane in repeat:
                if mode is SelectMode.CMPMASK_SPR:
                    bit = register >> lane & 1
                else:
                    bit = cells.get(op.bits.address * 8 + r * lanes + lane, 1)
                chosen = cells.get(where("src0", r, lane), width)
                if mode is SelectMode.TENSOR_SCALAR:
                    other = op.scalar.bits
                else:
                    other = cells.get(where("src1", r, lane), width)
                results.append(chosen if bit else other)
            for (r, lane), result in zip(repeat, results, strict=True):
                cells.put(where("dst", r, lane), width, result)

    run(chip, op, state, seed, expect, compare_mask=register)


def test_nan_is_unequal_to_everything() -> None:
    assert [name for name, holds in HOLDS.items() if holds(math.nan, math.nan)] == ["NE"]
