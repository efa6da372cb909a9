"""The way out of the cube on coupled chips, against element loops."""

from __future__ import annotations

import numpy as np
import pytest
from fractals import l0c_offset
from movement_bench import GM, L0C, UB, Bench, assert_touches_what_it_declares

from npusim.config.load import load_chip
from npusim.errors import OperandError
from npusim.isa.cube import DataCopyEnhanced, DataCopyNz2Nd
from npusim.isa.dtype import F16, F32, S8, S32, DType
from npusim.isa.operand import Operand, Pipe
from npusim.isa.state import RESET, Atomic, State


@pytest.fixture
def bench(coupled: object) -> Bench:
    """A coupled core full of random bytes."""
    return Bench(coupled, profile="ascend-a1")


@pytest.mark.parametrize(("src", "dst"), [(F32, F32), (S32, S32), (F32, F16)], ids=repr)
def test_fractals_move_from_l0c_to_ub(bench: Bench, src: DType, dst: DType) -> None:
    op = DataCopyEnhanced(
        dst=Operand(UB, dst, 64),
        src=Operand(L0C, src, 1024),
        block_count=3,
        block_len=2,
        src_gap=1,
        dst_gap=2,
    )
    values = (
        (np.arange(4096) - 2000).astype(np.float32) / 8 if src is F32 else np.arange(4096, dtype=np.int32)
    )
    bench.poke(L0C, 1024, values)
    before = bench.copy()
    assert_touches_what_it_declares(bench, op, probes=0 if dst is F16 else 4)
    bench.restore(before)
    bench.run(op)
    for block in range(3):
        for i in range(512):
            at = 64 + ((block * 4 * 256) + i) * dst.size
            assert bench.peek(UB, at, dst.np, 1)[0] == values[block * 3 * 256 + i].astype(dst.np)


def test_halves_saturate_on_the_way(bench: Bench) -> None:
    bench.poke(L0C, 0, np.full(256, 1e6, np.float32))
    op = DataCopyEnhanced(dst=Operand(UB, F16, 0), src=Operand(L0C, F32, 0), block_len=1)
    bench.run(op)
    assert set(bench.peek(UB, 0, np.float16, 256).tolist()) == {65504.0}
    bench.run(op, State(saturate=False))
    assert set(bench.peek(UB, 0, np.float16, 256).tolist()) == {np.inf}


@pytest.mark.parametrize("dtype", [F16, F32, S32], ids=repr)
def test_rows_are_put_together_on_the_way_to_memory(bench: Bench, dtype: DType) -> None:
    rows, columns, height, pitch = 21, 48, 32, 60
    op = DataCopyNz2Nd(
        dst=Operand(GM, dtype, 8),
        src=Operand(UB, dtype, 96),
        n_value=rows,
        d_value=columns,
        src_rows=height,
        dst_d_value=pitch,
    )
    word = np.dtype(f"u{dtype.size}")
    source = bench.peek(UB, 96, word, height * columns)
    assert_touches_what_it_declares(bench, op)
    got = bench.peek(GM, 8, word, rows * pitch)
    for i in range(rows):
        for j in range(columns):
            assert got[i * pitch + j] == source[l0c_offset(i, j, height)]


def test_an_atomic_store_adds(bench: Bench) -> None:
    bench.poke(GM, 0, np.full(256, 5, np.float32))
    bench.poke(UB, 0, np.arange(256, dtype=np.float32))
    op = DataCopyNz2Nd(
        dst=Operand(GM, F32, 0), src=Operand(UB, F32, 0), n_value=16, d_value=16, src_rows=16, dst_d_value=16
    )
    state = State(atomic=Atomic.ADD, atomic_dtype=F32)
    bench.run(op, state)
    assert bench.peek(GM, 0, np.float32, 256).tolist() == [5.0 + i for i in range(256)]
    assert op.reads(state)[1:] == op.writes(state)


def drain(**changes: object) -> DataCopyEnhanced:
    """A valid copy with some fields changed."""
    fields = {"dst": Operand(UB, F16, 0), "src": Operand(L0C, F32, 0), "block_len": 1}
    return DataCopyEnhanced(**{**fields, **changes})


