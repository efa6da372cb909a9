"""Plots of runs that were kept, as files of the size of a column or a page of a paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from npusim.errors import ConfigError
from npusim.plots.gantt import gantt, gantt_rows
from npusim.plots.occupancy import buffers, queues
from npusim.plots.pipes import pipe_shares, pipes
from npusim.plots.roofline import legend_rows, place_names, roofline, title_rows
from npusim.plots.roofs import classic_roofline, component_roofline
from npusim.plots.style import WIDTHS, check_plot_file, save_figure
from npusim.plots.sweep import MOST_LINES, sweep_grid, sweep_plot
from npusim.plots.traffic import bandwidth, hit_rate
from npusim.report.kept import KeptRun

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Width = Literal["column", "page"]
_ROW = 0.22
"""Inches of a row of bars."""


def plot_roofline(
    runs: Sequence[KeptRun], file: str, *, classic: bool = False, scalar: bool = False, width: Width = "page"
) -> str:
    """Write a roofline and return its verdict: the component view of one run, or the classic view.

    Raises `ConfigError` for several runs in the component view, for runs of several chips, and for what
    cannot be read or written.
    """
    check_plot_file(file)
    if classic:
        if len({run.report.chip for run in runs}) > 1:
            named = ", ".join(dict.fromkeys(run.report.chip for run in runs))
            raise ConfigError(f"a roofline shows runs of one chip, not of {named}; plot them apart")
        both = [(run.components, run.chip_used) for run in runs]
        line = classic_roofline(both, _names(runs))
    elif len(runs) > 1:
        raise ConfigError(f"the roofs of components are those of one run, not of {len(runs)}; use --classic")
    else:
        line = component_roofline(runs[0].components, scalar=scalar)
    wide = width == "page"
    rows = legend_rows(line) // (2 if wide else 1)
    rows += max(0, len(title_rows(line, WIDTHS[width])) - 2)

    def draw(figure: Figure) -> None:
        ax = roofline(line, figure.add_subplot())
        _legend_below(figure, ax, 2 if wide else 1)
        figure.draw_without_rendering()  # lays out
        place_names(ax)

    save_figure(draw, file, width=WIDTHS[width], height=(3.4 if wide else 2.9) + 0.16 * rows)
    return line.verdict


def plot_pipes(run: KeptRun, file: str, *, cores: Sequence[str] = (), width: Width = "page") -> None:
    """Write the utilisation of the pipes with causes stacked.

    Raises `ConfigError` for a core that took no part, and for what cannot be written.
    """
    check_plot_file(file)
    rows = len(pipe_shares(run.report, cores))

    def draw(figure: Figure) -> None:
        ax = pipes(run.report, figure.add_subplot(), cores=cores)
        _legend_below(figure, ax, 8 if width == "page" else 3)

    save_figure(draw, file, width=WIDTHS[width], height=1.3 + _ROW * rows)


def plot_gantt(
    run: KeptRun,
    file: str,
    *,
    cores: Sequence[str] = (),
    window: tuple[int, int] | None = None,
    width: Width = "page",
) -> None:
    """Write who worked when.

    Raises `ConfigError` for a core that took no part, a window outside of the run, a run without spans, and
    for what cannot be written.
    """
    check_plot_file(file)
    rows = len(gantt_rows(run.timeline, cores, window))

    def draw(figure: Figure) -> None:
        ax = gantt(run.timeline, figure.add_subplot(), cores=cores, window=window)
        _legend_below(figure, ax, 7 if width == "page" else 2)

    save_figure(draw, file, width=WIDTHS[width], height=1.3 + _ROW * rows)


def plot_bandwidth(run: KeptRun, file: str, *, width: Width = "page") -> None:
    """Write bandwidth over time and, below, the share of bytes that hit L2.

    Raises `ConfigError` for a run without spans, and for what cannot be written.
    """
    check_plot_file(file)
    wide = width == "page"

    def draw(figure: Figure) -> None:
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=[2, 1])
        bandwidth(run.timeline, above, bins=200 if wide else 100).set_xlabel("")
        hit_rate(run.timeline, below, bins=200 if wide else 100).set_title("", loc="left")
        _legend_below(figure, above, 5 if wide else 2)

    save_figure(draw, file, width=WIDTHS[width], height=3.6)


def plot_occupancy(run: KeptRun, file: str, *, width: Width = "page") -> None:
    """Write how full buffers and, below, queues of the first group of cores are over time.

    Raises `ConfigError` for a run without spans, and for what cannot be written.
    """
    check_plot_file(file)
    found = run.occupancy
    rows = (max(1, len(found.buffers)), max(1, len(found.queues)))

    def draw(figure: Figure) -> None:
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=rows)
        buffers(found, above).set_xlabel("")
        queues(found, below).set_title("instructions in queues", loc="left")

    save_figure(draw, file, width=WIDTHS[width], height=1.4 + _ROW * sum(rows))


def plot_sweep(
    rows: Sequence[Mapping[str, Any]],
    axes: Sequence[str],
    file: str,
    *,
    column: str = "time_us",
    x: str | None = None,
    by: str | None = None,
    width: Width = "page",
) -> None:
    """Write a column of a sweep over one or two of its axes; see `sweep_grid`.

    Raises `ConfigError` for what the rows do not have, and for what cannot be written.
    """
    check_plot_file(file)
    grid = sweep_grid(rows, axes, column=column, x=x, by=by)
    mapped = len(grid.bys) > MOST_LINES
    columns = 2 if width == "page" else 1
    lines = 0 if mapped or not grid.by else ceil(len(grid.bys) / columns)

    def draw(figure: Figure) -> None:
        _legend_below(figure, sweep_plot(grid, figure.add_subplot()), columns)

    height = (1.4 + 0.16 * len(grid.bys)) if mapped else 2.6 + 0.16 * lines
    save_figure(draw, file, width=WIDTHS[width], height=min(height, 7.0))


def _names(runs: Sequence[KeptRun]) -> list[str]:
    """Return how to call runs: by their programs, where these differ, else by their folders."""
    programs = [run.report.program for run in runs]
    folders = [Path(run.shown).name or run.shown for run in runs]
    for names in (programs, folders):
        if len(set(names)) == len(names):
            return names
    shown = [run.shown for run in runs]
    return [name if shown.count(name) == 1 else f"{name} {at + 1}" for at, name in enumerate(shown)]


def _legend_below(figure: Figure, ax: Axes, columns: int) -> None:
    """Move the legend of some axes below everything, where the layout makes room for it."""
    legend = ax.get_legend()
    if legend is None:
        return
    handles, names = legend.legend_handles, [text.get_text() for text in legend.get_texts()]
    legend.remove()
    figure.legend([h for h in handles if h is not None], names, loc="outside lower center", ncols=columns)
