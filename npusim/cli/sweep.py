"""The command `npusim sweep`."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import typer

from npusim.cli.commands import app
from npusim.cli.options import AsJson
from npusim.cli.screen import document, show, show_report
from npusim.errors import ConfigError, MismatchError
from npusim.sweeps.run import Progress, sweep
from npusim.sweeps.tables import check_tables, write_parquet
from npusim.sweeps.text import sweep_text


@app.command("sweep")
def sweep_command(
    space: Annotated[
        str, typer.Argument(metavar="SPACE.yaml", help="What varies and what is fixed.", show_default=False)
    ],
    jobs: Annotated[
        int, typer.Option("-j", "--jobs", metavar="N", help="Processes to use; -1 for one a core.")
    ] = -1,
    backend: Annotated[
        Literal["loky", "sequential", "dask"],
        typer.Option("--backend", help="Processes of this machine, this process, or a Dask cluster."),
    ] = "loky",
    scheduler: Annotated[
        str | None,
        typer.Option("--scheduler", metavar="ADDRESS", help="Dask scheduler; by default a cluster of -j."),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Keep the rows in DIR, run the others.")] = False,
    output: Annotated[
        str | None,
        typer.Option("-o", "--output", metavar="DIR", help="Folder of the rows; by default sweeps/NAME."),
    ] = None,
    parquet: Annotated[bool, typer.Option("--parquet", help="Write DIR/rows.parquet, too.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run a program over a space of chips, parameters and settings, one row a point."""
    if scheduler is not None and backend != "dask":
        raise ConfigError("--scheduler has no effect without --backend dask; leave it out")
    if parquet:
        check_tables()
    folder = output if output is not None else str(Path("sweeps") / (Path(space).stem or "sweep"))
    with contextlib.ExitStack() as stack:
        stack.enter_context(document(as_json))
        client = stack.enter_context(_client(scheduler)) if scheduler is not None else None
        with progress_line() as line:
            found = sweep(
                space,
                output=folder,
                resume=resume,
                jobs=jobs,
                backend=backend,
                client=client,
                progress=line,
            )
        if parquet:
            write_parquet(found, Path(folder) / "rows.parquet")
    if as_json:
        show(json.dumps(found.to_dict(), indent=2) + "\n")
    else:
        show_report(sweep_text(found, next_step=f"{folder} holds rows.jsonl, rows.csv and sweep.json"))
    if found.failed or found.wrong:
        told = [f"{len(found.failed)} failed"] if found.failed else []
        told += [f"{len(found.wrong)} have wrong values"] if found.wrong else []
        raise MismatchError(f"sweep: of {len(found.rows)} points {' and '.join(told)}; see {folder}/rows.csv")


@contextlib.contextmanager
def _client(address: str) -> Iterator[object]:
    """Connect to a Dask scheduler."""
    from npusim.sweeps.backends import check_backend

    check_backend("dask", -1)
    from distributed import Client

    try:
        client = Client(address, timeout=10)
    except (OSError, TimeoutError, ValueError) as error:
        raise ConfigError(f"--scheduler {address}: cannot be reached: {error}") from None
    with client:
        yield client


@contextlib.contextmanager
def progress_line() -> Iterator[Progress | None]:
    """Show the rows done, the time left and the failures on a terminal; nothing elsewhere."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as Bar

    shown = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[failures]}"),
    )
    with Bar(*shown, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("points", total=None, failures="")

        def line(done: int, total: int, failed: int) -> None:
            words = f"{failed} failed" if failed else ""
            bar.update(task, completed=done, total=total, failures=words)

        yield line
