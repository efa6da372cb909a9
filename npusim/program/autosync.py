"""Automatic synchronisation: the flags and barriers that the vendor's compiler adds to a vector core's
stream.

Dependent vector instructions get a barrier between them; V, MTE2 and MTE3 get flags to and from the scalar
unit around scalar accesses. Nothing is ever added between MTE2 and MTE3 or between them and V, and nothing on
cube cores: those flags are the author's.
"""

from __future__ import annotations

from typing import NamedTuple

from npusim.config.chip import Chip
from npusim.isa.instruction import Instruction, Kind, OriginKind
from npusim.isa.operand import Access, Pipe
from npusim.isa.state import State
from npusim.isa.sync import PipeBarrier, SetFlag, WaitFlag

_QUEUES = (Pipe.V, Pipe.MTE2, Pipe.MTE3)
_PRUNE_AT = 512


class Span(NamedTuple):
    """The hull of an access."""

    place: tuple[int, int]
    start: int
    stop: int
    writes: bool


class AutoSync:
    """Follows one stream and says what must come before its next instruction."""

    def __init__(self, chip: Chip) -> None:
        self._id = chip.flags.ids - 1
        self._done: dict[Pipe, list[Span]] = {p: [] for p in (Pipe.S, *_QUEUES)}
        self._ordered: dict[tuple[Pipe, Pipe], int] = {}
        """Of the accesses of the first pipe, how many are known to be done before the second goes on."""
        self._marks: dict[tuple[Pipe, Pipe, int], int] = {}
        self._spans: dict[int, tuple[Instruction, State, list[Span]]] = {}
        self._unanswered: set[Pipe] = set()
        """Pipes that the scalar unit has signalled and not heard from since."""

    def before(self, op: Instruction, state: State) -> list[Instruction]:
        """Return the flags and barriers to put before an instruction, and note the instruction."""
        if op.kind not in (Kind.WORK, Kind.SCALAR):
            self._synchronise(op)
            return []
        spans = self._of(op, state)
        if not spans:
            return []
        pipe = op.pipe
        added: list[Instruction] = []
        for other in self._partners(pipe):
            pending = self._done[other][self._ordered.get((other, pipe), 0) :]
            if any(_conflict(old, new, other is pipe) for old in pending for new in spans):
                added += self._join(other, pipe)
        if pipe in self._done:
            self._done[pipe] += spans
            if len(self._done[pipe]) > _PRUNE_AT:
                self._prune(pipe)
        return added

    @staticmethod
    def _partners(pipe: Pipe) -> tuple[Pipe, ...]:
        if pipe is Pipe.S:
            return _QUEUES
        return (Pipe.S, Pipe.V) if pipe is Pipe.V else (Pipe.S,)

    def _join(self, src: Pipe, dst: Pipe) -> list[Instruction]:
        added: list[Instruction] = []
        if src is dst:
            self._ordered[src, dst] = len(self._done[src])
            return [PipeBarrier(on=src, origin=OriginKind.AUTOSYNC)]
        if src is Pipe.S:
            if dst in self._unanswered:  # the flag may still be up: hear from the pipe first
                added += self._join(dst, Pipe.S)
            self._unanswered.add(dst)
        else:
            self._unanswered.discard(src)
        self._ordered[src, dst] = len(self._done[src])
        return [
            *added,
            SetFlag(src=src, dst=dst, id=self._id, origin=OriginKind.AUTOSYNC),
            WaitFlag(src=src, dst=dst, id=self._id, origin=OriginKind.AUTOSYNC),
        ]

    def _synchronise(self, op: Instruction) -> None:
        if isinstance(op, SetFlag):
            self._marks[op.src, op.dst, op.id] = len(self._done.get(op.src, ()))
        elif isinstance(op, WaitFlag):
            key = (op.src, op.dst)
            self._ordered[key] = max(self._ordered.get(key, 0), self._marks.pop((*key, op.id), 0))
            if op.dst is Pipe.S:
                self._unanswered.discard(op.src)
        elif isinstance(op, PipeBarrier):
            if op.on is Pipe.ALL:
                for src, spans in self._done.items():
                    for dst in self._done:
                        self._ordered[src, dst] = len(spans)
                self._unanswered.clear()
            else:
                self._ordered[op.on, op.on] = len(self._done.get(op.on, ()))

    def _of(self, op: Instruction, state: State) -> list[Span]:
        found = self._spans.get(id(op))
        if found is None or found[1] is not state:
            spans = [_span(a, False) for a in op.reads(state)] + [_span(a, True) for a in op.writes(state)]
            if len(self._spans) > 4096:
                self._spans.clear()
            found = self._spans[id(op)] = (op, state, spans)
        return found[2]

    def _prune(self, pipe: Pipe) -> None:
        """Forget accesses that everyone who cares has been ordered behind."""
        known = min(self._ordered.get((pipe, dst), 0) for dst in self._done if pipe in self._partners(dst))
        if known:
            del self._done[pipe][:known]
            for key in list(self._ordered):
                if key[0] is pipe:
                    self._ordered[key] = max(0, self._ordered[key] - known)
            for mark in list(self._marks):
                if mark[0] is pipe:
                    self._marks[mark] = max(0, self._marks[mark] - known)


def _span(access: Access, writes: bool) -> Span:
    reach = access.size + sum((n - 1) * s for n, s in zip(access.counts, access.strides, strict=True))
    return Span((int(access.space), access.segment), access.start, access.start + reach, writes)


def _conflict(old: Span, new: Span, same_pipe: bool) -> bool:
    """Whether two accesses meet and one writes; inside a pipe only an earlier write counts."""
    if not (old.writes or new.writes) or (same_pipe and not old.writes):
        return False
    return old.place == new.place and old.start < new.stop and new.start < old.stop
