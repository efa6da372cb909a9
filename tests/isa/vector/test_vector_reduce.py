"""Reductions against trees over single elements."""

from __future__ import annotations

import math
from typing import Any

import pytest
import vector_exact as exact
from hypothesis import given
from hypothesis import strategies as st
from vector_bench import FEW, PLACES, Bench, Cells, place, run, running, states

from npusim.config.chip import Chip
from npusim.isa.dtype import BY_NAME
from npusim.isa.instruction import REGISTRY
from npusim.isa.state import State
from npusim.isa.vector import ReduceOrder, WholeReduceMax
from npusim.isa.vector.lanes import ub

SUMS = {"WholeReduceSum": 1, "RepeatReduceSum": 1, "BlockReduceSum": 8, "PairReduceSum": 0}
EXTREMES = {"WholeReduceMax": 1, "WholeReduceMin": 1, "BlockReduceMax": 8, "BlockReduceMin": 8}
"""Results of a repeat; 0 stands for half the lanes."""


def tree(values: list[float | None], dtype: str, saturate: bool) -> float:
    """Add adjacent values until one is left; None adds nothing, but the addition saturates all the same."""
    while len(values) > 1:
        level = []
        for a, b in zip(values[0::2], values[1::2], strict=True):
            both = [v for v in (a, b) if v is not None]
            total = exact.add(*both, dtype) if len(both) == 2 else (both[0] if both else None)
            level.append(None if total is None else exact.clamp(total, dtype, saturate=saturate))
        values = level
    assert values[0] is not None
    return values[0]


def extreme(values: list[float | None], smallest: bool) -> tuple[float, int]:
    """Return the largest or smallest number and the first lane that holds it; a number wins over NaN."""
    best, lane = math.nan, -1
    for i, value in enumerate(values):
        if value is None:
            continue
        beats = value < best if smallest else value > best
        if lane < 0 or beats or (math.isnan(best) and not math.isnan(value)):
            best, lane = value, i
    return best, lane


CASES = [(m, None) for m in (*SUMS, "BlockReduceMax", "BlockReduceMin")]
CASES += [(m, order) for m in ("WholeReduceMax", "WholeReduceMin") for order in ReduceOrder]


@pytest.mark.parametrize(("mnemonic", "order"), CASES)
@FEW
@given(data=st.data(), seed=st.integers(0, 1 << 30), dtype=st.sampled_from(["f16", "f32"]))
def test_reduction(
    chip: Chip, mnemonic: str, order: ReduceOrder | None, data: st.DataObject, seed: int, dtype: str
) -> None:
    width = exact.WIDTH[dtype]
    lanes = 2048 // width
    state = data.draw(states(lanes))
    results = {**SUMS, **EXTREMES}[mnemonic] or lanes // 2
    group = lanes // results
    unit = 128 if mnemonic == "PairReduceSum" else results * width // 8
    if order is not None:
        pair = order in (ReduceOrder.VALUE_INDEX, ReduceOrder.INDEX_VALUE)
        unit = 4 if order is ReduceOrder.ONLY_INDEX else unit * (2 if pair else 1)
    shift = data.draw(st.integers(0, 3)) * min(unit, 32)
    op = REGISTRY[mnemonic](
        dst=ub(BY_NAME[dtype], PLACES["dst"] + shift),
        src=ub(BY_NAME[dtype], PLACES["src"]),
        dst_repeat=data.draw(st.sampled_from([1, 1, 0, 2, 4])),
        src_block=data.draw(st.integers(0, 4)),
        src_repeat=data.draw(st.integers(0, 30)),
        repeat=data.draw(st.integers(0, 4)),
        **({} if order is None else {"order": order}),
    )

    def expect(cells: Cells, _: Bench) -> None:
        for repeat in running(state, op.repeat, lanes):
            values: list[float | None] = [None] * lanes
            for r, lane in repeat:
                bit = place(op.src.address, dtype, op.src_block, op.src_repeat, r, lane)
                values[lane] = float(exact.decode(cells.get(bit, width), dtype))
            for i in range(results):
                part = values[i * group : (i + 1) * group]
                if all(v is None for v in part):
                    continue
                start = (op.dst.address + repeat[0][0] * op.dst_repeat * unit) * 8 + i * width
                if mnemonic in SUMS:
                    total = tree(part, dtype, state.saturate)
                    cells.put(start, width, exact.encode(total, dtype))
                    continue
                value, lane = extreme(part, "Min" in mnemonic)
                fields = [(exact.encode(value, dtype), width)]
                if order is ReduceOrder.ONLY_INDEX:
                    fields = [(lane, 32)]
                elif order in (ReduceOrder.VALUE_INDEX, ReduceOrder.INDEX_VALUE):
                    fields.append((lane, width))
                    if order is ReduceOrder.INDEX_VALUE:
                        fields.reverse()
                for bits, size in fields:
                    cells.put(start, size, bits)
                    start += size

    run(chip, op, state, seed, expect)


def test_sum_saturates_at_every_step_of_the_tree(chip: Chip) -> None:
    """The example of the vendor's page: 60000 + 60000 - 30000 + 100 gives 35604, rounded to half."""
    bench = Bench(chip)
    x = bench.core.view(ub(BY_NAME["f16"], 0), (16,))
    x[...] = 0
    x[:4] = [60000, 60000, -30000, 100]
    op = REGISTRY["BlockReduceSum"](dst=ub(BY_NAME["f16"], 0x100), src=ub(BY_NAME["f16"], 0))
    op.execute(bench.core, State(mask=0xFFFF, saturate=True))
    assert float(bench.core.view(op.dst, (1,))[0]) == exact.to_format(exact.Fraction(65504 - 29904), "f16")


def test_lowest_index_wins(chip: Chip) -> None:
    bench = Bench(chip)
    bench.core.view(ub(BY_NAME["f32"], 0), (64,))[...] = [0, -0.0, 5, 5] * 16
    op = WholeReduceMax(dst=ub(BY_NAME["f32"], 0x8000), src=ub(BY_NAME["f32"], 0))
    op.execute(bench.core, State())
    assert bench.core.view(ub(BY_NAME["u32"], 0x8004), (1,))[0] == 2


def reduction_in_place(repeat: int) -> Any:
    """A sum whose results replace the start of its source, as the vendor's ReduceSum makes them."""
    return REGISTRY["WholeReduceSum"](
        dst=ub(BY_NAME["f32"], 0x4000), src=ub(BY_NAME["f32"], 0x4000), repeat=repeat
    )


def test_results_may_replace_what_was_read(chip: Chip) -> None:
    op = reduction_in_place(9)
    op.check(chip, State())
    bench = Bench(chip, 2)
    bench.numbers("f32", 0x4000, 0x8000, 2)
    values = [float(v) for v in bench.core.view(op.src, (9 * 64,))]
    op.execute(bench.core, State())
    sums = [tree(list(values[64 * r : 64 * r + 64]), "f32", False) for r in range(9)]
    found = [float(v) for v in bench.core.view(op.dst, (9,))]
    assert [exact.encode(a, "f32") for a in sums] == [exact.encode(b, "f32") for b in found]
