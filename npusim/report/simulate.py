"""One run from a program to a report: build, functional machine, timing machine, bounds, comparison."""

from __future__ import annotations

import hashlib
import inspect
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, get_args

import numpy as np

from npusim.check.bounds import Bounds, link_bounds
from npusim.check.recurrence import Recurrence
from npusim.config.chip import Chip
from npusim.config.document import show
from npusim.config.load import load_chip
from npusim.errors import ConfigError
from npusim.isa.instruction import Array
from npusim.isa.numerics.profile import NumericsProfile, get_profile
from npusim.isa.operand import Pipe
from npusim.machine.resolve import Resolved, resolve
from npusim.machine.timing.account import Cause
from npusim.machine.timing.engine import LaunchTiming, TimingMachine
from npusim.machine.timing.l2 import L2State
from npusim.program.core import CoreKind, Launch
from npusim.program.discover import find_program
from npusim.program.inputs import given_inputs, make_inputs
from npusim.program.macro import Macro
from npusim.program.program import Program, ProgramMaker
from npusim.report.model import (
    MODEL_REVISION,
    BoundsPart,
    ConfidencePart,
    CubePart,
    GmPart,
    LaunchPart,
    NotFinitePart,
    PipePart,
    Report,
    Values,
    VectorPart,
)
from npusim.report.not_finite import find_not_finite
from npusim.report.values import NOT_CHECKED, compare
from npusim.report.values_run import FunctionalRun, Progress
from npusim.units import cycles_to_us

Observer = Callable[[Launch, list[Resolved]], None]
"""Called with the streams of every launch as they ran."""


def simulate(
    program: ProgramMaker | str | os.PathLike[str],
    chip: Chip | str | os.PathLike[str] = "ascend-910b4",
    *,
    inputs: Mapping[str, Array] | None = None,
    seed: int = 0,
    numerics: str | None = None,
    l2: L2State = "cold",
    check: bool = True,
    timing_only: bool = False,
    spans: bool = False,
    progress: Progress | None = None,
    observe: Observer | None = None,
    **params: Any,
) -> Report:
    """Run a program on a chip and return its report.

    `program` is a maker, a path, `file.py:name` or a shipped name; `chip` a chip, a path or a name. `inputs`
    gives arrays by name, the others are made from `seed`. `numerics` names a profile other than the chip's.
    `l2` is the state of the cache at the start. `check=False` turns hazard and limit checks off.
    `timing_only` computes no values. `spans` keeps who did what when. `observe` is called with the
    streams of every launch, to print or keep them. `params` are the program's parameters.

    Raises `ConfigError`, `OperandError`, `HazardError` or `DeadlockError`. Values that differ from the
    reference are reported in `values`, not raised.
    """
    maker, chip = _maker(program), _chip(chip)
    built = maker.build(chip, params, inputs)
    return run(
        built,
        chip,
        inputs=inputs,
        seed=seed,
        numerics=numerics,
        l2=l2,
        check=check,
        timing_only=timing_only,
        spans=spans,
        progress=progress,
        observe=observe,
    )


def _maker(program: object) -> ProgramMaker:
    if isinstance(program, str | os.PathLike):
        return find_program(os.fspath(program))
    if isinstance(program, ProgramMaker):
        return program
    hint = "; put @program on it" if inspect.isfunction(program) else ""
    raise ConfigError(
        f"simulate: program must be a shipped name, a file or what @program made, not {show(program)}{hint}"
    )


def _chip(chip: object) -> Chip:
    if isinstance(chip, str | os.PathLike):
        return load_chip(chip)
    if isinstance(chip, Chip):
        return chip
    raise ConfigError(f"simulate: chip must be a name, a file or what load_chip returned, not {show(chip)}")


def run(
    program: Program,
    chip: Chip,
    *,
    inputs: Mapping[str, Array] | None = None,
    seed: int = 0,
    numerics: str | None = None,
    l2: L2State = "cold",
    check: bool = True,
    timing_only: bool = False,
    spans: bool = False,
    progress: Progress | None = None,
    observe: Observer | None = None,
) -> Report:
    """Run a program that is built; see `simulate`."""
    profile = get_profile(numerics or chip.numerics)
    say = _quiet if progress is None else progress
    if l2 not in get_args(L2State):
        raise ConfigError(f"l2 must be one of {', '.join(get_args(L2State))}, not {l2!r}")
    # time needs no values, and large programs no memory for them
    arrays = given_inputs(program, inputs or {}) if timing_only else make_inputs(program, seed, inputs)
    values = FunctionalRun(program, chip, profile, arrays, check, say) if not timing_only else None
    play = values.run if values is not None else lambda launch: resolve(launch, chip, partial(say, "streams"))
    streams = ((launch, play(launch)) for launch in program.launches)
    identity = _Identity(program, chip, profile, seed, l2, inputs)
    timings, bounds = _time(program, chip, streams, identity, spans=spans, say=say, observe=observe)
    checked, lost = NOT_CHECKED, None
    outputs: dict[str, Array] = {}
    if values is not None:
        outputs = values.outputs()
        say("comparing", 0)
        checked = compare(program, arrays, outputs)
        lost = find_not_finite(program, chip, profile, arrays, outputs, l2=l2, say=say)
    report = _report(program, chip, timings, bounds, identity, checked, lost)
    report._outputs.update(outputs)
    report._timings.extend(timings)
    report._chip = chip
    return report


