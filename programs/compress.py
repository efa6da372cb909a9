"""Compress, or masked select: keep the elements whose mask is one (arXiv 2505.15112, section 6.1)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Literal

import numpy as np
from pydantic import NonNegativeInt, PositiveInt

from npusim import Builder, Expected, Kernel, isa, program

from ._carries import Steps
from ._masks import mask_input, selection, sizes_and_selection
from ._mcscan import CubeSide
from ._split import (
    CoreCounts,
    Counts,
    Generation,
    Share,
    Side,
    Splitter,
    evenly,
)


@program
def compress(
    k: Builder,
    *,
    n: PositiveInt = 1 << 20,
    s: Side = 128,
    dtype: Literal["float16", "int16", "uint16", "float32", "int32", "uint32"] = "float32",
    density: Share = 0.5,
    selected: NonNegativeInt | None = None,
    generation: Generation = "scan",
    cores: PositiveInt | None = None,
) -> None:
    """Keep the elements whose mask is one, in order.

    As on the device the host knows how many there are: `selected`, which a mask given as input decides, or
    the share `density` of the mask that is made. An empty selection leaves one zero, since there are no empty
    arrays. A run with `--timing-only`, which has no values, takes the ones as evenly spread. `generation`
    and `cores` as in `split`. Values are moved as they are, NaN included.
    """
    ones = selection("compress", n, density, selected)
    x, mask = k.input("x", (n,), dtype), mask_input(k, n, ones)
    y = k.output("y", (max(1, ones),), dtype)
    counts = Counts(k, mask, n, s, generation, cores, evenly(n, ones))

    def cube(c: Kernel, side: CubeSide) -> Steps:
        yield from side.run()
        yield from c.sync_all()

    def vector(c: Kernel, mine: CoreCounts) -> Steps:
        splitter = Splitter(mine, [x.dtype], zeros=False)
        if not ones and mine.number == 0:
            yield isa.SetValue(dst=y, value=0)
            yield isa.DataCacheCleanAndInvalid(at=y)
        yield from mine.run()
        yield from splitter.run(mask, [(x, y)])

    counts.launch(k, "compress", vector, cube)

    @k.reference
    def expected(inputs: Mapping[str, np.ndarray]) -> dict[str, Expected]:
        found = inputs["x"][inputs["mask"] == 1]
        return {"y": Expected(found if found.size else np.zeros(1, x.dtype.np))}


compress.from_inputs(partial(sizes_and_selection, "compress"))
