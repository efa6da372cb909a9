"""Rooflines on `Axes`: flat roofs and diagonals, points, the binding roof and the verdict."""

from __future__ import annotations

import textwrap
from collections import Counter
from math import log10
from typing import TYPE_CHECKING, Any

import numpy as np

from npusim.plots.roofs import Point, Roof, Roofline
from npusim.plots.style import BELOW, BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION, figure_of
from npusim.report.components import LATENCY, MEMORY

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOVES = {"MTE-GM": GREEN, "MTE-L1": ORANGE, "MTE-UB": PURPLE, "FIX": SKY, MEMORY: BLACK}
_COMPUTE = {"Cube": VERMILION, "Vector": BLUE, "Scalar": GREY, "cube": VERMILION, "vector": BLUE}
_MARKERS = {"Cube": "s", "Vector": "o", "Scalar": "^", "cube": "s", "vector": "o"}
_DASHES: dict[str, Any] = {"cube": "-", "vec": (0, (5, 1.5)), "ai": "-", "main": (0, (1, 1))}
_OF_RUNS: list[Any] = ["-", (0, (5, 1.5)), (0, (1, 1)), (0, (5, 1.5, 1, 1.5)), (0, (9, 2)), (0, (1, 3))]
"""Dashes of roofs of one name that belong to different runs."""
_WHOSE = 20
"""Letters of the runs of a roof from which on its rate is on a second row of the legend."""
_NAME = "run"
"""Mark of the texts that are names of points."""
_PLACES = [
    (right, 6 if right else -6, dy)
    for dy in (-8, 8, 0, -17, 17, -26, 26, -35, 35, -44, 44)
    for right in (1, 0)
]
"""Where a name may stand: right of its point or left of it, and how many points beside and above it."""


def roofline(line: Roofline, ax: Axes) -> Axes:
    """Draw a roofline: rates in 10^9 operations per second over operations per byte.

    Every roof is named in the legend with its rate and how much of it is reached; the one that binds, or is
    nearest, is drawn thick, and where latency binds words in the axes say so. Roofs of one name that belong
    to different runs differ in their dashes. A point lies on the intensity of its path, in the colour of what
    moves its data and with the marker of what computes.
    """
    finite = [p for p in line.points if 0 < p.intensity < float("inf") and p.rate > 0]
    flat = [r for r in line.roofs if r.kind == "compute"]
    left, right, bottom, top = _limits(line, finite)
    highest = max((r.rate for r in flat), default=top)
    seen: Counter[str] = Counter()
    for roof in line.roofs:
        binds = roof.name == line.binding
        dashes = _DASHES.get(roof.name.partition(" ")[0], "-")
        style: dict[str, Any] = {
            "color": _colour(roof.name),
            "linestyle": _OF_RUNS[seen[roof.name] % len(_OF_RUNS)] if roof.runs else dashes,
            "linewidth": 2.6 if binds else 1.0,
            "alpha": 1.0 if binds or not line.bound else 0.75,
            "label": _label(roof, line.mark if binds else ""),
        }
        seen[roof.name] += 1
        if roof.kind == "compute":
            ax.plot([left, right], [roof.rate, roof.rate], **style)
        else:
            ridge = max(left, highest / roof.rate)
            ax.plot([left, ridge], [roof.rate * left, roof.rate * ridge], **style)
    for point, size in zip(finite, _sizes(finite), strict=True):
        ax.plot(
            point.intensity,
            point.rate,
            linestyle="none",
            marker=_MARKERS[_unit(point.compute)],
            markersize=size,
            markerfacecolor=_colour(point.move) if point.move != MEMORY else "white",
            markeredgecolor=_colour(point.compute) if point.move == MEMORY else "black",
            markeredgewidth=1.2 if point.move == MEMORY else 0.6,
            zorder=3,
        )
    ax.set(xscale="log", yscale="log", xlim=(left, right), ylim=(bottom, top))
    only_memory = all(p.move == MEMORY for p in finite)
    per = "byte of main memory" if only_memory else "byte of the path"
    ax.set(xlabel=f"operations per {per}", ylabel="10⁹ operations per second")
    ax.grid(which="major", color="0.92", linewidth=0.5)
    ax.set_axisbelow(True)
    width = figure_of(ax).get_size_inches()[0]
    ax.set_title("\n".join(title_rows(line, width)), loc="left")
    for unit in dict.fromkeys(_unit(p.compute) for p in finite):
        ax.plot(
            [],
            [],
            linestyle="none",
            marker=_MARKERS[unit],
            markerfacecolor="white",
            markeredgecolor=_COMPUTE[unit],
            label=f"{unit.lower()}{'' if only_memory else ', in the colour of its path; empty: main memory'}",
        )
    if line.binding == LATENCY:
        ax.text(0.99, 0.02, "latency binds, not a roof", transform=ax.transAxes, ha="right", va="bottom")
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, 0), borderaxespad=BELOW, ncols=2, handlelength=2.6)
    _name_points(finite, ax)
    place_names(ax)
    return ax


