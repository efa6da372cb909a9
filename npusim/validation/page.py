"""The trust page, `docs/trust.md`: written from `validation/` and its `results.csv`, never by hand.

`python -m npusim.validation.page > docs/trust.md` writes it again.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from npusim.config.shipped import shipped
from npusim.validation.results import read_results
from npusim.validation.rows import Pairs, Row, read_published
from npusim.validation.score import LONG_ELEMENTS, LONG_US, GroupScore, Result
from npusim.validation.text import figure, quantity, signed_error
from npusim.validation.validate import Validation

START, END = "<!-- groups: generated -->", "<!-- groups: end -->"


def page_text(found: Validation) -> str:
    """Return the page as Markdown."""
    return "\n".join(_lines(found)) + "\n"


def groups_table(found: Validation) -> str:
    """Return the table of the groups between its markers, as the README shows it, too."""
    lines = [
        START,
        "| group | rows | scored | mean error | worst | short rows off by | rank | target | verdict |",
        "|---|--:|--:|--:|--:|--:|--:|---|---|",
        *(_group(s) for s in (*found.scores, found.overall)),
        END,
    ]
    return "\n".join(lines)


def _lines(found: Validation) -> Iterator[str]:
    revisions = sorted({r.model_revision for r in found.results})
    yield "# How far to trust a number"
    yield ""
    yield "Published measurements of devices against the simulator, timing only. This page is generated:"
    yield ""
    yield "    npusim validate -j 2 -o validation               # runs every row, writes results.csv"
    yield "    python -m npusim.validation.page > docs/trust.md"
    yield ""
    words = ", ".join(map(str, revisions)) or "none"
    yield f"Timing model revision: {words}.{_changed(found)} The rows and their sources are in `validation/`."
    yield ""
    yield f"Rows of at least {LONG_ELEMENTS:,} elements or {LONG_US:g} us are scored by the error of the time"
    yield "in percent, shorter ones by the difference, since tens of microseconds of host noise are in them."
    yield "A case measured in several runs counts once for each. A positive error is too slow or, for"
    yield "the rate of a path and for ratios, too large. Host time is a constant of the published row"
    yield "(`validation/host.csv`), never of the chip. *miss, named* is a group that misses its target and"
    yield "has its missing mechanism named below."
    yield ""
    yield groups_table(found)
    yield ""
    yield from _missing(found.scores)
    yield "## Rows"
    yield ""
    for score in found.scores:
        if score.rows:
            yield from _rows(score, found)
    yield from _hosts(found.rows)
    yield from _not_run(found)


def _changed(found: Validation) -> str:
    return f" Changed numbers: {', '.join(f'`{o}`' for o in found.overrides)}." if found.overrides else ""


def _group(s: GroupScore) -> str:
    cells = [
        f"{s.name}: {s.title}",
        str(s.rows),
        str(s.scored),
        figure(s.mape_percent, "%"),
        figure(s.worst_percent, "%"),
        figure(s.worst_short_us, "us"),
        figure(s.rank_correlation, digits=4),
        s.target,
        s.verdict,
    ]
    return _line(cells)


def _missing(scores: Sequence[GroupScore]) -> Iterator[str]:
    told = [s for s in scores if s.missing]
    if told:
        yield "## What is missing"
        yield ""
        for s in told:
            yield f"* **{s.name}**: {s.missing}"
        yield ""
    without = [s.name for s in scores if s.verdict == "no rows"]
    if without:
        names = ", ".join(without)
        yield f"No number is at hand for {names}; tests check their order and crossovers instead."
        yield ""
    late = [s.name for s in scores if s.verdict == "not run"]
    if late:
        yield f"Not run for this page: {', '.join(late)}."
        yield ""


def _rows(score: GroupScore, found: Validation) -> Iterator[str]:
    rows = {row.id: row for row in found.rows}
    results = found.of(score.name)
    yield f"<details><summary>{score.name}: {score.title} ({len(results)} rows)</summary>"
    yield ""
    yield "| row | program | published | simulated | unit | error | uncertainty | note |"
    yield "|---|---|--:|--:|---|--:|---|---|"
    for r in results:
        yield _row(rows[r.id], r)
    yield ""
    for source in dict.fromkeys(rows[r.id].source for r in results):
        yield f"* {source}"
    yield ""
    yield f"For example `{_command(rows[results[0].id])}`."
    yield ""
    yield "</details>"
    yield ""


def _row(row: Row, r: Result) -> str:
    ran = f"{row.program} {_pairs(row.params)}"
    if row.versus:
        ran += f", against {_pairs(row.versus)}"
    note = "; ".join(filter(None, (row.note, r.failure)))
    numbers = (quantity(r.measured), quantity(r.simulated), r.unit, signed_error(r))
    return _line([r.id, ran, *numbers, row.uncertainty, note])


def _command(row: Row) -> str:
    params = "".join(f" -p {k}={v}" for k, v in row.params)
    return f"npusim run {row.program} -c {row.device}{params} --l2 {row.l2} --timing-only"


def _hosts(rows: Sequence[Row]) -> Iterator[str]:
    hosts = {row.host.name: row.host for row in rows}
    yield "## Host time inside the published numbers"
    yield ""
    yield "| name | us | source |"
    yield "|---|--:|---|"
    for host in hosts.values():
        yield _line([host.name, f"{host.us:g}", host.source])
    yield ""


def _not_run(found: Validation) -> Iterator[str]:
    ran = {r.id for r in found.results}
    skipped: dict[tuple[str, str], int] = {}
    for row in found.rows:
        if row.scored == "skip" and row.id not in ran:
            key = (row.group, row.note)
            skipped[key] = skipped.get(key, 0) + 1
    if not (skipped or found.not_run):
        return
    yield "## Published and not run"
    yield ""
    yield "| series | rows | what | why not | source |"
    yield "|---|--:|---|---|---|"
    for (group, note), count in skipped.items():
        yield _line([group, str(count), "points of a curve", note, f"`validation/rows/{group}.csv`"])
    for item in found.not_run:
        yield _line([item.series, str(item.rows), item.what, item.why, item.source])


def _pairs(pairs: Pairs) -> str:
    return " ".join(f"{k}={v}" for k, v in pairs)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def shipped_validation() -> Validation:
    """Return the results that are kept in `validation/results.csv`."""
    published = read_published()
    results = read_results(Path(str(shipped("validation").joinpath("results.csv"))), published)
    return Validation((), published.groups, published.rows, results, published.not_run)


if __name__ == "__main__":
    sys.stdout.write(page_text(shipped_validation()))
