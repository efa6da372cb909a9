"""The cycles of a sweep with the lower bounds they lie on: where the bottleneck is, and where it moves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from npusim.errors import ConfigError, did_you_mean
from npusim.plots.style import BELOW, BLACK, BLUE, GREEN, ORANGE, VERMILION

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BOUNDS = {
    "compute": ("busiest pipe or port", BLUE, "--"),
    "l2": ("L2", GREEN, "-."),
    "hbm": ("main memory", VERMILION, ":"),
    "flag_only": ("chain of flags", ORANGE, (0, (5, 1))),
}


def bounds_over(rows: Sequence[Mapping[str, Any]], axis: str, ax: Axes) -> Axes:
    """Draw thousands of cycles of the rows of a sweep over one of its axes, and the bounds of the same runs.

    Values that are no numbers stand side by side, in the order of the rows. Rows that failed are left out.
    Raises `ConfigError` where the rows have no such axis, or none ran.
    """
    ran = [row for row in rows if row.get("status") != "failed"]
    if not ran:
        raise ConfigError("plot: no row of the sweep ran; look at its column `error`")
    if axis not in ran[0]:
        raise ConfigError(f"plot: no column {axis}{did_you_mean(axis, list(ran[0]))}")
    x: list[float] = list(range(len(ran)))
    if all(isinstance(row[axis], int | float) for row in ran):
        ran.sort(key=lambda row: float(row[axis]))
        ax.locator_params(axis="x", integer=True)
        x = [float(row[axis]) for row in ran]
    else:
        ax.set_xticks(x, [str(row[axis]) for row in ran])
    for name, (label, colour, dashes) in _BOUNDS.items():
        y = [row[f"bounds.{name}_cycles"] / 1000 for row in ran]
        ax.plot(x, y, color=colour, linestyle=dashes, linewidth=1.2, label=f"bound: {label}")
    cycles = [row["total_cycles"] / 1000 for row in ran]
    ax.plot(x, cycles, color=BLACK, marker="o", markersize=3.5, linewidth=1.4, label="cycles")
    ax.set(xlabel=axis, ylabel="thousand cycles")
    ax.set_title(f"{ran[0]['program']} on {ran[0]['chip']}", loc="left")
    ax.set_ylim(bottom=0)
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, 0), borderaxespad=BELOW, ncols=3)
    return ax
