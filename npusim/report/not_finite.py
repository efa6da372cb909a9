"""NaN and infinities in outputs, and the instruction that made the first of them.

Nothing is looked at while a program runs. Where an output holds some in the end, though no input did, the
values run once more without checks, and every instruction with a floating destination is looked at until one
makes NaN or an infinity of finite operands. That is the first in the order of the functional machine; another
core may have made one at an earlier time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from npusim.config.chip import Chip
from npusim.errors import NpusimError
from npusim.isa.instruction import Array, Instruction, Kind
from npusim.isa.numerics.profile import NumericsProfile
from npusim.isa.operand import Access, Operand
from npusim.isa.state import State
from npusim.machine.functional import Core
from npusim.machine.resolve import Resolved
from npusim.machine.timing.account import Cause
from npusim.machine.timing.engine import LaunchTiming, TimingMachine
from npusim.machine.timing.l2 import L2State
from npusim.program.core import Launch
from npusim.program.program import Program
from npusim.report.model import FirstNotFinite, NotFinite, NotFinitePart
from npusim.report.values_run import FunctionalRun, Progress

_CHUNK = 1 << 20
"""Elements that are looked at at a time."""


def find_not_finite(
    program: Program,
    chip: Chip,
    profile: NumericsProfile,
    arrays: Mapping[str, Array],
    outputs: Mapping[str, Array],
    *,
    l2: L2State | None,
    say: Progress,
) -> NotFinitePart | None:
    """Return which outputs hold NaN and infinities, and where they came from; None where all are finite.

    `arrays` are the inputs and constants that the run started from; where one of them holds some already, no
    instruction is looked for. With a state of L2 the launches up to the instruction that is found are timed
    again, to say when it starts.
    """
    lost = _counts_of(outputs)
    if not lost:
        return None
    given = _counts_of(arrays)
    first = None
    if not given:
        finder = _Finder()
        run = FunctionalRun(program, chip, profile, arrays, False, say, finder)
        played: list[list[Resolved]] = []
        try:
            for launch in program.launches:
                played.append(run.run(launch))
                if finder.found is not None:
                    break
            first = finder.report(played)
            if first is not None and l2 is not None:
                timing = TimingMachine(chip, program.segments, l2=l2, spans=True)
                names = [launch.name for launch in program.launches]
                timed = [timing.run(name, streams) for name, streams in zip(names, played, strict=False)]
                first = first.model_copy(update={"cycle": _cycle(first, timed)})
        except NpusimError:  # streams that run differently the second time have no such instruction
            first = None
    return NotFinitePart(outputs=lost, inputs=given, first=first)


def _counts_of(arrays: Mapping[str, Array]) -> dict[str, NotFinite]:
    """Return the counts of those arrays that hold NaN or infinities."""
    counted = {name: count_not_finite(array) for name, array in arrays.items()}
    return {name: found for name, found in counted.items() if found.nan or found.infinite}


def count_not_finite(array: Array) -> NotFinite:
    """Return how many NaN and infinities an array of any element type holds."""
    nan = infinite = 0
    if array.dtype.kind not in "biu":
        flat = array.reshape(-1)
        for start in range(0, flat.size, _CHUNK):
            part = flat[start : start + _CHUNK]
            with np.errstate(invalid="ignore"):  # signalling NaN
                bad = part[~np.isfinite(part)]
            if bad.size:
                missing = int(np.count_nonzero(np.isnan(bad)))
                nan += missing
                infinite += bad.size - missing
    return NotFinite(nan=nan, infinite=infinite)


class _Finder:
    """Executes instructions for the functional machine and keeps the first that makes NaN or an infinity."""

    def __init__(self) -> None:
        self.found: tuple[Launch, Core, int, Operand, NotFinite] | None = None

    def __call__(self, launch: Launch, core: Core, number: int, op: Instruction, state: State) -> Any:
        """Execute an instruction."""
        memory = core.memory
        if self.found is not None or op.kind is not Kind.WORK or not _floating(op):
            return op.execute(memory, state)
        from_finite = all(
            np.isfinite(part).all() for _, part in _parts(core, op, op.reads(state), written=False)
        ) and all(_finite_scalar(core, op, name) for name in op.scalars)
        value = op.execute(memory, state)
        if from_finite:
            made = [(at, count_not_finite(x)) for at, x in _parts(core, op, op.writes(state), written=True)]
            nan, infinite = sum(n.nan for _, n in made), sum(n.infinite for _, n in made)
            if nan or infinite:
                self.found = launch, core, number, made[0][0], NotFinite(nan=nan, infinite=infinite)
        return value

    def report(self, played: list[list[Resolved]]) -> FirstNotFinite | None:
        """Return what was found, without its time, in the last of the launches that were played."""
        if self.found is None:
            return None
        launch, core, number, operand, made = self.found
        site = core.resolved.site(number)
        return FirstNotFinite(
            launch=launch.name,
            launch_number=len(played) - 1,
            core=str(site.core),
            pipe=site.pipe.name,
            instruction=site.op.mnemonic,
            number=number,
            line=site.where,
            space=operand.space.short,
            nan=made.nan,
            infinite=made.infinite,
            cycle=None,
        )


def _floating(op: Instruction) -> bool:
    """Whether an instruction writes floating elements."""
    written = (getattr(op, name) for name, role in op.roles.items() if role.writes)
    return any(at is not None and at.dtype.is_float for at in written)


def _finite_scalar(core: Core, op: Instruction, name: str) -> bool:
    """Whether a scalar operand, an immediate or a register, is finite."""
    dtype = op.scalar_dtype
    return not dtype.is_float or bool(np.isfinite(core.memory.scalar(getattr(op, name), dtype)))


def _parts(
    core: Core, op: Instruction, accesses: Iterable[Access], *, written: bool
) -> Iterable[tuple[Operand, Array]]:
    """Yield the floating elements that an instruction touches, access by access, with their operand."""
    named = [getattr(op, name) for name, role in op.roles.items() if (role.writes if written else role.reads)]
    for access in accesses:
        operand = _operand(named, access)
        if operand is None or not operand.dtype.is_float:
            continue
        memory = core.memory.bytes_of(operand)
        found = [memory[start:stop] for start, stop in access.runs()]
        flat = found[0] if len(found) == 1 else np.concatenate([*found, memory[:0]])  # of no run: empty
        yield operand, flat[: flat.size // operand.dtype.size * operand.dtype.size].view(operand.dtype.np)


def _operand(named: Iterable[Operand | None], access: Access) -> Operand | None:
    """Return the operand that bytes belong to: the last that starts at or before them."""
    before = [
        at
        for at in named
        if at is not None
        and (at.space, at.segment) == (access.space, access.segment)
        and at.address <= access.start
    ]
    return max(before, key=lambda at: at.address, default=None)


def _cycle(first: FirstNotFinite, timed: list[LaunchTiming]) -> int | None:
    """Return when the instruction started, in cycles since the first launch did."""
    launch = timed[first.launch_number]
    spans = launch.spans
    assert spans is not None
    lane = [clock.name for clock in launch.clocks].index(f"{first.core}.{first.pipe}")
    pipe, op, cause = (np.array(column) for column in (spans.pipe, spans.op, spans.cause))
    mine = (pipe == lane) & (op == first.number) & ((cause == Cause.WORK) | (cause == Cause.LINK))
    starts = np.array(spans.start)[mine]
    return sum(t.cycles for t in timed[:-1]) + int(starts.min()) if starts.size else None
