"""Reading the folder that `npusim run -o DIR` wrote."""

from __future__ import annotations

import json
import os
import shlex
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from npusim.errors import ConfigError
from npusim.report.component_file import components_from
from npusim.report.components import Components
from npusim.report.manifest import COMPONENTS, MANIFEST, OCCUPANCY, REPORT, SCHEMA, SPANS, STREAM
from npusim.report.model import Report
from npusim.report.occupancy import Occupancy, load_occupancy
from npusim.report.timeline import Timeline, load_timeline


@dataclass(frozen=True)
class KeptRun:
    """A run that was kept: its report and manifest, and what else is there when it is asked for."""

    shown: str
    """The folder as it was named."""
    manifest: dict[str, Any]
    report: Report

    @property
    def chip(self) -> dict[str, Any]:
        """The resolved chip as plain values."""
        found: dict[str, Any] = self.manifest["chip"]
        return found

    @cached_property
    def timeline(self) -> Timeline:
        """The spans; raises `ConfigError` where the run kept none."""
        return load_timeline(self._file(SPANS))

    @cached_property
    def components(self) -> Components:
        """The component-based roofline; raises `ConfigError` where the run kept no spans."""
        file = self._file(COMPONENTS)
        try:
            return components_from(file.read_text(encoding="utf-8"))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"{file}: holds no components of npusim; run the program again") from error

    @cached_property
    def occupancy(self) -> Occupancy:
        """Buffers and queues of the first group of cores; raises `ConfigError` without spans."""
        return load_occupancy(self._file(OCCUPANCY))

    def stream(self) -> str:
        """Return the assembly text."""
        return Path(self.shown, STREAM).read_text(encoding="utf-8")

    def _file(self, name: str) -> Path:
        file = Path(self.shown, name)
        if not file.is_file():
            command = [str(word) for word in self.manifest.get("command", [])]
            again = f": {shlex.join([*command, '--spans'])}" if command else " with --spans"
            raise ConfigError(f"{self.shown}: the run kept no spans; run it again{again}")
        return file


def open_run(path: str | os.PathLike[str]) -> KeptRun:
    """Open the folder of a run.

    Raises `ConfigError` where it is none.
    """
    shown = os.fspath(path)
    folder = Path(shown)
    if not folder.is_dir():
        raise ConfigError(
            f"{shown}: no such folder; make one with: npusim run PROGRAM --spans -o {shlex.quote(shown)}"
        )
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        if manifest["schema"] != SCHEMA or not isinstance(manifest["chip"], dict):
            raise ValueError("another schema")
        report = Report.model_validate_json((folder / REPORT).read_text(encoding="utf-8"))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{shown}: is no folder of a run; npusim run PROGRAM -o DIR makes one") from error
    return KeptRun(shown, manifest, report)
