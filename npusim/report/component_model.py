"""The units behind the instruction queues of a core: what they did in a run, and in how many cycles."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction

from npusim.isa.operand import Pipe
from npusim.program.core import CoreKind

NAMES = {
    Pipe.M: "Cube",
    Pipe.V: "Vector",
    Pipe.S: "Scalar",
    Pipe.MTE2: "MTE-GM",
    Pipe.MTE1: "MTE-L1",
    Pipe.MTE3: "MTE-UB",
    Pipe.FIX: "FIX",
}
"""Components by their pipe."""
COMPUTE = (Pipe.M, Pipe.V, Pipe.S)
COMPONENTS = {
    CoreKind.COUPLED: (Pipe.M, Pipe.V, Pipe.S, Pipe.MTE2, Pipe.MTE1, Pipe.MTE3),
    CoreKind.CUBE: (Pipe.M, Pipe.S, Pipe.MTE2, Pipe.MTE1, Pipe.FIX),
    CoreKind.VECTOR: (Pipe.V, Pipe.S, Pipe.MTE2, Pipe.MTE3),
}
"""Components of a core by its kind."""
PAIRS = {
    CoreKind.COUPLED: [(Pipe.M, m) for m in (Pipe.MTE2, Pipe.MTE1, Pipe.MTE3)]
    + [(c, m) for c in (Pipe.V, Pipe.S) for m in (Pipe.MTE2, Pipe.MTE3)],
    CoreKind.CUBE: [(Pipe.M, m) for m in (Pipe.MTE2, Pipe.MTE1, Pipe.FIX)]
    + [(Pipe.S, m) for m in (Pipe.MTE2, Pipe.FIX)],
    CoreKind.VECTOR: [(c, m) for c in (Pipe.V, Pipe.S) for m in (Pipe.MTE2, Pipe.MTE3)],
}
"""Pairs of a compute and a transfer component that data takes: seven on a coupled core."""


@dataclass(slots=True)
class Part:
    """One precision of the cube, instruction of the vector or scalar unit, or path of a transfer engine."""

    name: str
    instructions: int = 0
    amount: int = 0
    """Operations, or bytes."""
    ideal: Fraction = Fraction(0)
    """Cycles at the ideal rate."""
    active: int = 0
    """Cycles the component was active with it."""

    @property
    def peak(self) -> Fraction:
        """Ideal rate of one core in operations or bytes per cycle; zero where it does neither."""
        return self.amount / self.ideal if self.ideal else Fraction(0)

    @property
    def efficiency(self) -> float:
        """E of this part alone."""
        return ratio_of(self.ideal, self.active)


@dataclass(slots=True)
class Component:
    """One component over all cores of a kind that take part. Times are sums over these cores, in cycles."""

    kind: CoreKind
    pipe: Pipe
    cores: int
    cycles: int
    """T, the same for all cores."""
    parts: dict[str, Part] = field(default_factory=dict)
    active_by_core: list[int] = field(default_factory=list)
    waits: Counter[str] = field(default_factory=Counter)
    """Cycles it was not active, by cause; flags with the pipe that sets them."""
    intervals: int = 0
    """Gaps between its active times."""
    longest: int = 0
    """Cycles of the longest gap."""

    @property
    def name(self) -> str:
        """As `Cube`, or `vec MTE-GM` on split chips."""
        word = NAMES[self.pipe]
        return word if self.kind is CoreKind.COUPLED else f"{self.kind.value} {word}"

    @property
    def compute(self) -> bool:
        """Whether it computes; otherwise it moves."""
        return self.pipe in COMPUTE

    @property
    def amount(self) -> int:
        """O: operations or bytes."""
        return sum(p.amount for p in self.parts.values())

    @property
    def ideal(self) -> Fraction:
        """T_ideal."""
        return sum((p.ideal for p in self.parts.values()), Fraction(0))

    @property
    def active(self) -> int:
        """T_active."""
        return sum(self.active_by_core)

    @property
    def nonempty(self) -> int:
        """Cycles in which its queue is not empty, as profilers of the device count activity."""
        return self.active + sum(n for w, n in self.waits.items() if w not in ("issue", "queue", "tail"))

    @property
    def actual_rate(self) -> Fraction:
        """A: operations or bytes per cycle of all its cores."""
        return Fraction(self.amount, self.cycles) if self.cycles else Fraction(0)

    @property
    def ideal_rate(self) -> Fraction:
        """I: the same for all its cores at their ideal rates, mixed as the parts are."""
        return self.cores * self.amount / self.ideal if self.ideal else Fraction(0)

    @property
    def utilization(self) -> float:
        """U = A / I = E R."""
        return ratio_of(self.ideal, self.cores * self.cycles)

    @property
    def ratio(self) -> float:
        """R, the mean over its cores."""
        return ratio_of(self.active, self.cores * self.cycles)

    @property
    def ratios(self) -> tuple[float, float]:
        """R of the least and of the most active core."""
        least, most = min(self.active_by_core, default=0), max(self.active_by_core, default=0)
        return ratio_of(least, self.cycles), ratio_of(most, self.cycles)

    @property
    def efficiency(self) -> float:
        """E."""
        return ratio_of(self.ideal, self.active)

    def naive(self) -> dict[str, float]:
        """Return the utilisation of every part if the whole run were its own, as pairwise rooflines have
        it.
        """
        return {p.name: ratio_of(p.ideal, self.cores * self.cycles) for p in self.parts.values() if p.amount}

    @property
    def main_part(self) -> str:
        """The path with most bytes, or the precision or instruction issued most often; empty where none."""
        found = [p for p in self.parts.values() if p.amount]
        weight = (lambda p: p.instructions) if self.compute else (lambda p: p.amount)
        return max(found, key=weight).name if found else ""


def ratio_of(part: Fraction | int, whole: int) -> float:
    """Return an exact quotient, rounded once; zero where there is nothing to divide by."""
    return float(Fraction(part) / whole) if whole else 0.0
