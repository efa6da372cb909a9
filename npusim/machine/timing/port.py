"""A core's port to global memory: transfers one after the other, each through L2 and, where it misses, main
memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import ceil, inf

import simpy

from npusim.config.chip import Chip
from npusim.isa.instruction import Transfer
from npusim.machine.timing.account import Moves
from npusim.machine.timing.l2 import L2, Fetch
from npusim.machine.timing.link import FairLink

Ended = Callable[[int, int], None]
"""Called at the end of the data with the time, and the time at which the result is usable."""


class MemorySystem:
    """What all cores share: L2, its two directions, main memory behind it, and the write-back buffer."""

    def __init__(self, env: simpy.Environment, chip: Chip, l2: L2, moves: Moves | None = None) -> None:
        self.env = env
        self.l2 = l2
        self.moves = moves
        """Every transfer, where they are wanted."""
        l2.settle()
        self.l2_read = FairLink(env, chip.l2.read_bytes_per_cycle)
        self.l2_write = FairLink(env, chip.l2.write_bytes_per_cycle)
        self.hbm = FairLink(env, chip.hbm_bytes_per_cycle)
        self.hit_latency = chip.cycles(chip.l2.read_latency_ns)
        self.miss_latency = chip.cycles(chip.hbm.read_latency_ns)
        self.write_latency = chip.cycles(chip.l2.write_latency_ns)
        self.read_bytes = self.write_bytes = 0
        self.hit_bytes = self.miss_bytes = self.evicted_bytes = 0
        self._request_bytes = chip.l2.request_bytes
        self._same_range = chip.l2.same_range_requests_per_cycle
        self._under_way: dict[tuple[int, int], int] = {}
        """Transfers under way by the range of addresses that they start in."""
        self._met: dict[tuple[int, int], Move | FairLink] = {}
        """The only transfer in a range, or the link that several share."""
        self._left: deque[Left] = deque()
        self._rate = chip.hbm_bytes_per_cycle
        self._room = chip.l2.writeback_buffer_kib * 1024
        self._backlog = 0.0
        self._idle = 0

    def write_back(self, nbytes: int, done: Callable[[], None]) -> bool:
        """Take evicted bytes into the write-back buffer, which main memory empties when nothing else is under
        way. What finds no room there is a transfer like any other: then `done` is called at its end, and the
        answer is True.
        """
        self.evicted_bytes += nbytes
        if self._rate == inf:
            return False
        idle = self.hbm.idle_cycles()
        self._backlog = max(0.0, self._backlog - (idle - self._idle) * self._rate)
        self._idle = idle
        kept = min(nbytes, max(0, int(self._room - self._backlog)))
        self._backlog += kept
        if kept < nbytes:
            self.hbm.submit(nbytes - kept, done)
        return kept < nbytes

    def enter(self, move: Move) -> FairLink | None:
        """Note that a transfer starts in a range; return the link that it shares where it is not alone there.

        Who was alone there until now joins the link. What leaves in this cycle still counts, so that the
        order of events in a cycle is all one.
        """
        if self._same_range is None:
            return None
        now, left = int(self.env.now), self._left
        if move.port.left is not None:
            self._forget(move.port.left)  # a transfer does not meet the one before it on its own port
        while left and left[0].time < now:
            self._forget(left.popleft())
        access = move.transfer.access
        key = (access.segment, access.start // self._request_bytes)
        self._under_way[key] = self._under_way.get(key, 0) + 1
        met = self._met.get(key)
        if met is None:
            self._met[key] = move
            return None
        if isinstance(met, Move):
            link = self._met[key] = FairLink(self.env, self._same_range)
            met.join(link)
            return link
        return met

    def leave(self, move: Move) -> None:
        """Note that a transfer has moved its data."""
        if self._same_range is not None:
            access = move.transfer.access
            key = (access.segment, access.start // self._request_bytes)
            move.port.left = Left(int(self.env.now), key)
            self._left.append(move.port.left)

    def _forget(self, left: Left) -> None:
        if left.counted:
            left.counted = False
            self._under_way[left.key] -= 1
            if not self._under_way[left.key]:
                del self._under_way[left.key], self._met[left.key]


class Left:
    """A transfer that left a range of addresses in some cycle, to the end of which it counts."""

    __slots__ = ("counted", "key", "time")

    def __init__(self, time: int, key: tuple[int, int]) -> None:
        self.time, self.key, self.counted = time, key, True


class Port:
    """One direction of one core's path to global memory; its transfers move their data in order, one at a
    time.
    """

    def __init__(self, memory: MemorySystem) -> None:
        self._memory = memory
        self._waiting: deque[tuple[Transfer, Ended]] = deque()
        self._busy = False
        self.left: Left | None = None
        """The last transfer that it moved."""

    def submit(self, transfer: Transfer, ended: Ended) -> None:
        """Queue a transfer that is ready to move data now."""
        self._waiting.append((transfer, ended))
        if not self._busy:
            self._start()

    def _start(self) -> None:
        self._busy = True
        Move(self, self._memory, *self._waiting.popleft()).start()

    def moved(self) -> None:
        """Go on with the next transfer."""
        if self._waiting and not self._busy:
            self._start()

    def free(self) -> None:
        """Note that the data of a transfer has moved."""
        self._busy = False


class Move:
    """A transfer whose data moves: it ends when its port and all links have done their part."""

    __slots__ = (
        "_ended",
        "_fetch",
        "_latency",
        "_memory",
        "_parts",
        "_row",
        "_since",
        "_timed",
        "port",
        "transfer",
    )

    def __init__(self, port: Port, memory: MemorySystem, transfer: Transfer, ended: Ended) -> None:
        self.transfer = transfer
        self.port, self._memory, self._ended = port, memory, ended
        self._since = int(memory.env.now)
        self._fetch = None if transfer.write else Fetch()
        self._latency = memory.write_latency
        self._parts = 3
        """Parts that are not done: the start itself, L2, main memory, and what else there is to wait for."""
        self._timed = False
        """Whether a timer runs until the port is done."""
        self._row = 0
        """Where it stands in the list of all transfers."""

    def start(self) -> None:
        """Look the bytes up in L2, and put them on the links."""
        transfer, memory, fetch, now, done = self.transfer, self._memory, self._fetch, self._since, self.done
        shared = memory.enter(self)
        if transfer.bypass:
            touched = memory.l2.bypass(transfer.access, write=transfer.write, now=now)
        else:
            touched = memory.l2.access(transfer.access, write=transfer.write, fetch=fetch, now=now)
        hit, miss, evicted, awaited = touched
        nbytes = hit + miss
        extra = transfer.extra
        fetched = miss + extra * miss // nbytes if extra else miss
        if not transfer.write:
            self._latency = memory.miss_latency if miss or awaited else memory.hit_latency
        memory.hit_bytes += hit
        memory.miss_bytes += fetched
        if memory.moves is not None:
            self._row = memory.moves.begin(now, transfer.write, nbytes, hit, fetched, evicted)
        for other in awaited:
            if other.stop is None:
                self._parts += 1
                other.waiting.append(done)
        if shared is not None:
            self._parts += 1
            shared.submit(transfer.requests, done)
        if evicted and memory.write_back(evicted, done):
            self._parts += 1
        if transfer.write:
            memory.write_bytes += nbytes
            memory.l2_write.submit(nbytes + extra, done)
        else:
            memory.read_bytes += nbytes
            memory.l2_read.submit(nbytes + extra, done)
        memory.hbm.submit(fetched, done)
        done()

    def join(self, link: FairLink) -> None:
        """Share the range with another transfer from now on, for the requests that are left."""
        if self._parts or self._timed:
            left = self._since + self.transfer.port_cycles - int(self._memory.env.now)
            requests = ceil(self.transfer.requests * max(0, left) / max(1, self.transfer.port_cycles))
            self._parts += 1
            link.submit(requests, self.done)

    def done(self) -> None:
        """Count a part as done; after the last, wait for the port."""
        self._parts -= 1
        if self._parts or self._timed:
            return
        env = self._memory.env
        left = self._since + self.transfer.port_cycles - int(env.now)
        if left > 0:
            self._timed = True
            timeout = env.timeout(left)
            assert timeout.callbacks is not None
            timeout.callbacks.append(self._port_done)
        else:
            self._end()

    def _port_done(self, _: simpy.Event) -> None:
        self._timed = False
        if not self._parts:
            self._end()

    def _end(self) -> None:
        now = int(self._memory.env.now)
        if self._memory.moves is not None:
            self._memory.moves.stop[self._row] = now
        self.port.free()
        self._memory.leave(self)
        self._ended(now, now + self._latency)
        if self._fetch is not None:
            self._fetch.end(now)
        self.port.moved()
