"""`npusim sweep` at the command line."""

from __future__ import annotations

import json

import pytest

SPACE = """schema: npusim.sweep/1
program: tiny.py:copy
chips: [toy]
axes:
  program.n: [64, 128]
  chip.hbm.size_gib: [1, 2]
"""


@pytest.fixture
def space(folder):
    """A file with four points."""
    (folder / "few.yaml").write_text(SPACE, encoding="utf-8")
    return folder / "few.yaml"


def test_rows_are_kept_and_told(npusim, space, folder):
    done = npusim("sweep", "few.yaml", "--backend", "sequential")
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[2] == "rows        4 points: 4 ran"
    assert "            chip.hbm.size_gib: NO EFFECT on cycles, traffic or values" in lines
    assert lines[-1] == "next        sweeps/few holds rows.jsonl, rows.csv and sweep.json"
    assert len((folder / "sweeps" / "few" / "rows.jsonl").read_text(encoding="utf-8").splitlines()) == 4
    again = npusim("sweep", "few.yaml", "--backend", "sequential")
    assert (again.code, again.err) == (
        2,
        "error: sweeps/few: holds rows of a sweep; add --resume, or name a new folder\n",
    )
    resumed = npusim("sweep", "few.yaml", "-j", "1", "--resume")
    assert "rows        4 points: 4 kept from before, nothing left to run" in resumed.out.splitlines()
    file = folder / "sweeps" / "few" / "rows.jsonl"
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    file.write_text("".join([*lines[:2], lines[0]]), encoding="utf-8")
    doubled = npusim("sweep", "few.yaml", "-j", "1", "--resume")
    assert "rows        4 points: 2 kept from before, 2 ran now" in doubled.out.splitlines()


def test_one_of_each(npusim, space):
    space.write_text(SPACE.replace("[64, 128]", "[64]").partition("  chip.hbm")[0], encoding="utf-8")
    done = npusim("sweep", "few.yaml", "-j", "1")
    assert done.out.splitlines()[:3] == ["copy: 1 axis", "", "rows        1 point: 1 ran"]


def test_what_failed_before_is_told_again(npusim, space):
    space.write_text(SPACE.replace("128]", "127]"), encoding="utf-8")
    assert "rows        4 points: 2 ran, 2 failed" in npusim("sweep", "few.yaml", "-j", "1").out.splitlines()
    again = npusim("sweep", "few.yaml", "-j", "1", "--resume")
    assert again.out.splitlines()[2] == (
        "rows        4 points: 4 kept from before, nothing left to run; of all 2 failed"
    )


def test_a_sweep_is_drawn(npusim, space, folder):
    assert npusim("sweep", "few.yaml", "--backend", "sequential", "-o", "out", "--json").code == 0
    document = npusim("sweep", "few.yaml", "--backend", "sequential", "-o", "out", "--resume", "--json").out
    (folder / "all.json").write_text(document, encoding="utf-8")
    for source in ("out", "out/rows.jsonl", "all.json"):
        done = npusim("plot", "sweep", source, "-o", "a.svg", "--width", "column")
        assert (done.code, done.out, done.err) == (0, "a.svg\n", "")
        text = (folder / "a.svg").read_text(encoding="utf-8")
        assert "device time, µs" in text
        (folder / "a.svg").unlink()
    assert npusim("plot", "sweep", "out", "--column", "total_cycles", "--x", "chip.hbm.size_gib").code == 0
    for source, message in (
        (".", ".: is no folder of a sweep; npusim sweep SPACE.yaml -o DIR makes one"),
        ("none", "none: holds no rows of a sweep; name its folder, rows.jsonl or what --json printed"),
        (
            "few.yaml",
            "few.yaml: holds no rows of a sweep; name its folder, rows.jsonl or what --json printed",
        ),
    ):
        done = npusim("plot", "sweep", source)
        assert (done.code, done.err) == (2, f"error: {message}\n")


def test_one_json_document(npusim, space):
    done = npusim("sweep", "few.yaml", "-j", "1", "-o", "out", "--json")
    found = json.loads(done.out)
    assert (done.code, found["schema"], len(found["rows"])) == (0, "npusim.sweep-rows/1", 4)
    assert found["without_effect"] == ["chip.hbm.size_gib"]


def test_failures_are_listed_and_the_exit_code_is_1(npusim, space):
    space.write_text(SPACE.replace("128]", "127]"), encoding="utf-8")
    done = npusim("sweep", "few.yaml", "-j", "1")
    assert done.code == 1
    assert done.err == "error: sweep: of 4 points 2 failed; see sweeps/few/rows.csv\n"
    assert "failed      program.n=127 chip.hbm.size_gib=1: copy: n must be even, not 127" in done.out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["none.yaml"], "none.yaml: cannot be read: no such file or directory"),
        (["few.yaml", "-j", "0"], "sweep: jobs must be 1 or more, or -1 for all cores, not 0"),
        (
            ["few.yaml", "--scheduler", "tcp://x:1"],
            "--scheduler has no effect without --backend dask; leave it out",
        ),
    ],
)
def test_wrong_uses(npusim, space, args, message):
    done = npusim("sweep", *args)
    assert (done.code, done.out, done.err) == (2, "", f"error: {message}\n")


def test_the_schema(npusim):
    assert json.loads(npusim("schema", "sweep").out)["$id"] == "urn:npusim:sweep:1"
