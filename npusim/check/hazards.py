"""Watching a run: limits, races, never-written bytes, and flags that do not pair up.

`Watch` sees every instruction of the functional machine in the order it runs, and decides from happens-before
alone: what it accepts is right whatever the timing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from npusim.check.dcache import DataCaches
from npusim.check.order import WIDTH, Clock, Order
from npusim.check.place import Site
from npusim.check.shadow import Conflict, Shadow, Touch
from npusim.config.chip import Chip
from npusim.errors import HazardError, OperandError
from npusim.isa.instruction import Instruction
from npusim.isa.operand import REGISTERS, Access, Pipe, Space
from npusim.isa.scalar import DataCacheCleanAndInvalid, GetValue, SetValue
from npusim.isa.state import Atomic, State
from npusim.isa.sync import CrossCoreSetFlag, CrossCoreWaitFlag, PipeBarrier, SetFlag, WaitFlag
from npusim.program.core import PIPES, SPACES, CoreId, CoreKind
from npusim.program.program import SegmentSpec
from npusim.units import grouped

_RECORDS_KEPT = 1 << 15

Runs = tuple[tuple[Space, int, tuple[tuple[int, int], ...]], ...]
"""Space, segment and byte intervals."""


class Record(NamedTuple):
    """What checking needs to know of an instruction in a state, worked out once."""

    op: Instruction
    state: State
    pipe: Pipe
    reads: Runs
    writes: Runs
    ordered: bool
    atomic: bool
    """Whether it combines with what is in global memory."""
    registers_read: tuple[int, ...]
    registers_written: tuple[int, ...]


class Raised(NamedTuple):
    """A flag that was set and not yet waited for: what its setter knew, and the place of the set."""

    clock: Clock
    core: int
    number: int


Locate = Callable[[int, int], Site]
"""Gives the place of an instruction from the index of its core and its position in the stream."""


class Watch:
    """The checks of one run."""

    def __init__(self, chip: Chip, segments: Sequence[SegmentSpec], preset: Sequence[str]) -> None:
        self._chip = chip
        self._segments = segments
        self._records: dict[int, Record] = {}
        self._gm = [Shadow() for _ in segments]
        for spec, shadow in zip(segments, self._gm, strict=True):
            if spec.name in preset:
                shadow.preset(spec.nbytes)
        self.order = Order(0)

    def begin(self, cores: list[CoreId], locate: Locate) -> None:
        """Start watching a launch; on-chip memories hold nothing."""
        self._cores = cores
        self._locate = locate
        self.order = Order(len(cores))
        self._shadows: dict[tuple[int, Space], Shadow] = {}
        self._raised: dict[tuple[int, Pipe, Pipe, int], Raised] = {}
        self._waited: dict[tuple[int, Pipe, Pipe, int], int] = {}
        self._cross: dict[tuple[int, int, int], deque[Raised]] = {}
        self._cross_sets: dict[tuple[int, int, int], int] = {}
        self._cross_last: dict[tuple[int, int, int], tuple[int, int, int]] = {}
        """Thread, count and position of the last set, by receiver, id and sender."""
        self._cross_waits: dict[tuple[int, int, int], list[tuple[int, int, int]]] = {}
        """Thread, count and position of every wait, by receiver, id and sender."""
        self._registers: dict[tuple[int, int], int] = {}
        self._caches = DataCaches(self._chip.scalar.dcache_line_bytes)

    def end(self) -> None:
        """Finish a launch: every flag must have been waited for."""
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
        left = self._caches.left
        if left is not None:
            raise self._error(
                left.core,
                left.number,
                "SetValue: the value is only in the data cache when the launch ends; "
                "clean its line with DataCacheCleanAndInvalid",
            )
        for shadow in self._gm:
            shadow.settle()

    def _error(self, core: int, number: int, text: str) -> HazardError:
        return HazardError(self._locate(core, number).message(text))

    def never_written(self, segment: int) -> tuple[int, int] | None:
        """Return the first bytes of a segment that nobody wrote."""
        return self._gm[segment].gap(0, self._segments[segment].nbytes)

    # ---- limits --------------------------------------------------------------------------------------------

    def check(self, core: int, number: int, op: Instruction, state: State) -> Record:
        """Check an instruction by itself, once for every state it meets, and return what else is needed of
        it.

        Raises `OperandError` with the place.
        """
        record = self._records.get(id(op))
        if record is not None and record.state is state:
            return record
        try:
            op.check_forms()
            self._check_core(self._cores[core].kind, op)
            op.check(self._chip, state)
            reads = self._runs(op, op.reads(state), "reads")
            writes = self._runs(op, op.writes(state), "writes")
        except OperandError as error:
            raise OperandError(self._locate(core, number).message(str(error))) from None
        atomic = state.atomic is not Atomic.NONE and any(space is Space.GM for space, _, _ in writes)
        if atomic:  # the shadow checks the value that is there together with the update
            reads = tuple(run for run in reads if run[0] is not Space.GM)
        record = Record(
            op,
            state,
            op.pipe,
            reads,
            writes,
            op.self_ordered(self._chip),
            atomic,
            op.registers_read(),
            op.registers_written(),
        )
        if len(self._records) >= _RECORDS_KEPT:
            self._records.clear()
        self._records[id(op)] = record
        return record

    def _check_core(self, kind: CoreKind, op: Instruction) -> None:
        """Raise where a kind of core lacks a pipe, a memory or a register that an instruction names."""
        if isinstance(op, SetFlag | WaitFlag):
            for pipe in (op.src, op.dst):
                if pipe is not Pipe.ALL and pipe not in PIPES[kind]:
                    raise no_pipe(op, kind, pipe)
        for name in op.roles:
            operand = getattr(op, name)
            if operand is not None and operand.space is not Space.GM and operand.space not in SPACES[kind]:
                there = " ".join(s.short for s in SPACES[kind])
                raise op.error(f"this core has no {operand.space.short} for {name}; it has {there}")
        for index in (*op.registers_read(), *op.registers_written()):
            if not 0 <= index < REGISTERS:
                raise op.error(f"register must be r0..r{REGISTERS - 1}, not r{index}")

    def _runs(self, op: Instruction, accesses: tuple[Access, ...], verb: str) -> Runs:
        found = []
        for access in accesses:
            runs = access.runs()
            if not runs:
                continue
            if access.space is Space.GM:
                if not 0 <= access.segment < len(self._segments):
                    raise op.error(f"gm{access.segment} is no segment; the program has {len(self._segments)}")
                spec = self._segments[access.segment]
                name, room = spec.name, spec.nbytes
            else:
                name, room = access.space.short, self._chip.capacity_bytes(access.space.short)
            if runs[0][0] < 0 or runs[-1][1] > room:
                raise op.error(
                    f"{verb} bytes {grouped(runs[0][0])} to {grouped(runs[-1][1])} of {name}, "
                    f"which has {grouped(room)}; check address, length and strides"
                )
            found.append((access.space, access.segment, tuple(runs)))
        return tuple(found)

    # ---- memory --------------------------------------------------------------------------------------------

    def work(self, core: int, number: int, op: Instruction, state: State, issued: Clock) -> None:
        """Record what an instruction reads and writes.

        Raises `HazardError` where nothing orders it behind an earlier access, or where it reads what nobody
        wrote.
        """
        record = self._records.get(id(op))
        if record is None or record.state is not state:
            record = self.check(core, number, op, state)
        order = self.order
        thread = core * WIDTH + record.pipe
        known = order.start(thread, issued)
        for register in record.registers_read:
            made = self._registers.get((core, register))
            if made is None:
                text = (
                    f"{op.mnemonic}: r{register} is used before anything set it; set it with GetValue or "
                    f"ScalarAlu"
                )
                raise self._error(core, number, text)
            order.use_register(thread, core * WIDTH + Pipe.S, made)
        tick = order.step(thread)
        touch = (thread, tick, number)
        for register in record.registers_written:
            self._registers[core, register] = tick
        ordered = record.ordered
        if record.pipe is Pipe.S and self._scalar(core, number, op, touch, known):
            return
        if self._caches:
            self._check_caches(core, number, op, record)
        for space, segment, runs in record.reads:
            shadow = self._gm[segment] if space is Space.GM else self._shadow(core, space)
            for start, stop in runs:
                conflict = shadow.read(start, stop, touch, known, ordered)
                if conflict is not None:
                    raise self._hazard(core, number, conflict, space, segment)
        for space, segment, runs in record.writes:
            shadow = self._gm[segment] if space is Space.GM else self._shadow(core, space)
            for start, stop in runs:
                if record.atomic and space is Space.GM:
                    conflict = shadow.update(start, stop, touch, known)
                else:
                    conflict = shadow.write(start, stop, touch, known, ordered)
                if conflict is not None:
                    raise self._hazard(core, number, conflict, space, segment)

    def _scalar(self, core: int, number: int, op: Instruction, touch: Touch, known: Clock) -> bool:
        """Follow a scalar access to global memory through the data cache; whether nothing is left to do."""
        caches = self._caches
        if isinstance(op, GetValue) and op.src.space is Space.GM:
            writer = caches.load(core, op.src, self._gm[op.src.segment])
            if writer is not None:
                thread, _, position = writer
                who = self._locate(thread // WIDTH, position)
                raise self._error(
                    core,
                    number,
                    f"GetValue (S) reads {self._segments[op.src.segment].name} from a line of the data cache "
                    f"that is older than what {who.words} wrote; put DataCacheCleanAndInvalid before it",
                )
            return caches.own(core, op.src)
        if isinstance(op, SetValue) and op.dst.space is Space.GM:
            caches.store(core, number, op.dst, self._gm[op.dst.segment])
            return True
        if isinstance(op, DataCacheCleanAndInvalid):
            for segment, dirty in caches.clean(core, None if op.all else op.at):
                shadow = self._gm[segment]
                stored = (touch[0], touch[1], dirty.number)
                conflict = shadow.write(dirty.start, dirty.stop, stored, known, True)
                if conflict is not None:
                    raise self._hazard(core, dirty.number, conflict, Space.GM, segment)
            return True
        return False

    def _check_caches(self, core: int, number: int, op: Instruction, record: Record) -> None:
        """Raise where an instruction reads bytes that are in a data cache only."""
        for space, segment, runs in record.reads:
            if space is not Space.GM:
                continue
            for start, stop in runs:
                dirty = self._caches.unseen(segment, start, stop)
                if dirty is not None:
                    who = self._locate(dirty.core, dirty.number)
                    raise self._error(
                        core,
                        number,
                        f"{op.mnemonic} ({record.pipe.name}) reads {self._segments[segment].name} "
                        f"bytes {grouped(dirty.start)} to {grouped(dirty.stop)}, which {who.words} has put into the "
                        f"data cache only; clean the line with DataCacheCleanAndInvalid first",
                    )

    def _shadow(self, core: int, space: Space) -> Shadow:
        found = self._shadows.get((core, space))
        if found is None:
            found = self._shadows[core, space] = Shadow()
        return found

    def _hazard(self, core: int, number: int, conflict: Conflict, space: Space, segment: int) -> HazardError:
        site = self._locate(core, number)
        name = self._segments[segment].name if space is Space.GM else space.short
        where = f"{name} bytes {grouped(conflict.start)} to {grouped(conflict.stop)}"
        subject = f"{site.op.mnemonic} ({site.pipe.name})"
        if conflict.other is None:
            text = f"{subject} reads {where}, which nothing has written; load or compute them first"
            return HazardError(site.message(text))
        thread, _, position = conflict.other
        other = self._locate(thread // WIDTH, position)
        now, before = _VERBS[conflict.what]
        who = other.words if other.core == site.core else f"{other.core} {other.words}"
        text = f"{subject} {now} {where}, which {who} {before}, and nothing orders them"
        return HazardError(site.message(f"{text}; {_remedy(other, site)}"))

    # ---- flags ---------------------------------------------------------------------------------------------

    def set_flag(self, core: int, number: int, op: SetFlag, state: State, issued: Clock) -> None:
        """Record a set.

        Raises `HazardError` where the flag may still be raised.
        """
        self.check(core, number, op, state)
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
        if waited is not None and known[order.waiter(core * WIDTH + op.dst)] < waited:
            raise self._error(
                core,
                number,
                f"SetFlag: {op.src.name}->{op.dst.name}#{op.id} may be raised again before {op.dst.name} has "
                f"waited for it, since nothing tells {op.src.name} of the wait; add a flag "
                f"{op.dst.name}->{op.src.name} behind the wait",
            )
        self._raised[key] = Raised(order.publish(thread), core, number)

    def wait_flag(self, core: int, number: int, op: WaitFlag, state: State, issued: Clock) -> None:
        """Record a wait that has its flag."""
        self.check(core, number, op, state)
        key = (core, op.src, op.dst, op.id)
        thread = core * WIDTH + op.dst
        self.order.start(thread, issued)
        self._waited[key] = self.order.receive(thread, [self._raised.pop(key).clock])

    def barrier(self, core: int, number: int, op: PipeBarrier, state: State, issued: Clock) -> None:
        """Record a barrier."""
        self.check(core, number, op, state)
        if op.on is Pipe.ALL:
            self.order.barrier_all(core)
            return
        thread = core * WIDTH + op.on
        self.order.start(thread, issued)
        self.order.barrier(thread)

    def cross_set(
        self, core: int, number: int, op: CrossCoreSetFlag, receivers: list[int], state: State, issued: Clock
    ) -> None:
        """Record a cross-core set.

        Raises `HazardError` where more sets than the chip counts may be outstanding.
        """
        self.check(core, number, op, state)
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
                if oldest is None or known[oldest[0]] < oldest[1]:
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
        self, core: int, number: int, op: CrossCoreWaitFlag, senders: list[int], state: State, issued: Clock
    ) -> None:
        """Record a cross-core wait that has its flags."""
        self.check(core, number, op, state)
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
        if last is not None and last[0] != thread and known[last[0]] < last[1]:
            other = self._locate(core, last[2])
            raise self._error(
                core,
                number,
                f"{op.mnemonic}: on flag {op.id} nothing orders pipe {op.pipe.name} behind {other.words}, so "
                f"either may be first; use one pipe for it, or another id",
            )


_VERBS = {"raw": ("reads", "writes"), "war": ("writes", "reads"), "waw": ("writes", "writes")}


def no_pipe(op: Instruction, kind: CoreKind, pipe: Pipe) -> OperandError:
    """Return the error for a pipe that a kind of core lacks."""
    return op.error(f"this core has no pipe {pipe.name}; it has {' '.join(p.name for p in PIPES[kind])}")


def _remedy(other: Site, site: Site) -> str:
    if other.core != site.core:
        return f"let {site.core} wait for a cross-core flag that {other.core} sets behind it"
    if other.pipe is site.pipe:
        return f"put PipeBarrier {site.pipe.name} between them"
    return f"set {other.pipe.name}->{site.pipe.name} behind the first and wait for it before the second"
