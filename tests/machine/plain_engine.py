"""A second timing engine, as plain as can be: every cost a timeout, every wait an event, no clock ahead.

It shares lowering, ports, links and L2 with the engine under test, but none of its time keeping, and exists
to be equal to it: same end, same cycles by cause, for every pipe.
"""

from __future__ import annotations

from collections import defaultdict, deque

import simpy

from npusim.isa.operand import Pipe
from npusim.isa.state import RESET
from npusim.machine.timing.l2 import L2
from npusim.machine.timing.lower import Code, Lowering
from npusim.machine.timing.port import MemorySystem, Port
from npusim.program.core import PIPES, cross_peers


class Bell:
    """Lets any number of processes wait for any change."""

    def __init__(self, env):
        self.env, self.event = env, env.event()

    def ring(self):
        event, self.event = self.event, self.env.event()
        event.succeed()


class Plain:
    def __init__(self, chip, segments, l2="cold"):
        self.chip = chip
        self.l2 = L2(chip, segments, l2)
        self.accesses = []
        """Times at which transfers looked their bytes up in L2."""
        self.l2.access = self.noted(self.l2.access)
        self.l2.bypass = self.noted(self.l2.bypass)

    def noted(self, access):
        def noted(*args, **options):
            self.accesses.append(self.env.now)
            return access(*args, **options)

        return noted

    @property
    def tied(self):
        """Whether two accesses met in one cycle; which of them finds the other's bytes is left open."""
        return len(set(self.accesses)) < len(self.accesses)

    def run(self, resolved):
        self.env = env = simpy.Environment()
        self.bell = Bell(env)
        self.memory = MemorySystem(env, self.chip, self.l2)
        self.cores = [PlainCore(self, r) for r in resolved]
        self.by_id = {c.id: c for c in self.cores}
        processes = []
        for core in self.cores:
            processes.append(env.process(core.issue()))
            processes += [env.process(core.serve(p)) for p in core.queues]
        env.run()
        assert not any(p.is_alive for p in processes), "deadlock"
        return max(c.end for c in self.cores)

    def until(self, condition):
        while not condition():
            yield self.bell.event


