"""What the command line says of arguments it cannot use: whole messages, exit code 2, nothing on stdout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Npusim = Callable[..., Any]

CASES = {
    # typer's own rules
    "rnu": "npusim: no command 'rnu'; did you mean run?",
    "xyzzy": "npusim: no command 'xyzzy'; see npusim --help",
    "--foo": "npusim: no option --foo; see npusim --help",
    "run": "npusim run: missing argument 'PROGRAM'; see npusim run --help",
    "run tiny.py:copy more": "npusim run: got unexpected extra argument(s) (more); see npusim run --help",
    "run --chp toy": "npusim run: no option --chp; did you mean --chip?",
    "run -z": "npusim run: no option -z; see npusim run --help",
    "run tiny.py:copy --l2 hot": "npusim run: '--l2': 'hot' is not one of 'cold', 'warm', 'dirty'",
    "schema": "npusim schema: missing argument 'chip|report|sweep'; see npusim schema --help",
    "schema x": "npusim schema: 'chip|report|sweep': 'x' is not one of 'chip', 'report', 'sweep'",
    # programs
    "run nothing": "program 'nothing' is not known; list them with `npusim programs`",
    "check memcpy": "program 'memcpy' is not known; did you mean memcopy?; list them with `npusim programs`",
    "asm tiny": "program 'tiny' is not known; did you mean tiny.py?; list them with `npusim programs`",
    "run tinny.py": "tinny.py: no such program file; did you mean tiny.py?",
    "programs none.py": "none.py: no such program file",
    # parameters
    "run tiny.py:copy -p n": "-p n: must have the form NAME=VALUE",
    "run tiny.py:copy -p =1": "-p =1: must have the form NAME=VALUE",
    "run tiny.py:copy -p n=": "-p n=: must have the form NAME=VALUE",
    "run tiny.py:copy -p n=2 -p n=4": "-p n=4: n is given twice, first as 2",
    "run tiny.py:copy -p m=2": "copy: no parameter m; parameters: n dtype",
    "run tiny.py:copy -p dtyp=2": "copy: no parameter dtyp; did you mean dtype?; parameters: n dtype",
    "run tiny.py:stuck -p n=2": "stuck: no parameter n; parameters: none",
    "run tiny.py:copy -p n=x": (
        "copy: n=x: input should be a valid integer, unable to parse string as an integer"
    ),
    "run tiny.py:copy -p dtype=f": "copy: dtype=f: input should be 'float16' or 'float32'",
    "run tiny.py:copy -p n=0": "tiny.py:34: copy: segment x: every extent must be 1 or more, not 0",
    "run tiny.py:copy -p n=-2": "tiny.py:34: copy: segment x: every extent must be 1 or more, not -2",
    "run tiny.py:copy -c toy -p n=1000000000000": (
        "tiny.py:34: copy: segment x of shape 1000000000000 needs 4,000,000,000,000 bytes of global memory, "
        "toy has 1,073,741,824"
    ),
    "run tiny.py:wide -c toy -p blocks=0": (
        "tiny.py:131: wide: segment x: every extent must be 1 or more, not 0x64"
    ),
    # chips
    "run tiny.py:copy -c toi": "no chip named 'toi'; did you mean toy?",
    "run tiny.py:copy -c mine.yaml": "mine.yaml: no such file",
    "run tiny.py:copy -c ascend-310": (
        "tiny.py:35: launch copy: ascend-310 has coupled cores, so a vector launch does not fit it"
    ),
    "run tiny.py:copy --set x": "--set x: must have the form PATH=VALUE",
    "run tiny.py:copy --set l2.size_mb=2": "override: l2.size_mb: unknown field; did you mean size_mib?",
    "run tiny.py:copy --set l2.size_mib=0": "override: l2.size_mib: must be greater than 0, got 0",
    "run tiny.py:copy --set l2.size_mib=2 --set l2.size_mib=3": (
        "--set l2.size_mib=3: l2.size_mib is given twice, first as 2"
    ),
    "chip toi": "no chip named 'toi'; did you mean toy?",
    "isa Adds -c toi": "no chip named 'toi'; did you mean toy?",
    "run tiny.py:copy --numerics ieee": "numerics ieee: unknown profile",
    "run tiny.py:copy --numerics ascend-a3": "numerics ascend-a3: unknown profile; did you mean ascend-a2?",
    # options that contradict each other
    "run tiny.py:copy --timing-only --no-check": (
        "--no-check has no effect with --timing-only, which checks nothing; leave it out"
    ),
    "check tiny.py:copy --list --json": "--list prints text and --json one document; leave one of them out",
    "isa Adds --page": "--page prints all instructions; leave Adds out",
    "isa adz": "instruction 'adz' is not known; did you mean And?; list them with `npusim isa`",
    "isa xyzzy": "instruction 'xyzzy' is not known; list them with `npusim isa`",
}


@pytest.mark.parametrize("line", CASES)
def test_messages(npusim: Npusim, line: str) -> None:
    assert npusim(*line.split()) == (2, "", f"error: {CASES[line]}\n")


@pytest.mark.parametrize(
    ("argv", "start"),
    [
        (["run", "x", "--seed", "two"], "npusim run: '--seed': "),
        (["run", "x", "--seed", "-1"], "npusim run: '--seed': "),
        (["run", "x", "-p"], "npusim"),
        (["--help", "-x"], "npusim: "),
    ],
)
def test_messages_in_the_words_of_typer(npusim: Npusim, argv: list[str], start: str) -> None:
    done = npusim(*argv)
    assert done.code in (0, 2)
    if done.code:
        assert done.err.startswith(f"error: {start}")
        assert done.err.count("\n") == 1
        assert done.out == ""


def test_no_arguments_print_the_help(npusim: Npusim) -> None:
    done = npusim()
    assert (done.code, done.err) == (0, "")
    for command in ("run", "check", "asm", "isa", "chips", "chip", "programs", "schema"):
        assert command in done.out
        assert npusim(command, "--help").out == npusim(command, "-h").out != ""


def test_control_characters_do_not_reach_the_terminal(npusim: Npusim) -> None:
    message = "program 'a\\x1b[31m\\nb' is not known; list them with `npusim programs`"
    assert npusim("run", "a\x1b[31m\nb") == (2, "", f"error: {message}\n")
    message = "-p 'a\\n\\x07': must have the form NAME=VALUE"
    assert npusim("run", "tiny.py:copy", "-p", "a\n\x07") == (2, "", f"error: {message}\n")
    message = "copy: n=\\x07: input should be a valid integer, unable to parse string as an integer"
    assert npusim("run", "tiny.py:copy", "-p", "n=\x07") == (2, "", f"error: {message}\n")


def test_arguments_that_are_no_text(npusim: Npusim) -> None:
    assert npusim("run", "\udcff") == (2, "", "error: argument '\\udcff' is not UTF-8\n")


def test_long_lines_are_cut(npusim: Npusim) -> None:
    done = npusim("run", "x" * 10_000)
    assert done.code == 2
    assert len(done.err) == len("error: ") + 400 + 1
    assert done.err.endswith("xxx...\n")
