"""Instructions that come back when a phase of a stream runs again."""

from __future__ import annotations

from collections.abc import Callable

from npusim import Kernel

from ._carries import Body, Steps
from ._mcscan import CubeSide, Scan


class Kept:
    """Instructions of one core that come back: the same objects again, which saves making them, and everyone
    who reads the stream from looking at them anew.
    """

    def __init__(self) -> None:
        self._kept: dict[object, Body] = {}

    def again(self, key: object, make: Callable[[], Steps]) -> Body:
        """Return what `make` yields, at the first call with a key; it must not ask for values or states."""
        found = self._kept.get(key)
        if found is None:
            found = self._kept[key] = tuple(make())
        return found


class CubeAgain(CubeSide):
    """What a cube core does in a scan, which is the same each time."""

    def __init__(self, scan: Scan, c: Kernel) -> None:
        super().__init__(scan, c)
        self._kept = Kept()

    def run(self) -> Steps:
        """Make local sums; a `SyncAll` must follow before others read the result."""
        yield from self._kept.again("run", super().run)
