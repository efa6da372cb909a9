"""What vector cores do in the scan programs: sum pieces, and add carries row by row or tile by tile.

All that a piece needs between its load and its store is a macro that is made once for every buffer: pieces
differ in their addresses in global memory only, and cores not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any

from npusim import Kernel, Macro, Pipe, Reg, isa
from npusim.isa.vector.forms import reduce_sum
from npusim.program.macro import Item

from ._counted import COUNTING, counted
from ._kept import Body, Kept

CARRY, TOTAL, PART = Reg(0), Reg(1), Reg(2)
"""Registers: the sum before what comes next, the sum of a core's own pieces, and the last value read."""

Steps = Iterator[Item]
Allocate = Callable[[int, isa.DType], isa.Tile]
"""Reserves so many elements of a type in the unified buffer."""


def carry_row(row: isa.Tile, count: int, counted: object) -> list[isa.Instruction]:
    """Add the carry to a row and read its last entry back as the next carry; the mask counts the row."""
    add = isa.contiguous(
        isa.Adds, count=count, state=isa.State(counter_mode=True, mask=count), dst=row, src=row, scalar=CARRY
    )
    last = isa.GetValue(reg=CARRY.index, src=row.flat(count - 1, 1))
    return [*add, counted.set, counted.wait, last]


def add_to(total: Reg, value: Reg, dtype: isa.DType) -> isa.Instruction:
    """Add one register to another."""
    return isa.ScalarAlu(op=isa.ScalarOp.ADD, reg=total.index, a=total, b=value, dtype=dtype)


def _read(reg: Reg, row: isa.Tile) -> isa.Instruction:
    """Read the last entry of a row."""
    return isa.GetValue(reg=reg.index, src=row.flat(row.size - 1, 1))


