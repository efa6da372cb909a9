"""Reads tile by tile: the values that arrive, the bytes that move, and the order of the cores."""

from __future__ import annotations

import numpy as np
import pytest

from npusim import load_chip, simulate
from npusim.errors import ConfigError

TOY, DEVICE = load_chip("toy"), load_chip("ascend-910b1")
SHAPES = [(1, 1, 1, 1), (2, 3, 1, 2), (37, 19, 5, 7), (64, 48, 16, 16), (53, 40, 64, 64), (48, 33, 16, 32)]
"""Extents of a matrix and of its tiles."""


@pytest.mark.parametrize("to", ["ub", "l1"])
@pytest.mark.parametrize("order", ["same", "staggered"])
@pytest.mark.parametrize(("m", "n", "tile_m", "tile_n"), SHAPES)
def test_all_cores_read_all(to, order, m, n, tile_m, tile_n):
    x = np.arange(m * n, dtype=np.float16).reshape(m, n)
    report = simulate("same_address", TOY, inputs={"x": x}, tile_m=tile_m, tile_n=tile_n, to=to, order=order)
    cores = 2 if to == "ub" else 1
    unit = 2 * 16 * 16 if to == "l1" else 0  # the unit matrix, through which halves leave the cube
    assert report.gm.read_bytes == cores * x.nbytes + unit
    rows = -(-m // cores)
    blocks = [x[at : at + rows] for at in range(0, m, rows)]
    for core in range(cores):
        last = blocks[(core - 1) % len(blocks)] if order == "staggered" else blocks[-1]
        last = last[(len(last) - 1) // tile_m * tile_m :, (n - 1) // tile_n * tile_n :][0]
        words = report.outputs["y"].shape[1]
        assert words == min(16, len(last))
        np.testing.assert_array_equal(report.outputs["y"][core], last[:words])
    assert report.values.ok


@pytest.mark.parametrize("to", ["ub", "l1"])
@pytest.mark.parametrize(("repeat", "slices"), [(1, 1), (2, 1), (1, 3), (3, 2)])
def test_cores_share_the_rows(to, repeat, slices):
    for m, n, tile_m, tile_n in SHAPES:
        x = np.arange(m * n, dtype=np.float16).reshape(m, n)
        params = {"tile_m": tile_m, "tile_n": tile_n, "to": to, "repeat": repeat, "slices": slices}
        report = simulate("read_tiles", TOY, inputs={"x": x}, **params)
        cores = len(report.outputs["y"])
        assert cores == min(m, 2 if to == "ub" else 1)
        assert report.gm.read_bytes == repeat * x.nbytes + (512 * cores if to == "l1" else 0)
        assert report.values.ok


def test_what_is_not_finite_arrives_in_the_buffer_and_is_saturated_by_the_cube():
    x = np.array([[np.nan, np.inf, -np.inf, -0.0]], np.float16)
    buffer = simulate("read_tiles", TOY, inputs={"x": x})
    np.testing.assert_array_equal(buffer.outputs["y"], x)
    cube = simulate("read_tiles", TOY, inputs={"x": x}, to="l1")
    assert cube.outputs["y"].tolist() == [[0, 65504, -65504, 0]]
    assert buffer.values.ok
    assert cube.values.ok


def test_a_slice_that_fits_the_cache_is_read_from_main_memory_once():
    """2 MiB twice over: as a whole they do not fit the 1 MiB of the toy's cache, in four slices they do."""
    params = {"m": 64, "n": 16384, "tile_m": 8, "tile_n": 2048, "repeat": 2}
    whole = simulate("read_tiles", TOY, timing_only=True, **params)
    sliced = simulate("read_tiles", TOY, timing_only=True, slices=4, **params)
    assert whole.gm.hbm_read_bytes == whole.gm.read_bytes == 4 << 20
    assert sliced.gm.hbm_read_bytes == 2 << 20
    assert sliced.total_cycles < whole.total_cycles


@pytest.mark.parametrize(
    ("to", "cores", "message"),
    [
        ("ub", 3, "cores=3: toy has 2 vector cores; leave it out for all"),
        ("l1", 2, "cores=2: toy has 1 cube cores; leave it out for all"),
    ],
)
@pytest.mark.parametrize("name", ["same_address", "read_tiles"])
def test_cores_that_are_not_there(name, to, cores, message):
    with pytest.raises(ConfigError, match=rf"^{name}: {message}$"):
        simulate(name, TOY, to=to, cores=cores)


def test_tiles_that_do_not_fit():
    with pytest.raises(
        ConfigError,
        match=r"^\S+same_address\.py:\d+: core0\.vec0: ub: 131,072 bytes needed, 65,536 available on toy; "
        "use smaller tiles$",
    ):
        simulate("read_tiles", TOY, m=512, n=256, tile_m=256, tile_n=256)
