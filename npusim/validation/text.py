"""A validation as text for people."""

from __future__ import annotations

from collections.abc import Iterator

from npusim.validation.score import GroupScore, Result
from npusim.validation.validate import Validation


def validation_text(found: Validation) -> str:
    """Return the rows, the groups, and what groups that miss their target lack; about 80 columns."""
    return "\n".join(_lines(found)) + "\n"


def figure(value: float | None, unit: str = "", digits: int = 1) -> str:
    """Return a number as tables show it, `-` where there is none."""
    return "-" if value is None else f"{value:,.{digits}f}{f' {unit}' if unit else ''}"


def quantity(value: float | None) -> str:
    """Return a published or simulated value with four digits or more, `-` where there is none."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 10_000 else f"{value:.4g}"


def signed_error(result: Result) -> str:
    """Return the error of a row in the way it is scored."""
    if result.failure:
        return "failed"
    if result.by == "us" and result.off_us is not None:
        return f"{result.off_us:+.1f} us"
    mark = "" if result.by == "percent" else " (not scored)"
    return "-" if result.error_percent is None else f"{result.error_percent:+.1f} %{mark}"


def _lines(found: Validation) -> Iterator[str]:
    for score in found.scores:
        if not score.rows:
            continue
        yield score.title
        yield f"  {'':36} {'measured':>10} {'simulated':>10} {'':6} error"
        for r in found.of(score.name):
            shown = f"{quantity(r.measured):>10} {quantity(r.simulated):>10} {r.unit:6}"
            yield f"  {r.id:36} {shown} {signed_error(r)}"
        yield ""
    heads = f"{'rows':>5} {'scored':>6} {'mean':>8} {'worst':>8} {'rank':>7}  {'target':12} verdict"
    yield f"{'group':16} {heads}"
    scores = [*found.scores, *([found.overall] if len(found.scores) > 1 else [])]
    for score in scores:
        yield _group_line(score)
    if found.overrides:
        yield f"\nchanged numbers: {' '.join(found.overrides)}"
    yield from _missing(scores)
    yield from _failures(found)


def _group_line(s: GroupScore) -> str:
    mean, worst = figure(s.mape_percent, "%"), figure(s.worst_percent, "%")
    rank = figure(s.rank_correlation, digits=4)
    target = s.target if s.name != "overall" else "mean 5 %"
    return f"{s.name:16} {s.rows:5} {s.scored:6} {mean:>8} {worst:>8} {rank:>7}  {target:12} {s.verdict}"


def _missing(scores: list[GroupScore]) -> Iterator[str]:
    for s in scores:
        if s.verdict == "miss, named":
            yield f"\n{s.name}: {s.missing}"
        elif s.verdict == "miss" and s.name != "overall":
            yield f"\n{s.name}: misses its target; name the missing mechanism in validation/groups.csv"


def _failures(found: Validation) -> Iterator[str]:
    words: dict[str, list[str]] = {}
    for r in found.results:
        if r.failure:
            words.setdefault(r.failure, []).append(r.id)
    if words:
        yield ""
    for failure, ids in words.items():
        more = f" and {len(ids) - 1} more" if len(ids) > 1 else ""
        yield f"failed: {ids[0]}{more}: {failure}"
