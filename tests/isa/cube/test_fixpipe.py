"""Fixpipe against element loops and rational arithmetic."""

from __future__ import annotations

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from fractals import l0c_offset
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from movement_bench import FB, GM, L0C, L1, UB, Bench, assert_touches_what_it_declares

from npusim.errors import OperandError
from npusim.isa.cube import Fixpipe
from npusim.isa.cube.forms import store_nd, store_nz
from npusim.isa.dtype import BF16, F16, F32, S8, S32, U8, U64, DType
from npusim.isa.operand import Operand, Pipe
from npusim.isa.state import RESET, Atomic, State

SHARED = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
NUMPY = {F16: np.float16, BF16: ml_dtypes.bfloat16, F32: np.float32, S32: np.int32, S8: np.int8, U8: np.uint8}
PRECISION = {F16: (11, -14, 65504), BF16: (8, -126, (2 - Fraction(1, 128)) * 2**127)}


def even(x: Fraction) -> int:
    """The nearest integer, ties to even."""
    whole, rest = divmod(x, 1)
    return int(whole) + (rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole % 2 == 1))


def rounded(x: float | Fraction, dtype: DType) -> Fraction:
    """The nearest number of a 16-bit format, saturated."""
    precision, emin, largest = PRECISION[dtype]
    value = Fraction(x)
    if not value:
        return value
    exponent = 0
    while abs(value) >= 2 ** (exponent + 1):
        exponent += 1
    while abs(value) < Fraction(2) ** exponent:
        exponent -= 1
    ulp = Fraction(2) ** (max(exponent, emin) - precision + 1)
    return max(-largest, min(largest, even(value / ulp) * ulp))


def accumulators(bench: Bench, values: np.ndarray, height: int) -> None:
    """Write an m x n matrix into L0C whose columns of fractals are `height` rows high."""
    flat = bench.peek(L0C, 0, values.dtype, 32768)
    for i in range(values.shape[0]):
        for j in range(values.shape[1]):
            flat[l0c_offset(i, j, height)] = values[i, j]
    bench.poke(L0C, 0, flat)


def some_floats(rng: np.random.Generator, m: int, n: int) -> np.ndarray:
    """Values over the range of halves and beyond, with ties."""
    scale = 2.0 ** rng.integers(-30, 20, (m, n))
    return (rng.integers(-4100, 4100, (m, n)) / 2048 * scale).astype(np.float32)


@SHARED
@given(
    dtype=st.sampled_from([F32, F16, BF16]),
    m=st.integers(1, 35),
    n=st.integers(1, 50),
    slack=st.tuples(st.integers(0, 20), st.integers(0, 9)),
    relu=st.booleans(),
    seed=st.integers(0, 99),
)
def test_a_result_becomes_row_major(
    bench: Bench, dtype: DType, m: int, n: int, slack: tuple[int, int], relu: bool, seed: int
) -> None:
    values = some_floats(np.random.default_rng(seed), m, n)
    accumulators(bench, values, m + slack[0])
    pitch = n + slack[1]
    op = Fixpipe(
        dst=Operand(GM, dtype, 64),
        src=Operand(L0C, F32, 0),
        m=m,
        n=n,
        src_stride=m + slack[0],
        dst_stride=pitch,
        relu=relu,
    )
    before = bench.copy()
    assert_touches_what_it_declares(bench, op, probes=0)
    bench.restore(before)
    bench.run(op)
    got = bench.peek(GM, 64, NUMPY[dtype], m * pitch).reshape(-1)
    for i in range(m):
        for j in range(n):
            x = Fraction(float(values[i, j]))
            x = max(x, Fraction(0)) if relu else x
            assert Fraction(float(got[i * pitch + j])) == (x if dtype is F32 else rounded(x, dtype))


