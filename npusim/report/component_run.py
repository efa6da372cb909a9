"""From the spans of a run to its components, and the ceilings of a chip."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from npusim.config.chip import Chip
from npusim.errors import ConfigError
from npusim.isa.instruction import Array, Instruction, Kind
from npusim.isa.operand import Pipe
from npusim.isa.state import RESET, State
from npusim.isa.sync import WaitFlag
from npusim.machine.timing.account import Cause
from npusim.machine.timing.engine import LaunchTiming
from npusim.program.core import CoreId
from npusim.report.component_model import COMPONENTS, NAMES, Component, Part
from npusim.report.component_work import Share, share
from npusim.report.components import Components, Thresholds
from npusim.report.model import Report
from npusim.units import REPEAT_BYTES

ISSUE = "issue"
"""Part of the scalar unit: what it spends on instructions of other pipes and on the control state."""
_ACTIVE = (int(Cause.WORK), int(Cause.LINK))


def components(report: Report, thresholds: Thresholds | None = None) -> Components:
    """Return the component-based roofline of a run that kept its spans.

    Raises `ConfigError` where it kept none; simulate with `spans=True`.
    """
    chip, timings = report.chip_used, report.timings
    if chip is None or not timings or any(t.spans is None for t in timings):
        raise ConfigError(
            f"components: the run of {report.program} kept no spans; simulate it again with spans=True"
        )
    cores = list(dict.fromkeys(stream.core for t in timings for stream in t.resolved))
    found = {
        (kind, pipe): Component(kind, pipe, sum(c.kind is kind for c in cores), report.total_cycles)
        for kind, pipes in COMPONENTS.items()
        for pipe in pipes
        if any(c.kind is kind for c in cores)
    }
    active: dict[tuple[CoreId, Pipe], int] = {(c, p): 0 for c in cores for p in COMPONENTS[c.kind]}
    for timed in timings:
        tables = {stream.core: Table(stream.ops, chip) for stream in timed.resolved}
        for core, table in tables.items():
            for pipe in COMPONENTS[core.kind]:
                table.add_amounts(found[core.kind, pipe])
        spans = _columns(timed)
        for clock in timed.clocks:
            if clock.pipe in COMPONENTS[clock.core.kind]:
                component = found[clock.core.kind, clock.pipe]
                mine = [column[spans[0] == clock.index] for column in spans[1:]]
                active[clock.core, clock.pipe] += tables[clock.core].add_times(component, mine)
    for (core, pipe), cycles in active.items():
        found[core.kind, pipe].active_by_core.append(cycles)
    for component in found.values():
        known = component.active + sum(component.waits.values())
        component.waits["tail"] = component.cores * component.cycles - known
        component.waits = +component.waits
        component.parts = dict(sorted(component.parts.items(), key=lambda item: (-item[1].amount, item[0])))
    gm = report.gm
    return Components(
        report.program,
        report.chip,
        report.clock_mhz,
        report.total_cycles,
        list(found.values()),
        gm.hbm_read_bytes + gm.hbm_write_bytes,
        chip.hbm_bytes_per_cycle,
        thresholds or Thresholds(),
        report.bounds.flag_only_cycles,
        report.bounds.compute_cycles,
    )


def _columns(timed: LaunchTiming) -> tuple[Array, ...]:
    """Return pipe, instruction, cause, start and stop of all spans."""
    spans = timed.spans
    assert spans is not None
    return tuple(np.array(column) for column in (spans.pipe, spans.op, spans.cause, spans.start, spans.stop))


class Table:
    """What the instructions of one stream do, and for which part of which component."""

    def __init__(self, ops: Sequence[Instruction], chip: Chip) -> None:
        self.ops = ops
        self._names: list[tuple[Pipe, str]] = [(Pipe.S, ISSUE)]
        self._part = array("i")
        """Number of the part of every instruction; 0 where it has none."""
        self._sums: list[Part] = [Part(ISSUE)]
        numbers: dict[tuple[Pipe, str], int] = {self._names[0]: 0}
        seen: dict[int, tuple[State, int, Share | None]] = {}
        states: dict[State, State] = {RESET: RESET}
        state = RESET
        for op in ops:
            entry = seen.get(id(op))
            if entry is None or entry[0] is not state:
                made = share(op, chip, state)
                number = 0
                if made is not None:
                    key = (op.pipe, made.part)
                    number = numbers.setdefault(key, len(numbers))
                    if number == len(self._names):
                        self._names.append(key)
                        self._sums.append(Part(made.part))
                entry = seen[id(op)] = (state, number, made)
            self._part.append(entry[1])
            if entry[2] is not None:
                part = self._sums[entry[1]]
                part.instructions += 1
                part.amount += entry[2].amount
                part.ideal += entry[2].ideal
            if op.kind is Kind.STATE:
                state = op.update(state)
                state = states.setdefault(state, state)

    def add_amounts(self, component: Component) -> None:
        """Add operations, bytes and ideal cycles to the parts of a component."""
        for (pipe, name), part in zip(self._names, self._sums, strict=True):
            if pipe is component.pipe and part.instructions:
                total = component.parts.setdefault(name, Part(name))
                total.instructions += part.instructions
                total.amount += part.amount
                total.ideal += part.ideal

    def add_times(self, component: Component, spans: list[Array]) -> int:
        """Add active cycles, waits and gaps of one pipe to a component; return the active cycles.

        `spans` are its instruction numbers, causes, starts and stops, in order of time.
        """
        op, cause, start, stop = spans
        length = stop - start
        work = np.isin(cause, _ACTIVE)
        parts = np.array(self._part, dtype=np.int64)[op[work]] if work.any() else np.zeros(0, np.int64)
        for number, cycles in enumerate(np.bincount(parts, weights=length[work])):
            if not cycles:
                continue
            pipe, name = self._names[number]
            if pipe is not component.pipe:  # the scalar unit issues for the other pipes
                name = ISSUE
            component.parts.setdefault(name, Part(name)).active += int(cycles)
        waits: dict[str, int] = defaultdict(int)
        for at, why, cycles in zip(op[~work], cause[~work], length[~work], strict=True):
            word = Cause(why).name.lower()
            waiting = self.ops[at]
            if why == Cause.FLAG and isinstance(waiting, WaitFlag):
                word = f"flag of {NAMES[waiting.src]}"
            waits[word] += int(cycles)
        component.waits.update(waits)
        gaps = start[work][1:] - stop[work][:-1]
        component.intervals += int(np.count_nonzero(gaps > 0))
        component.longest = max(component.longest, int(gaps.max(initial=0)))
        return int(length[work].sum())


def ceilings(chip: Chip) -> dict[str, float]:
    """Return the rates of all cores of a chip together, by component and precision or path.

    10^9 operations per second for cube and vector unit, which count two for a multiply-add and do one repeat
    of it per cycle; 10^9 bytes per second for paths, ports and main memory (sustained). Paths that count
    elements are given for four-byte ones.
    """
    cubes = chip.cores.cube
    vectors = cubes * chip.cores.vector_per_cube
    scale = chip.clock_mhz / 1000
    found = {f"Cube {row}": 2 * cubes * m * n * k * scale for row, (m, n, k) in chip.cube.rates.items()}
    for name, size in (("f16", 2), ("f32", 4)):
        found[f"Vector {name}"] = 2 * vectors * REPEAT_BYTES // size * scale
    for section in (chip.ports, chip.paths):
        for path in type(section).model_fields:
            rate = getattr(section, path)
            if rate is not None:
                cores = vectors if "ub" in path.split("_") else cubes
                width = rate.bytes_per_cycle or 4 * rate.elements_per_cycle
                found[f"{_ENGINE.get(path, 'MTE-L1')} {path}"] = cores * width * scale
    return found | {"HBM": chip.hbm_bytes_per_cycle * scale}


_ENGINE = {
    "gm_to_ub": "MTE-GM",
    "gm_to_l1": "MTE-GM",
    "fill_l1": "MTE-GM",
    "ub_to_gm": "MTE-UB",
    "ub_to_l1": "MTE-UB",
    "l0c_to_gm": "FIX",
    "l0c_to_l1": "FIX",
    "l1_to_fb": "FIX",
    "l0c_to_ub": "Vector",
}
"""Components of ports and paths; MTE-L1 has the others."""
