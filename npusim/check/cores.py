"""Whether the core that issues an instruction has the pipes for it, and the launch the cores it speaks to."""

from __future__ import annotations

from collections.abc import Callable

from npusim.check.place import Site
from npusim.config.chip import Chip
from npusim.errors import DeadlockError, OperandError
from npusim.isa.instruction import Instruction, OriginKind
from npusim.isa.operand import Pipe
from npusim.isa.sync import CrossCoreSetFlag, CrossCoreWaitFlag, Group, SetFlag, WaitFlag
from npusim.program.core import PIPES, CoreId, CoreKind, Launch


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


def check_meeting(
    op: CrossCoreSetFlag | CrossCoreWaitFlag, launch: Launch, chip: Chip, site: Callable[[], Site]
) -> None:
    """Raise `DeadlockError` where all blocks of a launch are to meet and some start only when others end."""
    if op.group is not Group.ALL or launch.at_once is None or launch.at_once >= launch.blocks:
        return
    what = "SyncAll" if op.origin is OriginKind.EXPANSION else op.mnemonic
    raise DeadlockError(
        site().message(
            f"{what}: all {launch.blocks} blocks of launch {launch.name} are to meet, but {chip.name} runs "
            f"{launch.at_once} at a time and the others start when these have ended, so the wait never ends; "
            f"launch {launch.at_once} blocks or fewer and give each more work"
        )
    )
