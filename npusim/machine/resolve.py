"""Resolved streams, and resolving them without values, where nothing depends on data."""

from __future__ import annotations

from array import array
from functools import partial

from npusim.check.cores import check_meeting, check_peers, check_pipes
from npusim.check.place import Site
from npusim.config.chip import Chip
from npusim.errors import OperandError
from npusim.isa.instruction import Instruction, Kind
from npusim.isa.sync import CrossCoreSetFlag, CrossCoreWaitFlag
from npusim.program.core import PIPES, CoreId, Launch, cross_peers
from npusim.program.stream import Reader, Unknown, open_stream


class Resolved:
    """The stream of one core as it ran: all that timing, hashing, text and re-timing need."""

    __slots__ = ("_reader", "core", "marks", "ops")

    def __init__(self, core: CoreId, reader: Reader) -> None:
        self.core = core
        self._reader = reader
        self.ops: list[Instruction] = []
        self.marks = array("i")
        """Place of every instruction in the code of the stream function; see `line`."""

    @property
    def file(self) -> str:
        """File of the stream function; empty where the stream is a list."""
        return self._reader.file

    def line(self, number: int) -> int:
        """Return the source line of an instruction, 0 where it has none."""
        return self._reader.line_of(self.marks[number])

    def site(self, number: int) -> Site:
        """Return the place of an instruction."""
        op = self.ops[number]
        return Site(self.core, self.file, self.line(number), number, op, op.pipe)


def _where(stream: Resolved, number: int) -> str:
    return stream.site(number).where


def _check(stream: Resolved, op: Instruction, launch: Launch, chip: Chip) -> None:
    cores = list(launch.streams)
    try:
        check_pipes(op, stream.core.kind)
        if isinstance(op, CrossCoreSetFlag | CrossCoreWaitFlag):
            sending = isinstance(op, CrossCoreSetFlag)
            check_meeting(op, launch, chip, partial(stream.site, len(stream.ops) - 1))
            check_peers(op, cross_peers(stream.core, op.group, cores, sending=sending))
    except OperandError as error:
        raise OperandError(stream.site(len(stream.ops) - 1).message(str(error))) from None


_SYNCHRONISES = {Kind.SET, Kind.WAIT, Kind.CROSS_SET, Kind.CROSS_WAIT}


def resolve(launch: Launch, chip: Chip) -> list[Resolved]:
    """Return the streams of a launch as they would run.

    Raises `ConfigError` where a stream uses a value that only a run with values knows, and `OperandError`
    where a core lacks a pipe or the launch the other end of a cross-core flag, `DeadlockError` where blocks
    are to meet that do not run at the same time.
    """
    streams = []
    for core in launch.streams:
        reader = open_stream(chip, launch, core)
        made = Resolved(core, reader)
        ops, marks, fetch = made.ops, made.marks, reader.fetch
        pipes = PIPES[core.kind]
        op = fetch(None)
        while op is not None:
            ops.append(op)
            marks.append(reader.mark)
            if op.kind in _SYNCHRONISES or op.pipe not in pipes:
                _check(made, op, launch, chip)
            if op.returns_value or op.kind is Kind.SCALAR:
                op = fetch(Unknown(op, partial(_where, made, len(ops) - 1)))
            else:
                op = fetch(None)
        streams.append(made)
    return streams
