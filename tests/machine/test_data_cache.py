"""The data cache of the scalar unit: values that go stale, stores written back, and what a miss costs."""

from __future__ import annotations

import numpy as np
import pytest

from npusim import Builder, Pipe, isa, load_chip, program, simulate

TOY = load_chip("toy")
WORDS = TOY.scalar.dcache_line_bytes // 4
LINES = TOY.scalar.dcache_lines


def run(stream, n=64 * WORDS, **options):
    """Run a stream of one vector core over an inout array y of whole numbers.

    Without checks, which would refuse to read stale lines and to leave stores behind.
    """

    @program
    def cached(k: Builder) -> None:
        y = k.inout("y", (n,), "int32", lambda _: np.arange(n, dtype=np.int32))
        k.launch("cached", vector=lambda c: stream(c, y))

    return simulate(cached, TOY, check=False, **options)


def test_a_line_does_not_see_a_store_of_another_pipe_until_it_is_dropped():
    seen = []

    def stream(c, y):
        a, filled, stored = c.ub(16, isa.S32), c.flag(Pipe.V, Pipe.MTE3), c.flag(Pipe.MTE3, Pipe.S)
        read = c.flag(Pipe.S, Pipe.MTE3)
        seen.append((yield isa.GetValue(reg=0, src=y.flat(3, 1))))
        yield read.set
        yield from c.vector(isa.Duplicate, count=16, dst=a, scalar=99)
        yield filled.set
        yield filled.wait
        yield read.wait
        yield isa.copy_out(y.flat(0, 16), a)
        yield stored.set
        yield stored.wait
        seen.append((yield isa.GetValue(reg=0, src=y.flat(3, 1))))
        yield isa.DataCacheCleanAndInvalid(at=y.flat(5, 1))
        seen.append((yield isa.GetValue(reg=0, src=y.flat(3, 1))))

    run(stream)
    assert seen == [3, 3, 99]


@pytest.mark.parametrize("clean", ["line", "all", "end", "eviction"])
def test_a_scalar_store_reaches_memory_when_its_line_leaves_the_cache(clean):
    def stream(c, y):
        yield isa.SetValue(dst=y.flat(2, 1), value=-7)
        if clean == "line":
            yield isa.DataCacheCleanAndInvalid(at=y.flat(0, 1))
        elif clean == "all":
            yield isa.DataCacheCleanAndInvalid(at=y.flat(40, 1), all=True)
        elif clean == "eviction":
            for line in range(1, LINES + 1):
                yield isa.GetValue(reg=0, src=y.flat(line * WORDS, 1))

    expected = np.arange(64 * WORDS)
    expected[2] = -7
    np.testing.assert_array_equal(run(stream).outputs["y"], expected)


def test_cleaning_a_line_writes_only_the_bytes_that_were_stored():
    """What another core has stored to the same line meanwhile stays."""

    @program
    def shared(k: Builder) -> None:
        y = k.inout("y", (16,), "int32", lambda _: np.zeros(16, np.int32))

        def stream(c):
            mine = y.flat(8 * c.core.number, 1)
            yield isa.GetValue(reg=0, src=mine)
            yield isa.CrossCoreSetFlag(group=isa.Group.ALL, on=Pipe.S, id=0)
            yield isa.CrossCoreWaitFlag(group=isa.Group.ALL, id=0)
            yield isa.SetValue(dst=mine, value=5 + c.core.number)

        k.launch("shared", vector=stream, blocks=2)

    y = simulate(shared, TOY, check=False).outputs["y"]
    assert (y[0], y[8]) == (5, 6)
    assert y.sum() == 11


def test_the_line_that_was_used_longest_ago_leaves_the_cache():
    """After an overwrite in memory, line 0 is still there and stale, line 1 has left and is read anew."""
    everything = isa.PipeBarrier(on=Pipe.ALL)
    seen = []

    def stream(c, y):
        a = c.ub(2 * WORDS, isa.S32)
        for line in (*range(LINES), 0, LINES):
            yield isa.GetValue(reg=0, src=y.flat(line * WORDS, 1))
        yield from c.vector(isa.Duplicate, count=2 * WORDS, dst=a, scalar=-1)
        yield everything
        yield isa.copy_out(y.flat(0, 2 * WORDS), a)
        yield everything
        for line in (0, 1):
            seen.append((yield isa.GetValue(reg=0, src=y.flat(line * WORDS, 1))))

    run(stream)
    assert seen == [0, -1]


def cycles(lines):
    """Return the cycles that the scalar unit waits for lines of global memory read in an order.

    A minus drops line 1, a star drops all lines.
    """

    def stream(c, y):
        for line in lines:
            if line in ("-", "*"):
                yield isa.DataCacheCleanAndInvalid(at=y.flat(WORDS + 1, 1), all=line == "*")
            else:
                yield isa.GetValue(reg=0, src=y.flat(line * WORDS, 1))

    return run(stream, timing_only=True).pipes["core0.vec0.S"].link


def test_what_a_read_costs():
    miss = TOY.cycles(TOY.scalar.gm_read_ns)
    every = list(range(LINES))
    assert cycles([0, 0, 0]) == miss
    assert cycles([0, 1, 0, 1]) == 2 * miss
    assert cycles([0, 1, 2, "-", 0, 1, 2]) == 4 * miss
    assert cycles([0, 1, 2, "*", 0, 1, 2]) == 6 * miss
    assert cycles([*every, *every]) == LINES * miss
    assert cycles([*every, LINES, *every[1:]]) == (LINES + 1) * miss  # line 0 was the oldest
    assert cycles([*every, 0, LINES, 0]) == (LINES + 1) * miss  # now line 1 was
    assert cycles([*every, 0, LINES, 1]) == (LINES + 2) * miss
