"""How operands of a vector instruction walk memory: repeats, blocks and masks, as views and byte ranges.

A repeat covers 256 bytes, eight blocks of 32 bytes, of the widest operand. Every operand has a block stride
and a repeat stride in blocks. Normal mode runs `repeat` repeats under a lane mask; counter mode runs as many
elements as the mask counts, in as few repeats as that takes (asc-devkit, mask overview; H).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np

from npusim.isa.dtype import S4, DType
from npusim.isa.instruction import Array, CoreView
from npusim.isa.operand import Access, Operand
from npusim.units import BLOCK_BYTES, REPEAT_BYTES, ceil_div

BLOCK_BITS = BLOCK_BYTES * 8


class Strided(NamedTuple):
    """An operand and how it is walked; strides in blocks of 32 bytes."""

    at: Operand
    block: int
    repeat: int


class Piece(NamedTuple):
    """Repeats that run under one set of lanes."""

    first: int
    """Index of the first repeat."""
    repeats: int
    lanes: int
    """Lanes from the first to one past the last that runs."""
    mask: int | None
    """Bits of the lanes that run; None where all of them do."""

    @property
    def bits(self) -> int:
        """Bits of the lanes that run."""
        return (1 << self.lanes) - 1 if self.mask is None else self.mask


class Window(NamedTuple):
    """Whole blocks of an operand, (repeats, blocks, elements of a block), as arguments of a view."""

    offset: int
    shape: tuple[int, int, int]
    strides: tuple[int, int, int]


class Step(NamedTuple):
    """Repeats that are loaded, computed and stored together, with a window for every operand."""

    piece: Piece
    chosen: Array | None
    """Which lanes run, as booleans; None where all do."""
    windows: tuple[Window, ...]


Triple = tuple[DType, int, int]
"""Element type, block stride and repeat stride of an operand."""


@dataclass(frozen=True)
class Plan:
    """Everything about an instruction's walk that does not depend on addresses."""

    operands: tuple[Triple, ...]
    lanes: int
    """Elements of one full repeat."""
    pieces: tuple[Piece, ...]
    row: tuple[int] | None
    """Shape of the operands where all of them are one dense row."""
    steps: tuple[Step, ...]
    rewrites: bool
    """Whether a repeat writes where an earlier one has written."""
    broadcast: bool
    """Whether all repeats read the same place of some source."""

    @property
    def repeats(self) -> int:
        """Number of repeats."""
        return self.pieces[-1].first + self.pieces[-1].repeats if self.pieces else 0

    @property
    def elements(self) -> int:
        """Lanes that run, over all repeats."""
        return sum(p.repeats * p.bits.bit_count() for p in self.pieces)

    @cached_property
    def serial(self) -> tuple[Step, ...]:
        """The steps of one repeat each."""
        return tuple(
            step_of(piece._replace(first=piece.first + i, repeats=1), self.operands)
            for piece in self.pieces
            for i in range(piece.repeats)
        )

    def feeds(self, places: tuple[Operand, ...]) -> bool:
        """Whether the destination reaches into a source that all repeats read at the same place."""
        (dtype, block, repeat), *sources = self.operands
        lanes = self.pieces[0].lanes
        start = places[0].address
        reach = (self.repeats - 1) * repeat + (blocks_of(lanes, dtype) - 1) * block + 1
        stop = start + reach * BLOCK_BYTES
        for at, (source, source_block, source_repeat) in zip(places[1:], sources, strict=True):
            span = ((blocks_of(lanes, source) - 1) * source_block + 1) * BLOCK_BYTES
            if source_repeat == 0 and at.address < stop and start < at.address + span:
                return True
        return False


Geometry = tuple[Any, ...]
"""(repeat, then type, block stride and repeat stride of every operand), destination first."""


@lru_cache(1 << 14)
def plan_of(counter_mode: bool, mask: int, geometry: Geometry) -> Plan:
    """Plan a walk from the mask state and the fields of an instruction."""
    lanes = lanes_of(*geometry[1::3])
    return _plan(lanes, pieces_of(counter_mode, mask, geometry[0], lanes), geometry)


@lru_cache(1 << 12)
def counted_plan(count: int, geometry: Geometry) -> Plan:
    """Plan a walk of `repeat` repeats of `count` elements each, however many blocks that takes."""
    pieces = (Piece(0, geometry[0], count, None),) if count and geometry[0] else ()
    return _plan(lanes_of(*geometry[1::3]), pieces, geometry)


