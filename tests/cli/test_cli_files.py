"""Input files and output folders: what is wrong with a file in one line, and folders that are there whole."""

from __future__ import annotations

import io
import json
import os
import subprocess
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from npusim.config.load import load_chip
from npusim.errors import ConfigError
from npusim.program.arrays import load_array
from npusim.program.asm import asm_text
from npusim.program.discover import find_program
from npusim.report import manifest
from npusim.report.checked import streams_of

Npusim = Callable[..., Any]


def saved(array: Any) -> bytes:
    """Return an array as the bytes of a .npy file."""
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        np.save(file, array)
    return file.getvalue()


KNOWN = "float16, bfloat16, float32, int8, uint8, int16, uint16, int32, uint32, int64, uint64"
UNKNOWN = f"which no pipe knows; save one of {KNOWN}"
GOOD = saved(np.arange(6, dtype=np.float32).reshape(2, 3))

# ---- arrays ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stored", "wanted"),
    [
        (np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3)), None),
        (np.arange(6, dtype=">f4").reshape(2, 3), np.arange(6, dtype=np.float32).reshape(2, 3)),
        (np.asfortranarray(np.arange(6, dtype=">i8").reshape(2, 3)), np.arange(6).reshape(2, 3)),
        (np.arange(6).astype(ml_dtypes.bfloat16), None),
        (np.array([[np.nan, -0.0]], np.float16), None),
        (np.array([1], np.uint64), None),
    ],
)
def test_arrays_that_can_be_read(tmp_path: Path, stored: Any, wanted: Any) -> None:
    (tmp_path / "x.npy").write_bytes(saved(stored))
    array = load_array(tmp_path / "x.npy")
    wanted = stored if wanted is None else wanted
    assert array.dtype == wanted.dtype
    assert array.dtype.isnative
    assert array.flags.c_contiguous
    assert array.tobytes() == np.ascontiguousarray(wanted).tobytes()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is no .npy file"),
        (b"hello", "is no .npy file"),
        (b"PK\x03\x04 and so on", "is an .npz archive; save each array as a .npy file of its own"),
        (GOOD[:20], "has a damaged header"),
        (GOOD.replace(b"descr", b"decsr"), "has a damaged header"),
        (GOOD.replace(b"(2, 3)", b"(2, [)"), "has a damaged header"),
        (GOOD.replace(b"(2, 3)", b"(2,-3)"), "has a damaged header: shape (2, -3)"),
        (GOOD.replace(b"\x93NUMPY\x01", b"\x93NUMPY\x09"), "has a header of an unknown version"),
        (GOOD[:-1], "is cut off: 23 bytes of data, 24 expected for float32 of shape (2, 3)"),
        (
            GOOD.replace(b"(2, 3), ", b"(10**9),"),
            "has a damaged header",
        ),
        (
            GOOD.replace(b"(2, 3), }", b"(99999,)}"),
            "is cut off: 24 bytes of data, 399,996 expected for float32 of shape (99999,)",
        ),
        (
            GOOD + b"12",
            "has bytes behind its array: 26 bytes of data, 24 expected for float32 of shape (2, 3)",
        ),
        (saved(np.array([{}], object)), "holds Python objects; save numbers"),
        (saved(np.zeros(3, [("a", "f4")])), "has elements with named fields; save plain numbers"),
        (saved(np.zeros(3, [("☃", "f4")])), "has elements with named fields; save plain numbers"),
        (
            saved(np.arange(3.0)),
            f"has elements of type float64, {UNKNOWN}",
        ),
        (saved(np.array([True])), f"has elements of type bool, {UNKNOWN}"),
        (saved(np.array([1j])), f"has elements of type complex128, {UNKNOWN}"),
        (saved(np.array(["a"])), f"has elements of type str32, {UNKNOWN}"),
        (saved(np.float32(1)), "holds a single number without an extent; save an array of shape (1,)"),
        (saved(np.zeros((0, 3), np.float32)), "is empty: shape (0, 3)"),
    ],
)
def test_arrays_that_cannot_be_read(npusim: Npusim, content: bytes, message: str) -> None:
    Path("x.npy").write_bytes(content)
    done = npusim("run", "tiny.py:copy", "-c", "toy", "--input", "x=x.npy")
    assert done == (2, "", f"error: x.npy: {message}\n")


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ("x", "--input x: must have the form NAME=FILE"),
        ("x=", "--input x=: must have the form NAME=FILE"),
        ("x=none.npy", "none.npy: no such file"),
        ("x=.", ".: is a folder; expected a .npy file"),
        ("x=/dev/null", "/dev/null: is no plain file; expected a .npy file"),
        ("x=a\0b", "'a\\x00b': no such file"),
        ("z=x.npy", "copy: no input z; inputs: x"),
        ("y=x.npy", "copy: no input y; inputs: x"),
        ("x=flat.npy", "copy: n must be even, not 5"),
        ("x=wide.npy", "copy: input x has shape (4, 2), but 1 dimension is needed, as in (4,); reshape it"),
        ("x=int.npy", "copy: input x is int32, but must be float16 or float32; convert it"),
    ],
)
def test_inputs_that_do_not_fit(npusim: Npusim, item: str, message: str) -> None:
    np.save("x.npy", np.zeros(8, np.float32))
    np.save("flat.npy", np.zeros(5, np.float32))
    np.save("wide.npy", np.zeros((4, 2), np.float32))
    np.save("int.npy", np.zeros(8, np.int32))
    done = npusim("run", "tiny.py:copy", "-c", "toy", "--input", item)
    assert done == (2, "", f"error: {message}\n")


