"""Measured against simulated times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from npusim.plots.style import (
    BELOW,
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    SKY,
    VERMILION,
    WIDTHS,
    check_plot_file,
    save_figure,
)
from npusim.validation.validate import Validation

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MARKERS = "osD^vP*X<>p"  # 11, so that with 8 colours 88 groups look different
_COLOURS = (BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY, BLACK, GREY)
BAND = 5.0
"""Percent of error either way that are shaded."""


def plot_times(found: Validation, ax: Axes) -> Axes:
    """Draw simulated over measured time of every row that is a time, and the line where both are equal."""
    every: list[float] = []
    for number, group in enumerate(found.groups):
        points = [
            (r.measured_us, r.simulated_us)
            for r in found.of(group.name)
            if r.measured_us is not None and r.simulated_us is not None
        ]
        if not points:
            continue
        x, y = zip(*points, strict=True)
        every += [*x, *y]
        ax.scatter(x, y, s=14, label=group.name, **_style(number))
    if every:
        ends = [min(every), max(every)]
        ax.plot(ends, ends, color="0.6", linewidth=0.8, zorder=0)
        ax.legend(loc="upper center", bbox_to_anchor=(0.5, 0), borderaxespad=BELOW, ncols=4)
    ax.set(xscale="log", yscale="log", xlabel="measured, µs", ylabel="simulated, µs")
    return ax


def plot_errors(found: Validation, ax: Axes) -> Axes:
    """Draw the error of every such row over its measured time, with the band of 5 % either way."""
    ax.axhspan(-BAND, BAND, color="0.92", zorder=0)
    for number, group in enumerate(found.groups):
        points = [
            (r.measured_us, r.error_percent)
            for r in found.of(group.name)
            if r.measured_us is not None and r.error_percent is not None and r.by == "percent"
        ]
        if points:
            x, y = zip(*points, strict=True)
            ax.scatter(x, y, s=8, **_style(number))
    ax.set(xscale="log", xlabel="measured, µs", ylabel="error, %")
    return ax


def save_plot(found: Validation, file: str) -> None:
    """Write both panels to a file; its ending decides the format.

    Raises `ConfigError` where it cannot be written.
    """
    check_plot_file(file)
    groups = sum(any(r.simulated_us is not None for r in found.of(g.name)) for g in found.groups)

    def draw(figure: Figure) -> None:
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
        plot_times(found, above).set_xlabel("")
        plot_errors(found, below)
        legend = above.get_legend()
        if legend is not None:
            handles = [h for h in legend.legend_handles if h is not None]
            names = [text.get_text() for text in legend.get_texts()]
            legend.remove()
            figure.legend(handles, names, loc="outside lower center", ncols=4)

    save_figure(draw, file, width=WIDTHS["page"], height=5.6 + 0.16 * (groups // 4))


def _style(number: int) -> dict[str, Any]:
    """Return the colour and marker of a group; together they are its own."""
    return {
        "color": _COLOURS[number % len(_COLOURS)],
        "marker": _MARKERS[number % len(_MARKERS)],
        "linewidths": 0,
    }
