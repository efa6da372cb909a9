"""One answer on every host: the same bits under other BLAS kernels and other SIMD dispatch."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from npusim import Pipe, isa, program, simulate

PROGRAM = '''
import hashlib
import ml_dtypes
import numpy as np
from npusim.isa.dtype import BF16, F16, F32, S8, S16, S32
from npusim.isa.numerics import vector
from npusim.isa.numerics.cast import RoundMode, cast, dequant_s32_f16, requant_b8
from npusim.isa.numerics.cube import matmul
from npusim.isa.numerics.profile import PROFILES, VectorNumerics
from npusim.isa.numerics.reduce import tree_max, tree_sum

np.seterr(all="ignore")
rng = np.random.Generator(np.random.PCG64(0))
seen = {}


def note(group, *arrays):
    digest = seen.setdefault(group, hashlib.sha256())
    for x in arrays:
        digest.update(np.ascontiguousarray(x).tobytes())


def uniform(shape):
    """Numbers from integers alone: the generator's own normals go through libm."""
    return (rng.integers(-(2**30), 2**30, shape) * 2.0**-28).astype(np.float32)


def any_bits(dtype, n):
    unsigned = f"u{dtype.size}"
    return rng.integers(0, 1 << dtype.bits, n, np.uint64).astype(unsigned).view(dtype.np)


for m, k, n in ((16, 16, 16), (33, 70, 17), (128, 128, 128)):
    a, b, acc = uniform((m, k)), uniform((k, n)), uniform((m, n))
    a *= np.float32(2.0) ** rng.integers(-9, 9, (m, k)).astype(np.float32)
    operands = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "hf32": np.float32}
    for name, profile in PROFILES.items():
        if name == "fast" or (m == 128 and "nvidia" in name):
            continue
        for key, dtype in operands.items():
            if getattr(profile.cube, key) is not None:
                rule, left, right = profile.cube_rule(key), a.astype(dtype), b.astype(dtype)
                note("cube", *(matmul(rule, left, right, acc, saturate=s) for s in (True, False)))
    x, y = (rng.integers(-128, 128, shape).astype(np.int8) for shape in ((m, k), (k, n)))
    note("cube", matmul(PROFILES["ascend-a2"].cube_rule("s8"), x, y, None, saturate=True))

for dtype in (F16, F32):
    a, b, c = (any_bits(dtype, 20000) for _ in range(3))
    for saturate in (True, False):
        note("vector", *(f(a, b, dtype, saturate=saturate) for f in (vector.add, vector.sub, vector.mul)))
        note("vector", vector.muladd(a, b, c, dtype, saturate=saturate))
        note("vector", vector.abs_(a, dtype, saturate=saturate))
        for rules in (VectorNumerics(), VectorNumerics(daz=False, ftz=False, nan="propagate")):
            for f in (vector.div, vector.maximum, vector.minimum):
                note("vector", f(a, b, dtype, rules, saturate=saturate))
            for f in (vector.exp, vector.ln, vector.sqrt, vector.rsqrt, vector.rec, vector.relu):
                note("vector", f(a, dtype, rules, saturate=saturate))
                note("vector", f(uniform(20000).astype(dtype.np), dtype, rules, saturate=saturate))
            note("vector", *tree_max(a.reshape(-1, 8), dtype, rules))
        note("vector", tree_sum(a.reshape(-1, 8), dtype, saturate=saturate))
        for mode in RoundMode:
            for target in (F16, BF16, F32, S16, S32):
                note("cast", cast(a, dtype, target, mode, saturate=saturate))
ints = any_bits(S32, 5000)
note("cast", cast(ints, S32, F32, RoundMode.RINT, saturate=True), dequant_s32_f16(ints, 0.37, saturate=True))
note("cast", requant_b8(ints, 1e-7, 3, S8))
print(*(f"{group}={digest.hexdigest()}" for group, digest in sorted(seen.items())))
'''

PROBE = """
import numpy as np
from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__
print(*(f for f in __cpu_dispatch__ if __cpu_features__.get(f)))
"""


def run(program, **environment):
    """The output of a program in a fresh interpreter with one BLAS thread, warnings being errors."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == -signal.SIGILL:
        pytest.skip(f"this processor cannot run {environment}")
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.fixture(scope="module")
def here():
    return run(PROGRAM)


@pytest.mark.parametrize("core", ["Haswell", "SkylakeX", "Sandybridge"])
def test_the_blas_kernel_does_not_show(here, core):
    """The last has no fused multiply-add, which changes most float64 products of wide operands."""
    assert run(PROGRAM, OPENBLAS_CORETYPE=core) == here


def test_the_number_of_threads_does_not_show(here):
    assert run(PROGRAM, OPENBLAS_NUM_THREADS="2") == here


def test_simd_dispatch_does_not_show(here):
    """Without any SIMD code that this NumPy would pick at run time on this machine."""
    features = " ".join(run(PROBE))
    assert run(PROGRAM, NPY_DISABLE_CPU_FEATURES=features) == here


def test_the_machine_multiplies_on_one_thread():
    """Products of tiles are so small that more threads only spin."""
    seen = []

    @program
    def looks(k):
        def stream(c):
            seen.extend(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas")
            yield isa.PipeBarrier(on=Pipe.V)

        k.launch("looks", vector=stream)

    with threadpool_limits(2, "blas"):
        simulate(looks, "toy")
        after = {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}
    assert seen
    assert set(seen) == {1}
    assert after == {2}
