"""Files of arrays with a head in JSON, compressed `.npz`: timelines and occupancies are kept in them."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from npusim.errors import ConfigError
from npusim.isa.instruction import Array


def save_arrays(
    file: str | os.PathLike[str], schema: str, head: Mapping[str, Any], arrays: Mapping[str, Array]
) -> None:
    """Write arrays and a head, which JSON can hold, under the name of a schema."""
    text = json.dumps({"schema": schema, **head}, separators=(",", ":"))
    with open(file, "wb") as out:
        whole: dict[str, Any] = {"head": np.frombuffer(text.encode(), np.uint8), **arrays}
        np.savez_compressed(out, **whole)


@contextmanager
def open_arrays(
    file: str | os.PathLike[str], schema: str, what: str
) -> Iterator[tuple[dict[str, Any], Mapping[str, Array]]]:
    """Give the head, without its schema, and the arrays of a file that `save_arrays` wrote.

    Raises `ConfigError`, which says that the file holds no `what`, where it is no such file, or where the
    head or the arrays turn out to be others than those who read them expect.
    """
    try:
        with open(file, "rb") as opened, np.load(opened, allow_pickle=False) as data:
            head = json.loads(bytes(data["head"]).decode())
            if head.pop("schema") != schema:
                raise ValueError("another schema")
            yield head, data
    except (OSError, EOFError, ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
        raise ConfigError(f"{os.fspath(file)}: holds no {what} of npusim; run the program again") from error
