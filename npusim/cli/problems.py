"""Exceptions as error messages and exit codes."""

from __future__ import annotations

import traceback
from typing import NamedTuple

from npusim.errors import NpusimError, did_you_mean
from npusim.program.discover import program_frame
from npusim.program.stream import short_path

USAGE, INTERNAL = 2, 4
_BUG = "this is a bug of npusim: report the command and the traceback that NPUSIM_DEBUG=1 shows"


class Problem(NamedTuple):
    """What is told to the user."""

    code: int
    text: str


def explain(error: BaseException) -> Problem:
    """Return the message and the exit code of an exception."""
    words = getattr(error, "format_message", None)  # typer's own errors; their base class has moved around
    if callable(words):
        return Problem(USAGE, _usage(error, words()))
    frame = program_frame(error.__traceback__)
    place = f"{short_path(frame[0])}:{frame[1]}" if frame else ""
    if isinstance(error, NpusimError):
        text = str(error)
        if place and not _raised_by_program(error):
            text = f"{place}: {text}"
        return Problem(error.exit_code, text)
    words = " ".join(str(error).split())
    kind = type(error).__name__
    if isinstance(error, MemoryError):
        return Problem(USAGE, f"not enough memory for this run{f': {words}' if words else ''}")
    if place:
        return Problem(USAGE, f"{place}: {kind}: {words}" if words else f"{place}: {kind}")
    if isinstance(error, OSError):
        file = f"{error.filename}: " if error.filename else ""
        return Problem(USAGE, f"{file}{(error.strerror or words).lower()}")
    return Problem(INTERNAL, f"internal error: {kind}: {words}\n{_BUG}")


def _raised_by_program(error: BaseException) -> bool:
    """Whether the program file itself raises, and so chose its words."""
    frames = list(traceback.walk_tb(error.__traceback__))
    last = program_frame(error.__traceback__)
    return last is not None and frames[-1][0].f_code.co_filename == last[0]


def _usage(error: BaseException, text: str) -> str:
    """Return a usage error in one line, with one suggestion."""
    context = getattr(error, "ctx", None)
    option = getattr(error, "option_name", None)
    path = context.command_path if context is not None else "npusim"
    more = f"; see {path} --help"
    text = " ".join(text.replace("Value error, ", "").split())
    text = text.partition(". Choose from")[0].replace(": Input should", ": input should")
    if type(error).__name__ == "NoSuchOption":
        known = [o for p in context.command.params for o in p.opts] if context is not None else []
        return f"{path}: no option {option}{did_you_mean(str(option), known) or more}"
    commands = getattr(getattr(context, "command", None), "commands", None)
    if text.startswith("No such command"):
        word = text.removeprefix("No such command ").partition("'.")[0].strip("'.")
        return f"{path}: no command {word!r}{did_you_mean(word, commands or []) or more}"
    text = text.removesuffix(".")
    head, _, rest = text.partition("Invalid value for ")
    text = rest if not head and rest else text
    return f"{path}: {text[:1].lower()}{text[1:]}{'' if rest else more}"
