"""The functional machine: values in happens-before order, and everything that can be wrong with a program.

Every core is fetched in program order. A pipe that waits for a flag nobody has raised keeps later
instructions in its queue, which is as long as the chip's; the scalar unit stops where the queue is full or it
waits itself. There is no time here: any order that flags, barriers and queues allow gives the same values, or
the program has a race.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from npusim.check.cores import check_meeting, check_peers, no_pipe
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
from npusim.machine.resolve import Resolved
from npusim.program.core import PIPES, SPACES, CoreId, Launch, cross_peers
from npusim.program.stream import Reader, open_stream

Progress = Callable[[int], None]
"""Called now and then with the number of instructions done."""

Probe = Callable[[Launch, "Core", int, Instruction, State], Any]
"""Called to execute an instruction of a core, by its position, in the state it meets; returns its value."""

_REPORT_EVERY = 1 << 14


Flag = tuple[Pipe, Pipe, int]
Entry = tuple[int, Instruction, State, Any]
"""An instruction in a queue: its position, itself, the state it meets, and what was known when it was issued.
"""


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
        self.fetched = 0
        """Instructions taken from the stream."""
        self.resolved = Resolved(core, reader)


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
        probe: Probe | None = None,
    ) -> None:
        self._chip = chip
        self._profile = profile
        self._segments = segments
        self._watch = watch
        self._progress = progress
        self._probe = probe
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
        self._launch = launch
        if self._watch is not None:
            cores = self._cores
            self._watch.begin([c.id for c in cores], lambda core, number: cores[core].resolved.site(number))
        self._ready = deque(self._cores)
        # the products of a tile are too small for threads, which would only spin
        with np.errstate(all="ignore"), threadpool_limits(1, "blas"):
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
        if core.done:
            return
        fetch, resolved, watch = core.reader.fetch, core.resolved, self._watch
        reader, queues, memory, probe = core.reader, core.queues, core.memory, self._probe
        number = core.fetched
        while True:
            value, core.value = core.value, None
            op = fetch(value)
            if op is None:
                core.done = True
                return
            if reader.item is not None:
                resolved.append(reader.item, reader.mark)
            core.fetched = number + 1
            self._count()
            queue = queues.get(op.pipe)
            if queue is None:
                self._refuse_forms(op, resolved.site(number))
                raise self._placed(no_pipe(op, core.id.kind, op.pipe), resolved.site(number))
            issued: Any = watch.order.issued(core.index) if watch is not None else None
            kind, state = op.kind, core.state
            if not queue and (kind is Kind.WORK or kind is Kind.SCALAR):
                try:
                    if watch is not None:
                        watch.work(core.index, number, op, state, issued)
                    if probe is None:
                        core.value = op.execute(memory, state)
                    else:
                        core.value = probe(self._launch, core, number, op, state)
                except OperandError as error:
                    raise self._placed(error, resolved.site(number)) from error
            elif not self._issue(core, (number, op, state, issued)):
                return
            number += 1

    def _refuse_forms(self, op: Instruction, site: Site) -> None:
        """Raise with the place where a field is of the wrong kind, so that there is no telling the pipe."""
        try:
            op.check_forms()
        except OperandError as error:
            raise self._placed(error, site) from error

    def _count(self) -> None:
        self._instructions += 1
        if self._progress is not None and self._instructions % _REPORT_EVERY == 0:
            self._progress(self._instructions)

    @staticmethod
    def _placed(error: OperandError, site: Site) -> OperandError:
        """Put the place before an error that has none."""
        return error if str(error).startswith(site.where) else type(error)(site.message(str(error)))

    def _issue(self, core: Core, entry: Entry) -> bool:
        """Run an instruction or put it into its queue; False where the scalar unit has to wait with it."""
        _, op, state, _ = entry
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
        number, op, state, issued = entry
        kind, watch = op.kind, self._watch
        try:
            if kind is Kind.WAIT:
                assert isinstance(op, WaitFlag)
                flag = (op.src, op.dst, op.id)
                if flag not in core.flags:
                    if watch is not None:
                        watch.check(core.index, number, op, state)
                    return False
                core.flags.remove(flag)
                if watch is not None:
                    watch.check(core.index, number, op, state)
                    watch.flags.wait_flag(core.index, number, op, issued)
            elif kind is Kind.SET:
                assert isinstance(op, SetFlag)
                if watch is not None:
                    watch.check(core.index, number, op, state)
                    watch.flags.set_flag(core.index, number, op, issued)
                core.flags.add((op.src, op.dst, op.id))
                if core.queues.get(op.dst) or core.held is not None:
                    self._wake(core)
            elif kind is Kind.BARRIER:
                assert isinstance(op, PipeBarrier)
                if op.on is Pipe.ALL and any(core.queues.values()):
                    return False
                if watch is not None:
                    watch.check(core.index, number, op, state)
                    watch.flags.barrier(core.index, number, op, issued)
            elif kind is Kind.CROSS_SET:
                assert isinstance(op, CrossCoreSetFlag)
                self._cross_set(core, op, entry)
            elif kind is Kind.CROSS_WAIT:
                assert isinstance(op, CrossCoreWaitFlag)
                return self._cross_wait(core, op, entry)
            else:
                if watch is not None:
                    watch.work(core.index, number, op, state, issued)
                probe = self._probe
                if probe is None:
                    value = op.execute(core.memory, state)
                else:
                    value = probe(self._launch, core, number, op, state)
                if value is not None:
                    core.value = value
        except OperandError as error:
            raise self._placed(error, core.resolved.site(number)) from error
        return True

    # ---- other cores ---------------------------------------------------------------------------------------

    def _cross_set(self, core: Core, op: CrossCoreSetFlag, entry: Entry) -> None:
        number, _, state, issued = entry
        check_meeting(op, self._launch, self._chip, partial(core.resolved.site, number))
        receivers = self.receivers(core, op.group)
        check_peers(op, [r.id for r in receivers])
        if self._watch is not None:
            indices = [r.index for r in receivers]
            self._watch.check(core.index, number, op, state)
            self._watch.flags.cross_set(core.index, number, op, indices, issued)
        for receiver in receivers:
            key = (receiver.index, op.id, core.index)
            self._cross[key] = self._cross.get(key, 0) + 1
            self._wake(receiver)

    def _cross_wait(self, core: Core, op: CrossCoreWaitFlag, entry: Entry) -> bool:
        number, _, state, issued = entry
        check_meeting(op, self._launch, self._chip, partial(core.resolved.site, number))
        senders = self.senders(core, op.group)
        keys = [(core.index, op.id, s.index) for s in senders]
        check_peers(op, [s.id for s in senders])
        if not all(self._cross.get(k) for k in keys):
            if self._watch is not None:
                self._watch.check(core.index, number, op, state)
            return False
        for key in keys:
            self._cross[key] -= 1
        if self._watch is not None:
            self._watch.check(core.index, number, op, state)
            indices = [s.index for s in senders]
            self._watch.flags.cross_wait(core.index, number, op, indices, issued)
        return True

    def receivers(self, core: Core, group: Group) -> list[Core]:
        """Return the cores of the launch that a set by `core` reaches."""
        return [self._by_id[i] for i in cross_peers(core.id, group, list(self._by_id), sending=True)]

    def senders(self, core: Core, group: Group) -> list[Core]:
        """Return the cores of the launch whose sets a wait by `core` needs."""
        return [self._by_id[i] for i in cross_peers(core.id, group, list(self._by_id), sending=False)]

    def _blocked(self, core: Core) -> Blocked:
        waits = {p: core.resolved.site(q[0][0]) for p, q in core.queues.items() if q}
        held = core.held or core.awaited
        if held is not None:
            waits[Pipe.S] = core.resolved.site(held[0])
        peers = {}
        for site in waits.values():
            if isinstance(site.op, CrossCoreWaitFlag):
                missing = self.senders(core, site.op.group)
                key = (core.index, site.op.id)
                peers[site.number] = [c.id for c in missing if not self._cross.get((*key, c.index))]
        return Blocked(core.id, core.done, waits, peers, core.held is None and core.awaited is not None)
