"""Writing a timeline in the format that is asked for, or that the name of the file says."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from npusim.errors import ConfigError
from npusim.report.timeline import Timeline
from npusim.trace.chrome import write_chrome
from npusim.trace.perfetto import check_perfetto, write_perfetto

Format = Literal["chrome", "perfetto"]
ENDINGS: dict[Format, str] = {"chrome": ".json", "perfetto": ".pftrace"}
_FORMATS: dict[str, Format] = {".json": "chrome", ".pftrace": "perfetto", ".perfetto-trace": "perfetto"}
_KNOWN = ".json for Chrome JSON, .pftrace for Perfetto"


def format_of(file: str, form: Format | None = None) -> Format:
    """Return the format to write: the one that is asked for, else the one that the ending stands for.

    Raises `ConfigError` where the ending stands for the other one, or for none while none is asked for.
    """
    ending = Path(file).suffix
    meant = _FORMATS.get(ending.lower())
    if form is None and meant is None:
        raise ConfigError(f"{file}: its ending names no format of a trace; use {_KNOWN}")
    if form is not None and meant not in (None, form):
        raise ConfigError(f"{file}: the ending {ending} contradicts format {form}; use {_KNOWN}")
    return form or meant or "chrome"


def check_trace_file(file: str, form: Format | None = None) -> None:
    """Check that a trace can be written, before anything runs.

    Raises `ConfigError` as `format_of`, and where the format needs a package that is not there, or the file
    has no folder.
    """
    path = Path(file)
    if not file or path.is_dir():
        raise ConfigError(f"{file or repr(file)}: is no file to write a trace to; name one, as trace.json")
    if not path.parent.is_dir():
        raise ConfigError(f"{file}: there is no folder {path.parent}; make it first")
    if format_of(file, form) == "perfetto":
        check_perfetto()


def write_trace(timeline: Timeline, file: str, form: Format | None = None) -> None:
    """Write a trace; without a format, the one that the name of the file stands for.

    Raises `ConfigError` as `format_of`, and where it cannot be written.
    """
    if format_of(file, form) == "perfetto":
        write_perfetto(timeline, file)
    else:
        write_chrome(timeline, file)
