"""Fifth stage of the layer: the state from chunk to chunk, and the values less what it knew already."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from npusim import Kernel, Macro, Pipe, isa

from ._gdn import Item, Layer, MixedStage, Steps
from ._gdn_cube import Products, load_matrix
from ._gdn_vector import Arrivals, Recipe, Spreader, load_numbers, load_rows, plane

STATE, KNOWN, SCALED, UPDATE = 0, 1, 2, 3
"""Cross-core flags: the state is there, W S, K scaled and new values, and what is added to the state."""
_LAST, _REG = 1, 2


class Recurrence(MixedStage):
    """One core follows one head of a sequence at a time; every step of a chunk waits for the one before.

    Vector cores keep half of the rows of the state each, in float32. Chunk by chunk the cube multiplies W by
    the state, the vector cores subtract that from U and scale the keys by exp(last sum - sum), the cube
    multiplies keys by new values, and the vector cores add it to the state times exp(last sum); everything
    passes through global memory (chunk_h of megagdn-pto@3a59190). The state that a chunk starts from stays
    there for the last stage, and the cube takes it from there, too.
    """

    name = "gdn_h"

    def __init__(self, layer: Layer) -> None:
        super().__init__(layer)
        shape = layer.shape
        self._known = layer.exchange("known", shape.chunk, shape.dv)
        self._scaled = layer.exchange("scaled", shape.chunk, shape.dk)
        self._update = layer.exchange("update", shape.dk, shape.dv)

    def work(self, c: Kernel) -> list[tuple[int, list[Item]]]:
        """Return the sequences and heads of a core, each with its chunks."""
        shape = self._layer.shape
        pairs = [(s, head) for s in range(len(shape.lengths)) for head in range(shape.heads)]
        return [
            (s, [Item(chunk, head) for chunk in shape.sequences[s]])
            for s, head in pairs[c.block :: self._layer.cores]
        ]

    def state(self, item: Item) -> isa.Tile:
        """Return where the state that a chunk starts from lies."""
        return self._layer.states[item.chunk.number][item.head]

    def cube(self, c: Kernel) -> Iterator[isa.Instruction | Macro]:
        """Yield two products for every chunk."""
        layer, shape = self._layer, self._layer.shape
        chunk, dk, dv, heads = shape.chunk, shape.dk, shape.dv, shape.heads
        state, weights = c.l1((dk, dv), layer.dtype), c.l1((chunk, dk), layer.dtype)
        keys, values = c.l1((chunk, dk), layer.dtype), c.l1((chunk, dv), layer.dtype)
        products = Products(c, max(chunk, dk, dv), layer.dtype, self._products)
        for _, items in self.work(c):
            for item in items:
                rows = item.chunk.rows
                yield isa.CrossCoreWaitFlag(group=isa.Group.CUBE_VECTOR, id=STATE)
                yield from load_matrix(state, self.state(item), dk, dv)
                yield from load_matrix(weights, layer.at_head(layer.w, item), rows, dk, heads * dk)
                yield from products.loaded()
                yield from products.multiply(0, weights, state, (chunk, dk, dv))
                yield from products.store(self._known[c.block][0], 0, chunk, dv)
                yield isa.CrossCoreSetFlag(group=isa.Group.CUBE_VECTOR, on=Pipe.FIX, id=KNOWN)
                yield isa.CrossCoreWaitFlag(group=isa.Group.CUBE_VECTOR, id=SCALED)
                yield from load_matrix(keys, self._scaled[c.block][0], chunk, dk)
                yield from load_matrix(values, layer.at_head(layer.fresh, item), rows, dv, heads * dv)
                yield from products.loaded()
                yield from products.multiply(1, keys, values, (dk, chunk, dv), turn_left=True)
                yield from products.store(self._update[c.block][0], 1, dk, dv)
                yield isa.CrossCoreSetFlag(group=isa.Group.CUBE_VECTOR, on=Pipe.FIX, id=UPDATE)
        yield from products.stop()

    def vector(self, c: Kernel) -> Iterator[isa.Instruction | Macro]:
        """Yield half of the state, and of the rows of every chunk."""
        layer, shape = self._layer, self._layer.shape
        chunk, half, dk, dv, heads = shape.chunk, shape.half, shape.dk, shape.dv, shape.heads
        first, part = c.core.number * half, dk // 2
        size, keys_size, values_size = part * dv, half * dk, half * dv
        state, narrow_state = c.ub((part, dv), isa.F32), c.ub((part, dv), layer.dtype)
        keys, wide_keys = c.ub((half, dk), layer.dtype), c.ub((half, dk), isa.F32)
        values, wide_values = c.ub((half, dv), layer.dtype), c.ub((half, dv), isa.F32)
        room = c.ub((max(half, part), max(dk, dv)), isa.F32)
        sums, decay = c.ub((1, chunk), isa.F32), c.ub((1, half), isa.F32)
        recipe = Recipe(c, self._recipes[c.core.number])
        spread = Spreader(c, layer.down, layer.across, half, dk)
        loaded, rounded = Arrivals(c), isa.RoundMode.RINT
        keys_loaded, stored = Arrivals(c), c.flag(Pipe.MTE3, Pipe.S)
        no_keys, no_values, no_sums = (
            recipe.cleared(name, tile) for name, tile in (("keys", keys), ("values", values), ("sums", sums))
        )

        def clear_state() -> None:
            recipe.run(isa.Duplicate, size, dst=state, scalar=0.0)
            recipe.run(isa.Cast, size, dst=narrow_state, src=state, mode=rounded)

        def scale_keys(rows: int) -> None:
            recipe.run(isa.Cast, keys_size, dst=wide_keys, src=keys)
            if layer.gate:
                recipe.read(_LAST, sums.flat(rows - 1, 1))
                recipe.run(isa.Muls, half, dst=decay, src=sums.flat(first, half), scalar=-1.0)
                recipe.run(isa.Adds, half, dst=decay, src=decay, scalar=isa.Reg(_LAST))
                recipe.run(isa.Exp, half, dst=decay, src=decay)
                recipe.run(isa.Exp, chunk, dst=sums, src=sums)
                rows_of = spread.across(recipe, decay, room, _REG)
                recipe.tiles(isa.Mul, half, dk, wide_keys, src0=plane(wide_keys), src1=rows_of)

        def shrink_state(rows: int) -> None:
            recipe.read(_LAST, sums.flat(rows - 1, 1))
            recipe.run(isa.Muls, size, dst=state, src=state, scalar=isa.Reg(_LAST))

        def subtract_known() -> None:  # room takes what came from the cube, widened
            recipe.run(isa.Cast, values_size, dst=room, src=values)
            recipe.run(isa.Sub, values_size, dst=wide_values, src0=wide_values, src1=room)
            recipe.run(isa.Cast, values_size, dst=values, src=wide_values, mode=rounded)
            recipe.run(isa.Cast, keys_size, dst=keys, src=wide_keys, mode=rounded)

        def add_update() -> None:
            recipe.run(isa.Cast, size, dst=room, src=narrow_state)
            recipe.run(isa.Add, size, dst=state, src0=state, src1=room)
            recipe.run(isa.Cast, size, dst=narrow_state, src=state, mode=rounded)

        def widen_values() -> None:
            recipe.run(isa.Cast, values_size, dst=wide_values, src=values)

        begin, widen = recipe.make("begin", clear_state), recipe.make("widen", widen_values)
        subtract, add = recipe.make("subtract", subtract_known), recipe.make("add", add_update)

        def load_keys(item: Item) -> Steps:
            """Load half of the keys of a chunk, and its sums."""
            mine = shape.rows_from(first, item.chunk)
            source = layer.at_key(layer.k, item, first if mine else 0)
            yield from load_rows(no_keys, keys, source, mine, dk, shape.key_heads * dk)
            if layer.gate:
                yield from load_numbers(no_sums, sums, layer.by_head(layer.sums, item, 0, item.chunk.rows))
            yield keys_loaded.set

        for sequence, items in self.work(c):
            yield begin
            yield from load_keys(items[0])
            for turn, item in enumerate(items):
                rows = item.chunk.rows
                mine = shape.rows_from(first, item.chunk)
                row = first if mine else 0
                yield isa.copy_out(self.state(item).flat(c.core.number * size, size), narrow_state)
                yield isa.CrossCoreSetFlag(group=isa.Group.CUBE_VECTOR, on=Pipe.MTE3, id=STATE)
                source = layer.at_head(layer.u, item, row)
                yield from load_rows(no_values, values, source, mine, dv, heads * dv)
                yield loaded.set
                yield keys_loaded.take
                yield recipe.make(("scale", rows), partial(scale_keys, rows))
                yield loaded.take
                yield widen
                yield isa.CrossCoreWaitFlag(group=isa.Group.CUBE_VECTOR, id=KNOWN)
                yield isa.copy_in(values, self._known[c.block][0].flat(first * dv, values_size))
                yield from loaded.wait()
                yield subtract
                if mine:
                    target = layer.at_head(layer.fresh, item, first)
                    yield isa.copy_out(target, values[0:mine], pitch=heads * dv)
                yield isa.copy_out(self._scaled[c.block][0].flat(first * dk, keys_size), keys)
                yield isa.CrossCoreSetFlag(group=isa.Group.CUBE_VECTOR, on=Pipe.MTE3, id=SCALED)
                yield stored.set
                yield stored.wait
                if layer.gate:
                    yield recipe.make(("shrink", rows), partial(shrink_state, rows))
                if turn + 1 < len(items):
                    yield from load_keys(items[turn + 1])
                yield isa.CrossCoreWaitFlag(group=isa.Group.CUBE_VECTOR, id=UPDATE)
                source = self._update[c.block][0].flat(c.core.number * size, size)
                yield isa.copy_in(narrow_state, source)
                yield from loaded.wait()
                yield add
            final = layer.final[sequence][items[0].head].flat(c.core.number * size, size)
            yield isa.copy_out(final, narrow_state)
            yield stored.set
            yield stored.wait
