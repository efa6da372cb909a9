"""Copies, fills, broadcasts, gathers and transposes against loops over single elements."""

from __future__ import annotations

import numpy as np
import pytest
import vector_exact as exact
from hypothesis import given
from hypothesis import strategies as st
from vector_bench import (
    FEW,
    PLACES,
    Bench,
    Cells,
    check_touched,
    expect_lanewise,
    place,
    run,
    running,
    states,
    walks,
)

from npusim.config.chip import Chip
from npusim.isa.dtype import BY_NAME, U32
from npusim.isa.operand import Imm
from npusim.isa.state import State
from npusim.isa.vector import (
    Brcb,
    Copy,
    CreateVecIndex,
    Duplicate,
    Gather,
    GatherMask,
    TransDataTo5HD,
    Transpose,
)
from npusim.isa.vector.lanes import ub

WORDS = st.sampled_from(["f16", "bf16", "f32", "s16", "u16", "s32", "u32"])


@FEW
@given(data=st.data(), seed=st.integers(0, 1 << 30), dtype=WORDS)
def test_copy(chip: Chip, data: st.DataObject, seed: int, dtype: str) -> None:
    width = exact.WIDTH[dtype]
    state = data.draw(states(2048 // width))
    at = {n: ub(BY_NAME[dtype], PLACES[n]) for n in ("dst", "src")}
    op = Copy(**at, **data.draw(walks("dst", "src")))

    def expect(cells: Cells, _: Bench) -> None:
        if not state.counter_mode:
            expect_lanewise(cells, op, state, ["dst", "src"], ["src"], lambda bits: bits)
            return
        for r in range(op.repeat):  # here the mask counts the elements of one repeat
            for lane in range(state.mask):
                bits = cells.get(place(op.src.address, dtype, op.src_block, op.src_repeat, r, lane), width)
                cells.put(place(op.dst.address, dtype, op.dst_block, op.dst_repeat, r, lane), width, bits)

    run(chip, op, state, seed, expect)


@FEW
@given(data=st.data(), seed=st.integers(0, 1 << 30), dtype=WORDS)
def test_duplicate(chip: Chip, data: st.DataObject, seed: int, dtype: str) -> None:
    width = exact.WIDTH[dtype]
    state = data.draw(states(2048 // width))
    value = data.draw(st.integers(0, (1 << width) - 1))
    op = Duplicate(dst=ub(BY_NAME[dtype], PLACES["dst"]), scalar=Imm(value), **data.draw(walks("dst")))
    run(chip, op, state, seed, lambda cells, _: expect_lanewise(cells, op, state, ["dst"], [], lambda: value))


@FEW
@given(data=st.data(), seed=st.integers(0, 1 << 30), dtype=st.sampled_from(["f16", "f32", "s16", "s32"]))
def test_create_vec_index(chip: Chip, data: st.DataObject, seed: int, dtype: str) -> None:
    width = exact.WIDTH[dtype]
    lanes = 2048 // width
    state = data.draw(states(lanes))
    first = data.draw(st.sampled_from([0, 1, -5, 2040, 32700]))
    op = CreateVecIndex(dst=ub(BY_NAME[dtype], PLACES["dst"]), scalar=first, **data.draw(walks("dst")))

    def expect(cells: Cells, _: Bench) -> None:
        start = exact.decode(op.scalar.bits, dtype)
        for repeat in running(state, op.repeat, lanes):
            for r, lane in repeat:
                number = start + r * lanes + lane
                if dtype in exact.FORMATS:
                    number = exact.to_format(exact.Fraction(number), dtype)
                where = place(op.dst.address, dtype, op.dst_block, op.dst_repeat, r, lane)
                cells.put(where, width, exact.encode(number, dtype))

    run(chip, op, state, seed, expect)


@FEW
@given(data=st.data(), seed=st.integers(0, 1 << 30), dtype=WORDS)
def test_brcb(chip: Chip, data: st.DataObject, seed: int, dtype: str) -> None:
    width = exact.WIDTH[dtype]
    op = Brcb(
        dst=ub(BY_NAME[dtype], PLACES["dst"]), src=ub(BY_NAME[dtype], PLACES["src"]),
        dst_block=data.draw(st.integers(1, 5)), dst_repeat=data.draw(st.integers(0, 40)),
        repeat=data.draw(st.integers(0, 4)),
    )  # fmt: skip

    def expect(cells: Cells, _: Bench) -> None:
        for r in range(op.repeat):
            for i in range(8):
                bits = cells.get(op.src.address * 8 + (8 * r + i) * width, width)
                for k in range(256 // width):
                    block = op.dst.address + (r * op.dst_repeat + i * op.dst_block) * 32
                    cells.put(block * 8 + k * width, width, bits)

    run(chip, op, State(mask=1), seed, expect)


PATTERNS = {1: (2, 0), 2: (2, 1), 3: (4, 0), 4: (4, 1), 5: (4, 2), 6: (4, 3), 7: (1, 0)}
"""Built-in patterns: one of so many, and which."""


@FEW
@given(
    data=st.data(),
    seed=st.integers(0, 1 << 30),
    dtype=WORDS,
    pattern=st.sampled_from([0] * 7 + list(range(8))),
    in_place=st.booleans(),
)
def test_gather_mask(
    chip: Chip, data: st.DataObject, seed: int, dtype: str, pattern: int, in_place: bool
) -> None:
    width = exact.WIDTH[dtype]
    counted = data.draw(st.booleans())
    state = State(counter_mode=counted, mask=data.draw(st.integers(0, 300)))
    count = state.mask if counted else 2048 // width
    fields = {n: data.draw(st.integers(0, 30)) for n in ("src_repeat", "bits_repeat")}
    if in_place:
        fields["src_repeat"] = -(-count * width // 256)
    bits_type = BY_NAME["u16" if width == 16 else "u32"]
    src = ub(BY_NAME[dtype], PLACES["src"])
    op = GatherMask(
        dst=src if in_place else ub(BY_NAME[dtype], PLACES["dst"]), src=src, pattern=pattern,
        bits=None if pattern else ub(bits_type, 0x12000),
        src_block=1 if in_place else data.draw(st.integers(0, 4)),
        repeat=data.draw(st.integers(0, 4)), **fields,
    )  # fmt: skip
    kept = []

    def expect(cells: Cells, _: Bench) -> None:
        for r in range(op.repeat):
            for i in range(count):
                if pattern:
                    every, which = PATTERNS[pattern]
                    chosen = i % every == which
                else:
                    chosen = bool(cells.get((op.bits.address + r * op.bits_repeat * 32) * 8 + i, 1))
                bit = place(op.src.address, dtype, op.src_block, op.src_repeat, r, i)
                kept.extend([cells.get(bit, width)][: int(chosen)])
        for i, bits in enumerate(kept):
            cells.put(op.dst.address * 8 + i * width, width, bits)

    run(chip, op, state, seed, expect, all_written=bool(pattern))
    bench = Bench(chip, seed)
    if pattern:
        assert op.execute(bench.core, state) == len(kept)
        assert sum(a.total for a in op.writes(state)) == len(kept) * width // 8
    else:
        size = width // 8
        assert sum(a.total for a in op.writes(state)) == count * op.repeat * size >= len(kept) * size


def test_gather_mask_returns_how_many_it_kept(chip: Chip) -> None:
    bench = Bench(chip)
    bench.core.view(ub(U32, 0x8000), (2,))[...] = [0b1011, 0]
    op = GatherMask(dst=ub(U32, 0x4000), src=ub(U32, 0), bits=ub(U32, 0x8000))
    source = bench.core.view(op.src, (64,)).copy()
    assert op.execute(bench.core, State()) == 3
    assert bench.core.view(op.dst, (3,)).tolist() == source[[0, 1, 3]].tolist()


@FEW
@given(data=st.data(), seed=st.integers(0, 1 << 30), dtype=WORDS)
def test_gather(chip: Chip, data: st.DataObject, seed: int, dtype: str) -> None:
    width = exact.WIDTH[dtype]
    lanes = 2048 // width
    state = data.draw(states(lanes))
    size = data.draw(st.integers(20, 500)) * width // 8
    base = data.draw(st.integers(0, 10)) * width // 8
    op = Gather(
        dst=ub(BY_NAME[dtype], PLACES["dst"]), src=ub(BY_NAME[dtype], PLACES["src"]), offsets=ub(U32, 0xC100),
        base=base, src_bytes=size, **data.draw(walks("dst")),
    )  # fmt: skip
    op.check(chip, state)
    bench = Bench(chip, seed)
    offsets = bench.core.view(op.offsets, (4 * 128,))
    reach = (size - base) * 8 // width
    offsets[...] = np.random.default_rng(seed).integers(0, reach, offsets.size) * (width // 8)
    running_lanes = [pair for repeat in running(state, op.repeat, lanes) for pair in repeat]
    garbage = set(range(offsets.size)) - {r * lanes + lane for r, lane in running_lanes}
    offsets[sorted(garbage)] = 0xFFFFFFFF  # lanes that do not run may hold anything
    expected = Cells(bench.memory)
    for r, lane in running_lanes:
        offset = expected.get((op.offsets.address + 4 * (r * lanes + lane)) * 8, 32)
        bits = expected.get((op.src.address + base + offset) * 8, width)
        expected.put(place(op.dst.address, dtype, op.dst_block, op.dst_repeat, r, lane), width, bits)
    op.execute(bench.core, state)
    assert bytes(expected.data) == bench.memory.tobytes()


NARROW = {"s8": 8, "u8": 8, "f16": 16, "s16": 16, "u16": 16, "f32": 32, "s32": 32, "u32": 32}


@FEW
@given(
    data=st.data(), seed=st.integers(0, 1 << 30), dtype=st.sampled_from(list(NARROW)),
    even=st.tuples(st.booleans(), st.booleans()), halves=st.tuples(st.booleans(), st.booleans()),
)  # fmt: skip
def test_transdata(
    chip: Chip, data: st.DataObject, seed: int, dtype: str, even: tuple[bool, bool], halves: tuple[bool, bool]
) -> None:
    width = NARROW[dtype]
    dst_half, src_half = halves if width == 8 else (False, False)
    repeat = data.draw(st.integers(0, 4))
    lists = []
    for start, in_steps in zip((PLACES["dst"], PLACES["src"]), even, strict=True):
        if in_steps:
            step = data.draw(st.integers(1, 6))
            lists.append(tuple(start + 32 * step * i for i in range(16)))
        else:
            order = data.draw(st.permutations(range(16)))
            lists.append(tuple(start + 64 * i for i in order))
    stride = data.draw(st.sampled_from([1, 7, 96])) if repeat > 1 else 0
    dst_stride = 128 if repeat > 1 else 0
    op = TransDataTo5HD(
        dst=lists[0], src=lists[1], dtype=BY_NAME[dtype], repeat=repeat, dst_repeat=dst_stride,
        src_repeat=stride, dst_high_half=dst_half, src_high_half=src_half,
    )  # fmt: skip

    def expect(cells: Cells, _: Bench) -> None:
        def where(rows: tuple[int, ...], r: int, stride: int, row: int, element: int, half: bool) -> int:
            return (rows[row] + r * stride * 32 + 16 * half) * 8 + element * width

        for r in range(repeat):
            for i in range(16):
                for j in range(8 if width == 32 else 16):
                    bits = cells.get(where(lists[1], r, stride, i, j, src_half), width)
                    row, element = (2 * j + i // 8, i % 8) if width == 32 else (j, i)
                    cells.put(where(lists[0], r, dst_stride, row, element, dst_half), width, bits)

    run(chip, op, State(mask=1), seed, expect)


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("dtype", ["f16", "s16", "u16"])
def test_transpose(chip: Chip, dtype: str, in_place: bool) -> None:
    src = ub(BY_NAME[dtype], 0x4000)
    op = Transpose(dst=src if in_place else ub(BY_NAME[dtype], 0x8000), src=src)
    op.check(chip, State())
    bench = Bench(chip, 4)
    if not in_place:
        check_touched(bench, op, State())
    expected = Cells(bench.memory)
    rows = [[expected.get((0x4000 + 32 * i + 2 * j) * 8, 16) for j in range(16)] for i in range(16)]
    for i in range(16):
        for j in range(16):
            expected.put((op.dst.address + 32 * j + 2 * i) * 8, 16, rows[i][j])
    op.execute(bench.core, State())
    assert bytes(expected.data) == bench.memory.tobytes()
