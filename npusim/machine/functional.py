"""The functional machine: values in happens-before order, and everything that can be wrong with a program.

Every core is fetched in program order. A pipe that waits for a flag nobody has raised keeps later
instructions in its queue, which is as long as the chip's; the scalar unit stops where the queue is full or it
waits itself. There is no time here: any order that flags, barriers and queues allow gives the same values, or
the program has a race.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from npusim.check.deadlock import Blocked, deadlock_error
from npusim.check.hazards import Watch
from npusim.check.place import Site
from npusim.config.chip import Chip
from npusim.errors import OperandError
from npusim.isa.instruction import Instruction, Kind
from npusim.isa.numerics.profile import NumericsProfile
from npusim.isa.operand import Pipe
from npusim.isa.state import RESET, State
from npusim.isa.sync import CrossCoreSetFlag, CrossCoreWaitFlag, Group, PipeBarrier, SetFlag, WaitFlag
from npusim.machine.memory import CoreMemory, Segment
from npusim.program.core import PIPES, SPACES, CoreId, Launch, cross_peers
from npusim.program.stream import Reader, open_stream

Progress = Callable[[int], None]
"""Called now and then with the number of instructions done."""

_REPORT_EVERY = 1 << 14


@dataclass(slots=True)
class Resolved:
    """The stream of one core as it ran: all that timing, hashing, text and re-timing need."""

    core: CoreId
    ops: list[Instruction]
    lines: array[int]
    """Source line of every instruction, 0 where there is none."""
    file: str


Flag = tuple[Pipe, Pipe, int]
Entry = tuple[Instruction, State, Site, Any]
"""An instruction in a queue: with the state it meets, its place, and what was known when it was issued."""


class Core:
    """One core while a launch runs."""

    def __init__(self, index: int, core: CoreId, reader: Reader, memory: CoreMemory) -> None:
        self.index = index
        self.id = core
        self.reader = reader
        self.memory = memory
        self.state = RESET
        self.value: Any = None
        self.held: Entry | None = None
        """What the scalar unit waits at: its own wait, or an instruction whose queue is full."""
        self.awaited: Entry | None = None
        """A queued instruction whose value the scalar unit waits for."""
        self.ready = True
        self.queues: dict[Pipe, deque[Entry]] = {p: deque() for p in PIPES[core.kind]}
        self.flags: set[Flag] = set()
        self.done = False
        self.resolved = Resolved(core, [], array("i"), reader.file)


class FunctionalMachine:
    """Runs launches on values, one after the other, over the same global memory."""

    def __init__(
        self,
        chip: Chip,
        profile: NumericsProfile,
        segments: list[Segment],
        *,
        watch: Watch | None,
        progress: Progress | None = None,
    ) -> None:
        self._chip = chip
        self._profile = profile
        self._segments = segments
        self._watch = watch
        self._progress = progress
        self._states: dict[State, State] = {RESET: RESET}
        self._cores: list[Core] = []
        self._by_id: dict[CoreId, Core] = {}
        self._cross: dict[tuple[int, int, int], int] = {}
        self._ready: deque[Core] = deque()
        self._instructions = 0
        depths = chip.queues
        self._depth: dict[Pipe, int] = {
            p: getattr(depths, p.name.lower()) for p in Pipe if p not in (Pipe.S, Pipe.ALL)
        }

    def run(self, launch: Launch) -> list[Resolved]:
        """Run one launch to its end and return the streams as they ran.

        Raises `OperandError`, `HazardError` or `DeadlockError`, with the place.
        """
        self._cores = [
            Core(
                index,
                core,
                open_stream(self._chip, launch, core),
                CoreMemory(self._chip, SPACES[core.kind], self._segments, self._profile),
            )
            for index, core in enumerate(launch.streams)
        ]
        self._by_id = {c.id: c for c in self._cores}
        self._cross = {}
        if self._watch is not None:
            self._watch.begin([c.id for c in self._cores])
        self._ready = deque(self._cores)
        with np.errstate(all="ignore"):
            while self._ready:
                self._advance(self._ready.popleft())
        if not all(c.done and not any(c.queues.values()) for c in self._cores):
            raise deadlock_error([self._blocked(c) for c in self._cores])
        for core in self._cores:
            core.memory.clean_all()
        if self._watch is not None:
            self._watch.end()
        return [c.resolved for c in self._cores]

    # ---- one core ------------------------------------------------------------------------------------------

    def _advance(self, core: Core) -> None:
        """Fetch and run until the stream ends or the scalar unit has to wait."""
        core.ready = False
        for pipe in core.queues:
            self._drain(core, pipe)
        if core.awaited is not None:
            return
        if core.held is not None:
            entry, core.held = core.held, None
            if not self._issue(core, entry):
                return
        reader, resolved = core.reader, core.resolved
        while not core.done:
            op = reader.fetch(core.value)
            core.value = None
            if op is None:
                core.done = True
                return
            resolved.ops.append(op)
            resolved.lines.append(reader.line)
            self._instructions += 1
            if self._progress is not None and self._instructions % _REPORT_EVERY == 0:
                self._progress(self._instructions)
            pipe = op.pipe
            site = Site(core.id, reader.file, reader.line, len(resolved.ops) - 1, op, pipe)
            if pipe not in core.queues:
                raise OperandError(site.message(f"{op.mnemonic}: this core has no pipe {pipe.name}"))
            issued = self._watch.order.issued(core.index) if self._watch is not None else None
            if not self._issue(core, (op, core.state, site, issued)):
                return

    def _issue(self, core: Core, entry: Entry) -> bool:
        """Run an instruction or put it into its queue; False where the scalar unit has to wait with it."""
        op, state, _site, _ = entry
        pipe = op.pipe
        if op.kind is Kind.STATE:
            self._perform(core, entry)
            changed = op.update(state)
            core.state = self._states.setdefault(changed, changed)
            return True
        queue = core.queues[pipe]
        if queue:
            if len(queue) >= self._depth[pipe]:
                core.held = entry
                return False
            queue.append(entry)
        elif self._perform(core, entry):
            return True
        elif pipe is Pipe.S:
            core.held = entry
            return False
        else:
            queue.append(entry)
        if op.returns_value:
            core.awaited = entry
        return not op.returns_value

    def _drain(self, core: Core, pipe: Pipe) -> None:
        queue = core.queues[pipe]
        while queue and self._perform(core, queue[0]):
            entry = queue.popleft()
            if core.awaited is entry:
                core.awaited = None
            self._wake(core)

    def _wake(self, core: Core) -> None:
        if not core.ready:
            core.ready = True
            self._ready.append(core)

    # ---- one instruction -----------------------------------------------------------------------------------

    def _perform(self, core: Core, entry: Entry) -> bool:
        """Do what an instruction does; False where it has to wait for a flag."""
        op, state, site, issued = entry
        kind = op.kind
        watch = self._watch
        try:
            if kind is Kind.WAIT:
                assert isinstance(op, WaitFlag)
                flag = (op.src, op.dst, op.id)
                if flag not in core.flags:
                    if watch is not None:
                        watch.check(site, state)
                    return False
                core.flags.remove(flag)
                if watch is not None:
                    watch.wait_flag(core.index, site, state, issued)
            elif kind is Kind.SET:
                assert isinstance(op, SetFlag)
                if watch is not None:
                    watch.set_flag(core.index, site, state, issued)
                core.flags.add((op.src, op.dst, op.id))
                self._raised(core, op.dst)
            elif kind is Kind.BARRIER:
                assert isinstance(op, PipeBarrier)
                if op.on is Pipe.ALL and any(core.queues.values()):
                    return False
                if watch is not None:
                    watch.barrier(core.index, site, state, issued)
            elif kind is Kind.CROSS_SET:
                assert isinstance(op, CrossCoreSetFlag)
                self._cross_set(core, op, site, state, issued)
            elif kind is Kind.CROSS_WAIT:
                assert isinstance(op, CrossCoreWaitFlag)
                return self._cross_wait(core, op, site, state, issued)
            else:
                if watch is not None:
                    watch.work(core.index, site, state, issued)
                value = op.execute(core.memory, state)
                if value is not None:
                    core.value = value
        except OperandError as error:
            if str(error).startswith(site.where):
                raise
            raise type(error)(site.message(str(error))) from error
        return True

    def _raised(self, core: Core, dst: Pipe) -> None:
        if core.queues.get(dst) or core.held is not None:
            self._wake(core)

    # ---- other cores ---------------------------------------------------------------------------------------

    def _cross_set(self, core: Core, op: CrossCoreSetFlag, site: Site, state: State, issued: Any) -> None:
        receivers = self.receivers(core, op.group)
        if self._watch is not None:
            self._watch.cross_set(core.index, [r.index for r in receivers], site, state, issued)
        for receiver in receivers:
            key = (receiver.index, op.id, core.index)
            self._cross[key] = self._cross.get(key, 0) + 1
            self._wake(receiver)

    def _cross_wait(self, core: Core, op: CrossCoreWaitFlag, site: Site, state: State, issued: Any) -> bool:
        senders = self.senders(core, op.group)
        keys = [(core.index, op.id, s.index) for s in senders]
        if not keys:
            raise OperandError(
                f"{op.mnemonic}: no core of the launch can set this flag; nobody would end the wait"
            )
        if not all(self._cross.get(k) for k in keys):
            if self._watch is not None:
                self._watch.check(site, state)
            return False
        for key in keys:
            self._cross[key] -= 1
        if self._watch is not None:
            self._watch.cross_wait(core.index, [s.index for s in senders], site, state, issued)
        return True

    def receivers(self, core: Core, group: Group) -> list[Core]:
        """Return the cores of the launch that a set by `core` reaches."""
        return [self._by_id[i] for i in cross_peers(core.id, group, list(self._by_id), sending=True)]

    def senders(self, core: Core, group: Group) -> list[Core]:
        """Return the cores of the launch whose sets a wait by `core` needs."""
        return [self._by_id[i] for i in cross_peers(core.id, group, list(self._by_id), sending=False)]

    def _blocked(self, core: Core) -> Blocked:
        waits = {}
        for pipe, queue in core.queues.items():
            if queue:
                waits[pipe] = queue[0][2]
        if core.held is not None:
            waits[Pipe.S] = core.held[2]
        peers = {
            s.number: [
                c.id
                for c in self.senders(core, s.op.group)
                if not self._cross.get((core.index, s.op.id, c.index))
            ]
            for s in waits.values()
            if isinstance(s.op, CrossCoreWaitFlag)
        }
        return Blocked(core.id, core.done, waits, peers)