def _plan(lanes: int, pieces: tuple[Piece, ...], geometry: Geometry) -> Plan:
    operands: tuple[Triple, ...] = tuple(
        (geometry[i], geometry[i + 1], geometry[i + 2]) for i in range(1, len(geometry), 3)
    )
    row = None
    if pieces and pieces[0].mask is None and all(_dense(lanes, pieces, *operand) for operand in operands):
        row = (sum(p.repeats * p.lanes for p in pieces),)
    many = sum(p.repeats for p in pieces) > 1
    return Plan(
        operands,
        lanes,
        pieces,
        row,
        tuple(step_of(piece, operands) for piece in pieces),
        many and _rewrites(pieces, *operands[0]),
        many and any(repeat == 0 for _, _, repeat in operands[1:]),
    )


def _dense(lanes: int, pieces: tuple[Piece, ...], dtype: DType, block: int, repeat: int) -> bool:
    if dtype is S4 or (block != 1 and pieces[0].lanes * dtype.bits > BLOCK_BITS):
        return False
    width = pieces[0].lanes if len(pieces) == 1 else lanes
    return (len(pieces) == 1 and pieces[0].repeats == 1) or repeat * BLOCK_BITS == width * dtype.bits


def _rewrites(pieces: tuple[Piece, ...], dtype: DType, block: int, repeat: int) -> bool:
    blocks = blocks_of(pieces[0].lanes, dtype)
    if repeat >= (blocks - 1) * block + 1:
        return False
    rows = np.arange(sum(p.repeats for p in pieces))[:, None]
    visited = rows * repeat + np.arange(blocks) * block
    return len(np.unique(visited)) < visited.size


def lanes_of(*dtypes: DType) -> int:
    """Elements of one repeat, which the widest type decides."""
    return REPEAT_BYTES * 8 // max(d.bits for d in dtypes)


def blocks_of(lanes: int, dtype: DType) -> int:
    """Blocks that a number of lanes takes."""
    return ceil_div(lanes * dtype.bits, BLOCK_BITS)


def pieces_of(counter_mode: bool, mask: int, repeat: int, lanes: int) -> tuple[Piece, ...]:
    """Return the repeats that run: all alike in normal mode, full ones and a tail in counter mode."""
    if counter_mode:
        full, tail = divmod(mask, lanes)
        pieces = [Piece(0, full, lanes, None)] if full else []
        return tuple([*pieces, Piece(full, 1, tail, None)] if tail else pieces)
    mask &= (1 << lanes) - 1
    if not repeat or not mask:
        return ()
    top = mask.bit_length()
    return (Piece(0, repeat, top, None if mask == (1 << top) - 1 else mask),)


def step_of(piece: Piece, operands: tuple[Triple, ...]) -> Step:
    """Return the windows of a piece."""
    chosen = None
    if piece.mask is not None:
        chosen = np.array([piece.mask >> i & 1 for i in range(piece.lanes)], np.bool_)
    return Step(piece, chosen, tuple(window_of(piece, d, b, r) for d, b, r in operands))


