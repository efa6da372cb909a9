"""Small programs for tests of the command line: right, wrong, racy, stuck, crashing, noisy, by data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np

from npusim import Builder, Expected, Kernel, Pipe, isa, program
from npusim.errors import ConfigError


def copy_stream(x: isa.Tile, y: isa.Tile, *, ordered: bool = True):
    def stream(c: Kernel) -> Iterator[isa.Instruction]:
        part = x.size // 2
        for block in range(2):
            tile = c.ub(part, x.dtype)
            loaded = c.flag(Pipe.MTE2, Pipe.MTE3)
            yield isa.copy_in(tile, x.flat(block * part, part))
            if ordered:
                yield loaded.set
                yield loaded.wait
            yield isa.copy_out(y.flat(block * part, part), tile)

    return stream


@program
def copy(k: Builder, *, n: int = 256, dtype: Literal["float16", "float32"] = "float32") -> None:
    """Copy n elements in two parts. NaN is copied like any other value."""
    if n % 2:
        raise ConfigError(f"copy: n must be even, not {n}")
    x, y = k.input("x", (n,), dtype), k.output("y", (n,), dtype)
    k.launch("copy", vector=copy_stream(x, y))
    k.reference(lambda inputs: {"y": Expected(inputs["x"])})


@copy.from_inputs
def _sizes(inputs: dict[str, np.ndarray]) -> dict[str, object]:
    return {"n": inputs["x"].shape[0], "dtype": inputs["x"].dtype.name} if "x" in inputs else {}


@program
def wrong(k: Builder, *, n: int = 256) -> None:
    """Copy, but expect one more."""
    x, y = k.input("x", (n,), "float32"), k.output("y", (n,), "float32")
    k.launch("copy", vector=copy_stream(x, y))
    k.reference(lambda inputs: {"y": Expected(inputs["x"] + np.float32(1))})


@program
def racy(k: Builder, *, n: int = 256) -> None:
    """Copy without flags."""
    x, y = k.input("x", (n,), "float32"), k.output("y", (n,), "float32")
    k.launch("copy", vector=copy_stream(x, y, ordered=False))


@program
def stuck(k: Builder) -> None:
    """Wait for a flag that nobody sets."""
    k.output("y", (8,), "float32")
    k.launch("stuck", vector=lambda c: [isa.WaitFlag(src=Pipe.MTE2, dst=Pipe.V, id=0)])


@program
def crash(k: Builder, *, where: Literal["build", "stream", "library", "exit"] = "build") -> None:
    """Raise what a beginner's program may raise."""
    x, y = k.input("x", (64,), "float32"), k.output("y", (64,), "float32")
    if where == "build":
        [][1]
    if where == "exit":
        raise SystemExit

    def stream(c: Kernel) -> Iterator[isa.Instruction]:
        if where == "library":
            c.ub(1 << 20, x.dtype)
        yield isa.copy_in(c.ub(64, x.dtype), x)
        yield isa.copy_out(y, 1 / 0)

    k.launch("crash", vector=stream)


@program
def noisy(k: Builder) -> None:
    """Copy and print."""
    print("built")
    x, y = k.input("x", (64,), "float32"), k.output("y", (64,), "float32")
    inner = copy_stream(x, y)

    def stream(c: Kernel) -> Iterator[isa.Instruction]:
        print("started")
        yield from inner(c)

    k.launch("copy", vector=stream)


@program
def counted(k: Builder) -> None:
    """Copy as many blocks as the first element of the input says."""
    x = k.input("x", (64,), "int32", lambda g: np.full(64, 3, np.int32))
    y = k.output("y", (64,), "int32")

    def stream(c: Kernel) -> Iterator[isa.Instruction]:
        count = yield isa.GetValue(reg=1, src=x)
        tile, loaded = c.ub(64, x.dtype), c.flag(Pipe.MTE2, Pipe.MTE3)
        yield isa.copy_in(tile, x)
        yield loaded.set
        yield loaded.wait
        yield isa.copy_out(y, tile)
        for _ in range(count):
            yield isa.ScalarWork(count=10)

    k.launch("counted", vector=stream)
    k.reference(lambda inputs: {"y": Expected(inputs["x"])})


@program(name="two words")
def odd(k: Builder, *, text: str = 'a "b" # c') -> None:
    """Two launches, names that need quotes, a constant, and an array that is read and written."""
    table = k.constant("table", np.arange(64, dtype=np.float32))
    y, z = k.inout("y", (64,), "float32"), k.output("z", (2, 32), "float32")
    k.workspace("room", (8,), "int8")
    k.launch("first # launch", vector=copy_stream(table, y))
    k.launch("second", vector=copy_stream(y, z.reshape(64)), blocks=1)


@program
def wide(k: Builder, *, blocks: int = 4) -> None:
    """Copy on several vector cores."""
    x, y = k.input("x", (blocks, 64), "float32"), k.output("y", (blocks, 64), "float32")

    def stream(c: Kernel) -> Iterator[isa.Instruction]:
        yield from copy_stream(x[c.block], y[c.block])(c)

    k.launch("wide", vector=stream, blocks=blocks)
    k.reference(lambda inputs: {"y": Expected(inputs["x"])})
