"""Print what sweeps cost: `python benchmarks/sweep.py [--all]`.

The first ratio compares CPU times of one thread in one process: timing the streams of `scan_ul1` again on
50 chips against 50 full runs, values and checks included. `--all` also runs the sweep of 200 points over the
rate of main memory, the size of L2 and s on two processes, and tells its wall time.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import sys
import time
from typing import Any

import npusim
from npusim.sweep.plan import Point, make_plan
from npusim.sweep.play import Player, run_point
from npusim.sweep.space import read_space

CHIPS = 50


def space(program: str, params: dict[str, Any], axes: dict[str, Any]) -> dict[str, Any]:
    """Return a space on the default chip."""
    return {"program": program, "params": params, "axes": axes}


def main() -> None:
    """Run the benchmarks."""
    print(retiming("scan_ul1", {"n": 1 << 20}))
    if "--all" in sys.argv:
        print(two_hundred())


def retiming(program: str, params: dict[str, Any]) -> str:
    """Compare timing again on 50 chips with 50 full runs."""
    axes = {"chip.hbm.nominal_gb_per_s": {"geom": [200.0, 3200.0], "steps": CHIPS}}
    points = make_plan(read_space(space(program, params, axes))).points
    again, rows = cpu(points, Player())
    full, others = cpu(points, None)
    assert rows == others, "a chip that is timed again gives another row than a run of its own"
    ratio = again / full
    return f"{program} on {CHIPS} chips, played once: {ratio:.3f} of {CHIPS} full runs; at most 0.25"


def cpu(points: tuple[Point, ...], player: Player | None) -> tuple[float, list[dict[str, Any]]]:
    """Return CPU seconds and rows, with one player for all points or one for each."""
    start = time.process_time()
    rows = [run_point(point, player or Player()) for point in points]
    return time.process_time() - start, rows


def two_hundred() -> str:
    """Run 200 points of `scan_ul1` on two processes."""
    axes = {
        "program.s": [16, 32, 64, 128],
        "chip.hbm.nominal_gb_per_s": {"geom": [100.0, 3200.0], "steps": 10},
        "chip.l2.size_mib": [1, 4, 24, 96, 192],
    }
    start = time.perf_counter()
    found = npusim.sweep(space("scan_ul1", {"n": 1 << 20}, axes), jobs=2)
    took = time.perf_counter() - start
    without = ", ".join(found.without_effect) or "none"
    return f"{len(found.rows)} points on two processes: {took:.0f} s; at most 300; without effect: {without}"


if __name__ == "__main__":
    main()
