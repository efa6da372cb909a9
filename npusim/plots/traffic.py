"""Traffic with L2 and main memory over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npusim.plots.style import BELOW, BLACK, BLUE, GREEN, ORANGE, VERMILION
from npusim.report.rates import Rates, rates
from npusim.report.timeline import Timeline

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def bandwidth(timeline: Timeline, ax: Axes, *, bins: int = 200) -> Axes:
    """Draw the rates between cores, L2 and main memory, and what main memory sustains, in 10^9 bytes per
    second. What is pushed out of L2 may go through the write-back buffer, and so be above that for a while.
    Where all rates are below half of what main memory sustains, that is said in words and is no line.
    """
    found = rates(timeline, bins)
    scale = timeline.clock_mhz / 1000
    lines = [
        ("L2 to cores", found.read, GREEN, "-"),
        ("cores to L2", found.write, ORANGE, "-"),
        ("main memory to L2", found.fetched, BLUE, "--"),
        ("pushed out of L2", found.evicted, VERMILION, "--"),
    ]
    edges = _edges(timeline, found)
    for name, values, colour, dashes in lines:
        if values.any():
            ax.stairs(values * scale, edges, color=colour, linestyle=dashes, linewidth=1.0, label=name)
    limit = timeline.hbm_bytes_per_cycle * scale
    most = scale * max(float(values.max(initial=0.0)) for _, values, _, _ in lines)
    words = f"main memory sustains {limit:,.4g}"
    if limit < float("inf") and (most >= limit / 2 or not most):
        ax.axhline(limit, color=BLACK, linestyle=":", linewidth=1.0, label=words)
    elif limit < float("inf"):
        ax.plot([], [], linestyle="none", label=words)
    ax.set(xlim=(edges[0], edges[-1]), xlabel="time, µs", ylabel="GB/s")
    ax.set_ylim(bottom=0)
    ax.set_title(f"{timeline.program} on {timeline.chip}", loc="left")
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, 0), borderaxespad=BELOW, ncols=3)
    return ax


def hit_rate(timeline: Timeline, ax: Axes, *, bins: int = 200) -> Axes:
    """Draw the percent of the moved bytes that L2 took without main memory; a gap where nothing moved."""
    found = rates(timeline, bins)
    edges = _edges(timeline, found)
    ax.stairs(100 * found.hit_rate, edges, color=BLUE, linewidth=1.2, baseline=None)
    ax.set(xlim=(edges[0], edges[-1]), ylim=(-2, 102), xlabel="time, µs", ylabel="L2 hits, %")
    ax.set_title(f"{timeline.program} on {timeline.chip}", loc="left")
    return ax


def _edges(timeline: Timeline, found: Rates) -> list[float]:
    return [timeline.us(edge) for edge in found.edges.tolist()]
