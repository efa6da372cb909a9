"""Measured against simulated times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from npusim.errors import ConfigError
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
    return _over(
        ax,
        "µs",
        {
            group.name: [
                (r.measured_us, r.simulated_us)
                for r in found.of(group.name)
                if r.measured_us is not None and r.simulated_us is not None
            ]
            for group in found.groups
        },
    )


def plot_values(found: Validation, ax: Axes) -> Axes:
    """Draw simulated over measured value of every row that is no time, each in its own unit, and the line
    where both are equal.
    """
    groups: dict[str, list[tuple[float, float]]] = {}
    for group in found.groups:
        rows = [r for r in found.of(group.name) if r.measured_us is None and r.simulated is not None]
        units = ", ".join(dict.fromkeys(r.unit for r in rows))
        groups[f"{group.name}: {units}"] = [
            (r.measured, r.simulated) for r in rows if r.simulated is not None
        ]
    return _over(ax, "in the unit of the row", groups)


def _over(ax: Axes, unit: str, groups: dict[str, list[tuple[float, float]]]) -> Axes:
    every: list[float] = []
    for number, (name, points) in enumerate(groups.items()):
        if not points:
            continue
        x, y = zip(*points, strict=True)
        every += [*x, *y]
        ax.scatter(x, y, s=14, label=name, **_style(number))
    if every:
        ends = [min(every), max(every)]
        if min(every) > 0:  # a few values that are nearly the same have no ticks of their own
            ax.set(xlim=(min(every) / 2, max(every) * 2), ylim=(min(every) / 2, max(every) * 2))
        ax.plot(ends, ends, color="0.6", linewidth=0.8, zorder=0)
        ax.legend(loc="upper center", bbox_to_anchor=(0.5, 0), borderaxespad=BELOW, ncols=4)
    ax.set(xscale="log", yscale="log", xlabel=f"measured, {unit}", ylabel=f"simulated, {unit}")
    return ax


def plot_errors(found: Validation, ax: Axes, *, times: bool = True) -> Axes:
    """Draw the error in percent of every row that is a time and is scored by it, or of those that are no
    times, over what was measured, with the band of 5 % either way.
    """
    ax.axhspan(-BAND, BAND, color="0.92", zorder=0)
    for number, group in enumerate(found.groups):
        points = [
            (r.measured if r.measured_us is None else r.measured_us, r.error_percent)
            for r in found.of(group.name)
            if r.error_percent is not None
            and (r.measured_us is not None) is times
            and (r.by == "percent" or not times)
        ]
        if points:
            x, y = zip(*points, strict=True)
            ax.scatter(x, y, s=8, **_style(number))
    ax.set(xscale="log", xlabel=f"measured, {'µs' if times else 'in the unit of the row'}", ylabel="error, %")
    return ax


def save_plot(found: Validation, file: str) -> None:
    """Write value and error of all rows to a file, times and what is no time side by side; the ending of the
    file decides the format.

    Raises `ConfigError` where no row was simulated, and where the file cannot be written.
    """
    check_plot_file(file)
    groups = sum(any(r.simulated is not None for r in found.of(g.name)) for g in found.groups)
    if not groups:
        failed = next((f"; the first: {r.id}: {r.failure}" for r in found.results if r.failure), "")
        raise ConfigError(
            f"{file}: nothing to draw: none of {len(found.rows)} rows ran to a value{failed}"
            if found.results
            else f"{file}: nothing to draw: the rows of these groups are kept as data; add --all to run them"
        )
    ran = [r.measured_us is not None for r in found.results if r.simulated is not None]
    kinds = [times for times in (True, False) if times in ran]

    def draw(figure: Figure) -> None:
        panels = figure.subplots(2, len(kinds), sharex="col", height_ratios=[3, 1], squeeze=False)
        shown: dict[str, Any] = {}
        for (above, below), times in zip(panels.T, kinds, strict=True):
            (plot_times(found, above) if times else plot_values(found, above)).set_xlabel("")
            plot_errors(found, below, times=times)
            legend = above.get_legend()
            names = [text.get_text() for text in legend.get_texts()]
            shown |= dict(zip(names, legend.legend_handles, strict=True))
            legend.remove()
        figure.legend(list(shown.values()), list(shown), loc="outside lower center", ncols=4)

    save_figure(draw, file, width=WIDTHS["page"], height=5.6 + 0.16 * (groups // 4))


def _style(number: int) -> dict[str, Any]:
    """Return the colour and marker of a group; together they are its own."""
    return {
        "color": _COLOURS[number % len(_COLOURS)],
        "marker": _MARKERS[number % len(_MARKERS)],
        "linewidths": 0,
    }
