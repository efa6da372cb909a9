"""The component-based roofline of a run (ASPLOS 2025, doi 10.1145/3676641.3716243, sections 3 and 4).

A component is the unit behind one instruction queue: Cube, Vector, Scalar, and the transfer engines MTE-GM
(MTE2), MTE-L1 (MTE1), MTE-UB (MTE3) and, on split chips, FIX. Instructions of one component never overlap, so
its least time is the sum over its precisions or paths, and its ideal rate their weighted harmonic mean. With
O operations or bytes, T the time of the run, T_ideal the sum of amounts over ideal rates and T_active the
time the component is active:

    A = O / T                U = A / I = T_ideal / T
    I = O / T_ideal          E = T_ideal / T_active
    R = T_active / T         U = E R

Active is what the clocks put down to work and to shared links; waits for flags, barriers, other cores and the
scalar unit are not. Times are device cycles without the start of the launches. Shares are means over the
cores that take part, rates are sums over them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, NamedTuple

from npusim.isa.operand import Pipe
from npusim.report.component_model import PAIRS, Component, ratio_of

MEMORY, LATENCY = "main memory", "latency"
"""Names of what binds besides components."""


class Binding(NamedTuple):
    """What a run is closest to."""

    name: str
    """A component, `main memory` or `latency`."""
    share: float
    """How much of its rate, or for latency of the time, 0 to 1."""

    @property
    def text(self) -> str:
        """Say it in a few words."""
        if self.name == LATENCY:
            return f"latency binds: the longest chain of dependent steps takes {self.share:.0%} of the time"
        return f"{self.name} binds, {self.share:.0%} reached"


class Pair(NamedTuple):
    """A point of the roofline plot."""

    compute: Component
    move: Component

    @property
    def intensity(self) -> float:
        """Operations per byte."""
        return ratio_of(self.compute.amount, self.move.amount)

    @property
    def utilization(self) -> float:
        """How close the point is to the nearer of its two lines."""
        return max(self.compute.utilization, self.move.utilization)


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Limits of the verdict. The paper gives none; its verdicts leave these ranges."""

    ratio: float = 0.80
    """R from which on the run is not short of parallelism: between 0.78 and 0.84."""
    compute: float = 0.80
    """U from which on a compute component is the bound: above 0.59."""
    move: float = 0.80
    """U of a transfer component of a run that uses the cube: between 0.72 and 0.94."""
    move_of_vector: float = 0.65
    """The same without the cube: between 0.38 and 0.66, as blocks are small."""

    def utilization(self, component: Component, cube: bool) -> float:
        """Return the U from which on a component is the bound, in a run that uses the cube or does not."""
        if component.compute:
            return self.compute
        return self.move if cube else self.move_of_vector


