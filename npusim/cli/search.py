"""The command `npusim search`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from npusim.cli.commands import app
from npusim.cli.options import AsJson
from npusim.cli.screen import document, show, show_report
from npusim.cli.sweep import progress_line
from npusim.errors import MismatchError
from npusim.sweeps.search import search
from npusim.sweeps.text import search_text


@app.command("search")
def search_command(
    space: Annotated[str, typer.Argument(metavar="SPACE.yaml", help="Space of a sweep.", show_default=False)],
    minimize: Annotated[
        list[str],
        typer.Option(
            "--minimize",
            metavar="FORMULA",
            help="Column, number of the chip, area.NAME or arithmetic of these; repeat it for a front.",
        ),
    ] = ["total_cycles"],  # noqa: B006  # typer takes the default as it is and never changes it
    trials: Annotated[int, typer.Option("-n", "--trials", metavar="N", help="Different points to run.")] = 50,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Seed of the sampler.")] = 0,
    sampler: Annotated[
        Literal["tpe", "nsga2", "random"], typer.Option("--sampler", help="Sampler of Optuna.")
    ] = "tpe",
    jobs: Annotated[
        int, typer.Option("-j", "--jobs", metavar="N", help="Points that are chosen and run at a time.")
    ] = 1,
    resume: Annotated[bool, typer.Option("--resume", help="Keep the rows in DIR and go on.")] = False,
    output: Annotated[
        str | None,
        typer.Option("-o", "--output", metavar="DIR", help="Folder of the rows; by default searches/NAME."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Look for the points of a space with the least cycles, or with the best of several formulas."""
    folder = output if output is not None else str(Path("searches") / (Path(space).stem or "search"))
    with document(as_json), progress_line() as line:
        found = search(
            space,
            minimize=minimize,
            trials=trials,
            seed=seed,
            sampler=sampler,
            output=folder,
            resume=resume,
            jobs=jobs,
            progress=line,
        )
    if as_json:
        show(json.dumps(found.to_dict(), indent=2) + "\n")
    else:
        show_report(search_text(found, next_step=f"{folder} holds rows.jsonl, rows.csv and sweep.json"))
    if not found.front:
        raise MismatchError(
            f"search: none of {len(found.rows)} points ran to right values; see {folder}/rows.csv"
        )
