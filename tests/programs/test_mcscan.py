"""The scans on all cores and their halves: exact on whole numbers at awkward lengths, within bounds of one's
own on fractions, and shaped as published.
"""

from __future__ import annotations

import numpy as np
import pytest

from npusim import load_chip, simulate
from npusim.errors import ConfigError

THREE = {"cores.cube": 3}
DEVICE = load_chip("ascend-910b4", overrides=THREE)
UNIT = 2.0**-24


def small_l2(mib):
    """Three cores under a cache that a few hundred thousand elements fill."""
    return load_chip("ascend-910b4", overrides={**THREE, "l2.size_mib": mib})


def whole_numbers(n, dtype, seed=0):
    low, high = (-128, 127) if dtype == "int8" else (-3, 4)
    return np.random.default_rng(seed).integers(low, high + 1, n).astype(dtype)


def local_sums(x, width):
    padded = np.zeros(-(-x.size // width) * width, np.int64)
    padded[: x.size] = x
    return padded.reshape(-1, width).cumsum(axis=1).ravel()[: x.size]


def exact(program, x, chip=DEVICE, **params):
    """Run on whole numbers and compare with sums of Python's integers, to the bit."""
    report = simulate(program, chip, inputs={"x": x}, **params)
    expected = np.cumsum(x.astype(np.int64))
    if params.get("exclusive"):
        expected = np.concatenate([[0], expected[:-1]])
    y = report.outputs["y"]
    assert y.dtype == (np.int32 if x.dtype == np.int8 else np.float32)
    np.testing.assert_array_equal(y, expected, err_msg=f"{program} n={x.size} {params}")
    assert report.values.ok
    assert report.values.max_abs_error == 0
    return report


# ---- lengths -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize(("dtype", "s"), [("float16", 16), ("int8", 32)])
def test_mcscan_at_awkward_lengths(dtype, s, exclusive):
    """One element, a prime, half a tile, one tile and its neighbours, as many tiles as cores and more."""
    tile = s * s
    for n in (1, 2, 251, tile // 2 + 1, tile, tile + 1, 3 * tile, 4 * tile - s - 1):
        exact("mcscan", whole_numbers(n, dtype, n), s=s, exclusive=exclusive)


def test_mcscan_ul1_at_awkward_lengths():
    for s in (16, 32):
        for n in (1, 251, s * s, 7 * s * s, 7 * s * s + s + 3):
            exact("mcscan_ul1", whole_numbers(n, np.float16, n), s=s)


@pytest.mark.parametrize("s", [64, 128])
def test_large_tiles(s):
    n = 5 * s * s + 3
    exact("mcscan", whole_numbers(n, np.float16), s=s)
    exact("mcscan", whole_numbers(n, np.int8), s=s, exclusive=True)
    exact("mcscan_ul1", whole_numbers(n, np.float16), s=s)


def test_bytes_that_add_up_as_far_as_they_can():
    for value in (-128, 127):
        exact("mcscan", np.full(5 * 1024 + 7, value, np.int8), s=32)


def test_any_number_of_cores_gives_the_same():
    x = whole_numbers(5 * 256, np.float16)
    for cores in (1, 2, 3):
        report = exact("mcscan", x, s=16, cores=cores)
        assert report.launches[0].cores == 3 * cores
    two_tiles = whole_numbers(300, np.float16)
    assert exact("mcscan", two_tiles, s=16).launches[0].cores == 6
    expected = "mcscan: cores=4: ascend-910b4 has 3 AI cores; leave it out for all"
    with pytest.raises(ConfigError, match=f"^{expected}$"):
        simulate("mcscan", DEVICE, n=5 * 256, s=16, cores=4)


# ---- stretches ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("program", "mib", "n", "dtype", "exclusive"),
    [
        # 1 MiB is 174,848 elements of 6 bytes, which is no whole number of tiles
        ("mcscan", 1, 2 * 174_848 + 1, "float16", False),
        ("mcscan", 1, 174_848 + 16_384, "float16", True),
        ("mcscan_ul1", 1, 175_000, "float16", False),
        # 209,920 of 5 bytes
        ("mcscan", 1, 209_920 + 1, "int8", True),
        ("mcscan", 1, 209_920 + 32_768, "int8", False),
        # 3 MiB are 32 tiles of halves, so the second stretch alone is padded
        ("mcscan", 3, 32 * 16_384 + 5, "float16", False),
    ],
)
def test_carries_pass_from_stretch_to_stretch(program, mib, n, dtype, exclusive):
    params = {"exclusive": True} if exclusive else {}
    exact(program, whole_numbers(n, dtype, n), small_l2(mib), **params)


def test_only_a_split_scan_makes_stretches():
    """All cores meet twice in a stretch, three times in a padded one, and once less in the last."""
    chip = load_chip("ascend-910b4", overrides={"l2.size_mib": 3, "cores.cube": 1})

    def meetings(n, **params):
        seen = []
        simulate(
            "mcscan", chip, n=n, timing_only=True, observe=lambda _, streams: seen.extend(streams), **params
        )
        cube = next(s for s in seen if s.core.kind.value == "cube")
        return sum("CrossCoreSetFlag" in str(op) and "ALL" in str(op) for op in cube.ops)

    whole = 64 * 16_384
    assert meetings(whole, l2_split=False) == 1
    assert meetings(whole) == 3
    assert meetings(whole + 1) == 6


# ---- halves ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("s", [16, 32])
def test_local_sums(s):
    tile = s * s
    for n in (1, s - 1, s + 1, tile, 4 * tile + 2 * s + 3):
        for program, dtype, width in (
            ("row_scan", "float16", s),
            ("row_scan", "int8", s),
            ("block_scan", "float16", tile),
        ):
            if s == 16 and dtype == "int8":
                continue
            x = whole_numbers(n, dtype, n)
            report = simulate(program, DEVICE, inputs={"x": x}, s=s)
            np.testing.assert_array_equal(report.outputs["y"], local_sums(x, width))
            assert report.values.ok
            assert report.values.max_abs_error == 0


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("program", ["complete_rows", "complete_blocks"])
def test_completing_local_sums_gives_the_scan(program, dtype):
    """The halves fit together: local sums and the sums of cores make the whole scan."""
    s, tile = 16, 256
    for n in (1, s + 1, tile // 2 + 1, tile, 5 * tile, 7 * tile + s + 3):
        x = whole_numbers(n, np.int8, n)
        tiles = -(-n // tile)
        vectors = 2 * min(3, tiles)
        if program == "complete_rows":
            width, each = s, -(-tiles * 2 // vectors) * tile // 2
        else:
            width, each = tile, -(-tiles // vectors) * tile
        sums = np.array([x[v * each : (v + 1) * each].sum(dtype=np.int64) for v in range(vectors)])
        given = {"x": local_sums(x, width).astype(dtype), "r": sums.astype(dtype)}
        report = simulate(program, DEVICE, inputs=given, s=s)
        np.testing.assert_array_equal(report.outputs["y"], np.cumsum(x.astype(np.int64)))
        assert report.values.ok
        assert report.values.max_abs_error == 0


# ---- rounding, NaN and infinities --------------------------------------------------------------------------


@pytest.mark.parametrize("program", ["mcscan", "mcscan_ul1"])
def test_fractions_stay_within_what_rounding_can_do(program):
    """A sum has been through at most so many additions of magnitudes no larger than the whole."""
    s, n = 32, 9 * 1024 + 40
    x = np.random.default_rng(3).uniform(-1, 1, n).astype(np.float16)
    report = simulate(program, DEVICE, inputs={"x": x}, s=s)
    sums = np.cumsum(x.astype(np.float64))
    additions = 3 * s + 2 * n / s
    bound = additions * UNIT * np.cumsum(np.abs(x.astype(np.float64)))
    if program == "mcscan_ul1":
        bound += 2.0**-11 * np.cumsum(np.abs(x.astype(np.float64)))
    error = np.abs(report.outputs["y"] - sums)
    assert (error <= bound).all()
    assert error.max() > 0
    assert report.values.ok
    assert report.values.max_abs_error == error.max()
    assert report.values.tolerance <= 10 * bound.max()


def test_what_the_cube_cannot_read_reaches_other_cores():
    """In the rows of the core that holds them NaN is zero and infinity the largest half; the sums that the
    vector cores make, and so all cores behind, have them as they are.
    """
    s, half = 16, 128
    for value, seen in ((np.nan, 0), (np.inf, 65504), (-np.inf, -65504)):
        x = whole_numbers(6 * 256, np.float16)
        x[3 * half + 5] = value  # vector core 1 of 6 has half tiles 2 and 3
        read = x.astype(np.float64)
        read[3 * half + 5] = seen
        report = simulate("mcscan", DEVICE, inputs={"x": x}, s=s)
        y = report.outputs["y"]
        np.testing.assert_array_equal(y[: 4 * half], np.cumsum(read)[: 4 * half])
        np.testing.assert_array_equal(y[4 * half :], np.full(8 * half, value))
        assert report.values.ok


def test_infinities_of_both_signs_give_nan():
    x = np.ones(6 * 256, np.float16)
    x[0], x[300] = np.inf, -np.inf
    report = simulate("mcscan", DEVICE, inputs={"x": x}, s=16)
    y = report.outputs["y"]
    assert (y[256:512] == np.inf).all()
    assert np.isnan(y[512:]).all()
    assert report.values.ok


# ---- what does not fit -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("program", "params", "expected"),
    [
        ("mcscan", {"s": 48}, "mcscan: s=48: input should be 16, 32, 64 or 128"),
        ("mcscan", {"n": 0}, "mcscan: n=0: input should be greater than 0"),
        ("mcscan", {"cores": 0}, "mcscan: cores=0: input should be greater than 0"),
        (
            "mcscan",
            {"s": 16, "dtype": "int8"},
            "mcscan: s=16 is half a fractal of int8, which is 32 wide; use s=32 or more",
        ),
        (
            "row_scan",
            {"s": 16, "dtype": "int8"},
            "row_scan: s=16 is half a fractal of int8, which is 32 wide; use s=32 or more",
        ),
        ("mcscan_ul1", {"dtype": "int8"}, "mcscan_ul1: dtype=int8: input should be 'float16'"),
        (
            "complete_rows",
            {"dtype": "float16"},
            "complete_rows: dtype=float16: input should be 'float32' or 'int32'",
        ),
    ],
)
def test_sizes_and_types_that_do_not_fit(program, params, expected):
    with pytest.raises(ConfigError) as caught:
        simulate(program, DEVICE, **params)
    assert str(caught.value) == expected
