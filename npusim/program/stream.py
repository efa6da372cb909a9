"""Reading a stream: one instruction at a time, with the value the one before returned, and the place it came
from.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path
from typing import Any

from npusim.config.chip import Chip
from npusim.errors import ConfigError, NpusimError
from npusim.isa.instruction import Instruction, Kind, OriginKind
from npusim.isa.operand import Pipe
from npusim.isa.sync import PipeBarrier
from npusim.program.autosync import AutoSync
from npusim.program.core import CoreId, CoreKind, Launch, StreamFunction
from npusim.program.kernel import Kernel
from npusim.program.macro import Item, Macro


def short_path(file: str) -> str:
    """Return a path relative to the current folder, or its last two parts where it lies elsewhere."""
    path = Path(file)
    try:
        return path.resolve().relative_to(Path.cwd()).as_posix()
    except ValueError:
        return "/".join(path.parts[-2:])


class ValueNeededError(ConfigError):
    """A stream that asks for a value where only time is simulated."""


class Unknown:
    """Stands for a value that timing alone cannot know; any use of it is an error that says what to do."""

    def __init__(self, op: Instruction, where: Callable[[], str]) -> None:
        self._op = op
        self._where = where

    def _use(self, *_: object) -> Any:
        raise ValueNeededError(
            f"the stream depends on the value of {self._op.mnemonic} ({self._where()}), which timing alone "
            f"does not know; run with values, or let the program take the size as a parameter"
        )


for _operator in (
    *("index", "int", "float", "bool", "hash", "neg", "pos", "abs", "invert", "round", "trunc", "floor"),
    *("ceil", "len", "iter", "getitem", "contains", "lt", "le", "gt", "ge", "eq", "ne"),
    *(
        side + name
        for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "divmod", "pow")
        for side in ("", "r")
    ),
    *(side + name for name in ("lshift", "rshift", "and", "or", "xor") for side in ("", "r")),
):
    setattr(Unknown, f"__{_operator}__", Unknown._use)


class Listing:
    """A stream that is written down: instructions, and the lines of a file they stand in."""

    def __init__(self, file: str, start: int) -> None:
        self.file = file
        self.start = start
        """Line above the first instruction."""
        self.ops: list[Instruction] = []
        self.lines = array("i")

    def append(self, op: Instruction, line: int) -> None:
        """Add an instruction."""
        self.ops.append(op)
        self.lines.append(line)

    def stream(self, kernel: Kernel) -> Listing:
        """Return the listing itself: a stream function for a launch."""
        return self

    def __iter__(self) -> Iterator[Instruction]:
        return iter(self.ops)


class Reader:
    """Pulls instructions out of one core's stream, in program order; block after block where a core takes
    several of a launch.
    """

    def __init__(
        self,
        stream: Iterable[Item],
        kernel: Kernel | None = None,
        autosync: AutoSync | None = None,
        later: Iterator[tuple[Iterable[Item], Kernel]] | None = None,
    ) -> None:
        self._core = kernel.core if kernel is not None else None
        self._autosync = autosync
        self._later = iter(()) if later is None else later
        """Stream and kernel of the blocks that follow on the same core."""
        self._added: deque[Instruction] = deque()
        """What automatic synchronisation puts before an instruction, and that instruction."""
        self._open(stream, kernel)
        self._code: Any = getattr(stream, "gi_code", None)
        self.file = stream.file if isinstance(stream, Listing) else ""
        if self._code is not None:
            self.file = self._code.co_filename
            self._lines = [(start, line or 0) for start, _, line in self._code.co_lines()]
        self.mark = -1
        """Where the last instruction came from, for `line_of`; -1 where it has no place."""
        self._rest: Iterator[Instruction] = iter(())
        """What is left of a macro."""
        self.item: Item | None = None
        """The item that the last instruction began; None where it goes on with a macro."""
        self.fetch = self._pull if autosync is None else self._synchronised
        """Return the next instruction, or None at the end; takes the value that the one before returned."""
        self.fetch_item: Callable[[Any], Item | None] = (
            self._pull_item if autosync is None else self._synchronised
        )
        """The same, but a macro comes as one."""

    def _open(self, stream: Iterable[Item], kernel: Kernel | None) -> None:
        self._kernel = kernel
        self._source: Any = stream if isinstance(stream, Generator) else iter(stream)
        self._takes_values = isinstance(stream, Generator)
        self._written = iter(stream.lines) if isinstance(stream, Listing) else None
        self._frame: Any = getattr(stream, "gi_frame", None)

    def line_of(self, mark: int) -> int:
        """Return the source line of a mark, 0 where it has none."""
        if mark < 0 or self._code is None:
            return max(mark, 0)
        return self._lines[bisect_right(self._lines, mark, key=lambda entry: entry[0]) - 1][1]

    def _synchronised(self, value: Any) -> Instruction | None:
        if not self._added:
            op = self._pull(value)
            if op is None:
                return None
            if self._kernel is not None and self._autosync is not None:
                self._added.extend(self._autosync.before(op, self._kernel.state))
            self._added.append(op)
        self.item = self._added.popleft()
        return self.item

    def _pull(self, value: Any) -> Instruction | None:
        op = next(self._rest, None)
        if op is not None:
            self.item = None
        else:
            item = self._next(None if self.item is None or isinstance(self.item, Macro) else value)
            self.item = item
            if isinstance(item, Macro):
                self._rest = iter(item.ops)
                op = next(self._rest)
            else:
                op = item
        if op is not None and op.kind is Kind.STATE and self._kernel is not None:
            self._kernel.state = op.update(self._kernel.state)
        return op

    def _pull_item(self, value: Any) -> Item | None:
        item = self._next(value)
        if isinstance(item, Macro):
            if self._kernel is not None:
                self._kernel.state = item.update(self._kernel.state)
        elif item is not None and item.kind is Kind.STATE and self._kernel is not None:
            self._kernel.state = item.update(self._kernel.state)
        return item

    def _next(self, value: Any) -> Item | None:
        try:
            if value is None or not self._takes_values or not _receives(self._source):
                op = next(self._source)
            else:
                op = self._source.send(value)
        except StopIteration:
            return self._finish()
        except NpusimError as error:
            raise _placed(error, self._core, self._code) from error
        if self._frame is not None:
            self.mark = self._frame.f_lasti  # the line is worked out when somebody asks
        elif self._written is not None:
            self.mark = next(self._written)
        if not isinstance(op, Instruction | Macro):
            line = self.line_of(self.mark)
            where = f"{short_path(self.file)}:{line}: " if line else ""
            raise ConfigError(
                f"{where}{self._core}: a stream yields instructions, not {_kind_of(op)}; splice lists and "
                f"helpers in with `yield from`"
            )
        return op

    def _finish(self) -> Instruction | None:
        """Go on with what drains the queues of the kernel, once the stream has ended."""
        self.mark = -1
        self._frame = self._written = None
        self._takes_values = False
        kernel, self._kernel = self._kernel, None
        if kernel is not None:
            self._state = kernel.state
            self._source = iter(kernel.finish())
            return next(self._source, None) or self._finish()
        following = next(self._later, None)
        if following is None:
            return None
        self._open(*following)
        following[1].state = self._state  # control state outlives a block
        return _ENDED


_ENDED = PipeBarrier(on=Pipe.ALL, origin=OriginKind.EXPANSION)
"""Stands between two blocks of a core: the next one starts when everything of the one before is done."""


def _receives(generator: Any) -> bool:
    """Whether the innermost iterator of a `yield from` takes values; a list spliced in does not."""
    inner = generator.gi_yieldfrom
    while inner is not None:
        if not hasattr(inner, "send"):
            return False
        inner = getattr(inner, "gi_yieldfrom", None)
    return True


def _kind_of(thing: object) -> str:
    return f"the class {thing.__name__}" if isinstance(thing, type) else type(thing).__name__


def _placed(error: NpusimError, core: CoreId | None, code: Any) -> NpusimError:
    """Put the line of a stream function before an error that was raised inside it."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code is not code:
        trace = trace.tb_next
    if trace is None:
        return error
    return type(error)(f"{short_path(code.co_filename)}:{trace.tb_lineno}: {core}: {error}")


def open_stream(chip: Chip, launch: Launch, core: CoreId) -> Reader:
    """Return a reader of the fresh stream of one core of a launch."""
    function, first = launch.streams[core]
    follows = launch.autosync and core.kind is not CoreKind.CUBE

    def blocks() -> Iterator[tuple[Iterable[Item], Kernel]]:
        for block in range(first, max(launch.blocks, first + 1), launch.at_once or launch.blocks):
            kernel = Kernel(chip, core, block, launch.kind)
            yield _open_block(launch, function, kernel), kernel

    later = blocks()
    stream, kernel = next(later)
    return Reader(stream, kernel, AutoSync(chip) if follows else None, later)


def _open_block(launch: Launch, function: StreamFunction, kernel: Kernel) -> Iterable[Item]:
    core = kernel.core
    try:
        stream: Any = function(kernel)
    except NpusimError as error:
        raise _placed(error, core, getattr(function, "__code__", None)) from error
    if not isinstance(stream, Iterable):
        name = getattr(function, "__name__", "the stream function")
        raise ConfigError(
            f"launch {launch.name}: {core}: {name} must yield instructions or return a list of them, not "
            f"{type(stream).__name__}; is a yield missing?"
        )
    return stream
