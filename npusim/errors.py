"""The errors npusim raises, each with the exit code the command line gives it.

A message names the subject, the rule, the value, the place and the next step, in one or two lines, lower
case.
`ValueError` and `TypeError` are kept for misuse of the Python API.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class NpusimError(Exception):
    """Base of every error a user of npusim can cause."""

    exit_code = 2


class ConfigError(NpusimError):
    """A chip, a parameter, an input or a path that cannot be used."""


class OperandError(NpusimError):
    """An instruction whose operands break a rule of the instruction set."""

    exit_code = 3


class HazardError(NpusimError):
    """A program that the hardware may run in an order its author did not mean."""

    exit_code = 3


class DeadlockError(NpusimError):
    """Cores or pipes that wait for each other for ever."""

    exit_code = 3


class MismatchError(NpusimError):
    """Outputs that differ from the reference by more than the stated tolerance."""

    exit_code = 1


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean X?` for the closest known word, or an empty string."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close else ""
