"""Print what npusim costs, as ratios within one run: `python benchmarks/run.py`.

Times are CPU times of one thread; the two sides of a ratio alternate, and medians are compared. Each line
says what it was measured against and what the project allows.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import simpy

import npusim
from npusim.config.load import load_chip
from npusim.machine.resolve import resolve
from npusim.machine.timing.engine import TimingMachine
from npusim.program.discover import find_program

ROUNDS = 7
EVENTS = 100_000


def main() -> None:
    """Run all benchmarks."""
    instruction_cost()
    for line in (whole_run("scan_u", 1 << 20), large_run(), import_time()):
        print(line)
    subprocess.run([sys.executable, str(Path(__file__).with_name("cube_numerics.py"))], check=True)


def instruction_cost() -> None:
    """Compare one instruction, flags included, with one bare SimPy timeout."""
    chip, maker = load_chip("ascend-910b4"), find_program("scan_u")
    program = maker.build(chip, {"n": 1 << 20})
    streams = resolve(program.launches[0], chip)
    count = sum(s.count for s in streams)
    timing: list[float] = []
    whole: list[float] = []
    event: list[float] = []
    for _ in range(ROUNDS):
        event.append(cpu(timeouts) / EVENTS)
        timing.append(cpu(lambda: TimingMachine(chip, program.segments).run("scan_u", streams)) / count)
        whole.append(cpu(lambda: npusim.simulate(maker, chip, n=1 << 20, timing_only=True)) / count)
    bare = statistics.median(event)
    for what, times, limit in (
        ("the timing machine", timing, "at most 6"),
        ("a timing-only run (build, timing, bounds, report)", whole, "no limit set"),
    ):
        cost = statistics.median(times)
        print(
            f"an instruction of scan_u in {what}: {cost / bare:.1f} bare SimPy timeouts ({limit}); "
            f"{cost * 1e6:.1f} us, a timeout {bare * 1e6:.2f} us"
        )


def timeouts() -> None:
    """Run bare SimPy timeouts."""

    def process(env: simpy.Environment) -> object:
        for _ in range(EVENTS):
            yield env.timeout(1)

    env = simpy.Environment()
    env.process(process(env))
    env.run()


def whole_run(name: str, n: int) -> str:
    """Compare a run with values with checks on and off."""
    maker, chip = find_program(name), load_chip("ascend-910b4")
    on, off = [], []
    for _ in range(ROUNDS):
        on.append(cpu(lambda: npusim.simulate(maker, chip, n=n)))
        off.append(cpu(lambda: npusim.simulate(maker, chip, n=n, check=False)))
    ratio = statistics.median(on) / statistics.median(off)
    return f"{name}, n={n:,}, values and timing: checks on cost {ratio:.2f} times checks off (at most 2)"


def large_run() -> str:
    """Run scan_ul1 on 2^24 elements with values in a process of its own."""
    code = (
        "import npusim, resource; r = npusim.simulate('scan_ul1', n=1 << 24); assert r.values.ok; "
        "u = resource.getrusage(resource.RUSAGE_SELF); print(u.ru_utime + u.ru_stime, u.ru_maxrss)"
    )
    seconds, kib = child(code).split()
    return (
        f"scan_ul1, n=16,777,216, values and timing: {float(seconds):.1f} s of CPU (at most 25), "
        f"{int(kib) / 2**20:.2f} GiB at peak (at most 1.40)"
    )


def import_time() -> str:
    """Compare `import npusim` with `import numpy`, each in new processes."""
    ours = statistics.median(child_seconds("import npusim") for _ in range(ROUNDS))
    bare = statistics.median(child_seconds("pass") for _ in range(ROUNDS))
    numpy = statistics.median(child_seconds("import numpy") for _ in range(ROUNDS))
    return (
        f"import npusim: {ours - bare:.2f} s (at most 0.5), {(ours - bare) / (numpy - bare):.1f} times "
        f"import numpy"
    )


def cpu(run: Callable[[], object]) -> float:
    """Return the CPU seconds of a call."""
    start = time.process_time()
    run()
    return time.process_time() - start


def child(code: str) -> str:
    """Return what a new interpreter prints."""
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}  # as a user has it
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=env)
    return done.stdout


def child_seconds(code: str) -> float:
    """Return the CPU seconds of a new interpreter."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    child(code)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()
