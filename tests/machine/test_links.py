"""Shared links: equal shares, cycle by cycle; ports that move one transfer at a time; what sets the pace."""

from __future__ import annotations

from fractions import Fraction
from math import ceil, inf

import hypothesis.strategies as st
import pytest
import simpy
from hypothesis import given, settings
from random_programs import COUPLED, TOY, changed

from npusim import Builder, Pipe, isa, program, simulate
from npusim.machine.timing.link import FairLink


def ends_of(rate, arrivals):
    """Return when a link ends transfers that arrive at times with sizes."""
    env = simpy.Environment()
    link = FairLink(env, rate)
    ends = {}

    def submit(number, time, size):
        yield env.timeout(time)
        link.submit(size, lambda: ends.setdefault(number, env.now))

    for number, (time, size) in enumerate(arrivals):
        env.process(submit(number, time, size))
    env.run()
    assert link.nbytes == sum(size for _, size in arrivals)
    assert all(type(end) is int for end in ends.values())
    return [ends[i] for i in range(len(arrivals))]


def stepped(rate, arrivals):
    """Return the same by stepping through the cycles: in each, all transfers under way get equal shares."""
    rate = Fraction(rate)
    left = dict(enumerate(Fraction(size) for _, size in arrivals))
    ends = {i: arrivals[i][0] for i in left if not left[i]}
    now = 0
    while len(ends) < len(arrivals):
        under_way = [i for i in left if i not in ends and arrivals[i][0] <= now]
        now += 1
        for i in under_way:
            left[i] -= rate / len(under_way)
            if left[i] <= Fraction(1, 10**6):
                ends[i] = now
    return [ends[i] for i in range(len(arrivals))]


TRANSFERS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 700)), min_size=1, max_size=5)
RATES = st.sampled_from([1.0, 3.0, 7.5, 33.0, 100 / 3, 533.333, 0.7])


@settings(max_examples=150, deadline=None, derandomize=True)
@given(RATES, TRANSFERS)
def test_shares_are_equal_in_every_cycle(rate, arrivals):
    assert ends_of(rate, arrivals) == stepped(rate, arrivals)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(RATES, st.lists(st.integers(1, 5000), min_size=1, max_size=6))
def test_a_busy_link_never_idles(rate, sizes):
    """Of transfers that start together the smallest ends first, and the last when all bytes have moved."""
    ends = ends_of(rate, [(0, size) for size in sizes])
    order = sorted(range(len(sizes)), key=lambda i: sizes[i])
    assert [ends[i] for i in order] == sorted(ends)
    moved = ceil(sum(sizes) / Fraction(rate) - Fraction(1, 1000))
    assert moved <= max(ends) <= moved + len(sizes)  # each may take the rest of the cycle it ends in
    assert min(ends) >= ceil(min(sizes) * len(sizes) / Fraction(rate) - Fraction(1, 1000))


@pytest.mark.parametrize("count", [1, 2, 5])
def test_equal_transfers_end_together(count):
    assert ends_of(10.0, [(7, 1000)] * count) == [7 + 100 * count] * count


def test_a_transfer_that_comes_later_takes_half_of_what_is_left():
    # alone for 50 cycles: 500 of 1000 bytes; together at 5 a cycle until 300 and 500 are there; then alone
    assert ends_of(10.0, [(0, 1000), (50, 300)]) == [130, 110]


def test_no_bytes_and_infinite_rates_take_no_time():
    assert ends_of(10.0, [(3, 0), (3, 100)]) == [3, 13]
    assert ends_of(inf, [(3, 1 << 40), (5, 1)]) == [3, 5]


# ---- one transfer, in closed form --------------------------------------------------------------------------


def copies(sizes, *, store=False, buffers=16):
    """Return a program that loads or stores pieces of some bytes, one instruction each."""

    @program
    def moved(k: Builder) -> None:
        x, y = k.input("x", (1 << 20,), "int8"), k.output("y", (1 << 20,), "int8")

        def stream(c):
            at = 0
            for size in sizes:
                tile = isa.Tile(isa.Operand(isa.Space.UB, isa.S8, 0), (size,))
                yield isa.copy_out(y.flat(at, size), tile) if store else isa.copy_in(tile, x.flat(at, size))
                at += size

        k.launch("moved", vector=stream)

    return moved


def timed(maker, chip, **options):
    return simulate(maker, chip, timing_only=True, **options)


PORT, ISSUE = TOY.ports.gm_to_ub, TOY.scalar.issue_cycles


@pytest.mark.parametrize(("l2", "latency"), [("cold", 200), ("warm", 100)])
@pytest.mark.parametrize("size", [32, 4096, 40960])
def test_one_load_takes_issue_data_and_latency(l2, latency, size):
    report = timed(copies([size]), TOY, l2=l2)
    data = ceil(size / PORT.bytes_per_cycle)  # slower than L2 and main memory
    assert report.total_cycles == ISSUE + PORT.issue_cycles + data + latency
    assert report.pipes["core0.vec0.MTE2"].work == PORT.issue_cycles + data
    assert report.pipes["core0.vec0.MTE2"].link == 0


