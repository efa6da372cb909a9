"""The vector-only baseline of the scan paper: row scans by the documented CumSum, carries as in ScanU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

import numpy as np
from pydantic import PositiveInt

from npusim import Builder, Expected, Kernel, Pipe, Reg, isa, program

from ._carries import carry_row
from ._prefix_sum import chain_bound, elements, exact_sums, sizes

CARRY = Reg(0)
SCALARS_PER_ADDRESS = 2
"""Scalar operations behind each entry of the address lists of a transpose: one to compute it, one to store
it.
"""


@program
def cumsum_vec(
    k: Builder,
    *,
    n: PositiveInt = 1 << 20,
    s: Literal[16, 32, 64, 128] = 128,
    dtype: Literal["float16", "float32"] = "float16",
) -> None:
    """Inclusive prefix sums of n elements on one vector core, tile by tile of s x s, without the cube.

    A tile is cast to float32 and transposed, so that its rows become columns; s - 1 dependent additions of
    whole rows sum along them, each behind a barrier; it is transposed back and copied, and the rows receive
    their carries one by one. NaN and infinities propagate. The order of steps is that of the vendor's CumSum
    in its line-by-line form; the kernel that the paper wrapped around it is not public.
    """
    x = k.input("x", (n,), dtype, elements(dtype, n))
    y = k.output("y", (n,), "float32")
    tile = s * s
    barrier = isa.PipeBarrier(on=Pipe.V)

    def stream(c: Kernel) -> Iterator[isa.Instruction]:
        source = c.ub((s, s), x.dtype)
        sums, turned = c.ub((s, s), isa.F32), c.ub((s, s), isa.F32)
        loaded, source_free = c.flag(Pipe.MTE2, Pipe.V), c.flag(Pipe.V, Pipe.MTE2)
        cleared = c.flag(Pipe.V, Pipe.MTE2)
        stored, counted = c.flag(Pipe.MTE3, Pipe.V), c.flag(Pipe.V, Pipe.S)
        everything = isa.PipeBarrier(on=Pipe.ALL)
        carries = {r: carry_row(turned[r], s, counted) for r in range(s)}
        there, back = transposes(turned, sums, s), transposes(sums, turned, s)
        yield isa.ScalarAlu(op=isa.ScalarOp.MOV, reg=CARRY.index, a=0, dtype=isa.F32)
        yield source_free.set
        yield stored.set
        for start in range(0, n, tile):
            count = min(tile, n - start)
            if count < tile:  # the last tile: what is not loaded counts as zero
                yield from c.vector(isa.Duplicate, count=tile, dst=source, scalar=0)
                yield cleared.set
                yield cleared.wait
            yield source_free.wait
            yield isa.copy_in(source.flat(0, count), x.flat(start, count))
            yield loaded.set
            yield loaded.wait
            if dtype == "float16":
                yield from c.vector(isa.Cast, count=tile, dst=sums, src=source)
            else:
                yield from c.vector(isa.Copy, count=tile, dst=sums, src=source)
            yield source_free.set
            yield barrier
            yield stored.wait
            yield from there
            yield barrier
            for r in range(1, s):
                yield from c.vector(isa.Add, count=s, dst=turned[r], src0=turned[r - 1], src1=turned[r])
                yield barrier
            yield from back
            yield barrier
            yield from c.vector(isa.Adds, count=tile, dst=turned, src=sums, scalar=0)
            yield barrier
            rows, rest = divmod(count, s)
            yield from c.counter(s)
            for r in range(rows):
                yield from carries[r]
            if rest:
                yield from c.counter(rest)
                yield from carry_row(turned.flat(rows * s, rest), rest, counted)
            yield everything
            yield isa.copy_out(y.flat(start, count), turned.flat(0, count))
            yield stored.set
        yield source_free.wait
        yield stored.wait

    k.launch("cumsum_vec", vector=stream)

    @k.reference
    def expected(inputs: Mapping[str, np.ndarray]) -> dict[str, Expected]:
        sums = exact_sums(inputs["x"])
        return {"y": Expected(sums, chain_bound(inputs["x"], sums, s, s))}


def transposes(dst: isa.Tile, src: isa.Tile, s: int) -> list[isa.Instruction]:
    """Transpose an s x s matrix of float32: 16 rows at a call, repeated over columns of eight elements.

    Each call needs a list of 16 addresses on either side, which the scalar unit sets up.
    """
    steps: list[isa.Instruction] = []
    for top in range(0, s, 16):
        rows = tuple(src.address + (top + i) * s * 4 for i in range(16))
        columns = tuple(dst.address + j * s * 4 + top * 4 + half * 32 for j in range(8) for half in (0, 1))
        steps.append(isa.ScalarWork(count=SCALARS_PER_ADDRESS * 32))
        steps.append(
            isa.TransDataTo5HD(
                dst=columns, src=rows, dtype=isa.F32, repeat=s // 8, dst_repeat=s, src_repeat=1
            )
        )
    return steps


cumsum_vec.from_inputs(sizes)
