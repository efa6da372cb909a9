"""What the programs of triangular inverses share: parameters, where the matrices lie, inputs, and the exact
inverse.

T = (I + A)^-1 for every strictly triangular matrix A of a batch (arXiv 2605.21325).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from npusim import Builder, Expected, isa
from npusim.errors import ConfigError
from npusim.isa.dtype import element_type, float_limits
from npusim.study.triangular_inputs import Family, make
from npusim.units import ceil_div, grouped

Side = Literal[16, 32, 64, 96, 128]
"""Rows and columns of a matrix (`n`)."""
Operands = Literal["float16", "bfloat16"]
"""Element type of A, and of what products take (`dtype`)."""
Result = Literal["auto", "float16", "bfloat16", "float32"]
"""Element type of T (`out`); auto: that of A."""
Triangle = Literal["upper", "lower"]
"""Where A is not zero."""
Overflow = Literal["ieee", "saturate"]
"""What is too large: infinite, or, as after reset, the largest number, and NaN zero."""
Layout = Literal["head_first", "seq_first"]
"""Order of a batch: (batch, n, n), or (tokens, heads, n)."""

_CHUNK = 1 << 18
"""Elements that the reference looks at together: what a cache of the host holds."""
_PITCH = 65535
"""Largest distance of rows that a copy into fractals takes, in elements (asc-devkit Nd2Nz page)."""


class Place(NamedTuple):
    """Where a matrix lies: its first element, and how many of its rows and columns are there."""

    start: int
    rows: int


@dataclass(frozen=True, slots=True)
class Places:
    """Where the matrices of a batch lie in an array."""

    shape: tuple[int, ...]
    pitch: int
    """Distance of rows in elements."""
    places: tuple[Place, ...]
    n: int
    lengths: tuple[int, ...] = ()
    """Lengths of packed sequences, where the user gave them."""
    heads: int = 1

    @property
    def rounds_up(self) -> bool:
        """Whether some matrices are cut off at the end of a sequence."""
        return any(place.rows < self.n for place in self.places)

    def sequence_of(self, index: int) -> int:
        """Return the number of the sequence that a matrix belongs to."""
        chunk, found = index // self.heads, 0
        while chunk >= ceil_div(self.lengths[found], self.n):
            chunk -= ceil_div(self.lengths[found], self.n)
            found += 1
        return found

    def parts(self) -> Iterator[slice]:
        """Yield parts of the batch that a cache of the host holds."""
        count = max(1, _CHUNK // self.n**2)
        for start in range(0, len(self.places), count):
            yield slice(start, start + count)

    def gather(self, array: np.ndarray, part: slice = slice(None)) -> np.ndarray:
        """Return matrices of a part of the batch as a (count, n, n) array, zero where they are cut off."""
        chosen = self.places[part]
        flat, out = array.reshape(-1), np.zeros((len(chosen), self.n, self.n), array.dtype)
        for matrix, (start, rows) in zip(out, chosen, strict=True):
            matrix[:rows, :rows] = self._rows(flat, start, rows)
        return out

    def scatter(self, matrices: np.ndarray) -> np.ndarray:
        """Return the array that holds the matrices, zero elsewhere."""
        if matrices.shape == self.shape:  # one behind the other already
            return matrices
        array = np.zeros(self.shape, matrices.dtype)
        flat = array.reshape(-1)
        for matrix, (start, rows) in zip(matrices, self.places, strict=True):
            self._rows(flat, start, rows)[...] = matrix[:rows, :rows]
        return array

    def _rows(self, flat: np.ndarray, start: int, rows: int) -> np.ndarray:
        size = flat.itemsize
        strides = (self.pitch * size, size)
        return np.lib.stride_tricks.as_strided(flat[start:], (rows, rows), strides, writeable=True)


def places(
    k: Builder, n: int, batch: int, layout: Layout = "head_first", heads: int = 1, lengths: str = ""
) -> Places:
    """Return where the matrices of a program lie.

    `head_first`: (batch, n, n). `seq_first`: (tokens, heads, n), where a matrix is n tokens of one head;
    chunks come first, heads second. With `lengths`, numbers with commas, sequences of so many tokens are
    packed, and the last matrix of each is cut off where its sequence ends.

    Raises `ConfigError` for more matrices than fit into memory, a batch that is no whole number of heads,
    lengths that are no numbers of 1 or more, and rows too far apart for a copy.
    """
    name = k.program.name
    room = k.chip.hbm.size_gib << 30
    if not lengths and 2 * batch * n * n > room:
        raise ConfigError(
            f"{name}: batch={batch}: {k.chip.name} has {grouped(room)} bytes of global memory, which is "
            f"less than so many matrices of n={n}"
        )
    if layout == "head_first":
        if lengths or heads != 1:
            given = f"lengths={lengths}" if lengths else f"heads={heads}"
            raise ConfigError(f"{name}: {given}: only layout=seq_first has heads and sequences")
        return Places((batch, n, n), n, tuple(Place(t * n * n, n) for t in range(batch)), n)
    if heads * n > _PITCH:
        raise ConfigError(
            f"{name}: heads={heads}: rows lie {heads * n} elements apart, a copy takes {_PITCH} at most; use "
            f"fewer heads"
        )
    if not lengths:
        if batch % heads:
            raise ConfigError(f"{name}: batch={batch} is no multiple of heads={heads}")
        chunks = [(t * n, n) for t in range(batch // heads)]
        tokens, parts = batch // heads * n, ()
    else:
        parts = _lengths(name, lengths)
        if 2 * sum(parts) * heads * n > room:
            raise ConfigError(
                f"{name}: lengths={lengths}: {k.chip.name} has {grouped(room)} bytes of global memory, which "
                f"is less than so many tokens of {heads} heads"
            )
        chunks, tokens = [], 0
        for length in parts:
            chunks += [(tokens + at, min(n, length - at)) for at in range(0, length, n)]
            tokens += length
    found = tuple(Place((t * heads + h) * n, rows) for t, rows in chunks for h in range(heads))
    return Places((tokens, heads, n), heads * n, found, n, parts, heads)


def _lengths(name: str, text: str) -> tuple[int, ...]:
    words = text.split(",")
    if not all(word.strip().isdecimal() and int(word) > 0 for word in words):
        raise ConfigError(f"{name}: lengths={text}: numbers of 1 or more with commas are needed, as 100,37")
    return tuple(int(word) for word in words)


def triangular_input(
    k: Builder, at: Places, dtype: str, family: str, scale: float, triangle: Triangle
) -> isa.Tile:
    """Declare the input `a`: strictly triangular matrices of a family, and zeros elsewhere.

    Raises `ConfigError` where a given matrix has something else than zero on or beyond the diagonal.
    """

    def maker(generator: np.random.Generator) -> np.ndarray:
        made = make(family, generator, len(at.places), at.n, scale)
        if triangle == "lower":
            made = made.transpose(0, 2, 1)
        return at.scatter(made).astype(isa.BF16.np if dtype == "bfloat16" else dtype)

    name = k.program.name

    def check(a: np.ndarray) -> None:
        for part in at.parts():
            _check_strict(name, lower_of(at.gather(a, part), triangle), triangle, part.start)

    return k.input("a", at.shape, dtype, maker, check)


def inverse_output(k: Builder, at: Places, out: str) -> isa.Tile:
    """Declare the output `t`, which keeps what it held outside cut-off matrices."""
    if not at.rounds_up:
        return k.output("t", at.shape, out)
    return k.inout("t", at.shape, out, lambda _: np.zeros(at.shape))


def identity(k: Builder, name: str, n: int, factor: float, dtype: isa.DType) -> isa.Tile:
    """Declare a multiple of the identity that the host puts into global memory.

    Raises `ConfigError` for a factor that the element type does not hold.
    """
    with np.errstate(over="ignore"):
        diagonal = np.array(factor).astype(dtype.np)
    if not np.isfinite(diagonal):
        raise ConfigError(f"{k.program.name}: {factor:g} is too large for {dtype.np.name}; use less")
    return k.constant(name, diagonal * np.eye(n, dtype=dtype.np), dtype)


def sizes(inputs: Mapping[str, np.ndarray]) -> dict[str, object]:
    """Return the parameters that an input array decides; the middle extent tells the layouts apart."""
    if "a" not in inputs:
        return {}
    a = inputs["a"]
    count, middle, n = a.shape
    found: dict[str, object] = {"n": n, "dtype": a.dtype.name}
    if middle == n:
        return {**found, "batch": count}
    found |= {"layout": "seq_first", "heads": middle}
    return found if count % n else {**found, "batch": count // n * middle}


def keep_infinities(overflow: Overflow) -> Iterator[isa.Instruction]:
    """Yield the switch to IEEE arithmetic; after reset overflow gives the largest number and NaN zero."""
    if overflow == "ieee":
        yield isa.SetControl(what=isa.Control.SATURATE, value=0)


@dataclass(frozen=True, slots=True)
class Batch:
    """The matrices of a program: `a` in, and their inverses `t` out."""

    name: str
    at: Places
    a: isa.Tile
    t: isa.Tile
    triangle: Triangle
    kind: isa.DType
    """Element type of `a`."""

    def check_with(self, k: Builder, bound: Bound) -> None:
        """Make the exact inverses, and errors up to a bound, the reference of the program."""

        @k.reference
        def expected(inputs: Mapping[str, np.ndarray]) -> dict[str, Expected]:
            out = self.t.dtype.np.name
            return {"t": expected_inverse(inputs, self.at, self.triangle, out, bound)}


def declare(
    k: Builder,
    name: str,
    at: Places,
    dtype: str,
    out: str,
    *,
    triangle: Triangle,
    family: Family,
    scale: float,
) -> Batch:
    """Declare the input and the output of a program; `out` may be auto, for `dtype`."""
    a = triangular_input(k, at, dtype, family, scale, triangle)
    t = inverse_output(k, at, dtype if out == "auto" else out)
    return Batch(name, at, a, t, triangle, element_type(dtype))


# ---- the reference -----------------------------------------------------------------------------------------


def exact_inverse(a: np.ndarray) -> np.ndarray:
    """Return (I + A)^-1 of strictly lower triangular float64 matrices (count, n, n), by substitution, row
    after row.
    """
    count, n, _ = a.shape
    inverse = np.zeros((count, n, n))
    for i in range(n):
        inverse[:, i, i] = 1
        inverse[:, i, :i] -= (a[:, i : i + 1, :i] @ inverse[:, :i, :i])[:, 0]
    return inverse


Bound = Callable[[np.ndarray], np.ndarray]
"""Largest errors by element of a method, from strictly lower triangular matrices in float64; infinite where
nothing can be said.
"""


def expected_inverse(
    inputs: Mapping[str, np.ndarray],
    at: Places,
    triangle: Triangle,
    out: str,
    bound: Bound,
) -> Expected:
    """Return the inverses where the program stores them, and how far off a method may be.

    Nothing is compared for a matrix that holds NaN or infinities.
    """
    size = len(at.places)
    value, error = np.zeros((size, at.n, at.n)), np.zeros((size, at.n, at.n), np.float32)
    for part in at.parts():
        a = lower_of(at.gather(inputs["a"], part), triangle)
        lost = ~np.isfinite(a).all(axis=(1, 2))[:, None, None]
        a = np.where(lost, 0.0, a)
        right = exact_inverse(a)
        limit = stored(right, bound(a), out)
        limit[np.broadcast_to(lost, limit.shape)] = np.inf
        if triangle == "upper":
            right, limit = right.transpose(0, 2, 1), limit.transpose(0, 2, 1)
        value[part], error[part] = right, limit
    if not at.rounds_up:
        return Expected(at.scatter(value), at.scatter(error))
    inside = at.scatter(np.ones(value.shape, bool)) > 0
    whole = np.where(inside, at.scatter(value), inputs["t"].astype(np.float64))
    return Expected(whole, at.scatter(error))


def lower_of(matrices: np.ndarray, triangle: Triangle) -> np.ndarray:
    """Return matrices in float64, the upper ones transposed."""
    found = matrices.astype(np.float64)
    return found.transpose(0, 2, 1) if triangle == "upper" else found


def stored(value: np.ndarray, error: np.ndarray, out: str) -> np.ndarray:
    """Return how far values with errors may be off after rounding to an element type; infinite where they may
    not fit.
    """
    dtype: Any = isa.BF16.np if out == "bfloat16" else np.dtype(out)
    info = float_limits(dtype)
    reach = np.abs(value) + error
    limit = 1.01 * (error + float(info.eps) / 2 * reach + float(info.smallest_subnormal)) + 1e-12 * reach
    return np.where(reach < 0.99 * float(info.max), limit, np.inf)


def _check_strict(name: str, lower: np.ndarray, triangle: Triangle, start: int) -> None:
    wrong = np.argwhere(np.triu(np.where(np.isnan(lower), 1.0, lower)))
    if wrong.size:
        t, i, j = wrong[0].tolist()
        value = lower[t, i, j]
        row, column = (j, i) if triangle == "upper" else (i, j)
        raise ConfigError(
            f"{name}: input a: matrix {start + t} has {value:g} in row {row}, column {column}, but must be "
            f"strictly {triangle} triangular; the identity is not part of it"
        )