@pytest.mark.parametrize(
    ("changes", "l2", "rate"),
    [
        ({"hbm.nominal_gb_per_s": 16.0}, "cold", 16),
        ({"hbm.nominal_gb_per_s": 16.0}, "warm", 64),
        ({"hbm.nominal_gb_per_s": 16.0, "hbm.sustained_fraction": 0.5}, "cold", 8),
        ({"l2.read_bytes_per_cycle": 4.0}, "warm", 4),
        ({"l2.read_bytes_per_cycle": 4.0}, "cold", 4),
        ({"l2.write_bytes_per_cycle": 4.0}, "cold", 64),
        ({"ports.gm_to_ub.bytes_per_cycle": 2.0}, "warm", 2),
    ],
)
def test_the_slowest_part_of_the_way_sets_the_pace(changes, l2, rate):
    size = 8192
    chip = changed(TOY, changes)
    report = timed(copies([size]), chip, l2=l2)
    alone = ceil(size / chip.ports.gm_to_ub.bytes_per_cycle)
    mte2 = report.pipes["core0.vec0.MTE2"]
    assert mte2.work == PORT.issue_cycles + alone
    assert mte2.link == ceil(size / rate) - alone


def test_loads_overlap_their_latency_up_to_what_may_be_outstanding():
    """Data moves back to back; with one outstanding every load waits for the one before to come back."""
    size, count, data = 6400, 5, 100
    latency = TOY.cycles(TOY.l2.read_latency_ns)
    cycles = [
        timed(copies([size] * count), changed(TOY, {"ports.gm_to_ub.outstanding": n}), l2="warm").total_cycles
        for n in (1, 2, 3, 8)
    ]
    assert cycles[0] == ISSUE + count * (PORT.issue_cycles + data + latency)
    assert cycles[0] > cycles[1] > cycles[2] == cycles[3]
    assert cycles[3] == ISSUE + PORT.issue_cycles + count * data + latency


def test_loads_and_stores_have_ports_of_their_own():
    @program
    def both(k: Builder) -> None:
        x, y = k.input("x", (64000,), "int8"), k.output("y", (64000,), "int8")

        def stream(c):
            a = isa.Tile(isa.Operand(isa.Space.UB, isa.S8, 0), (64000,))
            yield isa.copy_in(a, x)
            yield isa.copy_out(y, a)

        k.launch("both", vector=stream)

    report = timed(both, TOY, l2="warm")
    assert report.total_cycles == 2 * ISSUE + PORT.issue_cycles + 1000 + 100


def test_two_cores_share_main_memory():
    """A load that takes 1000 cycles alone takes 2000 where another core loads as much."""

    def loads(blocks):
        @program
        def loads(k: Builder) -> None:
            x = k.input("x", (2 * 32000,), "int8")

            def stream(c):
                half = x.flat(32000 * c.core.number, 32000)
                yield isa.copy_in(isa.Tile(isa.Operand(isa.Space.UB, isa.S8, 0), (32000,)), half)

            k.launch("loads", vector=stream, blocks=blocks)

        return loads

    chip = changed(TOY, {"hbm.nominal_gb_per_s": 32.0})
    before = ISSUE + PORT.issue_cycles
    assert timed(loads(1), chip).total_cycles == before + 1000 + 200
    assert timed(loads(2), chip).total_cycles == before + 2000 + 200
    assert timed(loads(2), chip, l2="warm").total_cycles == before + 500 + 100


def test_a_flag_behind_a_load_is_raised_when_its_data_is_there():
    @program
    def flagged(k: Builder) -> None:
        x = k.input("x", (6400,), "int8")

        def stream(c):
            a, loaded = c.ub(6400, isa.S8), c.flag(Pipe.MTE2, Pipe.V)
            yield isa.copy_in(a, x)
            yield loaded.set
            yield loaded.wait

        k.launch("flagged", vector=stream)

    report = timed(flagged, TOY)
    arrived = ISSUE + PORT.issue_cycles + 100 + 200
    assert report.total_cycles == arrived + TOY.flags.latency_cycles
    assert report.pipes["core0.vec0.V"].flag == report.total_cycles - 3 * ISSUE


def test_loads_of_one_pipe_take_turns_whatever_they_fill():
    """On a coupled core MTE2 feeds both L1 and the unified buffer, one after the other."""

    def loads(k: Builder) -> None:
        x = k.input("x", (8, 32768), "int8")

        def stream(c):
            fast, slow = c.l1(32768, isa.S8), c.ub(32768, isa.S8)
            for piece in range(8):
                yield isa.copy_in(slow if piece % 2 else fast, x[piece])

        k.launch("loads", coupled=stream)

    report = timed(program(loads), COUPLED, l2="warm")
    assert report.total_cycles >= 8 * 32768 // 128
    assert report.total_cycles >= report.bounds.compute_cycles