def retime(
    program: Program,
    chip: Chip,
    streams: Sequence[list[Resolved]],
    checked: Values,
    *,
    seed: int = 0,
    numerics: str | None = None,
    l2: L2State = "cold",
) -> Report:
    """Time the streams of a run, one list for every launch, on another chip, and return its report.

    It is the report of `run` on that chip, without outputs, where the chip builds the same program, runs the
    same streams and computes the same values: what `npusim.sweep` makes sure of. `checked` are its values.
    """
    identity = _Identity(program, chip, get_profile(numerics or chip.numerics), seed, l2, None)
    played = zip(program.launches, streams, strict=True)
    timings, bounds = _time(program, chip, played, identity)
    return _report(program, chip, timings, bounds, identity, checked)


def _time(
    program: Program,
    chip: Chip,
    streams: Iterable[tuple[Launch, list[Resolved]]],
    identity: _Identity,
    *,
    spans: bool = False,
    say: Progress | None = None,
    observe: Observer | None = None,
) -> tuple[list[LaunchTiming], Bounds]:
    """Time the launches as their streams come, and bound their times."""
    say = _quiet if say is None else say
    timing = TimingMachine(
        chip, program.segments, l2=identity.l2, spans=spans, progress=partial(say, "timing")
    )
    timings: list[LaunchTiming] = []
    bounds = Bounds(0, 0, 0, 0)
    for launch, played in streams:
        timed = timing.run(launch.name, played)
        say("bounds", sum(s.count for s in played))
        bounds += _bounds(chip, played, timed)
        identity.add(played)
        if observe is not None:
            observe(launch, played)
        if not spans:
            timed.resolved = []
        timings.append(timed)
    return timings, bounds


def _quiet(what: str, done: int) -> None:
    """Report no progress."""


class _Identity:
    """The hash that names a run."""

    def __init__(
        self,
        program: Program,
        chip: Chip,
        profile: NumericsProfile,
        seed: int,
        l2: L2State,
        inputs: Mapping[str, Array] | None,
    ) -> None:
        self.seed, self.numerics = seed, profile.name
        self.l2: L2State = l2
        self._hash = hashlib.sha256()
        given = {
            n: hashlib.sha256(np.ascontiguousarray(a).tobytes()).hexdigest()
            for n, a in (inputs or {}).items()
        }
        head = {
            "chip": chip.identity(),
            "params": program.params,
            "segments": [(s.name, s.dtype.short, s.shape, s.role) for s in program.segments],
            "seed": seed,
            "numerics": profile.to_dict(),
            "l2": l2,
            "inputs": given,
            "report": "npusim.report/1",
            "asm": "npusim.asm/1",
            "model": MODEL_REVISION,
        }
        self._hash.update(json.dumps(head, sort_keys=True, separators=(",", ":"), default=str).encode())
        self._text: dict[int, tuple[Any, bytes]] = {}

    def add(self, streams: list[Resolved]) -> None:
        """Add the streams of a launch."""
        update, texts = self._hash.update, self._text
        for stream in streams:
            update(str(stream.core).encode())
            for item in stream.items:
                found = texts.get(id(item))
                if found is None:
                    ops = item.ops if isinstance(item, Macro) else (item,)
                    found = texts[id(item)] = (item, "".join(f"\n{op}" for op in ops).encode())
                update(found[1])
        texts.clear()

    def digest(self) -> str:
        """Return the first 12 hex digits."""
        return self._hash.hexdigest()[:12]


def _bounds(chip: Chip, streams: list[Resolved], timed: LaunchTiming) -> Bounds:
    flag_only, compute = Recurrence(chip, [(s.core, s.items) for s in streams]).run()
    t = timed.traffic
    hbm, l2 = link_bounds(chip, t.read_bytes, t.write_bytes, t.hbm_read_bytes, t.hbm_write_bytes)
    return Bounds(compute, hbm, l2, flag_only)


