"""Top-k by bisection and split (arXiv 2505.15112, section 5.4)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Literal

import numpy as np
from pydantic import PositiveInt

from npusim import Builder, Expected, Kernel, Pipe, isa, program
from npusim.errors import ConfigError

from ._carries import Steps
from ._split import Counts, Side, Splitter, evenly, sizes
from ._topk import Extremes, Mover, Pivots, Search, Window


@program
def topk(
    k: Builder,
    *,
    n: PositiveInt = 1 << 16,
    top: PositiveInt = 1024,
    s: Side = 128,
    dtype: Literal["float16", "int16"] = "float16",
    cores: PositiveInt | None = None,
) -> None:
    """Find the `top` largest of n elements of 16 bits and their int32 indices, by pivots that halve the range
    of keys, and a SplitInd for each.

    All vector cores find the smallest and the largest key. Then a step makes a mask of the keys above the
    middle of the range and counts them; SplitInd moves them to the front, and the part that holds the
    `top`-th goes on, until it is wanted as a whole or its keys are equal: 16 steps at most. Splits are those
    of `split` with `generation=reduce`, so the cubes have nothing to do. Keys of float16 are as in
    `radix_sort`: -0 lies below +0, and a NaN beyond the infinity of its sign; elements are moved as they are.

    Of equal elements the first come first. The result is not sorted: larger parts come before smaller ones,
    and inside a part elements are in the order of the input. A run with `--timing-only`, which has no values,
    takes keys of all the range, of which every pivot has half above it. `cores` is the number of AI cores.
    """
    if top > n:
        raise ConfigError(f"topk: top={top} must be 1..{n}, the elements there are")
    x = k.input("x", (n,), dtype, lambda generator: _random(generator, dtype, n))
    y, y_index = k.output("y", (top,), dtype), k.output("y_index", (top,), "int32")
    mask = k.workspace("mask", (n,), "int8")
    coded = dtype == "float16"
    keys = [k.workspace(f"keys{i}", (n,), dtype) for i in range(2)]
    index = [k.workspace(f"index{i}", (n,), "int32") for i in range(2)]
    counts = Counts(k, mask, n, s, "reduce", cores, evenly(n, n // 2))
    ends = k.workspace("ends", (2 * counts.vectors,), "int16")

    def vector(c: Kernel) -> Steps:
        mine = Window(counts, c)
        splitter = Splitter(mine, [x.dtype, isa.S32], zeros=True)
        extremes, pivots, mover = Extremes(mine, ends), Pivots(mine), Mover(mine)
        yield from mine.start()
        yield from pivots.start()
        yield from pivots.number(index[0])
        if coded:
            yield from pivots.code(x, keys[0])
        else:
            yield isa.PipeBarrier(on=Pipe.ALL)
            yield from mover.run(x, keys[0])
        yield isa.PipeBarrier(on=Pipe.ALL)
        low, high = yield from extremes.run(keys[0].as_type(isa.S16))
        search, turn = Search(0, n, top, low, high), 0
        found: list[tuple[int, int, int]] = []
        while (pivot := search.pivot) is not None:
            first, count = search.first, search.stop - search.first
            mine.resize(count)
            yield from pivots.larger(keys[turn].flat(first, count), mask, pivot)
            yield from c.sync_all()
            yield from mine.run()
            if 0 < mine.total < count:
                arrays = [[tile.flat(first, count) for tile in (a[turn], a[1 - turn])] for a in (keys, index)]
                yield from splitter.run(mask, [(source, target) for source, target in arrays])
                turn = 1 - turn
            yield from c.sync_all()
            if search.go_on(pivot, mine.total):
                found.append((turn, first, mine.total))
        found.append((turn, search.first, search.want))
        for turn, first, count in found:
            if not count:
                continue
            mine.resize(count)
            part = keys[turn].flat(first, count)
            move = pivots.code if coded else mover.run
            yield isa.PipeBarrier(on=Pipe.ALL)
            yield from move(part, y.flat(first, count))
            yield isa.PipeBarrier(on=Pipe.ALL)
            yield from mover.run(index[turn].flat(first, count), y_index.flat(first, count))
        yield from pivots.stop()
        yield from mine.stop()

    k.launch("topk", vector=vector, blocks=counts.vectors)

    @k.reference
    def expected(inputs: Mapping[str, np.ndarray]) -> dict[str, Expected]:
        order = _partition(inputs["x"], top)
        return {"y": Expected(inputs["x"][order]), "y_index": Expected(order.astype(np.int32))}


topk.from_inputs(partial(sizes, "topk"))


def _random(generator: np.random.Generator, dtype: str, n: int) -> np.ndarray:
    """Return normal numbers, or any integers."""
    if dtype == "float16":
        return generator.standard_normal(n).astype(dtype)
    return generator.integers(-(1 << 15), 1 << 15, n, dtype)


def _partition(x: np.ndarray, top: int) -> np.ndarray:
    """Return the indices of the largest elements, larger parts first."""
    bits = x.view(np.int16).astype(np.int64)
    keys = np.where(bits < 0, bits ^ 0x7FFF, bits) if x.dtype.kind == "f" else bits
    done: list[np.ndarray] = []
    part = np.arange(x.size)
    low, high = keys.min(), keys.max()
    while 0 < top < part.size and low < high:
        middle = (low + high) >> 1
        above, below = part[keys[part] > middle], part[keys[part] <= middle]
        if above.size > top:
            part, low = above, middle + 1
        else:
            done.append(above)
            top, part, high = top - above.size, below, middle
    return np.concatenate([*done, part[:top]])
