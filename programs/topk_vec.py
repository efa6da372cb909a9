"""The vector-only baseline of top-k: every core keeps the best of sorted chunks; then lists are merged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, PositiveInt

from npusim import Builder, Expected, Kernel, Pipe, isa, program
from npusim.errors import ConfigError
from npusim.units import align_up, ceil_div

from ._carries import Steps
from ._counted import BARRIER
from ._multi_core import Arena
from ._share import vector_cores
from ._sort_vec import (
    WAYS,
    Chunk,
    ChunkSort,
    floats,
    merge_or_copy,
    parts_of,
    sorted_order,
    take_apart,
)


@program
def topk_vec(
    k: Builder,
    *,
    n: PositiveInt = 1 << 20,
    top: Annotated[int, Field(ge=1, le=2048)] = 64,
    dtype: Literal["float16", "float32"] = "float16",
    chunk: Chunk = 2048,
    cores: PositiveInt | None = None,
) -> None:
    """Find the `top` largest of n floats and their int32 indices, in descending order, on vector cores alone.

    Each core sorts chunks and merges the first `top` of each with the best so far; then the lists of four
    cores at a time are merged until one is left. Of equal values the first come first; -0 equals +0, and a
    NaN lies beyond the infinity of its sign. `top` is at most 2048, so that four lists fit into the buffer;
    `cores` is the number of vector cores.
    """
    if top > n:
        raise ConfigError(f"topk_vec: top={top} must be 1..{n}, the elements there are")
    x = k.input("x", (n,), dtype, floats(dtype, n))
    y, y_index = k.output("y", (top,), dtype), k.output("y_index", (top,), "int32")
    chunks = [(start, min(start + chunk, n)) for start in range(0, n, chunk)]
    blocks = min(vector_cores(k.chip, "topk_vec", cores or 0), len(chunks))
    each = ceil_div(len(chunks), blocks)
    shares = [chunks[i : i + each] for i in range(0, len(chunks), each)]
    blocks = len(shares)
    lists = k.workspace("lists", (blocks, top), "uint64")
    sizes = [min(top, share[-1][1] - share[0][0]) for share in shares]

    def stream(c: Kernel) -> Steps:
        arena = Arena(c, max(20 * chunk, 8 * (WAYS - 1) * (top + 4)))
        best, other = (c.ub(align_up(WAYS * top, 8), isa.U64) for _ in range(2))
        sorter = ChunkSort(c, arena, chunk, x.dtype, descending=True)
        loaded, merged = c.flag(Pipe.MTE2, Pipe.V), c.flag(Pipe.V, Pipe.MTE3)
        mine, count = shares[c.block], 0

        yield from sorter.start()
        yield from sorter.load(x, mine[:1])
        for i, part in enumerate(mine):
            yield from sorter.sort(part)
            yield from sorter.load(x, mine[i + 1 : i + 2])
            runs = [best, sorter.run] if count else [sorter.run]
            lengths = [n for n in (count, min(top, sorter.run.size)) if n]
            yield from merge_or_copy(c, other, runs, lengths, x.dtype)
            yield BARRIER
            best, other, count = other, best, min(top, sum(lengths))
        yield from sorter.stop()

        arena.reset()
        windows = [arena.ub(top, isa.U64) for _ in range(WAYS - 1)]
        totals, step = list(sizes), 1
        while step < blocks:
            lead = c.block % (WAYS * step) == 0
            if c.block % step == 0 and not lead:
                yield merged.set
                yield merged.wait
                yield isa.copy_out(lists[c.block].flat(0, count), best.flat(0, count))
            yield from c.sync_all()
            others = [b for b in range(c.block + step, c.block + WAYS * step, step) if b < blocks]
            if lead and others:
                for window, b in zip(windows, others, strict=False):
                    yield isa.copy_in(window.flat(0, totals[b]), lists[b].flat(0, totals[b]))
                yield loaded.set
                yield loaded.wait
                lengths = [count, *(totals[b] for b in others)]
                yield from merge_or_copy(c, other, [best, *windows[: len(others)]], lengths, x.dtype)
                yield BARRIER
                best, other, count = other, best, min(top, sum(lengths))
            for b in range(0, blocks, WAYS * step):
                totals[b] = min(top, sum(totals[b : b + WAYS * step : step]))
            step *= WAYS

        if c.block == 0:
            values, numbers = parts_of(other, x.dtype)
            yield from take_apart(c, best, values, numbers, top)
            yield merged.set
            yield merged.wait
            yield isa.copy_out(y, values.flat(0, top))
            yield isa.copy_out(y_index, numbers.flat(0, top))

    k.launch("topk_vec", vector=stream, blocks=blocks)

    @k.reference
    def expected(inputs: Mapping[str, np.ndarray]) -> dict[str, Expected]:
        first = sorted_order(inputs["x"], descending=True)[:top]
        return {"y": Expected(inputs["x"][first]), "y_index": Expected(first.astype(np.int32))}


@topk_vec.from_inputs
def _sizes(inputs: Mapping[str, np.ndarray]) -> dict[str, object]:
    x = inputs["x"]
    return {"n": x.size, "dtype": x.dtype.name}
