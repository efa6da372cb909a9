"""Colours, sizes and files of all plots.

Colours are those of Okabe and Ito, which people with the common kinds of colour blindness tell apart. A cause
has one colour everywhere, and bars differ in hatching, too, for prints without colour.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from npusim.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILION, PURPLE, GREY = "#F0E442", "#0072B2", "#D55E00", "#CC79A7", "#8C8C8C"

CAUSES: dict[str, tuple[str, str]] = {
    "work": (BLUE, ""),
    "flag": (ORANGE, ""),
    "cross_core": (PURPLE, "///"),
    "barrier": (VERMILION, "xxx"),
    "link": (SKY, ""),
    "issue": (YELLOW, "..."),
    "queue": (GREEN, "\\\\\\"),
    "tail": ("#E4E4E4", ""),
}
"""Colour and hatching of work and of every cause of waiting, in the order of the report."""

BELOW = 4.2
"""Font sizes between axes and a legend below them: room for ticks and the label."""

WIDTHS = {"column": 3.4, "page": 7.0}
"""Inches of a column and of a page of a paper."""

PAPER: Any = {
    "axes.prop_cycle": f"cycler('color', {[BLUE, VERMILION, GREEN, ORANGE, PURPLE, SKY, BLACK]})",
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "hatch.linewidth": 0.4,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
}
"""Settings of matplotlib for figures in papers, for `matplotlib.rc_context`."""


def figure_of(ax: Axes) -> Figure:
    """Return the figure that axes are drawn in."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    return figure


def save_figure(
    draw: Callable[[Figure], None], file: str | os.PathLike[str], *, width: float, height: float
) -> None:
    """Make a figure of a size in inches, let `draw` fill it, and write it; the ending decides the format.

    Raises `ConfigError` where it cannot be written.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(PAPER):
        figure = Figure(figsize=(width, height), layout="constrained")
        draw(figure)
        try:
            figure.savefig(Path(file), dpi=200)
        except (OSError, ValueError) as error:
            words = " ".join(str(error).split())
            raise ConfigError(f"{os.fspath(file)}: the plot cannot be written: {words}") from None


def check_plot_file(file: str) -> None:
    """Check that a plot can be written, before anything is drawn.

    Raises `ConfigError` where its ending is no format, or it has no folder.
    """
    from matplotlib.backend_bases import FigureCanvasBase

    path = Path(file)
    known = FigureCanvasBase.get_supported_filetypes()
    if path.suffix[1:].lower() not in known:
        raise ConfigError(f"{file or repr(file)}: end the name of a plot in .png, .svg or .pdf")
    if not path.parent.is_dir():
        raise ConfigError(f"{file}: there is no folder {path.parent}; make it first")
