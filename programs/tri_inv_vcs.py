"""VCS: the column sweep on the vector unit (arXiv 2605.21325; pto-kernels@abe6ecb)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

import numpy as np
from pydantic import FiniteFloat, PositiveInt

from npusim import Builder, Expected, Kernel, Macro, Pipe, isa, program
from npusim.isa.dtype import element_type
from npusim.units import ceil_div

from ._tri import Family, Overflow, Side, Triangle, keep_infinities, places, sizes, triangular_input

_X = isa.Reg(0)
"""The entry of the inverse that a step multiplies by."""


@program
def tri_inv_vcs(
    k: Builder,
    *,
    n: Side = 32,
    batch: PositiveInt = 40,
    dtype: Literal["float16", "float32"] = "float16",
    triangle: Triangle = "lower",
    family: Family = "uniform",
    scale: FiniteFloat = 0.1,
    overflow: Overflow = "ieee",
) -> None:
    """Invert I + A for a batch of strictly triangular matrices by substitution, on the vector units.

    Row j of the inverse (a column, for the transposed matrix) starts as that of I - A; then, from the
    diagonal outwards, b = b - b_k A_k with row k of A. Every step reads b_k back to the scalar unit, between
    flags both ways. The product and the difference are rounded each, as the published kernel's tests demand
    bit by bit. A vector core takes a contiguous share of the matrices.
    """
    at = places(k, n, batch)
    a = triangular_input(k, at, dtype, family, scale, triangle)
    t = k.output("t", at.shape, dtype)
    kind = element_type(dtype)
    cores = min(k.chip.cores.cube * k.chip.cores.vector_per_cube, batch)
    share = ceil_div(batch, cores)
    size = n * n
    made: list[list[Macro]] = []

    def vector(c: Kernel) -> Iterator[isa.Instruction | Macro]:
        given, row, found = c.ub((n, n), kind), c.ub(n, kind), c.ub((n, n), kind)
        loaded, used = c.flag(Pipe.MTE2, Pipe.V), c.flag(Pipe.V, Pipe.MTE2)
        done, stored = c.flag(Pipe.V, Pipe.MTE3), c.flag(Pipe.MTE3, Pipe.V)
        read, counted = c.flag(Pipe.S, Pipe.V), c.flag(Pipe.V, Pipe.S)
        if not made:
            made.append([Macro(sweep(given, row, found, j, triangle, read, counted)) for j in range(n)])
        yield from keep_infinities(overflow)
        yield from c.counter(n)
        for event in (used, stored):
            yield event.set
        for index in range(c.block * share, min((c.block + 1) * share, batch)):
            yield used.wait
            yield isa.copy_in(given.flat(0, size), a.flat(index * size, size))
            yield loaded.set
            yield loaded.wait
            yield stored.wait
            yield from made[0]
            yield used.set
            yield done.set
            yield done.wait
            yield isa.copy_out(t.flat(index * size, size), found.flat(0, size))
            yield stored.set
        for event in (used, stored):
            yield event.wait

    k.launch("tri_inv_vcs", vector=vector, blocks=ceil_div(batch, share))

    @k.reference
    def expected(inputs: Mapping[str, np.ndarray]) -> dict[str, Expected]:
        given = inputs["a"]
        if triangle == "upper":
            given = given[:, ::-1, ::-1]
        value, tolerance = swept(given), np.zeros((batch, 1, 1))
        if overflow == "saturate":  # the sweep above knows infinities and NaN, which this mode does not keep
            finite = np.isfinite(given) & np.isfinite(value)
            tolerance[~finite.all(axis=(1, 2))] = np.inf
        return {"t": Expected(value[:, ::-1, ::-1] if triangle == "upper" else value, tolerance)}


def sweep(
    given: isa.Tile,
    row: isa.Tile,
    found: isa.Tile,
    j: int,
    triangle: Triangle,
    read: object,
    counted: object,
) -> Iterator[isa.Instruction]:
    """Yield what makes row j of the inverse, in counter mode with one row of elements."""
    n = given.shape[0]
    state = isa.State(counter_mode=True, mask=n)

    def rows(cls: type, **operands: object) -> list[isa.Instruction]:
        return isa.contiguous(cls, count=n, state=state, **operands)

    b, between = found[j], isa.PipeBarrier(on=Pipe.V)
    yield from rows(isa.Duplicate, dst=b, scalar=0.0)
    yield counted.set
    yield counted.wait
    yield isa.SetValue(dst=b.flat(j, 1), value=1.0)
    yield read.set
    yield read.wait
    yield from rows(isa.Sub, dst=b, src0=b, src1=given[j])
    for step in range(j - 1, 0, -1) if triangle == "lower" else range(j + 1, n - 1):
        yield counted.set
        yield counted.wait
        yield isa.GetValue(reg=_X.index, src=b.flat(step, 1))
        yield read.set
        yield read.wait
        yield from rows(isa.Muls, dst=row, src=given[step], scalar=_X)
        yield between
        yield from rows(isa.Sub, dst=b, src0=b, src1=row)
    yield between


def swept(lower: np.ndarray) -> np.ndarray:
    """Return the inverses of I + A by the sweep in the element type of strictly lower A (count, n, n): every
    product and every difference rounded.
    """
    count, n, _ = lower.shape
    found = np.zeros_like(lower)
    for j in range(n):
        b = found[:, j]
        b[:, j] = 1
        b -= lower[:, j]
        for k in range(j - 1, 0, -1):
            b -= b[:, k, None] * lower[:, k]
    return found.reshape(count, n, n)


tri_inv_vcs.from_inputs(sizes)
