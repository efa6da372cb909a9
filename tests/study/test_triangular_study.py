"""Errors of triangular inverses in plain NumPy against a table that an independent emulator made.

The inputs of the table: 0.5 * uniform from the legacy generator with seed 0, one matrix a size, float32 sizes
first (NumPy semantics); 256 matrices a size from default_rng(1), the scale 0.1 first, where bfloat16 rounds
the float16 matrices (cube semantics).
"""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from npusim.errors import ConfigError
from npusim.study.triangular import METHODS, error_table, errors, invert
from npusim.study.triangular_inputs import FAMILIES, make

SIZES = (16, 32, 64, 128)
GOLDEN = Path(__file__).with_name("triangular_golden.csv")
ROWS = list(csv.DictReader(GOLDEN.read_text().splitlines()))


@cache
def matrices(semantics, scale, dtype, n):
    if semantics == "numpy":
        np.random.seed(0)
        for kind in ("float32", "float16"):
            for size in SIZES:
                found = np.triu((0.5 * np.random.rand(size, size)).astype(kind), 1)
                if (kind, size) == (dtype, n):
                    return found[None]
    rng = np.random.default_rng(1)
    for factor in ("0.1", "0.5"):
        for size in SIZES:
            found = np.triu(float(factor) * rng.random((256, size, size)), 1)
            if (factor, size) == (scale, n):
                found = found.astype(np.float16)
                return found.astype(ml_dtypes.bfloat16) if dtype == "bfloat16" else found
    raise AssertionError


@pytest.fixture(autouse=True)
def one_thread():
    """The matrices are too small for threads, which would only spin."""
    with threadpool_limits(1, "blas"):
        yield


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("semantics", ["numpy", "kernel"])
def test_errors_are_those_of_the_table(semantics, n):
    rows = [r for r in ROWS if r["semantics"] == semantics and int(r["n"]) == n]
    assert rows
    for row in rows:
        dtype = row["dtype"]
        a = matrices(semantics, row["scale"], dtype, n)
        found = errors(invert(row["method"], a, dtype, semantics=semantics, out=row["out"]), a)
        for name in ("max_abs", "max_rel", "frobenius"):
            # the notebook's float32 errors were published with all digits
            exact = semantics == "numpy" and dtype == "float32" and row["method"] != "numpy_inv"
            rtol = 5e-4 if exact else 0.05
            np.testing.assert_allclose(found[name], float(row[name]), rtol=rtol, err_msg=str(row))


@pytest.mark.parametrize(
    ("family", "dtype", "wanted"),
    [
        ("uniform", "float16", {"mxr": 8.6e-5, "mch": 9.8e-4, "mbh": 8.6e-5, "dn": 1.5e-4}),
        ("uniform", "bfloat16", {"mxr": 6.8e-4, "mch": 7.9e-3, "mbh": 6.9e-4}),
        ("keys", "float16", {"mxr": 9.9e-5, "mch": 9.7e-5, "mbh": 1.0e-4}),
        ("gated_keys", "float16", {"mxr": 3.4e-6, "mch": 3.4e-6, "mbh": 3.6e-6}),
        ("ones", "float16", {"mxr": 0.0, "mch": np.nan, "mbh": 0.0}),
        ("ones", "bfloat16", {"mxr": 5.5e5, "mbh": 0.0}),
    ],
)
def test_families_at_128_expose_what_they_are_said_to(family, dtype, wanted):
    """Predictions with two digits for n=128; random keys differ by what their generator gave."""
    rows = error_table(wanted, [128], [dtype], [family], count=1 if family == "ones" else 6)
    for row in rows:
        loose = 0.25 if family == "gated_keys" else 0.1
        np.testing.assert_allclose(row["frobenius"], wanted[row["method"]], rtol=loose, err_msg=str(row))
        assert (row["not_finite"] > 0) == bool(np.isnan(wanted[row["method"]]))


def test_only_correlated_keys_show_that_the_product_form_is_unstable():
    methods = ["mch", "mxr", "mbh"]
    mch, mxr, mbh = error_table(methods, [128], ["bfloat16"], ["correlated_keys"], count=4)
    assert 25 < mxr["norm"] < 60
    assert mbh["frobenius"] < mxr["frobenius"] < 0.02
    assert mch["frobenius"] > 1e6


def test_newton_repairs_its_rounding():
    for dtype, limit in (("float16", 3e-7), ("bfloat16", 2e-6)):
        (row,) = error_table(["newton"], [64], [dtype], ["uniform"], count=4, out="float32")
        assert row["frobenius"] < limit


@pytest.mark.parametrize("family", FAMILIES)
def test_inputs_are_strictly_upper_triangular(family):
    for n in (1, 16, 40):
        a = make(family, np.random.default_rng(3), 3, n)
        assert a.shape == (3, n, n)
        assert np.isfinite(a).all()
        assert not np.tril(a).any()
        if n > 16 and family.startswith("block"):
            assert not a[:, :16, 16:].any()
        elif n > 1 and family != "zeros":
            assert a[:, 0, -1].all()


@pytest.mark.parametrize("method", sorted(METHODS))
@pytest.mark.parametrize("n", [1, 2, 17, 48])
def test_every_method_inverts_any_size(method, n):
    a = make("uniform", np.random.default_rng(n), 2, n)
    found = invert(method, a, "float32")
    exact = np.linalg.inv(np.eye(n) + a)
    np.testing.assert_allclose(found, exact, atol=3e-4 if method == "mch" else 2e-6)


def test_errors_say_what_is_wrong():
    square = np.zeros((1, 4, 4))
    with pytest.raises(
        ConfigError, match=r"^triangular study: no method mxl; did you mean mxr\?; vcs vcs_dot "
    ):
        invert("mxl", square, "float16")
    with pytest.raises(
        ConfigError, match=r"^triangular study: element type int8: it must be one of float16 "
    ):
        invert("mxr", square, "int8")
    with pytest.raises(
        ConfigError, match=r"^triangular study: matrices of shape \(4, 4\): \(count, n, n\) is "
    ):
        invert("mxr", square[0], "float16")
    with pytest.raises(
        ConfigError, match=r"^triangular inputs: no family one; did you mean ones\?; families: "
    ):
        make("one", np.random.default_rng(0), 1, 4)
    with pytest.raises(ConfigError, match=r"^triangular inputs: count=0 n=4: both must be 1 or more$"):
        make("ones", np.random.default_rng(0), 0, 4)
