"""The commands that look at runs that were kept: `trace`, `export` and `compare`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from npusim.cli.commands import app
from npusim.cli.options import AsJson
from npusim.cli.screen import show
from npusim.errors import MismatchError
from npusim.report.comparison import compare_runs, comparison_text
from npusim.report.kept import open_run
from npusim.trace.msprof import write_msprof
from npusim.trace.write import ENDINGS, Format, check_trace_file, write_trace

RunName = Annotated[
    str, typer.Argument(metavar="RUN", help="Folder of npusim run --spans -o.", show_default=False)
]


@app.command()
def trace(
    run: RunName,
    form: Annotated[
        Format | None,
        typer.Option("--format", help="chrome (JSON) or perfetto (needs the package perfetto)."),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option("-o", "--output", metavar="FILE", help="File to write; RUN/trace.json by default."),
    ] = None,
) -> None:
    """Write who did what when in a run, for ui.perfetto.dev or chrome://tracing."""
    kept = open_run(run)
    file = output if output is not None else str(Path(run, f"trace{ENDINGS[form or 'chrome']}"))
    check_trace_file(file, form)
    write_trace(kept.timeline, file, form)
    show(f"{file}: open it in ui.perfetto.dev\n")


export = typer.Typer(no_args_is_help=False, help="Write a run in the shape of another tool's files.")
app.add_typer(export, name="export")


@export.command("msprof")
def export_msprof(
    run: RunName,
    output: Annotated[
        str | None,
        typer.Option("-o", "--output", metavar="DIR", help="Folder to write; RUN/msprof by default."),
    ] = None,
) -> None:
    """Write tables and traces with the folders, lanes and columns of the vendor's operator profiler."""
    kept = open_run(run)
    folder = output if output is not None else str(Path(run, "msprof"))
    write_msprof(kept.timeline, kept.report, folder)
    show(f"{folder}: PipeUtilization.csv, and for every core instructions, source lines and a trace\n")


@export.callback()
def _export() -> None:
    """Write a run in the shape of another tool's files."""


@app.command()
def compare(
    before: Annotated[
        str, typer.Argument(metavar="RUN", help="Folder of npusim run -o.", show_default=False)
    ],
    after: Annotated[str, typer.Argument(metavar="RUN", help="Another one.", show_default=False)],
    fail_over: Annotated[
        float | None,
        typer.Option(
            "--fail-over",
            metavar="PERCENT",
            min=0,
            help="Exit 1 where the second takes so many percent more cycles.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say what changed between two runs: in the chip, the program, and the cycles by cause."""
    found = compare_runs(open_run(before), open_run(after))
    show(json.dumps(found.to_dict(), indent=2) + "\n" if as_json else comparison_text(found))
    if fail_over is not None and found.growth_percent > fail_over:
        raise MismatchError(
            f"compare: {after} takes {found.growth_percent:,.2f} % more cycles than {before}, "
            f"over the allowed {fail_over:g} %"
        )
