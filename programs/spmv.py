"""Sparse matrix times vector, CSR (arXiv 2505.15112's repository: gather, products, segmented sums)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
from pydantic import PositiveInt

from npusim import Builder, Expected, Kernel, Pipe, isa, program
from npusim.errors import ConfigError

from ._carries import Allocate, Steps
from ._counted import BARRIER, counted
from ._prefix_sum import UNIT, saturated
from ._seg_reference import check_offsets, last_sums, offsets_of, segment_bound, segment_sums
from ._segments import CoreSums, Segments
from ._split import Side

BATCH = 4096
"""Nonzeros that a vector core multiplies at a time."""
GUARD = 8
"""Zeros before and behind a window of the vector: what lies outside is read there."""


@program
def spmv(
    k: Builder,
    *,
    rows: PositiveInt = 1 << 12,
    columns: PositiveInt = 1 << 12,
    nonzeros: PositiveInt = 1 << 16,
    window: PositiveInt = 8192,
    s: Side = 128,
    dtype: Literal["float16", "float32"] = "float16",
    cores: PositiveInt | None = None,
) -> None:
    """Multiply a sparse matrix by a dense vector: y = A v, in float32.

    The matrix is in CSR: `offsets` of the rows, and `column` and `value` of each of one nonzero or more. The
    vector cores make the products: they hold `window` elements of the vector at a time, Gather those that
    nonzeros ask for (zero for what lies outside the window), and add over the windows. Then the products
    are summed by row as in `seg_sum`. A product is rounded once to float32, which is exact for float16; sums
    of integers below 2^24 are exact. A product that is NaN reads as zero, an infinite one as the largest
    finite number. `cores` is the number of AI cores. A run with `--timing-only` takes rows as equally full.
    """
    if window % GUARD:
        raise ConfigError(f"spmv: window={window} must be a multiple of {GUARD}, which fill a block")
    value = k.input("value", (nonzeros,), dtype, lambda g: g.uniform(-1, 1, nonzeros).astype(dtype))
    column = k.input(
        "column", (nonzeros,), "int32", lambda g: g.integers(0, columns, nonzeros, dtype=np.int32)
    )
    offsets = k.input("offsets", (rows + 1,), "int32", offsets_of(nonzeros, rows))
    v = k.input("v", (columns,), dtype, lambda g: g.uniform(-1, 1, columns).astype(dtype))
    y = k.output("y", (rows,), "float32")
    products = k.workspace("products", (nonzeros,), "float32")
    of = Segments(k, products, offsets, isa.F32, s, cores)

    def prepare(c: Kernel, ub: Allocate, number: int) -> Steps:
        start, stop = of.share(number)
        if start < stop:
            made = Products(c, ub, value.dtype, min(window, -(-columns // GUARD) * GUARD), of.piece)
            yield from made.run(value, column, v, products, start, stop)

    of.launch(
        k, "spmv", lambda c, ub, number: CoreSums(c, ub, of, y, number), prepare, "use a smaller window or s"
    )

    @k.reference
    def expected(inputs: Mapping[str, np.ndarray]) -> dict[str, Expected]:
        exact = inputs["value"].astype(np.float64) * inputs["v"][inputs["column"]].astype(np.float64)
        given, cuts = saturated(exact.astype(np.float32)).astype(np.float64), inputs["offsets"]
        sums = segment_sums(given, cuts)
        bound = segment_bound(given, sums, cuts, s, of.vectors) + 2 * UNIT * segment_sums(np.abs(given), cuts)
        return {"y": Expected(last_sums(sums, cuts), last_sums(bound, cuts))}


class Products:
    """Products of nonzeros with the elements of a vector that their columns name, by one vector core."""

    def __init__(self, c: Kernel, ub: Allocate, dtype: isa.DType, window: int, most: int) -> None:
        self._c, self._dtype, self._window, self._size = c, dtype, window, min(BATCH, most)
        size = self._size
        self._column, self._place, self._found = ub(size, isa.S32), ub(size, isa.S32), ub(size, isa.F32)
        self._sum, self._factor = ub(size, isa.F32), ub(size, isa.F32)
        self._v = ub(window + 2 * GUARD, isa.F32)
        narrow = dtype is not isa.F32
        self._given = ub(size, dtype) if narrow else self._factor
        self._short = ub(window, dtype) if narrow else self._v.flat(GUARD, window)
        self._loaded, self._free = c.flag(Pipe.MTE2, Pipe.V), c.flag(Pipe.V, Pipe.MTE2)
        self._done, self._stored = c.flag(Pipe.V, Pipe.MTE3), c.flag(Pipe.MTE3, Pipe.V)

    def run(
        self, value: isa.Tile, column: isa.Tile, v: isa.Tile, y: isa.Tile, start: int, stop: int
    ) -> Steps:
        """Multiply the nonzeros from `start` up to `stop`."""
        windows = range(0, v.size, self._window)
        yield isa.SetMaskCount()
        yield from counted(isa.Duplicate, self._v.size, dst=self._v, scalar=0)
        yield self._free.set
        yield self._stored.set
        for at in range(start, stop, self._size):
            count = min(self._size, stop - at)
            yield self._free.wait
            yield isa.copy_in(self._column.flat(0, count), column.flat(at, count))
            yield isa.copy_in(self._given.flat(0, count), value.flat(at, count))
            yield self._loaded.set
            yield self._loaded.wait
            if self._given is not self._factor:
                yield from counted(isa.Cast, count, dst=self._factor, src=self._given)
            yield self._stored.wait
            for first in windows:
                if at == start or len(windows) > 1:  # a single window stays
                    yield from self._load(v.flat(first, min(self._window, v.size - first)))
                yield from self._gather(first, count, again=first > 0)
            yield BARRIER
            yield from counted(isa.Mul, count, dst=self._sum, src0=self._sum, src1=self._factor)
            yield self._free.set
            yield self._done.set
            yield self._done.wait
            yield isa.copy_out(y.flat(at, count), self._sum.flat(0, count))
            yield self._stored.set
        yield self._free.wait
        yield self._stored.wait

    def _load(self, part: isa.Tile) -> Steps:
        """Load a window, as floats."""
        yield self._free.set
        yield self._free.wait
        yield isa.copy_in(self._short.flat(0, part.size), part)
        yield self._loaded.set
        yield self._loaded.wait
        if self._given is not self._factor:
            yield from counted(isa.Cast, part.size, dst=self._v.flat(GUARD, part.size), src=self._short)

    def _gather(self, first: int, count: int, *, again: bool) -> Steps:
        """Add what a window has of the elements that are asked for: the others come from the zeros."""
        place, found = self._place, self._found if again else self._sum
        low, high = GUARD - 1, GUARD + self._window
        yield from counted(isa.Adds, count, dst=place, src=self._column, scalar=GUARD - first)
        yield BARRIER
        yield from counted(isa.Maxs, count, dst=place, src=place, scalar=low)
        yield BARRIER
        yield from counted(isa.Mins, count, dst=place, src=place, scalar=high)
        yield BARRIER
        yield from counted(isa.Muls, count, dst=place, src=place, scalar=4)
        yield BARRIER
        offsets = place.as_type(isa.U32)
        reach = self._v.nbytes
        yield from counted(isa.Gather, count, dst=found, src=self._v, offsets=offsets, src_bytes=reach)
        yield BARRIER
        if again:
            yield from counted(isa.Add, count, dst=self._sum, src0=self._sum, src1=found)
            yield BARRIER


@spmv.from_inputs
def _sizes(inputs: Mapping[str, np.ndarray]) -> dict[str, object]:
    found: dict[str, object] = {}
    n = None
    for name in ("value", "column"):
        if name in inputs:
            if n not in (None, inputs[name].size):
                raise ConfigError(f"spmv: column has {inputs[name].size} entries, value has {n}")
            n = found["nonzeros"] = inputs[name].size
    if "offsets" in inputs:
        found["nonzeros"] = check_offsets("spmv", "offsets", inputs["offsets"], n)
        found["rows"] = inputs["offsets"].size - 1
    if "v" in inputs:
        found["columns"] = inputs["v"].size
    for name in ("value", "v"):
        if name in inputs:
            found["dtype"] = inputs[name].dtype.name
    if "column" in inputs:
        if "v" not in inputs:
            raise ConfigError("spmv: column is given without v, which it names elements of; give both")
        wrong = (inputs["column"] < 0) | (inputs["column"] >= inputs["v"].size)
        if wrong.any():
            last, bad = inputs["v"].size - 1, inputs["column"][wrong][0]
            raise ConfigError(f"spmv: column must name elements of v, from 0 up to {last}, not {bad}")
    return found
