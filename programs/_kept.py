"""Instructions that come back: made once, and yielded again as the same objects."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from npusim import Macro
from npusim.program.macro import Item

Body = tuple[Item, ...]


class Kept:
    """Sequences of instructions by a key that says what they depend on.

    Yielding the same objects again saves making them, and everyone who reads the stream from looking at them
    anew. One core keeps what holds places of its own; all cores of a launch share what holds buffers and
    flags only, for which they must reserve the same in the same order.
    """

    def __init__(self) -> None:
        self._bodies: dict[object, Body] = {}
        self._macros: dict[object, Macro] = {}

    def again(self, key: object, make: Callable[[], Iterable[Item]]) -> Body:
        """Return what `make` yields, at the first call with a key; it must not ask for values or states."""
        found = self._bodies.get(key)
        if found is None:
            found = self._bodies[key] = tuple(make())
        return found

    def macro(self, key: object, make: Callable[[], Iterable[Item]]) -> Macro:
        """Return what `make` yields as one macro, at the first call with a key."""
        found = self._macros.get(key)
        if found is None:
            found = self._macros[key] = Macro(make())
        return found
