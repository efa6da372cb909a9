"""Programs as launches of another program."""

from __future__ import annotations

import numpy as np

from npusim import Builder, isa
from npusim.program.core import StreamFunction
from npusim.program.program import Reference


class InnerBuilder(Builder):
    """The builder that a program gets when it is one launch of another: its arrays are tiles of the other
    program, by name, and its workspaces carry the name of the launch. Its reference is kept for that of the
    whole.
    """

    def __init__(self, k: Builder, name: str, **arrays: isa.Tile) -> None:
        self.chip, self.program = k.chip, k.program
        self._k, self._name, self._arrays = k, name, arrays
        self.expected: Reference = lambda _: {}
        """The reference of the inner program."""

    def input(self, name: str, *_: object, **__: object) -> isa.Tile:
        """Return the tile that stands for an input."""
        return self._arrays[name]

    def output(self, name: str, *_: object, **__: object) -> isa.Tile:
        """Return the tile that stands for an output."""
        return self._arrays[name]

    def constant(self, name: str, value: np.ndarray, dtype: isa.DType | str | None = None) -> isa.Tile:
        """Declare a constant under the name of the launch."""
        return self._k.constant(f"{self._name}_{name}", value, dtype)

    def workspace(self, name: str, shape: tuple[int, ...], dtype: isa.DType | str) -> isa.Tile:
        """Declare scratch memory under the name of the launch."""
        return self._k.workspace(f"{self._name}_{name}", shape, dtype)

    def launch(self, name: str, *, blocks: int = 1, **streams: StreamFunction | None) -> None:
        """Start the streams under the name of the launch."""
        self._k.launch(self._name, blocks=blocks, **streams)  # type: ignore[arg-type]  # cube, vector or coupled

    def reference(self, function: Reference) -> Reference:
        """Keep the reference."""
        self.expected = function
        return function
