"""Macros in the flag-only bound: what one does to the pipes of a core, kept by the state that it met them in.

It shares no code with the timing machine, which plays macros in its own way.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from npusim.check.chain import BARRIER, SCALAR, SET, WAIT, WORK, Chain, Step
from npusim.config.chip import Chip
from npusim.isa.operand import Pipe
from npusim.isa.state import State
from npusim.isa.sync import SetFlag, WaitFlag
from npusim.program.macro import Macro

Flag = tuple[Pipe, Pipe, int]


class Times(NamedTuple):
    """What a macro did in one state of the pipes, relative to when its issue began."""

    issue: int
    """When the scalar unit is through with it."""
    reached: list[tuple[int, int, int]]
    """Free and done, and cycles of work, by pipe."""
    pops: list[list[int]]
    """When its instructions left the queue, by pipe."""
    raised: list[tuple[Flag, list[int]]]
    """Flags that it leaves raised, and when."""


class Known(NamedTuple):
    """A macro in one control state, and its times by the state of the pipes that it met."""

    pipes: tuple[int, ...]
    pushes: dict[int, int]
    """Instructions by pipe."""
    waits: dict[Flag, int]
    """How often it waits for a flag that was raised before it."""
    leaves: dict[Flag, int]
    """How often it raises a flag beyond its own waits."""
    apart_flags: tuple[Flag, ...]
    """Flags that it both raises and waits for."""
    after: State
    """Control state behind it."""
    times: dict[tuple[object, ...], Times]

    def apart(self, chain: Chain) -> bool:
        """Whether nothing that came before is still waiting where the macro goes, and the flags that it waits
        for have been raised, no more often than it takes them where it raises them as well.
        """
        if chain.awaited is not None or chain.woken:
            return False
        flags, waits = chain.flags, self.waits
        for pipe in self.pipes:
            if chain.waiting[pipe]:
                return False
        for flag, count in waits.items():
            if len(flags[flag]) < count:
                return False
        return all(len(flags[flag]) == waits.get(flag, 0) for flag in self.apart_flags)

    def seen_by(self, chain: Chain, latency: int) -> tuple[object, ...]:
        """Return what the times depend on: how far the pipes and flags are ahead of the issue."""
        now = chain.issue
        seen: list[object] = []
        for pipe in self.pipes:
            seen += (max(chain.free[pipe] - now, 0), max(chain.done[pipe] - now, 0))
            seen += [pop - now for pop in chain.pops[pipe] if pop > now]
            seen.append(None)
        for flag, count in self.waits.items():
            seen += [max(time + latency - now, 0) for time in islice(chain.flags[flag], count)]
        return tuple(seen)

    def raised(self, chain: Chain) -> list[int]:
        """Return how often the flags that it leaves raised are raised, without those that it waits for."""
        return [len(chain.flags[f]) - self.waits.get(f, 0) for f in self.leaves]

    def keep(
        self,
        before: tuple[object, ...],
        chain: Chain,
        start: int,
        busy: Sequence[int],
        raised: Sequence[int],
    ) -> None:
        """Keep what the macro did that began its issue at `start`, with `busy` cycles of work by pipe and
        flags `raised`; not where a pipe waited for one of its flags and took it meanwhile.
        """
        for (flag, count), earlier in zip(self.leaves.items(), raised, strict=True):
            if len(chain.flags[flag]) != earlier + count:
                return
        self.times[before] = Times(
            chain.issue - start,
            [(chain.free[p] - start, chain.done[p] - start, chain.busy[p] - busy[p]) for p in self.pipes],
            [[t - start for t in list(chain.pops[p])[-n:]] for p, n in self.pushes.items()],
            [(f, [t - start for t in list(chain.flags[f])[-count:]]) for f, count in self.leaves.items()],
        )

    def replay(self, chain: Chain, times: Times) -> None:
        """Do to a core what the macro did before in this state of its pipes."""
        start = chain.issue
        for pipe, (free, done, busy) in zip(self.pipes, times.reached, strict=True):
            chain.free[pipe], chain.done[pipe] = start + free, start + done
            chain.busy[pipe] += busy
        for pipe, pops in zip(self.pushes, times.pops, strict=True):
            chain.pops[pipe].extend([start + t for t in pops])
        for flag, count in self.waits.items():
            for _ in range(count):
                chain.flags[flag].popleft()
        for flag, raised in times.raised:
            for time in raised:
                chain.flags[flag].append(start + time)
                if chain.waiting[flag[1]]:
                    chain.woken.append(flag[1])
        chain.issue = start + times.issue
        chain.state = self.after


def examine(macro: Macro, state: State, chip: Chip) -> Known | None:
    """Return what the times of a macro depend on; None where these cannot be kept.

    That is where it touches what lies outside its core's pipes (transfers, cross-core flags, barriers of all
    pipes), or leaves one of its pipes without work.
    """
    raised: dict[Flag, int] = {}
    waits: dict[Flag, int] = {}
    awaited = set()
    pushes: dict[int, int] = {}
    worked = set()
    for op in macro.ops:
        step = Step(chip, op, state)
        if step.code not in (WORK, SCALAR, SET, WAIT, BARRIER) or step.transfer is not None:
            return None
        if step.code == BARRIER and not step.pipe:
            return None
        if step.pipe:
            pushes[step.pipe] = pushes.get(step.pipe, 0) + 1
        if step.code == WORK:
            worked.add(step.pipe)
        if isinstance(op, SetFlag):
            flag = (op.src, op.dst, op.id)
            raised[flag] = raised.get(flag, 0) + 1
        elif isinstance(op, WaitFlag):
            flag = (op.src, op.dst, op.id)
            awaited.add(flag)
            if raised.get(flag):
                raised[flag] -= 1
            else:
                waits[flag] = waits.get(flag, 0) + 1
        if step.changes:
            state = op.update(state)
    if set(pushes) != worked:
        return None
    leaves = {flag: count for flag, count in raised.items() if count}
    return Known(tuple(pushes), pushes, waits, leaves, tuple(f for f in raised if f in awaited), state, {})
