"""Which instruction surely runs before which: vector clocks over the pipes of all cores.

A thread is a pipe of a core, or the issue of a core. `known[t][u] = e` says: whatever thread `t` starts from
now on, everything that thread `u` did up to its count `e` is done. Flags carry that knowledge from pipe to
pipe, barriers give a pipe knowledge of itself, and a wait on the scalar unit gives it to everything issued
later.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from npusim.isa.operand import Pipe

Clock = NDArray[np.int64]

WIDTH = 8
ISSUE = 7
"""Place of the issue of a core, behind its seven pipes."""
_S = int(Pipe.S)  # member access of an enum is slow for what is done at every instruction


class Order:
    """Happens-before knowledge of one launch.

    Single counts are read with `item`, which costs half of indexing.
    """

    def __init__(self, cores: int) -> None:
        self._size = cores * WIDTH
        self.count = [0] * self._size
        """What each thread has done so far."""
        self._known: dict[int, Clock] = {}
        self._issue = [np.zeros(self._size, np.int64) for _ in range(cores)]
        self._joined: dict[int, Clock] = {}

    def issued(self, core: int) -> Clock:
        """Return what the issue of a core knows now; the array is never changed, so it may be kept."""
        return self._issue[core]

    def known(self, thread: int) -> Clock:
        """Return what a pipe knows; the scalar unit knows what the issue of its core knows."""
        if thread % WIDTH == _S:
            return self._issue[thread // WIDTH]
        found = self._known.get(thread)
        if found is None:
            found = self._known[thread] = np.zeros(self._size, np.int64)
        return found

    def start(self, thread: int, issued: Clock) -> Clock:
        """Let what was known when an instruction was issued join what its pipe knows, and return that."""
        known = self._known.get(thread)
        if known is None:
            known = self.known(thread)
            if thread % WIDTH == _S:
                return known
        if self._joined.get(thread) is not issued:
            self._joined[thread] = issued
            np.maximum(known, issued, out=known)
        return known

    def step(self, thread: int) -> int:
        """Count one more thing that a thread does, and return the count."""
        count = self.count[thread] = self.count[thread] + 1
        return count

    def publish(self, thread: int) -> Clock:
        """Return the clock that a flag set on a pipe carries: all it knows, and all it has done."""
        clock = self.known(thread).copy()
        clock[thread] = self.count[thread]
        return clock

    def waiter(self, thread: int) -> int:
        """Return the thread that counts the waits of a pipe."""
        return thread + ISSUE if thread % WIDTH == _S else thread

    def receive(self, thread: int, clocks: list[Clock]) -> int:
        """Give a pipe the clocks of the flags it waited for; return the count by which others may know of the
        wait.
        """
        waiter = self.waiter(thread)
        count = self.step(waiter)
        if waiter == thread:
            known = self.known(thread)
            for clock in clocks:
                np.maximum(known, clock, out=known)
            return count
        core = thread // WIDTH
        fresh = self._issue[core].copy()
        for clock in clocks:
            np.maximum(fresh, clock, out=fresh)
        fresh[waiter] = count
        self._issue[core] = fresh
        return count

    def barrier(self, thread: int) -> None:
        """Let a pipe know all it has done itself."""
        self.known(thread)[thread] = self.count[thread]

    def barrier_all(self, core: int) -> None:
        """Let the issue of a core know all that its pipes have done and know."""
        fresh = self._issue[core].copy()
        for pipe in range(ISSUE):
            thread = core * WIDTH + pipe
            if pipe == _S or thread in self._known:
                np.maximum(fresh, self.publish(thread), out=fresh)
        self._issue[core] = fresh

    def use_register(self, thread: int, scalar: int, count: int) -> None:
        """Let a pipe know that the scalar instruction which made one of its operands is done."""
        if thread != scalar:
            known = self.known(thread)
            if known.item(scalar) < count:
                known[scalar] = count
