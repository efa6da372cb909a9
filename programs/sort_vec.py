"""The vector-only baseline of sorting: Sort32 and a tree of merges on all vector cores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
from pydantic import PositiveInt

from npusim import Builder, Expected, Kernel, Pipe, isa, program
from npusim.units import ceil_div

from ._carries import Steps
from ._multi_core import Arena, span
from ._share import vector_cores
from ._sort_vec import WAYS, Chunk, ChunkSort, RunMerge, Unpack, floats, sorted_order
from ._split import Span


@program
def sort_vec(
    k: Builder,
    *,
    n: PositiveInt = 1 << 20,
    dtype: Literal["float16", "float32"] = "float16",
    order: Literal["ascending", "descending"] = "ascending",
    chunk: Chunk = 8192,
    cores: PositiveInt | None = None,
) -> None:
    """Sort n floats with their int32 indices, stably, on the vector cores alone.

    Each core sorts chunks in its buffer with Sort32 and MrgSort; then four runs at a time are merged by one
    core, round after round, until there is one: the last rounds keep few cores busy. Ascending order sorts
    the negated values. -0 equals +0, and a NaN lies beyond the infinity of its sign. `cores` is the number of
    vector cores. A run with `--timing-only`, which has no values, takes the runs of a merge to be used up
    together.
    """
    x = k.input("x", (n,), dtype, floats(dtype, n))
    y, y_index = k.output("y", (n,), dtype), k.output("y_index", (n,), "int32")
    runs = [k.workspace(f"runs{i}", (n,), "uint64") for i in range(2)]
    descending = order == "descending"
    blocks = min(vector_cores(k.chip, "sort_vec", cores or 0), ceil_div(n, chunk))

    def spans(size: int) -> list[Span]:
        return [(start, min(start + size, n)) for start in range(0, n, size)]

    def stream(c: Kernel) -> Steps:
        arena = Arena(c, 20 * chunk)
        sorter = ChunkSort(c, arena, chunk, x.dtype, descending=descending)
        merger = RunMerge(c, arena, chunk // WAYS, x.dtype)
        unpack = Unpack(c, arena, chunk // 2, x.dtype, descending=descending)
        done, stored = c.flag(Pipe.V, Pipe.MTE3), c.flag(Pipe.MTE3, Pipe.V)
        source, target = runs

        mine = spans(chunk)[c.block :: blocks]
        yield from sorter.start()
        yield stored.set
        yield from sorter.load(x, mine[:1])
        for i, part in enumerate(mine):
            yield stored.wait
            yield from sorter.sort(part)
            yield done.set
            yield from sorter.load(x, mine[i + 1 : i + 2])
            yield done.wait
            yield isa.copy_out(source.flat(part[0], part[1] - part[0]), sorter.run)
            yield stored.set
        yield stored.wait
        yield from sorter.stop()
        yield from c.sync_all()

        length = chunk
        yield from merger.start()
        while length < n:
            there = spans(length)
            groups = [there[i : i + WAYS] for i in range(0, len(there), WAYS)]
            for group in groups[c.block :: blocks]:
                yield from merger.run(source, target, group)
            yield from c.sync_all()
            source, target = target, source
            length *= WAYS
        yield from merger.stop()

        pieces = spans(unpack.size)
        share = span(c.block, ceil_div(len(pieces), blocks), len(pieces))
        yield from unpack.run(source, y, y_index, pieces[share.start : share.stop])

    k.launch("sort_vec", vector=stream, blocks=blocks)

    @k.reference
    def expected(inputs: Mapping[str, np.ndarray]) -> dict[str, Expected]:
        first = sorted_order(inputs["x"], descending=descending)
        return {"y": Expected(inputs["x"][first]), "y_index": Expected(first.astype(np.int32))}


@sort_vec.from_inputs
def _sizes(inputs: Mapping[str, np.ndarray]) -> dict[str, object]:
    x = inputs["x"]
    return {"n": x.size, "dtype": x.dtype.name}
