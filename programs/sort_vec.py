"""The vector-only baseline of sorting: Sort32 and a tree of merges on all vector cores."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Literal

import numpy as np
from pydantic import PositiveInt

from npusim import Builder, Expected, Kernel, Pipe, isa, program
from npusim.units import align_up, ceil_div

from ._carries import Steps
from ._multi_core import Arena, span
from ._share import vector_cores
from ._sort_vec import RUN, WAYS, Chunk, ChunkSort, RunMerge, Unpack, floats, sorted_order
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

    Each core sorts runs of at most a chunk in its buffer with Sort32 and MrgSort; then up to four runs at a
    time are merged by one core, round after round, until there is one. Every round leaves a power of four of
    them, as equal as can be, for the last rounds keep few cores busy. Ascending order sorts the negated
    values. -0 equals +0, and a NaN lies beyond the infinity of its sign. `cores` is the number of vector
    cores. A run with `--timing-only`, which has no values, takes the runs of a merge to be used up together.
    """
    x = k.input("x", (n,), dtype, floats(dtype, n))
    y, y_index = k.output("y", (n,), dtype), k.output("y_index", (n,), "int32")
    runs = [k.workspace(f"runs{i}", (n,), "uint64") for i in range(2)]
    descending = order == "descending"
    most = vector_cores(k.chip, "sort_vec", cores or 0)
    leaf = _leaf(n, chunk, most)
    blocks = min(most, ceil_div(n, leaf))

    def spans(size: int) -> list[Span]:
        return [(start, min(start + size, n)) for start in range(0, n, size)]

    def stream(c: Kernel) -> Steps:
        arena = Arena(c, 20 * chunk)
        sorter = ChunkSort(c, arena, chunk, x.dtype, descending=descending)
        merger = RunMerge(c, arena, chunk // WAYS, x.dtype)
        unpack = Unpack(c, arena, chunk // 2, x.dtype, descending=descending)
        done, stored = c.flag(Pipe.V, Pipe.MTE3), c.flag(Pipe.MTE3, Pipe.V)
        source, target = runs

        mine = spans(leaf)[c.block :: blocks]
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

        there = spans(leaf)
        yield from merger.start()
        while len(there) > 1:
            groups = _groups(there)
            for group in groups[c.block :: blocks]:
                yield from merger.run(source, target, group)
            yield from c.sync_all()
            source, target = target, source
            there = [(group[0][0], group[-1][1]) for group in groups]
        yield from merger.stop()

        pieces = spans(unpack.size)
        share = span(c.block, ceil_div(len(pieces), blocks), len(pieces))
        yield from unpack.run(source, y, y_index, pieces[share.start : share.stop])

    k.launch("sort_vec", vector=stream, blocks=blocks)

    @k.reference
    def expected(inputs: Mapping[str, np.ndarray]) -> dict[str, Expected]:
        first = sorted_order(inputs["x"], descending=descending)
        return {"y": Expected(inputs["x"][first]), "y_index": Expected(first.astype(np.int32))}


def _leaf(n: int, chunk: int, cores: int) -> int:
    """Return how many elements a core sorts in its buffer at a time.

    Short inputs make as many runs as two rounds of merges take, but none below a quarter of a chunk, which
    one core sorts faster than several cores and one more round.
    """
    runs = min(cores, WAYS * WAYS)
    return align_up(min(chunk, max(ceil_div(n, runs), chunk // WAYS)), RUN)


def _groups(runs: list[Span]) -> list[list[Span]]:
    """Share runs evenly among the most merges that leave a power of four of them."""
    count = 1
    while count * WAYS < len(runs):
        count *= WAYS
    edges = [i * len(runs) // count for i in range(count + 1)]
    return [runs[start:stop] for start, stop in pairwise(edges)]


@sort_vec.from_inputs
def _sizes(inputs: Mapping[str, np.ndarray]) -> dict[str, object]:
    x = inputs["x"]
    return {"n": x.size, "dtype": x.dtype.name}
