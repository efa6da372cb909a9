"""LoadData against element loops written from the layout definitions."""

from __future__ import annotations

import numpy as np
import pytest
from fractals import l0a_offset, l0b_offset, l1_offset, whole
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from movement_bench import L0A, L0B, L1, Bench, assert_touches_what_it_declares

from npusim.errors import OperandError
from npusim.isa.cube import LoadData2D, LoadData3D, LoadDataWithTranspose
from npusim.isa.cube.forms import load_a, load_b
from npusim.isa.dma.movement import touched
from npusim.isa.dtype import BF16, F16, F32, S4, S8, DType
from npusim.isa.operand import Operand, Pipe
from npusim.isa.state import RESET

SHARED = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
WORD = {8: np.uint8, 16: np.uint16, 32: np.uint32}


@SHARED
@given(
    space=st.sampled_from([L0A, L0B]),
    dtype=st.sampled_from([F16, BF16, S8, F32]),
    start=st.integers(0, 5),
    repeat=st.integers(1, 6),
    stride=st.integers(0, 4),
    gap=st.integers(0, 3),
    transpose=st.booleans(),
)
def test_2d_moves_fractals(
    bench: Bench, space: object, dtype: DType, start: int, repeat: int, stride: int, gap: int, transpose: bool
) -> None:
    transpose = transpose and dtype.bits == 16
    op = LoadData2D(
        dst=Operand(space, dtype, 1024),
        src=Operand(L1, dtype, 96),
        start=start,
        repeat=repeat,
        src_stride=stride,
        dst_gap=gap,
        transpose=transpose,
    )
    memory = bench.memory(L1).copy()
    assert_touches_what_it_declares(bench, op)
    word = WORD[dtype.bits]
    for x in range(repeat):
        source = 96 + (start + x * stride) * 512
        fractal = memory[source : source + 512].view(word).reshape(16, -1)
        got = bench.peek(space, 1024 + x * (1 + gap) * 512, word, fractal.size).reshape(16, -1)
        for i in range(16):
            for j in range(fractal.shape[1]):
                assert got[i, j] == (fractal[j, i] if transpose else fractal[i, j])


def offset_at_destination(op: LoadData3D, r: int, c: int, c0: int, order: str) -> int:
    """Where element (r, c) of the part belongs, in elements, by what the part is as an operand."""
    if op.dst.space is L0A:
        i, j, m, k = (c, r, op.k, op.m) if op.transpose else (r, c, op.m, op.k)
        return l0a_offset(i, j, m, k, c0, order)
    i, j, n = (r, c, op.k) if op.transpose else (c, r, op.m)
    return l0b_offset(i, j, n, c0)


