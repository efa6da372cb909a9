"""Single roundings and exact sums against rationals."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numerics_oracle import FORMATS, MODES, largest, round_fraction

from npusim.isa.numerics.exact import exact_sum_to_odd, round_sum_to_f32, to_f32, to_odd, two_sum_error
from npusim.isa.numerics.formats import (
    BFLOAT,
    HALF,
    SINGLE,
    clamp_to_f32,
    f32_round_frac,
    narrow_to_f16,
    quiet,
    round_real,
    to_integral,
)

ours = {"f16": HALF, "bf16": BFLOAT, "f32": SINGLE}


def values_for(fmt, rng):
    """Numbers of all sizes, midpoints and their neighbours, the limits, subnormals."""
    precision, emin, emax = FORMATS[fmt]
    x = np.ldexp(rng.standard_normal(300), rng.integers(max(emin - precision - 3, -200), emax + 3, 300))
    near = np.ldexp(rng.integers(1, 2 ** (precision + 2), 200).astype(float), emin - precision - 1)
    edge = np.array([float(largest(fmt)) * (1 + i * 2.0 ** -(precision + 2)) for i in range(5)])
    x = np.concatenate([x, near, near * 2.0**7, edge, [0.0, 0.5, 1.5, 2.5]])
    return np.concatenate([x, -x, np.nextafter(x, np.inf), np.nextafter(x, -np.inf)])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("fmt", FORMATS)
def test_round_real_is_one_rounding(fmt, mode):
    x = values_for(fmt, np.random.default_rng(0))
    want = [float(round_fraction(Fraction(float(v)), fmt, mode)) for v in x]
    assert np.array_equal(round_real(x, ours[fmt], mode), want)
    clamped = np.clip(want, -float(largest(fmt)), float(largest(fmt)))
    assert np.array_equal(round_real(x, ours[fmt], mode, saturate=True), clamped)


@pytest.mark.parametrize("fmt", FORMATS)
def test_round_real_of_specials(fmt):
    x = np.array([np.inf, -np.inf, np.nan, -0.0])
    for mode in MODES:
        assert np.array_equal(round_real(x, ours[fmt], mode), x, equal_nan=True)
        saturated = round_real(x, ours[fmt], mode, saturate=True)
        assert np.array_equal(saturated, [float(largest(fmt)), -float(largest(fmt)), 0, 0])
        assert np.signbit(round_real(x, ours[fmt], mode))[3]


def test_to_integral_at_the_edge_of_a_half():
    below = 0.5 - 2.0**-54
    x = np.array([below, 0.5, 1.5, 2.5, -below, -0.5, -1.5, 2.0**52 + 1, -0.0])
    assert list(to_integral(x, "rna")) == [0, 1, 2, 3, 0, -1, -2, 2.0**52 + 1, 0]
    assert list(to_integral(x, "odd")) == [1, 1, 1, 3, -1, -1, -1, 2.0**52 + 1, 0]
    with pytest.raises(ValueError, match=r"^rounding must be rne, rz, rd, ru, rna or odd, not up$"):
        to_integral(x, "up")


@pytest.mark.parametrize("mode", ["rne", "rna", "rz"])
@pytest.mark.parametrize("frac", [10, 11, 7])
def test_f32_round_frac(frac, mode):
    rng = np.random.default_rng(1)
    x = rng.integers(0, 1 << 32, 3000, np.uint64).astype(np.uint32).view(np.float32)
    x = np.concatenate([x, np.float32(1) + np.arange(64, dtype=np.float32) * np.float32(2.0 ** -(frac + 2))])
    x[:4] = np.inf, -np.inf, np.nan, np.finfo(np.float32).max
    got = f32_round_frac(x, frac, mode)
    for v, r in zip(x.tolist(), got.tolist(), strict=True):
        want = v
        if math.isfinite(v):
            want = float(round_fraction(Fraction(v), (frac + 1, -126, 127), mode))
        assert r == want or (math.isnan(r) and math.isnan(v))
    assert (got.view(np.uint32)[np.isnan(x)] == 0x7FC00000).all()
    with pytest.raises(ValueError, match=r"^rounding of operands must be rne, rna or rz, not ru$"):
        f32_round_frac(x, frac, "ru")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_narrow_to_f16(dtype):
    rng = np.random.default_rng(2)
    x = values_for("f16", rng).astype(dtype)
    want = np.array([float(round_fraction(Fraction(float(v)), "f16")) for v in x])
    assert np.array_equal(narrow_to_f16(x, saturate=False), want)
    assert np.array_equal(narrow_to_f16(x, saturate=True), np.clip(want, -65504, 65504))
    special = np.array([np.nan, np.inf, -np.inf, 65519.0, 65520.0, 1], dtype)
    assert narrow_to_f16(special, saturate=False).view(np.uint16).tolist() == [
        0x7E00, 0x7C00, 0xFC00, 0x7BFF, 0x7C00, 0x3C00,
    ]  # fmt: skip
    assert narrow_to_f16(special, saturate=True).tolist() == [0, 65504, -65504, 65504, 65504, 1]
    assert narrow_to_f16(np.zeros(0, dtype), saturate=True).dtype == np.float16
    for alone in (65520.0, 1e5, 1e30):
        assert narrow_to_f16(np.array([alone], dtype), saturate=True).tolist() == [65504]
        assert narrow_to_f16(np.array([alone], dtype), saturate=False).tolist() == [np.inf]
    many = np.full(1 << 17, 200.0, dtype)  # the sum of squares says nothing here
    assert (narrow_to_f16(many, saturate=True) == 200).all()


def test_nan_is_made_canonical():
    x = np.array([0xFFC00001, 0x7F800001, 0x3F800000], np.uint32).view(np.float32)
    assert quiet(x).view(np.uint32).tolist() == [0x7FC00000, 0x7FC00000, 0x3F800000]
    y = np.array([np.nan, np.inf, -np.inf, 3], np.float32)
    clamp_to_f32(y)
    top = np.finfo(np.float32).max
    assert y.tolist() == [0, top, -top, 3]


# ---- exact sums --------------------------------------------------------------------------------------------


def fraction_sum(terms):
    return sum((Fraction(float(t)) for t in terms), Fraction(0))


@pytest.mark.parametrize("seed", range(60))
def test_exact_sums_of_wild_terms(seed):
    rng = np.random.default_rng(seed)
    rows, n = int(rng.integers(1, 6)), int(rng.integers(1, 40))
    terms = np.ldexp(
        rng.integers(-(2**48), 2**48, (rows, n)).astype(float), rng.integers(-300, 200, (rows, n))
    )
    if seed % 2:
        terms[0, n // 2 : 2 * (n // 2)] = -terms[0, : n // 2]
    terms[rng.random((rows, n)) < 0.2] = 0
    odd = exact_sum_to_odd(terms)
    for mode in MODES:
        want = [float(round_fraction(fraction_sum(row), "f32", mode)) for row in terms]
        assert np.array_equal(to_f32(odd, mode), want)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_crumb_decides_however_small(sign):
    """A float32 tie and one bit far below it: the sum must stay on the crumb's side."""
    for tie in (1 + 2.0**-24, 1 + 3 * 2.0**-24):
        terms = np.array([[sign * tie, crumb * 2.0**-k] for k in range(25, 260) for crumb in (1, -1)])
        for mode in MODES:
            want = [float(round_fraction(fraction_sum(row), "f32", mode)) for row in terms]
            assert np.array_equal(to_f32(exact_sum_to_odd(terms), mode), want)


