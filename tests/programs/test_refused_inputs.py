"""Arrays and parameters that a program cannot use are refused before anything runs."""

from __future__ import annotations

import numpy as np
import pytest

from npusim import load_chip, simulate
from npusim.errors import ConfigError
from npusim.program.discover import find_program, shipped_programs
from npusim.report.values_run import FunctionalRun

DEVICE = load_chip("ascend-910b4", overrides={"cores.cube": 2})
WEIGHTS = np.full(300, 2.0**-9, np.float16)
MASKED = {"split": "float16", "split_ind": "int16", "compress": "float32", "compress_scalar": "uint16"}
INVERSES = [f"tri_inv_{method}" for method in ("mxr", "mch", "mbh", "mcs", "vcs", "newton", "dn", "sub16")]


def with_one(array, at, value):
    """Return a copy with another element."""
    changed = array.copy()
    changed[at] = value
    return changed


@pytest.fixture
def refused(monkeypatch):
    """Return what tells why a program refuses inputs, and fails where a launch ran."""

    def ran(*_):
        raise AssertionError("a launch ran")

    monkeypatch.setattr(FunctionalRun, "run", ran)

    def why(name, inputs=None, **params):
        found = set()
        for timing_only in (False, True):
            with pytest.raises(ConfigError) as caught:
                simulate(name, DEVICE, inputs=inputs, timing_only=timing_only, **params)
            found.add(str(caught.value))
        (text,) = found
        return text

    return why


@pytest.mark.parametrize("name", MASKED)
def test_masks_hold_zeros_and_ones(refused, name):
    """Another number would be counted as so many elements."""
    for value in (2, -1, 127):
        mask = np.array([0, 1, 0, value, 1, value], np.int8)
        text = refused(name, {"x": np.ones(6, MASKED[name]), "mask": mask})
        assert text == f"{name}: input mask must hold zeros and ones, but element 3 is {value}"


@pytest.mark.parametrize("name", MASKED)
def test_masks_of_another_length(refused, name):
    """Whether there are more ones than elements or fewer, and in whatever order they are given."""
    for mask in (np.ones(1009, np.int8), np.zeros(1009, np.int8)):
        x = np.ones(1, MASKED[name])
        for inputs in ({"mask": mask, "x": x}, {"x": x, "mask": mask}):
            text = refused(name, inputs)
            assert text == f"{name}: input mask has 1009 elements, but x has 1; give as many"


@pytest.mark.parametrize("name", ["topp", "topp_vec", "weighted_sample"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, -1.0, -0.0])
def test_weights(refused, name, value):
    what = "weights" if name == "weighted_sample" else "probabilities"
    text = refused(name, {"x": with_one(WEIGHTS, 7, value)})
    assert text == f"{name}: input x: {what} must be finite and 0 or more, but element 7 is {value}"


@pytest.mark.parametrize("name", ["topp", "topp_vec"])
def test_no_probability(refused, name):
    text = refused(name, {"x": np.zeros(5, np.float16)})
    assert text == f"{name}: input x: one probability or more must be above 0, but all are 0"


def test_whole_weights(refused):
    text = refused("weighted_sample", {"x": np.array([1, -1], np.int8)})
    assert text == "weighted_sample: input x: weights must be finite and 0 or more, but element 1 is -1"
    text = refused("weighted_sample", {"x": np.full(16_909_321, 127, np.int8)})
    rule = "weights must add up to less than 2^31"
    assert text == f"weighted_sample: input x: {rule}, but add up to 2147483767"


@pytest.mark.parametrize("name", INVERSES)
def test_matrices_are_strictly_triangular(refused, name):
    a = np.zeros((9, 32, 32), np.float16)
    for at, value, words in (
        ((0, 0, 0), 1, "0 has 1 in row 0, column 0"),
        ((8, 5, 2), np.nan, "8 has nan in row 5, column 2"),
    ):
        text = refused(name, {"a": with_one(a, at, value)}, triangle="upper")
        assert text == (
            f"{name}: input a: matrix {words}, but must be strictly upper triangular; "
            f"the identity is not part of it"
        )
    text = refused(name, {"a": with_one(a, (8, 2, 5), 1)}, triangle="lower")
    assert "matrix 8 has 1 in row 2, column 5, but must be strictly lower" in text


@pytest.mark.parametrize("name", INVERSES)
def test_matrices_that_no_memory_holds(refused, name):
    text = refused(name, batch=10**12, n=32)
    assert text == (
        f"{name}: batch=1000000000000: ascend-910b4 has 34,359,738,368 bytes of global memory, "
        f"which is less than so many matrices of n=32"
    )


