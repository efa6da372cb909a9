"""What instructions cost: the vendor's bank samples, strided sources, and throughput by class."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npusim.config.chip import Chip
from npusim.isa.dtype import F16, F32, S16, S32, U32, DType
from npusim.isa.state import RESET, State
from npusim.isa.vector import (
    Add,
    Adds,
    BlockReduceSum,
    Cast,
    Div,
    Exp,
    FusedMulAdd,
    Gather,
    GatherMask,
    Mul,
    MulAddDst,
    TransDataTo5HD,
    WholeReduceSum,
    banks,
)
from npusim.isa.vector.banks import Walk, bank_cycles
from npusim.isa.vector.lanes import VectorInstruction, ub

SCENARIOS = {
    1: ({"src0": 0, "src1": 0x10100, "dst": 0x20000}, {}, 2390),
    2: ({"src0": 0, "src1": 0x4000, "dst": 0x10000}, {}, 4167),
    3: ({"src0": 0, "src1": 0x10000, "dst": 0x14100}, {}, 4167),
    4: ({"src0": 0, "src1": 0x10100, "dst": 0x4000}, {}, 2389),
    5: ({"src0": 0, "src1": 0x10100, "dst": 0x4020}, {}, 3751),
    6: ({"src0": 0, "src1": 0x10100, "dst": 0x10100}, {}, 2390),
    7: ({"src0": 0, "src1": 0x10100, "dst": 0x10100}, {"src0_block": 0, "src0_repeat": 1}, 3584),
    8: ({"src0": 0, "src1": 0x10100, "dst": 0x10100}, {"src0_block": 0, "src0_repeat": 8}, 2389),
}
"""Scenarios of the vendor's bank_conflict_ub sample: addresses, strides, and ticks of 20 ns for 1000 Add."""


@pytest.mark.parametrize(("scenario", "tolerance"), [(s, 0.04 if s == 7 else 0.02) for s in SCENARIOS])
def test_measured_bank_scenarios(chip: Chip, scenario: int, tolerance: float) -> None:
    """1000 Add of 64 repeats, measured at 1850 MHz with ticks of 20 ns."""
    addresses, strides, measured = SCENARIOS[scenario]
    op = Add(**{n: ub(F32, a) for n, a in addresses.items()}, **strides, repeat=64)
    cycles = op.work(chip, RESET).cycles
    ticks = 1000 * cycles / 1850e6 / 20e-9
    assert ticks == pytest.approx(measured, rel=tolerance)


def per_repeat(chip: Chip, op: VectorInstruction, state: State = RESET) -> float:
    """Return cycles beyond the head, per repeat."""
    return (op.work(chip, state).cycles - chip.vector.head_cycles) / op.repeat  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("block", "cycles"), [(0, 1), (1, 1), (2, 1), (3, 1), (4, 2), (8, 4), (16, 8), (17, 1)]
)
def test_block_stride_of_a_source(chip: Chip, block: int, cycles: int) -> None:
    """Blocks 16 apart lie in one bank group (the guide: 16 takes 8 cycles a repeat, 8 takes 4)."""
    op = Adds(dst=ub(F32, 0x10000), src=ub(F32, 0), scalar=1.0, src_block=block, src_repeat=0, repeat=100)
    assert per_repeat(chip, replace(op, src_repeat=1)) == cycles


def test_source_that_stays_is_read_once(chip: Chip) -> None:
    addresses = {"dst": ub(F32, 0x10000), "src0": ub(F32, 0), "src1": ub(F32, 0x4000)}
    assert per_repeat(chip, Mul(**addresses, src1_repeat=0, repeat=100)) == 1.01


def test_conflicts_hide_behind_a_slow_unit(chip: Chip) -> None:
    """A destination out of phase by 32 bytes costs Adds nearly two cycles a repeat; Exp takes two anyway."""
    assert per_repeat(chip, Exp(dst=ub(F32, 0x4020), src=ub(F32, 0), repeat=100)) == 2
    assert per_repeat(chip, Exp(dst=ub(F16, 0x4020), src=ub(F16, 0), repeat=100)) == 4
    assert 1.5 < per_repeat(chip, Adds(dst=ub(F32, 0x4020), src=ub(F32, 0), scalar=1.0, repeat=100)) < 2


@given(
    reads=st.lists(st.tuples(st.integers(0, 600), st.integers(0, 17), st.integers(0, 20)), max_size=3),
    write=st.tuples(st.integers(0, 600), st.integers(0, 17), st.integers(0, 20)),
    repeats=st.integers(1, 40), base=st.sampled_from([1.0, 2.0, 7.0]),
)  # fmt: skip
@settings(max_examples=200, deadline=None)
def test_shortcuts_agree_with_the_walk_through_all_cycles(
    chip: Chip, reads: list[tuple[int, ...]], write: tuple[int, ...], repeats: int, base: float
) -> None:
    """Instructions free of conflicts are recognised without stepping; stepping gives the same."""
    walks = [tuple(Walk(32 * a, 32 * b, 32 * r, 8) for a, b, r in w) for w in (reads, [write])]
    found = bank_cycles(chip.vector.banks, walks[0], walks[1], repeats, base)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(banks, "_free", lambda *_: False)
        patch.setattr(banks, "_lone", lambda *_: False)
        assert banks.bank_cycles.__wrapped__(chip.vector.banks, walks[0], walks[1], repeats, base) == found


