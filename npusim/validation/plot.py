"""Measured against simulated times."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from npusim.errors import ConfigError
from npusim.validation.validate import Validation

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MARKERS = "osD^vP*X<>ph"
_COLOURS = 10


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
        ax.legend(fontsize=7, frameon=False)
    ax.set(xscale="log", yscale="log", xlabel="measured, us", ylabel="simulated, us")
    return ax


def plot_errors(found: Validation, ax: Axes) -> Axes:
    """Draw the error of every such row over its measured time, with the band of 5 % either way."""
    ax.axhspan(-5, 5, color="0.92", zorder=0)
    for number, group in enumerate(found.groups):
        points = [
            (r.measured_us, r.error_percent)
            for r in found.of(group.name)
            if r.measured_us is not None and r.error_percent is not None and r.by == "percent"
        ]
        if points:
            x, y = zip(*points, strict=True)
            ax.scatter(x, y, s=8, **_style(number))
    ax.set(xscale="log", xlabel="measured, us", ylabel="error, %")
    return ax


def save_plot(found: Validation, file: str) -> None:
    """Write both panels to a file; its ending decides the format.

    Raises `ConfigError` where it cannot be written.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 7.2), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
    plot_times(found, above).set_xlabel("")
    plot_errors(found, below)
    try:
        figure.savefig(Path(file), dpi=150)
    except (OSError, ValueError) as error:
        raise ConfigError(f"--plot {file}: cannot be written: {error}") from None


def _style(number: int) -> dict[str, Any]:
    return {"color": f"C{number % _COLOURS}", "marker": _MARKERS[number % len(_MARKERS)], "linewidths": 0}