def test_exact_sums_of_many_rows_and_of_nothing():
    rng = np.random.default_rng(0)
    terms = rng.standard_normal((5000, 3))
    want = [float(round_fraction(fraction_sum(row), "f32")) for row in terms]
    assert np.array_equal(exact_sum_to_odd(terms).astype(np.float32), want)
    assert exact_sum_to_odd(np.zeros((3, 4))).tolist() == [0, 0, 0]
    assert exact_sum_to_odd(np.array([[5e-324, -1e308, 1e308, 5e-324]])).tolist() == [1e-323]


finite = st.floats(allow_nan=False, allow_infinity=False, width=32)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(finite, finite, finite), min_size=1, max_size=8))
def test_a_product_and_a_sum_round_once(triples):
    a, b, c = (np.array(column, np.float32) for column in zip(*triples, strict=True))
    got = round_sum_to_f32(np.multiply(a, b, dtype=np.float64), c)
    for x, y, z, r in zip(a.tolist(), b.tolist(), c.tolist(), got.tolist(), strict=True):
        assert r == float(round_fraction(Fraction(x) * Fraction(y) + Fraction(z), "f32"))


def test_the_error_of_an_addition_decides_a_tie():
    x, y = np.array([1 + 2.0**-24, 1 + 3 * 2.0**-24]), np.array([2.0**-80, -(2.0**-80)])
    total = x + y
    assert two_sum_error(total, x, y).tolist() == y.tolist()
    assert to_odd(total, y).astype(np.float32).tolist() == [1 + 2.0**-23, 1 + 2.0**-23]
    assert total.astype(np.float32).tolist() == [1, 1 + 2.0**-22]
    assert round_sum_to_f32(x, y).tolist() == [1 + 2.0**-23, 1 + 2.0**-23]


def test_an_odd_number_is_not_moved():
    """Beside a tie, moving an odd number by its error would make the tie."""
    tie = 1 + 2.0**-24
    below, above = np.nextafter([tie, tie], [0, 2])
    total, error = np.array([below, above]), np.array([2.0**-60, -(2.0**-60)])
    assert to_odd(total, error).tolist() == [below, above]
    assert to_odd(total, error).astype(np.float32).tolist() == [1, 1 + 2.0**-23]


def test_ties_of_subnormals_are_seen():
    half, crumb = 2.0**-150, 2.0**-220
    x, y = np.array([half, 3 * half, -half, half]), np.array([crumb, -crumb, -crumb, -crumb])
    assert round_sum_to_f32(x, y).tolist() == [2 * half, 2 * half, -2 * half, 0]


def test_bfloat16_from_float64_is_rounded_once():
    """`ml_dtypes` before 0.7 went by way of float32 and rounded this to 1; ours holds with every version."""
    x = np.array([1 + 2.0**-8 + 2.0**-40])
    assert float(round_real(x, BFLOAT)[0]) == 1 + 2.0**-7
