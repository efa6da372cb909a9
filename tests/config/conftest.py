"""A folder of one's own for chip files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

HEADER = "schema: npusim.chip/1\nname: mine\nextends: toy\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def write(folder: Path) -> Callable[..., str]:
    """Write a chip file and return its name; by default `mine.yaml`, which extends toy from line 4 on."""

    def write(body: str, *, name: str = "mine.yaml", header: str = HEADER) -> str:
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(header + body, encoding="utf-8")
        return name

    return write
