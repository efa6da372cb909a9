"""Who worked when, pipe by pipe."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from npusim.errors import ConfigError, did_you_mean
from npusim.isa.instruction import Array
from npusim.machine.timing.account import Cause
from npusim.plots.style import BELOW, CAUSES
from npusim.report.timeline import Timeline

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_PIECES = 3000
"""Parts of the window below which neighbours are drawn as one."""
_MOST_LANES = 24


def gantt_rows(
    timeline: Timeline, cores: Sequence[str] = (), window: tuple[int, int] | None = None
) -> dict[str, dict[str, Array]]:
    """Return for every pipe with work in it the intervals by cause, in cycles, shape (count, 2).

    Without `cores`, those of the first group that fit. `window` is the first cycle and the one behind the
    last, the whole run by default; intervals are cut to it. Neighbours of one cause become one interval where
    less than a three-thousandth of the window lies between them. Raises `ConfigError` for a core that took no
    part, and for a window that holds nothing of the run.
    """
    first, last = window or (0, timeline.cycles)
    if not 0 <= first < last or first >= max(1, timeline.cycles):
        raise ConfigError(
            f"window: must lie in the {timeline.cycles:,} cycles of the run and not be empty, "
            f"not {first:,} to {last:,}"
        )
    last = min(last, timeline.cycles)
    known = timeline.cores
    for core in cores:
        if core not in known:
            raise ConfigError(f"{core}: no such core in this run{did_you_mean(core, known)}")
    group = known[0].partition(".")[0] if known else ""
    chosen = set(cores or [core for core in known if core.partition(".")[0] == group])
    spans = timeline.spans
    inside = (spans.stop > first) & (spans.start < last)
    rows: dict[str, dict[str, Array]] = {}
    for number, lane in enumerate(timeline.lanes):
        if lane.rpartition(".")[0] not in chosen:
            continue
        here = inside & (spans.lane == number)
        if not (spans.cause[here] == Cause.WORK).any():
            continue
        rows[lane] = {}
        for cause in Cause:
            picked = here & (spans.cause == cause)
            if picked.any():
                start = np.maximum(spans.start[picked], first)
                stop = np.minimum(spans.stop[picked], last)
                rows[lane][cause.name.lower()] = merged(start, stop, (last - first) / _PIECES)
    return dict(list(rows.items())[:_MOST_LANES])


def merged(start: Array, stop: Array, gap: float) -> Array:
    """Return sorted intervals, neighbours less than a gap apart as one; shape (count, 2)."""
    new = np.ones(len(start), bool)
    new[1:] = start[1:] - stop[:-1] >= max(gap, 1)
    ends = np.roll(new, -1)  # one ends where the next begins; the first begins anew, so the last ends
    return np.column_stack([start[new], stop[ends]])


def gantt(
    timeline: Timeline,
    ax: Axes,
    *,
    cores: Sequence[str] = (),
    window: tuple[int, int] | None = None,
) -> Axes:
    """Draw work as blocks, and waits as thin bars in the colour of their cause; waiting for issue, when there
    was nothing to do yet, stays empty. Dotted lines are the starts of later launches.

    `cores` and `window` as in `gantt_rows`.
    """
    from matplotlib.patches import Patch

    rows = gantt_rows(timeline, cores, window)
    seen: set[str] = set()
    for y, causes in enumerate(rows.values()):
        for cause, intervals in causes.items():
            bars = [(timeline.us(a), timeline.us(b - a)) for a, b in intervals.tolist()]
            if cause == "work":
                ax.broken_barh(bars, (y - 0.38, 0.76), facecolors=CAUSES[cause][0], linewidth=0, zorder=2)
            elif cause != "issue":
                seen.add(cause)
                ax.broken_barh(bars, (y - 0.1, 0.2), facecolors=CAUSES[cause][0], linewidth=0, zorder=1)
    first, last = window or (0, timeline.cycles)
    for _, start, _ in timeline.launches[1:]:
        if first < start < last:
            ax.axvline(timeline.us(start), color="0.5", linewidth=0.6, linestyle=":", zorder=0)
    ax.set_yticks(range(len(rows)), list(rows))
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.set_xlim(timeline.us(first), timeline.us(min(last, timeline.cycles)))
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel("time, µs")
    ax.set_title(f"{timeline.program} on {timeline.chip}", loc="left")
    words = {c: f"waits: {c.replace('_', ' ')}" for c in CAUSES if c in seen}
    patches = [Patch(color=CAUSES[c][0], label=label) for c, label in ({"work": "works"} | words).items()]
    ax.legend(
        handles=patches,
        loc="upper center",
        bbox_to_anchor=(0.5, 0),
        borderaxespad=BELOW,
        ncols=3,
        handleheight=0.6,
    )
    return ax
