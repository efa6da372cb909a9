"""Sort32, MrgSort and Gatherb against loops over single records and blocks."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
import vector_exact as exact
from hypothesis import given
from hypothesis import strategies as st
from vector_bench import FEW, PLACES, Bench, check_touched

from npusim.config.chip import Chip
from npusim.errors import OperandError
from npusim.isa import F16, F32, S32, U32, Gatherb, MrgSort, Sort32
from npusim.isa.dtype import BY_NAME
from npusim.isa.state import RESET, State
from npusim.isa.vector.lanes import ub

Record = tuple[float, int, int]
"""Value, its bits, index."""
FLOATS = pytest.mark.parametrize("dtype", ["f16", "f32"])


def comes_before(a: Record, b: Record, width: int) -> bool:
    """Whether a record has to stand before another one that was ahead of it in the input."""

    def rank(record: Record) -> tuple[int, float, int]:
        value, bits, _ = record
        if math.isnan(value):
            negative = bits >> (width - 1)
            payload = bits & ((1 << (width - 1)) - 1)
            return (-1, 0.0, -payload) if negative else (1, 0.0, payload)
        return (0, value, 0)

    return rank(a) > rank(b)


def insertion_sort(records: Iterable[Record], width: int) -> list[Record]:
    done: list[Record] = []
    for record in records:
        at = len(done)
        while at and comes_before(record, done[at - 1], width):
            at -= 1
        done.insert(at, record)
    return done


def by_heads(queues: list[list[Record]], width: int, *, suspend: bool) -> tuple[list[Record], list[int]]:
    """Merge by looking at the first record of every queue."""
    taken, merged = [0] * len(queues), []
    while any(t < len(q) for t, q in zip(taken, queues, strict=True)):
        if suspend and any(t == len(q) for t, q in zip(taken, queues, strict=True)):
            break
        best = -1
        for i, queue in enumerate(queues):
            if taken[i] < len(queue) and (
                best < 0 or comes_before(queue[taken[i]], queues[best][taken[best]], width)
            ):
                best = i
        merged.append(queues[best][taken[best]])
        taken[best] += 1
    return merged, taken


def record(bits: int, index: int, dtype: str) -> Record:
    return float(exact.decode(bits, dtype)), bits, index


def read_records(bench: Bench, address: int, count: int, dtype: str) -> list[Record]:
    raw = bytes(bench.memory[address : address + 8 * count])
    size = exact.WIDTH[dtype] // 8
    rows = [raw[8 * i : 8 * i + 8] for i in range(count)]
    assert dtype == "f32" or all(row[2:4] == b"\0\0" for row in rows)
    return [
        record(int.from_bytes(row[:size], "little"), int.from_bytes(row[4:], "little"), dtype) for row in rows
    ]


def write_records(bench: Bench, address: int, records: list[Record]) -> None:
    raw = b"".join(bits.to_bytes(4, "little") + index.to_bytes(4, "little") for _, bits, index in records)
    bench.memory[address : address + len(raw)] = np.frombuffer(raw, np.uint8)


def plain(records: list[Record]) -> list[tuple[int, int]]:
    return [(bits, index) for _, bits, index in records]


@FLOATS
@FEW
@given(seed=st.integers(0, 1 << 30), repeat=st.integers(0, 3), few=st.booleans())
def test_sort32(chip: Chip, dtype: str, seed: int, repeat: int, few: bool) -> None:
    kind, width = BY_NAME[dtype], exact.WIDTH[dtype]
    op = Sort32(dst=ub(kind, PLACES["dst"]), src=ub(kind, 0x4000), index=ub(U32, 0x8000), repeat=repeat)
    op.check(chip, RESET)
    bench = Bench(chip, seed)
    bench.numbers(dtype, 0x4000, 0x5000, seed)
    if few:  # two values only, so that order among equals shows
        bench.memory[0x4000:0x5000] = np.tile(bench.memory[0x4000 : 0x4000 + width // 4], 0x1000 * 4 // width)
    check_touched(bench, op, RESET)
    size = width // 8
    given_bits = [
        int.from_bytes(bytes(bench.memory[0x4000 + size * i : 0x4000 + size * (i + 1)]), "little")
        for i in range(32 * repeat)
    ]
    indices = bench.core.view(op.index, (32 * repeat,)).tolist()
    op.execute(bench.core, RESET)
    for r in range(repeat):
        pairs = zip(given_bits[32 * r :][:32], indices[32 * r :], strict=False)
        expected = insertion_sort((record(b, i, dtype) for b, i in pairs), width)
        found = read_records(bench, op.dst.address + 256 * r, 32, dtype)
        assert plain(found) == plain(expected)


def test_equal_values_and_zeros_keep_their_order(chip: Chip) -> None:
    bench = Bench(chip)
    bench.core.view(ub(F16, 0), (32,))[...] = [0.0, -0.0] * 8 + [np.inf, np.nan, -np.inf, 5e-8] * 4
    bench.core.view(ub(U32, 0x1000), (32,))[...] = np.arange(32)
    Sort32(dst=ub(F16, 0x2000), src=ub(F16, 0), index=ub(U32, 0x1000)).execute(bench.core, RESET)
    order = [index for _, _, index in read_records(bench, 0x2000, 32, "f16")]
    nan, inf, tiny, low = (list(range(16 + i, 32, 4)) for i in (1, 0, 3, 2))
    assert order == [*nan, *inf, *tiny, *range(16), *low]


@FLOATS
@FEW
@given(
    seed=st.integers(0, 1 << 30),
    lengths=st.lists(st.integers(0, 40), min_size=2, max_size=4),
    suspend=st.booleans(),
    in_order=st.booleans(),
)
def test_merge(chip: Chip, dtype: str, seed: int, lengths: list[int], suspend: bool, in_order: bool) -> None:
    kind, width = BY_NAME[dtype], exact.WIDTH[dtype]
    places = {f"src{i}": ub(kind, 0x1000 * (i + 1)) for i in range(len(lengths))}
    fields: dict[str, Any] = {**places, "lengths": tuple(lengths), "suspend": suspend}
    op = MrgSort(dst=ub(kind, PLACES["dst"]), **fields)
    op.check(chip, RESET)
    assert op.returns_value == suspend
    bench = Bench(chip, seed)
    bench.numbers(dtype, 0x8000, 0x9000, seed)
    rng = np.random.default_rng(seed)
    pool = bench.memory[0x8000:0x9000].view(f"<u{width // 8}")
    queues = []
    for i, count in enumerate(lengths):
        chosen = [record(int(b), int(n), dtype) for n, b in enumerate(rng.choice(pool, count))]
        queues.append(insertion_sort(chosen, width) if in_order else chosen)
        write_records(bench, 0x1000 * (i + 1), queues[-1])
    check_touched(bench, op, RESET, all_written=not suspend)
    before = bench.memory.copy()
    value = op.execute(bench.core, RESET)
    expected, taken = by_heads(queues, width, suspend=suspend)
    changed = np.flatnonzero(bench.memory != before)
    assert not changed.size or changed[-1] < op.dst.address + 8 * len(expected)
    assert value == (tuple(taken) if suspend else None)
    assert plain(read_records(bench, op.dst.address, len(expected), dtype)) == plain(expected)


def test_repeats_merge_four_neighbours_each(chip: Chip) -> None:
    places: Any = {f"src{i}": ub(F32, 0x1000 + 8 * 8 * i) for i in range(4)}
    op = MrgSort(dst=ub(F32, 0x8000), lengths=(8,) * 4, repeat=3, **places)
    op.check(chip, RESET)
    bench = Bench(chip)
    rng = np.random.default_rng(1)
    for q in range(12):
        values = -np.sort(-rng.integers(0, 9, 8))
        bits = values.astype(np.float32).view(np.uint32).tolist()
        write_records(bench, 0x1000 + 64 * q, [record(b, 8 * q + i, "f32") for i, b in enumerate(bits)])
    check_touched(bench, op, RESET)
    queues = [read_records(bench, 0x1000 + 64 * q, 8, "f32") for q in range(12)]
    assert op.execute(bench.core, RESET) is None
    for r in range(3):
        expected, _ = by_heads(queues[4 * r : 4 * r + 4], 32, suspend=False)
        assert plain(read_records(bench, 0x8000 + 256 * r, 32, "f32")) == plain(expected)


def test_costs_are_two_records_a_cycle(chip: Chip) -> None:
    """32 records take 16 cycles, and eight blocks three."""
    sort = Sort32(dst=ub(F32, 0x10000), src=ub(F32, 0), index=ub(U32, 0x4000), repeat=100)
    assert sort.work(chip, RESET).cycles == 24 + 100 * 16
    places: Any = {f"src{i}": ub(F32, 0x8000 * i) for i in range(2)}
    merge = MrgSort(dst=ub(F32, 0x10000), lengths=(1000, 1000), **places)
    assert merge.work(chip, RESET).cycles == 24 + 63 * 16
    blocks = Gatherb(dst=ub(F32, 0x10000), src=ub(F32, 0), offsets=ub(U32, 0x4000), src_bytes=32, repeat=100)
    assert blocks.work(chip, RESET).cycles == 24 + 100 * 3


@FEW
@given(
    seed=st.integers(0, 1 << 30),
    repeat=st.integers(0, 4),
    block=st.integers(1, 4),
    stride=st.integers(0, 40),
    blocks=st.integers(1, 60),
)
def test_gather_blocks(chip: Chip, seed: int, repeat: int, block: int, stride: int, blocks: int) -> None:
    op = Gatherb(
        dst=ub(S32, PLACES["dst"]), src=ub(S32, 0x4000), offsets=ub(U32, 0xC100), src_bytes=32 * blocks,
        dst_block=block, dst_repeat=stride, repeat=repeat,
    )  # fmt: skip
    op.check(chip, State(mask=1))
    bench = Bench(chip, seed)
    offsets = 32 * np.random.default_rng(seed).integers(0, blocks, (repeat, 8))
    bench.core.view(op.offsets, offsets.shape)[...] = offsets
    expected = bench.memory.copy()
    for r in range(repeat):
        for i in range(8):
            there, here = 0x4000 + offsets[r, i], PLACES["dst"] + 32 * (r * stride + i * block)
            expected[here : here + 32] = bench.memory[there : there + 32]
    op.execute(bench.core, RESET)
    np.testing.assert_array_equal(bench.memory, expected)


def test_block_offset_out_of_reach(chip: Chip) -> None:
    bench = Bench(chip)
    bench.core.view(ub(U32, 0x8000), (16,))[...] = [0] * 10 + [64] + [0] * 5
    op = Gatherb(dst=ub(F32, 0x10000), src=ub(F32, 0), offsets=ub(U32, 0x8000), src_bytes=64, repeat=2)
    with pytest.raises(OperandError) as caught:
        op.execute(bench.core, RESET)
    assert str(caught.value) == (
        "Gatherb: the offset of block 2 in repeat 1 must be a multiple of 32 inside the 64 bytes of src, "
        "not 64"
    )


A, B, C = ub(F32, 0), ub(F32, 0x1000), ub(F32, 0x10000)
INDEX = ub(U32, 0x8000)
BEYOND = (
    "Sort32: dst must stay inside the 196,608 bytes of ub, not end at byte 196,640; use fewer repeats, "
    "smaller strides or a lower address"
)
CASES = [
    (Sort32(dst=C, src=A, index=A), "Sort32: index must be u32, not f32"),
    (Sort32(dst=C, src=ub(F16, 0), index=INDEX),
        "Sort32: dst and src must have one element type, not f32 and f16; convert one of them with Cast"),
    (Sort32(dst=ub(S32, 0), src=ub(S32, 0x400), index=INDEX), "Sort32: dst must be f16 or f32, not s32"),
    (Sort32(dst=A, src=A, index=INDEX),
        "Sort32: dst and src must have no bytes in common; give dst a place of its own"),
    (Sort32(dst=ub(F32, 0x2FF20), src=A, index=INDEX), BEYOND),
    (MrgSort(dst=C, src0=A, src1=B, lengths=(1, 2, 3)),
        "MrgSort: lengths must be 2 numbers, one for each queue, not 3"),
    (MrgSort(dst=C, src0=A, src1=B, src3=B, lengths=(1, 2, 3)), "MrgSort: src2 must be given where src3 is"),
    (MrgSort(dst=C, src0=A, src1=B, lengths=(1, 4096)),
        "MrgSort: lengths[1] must be 0..4,095 records of a queue, not 4,096"),
    (MrgSort(dst=C, src0=A, src1=B, lengths=(1, 2), repeat=2),
        "MrgSort: repeat must be 1 without four queues, not 2"),
    (MrgSort(dst=C, src0=A, src1=A, src2=A, src3=A, lengths=(4,) * 4, repeat=2, suspend=True),
        "MrgSort: repeat must be 1 without suspend=False, not 2"),
    (MrgSort(dst=C, src0=A, src1=ub(F32, 32), src2=ub(F32, 64), src3=B, lengths=(4,) * 4, repeat=2),
        "MrgSort: repeat must be 1, not 2, where the queues are not equally long and one behind the other"),
    (MrgSort(dst=B, src0=A, src1=B, lengths=(4, 5)),
        "MrgSort: dst and src1 must have no bytes in common; give dst a place of its own"),
    (Gatherb(dst=C, src=A, offsets=INDEX, src_bytes=40),
        "Gatherb: src_bytes must be one or more blocks of 32 bytes, not 40 bytes"),
    (Gatherb(dst=C, src=A, offsets=B, src_bytes=64), "Gatherb: offsets must be u32, not f32"),
    (Gatherb(dst=C, src=A, offsets=INDEX, src_bytes=64, dst_block=0),
        "Gatherb: dst_block must be 1 or more, not 0, where a repeat writes more than one block"),
]  # fmt: skip


@pytest.mark.parametrize(("op", "message"), CASES, ids=range(len(CASES)))
def test_message(chip: Chip, op: Any, message: str) -> None:
    with pytest.raises(OperandError) as caught:
        op.check(chip, RESET)
    assert str(caught.value) == message
