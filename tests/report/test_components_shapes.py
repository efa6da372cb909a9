"""Published before-and-after cases on the 310 (ASPLOS 2025, 10.1145/3676641.3716243, section 3): the verdict
and its numbers move as they did there.

The paper gives operators, not code: tile sizes, the placement of operands and the flags are chosen here. The
operators of the case studies fit L2, so it is warm where the paper's traffic exceeds the rate of the memory.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from components_bench import outputs, plain_chip, run

from npusim import Pipe, isa, load_chip

CHIP = load_chip("ascend-310")
REPEATS = 98
TILE = REPEATS * 128
"""Halves of 98 repeats: a channel block of 28 x 28 x 16."""


def microseconds(found):
    return found.cycles / CHIP.clock_mhz


# ---- Add_ReLU: results to another buffer, and a constant loaded once ---------------------------------------


def add_relu(tiles, *, separate, hoisted):
    """Return ReLU6(x + c) of 2 x `tiles` tiles as a stream function and its arrays.

    `separate` stores results from a buffer of their own; `hoisted` loads c before the loop.
    """

    def segments(k):
        x, y = k.input("x", (2 * tiles, TILE), "float16"), k.output("y", (2 * tiles, TILE), "float16")
        return x, k.input("c", (128,), "float16"), y

    def stream(c, x, constant, y):
        a, addend = c.ub(TILE, isa.F16), c.ub(128, isa.F16)
        result = c.ub(TILE, isa.F16) if separate else a
        loaded, done = c.flag(Pipe.MTE2, Pipe.V), c.flag(Pipe.V, Pipe.MTE3)
        free, stored = c.flag(Pipe.V if separate else Pipe.MTE3, Pipe.MTE2), c.flag(Pipe.MTE3, Pipe.V)
        barrier = isa.PipeBarrier(on=Pipe.V)
        if hoisted:
            yield isa.copy_in(addend, constant)
        yield free.set
        if separate:
            yield stored.set
        for t in range(c.block * tiles, (c.block + 1) * tiles):
            yield free.wait
            yield isa.copy_in(a, x[t])
            if not hoisted:
                yield isa.copy_in(addend, constant)
            yield loaded.set
            yield loaded.wait
            yield isa.Add(dst=a, src0=a, src1=addend, src1_repeat=0, repeat=REPEATS)
            yield barrier
            yield isa.Maxs(dst=a, src=a, scalar=0.0, repeat=REPEATS)
            yield barrier
            if separate:
                yield stored.wait
            yield isa.Mins(dst=result, src=a, scalar=6.0, repeat=REPEATS)
            if separate:
                yield free.set
            yield done.set
            yield done.wait
            yield isa.copy_out(y[t], result)
            yield (stored if separate else free).set
        yield free.wait
        if separate:
            yield stored.wait

    return stream, segments


VERSIONS = [
    {"separate": False, "hoisted": False},
    {"separate": True, "hoisted": False},
    {"separate": True, "hoisted": True},
]


@pytest.mark.parametrize("version", VERSIONS)
def test_add_relu_is_right(version):
    stream, segments = add_relu(2, **version)
    inputs, found = outputs(stream, CHIP, segments, blocks=2)
    np.testing.assert_array_equal(found["y"], np.clip(inputs["x"] + inputs["c"][np.arange(TILE) % 128], 0, 6))


def test_add_relu_goes_from_short_of_parallelism_to_bound_by_its_stores():
    """38 -> 66 -> 71 % of MTE-UB, 98.7 -> 57.2 us in all (8 x 112 x 112 x 16 halves on both cores)."""
    original, apart, once = (
        run(stream, CHIP, segments, blocks=2)
        for stream, segments in (add_relu(64, **version) for version in VERSIONS)
    )
    assert [f.verdict.code for f in (original, apart, once)] == ["IP", "MB", "MB"]
    assert [f.verdict.component.name for f in (apart, once)] == ["MTE-UB", "MTE-UB"]
    shares = [f["MTE-UB"].utilization for f in (original, apart, once)]
    assert shares == pytest.approx([0.3842, 0.6624, 0.7052], rel=0.1)
    assert shares == sorted(shares)
    assert microseconds(original) == pytest.approx(98.673, rel=0.05)
    assert microseconds(once) == pytest.approx(57.157, rel=0.05)
    assert original.cycles / once.cycles == pytest.approx(1.726, rel=0.05)
    assert original["Vector"].amount == once["Vector"].amount == 3 * 2 * 64 * TILE
    assert original["MTE-GM"].amount - once["MTE-GM"].amount == 2 * 63 * 256


# ---- AvgPool: one instruction of 98 repeats instead of 98 of one -------------------------------------------


def pool(repeat, windows):
    """Return the sum of `windows` shifted tiles on two cores, by additions of `repeat` repeats each."""

    def segments(k):
        return k.input("x", (2, 4 * TILE), "float16"), k.output("y", (2, TILE), "float16")

    kept = {}

    def stream(c, x, y):
        a, _, total = c.ub(4 * TILE, isa.F16), c.ub(128, isa.F16), c.ub(TILE, isa.F16)
        loaded, done = c.flag(Pipe.MTE2, Pipe.V), c.flag(Pipe.V, Pipe.MTE3)
        yield isa.copy_in(a, x[c.block])
        yield loaded.set
        yield loaded.wait
        yield isa.Duplicate(dst=total, scalar=0.0, repeat=REPEATS)
        lanes = 128 * repeat
        for w in range(windows):
            yield isa.PipeBarrier(on=Pipe.V)
            for at in range(0, TILE, lanes):
                key = w % 4, at  # few instructions, as of a loop
                if key not in kept:
                    dst, src = total.flat(at, lanes), a.flat(256 * (w % 4) + at, lanes)
                    kept[key] = isa.Add(dst=dst, src0=dst, src1=src, repeat=repeat)
                yield kept[key]
        yield isa.PipeBarrier(on=Pipe.V)
        yield isa.Muls(dst=total, src=total, scalar=1 / 64, repeat=REPEATS)
        yield done.set
        yield done.wait
        yield isa.copy_out(y[c.block], total)

    return stream, segments


@pytest.mark.parametrize("repeat", [1, REPEATS])
def test_the_pool_is_right(repeat):
    stream, segments = pool(repeat, 4)
    inputs, found = outputs(stream, CHIP, segments, blocks=2)
    wanted = sum(inputs["x"][:, 256 * w : 256 * w + TILE] for w in range(4)) / np.float16(64)
    np.testing.assert_array_equal(found["y"], wanted)


def test_a_loop_of_single_repeats_is_inefficient_compute():
    """E 16.1 %, 4.3 times as long as one instruction; the ideal time of the vector unit stays."""
    single, whole = (
        run(*made, blocks=2) for made in ((s, CHIP, g) for s, g in (pool(r, 66) for r in (1, 98)))
    )
    assert single.verdict.code == "IC"
    assert single.verdict.component.name == "Vector"
    assert single["Vector"].efficiency == pytest.approx(0.161, rel=0.1)
    assert single["Vector"].ratio > 0.8
    assert whole["Vector"].efficiency > 0.9
    assert single["Vector"].ideal == whole["Vector"].ideal
    assert single.cycles / whole.cycles == pytest.approx(4.31, rel=0.25)


# ---- transfers: order of issue, halves, size ---------------------------------------------------------------


def rounds(*, early):
    """Two rounds of one load to L1, three to L0A and three products; `early` issues both loads first."""

    def segments(k):
        return (k.input("x", (2, 32768), "float16"),)

    def stream(c, x):
        l1 = [c.l1(32768, isa.F16) for _ in range(2)]
        a0, b0, acc = c.l0a(6 * 2048, isa.F16), c.l0b(256, isa.F16), c.l0c((128, 16), isa.F32)
        loaded, ready = c.flag(Pipe.MTE2, Pipe.MTE1), c.flag(Pipe.MTE1, Pipe.M)
        for r in range(2):
            if early and r == 0:
                yield isa.copy_in(l1[0], x[0])
                yield loaded.set
                yield isa.copy_in(l1[1], x[1])
            elif not early:
                yield isa.copy_in(l1[r], x[r])
            if not early or r:
                yield loaded.set
            yield loaded.wait
            for i in range(3):
                part = a0.flat((3 * r + i) * 2048, 2048)
                yield isa.LoadData2D(dst=part, src=l1[r].flat(2048 * i, 2048), repeat=8)
                yield ready.set
                yield ready.wait
                yield isa.mmad(acc, part, b0, 128, 16, 16, init=True)

    return stream, segments


def test_loads_issued_early_leave_no_gap():
    """The second load is no longer behind instructions that wait for room in a queue; bytes and E stay."""
    short = load_chip(CHIP.name, overrides={"queues.mte1": 2})
    late, early = (
        run(stream, short, segments) for stream, segments in (rounds(early=e) for e in (False, True))
    )
    assert (late["MTE-GM"].intervals, early["MTE-GM"].intervals) == (1, 0)
    assert late["MTE-GM"].waits["issue"] > early["MTE-GM"].waits["issue"]
    assert early.cycles < late.cycles
    assert early["MTE-GM"].amount == late["MTE-GM"].amount
    assert early["MTE-L1"].efficiency == late["MTE-L1"].efficiency
    assert early["Cube"].efficiency == late["Cube"].efficiency


def halves(parts):
    """Load 15 blocks of 64 KiB to L1 and on to L0A, through one buffer or through its halves."""

    def segments(k):
        return (k.input("x", (15 * parts, 65536 // parts), "int8"),)

    def stream(c, x):
        tiles = c.queue(Pipe.MTE2, Pipe.MTE1, [c.l1(65536 // parts, isa.S8) for _ in range(parts)])
        a0 = c.l0a(65536 // parts, isa.S8)
        for i in range(15 * parts):
            tile = yield from tiles.alloc()
            yield isa.copy_in(tile, x[i])
            yield from tiles.enque()
            tile = yield from tiles.deque()
            yield isa.LoadData2D(dst=a0, src=tile, repeat=128 // parts)
            yield from tiles.free()

    return stream, segments


def test_halves_of_a_buffer_take_the_gaps_away():
    """14 waiting intervals become 3 in the paper; its efficiency stays at 76 %."""
    whole, split = (run(stream, CHIP, segments) for stream, segments in (halves(1), halves(2)))
    assert whole["MTE-GM"].intervals == 14
    assert split["MTE-GM"].intervals <= 3
    assert split.cycles < whole.cycles
    assert split["MTE-GM"].ratio > whole["MTE-GM"].ratio
    assert split["MTE-GM"].efficiency == pytest.approx(whole["MTE-GM"].efficiency, rel=0.05)


def stores(nbytes):
    """Fill a buffer and store it, again and again, 480 KiB in all."""

    def segments(k):
        return (k.output("y", (480 * 1024 // nbytes, nbytes // 2), "float16"),)

    def stream(c, y):
        tiles = c.queue(Pipe.V, Pipe.MTE3, [c.ub(nbytes // 2, isa.F16)])
        for i in range(480 * 1024 // nbytes):
            tile = yield from tiles.alloc()
            yield from c.vector(isa.Duplicate, count=nbytes // 2, dst=tile, scalar=1.0)
            yield from tiles.enque()
            tile = yield from tiles.deque()
            yield isa.copy_out(y[i], tile)
            yield from tiles.free()

    return stream, segments


def test_larger_stores_use_the_engine_better():
    """30 KiB are still small (the paper's ITG step)."""
    shares = [run(*stream_of(stores(kib * 1024)))["MTE-UB"].utilization for kib in (15, 30, 60, 120)]
    assert shares == sorted(shares)
    assert shares[1] < shares[2] - 0.005


def stream_of(made):
    return made[0], CHIP, made[1]


def test_main_memory_is_the_bound_that_no_engine_shows():
    """Loads that miss L2 run at a quarter of the rate of their engines, whose verdict is inefficiency."""

    def segments(k):
        return (k.input("x", (2, 40, 32768), "int8"),)

    def stream(c, x):
        tile = c.ub(32768, isa.S8)
        for i in range(40):
            yield isa.copy_in(tile, x[c.block][i])

    found = run(stream, CHIP, segments, blocks=2, l2="cold")
    assert found.verdict.code == "IM"
    assert found.memory_utilization == pytest.approx(1, abs=0.02)
    assert found["MTE-GM"].utilization == pytest.approx(42 / 174.08, rel=0.03)
    plain = run(stream, plain_chip(), segments, blocks=2, l2="cold")
    assert plain["MTE-GM"].ideal_rate == Fraction(256)
    assert plain.verdict.code == "MB"
