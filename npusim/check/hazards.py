"""Watching a run: limits, races, never-written bytes, and flags that do not pair up.

`Watch` sees every instruction of the functional machine in the order it runs, and decides from happens-before
alone: what it accepts is right whatever the timing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from npusim.check.cores import check_pipes
from npusim.check.dcache import DataCaches
from npusim.check.flags import FlagWatch, Locate
from npusim.check.order import WIDTH, Clock, Order
from npusim.check.place import Site
from npusim.check.shadow import Conflict, Intervals, Shadow, Touch
from npusim.config.chip import Chip
from npusim.errors import HazardError, OperandError
from npusim.isa.instruction import Instruction
from npusim.isa.operand import REGISTERS, Access, Pipe, Space
from npusim.isa.scalar import DataCacheCleanAndInvalid, GetValue, SetValue
from npusim.isa.state import Atomic, State
from npusim.program.core import SPACES, CoreId, CoreKind
from npusim.program.program import SegmentSpec
from npusim.units import grouped

_RECORDS_KEPT = 1 << 15
_CORE_BITS = 10  # far more than the cores of a launch

Runs = tuple[tuple[Space, int, Intervals, Shadow], ...]
"""Space, segment, byte intervals, and the history of the memory they are in."""


class Record(NamedTuple):
    """What checking needs to know of an instruction on a core in a state, worked out once."""

    op: Instruction
    state: State
    thread: int
    reads: Runs
    writes: Runs
    ordered: bool
    atomic: bool
    """Whether it combines with what is in global memory."""
    registers_read: tuple[int, ...]
    registers_written: tuple[int, ...]
    cached: bool
    """Whether it goes through the scalar data cache, or cleans it."""


class Watch:
    """The checks of one run."""

    def __init__(self, chip: Chip, segments: Sequence[SegmentSpec], preset: Sequence[str]) -> None:
        self._chip = chip
        self._segments = segments
        self._records: dict[int, Record] = {}
        """What every instruction of a core was the last time; its state may be another."""
        self._by_state: dict[tuple[int, int], Record] = {}
        self._of_any_core: dict[tuple[int, int], Record] = {}
        self._gm = [Shadow() for _ in segments]
        for spec, shadow in zip(segments, self._gm, strict=True):
            if spec.name in preset:
                shadow.preset(spec.nbytes)
        self.order = Order(0)

    def begin(self, cores: list[CoreId], locate: Locate) -> None:
        """Start watching a launch; on-chip memories hold nothing."""
        self._cores = cores
        self._locate = locate
        self.flags = FlagWatch(self._chip, cores, locate)
        self.order = self.flags.order
        self._records.clear()
        self._by_state.clear()
        self._of_any_core.clear()
        self._shadows: dict[tuple[int, Space], Shadow] = {}
        self._registers: dict[tuple[int, int], int] = {}
        self._caches = DataCaches(self._chip.scalar.dcache_line_bytes)

    def end(self) -> None:
        """Finish a launch: flags must have been waited for, and scalar stores must have left the cache."""
        self.flags.end()
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

        States are told apart by identity. Raises `OperandError` with the place.
        """
        key = id(op) << _CORE_BITS | core
        record = self._records.get(key)
        if record is not None and record.state is state:
            return record
        in_state = key, id(state)
        record = self._by_state.get(in_state)
        if record is None:
            record = self._moved(core, op, state) or self._checked(core, number, op, state)
            if len(self._by_state) >= _RECORDS_KEPT:
                self._records.clear()
                self._by_state.clear()
                self._of_any_core.clear()
            self._by_state[in_state] = self._of_any_core[id(op), id(state)] = record
        self._records[key] = record
        return record

    def _moved(self, core: int, op: Instruction, state: State) -> Record | None:
        """Return the record of an instruction that another core of the kind has run, as the core's own."""
        other = self._of_any_core.get((id(op), id(state)))
        if other is None:
            return None
        if self._cores[other.thread // WIDTH].kind is not self._cores[core].kind:
            return None
        reads, writes = (
            tuple((*run[:3], self._shadow(core, run[0]) if run[0] else run[3]) for run in runs)
            for runs in (other.reads, other.writes)
        )
        return other._replace(thread=core * WIDTH + op.pipe, reads=reads, writes=writes)

    def _checked(self, core: int, number: int, op: Instruction, state: State) -> Record:
        try:
            op.check_forms()
            self._check_core(self._cores[core].kind, op)
            op.check(self._chip, state)
            reads = self._runs(core, op, op.reads(state), "reads")
            writes = self._runs(core, op, op.writes(state), "writes")
        except OperandError as error:
            raise OperandError(self._locate(core, number).message(str(error))) from None
        atomic = state.atomic is not Atomic.NONE and any(run[0] is Space.GM for run in writes)
        if atomic:  # the shadow checks the value that is there together with the update
            reads = tuple(run for run in reads if run[0] is not Space.GM)
        return Record(
            op,
            state,
            core * WIDTH + op.pipe,
            reads,
            writes,
            op.self_ordered(self._chip),
            atomic,
            op.registers_read(),
            op.registers_written(),
            _is_cached(op),
        )

    def _check_core(self, kind: CoreKind, op: Instruction) -> None:
        """Raise where a kind of core lacks a pipe, a memory or a register that an instruction names."""
        check_pipes(op, kind)
        for name in op.roles:
            operand = getattr(op, name)
            if operand is not None and operand.space is not Space.GM and operand.space not in SPACES[kind]:
                there = " ".join(s.short for s in SPACES[kind])
                raise op.error(f"this core has no {operand.space.short} for {name}; it has {there}")
        for index in (*op.registers_read(), *op.registers_written()):
            if not 0 <= index < REGISTERS:
                raise op.error(f"register must be r0..r{REGISTERS - 1}, not r{index}")

    def _runs(self, core: int, op: Instruction, accesses: tuple[Access, ...], verb: str) -> Runs:
        found = []
        for access in accesses:
            runs = access.runs()
            if not runs:
                continue
            if access.space is Space.GM:
                if not 0 <= access.segment < len(self._segments):
                    raise op.error(f"gm{access.segment} is no segment; the program has {len(self._segments)}")
                spec = self._segments[access.segment]
                name, room, shadow = spec.name, spec.nbytes, self._gm[access.segment]
            else:
                shadow = self._shadow(core, access.space)
                name, room = access.space.short, self._chip.capacity_bytes(access.space.short)
            if runs[0][0] < 0 or runs[-1][1] > room:
                raise op.error(
                    f"{verb} bytes {grouped(runs[0][0])} to {grouped(runs[-1][1])} of {name}, "
                    f"which has {grouped(room)}; check address, length and strides"
                )
            found.append((access.space, access.segment, tuple(runs), shadow))
        return tuple(found)

    # ---- memory --------------------------------------------------------------------------------------------

    def work(self, core: int, number: int, op: Instruction, state: State, issued: Clock) -> None:
        """Record what an instruction reads and writes.

        Raises `HazardError` where nothing orders it behind an earlier access, or where it reads what nobody
        wrote.
        """
        record = self._records.get(id(op) << _CORE_BITS | core)
        if record is None or record.state is not state:
            record = self.check(core, number, op, state)
        order = self.order
        thread = record.thread
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
        if record.cached and self._scalar(core, number, op, touch, known):
            return
        if self._caches.dirty:
            self._check_caches(core, number, op, record)
        ordered = record.ordered
        for space, segment, runs, shadow in record.reads:
            conflict = shadow.read_all(runs, touch, known, ordered)
            if conflict is not None:
                raise self._hazard(core, number, conflict, space, segment)
        for space, segment, runs, shadow in record.writes:
            if record.atomic and space is Space.GM:
                conflict = shadow.update_all(runs, touch, known)
            elif len(runs) == 1:
                start, stop = runs[0]
                conflict = shadow.write(start, stop, touch, known, ordered)
            else:
                conflict = shadow.write_all(runs, touch, known, ordered)
            if conflict is not None:
                raise self._hazard(core, number, conflict, space, segment)

    def _scalar(self, core: int, number: int, op: Instruction, touch: Touch, known: Clock) -> bool:
        """Follow a scalar access to global memory through the data cache; whether nothing is left to do."""
        caches = self._caches
        if isinstance(op, GetValue):
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
        if isinstance(op, SetValue):
            caches.store(core, number, op.dst, self._gm[op.dst.segment])
            return True
        assert isinstance(op, DataCacheCleanAndInvalid)
        for segment, dirty in caches.clean(core, None if op.all else op.at):
            shadow = self._gm[segment]
            stored = (touch[0], touch[1], dirty.number)
            conflict = shadow.write(dirty.start, dirty.stop, stored, known, True)
            if conflict is not None:
                raise self._hazard(core, dirty.number, conflict, Space.GM, segment)
        return True

    def _check_caches(self, core: int, number: int, op: Instruction, record: Record) -> None:
        """Raise where an instruction reads bytes that are in a data cache only."""
        for space, segment, runs, _ in record.reads:
            if space is not Space.GM:
                continue
            for start, stop in runs:
                dirty = self._caches.unseen(segment, start, stop)
                if dirty is not None:
                    who = self._locate(dirty.core, dirty.number)
                    raise self._error(
                        core,
                        number,
                        f"{op.mnemonic} ({op.pipe.name}) reads {self._segments[segment].name} "
                        f"bytes {grouped(dirty.start)} to {grouped(dirty.stop)}, which {who.words} has put "
                        f"into the data cache only; clean the line with DataCacheCleanAndInvalid first",
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


def _is_cached(op: Instruction) -> bool:
    if isinstance(op, GetValue):
        return op.src.space is Space.GM
    if isinstance(op, SetValue):
        return op.dst.space is Space.GM
    return isinstance(op, DataCacheCleanAndInvalid)


_VERBS = {"raw": ("reads", "writes"), "war": ("writes", "reads"), "waw": ("writes", "writes")}


def _remedy(other: Site, site: Site) -> str:
    if other.core != site.core:
        return f"let {site.core} wait for a cross-core flag that {other.core} sets behind it"
    if other.pipe is site.pipe:
        return f"put PipeBarrier {site.pipe.name} between them"
    return f"set {other.pipe.name}->{site.pipe.name} behind the first and wait for it before the second"
