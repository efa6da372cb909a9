"""Links that cores share: every transfer under way gets an equal share of the rate.

Equal sharing is the policy of the model. The device arbitrates requests of 128 to 512 bytes; serving whole
transfers first come, first served gives up to 11 % other times on copies (measured on a throw-away model
against the published copy curves), and the device lies between.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from math import ceil, inf

import simpy

Done = Callable[[], None]
_FORGIVEN = 1e-6
"""Bytes by which float arithmetic may miss the end of a transfer."""


class FairLink:
    """A rate in bytes per cycle that transfers share equally, by virtual time.

    The virtual clock counts the bytes that each transfer under way has received since the start; a transfer
    ends when the clock has advanced by its size, at the next whole cycle.
    """

    def __init__(self, env: simpy.Environment, bytes_per_cycle: float) -> None:
        self._env = env
        self._rate = bytes_per_cycle
        self._received = 0.0
        self._since = 0
        self._idle = 0
        self._under_way: list[tuple[float, int, Done]] = []
        self._order = count()
        self._version = 0
        self.nbytes = 0
        """Bytes of all transfers so far."""

    def submit(self, nbytes: int, done: Done) -> None:
        """Start a transfer now and call `done` at its end; at once where it has no bytes or the rate is
        infinite.
        """
        self.nbytes += nbytes
        if nbytes == 0 or self._rate == inf:
            done()
            return
        self._advance()
        heappush(self._under_way, (self._received + nbytes, next(self._order), done))
        self._plan()

    def _advance(self) -> None:
        now = int(self._env.now)
        if self._under_way:
            self._received += (now - self._since) * self._rate / len(self._under_way)
        else:
            self._idle += now - self._since
        self._since = now

    def idle_cycles(self) -> int:
        """Return for how many cycles so far no transfer was under way."""
        self._advance()
        return self._idle

    def _plan(self) -> None:
        """Wake up at the end of the transfer that ends first, unless the set of transfers changes before."""
        self._version += 1
        if not self._under_way:
            return
        left = self._under_way[0][0] - self._received - _FORGIVEN
        delay = max(0, ceil(left * len(self._under_way) / self._rate))
        version = self._version
        timeout = self._env.timeout(delay)
        assert timeout.callbacks is not None
        timeout.callbacks.append(lambda _: self._finish(version))

    def _finish(self, version: int) -> None:
        if version != self._version:
            return
        self._advance()
        ended = []
        while self._under_way and self._under_way[0][0] <= self._received + _FORGIVEN:
            ended.append(heappop(self._under_way)[2])
        self._plan()
        for done in ended:
            done()