class PlainCore:
    def __init__(self, engine, resolved):
        self.engine, self.env, self.chip = engine, engine.env, engine.chip
        self.id, self.ops = resolved.core, resolved.ops
        self.lowering, self.state = Lowering(self.chip), RESET
        self.queues = {p: deque() for p in PIPES[self.id.kind] if p is not Pipe.S}
        self.outstanding = defaultdict(list)
        """Per pipe, transfers as [data over, usable at]."""
        self.free_at = defaultdict(int)
        self.usable = defaultdict(int)
        self.flags = defaultdict(list)
        self.cross = defaultdict(list)
        self.log = {p: [] for p in PIPES[self.id.kind]}
        """Per pipe, in program order: [cause, start, stop, cycles it would take with its port to itself]."""
        self.value = {}
        self.issued = False
        self.end = 0
        self.lines = []
        self.ports = {}

    def note(self, pipe, cause, start):
        """Put the time from `start` until now down to a cause."""
        self.log[pipe].append([cause, start, self.env.now, 0])

    def cycles(self, pipe, total):
        """Return the cycles of a pipe by cause: the log laid end to end, holes before work are `issue`."""
        found = defaultdict(int)
        at = 0

        def until(cause, time):
            nonlocal at
            if time > at:
                found[cause] += time - at
                at = time

        for cause, start, stop, alone in self.log[pipe]:
            until("issue", start)
            if cause == "transfer":
                issue, data = alone  # issue counts as work only where no data before it was still moving
                until("work", min(stop, at + max(0, start + issue - at) + data))
                until("link", stop)
            else:
                until(cause, stop)
        found["tail"] = total - at
        return {cause: time for cause, time in found.items() if time}

    def take(self, where, times):
        """Wait until the first entry of a list of times is there and past."""
        yield from self.engine.until(lambda: bool(times))
        time = times.pop(0)
        if time > self.env.now:
            yield self.env.timeout(time - self.env.now)

    def issue(self):
        env, chip = self.env, self.chip
        issue_cycles = chip.scalar.issue_cycles
        for op in self.ops:
            low = self.lowering.lower(op, self.state)
            if low.changes:
                self.state = self.lowering.changed(low)
            if low.pipe is Pipe.S:
                if low.code is Code.SCALAR:
                    before = env.now
                    yield env.timeout(low.cycles)
                    self.note(Pipe.S, "work", before)
                    continue
                before = env.now
                yield env.timeout(issue_cycles)
                self.note(Pipe.S, "work", before)
                before = env.now
                if low.code is Code.WAIT:
                    yield from self.take(Pipe.S, self.flags[op.src, op.dst, op.id])
                    self.note(Pipe.S, "flag", before)
                elif low.code is Code.SET:
                    self.raise_flag(op, env.now)
                elif low.code is Code.BARRIER_ALL:
                    yield from self.engine.until(self.idle)
                    self.note(Pipe.S, "barrier", before)
                elif low.code is Code.CROSS_WAIT:
                    for sender in self.peers(op, sending=False):
                        yield from self.take(Pipe.S, self.cross[op.id, sender.id])
                    self.note(Pipe.S, "cross_core", before)
                elif low.code is Code.CROSS_SET:
                    self.send(op, env.now)
                elif low.code is Code.CLEAN:
                    yield env.timeout(low.cycles)
                    self.note(Pipe.S, "work", before)
                    line = (op.at.segment, op.at.address // chip.scalar.dcache_line_bytes)
                    self.lines = [] if op.all else [k for k in self.lines if k != line]
                else:
                    at = op.src if hasattr(op, "src") else op.dst
                    line = (at.segment, at.address // chip.scalar.dcache_line_bytes)
                    if line not in self.lines:
                        cycles = chip.cycles(chip.scalar.gm_read_ns)
                        yield env.timeout(cycles)
                        self.note(Pipe.S, "link", before)
                    self.lines = [k for k in self.lines if k != line] + [line]
                    self.lines = self.lines[-chip.scalar.dcache_lines :]
                continue
            before = env.now
            yield env.timeout(issue_cycles)
            self.note(Pipe.S, "work", before)
            queue, depth = self.queues[low.pipe], getattr(chip.queues, low.pipe.name.lower())
            before = env.now
            yield from self.engine.until(lambda queue=queue, depth=depth: len(queue) < depth)
            self.note(Pipe.S, "queue", before)
            queue.append(low)
            self.engine.bell.ring()
            if low.returns_value:
                before = env.now
                yield from self.engine.until(lambda pipe=low.pipe: pipe in self.value)
                wait = self.value.pop(low.pipe) + chip.flags.latency_cycles - env.now
                yield env.timeout(wait)
                self.note(Pipe.S, "flag", before)
        self.end = max(self.end, env.now)
        self.issued = True
        self.engine.bell.ring()

    def idle(self):
        """Nothing queued, nothing running, nothing on its way back."""
        now = self.env.now
        for pipe, queue in self.queues.items():
            if queue or self.busy[pipe] or self.usable[pipe] > now or self.free_at[pipe] > now:
                self.alarm(max(self.usable[pipe], self.free_at[pipe]))
                return False
            for over, usable in self.outstanding[pipe]:
                if not over or usable > now:
                    if over:
                        self.alarm(usable)
                    return False
        return True

    def alarm(self, time):
        if time > self.env.now:
            timeout = self.env.timeout(time - self.env.now)
            timeout.callbacks.append(lambda _: self.engine.bell.ring())

    def peers(self, op, *, sending):
        ids = cross_peers(self.id, op.group, list(self.engine.by_id), sending=sending)
        return [self.engine.by_id[i] for i in ids]

    def raise_flag(self, op, time):
        self.flags[op.src, op.dst, op.id].append(time + self.chip.flags.latency_cycles)
        self.engine.bell.ring()

    def send(self, op, time):
        flags = self.chip.flags
        ns = flags.all_latency_ns if op.group == 0 else flags.group_latency_ns
        for receiver in self.peers(op, sending=True):
            receiver.cross[op.id, self.id].append(time + self.chip.cycles(ns))
        self.engine.bell.ring()

    @property
    def busy(self):
        return self._busy

    _busy = None

    def serve(self, pipe):
        if self._busy is None:
            self._busy = defaultdict(bool)
        env, queue = self.env, self.queues[pipe]
        while True:
            yield from self.engine.until(lambda: bool(queue) or self.issued)
            if not queue:
                return
            self._busy[pipe] = True
            low = queue[0]
            yield from self.step(pipe, queue, low, low.op)
            self._busy[pipe] = False
            self.end = max(self.end, env.now, self.usable[pipe])
            self.engine.bell.ring()

    def step(self, pipe, queue, low, op):
        env, code = self.env, low.code
        before = env.now
        if code is Code.WORK and low.transfer is None:
            yield from self.engine.until(lambda: all(over for over, _ in self.outstanding[pipe]))
            queue.popleft()
            self.engine.bell.ring()
            before = env.now
            yield env.timeout(low.cycles)
            self.note(pipe, "work", before)
            self.usable[pipe] = max(self.usable[pipe], env.now + low.latency)
            if low.returns_value:
                self.value[pipe] = env.now + low.latency
        elif code is Code.WORK:
            yield from self.transfer(pipe, queue, low)
        elif code is Code.WAIT:
            yield from self.take(pipe, self.flags[op.src, op.dst, op.id])
            self.note(pipe, "flag", before)
            queue.popleft()
        elif code is Code.BARRIER:
            yield from self.settled(pipe, list(self.outstanding[pipe]))
            self.note(pipe, "barrier", before)
            queue.popleft()
        elif code is Code.CROSS_WAIT:
            for sender in self.peers(op, sending=False):
                yield from self.take(pipe, self.cross[op.id, sender.id])
            self.note(pipe, "cross_core", before)
            queue.popleft()
        else:
            self.note(pipe, "set", before)
            queue.popleft()
            env.process(self.signal(pipe, op, code, list(self.outstanding[pipe]), self.usable[pipe]))

    def settled(self, pipe, transfers):
        """Wait until transfers and results of a pipe are usable."""
        yield from self.engine.until(lambda: all(over for over, _ in transfers))
        time = max([self.usable[pipe], *(usable for _, usable in transfers)])
        if time > self.env.now:
            yield self.env.timeout(time - self.env.now)

    def signal(self, pipe, op, code, transfers, usable):
        """Raise a flag when all that came before it is usable, without holding the pipe up."""
        yield from self.engine.until(lambda: all(over for over, _ in transfers))
        time = max([usable, self.env.now, *(t for _, t in transfers)])
        if code is Code.SET:
            self.raise_flag(op, time)
        else:
            self.send(op, time)

    def transfer(self, pipe, queue, low):
        env = self.env
        limit = getattr(self.chip.ports, low.transfer.port).outstanding
        mine = self.outstanding[pipe, low.transfer.port]
        before = env.now
        for older in mine[: max(0, len(mine) - limit + 1)]:
            yield from self.engine.until(lambda older=older: older[0])
            if older[1] > env.now:
                yield env.timeout(older[1] - env.now)
        self.note(pipe, "link", before)
        line = ["transfer", env.now, None, (low.cycles, low.transfer.port_cycles)]
        self.log[pipe].append(line)
        queue.popleft()
        self.engine.bell.ring()
        entry = [False, 0]
        mine.append(entry)
        self.outstanding[pipe].append(entry)
        yield env.timeout(low.cycles)
        port = self.ports.setdefault(pipe, Port(self.engine.memory))

        def ended(stop, done):
            entry[0], entry[1], line[2] = True, done + low.latency, stop
            self.end = max(self.end, entry[1])
            self.engine.bell.ring()

        port.submit(low.transfer, ended)
