"""The micro-programs: exact values, and the figures that the vendor's samples publish."""

from __future__ import annotations

import numpy as np
import pytest

from npusim import load_chip, simulate
from npusim.machine.timing.account import Cause

TOY, DEVICE = load_chip("toy"), load_chip("ascend-910b1")
TICK_NS = 20


# ---- values ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "int8"])
@pytest.mark.parametrize(("m", "k_", "n"), [(16, 32, 16), (17, 64, 48), (1, 32, 16), (64, 64, 64)])
def test_products_are_exact(dtype, m, k_, n):
    report = simulate("mmad_repeat", DEVICE, count=3, m=m, k_=k_, n=n, dtype=dtype, seed=m)
    assert report.values.ok
    assert report.values.max_abs_error == 0
    assert report.cube.macs == 3 * m * k_ * n
    assert report.outputs["y"].dtype == (np.int32 if dtype == "int8" else np.float32)


def test_sums_are_exact_and_in_place_they_grow():
    x = np.arange(2 * 8 * 64, dtype=np.float32).reshape(2, -1)
    for place in ("free", "sources"):
        report = simulate("add_repeat", DEVICE, inputs={"x": x}, count=3, repeat=8, place=place)
        np.testing.assert_array_equal(report.outputs["y"], x[0] + x[1])
        assert report.vector.element_ops == 3 * 8 * 64
    report = simulate("add_repeat", DEVICE, inputs={"x": x}, count=3, repeat=8, place="in_place")
    np.testing.assert_array_equal(report.outputs["y"], x[0] + 3 * x[1])
    assert not report.values.checked


def test_the_last_piece_is_stored():
    for count, in_flight in ((1, 1), (5, 2), (6, 2), (7, 3)):
        report = simulate("load_repeat", TOY, count=count, nbytes=64, in_flight=in_flight)
        assert report.values.ok
        assert report.gm.read_bytes == 64 * count
        assert report.gm.write_bytes == 64


# ---- published figures -------------------------------------------------------------------------------------


def test_eight_products_of_128_by_256_by_64():
    """4209 cycles from the start of the first to the result of the last (vendor's table, 910B1)."""
    report = simulate("mmad_repeat", DEVICE, count=8, m=128, n=256, k_=64, spans=True)
    timed = report.timings[0]
    names = {clock.index: clock.name for clock in timed.clocks}
    spans = list(zip(*(getattr(timed.spans, n) for n in ("pipe", "cause", "start", "stop")), strict=True))
    first = min(
        start for pipe, cause, start, _ in spans if names[pipe] == "core0.cube0.M" and cause == Cause.WORK
    )
    flagged = max(
        stop for pipe, cause, _, stop in spans if names[pipe] == "core0.cube0.FIX" and cause == Cause.FLAG
    )
    assert flagged - DEVICE.flags.latency_cycles - first == pytest.approx(4209, rel=0.02)


@pytest.mark.parametrize(("place", "ticks"), [("free", 2390), ("sources", 4167)])
def test_a_thousand_additions_of_64_repeats(place, ticks):
    """In ticks of 20 ns at 1850 MHz, without conflict and with both sources in one bank group."""
    report = simulate("add_repeat", DEVICE, count=1000, repeat=64, place=place)
    assert DEVICE.clock_mhz == 1850
    cycles = report.pipes["core0.vec0.V"].work
    assert cycles * 1000 / DEVICE.clock_mhz / TICK_NS == pytest.approx(ticks, rel=0.02)


def test_conflicts_cost_by_where_the_operands_lie():
    work = {
        place: simulate("add_repeat", DEVICE, count=10, repeat=64, place=place).pipes["core0.vec0.V"].work
        for place in ("free", "sources", "in_place", "shifted")
    }
    assert work["free"] == work["in_place"] < work["shifted"] < work["sources"]


def test_loads_of_eight_kib_two_in_flight():
    """189 ns a load (vendor's addition sample, 910B1)."""
    report = simulate("load_repeat", DEVICE, count=256, nbytes=8192, in_flight=2)
    assert report.total_cycles * 1000 / DEVICE.clock_mhz / 256 == pytest.approx(189, rel=0.15)
