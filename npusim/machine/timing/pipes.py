"""The state of pipes, flags and cores while the timing machine runs a launch."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque

import simpy

from npusim.config.chip import Chip
from npusim.isa.operand import Pipe
from npusim.machine.resolve import Resolved
from npusim.machine.timing.account import Cause, PipeClock, Spans
from npusim.machine.timing.lower import Lowered
from npusim.machine.timing.port import MemorySystem, Port
from npusim.program.core import PIPES


class Signal:
    """Wakes the one process that waits for something to change; nearly free where nobody waits."""

    __slots__ = ("_env", "armed")

    def __init__(self, env: simpy.Environment) -> None:
        self._env = env
        self.armed: simpy.Event | None = None
        """Event that a process waits for."""

    def wait(self) -> simpy.Event:
        """Return the event to wait for."""
        self.armed = self._env.event()
        return self.armed

    def fire(self) -> None:
        """Wake the process."""
        if self.armed is not None:
            event, self.armed = self.armed, None
            event.succeed()


class Flag:
    """A flag: the times at which it was raised and not yet waited for."""

    __slots__ = ("changed", "raised")

    def __init__(self, env: simpy.Environment) -> None:
        self.raised: deque[int] = deque()
        self.changed = Signal(env)

    def set(self, time: int) -> None:
        """Raise the flag at a time."""
        self.raised.append(time)
        if self.changed.armed:
            self.changed.fire()


class Flags(dict[tuple[Pipe, Pipe, int], Flag]):
    """The flags of a core, by source, destination and id; there from the first use on."""

    def __init__(self, env: simpy.Environment) -> None:
        super().__init__()
        self._env = env

    def __missing__(self, key: tuple[Pipe, Pipe, int]) -> Flag:
        found = self[key] = Flag(self._env)
        return found


class Pending:
    """A transfer, or a wait or set that came behind one, of a pipe whose transfers are not over."""

    __slots__ = ("cause", "done", "flags", "ideal", "issue", "number", "start", "stop")

    def __init__(self, number: int, start: int, cause: Cause, stop: int | None) -> None:
        self.number = number
        self.start = start
        self.cause = cause
        self.stop = stop
        """End of the data or of the wait; None while it is not known."""
        self.done = 0
        """When the result is usable."""
        self.issue = 0
        """Cycles of a transfer before its data can move; they pass while the data before it moves."""
        self.ideal: int | None = None
        """Cycles the data of a transfer needs on its own port; None where this is no transfer."""
        self.flags: list[tuple[Flag, int]] = []
        """Flags to raise when everything before is done, each with a delay."""


class PipeState:
    """One pipe of a core: its queue, its unit, and its transfers under way."""

    __slots__ = (
        "at",
        "clock",
        "depth",
        "done",
        "free",
        "in_flight",
        "items",
        "moved",
        "pending",
        "pipe",
        "popped",
        "pops",
        "port",
        "progress",
        "pushed",
        "queue",
        "value_time",
    )

    def __init__(self, env: simpy.Environment, pipe: Pipe, depth: int, clock: PipeClock, port: Port) -> None:
        self.pipe = pipe
        self.clock = clock
        self.depth = depth
        self.queue: deque[tuple[int, Lowered, int]] = deque()
        """Time of issue, instruction, and its position in the stream."""
        self.pushed = 0
        self.popped = 0
        self.pops = [0] * depth
        """Times at which the last `depth` instructions left the queue, as a ring."""
        self.free = 0
        """When the unit can start the next instruction."""
        self.done = 0
        """When everything before is done, transfers that are not over left out."""
        self.pending: deque[Pending] = deque()
        self.in_flight: dict[str, deque[Pending]] = defaultdict(deque)
        """Transfers under way, by port."""
        self.port = port
        """Moves its data, whatever the other end: a pipe has one path to global memory at a time."""
        self.value_time: int | None = None
        """When the value of the last value-returning instruction was there."""
        self.at: int | None = None
        """Position of the wait that the pipe is blocked at."""
        self.items = Signal(env)
        self.moved = Signal(env)
        self.progress = Signal(env)
        """For the scalar unit, which waits for room, for idleness or for a value."""

    def pop(self, time: int) -> None:
        """Note that the instruction at the head left the queue at a time."""
        self.pops[self.popped % self.depth] = time
        self.popped += 1
        if self.progress.armed:
            self.progress.fire()

    @property
    def idle(self) -> bool:
        """Whether everything issued so far has an end."""
        return self.popped == self.pushed and not self.pending

    def account(self, cause: Cause, start: int, stop: int, number: int) -> None:
        """Put a time down to a cause, and an idle time before it to issue; behind transfers, when they are
        over.
        """
        if self.pending:
            self.pending.append(Pending(number, start, cause, stop))
            return
        self.clock.spend(cause, start, stop, number)

    def raise_flags(self, flags: list[tuple[Flag, int]], start: int, number: int) -> None:
        """Raise flags once everything before is done."""
        if self.pending:
            entry = Pending(number, start, Cause.WORK, start)
            entry.flags = flags
            self.pending.append(entry)
            return
        self.clock.until(Cause.ISSUE, start, number)
        time = max(start, self.done)
        for flag, delay in flags:
            flag.set(time + delay)

    def settle(self) -> None:
        """Account for the oldest pending entries whose end is known, in order."""
        clock = self.clock
        while self.pending and self.pending[0].stop is not None:
            entry = self.pending.popleft()
            assert entry.stop is not None
            clock.until(Cause.ISSUE, entry.start, entry.number)
            if entry.ideal is not None:
                lead = max(0, entry.start + entry.issue - clock.cursor)
                clock.until(Cause.WORK, min(entry.stop, clock.cursor + lead + entry.ideal), entry.number)
                clock.until(Cause.LINK, entry.stop, entry.number)
                self.done = max(self.done, entry.done)
            else:
                clock.until(entry.cause, entry.stop, entry.number)
                for flag, delay in entry.flags:
                    flag.set(max(entry.start, self.done) + delay)
        self.moved.fire()
        self.progress.fire()


class CoreState:
    """One core while a launch runs."""

    def __init__(
        self,
        env: simpy.Environment,
        chip: Chip,
        index: int,
        resolved: Resolved,
        memory: MemorySystem,
        clocks: list[PipeClock],
        spans: Spans | None,
    ) -> None:
        self.index = index
        self.id = resolved.core
        self.resolved = resolved
        self.memory = memory
        self.clock = PipeClock(self.id, Pipe.S, len(clocks), spans)
        clocks.append(self.clock)
        self.pipes: dict[Pipe, PipeState] = {}
        for pipe in PIPES[self.id.kind]:
            if pipe is not Pipe.S:
                clock = PipeClock(self.id, pipe, len(clocks), spans)
                clocks.append(clock)
                self.pipes[pipe] = PipeState(
                    env, pipe, getattr(chip.queues, pipe.name.lower()), clock, Port(memory)
                )
        self.issued = False
        """Whether the whole stream has been issued."""
        self.time = 0
        """When the scalar unit was done."""
        self.at: int | None = None
        """Position of the instruction that the scalar unit is blocked at."""
        self.awaits_value = False
        """Whether it is blocked there until the value of the instruction comes back."""
        self.settling = False
        """Whether it waits for pipes to be idle before it plays a macro."""
        self.dcache: OrderedDict[tuple[int, int], None] = OrderedDict()
        """Lines of global memory in the data cache, oldest first."""
        self._env = env
        self.flags = Flags(env)
        self._cross: dict[tuple[int, int], Flag] = {}

    def cross_flag(self, event: int, sender: int) -> Flag:
        """Return the flag that another core, by index, sets for this one."""
        found = self._cross.get((event, sender))
        if found is None:
            found = self._cross[event, sender] = Flag(self._env)
        return found

    def raised(self, event: int, sender: int) -> bool:
        """Whether a core has set a cross-core flag that this one has not waited for."""
        found = self._cross.get((event, sender))
        return found is not None and bool(found.raised)