def test_tokens_that_no_memory_holds(refused):
    for params in ({"length": 10**12, "sequences": 10**12}, {"lengths": "1,999999999999999999999999"}):
        tokens = "1,000,000,000,000,000,000,000,000"
        text = refused("gdn_layer", heads=4, value_dim=128, **params)
        rule = "memory holds 33,554,432 tokens of so many heads at most"
        assert text == f"gdn_layer: {rule}, not {tokens}"
    text = refused("tri_inv_mxr", layout="seq_first", heads=2, lengths="9999999999", n=16)
    room = "ascend-910b4 has 34,359,738,368 bytes of global memory"
    assert text == (f"tri_inv_mxr: lengths=9999999999: {room}, which is less than so many tokens of 2 heads")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_scales_are_finite(refused, value):
    for name in INVERSES:
        assert refused(name, scale=value) == f"{name}: scale={value}: input should be a finite number"
    assert refused("tri_inv_newton", start=value).endswith("input should be a finite number")


def test_a_start_that_the_type_does_not_hold(refused):
    assert refused("tri_inv_newton", start=1e5) == "tri_inv_newton: 100000 is too large for float16; use less"


@pytest.mark.parametrize("name", ["radix_sort", "scan_batch", "topk_vec", "sort_vec", "topp"])
def test_inputs_by_another_name(refused, name):
    assert refused(name, {"xs": WEIGHTS}) == f"{name}: no input xs; did you mean x?; inputs: x"


def test_inputs_that_are_no_arrays(refused):
    assert refused("topk", {"x": [1.0, 2.0]}) == "topk: input x must be a NumPy array, not list"
    assert (
        refused("seg_sum", {"offsets": None}) == "seg_sum: input offsets must be a NumPy array, not NoneType"
    )


@pytest.mark.parametrize("name", shipped_programs())
def test_inputs_of_another_rank(refused, name):
    """Each input in turn, with a dimension too few or too many; of one type, which the program takes."""
    declared = find_program(name).build(DEVICE).inputs
    for spec in declared:
        rank = len(spec.shape)
        for shape in ((32,) * (rank - 1), (32,) * (rank + 1), (1,) * (rank + 1)):
            if not shape:
                continue
            inputs = {s.name: np.zeros((32,) * len(s.shape), s.dtype.np) for s in declared}
            needed = "1 dimension is" if rank == 1 else f"{rank} dimensions are"
            text = refused(name, {**inputs, spec.name: np.zeros(shape, spec.dtype.np)})
            rule = f"{name}: input {spec.name} has shape {shape}, but {needed} needed, as in ("
            assert text.startswith(rule)
            assert text.endswith("); reshape it")


def test_ranks_as_users_met_them(refused):
    text = refused("tri_inv_mxr", {"a": np.zeros((64, 64), np.float16)})
    rule = "has shape (64, 64), but 3 dimensions are needed, as in (80, 64, 64); reshape it"
    assert text == f"tri_inv_mxr: input a {rule}"
    text = refused("radix_sort", {"x": np.zeros((10, 1009), np.float16)})
    rule = "has shape (10, 1009), but 1 dimension is needed, as in (10090,); reshape it"
    assert text == f"radix_sort: input x {rule}"


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("radix_sort", "float16, int16 or uint16"),
        ("topp", "float16"),
        ("scan_batch", "float16, float32 or int8"),
    ],
)
def test_inputs_of_another_type(refused, name, known):
    for kind in ("float64", "uint32"):
        text = refused(name, {"x": np.ones((9, 9)[: 1 + (name == "scan_batch")], kind)})
        assert text == f"{name}: input x is {kind}, but must be {known}; convert it"


MEASUREMENTS = {"path_repeat": "AI", "cube_repeat": "AI", "bus_share": "vector", "launch_empty": "vector"}
ON_VECTORS = {"add", "cast", "copy", "same_address", "read_tiles", "scan_batch_vec", "sort_vec", "topk_vec"}
ON_VECTORS |= {"topp_vec"}
ON_SOME = [name for name, maker in shipped_programs().items() if "cores" in maker.parameters()]


@pytest.mark.parametrize("name", ON_SOME)
def test_more_cores_than_there_are(refused, name):
    kind = MEASUREMENTS.get(name, "vector" if name in ON_VECTORS else "AI")
    there = 4 if kind == "vector" else 2
    step = f"use {there} or fewer" if name in MEASUREMENTS else "leave it out for all"
    assert find_program(name).build(DEVICE, {"cores": there}).launches
    for cores in (there + 1, 99):
        text = refused(name, cores=cores)
        assert text == f"{name}: cores={cores}: {DEVICE.name} has {there} {kind} cores; {step}"
