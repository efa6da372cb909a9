"""Transfers that meet in a range of addresses, in closed form."""

from __future__ import annotations

import pytest
from random_programs import TOY, changed

from npusim import Builder, Operand, Space, Tile, isa, load_chip, program, simulate

LATENCY = 100
START = TOY.scalar.issue_cycles + TOY.ports.gm_to_ub.issue_cycles


def timed(loads, rate, **options):
    """Time of two cores that each make loads of (pause before, first byte, bytes), with all in the cache."""

    @program
    def meeting(k: Builder) -> None:
        x = k.input("x", (1 << 16,), "int8")

        def stream(c):
            for pause, at, size in loads[c.core.number]:
                yield isa.ScalarWork(count=pause)
                yield isa.copy_in(Tile(Operand(Space.UB, isa.S8, 0), (size,)), x.flat(at, size))

        k.launch("meeting", vector=stream, blocks=2)

    chip = changed(TOY, {"l2.same_range_requests_per_cycle": rate, "l2.read_bytes_per_cycle": 1e9})
    return simulate(meeting, chip, timing_only=True, l2="warm", **options)


@pytest.mark.parametrize(("rate", "data"), [(None, 100), (8.0, 100), (4.0, 100), (2.0, 200), (0.5, 800)])
def test_two_transfers_share_what_a_range_serves(rate, data):
    """6,400 bytes are 200 requests of 32 bytes, and 100 cycles of the port."""
    report = timed(([(0, 0, 6400)], [(0, 0, 6400)]), rate)
    assert report.total_cycles == START + data + LATENCY
    for core in (0, 1):
        mte2 = report.pipes[f"core0.vec{core}.MTE2"]
        assert (mte2.work, mte2.link) == (10 + 100, data - 100)


@pytest.mark.parametrize("at", [32, 4096])
def test_other_ranges_do_not_meet(at):
    assert timed(([(0, 0, 6400)], [(0, at, 6400)]), 0.5).total_cycles == START + 100 + LATENCY


def test_a_part_of_a_range_is_the_same_range():
    report = timed(([(0, 0, 6400)], [(0, 20, 6400)]), 0.5)
    assert report.total_cycles >= START + 800 + LATENCY


def test_who_is_alone_is_not_held_up():
    assert timed(([(0, 0, 6400)], []), 0.01).total_cycles == START + 100 + LATENCY


def test_who_comes_later_meets_what_is_left():
    """Half of the first is through when the second comes: 100 and 200 requests share 0.5 a cycle."""
    report = timed(([(0, 0, 6400)], [(50, 0, 6400)]), 0.5)
    first, second = (report.pipes[f"core0.vec{core}.MTE2"] for core in (0, 1))
    assert first.work + first.link == 10 + 50 + 400
    assert second.work + second.link == 10 + 400 + 200
    assert report.total_cycles == START + 50 + 600 + LATENCY


def test_who_comes_after_the_end_is_alone():
    report = timed(([(0, 0, 6400)], [(101, 0, 6400)]), 0.5)
    assert report.total_cycles == START + 101 + 100 + LATENCY
    again = timed(([(0, 0, 3200), (0, 0, 3200)], []), 0.5)  # one port moves one transfer at a time
    assert again.pipes["core0.vec0.MTE2"].link == 0


@pytest.mark.parametrize(
    ("to", "tile_m", "same_us", "apart_us"), [("ub", 128, 474.717, 307.38), ("l1", 256, 240.198, 209.8)]
)
def test_cores_in_step_against_cores_apart(to, tile_m, same_us, apart_us):
    """Time of the loads in the vendor's data_copy sample (910B1), here with a 32nd of its elements."""
    chip = load_chip("ascend-910b1")
    for order, published in (("same", same_us), ("staggered", apart_us)):
        report = simulate(
            "same_address", chip, timing_only=True, m=768, n=128, tile_m=tile_m, to=to, order=order
        )
        us = report.total_cycles / chip.clock_mhz * 32
        assert us == pytest.approx(published, rel=0.2)
