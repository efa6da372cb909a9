"""The shared cache: which bytes of an access hit, which come from main memory, and what has to be written
back.

Write-back, write-allocate without fetch, least recently used out first, at a granule the chip gives. A
granule remembers the hull of the bytes that were touched in it, so that reading another part of it is a miss.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Literal, NamedTuple

from npusim.config.chip import Chip
from npusim.isa.operand import Access
from npusim.program.program import SegmentSpec
from npusim.units import align_up

L2State = Literal["cold", "warm", "dirty"]
"""At the start: empty; holding the program's inputs; or full of somebody else's dirty lines."""


class Touched(NamedTuple):
    """What an access did to the cache, in bytes."""

    hit: int
    miss: int
    """Read from main memory."""
    evicted: int
    """Written back to main memory."""


class L2:
    """The state of the cache during a run."""

    def __init__(self, chip: Chip, segments: Sequence[SegmentSpec], state: L2State) -> None:
        self._granule = chip.l2.granule_bytes
        self._room = max(1, chip.l2.size_mib * 1024 * 1024 // self._granule)
        self._lines: OrderedDict[int, tuple[int, int, bool]] = OrderedDict()
        self._bases: list[int] = []
        base = 0
        for spec in segments:
            self._bases.append(base)
            base += align_up(spec.nbytes, self._granule)
        self._foreign = self._room if state == "dirty" else 0
        """Granules full of dirty bytes that were there before; they are the oldest."""
        if state == "warm":
            for index, spec in enumerate(segments):
                if spec.role in ("input", "inout", "constant"):
                    self._touch(self._bases[index], self._bases[index] + spec.nbytes, write=False)

    def access(self, access: Access, *, write: bool) -> Touched:
        """Touch the bytes of an access, in address order."""
        base = self._bases[access.segment]
        hit = miss = evicted = 0
        for start, stop in access.runs():
            found = self._touch(base + start, base + stop, write=write)
            hit, miss, evicted = hit + found.hit, miss + found.miss, evicted + found.evicted
        return Touched(hit, miss, evicted)

    def _touch(self, start: int, stop: int, *, write: bool) -> Touched:
        granule, lines = self._granule, self._lines
        hit = miss = evicted = 0
        for index in range(start // granule, -(-stop // granule)):
            low, high = max(start, index * granule), min(stop, (index + 1) * granule)
            line = lines.get(index)
            if line is None:
                evicted += self._make_room()
                lines[index] = (low, high, write)
                present = 0
            else:
                lines.move_to_end(index)
                present = max(0, min(high, line[1]) - max(low, line[0]))
                lines[index] = (min(low, line[0]), max(high, line[1]), line[2] or write)
            if write:
                hit += high - low
            else:
                hit += present
                miss += high - low - present
        return Touched(hit, miss, evicted)

    def _make_room(self) -> int:
        if len(self._lines) + self._foreign < self._room:
            return 0
        if self._foreign:
            self._foreign -= 1
            return self._granule
        _, (low, high, dirty) = self._lines.popitem(last=False)
        return high - low if dirty else 0
