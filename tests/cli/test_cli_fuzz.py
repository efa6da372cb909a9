"""Random arguments: never a traceback, never exit code 4, one line of error, one document with --json."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npusim.cli import main

TINY = Path(__file__).with_name("tiny.py")
NAMES = ["copy", "wrong", "racy", "stuck", "crash", "noisy", "counted", "two words", "wide", "none", ""]
WORDS = st.sampled_from(
    ["run", "check", "asm", "isa", "chips", "chip", "programs", "schema", "rnu", "Adds", "toy"]
)
PROGRAM = st.sampled_from(
    [f"tiny.py:{n}" for n in NAMES] + ["tiny.py", "none.py", ".", "x.npy", "p.asm", "q.asm", ""]
)
VALUE = st.sampled_from(
    ["64", "0", "-2", "7", "x", "1e3", "true", "10**9", str(10**30), "nan", "", " ", "None", "[1]"]
)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
NAME = st.sampled_from(["n", "dtype", "where", "blocks", "text", "x", "y", "n ", "", "é"])
PATH = st.sampled_from(["clock_mhz", "l2.size_mib", "hbm", "sources", "cores.cube", "l2..x", ".", "x"])
FILE = st.sampled_from(["x.npy", "bad.npy", "none.npy", ".", "tiny.py", ""])
OPTION = st.one_of(
    st.tuples(
        st.sampled_from(["-c", "--chip"]), st.sampled_from(["toy", "toi", "ascend-310", "x/y", "", "."])
    ),
    st.tuples(st.sampled_from(["-p", "--param"]), st.builds("{}={}".format, NAME, VALUE) | TEXT),
    st.tuples(st.just("--set"), st.builds("{}={}".format, PATH, VALUE) | TEXT),
    st.tuples(st.just("--input"), st.builds("{}={}".format, NAME, FILE) | TEXT),
    st.tuples(st.just("--seed"), VALUE),
    st.tuples(st.just("--numerics"), st.sampled_from(["fast", "ascend-a2", "x", ""])),
    st.tuples(st.just("--l2"), st.sampled_from(["cold", "warm", "dirty", "hot"])),
    st.tuples(st.just("-o"), st.sampled_from(["kept", "full", "x.npy", ".", "", "a/b", "x.npy/y"])),
    st.tuples(
        st.sampled_from(
            ["--timing-only", "--no-check", "--json", "--list", "--origins", "--page", "--resolved"]
        )
    ),
    st.tuples(st.sampled_from(["--help", "--version", "-x", "--", "-", "-p", "--set"])),
    st.tuples(TEXT.filter(lambda t: not t.startswith("--in") and not t.startswith("--sh"))),
)


@pytest.fixture(scope="module", autouse=True)
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A working directory with programs and arrays, good and bad."""
    folder = tmp_path_factory.mktemp("fuzz")
    before = os.getcwd()
    os.chdir(folder)
    shutil.copy(TINY, folder)
    np.save("x.npy", np.arange(64, dtype=np.float32))
    Path("bad.npy").write_bytes(Path("x.npy").read_bytes()[:-3])
    Path("p.asm").write_text(".schema npusim.asm/1\n.launch go vector 1\n.core core0.vec0\nResetMask\n")
    Path("q.asm").write_text(".schema npusim.asm/1\n.launch go vector 1\n.core core0.vec0\nResetMusk\n")
    (folder / "full").mkdir()
    Path("full/mine").write_text("mine")
    yield
    os.chdir(before)


ANYTHING = st.tuples(WORDS | TEXT, st.lists(PROGRAM | WORDS, max_size=2), st.lists(OPTION, max_size=3))
NEARLY_RIGHT = st.tuples(
    st.sampled_from(["run", "run", "check", "asm"]),
    st.sampled_from([[f"tiny.py:{n}"] for n in NAMES[:-2]] + [["p.asm"], ["q.asm"]]),
    st.lists(OPTION, max_size=3),
)


@settings(max_examples=150, deadline=None)
@given(ANYTHING | NEARLY_RIGHT)
def test_arguments(line: tuple[str, list[str], list[tuple[str, ...]]]) -> None:
    command, subject, options = line
    argv = [command, *subject, *(word for option in options for word in option)]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(argv)
    said = err.getvalue()
    assert code in (0, 1, 2, 3), (argv, said)
    assert "Traceback" not in said + out.getvalue()
    errors = [line for line in said.splitlines() if line.startswith("error: ")]
    assert len(errors) == (code != 0), (argv, said)
    if code in (2, 3) and "--list" not in argv and "tiny.py:noisy" not in argv:
        assert out.getvalue() == "", (argv, said)
    if (
        "--json" in argv
        and code < 2
        and "--help" not in argv
        and "--version" not in argv
        and "--" not in argv
    ):
        json.loads(out.getvalue())
    assert not [name for name in os.listdir() if name.startswith(".npusim-")]
    assert Path("full/mine").read_text() == "mine"
