"""`npusim validate`: the published rows against the simulator."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from npusim.validation.measure import Progress, run_cases
from npusim.validation.rows import Group, NotRun, Row, read_published
from npusim.validation.score import GroupScore, Result, score_group, score_overall, score_row

SCHEMA = "npusim.validation/1"


@dataclass(frozen=True, slots=True)
class Validation:
    """What came out: every row, every group, and all together."""

    overrides: tuple[str, ...]
    """Numbers of the chips that were changed, as `PATH=VALUE`."""
    groups: tuple[Group, ...]
    rows: tuple[Row, ...]
    """Rows of the groups, those that are kept as data and not run among them."""
    results: tuple[Result, ...]
    not_run: tuple[NotRun, ...]

    @property
    def scores(self) -> tuple[GroupScore, ...]:
        """Every group, in the order of `validation/groups.csv`."""
        counts = Counter(row.group for row in self.rows)
        return tuple(score_group(g, self.of(g.name), published=counts[g.name]) for g in self.groups)

    @property
    def overall(self) -> GroupScore:
        """The rows of all groups together."""
        return score_overall(self.groups, self.results)

    @property
    def ok(self) -> bool:
        """Whether every group was run, no row failed, and what misses its target has its reason named."""
        return not any(s.verdict in ("miss", "failed", "not run") for s in self.scores)

    def of(self, group: str) -> tuple[Result, ...]:
        """Return the results of a group."""
        return tuple(r for r in self.results if r.group == group)

    def to_dict(self) -> dict[str, Any]:
        """Return the document `npusim.validation/1`."""
        return {
            "schema": SCHEMA,
            "model_revisions": sorted({r.model_revision for r in self.results}),
            "overrides": list(self.overrides),
            "overall": asdict(self.overall),
            "groups": [asdict(s) for s in self.scores],
            "rows": [asdict(r) for r in self.results],
            "not_run": [asdict(n) for n in self.not_run],
        }

    def to_json(self) -> str:
        """Return the document as JSON; the same runs give the same bytes."""
        return json.dumps(self.to_dict(), indent=2) + "\n"


def validate(
    *groups: str,
    every: bool = False,
    jobs: int = 1,
    overrides: Sequence[str] = (),
    progress: Progress | None = None,
) -> Validation:
    """Run the published rows of some groups, or of all, and compare.

    `every` runs and scores the rows that are kept as data, too. `jobs` is the number of processes.
    `overrides` changes numbers of every chip, as `hbm.sustained_fraction=0.9`. `progress` is called after
    every run.

    Raises `ConfigError` for an unknown group, a row that cannot be read, or an override that cannot be used.
    A run that fails is a result with `failure`.
    """
    published = read_published()
    chosen = published.chosen(groups)
    rows = tuple(r for g in chosen for r in published.of(g))
    run = [r for r in rows if every or r.scored != "skip"]
    outcomes = run_cases(run, jobs=jobs, overrides=overrides, progress=progress)
    by_name = {g.name: g for g in chosen}
    results = tuple(score_row(row, by_name[row.group], outcomes) for row in run)
    return Validation(tuple(overrides), chosen, rows, results, published.not_run if not groups else ())
