"""Reading a stream: one instruction at a time, with the value the one before returned, and the place it came
from.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any

from npusim.config.chip import Chip
from npusim.errors import ConfigError
from npusim.isa.instruction import Instruction, Kind
from npusim.program.autosync import AutoSync
from npusim.program.core import CoreId, CoreKind, Launch
from npusim.program.kernel import Kernel


class Unknown:
    """Stands for a value that timing alone cannot know; any use of it is an error that says what to do."""

    def __init__(self, op: Instruction) -> None:
        self._op = op

    def _use(self, *_: object) -> Any:
        raise ConfigError(
            f"{self._op.mnemonic}: the stream depends on the value it returns, which timing alone does not "
            f"know; run with values, or let the program take the size as a parameter"
        )

    __hash__ = None  # type: ignore[assignment]  # comparing and hashing are uses, too


for _operator in (
    *("index", "int", "float", "bool", "add", "radd", "sub", "rsub", "mul", "rmul", "floordiv", "rfloordiv"),
    *(
        "truediv",
        "rtruediv",
        "mod",
        "rmod",
        "neg",
        "abs",
        "round",
        "lt",
        "le",
        "gt",
        "ge",
        "eq",
        "ne",
        "iter",
    ),
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
    """Pulls instructions out of one core's stream, in program order."""

    def __init__(
        self,
        stream: Iterable[Instruction],
        kernel: Kernel | None = None,
        autosync: AutoSync | None = None,
    ) -> None:
        self._kernel = kernel
        self._autosync = autosync
        self._added: deque[Instruction] = deque()
        """Instructions that automatic synchronisation puts before the one that it was asked about, and that
        one.
        """
        self._send: Callable[[Any], Instruction] | None = None
        generator: Any = stream
        self._generator = generator
        if isinstance(stream, Generator):
            self._send = stream.send
            self.file = generator.gi_code.co_filename
        else:
            self.file = getattr(stream, "file", "")
        self._next = iter(stream)
        self._lines = iter(stream.lines) if isinstance(stream, Listing) else None
        self._rest: Iterator[Instruction] | None = None
        self.line = 0
        """Line of the stream function that gave the last instruction; 0 where it is a list or an addition."""

    def fetch(self, value: Any) -> Instruction | None:
        """Return the next instruction, or None at the end; `value` is what the one before returned."""
        if self._added:
            return self._added.popleft()
        op = self._pull(value)
        if op is None:
            return None
        if self._autosync is not None and self._kernel is not None:
            self._added.extend(self._autosync.before(op, self._kernel.state))
            self._added.append(op)
            op = self._added.popleft()
        return op

    def _pull(self, value: Any) -> Instruction | None:
        try:
            if self._send is not None:
                if value is not None and not _receives(self._generator):
                    value = None
                op = self._send(value)
                self.line = self._generator.gi_frame.f_lineno
            elif self._rest is not None:
                return next(self._rest, None)
            else:
                op = next(self._next)
                if self._lines is not None:
                    self.line = next(self._lines)
        except StopIteration:
            self._send = None
            self.line = 0
            self._rest = iter(self._kernel.finish()) if self._kernel is not None else iter(())
            return next(self._rest, None)
        if not isinstance(op, Instruction):
            raise TypeError(
                f"{self.file}:{self.line}: a stream yields instructions, not {type(op).__name__}; "
                f"splice lists and helpers in with `yield from`"
            )
        if self._kernel is not None and op.kind is Kind.STATE:
            self._kernel.state = op.update(self._kernel.state)
        return op


def _receives(generator: Any) -> bool:
    """Whether the innermost iterator of a `yield from` takes values; a list spliced in does not."""
    inner = generator.gi_yieldfrom
    while inner is not None:
        if not hasattr(inner, "send"):
            return False
        inner = getattr(inner, "gi_yieldfrom", None)
    return True


def open_stream(chip: Chip, launch: Launch, core: CoreId) -> Reader:
    """Return a reader of the fresh stream of one core of a launch."""
    function, block = launch.streams[core]
    kernel = Kernel(chip, core, block)
    follows = launch.autosync and core.kind is not CoreKind.CUBE
    return Reader(function(kernel), kernel, AutoSync(chip) if follows else None)
