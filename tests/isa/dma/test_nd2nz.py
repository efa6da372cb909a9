"""DataCopyNd2Nz and Fill against element loops written from their definitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from movement_bench import GM, L0A, L0B, L1, UB, Bench, assert_touches_what_it_declares

from npusim.errors import OperandError
from npusim.isa.dma import DataCopyNd2Nz, Fill
from npusim.isa.dtype import BF16, F16, F32, S4, S8, U16, DType
from npusim.isa.operand import Imm, Operand, Pipe, Reg
from npusim.isa.state import RESET

SHARED = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@SHARED
@given(
    dtype=st.sampled_from([S8, F16, BF16, F32]),
    matrices=st.integers(1, 3),
    rows=st.integers(1, 35),
    columns=st.integers(1, 70),
    slack=st.tuples(st.integers(0, 5), st.integers(0, 5)),
    row_step=st.integers(1, 2),
    start=st.integers(0, 7),
)
def test_elements_land_where_nz_puts_them(
    bench: Bench,
    dtype: DType,
    matrices: int,
    rows: int,
    columns: int,
    slack: tuple[int, int],
    row_step: int,
    start: int,
) -> None:
    size, c0 = dtype.size, 32 // dtype.size
    height = rows * row_step + slack[0]
    pieces = -(-columns // c0)
    matrix = height * pieces * c0
    op = DataCopyNd2Nz(
        dst=Operand(L1, dtype, 96),
        src=Operand(GM, dtype, start * size),
        nd_num=matrices,
        n_value=rows,
        d_value=columns,
        src_d_value=columns + slack[1],
        src_matrix_stride=rows * (columns + slack[1]) + 3,
        dst_c0_stride=height,
        dst_n_stride=row_step,
        dst_matrix_stride=matrix,
    )
    memory = bench.memory(GM).copy()
    assert_touches_what_it_declares(bench, op, probes=2)
    placed = bench.memory(L1)
    for x in range(matrices):
        for i in range(rows):
            for j in range(columns):
                source = (start + x * op.src_matrix_stride + i * op.src_d_value + j) * size
                target = 96 + x * matrix * size + (j // c0 * height + i * row_step) * 32 + j % c0 * size
                assert (placed[target : target + size] == memory[source : source + size]).all()


def test_a_batch_may_share_columns_of_fractals(bench: Bench) -> None:
    """Two 16-row matrices one above the other in one NZ tile of 32 rows."""
    values = np.arange(2 * 16 * 32, dtype=np.float16).reshape(2, 16, 32)
    bench.poke(GM, 0, values)
    op = DataCopyNd2Nz(
        dst=Operand(L1, F16, 0),
        src=Operand(GM, F16, 0),
        nd_num=2,
        n_value=16,
        d_value=32,
        src_d_value=32,
        src_matrix_stride=512,
        dst_c0_stride=32,
        dst_matrix_stride=256,
    )
    bench.run(op)
    tile = bench.peek(L1, 0, np.float16, 1024).reshape(2, 32, 16)
    assert (np.concatenate([tile[0], tile[1]], axis=1) == values.reshape(32, 32)).all()


def valid(**changes: object) -> DataCopyNd2Nz:
    """A valid copy with some fields changed."""
    fields = {
        "dst": Operand(L1, F16, 0),
        "src": Operand(GM, F16, 0),
        "n_value": 16,
        "d_value": 32,
        "src_d_value": 32,
        "dst_c0_stride": 16,
    }
    return DataCopyNd2Nz(**{**fields, **changes})


OVERLAP = "leave no room for {} rows; align the rows to 16 for dst_c0_stride"


@pytest.mark.parametrize(
    ("op", "message"),
    [
        (valid(nd_num=0), "nd_num must be 1..4095, not 0"),
        (valid(n_value=16385), "n_value must be 1..16384 rows, not 16385"),
        (valid(d_value=65536), "d_value must be 1..65535 elements, not 65536"),
        (valid(src_d_value=0), "src_d_value must be 1..65535 elements, not 0"),
        (valid(dst_c0_stride=16385), "dst_c0_stride must be 1..16384 blocks of 32 bytes, not 16385"),
        (valid(dst_n_stride=0), "dst_n_stride must be 1..16384 blocks of 32 bytes, not 0"),
        (valid(src_matrix_stride=65536), "src_matrix_stride must be 0..65535 elements, not 65536"),
        (valid(dst_matrix_stride=0), "dst_matrix_stride must be 1..65535 elements, not 0"),
        (
            valid(nd_num=2, dst_matrix_stride=8),
            "dst_matrix_stride must be a multiple of 32 bytes, not 8 elements",
        ),
        (valid(dst=Operand(L1, BF16, 0)), "dst and src must have one element type, not bf16 and f16"),
        (
            valid(dst=Operand(L1, S4, 0), src=Operand(GM, S4, 0)),
            "elements must have 8, 16 or 32 bits, not 4; use u8 for pairs of s4",
        ),
        (valid(dst=Operand(UB, F16, 0)), "dst must be in l1, not ub"),
        (
            valid(n_value=17),
            f"pieces overlap in l1: dst_c0_stride 16 and dst_n_stride 1 {OVERLAP.format(17)}",
        ),
        (
            valid(dst_n_stride=2),
            f"pieces overlap in l1: dst_c0_stride 16 and dst_n_stride 2 {OVERLAP.format(16)}",
        ),
        (
            valid(nd_num=2, dst_matrix_stride=128),
            f"pieces overlap in l1: dst_c0_stride 16 and dst_n_stride 1 {OVERLAP.format(16)}",
        ),
        (valid(dst=Operand(L1, F16, 524_288 - 512)), "bytes 523,776..524,800 leave the 524,288 bytes of l1"),
    ],
)
def test_errors(chip: object, op: DataCopyNd2Nz, message: str) -> None:
    with pytest.raises(OperandError) as caught:
        op.check(chip, RESET)
    assert str(caught.value) == f"DataCopyNd2Nz: {message}"


def test_pieces_may_interleave(bench: Bench) -> None:
    """Row 0 of the second piece lands between rows 8 and 9 of the first: odd and even blocks, none twice."""
    assert_touches_what_it_declares(bench, valid(dst_n_stride=2, dst_c0_stride=17))


def test_cost_is_the_port(chip: object) -> None:
    work = valid(n_value=16, d_value=20).work(chip, RESET)
    assert work.transfer.access.total == 16 * 40
    assert work.transfer.port == "gm_to_l1"
    assert work.transfer.port_cycles == -(-16 * 512 // chip.ports.gm_to_l1.bytes_per_cycle)  # 16 requests
    assert work.cycles == chip.ports.gm_to_l1.issue_cycles
    assert valid().pipe is Pipe.MTE2
    rows = [valid(n_value=n).work(chip, RESET).transfer.port_cycles for n in range(1, 17)]
    assert rows == sorted(rows)


@SHARED
@given(
    space=st.sampled_from([L1, L0A, L0B]),
    dtype=st.sampled_from([F16, BF16, F32, U16]),
    repeat=st.integers(1, 4),
    blocks=st.integers(1, 5),
    gap=st.integers(0, 3),
    bits=st.integers(0, 2**32 - 1),
)
def test_fill_writes_runs_of_one_value(
    bench: Bench, space: object, dtype: DType, repeat: int, blocks: int, gap: int, bits: int
) -> None:
    unit = 32 if space is L1 else 512
    pattern = (bits % 2**dtype.bits).to_bytes(dtype.size, "little")
    op = Fill(dst=Operand(space, dtype, 512), value=Imm(bits), repeat=repeat, block_num=blocks, dst_gap=gap)
    assert_touches_what_it_declares(bench, op)
    for i in range(repeat):
        start = 512 + i * (blocks + gap) * unit
        got = bytes(bench.memory(space)[start : start + blocks * unit])
        assert got == pattern * (blocks * unit // dtype.size)


def test_fill_takes_a_register(bench: Bench) -> None:
    bench.core.set_register(3, 0x3C00)
    op = Fill(dst=Operand(L1, F16, 0), value=Reg(3), block_num=2)
    assert op.registers_read() == (3,)
    bench.run(op)
    assert bench.peek(L1, 0, np.float16, 32).tolist() == [1.0] * 32


def test_fill_errors_and_cost(chip: object) -> None:
    def fill(**changes: object) -> Fill:
        return Fill(**{"dst": Operand(L1, F16, 0), "value": 0, "block_num": 1, **changes})

    for op, message in (
        (fill(block_num=0), "block_num must be 1..32767 blocks of 32 bytes, not 0"),
        (fill(dst=Operand(L0A, F16, 0), dst_gap=-1), "dst_gap must be 0..32767 blocks of 512 bytes, not -1"),
        (fill(repeat=32768), "repeat must be 1..32767, not 32768"),
        (
            fill(dst=Operand(L1, S8, 0)),
            "elements must have 16 or 32 bits, not s8; fill pairs of bytes as u16",
        ),
        (fill(dst=Operand(L0B, F16, 32)), "dst must start at a multiple of 512 bytes in l0b, not at 0x20"),
    ):
        with pytest.raises(OperandError) as caught:
            op.check(chip, RESET)
        assert str(caught.value) == f"Fill: {message}"
    path = chip.paths.fill_l1
    work = fill(block_num=9).work(chip, RESET)
    assert (work.cycles, work.latency) == (
        path.issue_cycles + -(-288 // path.bytes_per_cycle),
        path.latency_cycles,
    )
    assert (fill().pipe, fill(dst=Operand(L0A, F16, 0)).pipe) == (Pipe.MTE2, Pipe.MTE1)
    path = chip.paths.l1_to_l0b
    work = fill(dst=Operand(L0B, F16, 0), block_num=3).work(chip, RESET)
    assert work.cycles == path.issue_cycles + -(-1536 // path.bytes_per_cycle)
    assert Fill.decode(fill(dst_gap=4).encode()) == fill(dst_gap=4)
