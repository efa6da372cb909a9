"""Accuracy of methods for T = (I + A)^-1 with strictly triangular A, in plain NumPy (arXiv 2605.21325).

    error_table(["mxr", "mch"], [16, 64], ["float16"], ["uniform", "correlated_keys"], count=32)

gives a list of rows, one for each method, size, element type and family of inputs, ready for a table. Two
semantics of arithmetic: `kernel` is the cube (operands of 16 bits, sums in float32 that go on over the
products of one accumulator, rounding to nearest even where the accumulator leaves it), `numpy` is NumPy on
arrays of the element type, where every product and every sum of matrices is rounded.

It is no part of a program: the programs are checked against an exact inverse, and these models against what
the programs compute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

import ml_dtypes
import numpy as np

from npusim.errors import ConfigError, did_you_mean
from npusim.study.triangular_inputs import BLOCK, Array, make

Semantics = Literal["kernel", "numpy"]
_TYPES: dict[str, Any] = {
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float32": np.dtype(np.float32),
}


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """How products are summed and rounded."""

    dtype: Any
    semantics: Semantics

    def keep(self, x: Array) -> Array:
        """Return what leaves an accumulator, as operands."""
        return x.astype(self.dtype)

    def product(self, a: Array, b: Array, base: Array | None = None) -> Array:
        """Return base + a @ b: float32 in an accumulator, or rounded twice."""
        if self.semantics == "numpy":
            found = _chain(a, b) if self.dtype == np.float32 else a @ b
            return found if base is None else base + found
        found = a.astype(np.float32) @ b.astype(np.float32)
        return found if base is None else base.astype(np.float32) + found

    def eye(self, a: Array) -> Array:
        """Return the identity in the shape of matrices."""
        return np.broadcast_to(np.eye(a.shape[-1]).astype(self.dtype), a.shape)


def _chain(a: Array, b: Array) -> Array:
    """Return the product of float32 matrices as a chain of fused multiply-adds along k, which is what BLAS
    does on hosts that have them; so the host decides nothing.
    """
    total = np.zeros(np.broadcast_shapes(a.shape, b.shape), np.float32)
    wide, other = a.astype(np.float64), b.astype(np.float64)
    for k in range(a.shape[-1]):
        total = (total + wide[..., :, k, None] * other[..., k, None, :]).astype(np.float32)
    return total


Method = Callable[[Arithmetic, Array], Array]


def column_sweep(r: Arithmetic, a: Array) -> Array:
    """Substitution by columns, in the element type: every product and every difference rounded."""
    count, n, _ = a.shape
    found = np.zeros((count, n, n), a.dtype)
    for j in range(n):
        b = found[:, :, j]
        b[:, j] = 1
        b -= a[:, :, j]
        for k in range(j - 1, 0, -1):
            b -= b[:, k, None] * a[:, :, k]
    return found


def dot_sweep(r: Arithmetic, a: Array) -> Array:
    """Substitution by columns with one dot product for each element, in the element type."""
    count, n, _ = a.shape
    found = np.zeros((count, n, n), a.dtype)
    for matrix, x in zip(a, found, strict=True):
        for j in range(n):
            x[j, j] = 1
            for i in range(j - 1, -1, -1):
                total = a.dtype.type(0)
                for k in range(i + 1, j + 1):
                    total += matrix[i, k] * x[k, j]
                x[i, j] = -total
    return found


def elementary_products(r: Arithmetic, a: Array) -> Array:
    """X = M_k X for the columns from the last to the first, M_k the identity with column k of -A."""
    x = r.eye(a)
    for k in range(a.shape[-1] - 1, -1, -1):
        step = r.eye(a).copy()
        step[:, :k, k] = -a[:, :k, k]
        x = r.keep(r.product(step, x))
    return x


def product_form(r: Arithmetic, a: Array) -> Array:
    """(I - A)(I + A^2)(I + A^4)... up to the first power that must vanish."""
    return _products(r, a, reuse=False)[0]


def _products(r: Arithmetic, a: Array, *, reuse: bool) -> tuple[Array, Array]:
    """Return X as operands, and as it is in its accumulator."""
    y = a
    total = r.eye(a).astype(np.float32) - a.astype(np.float32)
    if r.semantics == "numpy":
        total = r.eye(a) - a
    x = r.keep(total)
    for _ in range((a.shape[-1] - 1).bit_length() - 1):
        y = r.keep(r.product(y, y))
        total = r.product(x, y, total if reuse else x)
        x = r.keep(total)
    return x, total


def block_recursion(r: Arithmetic, a: Array) -> Array:
    """X = L + (I - L A) R, from blocks of 1 up."""
    return _merged(r, a, r.eye(a), 1)


def mixed(r: Arithmetic, a: Array) -> Array:
    """The product form in blocks of 16, then block recursion."""
    return _mixed(r, a, reuse=False)


def mixed_reuse(r: Arithmetic, a: Array) -> Array:
    """The same where X stays in its accumulator between the products of a block."""
    return _mixed(r, a, reuse=True)


def _mixed(r: Arithmetic, a: Array, *, reuse: bool) -> Array:
    if a.shape[-1] <= BLOCK:
        return _products(r, a, reuse=reuse)[1]
    return _merged(r, a, _inside(r, a, reuse=reuse), BLOCK)


def _inside(r: Arithmetic, a: Array, *, reuse: bool) -> Array:
    """Return inverted diagonal blocks of 16, zero elsewhere."""
    n = a.shape[-1]
    x = np.zeros_like(a)
    for i in range(0, n, BLOCK):
        part = slice(i, min(i + BLOCK, n))
        x[:, part, part] = _products(r, a[:, part, part], reuse=reuse)[0]
    return x


def _merged(r: Arithmetic, a: Array, x: Array, size: int) -> Array:
    n = a.shape[-1]
    number = np.arange(n) // size
    total = x
    while size < n:
        inside = number[:, None] == number
        left = np.where(inside & (number % 2 == 0), x, 0).astype(r.dtype)
        right = np.where(inside & (number % 2 == 1), x, 0).astype(r.dtype)
        y = r.keep(r.product(left, -a, r.eye(a)))
        total = r.product(y, right, left)
        x = r.keep(total)
        size *= 2
        number = np.arange(n) // size
    return total


def newton(r: Arithmetic, a: Array) -> Array:
    """Newton-Schulz from I / (2 n), 12 steps or twice the logarithm of n; the last sum stays in float32."""
    n = a.shape[-1]
    whole = r.keep(-(r.eye(a).astype(np.float32) + a.astype(np.float32)))
    x = total = r.keep(r.eye(a).astype(np.float32) * np.float32(0.5 / n))
    for _ in range(max(12, 2 * (n - 1).bit_length())):
        y = r.keep(r.product(x, whole))
        total = r.product(y, x, x + x)
        x = r.keep(total)
    return total


def diagonal_and_nilpotent(r: Arithmetic, a: Array) -> Array:
    """B inverts the blocks of 16 on the diagonal; (I - P)(I + P^2)... B with P = B N, N what is outside."""
    n = a.shape[-1]
    inside = _inside(r, a, reuse=False)
    if n <= BLOCK:
        return inside
    number = np.arange(n) // BLOCK
    outside = np.where(number[:, None] == number, 0, a).astype(r.dtype)
    power = r.keep(r.product(inside, -outside))
    z = r.keep(r.product(r.eye(a), power, r.eye(a)))
    for _ in range((-(-n // BLOCK) - 1).bit_length() - 1):
        power = r.keep(r.product(power, power))
        z = r.keep(r.product(z, power, z))
    return r.product(z, inside)


def library(r: Arithmetic, a: Array) -> Array:
    """`numpy.linalg.inv` in float32."""
    return np.linalg.inv(np.eye(a.shape[-1], dtype=np.float32) + a.astype(np.float32))


METHODS: dict[str, Method] = {
    "vcs": column_sweep,
    "vcs_dot": dot_sweep,
    "mcs": elementary_products,
    "mch": product_form,
    "mbh": block_recursion,
    "mxr": mixed,
    "mxr_reuse": mixed_reuse,
    "newton": newton,
    "dn": diagonal_and_nilpotent,
    "numpy_inv": library,
}


def invert(
    method: str, a: Array, dtype: str, *, semantics: Semantics = "kernel", out: str | None = None
) -> Array:
    """Return (I + A)^-1 of strictly upper triangular matrices (count, n, n), as an array of `out`.

    A is rounded to `dtype` first. `out` (default: `dtype`) is what the last accumulator is rounded to; the
    methods that never use one are rounded to `dtype` all along. Overflow gives infinities and NaN.

    Raises `ConfigError` for an unknown method or element type, and for a shape that is no stack of squares.
    """
    if method not in METHODS:
        known = list(METHODS)
        raise ConfigError(
            f"triangular study: no method {method}{did_you_mean(method, known)}; {' '.join(known)}"
        )
    for name in (dtype, out or dtype):
        if name not in _TYPES:
            raise ConfigError(f"triangular study: element type {name}: it must be one of {' '.join(_TYPES)}")
    if a.ndim != 3 or a.shape[1] != a.shape[2]:
        raise ConfigError(f"triangular study: matrices of shape {a.shape}: (count, n, n) is needed")
    kind = _TYPES[dtype]
    with np.errstate(all="ignore"):
        found = METHODS[method](Arithmetic(kind, semantics), a.astype(kind))
        if method != "numpy_inv":
            found = found.astype(_TYPES[out or dtype])
    return found


def errors(found: Array, a: Array) -> dict[str, float]:
    """Return how far inverses of I + A are from the exact ones, over all matrices.

    `max_abs`: the largest error of an element; `max_rel`: the largest error relative to its element, where
    that is not zero; `frobenius`: the root of the sum of squares, relative to that of the exact inverses. All
    are NaN where a value is not finite.
    """
    exact = np.linalg.inv(np.eye(a.shape[-1]) + a.astype(np.float64))
    exact = np.triu(exact)
    error = np.abs(found.astype(np.float64) - exact)
    if not np.isfinite(error).all():
        return dict.fromkeys(("max_abs", "max_rel", "frobenius"), float("nan"))
    there = exact != 0
    return {
        "max_abs": float(error.max()),
        "max_rel": float((error[there] / np.abs(exact[there])).max()),
        "frobenius": float(np.sqrt((error**2).sum() / (exact**2).sum())),
    }


def error_table(
    methods: Iterable[str],
    sizes: Iterable[int],
    dtypes: Iterable[str],
    families: Iterable[str],
    *,
    count: int = 16,
    scale: float = 0.1,
    seed: int = 0,
    semantics: Semantics = "kernel",
    out: str | None = None,
) -> list[dict[str, Any]]:
    """Return one row for each method, size, element type and family: what it was, the largest row sum of A,
    how many values are not finite, and the errors.

    All methods see the same `count` matrices of a family and size. Raises `ConfigError` as `invert` and
    `npusim.study.triangular_inputs.make` do.
    """
    rows = []
    chosen, kinds, kept = list(methods), list(dtypes), list(families)
    for n in sizes:
        for family in kept:
            made = make(family, np.random.default_rng(seed), count, n, scale)
            for dtype in kinds:
                a = made.astype(_TYPES.get(dtype, np.float64))
                for method in chosen:
                    found = invert(method, a, dtype, semantics=semantics, out=out)
                    lost = int(np.count_nonzero(~np.isfinite(found.astype(np.float64))))
                    rows.append(
                        {
                            "method": method,
                            "n": n,
                            "dtype": dtype,
                            "family": family,
                            "norm": float(np.abs(a.astype(np.float64)).sum(axis=2).max()),
                            "not_finite": lost,
                            **errors(found, a),
                        }
                    )
    return rows
