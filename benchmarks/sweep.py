"""Print what sweeps cost, and show that they keep their rows: `python benchmarks/sweep.py [--all] [--n N]`.

The first line compares CPU times of one thread in one process: timing the streams of `scan_ul1` again on 50
chips against 50 full runs, values and checks included. `--all` is for a sweep of 200 points of `scan_ul1`
over the rate of main memory, the size of L2 and s, always by the command `npusim sweep`. It takes five times
as long as the sweep alone:

* on two processes, timed; the CPU time of its processes says what the wall time would be on a machine that
  does nothing else;
* the same, with its whole process group killed half-way, and resumed: the file must keep the finished rows
  as they are and hold every point once;
* the same in one process and on a Dask LocalCluster of two workers.

All four must give the same rows, all columns of them: none holds a time of this machine. Ends with 1, and
says what is wrong, where they do not.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import json
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from npusim.sweeps.plan import Point, make_plan
from npusim.sweeps.play import Player, run_point
from npusim.sweeps.rows import Row
from npusim.sweeps.space import read_space

CHIPS = 50
Axes = dict[str, object]
AXES: Axes = {
    "program.s": [16, 32, 64, 128],
    "chip.hbm.nominal_gb_per_s": {"geom": [100.0, 3200.0], "steps": 10},
    "chip.l2.size_mib": [1, 4, 24, 96, 192],
}


def space(n: int, axes: Axes) -> dict[str, object]:
    """Return a space of `scan_ul1` with n elements on the default chip."""
    return {"schema": "npusim.sweep/1", "program": "scan_ul1", "params": {"n": n}, "axes": axes}


def main() -> None:
    """Run the benchmarks."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--all", action="store_true", help="also run 200 points in four ways")
    parser.add_argument("--n", type=int, default=1 << 18, help="elements")
    given = parser.parse_args()
    print(retiming(given.n), flush=True)
    if given.all:
        with tempfile.TemporaryDirectory() as folder:
            all_ways(given.n, Path(folder))


def retiming(n: int) -> str:
    """Compare timing again on 50 chips with 50 full runs."""
    axes: Axes = {"chip.hbm.nominal_gb_per_s": {"geom": [200.0, 3200.0], "steps": CHIPS}}
    points = make_plan(read_space(space(n, axes))).points
    again, rows = cpu(points, Player())
    full, others = cpu(points, None)
    require(rows == others, "a chip that is timed again gives another row than a run of its own")
    share = f"{again / full:.3f} of {CHIPS} full runs; at most 0.25"
    return f"scan_ul1 of {n:,} elements on {CHIPS} chips, played once: {share}"


def cpu(points: tuple[Point, ...], player: Player | None) -> tuple[float, list[Row]]:
    """Return CPU seconds and rows, with one player for all points or one for each."""
    start = time.process_time()
    rows = [run_point(point, player or Player()) for point in points]
    return time.process_time() - start, rows


def all_ways(n: int, folder: Path) -> None:
    """Run the space of 200 points in four ways and compare their rows."""
    file = folder / "space.yaml"
    file.write_text(json.dumps(space(n, AXES)), encoding="utf-8")  # JSON is YAML
    keys = sorted(point.key for point in make_plan(read_space(file)).points)
    loky = ("-j", "2")
    took, used = timed(command(file, folder / "loky", loky))
    expected = sorted_rows(folder / "loky")
    require([row["point"] for row in expected] == keys, "loky: not one row for every point")
    require(all(row["status"] == "ok" for row in expected), "loky: a run failed or has wrong values")
    print(
        f"{len(keys)} points on two processes: {took:.0f} s, at most 300; {used:.0f} s of CPU, so "
        f"{used / 2:.0f} s on two cores of their own",
        flush=True,
    )
    print(killed_and_resumed(command(file, folder / "killed", loky), folder / "killed", expected), flush=True)
    for backend in ("sequential", "dask"):
        took, used = timed(command(file, folder / backend, ("-j", "2", "--backend", backend)))
        require(sorted_rows(folder / backend) == expected, f"{backend}: other rows than loky")
        columns = len(expected[0])
        print(f"{backend}: the same {len(keys)} rows of {columns} columns as loky; {took:.0f} s", flush=True)


def killed_and_resumed(argv: list[str], output: Path, expected: list[Row]) -> str:
    """Kill a sweep and all its processes when half of the rows are there, and go on."""
    start = time.perf_counter()
    running = subprocess.Popen(argv, start_new_session=True, stdout=subprocess.DEVNULL)
    while len(finished(output)) < len(expected) // 2:
        require(running.poll() is None, "the sweep ended before half of its rows were there")
        time.sleep(0.05)
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    kept = finished(output)
    require(len(kept) < len(expected), "the sweep was over before it was killed")
    before = time.perf_counter() - start
    after, _ = timed([*argv, "--resume"])
    lines = finished(output)
    require(lines[: len(kept)] == kept, "a finished row did not outlive the kill as it was")
    points = [json.loads(line)["point"] for line in lines]
    repeated = len(points) - len(set(points))
    missing = {row["point"] for row in expected} - set(points)
    require(not repeated, f"after the kill {repeated} rows are there twice")
    require(not missing, f"after the kill {len(missing)} rows are missing")
    require(sorted_rows(output) == expected, "after the kill: other rows than without")
    return (
        f"killed with {len(kept)} rows after {before:.0f} s, the others in {after:.0f} s more: {len(lines)} "
        f"rows, {repeated} repeated, {len(missing)} missing, the same as without a kill"
    )


def command(file: Path, output: Path, options: Sequence[str]) -> list[str]:
    """Return the command that runs a space into a folder."""
    return [sys.executable, "-m", "npusim", "sweep", str(file), "-o", str(output), *options]


def timed(argv: list[str]) -> tuple[float, float]:
    """Return the seconds that a command takes, and those of CPU of its processes."""
    start, before = time.perf_counter(), children()
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start, children() - before


def children() -> float:
    """Return the CPU seconds of the processes that ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def finished(output: Path) -> list[str]:
    """Return the whole lines in the file of the rows; none where there is no file yet."""
    file = output / "rows.jsonl"
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    return [line for line in text.splitlines(keepends=True) if line.endswith("\n")]


def sorted_rows(output: Path) -> list[Row]:
    """Return the rows in a folder, sorted by their points."""
    rows: list[Row] = [json.loads(line) for line in finished(output)]
    return sorted(rows, key=lambda row: str(row["point"]))


def require(holds: bool, what: str) -> None:
    """End the program with `what` where it does not hold."""
    if not holds:
        raise SystemExit(f"error: {what}")


if __name__ == "__main__":
    main()
