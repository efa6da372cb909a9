"""Macros in the timing machine: worked out at once, and only once for every state of the pipes they meet.

A macro whose instructions stay inside its core, between the scalar unit and pipes that the scalar unit waits
for, needs no event: its times are maxima of times that are known when its pipes are idle. They depend only on
how far those pipes are ahead of the scalar unit, so they are kept relative to it. The machine without this
gives the same cycles by cause (`tests/machine/test_macros.py`).
"""

from __future__ import annotations

from typing import NamedTuple

from npusim.errors import OperandError
from npusim.isa.operand import Pipe
from npusim.isa.state import State
from npusim.machine.timing.account import Cause
from npusim.machine.timing.lower import Code, Lowered, Lowering
from npusim.machine.timing.pipes import CoreState
from npusim.program.macro import Macro

FlagKey = tuple[Pipe, Pipe, int]
_PLAYED = (Code.WORK, Code.SCALAR, Code.SET, Code.WAIT, Code.BARRIER)


class _Reached(NamedTuple):
    """What a macro does to one pipe, times relative to the scalar unit's when it begins."""

    instructions: int
    free: int
    done: int
    cursor: int
    cycles: tuple[int, ...]
    pops: tuple[int, ...]


class _Times(NamedTuple):
    """What a macro does in one state of its pipes."""

    stop: int
    scalar: _Reached
    pipes: tuple[_Reached, ...]
    raised: tuple[tuple[FlagKey, tuple[int, ...]], ...]
    """Flags that it leaves raised."""


class Part:
    """A macro in one control state."""

    def __init__(
        self, lows: list[Lowered], pipes: tuple[Pipe, ...], flags: tuple[FlagKey, ...], after: State
    ) -> None:
        self.lows = lows
        self.pipes = pipes
        self.flags = flags
        self.after = after
        """Control state behind it."""
        self.count = 0
        """How often it was played."""
        self.times: dict[tuple[object, ...], _Times] = {}


