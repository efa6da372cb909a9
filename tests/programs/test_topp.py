"""Top-p sampling against exact arithmetic, with the cube and without."""

from __future__ import annotations

from fractions import Fraction
from itertools import accumulate

import numpy as np
import pytest

from npusim import load_chip, simulate
from npusim.errors import ConfigError

DEVICE = load_chip("ascend-910b4", overrides={"cores.cube": 2})
SMALL = {"topp": {"s": 32, "generation": "reduce"}, "topp_vec": {"s": 16, "chunk": 128}}
programs = pytest.mark.parametrize("name", SMALL)


def exact(x, p, theta):
    """Return order, new probabilities and token of exact arithmetic."""
    weights = [Fraction(float(w)) for w in x]
    order = sorted(range(x.size), key=lambda i: -weights[i])
    sums = list(accumulate(weights[i] for i in order))
    kept = [
        weights[i] if c - weights[i] <= Fraction(p) else Fraction(0) for i, c in zip(order, sums, strict=True)
    ]
    total = sum(kept)
    limit = Fraction(int(theta * 2**24), 2**24)
    place = next(i for i, c in enumerate(accumulate(kept)) if c / total > limit)
    return order, [w / total for w in kept], order[place]


def check(name, x, p, theta, **params):
    report = simulate(name, DEVICE, inputs={"x": x}, p=p, theta=theta, **{**SMALL[name], **params})
    order, probs, token = exact(x, p, theta)
    assert report.outputs["index"].tolist() == order
    assert report.outputs["token"].tolist() == [token]
    for found, wanted in zip(report.outputs["probs"].tolist(), probs, strict=True):
        assert abs(Fraction(found) - wanted) <= wanted / 2**24
    assert report.values.ok
    return report


def units(weights):
    """Return probabilities of so many 2^-24 each."""
    return (np.asarray(weights, np.float64) * 2.0**-24).astype(np.float16)


@programs
def test_shares_from_none_to_all(name):
    rng = np.random.default_rng(0)
    x = units(np.floor(rng.dirichlet(np.full(251, 0.1)) * 2**12) * 2**12)
    assert 0.9 < x.astype(float).sum() <= 1
    for p, theta in ((0, 0.99), (0.1, 0.5), (0.9, 0.999), (1, 1 - 2**-24)):
        check(name, x, p, theta)
    assert np.count_nonzero(check(name, x, 0, 0.7).outputs["probs"]) == 1


@programs
def test_ties(name):
    """Equal probabilities, of which the first come first; and sums of exactly p, which keep one more."""
    halves = np.array([0.125, 0.25, 0.125, 0.25, 0.25], np.float16)
    for p, kept in ((0.25, 2), (0.5, 3), (0.5 - 2**-30, 2), (0.75, 4), (0.1, 1)):
        for theta in (0.25, 0.75):
            report = check(name, halves, p, theta)
            assert np.count_nonzero(report.outputs["probs"]) == kept
    check(name, np.full(256, 2.0**-8, np.float16), 0.9, 0.5)


@programs
def test_awkward_lengths(name):
    rng = np.random.default_rng(1)
    for n in (1, 33, 1024, 1025):
        check(name, units(rng.integers(1, 2048, n)), 1e-5 * n, 0.6)


