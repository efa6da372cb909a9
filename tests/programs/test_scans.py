"""The scan programs at many sizes: exact on whole numbers, within a bound of one's own on fractions."""

from __future__ import annotations

import numpy as np
import pytest

from npusim import load_chip, simulate
from npusim.errors import ConfigError

TOY, DEVICE = load_chip("toy"), load_chip("ascend-910b4")
UNIT = 2.0**-24


def fits(s):
    """Return the small chip where its buffers hold tiles of s x s, else the device."""
    return TOY if s <= 32 else DEVICE


def sizes(s):
    """One element, two, a prime, around one tile, and three tiles with a tail of some rows and a piece."""
    tile = s * s
    return [1, 2, 251, s - 1, s, s + 1, tile - 1, tile, tile + 1, 3 * tile + 2 * s + 3]


def whole_numbers(n, dtype, low, high, seed=0):
    return np.random.default_rng(seed).integers(low, high + 1, n).astype(dtype)


def run(program, x, s, chip=None, **options):
    report = simulate(program, chip or fits(s), inputs={"x": x}, s=s, **options)
    return report.outputs["y"], report


SCANS = [
    *[("scan_u", s, dtype) for s in (16, 32, 64, 128) for dtype in ("float16", "float32")],
    *[("scan_u", s, "int8") for s in (32, 64, 128)],
    *[("scan_ul1", s, "float16") for s in (16, 32, 64, 128)],
    *[("cumsum_vec", s, dtype) for s in (16, 32, 64) for dtype in ("float16", "float32")],
    ("cumsum_vec", 128, "float16"),
]
"""The float32 tiles of cumsum_vec at s = 128 fill the device; see below."""


@pytest.mark.parametrize(("program", "s", "dtype"), SCANS, ids=lambda v: str(v))
def test_whole_numbers_are_summed_exactly(program, s, dtype):
    """Small enough that every sum is a whole number the type of the sums holds."""
    wanted = np.int32 if dtype == "int8" else np.float32
    low, high = (-128, 127) if dtype == "int8" else (-3, 4)
    for n in sizes(s):
        x = whole_numbers(n, dtype, low, high, seed=n)
        y, report = run(program, x, s)
        assert (y.dtype, y.shape) == (wanted, (n,))
        np.testing.assert_array_equal(y, np.cumsum(x.astype(np.int64)), err_msg=f"n={n}")
        assert report.values.ok
        assert report.values.max_abs_error == 0
        assert report.params == {"n": n, "s": s, "dtype": dtype}


@pytest.mark.parametrize("s", [32, 64])
def test_bytes_that_add_up_as_far_as_they_can(s):
    for value in (-128, 127):
        x = np.full(2 * s * s + 5, value, np.int8)
        y, _ = run("scan_u", x, s)
        np.testing.assert_array_equal(y, value * np.arange(1, x.size + 1))


