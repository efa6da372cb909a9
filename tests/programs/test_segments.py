"""Segmented scans and sums, and SpMV: exact on whole numbers, with segments of every kind, on any cores."""

from __future__ import annotations

from fractions import Fraction
from itertools import accumulate, pairwise

import numpy as np
import pytest

from npusim import load_chip, simulate
from npusim.errors import ConfigError

DEVICE = load_chip("ascend-910b4", overrides={"cores.cube": 2})
TILE = 32 * 32


def sums_by_hand(x, offsets):
    """Return the sums inside segments, in Python numbers."""
    return [list(accumulate(x[a:b])) for a, b in pairwise(offsets)]


def cuts_of(n):
    """Return offsets of many kinds for n elements."""
    rng = np.random.default_rng(n)
    yield [0, n]  # one segment, over all cores
    yield [*range(min(n, 1100)), n]  # of one element each, more than a buffer of offsets
    yield [0] * 3 + [n // 2] * 40 + [n] * 3  # runs of empty ones
    yield [0, *sorted(rng.integers(0, n + 1, n // 9).tolist()), n]
    yield [*range(0, n, 32), n]  # ends where rows end
    yield [0, *[cut for cut in (TILE // 2, TILE, 2 * TILE) if cut < n], n]  # and where cores end


@pytest.mark.parametrize(
    ("n", "dtype"), [(1, "int8"), (251, "float16"), (TILE, "float32"), (2 * TILE + 1, "int8")]
)
def test_whole_numbers_are_summed_exactly(n, dtype):
    x = np.random.default_rng(n).integers(-9, 10, n).astype(dtype)
    for offsets in cuts_of(n):
        by_hand = sums_by_hand(x.astype(int).tolist(), offsets)
        given = {"x": x, "offsets": np.array(offsets, np.int32)}
        report = simulate("seg_sum", DEVICE, inputs=given, s=32)
        assert report.outputs["y"].tolist() == [s[-1] if s else 0 for s in by_hand]
        assert report.values.ok
        report = simulate("seg_scan", DEVICE, inputs=given, s=32)
        assert report.outputs["y"].tolist() == [v for s in by_hand for v in s]
        assert report.values.ok


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_errors_are_those_of_rows_and_not_of_the_whole_array(dtype):
    """Behind elements of a million the sums of small ones are as good as without them."""
    n = 2 * TILE
    x = np.random.default_rng(3).uniform(-1, 1, n).astype(dtype)
    x[: n // 2] *= 60_000 if dtype == "float16" else 1_000_000
    offsets = [0, n // 2, n // 2, n // 2 + 77, n]
    exact = [v for s in sums_by_hand([Fraction(float(v)) for v in x], offsets) for v in s]
    given = {"x": x, "offsets": np.array(offsets, np.int32)}
    report = simulate("seg_scan", DEVICE, inputs=given, s=32)
    assert report.values.ok
    error = [abs(Fraction(float(v)) - e) for v, e in zip(report.outputs["y"], exact, strict=True)]
    assert max(error[n // 2 :]) < 1e-4
    sums = simulate("seg_sum", DEVICE, inputs=given, s=32).outputs["y"]
    assert sums.tolist() == [report.outputs["y"][n // 2 - 1], 0, *report.outputs["y"][[n // 2 + 76, n - 1]]]


def test_what_is_not_finite_is_replaced():
    x = np.array([1, np.nan, 2, np.inf, -np.inf, 3, -0.0, 0.0], np.float16)
    given = {"x": x, "offsets": np.array([0, 3, 5, 6, 8], np.int32)}
    report = simulate("seg_scan", DEVICE, inputs=given, s=32)
    assert report.outputs["y"].tolist() == [1, 1, 3, 65504, 0, 3, 0, 0]
    assert report.values.ok


@pytest.mark.parametrize("name", ["seg_scan", "seg_sum"])
@pytest.mark.parametrize("s", [64, 128])
def test_large_tiles(name, s):
    report = simulate(name, DEVICE, n=2 * s * s + 5, s=s, segments=300, dtype="float32")
    assert report.values.ok


@pytest.mark.parametrize("name", ["seg_scan", "seg_sum"])
def test_any_number_of_cores_gives_the_same(name):
    chip = load_chip("ascend-910b4", overrides={"cores.cube": 3})
    n = 5 * TILE + 3
    given = {"x": np.ones(n, np.int8), "offsets": np.array([0, 700, 701, n - 600, n], np.int32)}
    found = {
        simulate(name, chip, inputs=given, s=32, cores=cores).outputs["y"].tobytes() for cores in (None, 1, 2)
    }
    assert len(found) == 1


def multiply_by_hand(value, column, offsets, v):
    products = [Fraction(float(a)) * Fraction(float(v[j])) for a, j in zip(value, column, strict=True)]
    return [sum(products[a:b], Fraction(0)) for a, b in pairwise(offsets)]


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize(
    ("columns", "window", "offsets"),
    [
        (1, 8, [0, 1]),
        (997, 8192, [0, 0, 0, 613, 613, 1500, 1501, 1501]),
        (997, 128, [0, 0, 0, 613, 613, 1500, 1501, 1501]),
        (40, 8, [0, 3 * TILE]),
        (64, 64, [*range(0, 1200, 3)]),
    ],
)
def test_sparse_products_are_exact_on_whole_numbers(columns, window, offsets, dtype):
    rng = np.random.default_rng(columns)
    n = offsets[-1]
    given = {
        "value": rng.integers(-9, 10, n).astype(dtype),
        "column": rng.integers(0, columns, n).astype(np.int32),
        "offsets": np.array(offsets, np.int32),
        "v": rng.integers(-9, 10, columns).astype(dtype),
    }
    given["column"][:2] = [columns - 1, 0][: min(2, n)]
    report = simulate("spmv", DEVICE, inputs=given, s=32, window=window)
    assert report.outputs["y"].tolist() == multiply_by_hand(**given)
    assert report.values.ok


def test_sparse_products_of_fractions_keep_within_their_bound():
    for params in ({"dtype": "float32", "window": 64}, {"dtype": "float16"}):
        report = simulate("spmv", DEVICE, rows=90, columns=300, nonzeros=2111, s=32, **params)
        assert report.values.ok
        assert 0 < report.values.max_abs_error < 1e-4


@pytest.mark.parametrize("name", ["seg_scan", "seg_sum", "spmv"])
def test_time_without_values_is_that_of_equal_segments(name):
    n, segments = 3 * TILE, 48
    sizes = {"rows": segments, "nonzeros": n} if name == "spmv" else {"segments": segments, "n": n}
    offsets = np.arange(0, n + 1, n // segments, dtype=np.int32)
    full = simulate(name, DEVICE, inputs={"offsets": offsets}, s=32, **sizes)
    alone = simulate(name, DEVICE, s=32, timing_only=True, **sizes)
    assert full.values.ok
    assert alone.total_cycles == full.total_cycles


def test_a_sum_for_every_segment_costs_less_than_one_for_every_element():
    params = {"n": 8 * TILE, "s": 32, "segments": 50, "timing_only": True}
    scan, sums = (simulate(name, DEVICE, **params) for name in ("seg_scan", "seg_sum"))
    assert sums.total_cycles < scan.total_cycles
    assert sums.gm.write_bytes < scan.gm.write_bytes - 3 * params["n"]
    assert sums.vector.element_ops < 8 < params["n"] < scan.vector.element_ops  # the scalar unit adds


X = np.ones(10, np.float16)


def ints(*values):
    return np.array(values, np.int32)


@pytest.mark.parametrize(
    ("program", "inputs", "params", "expected"),
    [
        (
            "seg_sum",
            {"x": X, "offsets": ints(0, 7, 3, 10)},
            {},
            "seg_sum: input offsets must never fall, but element 2 is 3, after 7",
        ),
        (
            "seg_scan",
            {"x": X, "offsets": ints(0, 10, -1, -2)},
            {},
            "seg_scan: input offsets must never fall, but element 2 is -1, after 10",
        ),
        (
            "spmv",
            {"offsets": ints(2, 7, 3, 10)},
            {},
            "spmv: input offsets must start with 0, but element 0 is 2",
        ),
        (
            "seg_scan",
            {"x": X, "offsets": ints(0)},
            {},
            "seg_scan: input offsets holds 0 alone, which is no segment; give the end of each one, too",
        ),
        (
            "seg_scan",
            {"x": X, "offsets": ints(0, 7, 9)},
            {},
            "seg_scan: offsets must end with 10, the elements there are, not 9",
        ),
        ("seg_scan", {}, {"s": 16}, "seg_scan: s=16: input should be 32, 64 or 128"),
        ("spmv", {}, {"window": 12}, "spmv: window=12 must be a multiple of 8, which fill a block"),
        (
            "spmv",
            {"column": ints(0, 3), "v": X[:3]},
            {},
            "spmv: column must name elements of v, from 0 up to 2, not 3",
        ),
        (
            "spmv",
            {"column": ints(-1, 0), "v": X},
            {},
            "spmv: column must name elements of v, from 0 up to 9, not -1",
        ),
        (
            "spmv",
            {"column": ints(0, 3)},
            {},
            "spmv: column is given without v, which it names elements of; give both",
        ),
        ("spmv", {"value": X, "column": ints(0, 0)}, {}, "spmv: column has 2 entries, value has 10"),
    ],
)
def test_what_does_not_fit(program, inputs, params, expected):
    with pytest.raises(ConfigError) as caught:
        simulate(program, DEVICE, inputs=inputs, **params)
    assert str(caught.value) == expected


def test_buffers_that_do_not_fit():
    small = load_chip("ascend-910b4", overrides={"buffers.ub_kib": 64})
    with pytest.raises(ConfigError, match=r"seg_sum: s=128 .* 65536 bytes of ub; use a smaller s$"):
        simulate("seg_sum", small, n=1000, timing_only=True)
    with pytest.raises(ConfigError, match=r"spmv: s=32 .* 196608 bytes of ub; use a smaller window or s$"):
        simulate("spmv", DEVICE, s=32, columns=100_000, window=65536, timing_only=True)
