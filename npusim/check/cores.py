"""Whether the core that issues an instruction has the pipes for it, and the launch the cores it speaks to."""

from __future__ import annotations

from npusim.errors import OperandError
from npusim.isa.instruction import Instruction
from npusim.isa.operand import Pipe
from npusim.isa.sync import CrossCoreSetFlag, CrossCoreWaitFlag, SetFlag, WaitFlag
from npusim.program.core import PIPES, CoreId, CoreKind


def no_pipe(op: Instruction, kind: CoreKind, pipe: Pipe) -> OperandError:
    """Return the error for a pipe that a kind of core lacks."""
    return op.error(f"this core has no pipe {pipe.name}; it has {' '.join(p.name for p in PIPES[kind])}")


def check_pipes(op: Instruction, kind: CoreKind) -> None:
    """Raise `OperandError` where a kind of core lacks the pipe of an instruction, or a pipe of a flag."""
    pipes = (op.src, op.dst) if isinstance(op, SetFlag | WaitFlag) else (op.pipe,)
    for pipe in pipes:
        if pipe not in PIPES[kind]:
            raise no_pipe(op, kind, pipe)


def check_peers(op: CrossCoreSetFlag | CrossCoreWaitFlag, peers: list[CoreId]) -> None:
    """Raise `OperandError` where no core of the launch is at the other end of a cross-core flag."""
    if not peers and isinstance(op, CrossCoreSetFlag):
        raise op.error("no core of the launch receives this flag, so the next launch would find it")
    if not peers:
        raise op.error("no core of the launch can set this flag, so the wait never ends")
