"""What a command writes: text or one JSON document to stdout, errors and progress to stderr."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
import time
from collections.abc import Iterable, Iterator

_LABEL = re.compile(
    r"^(setup|values|hazards|stream|time|launches|memory|units|bound|cycles|confidence|next)\b"
)
_VERDICT = re.compile(r"(?<=^values      )(ok|WRONG)\b|(?<=^hazards     )none\b")
_PATIENCE_S = 2.0
"""Runs shorter than this show no progress."""
_LONGEST = 400
"""Characters of one line of an error; more is cut."""


class StdoutClosedError(Exception):
    """Whoever read stdout has gone, as `head` does."""


def width() -> int:
    """Return the columns of the terminal, 80 where there is none."""
    return shutil.get_terminal_size((80, 24)).columns


def show(parts: str | Iterable[str]) -> None:
    """Write text to stdout as it is."""
    try:
        sys.stdout.writelines([parts] if isinstance(parts, str) else parts)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise StdoutClosedError from None


def show_report(text: str) -> None:
    """Write the text of a report, with a little colour on a terminal."""
    if not sys.stdout.isatty():
        show(text)
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=True)
    for line in text.splitlines():
        styled = Text(line)
        styled.highlight_regex(_LABEL, "bold")
        styled.highlight_regex(_VERDICT, "bold red" if " WRONG" in line else "bold green")
        console.print(styled)


def complain(text: str) -> None:
    """Write an error to stderr; control characters are escaped."""
    first, *others = text.splitlines() or [""]
    for head, line in (("error: ", first), *((" " * 7, line) for line in others)):
        line = line if line.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in line)
        line = line if len(line) <= _LONGEST else f"{line[: _LONGEST - 3]}..."
        print(f"{head}{line}", file=sys.stderr)


class Progress:
    """Says on a terminal what a long run is doing; silent elsewhere and in short runs."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._stack = contextlib.ExitStack()
        self._update: object = None

    def __call__(self, what: str, done: int) -> None:
        """Note that `done` instructions have been through `what`."""
        if not sys.stderr.isatty() or time.monotonic() - self._start < _PATIENCE_S:
            return
        from rich.console import Console
        from rich.status import Status

        words = f"{what}: {done:,} instructions" if done else what
        if not isinstance(self._update, Status):
            self._update = self._stack.enter_context(Console(stderr=True).status(words))
        else:
            self._update.update(words)

    def close(self) -> None:
        """Take the line away."""
        self._stack.close()
        self._update = None


@contextlib.contextmanager
def progress() -> Iterator[Progress]:
    """Give a progress line for the time of a run."""
    line = Progress()
    try:
        yield line
    finally:
        line.close()


@contextlib.contextmanager
def document(wanted: bool) -> Iterator[None]:
    """Keep stdout for one JSON document: what a program prints meanwhile goes to stderr."""
    with contextlib.redirect_stdout(sys.stderr) if wanted else contextlib.nullcontext():
        yield
