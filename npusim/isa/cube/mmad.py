"""The matrix multiplication of the cube."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Annotated, Any, ClassVar

import numpy as np

from npusim.config.chip import Chip
from npusim.isa.cube.layout import (
    ROWS,
    Order,
    Part,
    c0_elements,
    gather,
    l0a_order,
    l0c_accesses,
    l0c_views,
    unpack_s4,
)
from npusim.isa.dma.movement import BT, L0A, L0B, L0C, Movement, raw, touched
from npusim.isa.dtype import BF16, F16, F32, S4, S8, S32
from npusim.isa.instruction import Array, CoreView, Role, Work, instruction
from npusim.isa.numerics.cube import Prepared, matmul, prepare
from npusim.isa.numerics.profile import CubeNumerics
from npusim.isa.operand import Access, Operand, Pipe
from npusim.isa.state import State
from npusim.units import FRACTAL_BYTES, align_up, ceil_div

_RESULT = {F16: F32, BF16: F32, F32: F32, S8: S32, S4: S32}
"""Accumulator of each operand type (asc-devkit Mmad page, H)."""


@instruction
class Mmad(Movement):
    """Multiply an L0A tile (m, k) by an L0B tile (k, n) and accumulate into L0C (m, n).

    `init` starts from zero and `bias` from a row of n values in the bias table; otherwise the product is
    added to what L0C holds. f16, bf16 and f32 accumulate in f32, s8 and s4 in s32. A lies in ZZ (NZ on 3510),
    B in ZN, C in NZ, fractals dense; lanes of A and B beyond m, k and n do not matter, those of C are not
    written. With m = 1 the cube reads A as one contiguous row (GEMV mode) unless `disable_gemv`. In HF32 mode
    f32 operands are rounded first. An extent of zero does nothing but costs its head.
    Cost: ceil(m/rm) * ceil(n/rn) * ceil(k/rk) steps at the chip's rate, k rounded up to whole fractals, plus
    the head of a streamed Mmad; the result is there as late as after the head of an isolated one.
    """

    dst: Annotated[Operand, Role((L0C,), reads=True, writes=True)]
    a: Annotated[Operand, Role((L0A,), reads=True)]
    b: Annotated[Operand, Role((L0B,), reads=True)]
    m: int
    k: int
    n: int
    init: bool = False
    bias: Annotated[Operand, Role((BT,), reads=True)] | None = None
    disable_gemv: bool = False

    pipe: ClassVar[Pipe] = Pipe.M

    @property
    def result_fractals(self) -> int:
        """Fractals of the result."""
        return ceil_div(self.m, ROWS) * ceil_div(self.n, ROWS)

    @property
    def _idle(self) -> bool:
        return not (self.m and self.k and self.n)

    @property
    def _gemv(self) -> bool:
        return self.m == 1 and not self.disable_gemv

    def _key(self, state: State) -> str:
        """Name of the numerics rule."""
        row = self._row(state)
        return "hf32_away" if row == "hf32" and state.hf32_away else row

    def _row(self, state: State) -> str:
        """Name of the rate."""
        return "hf32" if self.a.dtype is F32 and state.hf32 else self.a.dtype.short

    def check_rules(self, chip: Chip, state: State) -> None:
        """Check types, extents, what the accumulation starts from, and alignment."""
        a, b, c = self.a.dtype, self.b.dtype, self.dst.dtype
        if a is not b or _RESULT.get(a) is not c:
            known = ", ".join(f"{x.short} x {x.short} -> {y.short}" for x, y in _RESULT.items())
            raise self.error(f"no product {a.short} x {b.short} -> {c.short}; there are {known}")
        row = self._row(state)
        if row not in chip.cube.rates:
            known = " ".join(chip.cube.rates)
            raise self.error(f"the cube of {chip.name} has no {row}; it has {known}")
        for name in ("m", "k", "n"):
            self.check_range(name, 0, 4095, "", "split the product")
        if a is S4 and self.k % 2:
            raise self.error(f"k must be even for s4, not {self.k}")
        if self.dst.address % 1024:
            raise self.error(
                f"dst must start at a multiple of 1024 bytes in l0c, not at {self.dst.address:#x}"
            )
        if self.bias is not None:
            if self.init:
                raise self.error("the result starts from zero (init) or from the bias, not from both")
            if self.bias.dtype is not c:
                raise self.error(f"bias must be {c.short} like dst, not {self.bias.dtype.short}")

    def _span(self, extent: int) -> int:
        """Bytes of the fractals of an operand with `extent` rows or columns beside k."""
        return ceil_div(extent, ROWS) * ceil_div(self.k, c0_elements(self.a.dtype)) * FRACTAL_BYTES

    def self_ordered(self, chip: Chip) -> bool:
        """Whether the cube itself keeps it behind an earlier Mmad on the same result: from some size on."""
        return self.result_fractals >= chip.cube.interlock_fractals

    @property
    def _height(self) -> int:
        return align_up(self.m, ROWS)

    def reads(self, state: State) -> tuple[Access, ...]:
        """Return the fractals of A and B, and the bias or the old result."""
        if self._idle:
            return ()
        left = self.k * self.a.dtype.bits // 8 if self._gemv else self._span(self.m)
        found = [touched(self.a, 0, left), touched(self.b, 0, self._span(self.n))]
        if self.bias is not None:
            found.append(touched(self.bias, 0, self.n * 4))
        elif not self.init:
            found += self.writes(state)
        return tuple(found)

    def writes(self, state: State) -> tuple[Access, ...]:
        """Return the elements of the result."""
        return () if self._idle else l0c_accesses(self.dst, self.m, self.n, self._height)

    def execute(self, core: CoreView, state: State) -> None:
        """Multiply under the core's numerics profile and write the result in NZ."""
        if self._idle:
            return
        key = self._key(state)
        rule = core.profile.cube_rule(key)
        tile = self.dst.address, self.dst.dtype, self.m, self.n
        acc: Array | None = None
        if self.bias is not None:
            acc = np.broadcast_to(core.view(self.bias, (self.n,)), (self.m, self.n))
        elif not self.init:
            acc = core.held(tile)
            if acc is None:
                acc = np.empty((self.m, self.n), self.dst.dtype.np)
                for p, column in self._places(core):
                    _columns(acc, p.first, column)[...] = column
        result = matmul(
            rule, self._left(core, rule, key), self._right(core, rule, key), acc, saturate=state.saturate
        )

        def put(result: Array) -> None:
            for p, column in self._places(core):
                column[...] = _columns(result, p.first, column)

        core.hold(tile, result, put)

    def _places(self, core: CoreView) -> list[tuple[Part, Array]]:
        return l0c_views(core, self.dst, self.m, self.n, self._height)

    def _left(self, core: CoreView, rule: CubeNumerics, key: str) -> Prepared:
        if self._gemv:
            row = self.k * self.a.dtype.bits // 8
            return _prepared(core, rule, (key, self.k), self.a, row, lambda: _dense(core, self.a, self.k))
        down, along = FRACTAL_BYTES, ceil_div(self.m, ROWS) * FRACTAL_BYTES
        if l0a_order(core) is Order.ZZ:
            down, along = ceil_div(self.k, c0_elements(self.a.dtype)) * FRACTAL_BYTES, FRACTAL_BYTES
        return _prepared(
            core,
            rule,
            (key, self.m, self.k, down, along),
            self.a,
            self._span(self.m),
            lambda: gather(core, self.a, self.m, self.k, row_stride=down, column_stride=along),
        )

    def _right(self, core: CoreView, rule: CubeNumerics, key: str) -> Prepared:
        along = ceil_div(self.n, ROWS) * FRACTAL_BYTES
        return _prepared(
            core,
            rule,
            (key, self.n, self.k),
            self.b,
            self._span(self.n),
            lambda: gather(core, self.b, self.n, self.k, row_stride=FRACTAL_BYTES, column_stride=along).T,
        )

    def work(self, chip: Chip, state: State) -> Work:
        """Return the steps of the product and the heads."""
        row = self._row(state)
        rm, rn, rk = chip.cube.rates[row]  # type: ignore[index]  # a type that check has accepted
        depth = align_up(self.k, c0_elements(self.a.dtype))
        steps = ceil_div(self.m, rm) * ceil_div(self.n, rn) * ceil_div(depth, rk)
        streamed, isolated = chip.cube.head_streamed_cycles, chip.cube.head_isolated_cycles
        return Work(
            steps + streamed,
            max(0, isolated - streamed),
            macs=self.m * self.k * self.n,
            prices=(f"cube.rates.{row}", "cube.head_streamed_cycles", "cube.head_isolated_cycles"),
        )

    @classmethod
    def example(cls) -> Mmad:
        """Multiply 128 x 64 by 64 x 256 halves from zero."""
        a, b, c = Operand(L0A, F16, 0), Operand(L0B, F16, 0), Operand(L0C, F32, 0)
        return cls(dst=c, a=a, b=b, m=128, k=64, n=256, init=True)


