"""The vector unit's element operations against rationals, mpmath and exhaustive float16."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numerics_oracle import FORMATS, round_fraction

from npusim.isa.dtype import BF16, F16, F32, S8, S16, S32, S64, U16, U32
from npusim.isa.numerics import elementary, vector
from npusim.isa.numerics.profile import DEFAULT_PROFILE, VectorNumerics

RULES = DEFAULT_PROFILE.vector
PRECISE = VectorNumerics(daz=False, ftz=False)
ALL_HALVES = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
BITS = {F16: np.uint16, F32: np.uint32}
NAN = {F16: 0x7E00, F32: 0x7FC00000}
NAMES = {F16: "f16", F32: "f32"}


def wild(dtype, rng, n):
    """Any bit patterns, and pairs of near ones."""
    x = rng.integers(0, 1 << dtype.bits, n, np.uint64).astype(BITS[dtype])
    x[::3] = np.array(1, dtype.np).view(BITS[dtype]) + x[::3] % 64
    return x.view(dtype.np)


def finish(exact, dtype, saturate):
    """What the unit writes for an exact result: a Fraction, or a special float."""
    value = exact if isinstance(exact, float) else round_fraction(exact, NAMES[dtype])
    if dtype is F16 and saturate and isinstance(value, float):
        value = 0 if math.isnan(value) else math.copysign(65504, value)
    return float(value)


def same(got, want, dtype):
    """Equal numbers (zeros of either sign alike), and NaN only as the canonical one."""
    got, want = np.atleast_1d(got), np.asarray(want, np.float64)
    nan = np.isnan(want)
    assert (got.view(BITS[dtype])[nan] == NAN[dtype]).all()
    return got.dtype == dtype.np and np.array_equal(got[~nan].astype(np.float64), want[~nan])


OPERATIONS = {
    "add": (vector.add, lambda x, y: x + y),
    "sub": (vector.sub, lambda x, y: x - y),
    "mul": (vector.mul, lambda x, y: x * y),
}


def exact_result(operation, *values):
    if all(math.isfinite(v) for v in values):
        return operation(*(Fraction(v) for v in values))
    return float(operation(*(np.float64(v) for v in values)))


@pytest.mark.parametrize("saturate", [False, True])
@pytest.mark.parametrize("dtype", [F16, F32])
@pytest.mark.parametrize("name", OPERATIONS)
def test_arithmetic_rounds_once(name, dtype, saturate):
    ours, theirs = OPERATIONS[name]
    rng = np.random.default_rng(0)
    a, b = wild(dtype, rng, 2000), rng.permutation(wild(dtype, rng, 2000))
    want = [
        finish(exact_result(theirs, float(x), float(y)), dtype, saturate) for x, y in zip(a, b, strict=True)
    ]
    assert same(ours(a, b, dtype, saturate=saturate), want, dtype)


@pytest.mark.parametrize("saturate", [False, True])
@pytest.mark.parametrize("rules", [RULES, PRECISE])
@pytest.mark.parametrize("dtype", [F16, F32])
def test_division(dtype, rules, saturate):
    rng = np.random.default_rng(1)
    a, b = wild(dtype, rng, 2000), wild(dtype, rng, 2000)
    a[:4], b[:4] = [0, 1, -1, 0], [0, 0, 0, 5]
    tiny = 2.0 ** FORMATS[NAMES[dtype]][1]

    def flush(value, on):
        return math.copysign(0.0, value) if on and abs(value) < tiny else value

    def one(x, y):
        x, y = flush(float(x), rules.daz), flush(float(y), rules.daz)
        if math.isfinite(x) and math.isfinite(y) and y:
            result = finish(Fraction(x) / Fraction(y), dtype, saturate)
        else:
            result = finish(float(np.float64(x) / np.float64(y)), dtype, saturate)
        return flush(result, rules.ftz)

    want = [one(x, y) for x, y in zip(a, b, strict=True)]
    assert same(vector.div(a, b, dtype, rules, saturate=saturate), want, dtype)


def test_flushing_keeps_the_sign():
    x = np.array([-1e-40, 1e-40, -(2.0**-126), 0.0, -0.0], np.float32)
    one = np.float32(1)
    flushed = vector.div(x, one, F32, RULES, saturate=False)
    assert flushed.view(np.uint32).tolist() == [0x80000000, 0, 0x80800000, 0, 0x80000000]
    assert vector.div(x, one, F32, PRECISE, saturate=False).tobytes() == x.tobytes()
    only_results = VectorNumerics(daz=False, ftz=True)
    big = np.float32(2.0**-10)
    assert vector.div(x, big, F32, only_results, saturate=False)[0] == np.float32(-1e-40) / big
    assert vector.div(x, one, F32, only_results, saturate=False).view(np.uint32)[0] == 0x80000000
    only_inputs = VectorNumerics(daz=True, ftz=False)
    small = np.array([2.0**-126], np.float32)
    assert vector.div(small, np.float32(4), F32, only_inputs, saturate=False)[0] == 2.0**-128
    assert vector.div(x, big, F32, only_inputs, saturate=False)[0] == 0


def test_float16_arithmetic_over_whole_rows():
    """Every second operand for a sample of first ones, against float64, where + and * are exact."""
    wide = ALL_HALVES.astype(np.float64)
    for i in range(0, 1 << 16, 1021):
        for ours, theirs in ((vector.add, np.add), (vector.mul, np.multiply), (vector.sub, np.subtract)):
            got = ours(ALL_HALVES[i], ALL_HALVES, F16, saturate=False)
            assert same(got, theirs(wide[i], wide).astype(np.float16).astype(np.float64), F16)


@pytest.mark.parametrize("saturate", [False, True])
@pytest.mark.parametrize("kind", ["f16", "f32", "mixed"])
def test_multiply_add_rounds_once(kind, saturate):
    narrow, dtype = (F16, F16) if kind == "f16" else (F16, F32) if kind == "mixed" else (F32, F32)
    rng = np.random.default_rng(2)
    a, b, c = wild(narrow, rng, 3000), rng.permutation(wild(narrow, rng, 3000)), wild(dtype, rng, 3000)
    # sums that end on a midpoint but for a crumb
    a[:64], b[:64] = 1 + 2.0**-10, 1 - 2.0**-10
    c[:64] = np.ldexp(rng.choice([-1.0, 1.0], 64), rng.integers(-14, 2, 64))
    want = [
        finish(exact_result(lambda x, y, z: x * y + z, float(x), float(y), float(z)), dtype, saturate)
        for x, y, z in zip(a, b, c, strict=True)
    ]
    assert same(vector.muladd(a, b, c, dtype, saturate=saturate), want, dtype)


finite32 = st.floats(allow_nan=False, allow_infinity=False, width=32)


@settings(max_examples=300, deadline=None)
@given(finite32, finite32, finite32)
def test_multiply_add_of_float32(x, y, z):
    got = vector.muladd(*(np.array([v], np.float32) for v in (x, y, z)), F32, saturate=True)
    assert got[0] == float(round_fraction(Fraction(x) * Fraction(y) + Fraction(z), "f32"))


def test_multiply_add_where_a_second_rounding_would_show():
    """Products on a midpoint, and an addend too small for the next wider format to hold beside them."""
    three, factor = np.array([3, 3], np.float16), np.array([683 * 2.0**-11] * 2, np.float16)  # 1 + 2^-11
    crumb = np.array([2.0**-24, -(2.0**-24)], np.float16)
    assert vector.muladd(three, factor, crumb, F16, saturate=True).tolist() == [1 + 2.0**-10, 1]
    a, b = np.array([97 * 257] * 2, np.float32), np.array([673 * 2.0**-24] * 2, np.float32)  # 1 + 2^-24
    crumb = np.array([2.0**-80, -(2.0**-80)], np.float32)
    assert vector.muladd(a, b, crumb, F32, saturate=True).tolist() == [1 + 2.0**-23, 1]


def test_a_scalar_operand_broadcasts():
    x = np.arange(6, dtype=np.float16).reshape(2, 3)
    for dtype in (F16, F32):
        y, two = x.astype(dtype.np), dtype.np.type(2)
        assert np.array_equal(vector.add(y, two, dtype, saturate=True), x + 2)
        assert np.array_equal(vector.mul(y, two, dtype, saturate=True), x * 2)
        assert np.array_equal(vector.maximum(y, two, dtype, RULES, saturate=True), np.maximum(x, 2))
        assert np.array_equal(vector.muladd(y, two, y, dtype, saturate=True), x * 3)
        assert np.array_equal(vector.muladd(y, y, two, dtype, saturate=True), x * x + 2)


# ---- maximum, minimum, absolute value, relu ----------------------------------------------------------------


@pytest.mark.parametrize("dtype", [F16, F32])
def test_a_number_wins_over_nan_and_plus_zero_over_minus_zero(dtype):
    n, z = math.nan, 0.0
    a = np.array([n, 1, -z, n, z, -z, z, -1, n], dtype.np)
    b = np.array([1, n, z, n, -z, -z, z, -z, -math.inf], dtype.np)
    high = vector.maximum(a, b, dtype, RULES, saturate=False)
    low = vector.minimum(a, b, dtype, RULES, saturate=False)
    assert same(high, [1, 1, 0, n, 0, 0, 0, 0, -math.inf], dtype)
    assert np.signbit(high[[2, 4, 5, 6, 7]]).tolist() == [False, False, True, False, True]
    assert same(low, [1, 1, 0, n, 0, 0, 0, -1, -math.inf], dtype)
    assert np.signbit(low[[2, 4, 5, 6]]).tolist() == [True, True, True, False]
    propagate = VectorNumerics(nan="propagate")
    assert same(vector.maximum(a, b, dtype, propagate, saturate=False), [n, n, 0, n, 0, 0, 0, 0, n], dtype)
    assert same(vector.minimum(a, b, dtype, propagate, saturate=False), [n, n, 0, n, 0, 0, 0, -1, n], dtype)


def test_float16_extremes_saturate():
    a, b = np.array([np.inf, np.nan, -np.inf], np.float16), np.array([1, np.nan, -np.inf], np.float16)
    assert vector.maximum(a, b, F16, RULES, saturate=True).tolist() == [65504, 0, -65504]
    assert vector.maximum(a, b, F16, RULES, saturate=False).view(np.uint16).tolist() == [
        0x7C00,
        0x7E00,
        0xFC00,
    ]


def test_absolute_value():
    x = np.array([-0.0, -2, np.nan, -np.inf], np.float16)
    assert vector.abs_(x, F16, saturate=False).view(np.uint16).tolist() == [0, 0x4000, 0x7E00, 0x7C00]
    assert vector.abs_(x, F16, saturate=True).tolist() == [0, 2, 0, 65504]
    y = np.array([0xFFC12345, 0xBF800000], np.uint32).view(np.float32)
    assert vector.abs_(y, F32, saturate=True).view(np.uint32).tolist() == [0x7FC00000, 0x3F800000]
    z = np.array([-32768, -5, 7], np.int16)
    assert vector.abs_(z, S16, saturate=False).tolist() == [-32768, 5, 7]
    assert vector.abs_(z, S16, saturate=True).tolist() == [32767, 5, 7]


@pytest.mark.parametrize("dtype", [F16, F32])
def test_relu(dtype):
    x = np.array([-1, -0.0, 0.0, 2, np.nan, np.inf, -np.inf], dtype.np)
    got = vector.relu(x, dtype, RULES, saturate=False)
    assert (
        got.view(BITS[dtype]).tolist()
        == np.array([0, 0, 0, 2, 0, np.inf, 0], dtype.np).view(BITS[dtype]).tolist()
    )
    assert np.isnan(vector.relu(x, dtype, VectorNumerics(nan="propagate"), saturate=False)[4])
    assert vector.relu(np.array([-5, 5], np.int32), S32, RULES, saturate=False).tolist() == [0, 5]


# ---- exp, ln, sqrt, rsqrt, rec -----------------------------------------------------------------------------

FUNCTIONS = {
    "exp": mpmath.exp,
    "ln": mpmath.log,
    "sqrt": mpmath.sqrt,
    "rsqrt": lambda x: 1 / mpmath.sqrt(x),
    "rec": lambda x: 1 / x,
}
SPECIAL = {  # of +0, -0, +inf, -inf, NaN, -1
    "exp": [1, 1, math.inf, 0, math.nan, None],
    "ln": [-math.inf, -math.inf, math.inf, math.nan, math.nan, math.nan],
    "sqrt": [0, 0, math.inf, math.nan, math.nan, math.nan],
    "rsqrt": [math.inf, -math.inf, 0, math.nan, math.nan, math.nan],
    "rec": [math.inf, -math.inf, 0, 0, math.nan, -1],
}


def true_value(name, x):
    """The function as a Fraction good to 200 bits, enough to round any of these."""
    with mpmath.workprec(240):
        sign, mantissa, exponent, _ = FUNCTIONS[name](mpmath.mpf(float(x)))._mpf_
    return (-1) ** sign * Fraction(int(mantissa)) * Fraction(2) ** exponent


def in_domain(name, x):
    return np.isfinite(x) & (x > 0 if name in ("ln", "sqrt", "rsqrt") else x != 0)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_float16_tables_against_mpmath(name):
    """Every seventh input, of both signs."""
    ours = getattr(vector, name)(ALL_HALVES, F16, PRECISE, saturate=False)
    at = np.flatnonzero(in_domain(name, ALL_HALVES))[::7]
    at = at[np.abs(ALL_HALVES[at].astype(float)) < (20 if name == "exp" else np.inf)]
    want = [float(round_fraction(true_value(name, ALL_HALVES[i]), "f16")) for i in at]
    assert np.array_equal(ours[at].astype(float), want)


def test_float16_square_roots_by_squaring():
    """All 31,743 positive inputs, with nothing but integers: q is right if its midpoints enclose the root."""
    x = ALL_HALVES[1:0x7C00]
    q = vector.sqrt(x, F16, PRECISE, saturate=False)
    scale = 2.0**26  # all float16 midpoints, of results below 2^8, are whole
    below, above = (np.nextafter(q, np.float16(s)).astype(float) for s in (-1, np.inf))
    low = (((q.astype(float) + below) / 2) * scale).astype(np.int64).astype(object)
    high = (((q.astype(float) + above) / 2) * scale).astype(np.int64).astype(object)
    square = (x.astype(float) * 2.0**24).astype(np.int64).astype(object) * 2**28
    assert ((low * low < square) & (square < high * high)).all()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_float32_functions_against_mpmath(name):
    rng = np.random.default_rng(3)
    x = wild(F32, rng, 700)
    x[:200] = rng.standard_normal(200) * 30
    x[200:300] = 1 + np.arange(100) * 2.0**-23
    x = x[in_domain(name, x)]
    if name == "exp":
        x = x[np.abs(x) < 110]
    got = getattr(vector, name)(x, F32, PRECISE, saturate=False)
    assert np.array_equal(got, [float(round_fraction(true_value(name, v), "f32")) for v in x])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_flushed_results_are_those_of_flushed_inputs(name):
    function = getattr(vector, name)
    for dtype in (F16, F32):
        x = ALL_HALVES.astype(dtype.np) if dtype is F16 else wild(F32, np.random.default_rng(4), 4000)
        tiny = 2.0 ** FORMATS[NAMES[dtype]][1]
        read = np.where(np.abs(x) < tiny, np.copysign(dtype.np.type(0), x), x)
        plain = function(read, dtype, PRECISE, saturate=False)
        want = np.where(np.abs(plain) < tiny, np.copysign(dtype.np.type(0), plain), plain)
        got = function(x, dtype, RULES, saturate=False)
        assert got.view(BITS[dtype]).tolist() == want.view(BITS[dtype]).tolist()


@pytest.mark.parametrize("dtype", [F16, F32])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_special_values(name, dtype):
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -1], dtype.np)
    if SPECIAL[name][-1] is None:
        x, expected = x[:-1], SPECIAL[name][:-1]
    else:
        expected = SPECIAL[name]
    for rules in (RULES, PRECISE):
        assert same(getattr(vector, name)(x, dtype, rules, saturate=False), expected, dtype)
        saturated = getattr(vector, name)(x, dtype, rules, saturate=True)
        if dtype is F16:
            want = [0 if math.isnan(v) else min(max(v, -65504), 65504) for v in expected]
            assert saturated.tolist() == want
        else:
            assert same(saturated, expected, dtype)


def test_hard_cases_are_settled_by_decimal_arithmetic():
    """Inputs whose exponential is within 2^-48 of a midpoint; float64 alone would be a matter of luck."""
    x = np.array([2.0**-24, -(2.0**-25), 2.0**-24 + 2.0**-47, 3 * 2.0**-25], np.float32)
    with np.errstate(all="ignore"):
        got = vector.exp(x, F32, PRECISE, saturate=False)
    assert np.array_equal(got, [float(round_fraction(true_value("exp", v), "f32")) for v in x])
    # force every element through the slow path
    trust, elementary._TRUST = elementary._TRUST, 2.0**-10
    try:
        y = np.linspace(0.1, 9, 50).astype(np.float32)
        for name in FUNCTIONS:
            slow = elementary.correctly_rounded(name, y.astype(np.float64), F32)
            assert np.array_equal(slow, [float(round_fraction(true_value(name, v), "f32")) for v in y])
    finally:
        elementary._TRUST = trust


def test_the_last_resort_stays_on_its_side_of_a_midpoint(monkeypatch):
    """A value whose nearest float64 is a float32 midpoint."""
    tie = Decimal(1 + 2.0**-24)
    for crumb, want in ((Decimal("1e-30"), 1 + 2.0**-23), (Decimal("-1e-30"), 1.0)):
        monkeypatch.setitem(
            elementary._DECIMAL, "exp", lambda x, crumb=crumb: elementary._PRECISE.add(tie, crumb)
        )
        assert elementary._decide("exp", 0.0).astype(np.float32) == want


@pytest.mark.parametrize("name", ["exp", "ln", "rsqrt"])
def test_the_hardest_of_many_inputs(name):
    """Those of a million whose float64 result is closest to a float32 midpoint, where a small error shows."""
    x = np.random.default_rng(7).integers(0x3D000000, 0x42000000, 1 << 20, np.uint32).view(np.float32)
    y = elementary._FLOAT64[name](x.astype(np.float64))
    distance = np.abs((np.abs(y).view(np.int64) & 0x1FFFFFFF) - 0x10000000)
    hardest = x[np.argsort(distance)[:150]]
    want = [float(round_fraction(true_value(name, v), "f32")) for v in hardest]
    assert np.array_equal(getattr(vector, name)(hardest, F32, PRECISE, saturate=False), want)


@pytest.mark.parametrize("name", ["rec", "rsqrt"])
def test_the_stress_option_leaves_few_bits(name):
    stress = VectorNumerics(daz=False, ftz=False, rec_bits_f16=8, rec_bits_f32=14)
    for dtype, bits in ((F16, 8), (F32, 14)):
        x = np.linspace(1, 60, 500).astype(dtype.np)
        plain = getattr(vector, name)(x, dtype, PRECISE, saturate=False)
        got = getattr(vector, name)(x, dtype, stress, saturate=False)
        fmt = (bits, *FORMATS[NAMES[dtype]][1:])
        assert np.array_equal(got, [float(round_fraction(Fraction(float(v)), fmt)) for v in plain])
        assert not np.array_equal(got, plain)
    assert (
        vector.exp(x, F32, stress, saturate=False).tobytes()
        == vector.exp(x, F32, PRECISE, saturate=False).tobytes()
    )


# ---- integers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [S16, S32, S8, U16, U32])
def test_integer_arithmetic_wraps_or_clamps(dtype):
    info = np.iinfo(dtype.np)
    rng = np.random.default_rng(5)
    a = rng.integers(info.min, info.max, 300, dtype.np, endpoint=True)
    b = rng.integers(info.min, info.max, 300, dtype.np, endpoint=True)
    a[:3], b[:3] = [info.max, info.min, info.min], [info.max, info.min, info.max]
    for name, (ours, theirs) in OPERATIONS.items():
        exact = [theirs(int(x), int(y)) for x, y in zip(a, b, strict=True)]
        clamped = [min(max(v, info.min), info.max) for v in exact]
        wrapped = [(v - info.min) % (1 << dtype.bits) + info.min for v in exact]
        assert ours(a, b, dtype, saturate=True).tolist() == clamped, name
        assert ours(a, b, dtype, saturate=False).tolist() == wrapped, name
    assert vector.maximum(a, b, dtype, RULES, saturate=True).tolist() == np.maximum(a, b).tolist()
    assert vector.minimum(a, b, dtype, RULES, saturate=True).tolist() == np.minimum(a, b).tolist()


def test_shifts_as_documented():
    signed, unsigned = np.array([0xAAAA], np.uint16).view(np.int16), np.array([0xAAAA], np.uint16)
    assert vector.shift_left(signed, 1, S16).view(np.uint16)[0] == 0xD554
    assert vector.shift_left(unsigned, 1, U16)[0] == 0x5554
    assert vector.shift_right(np.array([17, 15, -17], np.int16), 5, S16, round_half=True).tolist() == [
        1,
        0,
        -1,
    ]
    assert vector.shift_right(np.array([-1, 5], np.int16), 16, S16).tolist() == [-1, 0]
    assert vector.shift_right(np.array([0xFFFF], np.uint16), 16, U16).tolist() == [0]
    # at the full width the last bit shifted out is the first
    top = np.array([-5, 5], np.int16)
    assert vector.shift_right(top, 16, S16, round_half=True).tolist() == [0, 0]
    assert vector.shift_right(top, 17, S16, round_half=True).tolist() == [-1, 0]
    assert vector.shift_right(top.view(np.uint16), 16, U16, round_half=True).tolist() == [1, 0]
    with pytest.raises(ValueError, match=r"^shift count must not be negative, but is -1$"):
        vector.shift_left(signed, -1, S16)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from([S16, U16, S32, U32]), st.integers(0, 40), st.integers(0, 2**32 - 1), st.booleans())
def test_shifts(dtype, count, pattern, round_half):
    u = pattern % (1 << dtype.bits)
    x = np.array([u], f"u{dtype.size}").view(dtype.np)
    value = int(x[0])
    right = value >> count
    if round_half and 0 < count <= dtype.bits:
        right += (value >> (count - 1)) & 1
    assert vector.shift_right(x, count, dtype, round_half=round_half)[0] == right
    width = dtype.bits - dtype.is_signed
    kept = (u << count) % (1 << width)
    left = kept | (u >> width << width)
    assert int(vector.shift_left(x, count, dtype).view(f"u{dtype.size}")[0]) == left


def test_bitwise():
    a, b = np.array([0x0FF0, -1], np.int16), np.array([0x00FF, 0x1234], np.int16)
    assert vector.and_(a, b).tolist() == [0x00F0, 0x1234]
    assert vector.or_(a, b).tolist() == [0x0FFF, -1]
    assert vector.not_(a).tolist() == [~0x0FF0, 0]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int32])
def test_comparisons(dtype):
    a, b = np.array([1, 2, 3, 0], dtype), np.array([2, 2, 2, 0], dtype)
    want = {
        "LT": [1, 0, 0, 0],
        "GT": [0, 0, 1, 0],
        "EQ": [0, 1, 0, 1],
        "LE": [1, 1, 0, 1],
        "GE": [0, 1, 1, 1],
    }
    for mode, expected in {**want, "NE": [1, 0, 1, 0]}.items():
        assert vector.compare(mode, a, b).tolist() == [bool(v) for v in expected]
    with pytest.raises(ValueError, match=r"^comparison must be one of LT, GT, EQ, LE, GE, NE, not XX$"):
        vector.compare("XX", a, b)


def test_comparisons_with_nan_and_zeros():
    a, b = np.array([np.nan, -0.0], np.float16), np.array([1, 0.0], np.float16)
    held = {mode: vector.compare(mode, a, b).tolist() for mode in ("LT", "GT", "EQ", "LE", "GE", "NE")}
    assert {mode for mode, (with_nan, _) in held.items() if with_nan} == {"NE"}
    assert {mode for mode, (_, with_zeros) in held.items() if with_zeros} == {"EQ", "LE", "GE"}


def test_types_without_the_operation_are_refused():
    x = np.zeros(4, np.int16)
    calls = {
        "the vector unit has no arithmetic of bf16": lambda: vector.add(x, x, BF16, saturate=True),
        "the vector unit has no division of s16": lambda: vector.div(x, x, S16, RULES, saturate=True),
        "the vector unit has no multiply-add of s16": lambda: vector.muladd(x, x, x, S16, saturate=True),
        "the vector unit has no saturating arithmetic of s64": lambda: vector.add(x, x, S64, saturate=True),
        "the vector unit has no exp of s16": lambda: vector.exp(x, S16, RULES, saturate=True),
        "the vector unit has no shift of f16": lambda: vector.shift_left(x, 1, F16),
        "the vector unit has no maximum and minimum of bf16": lambda: vector.maximum(
            x, x, BF16, RULES, saturate=True
        ),
    }
    for text, call in calls.items():
        with pytest.raises(TypeError) as raised:
            call()
        assert str(raised.value) == text


@pytest.mark.parametrize("shape", [(0,), (3, 0), (2, 5)])
def test_shapes_and_strides(shape):
    base = np.random.default_rng(6).standard_normal((4, *shape)).astype(np.float16)
    x, y = base[0], base[2]
    padded = np.zeros((*shape[:-1], shape[-1] * 2), np.float16)
    strided = padded[..., ::2]
    strided[...] = x
    for dtype in (F16, F32):
        p, q, r = (v.astype(dtype.np) for v in (x, y, x))
        s = strided if dtype is F16 else np.repeat(r, 2, axis=-1)[..., ::2]
        for function in (vector.add, vector.sub, vector.mul):
            got = function(s, q, dtype, saturate=True)
            assert got.shape == shape
            assert got.tobytes() == function(p, q, dtype, saturate=True).tobytes()
        for name in (*FUNCTIONS, "relu"):
            got = getattr(vector, name)(s, dtype, RULES, saturate=True)
            assert got.shape == shape
            assert got.tobytes() == getattr(vector, name)(p, dtype, RULES, saturate=True).tobytes()
        assert vector.muladd(s, q, s, dtype, saturate=True).shape == shape