class Pieces:
    """Buffers of one vector core through which pieces of up to `size` sums pass: loaded into one, computed in
    another, stored from there. Two of each let a load and a store run beside the computation.

    Between `start` and `stop` the core is in counter mode. A body is what happens between load and store.
    """

    def __init__(
        self,
        c: Kernel,
        size: int,
        dtype: isa.DType,
        buffers: int,
        kept: Kept,
        ub: Allocate | None = None,
    ) -> None:
        """Reserve buffers and flags. `kept` has the bodies of all cores of a launch; `ub` reserves in
        place of the core.
        """
        ub = ub or c.ub
        self.dtype, self._kept = dtype, kept
        self.sources = [ub(size, dtype) for _ in range(buffers)]
        self.sums = [ub(size, dtype) for _ in range(buffers)]
        self.work = ub(max(8, size // 64), isa.F32)
        self.one = ub(8, dtype)
        self.counted, self._read = c.flag(Pipe.V, Pipe.S), c.flag(Pipe.S, Pipe.V)
        self._loaded = [c.flag(Pipe.MTE2, Pipe.V) for _ in range(buffers)]
        self._free = [c.flag(Pipe.V, Pipe.MTE2) for _ in range(buffers)]
        self._summed = [c.flag(Pipe.V, Pipe.MTE3) for _ in range(buffers)]
        self._stored = [c.flag(Pipe.MTE3, Pipe.V) for _ in range(buffers)]
        self._loads = 0

    def start(self) -> Steps:
        """Enter counter mode and give all buffers free."""
        yield isa.SetMaskCount()
        for event in (*self._free, *self._stored, self._read):
            yield event.set

    def stop(self) -> Steps:
        """Wait for what is still under way."""
        for event in (*self._free, *self._stored, self._read):
            yield event.wait

    def load(self, x: isa.Tile) -> Generator[Item, Any, int]:
        """Load elements, and return the number of the buffer that holds them."""
        slot = self._loads % len(self.sources)
        self._loads += 1
        yield self._free[slot].wait
        yield isa.copy_in(self.sources[slot].as_type(x.dtype).flat(0, x.size), x)
        yield self._loaded[slot].set
        return slot

    def load_short(self, x: isa.Tile, size: int) -> Generator[Item, Any, int]:
        """Load fewer elements than the `size` of a piece, and zeros behind them."""
        slot = self._loads % len(self.sources)
        self._loads += 1
        piece = self.sources[slot].as_type(x.dtype).flat(0, size)
        words, everything = piece.as_type(isa.U16), isa.PipeBarrier(on=Pipe.ALL)
        yield self._free[slot].wait
        yield everything
        yield isa.SetVectorMask(mask=words.size)
        yield isa.Duplicate(dst=words, scalar=0)
        yield everything
        pad = -x.nbytes % 32 // x.dtype.size
        yield isa.DataCopyPad(dst=piece, src=x, block_len=x.nbytes, right_pad=pad)
        yield self._loaded[slot].set
        return slot

    def store(self, slot: int, y: isa.Tile) -> Steps:
        """Store the first sums of a buffer, as many as `y` has room for."""
        yield self._summed[slot].wait
        if y.size:
            yield isa.copy_out(y, self.sums[slot].flat(0, y.size))
        yield self._stored[slot].set

    def add_to_rows(self, slot: int, count: int, s: int) -> Body:
        """Return the body that adds the carry to each row of s, and makes its last entry the next carry.

        The read-back stops the scalar unit, which issues everything else, so no load is issued meanwhile.
        """
        return self._once(self._add_to_rows, slot, count, s)

    def add_to_row_pairs(self, slot: int, count: int, s: int) -> Body:
        """Return the body of `add_to_rows` that takes two rows at a time.

        The carry of the second row of a pair is the last local sum of the first plus that row's carry, made
        on the scalar unit; so one read-back serves two additions (`run_scan_batch` of the authors' code).
        """
        return self._once(self._add_to_row_pairs, slot, count, s)

    def add_to_tile(self, slot: int, count: int, last: bool) -> Body:
        """Return the body that adds the carry to a piece of a tile; behind the last piece of a tile its last
        entry becomes the next carry.
        """
        return self._once(self._add_to_tile, slot, count, last)

    def sum_up(self, slot: int, count: int, x: isa.DType) -> Body:
        """Return the body that adds the sum of a loaded piece of type `x` to `TOTAL`; nothing is stored.

        Halves are widened and summed by trees; bytes go to int32 by way of halves, and halves of the piece
        are added until one block is left, whose eight entries the scalar unit adds.
        """
        return self._once(self._sum_up, slot, count, x)

    def _once(self, make: Callable[..., Body], *which: object) -> Body:
        return self._kept.again((make.__name__, *which), lambda: make(*which))

    def _ready(self, slot: int, read_back: bool) -> list[isa.Instruction]:
        """Return the waits for a loaded piece and for room; where sums are read back, for the read-back
        before, too.
        """
        waits = [self._loaded[slot].wait, self._stored[slot].wait]
        return [*waits, self._read.wait] if read_back else waits

    def _copy(self, slot: int, count: int) -> list[isa.Instruction]:
        """Return what moves a loaded piece to where it is computed and stored."""
        source, sums = self.sources[slot], self.sums[slot]
        return [
            *counted(isa.Copy, count, dst=sums, src=source),
            self._free[slot].set,
            isa.PipeBarrier(on=Pipe.V),
        ]

    def _add_to_rows(self, slot: int, count: int, s: int) -> Body:
        sums = self.sums[slot]
        body = [*self._copy(slot, count), isa.SetVectorMask(mask=s)]
        rows, rest = divmod(count, s)
        for row in range(rows):
            body += carry_row(sums.flat(row * s, s), s, self.counted)
        if rest:
            body.append(isa.SetVectorMask(mask=rest))
            body += carry_row(sums.flat(rows * s, rest), rest, self.counted)
        body += [self._read.set, self._summed[slot].set]
        return (*self._ready(slot, True), Macro(body))

    def _add_to_row_pairs(self, slot: int, count: int, s: int) -> Body:
        sums = self.sums[slot]
        rows = [sums.flat(start, min(s, count - start)) for start in range(0, count, s)]
        pairs = [rows[i : i + 2] for i in range(0, len(rows), 2)]
        counted = [self.counted.set, self.counted.wait]
        body = self._copy(slot, count)
        if len(rows) > 1:
            body += [*counted, _read(PART, rows[0]), self._read.set, self._read.wait]
        mask = 0
        for pair, following in zip(pairs, [*pairs[1:], []], strict=True):
            if len(pair) == 2:
                add = isa.ScalarAlu(op=isa.ScalarOp.ADD, reg=TOTAL.index, a=PART, b=CARRY, dtype=self.dtype)
                body.append(add)
            for row, carry in zip(pair, (CARRY, TOTAL), strict=False):
                if row.size != mask:
                    mask = row.size
                    body.append(isa.SetVectorMask(mask=mask))
                state = isa.State(counter_mode=True, mask=mask)
                body += isa.contiguous(isa.Adds, count=mask, state=state, dst=row, src=row, scalar=carry)
            body += counted
            if len(following) == 2:  # before the carry, which orders this read before the addition
                body.append(_read(PART, following[0]))
            body.append(_read(CARRY, pair[-1]))
        body += [self._read.set, self._summed[slot].set]
        return (*self._ready(slot, True), Macro(body))

    def _add_to_tile(self, slot: int, count: int, last: bool) -> Body:
        sums = self.sums[slot]
        add = counted(isa.Adds, count, dst=sums, src=sums, scalar=CARRY)
        body = [*self._copy(slot, count), *add]
        if last:
            body += [self.counted.set, self.counted.wait]
            body += [isa.GetValue(reg=CARRY.index, src=sums.flat(count - 1, 1)), self._read.set]
        return (*self._ready(slot, last), Macro([*body, self._summed[slot].set]))

    def _sum_up(self, slot: int, count: int, x: isa.DType) -> Body:
        source, sums = self.sources[slot], self.sums[slot]
        given = source.as_type(x)
        body: list[isa.Instruction] = []
        barrier = isa.PipeBarrier(on=Pipe.V)
        if x is isa.F16:
            body += counted(isa.Cast, count, dst=sums, src=given)
            body += [self._free[slot].set, barrier]
            body += reduce_sum(self.one, sums, self.work, count=count, state=COUNTING)
            entries = 1
        else:
            halves = sums.as_type(isa.F16)
            body += counted(isa.Cast, count, dst=halves, src=given)
            body.append(barrier)
            body += isa.contiguous(
                isa.Cast,
                count=count,
                state=isa.State(counter_mode=True, mask=count),
                dst=source,
                src=halves,
                mode=isa.RoundMode.RINT,
            )
            entries = 8
            while count > 2 * entries:
                count //= 2
                body.append(barrier)
                body += isa.contiguous(
                    isa.Add,
                    count=count,
                    state=COUNTING,
                    dst=source,
                    src0=source,
                    src1=source.flat(count, count),
                )
            body.append(barrier)
            body += isa.contiguous(
                isa.Add,
                count=entries,
                state=COUNTING,
                dst=self.one,
                src0=source,
                src1=source.flat(entries, entries),
            )
            body.append(self._free[slot].set)
        body += [self.counted.set, self.counted.wait]
        for entry in range(entries):
            body.append(isa.GetValue(reg=PART.index, src=self.one.flat(entry, 1)))
            body.append(add_to(TOTAL, PART, self.dtype))
        return (self._loaded[slot].wait, self._read.wait, Macro([*body, self._read.set]))
