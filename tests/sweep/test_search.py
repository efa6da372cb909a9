"""The search for the best points, against all points of small spaces and fronts by brute force."""

from __future__ import annotations

import importlib.util
import itertools
import json

import pytest

import npusim
from npusim.config.load import load_chip
from npusim.errors import ConfigError
from npusim.sweeps.goals import front_of
from npusim.sweeps.proxies import NAMES, proxies

SPACE = {
    "program": "few.py:copy",
    "chips": ["toy"],
    "params": {"n": 256},
    "timing_only": True,
    "axes": {"program.part": [16, 32, 64, 128, 256], "chip.buffers.ub_kib": [4, 8, 16, 32]},
}
TWO = ("total_cycles", "area.sram_kib")


def places(found):
    return [tuple(row[axis] for axis in found.axes) for row in found.rows]


def test_all_of_a_small_space_is_the_sweep(folder):
    found = npusim.search(SPACE, trials=1000, minimize=TWO)
    swept = npusim.sweep(SPACE, backend="sequential")
    assert len(found.rows) == found.combinations == 20
    by_point = {row["point"]: row for row in swept.rows}
    assert {row["point"]: row for row in found.rows} == by_point
    cost = {
        row["point"]: (row["total_cycles"], 1024 * load_chip("toy").l2.size_mib + others(row))
        for row in swept.rows
    }
    best = {
        p for p, v in cost.items()
        if not any(o != v and all(a <= b for a, b in zip(o, v, strict=True)) for o in cost.values())
    }  # fmt: skip
    assert {found.rows[at]["point"] for at in found.front} == best
    assert {tuple(found.values[at]) for at in found.front} == {cost[p] for p in best}


def others(row):
    """KiB of the buffers of the toy chip with the UB of a row, worked out from its numbers."""
    chip = load_chip("toy")
    b, cubes = chip.buffers, chip.cores.cube
    per_cube = b.l1_kib + b.l0a_kib + b.l0b_kib + b.l0c_kib
    return cubes * (per_cube + chip.cores.vector_per_cube * row["chip.buffers.ub_kib"])


def test_the_same_seed_chooses_the_same_points(folder):
    runs = [npusim.search(SPACE, trials=8, seed=seed) for seed in (1, 1, 2)]
    assert places(runs[0]) == places(runs[1]) != places(runs[2])
    assert len(set(places(runs[0]))) == 8, "no point runs twice"
    assert runs[0].to_dict() == runs[1].to_dict()


WIDE = SPACE | {
    "axes": {"program.part": [8, 16, 32, 64, 128, 256], "chip.clock_mhz": [*range(500, 1100, 10)]}
}
"""360 points; the best has the largest part and the highest clock."""


@pytest.mark.parametrize(("sampler", "random_trials"), [("tpe", 10), ("nsga2", 50)])
def test_samplers_learn(folder, sampler, random_trials):
    """They begin at random, and then choose what comes nearer to the best than chance."""
    found, plain = (
        npusim.search(WIDE, trials=random_trials + 12, minimize="time_us", sampler=s, seed=3)
        for s in (sampler, "random")
    )
    late, chance = ([values[0] for values in run.values[random_trials:] if values] for run in (found, plain))
    assert sum(late) < sum(chance)


def test_where_and_failures_and_wrong_values_are_no_answer(folder):
    space = SPACE | {
        "timing_only": False,
        "axes": {"program.part": [32, 48, 64], "program.off": [0.0, 1.0], "chip.buffers.ub_kib": [4, 8]},
        "where": "program.part < 64 or chip.buffers.ub_kib == 8",
    }
    found = npusim.search(space, trials=50)
    assert (len(found.rows), found.combinations) == (10, 12)
    assert (len(found.failed), len(found.wrong)) == (4, 3), "48 does not divide 256"
    for row, values in zip(found.rows, found.values, strict=True):
        assert (values is None) is (row["status"] != "ok")
    assert all(found.rows[at]["program.off"] == 0 and found.rows[at]["status"] == "ok" for at in found.front)


