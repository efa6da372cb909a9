"""Casts against the vendor's rules, bit by bit, and against its worked examples."""

from __future__ import annotations

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numerics_oracle import FORMATS, largest, round_fraction

from npusim.isa.dtype import BF16, F16, F32, S4, S8, S16, S32, S64, U8, U16, U32, DType
from npusim.isa.numerics.cast import CAST_MODES, RoundMode, cast, dequant_s32_f16, requant_b8, scale_1_8_10

MODES = {
    RoundMode.NONE: "rne",
    RoundMode.RINT: "rne",
    RoundMode.FLOOR: "rd",
    RoundMode.CEIL: "ru",
    RoundMode.ROUND: "rna",
    RoundMode.TRUNC: "rz",
    RoundMode.ODD: "odd",
}
FIVE = [RoundMode.RINT, RoundMode.FLOOR, RoundMode.CEIL, RoundMode.ROUND, RoundMode.TRUNC]
NAN_BITS = {F16: 0x7E00, BF16: 0x7FC0, F32: 0x7FC00000}


def limits(dtype):
    if dtype is S4:
        return -8, 7
    info = np.iinfo(dtype.np)
    return int(info.min), int(info.max)


def whole(x, mode):
    """The rational `x` rounded to an integer."""
    down = x.numerator // x.denominator
    rest = x - down
    match mode:
        case "rd":
            return down
        case "ru":
            return down + (rest != 0)
        case "rz":
            return down + (rest != 0 and x < 0)
        case "rne":
            return down + (rest > Fraction(1, 2) or (rest == Fraction(1, 2) and down % 2))
        case "rna":
            return down + (rest > Fraction(1, 2) or (rest == Fraction(1, 2) and x > 0))
    truncated = down + (rest != 0 and x < 0)
    return truncated + (0 if rest == 0 or truncated % 2 else (1 if x > 0 else -1))


def expected(value, dst, mode, saturate):
    """The result for one finite or special value, as a number; NaN stands for the canonical one."""
    special = isinstance(value, float) and not math.isfinite(value)
    if dst.is_float:
        if special:
            result = value
        elif dst is F32 and mode is None:
            result = Fraction(value)
        else:
            result = round_fraction(Fraction(value), dst.short, MODES[mode])
        if saturate and dst is not F32 and isinstance(result, float):
            result = 0 if math.isnan(result) else math.copysign(float(largest(dst.short)), result)
        return float(result)
    low, high = limits(dst)
    if special:
        return 0 if math.isnan(value) else (high if value > 0 else low)
    integer = whole(Fraction(value), MODES[mode])
    if saturate:
        return min(max(integer, low), high)
    return (integer - low) % (high - low + 1) + low


def samples(src):
    """Values of a type: all of a narrow one; of a wide one random bits, edges and ties."""
    rng = np.random.default_rng(src.code)
    if src is S4:
        return np.arange(-8, 8, dtype=np.int8)
    if src.bits <= 8:
        return np.arange(1 << src.bits, dtype=np.uint8).view(src.np)
    top = (1 << src.bits) - 1
    x = rng.integers(0, top, 250, np.uint64, endpoint=True).astype(f"u{src.size}").view(src.np)
    if src.is_float:
        halves = (rng.integers(-600, 600, 100) / 2).astype(src.np)
        edges = [
            v + d
            for v in (2**7, 2**8, 2**15, 2**16, 2**31, 2**63, 8, 65504, 65520)
            for d in (-1, -0.5, 0, 0.5)
        ]
        wild = np.array(
            [*edges, *(-e for e in edges), np.inf, -np.inf, np.nan, -0.0, 3e38, 1e-40], np.float64
        )
        extra = np.concatenate([halves.astype(np.float32), wild.astype(np.float32)]).astype(src.np)
        middle = (rng.standard_normal(100) * 300).astype(np.float32).astype(src.np)
        return np.concatenate([x, extra, middle])
    small = rng.integers(-4200, 4200, 100).astype(src.np)
    low, high = limits(src)
    edge = np.array([low, low + 1, high, high - 1], src.np)
    ties = [2**12 + 2, 2**25 + 2, 2**25 + 3, 2**25 + 6, 2**40 + 2**16, 2**62 + 2**38, 2**62 + 2**38 + 1]
    return np.concatenate([x, small, edge, np.array([t for t in ties if t <= high], src.np)])


