"""The command line: `main` is the entry point; every command is a call into the library."""

from npusim.cli.entry import main

__all__ = ["main"]
