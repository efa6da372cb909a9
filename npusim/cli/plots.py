"""The commands `npusim plot ...`: pictures of runs that were kept."""

from __future__ import annotations

from typing import Annotated

import typer

from npusim.cli.commands import app
from npusim.cli.looking import RunName
from npusim.cli.screen import show
from npusim.errors import ConfigError
from npusim.plots.files import (
    Width,
    plot_bandwidth,
    plot_gantt,
    plot_occupancy,
    plot_pipes,
    plot_roofline,
    plot_sweep,
)
from npusim.report.kept import open_run
from npusim.sweeps.kept import open_rows

plot = typer.Typer(no_args_is_help=False, help="Draw rooflines, pipes, what happened when, and sweeps.")
app.add_typer(plot, name="plot")

File = Annotated[
    str, typer.Option("-o", "--output", metavar="FILE", help="Picture to write: .png, .svg or .pdf.")
]
WidthOption = Annotated[Width, typer.Option("--width", help="Width of a column or a page of a paper.")]
Cores = Annotated[
    list[str], typer.Option("--core", metavar="CORE", help="Core to show, as core0.vec1; may be repeated.")
]


@plot.command("roofline")
def roofline_command(
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="Folders of npusim run --spans -o.")],
    output: File = "roofline.png",
    classic: Annotated[
        bool, typer.Option("--classic", help="Rates over operations per byte of main memory, for any runs.")
    ] = False,
    scalar: Annotated[bool, typer.Option("--scalar", help="Show the scalar units, too.")] = False,
    width: WidthOption = "page",
) -> None:
    """Draw the roofs of every unit and path that a run used, its points, and what binds."""
    if classic and scalar:
        raise ConfigError("--scalar belongs to the view of components; leave it or --classic out")
    verdict = plot_roofline(
        [open_run(run) for run in runs], output, classic=classic, scalar=scalar, width=width
    )
    show(f"{output}: {verdict}\n")


@plot.command("pipes")
def pipes_command(
    run: RunName,
    output: File = "pipes.png",
    core: Cores = [],  # noqa: B006  # typer takes the default as it is and never changes it
    width: WidthOption = "page",
) -> None:
    """Draw for every pipe how long it worked, and waited by cause."""
    plot_pipes(open_run(run), output, cores=core, width=width)
    show(f"{output}\n")


@plot.command("gantt")
def gantt_command(
    run: RunName,
    output: File = "gantt.png",
    core: Cores = [],  # noqa: B006
    first: Annotated[int, typer.Option("--from", metavar="CYCLE", min=0, help="First cycle to show.")] = 0,
    last: Annotated[
        int | None,
        typer.Option("--to", metavar="CYCLE", min=1, help="Cycle to stop at; the end by default."),
    ] = None,
    width: WidthOption = "page",
) -> None:
    """Draw who worked and waited when; without --core on the first AI core."""
    kept = open_run(run)
    window = (first, kept.report.total_cycles if last is None else last)
    plot_gantt(kept, output, cores=core, window=window, width=width)
    show(f"{output}\n")


@plot.command("bandwidth")
def bandwidth_command(run: RunName, output: File = "bandwidth.png", width: WidthOption = "page") -> None:
    """Draw the traffic with L2 and main memory over time, and the share of bytes that hit L2."""
    plot_bandwidth(open_run(run), output, width=width)
    show(f"{output}\n")


@plot.command("occupancy")
def occupancy_command(run: RunName, output: File = "occupancy.png", width: WidthOption = "page") -> None:
    """Draw how full the buffers and queues of the first group of cores are over time."""
    plot_occupancy(open_run(run), output, width=width)
    show(f"{output}\n")


@plot.command("sweep")
def sweep_command(
    rows: Annotated[str, typer.Argument(metavar="DIR", help="Folder of npusim sweep, or its rows.jsonl.")],
    output: File = "sweep.png",
    column: Annotated[str, typer.Option("--column", metavar="NAME", help="Column to draw.")] = "time_us",
    x: Annotated[
        str | None,
        typer.Option("--x", metavar="AXIS", help="Axis to draw over; by default that of most numbers."),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option("--by", metavar="AXIS", help="Second axis; by default the one that changes most."),
    ] = None,
    width: WidthOption = "page",
) -> None:
    """Draw a column of a sweep over one or two of its axes."""
    kept = open_rows(rows)
    plot_sweep(kept.rows, kept.axes, output, column=column, x=x, by=by, width=width)
    show(f"{output}\n")
