"""The shared cache: which bytes of an access hit, which come from main memory, and what has to be written
back.

Write-back, write-allocate without fetch, least recently used out first, at a granule the chip gives. A
granule knows exactly which of its bytes were touched, so that reading others is a miss. Bytes that are on
their way from main memory hit, but who hits them waits for the transfer that fetches them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from npusim.config.chip import Chip
from npusim.isa.operand import Access, Space, merge_runs
from npusim.program.program import SegmentSpec
from npusim.units import align_up

L2State = Literal["cold", "warm", "dirty"]
"""At the start: empty; holding the program's inputs; or full of somebody else's dirty lines."""


class Fetch:
    """A transfer that brings bytes from main memory; later accesses that hit these bytes wait for its end."""

    __slots__ = ("stop", "waiting")

    def __init__(self) -> None:
        self.stop: int | None = None
        """When its data had moved; None while it is under way."""
        self.waiting: list[Callable[[], None]] = []

    def pending(self, now: int) -> bool:
        """Whether its data is under way, or has ended in this very cycle."""
        return self.stop is None or self.stop >= now

    def end(self, now: int) -> None:
        """Let those who wait go on."""
        self.stop = now
        for done in self.waiting:
            done()


class Touched(NamedTuple):
    """What an access did to the cache, in bytes."""

    hit: int
    miss: int
    """Read from main memory."""
    evicted: int
    """Written back to main memory."""
    awaited: tuple[Fetch, ...] = ()
    """Transfers that fetch what was hit, under way or ended in this cycle."""


class Settled:
    """A read of many runs all of whose bytes are there or under way."""

    __slots__ = ("_nbytes", "_touched", "holds")

    def __init__(self, nbytes: int, awaited: tuple[Fetch, ...]) -> None:
        self._nbytes = nbytes
        self._touched = Touched(nbytes, 0, 0, awaited)
        self.holds = True

    def touched(self, now: int) -> Touched:
        """Return what the same read does to the cache once more."""
        awaited = self._touched.awaited
        if awaited and not all(by.pending(now) for by in awaited):
            self._touched = Touched(self._nbytes, 0, 0, tuple(by for by in awaited if by.pending(now)))
        return self._touched


class Line:
    """What a granule holds: the touched bytes, whether any was written, and who fetches them."""

    __slots__ = ("dirty", "fetch", "high", "low", "runs", "settled")

    def __init__(self, low: int, high: int, dirty: bool, fetch: Fetch | None) -> None:
        self.low, self.high, self.dirty, self.fetch = low, high, dirty, fetch
        self.runs: list[tuple[int, int]] | None = None
        """The touched bytes where they are more than the one run from `low` to `high`."""
        self.settled: list[Settled] | None = None
        """Accesses that hold only while nothing more is fetched into the granule."""

    def known(self, low: int, high: int) -> int:
        """Return how many bytes of a run are there."""
        if self.runs is None:
            return max(0, min(high, self.high) - max(low, self.low))
        after = bisect_right(self.runs, (low, high))  # runs from here on start behind `low`, or are this one
        if after and self.runs[after - 1][1] >= high:
            return high - low
        if (not after or self.runs[after - 1][1] <= low) and (
            after == len(self.runs) or self.runs[after][0] >= high
        ):
            return 0
        return sum(max(0, min(high, stop) - max(low, start)) for start, stop in self.runs)

    def insert(self, low: int, high: int) -> int:
        """Add a run of bytes; return how many of them were there before."""
        if self.runs is None:
            if low <= self.high and high >= self.low:
                before = max(0, min(high, self.high) - max(low, self.low))
                self.low, self.high = min(low, self.low), max(high, self.high)
                return before
            self.runs = [(self.low, self.high)]
        runs = self.runs
        at = bisect_right(runs, (low, high))  # runs from here on start behind `low`, or are longer
        start, stop = runs[at - 1] if at else (low, low)
        if stop >= high and at:
            return high - low
        if at == len(runs) or runs[at][0] > high:
            if stop < low or not at:
                runs.insert(at, (low, high))
                before = 0
            else:
                runs[at - 1] = (start, high)
                before = stop - low
        else:
            before = self.known(low, high)
            runs[:] = merge_runs([*runs, (low, high)])
        self.low, self.high = runs[0][0], runs[-1][1]
        if len(runs) == 1:
            self.runs = None
        return before

    @property
    def held(self) -> int:
        """Number of touched bytes."""
        return self.known(self.low, self.high)


_KEPT = 1 << 12
"""Accesses of many runs whose granules are kept, since products read the same packets again and again."""


class L2:
    """The state of the cache during a run."""

    def __init__(self, chip: Chip, segments: Sequence[SegmentSpec], state: L2State) -> None:
        self._granule = chip.l2.granule_bytes
        self._room = max(1, chip.l2.size_mib * 1024 * 1024 // self._granule)
        self._lines: OrderedDict[int, Line] = OrderedDict()
        self._kept: dict[Access, Sequence[tuple[int, int, int]]] = {}
        self._settled: dict[Access, Settled] = {}
        self._bases: list[int] = []
        base = 0
        for spec in segments:
            self._bases.append(base)
            base += align_up(spec.nbytes, self._granule)
        self._ordered = base > self._room * self._granule
        """Whether a granule may have to go, so that it matters which was used last."""
        self._foreign = self._room if state == "dirty" else 0
        """Granules full of dirty bytes that were there before; they are the oldest."""
        if state == "warm":
            for index, spec in enumerate(segments):
                if spec.role in ("input", "inout", "constant"):
                    self.access(Access(Space.GM, index, 0, spec.nbytes), write=False)

    def settle(self) -> None:
        """Take note that nothing is under way, as between launches."""
        for line in self._lines.values():
            line.fetch = None

    def access(self, access: Access, *, write: bool, fetch: Fetch | None = None, now: int = 0) -> Touched:
        """Touch the bytes of an access, in address order; `fetch` stands for the transfer that does it.

        What ends in the cycle `now` counts as under way, so that the order of events in a cycle is all one.
        """
        if not write and access.counts:
            settled = self._settled.get(access)
            if settled is not None and settled.holds:
                return settled.touched(now)
        lines, ordered = self._lines, self._ordered
        find, use = lines.get, lines.move_to_end
        hit = miss = evicted = 0
        awaited: list[Fetch] = []
        pieces = self._pieces(access)
        for index, low, high in pieces:
            line = find(index)
            if line is None:
                evicted += self._make_room()
                lines[index] = Line(low, high, write, None if write else fetch)
                if write:
                    hit += high - low
                else:
                    miss += high - low
                continue
            if ordered:
                use(index)
            if write:
                line.insert(low, high)
                line.dirty = True
                hit += high - low
                continue
            by = line.fetch
            if by is not None and by is not fetch and not by.pending(now):
                by = line.fetch = None  # time does not go back, so nobody will wait for it any more
            whole = line.runs is None and line.low <= low and high <= line.high  # as most reads are
            present = high - low if whole else line.insert(low, high)
            hit += present
            if by is not None and present and by is not fetch and by not in awaited:
                awaited.append(by)
            if present < high - low:
                miss += high - low - present
                line.fetch = fetch
                if line.settled is not None:
                    for settled in line.settled:
                        settled.holds = False
                    line.settled = None
        touched = Touched(hit, miss, evicted, tuple(awaited))
        if access.counts and not (write or ordered):
            if miss and fetch is not None:
                awaited.append(fetch)
            self._settle(access, pieces, Settled(hit + miss, tuple(awaited)))
        return touched

    def _settle(self, access: Access, pieces: Sequence[tuple[int, int, int]], settled: Settled) -> None:
        """Keep what a read found, since products read the same packets again and again."""
        if len(self._settled) >= _KEPT:
            self._settled.clear()
        self._settled[access] = settled
        for index, _, _ in pieces:
            line = self._lines[index]
            if line.settled is None:
                line.settled = [settled]
            elif line.settled[-1] is not settled:
                line.settled.append(settled)

    def _pieces(self, access: Access) -> Sequence[tuple[int, int, int]]:
        """Return the bytes of an access by granule, in address order; those of many runs are kept."""
        base, granule = self._bases[access.segment], self._granule
        start = base + access.start
        index = start // granule
        if not access.counts and access.size and start + access.size <= (index + 1) * granule:
            return ((index, start, start + access.size),)
        if not access.counts:
            return self._cut(access.runs(), base)
        kept = self._kept.get(access)
        if kept is not None:
            return kept
        starts, stops = (base + at for at in access.bounds())
        indices = starts // granule
        if (indices == (stops - 1) // granule).all():
            found = list(zip(indices.tolist(), starts.tolist(), stops.tolist(), strict=True))
        else:
            found = self._cut(access.runs(), base)
        if len(self._kept) >= _KEPT:
            self._kept.clear()
        self._kept[access] = found
        return found

    def _cut(self, runs: Sequence[tuple[int, int]], base: int) -> list[tuple[int, int, int]]:
        """Cut runs of a segment that starts at `base` at the borders of granules."""
        granule = self._granule
        return [
            (index, max(base + start, index * granule), min(base + stop, (index + 1) * granule))
            for start, stop in runs
            for index in range((base + start) // granule, -(-(base + stop) // granule))
        ]

    def bypass(self, access: Access, *, write: bool, now: int = 0) -> Touched:
        """Look an access up that leaves the cache as it is: reads take what is there and the rest from main
        memory, writes go to main memory and to the copy in the cache where there is one.
        """
        base = self._bases[access.segment]
        granule, lines = self._granule, self._lines
        total = hit = 0
        awaited: list[Fetch] = []
        for first, last in access.runs():
            start, stop = base + first, base + last
            total += stop - start
            if write:
                continue
            for index in range(start // granule, -(-stop // granule)):
                line = lines.get(index)
                if line is None:
                    continue
                present = line.known(max(start, index * granule), min(stop, (index + 1) * granule))
                hit += present
                by = line.fetch
                if present and by is not None and by.pending(now) and by not in awaited:
                    awaited.append(by)
        return Touched(total, 0, total) if write else Touched(hit, total - hit, 0, tuple(awaited))

    def _make_room(self) -> int:
        if len(self._lines) + self._foreign < self._room:
            return 0
        if self._foreign:
            self._foreign -= 1
            return self._granule
        _, line = self._lines.popitem(last=False)
        return line.held if line.dirty else 0
