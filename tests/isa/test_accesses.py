"""The bytes of accesses, against sets of them."""

from __future__ import annotations

from itertools import pairwise, product

import hypothesis.strategies as st
from hypothesis import given, settings

from npusim.isa.operand import Access, Space

LEVELS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 12)), max_size=3)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.integers(0, 5), st.integers(0, 9), LEVELS)
def test_runs_are_the_touched_bytes_in_order(start, size, levels):
    counts, strides = tuple(c for c, _ in levels), tuple(s for _, s in levels)
    access = Access(Space.UB, 0, start, size, counts, strides)
    touched = {
        start + sum(i * s for i, s in zip(at, strides, strict=True)) + byte
        for at in product(*map(range, counts))
        for byte in range(size)
    }
    runs = access.runs()
    assert {byte for low, high in runs for byte in range(low, high)} == touched
    assert all(low < high for low, high in runs)
    assert all(a[1] < b[0] for a, b in pairwise(runs))
    assert list(zip(*(bound.tolist() for bound in access.bounds()), strict=True)) == runs
