"""The numbers of rooflines: roofs, points, and which roof binds.

Two views. The classic one puts the rate of the cube and vector units over operations per byte of main
memory, under the rates of the whole chip. The component view (ASPLOS 2025, doi 10.1145/3676641.3716243) has a
roof for every component that did something, at the ideal rate of its own mix, and a point for every pair of
a computing and a moving component that data takes.

Two questions have two answers. What binds is the roof of which a run reaches most, or latency where the
longest chain of dependent steps takes a larger share of the time (`Components.binding`). The verdict follows
the 80 % rule that msprof and the paper use: a run that reaches less of every roof is bound by none, but by
latency, or in the words of the component view by what `Components.verdict` says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from npusim.config.chip import Chip
from npusim.isa.operand import Pipe
from npusim.program.core import CoreKind
from npusim.report.component_model import Component
from npusim.report.components import LATENCY, MEMORY, Binding, Components

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
    """How much of it the run reaches, 0 to 1."""


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
        words = f"bound by main memory: U {memory:.0%} ≥ {BOUND:.0%}"
        return Roofline(title, roofs, points, MEMORY, True, words)
    words = verdict.text.replace(">=", "≥")
    if verdict.code in ("CB", "MB"):
        return Roofline(title, roofs, points, verdict.component.name, True, words)
    return Roofline(title, roofs, points, binding.name, False, f"{binding.text}; {words}")


def classic_roofline(runs: list[tuple[Components, Chip]]) -> Roofline:
    """Return the classic view of one run or of several on one chip.

    The roof of a unit is the rate of all such units of the chip at the mix of the run that uses it best.
    Raises `ValueError` for no runs, and for runs on several chips.
    """
    if not runs:
        raise ValueError("a roofline needs one run or more")
    if len({chip.name for _, chip in runs}) > 1:
        raise ValueError("the runs of one roofline are of one chip")
    peaks: dict[str, float] = {}
    raw: list[tuple[Components, Component, float]] = []
    for found, chip in runs:
        for c in found:
            if c.amount and c.pipe in (Pipe.M, Pipe.V):
                peak = found.per_second(c.ideal_rate) / c.cores * _cores(chip, c)
                name = _unit(c)
                peaks[name] = max(peaks.get(name, 0.0), peak)
                raw.append((found, c, peak))
    first, chip = runs[0]
    bandwidth = first.per_second(chip.hbm_bytes_per_cycle)
    several = len(runs) > 1
    points, words = [], []
    shares: dict[str, float] = {}
    for found, c, peak in raw:
        rate = found.per_second(c.actual_rate)
        share = {_unit(c): rate / peak, MEMORY: found.memory_utilization}
        roof = max(share, key=lambda name: share[name])
        for name, value in share.items():
            shares[name] = max(shares.get(name, 0.0), value)
        intensity = c.amount / found.memory_bytes if found.memory_bytes else float("inf")
        points.append(Point(_unit(c), MEMORY, intensity, rate, share[roof], found.program if several else ""))
    closest = Binding("", 0.0)
    for found, _ in runs:
        mine = {_unit(c): found.per_second(c.actual_rate) / peak for f, c, peak in raw if f is found}
        mine |= {MEMORY: found.memory_utilization, LATENCY: found.latency_share}
        closest = max((Binding(*item) for item in mine.items()), key=lambda b: b.share)
        if closest.name != LATENCY and closest.share >= BOUND:
            said = f"bound by {closest.name}, {closest.share:.0%} reached"
        else:
            said = f"{closest.text}; less than {BOUND:.0%} of every roof: latency bound"
        words.append(f"{found.program}: {said}" if several else said)
    roofs = [Roof(name, "compute", peak, shares[name]) for name, peak in peaks.items()]
    roofs.append(Roof(MEMORY, "move", bandwidth, shares.get(MEMORY, 0.0)))
    bound = not several and closest.name != LATENCY and closest.share >= BOUND
    title = chip.name if several else f"{first.program} on {chip.name}"
    return Roofline(title, roofs, points, "" if several else closest.name, bound, "\n".join(words))


def _unit(component: Component) -> str:
    return "cube" if component.pipe is Pipe.M else "vector"


def _cores(chip: Chip, component: Component) -> int:
    """Return how many such cores the chip has."""
    cubes = chip.cores.cube
    return cubes * chip.cores.vector_per_cube if component.kind is CoreKind.VECTOR else cubes
