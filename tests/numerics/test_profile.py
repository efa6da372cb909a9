"""The profiles: records that say what they do, and presets that can be told apart by four lines of data."""

from __future__ import annotations

import json
import pickle
from dataclasses import FrozenInstanceError, fields, replace

import numpy as np
import pytest
from ml_dtypes import bfloat16

from npusim.errors import ConfigError, OperandError
from npusim.isa.numerics.cube import matmul
from npusim.isa.numerics.profile import (
    DEFAULT_PROFILE,
    PROFILES,
    CubeNumerics,
    CubeRules,
    NumericsProfile,
    VectorNumerics,
    get_profile,
)


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
def test_a_profile_is_a_value(profile):
    text = json.dumps(profile.to_dict())
    assert json.loads(text) == profile.to_dict()
    assert pickle.loads(pickle.dumps(profile)) == profile
    assert hash(profile) == hash(replace(profile))
    assert replace(profile, name="other") != profile
    with pytest.raises(FrozenInstanceError):
        profile.name = "other"
    assert profile.confidence in "HML"
    assert profile.sources
    for rule in vars(profile.cube).values():
        assert rule is None or (rule.confidence in "HML" and rule.sources)


def test_every_field_of_a_profile_is_in_its_dictionary():
    seen = DEFAULT_PROFILE.to_dict()
    assert list(seen) == [f.name for f in fields(NumericsProfile)]
    assert list(seen["cube"]) == [f.name for f in fields(CubeRules)]
    assert list(seen["cube"]["f16"]) == [f.name for f in fields(CubeNumerics)]
    assert list(seen["vector"]) == [f.name for f in fields(VectorNumerics)]


def test_the_default_has_the_documented_block_sizes():
    blocks = {key: DEFAULT_PROFILE.cube_rule(key).k0 for key in ("f16", "bf16", "f32", "hf32")}
    assert blocks == {"f16": 16, "bf16": 16, "f32": 4, "hf32": 8}
    assert PROFILES["ascend-950"].cube_rule("f32").k0 == 1
    assert DEFAULT_PROFILE.cube_rule("hf32").input_frac == 11
    assert PROFILES["ascend-950"].cube_rule("hf32").input_frac == 10


def test_unknown_names_are_refused():
    with pytest.raises(ConfigError) as raised:
        get_profile("ascend-a3")
    assert str(raised.value) == "numerics ascend-a3: unknown profile; did you mean ascend-a2?"
    with pytest.raises(OperandError) as raised:
        PROFILES["ascend-a1"].cube_rule("bf16")
    assert str(raised.value) == "numerics ascend-a1: the cube has no rule for bf16; it has f16, s8"
    assert get_profile("fast") is PROFILES["fast"]


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"summation": "magic", "k0": 1}, "summation must be one of "),
        ({"summation": "sequential", "k0": 4}, "k0 must be 1 for sequential"),
        ({"summation": "integer", "k0": 32}, "k0 must be 1 for sequential, 0 for integer"),
        ({"summation": "fused-exact", "k0": 0}, "k0 must be 1 for sequential, 0 for integer"),
        ({"summation": "fused-exact", "k0": 2048}, "k0 must be at most 1024"),
        ({"summation": "tree", "k0": 12}, "k0 must be a power of two for tree"),
        (
            {"summation": "tree", "k0": 16, "rounding": "rz"},
            "rounding must be rne unless the summation is fused",
        ),
        ({"summation": "fused-exact", "k0": 16, "align_frac": 24}, "align_frac goes with fused-aligned"),
        ({"summation": "fused-aligned", "k0": 16}, "align_frac goes with fused-aligned"),
        (
            {"summation": "fused-exact", "k0": 4, "align_min_exp": -133},
            "align_min_exp goes with fused-aligned",
        ),
        (
            {"summation": "fused-exact", "k0": 4, "input_rounding": "rz"},
            "input_rounding goes with input_frac",
        ),
        (
            {"summation": "fused-exact", "k0": 4, "input_frac": 11, "input_rounding": "odd"},
            "input_rounding must be rne, rna or rz",
        ),
        ({"summation": "fused-exact", "k0": 4, "input_frac": 23}, "input_frac must be 1 to 22"),
        (
            {"summation": "float64", "k0": 0, "subnormals": "flush"},
            "subnormals must be keep for integer and float64",
        ),
        ({"summation": "fused-aligned", "k0": 4, "align_frac": 60}, "align_frac must be 1 to 40"),
    ],
)
def test_a_rule_with_an_option_it_would_ignore_is_refused(options, rule):
    with pytest.raises(ValueError) as raised:
        CubeNumerics(**options)
    assert str(raised.value).startswith(f"cube rule: {rule}")


def test_vector_rules_are_checked():
    with pytest.raises(ValueError, match=r"^vector rule: rec_bits_f16 must be 2 to 11, not 12$"):
        VectorNumerics(rec_bits_f16=12)
    with pytest.raises(ValueError, match=r"^vector rule: nan must be number or propagate, not c$"):
        VectorNumerics(nan="c")


# ---- witnesses ---------------------------------------------------------------------------------------------


def one_output(rule, a, b, acc=0.0, dtype=np.float16):
    a, b = np.array([a], dtype), np.array([b], dtype).T
    return float(matmul(rule, a, b, np.full((1, 1), acc, np.float32), saturate=False)[0, 0])