def store(**changes: object) -> DataCopyNz2Nd:
    """A valid store with some fields changed."""
    fields = {"n_value": 16, "d_value": 32, "src_rows": 16, "dst_d_value": 32}
    return DataCopyNz2Nd(**{"dst": Operand(GM, F16, 0), "src": Operand(UB, F16, 0), **fields, **changes})


@pytest.mark.parametrize(
    ("op", "message"),
    [
        (
            drain(dst=Operand(UB, S8, 0)),
            "DataCopyEnhanced: no conversion f32 -> s8; there are f32 -> f32, f32 -> f16, s32 -> s32",
        ),
        (drain(block_count=0), "DataCopyEnhanced: block_count must be 1..4095, not 0"),
        (drain(block_len=0), "DataCopyEnhanced: block_len must be 1..65535 fractals, not 0"),
        (drain(src_gap=-1), "DataCopyEnhanced: src_gap must be 0..65535 fractals, not -1"),
        (drain(dst_gap=65536), "DataCopyEnhanced: dst_gap must be 0..65535 fractals, not 65536"),
        (drain(block_len=257), "DataCopyEnhanced: bytes 0..263,168 leave the 262,144 bytes of l0c"),
        (
            store(src=Operand(UB, F32, 0)),
            "DataCopyNz2Nd: dst and src must have one element type, not f16 and f32",
        ),
        (
            store(dst=Operand(GM, S8, 0), src=Operand(UB, S8, 0)),
            "DataCopyNz2Nd: elements must have 16 or 32 bits, not s8",
        ),
        (store(n_value=8193), "DataCopyNz2Nd: n_value must be 1..8192 rows, not 8193"),
        (store(d_value=0), "DataCopyNz2Nd: d_value must be 1..8192 columns, not 0"),
        (store(d_value=24), "DataCopyNz2Nd: d_value must be a multiple of 16, not 24"),
        (store(src_rows=0), "DataCopyNz2Nd: src_rows must be 1..65535, not 0"),
        (store(dst_d_value=31), "DataCopyNz2Nd: dst_d_value must be 32..65535 elements, not 31"),
    ],
)
def test_errors(coupled: object, op: object, message: str) -> None:
    with pytest.raises(OperandError) as caught:
        op.check(coupled, RESET)
    assert str(caught.value) == message


def test_split_chips_use_the_fixpipe(chip: object, newer: object) -> None:
    for on, op, message in (
        (chip, drain(), "DataCopyEnhanced: ascend-910b4 has no path l0c -> ub"),
        (
            newer,
            drain(),
            "DataCopyEnhanced: l0c and ub are in different cores of ascend-950pr; use Fixpipe and gm",
        ),
        (chip, store(), "DataCopyNz2Nd: ascend-910b4 does not reorder on the way from ub to gm; use Fixpipe"),
    ):
        with pytest.raises(OperandError) as caught:
            op.check(on, RESET)
        assert str(caught.value) == message


def test_cost(coupled: object) -> None:
    path = coupled.paths.l0c_to_ub
    work = drain(block_count=2, block_len=5).work(coupled, RESET)
    assert work.cycles == path.issue_cycles + -(-10 * 1024 // path.bytes_per_cycle)
    assert work.latency == path.latency_cycles
    assert (drain().pipe, store().pipe) == (Pipe.V, Pipe.MTE3)
    out = store().work(coupled, RESET)
    assert out.transfer.port == "ub_to_gm"
    assert out.transfer.access.total == 1024
    lengths = [drain(block_len=n).work(coupled, RESET).cycles for n in range(1, 99)]
    assert lengths == sorted(lengths)


def test_examples_are_valid_where_they_say_and_round_trip() -> None:
    for cls in (DataCopyEnhanced, DataCopyNz2Nd):
        op = cls.example()
        op.check(load_chip(cls.example_chip), RESET)
        assert cls.decode(op.encode()) == op