def test_an_input_given_twice_or_against_a_parameter(npusim: Npusim) -> None:
    np.save("x.npy", np.zeros(8, np.float32))
    argv = ["run", "tiny.py:copy", "--input", "x=x.npy"]
    message = "--input x=y.npy: x is given twice, first as x.npy"
    assert npusim(*argv, "--input", "x=y.npy") == (2, "", f"error: {message}\n")
    message = "copy: n=16 contradicts the input, which gives 8"
    assert npusim(*argv, "-p", "n=16") == (2, "", f"error: {message}\n")
    assert npusim(*argv, "-p", "n=8").code == 0
    message = "stuck: no input x; inputs: none"
    assert npusim("run", "tiny.py:stuck", "--input", "x=x.npy") == (2, "", f"error: {message}\n")


def test_inputs_of_assembly_text_have_its_shape(npusim: Npusim) -> None:
    Path("copy.asm").write_text(npusim("asm", "tiny.py:copy", "-p", "n=8").out)
    np.save("x.npy", np.zeros(10, np.float32))
    message = "copy: input x must be float32 of shape (8,), not float32 of shape (10,)"
    assert npusim("run", "copy.asm", "--input", "x=x.npy") == (2, "", f"error: {message}\n")


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    edits=st.lists(st.tuples(st.integers(0, len(GOOD) + 3), st.binary(max_size=4)), max_size=3),
    cut=st.integers(0, len(GOOD)),
)
def test_damaged_arrays_are_errors_of_ours(tmp_path: Path, edits: list[tuple[int, bytes]], cut: int) -> None:
    content = bytearray(GOOD if cut % 3 else GOOD[:cut])
    for at, part in edits:
        content[at : at + len(part)] = part
    (tmp_path / "x.npy").write_bytes(bytes(content))
    try:
        array = load_array(tmp_path / "x.npy")
    except ConfigError as error:
        assert str(error).startswith(f"{tmp_path / 'x.npy'}: ")  # noqa: PT017
        assert "\n" not in str(error)  # noqa: PT017
    else:
        assert array.size > 0


# ---- folders -----------------------------------------------------------------------------------------------


