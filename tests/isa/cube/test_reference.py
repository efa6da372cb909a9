"""What holds for every instruction of data movement and of the cube."""

from __future__ import annotations

import inspect

import pytest
from movement_bench import Bench, assert_touches_what_it_declares

import npusim.isa.cube
import npusim.isa.dma
from npusim.config.load import load_chip
from npusim.isa.dma.movement import Movement
from npusim.isa.instruction import REGISTRY
from npusim.isa.operand import Space
from npusim.isa.state import RESET

CLASSES = [c for c in REGISTRY.values() if issubclass(c, Movement)]


def test_all_are_registered() -> None:
    exported = {*npusim.isa.cube.__all__, *npusim.isa.dma.__all__} - {"Order"}
    assert {c.mnemonic for c in CLASSES} == exported


@pytest.mark.parametrize("cls", CLASSES, ids=lambda c: c.mnemonic)
def test_every_instruction_explains_itself(cls: type[Movement]) -> None:
    doc = inspect.getdoc(cls)
    assert doc.endswith(".")
    assert "Cost:" in doc
    for name in ("check_rules", "writes", "execute", "work", "example"):
        assert inspect.getdoc(getattr(cls, name)).endswith(".")


@pytest.mark.parametrize("cls", CLASSES, ids=lambda c: c.mnemonic)
def test_every_example_is_valid_and_runs(cls: type[Movement]) -> None:
    chip = load_chip(cls.example_chip)
    op = cls.example()
    assert cls.decode(op.encode()) == op
    converts = cls.mnemonic in ("Mmad", "Fixpipe", "DataCopyEnhanced")
    assert_touches_what_it_declares(Bench(chip, profile=chip.numerics), op, probes=0 if converts else 3)
    work = op.work(chip, RESET)
    assert isinstance(work.cycles, int)
    assert work.cycles > 0
    numbers = chip.numbers()
    for price in work.prices:
        assert any(path in (price, f"{price}[0]") for path in numbers), price
    gm = [a for a in (*op.reads(RESET), *op.writes(RESET)) if a.space is Space.GM]
    assert [work.transfer.access] == gm if work.transfer else not gm
