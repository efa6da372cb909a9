"""Triangular inverses: values against exact integers, plain NumPy and published errors; counts; layouts."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from npusim import isa, load_chip, simulate
from npusim.errors import ConfigError
from npusim.program.discover import shipped_programs
from npusim.program.stream import open_stream
from npusim.study.triangular import errors, invert
from npusim.study.triangular_inputs import make

TOY, B4 = load_chip("toy"), load_chip("ascend-910b4")
CUBE = ("tri_inv_mxr", "tri_inv_mch", "tri_inv_mbh", "tri_inv_mcs", "tri_inv_newton", "tri_inv_dn")
ALL = (*CUBE, "tri_inv_vcs", "tri_inv_sub16")


def uniform(n, count, seed, scale=0.1, dtype=np.float16):
    return make("uniform", np.random.default_rng(seed), count, n, scale).astype(dtype)


def run(name, a, chip=B4, **params):
    params.setdefault("triangle", "upper")
    report = simulate(name, chip, inputs={"a": a}, **params)
    return report.outputs["t"], report


def exact(a):
    return np.linalg.inv(np.eye(a.shape[-1]) + a.astype(np.float64))


# ---- values ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("triangle", ["upper", "lower"])
@pytest.mark.parametrize("n", [16, 96, 64])
@pytest.mark.parametrize("name", ALL)
def test_inverses_of_small_numbers(name, n, triangle):
    if name in ("tri_inv_mcs", "tri_inv_vcs") and n > 16:
        n = 32
    a = uniform(n, 2, n)
    if triangle == "lower":
        a = np.ascontiguousarray(a.transpose(0, 2, 1))
    t, report = run(name, a, triangle=triangle)
    assert report.values.ok
    np.testing.assert_allclose(t.astype(np.float64), exact(a), atol=6e-4)
    error = np.abs(t.astype(np.float64) - exact(a)).max()
    if name != "tri_inv_vcs":  # whose reference is the sweep itself
        assert report.values.max_abs_error == pytest.approx(error, rel=1e-3)


@pytest.mark.parametrize(
    "name", ["tri_inv_mxr", "tri_inv_mbh", "tri_inv_mcs", "tri_inv_vcs", "tri_inv_sub16"]
)
@pytest.mark.parametrize("family", ["ones", "block_ones"])
def test_ones_are_inverted_exactly(name, family):
    """The inverse of I and strict ones has 1 on the diagonal, -1 beside it, and nothing else."""
    for n in (16, 32) if name in ("tri_inv_mcs", "tri_inv_vcs") else (16, 32, 64):
        a = make(family, np.random.default_rng(0), 1, n).astype(np.float16)
        t, report = run(name, a)
        wanted = np.eye(n) - np.eye(n, k=1) * (a[0] != 0)
        np.testing.assert_array_equal(t[0].astype(np.float64), wanted, err_msg=f"{name} {n}")
        assert report.values.ok


def test_128_ones_are_inverted_exactly_by_mxr_with_and_without_reuse():
    a = make("ones", np.random.default_rng(0), 1, 128).astype(np.float16)
    for reuse in (False, True):
        t, _ = run("tri_inv_mxr", a, reuse=reuse)
        np.testing.assert_array_equal(t[0].astype(np.float64), np.eye(128) - np.eye(128, k=1))


def test_the_product_form_overflows_on_ones():
    a = make("ones", np.random.default_rng(0), 1, 32).astype(np.float16)
    t, report = run("tri_inv_mch", a)
    assert np.isnan(t).any()
    assert report.values.ok  # nothing can be said, so nothing is compared
    first = report.not_finite.first
    assert (first.pipe, first.instruction, first.space, first.infinite) == ("FIX", "Fixpipe", "l1", 36)
    saturated, _ = run("tri_inv_mch", a, overflow="saturate")
    assert np.isfinite(saturated).all()
    assert np.abs(saturated - exact(a)).max() > 1
    blocks, report = run("tri_inv_mch", make("block_ones", None, 1, 32).astype(np.float16), block=16)
    assert report.values.max_abs_error == 0
    assert np.isfinite(blocks).all()


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize(("n", "count"), [(16, 3), (32, 2)])
def test_the_sweep_is_that_of_numpy_bit_by_bit(dtype, n, count):
    """Row by row of lower triangles, as the tests of the published kernel have it, with two roundings."""
    a = np.tril(np.random.default_rng(n).random((count, n, n)), -1).astype(dtype)
    t, report = run("tri_inv_vcs", a, triangle="lower")
    for matrix, found in zip(a, t, strict=True):
        for j in range(n):
            b = np.eye(n, dtype=dtype)[j] - matrix[j]
            for k in range(j - 1, 0, -1):
                b = b - b[k] * matrix[k]
            np.testing.assert_array_equal(found[j].view(np.uint8), (b + 0).view(np.uint8))
    assert report.values.max_abs_error == 0


@pytest.mark.parametrize(("reuse", "published"), [(False, 8.562e-5), (True, 8.290e-5)])
def test_errors_on_the_device_at_128(reuse, published):
    """Frobenius errors for 0.1 times uniform numbers, published for the device (pto-kernels, PR 238)."""
    a = uniform(128, 4, 1)
    t, report = run("tri_inv_mxr", a, reuse=reuse)
    assert errors(t, a)["frobenius"] == pytest.approx(published, rel=0.02)
    assert report.values.ok


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    ("name", "method", "params"),
    [
        ("tri_inv_mxr", "mxr", {}),
        ("tri_inv_mxr", "mxr_reuse", {"reuse": True}),
        ("tri_inv_mch", "mch", {"out": "auto"}),
        ("tri_inv_mbh", "mbh", {}),
        ("tri_inv_dn", "dn", {}),
        ("tri_inv_newton", "newton", {"out": "float16"}),
        ("tri_inv_mcs", "mcs", {}),
    ],
)
def test_programs_round_where_the_models_do(name, method, params, dtype):
    """The cube sums in another order than BLAS, so a few elements may be rounded the other way."""
    kind = isa.BF16.np if dtype == "bfloat16" else np.float16
    a = uniform(32, 2, 5, 0.5, kind)
    t, report = run(name, a, chip=TOY, **params)
    model = invert(method, a, dtype, out="float16" if method == "newton" else None)
    assert report.values.ok
    assert (t == model).mean() > 0.98
    assert errors(t, a)["frobenius"] == pytest.approx(errors(model, a)["frobenius"], rel=0.05)


@pytest.mark.parametrize("out", ["float16", "bfloat16", "float32"])
def test_outputs_of_every_type(out):
    t, report = run("tri_inv_mxr", uniform(32, 1, 2), chip=TOY, out=out)
    assert t.dtype.name == out
    assert report.values.ok


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("family", ["zeros", "correlated_keys", "gated_keys"])
def test_families_stay_within_their_bounds(name, family):
    n = 16 if name in ("tri_inv_mcs", "tri_inv_vcs") else 32
    report = simulate(name, B4, n=n, batch=2, family=family)
    assert report.values.ok
    if family == "zeros" and name != "tri_inv_newton":
        assert report.values.max_abs_error == 0


@pytest.mark.parametrize("triangle", ["upper", "lower"])
@pytest.mark.parametrize("merge", ["blocks", "doubling"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_the_baseline_is_accurate_in_float32(dtype, merge, triangle):
    kind = isa.BF16.np if dtype == "bfloat16" else dtype
    a = uniform(64, 2, 6, 0.5, kind)
    a = np.ascontiguousarray(a.transpose(0, 2, 1)) if triangle == "lower" else a
    t, report = run("tri_inv_sub16", a, merge=merge, triangle=triangle)
    assert report.values.ok
    assert np.abs(t - exact(a)).max() < 2e-6


def test_the_order_of_products_changes_no_value():
    a = uniform(64, 3, 8)
    first, earlier = run("tri_inv_mxr", a, chip=TOY)
    last, later = run("tri_inv_mxr", a, chip=TOY, squares="last")
    np.testing.assert_array_equal(first, last)
    assert later.total_cycles != earlier.total_cycles
    for buffers in (3, 4):
        t, _ = run("tri_inv_mxr", a[:, :32, :32].copy(), chip=TOY, buffers=buffers)
        np.testing.assert_array_equal(t, run("tri_inv_mxr", a[:, :32, :32].copy(), chip=TOY)[0])


# ---- layouts -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("triangle", ["upper", "lower"])
def test_packed_sequences_with_short_ends(triangle):
    """Every chunk of every head is inverted by itself; what no chunk covers stays as it was."""
    n, heads, lengths = 16, 3, (1, 15, 16, 17, 40)
    rng = np.random.default_rng(7)
    a = np.zeros((sum(lengths), heads, n), np.float16)
    wanted = np.full(a.shape, 7.0)
    start = 0
    for length in lengths:
        for at in range(start, start + length, n):
            rows = min(n, start + length - at)
            for head in range(heads):
                one = np.triu(0.2 * rng.random((rows, rows)), 1)
                one = (one if triangle == "upper" else one.T).astype(np.float16)
                a[at : at + rows, head, :rows] = one
                wanted[at : at + rows, head, :rows] = exact(one)
        start += length
    before = np.full(a.shape, 7.0, np.float32)
    report = simulate(
        "tri_inv_mxr",
        TOY,
        inputs={"a": a, "t": before},
        triangle=triangle,
        out="float32",
        lengths=",".join(map(str, lengths)),
    )
    assert report.values.ok
    np.testing.assert_allclose(report.outputs["t"], wanted, atol=2e-3)
    assert (report.outputs["t"] == 7).sum() == (wanted == 7).sum()


def test_heads_first_and_sequences_first_are_the_same_inverses():
    a = uniform(32, 6, 3)
    flat, _ = run("tri_inv_mxr", a, chip=TOY)
    by_tokens = np.ascontiguousarray(a.reshape(3, 2, 32, 32).transpose(0, 2, 1, 3).reshape(96, 2, 32))
    t, report = run("tri_inv_mxr", by_tokens, chip=TOY)
    assert report.values.ok
    np.testing.assert_array_equal(t.reshape(3, 32, 2, 32).transpose(0, 2, 1, 3).reshape(a.shape), flat)


@pytest.mark.parametrize("batch", [1, 2, 3, 5, 9])
def test_any_batch(batch):
    for name in ("tri_inv_mxr", "tri_inv_sub16"):
        report = simulate(name, B4, n=16, batch=batch)
        assert report.values.ok


# ---- what it costs -----------------------------------------------------------------------------------------


def instructions(name, chip, batch=1, **params):
    program = shipped_programs()[name].build(chip, {"batch": batch, **params})
    (launch,) = program.launches
    reader = open_stream(chip, launch, next(iter(launch.streams)))
    found = []
    while (op := reader.fetch(None)) is not None:
        found.append(op)
    return found


def of_one(name, chip, **params):
    """Return how often each kind of instruction is there for the second matrix of a core."""
    one, two = (Counter(map(kind, instructions(name, chip, batch, **params))) for batch in (1, 2))
    return two - one


def kind(op):
    word = op.mnemonic
    if word == "Fixpipe":
        return f"to {op.dst.space.short}"
    return word


@pytest.mark.parametrize(
    ("n", "mmads", "steps", "moves", "extracts", "kept"),
    [
        (16, 12, 12, 17, 2, 8),
        (32, 16, 128, 23, 6, 9),
        (64, 20, 1280, 27, 20, 11),
        (128, 24, 12288, 31, 72, 13),
    ],
)
def test_work_of_mxr(n, mmads, steps, moves, extracts, kept):
    """Counted from the published kernel: products and their cycles, whole moves and single fractals, moves to
    L1. With n=16 the kernel makes two moves for a recursion that never starts; the program does not.
    """
    one_core = load_chip("ascend-910b4").model_copy(update={"cores": TOY.cores})
    found = of_one("tri_inv_mxr", one_core, n=n)
    assert found["Mmad"] == mmads
    assert mmads * (n // 16) ** 3 == steps
    assert (found["LoadData3D"], found["LoadData2D"]) == (moves, extracts)
    assert (found["to l1"], found["to gm"]) == (kept, 1)
    assert of_one("tri_inv_mxr", one_core, n=n, reuse=True)["Mmad"] == mmads - 3


@pytest.mark.parametrize(("n", "mmads"), [(16, 38), (64, 38), (128, 44)])
def test_work_of_newton(n, mmads):
    one_core = load_chip("ascend-910b4").model_copy(update={"cores": TOY.cores})
    assert of_one("tri_inv_newton", one_core, n=n)["Mmad"] == mmads


def test_two_buffers_of_128_fill_l0_and_a_third_is_refused():
    message = r"l0a: 98,304 bytes needed, 65,536 available on ascend-910b4; use smaller tiles$"
    with pytest.raises(ConfigError, match=message):
        simulate("tri_inv_mxr", B4, n=128, batch=1, buffers=3)
    ends = {"l0a": 0, "l0b": 0, "l0c": 0}
    for op in instructions("tri_inv_mxr", B4, n=128):
        for access in (*op.reads(isa.State()), *op.writes(isa.State())):
            if access.space.short in ends:
                ends[access.space.short] = max(ends[access.space.short], access.runs()[-1][1])
    assert ends == {"l0a": 64 << 10, "l0b": 64 << 10, "l0c": 128 << 10}


def test_reuse_is_faster_and_newton_costs_about_twice_as_much():
    """With four matrices in turn and more, as the kernels are made for."""
    runs = {
        "mxr": ("tri_inv_mxr", {}),
        "reuse": ("tri_inv_mxr", {"reuse": True}),
        "newton": ("tri_inv_newton", {}),
    }
    times = {
        key: simulate(name, B4, n=128, batch=240, timing_only=True, **params).total_cycles
        for key, (name, params) in runs.items()
    }
    assert times["reuse"] < times["mxr"]
    assert 1.6 < times["newton"] / times["mxr"] < 2.2


def test_mxr_is_several_times_as_fast_as_the_baseline():
    """Published for n=64 (arXiv 2605.21325): up to 4.3 times; 135 and 569 us for 1024 matrices."""
    times = [
        simulate(name, B4, n=64, batch=80, timing_only=True, triangle="lower").total_cycles
        for name in ("tri_inv_mxr", "tri_inv_sub16")
    ]
    assert 2.5 < times[1] / times[0] < 4.5


# ---- what is wrong -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"lengths": "3"}, "lengths=3: only layout=seq_first has heads and sequences"),
        ({"heads": 2}, "heads=2: only layout=seq_first has heads and sequences"),
        ({"layout": "seq_first", "lengths": "3,x"}, "lengths=3,x: numbers of 1 or more with commas are "),
        ({"layout": "seq_first", "lengths": "3,0"}, "lengths=3,0: numbers of 1 or more with commas are "),
        ({"layout": "seq_first", "heads": 3}, "batch=80 is no multiple of heads=3"),
        ({"layout": "seq_first", "heads": 2000}, "heads=2000: rows lie 128000 elements apart, a copy takes "),
    ],
)
def test_bad_layouts(params, message):
    with pytest.raises(ConfigError, match=f"^tri_inv_mxr: {message}"):
        simulate("tri_inv_mxr", TOY, **params)


@pytest.mark.parametrize("name", ["tri_inv_mxr", "tri_inv_mch", "tri_inv_sub16"])
def test_matrices_that_are_not_strictly_triangular(name):
    a = uniform(16, 2, 1)
    a[1, 5, 5] = 0.5
    message = (
        f"{name}: input a: matrix 1 has 0.5 in row 5, column 5, but must be strictly upper triangular; the "
        f"identity is not part of it"
    )
    with pytest.raises(ConfigError) as caught:
        run(name, a)
    assert str(caught.value) == message
    with pytest.raises(ConfigError, match="in row 0, column 1, but must be strictly lower triangular"):
        run(name, uniform(16, 1, 1), triangle="lower")


def test_nan_and_infinities_leave_the_other_matrices_alone():
    a = uniform(16, 3, 4)
    a[0, 2, 7], a[2, 1, 3] = np.nan, np.inf
    t, report = run("tri_inv_mxr", a, chip=TOY)
    assert report.values.ok
    assert np.isfinite(t[1]).all()
    assert not np.isfinite(t[0]).all()
    assert not np.isfinite(t[2]).all()
    saturated, _ = run("tri_inv_mxr", a, chip=TOY, overflow="saturate")
    assert np.isfinite(saturated).all()
    np.testing.assert_array_equal(saturated[1], t[1])


def test_a_wrong_inverse_is_noticed():
    a = uniform(32, 1, 9)
    expected = shipped_programs()["tri_inv_mxr"].build(TOY, {"n": 32}, {"a": a}).reference({"a": a})["t"]
    np.testing.assert_allclose(expected.value, exact(a), atol=1e-12)
    wrong = exact(a).copy()
    wrong[0, 3, 9] += 0.01
    assert (np.abs(wrong - expected.value) > expected.tolerance).sum() == 1


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_sweep_that_saturates_is_compared_where_all_is_finite(value):
    a = np.zeros((3, 16, 16), np.float16)
    a[1, 5, 2] = value
    report = simulate("tri_inv_vcs", "toy", inputs={"a": a}, overflow="saturate")
    assert (report.values.ok, report.values.not_compared) == (True, 256)
    report = simulate("tri_inv_vcs", "toy", inputs={"a": a})
    assert (report.values.ok, report.values.not_compared) == (True, 0)
