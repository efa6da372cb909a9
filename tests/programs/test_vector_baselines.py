"""Baselines without the cube: masked select on the scalar unit, and scans of rows by CumSum."""

from __future__ import annotations

import numpy as np
import pytest

from npusim import load_chip, simulate
from npusim.errors import ConfigError

DEVICE = load_chip("ascend-910b4", overrides={"cores.cube": 2})


@pytest.mark.parametrize("dtype", ["float16", "float32", "uint32"])
def test_masked_select(dtype):
    for n in (1, 251, 600):
        bits = np.random.default_rng(n).integers(0, 256, n * np.dtype(dtype).itemsize).astype(np.uint8)
        x = bits.view(dtype)
        for density in (0, 0.01, 0.5, 1):
            mask = (np.random.default_rng(n).random(n) < density).astype(np.int8)
            report = simulate("compress_scalar", DEVICE, inputs={"x": x, "mask": mask}, tile=256)
            kept = [i for i in range(n) if mask[i]]
            wanted = x[kept] if kept else np.zeros(1, dtype)
            assert report.outputs["y"].tobytes() == wanted.tobytes()
            assert report.values.ok


def test_masked_select_costs_scalar_work_for_every_element():
    """A read of the mask and the loop for all, a read and a write more for those that are kept."""
    scalar = DEVICE.scalar
    read = scalar.ub_read_cycles
    cycles = {d: simulate("compress_scalar", DEVICE, n=3000, density=d).total_cycles for d in (0, 1)}
    least = 3000 * (read + 2 * scalar.alu_cycles)
    assert least < cycles[0] < 1.5 * least
    moved = 3000 * (read + scalar.ub_write_cycles)
    assert cycles[1] - cycles[0] == pytest.approx(moved, rel=0.02)
    report = simulate("compress_scalar", DEVICE, n=3000, density=0.3)
    alone = simulate("compress_scalar", DEVICE, n=3000, density=0.3, timing_only=True)
    assert alone.total_cycles == report.total_cycles  # one tile holds all, so only their number counts


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_rows_of_whole_numbers_are_exact(dtype):
    rng = np.random.default_rng(0)
    for batch, length in ((1, 1), (3, 251), (5, 256), (2, 257), (6, 16), (5, 700)):
        x = rng.integers(-3, 4, (batch, length)).astype(dtype)
        report = simulate("scan_batch_vec", DEVICE, inputs={"x": x}, s=16)
        np.testing.assert_array_equal(report.outputs["y"], np.cumsum(x.astype(np.int64), axis=1))
        assert report.values.ok
        assert report.values.max_abs_error == 0


def test_nan_and_infinities_stay_in_their_row():
    x = np.ones((4, 300), np.float16)
    x[1, 7], x[2, 9], x[2, 280] = np.nan, np.inf, -np.inf
    y = simulate("scan_batch_vec", DEVICE, inputs={"x": x}, s=16).outputs["y"]
    np.testing.assert_array_equal(y[[0, 3]], np.tile(np.arange(1, 301), (2, 1)))
    assert np.isfinite(y[1, :7]).all()
    assert np.isnan(y[1, 7:]).all()
    assert np.isfinite(y[2, :9]).all()
    assert (y[2, 9:280] == np.inf).all()
    assert np.isnan(y[2, 280:]).all()


def test_cores_share_the_rows():
    params = {"batch": 8, "length": 256, "s": 16}
    one, all_ = (simulate("scan_batch_vec", DEVICE, cores=c, **params) for c in (1, 4))
    assert 3.5 < one.total_cycles / all_.total_cycles <= 4
    assert one.outputs["y"].tobytes() == all_.outputs["y"].tobytes()


@pytest.mark.parametrize(
    ("program", "params", "expected"),
    [
        (
            "scan_batch_vec",
            {"cores": 5},
            "scan_batch_vec: cores=5: ascend-910b4 has 4 vector cores; leave it out for all",
        ),
        (
            "compress_scalar",
            {"n": 9, "selected": 10},
            "compress_scalar: selected=10 must be 0..9, the elements there are",
        ),
    ],
)
def test_what_does_not_fit(program, params, expected):
    with pytest.raises(ConfigError) as caught:
        simulate(program, DEVICE, **params)
    assert str(caught.value) == expected
