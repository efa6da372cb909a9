"""The copy: every bit of every type, tiles that fit and tails that do not, one tile in flight or two."""

from __future__ import annotations

import numpy as np
import pytest

from npusim import load_chip, simulate
from npusim.errors import ConfigError

TOY = load_chip("toy")
TYPES = ["float16", "float32", "int8", "int32"]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("buffers", [1, 2])
def test_every_bit_arrives(dtype, buffers):
    """Random bytes hold NaN with payloads, subnormal numbers and both zeros."""
    size = np.dtype(dtype).itemsize
    for n in (1, 2, 31, 32, 33, 127, 128, 129, 1009, 5 * 128 + 7):
        x = np.frombuffer(np.random.default_rng(n).bytes(n * size), dtype)
        report = simulate("memcopy", TOY, inputs={"x": x}, tile=128, buffers=buffers)
        assert report.outputs["y"].tobytes() == x.tobytes()
        assert report.outputs["y"].dtype == x.dtype
        assert report.values.ok
        assert report.gm.read_bytes == report.gm.write_bytes == n * size
        assert report.gm.useful_bytes == 2 * n * size


def test_two_tiles_in_flight_are_faster_than_one():
    cycles = {
        buffers: simulate("memcopy", TOY, n=40960, tile=2048, buffers=buffers).total_cycles
        for buffers in (1, 2)
    }
    assert cycles[2] < 0.7 * cycles[1]


def test_a_tile_may_be_larger_than_the_array_or_not_fit_the_buffer():
    assert simulate("memcopy", TOY, n=5, tile=16384).values.ok
    with pytest.raises(
        ConfigError,
        match=r"core0\.vec0: ub: 80,000 bytes needed, 65,536 available on toy; use smaller tiles$",
    ):
        simulate("memcopy", TOY, n=5, tile=20000)


@pytest.mark.parametrize("name", ["n", "tile"])
def test_sizes_are_positive(name):
    with pytest.raises(ConfigError, match=rf"^memcopy: {name}=0: input should be greater than 0$"):
        simulate("memcopy", TOY, **{name: 0})
