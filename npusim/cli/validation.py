"""The command `npusim validate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from npusim.cli.commands import app
from npusim.cli.options import AsJson, Overrides, check_overrides
from npusim.cli.screen import document, progress, show
from npusim.errors import ConfigError, MismatchError, NpusimError
from npusim.plots.style import check_plot_file
from npusim.validation.plot import save_plot
from npusim.validation.results import write_folder
from npusim.validation.rows import read_published
from npusim.validation.text import validation_text
from npusim.validation.validate import validate


def _known_groups(incomplete: str) -> list[str]:
    try:
        return [g.name for g in read_published().groups if g.name.startswith(incomplete)]
    except NpusimError:
        return []


@app.command("validate")
def validate_command(
    groups: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[GROUP]...", help="Groups to run; all by default.", autocompletion=_known_groups
        ),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Run also the rows that are kept as data: hours instead of minutes.")
    ] = False,
    jobs: Annotated[int, typer.Option("-j", "--jobs", metavar="N", min=1, help="Processes to use.")] = 1,
    overrides: Overrides = [],  # noqa: B006  # typer takes the default as it is and never changes it
    output: Annotated[
        str | None,
        typer.Option("-o", "--output", metavar="DIR", help="Write results.csv and .json and page.md there."),
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the results of other groups that are in DIR.")
    ] = False,
    plot: Annotated[
        str | None,
        typer.Option("--plot", metavar="FILE", help="Plot measured against simulated times."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare the simulator with published measurements of devices."""
    if keep and output is None:
        raise ConfigError("--keep needs -o DIR, the folder with the results to keep")
    check_overrides(overrides)
    if plot is not None:
        check_plot_file(plot)
    with document(as_json), progress() as line:
        found = validate(
            *(groups or ()),
            every=every,
            jobs=jobs,
            overrides=overrides,
            progress=lambda name, done, total: line(f"{done} of {total} runs; last: {name}", 0),
        )
        if output is not None:
            write_folder(found, Path(output), keep=keep)
        if plot is not None:
            save_plot(found, plot)
    show(found.to_json() if as_json else validation_text(found))
    if not found.ok:
        bad = ", ".join(s.name for s in found.scores if s.verdict in ("miss", "failed", "not run"))
        raise MismatchError(f"validation: rows failed, or a target is missed without a named reason: {bad}")
