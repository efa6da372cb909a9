"""From a space to its points: values of axes, combinations, conditions, and every error with its place."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import npusim
from npusim.errors import ConfigError
from npusim.sweeps.axes import axis_values
from npusim.sweeps.plan import make_plan
from npusim.sweeps.schema import schema_text
from npusim.sweeps.space import Scale, Steps, read_space
from npusim.sweeps.where import GRAMMAR, Condition


def coords(space):
    return [
        p.coords for p in make_plan(read_space({"program": "few.py:copy", "chips": ["toy"], **space})).points
    ]


@pytest.mark.parametrize(
    ("spec", "base", "values"),
    [
        ([3, 1], None, [3, 1]),
        (Steps(grid=[0, 10], steps=3), None, [0, 5, 10]),
        (Steps(grid=[0.0, 1], steps=3), None, [0.0, 0.5, 1]),
        (Steps(geom=[16, 4096], steps=5), None, [16, 64, 256, 1024, 4096]),
        (Steps(geom=[4096, 16], steps=3), None, [4096, 256, 16]),
        (Steps(geom=[1, 10], steps=3), None, [1, 3, 10]),
        (Scale(scale=[0.5, 2]), 7, [4, 14]),
        (Scale(scale=[0.5, 2]), 7.0, [3.5, 14.0]),
    ],
)
def test_values_of_an_axis(spec, base, values):
    found = axis_values(spec, base)
    assert found == values
    assert [type(v) for v in found] == [type(v) for v in values]


def test_the_ends_are_exact():
    assert axis_values(Steps(geom=[0.1, 0.7], steps=7), None)[-1] == 0.7
    assert axis_values(Steps(grid=[0.1, 0.7], steps=7), None)[::6] == [0.1, 0.7]


def test_all_combinations_and_the_last_axis_moves_first(folder):
    assert coords({"axes": {"program.n": [64, 128], "chip.l2.size_mib": [1, 2]}}) == [
        {"program.n": 64, "chip.l2.size_mib": 1},
        {"program.n": 64, "chip.l2.size_mib": 2},
        {"program.n": 128, "chip.l2.size_mib": 1},
        {"program.n": 128, "chip.l2.size_mib": 2},
    ]


def test_values_from_python(folder):
    axes = {
        "program.part": np.array([32, 64]),
        "chip.hbm.read_latency_ns": (500, np.float32(750.5)),
        "run.seed": range(1, 3),
    }
    space = {"params": {"n": np.int64(256)}, "axes": axes}
    lists = {"program.part": [32, 64], "chip.hbm.read_latency_ns": [500, 750.5], "run.seed": [1, 2]}
    assert coords(space) == coords({"params": {"n": 256}, "axes": lists})
    assert all(type(c["program.part"]) is type(c["run.seed"]) is int for c in coords(space))
    with pytest.raises(ConfigError) as caught:
        coords({"axes": {"program.part": np.array(7)}})
    assert str(caught.value) == (
        "space: axes.program.part: must be a list of values, {grid: [first, last], steps: N}, "
        "{geom: [first, last], steps: N} or {scale: [factors]}, got 7"
    )


@pytest.mark.parametrize(("given", "words"), [(None, "nothing"), (3, "3"), ([], "a list")])
def test_what_is_no_space(given, words):
    for function in (npusim.sweep, npusim.search):
        with pytest.raises(ConfigError) as caught:
            function(given)
        assert str(caught.value) == f"space: must be a file, a mapping or a Space, not {words}"


def test_zipped_axes_move_together(folder):
    axes = {"program.n": [64, 128], "chip.l2.size_mib": [1, 2], "program.part": [32, 16], "run.seed": [0, 1]}
    found = coords({"axes": axes, "zip": [["program.n", "program.part"]]})
    assert len(found) == 8
    assert {(c["program.n"], c["program.part"]) for c in found} == {(64, 32), (128, 16)}


def test_conditions_leave_points_out(folder):
    axes = {"program.n": [64, 128, 256], "program.part": [64, 128]}
    found = coords({"axes": axes, "where": "program.part * 2 <= program.n and not chip.l2.size_mib > 1e6"})
    assert [(c["program.n"], c["program.part"]) for c in found] == [(128, 64), (256, 64), (256, 128)]
    assert len(coords({"axes": axes, "where": ["program.n == 64", "program.part < 100"]})) == 1


def test_every_point_is_on_its_own_chip(folder):
    space = {"program": "few.py:copy", "chips": ["toy", "ascend-910b4"], "set": {"hbm.size_gib": 3}}
    plan = make_plan(read_space(space | {"axes": {"chip.l2.size_mib": {"scale": [1, 2]}}}))
    assert plan.axes == ("chip", "chip.l2.size_mib")
    assert [p.chip_name for p in plan.points] == ["toy", "toy", "ascend-910b4", "ascend-910b4"]
    sizes = [p.chip.l2.size_mib for p in plan.points]
    assert sizes[1] == 2 * sizes[0]
    assert sizes[3] == 2 * sizes[2] != sizes[1]
    assert {p.chip.hbm.size_gib for p in plan.points} == {3}


def test_keys_change_with_all_that_changes_a_row(folder):
    def key(**space):
        (point,) = make_plan(read_space({"program": "few.py:copy", "chips": ["toy"], **space})).points
        return point.key

    changes = [{}, {"params": {"n": 1024}}, {"set": {"clock_mhz": 900}}, {"seed": 1}, {"l2": "warm"}]
    changes += [{"check": False}, {"timing_only": True}, {"program": "few.py:by_cores"}]
    changes += [{"numerics": "ieee-sequential-fp32"}]
    keys = [key(**change) for change in changes]
    assert len(set(keys)) == len(keys)
    assert key(params={"n": 256}) == key(params={"n": 256.0}) == keys[0]
    file = folder / "few.py"
    file.write_text(file.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    assert key() != keys[0]


WRONG = {
    "": "few.yaml:1: the file is empty; a space is a mapping with schema, program and axes",
    "- 1": "few.yaml:1: a space must be a mapping, got a list",
    "schema: npusim.sweep/1\nprogram: few.py:copy\nparams: &p {n: 64}\naxes: *p": (
        "few.yaml:4: axes: aliases are not supported; repeat the values; "
        "axes that move together are listed in zip"
    ),
    "program: few.py": "few.yaml:1: schema: required, but missing; begin with `schema: npusim.sweep/1`",
    "schema: npusim.sweep/2": "few.yaml:1: schema: must be npusim.sweep/1, got text 'npusim.sweep/2'",
    "schema: npusim.sweep/1\naxis: {}": (
        "few.yaml:1: program: required, but missing\nfew.yaml:2: axis: unknown key; did you mean axes?"
    ),
}
AXES = {
    "program.m: [1]": "copy has no parameter m; parameters: n part off",
    "program.prt: [1]": "copy has no parameter prt; did you mean part?",
    "program.n: [x]": "copy: n=x: input should be a valid integer, unable to parse string as an integer",
    "program.n: []": "must have one value or more",
    "program.n: [64, 64]": "64 is there twice; give every value once",
    "program.n: {geom: [1, 4], steps: 9}": "9 steps give only 4 different values; lower steps",
    "program.n: {geom: [0, 4], steps: 2}": "both ends of geom must be above 0",
    "program.n: {grid: [1, 2, 3], steps: 2}": "grid: must have a first and a last value",
    "program.n: {grid: [1, 2]}": "steps: required, but missing",
    "program.n: {grid: [1, 2], steps: 1}": "steps: must be at least 2, got 1",
    "program.n: {grid: [1, x], steps: 2}": "grid[1]: must be a number, got text 'x'",
    "program.n: 3": (
        "must be a list of values, {grid: [first, last], steps: N}, {geom: [first, last], steps: N} or "
        "{scale: [factors]}, got 3"
    ),
    "chip.l2.size_mb: [1]": "l2.size_mb: unknown field; did you mean size_mib?",
    "chip.l2.size_mib: [0]": "l2.size_mib: must be greater than 0, got 0",
    "chip.numerics: {scale: [1]}": "is no number of the hardware; use run.numerics",
    "chip.cores.arrangement: {scale: [1]}": (
        "scale needs a number to multiply, and there is none; give the values as a list"
    ),
    "chp.l2.size_mib: [1]": "an axis is named program.NAME, chip.PATH or run.NAME",
    "run.sed: [1]": "no setting of a run; did you mean run.seed?",
    "run.l2: [hot]": "must be cold, warm or dirty, not 'hot'",
    "run.seed: [-1]": "must be whole numbers of 0 or more, not -1",
}
KEYS = {
    "program: few.py:cpy": (
        "program: few.py: no program 'cpy'; did you mean copy?; programs: copy by_cores by_data crash leaves"
    ),
    "chips: [toi]": "chips[0]: no chip named 'toi'; did you mean toy?",
    "chips: []": "chips: must have 1 or more, got 0",
    "chips: [toy, toy]": "chips: a chip is there twice; name each once",
    "set: {l2.size: 1}": "set: l2.size: unknown field; did you mean size_mib?",
    "params: {m: 1}": "params.m: copy has no parameter m; parameters: n part off",
    "zip: [[program.n]]": "zip[0]: must have 2 or more, got 1",
    "zip: [[program.n, program.part]]": "zip[0]: no axis program.n; axes: none",
    "where: program.m > 1": "where: 'program.m > 1' names program.m, which is no axis and no fixed value",
    "where: program.n > 1e9": "where: leaves none of the 1 points",
    "where: program.n > 'x'": (
        "where: 'program.n > 'x'' cannot be worked out: "
        "'>' not supported between instances of 'int' and 'str'"
    ),
    "seed: -1": "seed: must be at least 0, got -1",
    "l2: hot": "l2: must be one of 'cold', 'warm', 'dirty', got text 'hot'",
    "check: 3": "check: must be true or false, got 3",
    "numerics: x": "numerics: ",
}


def error_of(folder, text):
    (folder / "few.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        make_plan(read_space("few.yaml"))
    return str(caught.value)


@pytest.mark.parametrize("text", WRONG)
def test_wrong_files(folder, text):
    assert error_of(folder, text) == WRONG[text]


@pytest.mark.parametrize("axis", AXES)
def test_wrong_axes(folder, axis):
    text = f"schema: npusim.sweep/1\nprogram: few.py:copy\nchips: [toy]\naxes:\n  {axis}\n"
    name = axis.partition(":")[0]
    assert error_of(folder, text) == f"few.yaml:5: axes.{name}: {AXES[axis]}"


@pytest.mark.parametrize("key", KEYS)
def test_wrong_keys(folder, key):
    given = {"program": "few.py:copy", "chips": "[toy]"}
    given |= dict([key.split(": ", 1)])
    text = "schema: npusim.sweep/1\n" + "".join(f"{k}: {v}\n" for k, v in given.items())
    line = list(given).index(key.partition(":")[0]) + 2
    found = error_of(folder, text)
    if key.startswith(("numerics", "where: program.m")):
        assert found.startswith(f"few.yaml:{line}: {KEYS[key]}")
    else:
        assert found == f"few.yaml:{line}: {KEYS[key]}"


def test_axes_that_do_not_fit_together(folder):
    head = "schema: npusim.sweep/1\nprogram: few.py:copy\nchips: [toy]\n"
    axes = "axes: {program.n: [64, 128], program.part: [32]}\n"
    assert error_of(folder, f"{head}{axes}zip: [[program.n, program.part]]") == (
        "few.yaml:5: zip[0]: must have equally many values: program.n has 2, program.part has 1"
    )
    assert error_of(folder, f"{head}{axes}params: {{n: 3}}") == (
        "few.yaml:4: axes.program.n: is fixed in params, too; leave one of them out"
    )
    assert error_of(folder, f"{head}axes: {{chip.clock_mhz: [1]}}\nset: {{clock_mhz: 2}}") == (
        "few.yaml:4: axes.chip.clock_mhz: is fixed in set, too; leave one of them out"
    )
    many = "axes: {program.n: {grid: [1, 9999], steps: 9999}, program.part: {grid: [1, 999], steps: 999}}"
    assert error_of(folder, f"{head}{many}") == ("few.yaml:4: axes: give 9,989,001 points, at most 1,000,000")


@pytest.mark.parametrize(
    "text",
    ["__import__('os')", "a.b()", "a[0]", "lambda: 1", "a ** 9", "(a := 1)", "a if a else a", "~a", "b''"],
)
def test_a_condition_is_no_code(text):
    with pytest.raises(ConfigError) as caught:
        Condition(text, ["a", "a.b"])
    assert GRAMMAR in str(caught.value)


@pytest.mark.parametrize("text", ["a >", "", "a b", "("])
def test_a_condition_that_cannot_be_read(text):
    with pytest.raises(ConfigError) as caught:
        Condition(text, ["a"])
    assert str(caught.value) == f"'{text}' cannot be read; {GRAMMAR}"


LONG = "program.n > 0 and " * 1000 + "program.n"


@pytest.mark.parametrize(
    ("where", "message"),
    [
        (f"{LONG} >", f"cannot be read; {GRAMMAR}"),
        (f"{LONG} ** 2", f"holds 'program.n ** 2', which is not allowed; {GRAMMAR}"),
        (f"[{'1, ' * 9000}]", f"holds '[{'1, ' * 25}1...', which is not allowed; {GRAMMAR}"),
        (f"{LONG}k", "names program.nk, which is no axis and no fixed value; did you mean program.n?"),
    ],
)
def test_a_long_condition_is_cut(folder, where, message):
    text = f"schema: npusim.sweep/1\nprogram: few.py:copy\nchips: [toy]\nwhere: '{where}'\n"
    assert error_of(folder, text) == f"few.yaml:4: where: '{where[:77]}...' {message}"


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("a + 1 == 4", True),
        ("1 < a < 3", False),
        ("a % 2 == 1 or a / 0", True),
        ("not (a >= 3 and b == 'x')", False),
        ("-a < 0 and a // 2 == 1 and a - 1 != 3", True),
        ("a <= 2 or a > 5", False),
    ],
)
def test_conditions(text, holds):
    assert Condition(text, ["a", "b"]).holds({"a": 3, "b": "x"}) is holds


def test_the_schema_is_fresh():
    stored = Path(__file__).parents[2].joinpath("docs", "schemas", "sweep-1.json").read_text(encoding="utf-8")
    assert stored == schema_text(), "run `python -m npusim.sweeps.schema` and commit the file"
