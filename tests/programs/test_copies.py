"""Copy, cast and add on all vector cores: every bit at every size, shares that cover the array, places."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from npusim import isa, load_chip, simulate
from npusim.errors import ConfigError

TOY, DEVICE = load_chip("toy"), load_chip("ascend-910b1")
SIZES = (1, 2, 15, 16, 17, 255, 256, 257, 512, 1009, 5 * 256 + 3)
"""Of one element, of one block, of one range of 512 bytes, primes, and just beyond."""


def bits(size, dtype):
    """Return random bytes, which hold NaN with payloads, subnormal numbers, infinities and both zeros."""
    return np.frombuffer(np.random.default_rng(size).bytes(size * np.dtype(dtype).itemsize), dtype)


# ---- copy --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "float32", "int8", "int32"])
@pytest.mark.parametrize(("buffers", "cores"), [(1, 1), (2, 0), (4, 2)])
def test_every_bit_is_copied(dtype, buffers, cores):
    for n in SIZES:
        x = bits(n, dtype)
        past = buffers == 4
        report = simulate(
            "copy", TOY, inputs={"x": x}, piece=256, buffers=buffers, cores=cores, l2_bypass=past
        )
        assert report.outputs["y"].tobytes() == x.tobytes()
        assert report.values.ok
        assert report.gm.read_bytes == report.gm.write_bytes == x.nbytes


@pytest.mark.parametrize("n", [1, 255, 256, 257, 48 * 256, 48 * 256 + 1, 100_003])
def test_a_share_starts_at_a_whole_range_and_no_core_is_idle(n):
    """With 512 bytes or more for everyone all 48 cores work, and no two differ by more than one range."""
    streams = []
    report = simulate("copy", DEVICE, n=n, timing_only=True, observe=lambda _, made: streams.extend(made))
    starts = [
        next(op.src.address for op in s.ops if isinstance(op, isa.DataCopy | isa.DataCopyPad))
        for s in streams
    ]
    assert [at % 512 for at in starts] == [0] * len(streams)
    assert starts == sorted(set(starts))
    sizes = [b - a for a, b in pairwise([*starts, 2 * n])]
    assert max(sizes) - min(sizes) <= 2 * 512
    stores = {name: p.instructions for name, p in report.pipes.items() if name.endswith("MTE3")}
    ranges = -(-n * 2 // 512)
    assert len(stores) == min(48, ranges)
    assert all(stores.values())
    assert report.gm.read_bytes == 2 * n


def test_more_cores_are_faster_until_main_memory_is_full():
    n = 1 << 20
    cycles = [simulate("copy", DEVICE, n=n, cores=c, timing_only=True).total_cycles for c in (1, 2, 4, 48)]
    assert cycles[0] > 1.9 * cycles[1] > 3.4 * cycles[2]
    floor = 2 * n / DEVICE.hbm_bytes_per_cycle  # what is written stays in L2
    assert floor < cycles[3] < cycles[2]


# ---- cast --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("buffers", "cores"), [(1, 1), (2, 0)])
def test_every_half_becomes_the_same_float(buffers, cores):
    for n in SIZES:
        x = bits(n, "float16")
        report = simulate("cast", TOY, inputs={"x": x}, piece=256, buffers=buffers, cores=cores)
        np.testing.assert_array_equal(report.outputs["y"], x.astype(np.float32))
        assert report.values.ok


def test_all_65536_halves():
    x = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    report = simulate("cast", TOY, inputs={"x": x}, piece=4096)
    y = report.outputs["y"]
    np.testing.assert_array_equal(np.isnan(y), np.isnan(x))
    finite = np.isfinite(x)
    raw = x.view(np.uint16)[finite].astype(int)
    magnitude = np.where(
        (raw >> 10) & 31, ((raw & 1023) | 1024) * 2.0 ** (((raw >> 10) & 31) - 25), (raw & 1023) * 2.0**-24
    )
    np.testing.assert_array_equal(np.abs(y[finite]), magnitude)
    np.testing.assert_array_equal(np.signbit(y[finite]), raw >> 15 == 1)


# ---- add ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("place", ["free", "packed"])
@pytest.mark.parametrize(("buffers", "cores"), [(1, 1), (2, 0)])
def test_sums_are_exact(dtype, place, buffers, cores):
    rng = np.random.default_rng(7)
    for n in SIZES:
        x, y = (rng.integers(-1000, 1000, n).astype(dtype) for _ in range(2))
        report = simulate(
            "add",
            TOY,
            inputs={"x": x, "y": y},
            piece=256 if n % 3 else 512,
            place=place,
            buffers=buffers,
            cores=cores,
            l2_bypass=n % 2 == 0,
        )
        np.testing.assert_array_equal(report.outputs["z"], x.astype(int) + y)
        assert report.values.ok


def test_halves_saturate_and_floats_do_not():
    inf, nan = np.inf, np.nan
    x, y = [inf, inf, nan, 65504, -65504, 2048], [1, -inf, 1, 16, -65504, 1]
    half = simulate("add", TOY, inputs={"x": np.float16(x), "y": np.float16(y)}, piece=256)
    assert half.outputs["z"].tolist() == [65504, 0, 0, 65504, -65504, 2048]
    single = simulate("add", TOY, inputs={"x": np.float32(x), "y": np.float32(y)}, piece=256)
    np.testing.assert_array_equal(single.outputs["z"], np.float32([inf, nan, nan, 65520, -131008, 2049]))
    assert half.values.ok
    assert single.values.ok


def test_one_array_is_enough_to_fix_the_size():
    y = np.arange(9, dtype=np.float32)
    report = simulate("add", TOY, inputs={"y": y}, piece=256)
    assert report.params["n"] == 9
    assert report.params["dtype"] == "float32"
    assert report.values.ok


@pytest.mark.parametrize(("piece", "buffers"), [(32512, 2), (32512, 1), (16384, 2), (256, 2)])
def test_places_free_of_conflicts_cost_a_cycle_a_repeat(piece, buffers):
    """Head 24 and one cycle for every 256 bytes, but for the first writes (vendor's table, section 3.2)."""
    one = piece * buffers // 2
    vector = {
        place: simulate(
            "add", DEVICE, n=one, piece=piece, buffers=buffers, place=place, cores=1, timing_only=True
        )
        .pipes["core0.vec0.V"]
        .work
        for place in ("free", "packed")
    }
    pieces, repeats = buffers, -(-piece // 256)
    assert vector["free"] == pieces * (24 + repeats)
    if piece == 16384:  # a multiple of the 512 bytes of the groups: both sources meet
        assert vector["packed"] > pieces * (24 + 1.9 * repeats)


def test_one_core_of_the_vendors_sample():
    """8192 x 8192 halves in pieces of 8 KiB take one core 6909.6 us; here a 256th of them (910B1, case 1)."""
    report = simulate(
        "add", DEVICE, n=1 << 18, piece=8192, buffers=1, place="packed", cores=1, timing_only=True
    )
    us = report.total_cycles / DEVICE.clock_mhz
    assert us * 256 == pytest.approx(6909.6, rel=0.04)


# ---- parameters --------------------------------------------------------------------------------------------

TOO_MUCH = r"bytes take {} bytes of the 196,608 of ub on ascend-910b1 with"


@pytest.mark.parametrize(
    ("name", "chip", "params", "message"),
    [
        ("copy", TOY, {"cores": 3}, r"copy: cores=3: toy has 2 vector cores; leave it out for all"),
        ("cast", TOY, {"cores": 3}, r"cast: cores=3: toy has 2 vector cores; leave it out for all"),
        ("add", TOY, {"cores": -1}, r"add: cores=-1: input should be greater than or equal to 0"),
        (
            "copy",
            TOY,
            {"piece": 100},
            r"copy: piece=100: a piece must be a multiple of the 32 bytes of a block",
        ),
        ("cast", TOY, {"piece": 0}, r"cast: piece=0: input should be greater than 0"),
        ("copy", TOY, {"buffers": 5}, r"copy: buffers=5: input should be less than or equal to 4"),
        (
            "copy",
            TOY,
            {"piece": 65536},
            r"\S+copy\.py:\d+: core0\.vec0: ub: 131,072 bytes needed, 65,536 .+; use smaller tiles",
        ),
        (
            "add",
            DEVICE,
            {"piece": 32768},
            rf"add: 6 pieces of 32,768 {TOO_MUCH} place=free; use a smaller piece".format("262,144"),
        ),
        (
            "add",
            DEVICE,
            {"piece": 32800, "place": "packed"},
            rf"add: 6 pieces of 32,800 {TOO_MUCH} place=packed; use a smaller piece".format("196,800"),
        ),
    ],
)
def test_what_does_not_fit_is_refused(name, chip, params, message):
    with pytest.raises(ConfigError, match=rf"^{message}$"):
        simulate(name, chip, **params)
