"""Watching a run: limits, races, never-written bytes, and flags that do not pair up.

`Watch` sees every instruction of the functional machine in the order it runs, and decides from happens-before
alone: what it accepts is right whatever the timing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from npusim.check.order import WIDTH, Clock, Order
from npusim.check.place import Site
from npusim.check.shadow import Conflict, Shadow, Touch
from npusim.config.chip import Chip
from npusim.errors import HazardError, OperandError
from npusim.isa.instruction import Instruction
from npusim.isa.operand import Access, Pipe, Space
from npusim.isa.state import Atomic, State
from npusim.isa.sync import CrossCoreSetFlag, CrossCoreWaitFlag, PipeBarrier, SetFlag, WaitFlag
from npusim.program.core import CoreId
from npusim.program.program import SegmentSpec
from npusim.units import grouped

_RECORDS_KEPT = 1 << 15

Runs = tuple[tuple[Space, int, tuple[tuple[int, int], ...]], ...]
"""Space, segment and byte intervals."""


class Record(NamedTuple):
    """What checking needs to know of an instruction in a state, worked out once."""

    op: Instruction
    state: State
    reads: Runs
    writes: Runs
    ordered: bool
    registers_read: tuple[int, ...]
    registers_written: tuple[int, ...]


class Raised(NamedTuple):
    """A flag that was set and not yet waited for."""

    clock: Clock
    site: Site


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

    def begin(self, cores: list[CoreId]) -> None:
        """Start watching a launch; on-chip memories hold nothing."""
        self._cores = cores
        self.order = Order(len(cores))
        self._shadows: dict[tuple[int, Space], Shadow] = {}
        self._raised: dict[tuple[int, Pipe, Pipe, int], Raised] = {}
        self._waited: dict[tuple[int, Pipe, Pipe, int], int] = {}
        self._cross: dict[tuple[int, int, int], list[Raised]] = {}
        self._cross_sets: dict[tuple[int, int, int], int] = {}
        self._cross_waits: dict[tuple[int, int, int], list[tuple[int, int]]] = {}
        self._registers: dict[tuple[int, int], int] = {}

    def end(self) -> None:
        """Finish a launch: every flag must have been waited for."""
        for (_, src, dst, event), raised in self._raised.items():
            flag = f"{src.name}->{dst.name}#{event}"
            raise HazardError(
                raised.site.message(
                    f"SetFlag: {flag} is raised and never waited for, so the next launch would find it; "
                    f"add WaitFlag {flag} on {dst.name} at the end"
                )
            )
        for (receiver, event, _), sets in self._cross.items():
            if sets:
                raise HazardError(
                    sets[0].site.message(
                        f"CrossCoreSetFlag: flag {event} reaches {self._cores[receiver]}, which never waits "
                        f"for it; add CrossCoreWaitFlag {event} there"
                    )
                )
        for shadow in self._gm:
            shadow.settle()

    def never_written(self, segment: int) -> tuple[int, int] | None:
        """Return the first bytes of a segment that nobody wrote."""
        return self._gm[segment].gap(0, self._segments[segment].nbytes)

    # ---- limits --------------------------------------------------------------------------------------------

    def check(self, site: Site, state: State) -> Record:
        """Check an instruction by itself, once for every state it meets, and return what else is needed of
        it.

        Raises `OperandError` with the place.
        """
        record = self._records.get(id(site.op))
        if record is not None and record.state is state:
            return record
        op = site.op
        try:
            op.check(self._chip, state)
            reads, writes = (
                self._runs(op, op.reads(state), "reads"),
                self._runs(op, op.writes(state), "writes"),
            )
        except OperandError as error:
            raise OperandError(site.message(str(error))) from None
        record = Record(
            op, state, reads, writes, op.self_ordered(self._chip), op.registers_read(), op.registers_written()
        )
        if len(self._records) >= _RECORDS_KEPT:
            self._records.clear()
        self._records[id(op)] = record
        return record

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

    def work(self, core: int, site: Site, state: State, issued: Clock) -> None:
        """Record what an instruction reads and writes.

        Raises `HazardError` where nothing orders it behind an earlier access, or where it reads what nobody
        wrote.
        """
        record = self.check(site, state)
        thread = core * WIDTH + site.pipe
        order = self.order
        known = order.start(thread, issued)
        for register in record.registers_read:
            made = self._registers.get((core, register))
            if made is None:
                text = f"{site.op.mnemonic}: r{register} is used before anything set it"
                raise HazardError(site.message(text))
            order.use_register(thread, core * WIDTH + Pipe.S, made)
        touch = Touch(thread, order.step(thread), site)
        for register in record.registers_written:
            self._registers[core, register] = touch.tick
        atomic = state.atomic is not Atomic.NONE
        for space, segment, runs in record.reads:
            if atomic and space is Space.GM and record.writes and record.writes[0][0] is Space.GM:
                continue
            shadow = self._gm[segment] if space is Space.GM else self._shadow(core, space)
            for start, stop in runs:
                conflict = shadow.read(start, stop, touch, known, record.ordered)
                if conflict is not None:
                    raise self._hazard(site, conflict, space, segment)
        for space, segment, runs in record.writes:
            if space is Space.GM:
                shadow = self._gm[segment]
                for start, stop in runs:
                    if atomic:
                        conflict = shadow.update(start, stop, touch, known)
                    else:
                        conflict = shadow.write(start, stop, touch, known, record.ordered)
                    if conflict is not None:
                        raise self._hazard(site, conflict, space, segment)
            else:
                shadow = self._shadow(core, space)
                for start, stop in runs:
                    conflict = shadow.write(start, stop, touch, known, record.ordered)
                    if conflict is not None:
                        raise self._hazard(site, conflict, space, segment)

    def _shadow(self, core: int, space: Space) -> Shadow:
        found = self._shadows.get((core, space))
        if found is None:
            found = self._shadows[core, space] = Shadow()
        return found

    def _hazard(self, site: Site, conflict: Conflict, space: Space, segment: int) -> HazardError:
        name = self._segments[segment].name if space is Space.GM else space.short
        where = f"{name} bytes {grouped(conflict.start)} to {grouped(conflict.stop)}"
        subject = f"{site.op.mnemonic} ({site.pipe.name})"
        if conflict.what == "poison":
            return HazardError(site.message(f"{subject} reads {where}, which nothing has written"))
        other: Site = conflict.other
        now, before = _VERBS[conflict.what]
        who = other.words if other.core == site.core else f"{other.core} {other.words}"
        text = f"{subject} {now} {where}, which {who} {before}, and nothing orders them"
        return HazardError(site.message(f"{text}; {_remedy(other, site)}"))

    # ---- flags ---------------------------------------------------------------------------------------------

    def set_flag(self, core: int, site: Site, state: State, issued: Clock) -> None:
        """Record a set.

        Raises `HazardError` where the flag may still be raised.
        """
        self.check(site, state)
        op = site.op
        assert isinstance(op, SetFlag)
        key = (core, op.src, op.dst, op.id)
        thread = core * WIDTH + op.src
        order = self.order
        known = order.start(thread, issued)
        flag = f"{op.src.name}->{op.dst.name}#{op.id}"
        earlier = self._raised.get(key)
        if earlier is not None:
            raise HazardError(
                site.message(
                    f"SetFlag: {flag} is raised again before {op.dst.name} has waited for it "
                    f"(raised at {earlier.site.where}); wait in between, or use another id"
                )
            )
        waited = self._waited.get(key)
        if waited is not None and known[order.waiter(core * WIDTH + op.dst)] < waited:
            raise HazardError(
                site.message(
                    f"SetFlag: {flag} may be raised again before {op.dst.name} has waited for it, since "
                    f"nothing tells {op.src.name} of the wait; add a flag {op.dst.name}->{op.src.name} "
                    f"behind the wait"
                )
            )
        self._raised[key] = Raised(order.publish(thread), site)

    def wait_flag(self, core: int, site: Site, state: State, issued: Clock) -> None:
        """Record a wait that has its flag."""
        self.check(site, state)
        op = site.op
        assert isinstance(op, WaitFlag)
        key = (core, op.src, op.dst, op.id)
        thread = core * WIDTH + op.dst
        self.order.start(thread, issued)
        self._waited[key] = self.order.receive(thread, [self._raised.pop(key).clock])

    def barrier(self, core: int, site: Site, state: State, issued: Clock) -> None:
        """Record a barrier."""
        self.check(site, state)
        op = site.op
        assert isinstance(op, PipeBarrier)
        if op.on is Pipe.ALL:
            self.order.barrier_all(core)
            return
        thread = core * WIDTH + op.on
        self.order.start(thread, issued)
        self.order.barrier(thread)

    def cross_set(self, core: int, receivers: list[int], site: Site, state: State, issued: Clock) -> None:
        """Record a cross-core set.

        Raises `HazardError` where more sets than the chip counts may be outstanding.
        """
        self.check(site, state)
        op = site.op
        assert isinstance(op, CrossCoreSetFlag)
        thread = core * WIDTH + op.on
        order = self.order
        known = order.start(thread, issued)
        limit = self._chip.flags.cross_limit
        clock = order.publish(thread)
        for receiver in receivers:
            key = (receiver, op.id, core)
            number = self._cross_sets[key] = self._cross_sets.get(key, 0) + 1
            waits = self._cross_waits.setdefault(key, [])
            if number > limit:
                oldest = waits[number - limit - 1] if len(waits) >= number - limit else None
                if oldest is None or known[oldest[0]] < oldest[1]:
                    raise HazardError(
                        site.message(
                            f"CrossCoreSetFlag: set {number} of flag {op.id} may leave more than {limit} "
                            f"sets that {self._cores[receiver]} has not waited for: the counter overflows; "
                            f"wait for a flag from {self._cores[receiver]} at least every {limit} sets"
                        )
                    )
            self._cross.setdefault(key, []).append(Raised(clock, site))

    def cross_wait(self, core: int, senders: list[int], site: Site, state: State, issued: Clock) -> None:
        """Record a cross-core wait that has its flags."""
        self.check(site, state)
        op = site.op
        assert isinstance(op, CrossCoreWaitFlag)
        thread = core * WIDTH + op.on
        self.order.start(thread, issued)
        clocks = [self._cross[core, op.id, sender].pop(0).clock for sender in senders]
        tick = self.order.receive(thread, clocks)
        for sender in senders:
            waits = self._cross_waits.setdefault((core, op.id, sender), [])
            waits.append((self.order.waiter(thread), tick))


_VERBS = {"raw": ("reads", "writes"), "war": ("writes", "reads"), "waw": ("writes", "writes")}


def _remedy(other: Site, site: Site) -> str:
    if other.core != site.core:
        return f"let {site.core} wait for a cross-core flag that {other.core} sets behind it"
    if other.pipe is site.pipe:
        return f"put PipeBarrier {site.pipe.name} between them"
    return f"set {other.pipe.name}->{site.pipe.name} behind the first and wait for it before the second"
