"""What the author of a stream works with: one core's memories, flags, queues and vector forms."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Generator, Iterator
from typing import Any

from npusim.config.chip import Chip
from npusim.errors import ConfigError, HazardError
from npusim.isa.dtype import DType, element_type
from npusim.isa.instruction import Instruction, OriginKind
from npusim.isa.operand import Operand, Pipe, Space, Tile
from npusim.isa.state import RESET, State
from npusim.isa.sync import CrossCoreSetFlag, CrossCoreWaitFlag, Group, PipeBarrier, SetFlag, WaitFlag
from npusim.isa.vector.forms import contiguous, counter_mode
from npusim.isa.vector.lanes import VectorInstruction
from npusim.program.core import SPACES, CoreId, CoreKind, LaunchKind
from npusim.units import align_up, grouped

Steps = Generator[Instruction, Any, None]
"""Instructions to splice into a stream with `yield from`."""
TileSteps = Generator[Instruction, Any, Tile]
"""The same, with a tile as the value of `yield from`."""

_START = {Space.L0A: 512, Space.L0B: 512, Space.L0C: 1024, Space.BT: 64, Space.FB: 64}


class Kernel:
    """One core's side of a program: where its tiles lie, which flags are free, which state it is in.

    A stream function receives it and yields instructions. Allocation is static: a stack per memory, no
    freeing.
    """

    def __init__(self, chip: Chip, core: CoreId, block: int, launch: LaunchKind | None = None) -> None:
        self.chip = chip
        self.core = core
        self.launch = launch
        """Which cores the launch starts."""
        self.block = block
        """Number of the core's block in the launch; for vector cores of a mix launch, of their group."""
        self.state: State = RESET
        """Control state behind the last instruction that left the stream; its reader keeps it."""
        self.events = EventPool(chip)
        self.queues: list[Queue] = []
        self._used: dict[Space, int] = defaultdict(int)

    def alloc(self, space: Space, shape: int | tuple[int, ...], dtype: DType | str) -> Tile:
        """Reserve a tile, aligned as the memory wants it.

        Raises `ConfigError` where the core lacks the memory or has too little of it left, for an unknown
        element type, and for an empty tile.
        """
        shape = (shape,) if isinstance(shape, int) else shape
        dtype = element_type(dtype)
        if not shape or min(shape) < 1:
            extents = "x".join(map(str, shape)) or "no extent"
            raise ConfigError(f"{space.short}: every extent of a tile must be 1 or more, not {extents}")
        if space not in SPACES[self.core.kind]:
            raise ConfigError(f"no {space.short} on this core; it has {_names(self.core)}")
        start = align_up(self._used[space], _START.get(space, 32))
        stop = start + dtype.bytes_of(math.prod(shape))
        room = self.chip.capacity_bytes(space.short)
        if stop > room:
            raise ConfigError(
                f"{space.short}: {grouped(stop)} bytes needed, {grouped(room)} available on "
                f"{self.chip.name}; use smaller tiles"
            )
        self._used[space] = stop
        return Tile(Operand(space, dtype, start), shape)

    def ub(self, shape: int | tuple[int, ...], dtype: DType | str) -> Tile:
        """Reserve a tile in the unified buffer."""
        return self.alloc(Space.UB, shape, dtype)

    def l1(self, shape: int | tuple[int, ...], dtype: DType | str) -> Tile:
        """Reserve a tile in L1."""
        return self.alloc(Space.L1, shape, dtype)

    def l0a(self, shape: int | tuple[int, ...], dtype: DType | str) -> Tile:
        """Reserve a tile in L0A."""
        return self.alloc(Space.L0A, shape, dtype)

    def l0b(self, shape: int | tuple[int, ...], dtype: DType | str) -> Tile:
        """Reserve a tile in L0B."""
        return self.alloc(Space.L0B, shape, dtype)

    def l0c(self, shape: int | tuple[int, ...], dtype: DType | str) -> Tile:
        """Reserve a tile in L0C."""
        return self.alloc(Space.L0C, shape, dtype)

    def vector(self, cls: type[VectorInstruction], *, count: int, **operands: Any) -> Steps:
        """Run a vector instruction on the first `count` elements of contiguous operands, in counter mode.

        Splice it in with `yield from`, which is when it looks at the state of the stream: the state changes
        that are needed come first, and none where the mask counts `count` already.
        """
        yield from contiguous(cls, count=count, state=self.state, **operands)

    def counter(self, count: int) -> Steps:
        """Enter counter mode with `count` elements; yields nothing where the stream is there already."""
        yield from counter_mode(count, self.state)

    def flag(self, src: Pipe, dst: Pipe) -> Event:
        """Take a flag from `src` to `dst` out of the pool.

        Raises `HazardError` where the chip has none left for the pair.
        """
        return self.events.take(src, dst)

    def queue(self, src: Pipe, dst: Pipe, tiles: list[Tile]) -> Queue:
        """Make a queue of tiles that `src` fills and `dst` empties; two tiles are a double buffer.

        Raises `ConfigError` for a queue without tiles, and `HazardError` where the chip has too few flags.
        """
        if not tiles:
            raise ConfigError(f"queue {src.name}->{dst.name}: one tile or more is needed, not none")
        made = Queue(self, src, dst, tiles)
        self.queues.append(made)
        return made

    def sync_all(self) -> Steps:
        """Meet all cores of the launch: nothing behind it runs before everything before it, on any core, is
        done (the vendor's `SyncAll`).

        Splice it in on every core with `yield from`. It becomes flags that are seen in the stream, with the
        three last ids of the chip: the core waits for its own pipes; vector cores tell their cube core, cube
        cores tell each other, and each tells its vector cores (in a launch of one kind of core only the
        middle step). Raises `HazardError` where the chip has no flags between cores.
        """
        ids = self.chip.flags.cross_ids
        if ids < 3:
            raise HazardError(f"SyncAll: {self.chip.name} has no flags between cores; end the launch instead")
        yield PipeBarrier(on=Pipe.ALL, origin=OriginKind.EXPANSION)
        mixed = self.launch in (LaunchKind.MIX_1_1, LaunchKind.MIX_1_2)
        if mixed and self.core.kind is CoreKind.VECTOR:
            yield _cross_set(Group.CUBE_VECTOR, ids - 1)
            yield _cross_wait(Group.CUBE_VECTOR, ids - 2)
            return
        if mixed:
            yield _cross_wait(Group.CUBE_VECTOR, ids - 1)
        yield _cross_set(Group.ALL, ids - 3)
        yield _cross_wait(Group.ALL, ids - 3)
        if mixed:
            yield _cross_set(Group.CUBE_VECTOR, ids - 2)

    def finish(self) -> Iterator[Instruction]:
        """Yield the waits for flags that the queues still have raised; the stream runner adds them at the
        end.
        """
        for queue in self.queues:
            yield from queue.drain()


