"""Copy on all vector cores, each a contiguous share, piece by piece."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, NonNegativeInt, PositiveInt

from npusim import Builder, Expected, Kernel, Pipe, isa, program

from ._share import elements_of, shares, vector_cores


@program
def copy(
    k: Builder,
    *,
    n: PositiveInt = 1 << 20,
    dtype: Literal["float16", "float32", "int8", "int32"] = "float16",
    piece: PositiveInt = 32768,
    buffers: Annotated[int, Field(ge=1, le=4)] = 2,
    cores: NonNegativeInt = 0,
    l2_bypass: bool = False,
) -> None:
    """Copy n elements through the unified buffers of all vector cores, or of `cores` of them.

    A core copies its share in pieces of `piece` bytes with `buffers` pieces under way. Bits are copied, so
    NaN and infinities stay as they are. With `l2_bypass` the loads do not stay in L2.
    """
    x, y = k.input("x", (n,), dtype), k.output("y", (n,), dtype)
    size = x.dtype.size
    count = elements_of("copy", piece, size)
    parts = shares(n, size, vector_cores(k.chip, "copy", cores))

    def stream(c: Kernel) -> Iterator[isa.Instruction]:
        part = parts[c.block]
        tiles = c.queue(Pipe.MTE2, Pipe.MTE3, [c.ub(count, x.dtype) for _ in range(buffers)])
        for start in range(part.start, part.stop, count):
            length = min(count, part.stop - start)
            free = yield from tiles.alloc()
            yield isa.copy_in(free.flat(0, length), x.flat(start, length), l2_bypass=l2_bypass)
            yield from tiles.enque()
            full = yield from tiles.deque()
            yield isa.copy_out(y.flat(start, length), full.flat(0, length))
            yield from tiles.free()

    k.launch("copy", vector=stream, blocks=len(parts))

    @k.reference
    def expected(inputs: Mapping[str, np.ndarray]) -> dict[str, Expected]:
        return {"y": Expected(inputs["x"])}


@copy.from_inputs
def _sizes(inputs: Mapping[str, np.ndarray]) -> dict[str, object]:
    return {"n": inputs["x"].size, "dtype": inputs["x"].dtype.name} if "x" in inputs else {}
