"""Radix sort: the order of Python's stable sort on keys of every kind, and the shape of its time."""

from __future__ import annotations

import numpy as np
import pytest
from key_order import rank

from npusim import load_chip, simulate
from npusim.errors import ConfigError

DEVICE = load_chip("ascend-910b4", overrides={"cores.cube": 2})
TILE = 32 * 32


def sorted_by_hand(x, descending):
    bits = x.view(np.uint16).tolist()
    ranks = [rank(v, b) for v, b in zip(x.tolist(), bits, strict=True)]
    return sorted(range(x.size), key=ranks.__getitem__, reverse=descending)


def check(x, chip=DEVICE, **params):
    report = simulate("radix_sort", chip, inputs={"x": x}, s=32, **params)
    order = sorted_by_hand(x, params.get("order") == "descending")
    assert report.outputs["y_index"].tolist() == order
    assert report.outputs["y"].view(np.uint16).tolist() == x.view(np.uint16)[order].tolist()
    assert report.values.ok
    return report


SPECIAL = np.array(
    [
        0x0000,
        0x8000,
        0x7C00,
        0xFC00,
        0x7E00,
        0xFE00,
        0x7C01,
        0x0001,
        0x8001,
        0x03FF,
        0x3C00,
        0xBC00,
        0x7BFF,
        0xFBFF,
    ],
    np.uint16,
).view(np.float16)


@pytest.mark.parametrize("order", ["ascending", "descending"])
@pytest.mark.parametrize("generation", ["scan", "reduce"])
def test_all_kinds_of_halves(order, generation):
    """Zeros of both signs, infinities, NaN of both signs and subnormal numbers, several times each."""
    rng = np.random.default_rng(5)
    x = np.concatenate(
        [SPECIAL, rng.permutation(np.tile(SPECIAL, 20)), rng.normal(0, 3, 700).astype(np.float16)]
    )
    check(x, order=order, generation=generation)


@pytest.mark.parametrize("dtype", ["int16", "uint16"])
@pytest.mark.parametrize("order", ["ascending", "descending"])
def test_whole_numbers(dtype, order):
    info = np.iinfo(dtype)
    x = np.random.default_rng(1).integers(info.min, info.max + 1, TILE + 1).astype(dtype)
    x[:6] = [info.min, info.max, 0, 1, info.max - 1, info.min + 1]
    x[100:160] = x[7]
    check(x, order=order)


@pytest.mark.parametrize("n", [1, 2, 251, TILE, TILE // 2 + 1])
def test_awkward_lengths(n):
    check(np.random.default_rng(n).integers(-9, 9, n).astype(np.float16), generation="reduce")


def test_keys_in_order_in_reverse_and_all_equal():
    ascending = np.linspace(-100, 100, 600).astype(np.float16)
    check(ascending, generation="reduce")
    check(ascending[::-1].copy(), generation="reduce")
    check(np.full(600, -2.5, np.float16), order="descending", generation="reduce")


@pytest.mark.parametrize("passes", [1, 2, 3, 8])
@pytest.mark.parametrize("dtype", ["float16", "uint16"])
def test_fewer_passes_sort_by_the_lowest_bits(passes, dtype):
    x = np.random.default_rng(passes).integers(0, 40_000, 300).astype(np.uint16)
    report = simulate("radix_sort", DEVICE, inputs={"x": x.view(dtype)}, s=32, passes=passes)
    keys = x.tolist()
    if dtype == "float16":
        keys = [k ^ 0x7FFF if k >= 0x8000 else k for k in keys]
    order = sorted(range(x.size), key=lambda i: keys[i] % (1 << passes))
    assert report.outputs["y_index"].tolist() == order
    assert report.outputs["y"].view(np.uint16).tolist() == x[order].tolist()
    assert report.values.ok


def test_time_grows_with_the_passes():
    params = {"n": 4 * TILE, "s": 32, "generation": "reduce", "timing_only": True}
    cycles = [simulate("radix_sort", DEVICE, passes=p, **params).total_cycles for p in (4, 8, 16)]
    assert 1.9 < (cycles[2] - cycles[1]) / (cycles[1] - cycles[0]) < 2.1
    assert cycles[1] > 1.8 * cycles[0]


def test_time_without_values_is_near_that_of_random_keys():
    params = {"n": 2 * TILE + 7, "s": 32, "passes": 8, "dtype": "uint16"}
    full = simulate("radix_sort", DEVICE, **params)
    alone = simulate("radix_sort", DEVICE, timing_only=True, **params)
    assert full.values.ok
    assert alone.total_cycles == pytest.approx(full.total_cycles, rel=0.03)


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"passes": 17}, "radix_sort: passes=17: input should be less than or equal to 16"),
        ({"dtype": "float32"}, "radix_sort: dtype=float32: input should be 'float16', 'int16' or 'uint16'"),
        ({"order": "up"}, "radix_sort: order=up: input should be 'ascending' or 'descending'"),
    ],
)
def test_what_does_not_fit(params, expected):
    with pytest.raises(ConfigError) as caught:
        simulate("radix_sort", DEVICE, **params)
    assert str(caught.value) == expected
