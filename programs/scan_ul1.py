"""ScanUL1: prefix sums of whole tiles on the cube (arXiv 2505.15112, section 4.1; identity by Dakkak et al.,
ICS 2019).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

import numpy as np
from pydantic import PositiveInt

from npusim import Builder, Expected, Kernel, Pipe, isa, program

from ._carries import CARRY
from ._cube_scan import BlockScan
from ._prefix_sum import chain_bound, elements, exact_sums, row_rounding, saturated, sizes
from .scan_u import READY, TAKEN


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
        blocks = BlockScan(c, s, upper, strict)
        yield from blocks.start()
        yield from blocks.load(x.flat(0, min(tile, n)))
        for t in range(tiles):
            yield from blocks.finish(y.flat(t * tile, min(tile, n - t * tile)))
            if t + 1 < tiles:  # before the scalar unit stops at the flag
                at = (t + 1) * tile
                yield from blocks.load(x.flat(at, min(tile, n - at)))
            yield isa.CrossCoreSetFlag(group=isa.Group.CUBE_VECTOR, on=Pipe.FIX, id=READY)
            yield isa.CrossCoreWaitFlag(group=isa.Group.CUBE_VECTOR, id=TAKEN)
        yield from blocks.stop()

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
        return {"y": Expected(sums, chain_bound(given, sums, s, tile) + np.cumsum(row_rounding(given, s)))}


scan_ul1.from_inputs(sizes)
