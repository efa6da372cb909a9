"""Published curves: times over a length, measured beside simulated, and how they are drawn."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from npusim.errors import ConfigError, did_you_mean
from npusim.plots.style import BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION
from npusim.validation.validate import Validation

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = (BLUE, VERMILION, GREEN, ORANGE, PURPLE, SKY)


@dataclass(frozen=True, slots=True)
class Curve:
    """Rows of one group in the order of a parameter; a case that was measured twice is there twice."""

    name: str
    over: str
    """The parameter."""
    lengths: tuple[int, ...]
    measured_us: tuple[float, ...]
    simulated_us: tuple[float, ...]
    """Both with the host time that the published number holds."""


def curve(found: Validation, group: str, name: str, *, over: str = "n", **params: object) -> Curve:
    """Return the rows of a group that are times and have these parameters, sorted by the parameter `over`.

    `name` is what a legend calls the curve. Rows that failed are left out. Raises `ConfigError` for an
    unknown group, and where no row is left.
    """
    known = [g.name for g in found.groups]
    if group not in known:
        raise ConfigError(f"validation: no group {group!r}{did_you_mean(group, known)}")
    rows = {row.id: dict(row.params) for row in found.rows if row.group == group}
    wanted = {key: str(value) for key, value in params.items()}
    points = sorted(
        (int(rows[r.id][over]), r.measured_us, r.simulated_us)
        for r in found.of(group)
        if r.measured_us is not None and r.simulated_us is not None
        if over in rows[r.id] and wanted.items() <= rows[r.id].items()
    )
    if not points:
        words = " and ".join([over, *(f"{key}={value}" for key, value in wanted.items())])
        raise ConfigError(f"validation: {group}: no row with {words} is a time")
    lengths, measured, simulated = zip(*points, strict=True)
    return Curve(name, over, lengths, measured, simulated)


def rate_curves(curves: Iterable[Curve], ax: Axes, *, per_element: float, unit: str = "GB/s") -> Axes:
    """Draw `per_element` times the length over the time, in thousands a microsecond: published as marks,
    simulated as lines. With bytes for an element that is 10^9 bytes per second; `unit` names it.
    """
    for number, line in enumerate(curves):
        colour = _COLOURS[number % len(_COLOURS)]
        rates = [
            [per_element * n / us / 1000 for n, us in zip(line.lengths, times, strict=True)]
            for times in (line.measured_us, line.simulated_us)
        ]
        marks = {"linestyle": "none", "marker": "o", "markersize": 3.5, "markerfacecolor": "none"}
        ax.plot(line.lengths, rates[0], color=colour, label=f"{line.name}, published", **marks)
        ax.plot(line.lengths, rates[1], color=colour, linewidth=1.2, label=f"{line.name}, simulated")
        ax.set_xlabel(f"{line.over}, elements")
    ax.set(xscale="log", ylabel=unit)
    ax.set_ylim(bottom=0)
    ax.legend()
    return ax


def time_curves(curves: Iterable[Curve], ax: Axes) -> Axes:
    """Draw the time in microseconds over the length: published as marks, simulated as lines."""
    for number, line in enumerate(curves):
        colour = _COLOURS[number % len(_COLOURS)]
        marks = {"linestyle": "none", "marker": "o", "markersize": 3.5, "markerfacecolor": "none"}
        ax.plot(line.lengths, line.measured_us, color=colour, label=f"{line.name}, published", **marks)
        ax.plot(line.lengths, line.simulated_us, color=colour, linewidth=1.2, label=f"{line.name}, simulated")
        ax.set_xlabel(f"{line.over}, elements")
    ax.set(xscale="log", yscale="log", ylabel="time, µs")
    ax.legend()
    return ax
