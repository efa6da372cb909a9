"""Print what sweeps cost: `python benchmarks/sweep.py [--backends] [--all]`.

The first ratio compares CPU times of one thread in one process: timing the streams of `scan_ul1` again on
50 chips against 50 full runs, values and checks included. `--all` also runs the sweep of 200 points over the
rate of main memory, the size of L2 and s on two processes, and tells its wall time and the CPU time of its
processes, which says what the wall time would be on a machine that does nothing else. `--backends` runs the
same space on shorter inputs: the rows must be the same on all backends, and after a kill in the middle.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import json
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from joblib.externals.loky import get_reusable_executor

import npusim
from npusim.sweeps.plan import Point, make_plan
from npusim.sweeps.play import Player, run_point
from npusim.sweeps.space import read_space

CHIPS = 50


def space(program: str, params: dict[str, Any], axes: dict[str, Any]) -> dict[str, Any]:
    """Return a space on the default chip."""
    return {"program": program, "params": params, "axes": axes}


def main() -> None:
    """Run the benchmarks."""
    print(retiming("scan_ul1", {"n": 1 << 20}))
    if "--backends" in sys.argv:
        print(backends())
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


AXES: dict[str, Any] = {
    "program.s": [16, 32, 64, 128],
    "chip.hbm.nominal_gb_per_s": {"geom": [100.0, 3200.0], "steps": 10},
    "chip.l2.size_mib": [1, 4, 24, 96, 192],
}


def two_hundred() -> str:
    """Run 200 points of `scan_ul1` on two processes."""
    start, before = time.perf_counter(), children()
    found = npusim.sweep(space("scan_ul1", {"n": 1 << 20}, AXES), jobs=2)
    took = time.perf_counter() - start
    get_reusable_executor().shutdown(wait=True)  # its processes are counted when they have ended
    used = children() - before
    without = ", ".join(found.without_effect) or "none"
    return (
        f"{len(found.rows)} points on two processes: {took:.0f} s, at most 300; {used:.0f} s of CPU, so "
        f"{used / 2:.0f} s on two cores of their own; without effect: {without}"
    )


def children() -> float:
    """Return the CPU seconds of the processes that ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def backends() -> str:
    """Run 200 points on every backend, and once more with a kill in the middle."""
    short = space("scan_ul1", {"n": 1 << 14}, AXES) | {"schema": "npusim.sweep/1"}
    rows = npusim.sweep(short, backend="sequential").rows
    for backend in ("loky", "dask"):
        assert npusim.sweep(short, backend=backend, jobs=2).rows == rows, backend  # type: ignore[arg-type]
    with tempfile.TemporaryDirectory() as folder:
        file, output = Path(folder, "few.yaml"), Path(folder, "out")
        file.write_text(json.dumps(short), encoding="utf-8")  # JSON is YAML
        command = [sys.executable, "-m", "npusim", "sweep", str(file), "-j", "2", "-o", str(output)]
        running = subprocess.Popen(command, start_new_session=True)
        while not (output / "rows.jsonl").exists() or lines(output) < 60:
            time.sleep(0.05)
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()
        found = npusim.sweep(file, output=output, resume=True, backend="sequential")
        kept, all_lines = found.resumed, lines(output)
    assert found.rows == rows
    assert 60 <= kept < all_lines == len(rows), (kept, all_lines)
    return f"{len(rows)} points: the same rows on three backends, and after a kill behind row {kept}"


def lines(output: Path) -> int:
    """Return the rows in a folder, one that was cut short included."""
    return len((output / "rows.jsonl").read_text(encoding="utf-8").splitlines())


if __name__ == "__main__":
    main()
