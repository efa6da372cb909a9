"""Who wrote and who read every byte of a memory: where races and never-written bytes are found."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from npusim.check.order import Clock

HOST = -1
"""Thread of everything before a launch; it is done whatever anybody knows."""


Intervals = Sequence[tuple[int, int]]
"""Byte intervals in address order that do not meet."""

Touch = tuple[int, int, int]
"""An access: the thread, its count of the access, and the position in the stream of its core."""


class Conflict(NamedTuple):
    """Two accesses of one byte that nothing orders, or one access of a byte that nobody wrote."""

    what: str
    """`raw`, `war`, `waw` or `poison`."""
    start: int
    stop: int
    other: Touch | None
    """The earlier access; None for poison."""


class Cell:
    """Bytes with one writer. Reads of parts of them are kept with their own bounds."""

    __slots__ = ("atomics", "readers", "scattered", "start", "stop", "writer")

    def __init__(self, start: int, stop: int, writer: Touch) -> None:
        self.start = start
        self.stop = stop
        self.writer = writer
        self.readers: dict[tuple[int, int, int], Touch] = {}
        """Last read since `writer`, by thread and bounds."""
        self.scattered: dict[tuple[int, int], tuple[Intervals, Touch]] = {}
        """The same for reads of many intervals inside the cell, by thread and identity of the intervals."""
        self.atomics: dict[int, Touch] = {}
        """Atomic updates since `writer`, by thread; they need no order among themselves."""

    def cut(self, start: int, stop: int) -> Cell:
        """Return a part of the cell with the same history."""
        part = Cell(start, stop, self.writer)
        if self.readers or self.scattered:
            part.readers, part.scattered = self.readers.copy(), self.scattered.copy()
            part.trim(start, stop)
        if self.atomics:
            part.atomics = self.atomics.copy()
        return part

    def renew(self, touch: Touch) -> None:
        """Let the history begin with a write of the whole cell."""
        self.writer = touch
        if self.readers:
            self.readers = {}
        if self.scattered:
            self.scattered = {}
        if self.atomics:
            self.atomics = {}

    def trim(self, start: int, stop: int) -> None:
        """Let the cell be a part of itself."""
        self.start, self.stop = start, stop
        if self.readers:
            self.readers = {k: v for k, v in self.readers.items() if k[1] < stop and start < k[2]}
        if self.scattered:
            self.scattered = {k: v for k, v in self.scattered.items() if _meet(v[0], start, stop)}


class Shadow:
    """The history of one memory, as disjoint cells in address order; bytes in no cell were never written."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._cells: list[Cell] = []

    def preset(self, nbytes: int) -> None:
        """Declare all bytes written before the launch."""
        self._starts, self._cells = [0], [Cell(0, nbytes, (HOST, 0, 0))]

    def settle(self) -> None:
        """Make everything so far a thing of the past, as the end of a launch does."""
        merged: list[Cell] = []
        for cell in self._cells:
            if merged and merged[-1].stop == cell.start:
                merged[-1].stop = cell.stop
            else:
                merged.append(Cell(cell.start, cell.stop, (HOST, 0, 0)))
        self._cells = merged
        self._starts = [c.start for c in merged]

    def read_all(self, runs: Intervals, touch: Touch, known: Clock, ordered: bool) -> Conflict | None:
        """Record a read of some intervals: as one where they lie in one cell, as those of a matrix do."""
        if len(runs) > 1:
            index = bisect_right(self._starts, runs[0][0]) - 1
            cell = self._cells[index] if index >= 0 else None
            if cell is not None and runs[-1][1] <= cell.stop and not cell.atomics:
                writer, tick, _ = cell.writer
                if known.item(writer) < tick and (writer != touch[0] or not ordered):
                    return Conflict("raw", *runs[0], cell.writer)
                cell.scattered[touch[0], id(runs)] = runs, touch
                return None
        for start, stop in runs:
            conflict = self.read(start, stop, touch, known, ordered)
            if conflict is not None:
                return conflict
        return None

    def read(self, start: int, stop: int, touch: Touch, known: Clock, ordered: bool) -> Conflict | None:
        """Record a read; `ordered` says that the pipe itself keeps it behind its own writes."""
        cells = self._cells
        index = bisect_right(self._starts, start) - 1
        if index < 0 or cells[index].stop <= start:
            return Conflict("poison", *self._gap_at(start, stop), None)
        thread = touch[0]
        at = start
        while True:
            cell = cells[index]
            if cell.start > at:
                return Conflict("poison", *self._gap_at(at, stop), None)
            writer, tick, _ = cell.writer
            if known.item(writer) < tick and (writer != thread or not ordered):
                return Conflict("raw", max(start, cell.start), min(stop, cell.stop), cell.writer)
            if cell.atomics:
                found = _unknown_atomic(cell, thread, known, ordered)
                if found is not None:
                    return Conflict("raw", max(start, cell.start), min(stop, cell.stop), found)
            cell.readers[thread, start, stop] = touch
            at = cell.stop
            if at >= stop:
                return None
            index += 1
            if index >= len(cells):
                return Conflict("poison", at, stop, None)

    def write_all(self, runs: Intervals, touch: Touch, known: Clock, ordered: bool) -> Conflict | None:
        """Record a write of some intervals.

        Rows of a matrix lie in a small part of what may be very many cells, so they are put into that part by
        itself, and the part into the whole at once.
        """
        first = max(0, bisect_right(self._starts, runs[0][0]) - 1)
        last = bisect_right(self._starts, runs[-1][1] - 1)
        part = Shadow()
        part._starts, part._cells = self._starts[first:last], self._cells[first:last]
        for start, stop in runs:
            conflict = part.write(start, stop, touch, known, ordered)
            if conflict is not None:
                return conflict
        self._starts[first:last], self._cells[first:last] = part._starts, part._cells
        return None

    def write(self, start: int, stop: int, touch: Touch, known: Clock, ordered: bool) -> Conflict | None:
        """Record a write that replaces what was there."""
        after = bisect_right(self._starts, start)
        index = after - 1
        if (after == len(self._starts) or self._starts[after] >= stop) and (
            index < 0 or self._cells[index].stop <= start
        ):  # bytes that nobody has written, as those of most results
            self._starts.insert(after, start)
            self._cells.insert(after, Cell(start, stop, touch))
            return None
        if index >= 0:
            cell = self._cells[index]
            if stop <= cell.stop:  # the usual case: one cell, or a part of one
                conflict = _write_conflict(cell, start, stop, touch[0], known, ordered)
                if conflict is not None:
                    return conflict
                if cell.start < start:
                    self._replace(start, stop, Cell(start, stop, touch))
                elif stop < cell.stop:  # a tile written row by row
                    cell.trim(stop, cell.stop)
                    self._cells.insert(index, Cell(start, stop, touch))
                    self._starts.insert(index + 1, stop)
                else:
                    cell.renew(touch)
                return None
        for cell in self._overlapping(start, stop):
            conflict = _write_conflict(cell, start, stop, touch[0], known, ordered)
            if conflict is not None:
                return conflict
        self._replace(start, stop, Cell(start, stop, touch))
        return None

    def update_all(self, runs: Intervals, touch: Touch, known: Clock) -> Conflict | None:
        """Record an atomic update of some intervals."""
        for start, stop in runs:
            conflict = self.update(start, stop, touch, known)
            if conflict is not None:
                return conflict
        return None

    def update(self, start: int, stop: int, touch: Touch, known: Clock) -> Conflict | None:
        """Record an atomic update: it needs a value to be there, and no order to other atomic updates."""
        gap = self.gap(start, stop)
        if gap is not None:
            return Conflict("poison", *gap, None)
        for cell in self._carve(start, stop):
            reader = _unknown_read(cell, start, stop, touch[0], known)
            if reader is not None:
                return Conflict("war", cell.start, cell.stop, reader)
            writer = cell.writer
            if known.item(writer[0]) < writer[1]:
                return Conflict("waw", cell.start, cell.stop, writer)
            cell.atomics[touch[0]] = touch
        return None

    def writers(self, start: int, stop: int) -> list[tuple[int, int, Touch]]:
        """Return who wrote the bytes of a range last, by interval; bytes that nobody wrote are left out."""
        cells = self._overlapping(start, stop)
        return [(max(start, c.start), min(stop, c.stop), c.writer) for c in cells]

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

    def _gap_at(self, start: int, stop: int) -> tuple[int, int]:
        gap = self.gap(start, stop)
        assert gap is not None
        return gap

    def _overlapping(self, start: int, stop: int) -> list[Cell]:
        """Return the cells that share bytes with a range."""
        first = bisect_right(self._starts, start) - 1
        if first < 0 or self._cells[first].stop <= start:
            first += 1
        return self._cells[first : bisect_right(self._starts, stop - 1)]

    def _carve(self, start: int, stop: int) -> list[Cell]:
        """Return the cells inside a range, after cutting those that reach over its ends."""
        for cell in self._overlapping(start, stop):
            index = bisect_right(self._starts, cell.start) - 1
            if cell.start < start:
                self._insert(index + 1, cell.cut(start, cell.stop))
                cell.stop = start
                index += 1
                cell = self._cells[index]
            if cell.stop > stop:
                self._insert(index + 1, cell.cut(stop, cell.stop))
                cell.stop = stop
        return self._overlapping(start, stop)

    def _insert(self, index: int, cell: Cell) -> None:
        self._cells.insert(index, cell)
        self._starts.insert(index, cell.start)

    def _replace(self, start: int, stop: int, cell: Cell) -> None:
        """Put one cell in the place of all bytes of a range."""
        first = bisect_right(self._starts, start) - 1
        if first < 0 or self._cells[first].stop <= start:
            first += 1
        last = bisect_right(self._starts, stop - 1)
        fresh = [cell]
        if first < last:
            left, right = self._cells[first], self._cells[last - 1]
            if left.start < start:
                fresh.insert(0, left.cut(left.start, start))
            if right.stop > stop:
                fresh.append(right.cut(stop, right.stop))
        self._cells[first:last] = fresh
        self._starts[first:last] = [c.start for c in fresh]


