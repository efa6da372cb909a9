"""The timing machine: one SimPy process for the scalar unit of every core, and one for each of its pipes.

A process keeps a clock of its own that may run ahead of the simulation's. Flags, queues and results carry
times, so a process yields only where it needs something that has no time yet, and the order of events does
not matter: start and end of an instruction are maxima of times before. Traffic with global memory is
different, since cores share it: there a process first lets the simulation catch up with its clock. No process
acts at a time before the simulation's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

import simpy

from npusim.check.deadlock import Blocked, deadlock_error
from npusim.config.chip import Chip
from npusim.errors import OperandError
from npusim.isa.instruction import Instruction
from npusim.isa.operand import Operand, Pipe
from npusim.isa.scalar import DataCacheCleanAndInvalid, GetValue, SetValue
from npusim.isa.state import RESET
from npusim.isa.sync import CrossCoreSetFlag, CrossCoreWaitFlag
from npusim.machine.resolve import Resolved
from npusim.machine.timing.account import Cause, Moves, PipeClock, Spans
from npusim.machine.timing.l2 import L2, L2State
from npusim.machine.timing.lower import Code, Lowered, Lowering
from npusim.machine.timing.macros import Part, Player
from npusim.machine.timing.peers import Peers
from npusim.machine.timing.pipes import CoreState
from npusim.machine.timing.port import MemorySystem
from npusim.machine.timing.unit import Process, Units
from npusim.program.macro import Macro
from npusim.program.program import SegmentSpec

# Python 3.11 looks a member of an enum up as slowly as it calls a function
_S, _SCALAR = Pipe.S, Code.SCALAR
_WORK, _QUEUE = Cause.WORK, Cause.QUEUE

_REPORT_EVERY = 1 << 11
"""Items of a core between two reports of progress."""


@dataclass(slots=True)
class Traffic:
    """Bytes that moved between cores, L2 and main memory."""

    read_bytes: int = 0
    write_bytes: int = 0
    hit_bytes: int = 0
    """Bytes of reads and writes that L2 took without main memory."""
    hbm_read_bytes: int = 0
    hbm_write_bytes: int = 0


@dataclass(slots=True)
class LaunchTiming:
    """What one launch cost."""

    name: str
    cycles: int
    clocks: list[PipeClock]
    traffic: Traffic
    macs: int
    element_ops: int
    priced: Counter[str]
    """Work cycles by the confidence of the numbers that priced them."""
    spans: Spans | None
    resolved: list[Resolved] = field(default_factory=list)
    moves: Moves | None = None


class TimingMachine:
    """Times launches one after the other; L2 keeps its content between them."""

    def __init__(
        self,
        chip: Chip,
        segments: list[SegmentSpec],
        *,
        l2: L2State = "cold",
        spans: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        self._chip = chip
        self._l2 = L2(chip, segments, l2)
        self._want_spans = spans
        self._progress = progress
        self._issued = 0
        self._flag_latency = chip.flags.latency_cycles

    def run(self, name: str, resolved: list[Resolved]) -> LaunchTiming:
        """Time one launch.

        Raises `DeadlockError` where pipes or cores wait for ever.
        """
        env = simpy.Environment()
        spans = Spans() if self._want_spans else None
        moves = Moves() if self._want_spans else None
        memory = MemorySystem(env, self._chip, self._l2, moves)
        clocks: list[PipeClock] = []
        self._lowering = Lowering(self._chip)
        self._player = Player(self._lowering, self._chip.scalar.issue_cycles, self._flag_latency)
        self._cores = [
            CoreState(env, self._chip, i, r, memory, clocks, spans) for i, r in enumerate(resolved)
        ]
        self._peers = Peers(self._chip, self._cores)
        units = Units(self._chip, self._peers)
        processes = []
        for core in self._cores:
            processes.append(env.process(self._issue(env, core)))
            processes += [env.process(units.serve(env, core, pipe)) for pipe in core.pipes.values()]
        env.run()
        while stuck := [c for c in self._cores if c.settling]:
            for core in stuck:
                core.settling = False
                for state in core.pipes.values():
                    state.progress.fire()
            env.run()
        if any(p.is_alive for p in processes):
            raise deadlock_error([self._blocked(c) for c in self._cores])
        ends = [c.time for c in self._cores]
        ends += [max(p.free, p.done) for c in self._cores for p in c.pipes.values()]
        traffic = Traffic(
            memory.read_bytes,
            memory.write_bytes,
            memory.hit_bytes,
            memory.miss_bytes,
            memory.evicted_bytes,
        )
        self._lowering.count()
        self._player.count()
        tally = self._lowering.tally
        return LaunchTiming(
            name,
            max(ends),
            clocks,
            traffic,
            tally.macs,
            tally.element_ops,
            tally.priced,
            spans,
            resolved,
            moves,
        )

    # ---- the scalar unit -----------------------------------------------------------------------------------

    def _issue(self, env: simpy.Environment, core: CoreState) -> Process:
        """Issue a stream in program order: pay for every instruction, wait for queue room and flags.

        The clock of the scalar unit is brought up to date before a wait, and after every instruction only
        where spans are wanted.
        """
        clock, lowering, pipes = core.clock, self._lowering, core.pipes
        find, state, spans = lowering.find, RESET, self._want_spans
        issue_cycles = self._chip.scalar.issue_cycles
        time = 0
        number = counted = -1
        for at, item in enumerate(core.resolved.items):
            if not at % _REPORT_EVERY:
                self._count(number - counted)
                counted = number
            ops: tuple[Instruction, ...]
            if isinstance(item, Macro):
                part = None if spans else self._player.part(item, state)
                if part is not None and (yield from self._settled(core, part)):
                    time = self._player.play(core, part, time, number + 1)
                    number, state = number + len(item), part.after
                    continue
                ops = item.ops
            else:
                ops = (item,)
            for op in ops:
                number += 1
                low = find(id(op))
                if low is None or low.state is not state:
                    try:
                        low = lowering.lower(op, state)
                    except OperandError as error:
                        raise OperandError(core.resolved.site(number).message(str(error))) from None
                low.count += 1
                if low.pipe is _S:
                    clock.instructions += 1
                    if low.code is _SCALAR:
                        time += low.cycles
                        if low.changes:
                            state = lowering.changed(low)
                    else:
                        time += issue_cycles
                        clock.until(_WORK, time, number)
                        core.at = number
                        time = yield from self._scalar(core, low, number, time)
                    if spans:
                        clock.until(_WORK, time, number)
                    continue
                time += issue_cycles
                if spans:
                    clock.until(_WORK, time, number)
                pipe = pipes[low.pipe]
                pushed = pipe.pushed
                if pushed >= pipe.depth:
                    core.at = number
                    while pipe.popped <= pushed - pipe.depth:
                        yield pipe.progress.wait()
                    popped = pipe.pops[pushed % pipe.depth]
                    if popped > time:
                        clock.until(_WORK, time, number)
                        time = popped
                        clock.until(_QUEUE, time, number)
                pipe.queue.append((time, low, number))
                pipe.pushed = pushed + 1
                if pipe.items.armed:
                    pipe.items.fire()
                if low.returns_value:
                    clock.until(_WORK, time, number)
                    core.at = number
                    core.awaits_value = True
                    while pipe.value_time is None:
                        yield pipe.progress.wait()
                    core.awaits_value = False
                    time = max(time, pipe.value_time + self._flag_latency)
                    pipe.value_time = None
                    clock.until(Cause.FLAG, time, number)
        clock.until(_WORK, time, number)
        self._count(number - counted)
        core.time = time
        core.issued = True
        for pipe in pipes.values():
            pipe.items.fire()

    def _settled(self, core: CoreState, part: Part) -> Generator[simpy.Event, Any, bool]:
        """Wait until the pipes of a macro are idle; False where they must go on without.

        That costs no time: whoever plays a macro waits for its pipes anyway. Only where a pipe waits for a
        flag that stands behind the macro in the stream, nothing else moves; then the macro is issued one by
        one.
        """
        while not self._player.idle(core, part):
            core.settling = True
            for pipe in part.pipes:
                if not core.pipes[pipe].idle:
                    yield core.pipes[pipe].progress.wait()
                    break
            if core.settling is False:
                return False
        core.settling = False
        return self._player.apart(core, part)

    def _count(self, issued: int) -> None:
        self._issued += issued
        if self._progress is not None:
            self._progress(self._issued)

    def _scalar(
        self, core: CoreState, low: Lowered, number: int, time: int
    ) -> Generator[simpy.Event, Any, int]:
        """Run a synchronisation or a global-memory access on the scalar unit; return the time behind it."""
        clock, op, code = core.clock, low.op, low.code
        if code is Code.WAIT:
            assert low.flag is not None
            flag = core.flags[low.flag]
            while not flag.raised:
                yield flag.changed.wait()
            time = max(time, flag.raised.popleft() + self._flag_latency)
            clock.until(Cause.FLAG, time, number)
        elif code is Code.SET:
            assert low.flag is not None
            core.flags[low.flag].set(time)
        elif code is Code.BARRIER_ALL:
            for pipe in core.pipes.values():
                while not pipe.idle:
                    yield pipe.progress.wait()
                time = max(time, pipe.free, pipe.done)
            clock.until(Cause.BARRIER, time, number)
        elif code is Code.CROSS_WAIT:
            assert isinstance(op, CrossCoreWaitFlag)
            awaited = self._peers.awaited(core, op)
            for flag in awaited:
                while not flag.raised:
                    yield flag.changed.wait()
            time = max([time, *(flag.raised.popleft() for flag in awaited)])
            clock.until(Cause.CROSS_CORE, time, number)
        elif code is Code.CROSS_SET:
            assert isinstance(op, CrossCoreSetFlag)
            for flag, delay in self._peers.reached(core, op):
                flag.set(time + delay)
        elif code is Code.CLEAN:
            assert isinstance(op, DataCacheCleanAndInvalid)
            time += low.cycles
            if op.all:
                core.dcache.clear()
            else:
                core.dcache.pop(self._line(op.at), None)
            clock.until(Cause.WORK, time, number)
        else:
            assert isinstance(op, GetValue | SetValue)
            at = op.src if isinstance(op, GetValue) else op.dst
            line = self._line(at)
            if line in core.dcache:
                core.dcache.move_to_end(line)
            else:
                core.dcache[line] = None
                if len(core.dcache) > self._chip.scalar.dcache_lines:
                    core.dcache.popitem(last=False)
                time += self._chip.cycles(self._chip.scalar.gm_read_ns)
                clock.until(Cause.LINK, time, number)
        return time

    def _line(self, at: Operand) -> tuple[int, int]:
        return at.segment, at.address // self._chip.scalar.dcache_line_bytes

    def _blocked(self, core: CoreState) -> Blocked:
        site = core.resolved.site
        waits = {p: site(s.at) for p, s in core.pipes.items() if s.at is not None}
        if not core.issued and core.at is not None:
            waits[Pipe.S] = site(core.at)
        peers = {}
        for place in waits.values():
            if isinstance(place.op, CrossCoreWaitFlag):
                senders = self._peers.joined(core, place.op.group, sending=False)
                peers[place.number] = [s.id for s in senders if not core.raised(place.op.id, s.index)]
        return Blocked(core.id, core.issued, waits, peers, core.awaits_value)
