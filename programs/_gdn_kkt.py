"""Second stage of the layer: A = strict lower part of beta K K^T with decay."""

from __future__ import annotations

from collections.abc import Iterator

from npusim import Kernel, Macro, Pipe, isa

from ._gdn import Layer, MixedStage, not_awaited
from ._gdn_cube import Products, load_matrix
from ._gdn_vector import Arrivals, Recipe, Spreader, load_numbers, plane

READY, TAKEN = 0, 2
"""Cross-core flags of the first of two slots."""
_REG = 1


class KeyProducts(MixedStage):
    """The cube multiplies keys by keys; vector cores by beta_i exp(sum_i - sum_j) below the diagonal.

    A product passes through one of two slots in global memory, and half of its rows go to each vector core,
    as in the published kernel (scaled_dot_kkt of megagdn-pto@3a59190). The factor is
    exp(min(sum_i + ln beta_i - sum_j, 0)), which does not overflow above the diagonal.
    """

    name = "gdn_kkt"

    def __init__(self, layer: Layer) -> None:
        super().__init__(layer)
        chunk = layer.shape.chunk
        self._slots = layer.exchange("products", chunk, chunk, slots=2)

    def cube(self, c: Kernel) -> Iterator[isa.Instruction | Macro]:
        """Yield the products of a core's items."""
        layer, shape = self._layer, self._layer.shape
        chunk, dk = shape.chunk, shape.dk
        keys = c.l1((chunk, dk), layer.dtype)
        products = Products(c, max(chunk, dk), layer.dtype, self._products)
        items = layer.mine(c)
        for turn, item in enumerate(items):
            slot = turn % 2
            if turn >= 2:
                yield isa.CrossCoreWaitFlag(group=isa.Group.CUBE_VECTOR, id=TAKEN + slot)
            source = layer.at_key(layer.k, item)
            yield from load_matrix(keys, source, item.chunk.rows, dk, shape.key_heads * dk)
            yield from products.loaded()
            yield from products.multiply(0, keys, keys, (chunk, dk, chunk), turn_right=True)
            yield from products.store(self._slots[c.block][slot], 0, chunk, chunk)
            yield isa.CrossCoreSetFlag(group=isa.Group.CUBE_VECTOR, on=Pipe.FIX, id=READY + slot)
        for turn in not_awaited(len(items), 2):
            yield isa.CrossCoreWaitFlag(group=isa.Group.CUBE_VECTOR, id=TAKEN + turn % 2)
        yield from products.stop()

    def vector(self, c: Kernel) -> Iterator[isa.Instruction | Macro]:
        """Yield the factors, and the half of every product that a vector core has."""
        layer, shape = self._layer, self._layer.shape
        chunk, half = shape.chunk, shape.half
        first = c.core.number * half
        narrow, wide, factor, lower = (
            c.ub((half, chunk), dtype) for dtype in (layer.dtype, isa.F32, isa.F32, isa.F32)
        )
        room, sums = c.ub((half, chunk), isa.F32), c.ub((1, chunk), isa.F32)
        beta, weight = c.ub((1, half), layer.dtype), c.ub((1, half), isa.F32)
        recipe = Recipe(c, self._recipes[c.core.number])
        spread = Spreader(c, layer.down, layer.across, half, chunk)
        loaded = Arrivals(c)
        everything = isa.PipeBarrier(on=Pipe.ALL)
        no_sums, no_beta = recipe.cleared("sums", sums), recipe.cleared("beta", beta)

        def weigh_rows() -> None:
            recipe.run(isa.Cast, half, dst=weight, src=beta)
            if layer.gate:
                recipe.run(isa.Ln, half, dst=weight, src=weight)
                recipe.run(isa.Add, half, dst=weight, src0=weight, src1=sums.flat(first, half))
            rows = spread.across(recipe, weight, factor, _REG)
            if layer.gate:
                columns = spread.down(recipe, sums, room)
                recipe.tiles(isa.Sub, half, chunk, factor, src0=rows, src1=columns)
                recipe.run(isa.Mins, half * chunk, dst=factor, src=factor, scalar=0.0)
                recipe.run(isa.Exp, half * chunk, dst=factor, src=factor)

        def scale_products() -> None:
            rows = plane(factor) if layer.gate else spread.across_again(factor)
            recipe.run(isa.Cast, half * chunk, dst=wide, src=narrow)
            recipe.tiles(isa.Mul, half, chunk, wide, src0=plane(wide), src1=rows)
            recipe.run(isa.Mul, half * chunk, dst=wide, src0=wide, src1=lower)
            recipe.run(isa.Cast, half * chunk, dst=narrow, src=wide, mode=isa.RoundMode.RINT)

        weigh, apply = recipe.make("weigh", weigh_rows), recipe.make("apply", scale_products)
        yield isa.copy_in(lower, layer.lower.flat(first * chunk, half * chunk))
        yield from loaded.wait()
        yield isa.PipeBarrier(on=Pipe.ALL)
        for turn, item in enumerate(layer.mine(c)):
            slot, mine = turn % 2, shape.rows_from(first, item.chunk)
            if layer.gate:
                yield from load_numbers(no_sums, sums, layer.by_head(layer.sums, item, 0, item.chunk.rows))
            yield from load_numbers(
                no_beta, beta, layer.by_head(layer.betas, item, first if mine else 0, mine)
            )
            yield isa.CrossCoreWaitFlag(group=isa.Group.CUBE_VECTOR, id=READY + slot)
            yield from loaded.wait()
            yield weigh
            source = self._slots[c.block][slot].flat(first * chunk, half * chunk)
            yield isa.copy_in(narrow, source)
            yield from loaded.wait()
            yield apply
            if mine:
                target = layer.at_head(layer.a, item, first)
                yield isa.copy_out(target, narrow[0:mine], pitch=shape.heads * chunk)
            yield everything
            yield isa.CrossCoreSetFlag(group=isa.Group.CUBE_VECTOR, on=Pipe.MTE3, id=TAKEN + slot)