def test_several_chips_are_an_axis(folder):
    found = npusim.search(
        SPACE | {"chips": ["toy", "ascend-910b4"], "axes": {"program.part": [64, 256]}},
        minimize=["time_us", "area.cube_macs"],
    )
    assert found.axes == ("chip", "program.part")
    assert sorted(places(found)) == list(itertools.product(["ascend-910b4", "toy"], [64, 256]))


def test_formulas(folder):
    made = npusim.search(SPACE, trials=3, minimize="total_cycles * 2 + chip.l2.size_mib - program.part")
    l2 = load_chip("toy").l2.size_mib
    assert [v[0] for v in made.values] == [2 * r["total_cycles"] + l2 - r["program.part"] for r in made.rows]


def test_proxies_count_all_cores():
    chip = load_chip("ascend-910b4")
    found = proxies(chip)
    assert tuple(found) == NAMES
    assert found["area.buffers_kib"] == 20 * (512 + 64 + 64 + 128) + 40 * 192
    assert found["area.sram_kib"] == found["area.buffers_kib"] + 96 * 1024
    assert (found["area.cube_macs"], found["area.vector_bytes"]) == (20 * 4096, 40 * 256)


@pytest.mark.parametrize(
    ("values", "front"),
    [
        ([(3.0,), (1.0,), None, (1.0,)], (1, 3)),
        ([(1.0, 5.0), (2.0, 5.0), (2.0, 4.0), (0.5, 9.0), None], (3, 0, 2)),
        ([None], ()),
        ([], ()),
    ],
)
def test_front(values, front):
    assert front_of(values) == front


# ---- folders -----------------------------------------------------------------------------------------------


def test_a_search_goes_on_where_it_stopped(folder):
    whole = npusim.search(SPACE, trials=12, minimize=TWO, output="whole")
    first = npusim.search(SPACE, trials=5, minimize=TWO, output="out")
    text = (folder / "out" / "rows.jsonl").read_text(encoding="utf-8")
    (folder / "out" / "rows.jsonl").write_text(
        text + text.splitlines()[0][:40], encoding="utf-8"
    )  # cut short
    rest = npusim.search(SPACE, trials=12, minimize=TWO, output="out", resume=True)
    assert (first.resumed, rest.resumed) == (0, 5)
    assert (rest.rows, rest.values, rest.front) == (whole.rows, whole.values, whole.front)
    lines = (folder / "out" / "rows.jsonl").read_text(encoding="utf-8").splitlines()
    points = [json.loads(line)["point"] for line in lines]
    assert len(points) == len(set(points)) == 12
    assert lines == (folder / "whole" / "rows.jsonl").read_text(encoding="utf-8").splitlines()


def test_two_at_a_time(folder):
    found = npusim.search(SPACE, trials=7, jobs=2, output="out")
    assert len(set(places(found))) == 7
    again = npusim.search(SPACE, trials=7, jobs=2, output="out", resume=True)
    assert (again.resumed, again.rows) == (7, found.rows)


def test_a_sweep_leaves_the_folder_of_a_search_alone(folder):
    found = npusim.search(SPACE, trials=2, output="out")
    before = {file.name: file.read_bytes() for file in (folder / "out").iterdir()}
    with pytest.raises(ConfigError) as error:
        npusim.sweep(SPACE, output="out", resume=True, backend="sequential")
    assert str(error.value) == (
        "out: is the folder of a search; go on with npusim search --resume, or name a new folder"
    )
    assert {file.name: file.read_bytes() for file in (folder / "out").iterdir()} == before
    assert npusim.search(SPACE, trials=2, output="out", resume=True).rows == found.rows