def _unknown_atomic(cell: Cell, thread: int, known: Clock, ordered: bool) -> Touch | None:
    for atomic in cell.atomics.values():
        if (atomic[0] != thread or not ordered) and known.item(atomic[0]) < atomic[1]:
            return atomic
    return None


def _unknown_read(cell: Cell, start: int, stop: int, thread: int, known: Clock) -> Touch | None:
    """Return a read of some of the bytes that may still be under way; no pipe overtakes its own reads."""
    for (reader, low, high), touch in cell.readers.items():
        if reader != thread and low < stop and start < high and known.item(reader) < touch[1]:
            return touch
    for runs, touch in cell.scattered.values():
        if touch[0] != thread and known.item(touch[0]) < touch[1] and _meet(runs, start, stop):
            return touch
    return None


def _meet(runs: Intervals, start: int, stop: int) -> bool:
    """Whether some of the intervals have a byte of a range."""
    index = bisect_right(runs, start, key=lambda run: run[1])
    return index < len(runs) and runs[index][0] < stop


def _write_conflict(
    cell: Cell, start: int, stop: int, thread: int, known: Clock, ordered: bool
) -> Conflict | None:
    rule, found = "war", None
    # reads first, since what is ordered behind a read is ordered behind what was read, too
    if cell.readers or cell.scattered:
        found = _unknown_read(cell, start, stop, thread, known)
    if found is None:
        rule = "waw"
        writer, tick, _ = cell.writer
        if known.item(writer) < tick and (writer != thread or not ordered):
            found = cell.writer
        elif cell.atomics:
            found = _unknown_atomic(cell, thread, known, ordered)
    return None if found is None else Conflict(rule, max(start, cell.start), min(stop, cell.stop), found)