def _report(
    program: Program,
    chip: Chip,
    timings: list[LaunchTiming],
    bounds: Bounds,
    identity: _Identity,
    checked: Values,
    lost: NotFinitePart | None = None,
) -> Report:
    total = sum(t.cycles for t in timings)
    start = chip.launch
    ai_cores = [len({c.core.group for c in t.clocks}) for t in timings]
    starts = [start.device_us + start.device_per_ai_core_us * (n - 1) for n in ai_cores]
    overhead = sum(starts)
    time_us = cycles_to_us(total, chip.clock_mhz) + overhead
    launches = [_launch(chip, t, begin, time_us) for t, begin in zip(timings, starts, strict=True)]
    return Report(
        run_id=identity.digest(),
        model_revision=MODEL_REVISION,
        program=program.name,
        chip=chip.name,
        clock_mhz=chip.clock_mhz,
        params=program.params,
        seed=identity.seed,
        numerics=identity.numerics,
        l2=identity.l2,
        values=checked,
        not_finite=lost,
        total_cycles=total,
        time_us=round(time_us, 6),
        launch_overhead_us=round(overhead, 6),
        host_overhead_us=round(start.host_us * len(timings), 6),
        launches=launches,
        pipes=_pipes(timings),
        gm=_gm(program, chip, timings, time_us),
        cube=CubePart(macs=sum(t.macs for t in timings), utilization=_busy(timings, Pipe.M)),
        vector=VectorPart(
            element_ops=sum(t.element_ops for t in timings), utilization=_busy(timings, Pipe.V)
        ),
        bounds=BoundsPart(**bounds._asdict(), binding=bounds.binding),
        confidence=_confidence(timings),
    )


def _launch(chip: Chip, timed: LaunchTiming, start_us: float, total_us: float) -> LaunchPart:
    us = cycles_to_us(timed.cycles, chip.clock_mhz) + start_us
    return LaunchPart(
        name=timed.name,
        cycles=timed.cycles,
        cores=len({c.core for c in timed.clocks}),
        time_us=round(us, 6),
        share=round(us / total_us, 6) if total_us else 0.0,
    )


def _pipes(timings: list[LaunchTiming]) -> dict[str, PipePart]:
    """Add the clocks of every pipe over the launches; a launch without its core is tail."""
    order: dict[str, tuple[int, int, int, int]] = {}
    sums: dict[str, Counter[str]] = {}
    total = sum(t.cycles for t in timings)
    kinds = list(CoreKind)
    for timed in timings:
        for clock in timed.clocks:
            c = clock.core
            order[clock.name] = (c.group, kinds.index(c.kind), c.number, int(clock.pipe))
            counts = sums.setdefault(clock.name, Counter())
            counts["instructions"] += clock.instructions
            for cause, cycles in zip(Cause, clock.cycles, strict=True):
                counts[cause.name.lower()] += cycles
    parts = {}
    for name in sorted(sums, key=lambda n: order[n]):
        counts = sums[name]
        explained = sum(counts[cause.name.lower()] for cause in Cause)
        assert explained <= total, f"{name}: {explained} cycles explained of {total}"
        parts[name] = PipePart(
            instructions=counts["instructions"],
            **{cause.name.lower(): counts[cause.name.lower()] for cause in Cause},
            tail=total - explained,
        )
    return parts


def _gm(program: Program, chip: Chip, timings: list[LaunchTiming], time_us: float) -> GmPart:
    reads = sum(t.traffic.read_bytes for t in timings)
    writes = sum(t.traffic.write_bytes for t in timings)
    hits = sum(t.traffic.hit_bytes for t in timings)
    hbm_reads = sum(t.traffic.hbm_read_bytes for t in timings)
    hbm_writes = sum(t.traffic.hbm_write_bytes for t in timings)
    moved = reads + writes
    per_us = 1e-3 / time_us if time_us else 0.0
    return GmPart(
        read_bytes=reads,
        write_bytes=writes,
        useful_bytes=program.useful_bytes,
        hbm_read_bytes=hbm_reads,
        hbm_write_bytes=hbm_writes,
        l2_hit_rate=round(hits / moved, 6) if moved else 0.0,
        achieved_gb_per_s=round(moved * per_us, 6),
        useful_gb_per_s=round(program.useful_bytes * per_us, 6),
        utilization=round((hbm_reads + hbm_writes) * per_us / chip.hbm.nominal_gb_per_s, 6),
    )


def _busy(timings: list[LaunchTiming], pipe: Pipe) -> float:
    clocks = [(c, t.cycles) for t in timings for c in t.clocks if c.pipe is pipe]
    total = sum(cycles for _, cycles in clocks)
    return round(sum(c.cycles[Cause.WORK] for c, _ in clocks) / total, 6) if total else 0.0


def _confidence(timings: list[LaunchTiming]) -> ConfidencePart:
    priced: Counter[str] = Counter()
    for timed in timings:
        priced.update(timed.priced)
    total = sum(priced.values()) or 1
    return ConfidencePart(**{grade: round(priced[grade] / total, 6) for grade in "HML"})
