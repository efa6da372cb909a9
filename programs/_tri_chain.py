"""Chains of products of square matrices on one cube core, and the flags that order its four pipes.

A program records what is done with named buffers; the flags follow from that: a set right behind the
instruction that others wait for, a wait right before the one that waits, and none where an earlier wait says
as much already. What global memory a load or a store means is settled when the chain is played, so cores with
equal work share one chain.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from npusim import Kernel, Pipe, isa
from npusim.errors import HazardError
from npusim.program.kernel import Event
from npusim.units import ceil_div

FRACTAL = 16
"""Rows and columns of a fractal of 16-bit elements."""
_BYTES = 512
_PIPES = (Pipe.MTE2, Pipe.MTE1, Pipe.M, Pipe.FIX)

Steps = Iterator[isa.Instruction]


class Transfer(NamedTuple):
    """A load or a store of global memory by the number that the program gave it, and the tile on the core's
    side.
    """

    number: int
    tile: isa.Tile


class _Step(NamedTuple):
    """An instruction with the buffers it touches; None for a stop of the pipe alone."""

    op: isa.Instruction | Transfer | None
    pipe: int
    reads: tuple[Hashable, ...]
    writes: tuple[Hashable, ...]


@dataclass(slots=True)
class _Flag:
    """A flag, and the step of the receiving pipe that waited for it last."""

    event: Event
    waited: int


class Played(NamedTuple):
    """A chain with its flags."""

    items: tuple[isa.Instruction | Transfer, ...]

    def stream(self, memory: Callable[[Transfer], Steps]) -> Steps:
        """Yield the instructions; `memory` makes those of transfers with global memory."""
        for item in self.items:
            if isinstance(item, Transfer):
                yield from memory(item)
            else:
                yield item


class Chain:
    """Records a chain of products of n x n matrices of 16-bit elements, n a multiple of 16.

    There are `buffers` tiles of L0A, L0B and L0C, by number, and the tiles of L1 that are taken with `tile`.
    The allocator raises `ConfigError` where they do not fit.
    """

    def __init__(self, c: Kernel, n: int, dtype: isa.DType, buffers: int) -> None:
        self.n, self._f, self._dtype = n, n // FRACTAL, dtype
        self._c, self._steps = c, list[_Step]()
        self._a = [c.l0a((n, n), dtype) for _ in range(buffers)]
        self._b = [c.l0b((n, n), dtype) for _ in range(buffers)]
        self._acc = [c.l0c((n, n), isa.F32) for _ in range(buffers)]
        self._by_rows = c.chip.cube.l0a_layout == "ZZ"
        self._made: dict[Hashable, isa.Instruction] = {}

    def tile(self) -> isa.Tile:
        """Take a tile of L1."""
        return self._c.l1((self.n, self.n), self._dtype)

    def fractals(self, count: int) -> isa.Tile:
        """Take a tile of L1 for so many fractals, one below the other."""
        return self._c.l1((count * FRACTAL, FRACTAL), self._dtype)

    # ---- what a chain does ---------------------------------------------------------------------------------

    def load(self, dst: isa.Tile, number: int) -> None:
        """Load a tile of L1 from global memory."""
        self._add(Transfer(number, dst), Pipe.MTE2, writes=(dst,))

    def clear(self, dst: isa.Tile) -> None:
        """Fill a tile of L1 with zeros."""
        zeros = isa.Fill(dst=dst.as_type(isa.U16), value=0, block_num=dst.nbytes // 32)
        self._add(zeros, Pipe.MTE2, writes=(dst,))

    def left(self, a: int, src: isa.Tile) -> None:
        """Move a tile of L1 to a left operand."""
        op = self._once(("left", a, src), lambda: isa.load_a(self._a[a], src, self.n, self.n))
        self._add(op, Pipe.MTE1, reads=(src,), writes=(("a", a),))

    def right(self, b: int, src: isa.Tile) -> None:
        """Move a tile of L1 to a right operand."""
        op = self._once(("right", b, src), lambda: isa.load_b(self._b[b], src, self.n, self.n))
        self._add(op, Pipe.MTE1, reads=(src,), writes=(("b", b),))

    def settle(self, *operands: tuple[str, int]) -> None:
        """Let the cube wait for operands that were just filled, and the loads that follow wait for the cube.

        The published kernel does so between filling an operand with zeros and putting fractals into it.
        """
        self._add(None, Pipe.M, reads=operands)

    def left_blocks(self, a: int, src: isa.Tile, blocks: Iterator[int] | range, size: int = FRACTAL) -> None:
        """Move diagonal blocks of `size` of a tile of L1 to a left operand, fractal by fractal."""
        for i, j in self._fractals(blocks, size):
            op = self._once(("la", a, src, i, j), lambda i=i, j=j: self._extract(self._a[a], src, i, j))
            self._add(op, Pipe.MTE1, reads=(src,), writes=(("a", a),))

    def right_blocks(self, b: int, src: isa.Tile, blocks: Iterator[int] | range, size: int = FRACTAL) -> None:
        """Move diagonal blocks of `size` of a tile of L1 to a right operand, fractal by fractal."""
        for i, j in self._fractals(blocks, size):
            op = self._once(("rb", b, src, i, j), lambda i=i, j=j: self._extract(self._b[b], src, i, j))
            self._add(op, Pipe.MTE1, reads=(src,), writes=(("b", b),))

    def fractal(self, operand: tuple[str, int], src: isa.Tile, source: int, place: int) -> None:
        """Move one fractal, by its number in a tile of L1, to a place on the diagonal of an operand."""
        side, number = operand

        def made() -> isa.Instruction:
            whole = self._a[number] if side == "a" else self._b[number]
            at, start = whole.offset(place * (self._f + 1) * _BYTES), src.offset(source * _BYTES)
            return isa.LoadData2D(dst=at, src=start, repeat=1, transpose=side == "b")

        op = self._once(("fractal", operand, src, source, place), made)
        self._add(op, Pipe.MTE1, reads=(src,), writes=(operand,))

    def repeated(self, operand: tuple[str, int], zero: isa.Tile, src: isa.Tile, source: int) -> None:
        """Fill an operand with zeros, and its diagonal with one fractal of a tile of L1."""
        side, number = operand
        (self.left if side == "a" else self.right)(number, zero)
        self.settle(operand)
        for place in range(self._f):
            self.fractal(operand, src, source, place)

    def product(self, acc: int, a: int, b: int, *, add: bool = False) -> None:
        """Multiply operands into an accumulator, or add the product to it."""
        n = self.n
        op = self._once(
            ("mmad", acc, a, b, add),
            lambda: isa.mmad(self._acc[acc], self._a[a], self._b[b], n, n, n, init=not add),
        )
        old = (("acc", acc),) if add else ()
        self._add(op, Pipe.M, reads=(("a", a), ("b", b), *old), writes=(("acc", acc),))

    def keep(self, dst: isa.Tile, acc: int) -> None:
        """Round an accumulator to the element type and put it into a tile of L1."""
        op = self._once(("keep", dst, acc), lambda: isa.store_nz(dst, self._acc[acc], self.n, self.n))
        self._add(op, Pipe.FIX, reads=(("acc", acc),), writes=(dst,))

    def store(self, number: int, acc: int) -> None:
        """Store an accumulator to global memory."""
        self._add(Transfer(number, self._acc[acc]), Pipe.FIX, reads=(("acc", acc),))

    # ---- flags ---------------------------------------------------------------------------------------------

    def played(self) -> Played:
        """Return the chain with its flags.

        Raises `HazardError` where the chip has too few of them.
        """
        return Played(tuple(_Planner(self._c, self.n).plan(self._steps)))

    def _add(
        self,
        op: isa.Instruction | Transfer | None,
        pipe: Pipe,
        *,
        reads: tuple[Hashable, ...] = (),
        writes: tuple[Hashable, ...] = (),
    ) -> None:
        self._steps.append(_Step(op, _PIPES.index(pipe), reads, writes))

    def _once(self, key: Hashable, make: Callable[[], isa.Instruction]) -> isa.Instruction:
        op = self._made.get(key)
        if op is None:
            op = self._made[key] = make()
        return op

    def _fractals(self, blocks: Iterator[int] | range, size: int) -> Iterator[tuple[int, int]]:
        """Rows and columns of the fractals of diagonal blocks, the last one cut off at the edge."""
        width = size // FRACTAL
        for block in blocks:
            inside = range(block * width, min((block + 1) * width, self._f))
            yield from ((i, j) for i in inside for j in inside)

    def _extract(self, dst: isa.Tile, src: isa.Tile, i: int, j: int) -> isa.Instruction:
        left = dst.space is isa.Space.L0A
        place = i * self._f + j if self._by_rows or not left else j * self._f + i
        source = src.offset((j * self._f + i) * _BYTES)
        return isa.LoadData2D(dst=dst.offset(place * _BYTES), src=source, repeat=1, transpose=not left)


class _Planner:
    """Puts flags between the steps of a chain.

    Every pipe has a clock: how many steps of every pipe are known to be done where it stands. A wait joins
    clocks; an id is raised again only by a pipe whose clock has passed the wait before.
    """

    def __init__(self, c: Kernel, n: int) -> None:
        self._c = c
        self._ordered = ceil_div(n, FRACTAL) ** 2 >= c.chip.cube.interlock_fractals
        self._clock = [[0] * 4 for _ in _PIPES]
        self._seen: list[list[tuple[int, ...]]] = [[(0,) * 4] for _ in _PIPES]
        """Clock of each pipe behind each of its steps."""
        self._flags: dict[tuple[int, int], list[_Flag]] = defaultdict(list)
        self._written: dict[Hashable, tuple[int, int]] = {}
        self._read: dict[Hashable, dict[int, int]] = defaultdict(dict)

    def plan(self, steps: list[_Step]) -> list[isa.Instruction | Transfer]:
        before: list[list[isa.Instruction]] = []
        behind: list[list[isa.Instruction]] = [[] for _ in steps]
        place: list[list[int]] = [[-1] for _ in _PIPES]
        for position, step in enumerate(steps):
            q = step.pipe
            waits: list[isa.Instruction] = []
            for p, i in self._missing(step):
                at, event = self._event(p, i, q)
                behind[place[p][at]].append(event.set)
                waits.append(event.wait)
                self._join(q, self._seen[p][at])
            if self._must_wait_for_itself(step):
                waits.append(isa.PipeBarrier(on=_PIPES[q]))
            before.append(waits)
            self._note(step)
            place[q].append(position)
        items: list[isa.Instruction | Transfer] = []
        for step, waits, sets in zip(steps, before, behind, strict=True):
            items += waits
            if step.op is not None:
                items.append(step.op)
            items += sets
        return items

    def _missing(self, step: _Step) -> list[tuple[int, int]]:
        """Return the steps of other pipes that a step must still wait for, without those that follow."""
        q, clock = step.pipe, self._clock[step.pipe]
        needed: dict[int, int] = {}
        for name in (*step.reads, *step.writes):
            p, i = self._written.get(name, (q, 0))
            if p != q and i > clock[p]:
                needed[p] = max(needed.get(p, 0), i)
        for name in step.writes:
            for p, i in self._read[name].items():
                if p != q and i > clock[p]:
                    needed[p] = max(needed.get(p, 0), i)
        return [
            (p, i)
            for p, i in needed.items()
            if not any(o != p and self._seen[o][j][p] >= i for o, j in needed.items())
        ]

    def _must_wait_for_itself(self, step: _Step) -> bool:
        """Whether a step depends on one of its own pipe that the pipe does not keep in order."""
        pipe = _PIPES[step.pipe]
        if pipe is not Pipe.MTE2 and not (pipe is Pipe.M and not self._ordered):
            return False
        names = step.writes if step.op is not None else ()
        return any(self._written.get(name, (-1, 0))[0] == step.pipe and self._fresh(name) for name in names)

    def _fresh(self, name: Hashable) -> bool:
        """Whether nothing has read a buffer since it was written."""
        return not self._read[name]

    def _event(self, p: int, i: int, q: int) -> tuple[int, Event]:
        """Return a flag from p to q and the step of p behind which it is set: i, or later where no id is free
        by then.
        """
        flags, now = self._flags[p, q], len(self._seen[q])
        for at in range(i, len(self._seen[p])):
            for flag in flags:
                if self._seen[p][at][q] >= flag.waited:
                    flag.waited = now
                    return at, flag.event
            if self._c.events.peek(_PIPES[p], _PIPES[q]) is not None:
                flags.append(_Flag(self._c.flag(_PIPES[p], _PIPES[q]), now))
                return at, flags[-1].event
        raise HazardError(
            f"flags {_PIPES[p].name}->{_PIPES[q].name}: too few ids for a chain of products; use fewer "
            f"buffers"
        )

    def _join(self, q: int, seen: tuple[int, ...]) -> None:
        clock = self._clock[q]
        for p, count in enumerate(seen):
            if p != q and count > clock[p]:
                clock[p] = count

    def _note(self, step: _Step) -> None:
        q = step.pipe
        number = len(self._seen[q])
        self._clock[q][q] = number
        self._seen[q].append(tuple(self._clock[q]))
        for name in step.reads:
            self._read[name][q] = number
        for name in step.writes:
            self._written[name] = q, number
            self._read[name].clear()
