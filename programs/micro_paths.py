"""Micro-programs for the rates of one core and of the bus behind the cores, as JPDC 175 (2023) measures them.

A rate is the slope of time against amount of data: run two sizes and divide the difference of the data by the
difference of the times; what an instruction and a kernel cost to start is the same in both and cancels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, PositiveInt

from npusim import Builder, Expected, Kernel, Pipe, isa, program
from npusim.errors import ConfigError

from ._share import check_measured

LANES = 16
"""Rows and columns of a fractal of halves, and of a result."""
Path = Literal["l1_to_l0a", "l1_to_l0b", "vector_move", "vector_move_cast"]


@program
def path_repeat(
    k: Builder,
    *,
    path: Path = "l1_to_l0a",
    count: PositiveInt = 8,
    nbytes: PositiveInt = 16384,
    cores: PositiveInt = 1,
) -> None:
    """Move `nbytes` over one path inside a core, `count` times back to back, on `cores` cores at once.

    The paths are those from L1 to L0A and L0B, and on coupled chips the vector unit's move from L0C to the
    unified buffer, of float32 as it is or with a cast to float16; `nbytes` counts what is read. Everything
    else that the program does is the same for all sizes: two whole tiles are loaded, the path first moves
    the first one, then `nbytes` of the second one again and again, and the result is multiplied by one.
    """
    vector = path.startswith("vector_move")
    if vector and k.chip.paths.l0c_to_ub is None:
        raise ConfigError(
            f"path_repeat: path={path} moves L0C to UB, which {k.chip.name} cannot; use a coupled chip"
        )
    rows = tile_rows(k, 2 if vector else 1)
    unit, width = (1024, 64) if vector else (512, 32)
    if nbytes % unit or nbytes > rows * width:
        raise ConfigError(
            f"path_repeat: nbytes={nbytes} must be whole fractals of {unit} bytes, and at most "
            f"{rows * width:,} on {k.chip.name}"
        )
    check_measured(k, cores, vector=False)
    moved = nbytes // width
    x = k.input("x", (2, rows, LANES), "float16")
    one = k.constant("one", np.eye(LANES, dtype=np.float16))
    shape = (LANES, rows) if path == "l1_to_l0b" else (rows, LANES)
    y = k.output("y", (cores, *shape), "float16" if path == "vector_move_cast" else "float32")

    def to_l0(c: Kernel) -> Iterator[isa.Instruction]:
        left = path == "l1_to_l0a"
        first, second, one1 = (c.l1(size, isa.F16) for size in ((rows, LANES), (rows, LANES), (LANES, LANES)))
        a0, b0 = (
            c.l0a((rows if left else LANES, LANES), isa.F16),
            c.l0b((LANES if left else rows, LANES), isa.F16),
        )
        acc = c.l0c(shape, isa.F32)
        tile, other = (a0, b0) if left else (b0, a0)
        loaded, ready = c.flag(Pipe.MTE2, Pipe.MTE1), c.flag(Pipe.MTE1, Pipe.M)
        yield isa.copy_in(first, x[0])
        yield isa.copy_in(second, x[1])
        yield isa.copy_in(one1, one)
        yield loaded.set
        yield loaded.wait
        yield isa.LoadData2D(dst=tile, src=first, repeat=rows // LANES)
        yield isa.LoadData2D(dst=other, src=one1, repeat=1)
        again = isa.LoadData2D(dst=tile, src=second, repeat=moved // LANES)
        for _ in range(count):
            yield again
        yield ready.set
        yield ready.wait
        yield isa.mmad(acc, a0, b0, shape[0], LANES, shape[1], init=True)
        yield from store_result(c, y[c.block], acc)

    def from_l0c(c: Kernel) -> Iterator[isa.Instruction]:
        x1, one1 = c.l1(x.shape, isa.F16), c.l1((LANES, LANES), isa.F16)
        a0, b0 = c.l0a((rows, LANES), isa.F16), c.l0b((LANES, LANES), isa.F16)
        accs, tile = [c.l0c(shape, isa.F32) for _ in range(2)], c.ub(shape, y.dtype)
        loaded, ready, free = (
            c.flag(Pipe.MTE2, Pipe.MTE1),
            c.flag(Pipe.MTE1, Pipe.M),
            c.flag(Pipe.M, Pipe.MTE1),
        )
        done, moves = c.flag(Pipe.M, Pipe.V), c.flag(Pipe.V, Pipe.MTE3)
        yield isa.copy_in(x1, x)
        yield isa.copy_in(one1, one)
        yield loaded.set
        yield loaded.wait
        yield isa.LoadData2D(dst=b0, src=one1, repeat=1)
        yield free.set
        for acc, part in zip(accs, (x1[0], x1[1]), strict=True):
            yield free.wait
            yield isa.LoadData2D(dst=a0, src=part, repeat=rows // LANES)
            yield ready.set
            yield ready.wait
            yield isa.mmad(acc, a0, b0, rows, LANES, LANES, init=True)
            yield free.set
        yield free.wait
        yield done.set
        yield done.wait
        yield isa.DataCopyEnhanced(dst=tile, src=accs[0], block_len=rows // LANES)
        again = isa.DataCopyEnhanced(dst=tile, src=accs[1], block_len=moved // LANES)
        for _ in range(count):
            yield isa.PipeBarrier(on=Pipe.V)
            yield again
        yield moves.set
        yield moves.wait
        yield isa.copy_out(y[c.block], tile)

    stream = from_l0c if vector else to_l0
    if k.chip.coupled:
        k.launch("path_repeat", coupled=stream, blocks=cores)
    else:
        k.launch("path_repeat", cube=stream, blocks=cores)

    @k.reference
    def expected(inputs: Mapping[str, np.ndarray]) -> dict[str, Expected]:
        result = np.concatenate([inputs["x"][1, :moved], inputs["x"][0, moved:]])
        result = result.T if path == "l1_to_l0b" else result
        return {"y": Expected(np.broadcast_to(saturated(result), (cores, *shape)))}


@program
def cube_repeat(
    k: Builder,
    *,
    count: PositiveInt = 8,
    blocks: Annotated[int, Field(ge=1, le=255)] = 64,
    init: bool = False,
    cores: PositiveInt = 1,
) -> None:
    """Multiply `blocks` blocks of 16x16x16 halves `count` times back to back, on `cores` cores at once.

    The products add up in one place, or start from zero every time with `init`. Everything else that the
    program does is the same for all sizes: one product of a whole tile comes first. Whole numbers give exact
    results in every order.
    """
    room = tile_rows(k, 1)
    rows = blocks * LANES
    if rows > room:
        raise ConfigError(f"cube_repeat: blocks={blocks} must be at most {room // LANES} on {k.chip.name}")
    check_measured(k, cores, vector=False)
    a, b = k.input("a", (room, LANES), "float16"), k.input("b", (2, LANES, LANES), "float16")
    y = k.output("y", (cores, room, LANES), "float32")

    def cube(c: Kernel) -> Iterator[isa.Instruction]:
        a1, b1 = c.l1(a.shape, isa.F16), c.l1(b.shape, isa.F16)
        a0, b0, acc = c.l0a(a.shape, isa.F16), c.l0b(b.shape, isa.F16), c.l0c(a.shape, isa.F32)
        loaded, ready = c.flag(Pipe.MTE2, Pipe.MTE1), c.flag(Pipe.MTE1, Pipe.M)
        yield isa.copy_in(a1, a)
        yield isa.copy_in(b1, b)
        yield loaded.set
        yield loaded.wait
        yield isa.LoadData2D(dst=a0, src=a1, repeat=room // LANES)
        yield isa.LoadData2D(dst=b0, src=b1, repeat=2)
        yield ready.set
        yield ready.wait
        yield isa.mmad(acc, a0, b0[0], room, LANES, LANES, init=True)
        again = isa.mmad(acc, a0, b0[1], rows, LANES, LANES, init=init)
        for _ in range(count):
            if blocks < c.chip.cube.interlock_fractals:
                yield isa.PipeBarrier(on=Pipe.M)
            yield again
        yield from store_result(c, y[c.block], acc)

    if k.chip.coupled:
        k.launch("cube_repeat", coupled=cube, blocks=cores)
    else:
        k.launch("cube_repeat", cube=cube, blocks=cores)

    @k.reference
    def expected(inputs: Mapping[str, np.ndarray]) -> dict[str, Expected]:
        left = saturated(inputs["a"])
        first, again = (left @ saturated(b).T for b in inputs["b"])  # L0B holds the transpose
        result = np.concatenate([again[:rows] if init else (first + count * again)[:rows], first[rows:]])
        return {"y": Expected(np.broadcast_to(result, (cores, room, LANES)))}


@program
def bus_share(
    k: Builder,
    *,
    count: PositiveInt = 320,
    nbytes: Annotated[int, Field(ge=32, multiple_of=32)] = 16384,
    moves: Literal["both", "loads", "stores"] = "both",
    cores: PositiveInt = 2,
) -> None:
    """Move `count` pieces of `nbytes` from global memory to UB and from UB to global memory at once.

    On every core MTE2 loads pieces of its own while MTE3 stores one other piece again and again; nothing
    makes one wait for the other, so they share what lies between the cores and memory: L2 while all pieces
    fit there, main memory beyond. The last piece loaded is stored at the end.
    """
    slots = k.chip.capacity_bytes("ub") // nbytes - 1
    if slots < 1:
        raise ConfigError(
            f"bus_share: nbytes={nbytes} must fit UB of {k.chip.name} twice; use smaller pieces"
        )
    check_measured(k, cores, vector=True)
    loads, stores = (count if moves in ("both", name) else 1 for name in ("loads", "stores"))
    x = k.input("x", (cores, loads, nbytes), "int8")
    s = k.input("s", (nbytes,), "int8")
    last = k.output("last", (cores, nbytes), "int8")
    y = k.output("y", (cores, stores, nbytes), "int8")

    def stream(c: Kernel) -> Iterator[isa.Instruction]:
        source, *pieces = (c.ub(nbytes, isa.S8) for _ in range(1 + min(slots, loads)))
        ready, done = c.flag(Pipe.MTE2, Pipe.MTE3), c.flag(Pipe.MTE2, Pipe.MTE3)
        yield isa.copy_in(source, s)
        yield ready.set
        yield ready.wait
        for i in range(max(loads, stores)):
            if i < loads:
                if i and i % len(pieces) == 0:
                    yield isa.PipeBarrier(on=Pipe.MTE2)  # the buffer is used again
                yield isa.copy_in(pieces[i % len(pieces)], x[c.block][i])
            if i < stores:
                yield isa.copy_out(y[c.block][i], source)
        yield done.set
        yield done.wait
        yield isa.copy_out(last[c.block], pieces[(loads - 1) % len(pieces)])

    if k.chip.coupled:
        k.launch("bus_share", coupled=stream, blocks=cores)
    else:
        k.launch("bus_share", vector=stream, blocks=cores)

    @k.reference
    def expected(inputs: Mapping[str, np.ndarray]) -> dict[str, Expected]:
        return {
            "last": Expected(inputs["x"][:, -1]),
            "y": Expected(np.broadcast_to(inputs["s"], (cores, stores, nbytes))),
        }


@program
def launch_empty(k: Builder, *, cores: PositiveInt = 1) -> None:
    """Start `cores` cores that have nothing to do but one scalar operation."""
    check_measured(k, cores, vector=True)

    def stream(c: Kernel) -> Iterator[isa.Instruction]:
        yield isa.ScalarWork(count=1)

    if k.chip.coupled:
        k.launch("launch_empty", coupled=stream, blocks=cores)
    else:
        k.launch("launch_empty", vector=stream, blocks=cores)

    @k.reference
    def expected(inputs: Mapping[str, np.ndarray]) -> dict[str, Expected]:
        return {}


def tile_rows(k: Builder, results: int) -> int:
    """Rows of 16 halves of the largest tile that fits L0A and L0B while `results` products of it fit L0C and,
    on coupled chips, one fits the unified buffer."""
    b = k.chip.buffers
    rooms = [min(b.l0a_kib, b.l0b_kib) * 1024 // 32, b.l0c_kib * 1024 // (64 * results)]
    if k.chip.coupled:
        rooms.append(b.ub_kib * 1024 // 64)
    return min(*rooms, 255 * LANES) // LANES * LANES


def store_result(c: Kernel, y: isa.Tile, acc: isa.Tile) -> Iterator[isa.Instruction]:
    """Store a float32 result from L0C to global memory: by the fixpipe, or through the unified buffer."""
    rows, columns = acc.shape
    if not c.chip.coupled:
        done = c.flag(Pipe.M, Pipe.FIX)
        yield done.set
        yield done.wait
        yield isa.store_nd(y, acc, rows, columns)
        return
    done, drained = c.flag(Pipe.M, Pipe.V), c.flag(Pipe.V, Pipe.MTE3)
    tile = c.ub(acc.shape, acc.dtype)
    yield done.set
    yield done.wait
    yield isa.DataCopyEnhanced(dst=tile, src=acc, block_len=acc.size // LANES**2)
    yield drained.set
    yield drained.wait
    yield isa.DataCopyNz2Nd(
        dst=y, src=tile, n_value=rows, d_value=columns, src_rows=rows, dst_d_value=columns
    )


def saturated(x: np.ndarray) -> np.ndarray:
    """Return what the cube makes of halves: NaN reads as zero, infinities as the largest finite number."""
    return np.nan_to_num(x.astype(np.float64), nan=0.0, posinf=65504.0, neginf=-65504.0)
