"""The unit behind a queue: it takes instructions in order, waits for flags, works, and starts transfers."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import simpy

from npusim.config.chip import Chip
from npusim.isa.sync import CrossCoreSetFlag, CrossCoreWaitFlag
from npusim.machine.timing.account import Cause
from npusim.machine.timing.lower import Code, Lowered
from npusim.machine.timing.peers import Peers
from npusim.machine.timing.pipes import CoreState, Pending, PipeState

Process = Generator[simpy.Event, Any, None]

# Python 3.11 looks a member of an enum up as slowly as it calls a function
_WORK, _WAIT, _SET, _BARRIER, _CROSS_SET = Code.WORK, Code.WAIT, Code.SET, Code.BARRIER, Code.CROSS_SET
_WORKS, _ISSUE, _FLAG = Cause.WORK, Cause.ISSUE, Cause.FLAG


class Units:
    """The units of all cores of a launch."""

    def __init__(self, chip: Chip, peers: Peers) -> None:
        self._ports = chip.ports
        self._flag_latency = chip.flags.latency_cycles
        self._peers = peers

    def serve(self, env: simpy.Environment, core: CoreState, pipe: PipeState) -> Process:
        """Take instructions from a queue in order and run them on the unit.

        `issued`, `start`, `stop` and `free` are times in cycles: when the scalar unit issued an instruction,
        when the unit begins it, when what it waits for is over, and when the unit can begin the next. While
        transfers of the pipe are under way (`pipe.pending`) waits and sets are put down behind them; where
        there are none, `PipeState.account` and `raise_flags` are written out, since most time goes here.
        """
        queue, clock, latency = pipe.queue, pipe.clock, self._flag_latency
        while True:
            while not queue:
                if core.issued:
                    return
                yield pipe.items.wait()
            # all that is known before an event is worked out at once: times may lie ahead of `env.now`
            issued, low, number = queue.popleft()
            clock.instructions += 1
            start = max(pipe.free, issued)
            code, op = low.code, low.op
            if code is _WORK:
                if low.transfer is not None:
                    yield from self._transfer(env, core, pipe, low, number, start)
                    continue
                if pipe.pending:
                    while pipe.pending:
                        yield pipe.moved.wait()
                    start = max(start, clock.cursor)
                free = start + low.cycles
                clock.spend(_WORKS, start, free, number)
                pipe.free = free
                pipe.done = max(pipe.done, free + low.latency)
                if low.returns_value:
                    pipe.value_time = free + low.latency
                pipe.pop(start)
            elif code is _WAIT:
                assert low.flag is not None
                flag = core.flags[low.flag]
                pipe.at = number
                while not flag.raised:
                    yield flag.changed.wait()
                pipe.at = None
                stop = max(start, flag.raised.popleft() + latency)
                if pipe.pending:
                    pipe.account(_FLAG, start, stop, number)
                else:
                    clock.spend(_FLAG, start, stop, number)
                pipe.free = stop
                pipe.pop(stop)
            elif code is _SET:
                assert low.flag is not None
                flag = core.flags[low.flag]
                if pipe.pending:
                    pipe.raise_flags([(flag, 0)], start, number)
                else:
                    clock.until(_ISSUE, start, number)
                    flag.set(max(start, pipe.done))
                pipe.free = start
                pipe.pop(start)
            elif code is _BARRIER:
                while pipe.pending:
                    yield pipe.moved.wait()
                self._waited(pipe, Cause.BARRIER, start, max(start, pipe.done), number)
            elif code is _CROSS_SET:
                assert isinstance(op, CrossCoreSetFlag)
                pipe.raise_flags(self._peers.reached(core, op), start, number)
                pipe.free = start
                pipe.pop(start)
            else:
                assert isinstance(op, CrossCoreWaitFlag)
                stop = start
                pipe.at = number
                awaited = self._peers.awaited(core, op)
                for flag in awaited:
                    while not flag.raised:
                        yield flag.changed.wait()
                stop = max([stop, *(flag.raised.popleft() for flag in awaited)])
                pipe.at = None
                self._waited(pipe, Cause.CROSS_CORE, start, stop, number)

    @staticmethod
    def _waited(pipe: PipeState, cause: Cause, start: int, stop: int, number: int) -> None:
        pipe.account(cause, start, stop, number)
        pipe.free = stop
        pipe.pop(stop)

    def _transfer(
        self, env: simpy.Environment, core: CoreState, pipe: PipeState, low: Lowered, number: int, start: int
    ) -> Process:
        """Start a transfer with global memory, after waiting for the oldest where too many are under way."""
        transfer = low.transfer
        assert transfer is not None
        limit = getattr(self._ports, transfer.port).outstanding
        in_flight = pipe.in_flight[transfer.port]
        if len(in_flight) >= limit:
            oldest = in_flight.popleft()
            while oldest.stop is None:
                yield pipe.moved.wait()
            if oldest.done > start:
                pipe.account(Cause.LINK, start, oldest.done, number)
                start = oldest.done
        entry = Pending(number, start, _WORKS, None)
        entry.issue, entry.ideal = low.cycles, transfer.port_cycles
        pipe.pending.append(entry)
        in_flight.append(entry)
        pipe.free = start + low.cycles
        pipe.pop(start)

        def ended(stop: int, done: int) -> None:
            entry.stop = stop
            entry.done = done + low.latency
            pipe.settle()

        delay = pipe.free - int(env.now)
        if delay > 0:
            yield env.timeout(delay)
        pipe.port.submit(transfer, ended)
