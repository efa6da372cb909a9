"""Which cores a cross-core flag goes to, and what it takes to get there."""

from __future__ import annotations

from collections.abc import Sequence

from npusim.config.chip import Chip
from npusim.isa.sync import CrossCoreSetFlag, CrossCoreWaitFlag, Group
from npusim.machine.timing.pipes import CoreState, Flag
from npusim.program.core import cross_peers


class Peers:
    """The cores of a launch, as they see each other."""

    def __init__(self, chip: Chip, cores: Sequence[CoreState]) -> None:
        self._index = {c.id: c for c in cores}
        self._found: dict[tuple[int, Group, bool], list[CoreState]] = {}
        flags = chip.flags
        group, everyone = chip.cycles(flags.group_latency_ns), chip.cycles(flags.all_latency_ns)
        self._latency = {Group.ALL: everyone, Group.VECTOR_PAIR: group, Group.CUBE_VECTOR: group}

    def joined(self, core: CoreState, group: Group, *, sending: bool) -> list[CoreState]:
        """Return the cores that a set reaches, or whose sets a wait needs."""
        key = (core.index, group, sending)
        found = self._found.get(key)
        if found is None:
            ids = cross_peers(core.id, group, list(self._index), sending=sending)
            found = self._found[key] = [self._index[i] for i in ids]
        return found

    def reached(self, core: CoreState, op: CrossCoreSetFlag) -> list[tuple[Flag, int]]:
        """Return the flags that a set raises, and how many cycles each takes."""
        delay = self._latency[op.group]
        receivers = self.joined(core, op.group, sending=True)
        return [(r.cross_flag(op.id, core.index), delay) for r in receivers]

    def awaited(self, core: CoreState, op: CrossCoreWaitFlag) -> list[Flag]:
        """Return the flags that a wait needs."""
        return [core.cross_flag(op.id, s.index) for s in self.joined(core, op.group, sending=False)]