class Player:
    """Plays macros, for the cores of one launch."""

    def __init__(self, lowering: Lowering, issue_cycles: int, flag_latency: int) -> None:
        self._lowering = lowering
        self._issue = issue_cycles
        self._latency = flag_latency
        self._parts: dict[tuple[int, int], Part | None] = {}

    def part(self, macro: Macro, state: State) -> Part | None:
        """Return a macro in a control state; None where it must be issued instruction by instruction."""
        key = (id(macro), id(state))
        if key not in self._parts:
            self._parts[key] = self._study(macro, state)
        return self._parts[key]

    def count(self) -> None:
        """Add everything that was played to the tally."""
        for part in self._parts.values():
            if part is not None:
                for low in part.lows:
                    low.count = part.count
                    self._lowering.tally.add(low)

    def _study(self, macro: Macro, state: State) -> Part | None:
        lows = []
        raised: dict[FlagKey, int] = {}
        waited, worked, pipes = set(), set(), dict[Pipe, None]()
        for op in macro.ops:
            try:
                low = self._lowering.make(op, state)
            except OperandError:
                return None  # issued one by one, the error gets its place
            lows.append(low)
            if low.code not in _PLAYED or low.transfer is not None:
                return None
            if low.code is Code.SET:
                assert low.flag is not None
                raised[low.flag] = raised.get(low.flag, 0) + 1
            elif low.code is Code.WAIT:
                assert low.flag is not None
                raised[low.flag] = raised.get(low.flag, 0) - 1
                if raised[low.flag] < 0:
                    return None
                if low.pipe is Pipe.S:
                    waited.add(low.flag[0])
            if low.pipe is not Pipe.S:
                pipes[low.pipe] = None
                if low.code is Code.WORK:
                    worked.add(low.pipe)
            if low.changes:
                state = self._lowering.changed(low)
        # a scalar unit that ends behind its pipes can have waited for them, whatever they waited for
        if not (set(pipes) <= waited and set(pipes) <= worked):
            return None
        return Part(lows, tuple(pipes), tuple(raised), state)

    @staticmethod
    def idle(core: CoreState, part: Part) -> bool:
        """Whether everything that was issued to the pipes of a macro has its times."""
        return all(core.pipes[pipe].idle for pipe in part.pipes)

    @staticmethod
    def apart(core: CoreState, part: Part) -> bool:
        """Whether none of its flags is raised."""
        return not any(core.flags[flag].raised for flag in part.flags)

    def play(self, core: CoreState, part: Part, time: int, number: int) -> int:
        """Run a macro that meets idle pipes; return the scalar unit's time behind it."""
        part.count += 1
        core.clock.until(Cause.WORK, time, number)
        seen: list[object] = []
        for name in part.pipes:
            pipe = core.pipes[name]
            pipe.clock.until(Cause.ISSUE, time, number)
            seen += (max(pipe.free - time, 0), max(pipe.done - time, 0), pipe.clock.cursor - time)
            for back in range(1, min(pipe.popped, pipe.depth) + 1):
                pop = pipe.pops[(pipe.popped - back) % pipe.depth]
                if pop <= time:
                    break
                seen.append(pop - time)
            seen.append(None)
        key = tuple(seen)
        times = part.times.get(key)
        if times is None:
            times = part.times[key] = self._work_out(core, part, time)
        scalar = times.scalar
        clock = core.clock
        clock.instructions += scalar.instructions
        clock.cursor = time + scalar.cursor
        for cause, cycles in enumerate(scalar.cycles):
            clock.cycles[cause] += cycles
        for name, reached in zip(part.pipes, times.pipes, strict=True):
            pipe = core.pipes[name]
            clock = pipe.clock
            clock.instructions += reached.instructions
            clock.cursor = time + reached.cursor
            for cause, cycles in enumerate(reached.cycles):
                clock.cycles[cause] += cycles
            pipe.free, pipe.done = time + reached.free, time + reached.done
            pipe.pushed += reached.instructions
            pipe.popped += reached.instructions
            depth, popped = pipe.depth, pipe.popped
            for back, pop in enumerate(reversed(reached.pops[-depth:]), 1):
                pipe.pops[(popped - back) % depth] = time + pop
        for flag, raised in times.raised:
            for at in raised:
                core.flags[flag].set(time + at)
        return time + times.stop

    def _work_out(self, core: CoreState, part: Part, begin: int) -> _Times:
        """Follow the instructions one by one, by the rules of the pipes."""
        issue, latency, time = self._issue, self._latency, 0
        scalar = _Track(0, 0, 0, [])
        tracks = {}
        for name in part.pipes:
            pipe = core.pipes[name]
            recent = [pipe.pops[i % pipe.depth] for i in range(max(0, pipe.popped - pipe.depth), pipe.popped)]
            ahead = [pop - begin for pop in recent if pop > begin]
            free, done = max(pipe.free - begin, 0), max(pipe.done - begin, 0)
            tracks[name] = _Track(free, done, pipe.clock.cursor - begin, ahead)
        flags: dict[FlagKey, list[int]] = {flag: [] for flag in part.flags}
        for low in part.lows:
            code = low.code
            if low.pipe is Pipe.S:
                scalar.instructions += 1
                if code is Code.SCALAR:
                    time += low.cycles
                    continue
                assert low.flag is not None
                time += issue
                scalar.until(Cause.WORK, time)
                if code is Code.SET:
                    flags[low.flag].append(time)
                else:
                    time = max(time, flags[low.flag].pop(0) + latency)
                    scalar.until(Cause.FLAG, time)
                continue
            time += issue
            track = tracks[low.pipe]
            depth = core.pipes[low.pipe].depth
            if len(track.pops) >= depth and track.pops[-depth] > time:
                scalar.until(Cause.WORK, time)
                time = track.pops[-depth]
                scalar.until(Cause.QUEUE, time)
            start = max(track.free, time)
            track.until(Cause.ISSUE, start)
            popped = start
            if code is Code.WORK:
                track.free = start + low.cycles
                track.until(Cause.WORK, track.free)
                track.done = max(track.done, track.free + low.latency)
            elif code is Code.SET:
                assert low.flag is not None
                flags[low.flag].append(max(start, track.done))
                track.free = start
            else:
                cause, popped = Cause.BARRIER, max(start, track.done)
                if code is Code.WAIT:
                    assert low.flag is not None
                    cause, popped = Cause.FLAG, max(start, flags[low.flag].pop(0) + latency)
                track.until(cause, popped)
                track.free = popped
            track.instructions += 1
            track.pops.append(popped)
        return _Times(
            time,
            scalar.reached(),
            tuple(tracks[name].reached() for name in part.pipes),
            tuple((flag, tuple(raised)) for flag, raised in flags.items() if raised),
        )


class _Track:
    """One pipe while a macro is followed."""

    def __init__(self, free: int, done: int, cursor: int, pops: list[int]) -> None:
        self.free, self.done, self.cursor = free, done, cursor
        self.pops = pops
        """When instructions left the queue, those of before included that are still ahead."""
        self.instructions = 0
        self.cycles = [0] * len(Cause)

    def until(self, cause: Cause, time: int) -> None:
        """Put the time from the cursor on down to a cause."""
        if time > self.cursor:
            self.cycles[cause] += time - self.cursor
            self.cursor = time

    def reached(self) -> _Reached:
        """Return what the macro did to the pipe."""
        pops = tuple(self.pops[len(self.pops) - self.instructions :])
        return _Reached(self.instructions, self.free, self.done, self.cursor, tuple(self.cycles), pops)
