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
_PERFETTO = (".pftrace", ".perfetto-trace")


def format_of(file: str) -> Format:
    """Return the format that a name stands for: Perfetto's own for its endings, JSON for all others."""
    return "perfetto" if file.endswith(_PERFETTO) else "chrome"


def check_trace_file(file: str, form: Format | None = None) -> None:
    """Check that a trace can be written, before anything runs.

    Raises `ConfigError` where the format needs a package that is not there, or the file has no folder.
    """
    path = Path(file)
    if not file or path.is_dir():
        raise ConfigError(f"{file or repr(file)}: is no file to write a trace to; name one, as trace.json")
    if not path.parent.is_dir():
        raise ConfigError(f"{file}: there is no folder {path.parent}; make it first")
    if (form or format_of(file)) == "perfetto":
        check_perfetto()


def write_trace(timeline: Timeline, file: str, form: Format | None = None) -> None:
    """Write a trace; without a format, the one that the name of the file stands for.

    Raises `ConfigError` where it cannot be written.
    """
    if (form or format_of(file)) == "perfetto":
        write_perfetto(timeline, file)
    else:
        write_chrome(timeline, file)
