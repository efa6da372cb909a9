"""The matrix product: exact on whole numbers at any size and blocking, within a bound of one's own on
fractions, on split and on coupled chips.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from npusim import load_chip, simulate
from npusim.errors import ConfigError
from npusim.program.discover import shipped_programs

TOY, DEVICE = load_chip("toy"), load_chip("ascend-910b1")
TYPES = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float32": np.float32, "int8": np.int8}
SIZES = (1, 2, 15, 16, 17, 31, 33, 65, 130)
SMALL = {"bm": 32, "bn": 64, "bk": 32, "step_a": 2, "step_b": 2}
"""Blocks that fit the toy chip in every type."""


def whole_numbers(shape, seed, low=-3, high=4):
    return np.random.default_rng(seed).integers(low, high, shape)


def run(a, b, dtype, chip=TOY, **params):
    """Return the product of whole numbers under the program, b given in the order that it wants."""
    right = b.T if params.get("b_order") == "nk" else b
    inputs = {"a": a.astype(TYPES[dtype]), "b": np.ascontiguousarray(right).astype(TYPES[dtype])}
    report = simulate("gemm", chip, inputs=inputs, **params)
    assert report.values.ok
    return report.outputs["y"], report


def choices(dtype, b_order, count):
    """Return sizes and blockings, the same in every run."""
    rng = np.random.default_rng(hash_of(dtype, b_order))
    pick = lambda *values: values[rng.integers(len(values))]  # noqa: E731
    for _ in range(count):
        yield (
            [pick(*SIZES) for _ in range(3)],
            {
                "b_order": b_order,
                "bm": pick(16, 32, 48),
                "bn": pick(32, 64),
                "bk": pick(16, 32) if dtype == "float32" else pick(32, 64),
                "step_a": pick(1, 2, 3),
                "step_b": pick(1, 2, 3),
                "l1_buffers": pick(1, 2),
                "l0_buffers": pick(1, 2),
                "order": pick("grid", "row_major", "swizzle"),
                "rounds": pick(1, 2, 3),
                "epilogue": pick("none", "relu"),
            },
        )


def hash_of(*words):
    return sum(ord(letter) * (i + 1) for i, letter in enumerate("".join(words)))


# ---- values ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("b_order", ["kn", "nk"])
@pytest.mark.parametrize("dtype", TYPES)
def test_whole_numbers_are_multiplied_exactly(dtype, b_order):
    sums = "int32" if dtype == "int8" else "float32"
    for (m, n, k), params in choices(dtype, b_order, 10):
        a, b = whole_numbers((m, k), m), whole_numbers((k, n), n)
        y, report = run(a, b, dtype, out=sums, **params)
        wanted = np.maximum(a @ b, 0) if params["epilogue"] == "relu" else a @ b
        assert y.dtype == sums
        np.testing.assert_array_equal(y, wanted, err_msg=f"{m} {n} {k} {params}")
        assert report.values.max_abs_error == 0


@pytest.mark.parametrize("dtype", TYPES)
def test_every_tail_in_every_direction(dtype):
    sums = "int32" if dtype == "int8" else "float32"
    for size in SIZES if dtype == "float16" else (1, 17, 31, 65):
        for m, n, k in ((size, 33, 40), (33, size, 40), (33, 40, size)):
            a, b = whole_numbers((m, k), size), whole_numbers((k, n), k)
            np.testing.assert_array_equal(run(a, b, dtype, out=sums, **SMALL)[0], a @ b)


def test_bytes_at_the_ends_of_their_range():
    for value, other in ((-128, -128), (-128, 127), (127, 127)):
        a, b = np.full((17, 300), value), np.full((300, 33), other)
        y, _ = run(a, b, "int8", **SMALL)
        assert (y == 300 * value * other).all()


COUPLED = [
    (chip, dtype, b_order, out)
    for chip in ("ascend-310", "ascend-910a")
    for dtype, b_order, out in (
        ("float16", "kn", "float16"),
        ("float16", "nk", "float32"),
        ("int8", "nk", "int32"),
    )
]


@pytest.mark.parametrize(("chip", "dtype", "b_order", "out"), COUPLED)
def test_coupled_cores_multiply_and_finish_in_one_stream(chip, dtype, b_order, out):
    """The 910A has too few flags for packets of both operands by themselves."""
    chip = load_chip(chip)
    assert (chip.flags.ids < 5) == (chip.name == "ascend-910a")
    for (m, n, k), params in choices(dtype, b_order, 4):
        a, b = whole_numbers((m, k), m), whole_numbers((k, n), n)
        y, report = run(a, b, dtype, chip, out=out, **params)
        wanted = np.maximum(a @ b, 0) if params["epilogue"] == "relu" else a @ b
        np.testing.assert_array_equal(y, wanted, err_msg=f"{m} {n} {k} {params}")
        work = {name.rpartition(".")[2]: pipe.work for name, pipe in report.pipes.items()}
        assert work["V"] > 0
        assert "FIX" not in work


def test_results_wider_than_half_of_ub_leave_in_pieces():
    a, b = whole_numbers((120, 20), 1), whole_numbers((20, 250), 2)
    chip = load_chip("ascend-310")
    y, report = run(a, b, "float16", chip, out="float32", epilogue="relu", cores=1)
    np.testing.assert_array_equal(y, np.maximum(a @ b, 0))
    stores = report.pipes["core0.ai0.MTE3"].instructions
    assert stores == 2 + 2 * 3  # both pieces are free at the start; wait, store, set for each


@pytest.mark.parametrize(
    ("chip", "m", "n", "k", "blocks"),
    [
        ("toy", 2, 65_540, 2, {"bm": 16, "bn": 256, "bk": 16, "step_a": 1, "step_b": 1}),
        ("toy", 2, 3, 65_540, {"bm": 16, "bn": 16, "bk": 128, "b_order": "nk"}),
        ("ascend-310", 2, 65_541, 2, {"bm": 16, "bn": 512, "bk": 32, "step_a": 1, "step_b": 1}),
    ],
)
def test_rows_further_apart_than_one_copy_takes(chip, m, n, k, blocks):
    a, b = whole_numbers((m, k), 3), whole_numbers((k, n), 4)
    y, _ = run(a, b, "float16", load_chip(chip), out="float32", **blocks)
    np.testing.assert_array_equal(y, a @ b)


# ---- rounding ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "out", "half_unit"),
    [
        ("float16", "float32", 0),
        ("float16", "float16", 2.0**-11),
        ("bfloat16", "bfloat16", 2.0**-8),
        ("float32", "float32", 0),
        ("float32", "float16", 2.0**-11),
    ],
)
def test_fractions_stay_within_what_rounding_can_do(dtype, out, half_unit):
    """Each of k additions loses at most half a unit of the magnitudes; the result is rounded once more."""
    rng = np.random.default_rng(8)
    m, n, k = 33, 70, 200
    a, b = (rng.standard_normal(s).astype(TYPES[dtype]) for s in ((m, k), (k, n)))
    report = simulate("gemm", TOY, inputs={"a": a, "b": b}, out=out, **SMALL)
    x, y = a.astype(np.float64), b.astype(np.float64)
    exact, sums = x @ y, k * 2.0**-24 * (np.abs(x) @ np.abs(y))
    bound = sums + half_unit * (np.abs(exact) + sums) + 2.0**-25
    error = np.abs(report.outputs["y"].astype(np.float64) - exact)
    assert (error <= bound).all()
    assert report.values.ok
    assert 0 < report.values.max_abs_error == error.max() <= report.values.tolerance


def test_half_results_are_rounded_once_and_saturate():
    a, b = np.full((16, 64), 31), whole_numbers((64, 32), 5, 0, 40)
    b[:, 0], b[:, 1] = 60, -60
    y, _ = run(a, b, "float16", **SMALL)
    exact = (a @ b).astype(np.float32)
    assert exact.max() > 65504
    np.testing.assert_array_equal(y, np.clip(exact, -65504, 65504).astype(np.float16))
    assert (y != exact).any()


def test_the_cube_reads_nan_as_zero_and_infinities_as_the_largest_number():
    a, b = whole_numbers((20, 40), 6).astype(np.float16), whole_numbers((40, 33), 7).astype(np.float16)
    read = a.astype(np.float64)
    for row, value, seen in ((0, np.nan, 0), (1, np.inf, 65504), (2, -np.inf, -65504)):
        a[row, 3], read[row, 3] = value, seen
    report = simulate("gemm", TOY, inputs={"a": a, "b": b}, out="float32", **SMALL)
    np.testing.assert_array_equal(report.outputs["y"], read @ b.astype(np.float64))
    assert report.values.ok


def test_a_wrong_product_is_noticed():
    """The reference is not the stream: it sees a product whose operands lie the other way round."""
    a, b = whole_numbers((40, 40), 1), whole_numbers((40, 40), 2)
    good = {"a": a.astype(np.float16), "b": b.astype(np.float16)}
    expected = shipped_programs()["gemm"].build(TOY, SMALL, good).reference(good)["y"]
    assert not (np.abs(a @ b.T - expected.value) <= expected.tolerance).all()
    np.testing.assert_array_equal(expected.value, a @ b)


# ---- who computes what -------------------------------------------------------------------------------------


def schedule(*args, **kwargs):
    return shipped_programs()["gemm"].function.__globals__["schedule"](*args, **kwargs)


@pytest.mark.parametrize("order", ["grid", "row_major", "swizzle"])
def test_every_tile_is_computed_once(order):
    for rows, columns, cores, rounds in ((1, 1, 24, 1), (7, 5, 6, 2), (64, 32, 24, 1), (3, 50, 20, 5)):
        work = schedule(rows, columns, cores, order, band=4, rounds=rounds)
        tiles = [tuple(tile) for part in work for tile in part]
        assert sorted(tiles) == [(i, j) for i in range(rows) for j in range(columns)]
        assert all(work)
        assert len(work) <= cores
        part = -(-rows // rounds)
        for tiles in work:
            assert [t.row // part for t in tiles] == sorted(t.row // part for t in tiles)


def test_the_grids_of_the_vendors_sample():
    """8192^3 in tiles of 128 x 256: areas of 2048 x 1536 on 4 x 6 cores, the last 512 wide (asc-devkit
    matmul_high_performance, case 3); left to itself the grid with the fewest tiles for one core is taken.
    """
    work = schedule(64, 32, 24, "grid", grid_m=4)
    assert sorted(map(len, work)) == [32] * 4 + [96] * 20
    assert {(t.row // 16, t.column // 6) for t in work[5]} == {(1, 1)}
    assert max(map(len, schedule(64, 32, 24, "grid"))) == 88
    assert max(map(len, schedule(64, 32, 24, "row_major"))) == 86


def test_orders_that_cores_take_turns_in():
    first = [part[0] for part in schedule(8, 6, 6, "row_major")]
    assert first == [(0, j) for j in range(6)]
    first = [part[0] for part in schedule(8, 6, 6, "swizzle", band=2)]
    assert first == [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2)]
    third = [part[2] for part in schedule(8, 6, 6, "swizzle", band=2)]
    assert third == [(2, 5), (3, 5), (2, 4), (3, 4), (2, 3), (3, 3)]


# ---- time --------------------------------------------------------------------------------------------------


def timed(**params):
    return simulate("gemm", DEVICE, timing_only=True, m=512, n=512, k=1024, cores=4, **params)


def test_the_cube_takes_521_cycles_for_a_base_block():
    """128 x 256 x 64 in a stream: 512 by rate and a head of 9 (asc-devkit matmul_high_performance)."""
    report = timed()
    for core in range(4):
        assert report.pipes[f"core{core}.cube0.M"].work == 2 * 16 * 521
    assert report.total_cycles > 2 * 16 * 521


def test_buffers_and_packets_hide_what_they_should():
    best = timed().total_cycles
    assert timed(l1_buffers=1).total_cycles > 1.2 * best
    assert timed(l0_buffers=1).total_cycles > 1.1 * best
    assert timed(step_a=1, step_b=1).total_cycles > best


# ---- parameters --------------------------------------------------------------------------------------------


def test_inputs_decide_the_sizes():
    a, b = whole_numbers((20, 30), 1), whole_numbers((30, 40), 2)
    for b_order in ("kn", "nk"):
        _, report = run(a, b, "bfloat16", b_order=b_order, **SMALL)
        assert [report.params[name] for name in ("m", "n", "k", "dtype")] == [20, 40, 30, "bfloat16"]


LARGE = (
    "2 x 278,528 bytes of l1 needed, 524,288 available on ascend-910b1; use l1_buffers=1 or smaller step_a, "
    "step_b"
)
DEEP = "2 x 65,536 bytes of l0a needed, 65,536 available on ascend-910b1; use l0_buffers=1 or smaller bm, bk"
WRONG = [
    ("toy", {"bm": 24, "bn": 64}, "bm must be a multiple of 16 for float16, not 24"),
    ("toy", {"bn": 48, "dtype": "int8"}, "bn must be a multiple of 32 for int8, not 48"),
    ("toy", {"bk": 8, "dtype": "float32"}, "bk must be a multiple of 16 for float32, not 8"),
    ("toy", {"bk": 24}, "bk must be a multiple of 16 for float16, not 24"),
    (
        "ascend-910b1",
        {"step_a": 9},
        LARGE,
    ),
    (
        "ascend-910b1",
        {"bm": 256, "bn": 128, "bk": 128, "step_a": 1, "step_b": 1},
        DEEP,
    ),
    (
        "ascend-910b1",
        {"bm": 256, "bk": 16},
        "262,144 bytes of l0c needed, 131,072 available on ascend-910b1; use smaller bm, bn",
    ),
    ("ascend-910b1", {"cores": 25}, "cores=25: ascend-910b1 has 24 AI cores; leave it out for all"),
    ("ascend-910b1", {"grid_m": 5}, "grid_m=5 does not divide the 24 cores"),
    (
        "ascend-910b1",
        {"out": "int32"},
        "float16 does not become int32 on ascend-910b1; it becomes float16 float32 bfloat16",
    ),
    (
        "ascend-310",
        {"out": "bfloat16"},
        "float16 does not become bfloat16 on ascend-310; it becomes float16 float32",
    ),
    ("ascend-310", {"dtype": "float32"}, "the cube of ascend-310 has no float32; it has float16 int8"),
    (
        "ascend-310",
        {"dtype": "int8"},
        "ascend-310 does not transpose int8 on the way to l0b; give b as n x k (b_order=nk)",
    ),
]


@pytest.mark.parametrize(("chip", "params", "message"), WRONG)
def test_what_does_not_fit_is_refused_before_anything_runs(chip, params, message):
    with pytest.raises(ConfigError) as error:
        shipped_programs()["gemm"].build(load_chip(chip), {"m": 100, "n": 100, "k": 100, **params})
    assert str(error.value) == f"gemm: {message}"
