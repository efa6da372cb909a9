"""ScanU: prefix sums on one cube core and one vector core (arXiv 2505.15112, section 4.1)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Literal

import numpy as np
from pydantic import PositiveInt

from npusim import Builder, Expected, Kernel, Macro, Pipe, isa, program
from npusim.errors import ConfigError

from ._carries import CARRY, carry_row
from ._cube_scan import READY, TAKEN, RowScan
from ._prefix_sum import ACCUMULATOR, chain_bound, elements, exact_sums, saturated, sizes


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
    lower = k.constant("lower", np.tril(np.ones((s, s), x.dtype.np)))
    tile = s * s
    tiles = -(-n // tile)

    def cube(c: Kernel) -> Iterator[isa.Instruction]:
        rows = RowScan(c, s, lower, y.dtype)
        yield from rows.start()
        for t in range(tiles):
            at, count = t * tile, min(tile, n - t * tile)
            yield from rows.tile(x.flat(at, count), y.flat(at, count))
            yield isa.CrossCoreSetFlag(group=isa.Group.CUBE_VECTOR, on=Pipe.FIX, id=READY)
            yield isa.CrossCoreWaitFlag(group=isa.Group.CUBE_VECTOR, id=TAKEN)
        yield from rows.stop()

    def vector(c: Kernel) -> Iterator[isa.Instruction | Macro]:
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

        @cache
        def add_rows(rows: int) -> Macro:
            return Macro([op for r in range(rows) for op in carry_row(sums[r], s, counted)])

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
            if rows:
                yield add_rows(rows)
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


scan_u.from_inputs(sizes)
