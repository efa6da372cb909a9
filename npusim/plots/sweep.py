"""Rows of a sweep: a column over one axis, in lines or a map by a second one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np

from npusim.errors import ConfigError, did_you_mean
from npusim.isa.instruction import Array
from npusim.plots.style import BELOW, BLACK, BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION, figure_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_LINES = 7
"""Values of the second axis up to which every one has a line; more make a map."""
_LINES = [
    (BLUE, "o", "-"),
    (ORANGE, "s", "-"),
    (GREEN, "^", "-"),
    (VERMILION, "D", "-"),
    (PURPLE, "v", "-"),
    (SKY, "P", "-"),
    (BLACK, "X", "-"),
]
_WORDS = {"time_us": "device time, µs", "total_cycles": "cycles"}
_UNITS = {
    "_bytes_per_cycle": "B per cycle",
    "_elements_per_cycle": "elements per cycle",
    "_gb_per_s": "GB/s",
    "_cycles": "cycles",
    "_bytes": "bytes",
    "_mib": "MiB",
    "_gib": "GiB",
    "_kib": "KiB",
    "_mhz": "MHz",
    "_ns": "ns",
    "_us": "µs",
}
_LETTER = 0.065
"""Inches of a letter of a tick."""
_LOG = 8
"""Ratio of ends from which on a scale is logarithmic."""


@dataclass(frozen=True)
class Grid:
    """A column of a sweep over one or two axes."""

    column: str
    x: str
    by: str
    """Name of the second axis; empty where there is none."""
    xs: list[Any]
    bys: list[Any]
    values: Array
    """One row a value of the second axis, one column a value of the first; NaN where no run ended."""
    others: list[str]
    """Axes besides these two that vary and act: a value is the least over them."""
    idle: list[str]
    """Axes that vary without any effect on the column."""
    title: str


def sweep_grid(
    rows: Sequence[Mapping[str, Any]],
    axes: Sequence[str],
    *,
    column: str = "time_us",
    x: str | None = None,
    by: str | None = None,
) -> Grid:
    """Return a column of the rows of a sweep over `x` and `by`, two of its axes.

    Without `x` it is the axis of numbers with the most values, without `by` the one of the others over which
    the column changes most; an axis that has no effect on the column is drawn only where it is named, or
    where none has any. Rows that failed or have wrong values are left out. Raises `ConfigError` where
    nothing is left, and for axes and columns that are not there.
    """
    ran = [row for row in rows if row.get("status") == "ok"]
    if not ran:
        raise ConfigError("plot: no row of the sweep ran to right values; look at its column `error`")
    if not isinstance(ran[0].get(column), int | float):
        near = did_you_mean(column, [n for n, v in ran[0].items() if isinstance(v, int | float)])
        raise ConfigError(f"plot: no column of numbers {column}{near}")
    for name in (x, by):
        if name is not None and name not in axes:
            near = did_you_mean(name, axes) or f"; axes: {' '.join(axes) or 'none'}"
            raise ConfigError(f"plot: no axis {name}{near}")
    if x is not None and x == by:
        raise ConfigError(f"plot: {x} is given as both axes; name two")
    if not axes:
        raise ConfigError("plot: the sweep has no axis to draw over")
    values = {axis: _values(ran, axis) for axis in axes}
    varying = [axis for axis in axes if len(values[axis]) > 1]
    idle = [axis for axis in varying if not _acts(ran, axis, axes, column)]
    acting = [axis for axis in varying if axis not in idle]
    if x is None:
        first = next((f for f in ([a for a in c if a != by] for c in (acting, varying, axes)) if f), [])
        if not first:
            raise ConfigError(f"plot: {by} is the only axis; leave it out")
        x = max(first, key=lambda axis: (_numeric(values[axis]), len(values[axis])))
    rest = [axis for axis in acting if axis not in (x, by)]
    if by is None and rest:
        by = max(rest, key=lambda axis: _change(ran, axis, values[axis], column))
        rest.remove(by)
    bys = values[by] if by is not None else [None]
    found = np.full((len(bys), len(values[x])), np.nan)
    for row in ran:
        if row.get(column) is not None:
            at = (bys.index(row[by]) if by is not None else 0, values[x].index(row[x]))
            found[at] = np.fmin(found[at], row[column])
    title = f"{ran[0]['program']}" + ("" if "chip" in axes else f" on {ran[0]['chip']}")
    return Grid(column, x, by or "", values[x], bys, found, rest, idle, title)


def sweep_plot(grid: Grid, ax: Axes) -> Axes:
    """Draw a line for every value of the second axis, or a map where there are more than seven of them."""
    if len(grid.bys) > MOST_LINES:
        _map(grid, ax)
    else:
        _lines(grid, ax)
    title = [grid.title] + ([f"least over {' and '.join(grid.others)}"] if grid.others else [])
    title += [f"no effect: {', '.join(grid.idle)}"] if grid.idle else []
    ax.set_title("\n".join(title), loc="left")
    ax.set_xlabel(label(grid.x))
    return ax


def label(name: str) -> str:
    """Return the name of an axis or column with its unit, as its ending tells it."""
    if name in _WORDS:
        return _WORDS[name]
    if name.startswith("pipes.") and not name.endswith(".instructions"):
        return f"{name}, cycles"
    ending = name.replace(".", "_")
    unit = next((unit for end, unit in _UNITS.items() if ending.endswith(end)), "")
    return f"{name}, {unit}" if unit else name


def _lines(grid: Grid, ax: Axes) -> None:
    numeric = _numeric(grid.xs)
    xs = grid.xs if numeric else list(range(len(grid.xs)))
    for values, name, (colour, marker, dashes) in zip(grid.values, grid.bys, _LINES, strict=False):
        known = ~np.isnan(values)
        ax.plot(
            np.array(xs)[known],
            values[known],
            color=colour,
            marker=marker,
            markersize=3.5,
            linestyle=dashes,
            linewidth=1.2,
            label=f"{grid.by} = {_short(name)}" if grid.by else grid.column,
        )
    log = numeric and _geometric(xs)
    if log:
        ax.set_xscale("log")
    if numeric and len(xs) <= 10:
        ax.minorticks_off()
        ax.set_xticks(_apart(xs, log), [_short(v) for v in _apart(xs, log)])
    elif not numeric:
        ax.set_xticks(xs, [_short(v) for v in grid.xs])
    if _wide(grid.values[~np.isnan(grid.values)].tolist()):
        ax.set_yscale("log")
    else:
        ax.set_ylim(bottom=0)
    ax.set_ylabel(label(grid.column))
    ax.grid(axis="y", color="0.92", linewidth=0.5)
    ax.set_axisbelow(True)
    if grid.by:
        ax.legend(loc="upper center", bbox_to_anchor=(0.5, 0), borderaxespad=BELOW, ncols=2)


def _map(grid: Grid, ax: Axes) -> None:
    from matplotlib.colors import LogNorm, Normalize

    known = grid.values[~np.isnan(grid.values)]
    norm = (LogNorm if _wide(known.tolist()) else Normalize)(known.min(), known.max())
    drawn = ax.pcolormesh(grid.values, cmap="cividis_r", norm=norm, edgecolors="white", linewidth=0.3)
    width, height = figure_of(ax).get_size_inches()
    wide = max(len(_short(v)) for v in grid.xs) + 1
    for axis, values, room in (
        (ax.xaxis, grid.xs, int((width - 1.8) / (wide * _LETTER))),
        (ax.yaxis, grid.bys, int((height - 1.2) / (2 * _LETTER))),
    ):
        at = _spread(len(values), max(2, room))
        axis.set_ticks([i + 0.5 for i in at], [_short(values[i]) for i in at])
    ax.tick_params(length=0)
    ax.set_ylabel(label(grid.by))
    figure_of(ax).colorbar(drawn, ax=ax, label=label(grid.column))


def _values(rows: Sequence[Mapping[str, Any]], axis: str) -> list[Any]:
    found = list(dict.fromkeys(row[axis] for row in rows))
    return sorted(found) if _numeric(found) else found


def _numeric(values: Sequence[Any]) -> bool:
    return all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)


def _wide(values: Sequence[float]) -> bool:
    """Whether values lie so far apart that a scale should be logarithmic."""
    return bool(values) and min(values) > 0 and max(values) / min(values) >= _LOG


def _geometric(values: Sequence[float]) -> bool:
    """Whether values lie far apart and their factors are more alike than their steps."""
    if len(values) < 2 or not _wide(values):
        return False
    steps, factors = np.diff(values), np.diff(np.log(values))
    return bool(factors.max() / factors.min() < steps.max() / steps.min())


def _apart(values: list[Any], log: bool) -> list[Any]:
    """Return the values whose ticks do not touch on a scale, both ends among them."""
    scale = np.log(values) if log else np.array(values, float)
    room = 0.999 * (scale[-1] - scale[0]) / 9  # ten equal steps touch by rounding alone
    kept = [0]
    for at in range(1, len(values)):
        if scale[at] - scale[kept[-1]] >= room:
            kept.append(at)
    return [values[at] for at in _ended(kept, len(values) - 1)]


def _spread(count: int, room: int) -> list[int]:
    """Return at most so many numbers below a count, evenly spread, the first and the last among them."""
    step = max(1, ceil((count - 1) / (room - 1)))
    return _ended(list(range(0, count, step)), count - 1)


def _ended(kept: list[int], last: int) -> list[int]:
    """Return numbers with the last one instead of the one before it, where it is not among them."""
    return kept if kept[-1] == last else [*(kept[:-1] or kept), last]


def _acts(rows: Sequence[Mapping[str, Any]], axis: str, axes: Sequence[str], column: str) -> bool:
    """Whether a column differs between rows that differ in one axis alone; also where there are no such rows,
    as for axes that move together.
    """
    seen: dict[tuple[Any, ...], tuple[Any, Any]] = {}
    compared = False
    for row in rows:
        key = tuple(row[other] for other in axes if other != axis)
        value, result = seen.setdefault(key, (row[axis], row.get(column)))
        if value != row[axis]:
            compared = True
            if result != row.get(column):
                return True
    return not compared


def _change(rows: Sequence[Mapping[str, Any]], axis: str, values: list[Any], column: str) -> float:
    """Return how far apart the means of a column are over an axis."""
    means = [np.mean([r[column] for r in rows if r[axis] == v and r.get(column) is not None]) for v in values]
    return float(max(means) - min(means))


def _short(value: Any) -> str:
    return f"{value:,.4g}" if isinstance(value, float) else str(value)
