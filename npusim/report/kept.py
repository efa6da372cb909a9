"""Reading the folder that `npusim run -o DIR` wrote."""

from __future__ import annotations

import json
import os
import shlex
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from npusim.config.chip import Chip
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
    def chip_used(self) -> Chip:
        """The same as a chip; raises `ConfigError` where it is none."""
        try:
            return Chip.model_validate_json(json.dumps(self.chip))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, ("chip", *first["loc"])))
            file = Path(self.shown, MANIFEST)
            raise ConfigError(f"{file}: {where}: {first['msg'].lower()}; {_AGAIN}") from error

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
        """Return the assembly text.

        Raises `ConfigError` where it cannot be read, or holds other than the instructions of the report.
        """
        file = Path(self.shown, STREAM)
        text = _text(file)
        count = sum(bool(line) and not line.startswith(".") for line in text.splitlines())
        known = sum(part.instructions for part in self.report.pipes.values())
        if count != known or (text and not text.endswith("\n")):
            raise ConfigError(
                f"{file}: is damaged: holds {count:,} of the {known:,} instructions in {REPORT}"
                f"{'' if count != known else ', the last one cut short'}; {_AGAIN}"
            )
        return text

    def _file(self, name: str) -> Path:
        file = Path(self.shown, name)
        if not file.is_file():
            command = [str(word) for word in self.manifest.get("command", [])]
            again = f": {shlex.join([*command, '--spans'])}" if command else " with --spans"
            raise ConfigError(f"{self.shown}: the run kept no spans; run it again{again}")
        return file


def open_run(path: str | os.PathLike[str]) -> KeptRun:
    """Open the folder of a run.

    Raises `ConfigError` where it is none, and where a file of it is missing or damaged.
    """
    shown = os.fspath(path)
    folder = Path(shown)
    if not folder.is_dir():
        raise ConfigError(
            f"{shown}: no such folder; make one with: npusim run PROGRAM --spans -o {shlex.quote(shown)}"
        )
    if not (folder / MANIFEST).exists() and not (folder / REPORT).exists():
        raise ConfigError(f"{shown}: is no folder of a run; npusim run PROGRAM -o DIR makes one")
    manifest = _read(folder / MANIFEST, SCHEMA)
    if not isinstance(manifest.get("chip"), dict):
        raise ConfigError(f"{folder / MANIFEST}: holds no chip; {_AGAIN}")
    data = _read(folder / REPORT, Report.model_fields["schema_id"].default)
    try:
        report = Report.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ConfigError(f"{folder / REPORT}: {where}: {first['msg'].lower()}; {_AGAIN}") from error
    return KeptRun(shown, manifest, report)


_AGAIN = "run the program again"


def _read(file: Path, schema: str) -> dict[str, Any]:
    """Return what a JSON file of a schema holds."""
    text = _text(file)
    if not text.strip():
        raise ConfigError(f"{file}: is empty; {_AGAIN}")
    try:
        data = json.loads(text)
    except ValueError as error:
        line = getattr(error, "lineno", 1)
        raise ConfigError(f"{file}: is no JSON at line {line}; {_AGAIN}") from error
    if not isinstance(data, dict) or "schema" not in data:
        raise ConfigError(f"{file}: names no schema, {schema} is needed; {_AGAIN}")
    if data["schema"] != schema:
        raise ConfigError(
            f"{file}: schema {data['schema']} is not one that this version reads, {schema}; {_AGAIN}"
        )
    return data


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise ConfigError(f"{file}: is missing; {_AGAIN}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file}: is no UTF-8 text at byte {error.start:,}; {_AGAIN}") from error
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigError(f"{file}: cannot be read: {reason}") from error
