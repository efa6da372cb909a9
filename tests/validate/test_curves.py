"""Curves of the validation: the rows that are asked for, and what is drawn of them."""

from __future__ import annotations

import pytest
from matplotlib.figure import Figure

from npusim.errors import ConfigError
from npusim.validation.curves import Curve, curve, rate_curves, time_curves
from npusim.validation.page import shipped_validation

MADE = Curve("made", "n", ((1000, 2.0), (4000, 4.0)), ((1000, 2.5), (4000, 4.0)))


@pytest.fixture(scope="module")
def found():
    return shipped_validation()


@pytest.fixture
def ax():
    return Figure().add_subplot()


def test_a_curve_has_every_row_that_is_a_time_in_order(found):
    got = curve(found, "mcscan_s128", "MCScan", s=128)
    rows = {r.id: r for r in found.rows if r.group == "mcscan_s128"}
    results = [r for r in found.of("mcscan_s128") if r.simulated_us is not None]
    assert got.over == "n"
    assert got.measured == tuple(sorted((r.n, r.measured_us) for r in rows.values()))
    assert got.simulated == tuple(sorted((rows[r.id].n, r.simulated_us) for r in results))
    assert got.simulated


def test_rows_that_were_not_run_are_published_all_the_same(found):
    got = curve(found, "mcscan_s32", "MCScan")
    assert len(got.measured) > len(got.simulated) > 0


def test_parameters_choose_rows(found):
    halves, floats = (curve(found, "copy", d, dtype=d) for d in ("float16", "float32"))
    assert sorted(halves.measured + floats.measured) == list(curve(found, "copy", "both").measured)
    assert halves.measured
    assert floats.measured


def test_what_is_not_there_is_said(found):
    with pytest.raises(ConfigError, match=r"^validation: no group 'mcscan_s12'; did you mean mcscan_s128\?$"):
        curve(found, "mcscan_s12", "")
    with pytest.raises(ConfigError, match=r"^validation: copy: no row with n and dtype=int8 is a time$"):
        curve(found, "copy", "", dtype="int8")


def test_rates_are_amount_over_time(ax):
    assert rate_curves([MADE], ax, per_step=6) is ax
    published, simulated = ax.lines
    assert list(published.get_ydata()) == [3.0, 6.0]
    assert list(simulated.get_ydata()) == [2.4, 6.0]
    assert list(published.get_xdata()) == list(simulated.get_xdata()) == [1000, 4000]
    assert published.get_linestyle() == "None"
    assert simulated.get_linestyle() == "-"
    assert simulated.get_marker() == "."  # few points, so each is marked
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["made, published", "made, simulated"]
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.get_xscale()) == ("n", "GB/s", "log")


def test_times_are_drawn_as_they_are(ax):
    time_curves([MADE], ax)
    published, simulated = ax.lines
    assert list(published.get_ydata()) == [2.0, 4.0]
    assert list(simulated.get_ydata()) == [2.5, 4.0]
    assert ax.get_ylabel() == "time, µs"


def test_later_curves_have_colours_of_their_own(ax):
    rate_curves([MADE], ax, per_step=6)
    rate_curves([MADE, Curve("bare", "n", MADE.measured, ())], ax, per_step=4)
    colours = [line.get_color() for line in ax.lines]
    assert colours[0::2] == colours[1::2]
    assert len(set(colours)) == 3
