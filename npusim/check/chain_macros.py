"""Macros in the flag-only bound: what one does to the pipes of a core, kept by the state that it met them in.

It shares no code with the timing machine, which plays macros in its own way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from npusim.check.chain import BARRIER, SCALAR, SET, WAIT, WORK, Chain, Step
from npusim.config.chip import Chip
from npusim.isa.operand import Pipe
from npusim.isa.state import State
from npusim.isa.sync import SetFlag, WaitFlag
from npusim.program.macro import Macro


class Times(NamedTuple):
    """What a macro did in one state of the pipes, relative to when its issue began."""

    issue: int
    """When the scalar unit is through with it."""
    reached: list[tuple[int, int, int]]
    """Free and done, and cycles of work, by pipe."""
    pops: list[list[int]]
    """When its instructions left the queue, by pipe."""
    raised: list[tuple[tuple[Pipe, Pipe, int], list[int]]]
    """Flags that it leaves raised, and when."""


class Known(NamedTuple):
    """A macro in one control state, and its times by the state of the pipes that it met."""

    pipes: tuple[int, ...]
    pushes: dict[int, int]
    """Instructions by pipe."""
    flags: tuple[tuple[Pipe, Pipe, int], ...]
    """Flags that it sets and waits for."""
    after: State
    """Control state behind it."""
    times: dict[tuple[object, ...], Times]

    def apart(self, chain: Chain) -> bool:
        """Whether nothing that came before is still waiting where the macro goes."""
        if chain.awaited is not None or chain.woken:
            return False
        return not any(chain.waiting[p] for p in self.pipes) and not any(chain.flags[f] for f in self.flags)

    def seen_by(self, chain: Chain) -> tuple[object, ...]:
        """Return what the times depend on: how far the pipes are ahead of the issue."""
        now = chain.issue
        seen: list[object] = []
        for pipe in self.pipes:
            seen += (max(chain.free[pipe] - now, 0), max(chain.done[pipe] - now, 0))
            for pop in reversed(chain.pops[pipe]):
                if pop <= now:
                    break
                seen.append(pop - now)
            seen.append(None)
        return tuple(seen)

    def keep(self, before: tuple[object, ...], chain: Chain, start: int, busy: Sequence[int]) -> None:
        """Keep what the macro did that began its issue at `start`, with `busy` cycles of work by pipe."""
        self.times[before] = Times(
            chain.issue - start,
            [(chain.free[p] - start, chain.done[p] - start, chain.busy[p] - busy[p]) for p in self.pipes],
            [[t - start for t in list(chain.pops[p])[-n:]] for p, n in self.pushes.items()],
            [(flag, [t - start for t in chain.flags[flag]]) for flag in self.flags],
        )

    def replay(self, chain: Chain, times: Times) -> None:
        """Do to a core what the macro did before in this state of its pipes."""
        start = chain.issue
        for pipe, (free, done, busy) in zip(self.pipes, times.reached, strict=True):
            chain.free[pipe], chain.done[pipe] = start + free, start + done
            chain.busy[pipe] += busy
        for pipe, pops in zip(self.pushes, times.pops, strict=True):
            chain.pops[pipe].extend(start + t for t in pops)
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
    pipes, flags raised before it), or leaves one of its pipes without work.
    """
    raised: dict[tuple[Pipe, Pipe, int], int] = {}
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
            raised[flag] = raised.get(flag, 0) - 1
            if raised[flag] < 0:
                return None
        if step.changes:
            state = op.update(state)
    if set(pushes) != worked:
        return None
    return Known(tuple(pushes), pushes, tuple(raised), state, {})
