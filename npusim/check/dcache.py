"""The scalar data cache as a source of errors: it sees no stores by others, and others see its stores only
when cleaned.

A line counts as cached from the first scalar access until it is cleaned, since a program cannot know when the
hardware drops it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from npusim.check.shadow import Shadow, Touch
from npusim.isa.operand import Operand

Writers = tuple[tuple[int, int, Touch], ...]
"""Byte intervals and who wrote them last."""


class Dirty(NamedTuple):
    """Bytes that a scalar store has put into a line."""

    start: int
    stop: int
    core: int
    number: int


class DataCaches:
    """Lines of global memory in the data caches of all cores of a launch."""

    def __init__(self, line_bytes: int) -> None:
        self._width = line_bytes
        self._loaded: dict[tuple[int, int, int], Writers] = {}
        """Who had written the bytes of a line when it was loaded, by core, segment and line."""
        self.dirty: dict[tuple[int, int, int], list[Dirty]] = {}

    def load(self, core: int, at: Operand, shadow: Shadow) -> Touch | None:
        """Note a scalar read; return the store that the cached line is too old to show."""
        start, stop = at.address, at.address + at.dtype.size
        key = self._touch(core, at, shadow)
        then = self._loaded[key]
        for low, high, writer in shadow.writers(start, stop):
            if (low, high, writer) in then or self._own(key, low, high):
                continue
            if not any(a <= low and high <= b and old == writer for a, b, old in then):
                return writer
        return None

    def store(self, core: int, number: int, at: Operand, shadow: Shadow) -> None:
        """Note a scalar store: the bytes are in the line only."""
        key = self._touch(core, at, shadow)
        dirty = Dirty(at.address, at.address + at.dtype.size, core, number)
        self.dirty.setdefault(key, []).append(dirty)

    def own(self, core: int, at: Operand) -> bool:
        """Whether a core reads what it has just stored itself."""
        key = (core, at.segment, at.address // self._width)
        return self._own(key, at.address, at.address + at.dtype.size)

    def clean(self, core: int, at: Operand | None) -> Iterator[tuple[int, Dirty]]:
        """Drop a line, or all lines of a core; yield segment and bytes that go to memory with it."""
        keys = [k for k in self._loaded if k[0] == core]
        if at is not None:
            keys = [k for k in keys if k[1:] == (at.segment, at.address // self._width)]
        for key in keys:
            del self._loaded[key]
            for dirty in self.dirty.pop(key, ()):
                yield key[1], dirty

    def unseen(self, segment: int, start: int, stop: int) -> Dirty | None:
        """Return a store to some bytes that is in a cache only."""
        for key, stores in self.dirty.items():
            if key[1] == segment:
                for dirty in stores:
                    if dirty.start < stop and start < dirty.stop:
                        return dirty
        return None

    @property
    def left(self) -> Dirty | None:
        """A store that never went to memory."""
        return next((stores[0] for stores in self.dirty.values()), None)

    def _touch(self, core: int, at: Operand, shadow: Shadow) -> tuple[int, int, int]:
        key = (core, at.segment, at.address // self._width)
        if key not in self._loaded:
            start = key[2] * self._width
            self._loaded[key] = tuple(shadow.writers(start, start + self._width))
        return key

    def _own(self, key: tuple[int, int, int], start: int, stop: int) -> bool:
        return any(d.start <= start and stop <= d.stop for d in self.dirty.get(key, ()))
