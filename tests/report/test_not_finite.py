"""Which outputs are not finite, and which instruction made the first NaN or infinity."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from npusim import Builder, Kernel, Pipe, isa, load_chip, program, simulate
from npusim.machine.timing.account import Cause
from npusim.program.discover import shipped_programs
from npusim.report.checked import check
from npusim.report.model import FirstNotFinite, NotFinite, NotFinitePart
from npusim.report.not_finite import count_not_finite
from npusim.report.text import check_text, not_finite_words, report_text

TOY = load_chip("toy")


def ones(n: int) -> Any:
    return np.triu(np.ones((1, n, n), np.float16), 1)


def row(text: str, label: str) -> str:
    """Return the text of a row, on one line."""
    lines = text.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith(f"{label} "))
    found = [lines[at][12:]]
    for line in lines[at + 1 :]:
        if not line.startswith(" " * 12):
            break
        found.append(line.strip())
    return " ".join(found)


def test_the_product_form_of_ones_overflows_where_exact_integers_do() -> None:
    """X = (I - A)(I + A^2)(I + A^4) is the sum of (-A)^i up to i=7, which halves cannot hold from n=25 on."""
    a = np.triu(np.ones((32, 32), object), 1)
    power, total = np.eye(32, dtype=object), np.zeros((32, 32), object)
    for _ in range(8):
        total, power = total + power, power.dot(-a)
    too_large = int((np.abs(total) >= 65520).sum())
    assert too_large > 0
    report = simulate("tri_inv_mch", TOY, inputs={"a": ones(32)}, triangle="upper", spans=True)
    found = report.not_finite
    assert found is not None
    assert found.outputs == {"t": NotFinite(nan=1024, infinite=0)}
    assert found.inputs == {}
    first = found.first
    assert first is not None
    line = next(i for i, text in enumerate(_source("tri_inv_mch"), 1) if "played[0].stream(memory)" in text)
    assert first.model_dump(exclude={"cycle", "number"}) == {
        "launch": "tri_inv_mch",
        "launch_number": 0,
        "core": "core0.cube0",
        "pipe": "FIX",
        "instruction": "Fixpipe",
        "line": f"programs/tri_inv_mch.py:{line}",
        "space": "l1",
        "nan": 0,
        "infinite": too_large,
    }
    (timed,) = report.timings
    stored = [i for i, op in enumerate(timed.resolved[0].ops) if op.mnemonic == "Fixpipe"]
    assert first.number == stored[4]  # Y = A^2 and A^4, X = I - A, and twice X += X Y
    assert first.cycle == _start(timed, "core0.cube0.FIX", first.number)
    us = first.cycle / report.clock_mhz
    assert row(report_text(report), "non-finite") == (
        f"output t holds 1,024 NaN; first Fixpipe (FIX, programs/tri_inv_mch.py:{line}), instruction "
        f"{first.number} of core0.cube0 in launch 1 (tri_inv_mch), made {too_large} infinities in l1 of "
        f"finite operands at cycle {first.cycle:,} ({us:.2f} us)"
    )


def _source(name: str) -> list[str]:
    return inspect.getsource(inspect.getmodule(shipped_programs()[name].function)).splitlines()


def _start(timed: Any, lane: str, number: int) -> int:
    lanes = [clock.name for clock in timed.clocks]
    s = timed.spans
    return min(
        start
        for pipe, op, cause, start in zip(s.pipe, s.op, s.cause, s.start, strict=True)
        if lanes[pipe] == lane and op == number and cause in (Cause.WORK, Cause.LINK)
    )


def test_smaller_ones_and_saturation_are_finite() -> None:
    for n, params in ((16, {}), (32, {"overflow": "saturate"})):
        report = simulate("tri_inv_mch", TOY, inputs={"a": ones(n)}, triangle="upper", **params)
        assert report.not_finite is None
        assert "non-finite" not in report_text(report)
        assert json.loads(report.to_json())["not_finite"] is None


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([np.nan], "input a holds 1 NaN"),
        ([np.inf], "input a holds 1 infinity"),
        ([np.nan, -np.inf, np.inf], "input a holds 1 NaN and 2 infinities"),
    ],
)
def test_an_input_that_holds_some_is_named_and_no_instruction(given: list[float], words: str) -> None:
    a = ones(32) / 8
    a[0, 0, 3 : 3 + len(given)] = given
    report = simulate("tri_inv_mxr", TOY, inputs={"a": a}, triangle="upper")
    found = report.not_finite
    assert found is not None
    assert found.first is None
    bad = report.outputs["t"]
    assert found.outputs == {"t": NotFinite(nan=int(np.isnan(bad).sum()), infinite=int(np.isinf(bad).sum()))}
    assert row(report_text(report), "non-finite").endswith(f"; {words} before the first launch")


@program
def sums(k: Builder, *, fill: float = 60000.0, rounds: int = 1) -> None:
    """Fill half of y and add it to itself, `rounds` times in the launch behind."""
    y = k.output("y", (2, 128), "float16")
    work = k.workspace("w", (128,), "float16")

    def filled(c: Kernel) -> Iterator[isa.Instruction]:
        row, done = c.ub(128, isa.F16), c.flag(Pipe.V, Pipe.MTE3)
        yield from c.vector(isa.Duplicate, count=128, dst=row, scalar=fill)
        yield done.set
        yield done.wait
        yield isa.copy_out(work, row)
        yield isa.copy_out(y[0], row)

    def added(c: Kernel) -> Iterator[isa.Instruction]:
        row, come, done = c.ub(128, isa.F16), c.flag(Pipe.MTE2, Pipe.V), c.flag(Pipe.V, Pipe.MTE3)
        yield isa.SetControl(what=isa.Control.SATURATE, value=0)
        yield isa.copy_in(row, work)
        yield come.set
        yield come.wait
        for _ in range(rounds):
            yield from c.vector(isa.Add, count=128, dst=row, src0=row, src1=row)
            yield isa.PipeBarrier(on=Pipe.V)
        yield done.set
        yield done.wait
        yield isa.copy_out(y[1], row)

    k.launch("filled", vector=filled, blocks=1)
    k.launch("added", vector=added, blocks=1)


def test_the_time_counts_the_launches_before() -> None:
    report = simulate(sums, TOY, spans=True)
    found = report.not_finite
    assert found is not None
    first = found.first
    assert first is not None
    assert found.outputs == {"y": NotFinite(nan=0, infinite=128)}
    assert (first.launch, first.launch_number, first.instruction, first.space) == ("added", 1, "Add", "ub")
    before, timed = report.timings
    assert first.cycle == before.cycles + _start(timed, "core0.vec0.V", first.number)
    assert simulate(sums, TOY).not_finite == found
    assert simulate(sums, TOY, check=False).not_finite == found
    assert simulate(sums, TOY, fill=3.0).not_finite is None
    assert simulate(sums, TOY, timing_only=True).not_finite is None


def test_infinities_that_a_program_puts_there_are_nobodys_fault() -> None:
    report = simulate(sums, TOY, fill=-np.inf)
    assert report.not_finite == NotFinitePart(
        outputs={"y": NotFinite(nan=0, infinite=256)}, inputs={}, first=None
    )
    assert row(report_text(report), "non-finite") == (
        "output y holds 256 infinities; no instruction made one of finite operands"
    )


def test_a_check_names_the_instruction_without_a_time() -> None:
    found = check(sums.build(TOY, {}), TOY)
    assert found.not_finite is not None
    assert found.not_finite.first is not None
    assert found.not_finite.first.cycle is None
    words = row(check_text(found), "non-finite")
    assert words.startswith("output y holds 128 infinities; first Add (V, ")
    assert words.endswith(" of core0.vec0 in launch 2 (added), made 128 infinities in ub of finite operands")


def test_words() -> None:
    first = FirstNotFinite(
        launch="l", launch_number=2, core="core3.vec1", pipe="V", instruction="Exp", number=12345,
        line="p.py:7", space="ub", nan=1, infinite=1, cycle=3000,
    )  # fmt: skip
    two = {"y": NotFinite(nan=0, infinite=1), "z": NotFinite(nan=2000, infinite=3)}
    assert not_finite_words(NotFinitePart(outputs=two, inputs={}, first=first), 1500) == (
        "output y holds 1 infinity and output z holds 2,000 NaN and 3 infinities; first Exp (V, p.py:7), "
        "instruction 12,345 of core3.vec1 in launch 3 (l), made 1 NaN and 1 infinity in ub of finite "
        "operands at cycle 3,000 (2.00 us)"
    )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "int32", "uint8"])
def test_counts(dtype: str) -> None:
    kind: Any = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    values = np.ones((3, 5), kind)
    if dtype in ("int32", "uint8"):
        assert count_not_finite(values) == NotFinite(nan=0, infinite=0)
        return
    values[0, 0], values[1, 1], values[2, 4] = np.nan, np.inf, -np.inf
    assert count_not_finite(values) == NotFinite(nan=1, infinite=2)
    assert count_not_finite(values[:0]) == NotFinite(nan=0, infinite=0)
