"""How far simulated rows are from the published ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from npusim.errors import ConfigError
from npusim.validation.measure import Case, Outcome, cases_of, simulated
from npusim.validation.rows import Group, Row

LONG_ELEMENTS, LONG_US = 1_000_000, 150.0
"""From either on a row is scored in percent; below both, host noise of tens of microseconds decides."""
OVERALL_PERCENT, OVERALL_RANK = 5.0, 0.99
"""Targets of all rows together: mean absolute error and rank correlation."""

Verdict = Literal["pass", "miss", "miss, named", "failed", "no target", "no rows", "not run"]


@dataclass(frozen=True, slots=True)
class Result:
    """One row that was run."""

    id: str
    group: str
    unit: str
    measured: float
    simulated: float | None
    """In the unit of the row; None where the run failed."""
    measured_us: float | None
    simulated_us: float | None
    """Both as times, where the row is one."""
    error_percent: float | None
    """Simulated over published time, or value where the row is no time, less 1."""
    by: Literal["percent", "us", "not"]
    """What its score counts: the error in percent, the difference in microseconds, or nothing."""
    cycles: int
    device_us: float
    instructions: int
    model_revision: int
    failure: str

    @property
    def off_us(self) -> float | None:
        """Simulated minus published time."""
        if self.simulated_us is None or self.measured_us is None:
            return None
        return self.simulated_us - self.measured_us


@dataclass(frozen=True, slots=True)
class GroupScore:
    """The score of the rows of one group, or of all."""

    name: str
    title: str
    rows: int
    scored: int
    mape_percent: float | None
    """Mean absolute error of the rows scored in percent."""
    worst_percent: float | None
    worst_short_us: float | None
    rank_correlation: float | None
    target: str
    verdict: Verdict
    missing: str


def score_row(row: Row, group: Group, outcomes: Mapping[Case, Outcome]) -> Result:
    """Compare one row with its runs."""
    runs = [outcomes[case] for case in cases_of(row)]
    failure = next((run.error for run in runs if run.error), "")
    value: float | None = None
    if not failure:
        try:
            value = float(f"{simulated(row, outcomes):.9g}")
        except ConfigError as problem:
            failure = str(problem)
    return compare(
        row,
        group,
        value,
        cycles=runs[0].cycles,
        device_us=runs[0].device_us,
        instructions=sum(run.instructions for run in runs),
        model_revision=runs[0].model_revision,
        failure=failure,
    )


def compare(
    row: Row,
    group: Group,
    value: float | None,
    *,
    cycles: int,
    device_us: float,
    instructions: int,
    model_revision: int,
    failure: str,
) -> Result:
    """Compare one row with a simulated value in its unit; None where its run failed."""
    measured_us = row.measured_us
    as_time = None
    if value is not None and measured_us is not None:
        as_time = row.amount / value / 1000 if row.metric == "gb_per_s" else value
    error = None
    if as_time is not None and measured_us is not None:
        error = 100 * (as_time / measured_us - 1)
    elif value is not None:
        error = 100 * (value / row.value - 1)
    return Result(
        id=row.id,
        group=row.group,
        unit=row.unit,
        measured=row.value,
        simulated=value,
        measured_us=measured_us,
        simulated_us=as_time,
        error_percent=error,
        by=_by(row, group),
        cycles=cycles,
        device_us=device_us,
        instructions=instructions,
        model_revision=model_revision,
        failure=failure,
    )


def _by(row: Row, group: Group) -> Literal["percent", "us", "not"]:
    if row.scored == "no":
        return "not"
    short = (
        group.short_us is not None
        and row.measured_us is not None
        and row.measured_us < LONG_US
        and (row.n or 0) < LONG_ELEMENTS
    )
    return "us" if short else "percent"


def score_group(group: Group, results: Sequence[Result], *, published: int = 0) -> GroupScore:
    """Score the results of a group against its target; `published` is the number of its rows."""
    mape, worst, off, rank = _figures(results)
    if not results:
        verdict: Verdict = "not run" if published else "no rows"
    elif any(r.failure for r in results):
        verdict = "failed"
    elif group.target_percent is None:
        verdict = "no target"
    else:
        reached = worst if group.rule == "each" else mape
        good = reached is None or reached <= group.target_percent
        good = good and (off is None or group.short_us is None or off <= group.short_us)
        verdict = "pass" if good else "miss, named" if group.missing else "miss"
    return GroupScore(
        name=group.name,
        title=group.title,
        rows=len(results),
        scored=sum(r.by != "not" for r in results),
        mape_percent=mape,
        worst_percent=worst,
        worst_short_us=off,
        rank_correlation=rank,
        target=_target(group),
        verdict=verdict,
        missing=group.missing,
    )


def score_overall(groups: Sequence[Group], results: Sequence[Result]) -> GroupScore:
    """Score the rows of all groups that count for it together."""
    counted = {g.name for g in groups if g.overall}
    chosen = [r for r in results if r.group in counted]
    mape, worst, off, rank = _figures(chosen)
    if not chosen:
        verdict: Verdict = "no rows"
    elif any(r.failure for r in chosen):
        verdict = "failed"
    else:
        good = (mape is None or mape <= OVERALL_PERCENT) and (rank is None or rank >= OVERALL_RANK)
        verdict = "pass" if good else "miss"
    return GroupScore(
        name="overall",
        title="all groups together",
        rows=len(chosen),
        scored=sum(r.by != "not" for r in chosen),
        mape_percent=mape,
        worst_percent=worst,
        worst_short_us=off,
        rank_correlation=rank,
        target=f"mean {OVERALL_PERCENT:g} %, rank {OVERALL_RANK:g}",
        verdict=verdict,
        missing="",
    )


def rank_correlation(x: Sequence[float], y: Sequence[float]) -> float | None:
    """Return Spearman's rank correlation of two equally long sequences; equal values share their mean rank.

    None for fewer than three pairs, or where all values of one sequence are equal.
    """
    if len(x) < 3:
        return None
    a, b = _ranks(x), _ranks(y)
    a, b = a - a.mean(), b - b.mean()
    scale = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / scale if scale else None


def _ranks(values: Sequence[float]) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    _, where, counts = np.unique(np.asarray(values, np.float64), return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    middle: np.ndarray[tuple[int, ...], np.dtype[np.float64]] = last - (counts - 1) / 2
    return middle[where]


def _figures(
    results: Sequence[Result],
) -> tuple[float | None, float | None, float | None, float | None]:
    """Return mean and worst error in percent, the worst difference of short rows and the rank correlation."""
    errors = [abs(r.error_percent) for r in results if r.by == "percent" and r.error_percent is not None]
    offs = [abs(r.off_us) for r in results if r.by == "us" and r.off_us is not None]
    times = [
        (r.measured_us, r.simulated_us)
        for r in results
        if r.by == "percent" and r.measured_us is not None and r.simulated_us is not None
    ]
    rank = rank_correlation([t[0] for t in times], [t[1] for t in times])
    mean = sum(errors) / len(errors) if errors else None
    return mean, max(errors, default=None), max(offs, default=None), rank


def _target(group: Group) -> str:
    if group.target_percent is None:
        return "none"
    return f"{group.rule} {group.target_percent:g} %"
