"""Errors, means and rank correlations, against SciPy's definition written out and by hand."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npusim.errors import ConfigError
from npusim.validation.measure import Case, Outcome, cases_of, run_cases, simulated
from npusim.validation.rows import Group, Host, Row
from npusim.validation.score import rank_correlation, score_group, score_overall, score_row

GROUP = Group("g", "a group", 5.0, "mean", 30.0, True, "")
ROW = Row(
    group="g",
    id="r",
    value=1000.0,
    unit="us",
    metric="time_us",
    amount=0,
    part="",
    uncertainty="not given",
    how_obtained="table",
    source="a table",
    device="toy",
    program="memcopy",
    params=(("n", "2000000"),),
    versus=(),
    l2="cold",
    host=Host("custom", 93.0, "s"),
    scored="yes",
    note="",
)


def row(**changes):
    return dataclasses.replace(ROW, **changes)


def score(item, group=GROUP, **numbers):
    """Score one row whose every run came to these numbers."""
    outcome = Outcome(**{"cycles": 900_000, "device_us": 907.0, "clock_mhz": 1000, **numbers})
    return score_row(item, group, dict.fromkeys(cases_of(item), outcome))


def test_the_host_constant_belongs_to_the_row():
    assert score(row()).simulated == 1000.0
    assert score(row()).error_percent == 0
    assert score(row(host=Host("none", 0.0, "s"))).error_percent == pytest.approx(-9.3)


def test_a_rate_is_scored_by_its_time():
    """6 GB/s published, half of it simulated: twice the time is an error of +100 %, not -50 %."""
    rate = row(metric="gb_per_s", unit="GB/s", value=6.0, amount=6_000_000)
    assert rate.measured_us == 1000.0
    result = score(rate, device_us=1907.0)
    assert result.simulated == 3.0
    assert result.simulated_us == pytest.approx(2000.0)
    assert result.error_percent == pytest.approx(100.0)


def test_one_launch_of_several():
    times = {"launches_us": (("sum", 3.0), ("carry", 1.5), ("sum", 4.0)), "device_us": 8.5}
    assert score(row(metric="launch_us", part="sum", value=14.0), **times).simulated == 7
    assert score(row(metric="launch_us", part="sum", value=14.0), **times).error_percent == -50
    assert score(row(metric="launch_us", part="add"), **times).failure == (
        "r: the run has no launch add; it has sum carry"
    )


def test_pipes_slopes_and_ratios():
    pipes = {"pipe_cycles": (("M", 4168.0), ("MTE2", 500.0)), "last_product": 54, "clock_mhz": 2000}
    assert score(row(metric="pipe_cycles", part="MTE2"), **pipes).simulated == 500
    assert score(row(metric="pipe_us", part="MTE2"), **pipes).simulated == 0.25
    assert score(row(metric="products_cycles"), **pipes).simulated == 4222
    assert score(row(metric="pipe_cycles", part="V"), **pipes).failure == (
        "r: nothing runs on pipe V; name another pipe"
    )
    slope = row(metric="slope_gb_per_s", amount=8000, versus=(("n", "1"),))
    large, small = cases_of(slope)
    runs = {large: Outcome(device_us=3.0), small: Outcome(device_us=1.0)}
    assert simulated(slope, runs) == 4.0
    assert simulated(dataclasses.replace(slope, metric="time_ratio"), runs) == pytest.approx(1 / 3)
    with pytest.raises(ConfigError, match=r"^r: the run of params must take longer than that of versus$"):
        simulated(slope, {large: Outcome(device_us=1.0), small: Outcome(device_us=1.0)})


def test_the_second_run_takes_what_it_does_not_change_from_the_first():
    base = row(metric="time_ratio", params=(("n", "5"), ("tile", "32")))
    same = dataclasses.replace(base, versus=(("n", "6"),))
    other = dataclasses.replace(base, versus=(("program", "x"), ("n", "6")))
    assert cases_of(same)[1] == Case("toy", "memcopy", (("n", "6"), ("tile", "32")), "cold")
    assert cases_of(other)[1] == Case("toy", "x", (("n", "6"),), "cold")


@pytest.mark.parametrize(
    ("value", "n", "by"),
    [
        (149.9, "999999", "us"),
        (150.0, "999999", "percent"),
        (149.9, "1000000", "percent"),
        (149.9, None, "us"),
    ],
)
def test_short_rows_are_scored_by_the_difference(value, n, by):
    short = row(value=value, params=(("n", n),) if n else ())
    assert score(short).by == by
    assert score(short, dataclasses.replace(GROUP, short_us=None)).by == "percent"
    assert score(dataclasses.replace(short, scored="no")).by == "not"
    assert score(dataclasses.replace(short, scored="skip")).by == by


def results(*times, group=GROUP, **changes):
    """Score rows of 1000 us that were simulated to take these times."""
    item = row(group=group.name, host=Host("none", 0, ""), **changes)
    return [score(item, group, device_us=time) for time in times]


def test_the_mean_and_the_worst_decide():
    mean, each = GROUP, dataclasses.replace(GROUP, rule="each")
    some = results(1000.0, 1000.0, 1009.0, 939.0)
    found = score_group(mean, some)
    assert found.mape_percent == pytest.approx((0.9 + 6.1) / 4)
    assert found.worst_percent == pytest.approx(6.1)
    assert found.verdict == "pass"
    assert score_group(each, some).verdict == "miss"
    assert score_group(dataclasses.replace(each, missing="banks"), some).verdict == "miss, named"
    assert score_group(dataclasses.replace(mean, target_percent=None), some).verdict == "no target"
    assert score_group(mean, []).verdict == "no rows"
    assert score_group(mean, [], published=3).verdict == "not run"
    assert score_group(mean, [score(row(), error="gone")]).verdict == "failed"
    exact = dataclasses.replace(mean, target_percent=found.mape_percent)
    assert score_group(exact, some).verdict == "pass"


def test_short_rows_have_a_band_of_their_own():
    short = {"value": 100.0, "host": Host("none", 0, ""), "params": (("n", "1000"),)}
    for device_us, verdict in ((130.0, "pass"), (69.9, "miss")):
        found = score_group(GROUP, [score(row(**short), device_us=device_us)])
        assert found.mape_percent is None
        assert found.worst_short_us == pytest.approx(abs(device_us - 100))
        assert found.verdict == verdict


def test_rows_that_are_not_scored_do_not_count():
    found = score_group(GROUP, [*results(1000.0), *results(5000.0, scored="no", note="x")])
    assert (found.rows, found.scored, found.mape_percent) == (2, 1, 0)


def test_overall_takes_the_groups_that_count():
    other = dataclasses.replace(GROUP, name="h", overall=False)
    some = results(1000.0, 1040.0) + results(9000.0, group=other)
    found = score_overall([GROUP, other], some)
    assert (found.rows, found.mape_percent, found.verdict) == (2, pytest.approx(2.0), "pass")


def test_a_run_that_fails_is_told_and_takes_no_other_with_it():
    good = row(params=(("n", "64"),))
    runs = run_cases([good, row(program="no_such"), row(params=(("m", "1"),)), row(params=(("n", "0"),))])
    errors = {str(case): outcome.error for case, outcome in runs.items()}
    assert errors["memcopy n=64"] == ""
    assert errors["no_such n=2000000"].startswith("program 'no_such' is not known")
    assert errors["memcopy m=1"].startswith("memcopy: no parameter m")
    assert "n" in errors["memcopy n=0"]


def test_rows_that_ask_for_the_same_run_share_it():
    seen = []
    one, two = row(params=(("n", "64"),)), row(id="s", params=(("n", "64"),), value=3.0)
    run_cases([one, two], progress=lambda name, done, total: seen.append((name, done, total)))
    assert seen == [("memcopy n=64", 1, 1)]


def test_two_processes_come_to_the_same():
    some = [row(params=(("n", str(n)),)) for n in (64, 100, 300)]
    assert run_cases(some, jobs=2) == run_cases(some)


def test_overrides_are_looked_at_before_anything_runs():
    with pytest.raises(ConfigError, match=r"hbm\.speed"):
        run_cases([row()], overrides=["hbm.speed=1"])
    with pytest.raises(ConfigError, match=r"^validation: jobs must be at least 1, not 0$"):
        run_cases([row()], jobs=0)


def spearman(x, y):
    """Pearson's correlation of the mean ranks, each rank counted pair by pair."""
    ranks = [[sum(w < v for w in z) + (sum(w == v for w in z) + 1) / 2 for v in z] for z in (x, y)]
    return np.corrcoef(*ranks)[0, 1]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=3, max_size=20))
def test_rank_correlation(pairs):
    x, y = ([float(p[i]) for p in pairs] for i in (0, 1))
    found = rank_correlation(x, y)
    if len(set(x)) == 1 or len(set(y)) == 1:
        assert found is None
    else:
        assert found == pytest.approx(spearman(x, y), abs=1e-12)


def test_rank_correlation_by_hand():
    assert rank_correlation([1, 2, 3, 4], [10, 20, 30, 400]) == pytest.approx(1)
    assert rank_correlation([1, 2, 3], [3, 2, 1]) == pytest.approx(-1)
    assert rank_correlation([1, 2, 3, 4, 5], [2, 1, 4, 3, 5]) == pytest.approx(0.8)
    assert rank_correlation([1, 2], [1, 2]) is None
