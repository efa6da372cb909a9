"""Blocks and cores: more blocks than cores, and meeting of all cores."""

from __future__ import annotations

import numpy as np
import pytest

from npusim import Expected, Pipe, isa, load_chip, program, simulate
from npusim.errors import HazardError
from npusim.isa.instruction import OriginKind

TOY = load_chip("toy")
B4 = load_chip("ascend-910b4")


@program
def numbered(k, *, blocks: int = 5):
    """Every block writes its number."""
    y = k.output("y", (blocks, 8), "float32")

    def stream(c):
        tile = c.ub(8, isa.F32)
        queue = c.queue(Pipe.V, Pipe.MTE3, [tile])
        free = yield from queue.alloc()
        yield from c.vector(isa.Duplicate, count=8, dst=free, scalar=float(c.block))
        yield from queue.enque()
        full = yield from queue.deque()
        yield isa.copy_out(y[c.block], full)
        yield from queue.free()

    k.launch("numbered", vector=stream, blocks=blocks)
    k.reference(lambda _: {"y": Expected(np.repeat(np.arange(blocks), 8).reshape(blocks, 8))})


@pytest.mark.parametrize("blocks", [1, 2, 3, 5, 8])
def test_blocks_beyond_the_cores_run_after_the_others(blocks):
    seen = []
    report = simulate(numbered, TOY, blocks=blocks, observe=lambda _, streams: seen.extend(streams))
    assert report.values.ok
    assert report.launches[0].cores == min(blocks, 2)
    for number, stream in enumerate(seen):
        ends = [op for op in stream.ops if isinstance(op, isa.PipeBarrier)]
        assert len(ends) == len(range(number, blocks, 2)) - 1
        assert all(op.on is Pipe.ALL and op.origin is OriginKind.EXPANSION for op in ends)


def test_a_core_with_two_blocks_takes_twice_as_long():
    once, twice, thrice = (simulate(numbered, TOY, blocks=n).total_cycles for n in (2, 4, 6))
    assert twice - once == pytest.approx(once, rel=0.1)
    assert thrice - twice == twice - once


def neighbour(meet=True, mixed=True):
    """Vector core v writes its number; behind the meeting every core reads what its neighbour wrote."""

    @program
    def build(k, *, groups: int = 3):
        count = 2 * groups
        w, y = k.workspace("w", (count, 8), "float32"), k.output("y", (count, 8), "float32")

        def vector(c):
            me = 2 * c.core.group + c.core.number
            tile, other = c.ub(8, isa.F32), c.ub(8, isa.F32)
            made, read = c.flag(Pipe.V, Pipe.MTE3), c.flag(Pipe.MTE2, Pipe.MTE3)
            yield from c.vector(isa.Duplicate, count=8, dst=tile, scalar=float(me))
            yield made.set
            yield made.wait
            yield isa.copy_out(w[me], tile)
            if meet:
                yield from c.sync_all()
            yield isa.copy_in(other, w[(me + 1) % count])
            yield read.set
            yield read.wait
            yield isa.copy_out(y[me], other)

        def cube(c):
            yield from c.sync_all() if meet else ()

        if mixed:
            k.launch("n", cube=cube, vector=vector, blocks=groups)
        else:
            k.launch("n", vector=vector, blocks=count)
        k.reference(lambda _: {"y": Expected(np.repeat((np.arange(count) + 1) % count, 8).reshape(count, 8))})

    return build


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("groups", [1, 3])
def test_behind_a_meeting_every_core_sees_what_the_others_stored(mixed, groups):
    assert simulate(neighbour(mixed=mixed), B4, groups=groups).values.ok


@pytest.mark.parametrize("mixed", [False, True])
def test_without_it_that_is_a_race_or_unwritten(mixed):
    with pytest.raises(HazardError, match="which nothing has written"):
        simulate(neighbour(meet=False, mixed=mixed), B4)


def test_what_a_meeting_costs():
    """The flags inside the groups twice and the flag between all cores once, at least."""
    flags = B4.flags
    alone = B4.cycles(flags.all_latency_ns)
    mix = alone + 2 * B4.cycles(flags.group_latency_ns)
    for mixed, least in ((False, alone), (True, mix)):
        report = simulate(neighbour(mixed=mixed), B4)
        waited = max(p.cross_core for name, p in report.pipes.items() if "vec" in name)
        assert least - 3 <= waited <= least + 10


def test_the_start_is_paid_by_ai_cores():
    start = B4.launch
    for groups in (1, 3):
        report = simulate(neighbour(), B4, groups=groups, timing_only=True)
        expected = start.device_us + (groups - 1) * start.device_per_ai_core_us
        assert report.launch_overhead_us == pytest.approx(expected)
