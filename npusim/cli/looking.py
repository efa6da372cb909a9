"""The commands that look at runs that were kept: `trace`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from npusim.cli.commands import app
from npusim.cli.screen import show
from npusim.report.kept import open_run
from npusim.trace.write import ENDINGS, Format, check_trace_file, format_of, write_trace

RunName = Annotated[
    str, typer.Argument(metavar="RUN", help="Folder of npusim run --spans -o.", show_default=False)
]


@app.command()
def trace(
    run: RunName,
    form: Annotated[
        Format | None,
        typer.Option("--format", help="chrome (JSON) or perfetto (needs npusim[perfetto])."),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option("-o", "--output", metavar="FILE", help="File to write; RUN/trace.json by default."),
    ] = None,
) -> None:
    """Write who did what when in a run, for ui.perfetto.dev or chrome://tracing."""
    kept = open_run(run)
    form = form or (format_of(output) if output is not None else "chrome")
    file = output if output is not None else str(Path(run, f"trace{ENDINGS[form]}"))
    check_trace_file(file, form)
    write_trace(kept.timeline, file, form)
    show(f"{file}: open it in ui.perfetto.dev\n")
