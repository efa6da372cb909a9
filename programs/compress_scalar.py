"""The baseline of compress: masked select on a scalar unit, element by element."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Literal

import numpy as np
from pydantic import NonNegativeInt, PositiveInt

from npusim import Builder, Expected, Kernel, Pipe, Reg, isa, program

from ._carries import Steps
from ._masks import mask_input, selection, sizes_and_selection
from ._split import Share, evenly, known

CHOICE, VALUE = Reg(0), Reg(1)
LOOP = 2
"""Scalar operations of an iteration beside its loads and stores: the next number, and the branch."""


@program
def compress_scalar(
    k: Builder,
    *,
    n: PositiveInt = 1 << 14,
    dtype: Literal["float16", "int16", "uint16", "float32", "int32", "uint32"] = "float32",
    density: Share = 0.5,
    selected: NonNegativeInt | None = None,
    tile: PositiveInt = 8192,
) -> None:
    """Keep the elements whose mask is one, in order, on the scalar unit of one vector core.

    Tiles are loaded into the buffer and stored from there; the scalar unit reads the mask and moves the
    elements, as masked select without vector or cube work does (arXiv 2505.15112, section 6.1). `density` and
    `selected` as in `compress`; an empty selection leaves one zero.
    """
    ones = selection("compress_scalar", n, density, selected)
    before = evenly(n, ones)
    x, mask = k.input("x", (n,), dtype), mask_input(k, n, ones)
    y = k.output("y", (max(1, ones),), dtype)
    size = min(tile, n)

    def stream(c: Kernel) -> Steps:
        bits, source, target = c.ub(size, isa.S8), c.ub(size, x.dtype), c.ub(size, x.dtype)
        loaded, free = c.flag(Pipe.MTE2, Pipe.S), c.flag(Pipe.S, Pipe.MTE2)
        full, stored = c.flag(Pipe.S, Pipe.MTE3), c.flag(Pipe.MTE3, Pipe.S)
        choose = [isa.GetValue(reg=CHOICE.index, src=bits.flat(i, 1)) for i in range(size)]
        read = [isa.GetValue(reg=VALUE.index, src=source.flat(i, 1)) for i in range(size)]
        write = [isa.SetValue(dst=target.flat(i, 1), value=VALUE) for i in range(size)]
        loop = isa.ScalarWork(count=LOOP)
        done = 0
        yield free.set
        yield stored.set
        if not ones:
            yield isa.SetValue(dst=y, value=0)
            yield isa.DataCacheCleanAndInvalid(at=y)
        for start in range(0, n, size):
            count = min(size, n - start)
            yield free.wait
            yield isa.copy_in(bits.flat(0, count), mask.flat(start, count))
            yield isa.copy_in(source.flat(0, count), x.flat(start, count))
            yield loaded.set
            yield loaded.wait
            yield stored.wait
            kept = 0
            for i in range(count):
                chosen = yield choose[i]
                yield loop
                if known(chosen, before(start + i + 1) - before(start + i)) == 1:
                    yield read[i]
                    yield write[kept]
                    kept += 1
            yield free.set
            yield full.set
            yield full.wait
            if kept:
                yield isa.copy_out(y.flat(done, kept), target.flat(0, kept))
            yield stored.set
            done += kept
        yield free.wait
        yield stored.wait

    k.launch("compress_scalar", vector=stream)

    @k.reference
    def expected(inputs: Mapping[str, np.ndarray]) -> dict[str, Expected]:
        found = inputs["x"][inputs["mask"] == 1]
        return {"y": Expected(found if found.size else np.zeros(1, x.dtype.np))}


compress_scalar.from_inputs(partial(sizes_and_selection, "compress_scalar"))
