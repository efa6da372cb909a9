"""Lower bounds on the time of a launch, worked out from the same `work` values without simulating.

`compute_cycles` is the busiest pipe, `l2_cycles` and `hbm_cycles` the bytes over the rates of the links, and
`flag_only_cycles` the longest chain through issue, queues, pipes, flags and barriers when links are
infinitely fast and every read hits. The last is a recurrence of maxima over the streams; it shares no code
with the timing machine.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from math import ceil
from typing import NamedTuple

from npusim.config.chip import Chip
from npusim.errors import DeadlockError
from npusim.isa.instruction import Instruction, Kind, Work
from npusim.isa.operand import Pipe, Space
from npusim.isa.scalar import DataCacheCleanAndInvalid, GetValue, SetValue
from npusim.isa.state import RESET, State
from npusim.isa.sync import CrossCoreSetFlag, CrossCoreWaitFlag, Group, SetFlag, WaitFlag
from npusim.program.core import CoreId, cross_peers

_KEPT = 1 << 16


class Bounds(NamedTuple):
    """Lower bounds in cycles, and which of them is the largest."""

    compute_cycles: int
    hbm_cycles: int
    l2_cycles: int
    flag_only_cycles: int

    @property
    def binding(self) -> str:
        """Name of the largest bound, without its unit."""
        values = self._asdict()
        return max(values, key=lambda name: values[name]).removesuffix("_cycles")

    def __add__(self, other: object) -> Bounds:  # launches follow each other
        if not isinstance(other, Bounds):
            return NotImplemented
        return Bounds(*(a + b for a, b in zip(self, other, strict=True)))


class Chain:
    """One core in the recurrence: its position in the stream and the times reached so far."""

    def __init__(self, chip: Chip, core: CoreId, ops: Sequence[Instruction]) -> None:
        self.core = core
        self.ops = ops
        self.at = 0
        self.state: State = RESET
        self.issue = 0
        self.free: dict[Pipe, int] = defaultdict(int)
        self.done: dict[Pipe, int] = defaultdict(int)
        self.pops: dict[Pipe, list[int]] = defaultdict(list)
        self.busy: dict[Pipe, int] = defaultdict(int)
        self.moving: dict[Pipe, int] = defaultdict(int)
        self.ports: dict[str, list[int]] = defaultdict(list)
        self.flags: dict[tuple[Pipe, Pipe, int], deque[int]] = defaultdict(deque)
        self.waiting: dict[Pipe, deque[tuple[int, Instruction, Work]]] = defaultdict(deque)
        self.lines: dict[tuple[int, int], None] = {}
        self.value: int | None = None
        queues = [p for p in Pipe if p not in (Pipe.S, Pipe.ALL)]
        self.depth: dict[Pipe, int] = {p: getattr(chip.queues, p.name.lower()) for p in queues}


class Recurrence:
    """The flag-only bound of one launch."""

    def __init__(self, chip: Chip, streams: Sequence[tuple[CoreId, Sequence[Instruction]]]) -> None:
        self._chip = chip
        self._chains = [Chain(chip, core, ops) for core, ops in streams]
        self._by_id = {c.core: c for c in self._chains}
        self._cross: dict[tuple[CoreId, int, CoreId], deque[int]] = defaultdict(deque)
        self._works: dict[int, tuple[Instruction, State, Work]] = {}
        self._moved = False
        flags = chip.flags
        group, everyone = chip.cycles(flags.group_latency_ns), chip.cycles(flags.all_latency_ns)
        self._delay = {Group.ALL: everyone, Group.VECTOR_PAIR: group, Group.CUBE_VECTOR: group}
        self._read, self._write = chip.cycles(chip.l2.read_latency_ns), chip.cycles(chip.l2.write_latency_ns)

    def run(self) -> tuple[int, int]:
        """Return the flag-only bound and the busiest pipe's cycles.

        Raises `DeadlockError` where the streams wait for ever.
        """
        self._moved = True
        while self._moved:
            self._moved = False
            for chain in self._chains:
                self._advance(chain)
        if any(c.at < len(c.ops) or any(c.waiting.values()) for c in self._chains):
            raise DeadlockError(
                "deadlock: the streams wait for each other for ever; run the program to see where"
            )
        ends = [max([c.issue, *c.free.values(), *c.done.values()]) for c in self._chains]
        busy = [max([0, *c.busy.values(), *c.moving.values()]) for c in self._chains]
        return max(ends), max(busy)

    def _advance(self, chain: Chain) -> None:
        """Issue until the scalar unit waits, letting every pipe go on where it can."""
        while True:
            for pipe in list(chain.waiting):
                self._serve(chain, pipe)
            if chain.at >= len(chain.ops) or not self._issue(chain, chain.ops[chain.at]):
                return
            chain.at += 1
            self._moved = True

    def _issue(self, chain: Chain, op: Instruction) -> bool:
        scalar = self._chip.scalar
        pipe, kind = op.pipe, op.kind
        if chain.value is not None:  # the value of the instruction before has to come back first
            pipe_of_value = chain.ops[chain.at - 1].pipe
            if chain.waiting[pipe_of_value]:
                return False
            chain.issue = max(chain.issue, chain.done[pipe_of_value] + self._chip.flags.latency_cycles)
            chain.value = None
        if pipe is not Pipe.S:
            depth, pops = chain.depth[pipe], chain.pops[pipe]
            pushed = len(pops) + len(chain.waiting[pipe])
            if pushed >= depth and len(pops) <= pushed - depth:
                return False
            time = chain.issue + scalar.issue_cycles
            if pushed >= depth:
                time = max(time, pops[pushed - depth])
            chain.issue = time
            chain.waiting[pipe].append((time, op, self._work(chain, op)))
            self._serve(chain, pipe)
            chain.value = 0 if op.returns_value else None
            return True
        time = chain.issue
        if kind is Kind.STATE or (kind is Kind.SCALAR and not _global(op)):
            chain.issue = time + self._work(chain, op).cycles
            chain.state = op.update(chain.state)
            return True
        time += scalar.issue_cycles
        if kind is Kind.SCALAR:
            time = self._global(chain, op, time)
        elif kind is Kind.SET:
            assert isinstance(op, SetFlag)
            chain.flags[op.src, op.dst, op.id].append(time)
        elif kind is Kind.BARRIER:
            if any(chain.waiting.values()):
                return False
            time = max([time, *chain.free.values(), *chain.done.values()])
        elif kind is Kind.CROSS_SET:
            assert isinstance(op, CrossCoreSetFlag)
            self._send(chain, op, time)
        else:
            reached = self._flag_time(chain, op)
            if reached is None:
                return False
            time = max(time, reached)
        chain.issue = time
        return True

    def _global(self, chain: Chain, op: Instruction, time: int) -> int:
        scalar = self._chip.scalar
        if isinstance(op, DataCacheCleanAndInvalid):
            at = op.at
            line = (at.segment, at.address // scalar.dcache_line_bytes)
            chain.lines = {} if op.all else {k: None for k in chain.lines if k != line}
            return time + self._work(chain, op).cycles
        assert isinstance(op, GetValue | SetValue)
        at = op.src if isinstance(op, GetValue) else op.dst
        line = (at.segment, at.address // scalar.dcache_line_bytes)
        known = line in chain.lines
        chain.lines.pop(line, None)
        chain.lines[line] = None
        if len(chain.lines) > scalar.dcache_lines:
            del chain.lines[next(iter(chain.lines))]
        return time if known else time + self._chip.cycles(scalar.gm_read_ns)

    def _serve(self, chain: Chain, pipe: Pipe) -> None:
        waiting = chain.waiting[pipe]
        while waiting:
            issued, op, work = waiting[0]
            start = max(chain.free[pipe], issued)
            pop = start
            if op.kind is Kind.WORK:
                if work.transfer is None:
                    chain.free[pipe] = start + work.cycles
                    chain.done[pipe] = max(chain.done[pipe], start + work.cycles + work.latency)
                    chain.busy[pipe] += work.cycles
                else:
                    pop = self._transfer(chain, pipe, work, start)
            elif op.kind is Kind.SET:
                assert isinstance(op, SetFlag)
                chain.flags[op.src, op.dst, op.id].append(max(start, chain.done[pipe]))
                chain.free[pipe] = start
            elif op.kind is Kind.BARRIER:
                pop = chain.free[pipe] = max(start, chain.done[pipe])
            elif op.kind is Kind.CROSS_SET:
                assert isinstance(op, CrossCoreSetFlag)
                self._send(chain, op, max(start, chain.done[pipe]))
                chain.free[pipe] = start
            else:
                reached = self._flag_time(chain, op)
                if reached is None:
                    return
                pop = chain.free[pipe] = max(start, reached)
            chain.pops[pipe].append(pop)
            waiting.popleft()
            self._moved = True

    def _transfer(self, chain: Chain, pipe: Pipe, work: Work, start: int) -> int:
        assert work.transfer is not None
        limit = getattr(self._chip.ports, work.transfer.port).outstanding
        under_way = chain.ports[pipe.name]
        if len(under_way) >= limit:
            start = max(start, under_way[-limit])
        chain.free[pipe] = start + work.cycles
        end = start + work.cycles + work.latency + (self._write if work.transfer.write else self._read)
        under_way.append(end)
        chain.done[pipe] = max(chain.done[pipe], end)
        chain.busy[pipe] += work.cycles
        chain.moving[pipe] += work.transfer.port_cycles
        return start

    def _send(self, chain: Chain, op: CrossCoreSetFlag, time: int) -> None:
        for receiver in cross_peers(chain.core, op.group, list(self._by_id), sending=True):
            self._cross[receiver, op.id, chain.core].append(time + self._delay[op.group])

    def _flag_time(self, chain: Chain, op: Instruction) -> int | None:
        """Return when a wait sees its flag, or None where the flag has not been set yet."""
        if isinstance(op, WaitFlag):
            raised = chain.flags[op.src, op.dst, op.id]
            return raised.popleft() + self._chip.flags.latency_cycles if raised else None
        assert isinstance(op, CrossCoreWaitFlag)
        senders = cross_peers(chain.core, op.group, list(self._by_id), sending=False)
        queues = [self._cross[chain.core, op.id, s] for s in senders]
        return max(q.popleft() for q in queues) if all(queues) else None

    def _work(self, chain: Chain, op: Instruction) -> Work:
        if op.kind not in (Kind.WORK, Kind.SCALAR, Kind.STATE):
            return _NOTHING
        found = self._works.get(id(op))
        if found is None or found[1] != chain.state:
            if len(self._works) >= _KEPT:
                self._works.clear()
            found = self._works[id(op)] = (op, chain.state, op.work(self._chip, chain.state))
        return found[2]


_NOTHING = Work(0)


def _global(op: Instruction) -> bool:
    if isinstance(op, DataCacheCleanAndInvalid):
        return True
    if isinstance(op, GetValue):
        return op.src.space is Space.GM
    return isinstance(op, SetValue) and op.dst.space is Space.GM


def link_bounds(
    chip: Chip, read_bytes: int, write_bytes: int, hbm_read_bytes: int, hbm_write_bytes: int
) -> tuple[int, int]:
    """Return the cycles that main memory and L2 need at least for a launch's traffic."""
    hbm = ceil((hbm_read_bytes + hbm_write_bytes) / chip.hbm_bytes_per_cycle)
    l2 = max(read_bytes / chip.l2.read_bytes_per_cycle, write_bytes / chip.l2.write_bytes_per_cycle)
    return hbm, ceil(l2)
