"""The cube against exact rationals, on operands made to be hard."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from cube_families import TYPES, families
from numerics_oracle import cube

from npusim.isa.numerics.cube import matmul, prepare
from npusim.isa.numerics.profile import DEFAULT_PROFILE, PROFILES, CubeNumerics, get_profile

FLOAT_KEYS = ("f16", "bf16", "f32", "hf32", "hf32_away")
OPERAND = {"f16": "f16", "bf16": "bf16", "f32": "f32", "hf32": "f32", "hf32_away": "f32"}
RULES = {
    (name, key): profile.cube_rule(key)
    for name, profile in PROFILES.items()
    for key in FLOAT_KEYS
    if getattr(profile.cube, key) is not None and name not in ("fast", "ascend-a1")
}


def same_bits(x, y):
    return x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes()


def agree(rule, a, b, acc, fmt, name):
    for saturate in (False, True):
        got = matmul(rule, a, b, acc, saturate=saturate)
        assert same_bits(got, cube(rule, a, b, acc, saturate=saturate, fmt=fmt)), (name, saturate)


@pytest.mark.parametrize("kind", ["f16", "bf16", "f32"])
@pytest.mark.parametrize(("k", "k0"), [(16, 16), (48, 16), (20, 4), (33, 8), (17, 1)])
@pytest.mark.parametrize("seed", range(2))
def test_fused_sums_are_exact(kind, k, k0, seed):
    rule = CubeNumerics(summation="fused-exact", k0=k0)
    for name, a, b, acc in families(np.random.default_rng(seed), kind, 5, k, 7):
        agree(rule, a, b, acc, kind, name)


@pytest.mark.parametrize("mode", ["rz", "rd", "ru", "rna", "odd"])
@pytest.mark.parametrize("kind", ["f16", "bf16", "f32"])
def test_fused_sums_round_in_every_mode(kind, mode):
    rule = CubeNumerics(summation="fused-exact", k0=16, rounding=mode)
    for name, a, b, acc in families(np.random.default_rng(1), kind, 4, 32, 5):
        agree(rule, a, b, acc, kind, name)


@pytest.mark.parametrize(("name", "key"), RULES, ids=str)
def test_every_preset_agrees_with_rationals(name, key):
    rule, fmt = RULES[name, key], OPERAND[key]
    for family, a, b, acc in families(np.random.default_rng(2), fmt, 3, 24, 4):
        agree(rule, a, b, acc, fmt, family)


@pytest.mark.parametrize("summation", ["fused-exact", "fused-aligned", "sequential", "tree"])
@pytest.mark.parametrize("kind", ["f16", "bf16", "f32"])
def test_flushing_acts_on_operands_accumulators_and_results(summation, kind):
    options = {"align_frac": 24} if summation == "fused-aligned" else {}
    k0 = 1 if summation == "sequential" else 8
    rule = CubeNumerics(summation=summation, k0=k0, subnormals="flush", **options)
    kept = replace(rule, subnormals="keep")
    differs = False
    for name, a, b, acc in families(np.random.default_rng(3), kind, 4, 24, 5):
        agree(rule, a, b, acc, kind, name)
        with_subnormals = matmul(kept, a, b, acc, saturate=False)
        differs |= not same_bits(matmul(rule, a, b, acc, saturate=False), with_subnormals)
    assert differs


@pytest.mark.parametrize("kind", ["f16", "bf16", "f32"])
def test_large_tiles_take_the_same_values_as_small_ones(kind):
    """Tiles above and below the size where the emulation changes its method."""
    rule = DEFAULT_PROFILE.cube_rule(kind)
    for seed in range(3):
        for name, a, b, acc in families(np.random.default_rng(seed), kind, 64, 48, 48):
            whole = matmul(rule, a, b, acc, saturate=True)
            parts = [matmul(rule, a[i : i + 8], b, acc[i : i + 8], saturate=True) for i in range(0, 64, 8)]
            assert same_bits(whole, np.concatenate(parts)), name
            rows = np.random.default_rng(seed).integers(0, 64, 2)
            assert same_bits(whole[rows], cube(rule, a[rows], b, acc[rows], saturate=True, fmt=kind)), name


@pytest.mark.parametrize("reach", [1, 1024])
@pytest.mark.parametrize("seed", range(8))
def test_the_few_outputs_whose_additions_may_be_inexact(seed, reach):
    """Ties in all outputs, and a crumb that decides one of them where two small numbers meet. A sum of 1024
    and the crumb does not fit float64; one of 1 does, but the accumulator elsewhere makes it look as if not.
    """
    rng = np.random.default_rng(seed)
    a, b = (rng.integers(-3, 4, (48, 48)).astype(np.float16) * np.float16(2.0**-7) for _ in range(2))
    a[24, 17], b[17, 16] = rng.choice([2.0**-24, -(2.0**-24)]), 2.0**-24
    acc = (reach * (1 + rng.integers(0, 1 << 22, (48, 48)) * 2.0**-23)).astype(np.float32)
    acc[0, 0] = 1024
    rule = DEFAULT_PROFILE.cube_rule("f16")
    whole = matmul(rule, a, b, acc, saturate=True)
    rows = [24, seed]
    assert same_bits(whole[rows], cube(rule, a[rows], b, acc[rows], saturate=True, fmt="f16"))
    parts = [matmul(rule, a[i : i + 8], b, acc[i : i + 8], saturate=True) for i in range(0, 48, 8)]
    assert same_bits(whole, np.concatenate(parts))


@pytest.mark.parametrize("saturate", [False, True])
@pytest.mark.parametrize("kind", ["f16", "bf16", "f32"])
def test_parts_that_are_zero_may_be_left_out(kind, saturate):
    """Large tiles of triangles and diagonal blocks are multiplied where they are not zero; small ones are
    not.
    """
    rule = DEFAULT_PROFILE.cube_rule(kind)
    block = np.arange(48) // 16
    shapes = (
        np.triu(np.ones((48, 48), bool), 1),
        block[:, None] == block,
        (block[:, None] == 1) & (block == 2),
    )
    for name, a, b, acc in families(np.random.default_rng(5), kind, 48, 48, 48):
        for left, right in ((0, 0), (0, 1), (1, 1), (2, 0), (1, 2)):
            x, y = (np.where(shapes[s], v, v * 0) for s, v in ((left, a), (right, b)))
            x, y = x.astype(a.dtype), y.astype(b.dtype)
            whole = matmul(rule, x, y, acc, saturate=saturate)
            parts = [
                matmul(rule, x[i : i + 8], y, acc[i : i + 8], saturate=saturate) for i in range(0, 48, 8)
            ]
            assert same_bits(whole, np.concatenate(parts)), (name, left, right)


@pytest.mark.parametrize("saturate", [False, True])
@pytest.mark.parametrize(("name", "key"), RULES, ids=str)
def test_infinities_and_nan(name, key, saturate):
    rule, fmt = RULES[name, key], OPERAND[key]
    rng = np.random.default_rng(4)
    special = np.array([np.inf, -np.inf, np.nan, 0, 1, -2], np.float32)
    for _ in range(4):
        a = rng.choice(special, (5, 24), p=[0.02, 0.02, 0.02, 0.2, 0.4, 0.34]).astype(TYPES[fmt])
        b = rng.choice(special, (24, 6), p=[0.02, 0.02, 0.02, 0.2, 0.4, 0.34]).astype(TYPES[fmt])
        acc = rng.choice(special, (5, 6), p=[0.05, 0.05, 0.05, 0.3, 0.3, 0.25]).astype(np.float32)
        for start in (acc, None):
            got = matmul(rule, a, b, start, saturate=saturate)
            assert same_bits(got, cube(rule, a, b, start, saturate=saturate, fmt=fmt))
            assert np.isfinite(got).all() == saturate or start is None


def test_saturation_acts_on_every_block():
    """Beyond the largest number and back: saturating stops in between, IEEE 754 does not."""
    rule = DEFAULT_PROFILE.cube_rule("bf16")
    a, b = np.ones((1, 32), ml_dtypes.bfloat16), np.zeros((32, 1), ml_dtypes.bfloat16)
    b[0], b[1], b[16] = 2.0**127, 2.0**127, -(2.0**127)
    largest = np.float32(np.finfo(np.float32).max)
    assert matmul(rule, a, b, None, saturate=True)[0, 0] == np.float32(float(largest) - 2.0**127)
    assert matmul(rule, a, b, None, saturate=False)[0, 0] == np.inf


def test_an_infinite_operand_becomes_the_largest_of_its_format():
    one = np.ones((1, 1), np.float16)
    infinite = np.full((1, 1), np.inf, np.float16)
    rule = DEFAULT_PROFILE.cube_rule("f16")
    assert matmul(rule, infinite, one, None, saturate=True)[0, 0] == 65504
    assert matmul(rule, infinite, -infinite, None, saturate=True)[0, 0] == np.float32(-65504.0 * 65504.0)
    hf32 = DEFAULT_PROFILE.cube_rule("hf32")
    largest = matmul(hf32, infinite.astype(np.float32), one.astype(np.float32), None, saturate=True)
    assert largest.view(np.uint32)[0, 0] == 0x7F7FF000


@pytest.mark.parametrize(("name", "key"), RULES, ids=str)
def test_zero_is_positive(name, key):
    rule, dtype = RULES[name, key], TYPES[OPERAND[key]]
    a, b = np.full((2, 16), -0.0, dtype), np.ones((16, 2), dtype)
    for acc in (None, np.full((2, 2), -0.0, np.float32)):
        for saturate in (False, True):
            assert matmul(rule, a, b, acc, saturate=saturate).tobytes() == bytes(16)


@pytest.mark.parametrize("key", ["f16", "s8"])
@pytest.mark.parametrize(
    ("m", "k", "n"), [(0, 16, 4), (4, 0, 3), (4, 16, 0), (0, 0, 0), (1, 1, 1), (3, 17, 5)]
)
def test_any_size_is_allowed(key, m, k, n):
    rule = DEFAULT_PROFILE.cube_rule(key)
    dtype, wide = (np.float16, np.float32) if key == "f16" else (np.int8, np.int32)
    a, b = np.ones((m, k), dtype), np.ones((k, n), dtype)
    for acc in (None, np.full((m, n), 3, wide)):
        got = matmul(rule, a, b, acc, saturate=True)
        assert got.dtype == wide
        assert np.array_equal(got, np.full((m, n), k + (0 if acc is None else 3)))
        assert got is not acc


@pytest.mark.parametrize("k", [1, 15, 17, 31, 4095])
def test_the_k_tail_is_padded_with_zeros(k):
    rng = np.random.default_rng(k)
    rule = DEFAULT_PROFILE.cube_rule("f16")
    a, b = rng.standard_normal((3, k)).astype(np.float16), rng.standard_normal((k, 2)).astype(np.float16)
    padded = -(-k // 16) * 16
    long_a, long_b = np.zeros((3, padded), np.float16), np.zeros((padded, 2), np.float16)
    long_a[:, :k], long_b[:k] = a, b
    got = matmul(rule, a, b, None, saturate=True)
    assert same_bits(got, matmul(rule, long_a, long_b, None, saturate=True))
    if k < 100:
        assert same_bits(got, cube(rule, a, b, None, saturate=True, fmt="f16"))


def test_an_accumulator_whose_square_is_no_float32_counts():
    # half a unit of the accumulator and a little: float64 loses the little and rounds the tie down
    a = np.array([[2.0**-50, 2.0**-66]], ml_dtypes.bfloat16)
    b = np.array([[2.0**-49], [2.0**-66]], ml_dtypes.bfloat16)
    got = matmul(DEFAULT_PROFILE.cube_rule("bf16"), a, b, np.array([[2.0**-75]], np.float32), saturate=True)
    assert got[0, 0] == np.float32(2.0**-75 + 2.0**-98)


def test_operands_are_not_written():
    rng = np.random.default_rng(0)
    for name, profile in PROFILES.items():
        a, b = (
            rng.standard_normal((4, 16)).astype(np.float16),
            rng.standard_normal((16, 4)).astype(np.float16),
        )
        acc = rng.standard_normal((4, 4)).astype(np.float32)
        a[0, 0], acc[1, 1] = np.inf, np.nan
        for x in (a, b, acc):
            x.setflags(write=False)
        matmul(profile.cube_rule("f16"), a, b, acc, saturate=True)
        before = matmul(profile.cube_rule("f16"), a, b, acc, saturate=False)
        assert same_bits(before, matmul(profile.cube_rule("f16"), a, b, acc, saturate=False)), name


def test_strided_operands():
    rng = np.random.default_rng(0)
    wide = rng.standard_normal((40, 80)).astype(np.float16)
    acc = np.asfortranarray(rng.standard_normal((16, 16)).astype(np.float32))
    a, b = wide[:32:2, 3:67:4], wide[:16, :16].T
    for profile in PROFILES.values():
        rule = profile.cube_rule("f16")
        straight = matmul(rule, a.copy(), b.copy(), acc.copy(order="C"), saturate=True)
        assert same_bits(matmul(rule, a, b, acc, saturate=True), straight)


@pytest.mark.parametrize(("name", "key"), RULES, ids=str)
def test_prepared_operands_give_the_same(name, key):
    rule, dtype = RULES[name, key], TYPES[OPERAND[key]]
    rng = np.random.default_rng(5)
    a, b = rng.standard_normal((8, 40)).astype(dtype), rng.standard_normal((40, 8)).astype(dtype)
    a[1, 2] = np.inf
    left, right = prepare(rule, a, "left"), prepare(rule, b, side="right")
    for saturate in (True, False, True):  # a prepared operand is not changed by its use
        want = matmul(rule, a, b, None, saturate=saturate)
        assert same_bits(matmul(rule, left, right, None, saturate=saturate), want)
        assert same_bits(matmul(rule, a, right, None, saturate=saturate), want)


def test_a_prepared_operand_does_not_see_later_writes():
    rule = DEFAULT_PROFILE.cube_rule("f16")
    a, b = np.ones((16, 16), np.float16), np.ones((16, 16), np.float16)
    left = prepare(rule, a, "left")
    a[:] = 2
    assert (matmul(rule, left, b, None, saturate=True) == 16).all()


def test_small_integers_are_exact_in_one_product():
    rng = np.random.default_rng(6)
    a, b = rng.integers(-4, 5, (64, 256)), rng.integers(-4, 5, (256, 64))
    for kind in ("f16", "bf16", "f32"):
        got = matmul(
            DEFAULT_PROFILE.cube_rule(kind), a.astype(TYPES[kind]), b.astype(TYPES[kind]), None, saturate=True
        )
        assert np.array_equal(got, a @ b)


@pytest.mark.parametrize("kind", ["f16", "bf16", "f32"])
@pytest.mark.parametrize("largest", [1, 4, 60, 255, 2047])
def test_the_fast_rule_rounds_once_whatever_precision_it_multiplies_in(kind, largest):
    """Small whole numbers are multiplied in float32, large ones in float64: both sums are exact, and the
    accumulator joins with one rounding.
    """
    rule = get_profile("fast").cube_rule(kind)
    rng = np.random.default_rng(largest)
    acc = (rng.standard_normal((24, 40)) * 2.0 ** rng.integers(-30, 30, (24, 40))).astype(np.float32)
    for scale_a, scale_b in ((1, 1), (2.0**-14, 2.0**5), (2.0**-60, 2.0**-66), (2.0**-80, 2.0**-69)):
        if kind == "f16" and scale_b < 1:
            continue
        a = (rng.integers(-largest, largest + 1, (24, 96)) * scale_a).astype(TYPES[kind])
        b = (rng.integers(-largest, largest + 1, (96, 40)) * scale_b).astype(TYPES[kind])
        exact = a.astype(np.float64) @ b.astype(np.float64)
        for start in (acc, None):
            want = (exact + (0 if start is None else start)).astype(np.float32) + np.float32(0)
            assert same_bits(matmul(rule, a, b, start, saturate=True), want)


# ---- integers ----------------------------------------------------------------------------------------------

INTEGER = DEFAULT_PROFILE.cube_rule("s8")


@pytest.mark.parametrize("right", [np.int8, np.uint8])
@pytest.mark.parametrize("left", [np.int8, np.uint8])
@pytest.mark.parametrize("k", [16, 257, 259, 1024, 1025, 4095])
def test_integers_are_exact(left, right, k):
    rng = np.random.default_rng(k)
    i, j = np.iinfo(left), np.iinfo(right)
    a = rng.choice([i.min, i.max, 1], (6, k)).astype(left)
    b = rng.choice([j.min, j.max, 1], (k, 6)).astype(right)
    a[0], b[:, 0] = i.max, j.max
    a[1], b[:, 1] = i.min, j.min
    want = a.astype(np.int64) @ b.astype(np.int64)
    assert np.array_equal(matmul(INTEGER, a, b, None, saturate=True), want)
    acc = rng.integers(-1000, 1000, (6, 6), np.int32)
    assert np.array_equal(matmul(INTEGER, a, b, acc, saturate=False), want + acc)


@pytest.mark.parametrize("saturate", [False, True])
def test_int32_saturates_once(saturate):
    top, bottom = 2**31 - 1, -(2**31)
    a, b = np.full((1, 32), 127, np.int8), np.full((32, 1), 127, np.int8)
    assert matmul(INTEGER, a, b, np.full((1, 1), top - 5, np.int32), saturate=saturate) == top
    assert matmul(INTEGER, a, -b, np.full((1, 1), bottom + 5, np.int32), saturate=saturate) == bottom
    long = np.full((1, 2048), 127, np.int8), np.full((2048, 1), -127, np.int8)
    assert matmul(INTEGER, *long, np.full((1, 1), bottom + 5, np.int32), saturate=saturate) == bottom
    b[16:] = -127  # over the top and back within one Mmad
    assert matmul(INTEGER, a, b, np.full((1, 1), top - 5, np.int32), saturate=saturate) == top - 5


# ---- misuse ------------------------------------------------------------------------------------------------


def test_misuse_is_refused():
    rule, other = DEFAULT_PROFILE.cube_rule("f16"), PROFILES["nvidia-volta-like"].cube_rule("f16")
    a, b = np.ones((4, 16), np.float16), np.ones((16, 8), np.float16)

    def refused(error, text, *args):
        with pytest.raises(error) as raised:
            matmul(*args, saturate=True)
        assert str(raised.value) == text

    refused(ValueError, "a (4, 16) does not fit b (8, 8)", rule, a, b[:8], None)
    refused(ValueError, "acc must be (4, 8), not (8, 4)", rule, a, b, np.zeros((8, 4), np.float32))
    refused(TypeError, "acc must be float32, not float64", rule, a, b, np.zeros((4, 8)))
    refused(
        TypeError,
        "acc must be int32, not float32",
        INTEGER,
        a.astype("i1"),
        b.astype("i1"),
        np.zeros((4, 8), "f4"),
    )
    refused(
        TypeError,
        "both operands must have one element type, not float16 and float32",
        rule,
        a,
        b.astype("f4"),
        None,
    )
    refused(TypeError, "the integer rule takes int8 or uint8, not float16", INTEGER, a, b, None)
    refused(
        TypeError,
        "the fused-exact rule takes float16, bfloat16 or float32, not int8",
        rule,
        a.astype("i1"),
        b,
        None,
    )
    hf32 = DEFAULT_PROFILE.cube_rule("hf32")
    refused(TypeError, "a rule that rounds its operands takes float32, not float16", hf32, a, b, None)
    refused(ValueError, "a cube operand must have two dimensions, not 1", rule, a[0], b, None)
    refused(
        ValueError,
        "matmul takes a left and a right operand, not right and right",
        rule,
        prepare(rule, a, "right"),
        b,
        None,
    )
    refused(
        ValueError,
        f"operand was prepared under {other}, not {rule}",
        rule,
        prepare(other, a, "left"),
        b,
        None,
    )
    with pytest.raises(ValueError, match=r"^side must be left or right, not top$"):
        prepare(rule, a, "top")
