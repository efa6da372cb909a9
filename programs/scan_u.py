"""ScanU: prefix sums on one cube core and one vector core (arXiv 2505.15112, section 4.1)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

import numpy as np
from pydantic import PositiveInt

from npusim import Builder, Expected, Kernel, Pipe, Reg, isa, program
from npusim.errors import ConfigError

from ._prefix_sum import ACCUMULATOR, chain_bound, elements, exact_sums, saturated, sizes

CARRY = Reg(0)
READY, TAKEN = 0, 1


@program
def scan_u(
    k: Builder,
    *,
    n: PositiveInt = 1 << 20,
    s: Literal[16, 32, 64, 128] = 128,
    dtype: Literal["float16", "float32", "int8"] = "float16",
) -> None:
    """Inclusive prefix sums of n elements: rows of s on the cube, carries from row to row on the vector unit.

    The cube multiplies tiles of s x s elements by the upper triangular matrix of ones, which sums every row;
    the vector core adds to each row the last entry of the row before. NaN reads as zero and infinities as the
    largest finite number, since the cube saturates. float16 and float32 give float32, int8 gives int32.
    """
    if dtype == "int8" and s == 16:
        raise ConfigError("scan_u: s=16 does not fill a fractal of int8, which is 32 wide; use s=32 or more")
    x = k.input("x", (n,), dtype, elements(dtype, n))
    y = k.output("y", (n,), ACCUMULATOR[dtype])
    # stored transposed, so that the plain load already gives the layout of a right operand
    lower = k.constant("lower", np.tril(np.ones((s, s), x.dtype.np)))
    tile = s * s
    tiles = -(-n // tile)

    def cube(c: Kernel) -> Iterator[isa.Instruction]:
        a1, u1 = c.l1((s, s), x.dtype), c.l1((s, s), x.dtype)
        a0, u0 = c.l0a((s, s), x.dtype), c.l0b((s, s), x.dtype)
        acc = c.l0c((s, s), y.dtype)
        loaded, a1_free = c.flag(Pipe.MTE2, Pipe.MTE1), c.flag(Pipe.MTE1, Pipe.MTE2)
        ready, a0_free = c.flag(Pipe.MTE1, Pipe.M), c.flag(Pipe.M, Pipe.MTE1)
        done, acc_free = c.flag(Pipe.M, Pipe.FIX), c.flag(Pipe.FIX, Pipe.M)
        yield isa.nd_to_nz(u1, lower, s, s)
        yield loaded.set
        yield loaded.wait
        yield isa.load_b(u0, u1, s, s, transpose=False)
        for free in (a1_free, a0_free, acc_free):
            yield free.set
        for t in range(tiles):
            part = x.flat(t * tile, min(tile, n - t * tile))
            yield a1_free.wait
            yield from load_tile(a1, part, s)
            yield loaded.set
            yield loaded.wait
            yield a0_free.wait
            yield isa.load_a(a0, a1, s, s)
            yield a1_free.set
            yield ready.set
            yield ready.wait
            yield acc_free.wait
            yield isa.mmad(acc, a0, u0, s, s, s, init=True)
            yield a0_free.set
            yield done.set
            yield done.wait
            yield from store_tile(y.flat(t * tile, part.size), acc, s)
            yield acc_free.set
            yield isa.CrossCoreSetFlag(group=isa.Group.CUBE_VECTOR, on=Pipe.FIX, id=READY)
            yield isa.CrossCoreWaitFlag(group=isa.Group.CUBE_VECTOR, id=TAKEN)
        for free in (a1_free, a0_free, acc_free):
            yield free.wait

    def vector(c: Kernel) -> Iterator[isa.Instruction]:
        taken = isa.CrossCoreSetFlag(group=isa.Group.CUBE_VECTOR, on=Pipe.MTE3, id=TAKEN)
        ready = isa.CrossCoreWaitFlag(group=isa.Group.CUBE_VECTOR, id=READY)
        if c.core.number:  # the second vector core only takes part in the flags
            for _ in range(tiles):
                yield taken
                yield ready
            return
        source, sums = c.ub((s, s), y.dtype), c.ub((s, s), y.dtype)
        loaded, stored = c.flag(Pipe.MTE2, Pipe.V), c.flag(Pipe.MTE3, Pipe.V)
        counted = c.flag(Pipe.V, Pipe.S)
        everything = isa.PipeBarrier(on=Pipe.ALL)
        yield isa.ScalarAlu(op=isa.ScalarOp.MOV, reg=CARRY.index, a=0, dtype=y.dtype)
        yield stored.set
        add_row = {r: carry_row(sums[r], s, counted) for r in range(s)}
        for t in range(tiles):
            count = min(tile, n - t * tile)
            yield taken
            yield ready
            yield isa.copy_in(source.flat(0, count), y.flat(t * tile, count))
            yield loaded.set
            yield loaded.wait
            yield stored.wait
            yield from c.vector(isa.Copy, count=count, dst=sums, src=source)
            yield isa.PipeBarrier(on=Pipe.V)
            rows, rest = divmod(count, s)
            yield from c.counter(s)
            for r in range(rows):
                yield from add_row[r]
            if rest:
                yield from c.counter(rest)
                yield from carry_row(sums.flat(rows * s, rest), rest, counted)
            yield everything
            yield isa.copy_out(y.flat(t * tile, count), sums.flat(0, count))
            yield stored.set
        yield stored.wait

    k.launch("scan_u", cube=cube, vector=vector)

    @k.reference
    def expected(inputs: Mapping[str, np.ndarray]) -> dict[str, Expected]:
        given = saturated(inputs["x"])
        sums = exact_sums(given)
        if dtype == "int8":
            return {"y": Expected(sums)}
        return {"y": Expected(sums, chain_bound(given, sums, s, s))}


def load_tile(a1: isa.Tile, part: isa.Tile, s: int) -> Iterator[isa.Instruction]:
    """Load elements as an s x s tile in L1; what they do not fill of the tile is zero."""
    rows, rest = divmod(part.size, s)
    if rows < s:
        yield isa.Fill(dst=a1.as_type(isa.U16), value=0, block_num=a1.nbytes // 32)
        yield isa.PipeBarrier(on=Pipe.MTE2)
    if rows:
        yield isa.nd_to_nz(a1, part, rows, s, height=s)
    if rest:
        at = a1.offset(rows * 32)  # a row of a column of fractals is one block
        yield isa.nd_to_nz(at, part.flat(rows * s, rest), 1, rest, height=s)


def store_tile(part: isa.Tile, acc: isa.Tile, s: int) -> Iterator[isa.Instruction]:
    """Store the first elements of an s x s result row by row."""
    rows, rest = divmod(part.size, s)
    if rows:
        yield isa.store_nd(part, acc, rows, s, height=s)
    if rest:
        at = acc.offset(rows * 64)  # a row of a column of fractals is sixteen words
        yield isa.store_nd(part.flat(rows * s, rest), at, 1, rest, height=s)


def carry_row(row: isa.Tile, count: int, counted: object) -> list[isa.Instruction]:
    """Add the carry to a row and read its last entry back as the next carry; the mask counts the row."""
    add = isa.contiguous(
        isa.Adds, count=count, state=isa.State(counter_mode=True, mask=count), dst=row, src=row, scalar=CARRY
    )
    last = isa.GetValue(reg=CARRY.index, src=row.flat(count - 1, 1))
    return [*add, counted.set, counted.wait, last]


scan_u.from_inputs(sizes)
