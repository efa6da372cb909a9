"""`npusim validate` at the command line."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from npusim.config import shipped as shipped_module
from npusim.validation import rows as rows_module

SHIPPED = Path(__file__).parents[2] / "validation"


def test_groups_are_run_and_shown(npusim):
    done = npusim("validate", "launch_310", "unit")
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert "  launch-one-core" in done.out
    unit, launch, overall = lines[-3:]
    assert unit.split()[:3] == ["unit", "6", "6"]
    assert unit.endswith("each 2 %     pass")
    assert launch.endswith("each 10 %    pass")
    assert overall.startswith("overall ")


def test_one_json_document(npusim):
    done = npusim("validate", "launch_310", "--json")
    found = json.loads(done.out)
    assert (done.code, found["schema"]) == (0, "npusim.validation/1")
    (row,) = found["rows"]
    assert row["id"] == "launch-one-core"
    assert abs(row["error_percent"]) < 10
    assert found["groups"][0]["verdict"] == "pass"


def test_a_folder_and_a_plot(npusim, folder):
    done = npusim("validate", "launch_310", "-o", "out", "--plot", "out.png")
    assert done.code == 0
    with folder.joinpath("out", "results.csv").open(encoding="utf-8", newline="") as lines:
        (row,) = csv.DictReader(lines)
    assert row["id"] == "launch-one-core"
    assert folder.joinpath("out.png").read_bytes().startswith(b"\x89PNG")
    assert npusim("validate", "unit", "-o", "out", "--keep").code == 0
    assert len(folder.joinpath("out", "results.csv").read_text(encoding="utf-8").splitlines()) == 8


def test_a_changed_number_makes_a_miss_that_nothing_names(npusim):
    done = npusim("validate", "launch_310", "--set", "launch.device_us=4")
    assert done.code == 1
    assert "changed numbers: launch.device_us=4" in done.out
    assert "launch_310: misses its target; name the missing mechanism in validation/groups.csv" in done.out
    assert done.err == (
        "error: validation: rows failed, or a target is missed without a named reason: launch_310\n"
    )


def test_a_row_that_fails_is_told(npusim, folder, monkeypatch):
    """A program that is not there is a row that failed, not a crash; the other rows are still shown."""
    table = folder / "validation" / "rows"
    table.mkdir(parents=True)
    for name in ("groups.csv", "host.csv", "not_run.csv"):
        folder.joinpath("validation", name).write_bytes(SHIPPED.joinpath(name).read_bytes())
    text = SHIPPED.joinpath("rows", "unit.csv").read_text(encoding="utf-8")
    table.joinpath("unit.csv").write_text(text.replace("mmad_repeat", "mmad_repeats"), encoding="utf-8")
    own = shipped_module.shipped
    monkeypatch.setattr(rows_module, "shipped", lambda k: folder / k if k == "validation" else own(k))
    done = npusim("validate", "unit")
    assert done.code == 1
    words = "program 'mmad_repeats' is not known; did you mean mmad_repeat?"
    assert f"failed: mmad-8x128x256x64: {words}" in done.out
    assert "add-free" in done.out
    assert "unit" in done.err


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["unis"], "error: validation: no group 'unis'; did you mean unit?\n"),
        (["unit", "--keep"], "error: --keep needs -o DIR, the folder with the results to keep\n"),
        (["unit", "--set", "x"], "error: --set x: must have the form PATH=VALUE\n"),
        (["unit", "-o", "tiny.py"], "error: tiny.py: cannot be written: file exists\n"),
    ],
)
def test_what_cannot_be_used(npusim, args, message):
    done = npusim("validate", *args)
    assert (done.code, done.err) == (2, message)


def test_jobs_are_counted_from_one(npusim):
    done = npusim("validate", "unit", "-j", "0")
    assert done.code == 2
    assert "-j" in done.err
