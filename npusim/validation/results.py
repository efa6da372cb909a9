"""`results.csv`: what the rows came to, one per line, kept next to the rows and compared by the tests."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from pathlib import Path

from npusim.errors import ConfigError
from npusim.validation.rows import Published, read_published
from npusim.validation.score import Result, compare
from npusim.validation.validate import Validation

COLUMNS = (
    "id",
    "measured",
    "simulated",
    "unit",
    "error_percent",
    "scored_by",
    "cycles",
    "device_us",
    "instructions",
    "model_revision",
    "failure",
)


def results_csv(results: Iterable[Result]) -> str:
    """Return the table; the same results give the same bytes."""
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow(COLUMNS)
    for r in results:
        value = "" if r.simulated is None else f"{r.simulated:.9g}"
        error = "" if r.error_percent is None else f"{r.error_percent:.2f}"
        measured = f"{r.measured:.9g}"
        ran = (r.cycles, f"{r.device_us:.9g}", r.instructions, r.model_revision)
        table.writerow([r.id, measured, value, r.unit, error, r.by, *ran, r.failure])
    return out.getvalue()


def read_results(file: Path, published: Published) -> tuple[Result, ...]:
    """Return the results of a table for the rows that are still published, in the order of the rows.

    What the rows say (the published value, how it is scored) is taken from them, not from the table. Raises
    `ConfigError` where the table cannot be read.
    """
    groups = {g.name: g for g in published.groups}
    found: dict[str, dict[str, str]] = {}
    try:
        with file.open(encoding="utf-8", newline="") as lines:
            table = csv.DictReader(lines, strict=True)
            if tuple(table.fieldnames or ()) != COLUMNS:
                raise ConfigError(f"{file}:1: must have the columns {','.join(COLUMNS)}")
            for cells in table:
                if None in cells.values():
                    raise ConfigError(f"{file}:{table.line_num}: must have {len(COLUMNS)} cells")
                found[cells["id"]] = cells
        return tuple(
            compare(
                row,
                groups[row.group],
                float(cells["simulated"]) if cells["simulated"] else None,
                cycles=int(cells["cycles"]),
                device_us=float(cells["device_us"]),
                instructions=int(cells["instructions"]),
                model_revision=int(cells["model_revision"]),
                failure=cells["failure"],
            )
            for row in published.rows
            if (cells := found.get(row.id, {}))
        )
    except (OSError, csv.Error, ValueError) as error:
        raise ConfigError(f"{file}: cannot be read: {error}; write it again with `npusim validate`") from None


def write_folder(found: Validation, folder: Path, *, keep: bool = False) -> None:
    """Write `results.csv`, `results.json` and `page.md`; `keep` keeps results of other groups that are there.

    Raises `ConfigError` where the folder cannot be written, or what is to be kept cannot be read.
    """
    from npusim.validation.page import page_text

    table = folder / "results.csv"
    if keep and table.exists():
        published = read_published()
        fresh = {r.id: r for r in found.results}
        old = {r.id: r for r in read_results(table, published)}
        every = tuple(r for row in published.rows if (r := fresh.get(row.id) or old.get(row.id)) is not None)
        found = Validation(found.overrides, published.groups, published.rows, every, published.not_run)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        table.write_text(results_csv(found.results), encoding="utf-8")
        folder.joinpath("results.json").write_text(found.to_json(), encoding="utf-8")
        folder.joinpath("page.md").write_text(page_text(found), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be written: {(error.strerror or str(error)).lower()}") from None
