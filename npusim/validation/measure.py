"""Running the programs of the rows, timing only."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from npusim.config.load import load_chip
from npusim.errors import ConfigError, NpusimError
from npusim.isa.operand import Pipe
from npusim.machine.timing.account import Cause
from npusim.machine.timing.l2 import L2State
from npusim.report.model import MODEL_REVISION, Report
from npusim.report.simulate import simulate
from npusim.validation.rows import Pairs, Row

Progress = Callable[[str, int, int], None]
"""Called after every case with what ran, the number of cases done and their number."""


@dataclass(frozen=True, slots=True)
class Case:
    """One run; rows that ask for the same run share it."""

    device: str
    program: str
    params: Pairs
    l2: L2State

    def __str__(self) -> str:
        """Name the run as progress and errors do."""
        return " ".join([self.program, *(f"{k}={v}" for k, v in self.params)])


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run came to; with an `error` the numbers mean nothing."""

    cycles: int = 0
    device_us: float = 0.0
    """Device time with the start of the launches, without host time."""
    clock_mhz: int = 0
    instructions: int = 0
    pipe_cycles: tuple[tuple[str, float], ...] = ()
    """Work and link cycles of every kind of pipe, mean over the cores on which it has any."""
    launches_us: tuple[tuple[str, float], ...] = ()
    """Device time of every launch by its name, with the start."""
    last_product: int = 0
    """Cycles from the end of the last product on pipe M until its result can be used."""
    model_revision: int = MODEL_REVISION
    error: str = ""


def cases_of(row: Row) -> tuple[Case, ...]:
    """Return the run of a row, and the one it is compared with where it has one."""
    main = Case(row.device, row.program, row.params, row.l2)
    if not row.versus:
        return (main,)
    other = dict(row.versus)
    program = other.pop("program", "")
    params = other if program else {**dict(row.params), **other}  # of another program all are given
    return (main, Case(row.device, program or row.program, tuple(params.items()), row.l2))


def run_case(case: Case, overrides: Sequence[str] = ()) -> Outcome:
    """Simulate a case; whatever goes wrong becomes its `error`."""
    try:
        chip = load_chip(case.device, overrides=overrides)
        params: dict[str, Any] = dict(case.params)
        report = simulate(case.program, chip, l2=case.l2, timing_only=True, **params)
    except Exception as error:  # one row that fails must not take the others with it
        return Outcome(error=_words(error))
    return Outcome(
        cycles=report.total_cycles,
        device_us=report.time_us,
        clock_mhz=report.clock_mhz,
        instructions=sum(part.instructions for part in report.pipes.values()),
        pipe_cycles=_pipe_cycles(report),
        launches_us=tuple((launch.name, launch.time_us or 0.0) for launch in report.launches),
        last_product=chip.cube.head_isolated_cycles - chip.cube.head_streamed_cycles,
        model_revision=report.model_revision,
    )


def run_cases(
    rows: Iterable[Row],
    *,
    jobs: int = 1,
    overrides: Sequence[str] = (),
    progress: Progress | None = None,
) -> dict[Case, Outcome]:
    """Run what the rows ask for, every distinct case once, the longest first, on `jobs` processes.

    Raises `ConfigError` where `jobs` is below 1 or an override cannot be used on a chip of the rows.
    """
    if jobs < 1:
        raise ConfigError(f"validation: jobs must be at least 1, not {jobs}")
    cases = list(dict.fromkeys(case for row in rows for case in cases_of(row)))
    for device in dict.fromkeys(case.device for case in cases):
        load_chip(device, overrides=overrides)
    cases.sort(key=_size, reverse=True)
    outcomes: dict[Case, Outcome] = {}
    for case, outcome in _outcomes(cases, jobs, overrides):
        outcomes[case] = outcome
        if progress is not None:
            progress(str(case), len(outcomes), len(cases))
    return outcomes


def simulated(row: Row, outcomes: Mapping[Case, Outcome]) -> float:
    """Return what the simulator says for a row, in its unit; its cases must be there and without errors.

    Raises `ConfigError` where the launch or the pipe of the row has nothing in it, or both runs take equally
    long.
    """
    found = [outcomes[case] for case in cases_of(row)]
    main, other = found[0], found[-1]
    if row.metric == "time_us":
        return main.device_us + row.host.us
    if row.metric == "gb_per_s":
        return row.amount / (main.device_us + row.host.us) / 1000
    if row.metric == "time_ratio":
        return other.device_us / main.device_us
    if row.metric in ("slope_gb_per_s", "slope_gflop_per_s"):
        slower = main.device_us - other.device_us
        if slower <= 0:
            raise ConfigError(f"{row.id}: the run of params must take longer than that of versus")
        return row.amount / slower / 1000
    if row.metric == "launch_us":
        times = [us for name, us in main.launches_us if name == row.part]
        if not times:
            launches = " ".join(dict.fromkeys(name for name, _ in main.launches_us))
            raise ConfigError(f"{row.id}: the run has no launch {row.part}; it has {launches}")
        return sum(times)
    pipe = "M" if row.metric == "products_cycles" else row.part
    cycles = dict(main.pipe_cycles).get(pipe)
    if cycles is None:
        raise ConfigError(f"{row.id}: nothing runs on pipe {pipe}; name another pipe")
    if row.metric == "pipe_us":
        return cycles / main.clock_mhz
    return cycles + (main.last_product if row.metric == "products_cycles" else 0)


def _outcomes(cases: Sequence[Case], jobs: int, overrides: Sequence[str]) -> Iterator[tuple[Case, Outcome]]:
    if jobs == 1 or len(cases) < 2:
        for case in cases:
            yield case, run_case(case, overrides)
        return
    from joblib import Parallel, delayed

    parallel = Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1)
    yield from parallel(delayed(_named)(case, overrides) for case in cases)


def _named(case: Case, overrides: Sequence[str]) -> tuple[Case, Outcome]:
    return case, run_case(case, overrides)


def _size(case: Case) -> float:
    """Guess the relative cost of a case: elements, with more instructions for small tiles."""
    params = dict(case.params)
    n = math.prod(float(params.get(k, "")) for k in ("batch", "length") if params.get(k, "").isdigit())
    n = float(params["n"]) if params.get("n", "").isdigit() else n
    s = float(params["s"]) if params.get("s", "").isdigit() else 128.0
    return n / max(s, 1.0)


def _pipe_cycles(report: Report) -> tuple[tuple[str, float], ...]:
    busy: dict[str, list[int]] = {}
    for timed in report.timings:
        for clock in timed.clocks:
            cycles = clock.cycles[Cause.WORK] + clock.cycles[Cause.LINK]
            if clock.instructions and cycles:
                busy.setdefault(clock.pipe.name, []).append(cycles)
    order = [pipe.name for pipe in Pipe]
    return tuple((name, sum(busy[name]) / len(busy[name])) for name in order if name in busy)


def _words(error: Exception) -> str:
    words = " ".join(str(error).split())
    return words if isinstance(error, NpusimError) else f"{type(error).__name__}: {words}"