def check(src, dst, mode, saturate):
    x = samples(src)
    got = cast(x, src, dst, mode, saturate=saturate)
    assert got.dtype == dst.np
    assert got.shape == x.shape
    integral = dst is F32 and src is F32
    values = [float(v) if src.is_float else int(v) for v in x]
    if integral:
        want = [whole(Fraction(v), MODES[mode]) if math.isfinite(v) else v for v in values]
    else:
        want = [expected(v, dst, mode, saturate) for v in values]
    if not dst.is_float:
        assert got.tolist() == want
        return
    want = np.array(want, np.float64)
    nan = np.isnan(want)
    assert np.array_equal(got[~nan].astype(np.float64), want[~nan])
    assert (got.view(f"u{dst.size}")[nan] == NAN_BITS[dst]).all()


@pytest.mark.parametrize("saturate", [True, False])
@pytest.mark.parametrize("pair", CAST_MODES, ids=lambda p: f"{p[0].short}-{p[1].short}")
def test_every_pair_and_mode_of_a2(pair, saturate):
    for mode in CAST_MODES[pair]:
        check(*pair, mode, saturate)


LATER = [
    (F16, BF16),
    (BF16, F16),
    (BF16, S16),
    (S32, S8),
    (S32, U8),
    (U32, S16),
    (U16, F16),
    (S16, BF16),
    (S64, U32),
]


@pytest.mark.parametrize("saturate", [True, False])
@pytest.mark.parametrize("pair", LATER, ids=lambda p: f"{p[0].short}-{p[1].short}")
def test_pairs_of_later_chips(pair, saturate):
    for mode in FIVE:
        check(*pair, mode, saturate)


def test_the_table_of_a2():
    five, odd, none = frozenset(FIVE), RoundMode.ODD, RoundMode.NONE
    assert CAST_MODES[F32, F16] == five | {odd, none}
    assert (
        CAST_MODES[F32, BF16] == CAST_MODES[F32, F32] == CAST_MODES[F32, S64] == CAST_MODES[BF16, S32] == five
    )
    assert (
        CAST_MODES[F16, S4]
        == CAST_MODES[F16, U8]
        == CAST_MODES[S16, F16]
        == CAST_MODES[S32, F32]
        == five | {none}
    )
    assert CAST_MODES[F16, F32] == CAST_MODES[S64, S32] == CAST_MODES[S4, F16] == {none}
    assert (S32, F16) not in CAST_MODES
    assert (F16, BF16) not in CAST_MODES
    assert len(CAST_MODES) == 24


def test_numbers_of_the_modes():
    assert [m.name for m in sorted(RoundMode)] == ["NONE", "RINT", "FLOOR", "CEIL", "ROUND", "TRUNC", "ODD"]


