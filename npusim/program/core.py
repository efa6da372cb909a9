"""Cores and launches: which streams start together, and where."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from npusim.config.chip import Chip
from npusim.errors import ConfigError
from npusim.isa.operand import Pipe, Space
from npusim.isa.sync import Group
from npusim.program.macro import Item


class CoreKind(Enum):
    """What a core holds: a cube unit (AIC), a vector unit (AIV), or both (first-generation chips)."""

    CUBE = "cube"
    VECTOR = "vec"
    COUPLED = "ai"


PIPES = {
    CoreKind.CUBE: (Pipe.S, Pipe.MTE1, Pipe.MTE2, Pipe.MTE3, Pipe.M, Pipe.FIX),
    CoreKind.VECTOR: (Pipe.S, Pipe.V, Pipe.MTE2, Pipe.MTE3),
    CoreKind.COUPLED: (Pipe.S, Pipe.V, Pipe.M, Pipe.MTE1, Pipe.MTE2, Pipe.MTE3),
}
"""Pipes of a core by kind; coupled chips have no FIX, their results leave through V."""

SPACES = {
    CoreKind.CUBE: (Space.L1, Space.L0A, Space.L0B, Space.L0C, Space.BT, Space.FB),
    CoreKind.VECTOR: (Space.UB,),
    CoreKind.COUPLED: (Space.L1, Space.L0A, Space.L0B, Space.L0C, Space.UB, Space.BT, Space.FB),
}
"""On-chip memories of a core by kind."""


class CoreId(NamedTuple):
    """A core: the group it belongs to, its kind, and its number among that kind in the group."""

    group: int
    kind: CoreKind
    number: int = 0

    def __str__(self) -> str:
        return f"core{self.group}.{self.kind.value}{self.number}"


StreamFunction = Callable[[Any], Iterable[Item]]
"""Makes the fresh stream of a core from its `Kernel`: a generator function, or one that returns a list."""


class LaunchKind(Enum):
    """Which cores of a group a launch starts."""

    CUBE = "cube"
    VECTOR = "vector"
    MIX_1_1 = "mix 1:1"
    MIX_1_2 = "mix 1:2"
    COUPLED = "coupled"


@dataclass(frozen=True, slots=True)
class Launch:
    """Streams for a set of cores that start together."""

    name: str
    kind: LaunchKind
    blocks: int
    """Groups that take part; for a vector launch, vector cores."""
    streams: dict[CoreId, tuple[StreamFunction, int]]
    """Stream function and block number of every core."""
    autosync: bool = False
    """Whether vector and coupled cores get the flags and barriers that the vendor's compiler adds."""
    at_once: int | None = None
    """Blocks that run at the same time where the chip has fewer cores than blocks; None for all. A core then
    takes every `at_once`-th block, one after the other.
    """


def blocks_at_once(chip: Chip, kind: LaunchKind) -> int:
    """Return how many blocks of a kind of launch a chip runs at the same time."""
    return chip.cores.cube * (chip.cores.vector_per_cube if kind is LaunchKind.VECTOR else 1)


def launch_cores(chip: Chip, kind: LaunchKind, blocks: int, name: str) -> list[CoreId]:
    """Return the cores that a launch starts: all of the chip where it has fewer than blocks.

    Raises `ConfigError` where the chip has not the kind.
    """
    if blocks < 1:
        raise ConfigError(f"launch {name}: blocks must be 1 or more, not {blocks}")
    if chip.coupled != (kind is LaunchKind.COUPLED):
        how = "coupled" if chip.coupled else "split"
        raise ConfigError(
            f"launch {name}: {chip.name} has {how} cores, so a {kind.value} launch does not fit it"
        )
    per_group = chip.cores.vector_per_cube
    blocks = min(blocks, blocks_at_once(chip, kind))
    if kind is LaunchKind.COUPLED:
        return [CoreId(i, CoreKind.COUPLED) for i in range(blocks)]
    if kind is LaunchKind.VECTOR:
        return [CoreId(i // per_group, CoreKind.VECTOR, i % per_group) for i in range(blocks)]
    cores = [CoreId(i, CoreKind.CUBE) for i in range(blocks)]
    if kind is LaunchKind.CUBE:
        return cores
    vectors = 1 if kind is LaunchKind.MIX_1_1 else per_group
    return cores + [CoreId(i, CoreKind.VECTOR, j) for i in range(blocks) for j in range(vectors)]


def cross_peers(core: CoreId, group: Group, cores: list[CoreId], *, sending: bool) -> list[CoreId]:
    """Return the cores that a cross-core flag joins with `core`: those it reaches, or those it needs."""
    if group is Group.ALL:
        return [c for c in cores if c.kind is core.kind]
    if group is Group.VECTOR_PAIR:
        return [c for c in cores if c.kind is CoreKind.VECTOR and c.group == core.group]
    other = CoreKind.VECTOR if core.kind is CoreKind.CUBE else CoreKind.CUBE
    return [c for c in cores if c.kind is other and c.group == core.group]
