"""The cube against exact rationals, on operands that hypothesis makes up."""

from __future__ import annotations

import numpy as np
import pytest
from cube_families import TYPES
from hypothesis import given, settings
from hypothesis import strategies as st
from numerics_oracle import cube

from npusim.isa.numerics.cube import matmul
from npusim.isa.numerics.profile import DEFAULT_PROFILE, PROFILES

SUMMATIONS = ["ascend-a2", "ieee-sequential-fp32", "tree16-fp32", "nvidia-ampere-like"]


def bit_arrays(kind, shape):
    """Any bit patterns, specials too, with a bias to a few near one another."""
    dtype = np.dtype(TYPES[kind])
    bits = 8 * dtype.itemsize
    count = int(np.prod(shape))
    pattern = st.integers(0, (1 << bits) - 1)
    near_one = np.array(1, dtype).view(f"u{dtype.itemsize}").item()
    close = st.integers(near_one - 40, near_one + 40).map(lambda u: u ^ ((u & 1) << (bits - 1)))
    lists = st.lists(st.one_of(pattern, close), min_size=count, max_size=count)
    return lists.map(lambda u: np.array(u, f"u{dtype.itemsize}").view(dtype).reshape(shape))


@pytest.mark.parametrize("kind", ["f16", "bf16", "f32"])
@pytest.mark.parametrize("name", SUMMATIONS)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_any_bits(name, kind, data):
    rule = PROFILES[name].cube_rule(kind)
    m, k, n = data.draw(st.tuples(st.integers(1, 3), st.integers(1, 9), st.integers(1, 3)))
    a, b = data.draw(bit_arrays(kind, (m, k))), data.draw(bit_arrays(kind, (k, n)))
    acc = data.draw(bit_arrays("f32", (m, n)))
    saturate = data.draw(st.booleans())
    got = matmul(rule, a, b, acc, saturate=saturate)
    assert got.tobytes() == cube(rule, a, b, acc, saturate=saturate, fmt=kind).tobytes()


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_the_order_of_a_block_does_not_matter(data):
    """A fused block is a sum of real numbers: permuting its products changes nothing."""
    rule = DEFAULT_PROFILE.cube_rule("f16")
    a, b = data.draw(bit_arrays("f16", (1, 16))), data.draw(bit_arrays("f16", (16, 2)))
    order = data.draw(st.permutations(range(16)))
    for saturate in (True, False):
        want = matmul(rule, a, b, None, saturate=saturate)
        got = matmul(rule, a[:, order], np.ascontiguousarray(b[order]), None, saturate=saturate)
        assert got.tobytes() == want.tobytes()


@settings(max_examples=25, deadline=None)
@given(data=st.data(), split=st.integers(1, 2))
def test_splitting_k_at_a_block_changes_nothing(data, split):
    """Two Mmads in a row, the second on the accumulator of the first, are one Mmad."""
    rule = DEFAULT_PROFILE.cube_rule("bf16")
    a, b = data.draw(bit_arrays("bf16", (1, 48))), data.draw(bit_arrays("bf16", (48, 2)))
    at = split * rule.k0
    for saturate in (True, False):
        first = matmul(rule, a[:, :at], b[:at], None, saturate=saturate)
        both = matmul(rule, a[:, at:], b[at:], first, saturate=saturate)
        assert both.tobytes() == matmul(rule, a, b, None, saturate=saturate).tobytes()
