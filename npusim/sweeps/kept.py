"""Rows of a sweep or a search that were kept."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from npusim.errors import ConfigError
from npusim.sweeps.rows import Row
from npusim.sweeps.store import ROWS, RowStore, read_record


@dataclass(frozen=True, slots=True)
class KeptRows:
    """The rows in a folder, and its axes."""

    axes: tuple[str, ...]
    rows: tuple[Row, ...]


def open_rows(path: str | os.PathLike[str]) -> KeptRows:
    """Read the folder of a sweep or a search, its `rows.jsonl`, or the document of `npusim sweep --json`.

    Raises `ConfigError` where it is none of these.
    """
    shown = os.fspath(path)
    file = Path(shown)
    if file.is_dir() or file.name == ROWS:
        folder = file if file.is_dir() else file.parent
        record: dict[str, Any] = read_record(folder)
        if not record or not (folder / ROWS).is_file():
            raise ConfigError(f"{shown}: is no folder of a sweep; npusim sweep SPACE.yaml -o DIR makes one")
        return KeptRows(tuple(record["axes"]), tuple(RowStore.read(folder)))
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        return KeptRows(tuple(data["axes"]), tuple(data["rows"]))
    except (OSError, ValueError, KeyError, TypeError):
        raise ConfigError(
            f"{shown}: holds no rows of a sweep; name its folder, rows.jsonl or what --json printed"
        ) from None