def test_a_run_folder_holds_everything(npusim: Npusim, folder: Path) -> None:
    np.save("x.npy", np.arange(8, dtype=np.float32))
    done = npusim("run", "tiny.py:copy", "-c", "toy", "--input", "x=x.npy", "--seed", "5", "-o", "runs/a")
    assert (done.code, done.err) == (0, "")
    assert done.out.endswith("next        runs/a holds report.json, stream.asm and the outputs\n")
    assert sorted(os.listdir("runs/a")) == ["manifest.json", "report.json", "stream.asm", "y.npy"]
    assert os.listdir("runs") == ["a"]
    report = json.loads(Path("runs/a/report.json").read_text())
    assert (
        Path("runs/a/report.json").read_text()
        == npusim("run", "tiny.py:copy", "-c", "toy", "--input", "x=x.npy", "--seed", "5", "--json").out
    )
    program = find_program("tiny.py:copy").build(load_chip("toy"), {"n": 8})
    text = asm_text(program, [s for _, s in streams_of(program, load_chip("toy"))])
    assert Path("runs/a/stream.asm").read_text() == text
    record = json.loads(Path("runs/a/manifest.json").read_text())
    assert record["schema"] == "npusim.manifest/1"
    assert record["run_id"] == report["run_id"]
    assert record["command"][:4] == ["npusim", "run", "tiny.py:copy", "-c"]
    assert record["seed"] == 5
    assert record["program"]["name"] == "copy"
    assert record["program"]["file"] == str(folder / "tiny.py")
    assert record["program"]["params"] == {"n": 8, "dtype": "float32"}
    assert record["inputs"]["x"]["file"] == "x.npy"
    assert len(record["inputs"]["x"]["sha256"]) == len(record["program"]["sha256"]) == 64
    assert record["files"] == ["manifest.json", "report.json", "stream.asm", "y.npy"]
    assert set(record["versions"]) == {"npusim", "python", "numpy", "simpy", "pydantic", "ml_dtypes"}
    assert all(record["versions"].values())
    assert record["wall_seconds"] > 0
    assert record["time"].endswith("Z")
    assert record["platform"]
    assert record["chip"]["sources"]["clock_mhz"]["confidence"] == "L"
    assert record["chip"]["clock_mhz"] == 1000


def test_folders_that_are_replaced(npusim: Npusim) -> None:
    argv = ["run", "tiny.py:copy", "-c", "toy", "--json", "-o", "kept"]
    os.mkdir("kept")
    assert npusim(*argv).code == 0
    first = Path("kept/manifest.json").read_text()
    assert npusim("run", "tiny.py:two words", "-c", "toy", "-o", "kept").code == 0
    assert sorted(os.listdir("kept")) == ["manifest.json", "report.json", "stream.asm", "y.npy", "z.npy"]
    assert npusim(*argv).code == 0
    assert "z.npy" not in os.listdir("kept")
    assert json.loads(first)["run_id"] == json.loads(Path("kept/manifest.json").read_text())["run_id"]
    assert sorted(os.listdir()) == ["kept", "tiny.py"]


def test_folders_that_are_not_replaced(npusim: Npusim) -> None:
    os.mkdir("full")
    Path("full/notes.txt").write_text("mine")
    Path("full/more.txt").write_text("mine")
    Path("file").write_text("mine")
    os.symlink("full", "link")
    os.makedirs("made/by")
    os.mkdir("told")
    Path("told/manifest.json").write_text('{"schema": "other", "files": ["manifest.json"]}')
    os.mkdir("broken")
    Path("broken/manifest.json").write_text("{")
    for name, message in {
        "full": "full: holds more.txt and 1 more, which npusim did not write; name a new folder",
        "told": "told: holds manifest.json, which npusim did not write; name a new folder",
        "broken": "broken: holds manifest.json, which npusim did not write; name a new folder",
        "made": "made: holds by, which npusim did not write; name a new folder",
        "file": "file: is there and no folder; name a new folder",
        "link": "link: is there and no folder; name a new folder",
        "file/x": "file/x: the folder cannot be written: not a directory",
        ".": ".: is the current folder or holds it; name a folder of its own",
        "..": "..: is the current folder or holds it; name a folder of its own",
        "/proc/x": "/proc/x: the folder cannot be written: no such file or directory",
        "": "'': is the current folder or holds it; name a folder of its own",
        "x" * 300: f"{'x' * 300}: the folder cannot be written: file name too long",
    }.items():
        before = sorted(os.listdir())
        assert npusim("run", "tiny.py:copy", "-o", name) == (2, "", f"error: {message}\n")
        assert sorted(os.listdir()) == before
    assert Path("full/notes.txt").read_text() == Path("file").read_text() == "mine"


