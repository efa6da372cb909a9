"""Checking a program without timing it: limits, hazards, flags, values, and bounds that need no timing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pydantic import Field, PrivateAttr

from npusim.check.bounds import link_bounds
from npusim.check.recurrence import Recurrence
from npusim.config.chip import Chip
from npusim.isa.instruction import Array, Instruction, Kind
from npusim.isa.numerics.profile import get_profile
from npusim.isa.operand import Access, Space
from npusim.isa.state import RESET, State
from npusim.machine.resolve import Resolved, resolve
from npusim.program.core import Launch
from npusim.program.inputs import given_inputs, make_inputs
from npusim.program.program import Program
from npusim.program.stream import ValueNeededError
from npusim.report.model import NotFinitePart, Part, Values
from npusim.report.not_finite import find_not_finite
from npusim.report.simulate import Observer
from npusim.report.values import compare
from npusim.report.values_run import FunctionalRun, Progress


class CheckedLaunch(Part):
    """One launch."""

    name: str
    cores: int
    instructions: int


class CheckedBounds(Part):
    """Lower bounds on the cycles; main memory is left out, since only a timed run knows what L2 holds."""

    compute_cycles: int
    """Busiest pipe."""
    l2_cycles: int
    """Traffic over the rate of L2."""
    flag_only_cycles: int
    """Longest chain through issue, queues, pipes and flags with infinitely fast links."""
    binding: str
    """The largest of them."""


class CheckReport(Part):
    """What is known of a program without timing it; there is one only for a program without hazards."""

    schema_id: Literal["npusim.check/1"] = Field("npusim.check/1", alias="schema")
    program: str
    chip: str
    clock_mhz: int
    params: dict[str, Any]
    seed: int
    numerics: str
    values: Values
    not_finite: NotFinitePart | None = None
    """Null where every output is finite."""
    launches: list[CheckedLaunch]
    pipes: dict[str, int]
    """Instructions by pipe, over all cores."""
    read_bytes: int
    """Bytes that the cores read from global memory."""
    write_bytes: int
    """Bytes that the cores write to global memory."""
    useful_bytes: int
    """Every input once and every output once."""
    bounds: CheckedBounds

    _outputs: tuple[str, ...] = PrivateAttr(default=())

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs. Not part of the JSON."""
        return self._outputs

    def to_json(self) -> str:
        """Return the report as JSON; the same check gives the same bytes."""
        return self.model_dump_json(by_alias=True, indent=2) + "\n"


def check(
    program: Program,
    chip: Chip,
    *,
    inputs: Mapping[str, Array] | None = None,
    seed: int = 0,
    numerics: str | None = None,
    progress: Progress | None = None,
    observe: Observer | None = None,
) -> CheckReport:
    """Run the values of a built program under all checks, without timing; arguments as for `run`.

    Raises `OperandError`, `HazardError` or `DeadlockError` where something is wrong with the streams.
    """
    profile = get_profile(numerics or chip.numerics)
    say = progress or _quiet
    arrays = make_inputs(program, seed, inputs)
    values = FunctionalRun(program, chip, profile, arrays, True, say)
    tally = _Tally(chip)
    for launch in program.launches:
        streams = values.run(launch)
        tally.add(launch.name, streams)
        if observe is not None:
            observe(launch, streams)
    outputs = values.outputs()
    say("comparing", 0)
    _, l2 = link_bounds(chip, tally.read_bytes, tally.write_bytes, 0, 0)
    cycles = {"compute_cycles": tally.compute, "l2_cycles": l2, "flag_only_cycles": tally.flag_only}
    binding = max(cycles, key=lambda name: cycles[name]).removesuffix("_cycles")
    report = CheckReport(
        program=program.name,
        chip=chip.name,
        clock_mhz=chip.clock_mhz,
        params=program.params,
        seed=seed,
        numerics=profile.name,
        values=compare(program, arrays, outputs),
        not_finite=find_not_finite(program, chip, profile, arrays, outputs, l2=None, say=say),
        launches=tally.launches,
        pipes=dict(sorted(tally.pipes.items())),
        read_bytes=tally.read_bytes,
        write_bytes=tally.write_bytes,
        useful_bytes=program.useful_bytes,
        bounds=CheckedBounds(**cycles, binding=binding),
    )
    report._outputs = tuple(outputs)
    return report


def streams_of(
    program: Program,
    chip: Chip,
    *,
    inputs: Mapping[str, Array] | None = None,
    seed: int = 0,
    numerics: str | None = None,
) -> Iterator[tuple[Launch, list[Resolved]]]:
    """Return the streams of every launch of a built program; values run only where a stream needs one."""
    profile = get_profile(numerics or chip.numerics)
    given = given_inputs(program, inputs or {})
    try:
        resolved = [resolve(launch, chip) for launch in program.launches]
    except ValueNeededError:
        arrays = make_inputs(program, seed, given)
        values = FunctionalRun(program, chip, profile, arrays, False, _quiet)
        return ((launch, values.run(launch)) for launch in program.launches)
    return zip(program.launches, resolved, strict=True)


def _quiet(what: str, done: int) -> None:
    """Report no progress."""


class _Tally:
    """What the streams of all launches add up to."""

    def __init__(self, chip: Chip) -> None:
        self._chip = chip
        self.launches: list[CheckedLaunch] = []
        self.pipes: Counter[str] = Counter()
        self.read_bytes = self.write_bytes = 0
        self.compute = self.flag_only = 0
        self._moved: dict[int, tuple[Instruction, State, int, int]] = {}

    def add(self, name: str, streams: list[Resolved]) -> None:
        """Add a launch."""
        count = sum(s.count for s in streams)
        self.launches.append(CheckedLaunch(name=name, cores=len(streams), instructions=count))
        flag_only, compute = Recurrence(self._chip, [(s.core, s.items) for s in streams]).run()
        self.flag_only += flag_only
        self.compute += compute
        for stream in streams:
            state = RESET
            for op in stream:
                self.pipes[op.pipe.name] += 1
                if op.kind is Kind.STATE:
                    state = op.update(state)
                elif op.kind is Kind.WORK:
                    read, written = self._traffic(op, state)
                    self.read_bytes += read
                    self.write_bytes += written
        self._moved.clear()

    def _traffic(self, op: Instruction, state: State) -> tuple[int, int]:
        """Return the bytes that an instruction reads from and writes to global memory."""
        found = self._moved.get(id(op))
        if found is None or found[1] != state:
            transfer = op.work(self._chip, state).transfer if _in_global(op) else None
            size = _size(transfer.access) if transfer is not None else 0
            write = transfer is not None and transfer.write
            found = self._moved[id(op)] = (op, state, 0 if write else size, size if write else 0)
        return found[2], found[3]


def _in_global(op: Instruction) -> bool:
    """Whether an operand of an instruction lies in global memory."""
    operands = (getattr(op, name) for name in op.roles)
    return any(at is not None and at.space is Space.GM for at in operands)


def _size(access: Access) -> int:
    return sum(stop - start for start, stop in access.runs())
