"""Flags, barriers and cross-core flags: what orders pipes and cores."""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar

from npusim.config.chip import Chip
from npusim.isa.instruction import Instruction, Kind, instruction
from npusim.isa.operand import Pipe
from npusim.isa.state import State

_QUEUES = (Pipe.S, Pipe.V, Pipe.M, Pipe.MTE1, Pipe.MTE2, Pipe.MTE3, Pipe.FIX)


class Group(IntEnum):
    """Which cores a cross-core flag joins (the mode of the vendor's call)."""

    ALL = 0
    """All cores of one kind: a wait passes when every one of them has set."""
    VECTOR_PAIR = 1
    """The vector cores of one group."""
    CUBE_VECTOR = 2
    """A cube core and its vector cores: cube to both, or both to cube."""


def _check_id(op: Instruction, event: int, count: int, what: str) -> None:
    if not 0 <= event < count:
        raise op.error(f"{what} id must be 0..{count - 1}, not {event}")


@instruction
class SetFlag(Instruction):
    """Raise a one-bit flag for pipe `dst` once everything earlier on pipe `src` is done.

    Does not block `src`. A second set before the wait is undefined on the device and an error here.
    """

    src: Pipe
    dst: Pipe
    id: int
    kind: ClassVar[Kind] = Kind.SET

    @property
    def pipe(self) -> Pipe:
        """The pipe that raises the flag."""
        return self.src

    def check(self, chip: Chip, state: State) -> None:
        """Refuse ids the chip lacks and pairs that are no two queues."""
        _check_id(self, self.id, chip.flags.ids, "flag")
        _check_pair(self, self.src, self.dst)

    @classmethod
    def example(cls) -> SetFlag:
        """MTE2 tells V that a load is done."""
        return cls(src=Pipe.MTE2, dst=Pipe.V, id=0)


@instruction
class WaitFlag(Instruction):
    """Block pipe `dst` until pipe `src` has raised the flag, then clear it.

    On pipe S the scalar unit itself waits and issues nothing else meanwhile.
    """

    src: Pipe
    dst: Pipe
    id: int
    kind: ClassVar[Kind] = Kind.WAIT

    @property
    def pipe(self) -> Pipe:
        """The pipe that waits."""
        return self.dst

    def check(self, chip: Chip, state: State) -> None:
        """Refuse ids the chip lacks and pairs that are no two queues."""
        _check_id(self, self.id, chip.flags.ids, "flag")
        _check_pair(self, self.src, self.dst)

    @classmethod
    def example(cls) -> WaitFlag:
        """V waits for a load."""
        return cls(src=Pipe.MTE2, dst=Pipe.V, id=0)


def _check_pair(op: Instruction, src: Pipe, dst: Pipe) -> None:
    if src == dst or src not in _QUEUES or dst not in _QUEUES:
        raise op.error(f"a flag joins two different pipes, not {src.name} and {dst.name}; use PipeBarrier")


@instruction
class PipeBarrier(Instruction):
    """Let nothing later on a pipe start before everything earlier on it is done.

    With `ALL` the scalar unit waits until every pipe of the core is idle. A barrier on S is a hardware error.
    """

    on: Pipe
    kind: ClassVar[Kind] = Kind.BARRIER

    @property
    def pipe(self) -> Pipe:
        """The pipe that waits; the scalar unit for `ALL`."""
        return Pipe.S if self.on is Pipe.ALL else self.on

    def check(self, chip: Chip, state: State) -> None:
        """Refuse the scalar pipe."""
        if self.on is Pipe.S:
            raise self.error("pipe S has no barrier; wait for a flag to S instead")

    @classmethod
    def example(cls) -> PipeBarrier:
        """Order dependent vector instructions."""
        return cls(on=Pipe.V)


@instruction
class CrossCoreSetFlag(Instruction):
    """Count one up on a cross-core flag of the receiving cores once everything earlier on pipe `on` is done.

    The receivers follow from `group` and the core that sets. At most the chip's limit of sets may be
    outstanding.
    """

    group: Group
    on: Pipe
    id: int
    kind: ClassVar[Kind] = Kind.CROSS_SET

    @property
    def pipe(self) -> Pipe:
        """The pipe that sets."""
        return self.on

    def check(self, chip: Chip, state: State) -> None:
        """Refuse ids the chip lacks, and chips without cross-core flags."""
        _check_cross(self, chip, self.id)

    @classmethod
    def example(cls) -> CrossCoreSetFlag:
        """A cube core tells its vector cores that a result is in global memory."""
        return cls(group=Group.CUBE_VECTOR, on=Pipe.FIX, id=0)


@instruction
class CrossCoreWaitFlag(Instruction):
    """Wait until every sender of the group has set the flag, then count one down for each.

    The wait blocks pipe `on`; by default the scalar unit, which freezes issue.
    """

    group: Group
    id: int
    on: Pipe = Pipe.S
    kind: ClassVar[Kind] = Kind.CROSS_WAIT

    @property
    def pipe(self) -> Pipe:
        """The pipe that waits."""
        return self.on

    def check(self, chip: Chip, state: State) -> None:
        """Refuse ids the chip lacks, and chips without cross-core flags."""
        _check_cross(self, chip, self.id)

    @classmethod
    def example(cls) -> CrossCoreWaitFlag:
        """A vector core waits for its cube core."""
        return cls(group=Group.CUBE_VECTOR, id=0)


def _check_cross(op: Instruction, chip: Chip, event: int) -> None:
    if chip.flags.cross_ids == 0:
        raise op.error(f"{chip.name} has no cross-core flags; cores meet in global memory only")
    _check_id(op, event, chip.flags.cross_ids, "cross-core flag")
