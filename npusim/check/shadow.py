"""Who wrote and who read every byte of a memory: where races and never-written bytes are found."""

from __future__ import annotations

from bisect import bisect_right
from typing import Any, NamedTuple

from npusim.check.order import Clock

HOST = -1
"""Thread of everything before a launch; it is done whatever anybody knows."""


class Touch(NamedTuple):
    """An access: the thread, its count of the access, and where it came from (opaque here)."""

    thread: int
    tick: int
    site: Any


class Conflict(NamedTuple):
    """Two accesses of one byte that nothing orders, or one access of a byte that nobody wrote."""

    what: str
    """`raw`, `war`, `waw` or `poison`."""
    start: int
    stop: int
    other: Any
    """Site of the earlier access; None for poison."""


class Cell:
    """Bytes with one history."""

    __slots__ = ("atomics", "readers", "start", "stop", "writer")

    def __init__(self, start: int, stop: int, writer: Touch) -> None:
        self.start = start
        self.stop = stop
        self.writer = writer
        self.readers: dict[int, Touch] = {}
        self.atomics: dict[int, Touch] = {}
        """Atomic updates since `writer`; they need no order among themselves."""

    def cut(self, start: int, stop: int) -> Cell:
        """Return a part of the cell with the same history."""
        part = Cell(start, stop, self.writer)
        part.readers = dict(self.readers)
        part.atomics = dict(self.atomics)
        return part


class Shadow:
    """The history of one memory, as disjoint cells in address order; bytes in no cell were never written."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._cells: list[Cell] = []

    def preset(self, nbytes: int, site: Any = None) -> None:
        """Declare all bytes written before the launch."""
        self._starts, self._cells = [0], [Cell(0, nbytes, Touch(HOST, 0, site))]

    def settle(self) -> None:
        """Make everything so far a thing of the past, as the end of a launch does."""
        merged: list[Cell] = []
        for cell in self._cells:
            if merged and merged[-1].stop == cell.start:
                merged[-1].stop = cell.stop
            else:
                merged.append(Cell(cell.start, cell.stop, Touch(HOST, 0, None)))
        self._cells = merged
        self._starts = [c.start for c in merged]

    def read(self, start: int, stop: int, touch: Touch, known: Clock, ordered: bool) -> Conflict | None:
        """Record a read; `ordered` says that the pipe itself keeps it behind its own writes."""
        gap = self.gap(start, stop)
        if gap is not None:
            return Conflict("poison", *gap, None)
        for cell in self._carve(start, stop):
            found = _unknown_write(cell, touch.thread, known, ordered)
            if found is not None:
                return Conflict("raw", cell.start, cell.stop, found.site)
            cell.readers[touch.thread] = touch
        return None

    def write(self, start: int, stop: int, touch: Touch, known: Clock, ordered: bool) -> Conflict | None:
        """Record a write that replaces what was there."""
        index = bisect_right(self._starts, start) - 1
        if index >= 0 and (cell := self._cells[index]).start == start and cell.stop == stop:
            conflict = _write_conflict(cell, touch.thread, known, ordered)
            cell.writer = touch
            if cell.readers:
                cell.readers = {}
            if cell.atomics:
                cell.atomics = {}
            return conflict
        for cell in self._carve(start, stop):
            conflict = _write_conflict(cell, touch.thread, known, ordered)
            if conflict is not None:
                return conflict
        self._replace(start, stop, Cell(start, stop, touch))
        return None

    def update(self, start: int, stop: int, touch: Touch, known: Clock) -> Conflict | None:
        """Record an atomic update: it needs a value to be there, and no order to other atomic updates."""
        gap = self.gap(start, stop)
        if gap is not None:
            return Conflict("poison", *gap, None)
        for cell in self._carve(start, stop):
            writer = cell.writer
            if writer.thread != touch.thread and known[writer.thread] < writer.tick:
                return Conflict("waw", cell.start, cell.stop, writer.site)
            for reader in cell.readers.values():
                if reader.thread != touch.thread and known[reader.thread] < reader.tick:
                    return Conflict("war", cell.start, cell.stop, reader.site)
            cell.atomics[touch.thread] = touch
        return None

    def gap(self, start: int, stop: int) -> tuple[int, int] | None:
        """Return the first never-written interval of a range."""
        index = bisect_right(self._starts, start) - 1
        at = start
        if index >= 0:
            at = max(at, self._cells[index].stop)
        while at < stop:
            index += 1
            if index >= len(self._cells):
                return at, stop
            cell = self._cells[index]
            if cell.start > at:
                return at, min(stop, cell.start)
            at = cell.stop
        return None

    def _carve(self, start: int, stop: int) -> list[Cell]:
        """Return the cells inside a range, after cutting those that reach over its ends."""
        first = bisect_right(self._starts, start) - 1
        if first < 0 or self._cells[first].stop <= start:
            first += 1
        elif self._cells[first].start < start:
            cell = self._cells[first]
            self._insert(first + 1, cell.cut(start, cell.stop))
            cell.stop = start
            first += 1
        last = first
        while last < len(self._cells) and self._cells[last].start < stop:
            cell = self._cells[last]
            if cell.stop > stop:
                self._insert(last + 1, cell.cut(stop, cell.stop))
                cell.stop = stop
            last += 1
        return self._cells[first:last]

    def _insert(self, index: int, cell: Cell) -> None:
        self._cells.insert(index, cell)
        self._starts.insert(index, cell.start)

    def _replace(self, start: int, stop: int, cell: Cell) -> None:
        first = bisect_right(self._starts, start - 1)
        last = bisect_right(self._starts, stop - 1)
        self._cells[first:last] = [cell]
        self._starts[first:last] = [start]


def _unknown_write(cell: Cell, thread: int, known: Clock, ordered: bool) -> Touch | None:
    writer = cell.writer
    if (writer.thread != thread or not ordered) and known[writer.thread] < writer.tick:
        return writer
    for atomic in cell.atomics.values():
        if (atomic.thread != thread or not ordered) and known[atomic.thread] < atomic.tick:
            return atomic
    return None


def _write_conflict(cell: Cell, thread: int, known: Clock, ordered: bool) -> Conflict | None:
    found = _unknown_write(cell, thread, known, ordered)
    if found is not None:
        return Conflict("waw", cell.start, cell.stop, found.site)
    for reader in cell.readers.values():
        if reader.thread != thread and known[reader.thread] < reader.tick:
            return Conflict("war", cell.start, cell.stop, reader.site)
    return None