def _cross_set(group: Group, event: int) -> Instruction:
    return CrossCoreSetFlag(group=group, on=Pipe.S, id=event, origin=OriginKind.EXPANSION)


def _cross_wait(group: Group, event: int) -> Instruction:
    return CrossCoreWaitFlag(group=group, id=event, origin=OriginKind.EXPANSION)


def _names(core: CoreId) -> str:
    return " ".join(s.short for s in SPACES[core.kind])


class Event:
    """One flag between two pipes of a core."""

    __slots__ = ("dst", "id", "set", "src", "wait")

    def __init__(self, src: Pipe, dst: Pipe, event: int, origin: OriginKind = OriginKind.EXPLICIT) -> None:
        self.src, self.dst, self.id = src, dst, event
        self.set = SetFlag(src=src, dst=dst, id=event, origin=origin)
        """The instruction that raises it."""
        self.wait = WaitFlag(src=src, dst=dst, id=event, origin=origin)
        """The instruction that waits for it."""


class EventPool:
    """Flag ids of a core, per ordered pair of pipes; the last id of a pair belongs to automatic
    synchronisation.
    """

    def __init__(self, chip: Chip) -> None:
        self._ids = chip.flags.ids - 1
        self._taken: dict[tuple[Pipe, Pipe], set[int]] = defaultdict(set)

    def peek(self, src: Pipe, dst: Pipe) -> int | None:
        """Return the id that `take` would give, or None."""
        taken = self._taken[src, dst]
        return next((i for i in range(self._ids) if i not in taken), None)

    def take(self, src: Pipe, dst: Pipe, origin: OriginKind = OriginKind.EXPLICIT) -> Event:
        """Return a flag with the lowest free id.

        Raises `HazardError` where all are taken.
        """
        event = self.peek(src, dst)
        if event is None:
            raise HazardError(
                f"flags {src.name}->{dst.name}: all {self._ids} ids are taken (one more is kept for "
                f"autosync); release one or share a flag"
            )
        self._taken[src, dst].add(event)
        return Event(src, dst, event, origin)

    def release(self, event: Event) -> None:
        """Give an id back.

        Raises `ValueError` where it was not taken.
        """
        taken = self._taken[event.src, event.dst]
        if event.id not in taken:
            raise ValueError(f"flag {event.src.name}->{event.dst.name}#{event.id} was not taken")
        taken.remove(event.id)


class Queue:
    """Tiles that travel from a producing pipe to a consuming pipe and back, with the flags that order both
    ways.

    The producer takes a free tile (`alloc`), fills it and passes it on (`enque`); the consumer takes it
    (`deque`), uses it and gives it back (`free`). Each step is a list of visible flag instructions to splice
    into the stream.
    """

    def __init__(self, kernel: Kernel, src: Pipe, dst: Pipe, tiles: list[Tile]) -> None:
        self.tiles = tiles
        pool = kernel.events
        self._full = [pool.take(src, dst, OriginKind.QUEUE) for _ in tiles]
        self._free = [pool.take(dst, src, OriginKind.QUEUE) for _ in tiles]
        self._pending = [False] * len(tiles)
        self._in = self._out = 0

    def alloc(self) -> TileSteps:
        """Wait on the producing pipe until the next tile is free, and return it."""
        slot = self._in % len(self.tiles)
        if self._pending[slot]:
            yield self._free[slot].wait
            self._pending[slot] = False
        return self.tiles[slot]

    def enque(self) -> Steps:
        """Tell the consuming pipe that the tile is full."""
        yield self._full[self._in % len(self.tiles)].set
        self._in += 1

    def deque(self) -> TileSteps:
        """Wait on the consuming pipe until the next tile is full, and return it."""
        slot = self._out % len(self.tiles)
        yield self._full[slot].wait
        return self.tiles[slot]

    def free(self) -> Steps:
        """Tell the producing pipe that the tile may be filled again."""
        slot = self._out % len(self.tiles)
        yield self._free[slot].set
        self._pending[slot] = True
        self._out += 1

    def drain(self) -> Iterator[Instruction]:
        """Yield the waits for tiles that were freed and never taken again."""
        for slot, pending in enumerate(self._pending):
            if pending:
                event = self._free[slot]
                yield WaitFlag(src=event.src, dst=event.dst, id=event.id, origin=OriginKind.PIPE_END)
        self._pending = [False] * len(self.tiles)