def test_products_are_rounded_down():
    x = np.sort(units(np.random.default_rng(3).integers(2000, 2049, 8000)))[::-1].copy()
    sums = np.cumsum(x.astype(np.float64) * 2.0**24).astype(np.int64)
    near = [i for i in range(5000, 7900) if 0 < (int(sums[i]) << 24) % int(sums[-1]) < 2**22]
    theta = ((int(sums[near[0]]) << 24) // int(sums[-1])) / 2**24
    check("topp_vec", x, 1, theta, chunk=2048, s=64)


@programs
def test_probabilities_of_zero_are_never_sampled(name):
    x = np.zeros(700, np.float16)
    x[[300, 650]] = 0.25
    assert check(name, x, 1, 1 - 2**-24).outputs["token"] == 650
    assert check(name, x, 1, 0).outputs["token"] == 300


def test_both_programs_agree():
    x = units(np.random.default_rng(5).integers(0, 2000, 3001))
    found = [simulate(name, DEVICE, inputs={"x": x}, p=0.1, **SMALL[name]).outputs for name in SMALL]
    for output in ("token", "index", "probs"):
        assert found[0][output].tobytes() == found[1][output].tobytes()


def test_floats_without_the_cube():
    rng = np.random.default_rng(6)
    check("topp_vec", (rng.integers(1, 60_000, 300) * 2.0**-24).astype(np.float32), 0.5, 0.3)


@programs
def test_probabilities_whose_sums_are_rounded(name):
    rng = np.random.default_rng(7)
    x = np.ldexp(rng.random(2000), rng.integers(-22, -10, 2000)).astype(np.float16)
    report = simulate(name, DEVICE, inputs={"x": x}, p=0.03, **SMALL[name])
    assert report.values.ok
    _, probs, _ = exact(x, 0.03, 0.5)
    np.testing.assert_allclose(report.outputs["probs"], np.array(probs, float), rtol=1e-5)


def decided(x, p, theta):
    """Return whether float32 sums, in whatever order they are added, cut and sample as exact ones do."""
    weights = sorted((Fraction(float(w)) for w in x), reverse=True)
    sums = list(accumulate(weights))
    near = sums[-1] * Fraction(2 * x.size + 8, 2**24)
    if any(abs(c - w - Fraction(p)) <= near for c, w in zip(sums[1:], weights[1:], strict=True)):
        return False
    kept = [c for c, w in zip(sums, weights, strict=True) if c - w <= Fraction(p)]
    return all(abs(c - kept[-1] * Fraction(theta)) > 2 * near for c in kept)


@programs
@pytest.mark.parametrize("p", [0, 1e-9, 1e-4, 0.1, 1])
def test_the_first_is_kept_whatever_p_is(name, p):
    compared = 0
    for seed, n in enumerate((1, 2, 149)):
        rng = np.random.default_rng(seed)
        given = [rng.random(n).astype(np.float16)]
        if name == "topp_vec":
            weights = np.exp(3 * rng.standard_normal(n))
            given += [(weights / weights.sum()).astype(np.float32), rng.random(n).astype(np.float32)]
        for x in given:
            report = simulate(name, DEVICE, inputs={"x": x}, p=p, theta=0.5, **SMALL[name])
            assert report.values.ok
            order, probs, token = exact(x, p, 0.5)
            assert report.outputs["index"].tolist() == order
            assert report.outputs["probs"][0] > 0
            if decided(x, p, 0.5):
                compared += 1
                assert report.outputs["token"].tolist() == [token]
                np.testing.assert_allclose(report.outputs["probs"], np.array(probs, float), rtol=2e-5)
    assert compared >= len(given)


@programs
def test_nothing_but_the_first_of_many(name):
    """As a user met it: sums of 150 uniform numbers are rounded, and p = 0 keeps the largest."""
    x = np.random.default_rng(7).random(150).astype(np.float16)
    for p in (0, 1e-9):
        report = simulate(name, DEVICE, inputs={"x": x}, p=p, **SMALL[name])
        assert report.values.ok
        assert report.outputs["token"].tolist() == [int(np.argmax(x))]
        assert report.outputs["probs"].tolist() == [1] + [0] * 149


def test_scan_over_the_mask_and_one_core():
    x = units(np.random.default_rng(8).integers(0, 2000, 1500))
    check("topp", x, 0.04, 0.4, generation="scan", cores=1)


@programs
def test_time_does_not_depend_on_p_and_theta(name):
    params = {"n": 1500, "timing_only": True, **SMALL[name]}
    few, many = (simulate(name, DEVICE, p=p, theta=t, **params).total_cycles for p, t in ((0, 0), (1, 0.9)))
    assert few == pytest.approx(many, rel=0.01)


def test_launches_by_name():
    for name, stages in (("topp", "radix_sort mcscan"), ("topp_vec", "sort_vec cumsum_vec")):
        report = simulate(name, DEVICE, n=600, timing_only=True, **SMALL[name])
        assert [launch.name for launch in report.launches] == [*stages.split(), "sample"]


@programs
def test_what_are_no_probabilities(name):
    x = np.full(40, 2.0**-6, np.float16)
    x[7] = -1
    with pytest.raises(ConfigError) as caught:
        simulate(name, DEVICE, inputs={"x": x}, **SMALL[name])
    rule = "probabilities must be finite and 0 or more"
    assert str(caught.value) == f"{name}: input x: {rule}, but element 7 is -1.0"
    with pytest.raises(ConfigError) as caught:
        simulate(name, DEVICE, inputs={"x": np.zeros(5, np.float16)}, **SMALL[name])
    assert str(caught.value) == f"{name}: input x: one probability or more must be above 0, but all are 0"


@pytest.mark.parametrize(
    ("name", "params", "expected"),
    [
        ("topp", {"p": 1.5}, "topp: p=1.5: input should be less than or equal to 1"),
        ("topp", {"theta": 1}, "topp: theta=1: input should be less than 1"),
        ("topp", {"dtype": "float32"}, "topp: dtype=float32: input should be 'float16'"),
        ("topp_vec", {"cores": 41}, "topp_vec: cores=41: {chip} has 4 vector cores; leave it out for all"),
    ],
)
def test_what_does_not_fit(name, params, expected):
    with pytest.raises(ConfigError) as caught:
        simulate(name, DEVICE, **params)
    assert str(caught.value) == expected.format(chip=DEVICE.name)
