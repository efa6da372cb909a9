"""`npusim run`: exit codes, what goes to stdout and what to stderr, and that every option does something."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npusim import load_chip
from npusim.cli import commands, entry, main, screen
from npusim.program.discover import find_program
from npusim.report.model import Report
from npusim.report.simulate import run as run_built
from npusim.report.text import report_text

Npusim = Callable[..., Any]

WRONG = "error: wrong: values differ from the reference: 256 elements outside the tolerance; "
WRONG += "largest error 1, tolerance 0\n"


def report_of(done: Any) -> Report:
    """Return the one report that a command printed."""
    assert (done.code, done.err) == (0, "")
    return Report.model_validate(json.loads(done.out))


def test_text_goes_to_stdout_and_the_exit_code_is_zero(npusim: Npusim) -> None:
    done = npusim("run", "tiny.py:copy", "-c", "toy", "-p", "n=64")
    report = run_built(find_program("tiny.py:copy").build(load_chip("toy"), {"n": 64}), load_chip("toy"))
    step = "npusim run tiny.py:copy -c toy -p n=64 -o DIR   (keeps outputs, report and stream)"
    assert done == (0, report_text(report, 80, next_step=step), "")
    assert "values      ok: every element equals the reference\n" in done.out


def test_json_is_one_document_and_nothing_else(npusim: Npusim) -> None:
    done = npusim("run", "tiny.py:copy", "-c", "toy", "--json")
    report = run_built(find_program("tiny.py:copy").build(load_chip("toy")), load_chip("toy"))
    assert done == (0, report.to_json(), "")
    assert report_of(done).to_json() == report.to_json()


def test_what_a_program_prints_stays_out_of_the_document(npusim: Npusim) -> None:
    done = npusim("run", "tiny.py:noisy", "-c", "toy", "--json")
    assert done.code == 0
    assert json.loads(done.out)["program"] == "noisy"
    assert done.err == "built\nstarted\n"
    assert npusim("run", "tiny.py:noisy", "-c", "toy").out.startswith("built\nstarted\nnoisy on toy\n")


def test_wrong_values_exit_with_one(npusim: Npusim) -> None:
    done = npusim("run", "tiny.py:wrong", "-c", "toy")
    assert done.code == 1
    assert done.err == WRONG
    assert "values WRONG: 256 elements outside the tolerance; largest error 1, tol" in " ".join(
        done.out.split()
    )
    done = npusim("run", "tiny.py:wrong", "-c", "toy", "--json")
    assert (done.code, done.err) == (1, WRONG)
    assert json.loads(done.out)["values"]["mismatches"] == 256


RACE = (
    "error: tiny.py:24: core0.vec0: DataCopy (MTE3) reads ub bytes 0 to 512, which DataCopy (MTE2, "
    "tiny.py:20) writes, and nothing orders them; set MTE2->MTE3 behind the first and wait for it before the "
    "second\n"
)
STUCK = (
    "error: deadlock: core0.vec0 V (#0) waits for flag MTE2->V#0, and no stream has an instruction left that "
    "would set it\n"
)


@pytest.mark.parametrize("command", ["run", "check"])
@pytest.mark.parametrize("more", [[], ["--json"]])
def test_hazards_exit_with_three(npusim: Npusim, command: str, more: list[str]) -> None:
    assert npusim(command, "tiny.py:racy", "-c", "toy", *more) == (3, "", RACE)
    assert npusim(command, "tiny.py:stuck", "-c", "toy", *more) == (3, "", STUCK)


def test_no_check_runs_what_is_racy(npusim: Npusim) -> None:
    assert npusim("run", "tiny.py:racy", "-c", "toy", "--no-check").code == 0


def test_a_bug_of_ours_exits_with_four(npusim: Npusim, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("what\nnow")

    monkeypatch.setattr(commands, "run_built", broken)
    message = (
        "error: internal error: RuntimeError: what now\n"
        "       this is a bug of npusim: report the command and the traceback that NPUSIM_DEBUG=1 shows\n"
    )
    assert npusim("run", "tiny.py:copy", "--json") == (4, "", message)


def test_debugging_shows_the_traceback(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NPUSIM_DEBUG", "1")
    assert main(["run", "nothing"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("Traceback (most recent call last):\n")
    assert err.endswith("error: program 'nothing' is not known; list them with `npusim programs`\n")


def test_an_interrupt_exits_with_130(npusim: Npusim, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(commands, "run_built", interrupted)
    assert npusim("run", "tiny.py:copy", "-o", "kept") == (130, "", "error: interrupted\n")
    assert os.listdir() == ["tiny.py"]
    monkeypatch.setattr(entry, "get_command", interrupted)
    assert npusim("chips") == (130, "", "error: interrupted\n")


def test_memory_and_files_that_run_out_are_no_bugs(npusim: Npusim, monkeypatch: pytest.MonkeyPatch) -> None:
    failures = {
        MemoryError("Unable to allocate 8 TiB"): "not enough memory for this run: Unable to allocate 8 TiB",
        MemoryError(): "not enough memory for this run",
        OSError(28, "No space left on device"): "no space left on device",
        OSError(13, "Permission denied", "x.yaml"): "x.yaml: permission denied",
    }
    for error, message in failures.items():

        def failing(*_: object, error: Exception = error, **__: object) -> None:
            raise error

        monkeypatch.setattr(commands, "run_built", failing)
        assert npusim("run", "tiny.py:copy") == (2, "", f"error: {message}\n")


def test_a_crash_in_a_program_names_its_line(npusim: Npusim) -> None:
    line = "error: tiny.py:71: IndexError: list index out of range\n"
    assert npusim("run", "tiny.py:crash") == (2, "", line)
    line = "error: tiny.py:73: SystemExit\n"
    assert npusim("run", "tiny.py:crash", "-p", "where=exit") == (2, "", line)
    line = "error: tiny.py:79: ZeroDivisionError: division by zero\n"
    assert npusim("run", "tiny.py:crash", "-p", "where=stream") == (2, "", line)
    assert npusim("check", "tiny.py:crash", "-p", "where=stream", "--json") == (2, "", line)
    line = "error: tiny.py:77: core0.vec0: ub: 4,194,304 bytes needed, 65,536 available on toy"
    line += "; use smaller tiles\n"
    assert npusim("run", "tiny.py:crash", "-p", "where=library", "-c", "toy") == (2, "", line)


def test_an_error_that_a_program_raises_keeps_its_words(npusim: Npusim) -> None:
    assert npusim("run", "tiny.py:copy", "-p", "n=3") == (2, "", "error: copy: n must be even, not 3\n")


def test_every_option_changes_the_report(npusim: Npusim) -> None:
    base = ["run", "tiny.py:copy", "-c", "toy", "--json"]
    plain = report_of(npusim(*base))
    assert report_of(npusim(*base, "-p", "n=128", "-p", "dtype=float16")).params == {
        "n": 128,
        "dtype": "float16",
    }
    assert report_of(npusim(*base, "-p", "n = 128 ")).params["n"] == 128
    choice = report_of(npusim("run", "memcopy", "-c", "toy", "-p", "n=64", "-p", "buffers=1", "--json"))
    assert choice.params["buffers"] == 1
    assert report_of(npusim(*base, "--seed", "7")).seed == 7
    assert report_of(npusim(*base, "--seed", "7")).run_id != plain.run_id
    assert report_of(npusim(*base, "--numerics", "ieee-sequential-fp32")).numerics == "ieee-sequential-fp32"
    assert report_of(npusim(*base, "--l2", "warm")).gm.hbm_read_bytes < plain.gm.hbm_read_bytes
    slow = report_of(npusim(*base, "--set", "ports.gm_to_ub.bytes_per_cycle=1"))
    assert slow.total_cycles > plain.total_cycles + 900
    timed = report_of(npusim(*base, "--timing-only"))
    assert (timed.values.checked, timed.total_cycles) == (False, plain.total_cycles)
    assert report_of(npusim("run", "tiny.py:copy", "--json")).chip == "ascend-910b4"


def test_inputs_come_from_files(npusim: Npusim) -> None:
    x = np.arange(100, dtype=np.float16)
    np.save("x.npy", x)
    done = npusim("run", "tiny.py:copy", "-c", "toy", "--input", "x=x.npy", "-o", "kept", "--json")
    assert report_of(done).params == {"n": 100, "dtype": "float16"}
    np.testing.assert_array_equal(np.load("kept/y.npy"), x)


def test_not_a_number_is_copied(npusim: Npusim) -> None:
    x = np.array([np.nan, np.inf, -np.inf, -0.0] * 8, np.float32)
    np.save("x.npy", x)
    report = report_of(npusim("run", "tiny.py:copy", "-c", "toy", "--input", "x=x.npy", "-o", "k", "--json"))
    assert report.values.ok is True
    assert np.load("k/y.npy").tobytes() == x.tobytes()


def test_timing_alone_cannot_know_values(npusim: Npusim) -> None:
    assert npusim("run", "tiny.py:counted", "-c", "toy").code == 0
    done = npusim("run", "tiny.py:counted", "-c", "toy", "--timing-only")
    assert done.code == 2
    assert done.err.startswith("error: tiny.py:111: core0.vec0: ")
    assert "the stream depends on the value of GetValue" in done.err


def test_the_same_run_gives_the_same_bytes(npusim: Npusim) -> None:
    argv = ["run", "tiny.py:wide", "-c", "ascend-910b4", "--json"]
    first = npusim(*argv).out
    assert npusim(*argv).out == first
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-m", "npusim", *argv],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
        )
        assert (done.stdout, done.stderr) == (first, "")


def test_a_reader_that_leaves_early_is_no_error(folder: Path) -> None:
    command = [sys.executable, "-m", "npusim", "asm", "tiny.py:copy"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert (process.stderr.read(), process.wait()) == ("", 141)


def test_a_closed_stdout_is_no_bug(folder: Path) -> None:
    command = f"{sys.executable} -m npusim chips >&-"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_assembly_text_runs_again(npusim: Npusim) -> None:
    report = report_of(npusim("run", "tiny.py:copy", "-c", "toy", "--json", "-o", "kept"))
    again = report_of(npusim("run", "kept/stream.asm", "-c", "toy", "--json"))
    assert (again.total_cycles, again.pipes) == (report.total_cycles, report.pipes)
    assert again.values.checked is False
    done = npusim("run", "kept/stream.asm", "-c", "toy")
    assert "values      computed, with no reference to compare them with\n" in done.out


def test_progress_is_for_terminals_and_long_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    class Status:
        def __init__(self, words: str) -> None:
            said.append(words)

        def __enter__(self) -> Status:
            return self

        def __exit__(self, *_: object) -> None:
            said.append("gone")

        def update(self, words: str) -> None:
            said.append(words)

    monkeypatch.setattr("rich.console.Console.status", lambda self, words: Status(words))
    monkeypatch.setattr("rich.status.Status", Status)
    with monkeypatch.context() as patch, screen.progress() as line:
        patch.setattr(screen, "_PATIENCE_S", -1.0)
        line("values", 1000)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with screen.progress() as line:
        line("values", 1000)
    assert said == []
    monkeypatch.setattr(screen, "_PATIENCE_S", -1.0)
    with screen.progress() as line:
        line("values", 1000)
        line("timing", 2000000)
        line("comparing", 0)
    assert said == ["values: 1,000 instructions", "timing: 2,000,000 instructions", "comparing", "gone"]


def test_colour_only_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "p on toy\n\nvalues      ok: fine\nbound       1 %\n"
    screen.show_report(text)
    assert capsys.readouterr().out == text
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    screen.show_report(text)
    coloured = capsys.readouterr().out
    assert "\x1b[1mvalues\x1b[0m      \x1b[1;32mok\x1b[0m: fine" in coloured
    monkeypatch.setenv("NO_COLOR", "1")
    screen.show_report(text)
    assert "\x1b[1;32m" not in capsys.readouterr().out