_KINDS = {
    "CB": "compute bound",
    "MB": "MTE bound",
    "IP": "insufficient parallelism",
    "IC": "inefficient compute",
    "IM": "inefficient MTE",
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What limits a run."""

    code: Literal["CB", "MB", "IP", "IM", "IC"]
    """Compute bound, transfer (MTE) bound, insufficient parallelism, inefficient transfer (MTE), inefficient
    compute.
    """
    component: Component
    """The bound one, or the one with the largest R."""
    value: float
    """Its U for CB and MB, its R for the others."""
    threshold: float
    """The limit that the value was held against."""

    @property
    def distance(self) -> float:
        """How far the value is from the limit beyond which the verdict would be another."""
        return abs(self.value - self.threshold)

    @property
    def kind(self) -> str:
        """What the letters stand for."""
        return _KINDS[self.code]

    @property
    def rest(self) -> str:
        """What the component waits for most."""
        waits = self.component.waits
        return max(waits, key=lambda w: waits[w]) if waits else "nothing"

    @property
    def text(self) -> str:
        """One line with the numbers that decided."""
        c = self.component
        if self.code in ("CB", "MB"):
            return f"{self.kind}: {c.name} ({c.main_part}), U {self.value:.1%} >= {self.threshold:.0%}"
        if self.code == "IP":
            return (
                f"{self.kind}: the largest R is {c.name}, {self.value:.1%} < "
                f"{self.threshold:.0%}; the rest is mostly {self.rest}"
            )
        return (
            f"{self.kind}: {c.name} ({c.main_part}), R {self.value:.1%} >= {self.threshold:.0%} "
            f"at E {c.efficiency:.1%}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "code": self.code,
            "component": self.component.name,
            "part": self.component.main_part,
            "value": round(self.value, 6),
            "threshold": self.threshold,
            "distance": round(self.distance, 6),
            "text": self.text,
        }


@dataclass(slots=True)
class Components:
    """The components of a run and what follows from them."""

    program: str
    chip: str
    clock_mhz: int
    cycles: int
    found: list[Component]
    memory_bytes: int
    """Bytes moved by main memory."""
    memory_rate: float
    """Sustained bytes per cycle of main memory, which the engines' own rates do not show."""
    thresholds: Thresholds = Thresholds()
    chain_cycles: int = 0
    """The longest chain through issue, pipes, flags and barriers with infinitely fast links."""
    busiest_cycles: int = 0
    """Least cycles of the busiest pipe."""

    def __getitem__(self, name: str) -> Component:
        """Return a component by name, as `Cube` or `vec MTE-GM`.

        Raises `KeyError` for a name that the run does not have.
        """
        for component in self.found:
            if component.name == name:
                return component
        raise KeyError(f"no component {name}; there are {', '.join(c.name for c in self.found)}")

    def __iter__(self) -> Iterator[Component]:
        return iter(self.found)

    @property
    def memory_utilization(self) -> float:
        """U of main memory at its sustained rate."""
        return self.memory_bytes / (self.memory_rate * self.cycles) if self.cycles else 0.0

    @property
    def latency_share(self) -> float:
        """Share of the run that its longest chain of dependent steps takes with infinitely fast links.

        Zero where one pipe is busy for as much of that chain as `Thresholds.ratio`: then the chain is the
        work of a pipe, which has a roof of its own, and no latency.
        """
        if not self.cycles or self.busiest_cycles >= self.thresholds.ratio * self.chain_cycles:
            return 0.0
        return self.chain_cycles / self.cycles

    @property
    def binding(self) -> Binding:
        """What the run is closest to: a component, main memory, or latency, by the largest share."""
        shares = [Binding(c.name, c.utilization) for c in self.found if c.amount]
        shares += [Binding(MEMORY, self.memory_utilization), Binding(LATENCY, self.latency_share)]
        return max(shares, key=lambda b: b.share)

    @property
    def pairs(self) -> list[Pair]:
        """Pairs of components that both did something, the one closest to its lines first."""
        by_pipe = {(c.kind, c.pipe): c for c in self.found if c.amount}
        made = [
            Pair(by_pipe[kind, a], by_pipe[kind, b])
            for kind, pairs in PAIRS.items()
            for a, b in pairs
            if (kind, a) in by_pipe and (kind, b) in by_pipe
        ]
        return sorted(made, key=lambda p: -p.utilization)

    @property
    def verdict(self) -> Verdict | None:
        """What limits the run; None where no component did anything."""
        used = [c for c in self.found if c.amount]
        if not used:
            return None
        cube = any(c.pipe is Pipe.M for c in used)
        limit = self.thresholds.utilization
        bound = [c for c in used if c.utilization >= limit(c, cube)]
        if bound:
            c = max(bound, key=lambda c: c.utilization)
            return Verdict("CB" if c.compute else "MB", c, c.utilization, limit(c, cube))
        c = max(used, key=lambda c: c.ratio)
        code: Literal["IP", "IC", "IM"] = "IP"
        if c.ratio >= self.thresholds.ratio:
            code = "IC" if c.compute else "IM"
        return Verdict(code, c, c.ratio, self.thresholds.ratio)

    def per_second(self, rate: Fraction | float) -> float:
        """Turn operations or bytes per cycle into 10^9 per second."""
        return float(rate * self.clock_mhz / 1000)

    def __str__(self) -> str:
        """Return the verdict and a table: shares in percent, rates in 10^9 operations or bytes per second."""
        verdict = self.verdict
        width = max(len(c.name) for c in self.found)
        lines = [
            f"{self.program} on {self.chip}: {self.cycles:,} cycles without the start of the launches",
            "nothing was done" if verdict is None else f"{verdict.code}, {verdict.text}",
            self.binding.text,
            "",
            f"{'':{width}} cores     U     E     R  least  most    actual     ideal  most of it",
        ]
        for c in self.found:
            shares = (c.utilization, c.efficiency, c.ratio)
            lines.append(
                f"{c.name:{width}} {c.cores:5d} {' '.join(f'{100 * x:5.1f}' for x in shares)}  "
                f"{' '.join(f'{100 * x:5.1f}' for x in c.ratios)} {self.per_second(c.actual_rate):9.2f} "
                f"{self.per_second(c.ideal_rate):9.2f}  {c.main_part}".rstrip()
            )
        lines.append(f"{MEMORY:{width}}       {100 * self.memory_utilization:5.1f}")
        lines.append(f"{LATENCY:{width}}       {100 * self.latency_share:5.1f}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; rates in 10^9 operations or bytes per second, shares rounded to six
        digits.
        """
        verdict = self.verdict
        return {
            "program": self.program,
            "chip": self.chip,
            "cycles": self.cycles,
            "verdict": None if verdict is None else verdict.to_dict(),
            "thresholds": {n: getattr(self.thresholds, n) for n in Thresholds.__slots__},
            "binding": {"name": self.binding.name, "share": round(self.binding.share, 6)},
            "memory_utilization": round(self.memory_utilization, 6),
            "latency_share": round(self.latency_share, 6),
            "components": {c.name: self._component(c) for c in self.found},
            "pairs": [
                {
                    "compute": p.compute.name,
                    "move": p.move.name,
                    "operations_per_byte": round(p.intensity, 6),
                    "giga_operations_per_s": round(self.per_second(p.compute.actual_rate), 6),
                    "utilization": round(p.utilization, 6),
                }
                for p in self.pairs
            ],
        }

    def _component(self, c: Component) -> dict[str, Any]:
        return {
            "cores": c.cores,
            "amount": c.amount,
            "unit": "operations" if c.compute else "bytes",
            "ideal_cycles": round(float(c.ideal), 6),
            "active_cycles": c.active,
            "nonempty_cycles": c.nonempty,
            "actual": round(self.per_second(c.actual_rate), 6),
            "ideal": round(self.per_second(c.ideal_rate), 6),
            "utilization": round(c.utilization, 6),
            "efficiency": round(c.efficiency, 6),
            "ratio": round(c.ratio, 6),
            "ratio_min": round(c.ratios[0], 6),
            "ratio_max": round(c.ratios[1], 6),
            "waits": dict(sorted(c.waits.items())),
            "gaps": c.intervals,
            "longest_gap": c.longest,
            "parts": {
                p.name: {
                    "instructions": p.instructions,
                    "amount": p.amount,
                    "ideal_cycles": round(float(p.ideal), 6),
                    "active_cycles": p.active,
                    "efficiency": round(p.efficiency, 6),
                    "naive_utilization": round(c.naive().get(p.name, 0.0), 6),
                }
                for p in c.parts.values()
            },
        }
