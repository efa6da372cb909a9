"""The mask of split and compress: the input, and how many ones it has."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from npusim import Builder, isa
from npusim.errors import ConfigError

from ._split import sizes


def mask_input(k: Builder, n: int, ones: int) -> isa.Tile:
    """Declare the input `mask`: n zeros and ones, of which so many are ones where it is made.

    Raises `ConfigError` for a given one with another number in it: counts are sums of the mask.
    """
    name = k.program.name

    def check(mask: np.ndarray) -> None:
        wrong = np.flatnonzero((mask != 0) & (mask != 1))
        if wrong.size:
            i = int(wrong[0])
            raise ConfigError(f"{name}: input mask must hold zeros and ones, but element {i} is {mask[i]}")

    def make(generator: np.random.Generator) -> np.ndarray:
        return (generator.permutation(n) < ones).astype(np.int8)

    return k.input("mask", (n,), "int8", make, check)


def sizes_and_selection(program: str, inputs: Mapping[str, np.ndarray]) -> dict[str, object]:
    """Return the parameters that input arrays decide, with the ones of a mask."""
    found = sizes(program, inputs)
    if "mask" in inputs:
        found["selected"] = int(np.count_nonzero(inputs["mask"] == 1))
    return found


def selection(name: str, n: int, density: float, selected: int | None) -> int:
    """Return how many of n elements are selected: so many, or a share of them.

    Raises `ConfigError` for more than there are.
    """
    if selected is not None and selected > n:
        raise ConfigError(f"{name}: selected={selected} must be 0..{n}, the elements there are")
    return round(density * n) if selected is None else selected
