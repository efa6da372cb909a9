"""The shape of a vector instruction: repeats, blocks, strides and masks, and what they cost.

A repeat covers 256 bytes: eight blocks of 32 bytes of the widest operand. Every operand has a block stride and a repeat
stride in blocks. Normal mode executes `repeat` repeats under a lane mask; counter mode executes as many elements as the
mask counts, in as few repeats as that takes (hardware.md 3.1, H).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, ClassVar, NamedTuple

import numpy as np

from npusim.config.chip import Banks, Chip
from npusim.isa.dtype import DType
from npusim.isa.instruction import Array, CoreView, Instruction, Work
from npusim.isa.operand import Access, Operand, Pipe
from npusim.isa.state import State
from npusim.units import BLOCK_BYTES, REPEAT_BYTES, ceil_div

MAX_REPEAT = 255
MAX_STRIDE = 255


class Piece(NamedTuple):
    """Repeats that run under one set of lanes."""

    first: int
    """Index of the first repeat."""
    repeats: int
    lanes: int
    """Lanes from the first to one past the last that runs."""
    mask: tuple[bool, ...] | None
    """Which of those lanes run; None where all do."""


class Strided(NamedTuple):
    """An operand as a vector instruction walks it; strides in blocks of 32 bytes."""

    at: Operand
    block: int
    repeat: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorInstruction(Instruction):
    """Base of the instructions that walk all operands in step: one result lane for one lane of every source.

    Subclasses name their operands in fields, each with `<name>_block` and `<name>_repeat` strides, and give `compute`.
    """

    repeat: int = 1
    """Repeats in normal mode, 0..255; counter mode ignores it."""

    pipe: ClassVar[Pipe] = Pipe.V
    cost_class: ClassVar[str] = "one_source"
    """Row of the chip's cost table."""
    types: ClassVar[frozenset[DType]] = frozenset()
    """Element types of the operands."""

    def operands(self) -> tuple[tuple[str, Strided], ...]:
        """Return the strided operands by name, destination first."""
        return tuple(
            (name, Strided(getattr(self, name), getattr(self, block), getattr(self, repeat)))
            for name, block, repeat in _strided_fields(type(self))
        )

    @property
    def lanes(self) -> int:
        """Elements of one repeat, which the widest operand decides."""
        return REPEAT_BYTES // max(operand.at.dtype.size for _, operand in self.operands())

    def cost_dtype(self) -> DType:
        """Element type that selects the column of the cost table: the widest one."""
        return max((o.at.dtype for _, o in self.operands()), key=lambda d: d.bits)

    def check(self, chip: Chip, state: State) -> None:
        """Check placement, element types, repeat and stride limits, the mask, and overlap of source and destination."""
        super(VectorInstruction, self).check(chip, state)
        self.check_types()
        if not 0 <= self.repeat <= MAX_REPEAT:
            raise self.error(
                f"repeat must be 0..{MAX_REPEAT}, not {self.repeat}; split it, or count elements in counter mode"
            )
        for name, operand in self.operands():
            for what, stride in (("block", operand.block), ("repeat", operand.repeat)):
                if not 0 <= stride <= MAX_STRIDE:
                    raise self.error(
                        f"{name}_{what} must be 0..{MAX_STRIDE} blocks of 32 bytes, not {stride}"
                    )
        if not state.counter_mode and self.repeat and not state.mask & ((1 << self.lanes) - 1):
            raise self.error(f"the mask selects none of the {self.lanes} lanes; set it with SetVectorMask")
        self._check_overlap(state)

    def check_types(self) -> None:
        """Raise where an operand has an element type the instruction does not know, or types differ."""
        dst, *sources = (o.at.dtype for _, o in self.operands())
        if dst not in self.types:
            known = " ".join(sorted(d.short for d in self.types))
            raise self.error(f"element type {dst.short} is not supported; use one of {known}")
        for source in sources:
            if source is not dst:
                raise self.error(f"operands must have one element type, not {dst.short} and {source.short}")

    def _check_overlap(self, state: State) -> None:
        pieces = self.pieces(state)
        if not pieces:
            return
        (_, dst), *sources = self.operands()
        repeats = pieces[-1].first + pieces[-1].repeats
        for name, source in sources:
            if source == dst or not _hulls_meet(dst, source, repeats):
                continue
            if source.repeat == dst.repeat == 0 and source.at.address == dst.at.address:
                continue  # the documented accumulation into one repeat
            target = self._touched(dst, pieces)
            if any(a < d and c < b for a, b in self._touched(source, pieces) for c, d in target):
                raise self.error(f"dst overlaps {name} without being equal to it; give it a place of its own")

    @staticmethod
    def _touched(operand: Strided, pieces: list[Piece]) -> list[tuple[int, int]]:
        return [run for piece in pieces for access in accesses(operand, piece) for run in access.runs()]

    def pieces(self, state: State) -> list[Piece]:
        """Return the repeats and lanes that run in a state."""
        return _pieces(state.counter_mode, state.mask, self.repeat, self.lanes)

    def reads(self, state: State) -> tuple[Access, ...]:
        """Return the lanes that run of every source."""
        pieces, roles = self.pieces(state), self.roles
        return tuple(
            a
            for name, op in self.operands()
            if roles[name].reads
            for piece in pieces
            for a in accesses(op, piece)
        )

    def writes(self, state: State) -> tuple[Access, ...]:
        """Return the lanes that run of the destination."""
        pieces, roles = self.pieces(state), self.roles
        return tuple(
            a
            for name, op in self.operands()
            if roles[name].writes
            for piece in pieces
            for a in accesses(op, piece)
        )

    def compute(self, core: CoreView, state: State, *sources: Array) -> Array:
        """Return the result lanes for source lanes of one shape; a source that is also the destination comes first."""
        raise NotImplementedError

    def execute(self, core: CoreView, state: State) -> None:
        """Compute all repeats at once, or one by one where a repeat reads the result of the one before."""
        lanes = self.lanes
        (_, dst), *rest = self.operands()
        roles = list(self.roles.values())
        sources = ([dst] if roles[0].reads else []) + [op for _, op in rest]
        pieces = self.pieces(state)
        if len(pieces) and all(flat(op, lanes) for op in (dst, *sources)) and _one_row(pieces, lanes):
            count = sum(p.repeats * p.lanes for p in pieces)
            shape = (count,)
            result = self.compute(core, state, *[core.view(op.at, shape) for op in sources])
            core.view(dst.at, shape)[...] = result
            return
        for piece in pieces:
            steps = [piece]
            if dst.repeat == 0 and piece.repeats > 1:
                steps = [piece._replace(first=piece.first + i, repeats=1) for i in range(piece.repeats)]
            for step in steps:
                result = self.compute(core, state, *[load(core, op, step) for op in sources])
                store(core, dst, step, result)

    def work(self, chip: Chip, state: State) -> Work:
        """Return head + repeats x the larger of throughput and bank conflicts."""
        pieces = self.pieces(state)
        repeats = pieces[-1].first + pieces[-1].repeats if pieces else 0
        if not repeats:
            return Work(chip.vector.head_cycles, prices=("vector.head_cycles",))
        table = chip.vector.cycles_per_repeat[self.cost_class]
        column = self.cost_dtype().short
        column = column if column in table else "default"
        roles = self.roles
        reads, writes = [], []
        for name, op in self.operands():
            shape = (
                op.at.address,
                op.block,
                op.repeat,
                ceil_div(pieces[0].lanes * op.at.dtype.size, BLOCK_BYTES),
            )
            if roles[name].reads:
                reads.append(shape)
            if roles[name].writes:
                writes.append(shape)
        body = bank_cycles(chip.vector.banks, tuple(reads), tuple(writes), repeats, table[column])
        return Work(
            chip.vector.head_cycles + body,
            element_ops=sum(p.repeats * (sum(p.mask) if p.mask else p.lanes) for p in pieces),
            prices=("vector.head_cycles", f"vector.cycles_per_repeat.{self.cost_class}.{column}"),
        )


