"""DataCopy against index loops written from its definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from movement_bench import BT, FB, GM, L1, UB, Bench, assert_touches_what_it_declares

from npusim.config.load import load_chip
from npusim.errors import OperandError
from npusim.isa.dma import DataCopy
from npusim.isa.dtype import BF16, F16, F32, S8, S16, S32, U64
from npusim.isa.operand import Operand, Pipe
from npusim.isa.state import RESET, Atomic, State

SHARED = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def rows_moved(before: np.ndarray, at: int, count: int, size: int, pitch: int) -> list[bytes]:
    """Rows of bytes by their definition."""
    return [bytes(before[at + i * pitch : at + i * pitch + size]) for i in range(count)]


@SHARED
@given(
    route=st.sampled_from([(GM, UB), (GM, L1), (UB, GM)]),
    count=st.integers(1, 5),
    length=st.integers(1, 7),
    src_gap=st.integers(0, 4),
    dst_gap=st.integers(0, 4),
    start=st.integers(0, 50),
)
def test_rows_land_where_the_definition_says(
    bench: Bench, route: tuple, count: int, length: int, src_gap: int, dst_gap: int, start: int
) -> None:
    source, target = (Operand(s, S8, 32 * start if s is not GM else start) for s in route)
    op = DataCopy(
        dst=target, src=source, block_count=count, block_len=length, src_gap=src_gap, dst_gap=dst_gap
    )
    size = 32 * length
    wanted = rows_moved(bench.memory(route[0]), source.address, count, size, size + 32 * src_gap)
    assert_touches_what_it_declares(bench, op)
    got = rows_moved(bench.memory(route[1]), target.address, count, size, size + 32 * dst_gap)
    assert got == wanted


@pytest.mark.parametrize(
    ("source", "target", "pipe"),
    [
        (GM, UB, Pipe.MTE2),
        (GM, L1, Pipe.MTE2),
        (UB, GM, Pipe.MTE3),
        (UB, L1, Pipe.MTE3),
        (L1, UB, Pipe.MTE1),
        (L1, BT, Pipe.MTE1),
        (L1, FB, Pipe.FIX),
    ],
)
def test_the_path_decides_the_pipe(source: object, target: object, pipe: Pipe) -> None:
    assert DataCopy(dst=Operand(target, F32, 0), src=Operand(source, F32, 0), block_len=1).pipe is pipe


def test_tables_are_filled_in_their_own_blocks(bench: Bench) -> None:
    bias = DataCopy(dst=Operand(BT, F32, 64), src=Operand(L1, F32, 96), block_count=2, block_len=1, dst_gap=1)
    wanted = rows_moved(bench.memory(L1), 96, 2, 64, 64)
    assert_touches_what_it_declares(bench, bias)
    assert rows_moved(bench.memory(BT), 64, 2, 64, 128) == wanted
    scales = DataCopy(
        dst=Operand(FB, U64, 128), src=Operand(L1, U64, 32), block_count=2, block_len=1, src_gap=1
    )
    wanted = rows_moved(bench.memory(L1), 32, 2, 128, 160)
    assert_touches_what_it_declares(bench, scales)
    assert rows_moved(bench.memory(FB), 128, 2, 128, 128) == wanted


def test_a_half_bias_widens(bench: Bench) -> None:
    values = np.arange(-16, 16, dtype=np.float32) / 8
    bench.poke(L1, 64, values.astype(np.float16))
    op = DataCopy(dst=Operand(BT, F32, 128), src=Operand(L1, F16, 64), block_len=2)
    bench.run(op)
    assert (bench.peek(BT, 128, np.float32, 32) == values).all()
    (read,), (written,) = op.reads(RESET), op.writes(RESET)
    assert (read.total, written.total) == (64, 128)


def test_coupled_chips_move_between_ub_and_l1(coupled: object) -> None:
    bench = Bench(coupled)
    for source, target in ((UB, L1), (L1, UB)):
        op = DataCopy(
            dst=Operand(target, F16, 32), src=Operand(source, F16, 64), block_count=3, block_len=2, src_gap=1
        )
        wanted = rows_moved(bench.memory(source), 64, 3, 64, 96)
        assert_touches_what_it_declares(bench, op)
        assert rows_moved(bench.memory(target), 32, 3, 64, 64) == wanted
        assert op.work(coupled, RESET).transfer is None


INTEGERS = {S8: np.int8, S16: np.int16, S32: np.int32}


@pytest.mark.parametrize("mode", [Atomic.ADD, Atomic.MAX, Atomic.MIN])
@pytest.mark.parametrize("dtype", [S8, S16, S32], ids=repr)
def test_atomic_stores_combine_integers(bench: Bench, mode: Atomic, dtype: object) -> None:
    bits = dtype.bits
    count = 64 * 8 // bits
    old, new = (bench.peek(s, 0, INTEGERS[dtype], count).tolist() for s in (GM, UB))
    state = State(atomic=mode, atomic_dtype=dtype)
    op = DataCopy(dst=Operand(GM, dtype, 0), src=Operand(UB, dtype, 0), block_len=2)
    assert_touches_what_it_declares(bench, op, state, probes=4 if mode is Atomic.ADD else 0)
    combine = {Atomic.MAX: max, Atomic.MIN: min}.get(mode, lambda a, b: a + b)
    wrapped = [
        (combine(a, b) + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)
        for a, b in zip(old, new, strict=True)
    ]
    assert bench.peek(GM, 0, INTEGERS[dtype], count).tolist() == wrapped


@pytest.mark.parametrize(
    ("dtype", "old", "new", "total"),
    [
        (F32, 1.0, 2.0**-24, 1.0),  # a tie goes to even
        (F32, 1.0, 3 * 2.0**-24, 1 + 2.0**-22),
        (F16, 1.0, 2.0**-11, 1.0),
        (F16, 1.0, 3 * 2.0**-11, 1 + 2.0**-9),
        (BF16, 1.0, 2.0**-8, 1.0),
        (BF16, 1.0, 3 * 2.0**-8, 1 + 2.0**-6),
    ],
)
def test_atomic_adds_of_floats_round_once_to_even(
    bench: Bench, dtype: object, old: float, new: float, total: float
) -> None:
    count = 32 // dtype.size
    bench.poke(GM, 64, np.full(count, old, np.float32).astype(dtype.np))
    bench.poke(UB, 0, np.full(count, new, np.float32).astype(dtype.np))
    state = State(atomic=Atomic.ADD, atomic_dtype=dtype)
    bench.run(DataCopy(dst=Operand(GM, dtype, 64), src=Operand(UB, dtype, 0), block_len=1), state)
    assert set(bench.peek(GM, 64, dtype.np, count).astype(np.float64)) == {total}


def test_an_atomic_maximum_prefers_a_number_to_nan(bench: Bench) -> None:
    bench.poke(GM, 0, np.array([np.nan, 1, -3, np.nan] * 2, np.float32))
    bench.poke(UB, 0, np.array([2, np.nan, -5, np.nan] * 2, np.float32))
    state = State(atomic=Atomic.MAX, atomic_dtype=F32)
    bench.run(DataCopy(dst=Operand(GM, F32, 0), src=Operand(UB, F32, 0), block_len=1), state)
    got = bench.peek(GM, 0, np.float32, 4)
    assert got[:3].tolist() == [2, 1, -3]
    assert np.isnan(got[3])


def valid(**changes: object) -> DataCopy:
    """A valid copy with some fields changed."""
    fields = {"dst": Operand(UB, F32, 0), "src": Operand(GM, F32, 0), "block_len": 1}
    return DataCopy(**{**fields, **changes})


@pytest.mark.parametrize(
    ("op", "message"),
    [
        (
            valid(block_len=0),
            "DataCopy: block_len must be 1..65535 blocks of 32 bytes, not 0; use DataCopyPad for short rows",
        ),
        (valid(block_len=65536), "DataCopy: block_len must be 1..65535 blocks of 32 bytes, not 65536"),
        (valid(block_count=4096), "DataCopy: block_count must be 1..4095, not 4096"),
        (valid(src_gap=-1), "DataCopy: src_gap must be 0..65535 blocks of 32 bytes, not -1"),
        (valid(dst_gap=65536), "DataCopy: dst_gap must be 0..65535 blocks of 32 bytes, not 65536"),
        (valid(dst=Operand(UB, F16, 0)), "DataCopy: dst and src must have one element type, not f16 and f32"),
        (valid(src=Operand(UB, F32, 64)), "DataCopy: there is no path ub -> ub"),
        (
            valid(src=Operand(L1, F32, 0), dst=Operand(BT, F32, 0), l2_bypass=True),
            "DataCopy: l2_bypass is for transfers with gm; leave it out",
        ),
        (
            valid(dst=Operand(L1, F32, 0), src=Operand(UB, F32, 0)),
            "DataCopy: ascend-910b4 has no path ub -> l1",
        ),
        (
            valid(dst=Operand(UB, F32, 8)),
            "DataCopy: dst must start at a multiple of 32 bytes in ub, not at 0x8",
        ),
        (
            valid(src=Operand(GM, F32, 2)),
            "DataCopy: src must start at a multiple of 4 bytes in gm, not at 0x2",
        ),
        (
            valid(dst=Operand(UB, F32, 196_608 - 32), block_len=2),
            "DataCopy: bytes 196,576..196,640 leave the 196,608 bytes of ub",
        ),
        (
            valid(dst=Operand(BT, F32, 0), src=Operand(L1, F32, 0), block_len=0),
            "DataCopy: block_len must be 1..65535 blocks of 64 bytes, not 0",
        ),
    ],
)
def test_errors(chip: object, op: DataCopy, message: str) -> None:
    with pytest.raises(OperandError) as caught:
        op.check(chip, RESET)
    assert str(caught.value) == message


def test_an_atomic_store_of_another_type_is_an_error(chip: object) -> None:
    op = valid(dst=Operand(GM, F16, 0), src=Operand(UB, F16, 0))
    state = State(atomic=Atomic.ADD, atomic_dtype=F32)
    with pytest.raises(OperandError) as caught:
        op.check(chip, state)
    assert (
        str(caught.value) == "DataCopy: the atomic add is set for f32, but dst is f16; set it with SetAtomic"
    )
    valid(dst=Operand(UB, F16, 0), src=Operand(GM, F16, 0)).check(chip, state)


def test_split_chips_keep_ub_and_l1_apart() -> None:
    op = valid(dst=Operand(L1, F32, 0), src=Operand(UB, F32, 0))
    with pytest.raises(OperandError) as caught:
        op.check(load_chip("ascend-950pr"), RESET)
    assert str(caught.value) == "DataCopy: ub and l1 are in different cores of ascend-950pr; go through gm"


def test_cost_is_the_issue_and_the_port(chip: object) -> None:
    port = chip.ports.gm_to_ub
    work = valid(block_count=4, block_len=10).work(chip, RESET)
    assert work.cycles == port.issue_cycles
    assert work.transfer.port == "gm_to_ub"
    assert work.transfer.write is False
    assert work.transfer.access.space is GM
    assert work.transfer.port_cycles == -(-3 * 512 // port.bytes_per_cycle)  # 1,280 bytes
    store = valid(dst=Operand(GM, F32, 0), src=Operand(UB, F32, 0), dst_gap=1, block_count=2).work(
        chip, RESET
    )
    assert store.transfer.write is True
    assert store.transfer.access.runs() == [(0, 32), (64, 96)]
    bias = valid(dst=Operand(BT, F32, 0), src=Operand(L1, F32, 0), block_len=3).work(chip, RESET)
    path = chip.paths.l1_to_bt
    assert (bias.cycles, bias.latency) == (path.issue_cycles + 192 // 32, path.latency_cycles)
    lengths = [valid(block_len=n).work(chip, RESET).transfer.port_cycles for n in range(1, 40)]
    assert lengths == sorted(lengths)


def test_encoding_round_trip() -> None:
    op = valid(block_count=3, src_gap=2, dst_gap=5, src=Operand(GM, F32, 256, 3))
    assert DataCopy.decode(op.encode()) == op
