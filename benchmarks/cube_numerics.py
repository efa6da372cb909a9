"""CPU time of the cube's numerics, as ratios to `np.matmul` on float32, one BLAS thread.

    python benchmarks/cube_numerics.py [--seconds S]

All cases of a size are timed round after round, each time in a new order, so that a change of clock, a busy
neighbour or the state the last case left hits all alike; the medians of the rounds are compared. `prepared`
has both operands measured in advance, as the machine has them when a tile stays in L0A or L0B.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import argparse
import random
import statistics
import time
from collections.abc import Callable

import ml_dtypes
import numpy as np

from npusim.isa.numerics.cube import matmul, prepare
from npusim.isa.numerics.profile import DEFAULT_PROFILE, PROFILES

SIZES = [(16, 16, 16), (16, 256, 16), (128, 128, 128)]
TARGETS = {("default f16", (128, 128, 128)): "<= 15 x", ("default f16", (16, 16, 16)): "<= 80 us"}
TARGETS[("default s8", (128, 128, 128))] = "<= 2.5 x"
ALTERNATIVES = ["ieee-sequential-fp32", "tree16-fp32", "nvidia-hopper-like", "nvidia-ampere-like", "fast"]


def cases(m: int, k: int, n: int) -> dict[str, Callable[[], object]]:
    """The calls to time for one size, the baseline first."""
    rng = np.random.default_rng(0)
    a32, b32 = rng.standard_normal((m, k), np.float32), rng.standard_normal((k, n), np.float32)
    a64, b64 = a32.astype(np.float64), b32.astype(np.float64)
    a16, b16 = a32.astype(np.float16), b32.astype(np.float16)
    abf, bbf = a32.astype(ml_dtypes.bfloat16), b32.astype(ml_dtypes.bfloat16)
    spread = (np.exp(rng.uniform(-60, 0, (m, k)))).astype(ml_dtypes.bfloat16)
    a8, b8 = rng.integers(-128, 128, (m, k), np.int8), rng.integers(-128, 128, (k, n), np.int8)
    acc, acc8 = rng.standard_normal((m, n), np.float32), rng.integers(-1000, 1000, (m, n), np.int32)
    whole_a, whole_b = (rng.integers(-4, 5, s).astype(np.float16) for s in ((m, k), (k, n)))
    f16, bf16, f32, s8 = (DEFAULT_PROFILE.cube_rule(key) for key in ("f16", "bf16", "f32", "s8"))
    left, right = prepare(f16, a16, "left"), prepare(f16, b16, "right")
    timed: dict[str, Callable[[], object]] = {
        "np.matmul float32": lambda: np.matmul(a32, b32),
        "np.matmul float64": lambda: np.matmul(a64, b64),
        "default f16": lambda: matmul(f16, a16, b16, acc, saturate=True),
        "default f16, IEEE mode": lambda: matmul(f16, a16, b16, acc, saturate=False),
        "default f16, no accumulator": lambda: matmul(f16, a16, b16, None, saturate=True),
        "default f16, prepared": lambda: matmul(f16, left, right, acc, saturate=True),
        "default f16, small integers": lambda: matmul(f16, whole_a, whole_b, None, saturate=True),
        "default bf16": lambda: matmul(bf16, abf, bbf, acc, saturate=True),
        "default bf16, 60-nat spread": lambda: matmul(bf16, spread, bbf, acc, saturate=True),
        "default f32": lambda: matmul(f32, a32, b32, acc, saturate=True),
        "default s8": lambda: matmul(s8, a8, b8, acc8, saturate=True),
    }
    for name in ALTERNATIVES:
        rule = PROFILES[name].cube_rule("f16")
        timed[f"{name} f16"] = lambda rule=rule: matmul(rule, a16, b16, acc, saturate=False)
    return timed


def medians(timed: dict[str, Callable[[], object]], seconds: float) -> dict[str, float]:
    """Median CPU microseconds of one call of each, timed in turn for about `seconds`."""
    repeats = {}
    for name, call in timed.items():
        call()
        start = time.process_time()
        call()
        repeats[name] = max(1, int(0.02 / max(time.process_time() - start, 1e-7)))
    rounds: dict[str, list[float]] = {name: [] for name in timed}
    random.seed(0)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(rounds["default s8"]) < 5:
        for name in random.sample(sorted(timed), len(timed)):
            call = timed[name]
            start = time.process_time()
            for _ in range(repeats[name]):
                call()
            rounds[name].append((time.process_time() - start) / repeats[name])
    return {name: statistics.median(values) * 1e6 for name, values in rounds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seconds", type=float, default=8.0, help="time per size")
    seconds = parser.parse_args().seconds
    with np.errstate(all="ignore"):
        for size in SIZES:
            print("{} x {} x {} (m, k, n)".format(*size))
            measured = medians(cases(*size), seconds)
            base = measured["np.matmul float32"]
            for name, micros in measured.items():
                print(
                    f"  {name:30s} {micros:9.1f} us {micros / base:7.1f} x   {TARGETS.get((name, size), '')}"
                )


if __name__ == "__main__":
    main()
