"""Micro-programs for calibration: one instruction again and again, as the vendor's samples measure it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, PositiveInt

from npusim import Builder, Expected, Kernel, Pipe, isa, program


@program
def mmad_repeat(
    k: Builder,
    *,
    count: PositiveInt = 8,
    m: PositiveInt = 128,
    k_: PositiveInt = 64,
    n: PositiveInt = 256,
    dtype: Literal["float16", "bfloat16", "float32", "int8"] = "float16",
) -> None:
    """Issue `count` products of m x k_ by k_ x n back to back into one place, and store the last.

    The operands are whole numbers, so the result is exact in every order.
    """
    sums = "int32" if dtype == "int8" else "float32"
    a, b = k.input("a", (m, k_), dtype), k.input("b", (n, k_), dtype)
    y = k.output("y", (m, n), sums)

    def cube(c: Kernel) -> Iterator[isa.Instruction]:
        rows, columns = -(-m // 16) * 16, -(-n // 16) * 16
        lanes = 32 // a.dtype.size
        depth = -(-k_ // lanes) * lanes  # tiles in fractals have whole ones
        a1, b1 = c.l1((rows, depth), a.dtype), c.l1((columns, depth), b.dtype)
        a0, b0 = c.l0a(a1.shape, a.dtype), c.l0b(b1.shape, b.dtype)
        acc = c.l0c((a1.shape[0], b1.shape[0]), y.dtype)
        loaded, ready, done = (
            c.flag(Pipe.MTE2, Pipe.MTE1),
            c.flag(Pipe.MTE1, Pipe.M),
            c.flag(Pipe.M, Pipe.FIX),
        )
        yield isa.nd_to_nz(a1, a, m, k_)
        yield isa.nd_to_nz(b1, b, n, k_)
        yield loaded.set
        yield loaded.wait
        yield isa.load_a(a0, a1, m, k_)
        yield isa.load_b(b0, b1, k_, n, transpose=False)
        yield ready.set
        yield ready.wait
        product = isa.mmad(acc, a0, b0, m, k_, n, init=True)
        for _ in range(count):
            yield product
            if (rows // 16) * (columns // 16) < c.chip.cube.interlock_fractals:
                yield isa.PipeBarrier(on=Pipe.M)
        yield done.set
        yield done.wait
        yield isa.store_nd(y, acc, m, n)

    k.launch("mmad_repeat", cube=cube)

    @k.reference
    def expected(inputs: Mapping[str, np.ndarray]) -> dict[str, Expected]:
        left, right = inputs["a"].astype(np.float64), inputs["b"].astype(np.float64)
        return {"y": Expected(left @ right.T)}


PLACES = {
    "free": (0x0, 0x8100, 0x10000),
    "sources": (0x0, 0x8000, 0x10000),
    "in_place": (0x0, 0x14100, 0x0),
    "shifted": (0x0, 0x14100, 0x8020),
}
"""Byte addresses of src0, src1 and dst: no conflict; both sources in one bank group; dst equal to src0; dst
32 bytes behind src0 in the same bank (the cases of the vendor's bank conflict sample).
"""


@program
def add_repeat(
    k: Builder,
    *,
    count: PositiveInt = 1000,
    repeat: Annotated[int, Field(ge=1, le=127)] = 64,
    place: Literal["free", "sources", "in_place", "shifted"] = "free",
) -> None:
    """Issue `count` additions of `repeat` times 64 float32 with operands at chosen bank positions.

    With `in_place` and `shifted` the sum grows with every addition, so no reference is given there.
    """
    size = repeat * 64
    x = k.input("x", (2, size), "float32")
    y = k.output("y", (size,), "float32")

    def vector(c: Kernel) -> Iterator[isa.Instruction]:
        src0, src1, dst = (isa.Tile(isa.Operand(isa.Space.UB, isa.F32, at), (size,)) for at in PLACES[place])
        loaded, done = c.flag(Pipe.MTE2, Pipe.V), c.flag(Pipe.V, Pipe.MTE3)
        yield isa.copy_in(src0, x[0])
        yield isa.copy_in(src1, x[1])
        yield loaded.set
        yield loaded.wait
        add = isa.Add(dst=dst, src0=src0, src1=src1, repeat=repeat)
        for _ in range(count):
            yield add
            yield isa.PipeBarrier(on=Pipe.V)
        yield done.set
        yield done.wait
        yield isa.copy_out(y, dst)

    k.launch("add_repeat", vector=vector)

    if place in ("free", "sources"):

        @k.reference
        def expected(inputs: Mapping[str, np.ndarray]) -> dict[str, Expected]:
            return {"y": Expected(inputs["x"].sum(axis=0))}


@program
def load_repeat(
    k: Builder, *, count: PositiveInt = 256, nbytes: PositiveInt = 8192, in_flight: PositiveInt = 2
) -> None:
    """Load `count` pieces of `nbytes` bytes into the unified buffer of one vector core, `in_flight` at a
    time.

    The vector unit waits for every group of `in_flight` loads and frees it, as the vendor's addition sample
    does; the last piece is stored.
    """
    x = k.input("x", (count * nbytes,), "int8")
    y = k.output("y", (nbytes,), "int8")

    def vector(c: Kernel) -> Iterator[isa.Instruction]:
        pieces = [c.ub(nbytes, isa.S8) for _ in range(in_flight)]
        loaded, free = c.flag(Pipe.MTE2, Pipe.V), c.flag(Pipe.V, Pipe.MTE2)
        done = c.flag(Pipe.MTE2, Pipe.MTE3)
        yield free.set
        for first in range(0, count, in_flight):
            yield free.wait
            for i, piece in zip(range(first, min(count, first + in_flight)), pieces, strict=False):
                yield isa.copy_in(piece, x.flat(i * nbytes, nbytes))
            yield loaded.set
            yield loaded.wait
            yield free.set
        yield free.wait
        yield done.set
        yield done.wait
        yield isa.copy_out(y, pieces[(count - 1) % in_flight])

    k.launch("load_repeat", vector=vector)

    @k.reference
    def expected(inputs: Mapping[str, np.ndarray]) -> dict[str, Expected]:
        return {"y": Expected(inputs["x"][-nbytes:])}
