"""The overlap rule of vector instructions.

Within a repeat a source and the destination are the same bytes or have none in common, and no repeat reads
what an earlier one wrote. Add, Sub, Mul, Max, Min, AddRelu and SubRelu on float16, int32 and float32 may take
as second source what earlier repeats wrote, where that source or the destination has repeat stride 0
(asc-devkit, address overlap; H).
"""

from __future__ import annotations

from collections.abc import Callable

from npusim.errors import OperandError
from npusim.isa.dtype import F16, F32, S32
from npusim.isa.vector.walk import Plan, Strided, blocks_of
from npusim.units import BLOCK_BYTES

Named = tuple[str, Strided]


def check_overlap(
    error: Callable[[str], OperandError],
    dst: Named,
    sources: list[Named],
    plan: Plan,
    *,
    accumulates: bool,
) -> None:
    """Raise where a source and the destination overlap in a way the hardware does not define."""
    _, target = dst
    blocks = blocks_of(plan.pieces[0].lanes, target.at.dtype)
    repeats = plan.repeats
    for name, source in sources:
        source_blocks = blocks_of(plan.pieces[0].lanes, source.at.dtype)
        if not _hulls_meet(target, blocks, source, source_blocks, repeats):
            continue
        span = (blocks - 1) * target.block + 1
        if _same_walk(source, target) and target.repeat >= span:
            continue  # in place
        narrows = target.at.dtype.bits < source.at.dtype.bits and target.block == source.block == 1
        may_feed = _accumulation(accumulates, name, target, source)
        if may_feed and source == target:
            continue  # all repeats into one place
        same = target.at.dtype.bits == source.at.dtype.bits or narrows
        written: dict[int, int] = {}
        for repeat, lanes in enumerate(_lanes(plan)):
            here = _visited(target, blocks_of(lanes, target.at.dtype), repeat)
            there = _visited(source, blocks_of(lanes, source.at.dtype), repeat)
            if not may_feed:
                fed = next((block for block in there if block in written), None)
                if fed is not None:
                    raise error(
                        f"repeat {repeat} reads as {name} what repeat {written[fed]} wrote to dst; "
                        f"keep the two apart, or let every repeat work in place"
                    )
            equal = same and here[0] == there[0] and (target.block == source.block or len(here) == 1)
            if not equal and not set(here).isdisjoint(there):
                raise error(
                    f"dst and {name} must be the same bytes or have none in common within a repeat, not "
                    f"overlap in part; give dst a place of its own"
                )
            for block in here:
                written.setdefault(block, repeat)


def _same_walk(a: Strided, b: Strided) -> bool:
    return (
        a.at.address == b.at.address
        and a.block == b.block
        and a.repeat == b.repeat
        and a.at.dtype is b.at.dtype
        and a.at.space is b.at.space
    )


def _accumulation(accumulates: bool, name: str, dst: Strided, source: Strided) -> bool:
    return (
        accumulates
        and name == "src1"
        and dst.at.dtype in (F16, S32, F32)
        and (dst.repeat == 0 or source.repeat == 0)
    )


def _lanes(plan: Plan) -> list[int]:
    """Return the lanes of every repeat; in counter mode the last one may have fewer."""
    return [piece.lanes for piece in plan.pieces for _ in range(piece.repeats)]


def _visited(operand: Strided, blocks: int, repeat: int) -> list[int]:
    start = operand.at.address // BLOCK_BYTES + repeat * operand.repeat
    return [start + i * operand.block for i in range(blocks)]


def _hulls_meet(a: Strided, a_blocks: int, b: Strided, b_blocks: int, repeats: int) -> bool:
    def end(op: Strided, blocks: int) -> int:
        return op.at.address + ((repeats - 1) * op.repeat + (blocks - 1) * op.block + 1) * BLOCK_BYTES

    return a.at.address < end(b, b_blocks) and b.at.address < end(a, a_blocks)


def check_feed(
    error: Callable[[str], OperandError], dst: int, step: int, unit: int, source: Strided, plan: Plan
) -> None:
    """Raise where a repeat reads results that earlier ones wrote: `unit` bytes every `step`, from `dst` on.

    Results that replace what their own repeat reads are let through: a reduction cannot overlap its source as
    a whole.
    """
    blocks = blocks_of(plan.pieces[0].lanes, source.at.dtype)
    repeats = plan.repeats
    stop = source.at.address + ((repeats - 1) * source.repeat + (blocks - 1) * source.block + 1) * BLOCK_BYTES
    if dst >= stop or dst + (repeats - 1) * step + unit <= source.at.address:
        return
    written: dict[int, int] = {}
    for repeat, lanes in enumerate(_lanes(plan)):
        for block in _visited(source, blocks_of(lanes, source.at.dtype), repeat):
            if block in written:
                raise error(
                    f"repeat {repeat} reads as src what repeat {written[block]} wrote to dst; "
                    f"keep the two apart, or let every repeat work in place"
                )
        start = dst + repeat * step
        for block in range(start // BLOCK_BYTES, (start + unit - 1) // BLOCK_BYTES + 1):
            written.setdefault(block, repeat)
