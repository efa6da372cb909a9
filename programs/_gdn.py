"""What the stages of the chunked Gated DeltaNet layer share: its extents, its arrays, and who does what
(arXiv 2605.21325; facts on its kernels from megagdn-pto@3a59190).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from npusim import Builder, Kernel, Macro, isa
from npusim.errors import ConfigError
from npusim.isa.dtype import element_type
from npusim.units import grouped

from ._kept import Kept

Down = Literal["copies", "strides"]
Across = Literal["blocks", "scalar"]
On = Literal["cube", "vector", "both"]
"""Which cores have a part in a stage."""
Steps = Generator[isa.Instruction | Macro, Any, None]

PITCH = 65535
"""Largest distance of rows that a copy into fractals takes, in elements (asc-devkit Nd2Nz page)."""


class Chunk(NamedTuple):
    """A chunk of a sequence: its number among all, its first token, and how many tokens it has."""

    number: int
    start: int
    rows: int


class Item(NamedTuple):
    """One head of a chunk, which is what all stages but the recurrence work on independently."""

    chunk: Chunk
    head: int


@dataclass(frozen=True)
class Shape:
    """Extents of a layer: packed sequences, value and key heads, chunk, and sizes of keys and values."""

    lengths: tuple[int, ...]
    heads: int
    key_heads: int
    chunk: int
    dk: int
    dv: int

    @property
    def tokens(self) -> int:
        """Tokens of all sequences."""
        return sum(self.lengths)

    @property
    def half(self) -> int:
        """Rows of a chunk that one of the two vector cores of a group works on."""
        return self.chunk // 2

    def rows_from(self, first: int, chunk: Chunk) -> int:
        """Return how many rows of a chunk, which may be short, the half that starts at row `first` has."""
        return max(0, min(self.half, chunk.rows - first))

    @cached_property
    def sequences(self) -> tuple[tuple[Chunk, ...], ...]:
        """Chunks of every sequence, in order; the last one of each may be short."""
        found: list[tuple[Chunk, ...]] = []
        number = start = 0
        for length in self.lengths:
            mine = []
            for at in range(0, length, self.chunk):
                mine.append(Chunk(number, start + at, min(self.chunk, length - at)))
                number += 1
            found.append(tuple(mine))
            start += length
        return tuple(found)

    @cached_property
    def items(self) -> tuple[Item, ...]:
        """All heads of all chunks, heads of one chunk behind each other."""
        return tuple(
            Item(chunk, head) for chunks in self.sequences for chunk in chunks for head in range(self.heads)
        )

    def key_head(self, head: int) -> int:
        """Return the key head that a value head shares."""
        return head // (self.heads // self.key_heads)

    def check(self, name: str) -> None:
        """Raise `ConfigError` for heads that do not share keys evenly, and rows too far apart for a copy."""
        if self.heads % self.key_heads:
            raise ConfigError(f"{name}: heads={self.heads} is no multiple of key_heads={self.key_heads}")
        widest = self.heads * max(self.chunk, self.dk, self.dv)
        if widest > PITCH:
            raise ConfigError(
                f"{name}: heads={self.heads}: rows lie {widest} elements apart, a copy takes {PITCH}; "
                f"use fewer heads"
            )


def lengths_of(name: str, sequences: int, length: int, lengths: str, most: int) -> tuple[int, ...]:
    """Return the lengths of the sequences: numbers with commas, or `sequences` of `length` tokens.

    Raises `ConfigError` for lengths that are no numbers of 1 or more, and for more than `most` tokens,
    which is what memory holds.
    """

    def check(tokens: int) -> None:
        if tokens > most:
            raise ConfigError(
                f"{name}: memory holds {grouped(most)} tokens of so many heads at most, not {grouped(tokens)}"
            )

    if not lengths:
        check(sequences * length)
        return (length,) * sequences
    words = lengths.split(",")
    if not all(word.strip().isdecimal() and int(word) > 0 for word in words):
        raise ConfigError(
            f"{name}: lengths={lengths}: numbers of 1 or more with commas are needed, as 100,37"
        )
    found = tuple(int(word) for word in words)
    check(sum(found))
    return found


class Layer:
    """The arrays of a layer in global memory, and how its vector cores spread numbers over tiles.

    Inputs, results and what stages hand on have tokens first, (tokens, heads, width); sums of gates and beta
    are kept by head, (heads, tokens). All have the element type of the layer but the gates and their sums,
    which are float32. Everything that one core hands to another inside a stage has a place of its own for
    every cube core (`exchange`).
    """

    def __init__(
        self, k: Builder, shape: Shape, dtype: str, *, gate: bool, down: Down, across: Across
    ) -> None:
        self.shape, self.gate, self.down, self.across = shape, gate, down, across
        self.dtype = element_type(dtype)
        self.cores = min(k.chip.cores.cube, len(shape.items))
        tokens, heads, chunk = shape.tokens, shape.heads, shape.chunk
        self.q = k.input("q", (tokens, shape.key_heads, shape.dk), dtype, self._unit_rows)
        self.k = k.input("k", (tokens, shape.key_heads, shape.dk), dtype, self._unit_rows)
        self.v = k.input("v", (tokens, heads, shape.dv), dtype, self._values)
        self.beta = k.input("beta", (tokens, heads), dtype, self._betas)
        if gate:
            self.g = k.input("g", (tokens, heads), "float32", self._gates)
            self.sums = k.workspace("sums", (heads, tokens), "float32")
        self.o = k.output("o", (tokens, heads, shape.dv), dtype)
        self.final = k.output("final", (len(shape.lengths), heads, shape.dk, shape.dv), dtype)
        self.betas = k.workspace("betas", (heads, tokens), dtype)
        self.a = k.workspace("a", (tokens, heads, chunk), dtype)
        """Rows of A, the strict lower triangle of each chunk."""
        self.t = k.workspace("t", (tokens, heads, chunk), dtype)
        """Rows of T = (I + A)^-1."""
        self.w = k.workspace("w", (tokens, heads, shape.dk), dtype)
        """Keys times T, weighted: what the state knows of the values is W S."""
        self.u = k.workspace("u", (tokens, heads, shape.dv), dtype)
        """Values times T, weighted."""
        self.fresh = k.workspace("fresh", (tokens, heads, shape.dv), dtype)
        """Values less what the state knew of them already."""
        chunks = sum(len(mine) for mine in shape.sequences)
        self.states = k.workspace("states", (chunks, heads, shape.dk, shape.dv), dtype)
        """State that every chunk starts from."""
        self.lower = k.constant("lower", np.tril(np.ones((chunk, chunk), np.float32), -1))
        """Ones below the diagonal."""
        self.causal = k.constant("causal", np.tril(np.ones((chunk, chunk), np.float32)))
        """Ones below the diagonal and on it."""
        self._k = k

    def exchange(self, name: str, rows: int, columns: int, slots: int = 1) -> isa.Tile:
        """Declare scratch memory of every core, (cores, slots, rows, columns)."""
        return self._k.workspace(name, (self.cores, slots, rows, columns), self.dtype)

    def mine(self, c: Kernel) -> list[Item]:
        """Return the items of the cube core that `c` is or belongs to: cores take turns."""
        return list(self.shape.items[c.block :: self.cores])

    def at_key(self, array: isa.Tile, item: Item, row: int = 0) -> isa.Tile:
        """Return where a row of queries or keys of an item starts."""
        shape, token = self.shape, item.chunk.start + row
        return array.flat((token * shape.key_heads + shape.key_head(item.head)) * shape.dk, 1)

    def at_head(self, array: isa.Tile, item: Item, row: int = 0) -> isa.Tile:
        """Return where a row of an array (tokens, heads, width) of an item starts."""
        return array.flat(((item.chunk.start + row) * self.shape.heads + item.head) * array.shape[-1], 1)

    def by_head(self, array: isa.Tile, item: Item, first: int, count: int) -> isa.Tile:
        """Return numbers of an item in an array (heads, tokens)."""
        return array.flat(item.head * self.shape.tokens + item.chunk.start + first, count)

    # ---- inputs (facts on the tests of megagdn-pto@3a59190) ------------------------------------------------

    def _unit_rows(self, generator: np.random.Generator) -> np.ndarray:
        shape = self.shape
        rows = generator.standard_normal((shape.tokens, shape.key_heads, shape.dk))
        return (rows / np.linalg.norm(rows, axis=-1, keepdims=True)).astype(self.dtype.np)

    def _values(self, generator: np.random.Generator) -> np.ndarray:
        shape = self.shape
        return generator.standard_normal((shape.tokens, shape.heads, shape.dv)).astype(self.dtype.np)

    def _betas(self, generator: np.random.Generator) -> np.ndarray:
        return generator.uniform(0, 1, (self.shape.tokens, self.shape.heads)).astype(self.dtype.np)

    def _gates(self, generator: np.random.Generator) -> np.ndarray:
        x = generator.standard_normal((self.shape.tokens, self.shape.heads))
        return -np.logaddexp(0, -x).astype(np.float32)


class Stage(Protocol):
    """A part of the layer: what each kind of core does in it. A stage may leave one of them out."""

    name: str
    on: On

    def cube(self, c: Kernel) -> Iterator[isa.Instruction | Macro]:
        """Yield the work of a cube core."""
        ...

    def vector(self, c: Kernel) -> Iterator[isa.Instruction | Macro]:
        """Yield the work of a vector core."""
        ...


class MixedStage:
    """What cores of both kinds share in the launch of a stage: the layer, and the instructions that come
    back. The two vector cores of a group differ in the rows that they have, so each has recipes of its own.
    """

    on: On = "both"

    def __init__(self, layer: Layer) -> None:
        self._layer = layer
        self._products = Kept()
        self._recipes = Kept(), Kept()


def not_awaited(count: int, slots: int) -> range:
    """Return which of `count` uses of slots in turn have not been waited for: the last of each slot."""
    return range(max(0, count - slots), count)
