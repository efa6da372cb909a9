"""Reads of a matrix tile by tile: each core its own rows, or all cores the same ones (asc-devkit data_copy
sample).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Literal, NamedTuple

import numpy as np
from pydantic import NonNegativeInt, PositiveInt

from npusim import Builder, Expected, Kernel, Pipe, isa, program
from npusim.errors import ConfigError
from npusim.units import align_up, ceil_div

from ._prefix_sum import saturated
from ._share import vector_cores

Destination = Literal["ub", "l1"]
WORDS = 16
"""Elements of the last tile that a core stores at most: the start of its first row."""
_MOST_TILES = 256


@program
def same_address(
    k: Builder,
    *,
    m: PositiveInt = 192,
    n: PositiveInt = 128,
    tile_m: PositiveInt = 128,
    tile_n: PositiveInt = 64,
    to: Destination = "ub",
    order: Literal["same", "staggered"] = "same",
    cores: NonNegativeInt = 0,
) -> None:
    """Read a whole matrix of m x n halves on every core, in one order or each core from another place.

    The rows are cut into as many blocks as there are cores; core i starts with block i where the order is
    staggered, and with the first one otherwise. A block is read in tiles of tile_m x tile_n.
    """
    count = _cores(k, "same_address", to, cores)
    rows = ceil_div(m, count)
    blocks = [range(at, min(m, at + rows)) for at in range(0, m, rows)]
    orders = []
    for core in range(count):
        first = core % len(blocks) if order == "staggered" else 0
        turned = blocks[first:] + blocks[:first]
        orders.append([t for block in turned for t in _tiles(block, range(n), tile_m, tile_n)])
    _read(k, "same_address", (m, n), (min(tile_m, m), min(tile_n, n)), to, orders)


@program
def read_tiles(
    k: Builder,
    *,
    m: PositiveInt = 192,
    n: PositiveInt = 1024,
    tile_m: PositiveInt = 16,
    tile_n: PositiveInt = 512,
    to: Destination = "ub",
    repeat: PositiveInt = 1,
    slices: PositiveInt = 1,
    cores: NonNegativeInt = 0,
) -> None:
    """Read a matrix of m x n halves once, in tiles of tile_m x tile_n, each core its own rows.

    The columns are cut into `slices` parts; each part is read `repeat` times before the next.
    """
    count = min(m, _cores(k, "read_tiles", to, cores))
    width = ceil_div(n, slices)
    parts = [range(at, min(n, at + width)) for at in range(0, n, width)]
    orders = []
    for core in range(count):
        rows = range(m * core // count, m * (core + 1) // count)
        orders.append(
            [t for part in parts for _ in range(repeat) for t in _tiles(rows, part, tile_m, tile_n)]
        )
    _read(k, "read_tiles", (m, n), (min(tile_m, m), min(tile_n, n)), to, orders)


class Area(NamedTuple):
    """A tile of the matrix: its place and its extents."""

    row: int
    column: int
    rows: int
    columns: int


def _cores(k: Builder, name: str, to: Destination, cores: int) -> int:
    if to == "ub":
        return vector_cores(k.chip, name, cores)
    there = k.chip.cores.cube
    if cores > there:
        raise ConfigError(
            f"{name}: cores={cores}: {k.chip.name} has {there} cube cores; leave it out for all"
        )
    return cores or there


def _tiles(rows: range, columns: range, tile_m: int, tile_n: int) -> list[Area]:
    """Cut a part of the matrix into tiles, row by row of tiles."""
    starts = product(rows[::tile_m], columns[::tile_n])
    return [Area(r, c, min(tile_m, rows.stop - r), min(tile_n, columns.stop - c)) for r, c in starts]


def _read(
    k: Builder,
    name: str,
    shape: tuple[int, int],
    tile: tuple[int, int],
    to: Destination,
    orders: list[list[Area]],
) -> None:
    """Read tiles in the order of every core, and store the start of the last one; only the latter is data.

    As many tiles as fit are under way; then the pipe waits for all of them before it fills the first again.
    """
    n = shape[1]
    tile_m, tile_n = tile
    x = k.input("x", shape, "float16")
    words = min(WORDS, *(areas[-1].columns for areas in orders))
    y = k.output("y", (len(orders), words), "float16")
    unit = k.constant("unit", np.eye(WORDS, dtype=np.float16)) if to == "l1" else None

    def part(area: Area) -> isa.Tile:
        return x.flat(area.row * n + area.column, 1)

    def vector(c: Kernel) -> Iterator[isa.Instruction]:
        pitch = align_up(tile_n * 2, 32) // 2
        room = c.chip.capacity_bytes("ub") // (tile_m * pitch * 2)
        tiles = [c.ub((tile_m, pitch), isa.F16) for _ in range(max(1, min(room, _MOST_TILES)))]
        areas = orders[c.block]
        for number, area in enumerate(areas):
            slot = number % len(tiles)
            if number and slot == 0:
                yield isa.PipeBarrier(on=Pipe.MTE2)
            target = tiles[slot].flat(0, area.rows * area.columns).reshape(area.rows, area.columns)
            yield isa.copy_in(target, part(area), pitch=n)
        loaded = c.flag(Pipe.MTE2, Pipe.MTE3)
        yield loaded.set
        yield loaded.wait
        yield isa.copy_out(y[c.block], tiles[(len(areas) - 1) % len(tiles)].flat(0, words))

    def cube(c: Kernel) -> Iterator[isa.Instruction]:
        assert unit is not None
        height, width = align_up(tile_m, 16), align_up(tile_n, 16)
        one = c.l1((WORDS, WORDS), isa.F16)
        room = (c.chip.capacity_bytes("l1") - one.nbytes) // (height * width * 2)
        tiles = [c.l1((height, width), isa.F16) for _ in range(max(1, min(room, _MOST_TILES)))]
        a, b = c.l0a((WORDS, WORDS), isa.F16), c.l0b((WORDS, WORDS), isa.F16)
        acc = c.l0c((WORDS, WORDS), isa.F32)
        loaded, ready, done = (
            c.flag(Pipe.MTE2, Pipe.MTE1),
            c.flag(Pipe.MTE1, Pipe.M),
            c.flag(Pipe.M, Pipe.FIX),
        )
        areas = orders[c.block]
        yield isa.nd_to_nz(one, unit, WORDS, WORDS)
        last = tiles[(len(areas) - 1) % len(tiles)]
        yield isa.Fill(dst=last.as_type(isa.U16), value=0, block_num=height)  # its first column of fractals
        yield isa.PipeBarrier(on=Pipe.MTE2)
        for number, area in enumerate(areas):
            slot = number % len(tiles)
            if number and slot == 0:
                yield isa.PipeBarrier(on=Pipe.MTE2)
            yield isa.nd_to_nz(tiles[slot], part(area), area.rows, area.columns, pitch=n, height=height)
        yield loaded.set
        yield loaded.wait
        yield isa.load_a(a, last, WORDS, WORDS, height=height)
        yield isa.load_b(b, one, WORDS, WORDS, transpose=False)
        yield ready.set
        yield ready.wait
        yield isa.mmad(acc, a, b, WORDS, WORDS, WORDS, init=True)
        yield done.set
        yield done.wait
        yield isa.store_nd(y[c.block], acc, 1, words)

    if to == "ub":
        k.launch(name, vector=vector, blocks=len(orders))
    else:
        k.launch(name, cube=cube, blocks=len(orders))

    @k.reference
    def expected(inputs: Mapping[str, np.ndarray]) -> dict[str, Expected]:
        starts = [areas[-1] for areas in orders]
        value = np.stack([inputs["x"][t.row, t.column : t.column + words] for t in starts])
        return {"y": Expected(value if to == "ub" else saturated(value))}


@same_address.from_inputs
def _sizes(inputs: Mapping[str, np.ndarray]) -> dict[str, object]:
    if "x" not in inputs:
        return {}
    m, n = inputs["x"].shape
    return {"m": m, "n": n}


read_tiles.from_inputs(_sizes)
