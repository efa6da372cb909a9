"""A folder with small programs for sweeps."""

from __future__ import annotations

from pathlib import Path

import pytest

PROGRAMS = '''
import os
import signal

from npusim import Builder, Expected, Pipe, isa, program
from npusim.errors import ConfigError


def copying(x, y, part):
    def stream(c):
        loaded, stored = c.flag(Pipe.MTE2, Pipe.MTE3), c.flag(Pipe.MTE3, Pipe.MTE2)
        tile = c.ub(part, x.dtype)
        for start in range(0, x.size, part):
            if start:
                yield stored.set
                yield stored.wait
            yield isa.copy_in(tile, x.flat(start, part))
            yield loaded.set
            yield loaded.wait
            yield isa.copy_out(y.flat(start, part), tile)

    return stream


@program
def copy(k: Builder, *, n: int = 256, part: int = 64, off: float = 0.0) -> None:
    """Copy n floats in parts; the reference is off by some."""
    if n % part:
        raise ConfigError(f"copy: part={part} must divide n={n}")
    x, y = k.input("x", (n,), "float32"), k.output("y", (n,), "float32")
    k.launch("copy", vector=copying(x, y, part))
    k.reference(lambda inputs: {"y": Expected(inputs["x"] + off)})


@program
def by_cores(k: Builder, *, n: int = 64) -> None:
    """Copy n floats on every vector core that the chip has."""
    cores = k.chip.cores.cube * k.chip.cores.vector_per_cube
    x, y = k.input("x", (cores, n), "float32"), k.output("y", (cores, n), "float32")

    def stream(c):
        yield from copying(x[c.block], y[c.block], n)(c)

    k.launch("by_cores", vector=stream, blocks=cores)


@program
def by_data(k: Builder, *, n: int = 64) -> None:
    """Do as much scalar work as the first element of the input says."""
    x, y = k.input("x", (n,), "int32"), k.output("y", (n,), "int32")

    def stream(c):
        count = yield isa.GetValue(reg=1, src=x)
        yield isa.ScalarWork(count=100 + 10 * count)
        yield from copying(x, y, n)(c)

    k.launch("by_data", vector=stream)


@program
def crash(k: Builder, *, n: int = 2) -> None:
    """Divide by n - 1."""
    1 / (n - 1)
    x, y = k.input("x", (64,), "float32"), k.output("y", (64,), "float32")
    print("built")
    k.launch("crash", vector=copying(x, y, 64))


@program
def leaves(k: Builder, *, n: int = 64, how: str = "") -> None:
    """Copy n floats, or end the process."""
    if how == "exit":
        os._exit(n)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    x, y = k.input("x", (64,), "float32"), k.output("y", (64,), "float32")
    k.launch("leaves", vector=copying(x, y, 64))
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with `few.py`."""
    (tmp_path / "few.py").write_text(PROGRAMS, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path