@cache
def _strided_fields(cls: Any) -> tuple[tuple[str, str, str], ...]:
    names = {f.name for f in cls.spec}
    return tuple((n, f"{n}_block", f"{n}_repeat") for n in cls.roles if f"{n}_block" in names)


@lru_cache(4096)
def _pieces(counter_mode: bool, mask: int, repeat: int, lanes: int) -> list[Piece]:
    if counter_mode:
        full, tail = divmod(mask, lanes)
        pieces = [Piece(0, full, lanes, None)] if full else []
        return [*pieces, Piece(full, 1, tail, None)] if tail else pieces
    mask &= (1 << lanes) - 1
    if not repeat or not mask:
        return []
    top = mask.bit_length()
    bits = None if mask == (1 << top) - 1 else tuple(bool(mask >> i & 1) for i in range(top))
    return [Piece(0, repeat, top, bits)]


def flat(operand: Strided, lanes: int) -> bool:
    """Whether successive repeats of an operand adjoin."""
    return operand.block == 1 and operand.repeat * BLOCK_BYTES == lanes * operand.at.dtype.size


def _one_row(pieces: list[Piece], lanes: int) -> bool:
    return pieces[0].mask is None and (pieces[0].lanes == lanes or pieces[-1].first + pieces[-1].repeats == 1)


def _hulls_meet(a: Strided, b: Strided, repeats: int) -> bool:
    def hull(op: Strided) -> tuple[int, int]:
        blocks = REPEAT_BYTES // BLOCK_BYTES - 1
        span = ((repeats - 1) * op.repeat + blocks * op.block + 1) * BLOCK_BYTES
        return op.at.address, op.at.address + span

    (a0, a1), (b0, b1) = hull(a), hull(b)
    return a0 < b1 and b0 < a1