def test_sixteen_products_tell_the_presets_apart():
    """2^24 and fifteen ones: the sum is 2^24 + 15, halfway between two float32."""
    a = [2.0**12] + [1.0] * 15
    seen = {
        name: one_output(p.cube_rule("f16"), a, a) - 2.0**24
        for name, p in PROFILES.items()
        if name != "ascend-a1"
    }
    assert seen == {
        "ascend-a2": 16,  # one rounding of 2^24 + 15
        "ascend-950": 16,
        "ieee-sequential-fp32": 0,  # each + 1 is a tie, and even stays
        "tree16-fp32": 14,  # the first pair loses its one
        "nvidia-hopper-like": 14,  # exact sum, cut off
        "nvidia-ampere-like": 14,
        "nvidia-volta-like": 0,  # every one is cut off under 2^24
        "fast": 16,
    }


def test_bits_below_the_largest_term_tell_the_tensor_cores_apart():
    """1 - 1 + 2^-bit in one block: the alignment decides how small a term still counts."""

    def lowest_bit_kept(name):
        rule, kept = PROFILES[name].cube_rule("f16"), []
        for bit in range(1, 49):
            tiny = 2.0 ** -(bit // 2), 2.0 ** -(bit - bit // 2)
            if one_output(rule, [1.0, -1.0, tiny[0]], [1.0, 1.0, tiny[1]]):
                kept.append(bit)
        return max(kept)

    names = ("nvidia-volta-like", "nvidia-ampere-like", "nvidia-hopper-like", "ascend-a2")
    assert [lowest_bit_kept(name) for name in names] == [23, 24, 25, 48]


def test_tensor_cores_align_to_a_lowest_exponent():
    """2^-140 and a negative crumb: below the lowest exponent the crumb is cut off before it is added."""
    rule = PROFILES["nvidia-hopper-like"].cube_rule("bf16")
    a, b = [2.0**-70, -(2.0**-80)], [2.0**-70, 2.0**-79]
    assert one_output(rule, a, b, dtype=bfloat16) == 2.0**-140
    assert one_output(replace(rule, align_min_exp=None), a, b, dtype=bfloat16) == 2.0**-140 - 2.0**-149


def test_flushing_reads_and_writes_no_subnormals():
    rule = CubeNumerics(summation="fused-exact", k0=4, subnormals="flush")
    keep = replace(rule, subnormals="keep")
    seen = [
        [one_output(r, [x], [y], acc=acc, dtype=np.float32) * 2.0**126 for r in (keep, rule)]
        for x, y, acc in (
            (2.0**-63, 2.0**-63, 2.0**-127),  # the accumulator is subnormal
            (2.0**-127, 2.0, 2.0**-126),  # an operand is
            (2.0**-63, -(2.0**-64), 2.0**-126),  # the result is
        )
    ]
    assert seen == [[1.5, 1], [2, 1], [0.5, 0]]


def test_the_block_size_shows_in_where_rounding_happens():
    """Ones beside 2^24: they count only if enough of them share a block."""

    def lost_to_blocks(rule, ones, dtype):
        a = [1.0] * ones + [0.0] * (64 - ones)
        return one_output(rule, a, [1.0] * 64, acc=2.0**24, dtype=dtype) - 2.0**24

    f32 = PROFILES["ascend-a2"].cube_rule("f32")
    assert lost_to_blocks(f32, 4, np.float32) == 4
    assert lost_to_blocks(PROFILES["ascend-950"].cube_rule("f32"), 4, np.float32) == 0
    assert lost_to_blocks(PROFILES["ascend-a2"].cube_rule("f16"), 16, np.float16) == 16
    assert lost_to_blocks(PROFILES["nvidia-ampere-like"].cube_rule("f16"), 16, np.float16) == 16
    assert lost_to_blocks(PROFILES["nvidia-volta-like"].cube_rule("f16"), 1, np.float16) == 0


def test_hf32_keeps_eleven_or_ten_bits():
    tie, odd = 1 + 2.0**-12, 1 + 3 * 2.0**-12  # halfway between numbers of eleven fraction bits
    a2, a950 = PROFILES["ascend-a2"], PROFILES["ascend-950"]

    def read(rule, x):
        return one_output(rule, [x], [1.0], dtype=np.float32)

    assert [read(a2.cube_rule("hf32"), x) for x in (tie, odd, -tie)] == [1, 1 + 2.0**-10, -1]
    away = [1 + 2.0**-11, 1 + 2.0**-10, -1 - 2.0**-11]
    assert [read(a2.cube_rule("hf32_away"), x) for x in (tie, odd, -tie)] == away
    assert read(a950.cube_rule("hf32"), 1 + 2.0**-11) == 1
    assert read(a2.cube_rule("hf32"), 1 + 2.0**-11) == 1 + 2.0**-11
    assert read(a2.cube_rule("f32"), 1 + 2.0**-23) == 1 + 2.0**-23
    assert (
        read(PROFILES["nvidia-hopper-like"].cube_rule("f32"), 1 + 3 * 2.0**-11) == 1 + 2.0**-10
    )  # TF32 cuts


def test_the_fast_profile_rounds_once():
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((16, 64)).astype(np.float16), rng.standard_normal((64, 16)).astype(np.float16)
    want = a.astype(float) @ b.astype(float)
    got = matmul(PROFILES["fast"].cube_rule("f16"), a, b, None, saturate=True)
    assert np.abs(got - want).max() <= np.abs(want).max() * 2.0**-23
    a[0, 0], b[0, 0] = np.inf, -np.inf
    got = matmul(PROFILES["fast"].cube_rule("f16"), a, b, None, saturate=True)
    assert np.isfinite(got).all()
    assert got[0, 0] < -4e9  # 65504 squared, negative
    assert matmul(PROFILES["fast"].cube_rule("f16"), a, b, None, saturate=False)[0, 0] == -np.inf
