"""Resolving streams without values: program order is enough where nothing depends on data."""

from __future__ import annotations

from array import array

from npusim.config.chip import Chip
from npusim.isa.instruction import Kind
from npusim.machine.functional import Resolved
from npusim.program.core import Launch
from npusim.program.stream import Unknown, open_stream


def resolve(launch: Launch, chip: Chip) -> list[Resolved]:
    """Return the streams of a launch as they would run.

    Raises `ConfigError` where a stream uses a value that only a run with values knows.
    """
    resolved = []
    for core in launch.streams:
        reader = open_stream(chip, launch, core)
        made = Resolved(core, [], array("i"), reader.file)
        op = reader.fetch(None)
        while op is not None:
            made.ops.append(op)
            made.lines.append(reader.line)
            returns = op.returns_value or op.kind is Kind.SCALAR
            op = reader.fetch(Unknown(op) if returns else None)
        resolved.append(made)
    return resolved
