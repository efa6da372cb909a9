"""The vector-only top-k against Python's stable sort, with few and many lists to merge."""

from __future__ import annotations

import math

import numpy as np
import pytest

from npusim import load_chip, simulate
from npusim.errors import ConfigError

DEVICE = load_chip("ascend-910b4", overrides={"cores.cube": 3})


def rank(value, bits, width):
    """Return what the documented order compares: zeros are equal, NaN lie beyond the infinities."""
    if math.isnan(value):
        magnitude = bits & ((1 << (width - 1)) - 1)
        return (-1, -magnitude) if bits >> (width - 1) else (1, magnitude)
    return (0, value)


def check(x, top, **params):
    report = simulate("topk_vec", DEVICE, inputs={"x": x}, top=top, **params)
    words = x.view(f"u{x.dtype.itemsize}")
    ranks = [rank(v, b, 8 * x.itemsize) for v, b in zip(x.tolist(), words.tolist(), strict=True)]
    order = sorted(range(x.size), key=ranks.__getitem__, reverse=True)[:top]
    assert report.outputs["y_index"].tolist() == order
    assert report.outputs["y"].view(words.dtype).tolist() == words[order].tolist()
    assert report.values.ok
    return report


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_lengths_and_numbers_of_lists(dtype):
    rng = np.random.default_rng(0)
    for n, top, cores in (
        (1, 1, None),
        (33, 33, None),
        (251, 5, 1),
        (129, 129, 2),
        (700, 200, 3),
        (2900, 64, 5),
    ):
        check(rng.integers(-9, 9, n).astype(dtype), top, chunk=128, cores=cores)
    check(rng.normal(size=6001).astype(dtype), 130, chunk=512)


def test_all_kinds_of_halves():
    bits = np.random.default_rng(1).integers(0, 1 << 16, 1500, np.uint16, endpoint=False)
    x = bits.view(np.float16)
    x[:6] = [np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0]
    check(x, 700, chunk=128)
    check(np.sort(x)[::-1].copy(), 100, chunk=512)
    check(np.full(1500, -0.0, np.float16), 600, chunk=128)


def test_the_longest_list():
    check(np.random.default_rng(2).normal(size=4 * 2048 + 9).astype(np.float32), 2048, chunk=2048)


def test_time_without_values_is_the_same():
    params = {"n": 3000, "top": 90, "chunk": 128}
    full, alone = (simulate("topk_vec", DEVICE, timing_only=t, **params) for t in (False, True))
    assert full.values.ok
    assert alone.total_cycles == full.total_cycles


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"n": 10, "top": 11}, "topk_vec: top=11 must be 1..10, the elements there are"),
        ({"top": 2049}, "topk_vec: top=2049: input should be less than or equal to 2048"),
    ],
)
def test_what_does_not_fit(params, expected):
    with pytest.raises(ConfigError) as caught:
        simulate("topk_vec", DEVICE, **params)
    assert str(caught.value) == expected
