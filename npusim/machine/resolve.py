"""Resolved streams, and resolving them without values, where nothing depends on data."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import partial

from npusim.check.cores import check_meeting, check_peers, check_pipes
from npusim.check.place import Site
from npusim.config.chip import Chip
from npusim.errors import OperandError
from npusim.isa.instruction import Instruction, Kind
from npusim.isa.sync import CrossCoreSetFlag, CrossCoreWaitFlag
from npusim.program.core import PIPES, CoreId, Launch, cross_peers
from npusim.program.macro import Item, Macro
from npusim.program.stream import Reader, Unknown, open_stream


class Resolved:
    """The stream of one core as it ran: all that timing, hashing, text and re-timing need."""

    __slots__ = ("_reader", "_starts", "core", "count", "items", "marks")

    def __init__(self, core: CoreId, reader: Reader) -> None:
        self.core = core
        self._reader = reader
        self.items: list[Item] = []
        """Instructions and macros, as the stream yielded them."""
        self.count = 0
        """Number of instructions, those of macros counted."""
        self.marks = array("i")
        """Place of every item in the code of the stream function; see `line`."""
        self._starts = array("q")
        """Position of the first instruction of every item."""

    def append(self, item: Item, mark: int) -> None:
        """Add an item and its place in the code."""
        self.items.append(item)
        self.marks.append(mark)
        self._starts.append(self.count)
        self.count += len(item) if item.__class__ is Macro else 1

    def __iter__(self) -> Iterator[Instruction]:
        for item in self.items:
            if isinstance(item, Macro):
                yield from item.ops
            else:
                yield item

    @property
    def ops(self) -> list[Instruction]:
        """All instructions, macros expanded; made anew each time."""
        return list(self)

    @property
    def file(self) -> str:
        """File of the stream function; empty where the stream is a list."""
        return self._reader.file

    def line(self, number: int) -> int:
        """Return the source line of an instruction, 0 where it has none."""
        return self._reader.line_of(self.marks[bisect_right(self._starts, number) - 1])

    def op(self, number: int) -> Instruction:
        """Return an instruction by its position."""
        at = bisect_right(self._starts, number) - 1
        item = self.items[at]
        return item.ops[number - self._starts[at]] if isinstance(item, Macro) else item

    def site(self, number: int) -> Site:
        """Return the place of an instruction."""
        op = self.op(number)
        return Site(self.core, self.file, self.line(number), number, op, op.pipe)


def _where(stream: Resolved, number: int) -> str:
    return stream.site(number).where


def _check(stream: Resolved, number: int, op: Instruction, launch: Launch, chip: Chip) -> None:
    try:
        check_pipes(op, stream.core.kind)
        if isinstance(op, CrossCoreSetFlag | CrossCoreWaitFlag):
            sending = isinstance(op, CrossCoreSetFlag)
            check_meeting(op, launch, chip, partial(stream.site, number))
            check_peers(op, cross_peers(stream.core, op.group, list(launch.streams), sending=sending))
    except OperandError as error:
        raise OperandError(stream.site(number).message(str(error))) from None


_SYNCHRONISES = {Kind.SET, Kind.WAIT, Kind.CROSS_SET, Kind.CROSS_WAIT}


def resolve(launch: Launch, chip: Chip, progress: Callable[[int], None] | None = None) -> list[Resolved]:
    """Return the streams of a launch as they would run; `progress` is told the number of instructions so far.

    Raises `ConfigError` where a stream uses a value that only a run with values knows, and `OperandError`
    where a core lacks a pipe or the launch the other end of a cross-core flag, `DeadlockError` where blocks
    are to meet that do not run at the same time.
    """
    streams = []
    for core in launch.streams:
        reader = open_stream(chip, launch, core)
        made = Resolved(core, reader)
        append, fetch, pipes = made.append, reader.fetch_item, PIPES[core.kind]
        seen: set[int] = set()  # flags come again and again as the same instruction
        item = fetch(None)
        while item is not None:
            append(item, reader.mark)
            value = None
            if isinstance(item, Macro):
                if id(item) not in seen:
                    seen.add(id(item))
                    for i, op in enumerate(item.ops, made.count - len(item)):
                        if op.kind in _SYNCHRONISES or op.pipe not in pipes:
                            _check(made, i, op, launch, chip)
            else:
                if (item.kind in _SYNCHRONISES or item.pipe not in pipes) and id(item) not in seen:
                    seen.add(id(item))
                    _check(made, made.count - 1, item, launch, chip)
                if item.returns_value or item.kind is Kind.SCALAR:
                    value = Unknown(item, partial(_where, made, made.count - 1))
            item = fetch(value)
        streams.append(made)
        if progress is not None:
            progress(sum(s.count for s in streams))
    return streams
