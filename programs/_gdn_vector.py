"""What vector cores do with tiles in the stages of the layer: recipes of dependent instructions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from npusim import Kernel, Macro, Pipe, isa
from npusim.isa.vector.lanes import VectorInstruction
from npusim.units import BLOCK_BYTES, ceil_div

from ._counted import LANES
from ._gdn import Across, Down, Steps
from ._kept import Kept


class Spread(NamedTuple):
    """A float operand of an operation on a tile, by how a repeat and the next one walk it."""

    tile: isa.Tile
    block: int
    repeat: int | None
    """Blocks from one row to the next; None for rows that lie as in the result."""


def plane(tile: isa.Tile) -> Spread:
    """Take a tile as it is."""
    return Spread(tile, 1, None)


def row(tile: isa.Tile) -> Spread:
    """Take one row for all rows of the tile."""
    return Spread(tile, 1, 0)


def column(blocks: isa.Tile) -> Spread:
    """Take one number for every row; `blocks` holds it eight times (Brcb)."""
    return Spread(blocks, 0, 1)


class Recipe:
    """Records vector instructions that depend on each other, each with its mode and mask.

    What has been recorded becomes one macro, behind which the scalar unit waits for the vector unit, so that
    whatever it issues next follows. `kept` has the macros, by name, of all cores that reserve alike.
    """

    def __init__(self, c: Kernel, kept: Kept) -> None:
        self._kept = kept
        self._ops: list[isa.Instruction] = []
        self._mode: tuple[bool, int] | None = None
        self.done, self.go = c.flag(Pipe.V, Pipe.S), c.flag(Pipe.S, Pipe.V)

    def run(self, cls: type[VectorInstruction], count: int, **operands: Any) -> None:
        """Run an instruction on the first `count` elements of dense operands."""
        self._enter(True, count)
        state = isa.State(counter_mode=True, mask=count)
        self._ops += isa.contiguous(cls, count=count, state=state, **operands)
        self.barrier()

    def tiles(
        self, cls: type[VectorInstruction], rows: int, columns: int, dst: isa.Tile, **sources: Spread
    ) -> None:
        """Run an instruction on float tiles of rows x columns, a repeat for each row of up to 64 columns."""
        width = min(LANES, columns)
        self._enter(False, (1 << width) - 1)
        pitch = columns * 4 // BLOCK_BYTES
        for first in range(0, columns, width):
            fields: dict[str, Any] = {"dst": dst.offset(first * 4), "dst_repeat": pitch}
            for name, (tile, block, repeat) in sources.items():
                fields[name] = tile.offset(first * 4) if block else tile
                fields[f"{name}_block"] = block
                fields[f"{name}_repeat"] = pitch if repeat is None else repeat
            self._ops.append(cls(repeat=rows, **fields))
        self.barrier()

    def blocks(self, dst: isa.Tile, src: isa.Tile, rows: int) -> None:
        """Spread each of `rows` numbers over a block, for `column`."""
        self._ops.append(isa.Brcb(dst=dst, src=src, repeat=ceil_div(rows, 8)))
        self.barrier()

    def copies(self, dst: isa.Tile, src: isa.Tile, rows: int, columns: int) -> None:
        """Copy a row of numbers into all rows of a tile, one instruction a row."""
        self._enter(True, columns)
        state = isa.State(counter_mode=True, mask=columns)
        for r in range(rows):
            self._ops += isa.contiguous(
                isa.Copy, count=columns, state=state, dst=dst.flat(r * columns, columns), src=src
            )
        self.barrier()

    def scalars(self, dst: isa.Tile, src: isa.Tile, rows: int, columns: int, reg: int) -> None:
        """Fill each row of a tile with a number of its own, which the scalar unit reads back for it."""
        self._enter(True, columns)
        state = isa.State(counter_mode=True, mask=columns)
        value = isa.Reg(reg)
        for r in range(rows):
            self.wait()
            self._ops += [isa.GetValue(reg=reg, src=src.flat(r, 1)), self.go.set, self.go.wait]
            self._ops += isa.contiguous(
                isa.Duplicate, count=columns, state=state, dst=dst.flat(r * columns, columns), scalar=value
            )
        self.barrier()

    def add(self, op: isa.Instruction) -> None:
        """Record an instruction that neither mode nor mask has an effect on."""
        self._ops.append(op)
        self.barrier()

    def read(self, reg: int, src: isa.Tile) -> None:
        """Let the scalar unit read a number back, for instructions that follow."""
        self.wait()
        self._ops += [isa.GetValue(reg=reg, src=src), self.go.set, self.go.wait]

    def wait(self) -> None:
        """Let the scalar unit wait for the vector unit."""
        self._ops += [self.done.set, self.done.wait]

    def barrier(self) -> None:
        """Keep what follows behind what was recorded."""
        self._ops.append(isa.PipeBarrier(on=Pipe.V))

    def make(self, name: object, record: Callable[[], None]) -> Macro:
        """Return the macro of a name; `record` records what it does, where no core did so before."""
        return self._kept.macro(name, lambda: self._recorded(record))

    def _recorded(self, record: Callable[[], None]) -> list[isa.Instruction]:
        record()
        self.wait()
        ops, self._ops, self._mode = self._ops, [], None
        return ops

    def cleared(self, name: str, tile: isa.Tile) -> Macro:
        """Return the macro that fills a tile with zeros."""
        words = tile.as_type(isa.U16)
        return self.make(("clear", name), lambda: self.run(isa.Duplicate, words.size, dst=words, scalar=0))

    def _enter(self, counter: bool, mask: int) -> None:
        if self._mode == (counter, mask):
            return
        if self._mode is None or self._mode[0] is not counter:
            self._ops.append(isa.SetMaskCount() if counter else isa.SetMaskNorm())
        self._ops.append(isa.SetVectorMask(mask=mask))
        self._mode = counter, mask


class Spreader:
    """How a vector core spreads a row over rows, and a column over columns.

    `down=copies` copies the row into every row, as the library behind the published kernels does (facts on
    pto-isa); `strides` reads the same row again in every repeat. `across=blocks` spreads numbers over blocks
    and reads a block again for each block of the row; `scalar` reads each number back and fills a row with
    it, as that library does.
    """

    def __init__(self, c: Kernel, down: Down, across: Across, rows: int, columns: int) -> None:
        self._down, self._across = down, across
        self._rows, self._columns = rows, columns
        self._blocks = c.ub((rows, 8), isa.F32)

    def down(self, r: Recipe, src: isa.Tile, room: isa.Tile, columns: int = 0) -> Spread:
        """Spread a row over all rows; `room` is a tile that copies may take."""
        if self._down == "strides":
            return row(src)
        r.copies(room, src, self._rows, columns or self._columns)
        return plane(room)

    def across(self, r: Recipe, src: isa.Tile, room: isa.Tile, reg: int, columns: int = 0) -> Spread:
        """Spread a number over each row; `room` is a tile that rows may take."""
        if self._across == "blocks":
            r.blocks(self._blocks, src, self._rows)
        else:
            r.scalars(room, src, self._rows, columns or self._columns, reg)
        return self.across_again(room)

    def across_again(self, room: isa.Tile) -> Spread:
        """Return what was spread last, with the same room."""
        return column(self._blocks) if self._across == "blocks" else plane(room)


class Arrivals:
    """A flag that the vector unit waits for until loads into the unified buffer have arrived."""

    def __init__(self, c: Kernel) -> None:
        event = c.flag(Pipe.MTE2, Pipe.V)
        self.set, self.take = event.set, event.wait

    def wait(self) -> Steps:
        """Let the vector unit wait for everything that was loaded."""
        yield self.set
        yield self.take


def load_rows(clear: Macro, dst: isa.Tile, src: isa.Operand, rows: int, columns: int, pitch: int) -> Steps:
    """Load the first rows x columns of a tile from rows that lie `pitch` elements apart, zeros elsewhere.

    `clear` is a recipe that fills the tile with zeros; nothing may read the tile any more.
    """
    whole = dst.shape
    if (rows, columns) == whole:
        yield isa.copy_in(dst, src, pitch=None if pitch == columns else pitch)
        return
    yield clear
    if rows:
        size = dst.dtype.size
        used = columns * size
        yield isa.DataCopyPad(
            dst=dst,
            src=src,
            block_count=rows,
            block_len=used,
            src_gap=(pitch - columns) * size,
            dst_gap=(whole[1] * size - ceil_div(used, BLOCK_BYTES) * BLOCK_BYTES) // BLOCK_BYTES,
            right_pad=-used % BLOCK_BYTES // size,
        )


def load_numbers(clear: Macro, dst: isa.Tile, src: isa.Tile) -> Steps:
    """Load all of `src`, which may be empty, into the first numbers of a row, and zeros behind them.

    `clear` as for `load_rows`.
    """
    yield from load_rows(clear, dst, src, min(1, src.size), src.size, src.size)
