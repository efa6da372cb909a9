"""The path programs: exact values at every size, and the rates that JPDC 175 (2023) measures on a 310."""

from __future__ import annotations

import numpy as np
import pytest

from npusim import load_chip, simulate
from npusim.errors import ConfigError
from npusim.machine.timing.account import Cause

TOY, COUPLED = load_chip("toy"), load_chip("ascend-310")
L0_PATHS = ["l1_to_l0a", "l1_to_l0b"]
PATHS = [*L0_PATHS, "vector_move", "vector_move_cast"]


def gb_per_s(nbytes, cycles):
    return nbytes / cycles * COUPLED.clock_mhz / 1000


def slope(program, name, sizes, **params):
    """Return the data per cycle between two sizes."""
    small, large = (simulate(program, COUPLED, **{name: size}, **params).total_cycles for size in sizes)
    return (sizes[1] - sizes[0]) / (large - small)


# ---- values ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", L0_PATHS)
@pytest.mark.parametrize("nbytes", [512, 7 * 512, 16384])
@pytest.mark.parametrize("count", [1, 3])
def test_the_tile_moved_last_is_multiplied(path, nbytes, count):
    x = np.random.default_rng(nbytes).normal(size=(2, 512, 16)).astype(np.float16)
    report = simulate("path_repeat", TOY, inputs={"x": x}, path=path, nbytes=nbytes, count=count)
    wanted = np.concatenate([x[1, : nbytes // 32], x[0, nbytes // 32 :]]).astype(np.float32)
    np.testing.assert_array_equal(report.outputs["y"], [wanted.T if path == "l1_to_l0b" else wanted])
    assert report.values.ok


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("nbytes", [1024, 5 * 1024, 65536])
def test_the_tile_moved_last_is_stored_by_every_coupled_core(path, nbytes):
    x = np.random.default_rng(nbytes).normal(size=(2, 2048, 16)).astype(np.float16)
    x[1, :4, 0] = np.nan, np.inf, -np.inf, -0.0
    report = simulate("path_repeat", COUPLED, inputs={"x": x}, path=path, nbytes=nbytes, count=2, cores=2)
    moved = nbytes // (64 if path.startswith("vector") else 32)
    wanted = np.concatenate([x[1, :moved], x[0, moved:]])
    wanted[:4, 0] = 0.0, 65504.0, -65504.0, 0.0
    wanted = wanted.T if path == "l1_to_l0b" else wanted
    for y in report.outputs["y"]:
        np.testing.assert_array_equal(y, wanted.astype(y.dtype))
    assert report.outputs["y"].dtype == (np.float16 if path == "vector_move_cast" else np.float32)
    assert report.values.ok


@pytest.mark.parametrize("init", [False, True])
@pytest.mark.parametrize(("chip", "blocks"), [(TOY, 1), (TOY, 9), (TOY, 32), (COUPLED, 10), (COUPLED, 128)])
def test_products_add_up_or_start_from_zero(chip, blocks, init):
    report = simulate("cube_repeat", chip, blocks=blocks, count=3, init=init, seed=blocks)
    assert report.values.ok
    assert report.values.max_abs_error == 0
    room = report.outputs["y"].shape[1]
    assert report.cube.macs == (room + 3 * 16 * blocks) * 16 * 16


@pytest.mark.parametrize("moves", ["both", "loads", "stores"])
@pytest.mark.parametrize(("chip", "cores"), [(TOY, 2), (COUPLED, 1), (COUPLED, 2)])
def test_pieces_arrive(moves, chip, cores):
    for count, nbytes in ((1, 32), (2, 96), (7, 16384), (40, 8192)):
        report = simulate("bus_share", chip, moves=moves, cores=cores, count=count, nbytes=nbytes)
        assert report.values.ok
        assert report.outputs["y"].shape == (cores, count if moves != "loads" else 1, nbytes)
        assert report.gm.read_bytes == cores * nbytes * (1 + (count if moves != "stores" else 1))
        assert report.gm.write_bytes == cores * nbytes * (1 + (count if moves != "loads" else 1))


@pytest.mark.parametrize(
    ("program", "chip", "params", "message"),
    [
        (
            "path_repeat",
            TOY,
            {"path": "vector_move_cast"},
            "path_repeat: path=vector_move_cast moves L0C to UB, which toy cannot; use a coupled chip",
        ),
        (
            "path_repeat",
            TOY,
            {"nbytes": 520},
            "path_repeat: nbytes=520 must be whole fractals of 512 bytes, and at most 16,384 on toy",
        ),
        (
            "path_repeat",
            COUPLED,
            {"nbytes": 131072 + 1024, "path": "vector_move"},
            (
                "path_repeat: nbytes=132096 must be whole fractals of 1024 bytes, and at most 131,072 on "
                "ascend-310"
            ),
        ),
        ("cube_repeat", TOY, {"blocks": 33}, "cube_repeat: blocks=33 must be at most 32 on toy"),
        (
            "bus_share",
            TOY,
            {"nbytes": 40000},
            "bus_share: nbytes=40000 must fit UB of toy twice; use smaller pieces",
        ),
    ],
)
def test_what_does_not_fit_is_refused(program, chip, params, message):
    with pytest.raises(ConfigError) as caught:
        simulate(program, chip, **params)
    assert str(caught.value) == message


# ---- measured rates ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "measured"),
    [("l1_to_l0a", 347.99), ("l1_to_l0b", 174.37), ("vector_move", 174.06), ("vector_move_cast", 174.09)],
)
@pytest.mark.parametrize("cores", [1, 2])
def test_paths_of_the_310(path, measured, cores):
    """GB/s of JPDC 175 (2023), Table 2; two cores have twice the rate, and the cast is free."""
    count = 8
    rate = slope(
        "path_repeat", "nbytes", (16384, 65536), path=path, count=count, cores=cores, timing_only=True
    )
    assert cores * gb_per_s(count * rate, 1) == pytest.approx(cores * measured, rel=0.03)


@pytest.mark.parametrize(("init", "measured"), [(False, 5390.32), (True, 5397.34)])
def test_the_cube_of_the_310(init, measured):
    """GFLOPS of JPDC 175 (2023), Table 2, which counts 7936 operations for a block of 16x16x16."""
    rate = slope("cube_repeat", "blocks", (32, 128), init=init, timing_only=True)
    assert gb_per_s(8 * rate * 7936, 1) == pytest.approx(measured, rel=0.03)


def test_the_launch_of_the_310():
    """2354.5 ns in JPDC 175 (2023), Table 2, seen from the host."""
    report = simulate("launch_empty", COUPLED)
    assert (report.time_us + report.host_overhead_us) * 1000 == pytest.approx(2354.5, rel=0.1)


def bus(count, **params):
    """Return bytes moved, cycles, and by mover the cycle at which it was done."""
    report = simulate("bus_share", COUPLED, count=count, timing_only=True, **params)
    ends = {
        clock.name: clock.cursor
        for clock in report.timings[0].clocks
        if clock.pipe.name in ("MTE2", "MTE3") and clock.cycles[Cause.WORK] > 1000
    }
    return report.gm.read_bytes + report.gm.write_bytes, report.total_cycles, ends


@pytest.mark.parametrize(("moves", "cores", "movers"), [("both", 2, 4), ("loads", 2, 2), ("both", 1, 2)])
def test_the_bus_of_the_310_is_shared_equally(moves, cores, movers):
    """About 42 GB/s in total behind L2, reads and writes together (JPDC 175 (2023), sections 4.2-4.3)."""
    size, counts = 16384, (320, 640) if cores == 2 else (640, 1280)
    small, large = (bus(count, moves=moves, cores=cores, nbytes=size) for count in counts)
    assert gb_per_s(large[0] - small[0], large[1] - small[1]) == pytest.approx(42, rel=0.03)
    shares = [gb_per_s(size * (counts[1] - counts[0]), large[2][m] - small[2][m]) for m in large[2]]
    busy = [share for share, name in zip(shares, large[2], strict=True) if moves == "both" or "MTE2" in name]
    assert len(busy) == movers
    assert busy == pytest.approx([42 / movers] * movers, rel=0.03)
