"""The numbers of rooflines: roofs, points, and which roof binds.

Two views. The classic one puts the rate of the cube and vector units over operations per byte of main
memory, under the rates of the whole chip. The component view (ASPLOS 2025, doi 10.1145/3676641.3716243) has a
roof for every component that did something, at the ideal rate of its own mix, and a point for every pair of
a computing and a moving component that data takes.

Two questions have two answers. What binds is the roof of which a run reaches most, or latency where the
longest chain of dependent steps takes a larger share of the time (`Components.binding`). The verdict follows
the 80 % rule that msprof and the paper use: a run that reaches less of every roof is bound by none, but by
latency, or in the words of the component view by what `Components.verdict` says. The roof that is nearest is
named all the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from npusim.config.chip import Chip
from npusim.isa.operand import Pipe
from npusim.program.core import CoreKind
from npusim.report.component_model import Component
from npusim.report.components import LATENCY, MEMORY, Binding, Components, Verdict

BOUND = 0.80
"""Share of a roof from which on a run counts as bound by it."""


@dataclass(frozen=True)
class Roof:
    """A roof: flat for what computes, a diagonal for what moves."""

    name: str
    kind: Literal["compute", "move"]
    rate: float
    """10^9 operations or bytes per second."""
    utilization: float
    """How much of it the run reaches, 0 to 1; of several runs, the one that reaches most."""
    runs: tuple[str, ...] = ()
    """Runs that have this roof, where others of the figure have none of this name or another one."""
    shared: bool = False
    """Whether several runs have it."""


@dataclass(frozen=True)
class Point:
    """A run, or a pair of components of a run."""

    compute: str
    move: str
    intensity: float
    """Operations per byte."""
    rate: float
    """10^9 operations per second."""
    utilization: float
    """How much of the lower of its two roofs it reaches, 0 to 1."""
    run: str = ""


@dataclass(frozen=True)
class Roofline:
    """Roofs and points of one figure, and the verdict."""

    title: str
    roofs: list[Roof]
    points: list[Point]
    binding: str
    """Name of the roof of which the run reaches most, `latency` where the longest chain takes a larger share,
    empty in a figure of several runs.
    """
    bound: bool
    """Whether it is reached to 80 % or more."""
    verdict: str

    @property
    def mark(self) -> str:
        """What to write beside the roof of which the run reaches most."""
        return "binds" if self.bound else "nearest"


def component_roofline(found: Components, *, scalar: bool = False) -> Roofline:
    """Return the component view of a run; the scalar unit only where it is asked for."""
    used = [c for c in found if c.amount and (scalar or c.pipe is not Pipe.S)]
    roofs = [
        Roof(
            c.name,
            "compute" if c.compute else "move",
            found.per_second(c.ideal_rate),
            c.utilization,
        )
        for c in used
    ]
    points = [
        Point(
            p.compute.name, p.move.name, p.intensity, found.per_second(p.compute.actual_rate), p.utilization
        )
        for p in found.pairs
        if scalar or p.compute.pipe is not Pipe.S
    ]
    memory = found.memory_utilization
    if found.memory_bytes:
        roofs.append(Roof(MEMORY, "move", found.per_second(found.memory_rate), memory))
        points += [
            Point(
                c.name,
                MEMORY,
                c.amount / found.memory_bytes,
                found.per_second(c.actual_rate),
                max(c.utilization, memory),
            )
            for c in used
            if c.compute
        ]
    title = f"{found.program} on {found.chip}"
    verdict, binding = found.verdict, found.binding
    if verdict is None:
        return Roofline(title, roofs, points, "", False, "nothing was done")
    if binding.name == MEMORY and memory >= BOUND:
        words = f"bound by main memory: {memory:.0%} of its roof, {BOUND:.0%} or more"
        return Roofline(title, roofs, points, MEMORY, True, words)
    words = _explained(verdict)
    if verdict.code in ("CB", "MB"):
        return Roofline(title, roofs, points, verdict.component.name, True, words)
    closest = (
        binding.text if binding.name == LATENCY else f"nearest roof: {binding.name}, {binding.share:.0%}"
    )
    return Roofline(title, roofs, points, binding.name, False, f"{closest}; {words}")


def _explained(verdict: Verdict) -> str:
    """Say a verdict without the letters of the table of components."""
    c, limit = verdict.component, f"{verdict.threshold:.0%}"
    if verdict.code in ("CB", "MB"):
        return f"{verdict.kind}: {c.name} ({c.main_part}), {verdict.value:.1%} of its roof, {limit} or more"
    if verdict.code == "IP":
        return (
            f"{verdict.kind}: no component is active for {limit} of the time, {c.name} most with "
            f"{verdict.value:.1%}; the rest is mostly {verdict.rest}"
        )
    return (
        f"{verdict.kind}: {c.name} ({c.main_part}) is active for {verdict.value:.1%} of the time, "
        f"at {c.efficiency:.1%} of its ideal rate"
    )


def classic_roofline(runs: Sequence[tuple[Components, Chip]], names: Sequence[str] = ()) -> Roofline:
    """Return the classic view of one run or of several on one chip, whose numbers may differ.

    A roof of a unit is the rate of all such units of the chip at a run's own mix of types. Runs with the same
    rate share a roof; where there are several of one name, each says whose it is. `names` are those of the
    runs, by default of their programs, numbered where one repeats. Raises `ValueError` for no runs, and for
    runs on several chips.
    """
    if not runs:
        raise ValueError("a roofline needs one run or more")
    if len({chip.name for _, chip in runs}) > 1:
        raise ValueError("the runs of one roofline are of one chip")
    names = names or _numbered([found.program for found, _ in runs])
    several = len(runs) > 1
    reached: dict[tuple[str, str], tuple[float, dict[str, float]]] = {}
    """By name of a roof and its rate in nine digits: the rate, and how much of it every run reaches."""
    points, words = [], []
    closest = Binding("", 0.0)
    for name, (found, chip) in zip(names, runs, strict=True):
        memory = found.memory_utilization
        mine = {MEMORY: (found.per_second(chip.hbm_bytes_per_cycle), memory)}
        for c in found:
            if c.amount and c.pipe in (Pipe.M, Pipe.V):
                peak = found.per_second(c.ideal_rate) / c.cores * _cores(chip, c)
                rate = found.per_second(c.actual_rate)
                mine[_unit(c)] = (peak, rate / peak)
                intensity = c.amount / found.memory_bytes if found.memory_bytes else float("inf")
                run = name if several else ""
                points.append(Point(_unit(c), MEMORY, intensity, rate, max(rate / peak, memory), run))
        for roof, (rate, share) in mine.items():
            reached.setdefault((roof, f"{rate:.9g}"), (rate, {}))[1][name] = share
        shares = [Binding(roof, share) for roof, (_, share) in mine.items()]
        closest = max([*shares, Binding(LATENCY, found.latency_share)], key=lambda b: b.share)
        words.append(f"{name}: {_short(closest)}" if several else _said(closest))
    roofs = [
        Roof(
            roof,
            "move" if roof == MEMORY else "compute",
            rate,
            max(shares.values()),
            tuple(shares) if len(shares) < len(runs) else (),
            len(shares) > 1,
        )
        for (roof, _), (rate, shares) in sorted(reached.items(), key=lambda item: _ORDER.index(item[0][0]))
    ]
    if several:
        title = f"{runs[0][1].name}; a run that reaches less than {BOUND:.0%} of every roof is latency bound"
        return Roofline(title, roofs, points, "", False, "; ".join(words))
    bound = closest.name != LATENCY and closest.share >= BOUND
    title = f"{runs[0][0].program} on {runs[0][1].name}"
    return Roofline(title, roofs, points, closest.name, bound, words[0])


_ORDER = ("cube", "vector", MEMORY)


def _said(closest: Binding) -> str:
    """Say what one run is bound by."""
    if closest.name == LATENCY:
        chain = closest.text.partition(": ")[2]
        return f"below {BOUND:.0%} of every roof: latency bound; {chain}"
    if closest.share >= BOUND:
        return f"bound by {closest.name}, {closest.share:.0%} reached"
    return f"below {BOUND:.0%} of every roof: latency bound; nearest is {closest.name}, {closest.share:.0%}"


def _short(closest: Binding) -> str:
    """Say the same of one run of several."""
    if closest.name == LATENCY:
        return "latency bound"
    if closest.share >= BOUND:
        return f"bound by {closest.name}, {closest.share:.0%}"
    return f"latency bound, nearest {closest.name} {closest.share:.0%}"


def _numbered(names: Sequence[str]) -> list[str]:
    """Return names, each of those that repeat with its number."""
    counts, seen = Counter(names), Counter[str]()
    made = []
    for name in names:
        seen[name] += 1
        made.append(f"{name} {seen[name]}" if counts[name] > 1 else name)
    return made


def _unit(component: Component) -> str:
    return "cube" if component.pipe is Pipe.M else "vector"


def _cores(chip: Chip, component: Component) -> int:
    """Return how many such cores the chip has."""
    cubes = chip.cores.cube
    return cubes * chip.cores.vector_per_cube if component.kind is CoreKind.VECTOR else cubes