def test_the_folder_is_checked_before_the_run(npusim: Npusim) -> None:
    Path("file").write_text("mine")
    done = npusim("run", "tiny.py:crash", "-p", "where=stream", "-o", "file")
    assert done.err == "error: file: is there and no folder; name a new folder\n"


@pytest.mark.parametrize(
    ("program", "code"), [("racy", 3), ("stuck", 3), ("crash", 2), ("wrong", 1), ("copy", 0)]
)
def test_only_runs_that_end_leave_a_folder(npusim: Npusim, program: str, code: int) -> None:
    assert npusim("run", f"tiny.py:{program}", "-c", "toy", "-o", "kept").code == code
    assert sorted(os.listdir()) == (["kept", "tiny.py"] if code < 2 else ["tiny.py"])


def test_a_disk_that_runs_full_leaves_the_old_folder(npusim: Npusim, monkeypatch: pytest.MonkeyPatch) -> None:
    argv = ["run", "tiny.py:copy", "-c", "toy", "-o", "kept"]
    assert npusim(*argv).code == 0
    before = {f: Path("kept", f).read_bytes() for f in os.listdir("kept")}

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    for owner, name in ((np, "save"), (manifest, "_put"), (manifest.RunFolder, "_write")):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, full)
            message = "error: kept: the folder cannot be written: no space left on device\n"
            assert npusim(*argv) == (2, "", message)
        assert {f: Path("kept", f).read_bytes() for f in os.listdir("kept")} == before
        assert sorted(os.listdir()) == ["kept", "tiny.py"]


def test_a_rename_that_fails_puts_the_old_folder_back(
    npusim: Npusim, monkeypatch: pytest.MonkeyPatch
) -> None:
    argv = ["run", "tiny.py:copy", "-c", "toy", "-o", "kept"]
    assert npusim(*argv).code == 0
    before = Path("kept/manifest.json").read_bytes()
    rename = Path.rename

    def failing(self: Path, target: Path) -> Path:
        if not self.name.endswith("-old") and Path(target).name == "kept":
            raise OSError(5, "Input/output error")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", failing)
    assert npusim(*argv).err == "error: kept: the folder cannot be written: input/output error\n"
    assert Path("kept/manifest.json").read_bytes() == before
    assert sorted(os.listdir()) == ["kept", "tiny.py"]


def test_time_alone_leaves_no_outputs(npusim: Npusim) -> None:
    assert npusim("run", "tiny.py:copy", "-c", "toy", "--timing-only", "-o", "kept").code == 0
    assert sorted(os.listdir("kept")) == ["manifest.json", "report.json", "stream.asm"]


def test_the_commit_is_that_of_our_own_checkout(tmp_path: Path) -> None:
    git = [
        "git",
        "-C",
        str(tmp_path),
        "-c",
        "user.name=a",
        "-c",
        "user.email=a@b",
        "-c",
        "init.defaultBranch=m",
    ]
    (tmp_path / "__init__.py").write_text("")
    assert manifest.git_state(tmp_path) is None
    subprocess.run([*git, "init", "-q"], check=True)
    assert manifest.git_state(tmp_path) is None
    (tmp_path / "other").write_text("")
    subprocess.run([*git, "add", "other"], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "x"], check=True)
    assert manifest.git_state(tmp_path) is None  # a package that lies in somebody else's checkout
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "x"], check=True)
    state = manifest.git_state(tmp_path)
    assert state is not None
    assert (len(state["commit"]), state["dirty"]) == (40, False)
    (tmp_path / "__init__.py").write_text("x = 1\n")
    assert manifest.git_state(tmp_path) == {**state, "dirty": True}
