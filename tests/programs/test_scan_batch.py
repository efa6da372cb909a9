"""Batched scans: exact on whole numbers for rows of any length, and the orders that were published."""

from __future__ import annotations

import numpy as np
import pytest

from npusim import load_chip, simulate
from npusim.errors import ConfigError

DEVICE = load_chip("ascend-910b4", overrides={"cores.cube": 2})
CASES = [
    *[("scan_u", s, dtype) for s in (16, 32) for dtype in ("float16", "float32")],
    ("scan_u", 32, "int8"),
    *[("scan_ul1", s, "float16") for s in (16, 32)],
]


def shapes(s):
    """One row, odd numbers of them, more than a tile has; of one element, a prime, and around tiles."""
    tile = s * s
    around = [(3, 251), (5, tile), (3, tile + 1), (4, 2 * tile + s + 3), (7, 3 * s)]
    return [(1, 1), (3, 7), (2 * s + 1, s), (5, s - 1), (1, s + 1), *around]


def whole_numbers(batch, length, dtype, seed=0):
    low, high = (-128, 127) if dtype == "int8" else (-3, 4)
    return np.random.default_rng(seed).integers(low, high + 1, (batch, length)).astype(dtype)


def run(x, chip=DEVICE, **params):
    report = simulate("scan_batch", chip, inputs={"x": x}, **params)
    return report.outputs["y"], report


def timed(batch, length, chip="ascend-910b4", **params):
    params = {"batch": batch, "length": length, **params}
    return simulate("scan_batch", chip, l2="dirty", timing_only=True, **params).time_us


@pytest.mark.parametrize(("algorithm", "s", "dtype"), CASES)
def test_whole_numbers_are_summed_exactly(algorithm, s, dtype):
    for batch, length in shapes(s):
        x = whole_numbers(batch, length, dtype, seed=length)
        y, report = run(x, algorithm=algorithm, s=s)
        assert (y.dtype, y.shape) == (np.int32 if dtype == "int8" else np.float32, x.shape)
        np.testing.assert_array_equal(y, np.cumsum(x.astype(np.int64), axis=1), err_msg=str(x.shape))
        assert report.values.ok
        assert report.values.max_abs_error == 0
        own = {"batch": batch, "length": length, "algorithm": algorithm, "s": s, "dtype": dtype}
        assert report.params == {**own, "cores": None}


@pytest.mark.parametrize("algorithm", ["scan_u", "scan_ul1"])
@pytest.mark.parametrize("s", [64, 128])
def test_large_tiles(algorithm, s):
    x = whole_numbers(3, s * s + 1, "float16")
    y, report = run(x, algorithm=algorithm, s=s)
    np.testing.assert_array_equal(y, np.cumsum(x.astype(np.int64), axis=1))
    assert report.values.max_abs_error == 0


def test_pairs_of_rows_round_as_single_rows_do():
    """The carry of a second row is made on the scalar unit, with the rounding that the vector unit has."""
    x = np.random.default_rng(3).uniform(-1, 1, (3, 700)).astype(np.float32)
    y, report = run(x, s=16)
    for row, sums in zip(x, y, strict=True):
        alone = simulate("scan_u", DEVICE, inputs={"x": row}, s=16).outputs["y"]
        assert sums.tobytes() == alone.tobytes()
    assert 0 < report.values.max_abs_error < 1e-4
    assert report.values.ok


def test_row_sums_of_whole_tiles_are_rounded():
    """Odd row sums above 2048 need more than the eleven bits of a half; rows of the batch do not mix."""
    s = 64
    x = np.random.default_rng(0).integers(20, 60, (2, s * s + s)).astype(np.float16)
    y, report = run(x, algorithm="scan_ul1", s=s)
    for row, sums in zip(x, y, strict=True):
        alone = simulate("scan_ul1", DEVICE, inputs={"x": row}, s=s).outputs["y"]
        assert sums.tobytes() == alone.tobytes()
    assert report.values.ok
    assert report.values.max_abs_error > 1


@pytest.mark.parametrize(("algorithm", "length"), [("scan_u", 300), ("scan_u", 9), ("scan_ul1", 300)])
def test_what_is_no_number_stays_in_its_row(algorithm, length):
    x = np.ones((4, length), np.float16)
    x[1, 5], x[2, 3], x[2, 7] = np.nan, np.inf, -np.inf
    y, report = run(x, s=16, algorithm=algorithm)
    np.testing.assert_array_equal(y[[0, 3]], np.tile(np.arange(1, length + 1), (2, 1)))
    np.testing.assert_array_equal(y[1], np.arange(1, length + 1) - (np.arange(length) >= 5))
    assert y[2, 3] == 65504 + 3
    assert report.values.ok


@pytest.mark.parametrize("algorithm", ["scan_u", "scan_ul1"])
def test_cores_share_the_rows(algorithm):
    x = whole_numbers(8, 300, "float16")
    one, two = (run(x, s=16, algorithm=algorithm, cores=c) for c in (1, 2))
    assert one[0].tobytes() == two[0].tobytes()
    assert 1.7 < one[1].total_cycles / two[1].total_cycles <= 2


def test_two_rows_at_a_time_share_a_read_back():
    """Sixteen rows of s in a tile: eight waits of the vector core instead of sixteen."""
    x = whole_numbers(1, 64 * 64, "float16")
    single = simulate("scan_u", DEVICE, inputs={"x": x[0]}, s=64)
    paired = run(x, s=64)[1]
    assert paired.total_cycles < single.total_cycles
    waits = [r.pipes["core0.vec0.V"].instructions for r in (single, paired)]
    assert waits[1] < waits[0] - 16


def test_larger_tiles_are_faster():
    """Scan paper, figure 6.7, whose rows are twice as long."""
    s16, s32, s64, s128 = (timed(2, 1 << 15, DEVICE, s=s) for s in (16, 32, 64, 128))
    assert s16 > s32 > s64 > s128


def test_scan_u_launches_a_core_for_each_row():
    """Though half of them have no work (authors' code); so the launch costs both forms the same."""
    launch = load_chip("ascend-910b4").launch.device_per_ai_core_us
    assert timed(20, 300) - timed(20, 300, cores=10) == pytest.approx(10 * launch, rel=0.05)
    assert timed(20, 300) == pytest.approx(timed(40, 300), rel=0.01)


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        (
            {"s": 16, "dtype": "int8"},
            "scan_batch: s=16 is half a fractal of int8, which is 32 wide; use s=32 or more",
        ),
        (
            {"algorithm": "scan_ul1", "dtype": "float32"},
            (
                "scan_batch: dtype=float32: algorithm=scan_ul1 passes row sums through float16; use "
                "dtype=float16, or algorithm=scan_u"
            ),
        ),
        ({"s": 48}, "scan_batch: s=48: input should be 16, 32, 64 or 128"),
        ({"length": 0}, "scan_batch: length=0: input should be greater than 0"),
    ],
)
def test_what_does_not_fit(params, expected):
    with pytest.raises(ConfigError) as caught:
        simulate("scan_batch", DEVICE, **params)
    assert str(caught.value) == expected
