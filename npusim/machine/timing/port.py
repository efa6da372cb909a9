"""A core's port to global memory: transfers one after the other, each through L2 and, where it misses, main
memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import simpy

from npusim.config.chip import Chip
from npusim.isa.instruction import Transfer
from npusim.machine.timing.l2 import L2, Fetch
from npusim.machine.timing.link import FairLink

Ended = Callable[[int, int], None]
"""Called at the end of the data with the time, and the time at which the result is usable."""


class MemorySystem:
    """What all cores share: L2, its two directions, main memory behind it, and the write-back buffer."""

    def __init__(self, env: simpy.Environment, chip: Chip, l2: L2) -> None:
        self.env = env
        self.l2 = l2
        self.l2_read = FairLink(env, chip.l2.read_bytes_per_cycle)
        self.l2_write = FairLink(env, chip.l2.write_bytes_per_cycle)
        self.hbm = FairLink(env, chip.hbm_bytes_per_cycle)
        self.hit_latency = chip.cycles(chip.l2.read_latency_ns)
        self.miss_latency = chip.cycles(chip.hbm.read_latency_ns)
        self.write_latency = chip.cycles(chip.l2.write_latency_ns)
        self.read_bytes = self.write_bytes = 0
        self.hit_bytes = self.miss_bytes = self.evicted_bytes = 0
        self._buffer_bytes = chip.l2.writeback_buffer_kib * 1024
        self._backlog = 0

    def write_back(self, nbytes: int, delayed: Callable[[], None] | None) -> None:
        """Send evicted bytes to main memory; `delayed` is called at the end where the buffer had no room for
        them.
        """
        self.evicted_bytes += nbytes
        self._backlog += nbytes

        def ended() -> None:
            self._backlog -= nbytes
            if delayed is not None:
                delayed()

        self.hbm.submit(nbytes, ended)

    def full(self, nbytes: int) -> bool:
        """Whether the write-back buffer has no room for some more bytes."""
        return self._backlog + nbytes > self._buffer_bytes


class Port:
    """One direction of one core's path to global memory; its transfers move their data in order, one at a
    time.
    """

    def __init__(self, memory: MemorySystem) -> None:
        self._memory = memory
        self._waiting: deque[tuple[Transfer, Ended]] = deque()
        self._busy = False

    def submit(self, transfer: Transfer, ended: Ended) -> None:
        """Queue a transfer that is ready to move data now."""
        self._waiting.append((transfer, ended))
        if not self._busy:
            self._start()

    def _start(self) -> None:
        self._busy = True
        transfer, ended = self._waiting.popleft()
        memory = self._memory
        env = memory.env
        start = int(env.now)
        fetch = None if transfer.write else Fetch()
        if transfer.bypass:
            hit, miss, evicted, awaited = memory.l2.bypass(transfer.access, write=transfer.write)
        else:
            hit, miss, evicted, awaited = memory.l2.access(transfer.access, write=transfer.write, fetch=fetch)
        nbytes = hit + miss
        extra = transfer.extra
        fetched = miss + extra * miss // nbytes if extra else miss
        latency = memory.write_latency
        if not transfer.write:
            latency = memory.miss_latency if miss or awaited else memory.hit_latency
        parts = 3 + len(awaited)

        def part_ended() -> None:
            nonlocal parts
            parts -= 1
            if parts:
                return
            left = start + transfer.port_cycles - int(env.now)
            if left > 0:
                timeout = env.timeout(left)
                assert timeout.callbacks is not None
                timeout.callbacks.append(lambda _: self._end(ended, latency, fetch))
            else:
                self._end(ended, latency, fetch)

        memory.hit_bytes += hit
        memory.miss_bytes += fetched
        for other in awaited:
            other.waiting.append(part_ended)
        if evicted:
            delays = memory.full(evicted)
            memory.write_back(evicted, part_ended if delays else None)
            parts += delays
        if transfer.write:
            memory.write_bytes += nbytes
            memory.l2_write.submit(nbytes + extra, part_ended)
        else:
            memory.read_bytes += nbytes
            memory.l2_read.submit(nbytes + extra, part_ended)
        memory.hbm.submit(fetched, part_ended)
        part_ended()

    def _end(self, ended: Ended, latency: int, fetch: Fetch | None) -> None:
        now = int(self._memory.env.now)
        self._busy = False
        ended(now, now + latency)
        if fetch is not None:
            fetch.end()
        if self._waiting and not self._busy:
            self._start()
