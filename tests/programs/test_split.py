"""Split and compress: exact to the bit, and stable, on masks and lengths of every kind."""

from __future__ import annotations

import numpy as np
import pytest

from npusim import load_chip, simulate
from npusim.errors import ConfigError

DEVICE = load_chip("ascend-910b4", overrides={"cores.cube": 2})
WIDTH = {"float16": 16, "int16": 16, "uint16": 16, "float32": 32, "int32": 32, "uint32": 32}
TILE = 32 * 32
LENGTHS = (1, 251, TILE, TILE + 1)
generations = pytest.mark.parametrize("generation", ["scan", "reduce"])


def any_bits(n, dtype, seed):
    """Random bits: NaN of both kinds, infinities, subnormal numbers and both zeros among them."""
    bits = np.random.default_rng(seed).integers(0, 1 << WIDTH[dtype], n, dtype=f"u{WIDTH[dtype] // 8}")
    special = {"float16": [0x7E00, 0xFC00, 0x8000, 1], "float32": [0x7FC00001, 0xFF800000, 1 << 31, 1]}
    for i, value in enumerate(special.get(dtype, [])[:n]):
        bits[i] = value
    return bits.view(dtype)


def same_bits(found, expected):
    kind = f"u{found.dtype.itemsize}"
    assert found.view(kind).tolist() == expected.view(kind).tolist()


def by_hand(x, mask):
    """Ones, then zeros, in Python lists."""
    return [v for v, m in zip(x, mask, strict=True) if m], [v for v, m in zip(x, mask, strict=True) if not m]


def masks(n, seed):
    """All kinds of masks for one length, and a random one for the others."""
    rng = np.random.default_rng(seed)
    if n != LENGTHS[-1]:
        yield (rng.random(n) < 0.5).astype(np.int8)
        return
    yield np.zeros(n, np.int8)
    yield np.ones(n, np.int8)
    for density in (0.001, 0.5):
        yield (rng.random(n) < density).astype(np.int8)
    yield np.arange(n).astype(np.int8) % 2
    yield (np.arange(n) >= n // 3).astype(np.int8)


@generations
def test_split_moves_every_element_once_and_in_order(generation):
    for n in LENGTHS:
        x = any_bits(n, "float16", n)
        for mask in masks(n, n):
            given = {"x": x, "mask": mask, "index": np.arange(n, dtype=np.int32)[::-1].copy()}
            report = simulate("split_ind", DEVICE, inputs=given, s=32, generation=generation)
            ones, zeros = by_hand(range(n), mask)
            order = np.array(ones + zeros)
            same_bits(report.outputs["y"], x[order])
            assert report.outputs["y_index"].tolist() == (n - 1 - order).tolist()
            assert report.values.ok


@generations
@pytest.mark.parametrize("dtype", ["int16", "uint16"])
def test_split_of_whole_numbers(dtype, generation):
    x = any_bits(3 * TILE + 7, dtype, 1)
    mask = any_bits(x.size, "int16", 2).astype(np.int8) & 1
    report = simulate("split", DEVICE, inputs={"x": x, "mask": mask}, s=32, generation=generation)
    ones, zeros = by_hand(x.tolist(), mask)
    assert report.outputs["y"].tolist() == ones + zeros
    assert report.values.ok


@generations
@pytest.mark.parametrize("dtype", ["float16", "float32", "uint32", "int16"])
def test_compress_keeps_what_the_mask_selects(dtype, generation):
    for n in LENGTHS if dtype == "float32" else (3 * TILE - 33,):
        x = any_bits(n, dtype, n)
        for mask in masks(n, n):
            report = simulate("compress", DEVICE, inputs={"x": x, "mask": mask}, s=32, generation=generation)
            ones = np.flatnonzero(mask)
            same_bits(report.outputs["y"], x[ones] if ones.size else np.zeros(1, dtype))
            assert report.values.ok


@generations
@pytest.mark.parametrize("s", [64, 128])
def test_large_tiles(s, generation):
    n = 3 * s * s + 5
    x, mask = any_bits(n, "float32", s), (np.random.default_rng(s).random(n) < 0.3).astype(np.int8)
    report = simulate("compress", DEVICE, inputs={"x": x, "mask": mask}, s=s, generation=generation)
    same_bits(report.outputs["y"], x[np.flatnonzero(mask)])
    report = simulate("split", DEVICE, n=n, s=s, generation=generation, density=0.3)
    assert report.values.ok


@generations
def test_any_number_of_cores_gives_the_same(generation):
    chip = load_chip("ascend-910b4", overrides={"cores.cube": 3})
    outputs = {
        simulate("split", chip, n=6 * TILE, s=32, cores=cores, generation=generation).outputs["y"].tobytes()
        for cores in (None, 1, 2, 3)
    }
    assert len(outputs) == 1


@generations
@pytest.mark.parametrize("name", ["split", "split_ind", "compress"])
def test_time_without_values_takes_the_ones_as_evenly_spread(name, generation):
    """With all ones or none nothing is left open, so the time is the same; with some, nearly."""
    params = {"n": 6 * TILE, "s": 32, "generation": generation}
    for density in (0, 1):
        full = simulate(name, DEVICE, density=density, **params)
        alone = simulate(name, DEVICE, density=density, timing_only=True, **params)
        assert alone.total_cycles == full.total_cycles
    full = simulate(name, DEVICE, density=0.3, **params)
    alone = simulate(name, DEVICE, density=0.3, timing_only=True, **params)
    assert alone.total_cycles == pytest.approx(full.total_cycles, rel=0.05)


def test_cubes_work_only_where_the_mask_is_scanned():
    for name in ("split", "compress"):
        assert simulate(name, DEVICE, n=3000, s=32, timing_only=True).cube.macs > 0
        report = simulate(name, DEVICE, n=3000, s=32, generation="reduce", timing_only=True)
        assert report.cube.macs == 0


@pytest.mark.parametrize(
    ("program", "params", "expected"),
    [
        ("split", {"s": 16}, "split: s=16: input should be 32, 64 or 128"),
        ("split", {"density": 1.5}, "split: density=1.5: input should be less than or equal to 1"),
        (
            "compress",
            {"n": 10, "selected": 11},
            "compress: selected=11 must be 0..10, the elements there are",
        ),
        (
            "split_ind",
            {"dtype": "float32"},
            "split_ind: dtype=float32: input should be 'float16', 'int16' or 'uint16'",
        ),
    ],
)
def test_sizes_and_types_that_do_not_fit(program, params, expected):
    with pytest.raises(ConfigError) as caught:
        simulate(program, DEVICE, **params)
    assert str(caught.value) == expected
