"""Errors print paths relative to the current folder."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.register_assert_rewrite("small")


@pytest.fixture(autouse=True)
def _beside_the_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand in the folder above, so that a file of this folder is `check/<name>`."""
    monkeypatch.chdir(Path(__file__).parents[1])
