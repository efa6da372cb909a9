"""The folder of a run: outputs, report, stream and manifest, there whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import secrets
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from npusim.config.chip import Chip
from npusim.errors import ConfigError
from npusim.machine.resolve import Resolved
from npusim.program.asm import asm_header, asm_launch
from npusim.program.core import Launch
from npusim.program.program import Program
from npusim.report.component_file import components_json
from npusim.report.component_run import components
from npusim.report.model import Report
from npusim.report.occupancy import occupancy
from npusim.report.timeline import kept_spans, timeline

SCHEMA = "npusim.manifest/1"
MANIFEST = "manifest.json"
REPORT = "report.json"
STREAM = "stream.asm"
SPANS = "spans.npz"
COMPONENTS = "components.json"
OCCUPANCY = "occupancy.npz"
LATER = ("trace.json", "trace.pftrace", "msprof")
"""What other commands put there by default."""


class RunFolder:
    """A folder that is written beside its place and put there at the end, by `finish`.

    Use it as a context manager around the run: entering it checks that the folder can be made, leaving it
    without `finish` leaves nothing behind. It replaces an empty folder, or one that holds only what npusim
    wrote there. Raises `ConfigError` otherwise, and where the place cannot be written.
    """

    def __init__(self, path: str | os.PathLike[str], program: Program) -> None:
        self._shown = os.fspath(path) or "''"
        self._program = program
        self._target = Path(os.path.abspath(path))
        self._work = Path()
        self._started = datetime.now(UTC)

    def __enter__(self) -> RunFolder:
        with self._reported():
            _check_replaceable(self._target, self._shown)
            above = next(p for p in self._target.parents if os.path.lexists(p))
            self._work = above / f".npusim-{secrets.token_hex(4)}"
            self._work.mkdir()
            try:
                self._write(STREAM, (f"{line}\n" for line in asm_header(self._program)))
            except BaseException:
                self.__exit__()
                raise
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._work, ignore_errors=True)

    def observe(self, launch: Launch, streams: list[Resolved]) -> None:
        """Add the streams of a launch to `stream.asm`; for the argument `observe` of `run`."""
        with self._reported():
            self._write(STREAM, (f"{line}\n" for line in asm_launch(launch, streams)))

    def finish(
        self,
        report: Report,
        chip: Chip,
        *,
        argv: Sequence[str] = (),
        inputs: Mapping[str, str] | None = None,
    ) -> None:
        """Write the outputs, the report, the manifest and, where the run kept them, the spans; then put the
        folder in its place.

        `inputs` names the files that inputs were read from.
        """
        with self._reported():
            for name, array in report.outputs.items():
                np.save(self._work / f"{name}.npy", array, allow_pickle=False)
            self._write(REPORT, [report.to_json()])
            if kept_spans(report):
                timeline(report).save(self._work / SPANS)
                self._write(COMPONENTS, [components_json(components(report))])
                occupancy(report).save(self._work / OCCUPANCY)
            record = manifest(report, chip, self._program, argv, inputs or {}, self._started)
            record["files"] = sorted([MANIFEST, *os.listdir(self._work)])
            self._write(MANIFEST, [json.dumps(record, indent=2) + "\n"])
            _put(self._work, self._target)

    def _write(self, name: str, parts: Iterable[str]) -> None:
        with open(self._work / name, "a", encoding="utf-8", newline="\n") as file:
            file.writelines(parts)

    @contextmanager
    def _reported(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise ConfigError(f"{self._shown}: the folder cannot be written: {reason}") from error


def _check_replaceable(target: Path, shown: str) -> None:
    if not os.path.lexists(target):
        return
    if not target.is_dir() or target.is_symlink():
        raise ConfigError(f"{shown}: is there and no folder; name a new folder")
    here = Path.cwd()
    if target == here or target in here.parents:
        raise ConfigError(f"{shown}: is the current folder or holds it; name a folder of its own")
    names = set(os.listdir(target))
    others = sorted(names - set(_written(target / MANIFEST)))
    if others:
        more = f" and {len(others) - 1} more" if len(others) > 1 else ""
        raise ConfigError(f"{shown}: holds {others[0]}{more}, which npusim did not write; name a new folder")


def _written(file: Path) -> list[str]:
    """Return what a manifest says npusim wrote, or may have added; nothing where it is no manifest."""
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        return [*map(str, data["files"]), *LATER] if data["schema"] == SCHEMA else []
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _put(work: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.exists():
        work.rename(target)
        return
    old = work.with_name(f"{work.name}-old")
    target.rename(old)
    try:
        work.rename(target)
    except OSError:
        old.rename(target)
        raise
    shutil.rmtree(old, ignore_errors=True)


def manifest(
    report: Report,
    chip: Chip,
    program: Program,
    argv: Sequence[str],
    inputs: Mapping[str, str],
    started: datetime,
) -> dict[str, Any]:
    """Return where a report comes from: what does not change its numbers but helps to repeat them."""
    return {
        "schema": SCHEMA,
        "run_id": report.run_id,
        "command": list(argv),
        "time": started.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "wall_seconds": round((datetime.now(UTC) - started).total_seconds(), 3),
        "versions": {name: _version(name) for name in ("npusim", "numpy", "simpy", "pydantic", "ml_dtypes")}
        | {"python": platform.python_version()},
        "platform": platform.platform(),
        "git": git_state(Path(__file__).parents[1]),
        "seed": report.seed,
        "program": {
            "name": program.name,
            "file": program.source,
            "sha256": _sha256(program.source),
            "params": json.loads(json.dumps(program.params, default=str)),
        },
        "inputs": {name: {"file": file, "sha256": _sha256(file)} for name, file in inputs.items()},
        "chip": chip.model_dump(mode="json", by_alias=True),
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _sha256(file: str) -> str | None:
    try:
        return hashlib.sha256(Path(file).read_bytes()).hexdigest()
    except (OSError, ValueError):
        return None


def git_state(folder: Path) -> dict[str, Any] | None:
    """Return commit and cleanliness of the checkout that a folder lies in, or None outside of one."""
    commit = _git(folder, "rev-parse", "HEAD")
    tracked = _git(folder, "ls-files", "--error-unmatch", "__init__.py")
    if commit is None or tracked is None:  # a package installed inside somebody else's checkout
        return None
    return {"commit": commit.strip(), "dirty": bool(_git(folder, "status", "--porcelain", "-uno"))}


def _git(folder: Path, *args: str) -> str | None:
    command = ["git", "-C", str(folder), "--no-optional-locks", *args]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout if done.returncode == 0 else None
