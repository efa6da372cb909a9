"""What changed between two runs: in the chip, in the program, and in the cycles by cause."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from npusim.machine.timing.account import Cause
from npusim.report.kept import KeptRun
from npusim.report.model import Report

CAUSES = (*(cause.name.lower() for cause in Cause), "tail")
_NOT_HARDWARE = ("sources", "schema", "name", "description")


class Change(NamedTuple):
    """One value before and after; None where it was or is not there."""

    name: str
    before: Any
    after: Any

    def __str__(self) -> str:
        return f"{self.name} {_word(self.before)} -> {_word(self.after)}"


@dataclass(frozen=True)
class Comparison:
    """Two runs, before and after."""

    before: str
    """Folder as it was named."""
    after: str
    chip: list[Change]
    """Numbers of the chip by dotted path."""
    program: list[Change]
    """Program, parameters, seed, numerics, and L2 at the start."""
    instructions: tuple[int, int, int]
    """Lines of the streams: those only before, those only after, and those in both."""
    totals: list[Change]
    """Cycles, device time and traffic; all of them, changed or not."""
    pipes: dict[str, dict[str, tuple[float, float]]]
    """Cycles before and after by cause, tail included, of every pipe: the mean over the cores of a kind."""

    @property
    def cycles(self) -> Change:
        """The cycles of the runs."""
        return self.totals[0]

    @property
    def growth_percent(self) -> float:
        """How many percent more cycles the second run takes; negative where it takes fewer."""
        return _percent(self.cycles)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "schema": "npusim.comparison/1",
            "before": self.before,
            "after": self.after,
            "chip": [c._asdict() for c in self.chip],
            "program": [c._asdict() for c in self.program],
            "instructions": dict(zip(("before", "after", "both"), self.instructions, strict=True)),
            "totals": [c._asdict() for c in self.totals],
            "growth_percent": round(self.growth_percent, 6),
            "pipes": {
                pipe: {
                    cause: {"before": round(a, 6), "after": round(b, 6)} for cause, (a, b) in causes.items()
                }
                for pipe, causes in self.pipes.items()
            },
        }


def compare_runs(before: KeptRun, after: KeptRun) -> Comparison:
    """Compare two runs that were kept."""
    a, b = before.report, after.report
    lines = [Counter(_instructions(run)) for run in (before, after)]
    chip = list(_changes(_flat(before.chip), _flat(after.chip)))
    if a.chip != b.chip:
        chip.insert(0, Change("chip", a.chip, b.chip))
    settings = ("program", "seed", "numerics", "l2", "model_revision")
    program = [Change(n, getattr(a, n), getattr(b, n)) for n in settings if getattr(a, n) != getattr(b, n)]
    program += _changes(a.params, b.params)
    return Comparison(
        before=before.shown,
        after=after.shown,
        chip=chip,
        program=program,
        instructions=(
            (lines[0] - lines[1]).total(),
            (lines[1] - lines[0]).total(),
            (lines[0] & lines[1]).total(),
        ),
        totals=[
            Change("cycles", a.total_cycles, b.total_cycles),
            Change("device time, us", a.time_us, b.time_us),
            Change("bytes moved by the cores", *(r.gm.read_bytes + r.gm.write_bytes for r in (a, b))),
            Change(
                "bytes moved by main memory", *(r.gm.hbm_read_bytes + r.gm.hbm_write_bytes for r in (a, b))
            ),
        ],
        pipes=_pipes(a, b),
    )


def comparison_text(found: Comparison) -> str:
    """Return a comparison for people: what changed, then where cycles went or came from."""
    lines = [f"compare     {found.before} -> {found.after}", ""]
    lines += _listed("chip", found.chip)
    lines += _listed("program", found.program)
    gone, new, both = found.instructions
    same = f"the same {both:,} instructions" if not gone and not new else None
    lines += [f"stream      {same or f'{gone:,} instructions gone, {new:,} new, {both:,} as before'}"]
    totals = [(c.name, _total(c.before), _total(c.after), _grown(c)) for c in found.totals]
    name, old, now, percent = (max(map(len, column)) for column in zip(*totals, strict=True))
    for number, (what, a, b, grown) in enumerate(totals):
        label = "totals" if not number else ""
        lines.append(f"{label:12}{what:{name}}  {a:>{old}} -> {b:>{now}}  {grown:>{percent}}")
    rows = [
        (pipe, [_signed(causes[c][1] - causes[c][0], 0) for c in CAUSES])
        for pipe, causes in found.pipes.items()
        if any(round(a - b, 3) for a, b in causes.values())
    ]
    if rows:
        heads = [c.replace("cross_core", "cross") for c in CAUSES]
        widths = [max(len(h), *(len(row[1][i]) for row in rows)) for i, h in enumerate(heads)]
        first = max(len(pipe) for pipe, _ in rows)
        lines += ["", "change      in cycles, mean over the cores of a kind", ""]
        lines.append(" ".join([" " * first, *(f"{h:>{w}}" for h, w in zip(heads, widths, strict=True))]))
        for pipe, cells in rows:
            lines.append(
                " ".join([f"{pipe:{first}}", *(f"{c:>{w}}" for c, w in zip(cells, widths, strict=True))])
            )
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _listed(label: str, changes: list[Change]) -> list[str]:
    words = [str(change) for change in changes] or ["the same"]
    return [f"{label if not i else '':12}{word}" for i, word in enumerate(words)]


def _instructions(run: KeptRun) -> Iterator[tuple[str, str]]:
    """Yield the instructions of the streams, each with its core."""
    core = ""
    for line in run.stream().splitlines():
        if line.startswith(".core"):
            core = line
        elif line and not line.startswith("."):
            yield core, line


def _pipes(a: Report, b: Report) -> dict[str, dict[str, tuple[float, float]]]:
    before, after = _means(a), _means(b)
    none = dict.fromkeys(CAUSES, 0.0)
    return {
        pipe: {c: (before.get(pipe, none)[c], after.get(pipe, none)[c]) for c in CAUSES}
        for pipe in dict.fromkeys([*before, *after])
    }


def _means(report: Report) -> dict[str, dict[str, float]]:
    """Return cycles by cause of the pipes of each kind of core: the mean over its cores."""
    sums: dict[str, dict[str, float]] = {}
    counts: Counter[str] = Counter()
    for name, part in report.pipes.items():
        core, _, pipe = name.rpartition(".")
        row = f"{core.rpartition('.')[2].rstrip('0123456789')} {pipe}"
        counts[row] += 1
        into = sums.setdefault(row, dict.fromkeys(CAUSES, 0.0))
        for cause in CAUSES:
            into[cause] += getattr(part, cause)
    return {row: {c: n / counts[row] for c, n in causes.items()} for row, causes in sums.items()}


def _flat(data: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in data.items():
        if not prefix and name in _NOT_HARDWARE:
            continue
        path = f"{prefix}{name}"
        if isinstance(value, Mapping):
            found |= _flat(value, f"{path}.")
        else:
            found[path] = value
    return found


def _changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Change]:
    for name in dict.fromkeys([*before, *after]):
        if before.get(name) != after.get(name):
            yield Change(name, before.get(name), after.get(name))


def _total(value: Any) -> str:
    if not isinstance(value, float):
        return _word(value)
    return f"{value:,.1f}" if value >= 1000 else f"{value:.4g}"


def _percent(change: Change) -> float:
    if not change.before:
        return 0.0 if not change.after else float("inf")
    return 100 * float(change.after - change.before) / float(change.before)


def _grown(change: Change) -> str:
    return "=" if change.after == change.before else f"{_percent(change):+,.1f} %"


def _signed(value: float, digits: int) -> str:
    text = f"{value:+,.{digits}f}"
    return "-" if not text.strip("+-0.") else text


def _word(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value)
