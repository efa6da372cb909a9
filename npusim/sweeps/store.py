"""The folder of a sweep: rows as they come, so that a sweep that is killed goes on where it stopped."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, get_args

from npusim.config.document import show
from npusim.errors import ConfigError
from npusim.sweeps.rows import Row, kinds

SCHEMA = "npusim.sweep-folder/1"
ROWS, TABLE, RECORD = "rows.jsonl", "rows.csv", "sweep.json"


class RowStore:
    """`rows.jsonl` and `rows.csv` of a sweep, which grow by a line a row, and `sweep.json`, about it.

    `rows.jsonl` is what counts: `rows.csv` is written anew from it when a sweep goes on. A last line that a
    kill cut short is dropped.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        columns: Sequence[str],
        *,
        resume: bool,
        check: Callable[[Sequence[Row]], None] | None = None,
    ) -> None:
        """Open the folder, and read its rows where `resume` is set.

        `check` sees the rows that are there and raises `ConfigError` where they do not belong here. Raises
        `ConfigError` where the folder cannot be written, holds rows and `resume` is not set, or holds rows
        with other columns. Whatever is refused, no file in the folder has changed.
        """
        self._shown = os.fspath(folder)
        self._folder = Path(folder)
        self._columns = list(columns)
        self.rows: list[Row] = []
        """Rows that are there, in the order in which they came."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._open(resume, check)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise ConfigError(f"{self._shown}: the folder cannot be written: {reason}") from error

    def _open(self, resume: bool, check: Callable[[Sequence[Row]], None] | None) -> None:
        rows, table, kept = self._folder / ROWS, self._folder / TABLE, 0
        if rows.exists() and rows.stat().st_size:
            if not resume:
                raise ConfigError(f"{self._shown}: holds rows of a sweep; add --resume, or name a new folder")
            self.rows, kept = _read(rows, f"{self._shown}/{ROWS}")
        known = set(self._columns)
        for row in self.rows:
            if not set(row) <= known:
                other = sorted(set(row) - known)[0]
                raise ConfigError(
                    f"{self._shown}: holds rows of another space, with a column {other}; name a new folder"
                )
        if check is not None:
            check(self.rows)
        if rows.exists():
            os.truncate(rows, kept)
        self._lines = rows.open("ab", buffering=0)
        self._table = table.open("wb", buffering=0)
        header = io.StringIO()
        csv.writer(header, lineterminator="\n").writerow(self._columns)
        self._write(self._table, header.getvalue() + "".join(map(self._csv_line, self.rows)))

    @staticmethod
    def read(folder: str | os.PathLike[str]) -> list[Row]:
        """Return the rows in a folder, and change nothing; a last line that was cut short does not count.

        Raises `ConfigError` for a line that is no row.
        """
        return _read(Path(folder) / ROWS, f"{os.fspath(folder)}/{ROWS}")[0]

    def append(self, row: Row) -> None:
        """Add a row; it is in the files when this returns.

        Raises `ConfigError` where a file cannot grow; no part of the row is left in it.
        """
        self._write(self._lines, json.dumps(row) + "\n")
        self.rows.append(row)
        self._write(self._table, self._csv_line(row))

    def record(self, what: dict[str, Any]) -> None:
        """Write `sweep.json`, whole or not at all; raises `ConfigError` where it cannot."""
        work = self._folder / f".{RECORD}"
        try:
            work.write_text(json.dumps({"schema": SCHEMA, **what}, indent=2) + "\n", encoding="utf-8")
            work.replace(self._folder / RECORD)
        except OSError as error:
            work.unlink(missing_ok=True)
            raise self._full(RECORD, error) from error

    def _csv_line(self, row: Row) -> str:
        line = io.StringIO()
        csv.DictWriter(line, self._columns, restval="", lineterminator="\n").writerow(row)
        return line.getvalue()

    def _write(self, file: io.FileIO, text: str) -> None:
        """Write at the end of a file, all or nothing; the file has no buffer that could write later."""
        left, before = memoryview(text.encode()), os.fstat(file.fileno()).st_size
        try:
            while left:
                left = left[file.write(left) or 0 :]
        except OSError as error:
            with contextlib.suppress(OSError):  # the first error is the one to tell
                file.truncate(before)
            raise self._full(Path(os.fsdecode(file.name)).name, error) from error

    def _full(self, name: str, error: OSError) -> ConfigError:
        kept = f"{len(self.rows)} {'row is' if len(self.rows) == 1 else 'rows are'} kept in {ROWS}"
        reason = (error.strerror or str(error)).lower()
        return ConfigError(
            f"{self._shown}/{name}: cannot be written: {reason}; {kept}: make room, then go on with --resume"
        )

    def close(self) -> None:
        """Close the files."""
        self._lines.close()
        self._table.close()


def read_record(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Return what `sweep.json` says; empty where there is none.

    Raises `ConfigError` where it is something else.
    """
    file = Path(folder) / RECORD
    if not file.exists():
        return {}
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        if found["schema"] != SCHEMA:
            raise ValueError("another schema")
    except (OSError, ValueError, KeyError, TypeError):
        raise ConfigError(
            f"{os.fspath(folder)}/{RECORD}: is no record of a sweep; name a new folder"
        ) from None
    return dict(found)


def _read(file: Path, shown: str) -> tuple[list[Row], int]:
    """Return the rows of a file, the first of every point, and the bytes of the file that count; a last line
    without an end does not.
    """
    raw = file.read_bytes()
    kept = raw.rfind(b"\n") + 1
    rows: dict[str, Row] = {}
    types = kinds()
    for number, line in enumerate(raw[:kept].split(b"\n")[:-1], 1):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if not isinstance(row, dict) or not isinstance(row.get("point"), str):
            raise ConfigError(
                f"{shown}:{number}: is no row of a sweep; delete the line, or name a new folder"
            )
        wrong = _damage(row, types)
        if wrong:
            raise ConfigError(f"{shown}:{number}: {wrong}; delete the line to run its point again")
        rows.setdefault(row["point"], row)
    return list(rows.values()), kept


def _damage(row: Row, types: dict[str, Any]) -> str:
    """Say what cannot be right about a row; empty where nothing is wrong."""
    status = row.get("status")
    if status not in ("ok", "wrong", "failed"):
        return f"status must be ok, wrong or failed, not {show(status)}"
    if status == "failed":
        return ""
    for name, kind in types.items():
        if name not in row and name not in ("result_id", "total_cycles", "time_us"):
            continue  # written by an npusim that had no such column
        value, allowed = row.get(name), get_args(kind) or (kind,)
        if type(value) not in allowed and not (float in allowed and type(value) is int):
            words = {str: "text", bool: "true, false or nothing"}.get(allowed[0], "a number")
            return f"{name} must be {words}, not {show(value)}"
    return ""
