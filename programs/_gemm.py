"""How the matrix product is cut up: which core computes which tiles, and how packets of the operands reach
L1 and L0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from npusim import Pipe, isa
from npusim.config.chip import Chip
from npusim.errors import ConfigError
from npusim.units import align_up, ceil_div, grouped

Order = Literal["grid", "row_major", "swizzle"]
BOrder = Literal["kn", "nk"]

_PITCH = 65535
"""Largest distance of rows that one copy into fractals takes, in elements (asc-devkit Nd2Nz page)."""
_COLUMN = 16
"""Rows of a fractal, and columns of one in L0C."""


class TileAt(NamedTuple):
    """A tile of the result, by its row and column among the tiles."""

    row: int
    column: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocking:
    """Extents of a product and of the blocks it is made of, in elements.

    A packet is what one load brings to L1: `step_a` or `step_b` base blocks along k.
    """

    m: int
    n: int
    k: int
    bm: int
    bn: int
    bk: int
    step_a: int
    step_b: int
    dtype: isa.DType
    b_order: BOrder
    whole: bool = False
    """Whether products fill whole fractals of L0C, which the way through the vector unit reads."""
    together: bool = False
    """Whether packets of both operands, of equal steps, share their flags."""

    @property
    def rows(self) -> int:
        """Tiles of the result along m."""
        return ceil_div(self.m, self.bm)

    @property
    def columns(self) -> int:
        """Tiles of the result along n."""
        return ceil_div(self.n, self.bn)

    @property
    def steps(self) -> int:
        """Base blocks along k."""
        return ceil_div(self.k, self.bk)

    @property
    def squares(self) -> int:
        """Side of the squares that turn the right operand, 0 where no square is turned.

        Only 16-bit fractals are transposed by the load of a whole matrix.
        """
        if self.b_order == "nk" or self.dtype.bits == 16:
            return 0
        return 32 if self.dtype.bits == 8 else 16

    def height(self, row: int) -> int:
        """Height of a row of tiles."""
        return min(self.bm, self.m - row * self.bm)

    def width(self, column: int) -> int:
        """Width of a column of tiles."""
        return min(self.bn, self.n - column * self.bn)

    def depth(self, step: int, count: int = 1) -> int:
        """Elements along k of `count` base blocks from one on."""
        return min(self.k - step * self.bk, count * self.bk)

    def product_height(self, height: int) -> int:
        """Rows that the product of a tile computes."""
        return align_up(height, _COLUMN) if self.whole else height

    def product_width(self, width: int) -> int:
        """Columns that the product of a tile computes: whole squares where squares are turned."""
        return align_up(width, self.squares or (_COLUMN if self.whole else 1))

    def check(self, chip: Chip, l1_buffers: int, l0_buffers: int) -> None:
        """Raise `ConfigError` where base blocks are no whole fractals or do not fit the chip."""
        lanes = 256 // self.dtype.bits
        depth = lanes if self.b_order == "nk" else max(lanes, 16)
        for name, value, unit in (
            ("bm", self.bm, _COLUMN),
            ("bn", self.bn, max(_COLUMN, self.squares)),
            ("bk", self.bk, depth),
        ):
            if value % unit:
                raise ConfigError(
                    f"gemm: {name} must be a multiple of {unit} for {self.dtype.np.name}, not {value}"
                )
        if self.squares and chip.coupled:
            raise ConfigError(
                f"gemm: {chip.name} does not transpose {self.dtype.np.name} on the way to l0b; give b as "
                f"n x k (b_order=nk)"
            )
        size = self.dtype.size
        packets = self.bm * self.step_a + self.bn * self.step_b
        for space, nbytes, buffers, advice in (
            ("l1", packets * self.bk * size, l1_buffers, "l1_buffers=1 or smaller step_a, step_b"),
            ("l0a", self.bm * self.bk * size, l0_buffers, "l0_buffers=1 or smaller bm, bk"),
            ("l0b", self.bn * self.bk * size, l0_buffers, "l0_buffers=1 or smaller bn, bk"),
            ("l0c", self.bm * self.bn * 4, 1, "smaller bm, bn"),
        ):
            room = chip.capacity_bytes(space)
            if nbytes * buffers > room:
                what = f"{buffers} x {grouped(nbytes)}" if buffers > 1 else grouped(nbytes)
                raise ConfigError(
                    f"gemm: {what} bytes of {space} needed, {grouped(room)} available on {chip.name}; use "
                    f"{advice}"
                )


def schedule(
    rows: int, columns: int, cores: int, order: Order, *, grid_m: int = 0, band: int = 1, rounds: int = 1
) -> list[list[TileAt]]:
    """Return the tiles of every core that has any, in the order in which it computes them.

    `grid`: each core has one rectangle of a grid of `grid_m` by cores / grid_m (0: the grid with the fewest
    tiles for the busiest core), row by row. `row_major`: the cores take turns along the rows. `swizzle`: the
    same along bands of `band` rows of tiles, column by column, every other band backwards. Each of `rounds`
    equal parts of the rows is finished before the next starts, which keeps less in L2. Raises `ConfigError`
    where `grid_m` does not divide the cores.
    """
    work: list[list[TileAt]] = [[] for _ in range(cores)]
    part = ceil_div(rows, rounds)
    for first in range(0, rows, part):
        height = min(part, rows - first)
        if order == "grid":
            _share_grid(work, first, height, columns, grid_m)
        else:
            tiles = _bands(first, height, columns, band if order == "swizzle" else 1, order == "swizzle")
            for number, tile in enumerate(tiles):
                work[number % cores].append(tile)
    return [tiles for tiles in work if tiles]


def _share_grid(work: list[list[TileAt]], first: int, rows: int, columns: int, grid_m: int) -> None:
    cores = len(work)
    if grid_m and cores % grid_m:
        raise ConfigError(f"gemm: grid_m={grid_m} does not divide the {cores} cores")
    grids = [grid_m] if grid_m else [g for g in range(1, cores + 1) if cores % g == 0]

    def cost(g: int) -> tuple[int, int]:
        high, wide = ceil_div(rows, g), ceil_div(columns, cores // g)
        return high * wide, high + wide

    down = min(grids, key=cost)
    high, wide = ceil_div(rows, down), ceil_div(columns, cores // down)
    for number, tiles in enumerate(work):
        top, left = number % down * high, number // down * wide
        tiles += [
            TileAt(first + row, column)
            for row in range(top, min(rows, top + high))
            for column in range(left, min(columns, left + wide))
        ]


def _bands(first: int, rows: int, columns: int, band: int, turn: bool) -> Iterator[TileAt]:
    for number, top in enumerate(range(0, rows, band)):
        along = range(columns)
        for column in reversed(along) if turn and number % 2 else along:
            for row in range(top, min(rows, top + band)):
                yield TileAt(first + row, column)


# ---- packets in L1 -----------------------------------------------------------------------------------------


def load_left(cut: Blocking, dst: isa.Tile, a: isa.Tile, row: int, packet: int) -> list[isa.Instruction]:
    """Return the load of a packet of the left operand: columns of fractals `bm` rows high."""
    step = packet * cut.step_a
    src = a.offset((row * cut.bm * cut.k + step * cut.bk) * cut.dtype.size)
    return _rows(dst, src, cut.height(row), cut.depth(step, cut.step_a), cut.k, cut.bm)


def load_right(cut: Blocking, dst: isa.Tile, b: isa.Tile, column: int, packet: int) -> list[isa.Instruction]:
    """Return the load of a packet of the right operand.

    n x k: columns of fractals `bn` rows high. k x n: columns of fractals as high as the packet is deep; for
    32-bit types every 16 rows apart, as the squares want them. Squares that are not filled are zeroed first.
    """
    step, size = packet * cut.step_b, cut.dtype.size
    width, depth = cut.width(column), cut.depth(step, cut.step_b)
    if cut.b_order == "nk":
        src = b.offset((column * cut.bn * cut.k + step * cut.bk) * size)
        return _rows(dst, src, width, depth, cut.k, cut.bn)
    src = b.offset((step * cut.bk * cut.n + column * cut.bn) * size)
    if not cut.squares or cut.dtype.bits == 8:
        load = _rows(dst, src, depth, width, cut.n, cut.bk * cut.step_b)
    else:
        load = []
        for row in range(0, depth, 16):
            part, place = src.offset(row * cut.n * size), dst.offset(row * cut.bn * size)
            load += _rows(place, part, min(16, depth - row), width, cut.n, 16)
    if cut.squares and (width % cut.squares or depth % cut.squares):
        clear = isa.Fill(dst=dst.as_type(isa.U16), value=0, block_num=dst.nbytes // 32)
        return [clear, isa.PipeBarrier(on=Pipe.MTE2), *load]
    return load


def _rows(
    dst: isa.Operand, src: isa.Operand, rows: int, columns: int, pitch: int, height: int
) -> list[isa.Instruction]:
    """Return the load of a matrix into columns of fractals, row by row where its rows lie too far apart."""
    if pitch <= _PITCH:
        return [isa.nd_to_nz(dst, src, rows, columns, pitch=pitch, height=height)]
    size = src.dtype.size
    return [
        isa.nd_to_nz(dst.offset(r * 32), src.offset(r * pitch * size), 1, columns, height=height)
        for r in range(rows)
    ]


# ---- base blocks in L0 -------------------------------------------------------------------------------------


def feed_left(
    cut: Blocking, dst: isa.Tile, src: isa.Tile, place: int, height: int, depth: int
) -> list[isa.Instruction]:
    """Return the load of base block `place` of a packet into L0A."""
    column = src.offset(place * cut.bk * cut.dtype.size * cut.bm)
    return [isa.load_a(dst, column, height, depth, height=cut.bm)]


def feed_right(
    cut: Blocking, dst: isa.Tile, src: isa.Tile, place: int, depth: int, width: int
) -> list[isa.Instruction]:
    """Return the load of base block `place` of a packet into L0B, turned where b is k x n."""
    size = cut.dtype.size
    if cut.b_order == "nk":
        column = src.offset(place * cut.bk * size * cut.bn)
        return [isa.load_b(dst, column, depth, width, height=cut.bn, transpose=False)]
    first, packet = place * cut.bk, cut.bk * cut.step_b
    if not cut.squares:
        return [isa.load_b(dst, src.offset(first * 32), depth, width, height=packet)]
    across = cut.product_width(width) // 16
    loads: list[isa.Instruction] = []
    for row in range(0, depth, cut.squares):
        at = dst.offset(row * size // 32 * across * 512)
        if cut.dtype.bits == 8:
            squares = src.offset((first + row) * 32)
            load = isa.LoadDataWithTranspose(
                dst=at, src=squares, repeat=across // 2, src_stride=packet // 32, dst_gap=1
            )
        else:
            squares = src.offset((first + row) * cut.bn * size)
            load = isa.LoadDataWithTranspose(dst=at, src=squares, repeat=across, dst_frac_gap=across - 1)
        loads.append(load)
    return loads
