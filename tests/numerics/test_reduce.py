"""Tree reductions against a tree built lane by lane."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numerics_oracle import round_fraction

from npusim.isa.dtype import F16, F32, S32
from npusim.isa.numerics.profile import DEFAULT_PROFILE, VectorNumerics
from npusim.isa.numerics.reduce import tree_max, tree_min, tree_sum

RULES = DEFAULT_PROFILE.vector
NAMES = {F16: "f16", F32: "f32"}


def add(x, y, dtype, saturate):
    """One addition of the unit, of floats; `None` is a lane that is masked out."""
    if x is None or y is None:
        return x if y is None else y
    if math.isfinite(x) and math.isfinite(y):
        total = round_fraction(Fraction(x) + Fraction(y), NAMES[dtype])
        result = float(total)
        if result == 0:
            result = x + y  # with the sign IEEE 754 gives
    else:
        result = x + y
    if dtype is F16 and saturate and not math.isfinite(result):
        result = 0.0 if math.isnan(result) else math.copysign(65504.0, result)
    return result


def tree(lanes, dtype, saturate):
    while len(lanes) > 1:
        pairs = [add(*lanes[i : i + 2], dtype, saturate) for i in range(0, len(lanes) - 1, 2)]
        lanes = pairs + ([lanes[-1]] if len(lanes) % 2 else [])
    return 0.0 if not lanes or lanes[0] is None else lanes[0]


@pytest.mark.parametrize("saturate", [True, False])
@pytest.mark.parametrize("width", [0, 1, 2, 3, 8, 13, 64, 128])
@pytest.mark.parametrize("dtype", [F16, F32])
def test_sums(dtype, width, saturate):
    rng = np.random.default_rng(width)
    x = np.ldexp(rng.standard_normal((12, width)), rng.integers(-6, 12, (12, width))).astype(dtype.np)
    x[:2] = np.copysign(dtype.np.type(0), x[:2])
    masks = rng.random((12, width)) < np.linspace(0, 1, 12)[:, None]
    for mask in (None, masks, masks[5:6]):
        got = tree_sum(x, dtype, mask=mask, saturate=saturate)
        live = np.ones(x.shape, bool) if mask is None else np.broadcast_to(mask, x.shape)
        want = [
            tree([float(v) if keep else None for v, keep in zip(row, kept, strict=True)], dtype, saturate)
            for row, kept in zip(x, live, strict=True)
        ]
        assert got.dtype == dtype.np
        assert got.tobytes() == np.array(want, dtype.np).tobytes()


def test_the_order_of_a_sum_is_the_tree():
    x = np.array([2048, 1, 1, 1] * 4, np.float16)
    assert tree_sum(x, F16, saturate=True) == 8200  # (2048 + 1) + (1 + 1) is 2050, four times
    running = np.float16(0)
    for value in x:
        running += value
    assert running == 8192
    y = np.array([2.0**24, 1, 1, 1], np.float32)
    assert tree_sum(y, F32, saturate=True) == 2.0**24 + 2


def test_float16_sums_saturate_at_every_addition():
    x = np.array([65504, 65504, -65504, 0], np.float16)
    assert tree_sum(x, F16, saturate=True) == 0
    assert tree_sum(x, F16, saturate=False) == np.inf
    y = np.array([np.inf, -np.inf, 3, 4], np.float16)
    assert tree_sum(y, F16, saturate=True) == 7
    assert tree_sum(y, F16, saturate=False).view(np.uint16) == 0x7E00
    z = np.array([np.inf, -np.inf, 3, 4], np.float32)
    assert tree_sum(z, F32, saturate=True).view(np.uint32) == 0x7FC00000


def test_a_masked_lane_adds_nothing_even_to_minus_zero():
    x = np.array([[-0.0, 5], [5, 7], [-0.0, -0.0]], np.float32)
    mask = np.array([[True, False], [False, False], [True, True]])
    got = tree_sum(x, F32, mask=mask, saturate=True)
    assert got.view(np.uint32).tolist() == [0x80000000, 0, 0x80000000]
    poison = np.array([1, np.nan, np.inf, 2], np.float32)
    assert tree_sum(poison, F32, mask=np.array([True, False, False, True]), saturate=True) == 3


# ---- maxima and minima -------------------------------------------------------------------------------------


def pick(lanes, sign, nan_wins):
    """(value, lane) of the first lane that no other beats; lanes of `None` are masked out."""
    live = [(i, v) for i, v in enumerate(lanes) if v is not None]
    if not live:
        return -sign * math.inf, 0
    nans = [(v, i) for i, v in live if math.isnan(v)]
    if nans and (nan_wins or len(nans) == len(live)):
        return nans[0]
    numbers = [(i, v) for i, v in live if not math.isnan(v)]
    best = max(sign * v for _, v in numbers)
    return next((v, i) for i, v in numbers if sign * v == best)


VALUES = st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.5, math.inf, -math.inf, math.nan, 65504.0])


@settings(max_examples=150, deadline=None)
@given(
    rows=st.lists(st.lists(st.tuples(VALUES, st.booleans()), min_size=6, max_size=6), min_size=1, max_size=4),
    dtype=st.sampled_from([F16, F32]),
    nan=st.sampled_from(["number", "propagate"]),
    masked=st.booleans(),
)
def test_extremes(rows, dtype, nan, masked):
    x = np.array([[v for v, _ in row] for row in rows], dtype.np)
    mask = np.array([[keep for _, keep in row] for row in rows]) if masked else None
    for function, sign in ((tree_max, 1), (tree_min, -1)):
        values, lanes = function(x, dtype, VectorNumerics(nan=nan), mask=mask)
        for row, value, lane in zip(rows, values, lanes, strict=True):
            want = pick([v if keep or not masked else None for v, keep in row], sign, nan == "propagate")
            assert lane == want[1]
            assert np.array(want[0], dtype.np).tobytes() == value.tobytes()
        assert values.dtype == dtype.np


def test_the_lowest_lane_wins_a_tie():
    x = np.array([[3, 7, 7, 1], [-0.0, 0.0, -1, 0.0]], np.float16)
    values, lanes = tree_max(x, F16, RULES)
    assert lanes.tolist() == [1, 0]
    assert values.tolist() == [7, 0]
    assert np.signbit(values[1])
    assert tree_min(x, F16, RULES)[1].tolist() == [3, 2]
    all_low = np.full((1, 4), -np.inf, np.float32)
    assert tree_max(all_low, F32, RULES, mask=np.array([False, False, True, True]))[1].tolist() == [2]


def test_shapes():
    for shape in ((0,), (3, 0), (0, 4), (2, 3, 8)):
        x = np.zeros(shape, np.float16)
        assert tree_sum(x, F16, saturate=True).shape == shape[:-1]
        values, lanes = tree_max(x, F16, RULES)
        assert values.shape == lanes.shape == shape[:-1]
    strided = np.arange(32, dtype=np.float32).reshape(2, 16)[:, ::2]
    assert tree_sum(strided, F32, saturate=True).tolist() == [56, 184]
    with pytest.raises(TypeError, match=r"^the vector unit reduces f16 and f32, not s32$"):
        tree_sum(np.zeros(4, np.int32), S32, saturate=True)
