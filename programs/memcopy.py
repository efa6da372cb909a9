"""Copy: global memory to the unified buffer and back, with one or two tiles in flight."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np
from pydantic import PositiveInt

from npusim import Builder, Expected, Kernel, Pipe, isa, program


@program
def memcopy(
    k: Builder,
    *,
    n: PositiveInt = 1 << 20,
    tile: PositiveInt = 16384,
    buffers: Literal[1, 2] = 2,
    dtype: Literal["float16", "float32", "int8", "int32"] = "float16",
) -> None:
    """Copy n elements through the unified buffer of one vector core, tile by tile.

    Bits are copied, so NaN and infinities stay as they are.
    """
    x, y = k.input("x", (n,), dtype), k.output("y", (n,), dtype)

    def stream(c: Kernel) -> Iterator[isa.Instruction]:
        tiles = c.queue(Pipe.MTE2, Pipe.MTE3, [c.ub(tile, x.dtype) for _ in range(buffers)])
        for start in range(0, n, tile):
            count = min(tile, n - start)
            free = yield from tiles.alloc()
            yield isa.copy_in(free.flat(0, count), x.flat(start, count))
            yield from tiles.enque()
            full = yield from tiles.deque()
            yield isa.copy_out(y.flat(start, count), full.flat(0, count))
            yield from tiles.free()

    k.launch("memcopy", vector=stream)

    @k.reference
    def expected(inputs: dict[str, np.ndarray]) -> dict[str, Expected]:
        return {"y": Expected(inputs["x"])}


@memcopy.from_inputs
def _sizes(inputs: dict[str, np.ndarray]) -> dict[str, object]:
    return {"n": inputs["x"].size, "dtype": inputs["x"].dtype.name} if "x" in inputs else {}
