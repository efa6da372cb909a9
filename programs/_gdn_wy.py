"""Fourth stage of the layer: W = T diag(beta exp(sum)) K and U = T diag(beta) V."""

from __future__ import annotations

from collections.abc import Iterator

from npusim import Kernel, Macro, Pipe, isa

from ._gdn import Layer, MixedStage, Steps
from ._gdn_cube import Products, load_matrix
from ._gdn_vector import Arrivals, Recipe, Spreader, load_numbers, load_rows, plane

VALUES, KEYS, VALUES_FREE, KEYS_FREE = 0, 1, 2, 3
"""Cross-core flags: factors of values and of keys are there, and may be overwritten."""


class Weighted(MixedStage):
    """Vector cores scale the columns of the inverse for values and for keys; the cube multiplies by them.

    Each of the two factors has one place in global memory, so that a core scales one while the cube works
    with the other, as in the published kernel (wy_fast of megagdn-pto@3a59190).
    """

    name = "gdn_wy"

    def __init__(self, layer: Layer) -> None:
        super().__init__(layer)
        chunk = layer.shape.chunk
        self._factors = layer.exchange("factors", chunk, chunk, slots=2)

    def cube(self, c: Kernel) -> Iterator[isa.Instruction | Macro]:
        """Yield two products for every item."""
        layer, shape = self._layer, self._layer.shape
        chunk, dk, dv, heads = shape.chunk, shape.dk, shape.dv, shape.heads
        keys, values = c.l1((chunk, dk), layer.dtype), c.l1((chunk, dv), layer.dtype)
        factors = [c.l1((chunk, chunk), layer.dtype) for _ in range(2)]
        products = Products(c, max(chunk, dk, dv), layer.dtype, self._products)
        ways = (
            (VALUES, VALUES_FREE, values, dv, layer.u),
            (KEYS, KEYS_FREE, keys, dk, layer.w),
        )
        for item in layer.mine(c):
            rows = item.chunk.rows
            source = layer.at_key(layer.k, item)
            yield from load_matrix(keys, source, rows, dk, shape.key_heads * dk)
            yield from load_matrix(values, layer.at_head(layer.v, item), rows, dv, heads * dv)
            for number, (ready, free, right, width, target) in enumerate(ways):
                yield isa.CrossCoreWaitFlag(group=isa.Group.CUBE_VECTOR, id=ready)
                left = factors[number]
                yield from load_matrix(left, self._factors[c.block][number], chunk, chunk)
                yield from products.loaded()
                yield from products.multiply(number, left, right, (chunk, chunk, width))
                place = layer.at_head(target, item)
                yield from products.store(place, number, chunk, width, rows=rows, pitch=heads * width)
                yield isa.CrossCoreSetFlag(group=isa.Group.CUBE_VECTOR, on=Pipe.FIX, id=free)
        yield from products.stop()

    def vector(self, c: Kernel) -> Iterator[isa.Instruction | Macro]:
        """Yield half of the rows of both factors for every item."""
        layer, shape = self._layer, self._layer.shape
        chunk, half = shape.chunk, shape.half
        first = c.core.number * half
        inverse, scaled = c.ub((half, chunk), layer.dtype), c.ub((half, chunk), layer.dtype)
        wide, other, room = (c.ub((half, chunk), isa.F32) for _ in range(3))
        beta, weight = c.ub((1, chunk), layer.dtype), c.ub((1, chunk), isa.F32)
        sums = c.ub((1, chunk), isa.F32)
        recipe = Recipe(c, self._recipes[c.core.number])
        spread = Spreader(c, layer.down, layer.across, half, chunk)
        loaded = Arrivals(c)
        everything = isa.PipeBarrier(on=Pipe.ALL)
        no_rows, no_beta, no_sums = (
            recipe.cleared(name, tile) for name, tile in (("rows", inverse), ("beta", beta), ("sums", sums))
        )
        narrow, size = isa.RoundMode.RINT, half * chunk

        def scale_for_values() -> None:
            recipe.run(isa.Cast, chunk, dst=weight, src=beta)
            columns = spread.down(recipe, weight, room)
            recipe.run(isa.Cast, size, dst=wide, src=inverse)
            recipe.tiles(isa.Mul, half, chunk, other, src0=plane(wide), src1=columns)
            recipe.run(isa.Cast, size, dst=scaled, src=other, mode=narrow)

        def scale_for_keys() -> None:
            recipe.run(isa.Exp, chunk, dst=sums, src=sums)
            recipe.run(isa.Mul, chunk, dst=sums, src0=sums, src1=weight)
            columns = spread.down(recipe, sums, room)
            recipe.tiles(isa.Mul, half, chunk, wide, src0=plane(wide), src1=columns)
            recipe.run(isa.Cast, size, dst=scaled, src=wide, mode=narrow)

        for_values, for_keys = recipe.make("values", scale_for_values), recipe.make("keys", scale_for_keys)

        def hand_over(number: int, ready: int, free: int, turn: int) -> Steps:
            if turn:
                yield isa.CrossCoreWaitFlag(group=isa.Group.CUBE_VECTOR, id=free)
            yield isa.copy_out(self._factors[c.block][number].flat(first * chunk, size), scaled)
            yield everything
            yield isa.CrossCoreSetFlag(group=isa.Group.CUBE_VECTOR, on=Pipe.MTE3, id=ready)

        items = layer.mine(c)
        for turn, item in enumerate(items):
            rows = item.chunk.rows
            yield from load_numbers(no_beta, beta, layer.by_head(layer.betas, item, 0, rows))
            mine = shape.rows_from(first, item.chunk)
            source = layer.at_head(layer.t, item, first if mine else 0)
            yield from load_rows(no_rows, inverse, source, mine, rows, shape.heads * chunk)
            yield from loaded.wait()
            yield for_values
            yield from hand_over(0, VALUES, VALUES_FREE, turn)
            if layer.gate:
                yield from load_numbers(no_sums, sums, layer.by_head(layer.sums, item, 0, rows))
                yield from loaded.wait()
                yield for_keys
            yield from hand_over(1, KEYS, KEYS_FREE, turn)
        if items:
            for free in (VALUES_FREE, KEYS_FREE):
                yield isa.CrossCoreWaitFlag(group=isa.Group.CUBE_VECTOR, id=free)
