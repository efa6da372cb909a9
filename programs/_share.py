"""How programs spread an array over the vector cores of a chip."""

from __future__ import annotations

from itertools import pairwise

from npusim import Builder, Chip
from npusim.errors import ConfigError
from npusim.units import ceil_div

RANGE_BYTES = 512
"""Shares start at multiples of this: requests to one such range are served one after the other (asc-devkit
constraint pages).
"""


def vector_cores(chip: Chip, name: str, cores: int) -> int:
    """Return the number of vector cores to use: all of the chip for 0.

    Raises `ConfigError` where the chip has fewer.
    """
    there = chip.cores.cube * chip.cores.vector_per_cube
    if cores > there:
        raise ConfigError(
            f"{name}: cores={cores}: {chip.name} has {there} vector cores; leave it out for all"
        )
    return cores or there


def ai_cores(k: Builder, cores: int | None) -> int:
    """Return the number of AI cores to use: all of the chip for None.

    Raises `ConfigError` where the chip has fewer, since those beyond could not meet the others.
    """
    there = k.chip.cores.cube
    if cores is not None and cores > there:
        raise ConfigError(
            f"{k.program.name}: cores={cores}: {k.chip.name} has {there} AI cores; leave it out for all"
        )
    return cores or there


def check_measured(k: Builder, cores: int, *, vector: bool) -> None:
    """Raise `ConfigError` where a measurement is to run on more cores at once than the chip has: cores of the
    vector kind, or AI cores, which cores that are coupled count as.
    """
    kind, there = "AI", k.chip.cores.cube
    if vector and not k.chip.coupled:
        kind, there = "vector", there * k.chip.cores.vector_per_cube
    if cores > there:
        raise ConfigError(
            f"{k.program.name}: cores={cores}: {k.chip.name} has {there} {kind} cores; use {there} or fewer"
        )


def shares(n: int, size: int, cores: int) -> list[range]:
    """Return the elements of every core: contiguous, as equal as may be, each starting at a whole range.

    `size` is the bytes of an element. Cores that would get nothing are left out.
    """
    step = max(1, RANGE_BYTES // size)
    units = ceil_div(n, step)
    used = min(cores, units)
    edges = [min(n, units * i // used * step) for i in range(used + 1)]
    return [range(a, b) for a, b in pairwise(edges)]


def elements_of(name: str, piece: int, size: int) -> int:
    """Return how many elements of `size` bytes a piece of bytes holds.

    Raises `ConfigError` where it holds none, or does not keep the next one at a block of 32 bytes.
    """
    if piece % 32:
        raise ConfigError(f"{name}: piece={piece}: a piece must be a multiple of the 32 bytes of a block")
    return piece // size
