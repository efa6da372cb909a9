"""The other commands: check, asm, isa, chips, chip, programs, schema."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

import npusim as package
from npusim import load_chip
from npusim.cli.entry import app
from npusim.config.find import chip_names
from npusim.config.resolved import resolved_yaml
from npusim.config.schema import chip_schema
from npusim.isa.instruction import REGISTRY
from npusim.program.discover import find_program, shipped_programs
from npusim.report import reference
from npusim.report.checked import check
from npusim.report.schema import report_schema
from npusim.report.text import check_text

Npusim = Callable[..., Any]


def test_version(npusim: Npusim) -> None:
    assert npusim("--version") == (0, f"npusim {package.__version__}\n", "")


def test_help_shows_its_words_whole(npusim: Npusim, monkeypatch: pytest.MonkeyPatch) -> None:
    # Rich takes [words] in brackets for markup and drops them
    monkeypatch.setenv("COLUMNS", "200")

    def texts(command: Any, path: tuple[str, ...] = ()) -> None:
        shown = " ".join(npusim(*path, "--help").out.split())
        for param in command.params:
            for word in (getattr(param, "help", None) or "").split():
                assert word in shown, (path, word)
        for name, inner in getattr(command, "commands", {}).items():
            texts(inner, (*path, name))

    texts(typer.main.get_command(app))


# ---- check -------------------------------------------------------------------------------------------------


def test_check_prints_text(npusim: Npusim) -> None:
    toy = load_chip("toy")
    report = check(find_program("tiny.py:copy").build(toy, {"n": 64}), toy)
    step = "npusim run tiny.py:copy -c toy -p n=64   (cycles, and why every pipe waits)"
    text = check_text(report, 80, next_step=step)
    assert npusim("check", "tiny.py:copy", "-c", "toy", "-p", "n=64") == (0, text, "")
    assert npusim("check", "tiny.py:copy", "-c", "toy", "-p", "n=64", "--json") == (0, report.to_json(), "")


def test_check_lists_streams_with_origins(npusim: Npusim) -> None:
    done = npusim("check", "memcopy", "-c", "toy", "-p", "n=64", "--list")
    assert (done.code, done.err) == (0, "")
    listing, _, summary = done.out.partition("\n\n")
    assert listing.splitlines()[:3] == [
        ".launch memcopy vector 1",
        ".core core0.vec0",
        "DataCopyPad dst=ub:f16@0x0 src=gm0:f16@0x0 block_len=128  # programs/memcopy.py:30",
    ] or listing.splitlines()[2].startswith("DataCopy")
    assert "SetFlag src=MTE2 dst=MTE3 id=0  # queue programs/memcopy.py:" in listing
    assert listing.endswith("WaitFlag src=MTE3 dst=MTE2 id=0  # pipe_end")
    assert summary.startswith("memcopy on toy, checked without timing\n")
    assert "next        npusim run memcopy -c toy -p n=64   (cycles" in summary


def test_check_compares_values(npusim: Npusim) -> None:
    done = npusim("check", "tiny.py:wrong", "-c", "toy", "--seed", "3")
    assert done.code == 1
    assert done.err.startswith("error: wrong: values differ from the reference: 256 elements outside")
    assert "setup       n=256; seed 3, numerics ascend-a2\n" in done.out


def test_check_keeps_stdout_for_the_document(npusim: Npusim) -> None:
    done = npusim("check", "tiny.py:noisy", "-c", "toy", "--json")
    assert (done.code, done.err) == (0, "built\nstarted\n")
    assert json.loads(done.out)["schema"] == "npusim.check/1"


# ---- asm ---------------------------------------------------------------------------------------------------


def test_asm_prints_what_runs_again(npusim: Npusim) -> None:
    done = npusim("asm", "tiny.py:two words", "-c", "toy")
    assert (done.code, done.err) == (0, "")
    Path("again.asm").write_text(done.out)
    assert npusim("asm", "again.asm", "-c", "toy") == done
    assert npusim("run", "again.asm", "-c", "toy").code == 0
    assert npusim("asm", "tiny.py:copy", "-c", "toy", "-p", "n=64").out == (
        ".schema npusim.asm/1\n.program copy\n.param n 64\n.param dtype \"float32\"\n"
        ".segment 0 x f32 64 input\n.segment 1 y f32 64 output\n"
        ".launch copy vector 1\n.core core0.vec0\n"
        "DataCopy dst=ub:f32@0x0 src=gm0:f32@0x0 block_len=4\n"
        "SetFlag src=MTE2 dst=MTE3 id=0\n"
        "WaitFlag src=MTE2 dst=MTE3 id=0\n"
        "DataCopy dst=gm1:f32@0x0 src=ub:f32@0x0 block_len=4\n"
        "DataCopy dst=ub:f32@0x80 src=gm0:f32@0x80 block_len=4\n"
        "SetFlag src=MTE2 dst=MTE3 id=1\n"
        "WaitFlag src=MTE2 dst=MTE3 id=1\n"
        "DataCopy dst=gm1:f32@0x80 src=ub:f32@0x80 block_len=4\n"
    )  # fmt: skip


def test_asm_computes_values_where_a_stream_needs_them(npusim: Npusim) -> None:
    assert npusim("asm", "tiny.py:counted", "-c", "toy").out.count("ScalarWork count=10\n") == 3


def test_asm_with_origins(npusim: Npusim) -> None:
    done = npusim("asm", "tiny.py:copy", "-c", "toy", "--origins")
    assert "DataCopy dst=ub:f32@0x0 src=gm0:f32@0x0 block_len=16  # tiny.py:20\n" in done.out


# ---- isa ---------------------------------------------------------------------------------------------------


def test_isa_lists_every_instruction(npusim: Npusim) -> None:
    done = npusim("isa")
    assert (done.code, done.out, done.err) == (0, reference.list_text(80), "")


def test_isa_explains_one_on_a_chip(npusim: Npusim) -> None:
    for name in ("Adds", "adds"):
        done = npusim("isa", name, "-c", "toy")
        assert done == (0, reference.instruction_text(REGISTRY["Adds"], load_chip("toy"), 80), "")


def test_isa_prints_the_page(npusim: Npusim) -> None:
    assert npusim("isa", "--page") == (0, reference.page_text(), "")


# ---- lists -------------------------------------------------------------------------------------------------


def test_chips(npusim: Npusim) -> None:
    done = npusim("chips")
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[0] == "chip           MHz  cube  vector  GB/s  description"
    assert [line.split()[0] for line in lines[1:]] == chip_names()
    assert max(map(len, lines)) <= 80
    assert "toy           1000     1       2   100  A teaching chip" in lines
    assert any(line.startswith("ascend-310p   1060     8    same   204  ") for line in lines)
    data = json.loads(npusim("chips", "--json").out)
    assert [c["name"] for c in data] == chip_names()
    assert {c["name"]: c["vector_cores"] for c in data}["ascend-910b4"] == 40


def test_chip(npusim: Npusim) -> None:
    done = npusim("chip", "toy")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("toy\nA teaching chip, one cube core and two vector cores at 1 GHz\n\ncores ")
    changed = npusim("chip", "toy", "--set", "l2.size_mib=7").out
    assert changed != done.out
    assert "L2          7 MiB" in changed
    full = npusim("chip", "toy", "--resolved").out
    assert full == resolved_yaml(load_chip("toy"))
    Path("mine.yaml").write_text(full)
    assert npusim("chip", "./mine.yaml", "--resolved").out == full
    for name in chip_names():
        assert max(map(len, npusim("chip", name).out.splitlines())) <= 80


def test_programs(npusim: Npusim) -> None:
    done = npusim("programs")
    assert (done.code, done.err) == (0, "")
    for name in shipped_programs():
        assert f"\n{name} " in f"\n{done.out}"
    data = json.loads(npusim("programs", "--json").out)
    assert {d["name"] for d in data} == set(shipped_programs())
    assert next(d for d in data if d["name"] == "memcopy")["parameters"]["n"] == {
        "type": "int",
        "default": 1 << 20,
    }


def test_parameters_are_named_by_what_they_take(npusim: Npusim) -> None:
    shown = npusim("programs", "radix_sort").out.splitlines()
    assert [" ".join(line.split()) for line in shown if line.startswith(("  cores", "  order"))] == [
        "order ascending | descending = ascending",
        "cores int | None = None",
    ]


def test_the_name_of_a_program_is_not_empty(npusim: Npusim) -> None:
    done = npusim("programs", "")
    assert (done.code, done.out) == (2, "")
    assert done.err == "error: program '' is not known; list them with `npusim programs`\n"


def test_other_commands_are_loaded_when_they_are_wanted() -> None:
    """To load the models of sweeps, plots and validation takes as long as a small run."""
    code = (
        "import sys; from npusim.cli import main; main({args}); print("
        "*sorted({{m.split('.')[1] for m in sys.modules if m.startswith('npusim.')}}), file=sys.stderr)"
    )

    def loaded(*args: str) -> set[str]:
        command = [sys.executable, "-c", code.format(args=list(args))]
        return set(subprocess.run(command, capture_output=True, text=True, check=True).stderr.split())

    assert not {"sweeps", "plots", "validation"} & loaded("run", "memcopy", "-p", "n=64")
    assert {"sweeps", "plots", "validation"} <= loaded("--help")


def test_one_program(npusim: Npusim) -> None:
    done = npusim("programs", "tiny.py:copy", "-c", "toy")
    assert (done.code, done.err) == (0, "")
    assert done.out == (
        "tiny.py:copy\n"
        "\n"
        "Copy n elements in two parts. NaN is copied like any other value.\n"
        "\n"
        "parameters\n"
        "  n      int                = 256\n"
        "  dtype  float16 | float32  = float32\n"
        "\n"
        "arrays, with the defaults on toy\n"
        "  x  input   float32  256\n"
        "  y  output  float32  256\n"
        "\n"
        "launches\n"
        "  copy  vector  on 1 core\n"
        "\n"
        "values are compared with a reference; run it: npusim run tiny.py:copy -p n=256\n"
    )
    done = npusim("programs", "tiny.py:copy", "-c", "ascend-310")
    assert "it does not run on ascend-310: launch copy: ascend-310 has" in done.out
    assert "  wide  vector  on 2 cores\n" in npusim("programs", "tiny.py:wide", "-c", "toy").out
    assert "  wide  vector  on 4 cores\n" in npusim("programs", "tiny.py:wide").out
    assert (
        "there is no reference; run it: npusim run tiny.py:stuck\n" in npusim("programs", "tiny.py:stuck").out
    )
    assert json.loads(npusim("programs", "tiny.py:copy", "--json").out)[0]["name"] == "tiny.py:copy"


@pytest.mark.parametrize("name", ["memcopy", "scan_u", "scan_ul1", "cumsum_vec"])
def test_shipped_programs_describe_themselves(npusim: Npusim, name: str) -> None:
    done = npusim("programs", name)
    assert (done.code, done.err) == (0, "")
    assert max(map(len, done.out.splitlines())) <= 80


def test_schema(npusim: Npusim) -> None:
    assert json.loads(npusim("schema", "chip").out) == chip_schema()
    assert json.loads(npusim("schema", "report").out) == report_schema()