# worked examples of asc-devkit precision_conversion.md: source, target, input, then a result per mode of FIVE
EXAMPLES = [
    (S16, F16, 2**12 + 2, [2**12, 2**12, 2**12 + 4, 2**12 + 4, 2**12]),
    (F16, S4, 1.5, [2, 1, 2, 2, 1]),
    (F16, S8, 2**7 - 0.5, [127, 127, 127, 127, 127]),
    (F16, U8, 1.75, [2, 1, 2, 2, 1]),
    (F16, S16, 2**7 - 0.5, [128, 127, 128, 128, 127]),
    (F16, S32, -1.5, [-2, -2, -1, -2, -1]),
    (BF16, S32, 2**6 + 0.5, [64, 64, 65, 65, 64]),
    (S32, F32, 2**25 + 3, [2**25 + 4, 2**25, 2**25 + 4, 2**25 + 4, 2**25]),
    (F32, S16, 2**22 + 0.5, [32767] * 5),
    (F32, F16, 0.5 + 2.0**-12, [0.5, 0.5, 0.5 + 2.0**-11, 0.5 + 2.0**-11, 0.5]),
    (F32, BF16, 0.5 + 2.0**-9 + 2.0**-11, [0.5 + 2.0**-8, 0.5, 0.5 + 2.0**-8, 0.5 + 2.0**-8, 0.5]),
    (F32, S32, 2**22 + 0.5, [2**22, 2**22, 2**22 + 1, 2**22 + 1, 2**22]),
    (F32, F32, 0.5, [0, 0, 1, 1, 0]),
    (F32, S64, 2**22 + 0.5, [2**22, 2**22, 2**22 + 1, 2**22 + 1, 2**22]),
    (
        S64,
        F32,
        2**35 + 2**12 + 2**11,
        [2**35 + 2**13, 2**35 + 2**12, 2**35 + 2**13, 2**35 + 2**13, 2**35 + 2**12],
    ),
]


@pytest.mark.parametrize(("src", "dst", "value", "results"), EXAMPLES)
def test_documented_examples(src: DType, dst: DType, value, results):
    x = np.array([value], np.float32).astype(src.np) if src.is_float else np.array([value], src.np)
    assert [cast(x, src, dst, mode, saturate=True)[0].item() for mode in FIVE] == results


def test_documented_examples_without_a_mode():
    for src, dst, value, result in [
        (S32, S16, 2**31 - 1, 2**15 - 1),
        (S64, S32, 2**31, 2**31 - 1),
        (S32, S64, 2**31 - 1, 2**31 - 1),
        (S8, F16, -1, -1),
        (S16, F32, 2**15 - 1, 2**15 - 1),
        (S32, U8, 2**31 - 1, 255),
        (S16, S4, 2**15 - 1, 7),
    ]:
        assert cast(np.array([value], src.np), src, dst, RoundMode.NONE, saturate=True).tolist() == [result]
    assert (
        cast(np.array([0.5 + 2.0**-12], np.float32), F32, F16, RoundMode.ODD, saturate=True)[0]
        == 0.5 + 2.0**-11
    )
    halves = np.array([257, 256, -1], np.float16)
    assert cast(halves, F16, U8, RoundMode.RINT, saturate=False).tolist() == [1, 0, 255]
    assert cast(halves, F16, U8, RoundMode.RINT, saturate=True).tolist() == [255, 255, 0]


def test_rounding_to_odd_makes_a_second_rounding_harmless():
    rng = np.random.default_rng(0)
    x = rng.integers(0x3F000000, 0x40000000, 4000, np.uint32).view(np.float32)
    through_half = cast(x, F32, F16, RoundMode.ODD, saturate=True).astype(np.float32)
    once = [float(round_fraction(Fraction(float(v)), (8, -14, 15))) for v in x]
    twice = [float(round_fraction(Fraction(float(v)), (8, -14, 15))) for v in through_half]
    assert once == twice


@settings(max_examples=300, deadline=None)
@given(st.integers(-(2**63), 2**63 - 1), st.sampled_from(FIVE))
def test_int64_to_float32(value, mode):
    got = cast(np.array([value], np.int64), S64, F32, mode, saturate=True)
    assert got[0] == float(round_fraction(Fraction(value), "f32", MODES[mode]))


# ---- dequantisation and requantisation ---------------------------------------------------------------------


def read_scale(scale):
    bits = int(np.float32(scale).view(np.uint32)) & ~0x1FFF
    return Fraction(float(np.uint32(bits).view(np.float32)))


def test_the_scale_loses_thirteen_bits():
    assert scale_1_8_10(np.float32(1 + 2.0**-10 + 2.0**-11)) == np.float32(1 + 2.0**-10)
    assert scale_1_8_10(np.float32([-1.9999999, 3])).tolist() == [-1.9990234375, 3]
    halves = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float32)
    normal = halves[0x400:]
    assert np.array_equal(scale_1_8_10(normal), normal)


