"""Cycles and bounds of a sweep on axes, against the rows."""

from __future__ import annotations

import pytest
from matplotlib.figure import Figure

import npusim
from npusim.errors import ConfigError
from npusim.plots.bounds import bounds_over

AXIS = "chip.hbm.nominal_gb_per_s"


@pytest.fixture(scope="module")
def found():
    axes = {AXIS: [800, 100, 200]}
    space = {"program": "copy", "params": {"n": 200_000, "cores": 4}, "axes": axes, "timing_only": True}
    return npusim.sweep(space, backend="sequential")


@pytest.fixture
def ax():
    return Figure().add_subplot()


def test_cycles_and_bounds_are_those_of_the_rows_in_order_of_the_axis(found, ax):
    assert bounds_over(found.rows, AXIS, ax) is ax
    rows = {row[AXIS]: row for row in found.rows}
    drawn = {line.get_label(): line for line in ax.lines}
    names = {
        "cycles": "total_cycles",
        "bound: main memory": "bounds.hbm_cycles",
        "bound: L2": "bounds.l2_cycles",
        "bound: busiest pipe or port": "bounds.compute_cycles",
        "bound: chain of flags": "bounds.flag_only_cycles",
    }
    assert set(drawn) == set(names)
    for label, column in names.items():
        assert list(drawn[label].get_xdata()) == [100, 200, 800]
        assert list(drawn[label].get_ydata()) == [rows[x][column] / 1000 for x in (100, 200, 800)]
    above = drawn["cycles"].get_ydata()
    for label in names:
        assert all(c >= b for c, b in zip(above, drawn[label].get_ydata(), strict=True)), label
    assert ax.get_xlabel() == AXIS
    assert ax.get_ylabel() == "thousand cycles"


def test_failed_rows_are_left_out(found, ax):
    rows = [dict(found.rows[0]), dict(found.rows[1]), dict(found.rows[2], status="failed", total_cycles=None)]
    bounds_over(rows, AXIS, ax)
    assert len(ax.lines[0].get_xdata()) == 2
    with pytest.raises(ConfigError, match=r"^plot: no row of the sweep ran; look at its column `error`$"):
        bounds_over(rows[2:], AXIS, ax)


def test_an_axis_that_is_not_there(found, ax):
    wanted = r"^plot: no column chip\.hbm\.nominal_gb_per; did you mean chip\.hbm\.nominal_gb_per_s\?$"
    with pytest.raises(ConfigError, match=wanted):
        bounds_over(found.rows, "chip.hbm.nominal_gb_per", ax)


def test_words_stand_side_by_side(found, ax):
    rows = [dict(row, word=word) for row, word in zip(found.rows, ("b", "a", "c"), strict=True)]
    bounds_over(rows, "word", ax)
    assert [t.get_text() for t in ax.get_xticklabels()] == ["b", "a", "c"]
    assert list(ax.lines[-1].get_ydata()) == [row["total_cycles"] / 1000 for row in rows]
