"""How the cube programs of triangular inverses run over a batch, and the steps that several methods share.

Mapping as the published kernels (pto-kernels@abe6ecb): a core takes 1, 2 or 4 matrices in turn, whose loads
are issued together, inverts one after the other, and comes back for more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

import numpy as np

from npusim import Builder, Kernel, isa
from npusim.units import ceil_div

from ._tri import Batch, Overflow, Places, keep_infinities
from ._tri_chain import FRACTAL, Chain, Played, Steps, Transfer

_SCAN = 0
"""Register of the scan of sequence lengths."""


class Setup:
    """Tiles of L1 that stay: the identity, its negative, zeros, the negative matrix, and the inverse so far.

    The negative identity comes from global memory as number -1; products make the others.
    """

    def __init__(self, chain: Chain) -> None:
        self.chain = chain
        self.one, self.minus, self.zero, self.negative, self.x = (chain.tile() for _ in range(5))
        chain.load(self.minus, -1)
        chain.left(0, self.minus)
        chain.right(0, self.minus)
        chain.product(0, 0, 0)
        chain.keep(self.one, 0)
        chain.right(0, self.one)
        chain.product(0, 0, 0, add=True)
        chain.keep(self.zero, 0)


class Constants(Protocol):
    """What a method keeps in L1 for all matrices."""

    chain: Chain


C = TypeVar("C", bound=Constants)


def turns(count: int, cores: int) -> int:
    """Return how many matrices a core takes in turn."""
    return 1 if count <= cores else 2 if count <= 2 * cores else 4


def groups_of(count: int, cores: int, core: int, at_once: int) -> list[range]:
    """Return the numbers of the matrices of a core, group by group."""
    step = cores * at_once
    starts = range(core * at_once, count, step)
    return [range(start, min(start + at_once, count)) for start in starts]


def launch_chains(
    k: Builder,
    both: Batch,
    constants: list[isa.Tile],
    setup: Callable[[Chain], C],
    invert: Callable[[C, isa.Tile, int, int], None],
    *,
    buffers: int = 2,
    at_once: int = 0,
    overflow: Overflow = "ieee",
) -> None:
    """Launch the inversion of a batch on the cubes; parameters as those of `chains`."""
    at = both.at
    cube = chains(
        k,
        at,
        both.a,
        both.t,
        constants,
        setup,
        invert,
        buffers=buffers,
        at_once=at_once,
        overflow=overflow,
    )
    k.launch(both.name, cube=cube, blocks=min(k.chip.cores.cube, len(at.places)))


def chains(
    k: Builder,
    at: Places,
    a: isa.Tile,
    t: isa.Tile,
    constants: list[isa.Tile],
    setup: Callable[[Chain], C],
    invert: Callable[[C, isa.Tile, int, int], None],
    *,
    buffers: int = 2,
    at_once: int = 0,
    overflow: Overflow = "ieee",
) -> Callable[[Kernel], Steps]:
    """Return the stream of a cube core that takes its part in the inversion of a batch on all of them.

    `setup` takes the tiles that a method keeps, and loads `constants` by the numbers -1, -2, ...; `invert`
    records the inversion of the matrix in a tile of L1 that it may overwrite, and the store of the result by
    the number that it is given; its last argument counts the matrices of the core. `at_once` is how many
    matrices a core loads together (0: as the published kernels).
    """
    cores = min(k.chip.cores.cube, len(at.places))
    together = at_once or turns(len(at.places), cores)
    played: dict[object, Played] = {}
    ends = None
    if at.lengths:
        ends = k.constant("cu_seqlens", np.cumsum([0, *at.lengths]).astype(np.int32))

    def cube(c: Kernel) -> Steps:
        groups = groups_of(len(at.places), cores, c.block, together)
        mine = [at.places[i] for group in groups for i in group]
        yield from keep_infinities(overflow)
        key = tuple(tuple(at.places[i].rows < at.n for i in group) for group in groups)
        if key not in played:
            chain = Chain(c, at.n, a.dtype, buffers)
            kept = setup(chain)
            slots = [chain.tile() for _ in range(together)]
            _record(chain, kept, slots, key, invert)
            played[key] = chain.played()
        numbers = [i for group in groups for i in group]

        def memory(transfer: Transfer) -> Steps:
            number, tile = transfer
            if number < 0:
                constant = constants[-1 - number]
                yield isa.nd_to_nz(tile, constant, *constant.shape)
                return
            start, rows = mine[number // 2]
            where = (a if number % 2 == 0 else t).flat(start, 1)
            if number % 2:
                yield isa.store_nd(where, tile, rows, rows, pitch=at.pitch, height=at.n)
                return
            if ends is not None:  # the kernel finds the sequence of a matrix by reading where sequences end
                last = at.sequence_of(numbers[number // 2]) + 2
                yield from (isa.GetValue(reg=_SCAN, src=ends[i]) for i in range(last))
            yield isa.nd_to_nz(tile, where, rows, rows, pitch=at.pitch, height=at.n)

        yield from played[key].stream(memory)

    return cube


def _record(
    chain: Chain,
    kept: C,
    slots: list[isa.Tile],
    groups: Iterable[tuple[bool, ...]],
    invert: Callable[[C, isa.Tile, int, int], None],
) -> None:
    count = 0
    for group in groups:
        for slot, short in enumerate(group):
            if short:
                chain.clear(slots[slot])
            chain.load(slots[slot], 2 * (count + slot))
        for slot in range(len(group)):
            invert(kept, slots[slot], 2 * count + 1, count)
            count += 1


# ---- steps of methods --------------------------------------------------------------------------------------


def product_blocks(
    s: Setup, y: isa.Tile, p: int, q: int, *, reuse: bool = False, squares_last: bool = False
) -> None:
    """Invert the sixteen-blocks on the diagonal of `y` by their product form; the result goes to `s.x`, and
    the negative of the whole matrix to `s.negative`.

    X = I - D; three times X += X Y with Y = D^2, D^4, D^8; buffers `p` carry X, buffers `q` Y. With `reuse`
    X stays in its accumulator in float32; otherwise it comes back as rounded, by a product with the identity.
    With `squares_last` the next Y is computed behind X, which then travels to L1 and back meanwhile.
    """
    chain = s.chain
    diagonal = range(chain.n // FRACTAL)
    chain.right(p, y)
    chain.left(p, s.minus)
    chain.left(q, s.zero)
    chain.right(q, s.zero)
    chain.settle(("a", q), ("b", q))
    chain.left_blocks(q, y, diagonal)
    chain.right_blocks(q, y, diagonal)
    chain.product(p, p, p)
    chain.keep(s.negative, p)
    chain.product(q, q, q)
    chain.keep(y, q)
    chain.right(p, s.minus)
    chain.product(p, q, p)
    chain.product(p, p, p, add=True)
    chain.keep(s.x, p)
    for level in range(3):
        chain.left(p, s.x)
        if not reuse:
            chain.right(p, s.one)
        chain.left(q, y)
        chain.right(q, y)
        if not reuse:
            chain.product(p, p, p)
        for inverse in (squares_last, not squares_last):
            if inverse:
                chain.product(p, p, q, add=True)
                chain.keep(s.x, p)
            elif level < 2:
                chain.product(q, q, q)
                chain.keep(y, q)


def merge_blocks(s: Setup, y: isa.Tile, p: int, q: int, number: int, size: int, *, lower: bool) -> None:
    """Double inverted diagonal blocks of `size` in `s.x` until one is left, and store it; at least once.

    X = L + (I - L A) R with L the even and R the odd blocks, the other way round for lower triangles.
    """
    chain = s.chain
    first, second = (1, 0) if lower else (0, 1)
    chain.left(p, s.one)
    chain.right(q, s.negative)
    while size < chain.n:
        blocks = ceil_div(chain.n, size)
        chain.left(q, s.zero)
        chain.right(p, s.one)
        chain.settle(("a", q))
        chain.left_blocks(q, s.x, range(first, blocks, 2), size)
        chain.product(p, p, p)
        chain.product(q, q, p)
        chain.product(p, q, q, add=True)
        chain.keep(y, p)
        chain.right(p, s.zero)
        chain.settle(("b", p))
        chain.right_blocks(p, s.x, range(second, blocks, 2), size)
        chain.left(q, y)
        chain.product(q, q, p, add=True)
        size *= 2
        if size < chain.n:
            chain.keep(s.x, q)
    chain.store(number, q)


def pair(turn: int, buffers: int) -> tuple[int, int]:
    """Return the two buffers of each kind that a matrix uses; more than two let matrices overlap."""
    return 2 * turn % buffers, (2 * turn + 1) % buffers
