"""Rules that every vector instruction keeps by being registered."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any

import pytest
from vector_bench import Bench, check_touched

import npusim.isa.vector
from npusim.config.chip import Chip
from npusim.isa.instruction import REGISTRY
from npusim.isa.operand import Pipe
from npusim.isa.state import RESET, State
from npusim.isa.text import parse_instruction
from npusim.isa.vector.lanes import LaneWise, Repeated, VectorInstruction

VECTOR = {name: cls for name, cls in REGISTRY.items() if issubclass(cls, VectorInstruction)}
every = pytest.mark.parametrize("cls", VECTOR.values(), ids=VECTOR)


def test_inventory() -> None:
    """The A2 vector instructions of the vendor's public API."""
    expected = """
        Abs Add AddRelu AddReluCast Adds And Axpy BlockReduceMax BlockReduceMin BlockReduceSum Brcb
        Cast CastDequant Compare CompareToMask Compares Copy CreateVecIndex Div Duplicate Exp
        FusedMulAdd Gather GatherMask Gatherb GetCmpMask LeakyRelu Ln Max Maxs Min Mins MrgSort Mul
        MulAddDst MulAddRelu MulCast Muls Not Or PairReduceSum Reciprocal Relu RepeatReduceSum Rsqrt Select
        SetCmpMask ShiftLeft ShiftRight Sort32 Sqrt Sub SubRelu SubReluCast TransDataTo5HD
        Transpose WholeReduceMax WholeReduceMin WholeReduceSum
    """
    assert sorted(VECTOR) == expected.split()
    assert set(VECTOR) <= set(npusim.isa.vector.__all__)


@every
def test_explains_itself(cls: Any) -> None:
    text = inspect.getdoc(cls)
    assert text.endswith(".")
    assert "Types" in text or "types" in text or "Cost" in text
    for part in text.splitlines():
        assert len(part) <= 110


@every
def test_example_is_valid_and_survives_encoding(cls: Any, chip: Chip) -> None:
    op = cls.example()
    op.check(chip, RESET)
    assert op.pipe is Pipe.V
    assert cls.decode(op.encode()) == op
    assert parse_instruction(str(op)) == op


@every
@pytest.mark.parametrize(
    "state",
    [RESET, State(counter_mode=True, mask=64), State(mask=0b1011), State(saturate=False, mask=1 << 5)],
    ids=["all", "count", "some", "one"],
)
def test_example_touches_what_it_declares(cls: Any, chip: Chip, state: State) -> None:
    op = cls.example()
    if cls.mnemonic in ("Gather", "Gatherb"):  # random offsets are out of bounds; others test good ones
        op = replace(op, offsets=op.src.as_type(op.offsets.dtype).offset(0x8000))
    bench = Bench(chip, 11)
    if cls.mnemonic in ("Gather", "Gatherb"):
        bench.memory[0x8000:0xA000] = 0
    for i, name in enumerate(op.roles):
        at = getattr(op, name)
        if at is not None and name != "offsets":
            bench.numbers(at.dtype.short, at.address, at.address + 0x400, i)
    if cls.mnemonic in ("Gather", "Gatherb"):
        op.execute(bench.core, state)
    else:
        check_touched(bench, op, state)


@every
def test_cost_does_not_fall_with_repeats(cls: Any, chip: Chip) -> None:
    op = cls.example()
    if issubclass(cls, Repeated):
        made = [replace(op, repeat=n) for n in (0, 1, 2, 3, 5, 14, 15, 40)]
        costs = [m.work(chip, RESET).cycles for m in made]
        assert costs == sorted(costs)
        assert costs[0] < costs[-1]
    if issubclass(cls, LaneWise) and cls.mnemonic != "Copy":
        counted = [op.work(chip, State(counter_mode=True, mask=64 * n)).cycles for n in (0, 1, 2, 4, 20, 60)]
        assert counted == sorted(counted)
        assert counted[0] < counted[-1]


@every
def test_cost_is_at_least_the_head_and_names_sourced_numbers(cls: Any, chip: Chip) -> None:
    work = cls.example().work(chip, RESET)
    assert isinstance(work.cycles, int)
    assert work.cycles > chip.vector.head_cycles
    assert work.element_ops > 0
    assert [chip.confidence(path) for path in work.prices]


@every
def test_refuses_a_chip_without_its_class(cls: Any, chip: Chip) -> None:
    table = {k: v for k, v in chip.vector.cycles_per_repeat.items() if k != cls.cost_class}
    without = chip.model_copy(update={"vector": chip.vector.model_copy(update={"cycles_per_repeat": table})})
    text = f"{cls.mnemonic}: ascend-910b4 does not have it: no {cls.cost_class} in vector.cycles_per_repeat"
    for act in (lambda op: op.check(without, RESET), lambda op: op.work(without, RESET)):
        with pytest.raises(Exception, match=f"^{text}$"):
            act(cls.example())