@SHARED
@given(
    space=st.sampled_from([L0A, L0B]),
    order=st.sampled_from(["ZZ", "NZ"]),
    dtype=st.sampled_from([F16, BF16, S8, F32]),
    m=st.integers(1, 50),
    k=st.integers(1, 70),
    above=st.integers(0, 33),
    below=st.integers(0, 20),
    before=st.integers(0, 2),
    transpose=st.booleans(),
)
def test_3d_lays_out_an_operand(
    bench: Bench,
    chip: object,
    newer: object,
    space: object,
    order: str,
    dtype: DType,
    m: int,
    k: int,
    above: int,
    below: int,
    before: int,
    transpose: bool,
) -> None:
    transpose = transpose and dtype.bits == 16
    bench.chip = bench.core.chip = newer if order == "NZ" else chip
    c0, rows = 32 // dtype.size, m + above + below
    op = LoadData3D(
        dst=Operand(space, dtype, 512),
        src=Operand(L1, dtype, 64),
        m=m,
        k=k,
        rows=rows,
        m_start=above,
        k_start=before * c0,
        transpose=transpose,
    )
    word, size = WORD[dtype.bits], dtype.size
    memory = bench.memory(L1).copy()
    assert_touches_what_it_declares(bench, op, probes=3)
    got = bench.memory(space)[512:].view(word)
    source = memory[64 : 64 + (memory.size - 64) // size * size].view(word)
    written = whole(m, 16) * whole(k, c0)
    wanted = np.zeros(written, word)  # lanes beyond the extents are zero
    for r in range(m):
        for c in range(k):
            wanted[offset_at_destination(op, r, c, c0, order)] = source[
                l1_offset(above + r, before * c0 + c, rows, c0)
            ]
    assert (got[:written] == wanted).all()
    assert op.writes(RESET) == (touched(op.dst, 0, written * size),)


def test_3d_moves_pairs_of_4_bit_elements(bench: Bench) -> None:
    op = LoadData3D(dst=Operand(L0A, S4, 0), src=Operand(L1, S4, 0), m=20, k=70, rows=32)
    memory = bench.memory(L1).copy()
    assert_touches_what_it_declares(bench, op)
    for r in range(20):
        for c in range(35):  # bytes
            assert bench.memory(L0A)[l0a_offset(r, c, 20, 35, 32)] == memory[l1_offset(r, c, 32, 32)]


@SHARED
@given(
    space=st.sampled_from([L0A, L0B]),
    dtype=st.sampled_from([S8, F16, F32]),
    start=st.integers(0, 2),
    repeat=st.integers(1, 4),
    stride=st.integers(0, 3),
    gaps=st.sampled_from([(1, 0), (2, 1), (0, 4), (3, 0)]),
)
def test_squares_are_transposed(
    bench: Bench, space: object, dtype: DType, start: int, repeat: int, stride: int, gaps: tuple[int, int]
) -> None:
    op = LoadDataWithTranspose(
        dst=Operand(space, dtype, 512),
        src=Operand(L1, dtype, 32),
        start=start,
        repeat=repeat,
        src_stride=stride,
        dst_gap=gaps[0],
        dst_frac_gap=gaps[1],
    )
    word, c0 = WORD[dtype.bits], 32 // dtype.size
    side = max(16, c0)
    square = side * side * dtype.size
    memory = bench.memory(L1).copy()
    assert_touches_what_it_declares(bench, op, probes=3)
    for x in range(repeat):
        source = memory[32 + (start + x * stride) * square :][:square].view(word)
        for i in range(side):
            for j in range(side):
                # fractals of one square: stacked if narrower than long, side by side if too narrow to stack
                fractal, inner = divmod(i * c0 + j, 16 * c0) if c0 >= 16 else (j // c0, i * c0 + j % c0)
                element = source[fractal * 16 * c0 + inner]
                into, inner = divmod(j * c0 + i, 16 * c0) if c0 >= 16 else (i // c0, j * c0 + i % c0)
                address = 512 + (x * (1 + gaps[0]) + into * (1 + gaps[1])) * 512
                assert bench.peek(space, address + inner * dtype.size, word, 1)[0] == element


def test_bytes_become_a_right_operand(bench: Bench) -> None:
    """A (k, n) matrix of bytes in NZ: 32 x 32 squares down a column of fractals become ZN fractals."""
    k, n = 64, 32
    values = np.arange(k * n).reshape(k, n).astype(np.int8)
    flat = np.zeros(k * n, np.int8)
    for i in range(k):
        for j in range(n):
            flat[l1_offset(i, j, k, 32)] = values[i, j]
    bench.poke(L1, 0, flat)
    bench.run(LoadDataWithTranspose(dst=Operand(L0B, S8, 0), src=Operand(L1, S8, 0), repeat=2, dst_gap=1))
    got = bench.peek(L0B, 0, np.int8, k * n)
    assert all(got[l0b_offset(i, j, n, 32)] == values[i, j] for i in range(k) for j in range(n))


def test_extracts_of_a_larger_tile(bench: Bench) -> None:
    """Diagonal fractals land on the diagonal fractals of L0A, others stay."""
    n = 64
    values = np.arange(n * n, dtype=np.uint16).reshape(n, n)
    flat = np.zeros(n * n, np.uint16)
    for i in range(n):
        for j in range(n):
            flat[l1_offset(i, j, n, 16)] = values[i, j]
    bench.poke(L1, 0, flat)
    bench.poke(L0A, 0, np.zeros(n * n, np.uint16))
    bench.run(
        LoadData2D(dst=Operand(L0A, F16, 0), src=Operand(L1, F16, 0), repeat=4, src_stride=5, dst_gap=4)
    )
    got = bench.peek(L0A, 0, np.uint16, n * n)
    for i in range(n):
        for j in range(n):
            assert got[l0a_offset(i, j, n, n, 16)] == (values[i, j] if i // 16 == j // 16 else 0)


@pytest.mark.parametrize(("m", "k", "n"), [(16, 16, 16), (20, 40, 50), (1, 7, 33)])
def test_forms_name_operands(bench: Bench, m: int, k: int, n: int) -> None:
    """Whatever way L1 holds the operands, L0A holds A in ZZ and L0B holds B in ZN."""
    a = np.arange(m * k, dtype=np.uint16).reshape(m, k)
    b = 5000 + np.arange(k * n, dtype=np.uint16).reshape(k, n)
    for turned in (False, True):
        for name, matrix in (("a", a), ("b", b)):
            stored = matrix.T if turned else matrix
            height = whole(stored.shape[0], 16)
            flat = np.zeros(height * whole(stored.shape[1], 16), np.uint16)
            for i in range(stored.shape[0]):
                for j in range(stored.shape[1]):
                    flat[l1_offset(i, j, height, 16)] = stored[i, j]
            bench.poke(L1, 0, flat)
            source = Operand(L1, F16, 0)
            if name == "a":
                bench.run(load_a(Operand(L0A, F16, 0), source, m, k, transpose=turned))
                got = bench.peek(L0A, 0, np.uint16, 8192)
                assert all(got[l0a_offset(i, j, m, k, 16)] == a[i, j] for i in range(m) for j in range(k))
            else:
                bench.run(load_b(Operand(L0B, F16, 0), source, k, n, transpose=not turned))
                got = bench.peek(L0B, 0, np.uint16, 8192)
                assert all(got[l0b_offset(i, j, n, 16)] == b[i, j] for i in range(k) for j in range(n))


def load2d(**changes: object) -> LoadData2D:
    """A valid load of one fractal with some fields changed."""
    return LoadData2D(**{"dst": Operand(L0A, F16, 0), "src": Operand(L1, F16, 0), "repeat": 1, **changes})


def load3d(**changes: object) -> LoadData3D:
    """A valid load of a 32 x 32 operand with some fields changed."""
    fields = {"dst": Operand(L0A, F16, 0), "src": Operand(L1, F16, 0), "m": 32, "k": 32, "rows": 32}
    return LoadData3D(**{**fields, **changes})


def squares(**changes: object) -> LoadDataWithTranspose:
    """A valid load of one square with some fields changed."""
    fields = {"dst": Operand(L0B, S8, 0), "src": Operand(L1, S8, 0), "repeat": 1}
    return LoadDataWithTranspose(**{**fields, **changes})


@pytest.mark.parametrize(
    ("op", "message"),
    [
        (
            load2d(repeat=0),
            "LoadData2D: repeat must be 1..255 fractals, not 0; use LoadData3D for a whole matrix",
        ),
        (load2d(start=65536), "LoadData2D: start must be 0..65535 fractals, not 65536"),
        (load2d(src_stride=-1), "LoadData2D: src_stride must be 0..65535 fractals, not -1"),
        (load2d(dst_gap=65536), "LoadData2D: dst_gap must be 0..65535 fractals, not 65536"),
        (
            load2d(src=Operand(L1, F32, 0)),
            "LoadData2D: dst and src must have one element type, not f16 and f32",
        ),
        (
            load2d(dst=Operand(L0A, S8, 0), src=Operand(L1, S8, 0), transpose=True),
            "LoadData2D: only 16-bit elements are transposed, not s8; use LoadDataWithTranspose",
        ),
        (
            load2d(dst=Operand(L0A, F16, 256)),
            "LoadData2D: dst must start at a multiple of 512 bytes in l0a, not at 0x100",
        ),
        (
            load2d(src=Operand(L1, F16, 16)),
            "LoadData2D: src must start at a multiple of 32 bytes in l1, not at 0x10",
        ),
        (load2d(repeat=129), "LoadData2D: bytes 0..66,048 leave the 65,536 bytes of l0a"),
        (load2d(start=1024), "LoadData2D: bytes 524,288..524,800 leave the 524,288 bytes of l1"),
        (load3d(m=0), "LoadData3D: m must be 1..65535 rows, not 0"),
        (load3d(k=0), "LoadData3D: k must be 1..65535 elements, not 0"),
        (load3d(rows=0), "LoadData3D: rows must be 1..65535, not 0"),
        (load3d(m_start=-1), "LoadData3D: m_start must be 0..65535, not -1"),
        (load3d(k_start=65536), "LoadData3D: k_start must be 0..65535, not 65536"),
        (load3d(k_start=8), "LoadData3D: k_start must be a multiple of 16 elements, not 8"),
        (load3d(m_start=1), "LoadData3D: rows 1..33 leave the 32 rows of the matrix"),
        (
            load3d(dst=Operand(L0A, S4, 0), src=Operand(L1, S4, 0), k=31),
            "LoadData3D: k must be even for s4, not 31",
        ),
        (load3d(m=512, k=512, rows=512), "LoadData3D: bytes 0..524,288 leave the 65,536 bytes of l0a"),
        (squares(repeat=256), "LoadDataWithTranspose: repeat must be 1..255 squares, not 256"),
        (squares(dst_gap=-1), "LoadDataWithTranspose: dst_gap must be 0..65535 fractals, not -1"),
        (squares(start=-1), "LoadDataWithTranspose: start must be 0..65535 squares, not -1"),
        (
            squares(dst=Operand(L0B, S4, 0), src=Operand(L1, S4, 0)),
            "LoadDataWithTranspose: elements must have 8, 16 or 32 bits, not s4",
        ),
        (
            squares(repeat=2),
            "LoadDataWithTranspose: fractals of two squares land on one place; change dst_gap",
        ),
    ],
)
def test_errors(chip: object, op: object, message: str) -> None:
    with pytest.raises(OperandError) as caught:
        op.check(chip, RESET)
    assert str(caught.value) == message


def test_coupled_chips_transpose_single_fractals_only(coupled: object) -> None:
    load2d(transpose=True).check(coupled, RESET)
    with pytest.raises(OperandError) as caught:
        squares().check(coupled, RESET)
    assert str(caught.value) == (
        "LoadDataWithTranspose: ascend-310 does not have it; transpose 16-bit fractals with LoadData2D"
    )


@pytest.mark.parametrize("space", [L0A, L0B])
def test_cost_is_that_of_whole_fractals(chip: object, space: object) -> None:
    path = chip.paths.l1_to_l0a if space is L0A else chip.paths.l1_to_l0b
    dst = Operand(space, F16, 0)
    for op, fractals in ((load2d(dst=dst, repeat=7), 7), (load3d(dst=dst, m=17, k=33, rows=17), 6)):
        work = op.work(chip, RESET)
        assert work.cycles == path.issue_cycles + -(-fractals * 512 // path.bytes_per_cycle)
        assert work.latency == path.latency_cycles
        assert op.pipe is Pipe.MTE1
        assert set(work.prices) == {
            f"paths.l1_to_{space.short}.{what}"
            for what in ("bytes_per_cycle", "issue_cycles", "latency_cycles")
        }
    square = squares(dst=Operand(L0B, S8, 0), repeat=3, dst_gap=1).work(chip, RESET)
    assert square.cycles == chip.paths.l1_to_l0b.issue_cycles + -(
        -6 * 512 // chip.paths.l1_to_l0b.bytes_per_cycle
    )
    extents = [load3d(dst=dst, m=m, k=m, rows=300).work(chip, RESET).cycles for m in range(1, 128)]
    assert extents == sorted(extents)


def test_encoding_round_trips() -> None:
    for op in (
        load2d(start=3, transpose=True),
        load3d(m_start=4, transpose=True),
        squares(dst_frac_gap=3),
    ):
        assert type(op).decode(op.encode()) == op
