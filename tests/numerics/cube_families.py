"""Families of operands made to break an emulation of the cube that is almost right."""

from __future__ import annotations

import ml_dtypes
import numpy as np

TYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32}


def any_bits(rng, shape, kind):
    """Uniform over bit patterns: every exponent alike, subnormals too; specials made zero."""
    dtype = np.dtype(TYPES[kind])
    x = (
        rng.integers(0, 1 << (8 * dtype.itemsize), shape, np.uint64)
        .astype(f"u{dtype.itemsize}")
        .view(dtype)
        .copy()
    )
    x[~np.isfinite(x)] = 0
    return x


def families(rng, kind, m, k, n):
    """Yield (name, a, b, acc); `k` is at least 16."""

    def cast(x):
        return np.asarray(x, np.float32).astype(TYPES[kind])

    def spread(shape):
        return np.ldexp(rng.standard_normal(shape), rng.integers(-12, 13, shape))

    zero = np.zeros((m, n), np.float32)
    normal = rng.standard_normal

    def blank():
        return np.zeros((m, k), np.float32), np.zeros((k, n), np.float32)

    yield "any bits", any_bits(rng, (m, k), kind), any_bits(rng, (k, n), kind), any_bits(rng, (m, n), "f32")
    yield "any bits, no acc", any_bits(rng, (m, k), kind), any_bits(rng, (k, n), kind), zero
    yield "normal", cast(normal((m, k))), cast(normal((k, n))), normal((m, n)).astype(np.float32)
    yield "integers", cast(rng.integers(-3, 4, (m, k))), cast(rng.integers(-3, 4, (k, n))), zero
    big = np.float32(2**24 - 8) + rng.integers(0, 16, (m, n)).astype(np.float32)
    yield "integers to 2^24", cast(rng.integers(-3, 4, (m, k))), cast(rng.integers(-3, 4, (k, n))), big
    acc = normal((m, n)).astype(np.float32)
    yield "integers, any acc", cast(rng.integers(1, 4, (m, k))), cast(rng.integers(1, 4, (k, n))), acc
    a, b = (rng.choice([3.5, 4, -3.5, -4], shape) for shape in ((m, k), (k, n)))
    yield "quarters at 2^22", cast(a), cast(b), (2.0**22 + rng.integers(0, 9, (m, n)) / 2).astype(np.float32)
    powers = cast(2.0 ** rng.integers(-8, 8, (m, k)))
    yield "powers of two", powers, cast(2.0 ** rng.integers(-8, 8, (k, n))), zero
    yield "spread", cast(spread((m, k))), cast(spread((k, n))), spread((m, n)).astype(np.float32)

    # the second half of K cancels the first, but for a tiny survivor
    a, b = spread((m, k)), spread((k, n))
    half = k // 2
    a[:, half : 2 * half], b[half : 2 * half] = -a[:, :half], b[:half]
    a[:, -1], b[-1] = 2.0**-20, 2.0**-4
    yield "cancellation", cast(a), cast(b), zero

    # an accumulator with an odd last bit, half a unit more, and a crumb that decides the tie
    acc = np.ldexp(rng.integers(1 << 23, 1 << 24, (m, n)).astype(np.float64), -10).astype(np.float32)
    a, b = blank()
    a[:, 0], b[0] = 2.0**-6, 2.0**-5
    a[:, 1], b[1] = rng.choice([0, 2.0**-14, -(2.0**-14)], m), 2.0**-14
    crumb = 2.0**-24 if kind == "f16" else 2.0**-60
    a[:, 2], b[2] = rng.choice([0, crumb, -crumb], m), 2.0**-14
    yield "midpoint", cast(a), cast(b), acc

    # the same with a crumb below the last bit of float64
    a, b = blank()
    a[:, 0], b[0] = 2.0**-6, 2.0**-5
    a[:, 1], b[1] = rng.choice([0, 2.0**-24, -(2.0**-24)], m), 2.0**-24
    yield "midpoint, lost crumb", cast(a), cast(b), acc
    a[:, 8:], b[8:] = rng.integers(-3, 4, (m, k - 8)), rng.integers(-3, 4, (k - 8, n))
    yield "midpoint, lost crumb, more", cast(a), cast(b), acc

    # block sums that float64 cannot hold
    a, b = blank()
    a[:, 0], b[0] = 8, 8
    a[:, 1], b[1] = 2.0**-9, 2.0**-9
    a[:, 2], b[2] = rng.choice([2.0**-24, -(2.0**-24)], m), 2.0**-24
    yield "more than 53 bits", cast(a), cast(b), zero
    # ... and that float64 puts on the wrong side: crumbs each below half its last bit, together above one
    a, b = blank()
    a[:, 0], b[0] = 8, 8
    a[:, 1], b[1] = 2.0**-9, 2.0**-9
    a[:, 2], b[2] = -(2.0**-23), 2.0**-23
    a[:, 3:15], b[3:15] = 2.0**-24, 2.0**-24
    order = rng.permutation(k)
    yield "wrong side", cast(a[:, order]), cast(b[order]), zero

    tiny = cast(normal((m, k)) * 1e-3), cast(normal((k, n)) * 1e-3)
    yield "absorbed", *tiny, np.full((m, n), 3e7, np.float32)
    # one small number in a tile of larger ones: its row and column are the ones at risk
    a, b = cast(normal((m, k)) + 4), cast(normal((k, n)) + 4)
    a[m // 2, k // 2], b[k // 2, n // 3] = 2.0**-24, 2.0**-24
    yield "one small", a, b, (normal((m, n)) * 1e4).astype(np.float32)
    # a tie with a crumb only where two small numbers meet
    a, b = blank()
    a[:, 0], b[0] = 2.0**-7, 2.0**-7
    a[m // 2, 1], b[1, n // 3] = rng.choice([2.0**-24, -(2.0**-24)]), 2.0**-24
    acc = (1024 + rng.integers(0, 1 << 22, (m, n)) * 2.0**-13).astype(np.float32)
    yield "small ones meet", cast(a), cast(b), acc
    # a tie in one row, with the accumulator for a crumb
    a, b = blank()
    a[m // 2, :2], b[0], b[1] = (1, 2.0**-12), 1, 2.0**-12
    for crumb in (2.0**-60 * (1 + 2.0**-23), 2.0**-149):
        acc = rng.choice([-crumb, crumb], (m, n)).astype(np.float32)
        yield "accumulator for a crumb", cast(a), cast(b), acc
    a, b, acc = any_bits(rng, (m, k), kind), any_bits(rng, (k, n), kind), any_bits(rng, (m, n), "f32")
    a[0, 0], b[1, 0], acc[m - 1, n - 1] = np.inf, np.nan, -np.inf
    yield "any bits, some special", a, b, acc
    if kind == "f16":
        return
    for exponent in (-70, -77):
        a, b = (np.ldexp(rng.integers(-3, 4, s).astype(float), exponent) for s in ((m, k), (k, n)))
        yield "integers, small", cast(a), cast(b), zero

    yield (
        "subnormal",
        cast(normal((m, k)) * 2.0**-70),
        cast(normal((k, n)) * 2.0**-70),
        any_small(rng, (m, n)),
    )
    # ties at the spacing of float32 subnormals, with a crumb
    a, b = blank()
    a[:, 0], b[0] = 2.0**-75, 2.0**-75
    a[:, 1], b[1] = rng.choice([0, 2.0**-95, -(2.0**-95)], m), 2.0**-90
    low = np.ldexp(rng.integers(1 << 21, 1 << 23, (m, n)).astype(np.float64), -149).astype(np.float32)
    yield "subnormal tie", cast(a), cast(b), low
    yield (
        "only crumbs",
        cast(normal((m, k)) * 2.0**-100),
        cast(normal((k, n)) * 2.0**-100),
        any_small(rng, (m, n)),
    )
    yield "overflow", cast(normal((m, k)) * 2.0**63), cast(normal((k, n)) * 2.0**64), zero
    huge = any_bits(rng, (m, n), "f32")
    yield "overflow with acc", cast(normal((m, k)) * 2.0**62), cast(normal((k, n)) * 2.0**62), huge


def any_small(rng, shape):
    """float32 around the smallest normal number, subnormals among them."""
    return (rng.standard_normal(shape) * 2.0**-135).astype(np.float32)
