"""The command line in process, in a folder of its own that holds `tiny.py`."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from npusim.cli import main

TINY = Path(__file__).with_name("tiny.py")


class Done(NamedTuple):
    """What a command did."""

    code: int
    out: str
    err: str


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with the small programs."""
    shutil.copy(TINY, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("NPUSIM_DEBUG", raising=False)
    return tmp_path


@pytest.fixture
def npusim(folder: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """Run a command."""

    def run(*argv: str) -> Done:
        code = main(argv)
        done = Done(code, *capsys.readouterr())
        assert "Traceback" not in done.out + done.err
        return done

    return run
