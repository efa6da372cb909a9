"""First stage of the layer: sums of gates inside chunks, and numbers by head instead of by token."""

from __future__ import annotations

from collections.abc import Iterator

from npusim import Kernel, Macro, Pipe, isa
from npusim.program.core import LaunchKind
from npusim.units import BLOCK_BYTES, align_up, ceil_div

from ._gdn import Layer, On, Steps
from ._gdn_vector import Arrivals, Recipe, load_rows
from ._kept import Kept

_ROWS = 16


class Prepare:
    """Vector cores take turns at chunks: running sums of the gates, row after row, for all heads at once, and
    transposes of sums and of beta, so that later stages load what belongs to a head in one run.
    """

    name = "gdn_prepare"
    on: On = "vector"

    def __init__(self, layer: Layer, per_cube: int) -> None:
        self._layer, self._per_cube = layer, per_cube
        self._recipes = Kept()

    def cube(self, c: Kernel) -> Iterator[isa.Instruction | Macro]:
        """Yield nothing: the cubes have no part in it."""
        yield from ()

    def vector(self, c: Kernel) -> Iterator[isa.Instruction | Macro]:
        """Yield the work of a vector core."""
        layer, shape = self._layer, self._layer.shape
        number = c.block if c.launch is LaunchKind.VECTOR else c.block * self._per_cube + c.core.number
        chunks = [chunk for mine in shape.sequences for chunk in mine]
        recipe, loaded = Recipe(c, self._recipes), Arrivals(c)
        turns = []
        if layer.gate:
            turns.append((_Turned(c, recipe, shape.chunk, shape.heads, isa.F32), layer.g, layer.sums))
        turns.append((_Turned(c, recipe, shape.chunk, shape.heads, isa.U16), layer.beta, layer.betas))
        for chunk in chunks[number :: layer.cores * self._per_cube]:
            for turned, source, target in turns:
                given, found = source.as_type(turned.dtype), target.as_type(turned.dtype)
                at = chunk.start * shape.heads
                yield from turned.load(given.flat(at, chunk.rows * shape.heads), chunk.rows)
                yield from loaded.wait()
                yield turned.recipe(chunk.rows)
                yield from turned.store(found.flat(chunk.start, 1), chunk.rows, shape.tokens)
            yield isa.PipeBarrier(on=Pipe.ALL)


class _Turned:
    """Numbers of a chunk, (tokens, heads) as loaded and (heads, tokens) as stored; floats are summed up."""

    def __init__(self, c: Kernel, recipe: Recipe, chunk: int, heads: int, dtype: isa.DType) -> None:
        self.dtype, self._chunk, self._heads, self._maker = dtype, chunk, heads, recipe
        self._lanes = BLOCK_BYTES // dtype.size
        self._width = align_up(heads, self._lanes)
        self._given = c.ub((chunk, self._width), dtype)
        self._found = c.ub((self._width, chunk), dtype)
        self._clear = recipe.cleared(dtype.short, self._given)

    def load(self, source: isa.Tile, rows: int) -> Steps:
        """Load the numbers of some tokens."""
        yield from load_rows(self._clear, self._given, source, rows, self._heads, self._heads)

    def recipe(self, rows: int) -> Macro:
        """Return what sums up so many rows and turns the tile."""

        def record() -> None:
            if self.dtype is isa.F32:
                for r in range(1, rows):
                    here = self._given[r]
                    self._maker.run(isa.Add, self._width, dst=here, src0=here, src1=self._given[r - 1])
            for block in range(self._width // self._lanes):
                self._maker.add(self._turn(block))

        return self._maker.make((self.dtype, rows), record)

    def _turn(self, block: int) -> isa.Instruction:
        """Turn what belongs to the heads of one block of 32 bytes, 16 tokens a repeat."""
        size, lanes = self.dtype.size, self._lanes
        start = self._given.address + block * BLOCK_BYTES
        source = tuple(start + r * self._width * size for r in range(_ROWS))
        target = []
        for lane in range(lanes):
            head = self._found.address + (block * lanes + lane) * self._chunk * size
            target += [head + part * BLOCK_BYTES for part in range(_ROWS // lanes)]
        return isa.TransDataTo5HD(
            dst=tuple(target),
            src=source,
            dtype=self.dtype,
            repeat=self._chunk // _ROWS,
            src_repeat=_ROWS * self._width * size // BLOCK_BYTES,
            dst_repeat=_ROWS // lanes,
        )

    def store(self, target: isa.Operand, rows: int, tokens: int) -> Steps:
        """Store the numbers of each head."""
        size = self.dtype.size
        used = ceil_div(rows * size, BLOCK_BYTES)
        yield isa.DataCopyPad(
            dst=target,
            src=self._found,
            block_count=self._heads,
            block_len=rows * size,
            src_gap=self._chunk * size // BLOCK_BYTES - used,
            dst_gap=(tokens - rows) * size,
        )
