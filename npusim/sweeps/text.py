"""A sweep as text for people."""

from __future__ import annotations

from typing import Any

from npusim.sweeps.rows import Row
from npusim.sweeps.run import Sweep
from npusim.sweeps.search import Search
from npusim.units import grouped

_SHOWN_FAILURES = 10
_SHOWN_FRONT = 20


def sweep_text(found: Sweep, *, next_step: str = "") -> str:
    """Return what a sweep came to: how many rows, fastest and slowest, axes without effect, failures."""
    rows = [row for row in found.rows if row["status"] != "failed"]
    counts = f"{_count(len(found.rows), 'point')}: {_ran(found)}"
    if found.left_out:
        counts += f"; where leaves out {grouped(found.left_out)}"
    lines = [f"{found.rows[0]['program']}: {_count(len(found.axes), 'axis')}", "", f"rows        {counts}"]
    if rows:
        ordered = sorted(rows, key=lambda row: row["time_us"])
        lines += [_extreme("fastest", ordered[0], found), _extreme("slowest", ordered[-1], found)]
    for label, effect in zip(["axes", *[""] * len(found.effects)], found.effects, strict=False):
        lines.append(f"{label:<12}{effect}")
    for number, row in enumerate(found.failed[:_SHOWN_FAILURES]):
        lines.append(f"{'failed' if not number else '':<12}{_place(row, found)}: {row['error']}")
    if len(found.failed) > _SHOWN_FAILURES:
        lines.append(f"{'':<12}and {len(found.failed) - _SHOWN_FAILURES} more")
    if next_step:
        lines.append(f"next        {next_step}")
    return "\n".join(lines) + "\n"


def search_text(found: Search, *, next_step: str = "") -> str:
    """Return what a search came to: how many points, the best of them, failures."""
    program = found.rows[0]["program"]
    counts = f"{grouped(len(found.rows))} of {grouped(found.combinations)} combinations tried"
    more = [(len(found.failed), "failed"), (len(found.wrong), "with wrong values")]
    counts += "".join(f", {grouped(n)} {what}" for n, what in more if n)
    if found.resumed:
        counts += f"; {grouped(found.resumed)} of them kept from before"
    several = len(found.minimized) > 1
    lines = [f"{program}: {', '.join(found.minimized)}, as little as possible", "", f"points      {counts}"]
    if several:
        lines.append(f"front       {grouped(len(found.front))} that no other beats in all:")
    for at in found.front[:_SHOWN_FRONT]:
        values = "  ".join(f"{v:>14,.6g}" for v in found.values[at] or ())
        row = found.rows[at]
        lines.append(f"{'' if several else 'best':<12}{values}  {_place(row, found)}")
    if len(found.front) > _SHOWN_FRONT:
        lines.append(f"{'':<12}and {len(found.front) - _SHOWN_FRONT} more")
    for number, row in enumerate(found.failed[:_SHOWN_FAILURES]):
        lines.append(f"{'failed' if not number else '':<12}{_place(row, found)}: {row['error']}")
    if next_step:
        lines.append(f"next        {next_step}")
    return "\n".join(lines) + "\n"


def _ran(found: Sweep) -> str:
    """Say how many rows were there before, how many runs were made now, and what all of them came to."""
    more = [(len(found.failed), "failed"), (len(found.wrong), "with wrong values")]
    bad = ", ".join(f"{grouped(n)} {what}" for n, what in more if n)
    if not found.resumed:
        return f"{grouped(len(found.rows) - len(found.failed))} ran{f', {bad}' if bad else ''}"
    new = len(found.rows) - found.resumed
    now = f"{grouped(new)} ran now" if new else "nothing left to run"
    return f"{grouped(found.resumed)} kept from before, {now}{f'; of all {bad}' if bad else ''}"


def _count(number: int, what: str) -> str:
    several = "axes" if what == "axis" else f"{what}s"
    return f"{grouped(number)} {what if number == 1 else several}"


def _extreme(label: str, row: Row, found: Sweep) -> str:
    return f"{label:<12}{row['time_us']:,.4g} us, {grouped(row['total_cycles'])} cycles: {_place(row, found)}"


def _place(row: Row, found: Sweep | Search) -> str:
    return " ".join(f"{axis}={_value(row[axis])}" for axis in found.axes) or "the only point"


def _value(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