def test_three_operands_take_two_cycles_unless_two_coincide(chip: Chip) -> None:
    addresses = {"dst": ub(F32, 0x10000), "src0": ub(F32, 0x4100), "src1": ub(F32, 0x20000)}
    assert per_repeat(chip, FusedMulAdd(**addresses, repeat=100)) == 2
    assert per_repeat(chip, FusedMulAdd(**{**addresses, "src1": addresses["dst"]}, repeat=100)) == 1


@pytest.mark.parametrize(
    ("op", "cycles"),
    [
        (Exp(dst=ub(F32, 0x10000), src=ub(F32, 0), repeat=100), 2),
        (Exp(dst=ub(F16, 0x10000), src=ub(F16, 0), repeat=100), 4),
        (Div(dst=ub(F32, 0x10000), src0=ub(F32, 0), src1=ub(F32, 0x900), repeat=100), 2),
        (MulAddDst(dst=ub(F32, 0x10000), src0=ub(F32, 0), src1=ub(F32, 0x900), repeat=100), 2),
        (Cast(dst=ub(F32, 0x10000), src=ub(F16, 0), src_repeat=4, repeat=100), 1),
        (WholeReduceSum(dst=ub(F32, 0x10000), src=ub(F32, 0), repeat=100), 7),
        (BlockReduceSum(dst=ub(F32, 0x10000), src=ub(F32, 0), repeat=100), 1),
        (BlockReduceSum(dst=ub(F16, 0x10000), src=ub(F16, 0), repeat=100), 7),
        (GatherMask(dst=ub(F32, 0x10000), src=ub(F32, 0), pattern=1, repeat=100), 2),
        (
            Gather(dst=ub(F32, 0x10000), src=ub(F32, 0), offsets=ub(U32, 0x8000), src_bytes=64, repeat=100),
            12.8,
        ),
        (
            Gather(dst=ub(S16, 0x18000), src=ub(S16, 0), offsets=ub(U32, 0x8000), src_bytes=64, repeat=100),
            25.6,
        ),
        (Adds(dst=ub(S32, 0x10000), src=ub(S32, 0), scalar=1, repeat=100), 1),
    ],
    ids=lambda v: str(v)[:30],
)
def test_throughput_by_class(chip: Chip, op: VectorInstruction, cycles: float) -> None:
    assert per_repeat(chip, op) == cycles


def rows(count: int, stride: int) -> tuple[int, ...]:
    """Addresses of 16 rows."""
    return tuple(i * stride for i in range(count))


@pytest.mark.parametrize(
    ("stride", "cycles"), [(32, 2), (64, 2), (96, 2), (128, 4), (256, 8), (512, 16), (544, 2)]
)
def test_rows_of_a_transpose_meet_in_a_bank_group(chip: Chip, stride: int, cycles: int) -> None:
    op = TransDataTo5HD(
        dst=tuple(0x10000 + r for r in rows(16, 32)), src=rows(16, stride), dtype=F16, dst_repeat=16,
        src_repeat=1, repeat=10,
    )  # fmt: skip
    assert per_repeat(chip, op) == cycles


@pytest.mark.parametrize("dtype", [F16, F32])
def test_counter_mode_costs_whole_steps(chip: Chip, dtype: DType) -> None:
    lanes = 256 // dtype.size
    op = Adds(dst=ub(dtype, 0x10000), src=ub(dtype, 0), scalar=1.0, repeat=0)
    for count, steps in ((1, 1), (lanes, 1), (lanes + 1, 2), (1000 * lanes // 8, 125)):
        work = op.work(chip, State(counter_mode=True, mask=count))
        assert work.cycles == chip.vector.head_cycles + steps
        assert work.element_ops == count


def test_nothing_to_do_still_costs_the_head(chip: Chip) -> None:
    op = Adds(dst=ub(F32, 0x10000), src=ub(F32, 0), scalar=1.0, repeat=0)
    work = op.work(chip, RESET)
    assert (work.cycles, work.element_ops, work.prices) == (24, 0, ("vector.head_cycles",))


def test_prices_name_the_numbers_used(chip: Chip) -> None:
    op = Exp(dst=ub(F16, 0x10000), src=ub(F16, 0))
    assert op.work(chip, RESET).prices == (
        "vector.head_cycles",
        "vector.cycles_per_repeat.transcendental.f16",
    )
    conflict = Add(dst=ub(F32, 0x10000), src0=ub(F32, 0), src1=ub(F32, 0x4000))
    assert conflict.work(chip, RESET).prices == (
        *("vector.head_cycles", "vector.cycles_per_repeat.two_source.default"),
        "vector.banks.groups",
    )
    for work in (op.work(chip, RESET), conflict.work(chip, RESET)):
        assert all(path in chip.numbers() for path in work.prices)
