"""Third stage of the layer: T = (I + A)^-1 for every item, on the cubes alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

from npusim import Builder, Kernel, Macro, isa

from ._gdn import Layer, On
from ._tri import Overflow, identity, places
from ._tri_chain import FRACTAL
from ._tri_cube import Setup, chains, merge_blocks, pair, product_blocks
from .tri_inv_mbh import Tiles, choosers, small_blocks

Method = Literal["mxr", "mbh", "mch"]
Invert = Callable[[Any, isa.Tile, int, int], None]


class Inverse:
    """Inverts what the second stage left, matrix by matrix, by one of the methods of the triangular inverses.

    As the published kernel a core takes up to four matrices in turn, and reads for each where sequences end,
    to find the one that it belongs to.
    """

    name = "gdn_tril"
    on: On = "cube"

    def __init__(self, k: Builder, layer: Layer, method: Method, reuse: bool, overflow: Overflow) -> None:
        shape, kind = layer.shape, layer.dtype
        lengths = ",".join(map(str, shape.lengths))
        at = places(k, shape.chunk, len(shape.items), "seq_first", shape.heads, lengths)
        constants = [identity(k, "minus", shape.chunk, -1.0, kind)]
        setup: Callable[..., Any] = Setup
        if method == "mbh":
            setup = Tiles
            constants.append(k.constant("choose", choosers(True, kind), kind))
        invert = {"mxr": _mixed(reuse), "mbh": _doubled, "mch": _product}[method]
        self._stream = chains(k, at, layer.a, layer.t, constants, setup, invert, overflow=overflow)

    def cube(self, c: Kernel) -> Iterator[isa.Instruction | Macro]:
        """Yield the inversions of a core."""
        return self._stream(c)

    def vector(self, c: Kernel) -> Iterator[isa.Instruction | Macro]:
        """Yield nothing: the vector cores have no part in it."""
        yield from ()


def _mixed(reuse: bool) -> Invert:
    """Return MXR: the product form in blocks of 16, then block recursion."""

    def invert(s: Setup, y: isa.Tile, number: int, turn: int) -> None:
        p, q = pair(turn, 2)
        product_blocks(s, y, p, q, reuse=reuse)
        merge_blocks(s, y, p, q, number, FRACTAL, lower=True)

    return invert


def _doubled(s: Tiles, y: isa.Tile, number: int, turn: int) -> None:
    """Record MBH: block recursion from single elements."""
    p, q = pair(turn, 2)
    small_blocks(s, y, p, q)
    merge_blocks(s, y, p, q, number, FRACTAL, lower=True)


def _product(s: Setup, y: isa.Tile, number: int, turn: int) -> None:
    """Record MCH: the product form (I - A)(I + A^2)(I + A^4)... of the whole matrix.

    Powers grow like binomials before they vanish, so correlated keys may overflow half precision.
    """
    chain, (p, q) = s.chain, pair(turn, 2)
    chain.left(p, s.minus)
    chain.right(p, y)
    chain.product(p, p, p)
    chain.right(q, s.minus)
    chain.product(p, p, q, add=True)
    chain.keep(s.x, p)
    chain.left(q, y)
    chain.right(q, y)
    for level in range((chain.n - 1).bit_length() - 1):
        if level:
            chain.left(q, y)
            chain.right(q, y)
        chain.product(q, q, q)
        chain.keep(y, q)
        chain.left(p, s.x)
        chain.right(p, s.one)
        chain.product(p, p, p)
        chain.right(p, y)
        chain.product(p, p, p, add=True)
        if level + 1 < (chain.n - 1).bit_length() - 1:
            chain.keep(s.x, p)
    chain.store(number, p)
