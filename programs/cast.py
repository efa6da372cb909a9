"""Widening: halves to floats on all vector cores, each a contiguous share, piece by piece."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

import numpy as np
from pydantic import NonNegativeInt, PositiveInt

from npusim import Builder, Expected, Kernel, Pipe, isa, program

from ._share import elements_of, shares, vector_cores


@program
def cast(
    k: Builder,
    *,
    n: PositiveInt = 1 << 20,
    piece: PositiveInt = 16384,
    buffers: Literal[1, 2] = 2,
    cores: NonNegativeInt = 0,
) -> None:
    """Convert n halves to floats on all vector cores, or on `cores` of them.

    A core takes pieces of `piece` bytes of halves with `buffers` pieces under way. Every half is a float, so
    the result is exact; infinities and NaN stay what they are.
    """
    x, y = k.input("x", (n,), "float16", _halves(n)), k.output("y", (n,), "float32")
    count = elements_of("cast", piece, x.dtype.size)
    parts = shares(n, x.dtype.size, vector_cores(k.chip, "cast", cores))

    def stream(c: Kernel) -> Iterator[isa.Instruction]:
        part = parts[c.block]
        loads = c.queue(Pipe.MTE2, Pipe.V, [c.ub(count, isa.F16) for _ in range(buffers)])
        stores = c.queue(Pipe.V, Pipe.MTE3, [c.ub(count, isa.F32) for _ in range(buffers)])
        for start in range(part.start, part.stop, count):
            length = min(count, part.stop - start)
            halves = yield from loads.alloc()
            yield isa.copy_in(halves.flat(0, length), x.flat(start, length))
            yield from loads.enque()
            halves = yield from loads.deque()
            floats = yield from stores.alloc()
            yield from c.vector(isa.Cast, count=length, dst=floats, src=halves, src_repeat=4)
            yield from loads.free()
            yield from stores.enque()
            floats = yield from stores.deque()
            yield isa.copy_out(y.flat(start, length), floats.flat(0, length))
            yield from stores.free()

    k.launch("cast", vector=stream, blocks=len(parts))

    @k.reference
    def expected(inputs: Mapping[str, np.ndarray]) -> dict[str, Expected]:
        return {"y": Expected(inputs["x"].astype(np.float64))}


def _halves(n: int) -> object:
    return lambda generator: generator.standard_normal(n).astype(np.float16)


@cast.from_inputs
def _sizes(inputs: Mapping[str, np.ndarray]) -> dict[str, object]:
    return {"n": inputs["x"].size} if "x" in inputs else {}
