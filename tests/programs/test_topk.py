"""Top-k by split: the largest by Python's stable sort, whatever the keys, with the first of equal ones."""

from __future__ import annotations

import numpy as np
import pytest
from key_order import rank

from npusim import load_chip, simulate
from npusim.errors import ConfigError

DEVICE = load_chip("ascend-910b4", overrides={"cores.cube": 2})
TILE = 32 * 32


def check(x, top, **params):
    report = simulate("topk", DEVICE, inputs={"x": x}, top=top, s=32, **params)
    bits = x.view(np.uint16)
    ranks = [rank(v, b) for v, b in zip(x.tolist(), bits.tolist(), strict=True)]
    largest = sorted(range(x.size), key=ranks.__getitem__, reverse=True)[:top]  # stable: the first of equals
    found = report.outputs["y_index"].tolist()
    assert sorted(found) == sorted(largest)
    assert report.outputs["y"].view(np.uint16).tolist() == bits[found].tolist()
    for value in {ranks[i] for i in found}:
        same = [i for i in found if ranks[i] == value]
        assert same == sorted(same)
    assert report.values.ok
    return report


@pytest.mark.parametrize("dtype", ["float16", "int16"])
def test_any_length_and_number(dtype):
    rng = np.random.default_rng(0)
    for n, tops in (
        (1, (1,)),
        (2, (1, 2)),
        (251, (17, 251)),
        (TILE, (100,)),
        (TILE + 1, (TILE,)),
    ):
        for top in tops:
            check(rng.integers(-300, 300, n).astype(dtype), top)


def test_all_kinds_of_halves():
    bits = np.random.default_rng(1).integers(0, 1 << 16, 700).astype(np.uint16)
    bits[:12] = [0, 0x8000, 0x7C00, 0xFC00, 0x7E00, 0xFE00, 0x7C01, 0xFFFF, 0x7FFF, 1, 0x8001, 0x7FFF]
    for top in (3, 350):
        check(bits.view(np.float16), top)


def test_zeros_of_both_signs_and_infinities():
    x = np.tile(np.array([0.0, -0.0, np.inf, -np.inf, -0.0], np.float16), 60)
    for top in (60, 100, 200):
        check(x, top)


def test_keys_in_order_in_reverse_and_all_equal():
    ascending = np.linspace(-100, 100, 600).astype(np.float16)
    check(ascending, 77)
    check(ascending[::-1].copy(), 77)
    equal = check(np.full(600, -2.5, np.float16), 599)
    assert equal.outputs["y_index"].tolist() == list(range(599))


def test_the_whole_range_of_whole_numbers():
    x = np.array([-32768, 32767, -32768, -32767, 0, 32766], np.int16)
    for top in range(1, 6):
        check(x, top)


def test_larger_parts_come_first():
    x = np.array([3, 9, 1, 8, 2, 7], np.int16)  # pivots 5 (9 8 7), 3 (none), 2 (3), so 9 8 7, then 3
    assert check(x, 4).outputs["y"].tolist() == [9, 8, 7, 3]
    assert check(x, 5).outputs["y"].tolist() == [9, 8, 7, 3, 2]


@pytest.mark.parametrize("s", [64, 128])
def test_large_tiles(s):
    n = 2 * s * s + 5
    assert simulate("topk", DEVICE, n=n, top=n // 3, s=s).values.ok


def test_any_number_of_cores_gives_the_same():
    chip = load_chip("ascend-910b4", overrides={"cores.cube": 3})
    outputs = {
        simulate("topk", chip, n=2 * TILE + 9, top=99, s=32, cores=c).outputs["y_index"].tobytes()
        for c in (None, 1, 2)
    }
    assert len(outputs) == 1


def test_time_without_values():
    params = {"n": 2 * TILE, "s": 32}
    none, alone = (simulate("topk", DEVICE, top=t, timing_only=True, **params) for t in (2 * TILE, TILE))
    assert none.total_cycles < alone.total_cycles  # no step, and one
    full = simulate("topk", DEVICE, top=500, dtype="int16", **params)
    alone = simulate("topk", DEVICE, top=500, dtype="int16", timing_only=True, **params)
    assert 0.4 * full.total_cycles < alone.total_cycles < 1.1 * full.total_cycles


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"n": 10, "top": 11}, "topk: top=11 must be 1..10, the elements there are"),
        ({"top": 0}, "topk: top=0: input should be greater than 0"),
        ({"dtype": "float32"}, "topk: dtype=float32: input should be 'float16' or 'int16'"),
        ({"s": 16}, "topk: s=16: input should be 32, 64 or 128"),
    ],
)
def test_what_does_not_fit(params, expected):
    with pytest.raises(ConfigError) as caught:
        simulate("topk", DEVICE, **params)
    assert str(caught.value) == expected
