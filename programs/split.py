"""Split and SplitInd: elements whose mask is one come first, in order (arXiv 2505.15112, section 6.1)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Literal

import numpy as np
from pydantic import PositiveInt

from npusim import Builder, Expected, Kernel, program

from ._carries import Steps
from ._masks import mask_input
from ._mcscan import CubeSide
from ._split import CoreCounts, Counts, Generation, Share, Side, Splitter, evenly, sizes

Word = Literal["float16", "int16", "uint16"]


@program
def split(
    k: Builder,
    *,
    n: PositiveInt = 1 << 20,
    s: Side = 128,
    dtype: Word = "float16",
    density: Share = 0.5,
    generation: Generation = "scan",
    cores: PositiveInt | None = None,
) -> None:
    """Move the elements whose mask is one to the front and the others behind them, both in order.

    The mask holds zeros and ones. `generation=scan` finds the places with MCScan over the mask on all cores,
    `reduce` with sums of the mask on the vector cores, as the authors' later code. Values are moved as they
    are, NaN included. `density` is the share of ones of the mask that is made; a run with `--timing-only`,
    which has no values, takes the ones as evenly spread. `cores` is the number of AI cores.
    """
    _split(k, "split", n, s, dtype, density, generation, cores, indices=False)


@program
def split_ind(
    k: Builder,
    *,
    n: PositiveInt = 1 << 20,
    s: Side = 128,
    dtype: Word = "float16",
    density: Share = 0.5,
    generation: Generation = "scan",
    cores: PositiveInt | None = None,
) -> None:
    """Move elements and their int32 indices as `split` does."""
    _split(k, "split_ind", n, s, dtype, density, generation, cores, indices=True)


def _split(
    k: Builder,
    name: str,
    n: int,
    s: int,
    dtype: str,
    density: float,
    generation: Generation,
    cores: int | None,
    *,
    indices: bool,
) -> None:
    ones = round(density * n)
    x, mask = k.input("x", (n,), dtype), mask_input(k, n, ones)
    arrays = [(x, k.output("y", (n,), dtype))]
    if indices:
        index = k.input("index", (n,), "int32", lambda _: np.arange(n, dtype=np.int32))
        arrays.append((index, k.output("y_index", (n,), "int32")))
    counts = Counts(k, mask, n, s, generation, cores, evenly(n, ones))

    def cube(c: Kernel, side: CubeSide) -> Steps:
        yield from side.run()
        yield from c.sync_all()

    def vector(c: Kernel, mine: CoreCounts) -> Steps:
        splitter = Splitter(mine, [source.dtype for source, _ in arrays], zeros=True)
        yield from mine.run()
        yield from splitter.run(mask, arrays)

    counts.launch(k, name, vector, cube)

    @k.reference
    def expected(inputs: Mapping[str, np.ndarray]) -> dict[str, Expected]:
        order = np.argsort(inputs["mask"] != 1, kind="stable")
        found = {"y": Expected(inputs["x"][order])}
        if indices:
            found["y_index"] = Expected(inputs["index"][order])
        return found


split.from_inputs(partial(sizes, "split"))
split_ind.from_inputs(partial(sizes, "split_ind"))
