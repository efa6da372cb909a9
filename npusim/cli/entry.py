"""From arguments to an exit code: nothing a user does ends in a traceback.

0 ok, 1 values differ from the reference, 2 usage or configuration, 3 hazard or deadlock, 4 internal error,
130 interrupted.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from typer.main import get_command

from npusim.cli.commands import app
from npusim.cli.options import ARGV
from npusim.cli.problems import explain
from npusim.cli.screen import StdoutClosedError, complain

_FIRST = frozenset(c.name or c.callback.__name__ for c in app.registered_commands if c.callback)
"""Commands that need nothing but what is loaded anyway."""


def command_line(args: Sequence[str] = ()) -> Any:
    """Return the application, a Click command, with all its commands or with those the arguments ask for."""
    if not args or args[0] not in _FIRST:
        for module in ("looking", "plots", "search", "sweep", "validation"):  # long to load for a small run
            import_module(f"npusim.cli.{module}")
    return get_command(app)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that the arguments name and return its exit code; errors go to stderr.

    With `NPUSIM_DEBUG=1` in the environment the traceback of an error is shown, too.
    """
    if sys.stdout is None:  # closed by the caller
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  # for the life of the process
    args = list(sys.argv[1:] if argv is None else argv)
    try:
        for arg in args:
            arg.encode()
    except UnicodeEncodeError:
        complain(f"argument {arg!r} is not UTF-8")
        return 2
    if not args:
        args = ["--help"]
    ARGV.set(args)
    try:
        code = command_line(args).main(args, prog_name="npusim", standalone_mode=False)
    except StdoutClosedError:
        return 141
    except KeyboardInterrupt:
        code = 130
    except (Exception, SystemExit) as error:  # whatever it is, it becomes a line and an exit code
        if os.environ.get("NPUSIM_DEBUG"):
            traceback.print_exc()
        problem = explain(error)
        complain(problem.text)
        return problem.code
    if code == 130:
        complain("interrupted")
    return code if isinstance(code, int) else 0
