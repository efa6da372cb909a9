"""Published curves: times over a length, measured beside simulated, and how they are drawn."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from npusim.errors import ConfigError, did_you_mean
from npusim.plots.style import BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION
from npusim.validation.validate import Validation

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = (BLUE, VERMILION, GREEN, ORANGE, PURPLE, SKY)
_FEW = 6
"""Simulated points below which each is marked."""
_Points = Sequence[tuple[int, float]]


@dataclass(frozen=True, slots=True)
class Curve:
    """Rows of one group over one of their parameters, in its order; a case that was measured twice is there
    twice. Times are in microseconds and hold the host time of the published numbers.
    """

    name: str
    over: str
    """The parameter."""
    measured: tuple[tuple[int, float], ...]
    """Parameter and published time of every row, those that are kept as data and not run among them."""
    simulated: tuple[tuple[int, float], ...]
    """Parameter and simulated time of the rows that were run."""


def curve(found: Validation, group: str, name: str, *, over: str = "n", **params: object) -> Curve:
    """Return the rows of a group that are times and have these parameters, sorted by the parameter `over`.

    `name` is what a legend calls the curve. Raises `ConfigError` for an unknown group, and where no row is
    left.
    """
    known = [g.name for g in found.groups]
    if group not in known:
        raise ConfigError(f"validation: no group {group!r}{did_you_mean(group, known)}")
    wanted = {key: str(value) for key, value in params.items()}
    at: dict[str, int] = {}
    measured = []
    for row in found.rows:
        has = dict(row.params)
        if row.group == group and over in has and wanted.items() <= has.items() and row.measured_us:
            at[row.id] = int(has[over])
            measured.append((at[row.id], row.measured_us))
    if not measured:
        words = " and ".join([over, *(f"{key}={value}" for key, value in wanted.items())])
        raise ConfigError(f"validation: {group}: no row with {words} is a time")
    simulated = [(at[r.id], r.simulated_us) for r in found.of(group) if r.id in at and r.simulated_us]
    return Curve(name, over, tuple(sorted(measured)), tuple(sorted(simulated)))


def rate_curves(curves: Iterable[Curve], ax: Axes, *, per_step: float, unit: str = "GB/s") -> Axes:
    """Draw rates, `per_step` times the parameter over the time, in thousands a microsecond: published as
    circles, simulated as lines. With bytes for a step of the parameter that is 10^9 bytes per second; `unit`
    names it.
    """
    for line in curves:
        measured = [(n, per_step * n / us / 1000) for n, us in line.measured]
        simulated = [(n, per_step * n / us / 1000) for n, us in line.simulated]
        _draw(line, measured, simulated, ax)
    ax.set(xscale="log", ylabel=unit)
    ax.set_ylim(bottom=0)
    ax.legend()
    return ax


def time_curves(curves: Iterable[Curve], ax: Axes) -> Axes:
    """Draw the time in microseconds: published as circles, simulated as lines."""
    for line in curves:
        _draw(line, line.measured, line.simulated, ax)
    ax.set(xscale="log", yscale="log", ylabel="time, µs")
    ax.legend()
    return ax


def _draw(line: Curve, measured: _Points, simulated: _Points, ax: Axes) -> None:
    colour = _COLOURS[len(ax.lines) // 2 % len(_COLOURS)]
    x, y = zip(*measured, strict=True)
    ax.plot(
        x,
        y,
        color=colour,
        linestyle="none",
        marker="o",
        markersize=3.5,
        markerfacecolor="none",
        label=f"{line.name}, published",
    )
    x, y = zip(*simulated, strict=True) if simulated else ((), ())
    few = "." if len(simulated) < _FEW else ""
    ax.plot(x, y, color=colour, linewidth=1.2, marker=few, label=f"{line.name}, simulated")
    ax.set_xlabel(line.over)