def window_of(piece: Piece, dtype: DType, block: int, repeat: int) -> Window:
    """Return the whole blocks that cover the lanes of a piece."""
    size = 1 if dtype is S4 else dtype.size
    return Window(
        piece.first * repeat * BLOCK_BYTES,
        (piece.repeats, blocks_of(piece.lanes, dtype), BLOCK_BYTES // size),
        (repeat * BLOCK_BYTES, block * BLOCK_BYTES, size),
    )


def load(core: CoreView, at: Operand, window: Window, lanes: int) -> Array:
    """Return the lanes of a window as (repeats, lanes); masked lanes hold what memory holds."""
    if window.offset:
        at = at.offset(window.offset)
    blocks = core.view(at, window.shape, window.strides)
    rows = blocks.reshape(window.shape[0], -1)
    if at.dtype is S4:
        rows = unpack_s4(rows)
    return rows[:, :lanes]


def store(core: CoreView, at: Operand, window: Window, step: Step, result: Array) -> None:
    """Write (repeats, lanes) into a window where the mask lets them through."""
    if window.offset:
        at = at.offset(window.offset)
    blocks = core.view(at, window.shape, window.strides)
    chosen = step.chosen
    if result.ndim == 0:
        result = np.broadcast_to(result, (window.shape[0], step.piece.lanes))
    if at.dtype is S4:
        result, chosen = pack_s4(result), None if chosen is None else chosen[::2]
    width = window.shape[1] * window.shape[2]
    lanes = result.shape[1]
    if chosen is None and lanes == width:
        blocks[...] = result.reshape(window.shape)
        return
    padded = np.zeros((window.shape[0], width), blocks.dtype)
    padded[:, :lanes] = result
    where = np.zeros(width, np.bool_)
    where[:lanes] = True if chosen is None else chosen
    np.copyto(blocks, padded.reshape(window.shape), where=where.reshape(window.shape[1:]))


def unpack_s4(packed: Array) -> Array:
    """Return two `int8` elements for every byte, low nibble first."""
    out = np.empty((*packed.shape[:-1], packed.shape[-1] * 2), np.int8)
    signed = packed.view(np.int8)
    out[..., 0::2] = signed << 4 >> 4
    out[..., 1::2] = signed >> 4
    return out


def pack_s4(elements: Array) -> Array:
    """Return one byte for every two elements, low nibble first."""
    low, high = elements[..., 0::2], elements[..., 1::2]
    packed: Array = (low & 15 | high << 4).astype(np.int8)
    return packed


def accesses(operand: Strided, pieces: tuple[Piece, ...]) -> list[Access]:
    """Return the bytes of an operand that the lanes of all pieces touch."""
    found: list[Access] = []
    for piece in pieces:
        runs = [(0, piece.lanes)] if piece.mask is None else runs_of(piece.mask)
        if operand.block == 1 and len(runs) > 2 and (even := _even_access(operand, piece, runs)):
            found.append(even)
        else:
            found += [a for start, stop in runs for a in _run_accesses(operand, piece, start, stop)]
    return found


def _even_access(operand: Strided, piece: Piece, runs: list[tuple[int, int]]) -> Access | None:
    """Return runs of one length at one distance, such as every second lane, as one access."""
    (first, stop), (second, _) = runs[:2]
    length, distance = stop - first, second - first
    bits = operand.at.dtype.bits
    if bits < 8 or any(run != (first + i * distance, stop + i * distance) for i, run in enumerate(runs)):
        return None
    start = operand.at.address + piece.first * operand.repeat * BLOCK_BYTES + first * bits // 8
    counts: tuple[int, ...] = (len(runs),)
    strides: tuple[int, ...] = (distance * bits // 8,)
    if piece.repeats > 1 and operand.repeat:
        counts, strides = (piece.repeats, *counts), (operand.repeat * BLOCK_BYTES, *strides)
    return Access(operand.at.space, operand.at.segment, start, length * bits // 8, counts, strides)


def repeated(at: Operand, offset: int, size: int, repeats: int, stride: int) -> Access:
    """Return `size` bytes `offset` behind an operand, again `stride` bytes further on for every repeat."""
    start = at.address + offset
    if repeats == 1 or not stride:
        return Access(at.space, at.segment, start, size)
    if stride == size:
        return Access(at.space, at.segment, start, size * repeats)
    return Access(at.space, at.segment, start, size, (repeats,), (stride,))


def runs_of(bits: int) -> list[tuple[int, int]]:
    """Return the half-open runs of ones in an integer, lowest first."""
    runs, place = [], 0
    while bits:
        skip = (bits & -bits).bit_length() - 1
        bits >>= skip
        length = (~bits & (bits + 1)).bit_length() - 1
        runs.append((place + skip, place + skip + length))
        place += skip + length
        bits >>= length
    return runs


def _run_accesses(operand: Strided, piece: Piece, start: int, stop: int) -> list[Access]:
    at, bits = operand.at, operand.at.dtype.bits
    base = at.address + piece.first * operand.repeat * BLOCK_BYTES
    step = operand.repeat * BLOCK_BYTES
    first, last = start * bits // 8, ceil_div(stop * bits, 8)

    def access(offset: int, size: int, blocks: int = 1) -> Access:
        counts: tuple[int, ...] = ()
        strides: tuple[int, ...] = ()
        if blocks > 1:
            counts, strides = (blocks,), (operand.block * BLOCK_BYTES,)
        if piece.repeats > 1 and step:
            if not counts and step == size:
                size *= piece.repeats
            else:
                counts, strides = (piece.repeats, *counts), (step, *strides)
        return Access(at.space, at.segment, base + offset, size, counts, strides)

    if operand.block == 1 or last <= BLOCK_BYTES:
        return [access(first, last - first)]
    found = []
    block, inner = divmod(first, BLOCK_BYTES)
    end_block, end_inner = divmod(last, BLOCK_BYTES)
    stride = operand.block * BLOCK_BYTES
    if block == end_block:
        return [access(block * stride + inner, last - first)]
    if inner:
        found.append(access(block * stride + inner, BLOCK_BYTES - inner))
        block += 1
    if end_block > block:
        found.append(access(block * stride, BLOCK_BYTES, end_block - block if stride else 1))
    if end_inner:
        found.append(access(end_block * stride, end_inner))
    return found