def title_rows(line: Roofline, width: float) -> list[str]:
    """Return title and verdict as they fit above the axes of a figure of a width in inches."""
    chars = max(30, int((width - 0.9) * 17))
    return [row for words in (line.title, line.verdict) for row in textwrap.wrap(words, chars)]


def legend_rows(line: Roofline) -> int:
    """Return how many rows the roofs take in a legend of one column."""
    return sum(1 + _label(roof, "").count("\n") for roof in line.roofs)


def _sizes(points: list[Point]) -> list[float]:
    """Return the sizes of markers: smaller on top of others, so that all are seen."""
    sizes = []
    for number, point in enumerate(points):
        under = sum(
            abs(log10(p.intensity / point.intensity)) < 0.04 and abs(log10(p.rate / point.rate)) < 0.04
            for p in points[:number]
        )
        sizes.append(max(3.0, 8.0 - 2.5 * under))
    return sizes


def _limits(line: Roofline, points: list[Point]) -> tuple[float, float, float, float]:
    """Return the window: all points, the flat roofs, and where diagonals meet the highest of them."""
    flat = [r.rate for r in line.roofs if r.kind == "compute"]
    moves = [r.rate for r in line.roofs if r.kind == "move"]
    rates = [p.rate for p in points]
    top = max([*flat, *rates], default=1.0)
    ridges = [top / m for m in moves if m]
    xs = [*(p.intensity for p in points), *ridges]
    bottom = min([*rates, *flat], default=0.1)
    left, right = min(xs, default=0.1) / 4, max(xs, default=10.0) * 4
    return left, right, min(bottom / 5, top / 100), top * 3


def _name_points(points: list[Point], ax: Axes) -> None:
    """Write the runs of a figure with several beside their points."""
    for point in points:
        if point.run:
            ax.annotate(
                point.run,
                (point.intensity, point.rate),
                textcoords="offset points",
                xytext=(6, -8),
                fontsize=7,
                va="center",
                gid=_NAME,
            )


def place_names(ax: Axes) -> None:
    """Move the names of points to where they touch neither each other, nor points, nor the edge.

    Every name takes the first free one of some places around its point, the nearest first; where none is free
    it stays at the first. To be called again after a layout changed the size of the axes.
    """
    from matplotlib.text import Annotation

    names = [t for t in ax.texts if isinstance(t, Annotation) and t.get_gid() == _NAME]
    figure = figure_of(ax)
    if not names:
        return
    scale = figure.dpi / 72
    others = [text for text in ax.texts if text.get_gid() != _NAME]
    taken = [text.get_window_extent().extents for text in others]
    for drawn in ax.lines:
        at = np.asarray(drawn.get_xydata())
        if drawn.get_linestyle() == "None" and len(at):
            x, y = ax.transData.transform(at)[0]
            half = scale * drawn.get_markersize() / 2
            taken.append((x - half, y - half, x + half, y + half))
    edge = ax.get_window_extent().extents
    for text in names:
        boxes = []
        for right, dx, dy in _PLACES:
            text.set(ha="left" if right else "right")
            text.xyann = (dx, dy)
            boxes.append(text.get_window_extent().extents)
        free = [
            at for at, box in enumerate(boxes) if _inside(box, edge) and not any(_meet(box, t) for t in taken)
        ]
        best = free[0] if free else 0
        right, dx, dy = _PLACES[best]
        text.set(ha="left" if right else "right")
        text.xyann = (dx, dy)
        taken.append(boxes[best])


def _inside(box: Any, edge: Any) -> bool:
    return bool(box[0] >= edge[0] and box[1] >= edge[1] and box[2] <= edge[2] and box[3] <= edge[3])


def _meet(a: Any, b: Any) -> bool:
    return bool(a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3])


def _label(roof: Roof, mark: str) -> str:
    unit = "Gop/s" if roof.kind == "compute" else "GB/s"
    whose = f" of {', '.join(roof.runs)}" if roof.runs else ""
    reached = f"{'up to ' if roof.shared else ''}{roof.utilization:.0%} reached"
    gap = "  " if len(whose) < _WHOSE else "\n"
    return f"{roof.name}{whose}{gap}{roof.rate:,.0f} {unit}, {reached}{f'  ← {mark}' if mark else ''}"


def _unit(name: str) -> str:
    """Return the component without the kind of its core."""
    return name.rpartition(" ")[2]


def _colour(name: str) -> str:
    if name == MEMORY:
        return BLACK
    unit = _unit(name)
    return _COMPUTE.get(unit) or _MOVES[unit]
