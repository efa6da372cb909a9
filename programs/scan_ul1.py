"""ScanUL1: prefix sums of whole tiles on the cube (arXiv 2505.15112, section 4.1; identity by Dakkak et al.,
ICS 2019).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

import numpy as np
from pydantic import PositiveInt

from npusim import Builder, Expected, Kernel, Pipe, Reg, isa, program

from ._prefix_sum import chain_bound, elements, exact_sums, saturated, sizes
from .scan_u import READY, TAKEN, load_tile, store_tile

CARRY = Reg(0)


@program
def scan_ul1(
    k: Builder,
    *,
    n: PositiveInt = 1 << 20,
    s: Literal[16, 32, 64, 128] = 128,
    dtype: Literal["float16"] = "float16",
) -> None:
    """Inclusive prefix sums of n float16 elements: whole tiles of s x s on the cube, one carry a tile on the
    vector unit.

    scan(A) = A U + L (A J), with U upper triangular, L strictly lower triangular and J all ones. The row sums
    A J pass through L1 as float16, so they are rounded to 11 bits and overflow above 65504: results differ
    from exact sums by up to that, tile by tile. NaN reads as zero and infinities as the largest finite
    number, since the cube saturates. The single-core kernel of the paper is not public; this one loads the
    next tile before it waits for the vector core.
    """
    x = k.input("x", (n,), dtype, elements(dtype, n))
    y = k.output("y", (n,), "float32")
    upper = k.constant("upper", np.triu(np.ones((s, s), np.float16)))
    strict = k.constant("strict", np.tril(np.ones((s, s), np.float16), -1))
    tile = s * s
    tiles = -(-n // tile)

    def cube(c: Kernel) -> Iterator[isa.Instruction]:
        a1, u1, c1 = (c.l1((s, s), isa.F16) for _ in range(3))
        start1 = c.l1((s, s), isa.F16)  # L and J pass through here
        a0, l0 = c.l0a((s, s), isa.F16), c.l0a((s, s), isa.F16)
        j0, b0 = c.l0b((s, s), isa.F16), c.l0b((s, s), isa.F16)
        acc = c.l0c((s, s), isa.F32)
        loaded, a1_free = c.flag(Pipe.MTE2, Pipe.MTE1), c.flag(Pipe.MTE1, Pipe.MTE2)
        ready, free = c.flag(Pipe.MTE1, Pipe.M), c.flag(Pipe.M, Pipe.MTE1)
        b0_ready, b0_free = c.flag(Pipe.MTE1, Pipe.M), c.flag(Pipe.M, Pipe.MTE1)
        done, acc_free = c.flag(Pipe.M, Pipe.FIX), c.flag(Pipe.FIX, Pipe.M)
        c1_ready, c1_free = c.flag(Pipe.FIX, Pipe.MTE1), c.flag(Pipe.MTE1, Pipe.FIX)

        yield isa.nd_to_nz(u1, upper, s, s)
        yield isa.nd_to_nz(start1, strict, s, s)
        yield loaded.set
        yield loaded.wait
        yield isa.load_a(l0, start1, s, s)
        yield a1_free.set
        yield a1_free.wait
        yield isa.Fill(dst=start1, value=1.0, block_num=start1.nbytes // 32)
        yield loaded.set
        yield loaded.wait
        yield isa.load_b(j0, start1, s, s, transpose=False)
        for event in (a1_free, free, b0_free, acc_free, c1_free):
            yield event.set

        def load(t: int) -> Iterator[isa.Instruction]:
            yield a1_free.wait
            yield from load_tile(a1, x.flat(t * tile, min(tile, n - t * tile)), s)
            yield loaded.set

        yield from load(0)
        for t in range(tiles):
            yield loaded.wait
            yield free.wait
            yield isa.load_a(a0, a1, s, s)
            yield a1_free.set
            yield ready.set

            yield ready.wait
            yield acc_free.wait
            yield isa.mmad(acc, a0, j0, s, s, s, init=True)  # every column holds the row sums
            yield done.set

            yield done.wait
            yield c1_free.wait
            yield isa.store_nz(c1, acc, s, s)
            yield acc_free.set
            yield c1_ready.set

            yield b0_free.wait
            yield isa.load_b(b0, u1, s, s)
            yield b0_ready.set
            yield b0_ready.wait
            yield acc_free.wait
            yield isa.mmad(acc, a0, b0, s, s, s, init=True)
            yield free.set
            yield b0_free.set

            yield b0_free.wait
            yield c1_ready.wait
            yield isa.load_b(b0, c1, s, s)
            yield c1_free.set
            yield b0_ready.set
            yield b0_ready.wait
            if (s // 16) ** 2 < c.chip.cube.interlock_fractals:
                yield isa.PipeBarrier(on=Pipe.M)
            yield isa.mmad(acc, l0, b0, s, s, s)
            yield b0_free.set
            yield done.set

            yield done.wait
            yield from store_tile(y.flat(t * tile, min(tile, n - t * tile)), acc, s)
            yield acc_free.set
            if t + 1 < tiles:  # before the scalar unit stops at the flag
                yield from load(t + 1)
            yield isa.CrossCoreSetFlag(group=isa.Group.CUBE_VECTOR, on=Pipe.FIX, id=READY)
            yield isa.CrossCoreWaitFlag(group=isa.Group.CUBE_VECTOR, id=TAKEN)
        for event in (a1_free, free, b0_free, acc_free, c1_free):
            yield event.wait

    def vector(c: Kernel) -> Iterator[isa.Instruction]:
        taken = isa.CrossCoreSetFlag(group=isa.Group.CUBE_VECTOR, on=Pipe.MTE3, id=TAKEN)
        ready = isa.CrossCoreWaitFlag(group=isa.Group.CUBE_VECTOR, id=READY)
        if c.core.number:  # the second vector core only takes part in the flags
            for _ in range(tiles):
                yield taken
                yield ready
            return
        source, sums = c.ub(tile, isa.F32), c.ub(tile, isa.F32)
        loaded, source_free = c.flag(Pipe.MTE2, Pipe.V), c.flag(Pipe.V, Pipe.MTE2)
        summed, stored = c.flag(Pipe.V, Pipe.MTE3), c.flag(Pipe.MTE3, Pipe.V)
        counted, read = c.flag(Pipe.V, Pipe.S), c.flag(Pipe.S, Pipe.V)
        yield isa.ScalarAlu(op=isa.ScalarOp.MOV, reg=CARRY.index, a=0, dtype=isa.F32)
        for event in (source_free, stored, read):
            yield event.set
        for t in range(tiles):
            count = min(tile, n - t * tile)
            yield taken
            yield ready
            yield source_free.wait
            yield isa.copy_in(source.flat(0, count), y.flat(t * tile, count))
            yield loaded.set
            yield loaded.wait
            yield stored.wait
            yield read.wait
            yield from c.vector(isa.Adds, count=count, dst=sums, src=source, scalar=CARRY)
            yield source_free.set
            yield counted.set
            yield counted.wait
            yield isa.GetValue(reg=CARRY.index, src=sums.flat(count - 1, 1))
            yield read.set
            yield summed.set
            yield summed.wait
            yield isa.copy_out(y.flat(t * tile, count), sums.flat(0, count))
            yield stored.set
        for event in (source_free, stored, read):
            yield event.wait

    k.launch("scan_ul1", cube=cube, vector=vector)

    @k.reference
    def expected(inputs: Mapping[str, np.ndarray]) -> dict[str, Expected]:
        given = saturated(inputs["x"])
        sums = exact_sums(given)
        return {"y": Expected(sums, chain_bound(given, sums, s, tile) + half_row_bound(given, s))}


def half_row_bound(x: np.ndarray, s: int) -> np.ndarray:
    """Return what rounding row sums to float16 can change: half a unit each, summed over all rows before an
    element.

    Row sums above 65504 saturate; the bound then contains all that is lost.
    """
    rows = -(-x.size // s)
    padded = np.zeros(rows * s)
    padded[: x.size] = x
    row_sums = np.abs(padded.reshape(rows, s).sum(axis=1))
    half = np.maximum(row_sums * 2.0**-11, 2.0**-25) + np.maximum(row_sums - 65504.0, 0.0)
    before = np.concatenate([[0.0], np.cumsum(half)])
    return np.repeat(before[1:], s)[: x.size]


scan_ul1.from_inputs(sizes)