class _Kept:
    """Operands ready for multiplication, by what they were made from; those used least recently go first.

    The content is part of the key, so nothing that is written to L0 can make an entry wrong, and a tile that
    comes back, to this core or to another, is not prepared again.
    """

    def __init__(self, room: int) -> None:
        self._room = room
        self._used = 0
        self._found: OrderedDict[tuple[Any, ...], Prepared] = OrderedDict()

    def get(self, key: tuple[Any, ...]) -> Prepared | None:
        """Return an operand, which then is the most recently used, or None."""
        found = self._found.pop(key, None)
        if found is not None:
            self._found[key] = found
        return found

    def put(self, key: tuple[Any, ...], made: Prepared) -> None:
        """Keep an operand, and let go of others where there are too many bytes of them."""
        self._found[key] = made
        self._used += _bytes_of(made)
        while self._used > self._room:
            _, gone = self._found.popitem(last=False)
            self._used -= _bytes_of(gone)


_KEPT = _Kept(96 << 20)


def _bytes_of(made: Prepared) -> int:
    """Bytes of an operand, about: its elements in two precisions, and what it was made from."""
    return int(16 * made.rows * made.k)


def _prepared(
    core: CoreView,
    rule: CubeNumerics,
    key: tuple[Any, ...],
    at: Operand,
    span: int,
    build: Callable[[], Array],
) -> Prepared:
    """Return the operand in `span` bytes of L0, ready for multiplication."""
    # the rule by its identity, which costs less; the operand holds on to its rule, so no other can take it
    whole = (id(rule), at.space, *key, core.view(raw(at), (span,)).tobytes())
    found = _KEPT.get(whole)
    if found is None:
        found = prepare(rule, build(), "left" if at.space is L0A else "right")
        _KEPT.put(whole, found)
    return found


def _dense(core: CoreView, at: Operand, k: int) -> Array:
    """Return k adjoining elements as a matrix of one row."""
    if at.dtype is S4:
        return unpack_s4(core.view(at, (1, k // 2)))
    return core.view(at, (1, k))


def _columns(matrix: Array, first: int, column: Array) -> Array:
    """Return the columns of a row-major matrix as a view (fractals, m, columns of one)."""
    count, m, width = column.shape
    part = matrix[:, first * ROWS : first * ROWS + count * width]
    return part.reshape(m, count, width).transpose(1, 0, 2)