@SHARED
@given(
    dtype=st.sampled_from([F16, BF16]),
    m=st.integers(1, 40),
    columns=st.integers(1, 4),
    slack=st.tuples(st.integers(0, 9), st.integers(0, 9)),
)
def test_a_result_in_l1_is_nz(
    bench: Bench, dtype: DType, m: int, columns: int, slack: tuple[int, int]
) -> None:
    n = 16 * columns
    values = some_floats(np.random.default_rng(m), m, n)
    accumulators(bench, values, m + slack[0])
    op = Fixpipe(
        dst=Operand(L1, dtype, 96),
        src=Operand(L0C, F32, 0),
        m=m,
        n=n,
        src_stride=m + slack[0],
        dst_stride=m + slack[1],
        nd=False,
    )
    before = bench.copy()
    assert_touches_what_it_declares(bench, op, probes=0)
    bench.restore(before)
    bench.run(op)
    height = m + slack[1]
    got = bench.peek(L1, 96, NUMPY[dtype], height * n)
    for i in range(m):
        for j in range(n):
            wanted = rounded(float(values[i, j]), dtype)
            assert Fraction(float(got[j // 16 * height * 16 + i * 16 + j % 16])) == wanted


def integers(rng: np.random.Generator, m: int, n: int) -> np.ndarray:
    """Accumulators of every size."""
    return (rng.integers(-(2**31), 2**31, (m, n)) >> rng.integers(0, 31, (m, n))).astype(np.int32)


def word(scale: float, offset: int) -> int:
    """A parameter of a column: the bits of the scale, and the offset from bit 37."""
    return int(np.float32(scale).view(np.uint32)) | (offset & 0x1FF) << 37


def seen(scale: float) -> Fraction:
    """A scale as the hardware reads it: 13 bits of the fraction cut off."""
    return Fraction(float(np.uint32(int(np.float32(scale).view(np.uint32)) >> 13 << 13).view(np.float32)))


@pytest.mark.parametrize("src", [S32, F32], ids=repr)
@pytest.mark.parametrize("dst", [S8, U8], ids=repr)
@pytest.mark.parametrize("place", [GM, L1])
@pytest.mark.parametrize("per_column", [False, True])
@pytest.mark.parametrize("relu", [False, True])
def test_requantisation(
    bench: Bench, src: DType, dst: DType, place: object, per_column: bool, relu: bool
) -> None:
    rng = np.random.default_rng(11)
    m, n, scale, offset = 20, 64, 0.0123456, 7
    values = integers(rng, m, n) if src is S32 else some_floats(rng, m, n)
    values[0, :8] = [60, -60, 100, 140, 0, 20, -20, 180]  # ties under the scale of column 0..7
    accumulators(bench, values, 32)
    scales, offsets = [scale] * n, [offset] * n
    if per_column:
        scales = [0.025 * 2.0 ** (j % 5 - 2) if j >= 8 else 0.025 for j in range(n)]
        offsets = [-256, 255, 0, -3] * (n // 4)
        bench.poke(FB, 64, np.array([word(s, o) for s, o in zip(scales, offsets, strict=True)], np.uint64))
    state = State(
        quant_scale=int(np.float32(scale).view(np.uint32)), quant_offset=offset, quant_signed=dst is S8
    )
    op = Fixpipe(
        dst=Operand(place, dst, 32),
        src=Operand(L0C, src, 0),
        m=m,
        n=n,
        src_stride=32,
        dst_stride=80 if place is GM else 24,
        nd=place is GM,
        relu=relu,
        scale=Operand(FB, U64, 64) if per_column else None,
    )
    before = bench.copy()
    assert_touches_what_it_declares(bench, op, state, probes=0)
    bench.restore(before)
    bench.run(op, state)
    got = bench.peek(place, 32, NUMPY[dst], 80 * m if place is GM else 24 * 32 * 2)
    lowest, highest = (-128, 127) if dst is S8 else (0, 255)
    for i in range(m):
        for j in range(n):
            x = Fraction(values[i, j].item())
            x = max(x, Fraction(0)) if relu else x
            wanted = max(lowest, min(highest, even(x * seen(scales[j]) + offsets[j])))
            index = i * 80 + j if place is GM else j // 32 * 24 * 32 + i * 32 + j % 32
            assert got[index] == wanted


@pytest.mark.parametrize("per_column", [False, True])
def test_integers_become_halves(bench: Bench, per_column: bool) -> None:
    rng = np.random.default_rng(12)
    m, n, scale = 17, 20, 1 / 3
    values = integers(rng, m, n)
    accumulators(bench, values, 32)
    scales = [scale * (1 + j) for j in range(n)] if per_column else [scale] * n
    bench.poke(FB, 0, np.array([word(s, 5) for s in scales], np.uint64))
    op = Fixpipe(
        dst=Operand(GM, F16, 0),
        src=Operand(L0C, S32, 0),
        m=m,
        n=n,
        src_stride=32,
        dst_stride=n,
        scale=Operand(FB, U64, 0) if per_column else None,
    )
    state = State(quant_scale=int(np.float32(scale).view(np.uint32)), quant_offset=5)
    bench.run(op, state)
    got = bench.peek(GM, 0, np.float16, m * n).reshape(m, n)
    for i in range(m):
        for j in range(n):
            assert Fraction(float(got[i, j])) == rounded(int(values[i, j]) * seen(scales[j]), F16)


def test_infinities_follow_the_control_state(bench: Bench) -> None:
    values = np.array([[np.inf, -np.inf, np.nan, 1e5, -1e5, 1e-9]], np.float32)
    wanted = {
        F16: [65504, -65504, 0, 65504, -65504, 0],
        BF16: [
            float(PRECISION[BF16][2]),
            -float(PRECISION[BF16][2]),
            0,
            float(rounded(1e5, BF16)),
            None,
            None,
        ],
        S8: [127, -128, 0, 127, -128, 0],
    }
    for dtype, numbers in wanted.items():
        accumulators(bench, values, 16)
        op = store_nd(Operand(GM, dtype, 0), Operand(L0C, F32, 0), 1, 6)
        bench.run(op)
        got = bench.peek(GM, 0, NUMPY[dtype], 6).astype(np.float64)
        assert all(w is None or g == w for g, w in zip(got, numbers, strict=True))
    bench.run(store_nd(Operand(GM, F16, 0), Operand(L0C, F32, 0), 1, 6), State(saturate=False))
    assert bench.peek(GM, 0, np.uint16, 4).tolist() == [0x7C00, 0xFC00, 0x7E00, 0x7C00]
    bench.run(store_nd(Operand(GM, BF16, 0), Operand(L0C, F32, 0), 1, 6), State(saturate=False))
    assert bench.peek(GM, 0, np.uint16, 3).tolist() == [0x7F80, 0xFF80, 0x7FC0]


def test_unconverted_results_keep_every_bit(bench: Bench) -> None:
    values = np.array([[np.nan, -0.0, np.inf, 1e-45]], np.float32)
    accumulators(bench, values, 16)
    bench.run(store_nd(Operand(GM, F32, 0), Operand(L0C, F32, 0), 1, 4))
    assert (bench.peek(GM, 0, np.uint32, 4) == values.view(np.uint32)).all()
    nz = Fixpipe(
        dst=Operand(GM, S32, 0), src=Operand(L0C, S32, 0), m=5, n=32, src_stride=16, dst_stride=12, nd=False
    )
    accumulators(bench, np.arange(5 * 32, dtype=np.int32).reshape(5, 32), 16)
    assert_touches_what_it_declares(bench, nz)
    got = bench.peek(GM, 0, np.int32, 8 * 24)
    assert all(got[j // 16 * 96 + i * 16 + j % 16] == i * 32 + j for i in range(5) for j in range(32))


def test_an_atomic_store_adds_to_memory(bench: Bench) -> None:
    values = np.arange(20 * 24, dtype=np.float32).reshape(20, 24)
    accumulators(bench, values, 32)
    bench.poke(GM, 0, np.full(20 * 24, 1000, np.float16))
    op = store_nd(Operand(GM, F16, 0), Operand(L0C, F32, 0), 20, 24)
    state = State(atomic=Atomic.ADD, atomic_dtype=F16)
    bench.run(op, state)
    assert (bench.peek(GM, 0, np.float16, 480).reshape(20, 24) == 1000 + values).all()
    assert op.reads(state)[-1] == op.writes(state)[0]
    with pytest.raises(OperandError) as caught:
        op.check(bench.chip, State(atomic=Atomic.ADD))
    assert (
        str(caught.value) == "Fixpipe: the atomic add is set for f32, but dst is f16; set it with SetAtomic"
    )


def test_forms_round_up_to_fractals() -> None:
    gm, l1, l0c = Operand(GM, F16, 0), Operand(L1, F16, 0), Operand(L0C, F32, 0)
    assert store_nd(gm, l0c, 20, 30) == Fixpipe(dst=gm, src=l0c, m=20, n=30, src_stride=32, dst_stride=30)
    assert store_nd(gm, l0c, 20, 30, pitch=64, height=48, relu=True) == Fixpipe(
        dst=gm, src=l0c, m=20, n=30, src_stride=48, dst_stride=64, relu=True
    )
    assert store_nz(l1, l0c, 20, 32) == Fixpipe(
        dst=l1, src=l0c, m=20, n=32, src_stride=32, dst_stride=32, nd=False
    )
    assert store_nz(l1, l0c, 20, 32, dst_height=128, height=64) == Fixpipe(
        dst=l1, src=l0c, m=20, n=32, src_stride=64, dst_stride=128, nd=False
    )


def valid(**changes: object) -> Fixpipe:
    """A valid store with some fields changed."""
    fields = {
        "dst": Operand(GM, F16, 0),
        "src": Operand(L0C, F32, 0),
        "m": 16,
        "n": 32,
        "src_stride": 16,
        "dst_stride": 32,
    }
    return Fixpipe(**{**fields, **changes})


IN_L1 = {"dst": Operand(L1, F16, 0), "nd": False, "dst_stride": 16}


@pytest.mark.parametrize(
    ("op", "message"),
    [
        (valid(dst=Operand(GM, S32, 0)), "no conversion f32 -> s32; l0c f32 becomes f32 f16 bf16 s8 u8"),
        (
            valid(src=Operand(L0C, S32, 0), dst=Operand(GM, BF16, 0)),
            "no conversion s32 -> bf16; l0c s32 becomes s32 f16 s8 u8",
        ),
        (valid(src=Operand(L0C, F16, 0)), "no conversion f16 -> f16; l0c f16 becomes nothing"),
        (valid(dst=Operand(UB, F16, 0)), "dst must be in gm or l1, not ub"),
        (valid(dst=Operand(L1, F16, 0)), "a result in l1 is NZ; set nd=False"),
        (
            valid(**{**IN_L1, "dst": Operand(L1, F32, 0)}),
            "results in l1 have 8 or 16 bits, not f32; convert to f16",
        ),
        (valid(**IN_L1, n=24), "n must be a multiple of 16 for an NZ result of f16, not 24"),
        (
            valid(**{**IN_L1, "dst": Operand(L1, S8, 0)}, n=48),
            "n must be a multiple of 32 for an NZ result of s8, not 48",
        ),
        (valid(m=8193), "m must be 1..8192 rows, not 8193"),
        (valid(**IN_L1, m=65536), "m must be 1..65535 rows, not 65536"),
        (valid(n=4096), "n must be 1..4095 columns, not 4096"),
        (valid(src_stride=0), "src_stride must be 1..65535 rows, not 0"),
        (valid(dst_stride=0), "dst_stride must be 1..4294967295 elements, not 0"),
        (
            valid(**{**IN_L1, "dst_stride": 0}),
            "dst_stride must be 1..4294967295 blocks of 32 bytes, not 0",
        ),
        (valid(dst_stride=31), "dst_stride 31 makes rows of the result overlap"),
        (valid(**{**IN_L1, "dst_stride": 15}), "dst_stride 15 makes rows of the result overlap"),
        (valid(scale=Operand(FB, U64, 0)), "f32 -> f16 takes no scale"),
        (
            valid(dst=Operand(GM, S8, 0), scale=Operand(FB, F32, 0)),
            "scale must be u64 words, not f32",
        ),
        (
            valid(dst=Operand(GM, U8, 0)),
            "the quantisation is set to signed, but dst is u8; set QUANT_SIGNED",
        ),
        (valid(src=Operand(L0C, F32, 32)), "src must start at a multiple of 64 bytes in l0c, not at 0x20"),
        (valid(src_stride=65535), "bytes 0..4,195,264 leave the 131,072 bytes of l0c"),
        (
            valid(dst=Operand(GM, S8, 0), n=1000, dst_stride=1000, scale=Operand(FB, U64, 0)),
            "bytes 0..8,000 leave the 7,168 bytes of fb",
        ),
    ],
)
def test_errors(chip: object, op: Fixpipe, message: str) -> None:
    with pytest.raises(OperandError) as caught:
        op.check(chip, RESET)
    assert str(caught.value) == f"Fixpipe: {message}"


def test_coupled_chips_have_no_fixpipe(coupled: object) -> None:
    for op, path in ((valid(), "l0c -> gm"), (valid(**IN_L1), "l0c -> l1")):
        with pytest.raises(OperandError) as caught:
            op.check(coupled, RESET)
        assert str(caught.value) == f"Fixpipe: ascend-310 has no path {path}"


def test_cost_counts_columns_of_whole_fractals(chip: object) -> None:
    port = chip.ports.l0c_to_gm
    work = valid(m=30, n=20, src_stride=32).work(chip, RESET)
    assert work.cycles == port.issue_cycles
    assert work.transfer.port_cycles == 30 * 256 // port.elements_per_cycle  # a request of 512 bytes a row
    dense = valid(m=64, n=20, dst_stride=20, src_stride=64).work(chip, RESET)
    assert dense.transfer.port_cycles == 64 * 32 // port.elements_per_cycle  # five requests are quicker
    assert work.transfer.access.total == 30 * 20 * 2
    assert (work.transfer.port, work.transfer.write) == ("l0c_to_gm", True)
    path = chip.paths.l0c_to_l1
    for dtype in (F16, S8):
        inside = valid(**{**IN_L1, "dst": Operand(L1, dtype, 0)}, m=128, n=64).work(chip, RESET)
        assert inside.cycles == path.issue_cycles + 128 * 64 // path.elements_per_cycle
        assert (inside.latency, inside.transfer) == (path.latency_cycles, None)
    assert valid().pipe is Pipe.FIX
    costs = [valid(n=n, dst_stride=n).work(chip, RESET).transfer.port_cycles for n in range(1, 99)]
    assert costs == sorted(costs)


def test_encoding_round_trip() -> None:
    op = valid(**IN_L1, relu=True, scale=Operand(FB, U64, 64))
    assert Fixpipe.decode(op.encode()) == op
