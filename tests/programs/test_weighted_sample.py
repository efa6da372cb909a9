"""Weighted sampling against exact arithmetic: the first prefix sum above theta times the sum of all."""

from __future__ import annotations

from fractions import Fraction
from itertools import accumulate

import numpy as np
import pytest

from npusim import load_chip, simulate
from npusim.errors import ConfigError

DEVICE = load_chip("ascend-910b4", overrides={"cores.cube": 2})
TILE = 32 * 32
generations = pytest.mark.parametrize("generation", ["scan", "reduce"])


def exact(x, theta):
    """Return what exact arithmetic gives for theta rounded down to 24 binary digits."""
    sums = list(accumulate(Fraction(float(w)) for w in x))
    limit = Fraction(int(theta * 2**24), 2**24) * sums[-1]
    return next((i for i, c in enumerate(sums) if c > limit), -1)


def check(x, theta, **params):
    report = simulate("weighted_sample", DEVICE, inputs={"x": x}, theta=theta, **{"s": 32, **params})
    assert report.outputs["sample"].tolist() == [exact(x, theta)]
    assert report.values.ok
    assert report.values.tolerance == 0
    return report


@generations
@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_awkward_lengths(dtype, generation):
    rng = np.random.default_rng(0)
    for n, theta in (
        (1, 0.0),
        (1, 0.999),
        (251, 0.25),
        (TILE, 0.5),
        (TILE + 1, 0.7),
        (2 * TILE + 7, 1 - 2**-24),
    ):
        check(rng.integers(0, 100, n).astype(dtype), theta, generation=generation)


@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_zero_weights_are_never_sampled(dtype):
    x = np.zeros(1500, dtype)
    assert check(x, 0.5).outputs["sample"] == -1
    x[[700, 701, 1300]] = 3, 0, 5
    for theta, place in ((0.0, 700), (0.374, 700), (0.375, 1300), (1 - 2**-24, 1300)):
        assert check(x, theta).outputs["sample"] == place


def test_products_are_rounded_down():
    """Sums near 2^24 and a theta that leaves the product just below one of them: rounded to nearest it would
    be that sum, and the next element would be taken.
    """
    x = np.random.default_rng(3).integers(2000, 2049, 8000).astype(np.float16)
    sums = np.cumsum(x, dtype=np.int64)
    assert 2**23 < sums[-1] < 2**24
    near = [i for i in range(5000, 7900) if 0 < (int(sums[i]) << 24) % int(sums[-1]) < 2**22]
    for i in near[:2]:
        theta = ((int(sums[i]) << 24) // int(sums[-1])) / 2**24
        check(x, theta, s=64, generation="reduce")


def test_sums_of_bytes_beyond_what_float32_holds():
    x = np.full(140_000, 127, np.int8)
    x[-1] = 1
    total = 127 * 139_999 + 1
    theta = (total - 1) * 2**24 // total / 2**24
    check(x, theta, s=128, generation="reduce")


def test_halves_whose_sums_are_rounded():
    """Digits too far apart for float32: the reference says where the sample can be."""
    rng = np.random.default_rng(4)
    x = np.ldexp(rng.random(3000), rng.integers(-12, 12, 3000)).astype(np.float16)
    report = simulate("weighted_sample", DEVICE, inputs={"x": x}, theta=0.6, s=32)
    assert report.values.ok
    assert abs(int(report.outputs["sample"][0]) - exact(x, 0.6)) <= 1
    assert report.values.tolerance <= 1


def test_any_number_of_cores_gives_the_same():
    for cores in (1, 2):
        report = simulate("weighted_sample", DEVICE, n=5 * TILE, s=32, theta=0.8, cores=cores)
        assert report.values.ok


@generations
def test_time_without_values_takes_weights_as_equal(generation):
    params = {"s": 32, "theta": 0.3, "generation": generation}
    full = simulate("weighted_sample", DEVICE, inputs={"x": np.ones(3001, np.float16)}, **params)
    alone = simulate("weighted_sample", DEVICE, n=3001, timing_only=True, **params)
    assert alone.total_cycles == full.total_cycles


@pytest.mark.parametrize(
    ("value", "shown"), [(np.nan, "nan"), (np.inf, "inf"), (-1.0, "-1.0"), (-0.0, "-0.0")]
)
def test_what_is_no_weight(value, shown):
    x = np.ones(40, np.float16)
    x[7] = value
    with pytest.raises(ConfigError) as caught:
        simulate("weighted_sample", DEVICE, inputs={"x": x}, s=32)
    rule = "weights must be finite and 0 or more"
    assert str(caught.value) == f"weighted_sample: input x: {rule}, but element 7 is {shown}"


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"theta": 1.0}, "weighted_sample: theta=1.0: input should be less than 1"),
        ({"theta": -0.1}, "weighted_sample: theta=-0.1: input should be greater than or equal to 0"),
        ({"dtype": "float32"}, "weighted_sample: dtype=float32: input should be 'float16' or 'int8'"),
    ],
)
def test_what_does_not_fit(params, expected):
    with pytest.raises(ConfigError) as caught:
        simulate("weighted_sample", DEVICE, **params)
    assert str(caught.value) == expected
