"""Explaining why nothing can go on: the circle of waits, or the flag that nobody raises."""

from __future__ import annotations

from dataclasses import dataclass

from npusim.check.place import Site
from npusim.errors import DeadlockError
from npusim.isa.instruction import Kind
from npusim.isa.operand import Pipe
from npusim.isa.sync import CrossCoreWaitFlag, PipeBarrier, WaitFlag
from npusim.program.core import CoreId


@dataclass(frozen=True, slots=True)
class Blocked:
    """A core that cannot go on."""

    core: CoreId
    ended: bool
    """Whether its stream has no more instructions."""
    waits: dict[Pipe, Site]
    """What stands at the head of every pipe that waits."""
    peers: dict[int, list[CoreId]]
    """For a cross-core wait, by position in the stream: the cores whose sets are missing."""
    awaits_value: bool = False
    """Whether its scalar unit waits for the value of an instruction that it has issued."""


Node = tuple[CoreId, Pipe]


def deadlock_error(cores: list[Blocked]) -> DeadlockError:
    """Return the error for a set of cores, of which at least one waits.

    Follows from every wait the pipes that could end it; a circle is reported whole, else the first wait that
    leads to a stream that has ended.
    """
    by_id = {c.core: c for c in cores}
    dead_end: list[Node] | None = None
    for core in cores:
        for pipe in core.waits:
            path: list[Node] = []
            node: Node | None = (core.core, pipe)
            while node is not None and node not in path:
                path.append(node)
                node = _next(by_id, node)
            if node is not None:
                circle = path[path.index(node) :]
                text = "; ".join(_words(by_id, n) for n in circle)
                if len(circle) == 1:
                    return DeadlockError(
                        f"deadlock: {text}, and {circle[0][0]} issues nothing more until then"
                    )
                return DeadlockError(f"deadlock: {text}; they wait in a circle")
            if dead_end is None:
                dead_end = path
    assert dead_end is not None
    text = "; ".join(_words(by_id, n) for n in dead_end)
    last = by_id[dead_end[-1][0]]
    if not last.ended and last.waits[dead_end[-1][1]].op.kind is Kind.WAIT:
        return DeadlockError(f"deadlock: {text}, and {last.core} issues nothing more until then")
    return DeadlockError(f"deadlock: {text}, and no stream has an instruction left that would set it")


def _next(by_id: dict[CoreId, Blocked], node: Node) -> Node | None:
    """Return the pipe that a waiting pipe depends on, or None where that pipe waits for nothing."""
    core, pipe = node
    site = by_id[core].waits[pipe]
    op = site.op
    if isinstance(op, CrossCoreWaitFlag):
        peers = by_id[core].peers[site.number]
        for peer in peers:
            found = _first_wait(by_id[peer])
            if found is not None:
                return found
        return None
    if isinstance(op, PipeBarrier) and op.pipe is pipe:
        others = [p for p in by_id[core].waits if p is not pipe]
        return (core, others[0]) if others else None
    if isinstance(op, WaitFlag) and op.src in by_id[core].waits:
        return core, op.src
    if pipe is not Pipe.S and Pipe.S in by_id[core].waits:
        return core, Pipe.S
    if pipe is Pipe.S and op.pipe is not Pipe.S and op.pipe in by_id[core].waits:
        return core, op.pipe
    return None


def _first_wait(blocked: Blocked) -> Node | None:
    if Pipe.S in blocked.waits:
        return blocked.core, Pipe.S
    for pipe in blocked.waits:
        return blocked.core, pipe
    return None


def _words(by_id: dict[CoreId, Blocked], node: Node) -> str:
    core, pipe = node
    blocked = by_id[core]
    site = blocked.waits[pipe]
    op = site.op
    subject = f"{core} {pipe.name} ({site.where})"
    if isinstance(op, CrossCoreWaitFlag):
        peers = " and ".join(map(str, blocked.peers[site.number]))
        return f"{subject} waits for cross-core flag {op.id} from {peers}"
    if isinstance(op, WaitFlag):
        return f"{subject} waits for flag {op.src.name}->{op.dst.name}#{op.id}"
    if isinstance(op, PipeBarrier) and op.pipe is pipe:
        return f"{subject} waits at a barrier"
    if blocked.awaits_value:
        return f"{subject} waits for the value of {op.mnemonic} on {op.pipe.name}"
    return f"{subject} cannot issue {op.mnemonic}, the queue of {op.pipe.name} is full"
