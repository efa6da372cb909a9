"""Rows as Parquet, with the extra `tables`."""

from __future__ import annotations

import importlib.util
import os
from typing import Any

from npusim.errors import ConfigError
from npusim.sweeps.run import Sweep


def check_tables() -> None:
    """Raise `ConfigError` where Parquet cannot be written."""
    if importlib.util.find_spec("pyarrow") is None:
        raise ConfigError("parquet needs pyarrow; install it with pip install 'npusim[tables]'")


def write_parquet(found: Sweep, file: str | os.PathLike[str]) -> None:
    """Write the rows of a sweep as a Parquet file, its schema id among the metadata.

    A column that holds values of different kinds is written as text. Raises `ConfigError` where pyarrow is
    not installed or the file cannot be written.
    """
    check_tables()
    import pyarrow as pa
    import pyarrow.parquet as pq

    arrays = {}
    for name in found.columns:
        values = found.column(name)
        try:
            arrays[name] = pa.array(values)
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            arrays[name] = pa.array([_text(value) for value in values])
    table = pa.table(arrays).replace_schema_metadata({"schema": "npusim.sweep-rows/1"})
    try:
        pq.write_table(table, os.fspath(file))
    except OSError as error:
        raise ConfigError(f"{os.fspath(file)}: cannot be written: {error}") from None


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
