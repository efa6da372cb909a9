"""Last stage of the layer: O = exp(sum) Q S + (lower part of Q K^T with decay) V."""

from __future__ import annotations

from collections.abc import Iterator

from npusim import Kernel, Macro, Pipe, isa

from ._gdn import Layer, MixedStage
from ._gdn_cube import Products, load_matrix
from ._gdn_vector import Arrivals, Recipe, Spreader, load_numbers, plane

SCORES, GATED, LOCAL, DONE = 0, 1, 2, 3
"""Cross-core flags: both products of queries, scores with decay, scores times values, and the result."""
_REG = 1


class Output(MixedStage):
    """The cube multiplies queries by keys and by the state, vector cores put decay on the scores, the cube
    multiplies those by the new values, and the vector cores add what the state gives (chunk_o of
    megagdn-pto@3a59190). The vector cores work out the decay while the cube makes the scores.
    """

    name = "gdn_o"

    def __init__(self, layer: Layer) -> None:
        super().__init__(layer)
        shape = layer.shape
        self._scores = layer.exchange("scores", shape.chunk, shape.chunk)
        self._past = layer.exchange("past", shape.chunk, shape.dv)
        self._gated = layer.exchange("gated", shape.chunk, shape.chunk)
        self._local = layer.exchange("local", shape.chunk, shape.dv)

    def cube(self, c: Kernel) -> Iterator[isa.Instruction | Macro]:
        """Yield three products for every item."""
        layer, shape = self._layer, self._layer.shape
        chunk, dk, dv, heads, key_heads = shape.chunk, shape.dk, shape.dv, shape.heads, shape.key_heads
        queries, keys = c.l1((chunk, dk), layer.dtype), c.l1((chunk, dk), layer.dtype)
        state, values = c.l1((dk, dv), layer.dtype), c.l1((chunk, dv), layer.dtype)
        gated = c.l1((chunk, chunk), layer.dtype)
        products = Products(c, max(chunk, dk, dv), layer.dtype, self._products)
        items = layer.mine(c)
        for turn, item in enumerate(items):
            rows = item.chunk.rows
            if turn:
                yield isa.CrossCoreWaitFlag(group=isa.Group.CUBE_VECTOR, id=DONE)
            for tile, array in ((queries, layer.q), (keys, layer.k)):
                yield from load_matrix(tile, layer.at_key(array, item), rows, dk, key_heads * dk)
            yield from products.loaded()
            yield from load_matrix(state, layer.states[item.chunk.number][item.head], dk, dv)
            yield from products.loaded()
            yield from products.multiply(0, queries, keys, (chunk, dk, chunk), turn_right=True)
            yield from products.multiply(1, queries, state, (chunk, dk, dv))
            yield from products.store(self._scores[c.block][0], 0, chunk, chunk)
            yield from products.store(self._past[c.block][0], 1, chunk, dv)
            yield isa.CrossCoreSetFlag(group=isa.Group.CUBE_VECTOR, on=Pipe.FIX, id=SCORES)
            yield isa.CrossCoreWaitFlag(group=isa.Group.CUBE_VECTOR, id=GATED)
            yield from load_matrix(gated, self._gated[c.block][0], chunk, chunk)
            yield from load_matrix(values, layer.at_head(layer.fresh, item), rows, dv, heads * dv)
            yield from products.loaded()
            yield from products.multiply(0, gated, values, (chunk, chunk, dv))
            yield from products.store(self._local[c.block][0], 0, chunk, dv)
            yield isa.CrossCoreSetFlag(group=isa.Group.CUBE_VECTOR, on=Pipe.FIX, id=LOCAL)
        if items:
            yield isa.CrossCoreWaitFlag(group=isa.Group.CUBE_VECTOR, id=DONE)
        yield from products.stop()

    def vector(self, c: Kernel) -> Iterator[isa.Instruction | Macro]:
        """Yield half of the rows of every item."""
        layer, shape = self._layer, self._layer.shape
        chunk, half, dv = shape.chunk, shape.half, shape.dv
        first, size, width = c.core.number * half, half * chunk, half * dv
        causal, factor = c.ub((half, chunk), isa.F32), c.ub((half, chunk), isa.F32)
        scores, wide_scores = c.ub((half, chunk), layer.dtype), c.ub((half, max(chunk, dv)), isa.F32)
        past, wide_past = c.ub((half, dv), layer.dtype), c.ub((half, max(chunk, dv)), isa.F32)
        result = c.ub((half, dv), layer.dtype)
        sums, weight = c.ub((1, chunk), isa.F32), c.ub((1, half), isa.F32)
        recipe = Recipe(c, self._recipes[c.core.number])
        spread = Spreader(c, layer.down, layer.across, half, chunk)
        loaded, later, rounded = Arrivals(c), Arrivals(c), isa.RoundMode.RINT
        no_sums = recipe.cleared("sums", sums)

        def work_out_decay() -> None:
            rows = spread.across(recipe, sums.flat(first, half), wide_past, _REG)
            columns = spread.down(recipe, sums, factor)
            recipe.tiles(isa.Sub, half, chunk, factor, src0=rows, src1=columns)
            recipe.run(isa.Mins, size, dst=factor, src=factor, scalar=0.0)
            recipe.run(isa.Exp, size, dst=factor, src=factor)
            recipe.run(isa.Mul, size, dst=factor, src0=factor, src1=causal)
            recipe.run(isa.Exp, half, dst=weight, src=sums.flat(first, half))

        def apply_decay() -> None:
            mask = factor if layer.gate else causal
            recipe.run(isa.Cast, size, dst=wide_scores, src=scores)
            recipe.run(isa.Mul, size, dst=wide_scores, src0=wide_scores, src1=mask)
            recipe.run(isa.Cast, size, dst=scores, src=wide_scores, mode=rounded)

        def scale_past() -> None:
            recipe.run(isa.Cast, width, dst=wide_past, src=past)
            if layer.gate:
                rows = spread.across(recipe, weight, factor, _REG, dv)
                recipe.tiles(isa.Mul, half, dv, wide_past, src0=plane(wide_past), src1=rows)

        def add_both() -> None:
            recipe.run(isa.Cast, width, dst=wide_scores, src=result)
            recipe.run(isa.Add, width, dst=wide_past, src0=wide_past, src1=wide_scores)
            recipe.run(isa.Cast, width, dst=result, src=wide_past, mode=rounded)

        decay, apply = recipe.make("decay", work_out_decay), recipe.make("apply", apply_decay)
        scale, combine = recipe.make("scale", scale_past), recipe.make("combine", add_both)

        yield isa.copy_in(causal, layer.causal.flat(first * chunk, size))
        yield from loaded.wait()
        yield isa.PipeBarrier(on=Pipe.ALL)
        for item in layer.mine(c):
            mine = shape.rows_from(first, item.chunk)
            if layer.gate:
                yield from load_numbers(no_sums, sums, layer.by_head(layer.sums, item, 0, item.chunk.rows))
                yield from loaded.wait()
                yield decay
            yield isa.CrossCoreWaitFlag(group=isa.Group.CUBE_VECTOR, id=SCORES)
            yield isa.copy_in(scores, self._scores[c.block][0].flat(first * chunk, size))
            yield loaded.set
            yield isa.copy_in(past, self._past[c.block][0].flat(first * dv, width))
            yield later.set
            yield loaded.take
            yield apply
            yield isa.copy_out(self._gated[c.block][0].flat(first * chunk, size), scores)
            yield isa.CrossCoreSetFlag(group=isa.Group.CUBE_VECTOR, on=Pipe.MTE3, id=GATED)
            yield later.take
            yield scale
            yield isa.CrossCoreWaitFlag(group=isa.Group.CUBE_VECTOR, id=LOCAL)
            yield isa.copy_in(result, self._local[c.block][0].flat(first * dv, width))
            yield from loaded.wait()
            yield combine
            if mine:
                target = layer.at_head(layer.o, item, first)
                yield isa.copy_out(target, result[0:mine], pitch=shape.heads * dv)
            yield isa.CrossCoreSetFlag(group=isa.Group.CUBE_VECTOR, on=Pipe.MTE3, id=DONE)