def row_bound(x, y, s, additions):
    """Bound the error of sums of rows of s that are added up one after the other in float32.

    A row's own sums lose half a unit of the row's magnitude for each of so many additions; each carry loses
    half a unit of the sum that it gives.
    """
    rows = -(-x.size // s)
    padded = np.zeros(rows * s)
    padded[: x.size] = np.abs(x.astype(np.float64))
    inside = additions * UNIT * padded.reshape(rows, s).sum(axis=1)
    ends = np.abs(y[np.minimum(np.arange(1, rows + 1) * s, x.size) - 1])
    before = np.concatenate([[0.0], np.cumsum(inside + UNIT * ends)[:-1]])
    return 1.01 * (np.repeat(before + inside, s)[: x.size] + UNIT * np.abs(y)) + 1e-37


@pytest.mark.parametrize(("program", "s", "dtype"), [c for c in SCANS if "float" in c[2]], ids=str)
def test_fractions_stay_within_what_rounding_can_do(program, s, dtype):
    """The bound is derived here; the program's own is checked by the report."""
    worst = 0.0
    for n in (s + 1, s * s, 3 * s * s + s + 7):
        x = np.random.default_rng(n).uniform(-1, 1, n).astype(dtype)
        y, report = run(program, x, s)
        exact = np.cumsum(x.astype(np.float64))
        if program == "scan_ul1":
            rows = -(-n // s)
            padded = np.zeros(rows * s)
            padded[:n] = x
            half = 2.0**-11 * np.abs(padded.reshape(rows, s).sum(axis=1)) + 2.0**-25
            bound = np.repeat(np.cumsum(half) * 1.01, s)[:n] + row_bound(x, exact, s, 3 * s)
        else:
            bound = row_bound(x, exact, s, s)
        assert (np.abs(y - exact) <= bound).all()
        assert report.values.ok
        assert report.values.max_abs_error == np.abs(y - exact).max()
        worst = max(worst, report.values.max_abs_error)
    assert worst > 0 or dtype == "float16"  # few short numbers add up exactly


# ---- what ScanUL1 rounds -----------------------------------------------------------------------------------


def scan_ul1_by_tiles(x, s):
    """Return A U + L half(A J) tile by tile, with the carries of the tiles; exact while sums are whole."""
    tiles = -(-x.size // (s * s))
    padded = np.zeros(tiles * s * s)
    padded[: x.size] = x
    upper, ones = np.triu(np.ones((s, s))), np.ones((s, s))
    strict = np.tril(ones, -1)
    y, carry = [], 0.0
    for a in padded.reshape(tiles, s, s):
        sums = np.clip(a @ ones, -65504, 65504).astype(np.float16).astype(np.float64)
        tile = a @ upper + strict @ sums + carry
        carry = tile[-1, -1]
        y.append(tile)
    return np.concatenate(y).ravel()[: x.size]


@pytest.mark.parametrize("s", [64, 128])
def test_row_sums_of_scan_ul1_are_rounded_to_eleven_bits(s):
    """Rows of odd sums above 2048 are seen rounded by all rows behind them, and only there."""
    n = 2 * s * s + 3 * s + 5
    x = whole_numbers(n, np.float16, 20, 60, seed=s)
    exact = np.cumsum(x.astype(np.int64))
    expected = scan_ul1_by_tiles(x, s)
    y, report = run("scan_ul1", x, s)
    np.testing.assert_array_equal(y, expected)
    assert (y != exact).mean() > 0.5
    np.testing.assert_array_equal(y[:s], exact[:s])
    assert report.values.ok
    assert report.values.max_abs_error == np.abs(y - exact).max()
    np.testing.assert_array_equal(run("scan_u", x, s)[0], exact)


def test_row_sums_of_scan_ul1_saturate():
    s = 128
    x = np.full(s * s, 600.0, np.float16)
    expected = scan_ul1_by_tiles(x, s)
    y, report = run("scan_ul1", x, s)
    np.testing.assert_array_equal(y, expected)
    assert y[s] == 65504 + 600
    assert report.values.ok  # the stated tolerance covers it


# ---- NaN and infinities ------------------------------------------------------------------------------------


@pytest.mark.parametrize("program", ["scan_u", "scan_ul1"])
@pytest.mark.parametrize("s", [16, 32])
def test_the_cube_reads_nan_as_zero_and_infinities_as_the_largest_number(program, s):
    x = whole_numbers(s * s + s, np.float16, -3, 3)
    read = x.astype(np.float64)
    for at, value, seen in ((3, np.nan, 0), (s + 2, np.inf, 65504), (s * s - 1, -np.inf, -65504)):
        x[at], read[at] = value, seen
    y, report = run(program, x, s)
    expected = np.cumsum(read) if program == "scan_u" else scan_ul1_by_tiles(read, s)
    np.testing.assert_array_equal(y, expected)
    assert report.values.ok


def test_the_largest_float32_swallows_what_follows():
    s, largest = 16, np.finfo(np.float32).max
    x = whole_numbers(s * s + 5, np.float32, 1, 3)
    x[40] = np.inf
    y, report = run("scan_u", x, s)
    np.testing.assert_array_equal(y[:40], np.cumsum(x[:40]))
    assert (y[40:] == largest).all()
    assert report.values.ok


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_the_vector_unit_lets_nan_and_infinities_through(dtype):
    s = 16
    for at in (0, 5, s - 1, s, 3 * s + 2, s * s + 3):
        x = whole_numbers(s * s + 2 * s, dtype, -3, 3)
        x[at] = np.inf
        y, report = run("cumsum_vec", x, s)
        np.testing.assert_array_equal(y[:at], np.cumsum(x[:at].astype(np.float64)))
        assert (y[at:] == np.inf).all()
        assert report.values.ok
        x[at] = np.nan
        y, report = run("cumsum_vec", x, s)
        np.testing.assert_array_equal(y[:at], np.cumsum(x[:at].astype(np.float64)))
        assert np.isnan(y[at:]).all()
        assert report.values.ok


def test_infinities_of_both_signs_give_nan():
    x = np.ones(300, np.float32)
    x[20], x[100] = np.inf, -np.inf
    y, report = run("cumsum_vec", x, 16)
    assert (y[20:100] == np.inf).all()
    assert np.isnan(y[100:]).all()
    assert report.values.ok


# ---- what does not fit -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("program", "chip", "options", "expected"),
    [
        (
            "scan_u",
            TOY,
            {"s": 128, "dtype": "float32"},
            r"programs/scan_u\.py:\d+: core0\.cube0: l0a: 65,536 bytes needed, 16,384 available on toy",
        ),
        (
            "scan_ul1",
            TOY,
            {"s": 128},
            r"programs/scan_ul1\.py:\d+: core0\.cube0: l0a: 32,768 bytes needed, 16,384 available on toy",
        ),
        (
            "cumsum_vec",
            TOY,
            {"s": 128, "dtype": "float32"},
            r"programs/cumsum_vec\.py:\d+: core0\.vec0: ub: 131,072 bytes needed, 65,536 available on toy",
        ),
        (
            "scan_u",
            DEVICE,
            {"s": 16, "dtype": "int8"},
            r"scan_u: s=16 does not fill a fractal of int8, which is 32 wide; use s=32 or more",
        ),
        ("scan_u", DEVICE, {"s": 48}, r"scan_u: s=48: input should be 16, 32, 64 or 128"),
        ("scan_ul1", DEVICE, {"dtype": "float32"}, r"scan_ul1: dtype=float32: input should be 'float16'"),
        (
            "cumsum_vec",
            DEVICE,
            {"dtype": "int8"},
            r"cumsum_vec: dtype=int8: input should be 'float16' or 'float32'",
        ),
    ],
)
def test_sizes_and_types_that_do_not_fit(program, chip, options, expected):
    with pytest.raises(ConfigError, match=f"^{expected}(; use smaller tiles)?$"):
        simulate(program, chip, n=1000, **options)


def test_float32_tiles_of_128_fill_the_unified_buffer_of_the_device():
    """Source, sums and turned sums take 192 KiB, all that the device has; with a little less it says so."""
    x = whole_numbers(1000, np.float32, -3, 4)
    y, _ = run("cumsum_vec", x, 128, DEVICE)
    np.testing.assert_array_equal(y, np.cumsum(x))
    buffers = DEVICE.buffers.model_copy(update={"ub_kib": DEVICE.buffers.ub_kib - 1})
    with pytest.raises(ConfigError, match=r"core0\.vec0: ub: 196,608 bytes needed, 195,584 available on"):
        run("cumsum_vec", x, 128, DEVICE.model_copy(update={"buffers": buffers}))


# ---- published rates ---------------------------------------------------------------------------------------


def test_single_core_rates_of_the_paper():
    """Useful bytes a second at 4 Mi elements: about 20 GB/s for ScanU, 38.5 GB/s for ScanUL1."""
    rates = {
        program: simulate(program, DEVICE, n=1 << 22, timing_only=True).gm.useful_gb_per_s
        for program in ("scan_u", "scan_ul1")
    }
    assert rates["scan_u"] == pytest.approx(20, rel=0.2)
    assert rates["scan_ul1"] == pytest.approx(38.5, rel=0.2)
    assert 1.65 <= rates["scan_ul1"] / rates["scan_u"] <= 2.4
