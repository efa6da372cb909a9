"""The vector-only sort: the order of Python's stable sort, at lengths around every edge of its merge tree."""

from __future__ import annotations

import math

import numpy as np
import pytest

from npusim import load_chip, simulate
from npusim.errors import ConfigError

DEVICE = load_chip("ascend-910b4", overrides={"cores.cube": 2})


def rank(value, bits, width):
    """Return what the documented order compares: zeros are equal, NaN lie beyond the infinities."""
    if math.isnan(value):
        magnitude = bits & ((1 << (width - 1)) - 1)
        return (-1, -magnitude) if bits >> (width - 1) else (1, magnitude)
    return (0, value)


def check(x, **params):
    report = simulate("sort_vec", DEVICE, inputs={"x": x}, **params)
    words = x.view(f"u{x.dtype.itemsize}")
    ranks = [rank(v, b, 8 * x.itemsize) for v, b in zip(x.tolist(), words.tolist(), strict=True)]
    order = sorted(range(x.size), key=ranks.__getitem__, reverse=params.get("order") == "descending")
    assert report.outputs["y_index"].tolist() == order
    assert report.outputs["y"].view(words.dtype).tolist() == words[order].tolist()
    assert report.values.ok
    return report


def few_values(n, dtype, seed=0):
    return np.random.default_rng(seed).integers(-9, 9, n).astype(dtype)


@pytest.mark.parametrize("order", ["ascending", "descending"])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_lengths_around_the_edges_of_the_tree(dtype, order):
    """Parts of 32, one run, two to five runs of a chunk, and of chunks."""
    for n in (1, 31, 33, 97, 128, 129, 4 * 128, 5 * 128 + 1, 2179):
        check(few_values(n, dtype, n), chunk=128, order=order)


@pytest.mark.parametrize("order", ["ascending", "descending"])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_all_kinds_of_numbers(dtype, order):
    word = "u2" if dtype == "float16" else "u4"
    rng = np.random.default_rng(3)
    bits = rng.integers(0, np.iinfo(word).max, 900, dtype=word, endpoint=True)
    x = bits.view(dtype)
    tiny = np.finfo(dtype).smallest_subnormal
    x[:8] = [0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, tiny, -tiny]
    x[8:200] = rng.permutation(np.tile(x[:8], 24))
    bits[-9:] = [0, 1 << (8 * bits.itemsize - 1), *[np.iinfo(word).max] * 4, *[np.iinfo(word).max // 2] * 3]
    check(x, chunk=512, order=order)


def test_keys_in_order_in_reverse_and_all_equal():
    x = np.linspace(-100, 100, 2500).astype(np.float32)
    for order in ("ascending", "descending"):
        check(x, chunk=128, order=order)
        check(x[::-1].copy(), chunk=512, order=order)
    check(np.full(2500, 1.5, np.float16), chunk=128)


def test_a_whole_chunk_of_the_buffer():
    check(few_values(2 * 8192 + 100, np.float16))


def test_few_elements_more_than_a_power_of_four_of_runs():
    """There are merges of one run and of two; the last one has four equal runs, not one of all but one."""
    check(few_values(128 * 17, np.float32), chunk=128)
    cycles = {
        n: simulate("sort_vec", DEVICE, timing_only=True, n=128 * n, chunk=128).total_cycles
        for n in (16, 17, 64, 65)
    }
    assert cycles[16] < cycles[17] < 1.6 * cycles[16]
    assert cycles[64] < cycles[65] < 1.5 * cycles[64]


def test_cores_do_not_change_the_result():
    x = few_values(3000, np.float32)
    times = [check(x, chunk=128, cores=c).total_cycles for c in (1, 2, 4)]
    assert times[0] > times[1] > times[2]


def test_time_without_values_is_near_that_of_random_keys():
    """It is less: in a merge of random keys one window is used up before the others."""
    params = {"n": 6 * 2048, "chunk": 2048, "dtype": "float32"}
    full = simulate("sort_vec", DEVICE, **params)
    alone = simulate("sort_vec", DEVICE, timing_only=True, **params)
    assert full.values.ok
    assert 0.8 * full.total_cycles < alone.total_cycles < full.total_cycles


def test_what_does_not_fit():
    with pytest.raises(ConfigError) as caught:
        simulate("sort_vec", DEVICE, cores=99)
    assert str(caught.value) == ("sort_vec: cores=99: ascend-910b4 has 4 vector cores; leave it out for all")
