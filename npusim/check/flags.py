"""Flags between pipes and between cores: raised once, waited for once, never more of them than the chip
counts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from npusim.check.order import WIDTH, Clock, Order
from npusim.check.place import Site
from npusim.config.chip import Chip
from npusim.errors import HazardError
from npusim.isa.operand import Pipe
from npusim.isa.sync import CrossCoreSetFlag, CrossCoreWaitFlag, PipeBarrier, SetFlag, WaitFlag
from npusim.program.core import CoreId


class Raised(NamedTuple):
    """A flag that was set and not yet waited for: what its setter knew, and the place of the set."""

    clock: Clock
    core: int
    number: int


Locate = Callable[[int, int], Site]
"""Gives the place of an instruction from the index of its core and its position in the stream."""


class FlagWatch:
    """The flags of one launch, and the order that they make."""

    def __init__(self, chip: Chip, cores: list[CoreId], locate: Locate) -> None:
        self._chip = chip
        self._cores = cores
        self._locate = locate
        self.order = Order(len(cores))
        self._raised: dict[tuple[int, Pipe, Pipe, int], Raised] = {}
        self._waited: dict[tuple[int, Pipe, Pipe, int], int] = {}
        self._cross: dict[tuple[int, int, int], deque[Raised]] = {}
        self._cross_sets: dict[tuple[int, int, int], int] = {}
        self._cross_last: dict[tuple[int, int, int], tuple[int, int, int]] = {}
        """Thread, count and position of the last set, by receiver, id and sender."""
        self._cross_waits: dict[tuple[int, int, int], list[tuple[int, int, int]]] = {}
        """Thread, count and position of every wait, by receiver, id and sender."""

    def _error(self, core: int, number: int, text: str) -> HazardError:
        return HazardError(self._locate(core, number).message(text))

    def end(self) -> None:
        """Finish the launch: every flag must have been waited for."""
        for (_, src, dst, event), raised in self._raised.items():
            flag = f"{src.name}->{dst.name}#{event}"
            raise self._error(
                raised.core,
                raised.number,
                f"SetFlag: {flag} is raised and never waited for, so the next launch would find it; "
                f"add WaitFlag {flag} on {dst.name} at the end",
            )
        for (receiver, event, _), sets in self._cross.items():
            if sets:
                raise self._error(
                    sets[0].core,
                    sets[0].number,
                    f"CrossCoreSetFlag: flag {event} reaches {self._cores[receiver]}, which never waits "
                    f"for it; add CrossCoreWaitFlag {event} there",
                )

    def set_flag(self, core: int, number: int, op: SetFlag, issued: Clock) -> None:
        """Record a set.

        Raises `HazardError` where the flag may still be raised.
        """
        key = (core, op.src, op.dst, op.id)
        thread = core * WIDTH + op.src
        order = self.order
        known = order.start(thread, issued)
        earlier = self._raised.get(key)
        if earlier is not None:
            place = self._locate(core, earlier.number).where
            raise self._error(
                core,
                number,
                f"SetFlag: {op.src.name}->{op.dst.name}#{op.id} is raised again before {op.dst.name} has "
                f"waited for it (raised at {place}); wait in between, or use another id",
            )
        waited = self._waited.get(key)
        if waited is not None and known.item(order.waiter(core * WIDTH + op.dst)) < waited:
            raise self._error(
                core,
                number,
                f"SetFlag: {op.src.name}->{op.dst.name}#{op.id} may be raised again before {op.dst.name} has "
                f"waited for it, since nothing tells {op.src.name} of the wait; add a flag "
                f"{op.dst.name}->{op.src.name} behind the wait",
            )
        self._raised[key] = Raised(order.publish(thread), core, number)

    def wait_flag(self, core: int, number: int, op: WaitFlag, issued: Clock) -> None:
        """Record a wait that has its flag."""
        key = (core, op.src, op.dst, op.id)
        thread = core * WIDTH + op.dst
        self.order.start(thread, issued)
        self._waited[key] = self.order.receive(thread, [self._raised.pop(key).clock])

    def barrier(self, core: int, number: int, op: PipeBarrier, issued: Clock) -> None:
        """Record a barrier."""
        if op.on is Pipe.ALL:
            self.order.barrier_all(core)
            return
        thread = core * WIDTH + op.on
        self.order.start(thread, issued)
        self.order.barrier(thread)

    def cross_set(
        self, core: int, number: int, op: CrossCoreSetFlag, receivers: list[int], issued: Clock
    ) -> None:
        """Record a cross-core set.

        Raises `HazardError` where more sets than the chip counts may be outstanding.
        """
        thread = core * WIDTH + op.on
        order = self.order
        known = order.start(thread, issued)
        limit = self._chip.flags.cross_limit
        tick = order.step(thread)
        clock = order.publish(thread)
        for receiver in receivers:
            key = (receiver, op.id, core)
            self._one_by_one(core, number, op, self._cross_last.get(key), thread, known)
            self._cross_last[key] = (thread, tick, number)
            count = self._cross_sets[key] = self._cross_sets.get(key, 0) + 1
            waits = self._cross_waits.setdefault(key, [])
            if count > limit:
                oldest = waits[count - limit - 1] if len(waits) >= count - limit else None
                if oldest is None or known.item(oldest[0]) < oldest[1]:
                    who = self._cores[receiver]
                    raise self._error(
                        core,
                        number,
                        f"CrossCoreSetFlag: set {count} of flag {op.id} may leave more than {limit} sets "
                        f"that {who} has not waited for, and the counter overflows; wait for a flag from "
                        f"{who} at least every {limit} sets",
                    )
            self._cross.setdefault(key, deque()).append(Raised(clock, core, number))

    def cross_wait(
        self, core: int, number: int, op: CrossCoreWaitFlag, senders: list[int], issued: Clock
    ) -> None:
        """Record a cross-core wait that has its flags."""
        thread = core * WIDTH + op.on
        known = self.order.start(thread, issued)
        for sender in senders:
            waits = self._cross_waits.get((core, op.id, sender))
            if waits:
                self._one_by_one(core, number, op, waits[-1], self.order.waiter(thread), known)
        clocks = [self._cross[core, op.id, sender].popleft().clock for sender in senders]
        tick = self.order.receive(thread, clocks)
        for sender in senders:
            waits = self._cross_waits.setdefault((core, op.id, sender), [])
            waits.append((self.order.waiter(thread), tick, number))

    def _one_by_one(
        self,
        core: int,
        number: int,
        op: CrossCoreSetFlag | CrossCoreWaitFlag,
        last: tuple[int, int, int] | None,
        thread: int,
        known: Clock,
    ) -> None:
        """Raise where two pipes of a core use a cross-core flag in an order that nobody knows."""
        if last is not None and last[0] != thread and known.item(last[0]) < last[1]:
            other = self._locate(core, last[2])
            raise self._error(
                core,
                number,
                f"{op.mnemonic}: on flag {op.id} nothing orders pipe {op.pipe.name} behind {other.words}, so "
                f"either may be first; use one pipe for it, or another id",
            )
