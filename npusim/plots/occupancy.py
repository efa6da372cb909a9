"""How full buffers and queues are over time, as strips: one row each, the darker the fuller."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from npusim.isa.instruction import Array
from npusim.plots.style import figure_of
from npusim.report.occupancy import Occupancy
from npusim.units import KIB

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_PERCENT = "occupied, %"
_HALF = 50.0
"""Percent of a buffer below which the colours show what is used, not the whole."""


def buffers(found: Occupancy, ax: Axes) -> Axes:
    """Draw the percent of every buffer that holds data which is still read, over time.

    The name of a buffer says how much of it is occupied at most. The darkest colour is the whole buffer, or
    where no buffer is ever half full, what the fullest one holds.
    """
    shares = {name: 100 * values / found.sizes[name] for name, values in found.buffers.items()}
    peaks = {name: float(values.max(initial=0.0)) for name, values in shares.items()}
    rows = {
        f"{name}, ≤ {peaks[name]:.3g}% of {found.sizes[name] // KIB} KiB": values
        for name, values in shares.items()
    }
    most = max(peaks.values(), default=0.0)
    return _strips(found, rows, ax, _PERCENT, most if 0 < most < _HALF else 100.0)


def queues(found: Occupancy, ax: Axes) -> Axes:
    """Draw the number of instructions that wait in the queue of every pipe, over time."""
    rows = {f"{name}, {found.depths[name]} deep": values for name, values in found.queues.items()}
    most = max((float(values.max()) for values in rows.values()), default=0.0)
    return _strips(found, rows, ax, "instructions", max(1.0, np.ceil(most)))


def _strips(found: Occupancy, rows: dict[str, Array], ax: Axes, unit: str, most: float) -> Axes:
    from matplotlib.ticker import MaxNLocator

    us = found.edges / found.clock_mhz
    if rows:
        drawn = ax.pcolormesh(
            us, np.arange(len(rows) + 1), np.array([*rows.values()]), cmap="Blues", vmin=0, vmax=most
        )
        drawn.set_rasterized(True)
        figure_of(ax).colorbar(
            drawn, ax=ax, label=unit, pad=0.02, ticks=MaxNLocator(5, integer=most >= 5 or unit != _PERCENT)
        )
    ax.hlines(np.arange(1, len(rows)), us[0], us[-1], color="0.8", linewidth=0.6)
    ax.set_yticks(np.arange(len(rows)) + 0.5, list(rows))
    ax.set_ylim(len(rows) or 1, 0)
    ax.tick_params(axis="y", length=0)
    ax.set(xlim=(us[0], us[-1]), xlabel="time, µs")
    ax.set_title(f"{found.program} on {found.chip}", loc="left")
    return ax
