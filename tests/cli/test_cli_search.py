"""`npusim search` at the command line."""

from __future__ import annotations

import json

import pytest

SPACE = """schema: npusim.sweep/1
program: tiny.py:copy
chips: [toy]
axes:
  program.n: [64, 128, 256]
  chip.l2.size_mib: [1, 2]
"""


@pytest.fixture
def space(folder):
    """A file with six points."""
    (folder / "few.yaml").write_text(SPACE, encoding="utf-8")
    return folder / "few.yaml"


def test_the_best_is_told(npusim, space, folder):
    done = npusim("search", "few.yaml", "-n", "6")
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[:3] == [
        "copy: total_cycles, as little as possible",
        "",
        "points      6 of 6 combinations tried",
    ]
    assert [line.split()[-2:] for line in lines[3:5]] == [
        ["program.n=64", "chip.l2.size_mib=1"],
        ["program.n=64", "chip.l2.size_mib=2"],
    ] or [line.split()[-2:] for line in lines[3:5]] == [
        ["program.n=64", "chip.l2.size_mib=2"],
        ["program.n=64", "chip.l2.size_mib=1"],
    ]
    assert lines[-1] == "next        searches/few holds rows.jsonl, rows.csv and sweep.json"
    again = npusim("search", "few.yaml", "-n", "6", "--resume")
    assert "points      6 of 6 combinations tried; 6 of them kept from before" in again.out


def test_a_front_as_one_json_document(npusim, space):
    args = ("--minimize", "total_cycles", "--minimize", "area.sram_kib", "-o", "out", "--json")
    done = npusim("search", "few.yaml", *args)
    found = json.loads(done.out)
    assert (done.code, found["schema"], found["combinations"]) == (0, "npusim.search/1", 6)
    (best,) = found["front"]
    assert (best["program.n"], best["chip.l2.size_mib"]) == (64, 1)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["none.yaml"], "none.yaml: cannot be read: no such file or directory"),
        (["few.yaml", "-n", "0"], "search: trials must be 1 or more, not 0"),
    ],
)
def test_wrong_uses(npusim, space, args, message):
    done = npusim("search", *args)
    assert (done.code, done.out, done.err) == (2, "", f"error: {message}\n")


def test_no_run_that_counts(npusim, space):
    space.write_text(SPACE.replace("[64, 128, 256]", "[127]"), encoding="utf-8")
    done = npusim("search", "few.yaml")
    assert done.code == 1
    assert done.err == "error: search: none of 2 points ran to right values; see searches/few/rows.csv\n"