def test_rows_of_another_search_are_refused(folder):
    npusim.search(SPACE, trials=2, output="out")
    with pytest.raises(ConfigError) as error:
        npusim.search(SPACE, trials=2, output="out", seed=1, resume=True)
    assert str(error.value) == (
        "out: holds rows of another search; space, program, formulas, seed, sampler and jobs must be "
        "those of before: name a new folder"
    )
    (folder / "out" / "sweep.json").write_text("[]", encoding="utf-8")
    with pytest.raises(ConfigError) as error:
        npusim.search(SPACE, trials=2, output="out", resume=True)
    assert str(error.value) == "out/sweep.json: is no record of a sweep; name a new folder"


USE = (
    "use columns of the rows, numbers of the chip or area.*, as total_cycles, time_us, chip.l2.size_mib, "
    "area.sram_kib"
)
NONE = "which is no axis and no fixed value"
ZERO = "float division by zero"
DIVIDED = "cannot be worked out: unsupported operand type(s) for /: 'float' and 'NoneType'"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"minimize": []}, "search: nothing to minimize; name a column, such as total_cycles"),
        (
            {"minimize": ["time_us", "time_us"]},
            "search: a formula to minimize is there twice; name each once",
        ),
        (
            {"minimize": "xyzzy"},
            f"search: minimize: 'xyzzy' names xyzzy, {NONE}; {USE}",
        ),
        (
            {"minimize": "total_cycle"},
            f"search: minimize: 'total_cycle' names total_cycle, {NONE}; did you mean total_cycles?",
        ),
        ({"minimize": "l2"}, f"search: minimize: 'l2' gives no finite number; {USE}"),
        ({"minimize": "status"}, f"search: minimize: 'status' gives no finite number; {USE}"),
        ({"minimize": "bounds.binding"}, f"search: minimize: 'bounds.binding' gives no finite number; {USE}"),
        ({"minimize": "1"}, f"search: minimize: '1' is the same for every point; {USE}"),
        (
            {"minimize": ["time_us", "total_cycles / 0"]},
            f"search: minimize: 'total_cycles / 0' cannot be worked out: {ZERO}; {USE}",
        ),
        (
            {"minimize": "time_us / values_ok"},
            f"search: minimize: 'time_us / values_ok' {DIVIDED}; {USE}",
        ),
        ({"trials": 0}, "search: trials must be 1 or more, not 0"),
        ({"seed": -1}, "search: seed must be 0 to 4,294,967,295, not -1"),
        ({"sampler": "tp"}, "search: no sampler 'tp'; did you mean tpe?"),
        ({"jobs": 0}, "search: jobs must be 1 or more, not 0"),
        ({"jobs": -1}, "search: jobs must be 1 or more, not -1"),
        ({"resume": True}, "search: resume needs the folder with the rows; name it as output"),
    ],
)
def test_wrong_settings(folder, options, message):
    with pytest.raises(ConfigError) as error:
        npusim.search(SPACE, **({"output": "out"} | options if "resume" not in options else options))
    assert str(error.value) == message
    assert not (folder / "out").exists()


@pytest.mark.parametrize(
    "formula",
    [
        "total_cycles / (program.part - chip.buffers.ub_kib + 0.5)",
        "(program.part - 16) * mismatches",
        "(chip == 'toy') * time_us + (bounds.binding == 'hbm_cycles')",
        "time_us / (values_ok + 1) - max_abs_error",
        "chip.l2.size_mib / area.sram_kib",
    ],
)
def test_formulas_that_work_on_rows_are_taken(folder, formula):
    found = npusim.search(SPACE | {"timing_only": False}, trials=2, minimize=formula, output="out")
    assert all(values is not None for values in found.values)


def test_a_space_without_points(folder):
    with pytest.raises(ConfigError) as error:
        npusim.search(SPACE | {"where": "program.part > 999"})
    assert str(error.value) == "search: where and the program leave none of the 20 points"


def test_without_optuna(folder, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError) as error:
        npusim.search(SPACE)
    assert str(error.value) == "search needs Optuna; install it with pip install 'npusim[search]'"
