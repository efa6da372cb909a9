"""DataCopyPad against byte loops written from its definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from movement_bench import GM, L1, UB, Bench, assert_touches_what_it_declares

from npusim.errors import OperandError
from npusim.isa.dma import DataCopyPad
from npusim.isa.dtype import F16, F32, S4, S8, S32, DType
from npusim.isa.operand import Operand, Pipe
from npusim.isa.state import RESET, Atomic, State

SHARED = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@SHARED
@given(
    dtype=st.sampled_from([S8, F16, F32]),
    count=st.integers(1, 4),
    elements=st.integers(1, 70),
    src_gap=st.integers(0, 9),
    dst_gap=st.integers(0, 3),
    pads=st.tuples(st.integers(0, 8), st.integers(0, 8)),
    pad_bits=st.integers(0, 2**32 - 1),
)
def test_a_load_pads_rows_and_fills_their_last_block(
    bench: Bench,
    dtype: DType,
    count: int,
    elements: int,
    src_gap: int,
    dst_gap: int,
    pads: tuple[int, int],
    pad_bits: int,
) -> None:
    size, length = dtype.size, elements * dtype.size
    op = DataCopyPad(
        dst=Operand(UB, dtype, 64),
        src=Operand(GM, dtype, 8),
        block_count=count,
        block_len=length,
        src_gap=src_gap * size,
        dst_gap=dst_gap,
        left_pad=pads[0],
        right_pad=pads[1],
    )
    memory = bench.memory(GM).copy()
    pad = pad_bits.to_bytes(4, "little")[:size]
    address, wanted = 64, []
    for i in range(count):
        start = 8 + i * (length + src_gap * size)
        row = pad * pads[0] + bytes(memory[start : start + length]) + pad * pads[1]
        row += bytes(memory[start : start + size]) * (-len(row) % 32 // size)
        wanted.append((address, row))
        address += len(row) + 32 * dst_gap
    state = State(pad_bits=pad_bits)
    assert_touches_what_it_declares(bench, op, state)
    for address, row in wanted:
        assert bytes(bench.memory(UB)[address : address + len(row)]) == row


@SHARED
@given(
    count=st.integers(1, 4),
    length=st.integers(1, 100),
    src_gap=st.integers(0, 3),
    dst_gap=st.integers(0, 9),
    start=st.integers(0, 40),
)
def test_a_store_writes_exactly_the_bytes(
    bench: Bench, count: int, length: int, src_gap: int, dst_gap: int, start: int
) -> None:
    op = DataCopyPad(
        dst=Operand(GM, S8, start),
        src=Operand(UB, S8, 32),
        block_count=count,
        block_len=length,
        src_gap=src_gap,
        dst_gap=dst_gap,
    )
    assert op.pipe is Pipe.MTE3
    whole = -(-length // 32) * 32
    memory = bench.memory(UB).copy()
    assert_touches_what_it_declares(bench, op)
    for i in range(count):
        source, target = 32 + i * (whole + 32 * src_gap), start + i * (length + dst_gap)
        got = bytes(bench.memory(GM)[target : target + length])
        assert got == bytes(memory[source : source + length])


def test_an_atomic_store_adds(bench: Bench) -> None:
    old, new = (bench.peek(s, 0, np.int32, 5).astype(np.int64) for s in (GM, UB))
    op = DataCopyPad(dst=Operand(GM, S32, 0), src=Operand(UB, S32, 0), block_len=20)
    assert_touches_what_it_declares(bench, op, State(atomic=Atomic.ADD, atomic_dtype=S32))
    assert (bench.peek(GM, 0, np.int32, 5) == (old + new + 2**31) % 2**32 - 2**31).all()


def valid(**changes: object) -> DataCopyPad:
    """A valid load with some fields changed."""
    fields = {"dst": Operand(UB, F32, 0), "src": Operand(GM, F32, 0), "block_len": 12}
    return DataCopyPad(**{**fields, **changes})


@pytest.mark.parametrize(
    ("op", "message"),
    [
        (valid(block_len=0), "block_len must be 1..2097151 bytes, not 0"),
        (valid(block_len=2_097_152), "block_len must be 1..2097151 bytes, not 2097152"),
        (valid(block_len=10), "block_len must be a multiple of the 4 bytes of an element, not 10"),
        (valid(block_count=0), "block_count must be 1..4095, not 0"),
        (valid(src_gap=2**32), "src_gap must be 0..4294967295 bytes, not 4294967296"),
        (valid(dst_gap=65536), "dst_gap must be 0..65535 blocks of 32 bytes, not 65536"),
        (valid(left_pad=9), "left_pad must be 0..8 elements, not 9"),
        (valid(right_pad=-1), "right_pad must be 0..8 elements, not -1"),
        (
            valid(dst=Operand(GM, F32, 0), src=Operand(UB, F32, 0), right_pad=1),
            "right_pad must be 0..0 elements, not 1",
        ),
        (valid(src=Operand(UB, F32, 0)), "there is no path ub -> ub"),
        (valid(dst=Operand(L1, F32, 0)), "dst must be in ub or gm, not l1"),
        (valid(dst=Operand(UB, F16, 0)), "dst and src must have one element type, not f16 and f32"),
        (
            valid(dst=Operand(UB, S4, 0), src=Operand(GM, S4, 0)),
            "elements must have whole bytes, not s4; use u8 for pairs of s4",
        ),
        (valid(dst=Operand(UB, F32, 196_608)), "bytes 196,608..196,640 leave the 196,608 bytes of ub"),
    ],
)
def test_errors(chip: object, op: DataCopyPad, message: str) -> None:
    with pytest.raises(OperandError) as caught:
        op.check(chip, RESET)
    assert str(caught.value) == f"DataCopyPad: {message}"


def test_cost_counts_the_requests_to_global_memory(chip: object) -> None:
    work = valid(block_count=10, right_pad=5).work(chip, RESET)
    assert work.transfer.port_cycles == -(-512 // chip.ports.gm_to_ub.bytes_per_cycle)  # one request
    assert work.transfer.access.total == 120
    assert (work.transfer.port, work.transfer.write) == ("gm_to_ub", False)
    store = valid(dst=Operand(GM, F32, 0), src=Operand(UB, F32, 0)).work(chip, RESET)
    assert (store.transfer.port, store.transfer.write, store.transfer.access.total) == ("ub_to_gm", True, 12)
    costs = [valid(block_len=4 * n).work(chip, RESET).transfer.port_cycles for n in range(1, 99)]
    assert costs == sorted(costs)


def test_encoding_round_trip() -> None:
    op = valid(block_count=3, src_gap=2, left_pad=1, right_pad=2)
    assert DataCopyPad.decode(op.encode()) == op
