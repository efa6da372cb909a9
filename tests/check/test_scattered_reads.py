"""Reads and writes of many intervals, which are recorded as one where they can be, against one record per
interval, and against the writer of every byte.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from npusim.check.shadow import Shadow

ROOM = 60


def intervals(rng):
    """Return some intervals in order that do not meet."""
    cuts = np.sort(rng.choice(ROOM, 2 * rng.integers(1, 6), replace=False)).tolist()
    return tuple(zip(cuts[::2], cuts[1::2], strict=True))


def test_the_same_conflicts_are_found():
    seen = set()
    for seed in range(150):
        rng = np.random.default_rng(seed)
        together, apart = Shadow(), Shadow()
        for shadow in (together, apart):
            shadow.preset(ROOM - 5)
        ticks = [0, 0, 0]
        # all know of thread -1, the host
        known = {thread: np.array([0, 0, 0, 1]) for thread in range(3)}
        for step in range(40):
            thread = int(rng.integers(3))
            ticks[thread] += 1
            known[thread][thread] = ticks[thread]
            if rng.random() < 0.5:  # what another thread did so far is known from here on
                other = int(rng.integers(3))
                known[thread] = np.maximum(known[thread], known[other])
            touch = (thread, ticks[thread], step)
            runs, kind = intervals(rng), rng.integers(4)
            if kind < 2:
                one = together.read_all(runs, touch, known[thread], True)
                each = (apart.read(*run, touch, known[thread], True) for run in runs)
                many = next((c for c in each if c is not None), None)
            elif kind == 2:
                one = together.write_all(runs, touch, known[thread], True)
                each = (apart.write(*run, touch, known[thread], True) for run in runs)
                many = next((c for c in each if c is not None), None)
            else:
                start, stop = runs[0]
                one, many = (s.update(start, stop, touch, known[thread]) for s in (together, apart))
            assert (one and one[:3]) == (many and many[:3]), (seed, step)
            if one is not None:
                seen.add(one.what)
                break
    assert seen == {"raw", "war", "waw", "poison"}


@pytest.mark.parametrize("seed", range(20))
def test_the_last_writer_of_every_byte_is_known(seed):
    rng = np.random.default_rng(seed)
    shadow, last = Shadow(), {}
    everything = np.array([1000])
    for step in range(30):
        runs, touch = intervals(rng), (0, step, step)
        if step % 2:
            assert shadow.write_all(runs, touch, everything, False) is None
        else:
            assert all(shadow.write(*run, touch, everything, False) is None for run in runs)
        last |= {byte: touch for low, high in runs for byte in range(low, high)}
        found = shadow.writers(0, ROOM)
        assert {byte: who for low, high, who in found for byte in range(low, high)} == last
        assert all(a[1] <= b[0] for a, b in pairwise(found))


def test_only_the_intervals_are_read():
    """The bytes between them may be written by others at any time."""
    reader, writer = (0, 1, 7), (1, 1, 8)
    for start, stop, found in ((0, 4, True), (4, 8, False), (4, 9, True), (12, 30, False), (20, 41, True)):
        shadow = Shadow()
        shadow.preset(50)
        assert shadow.read_all(((0, 4), (8, 12), (40, 44)), reader, np.array([1, 0, 1]), False) is None
        conflict = shadow.write(start, stop, writer, np.array([0, 1, 1]), False)
        assert (conflict is not None) == found
        if conflict is not None:
            assert conflict.what == "war"
            assert conflict.other == reader


@pytest.mark.parametrize("runs", [((0, 40),), ((0, 4), (8, 40))])
@pytest.mark.parametrize("taken", [(0, 10), (5, 10), (30, 50)])
def test_what_is_left_of_a_cell_remembers_its_reads(runs, taken):
    """A write of a part of what was read, by one who knows of the read, leaves the rest to be watched."""
    shadow, reader = Shadow(), (0, 1, 7)
    shadow.preset(50)
    assert shadow.read_all(runs, reader, np.array([1, 0, 0, 1]), False) is None
    assert shadow.write(*taken, (1, 1, 8), np.array([1, 1, 0, 1]), False) is None
    conflict = shadow.write(12, 20, (2, 1, 9), np.array([0, 0, 1, 1]), False)
    assert conflict is not None
    assert (conflict.what, conflict.other) == ("war", reader)