def accesses(operand: Strided, piece: Piece) -> list[Access]:
    """Return the bytes of an operand that the lanes of a piece touch."""
    at, size = operand.at, operand.at.dtype.size
    start = at.address + piece.first * operand.repeat * BLOCK_BYTES
    step = operand.repeat * BLOCK_BYTES
    if piece.mask is None:
        blocks, rest = divmod(piece.lanes * size, BLOCK_BYTES)
        found = []
        if blocks:
            strides = (step, operand.block * BLOCK_BYTES)
            found.append(Access(at.space, at.segment, start, BLOCK_BYTES, (piece.repeats, blocks), strides))
        if rest:
            tail = start + blocks * operand.block * BLOCK_BYTES
            found.append(Access(at.space, at.segment, tail, rest, (piece.repeats,), (step,)))
        return found
    per_block = BLOCK_BYTES // size
    return [
        Access(
            at.space,
            at.segment,
            start + (lane // per_block) * operand.block * BLOCK_BYTES + lane % per_block * size,
            size,
            (piece.repeats,),
            (step,),
        )
        for lane, runs in enumerate(piece.mask)
        if runs
    ]


def window(core: CoreView, operand: Strided, piece: Piece) -> Array:
    """Return a view of whole blocks, (repeats, blocks, elements of a block), that covers the lanes of a piece."""
    size = operand.at.dtype.size
    blocks = ceil_div(piece.lanes * size, BLOCK_BYTES)
    return core.view(
        operand.at.offset(piece.first * operand.repeat * BLOCK_BYTES),
        (piece.repeats, blocks, BLOCK_BYTES // size),
        (operand.repeat * BLOCK_BYTES, operand.block * BLOCK_BYTES, size),
    )


def load(core: CoreView, operand: Strided, piece: Piece) -> Array:
    """Return the lanes of a piece as (repeats, lanes); lanes that the mask leaves out hold what memory holds."""
    blocks = window(core, operand, piece)
    return blocks.reshape(piece.repeats, -1)[:, : piece.lanes]


def store(core: CoreView, operand: Strided, piece: Piece, result: Array) -> None:
    """Write (repeats, lanes) where the mask lets them through."""
    blocks = window(core, operand, piece)
    width = blocks.shape[1] * blocks.shape[2]
    if piece.lanes == width and piece.mask is None:
        blocks[...] = result.reshape(blocks.shape)
        return
    whole = blocks.reshape(piece.repeats, width).copy()
    if piece.mask is None:
        whole[:, : piece.lanes] = result
    else:
        chosen = np.array(piece.mask)
        whole[:, : piece.lanes][:, chosen] = result[:, chosen]
    blocks[...] = whole.reshape(blocks.shape)


Walk = tuple[int, int, int, int]
"""Start address, block stride, repeat stride and blocks of one repeat of an operand."""


@lru_cache(65536)
def bank_cycles(
    banks: Banks, reads: tuple[Walk, ...], writes: tuple[Walk, ...], repeats: int, base: float
) -> int:
    """Return the cycles of all repeats: per repeat the larger of `base` and what the banks of the buffer allow.

    In one cycle a bank group serves `ports` reads or `ports` writes, and a write lands one repeat after its reads, where
    it meets the reads of the next repeat if they fall into the same bank of the same group (hardware.md 3.5, H for the
    geometry; the measured 2390, 3751 and 4167 ticks of the vendor's bank samples are reproduced within 10 %).
    """
    read_group, read_bank = _hits(banks, reads, repeats)
    write_group, write_bank = _hits(banks, writes, repeats)
    worst = np.maximum(read_group.max(axis=1), write_group.max(axis=1))
    together = read_bank.copy()
    together[1:] += write_bank[:-1] * (read_bank[1:] > 0)
    worst = np.maximum(worst, together.max(axis=1))
    per_repeat = np.maximum(-(-worst // banks.ports), base)
    return int(np.ceil(per_repeat.sum()))


def _hits(banks: Banks, walks: tuple[Walk, ...], repeats: int) -> tuple[Any, Any]:
    """Count accesses by (repeat, group) and by (repeat, bank and group)."""
    in_group = np.zeros((repeats, banks.groups), np.int64)
    in_bank = np.zeros((repeats, banks.groups * banks.banks), np.int64)
    rows = np.arange(repeats)[:, None]
    for start, block, repeat, blocks in walks:
        distinct = np.arange(blocks if block else 1)  # a block read again by the same operand is read once
        address = start + (rows * repeat + distinct * block) * BLOCK_BYTES
        group = address // BLOCK_BYTES % banks.groups
        bank = (address >> banks.bank_low_bit) % banks.banks
        np.add.at(in_group, (rows, group), 1)
        np.add.at(in_bank, (rows, group * banks.banks + bank), 1)
    return in_group, in_bank