@pytest.mark.parametrize("saturate", [True, False])
def test_dequantisation(saturate):
    rng = np.random.default_rng(1)
    x = rng.integers(-(2**31), 2**31, (40, 16), np.int64).astype(np.int32) >> rng.integers(0, 31, (40, 16))
    x = x.astype(np.int32)
    scales = (rng.standard_normal(16) * 10.0 ** rng.integers(-6, 1, 16)).astype(np.float32)
    got = dequant_s32_f16(x, scales, saturate=saturate)
    want = [
        [
            expected(read_scale(s) * int(v), F16, RoundMode.RINT, saturate)
            for v, s in zip(row, scales, strict=True)
        ]
        for row in x
    ]
    assert got.dtype == np.float16
    assert np.array_equal(got, want)
    one = dequant_s32_f16(x, float(scales[3]), saturate=saturate)
    assert np.array_equal(one[:, 3], got[:, 3])


@pytest.mark.parametrize("dst", [S8, U8])
@pytest.mark.parametrize("src", [np.int32, np.float32, np.int16])
def test_requantisation(src, dst):
    rng = np.random.default_rng(2)
    x = (rng.standard_normal((40, 16)) * 3000).astype(src)
    scales = (rng.standard_normal(16) * 0.05).astype(np.float32)
    scales[:3] = 0.5, 0.25, 1
    offsets = rng.integers(-256, 256, 16)
    low, high = limits(dst)
    want = [
        [
            min(max(whole(Fraction(float(v)) * read_scale(s) + int(o), "rne"), low), high)
            for v, s, o in zip(row, scales, offsets, strict=True)
        ]
        for row in x
    ]
    assert requant_b8(x, scales, offsets, dst).tolist() == want
    assert requant_b8(x, scales, offsets + 512, dst).tolist() == want  # nine bits count


def test_requantisation_rounds_after_the_offset_and_saturates():
    x = np.array([1, 3, 2**31 - 1, -(2**31)], np.int32)
    assert requant_b8(x, 0.5, 1, S8).tolist() == [2, 2, 127, -128]
    assert requant_b8(x, 0.5, 0x1FF, U8).tolist() == [0, 0, 255, 0]
    special = np.array([np.nan, np.inf, -np.inf], np.float32)
    assert requant_b8(special, 1.0, 0, S8).tolist() == [0, 127, -128]
    with pytest.raises(TypeError, match=r"^requantisation gives s8 or u8, not s16$"):
        requant_b8(x, 1.0, 0, S16)


def test_bfloat16_of_huge_numbers():
    """Where a sum of squares says nothing, and at the edge of overflow."""
    top = float(largest("bf16"))
    assert FORMATS["bf16"] == (8, -126, 127)
    x = np.array([1e30, top, top * (1 + 2.0**-10), top * (1 + 2.0**-8), np.inf, np.nan, -np.inf], np.float32)
    plain = cast(x, F32, BF16, RoundMode.RINT, saturate=False).astype(np.float32)
    assert plain[1] == plain[2] == np.float32(top)
    assert plain[3] == np.inf
    assert cast(x, F32, BF16, RoundMode.RINT, saturate=True).astype(np.float32).tolist() == [
        float(np.float32(1e30).astype(ml_dtypes.bfloat16)), top, top, top, top, 0, -top,
    ]  # fmt: skip


@pytest.mark.parametrize("pair", CAST_MODES, ids=lambda p: f"{p[0].short}-{p[1].short}")
def test_shapes_strides_and_nothing(pair):
    src, dst = pair
    mode = next(iter(CAST_MODES[pair]))
    x = np.resize(samples(src), (4, 6))
    for view in (x[:, ::2], x.T, x[:0], x[0]):
        got = cast(view, src, dst, mode, saturate=True)
        assert got.shape == view.shape
        assert got.tobytes() == cast(view.copy(), src, dst, mode, saturate=True).tobytes()
        assert not np.shares_memory(got, view)
