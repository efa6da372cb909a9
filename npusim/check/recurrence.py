"""The flag-only bound: the longest chain through issue, queues, pipes, flags and barriers, and the busiest
pipe.

A recurrence of maxima over the streams with infinitely fast links; it shares no code with the timing machine.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence

from npusim.check.chain import BARRIER, CROSS_SET, CROSS_WAIT, SCALAR, SET, WAIT, WORK, Chain, Step
from npusim.check.chain_macros import Known, examine
from npusim.config.chip import Chip
from npusim.errors import DeadlockError
from npusim.isa.instruction import Instruction
from npusim.isa.scalar import DataCacheCleanAndInvalid
from npusim.isa.state import RESET, State
from npusim.isa.sync import CrossCoreSetFlag, CrossCoreWaitFlag, Group, SetFlag, WaitFlag
from npusim.program.core import CoreId, cross_peers
from npusim.program.macro import Item, Macro

_KEPT = 1 << 16
_WAITS = (WAIT, CROSS_WAIT)


class Recurrence:
    """The flag-only bound of one launch."""

    def __init__(self, chip: Chip, streams: Sequence[tuple[CoreId, Sequence[Item]]]) -> None:
        self._chip = chip
        self._chains = [Chain(chip, core, items) for core, items in streams]
        self._ids = [c.core for c in self._chains]
        self._cross: dict[tuple[CoreId, int, CoreId], deque[int]] = defaultdict(deque)
        self._steps: dict[int, Step] = {}
        """What every instruction was the last time, by its identity; its state may be another."""
        self._kept: dict[tuple[int, int], Step] = {}
        self._macros: dict[tuple[int, int], Known | None] = {}
        self._states: dict[State, State] = {RESET: RESET}
        """One object for every state, so that they are told apart by identity."""
        self._moved = False
        flags = chip.flags
        group, everyone = chip.cycles(flags.group_latency_ns), chip.cycles(flags.all_latency_ns)
        self._delay = {Group.ALL: everyone, Group.VECTOR_PAIR: group, Group.CUBE_VECTOR: group}
        self._latency = flags.latency_cycles
        self._issue = chip.scalar.issue_cycles
        self._read = chip.cycles(min(chip.l2.read_latency_ns, chip.hbm.read_latency_ns))
        self._write = chip.cycles(chip.l2.write_latency_ns)
        self._miss = chip.cycles(chip.scalar.gm_read_ns)

    def run(self) -> tuple[int, int]:
        """Return the flag-only bound and the busiest pipe's cycles.

        Raises `DeadlockError` where the streams wait for ever.
        """
        self._moved = True
        while self._moved:
            self._moved = False
            for chain in self._chains:
                self._advance(chain)
        if any(c.at < len(c.items) or any(c.waiting) for c in self._chains):
            raise DeadlockError(
                "deadlock: the streams wait for each other for ever; run with values to see where"
            )
        ends = [max([c.issue, *c.free, *c.done]) for c in self._chains]
        busy = [max([*c.busy, *c.moving]) for c in self._chains]
        return max(ends), max(busy)

    def _advance(self, chain: Chain) -> None:
        """Issue until the scalar unit waits."""
        chain.woken.extend(pipe for pipe, waiting in enumerate(chain.waiting) if waiting)
        self._serve_woken(chain)
        items = chain.items
        while chain.at < len(items):
            item = items[chain.at]
            if isinstance(item, Macro):
                if not self._macro(chain, item):
                    return
            elif not self._next(chain, item):
                return
            chain.at += 1

    def _next(self, chain: Chain, op: Instruction) -> bool:
        """Issue an instruction; False where the scalar unit waits with it."""
        step = self._steps.get(id(op))
        if step is None or step.state is not chain.state:
            step = self._step(op, chain.state)
        if chain.awaited is not None and not self._value(chain):
            return False
        pipe = step.pipe
        if pipe:
            waiting, pops = chain.waiting[pipe], chain.pops[pipe]
            time = chain.issue + self._issue
            if len(pops) == pops.maxlen:
                if len(waiting) >= len(pops):
                    return False
                time = max(time, pops[len(waiting)])
            elif len(pops) + len(waiting) >= (pops.maxlen or 1):
                missing = len(pops) + len(waiting) - (pops.maxlen or 1)
                if missing >= len(pops):
                    return False
                time = max(time, pops[missing])
            chain.issue = time
            if waiting or not self._start(chain, pipe, time, step):
                waiting.append((time, step))
            if step.returns:
                chain.awaited = pipe
        elif step.code == SCALAR:
            chain.issue += step.cycles
            if step.changes:
                chain.state = self._changed(step)
        elif not self._scalar(chain, step, chain.issue + self._issue):
            return False
        if chain.woken:
            self._serve_woken(chain)
        self._moved = True
        return True

    def _macro(self, chain: Chain, macro: Macro) -> bool:
        """Issue a macro, at once where its times are known from before; False where the scalar unit waits."""
        known = self._known(macro, chain.state)
        before, raised = None, []
        if known is not None and not chain.inside and known.apart(chain):
            before, raised = known.seen_by(chain, self._latency), known.raised(chain)
            found = known.times.get(before)
            if found is not None:
                known.replay(chain, found)
                self._serve_woken(chain)
                self._moved = True
                return True
        start, busy = chain.issue, [*chain.busy]
        ops = macro.ops
        while chain.inside < len(ops):
            if not self._next(chain, ops[chain.inside]):
                return False
            chain.inside += 1
        chain.inside = 0
        if known is not None and before is not None:
            known.keep(before, chain, start, busy, raised)
        return True

    def _known(self, macro: Macro, state: State) -> Known | None:
        key = (id(macro), id(state))
        if key not in self._macros:
            known = examine(macro, state, self._chip)
            if known is not None:
                known = known._replace(after=self._states.setdefault(known.after, known.after))
            self._macros[key] = known
        return self._macros[key]

    def _step(self, op: Instruction, state: State) -> Step:
        key = (id(op), id(state))
        found = self._kept.get(key)
        if found is None:
            if len(self._kept) >= _KEPT:
                self._kept.clear()
                self._steps.clear()
            found = self._kept[key] = Step(self._chip, op, state)
        self._steps[id(op)] = found
        return found

    def _changed(self, step: Step) -> State:
        if step.after is None:
            state = step.op.update(step.state)
            step.after = self._states.setdefault(state, state)
        return step.after

    def _value(self, chain: Chain) -> bool:
        """Let the value of the last instruction come back; False while its pipe has not got to it."""
        pipe = chain.awaited
        assert pipe is not None
        if chain.waiting[pipe]:
            return False
        chain.issue = max(chain.issue, chain.done[pipe] + self._latency)
        chain.awaited = None
        return True

    def _scalar(self, chain: Chain, step: Step, time: int) -> bool:
        """Run what the scalar unit does beyond computing; False where it has to wait."""
        op, code = step.op, step.code
        if code in _WAITS:
            reached = self._flag_time(chain, op)
            if reached is None:
                return False
            time = max(time, reached)
        elif code == SET:
            self._raise(chain, op, time)
        elif code == CROSS_SET:
            self._send(chain, op, time)
        elif code == BARRIER:
            if any(chain.waiting):
                return False
            time = max(time, *chain.free, *chain.done)
        else:
            time = self._global(chain, step, time)
        chain.issue = time
        return True

    def _global(self, chain: Chain, step: Step, time: int) -> int:
        op, line, lines = step.op, step.line, chain.lines
        assert line is not None
        if isinstance(op, DataCacheCleanAndInvalid):
            if op.all:
                lines.clear()
            lines.pop(line, None)
            return time + step.cycles
        known = line in lines
        lines.pop(line, None)
        lines[line] = None
        if len(lines) > self._chip.scalar.dcache_lines:
            del lines[next(iter(lines))]
        return time if known else time + self._miss

    def _serve_woken(self, chain: Chain) -> None:
        """Let pipes go on whose flags have been set, and those whose flags they set in turn."""
        while chain.woken:
            pipe = chain.woken.popleft()
            waiting = chain.waiting[pipe]
            while waiting and self._start(chain, pipe, *waiting[0]):
                waiting.popleft()
                self._moved = True

    def _start(self, chain: Chain, pipe: int, issued: int, step: Step) -> bool:
        """Run an instruction on its pipe; False where it waits for a flag that nobody has set yet."""
        free, code = chain.free, step.code
        start = free[pipe]
        if issued > start:
            start = issued
        if code == WORK:
            transfer = step.transfer
            end = start + step.cycles
            if transfer is None:
                chain.busy[pipe] += step.cycles
            else:
                under_way = chain.under_way[transfer.port]
                limit = getattr(self._chip.ports, transfer.port).outstanding
                if len(under_way) >= limit:
                    start = max(start, under_way.popleft())
                end = start + step.cycles
                chain.busy[pipe] += step.cycles
                chain.moving[pipe] += transfer.port_cycles
            free[pipe] = end
            usable = end + step.latency
            if transfer is not None:
                usable += self._write if transfer.write else self._read
                chain.under_way[transfer.port].append(usable)
            if usable > chain.done[pipe]:
                chain.done[pipe] = usable
            chain.pops[pipe].append(start)
            return True
        if code in _WAITS:
            reached = self._flag_time(chain, step.op)
            if reached is None:
                return False
            start = max(start, reached)
        elif code == SET:
            self._raise(chain, step.op, max(start, chain.done[pipe]))
        elif code == BARRIER:
            start = max(start, chain.done[pipe])
        else:
            self._send(chain, step.op, max(start, chain.done[pipe]))
        free[pipe] = start
        chain.pops[pipe].append(start)
        return True

    def _raise(self, chain: Chain, op: Instruction, time: int) -> None:
        assert isinstance(op, SetFlag)
        chain.flags[op.src, op.dst, op.id].append(time)
        if chain.waiting[op.dst]:
            chain.woken.append(op.dst)

    def _send(self, chain: Chain, op: Instruction, time: int) -> None:
        assert isinstance(op, CrossCoreSetFlag)
        for receiver in cross_peers(chain.core, op.group, self._ids, sending=True):
            self._cross[receiver, op.id, chain.core].append(time + self._delay[op.group])

    def _flag_time(self, chain: Chain, op: Instruction) -> int | None:
        """Return when a wait sees its flag, or None where the flag has not been set yet."""
        if isinstance(op, WaitFlag):
            raised = chain.flags[op.src, op.dst, op.id]
            return raised.popleft() + self._latency if raised else None
        assert isinstance(op, CrossCoreWaitFlag)
        senders = cross_peers(chain.core, op.group, self._ids, sending=False)
        queues = [self._cross[chain.core, op.id, s] for s in senders]
        return max(q.popleft() for q in queues) if all(queues) else None
