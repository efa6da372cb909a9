"""Bank conflicts of the unified buffer: what a vector instruction loses because its blocks meet in a bank.

In one cycle a bank group serves `ports` reads or `ports` writes, and a bank one read or one write. The reads
of a repeat go out together, as many per group and cycle as it has ports; its result is written
`write_delay_cycles` later and goes before a read of the same bank, which waits (asc-devkit bank_conflict_ub
README for the geometry, H).
"""

from __future__ import annotations

from functools import lru_cache
from math import ceil
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from npusim.config.chip import Banks
from npusim.units import BLOCK_BYTES


class Walk(NamedTuple):
    """How an operand visits blocks; strides in bytes."""

    start: int
    block: int
    repeat: int
    blocks: int
    """Blocks of one repeat."""

    @property
    def visited(self) -> int:
        """Different blocks of one repeat; with block stride 0 the same one is read once (H)."""
        return self.blocks if self.block else 1


@lru_cache(1 << 16)
def bank_cycles(
    banks: Banks, reads: tuple[Walk, ...], writes: tuple[Walk, ...], repeats: int, base: float
) -> int:
    """Return the cycles of all repeats of an instruction, at least `base` for each."""
    if repeats <= banks.write_delay_cycles and _lone(banks, reads) and _lone(banks, writes):
        return ceil(repeats * base)
    read_places, write_places = _places(banks, reads, repeats), _places(banks, writes, repeats)
    if _free(banks, read_places, write_places, repeats, base):
        return ceil(repeats * base)
    # a source with repeat stride 0 is read once (H)
    moving = np.array([w.repeat > 0 for w in dict.fromkeys(reads) for _ in range(w.visited)], bool)
    read_rows = [read_places[0].tolist(), *read_places[1:, moving].tolist()]
    slots: dict[tuple[int, ...], list[int]] = {}
    pending: dict[int, int] = {}  # cycle of a write -> bits of its banks
    free, last_write, delay = 0.0, -1, banks.write_delay_cycles
    for read_row, write_row in zip(read_rows, write_places.tolist(), strict=True):
        cycle = ceil(free)
        for mask in _slots(banks, tuple(read_row), slots):
            while pending.get(cycle, 0) & mask:
                cycle += 1
            cycle += 1
        free = max(float(cycle), free + base)
        write = max(cycle - 1 + delay, last_write + 1)
        for mask in _slots(banks, tuple(write_row), slots):
            pending[write] = mask
            last_write = write
            write += 1
    return ceil(max(free, last_write + 1 - delay))


def _lone(banks: Banks, walks: tuple[Walk, ...]) -> bool:
    """Whether there is one walk at most and its blocks adjoin, so that they lie in different groups."""
    if len(walks) != 1:
        return not walks or (len(set(walks)) == 1 and _lone(banks, walks[:1]))
    (walk,) = walks
    return walk.blocks <= banks.groups and (walk.block == BLOCK_BYTES or walk.visited == 1)


def _places(banks: Banks, walks: tuple[Walk, ...], repeats: int) -> NDArray[np.int64]:
    """Return the banks that every repeat visits, (repeats, visits), as group + groups x bank of the group.

    Walks that are the same in all respects visit once.
    """
    rows = np.arange(repeats, dtype=np.int64)[:, None]
    visited = [
        walk.start + rows * walk.repeat + np.arange(walk.visited) * walk.block
        for walk in dict.fromkeys(walks)
    ]
    if not visited:
        return np.zeros((repeats, 0), np.int64)
    address = np.concatenate(visited, axis=1)
    group = address // BLOCK_BYTES % banks.groups
    bank = (address >> banks.bank_low_bit) % banks.banks
    places: NDArray[np.int64] = group + bank * banks.groups
    return places


def _free(
    banks: Banks, reads: NDArray[np.int64], writes: NDArray[np.int64], repeats: int, base: float
) -> bool:
    """Whether no two accesses meet; decided for all repeats at once, False where that takes a closer look."""
    if banks.groups * banks.banks > 64 or base < 1:
        return False
    for places in (reads, writes):
        groups = np.sort(places % banks.groups, axis=1)
        if (groups[:, 1:] == groups[:, :-1]).any():
            return False
    read_masks, write_masks = (
        np.bitwise_or.reduce(np.uint64(1) << p.astype(np.uint64), axis=1) for p in (reads, writes)
    )
    if base > 1:
        return not np.bitwise_or.reduce(read_masks) & np.bitwise_or.reduce(write_masks)
    delay = banks.write_delay_cycles
    later = write_masks[: max(0, repeats - delay)]
    return not (read_masks[delay:] & later).any()


def _slots(banks: Banks, places: tuple[int, ...], known: dict[tuple[int, ...], list[int]]) -> list[int]:
    """Spread visits over cycles, `ports` per group and cycle; return the banks of every cycle as bits."""
    found = known.get(places)
    if found is not None:
        return found
    slots: list[int] = []
    taken = [0] * banks.groups
    for place in places:
        group = place % banks.groups
        slot = taken[group] // banks.ports
        taken[group] += 1
        if len(slots) <= slot:
            slots.append(0)
        slots[slot] |= 1 << place
    known[places] = slots
    return slots
