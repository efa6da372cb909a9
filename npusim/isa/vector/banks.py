"""Bank conflicts of the unified buffer: what a vector instruction loses because its blocks meet in a bank.

In one cycle a bank group serves `ports` reads or `ports` writes, and a bank one read or one write. The reads
of a repeat go out together, as many per group and cycle as it has ports; its result is written `WRITE_DELAY`
cycles later and goes before a read of the same bank, which waits (asc-devkit bank_conflict_ub README for the
geometry, H)."""

from __future__ import annotations

from functools import lru_cache
from math import ceil
from typing import NamedTuple

import numpy as np

from npusim.config.chip import Banks
from npusim.units import BLOCK_BYTES

WRITE_DELAY = 13
"""Cycles from the last read of a repeat to its write.

Odd, so that a destination in phase with a source is free of conflicts ("written one repeat later" in the
vendor's words); 13 reproduces the eight measured scenarios of the bank_conflict_ub README within 4 % (M). """


class Walk(NamedTuple):
    """How an operand visits blocks; strides in bytes."""

    start: int
    block: int
    repeat: int
    blocks: int
    """Blocks of one repeat."""


@lru_cache(1 << 16)
def bank_cycles(
    banks: Banks, reads: tuple[Walk, ...], writes: tuple[Walk, ...], repeats: int, base: float
) -> int:
    """Return the cycles of all repeats of an instruction, at least `base` for each."""
    if _free(banks, reads, writes, repeats, base):
        return ceil(repeats * base)
    patterns: dict[tuple[tuple[int, ...], ...], tuple[list[int], list[int]]] = {}
    pending: dict[int, int] = {}  # cycle of a write -> bits of its banks
    free, last_write = 0.0, -1
    for repeat in range(repeats):
        places = tuple(_place(banks, walk, repeat) for walk in (*reads, *writes))
        found = patterns.get(places)
        if found is None:
            found = (
                _slots(banks, _once(reads, repeat), repeat),
                _slots(banks, writes, repeat),
            )
            patterns[places] = found
        cycle = ceil(free)
        for mask in found[0]:
            while pending.get(cycle, 0) & mask:
                cycle += 1
            cycle += 1
        free = max(float(cycle), free + base)
        write = max(cycle - 1 + WRITE_DELAY, last_write + 1)
        for mask in found[1]:
            pending[write] = mask
            last_write = write
            write += 1
    return ceil(max(free, last_write + 1 - WRITE_DELAY))


def _once(walks: tuple[Walk, ...], repeat: int) -> tuple[Walk, ...]:
    """Leave out reads that the hardware does not repeat: a source with repeat stride 0 is read once."""
    return walks if not repeat else tuple(w for w in walks if w.repeat)


def _free(banks: Banks, reads: tuple[Walk, ...], writes: tuple[Walk, ...], repeats: int, base: float) -> bool:
    """Whether no two accesses meet; decided for all repeats at once, False where that takes a closer look."""
    if banks.groups * banks.banks > 64 or base < 1:
        return False
    read_masks = _masks(banks, reads, repeats)
    write_masks = _masks(banks, writes, repeats)
    if read_masks is None or write_masks is None:
        return False
    if base > 1:
        return not np.bitwise_or.reduce(read_masks) & np.bitwise_or.reduce(write_masks)
    return repeats <= WRITE_DELAY or not (read_masks[WRITE_DELAY:] & write_masks[:-WRITE_DELAY]).any()


def _masks(
    banks: Banks, walks: tuple[Walk, ...], repeats: int
) -> np.ndarray[tuple[int], np.dtype[np.uint64]] | None:
    """Return the bits of the banks of every repeat, or None where two accesses of one repeat meet in a
    group.
    """
    rows = np.arange(repeats, dtype=np.int64)[:, None]
    visited = [
        walk.start + rows * walk.repeat + np.arange(walk.blocks if walk.block else 1) * walk.block
        for walk in dict.fromkeys(walks)
    ]
    if not visited:
        return np.zeros(repeats, np.uint64)
    address = np.concatenate(visited, axis=1)
    group = address // BLOCK_BYTES % banks.groups
    ordered = np.sort(group, axis=1)
    if (ordered[:, 1:] == ordered[:, :-1]).any():
        return None
    bank = group + (address >> banks.bank_low_bit) % banks.banks * banks.groups
    masks: np.ndarray[tuple[int], np.dtype[np.uint64]] = np.bitwise_or.reduce(
        np.uint64(1) << bank.astype(np.uint64), axis=1
    )
    return masks


def _place(banks: Banks, walk: Walk, repeat: int) -> tuple[int, ...]:
    """Return what decides where a walk meets others in a repeat: its group, and the banks of its ends."""
    first = walk.start + repeat * walk.repeat
    last = first + (walk.blocks - 1) * walk.block
    low, count = banks.bank_low_bit, banks.banks
    if first >> low == last >> low:
        return (first // BLOCK_BYTES % banks.groups, (first >> low) % count, int(walk.repeat == 0 < repeat))
    return (first, last, repeat)


def _slots(banks: Banks, walks: tuple[Walk, ...], repeat: int) -> list[int]:
    """Spread the accesses of a repeat over cycles, `ports` per group; return the banks of every cycle as
    bits.
    """
    slots: list[int] = []
    taken: dict[int, int] = {}
    for start, stride in dict.fromkeys((w.start + repeat * w.repeat, (w.block, w.blocks)) for w in walks):
        for i in range(stride[1] if stride[0] else 1):
            address = start + i * stride[0]
            group = address // BLOCK_BYTES % banks.groups
            slot = taken.get(group, 0) // banks.ports
            taken[group] = taken.get(group, 0) + 1
            while len(slots) <= slot:
                slots.append(0)
            slots[slot] |= 1 << (group + (address >> banks.bank_low_bit) % banks.banks * banks.groups)
    return slots
