"""Mmad on true fractal layouts against integer and rational arithmetic."""

from __future__ import annotations

from itertools import pairwise

import ml_dtypes
import numpy as np
import pytest
from fractals import collect, l0a_offset, l0b_offset, l0c_offset, spread, whole
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from movement_bench import BT, GM, L0A, L0B, L0C, UB, Bench, assert_touches_what_it_declares

from npusim.errors import OperandError
from npusim.isa.cube import Mmad
from npusim.isa.cube.forms import mmad, store_nd
from npusim.isa.cube.layout import unpack_s4
from npusim.isa.dtype import BF16, F16, F32, S4, S8, S32, DType
from npusim.isa.operand import Operand, Pipe
from npusim.isa.state import RESET, State
from npusim.machine.memory import CoreMemory

SHARED = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
NUMPY = {F16: np.float16, BF16: ml_dtypes.bfloat16, F32: np.float32, S8: np.int8, S4: np.int8}
WHOLE_NUMBERS = {F16: 100, BF16: 60, F32: 100, S8: 128, S4: 8}
"""Operands are integers below these limits, so that every product and sum is exact."""


def packed(values: np.ndarray) -> np.ndarray:
    """Pairs of 4-bit elements as bytes, the even one in the low nibble."""
    nibbles = values.astype(np.int64) & 15
    return (nibbles[0::2] | nibbles[1::2] << 4).astype(np.uint8)


def place(
    bench: Bench, dtype: DType, a: np.ndarray, b: np.ndarray, *, order: str = "ZZ", at: int = 0
) -> None:
    """Write A and B into L0A and L0B, every other lane of the fractals NaN or garbage."""
    (m, k), n = a.shape, b.shape[1]
    c0 = 256 // dtype.bits
    fill = np.nan if dtype.is_float else 7
    left = spread(a, lambda i, j: l0a_offset(i, j, m, k, c0, order), whole(m, 16) * whole(k, c0), fill)
    right = spread(b, lambda i, j: l0b_offset(i, j, n, c0), whole(k, c0) * whole(n, 16), fill)
    if dtype is S4:
        left, right = packed(left), packed(right)
    bench.poke(L0A, at, left)
    bench.poke(L0B, at, right)


def operands(rng: np.random.Generator, dtype: DType, m: int, k: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Random whole numbers of a type."""
    limit = WHOLE_NUMBERS[dtype]
    return tuple(rng.integers(-limit, limit, shape).astype(NUMPY[dtype]) for shape in ((m, k), (k, n)))


def exact(a: np.ndarray, b: np.ndarray) -> list[list[int]]:
    """The product in Python integers."""
    left, right = ([[int(x) for x in row] for row in matrix] for matrix in (a, b))
    return [
        [sum(x * y for x, y in zip(row, column, strict=True)) for column in zip(*right, strict=True)]
        for row in left
    ]


def result(bench: Bench, dtype: type, m: int, n: int, at: int = 0) -> list[list]:
    """The result in L0C."""
    flat = bench.peek(L0C, at, dtype, whole(m, 16) * whole(n, 16))
    return collect(flat, lambda i, j: l0c_offset(i, j, whole(m, 16)), m, n).tolist()


def product(dtype: DType, m: int, k: int, n: int, **changes: object) -> Mmad:
    """A product at the start of every memory."""
    accumulator = F32 if dtype.is_float else S32
    return Mmad(
        **{
            "dst": Operand(L0C, accumulator, 0),
            "a": Operand(L0A, dtype, 0),
            "b": Operand(L0B, dtype, 0),
            "m": m,
            "k": k,
            "n": n,
            "disable_gemv": True,
            **changes,
        }
    )


@SHARED
@given(
    dtype=st.sampled_from([F16, BF16, F32, S8, S4]),
    m=st.integers(1, 35),
    k=st.integers(1, 70),
    n=st.integers(1, 35),
    start=st.sampled_from(["zero", "bias", "result"]),
    seed=st.integers(0, 99),
)
def test_products_of_whole_numbers(
    bench: Bench, dtype: DType, m: int, k: int, n: int, start: str, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    k += k % 2 if dtype is S4 else 0
    accumulator = np.float32 if dtype.is_float else np.int32
    a, b = operands(rng, dtype, m, k, n)
    place(bench, dtype, a, b)
    old = rng.integers(-1000, 1000, (m, n)).astype(accumulator)
    bias = rng.integers(-1000, 1000, n).astype(accumulator)
    flat = spread(old, lambda i, j: l0c_offset(i, j, whole(m, 16)), whole(m, 16) * whole(n, 16), 12345)
    bench.poke(L0C, 0, flat)
    bench.poke(BT, 64, bias)
    op = product(
        dtype,
        m,
        k,
        n,
        init=start == "zero",
        bias=Operand(BT, F32 if dtype.is_float else S32, 64) if start == "bias" else None,
    )
    before = bench.copy()
    assert_touches_what_it_declares(bench, op, probes=0)
    bench.restore(before)
    bench.run(op)
    added = {"zero": np.zeros_like(old), "bias": np.broadcast_to(bias, (m, n)), "result": old}[start]
    wanted = [
        [x + int(y) for x, y in zip(*rows, strict=True)] for rows in zip(exact(a, b), added, strict=True)
    ]
    assert result(bench, accumulator, m, n) == wanted


@pytest.mark.parametrize(("m", "k", "n"), [(16, 32, 16), (32, 64, 48)])
@pytest.mark.parametrize("start", ["zero", "bias", "result"])
def test_every_declared_byte_is_read(bench: Bench, m: int, k: int, n: int, start: str) -> None:
    rng = np.random.default_rng(3)
    a, b = (rng.integers(1, 100, shape).astype(np.int8) for shape in ((m, k), (k, n)))
    place(bench, S8, a, b)
    bias = Operand(BT, S32, 0) if start == "bias" else None
    op = product(S8, m, k, n, init=start == "zero", bias=bias)
    bench.poke(L0C, 0, np.zeros(whole(m, 16) * whole(n, 16), np.int32))
    bench.poke(BT, 0, np.arange(256, dtype=np.int32))
    assert_touches_what_it_declares(bench, op, probes=20)


def test_l0a_may_be_columns_of_fractals(newer: object) -> None:
    bench = Bench(newer, profile="ascend-950")
    rng = np.random.default_rng(5)
    for m, k, n in ((32, 48, 16), (35, 50, 20), (3, 9, 2)):
        a, b = operands(rng, F16, m, k, n)
        place(bench, F16, a, b, order="NZ")
        op = product(F16, m, k, n, init=True)
        assert_touches_what_it_declares(bench, op, probes=0)
        place(bench, F16, a, b, order="NZ")
        bench.run(op)
        assert result(bench, np.float32, m, n) == exact(a, b)


def test_one_row_is_read_as_a_vector_unless_told_otherwise(bench: Bench) -> None:
    rng = np.random.default_rng(6)
    for dtype in (F16, S8, S4):
        accumulator = np.float32 if dtype.is_float else np.int32
        a, b = operands(rng, dtype, 1, 300, 20)
        place(bench, dtype, a, b)
        bench.run(product(dtype, 1, 300, 20, init=True))
        assert result(bench, accumulator, 1, 20) == exact(a, b)
        bench.poke(L0A, 0, packed(a[0]) if dtype is S4 else a[0])
        op = product(dtype, 1, 300, 20, init=True, disable_gemv=False)
        assert_touches_what_it_declares(bench, op, probes=0)
        place(bench, dtype, a, b)
        bench.poke(L0A, 0, packed(a[0]) if dtype is S4 else a[0])
        bench.run(op)
        assert result(bench, accumulator, 1, 20) == exact(a, b)
        assert op.reads(RESET)[0].runs() == [(0, 300 * dtype.bits // 8)]


def test_the_form_multiplies_what_the_loads_laid_out() -> None:
    a, b, c = Operand(L0A, F16, 0), Operand(L0B, F16, 0), Operand(L0C, F32, 0)
    assert mmad(c, a, b, 1, 32, 16, init=True).disable_gemv
    assert mmad(c, a, b, 2, 32, 16) == Mmad(dst=c, a=a, b=b, m=2, k=32, n=16)


def test_changed_operands_are_seen(bench: Bench) -> None:
    """What is kept of an operand never outlives its bytes, whoever changes them."""
    rng = np.random.default_rng(7)
    op = product(F16, 16, 16, 16, init=True)
    for _ in range(3):
        for memory in (L0A, L0B):
            a, b = operands(rng, F16, 16, 16, 16)
            place(bench, F16, a, b)
            bench.run(op)
            assert result(bench, np.float32, 16, 16) == exact(a, b)
            bench.memory(memory)[0] ^= 0x40
            bench.run(op)
            assert result(bench, np.float32, 16, 16) != exact(a, b)


def test_one_tile_serves_several_shapes_and_modes(bench: Bench) -> None:
    """The same bytes under other extents, orders of reading and HF32 modes."""
    rng = np.random.default_rng(8)
    values = rng.integers(-50, 50, 1024).astype(np.float16)
    bench.poke(L0A, 0, values)
    bench.poke(L0B, 0, values)
    for m, k, n in (
        (20, 32, 10),
        (32, 32, 16),
        (17, 32, 12),
        (32, 16, 25),
        (32, 16, 32),
        (16, 64, 16),
        (16, 60, 16),
    ):
        bench.run(product(F16, m, k, n, init=True))
        a = collect(values, lambda i, j, m=m, k=k: l0a_offset(i, j, m, k, 16), m, k)
        b = collect(values, lambda i, j, n=n: l0b_offset(i, j, n, 16), k, n)
        assert result(bench, np.float32, m, n) == exact(a, b)


def first_value(bench: Bench, dtype: DType, a: list[float], b: list[float], state: State = RESET) -> float:
    """The product of a row and a column, from zero."""
    k = len(a)
    left = np.array([a], np.float32).astype(NUMPY[dtype])
    right = np.array([b], np.float32).T.astype(NUMPY[dtype])
    place(bench, dtype, left, right)
    bench.run(product(dtype, 1, k, 1, init=True), state)
    return result(bench, np.float32, 1, 1)[0][0]


def test_the_rule_follows_the_operand_type(bench: Bench) -> None:
    """A large term and k - 1 ones: how many ones survive shows how many terms are summed before rounding."""
    big, ones = [2.0**12], [1.0] * 15
    assert (
        first_value(bench, F16, big + ones, big + ones) == 2.0**24 + 16
    )  # 16 terms, 2^24 + 15 rounds to even
    assert (
        first_value(bench, F32, big + ones, big + ones) == 2.0**24 + 16
    )  # 4 terms at a time: 2^24 + 3 to + 4, ...
    assert first_value(bench, F32, big + ones[:1], big + ones[:1]) == 2.0**24  # the lone one is lost
    assert first_value(bench, F32, big + ones[:3], big + ones[:3]) == 2.0**24 + 4


def test_hf32_rounds_operands_and_doubles_the_rate(bench: Bench, chip: object) -> None:
    x = 1 + 2.0**-11 + 2.0**-12  # a tie between 11-bit fractions
    assert first_value(bench, F32, [x], [1.0]) == x
    assert first_value(bench, F32, [x], [1.0], State(hf32=True)) == 1 + 2.0**-10
    y = 1 + 2.0**-12
    assert first_value(bench, F32, [y], [1.0], State(hf32=True)) == 1.0
    assert first_value(bench, F32, [y], [1.0], State(hf32=True, hf32_away=True)) == 1 + 2.0**-11
    op = product(F32, 64, 64, 64)
    streamed = chip.cube.head_streamed_cycles
    plain, rounded = (op.work(chip, State(hf32=mode)).cycles - streamed for mode in (False, True))
    assert (plain, rounded) == (16 * 8 * 2, 16 * 8)


def test_saturation_is_control_state(bench: Bench) -> None:
    assert first_value(bench, F32, [2.0**100], [2.0**100]) == float(np.finfo(np.float32).max)
    assert first_value(bench, F32, [2.0**100], [2.0**100], State(saturate=False)) == np.inf
    assert first_value(bench, F16, [np.inf], [0.0]) == 0.0
    assert np.isnan(first_value(bench, F16, [np.inf], [0.0], State(saturate=False)))


def test_integers_saturate(bench: Bench) -> None:
    place(bench, S8, np.array([[127]], np.int8), np.array([[127]], np.int8))
    bench.poke(L0C, 0, np.full(256, 2**31 - 5, np.int32))
    bench.run(product(S8, 1, 1, 1))
    assert result(bench, np.int32, 1, 1) == [[2**31 - 1]]


@pytest.mark.parametrize("extents", [(0, 16, 16), (16, 0, 16), (16, 16, 0)])
def test_an_extent_of_zero_does_nothing_but_costs(bench: Bench, chip: object, extents: tuple) -> None:
    op = product(F16, *extents, init=True)
    assert op.reads(RESET) == op.writes(RESET) == ()
    before = bench.copy()
    bench.run(op)
    assert all((before[place] == bench.memory(*place)).all() for place in bench.places)
    work = op.work(chip, RESET)
    assert (work.cycles, work.macs) == (chip.cube.head_streamed_cycles, 0)
    assert work.latency > 1


@pytest.mark.parametrize(
    ("op", "message"),
    [
        (
            product(F16, 16, 16, 16, dst=Operand(L0C, S32, 0)),
            (
                "no product f16 x f16 -> s32; there are f16 x f16 -> f32, bf16 x bf16 -> f32, "
                "f32 x f32 -> f32, s8 x s8 -> s32, s4 x s4 -> s32"
            ),
        ),
        (product(F16, 4096, 16, 16), "m must be 0..4095, not 4096; split the product"),
        (product(F16, 16, 16, -1), "n must be 0..4095, not -1; split the product"),
        (product(F16, 16, 4096, 16), "k must be 0..4095, not 4096; split the product"),
        (product(S4, 16, 63, 16), "k must be even for s4, not 63"),
        (
            product(F16, 16, 16, 16, dst=Operand(L0C, F32, 512)),
            "dst must start at a multiple of 1024 bytes in l0c, not at 0x200",
        ),
        (
            product(F16, 16, 16, 16, init=True, bias=Operand(BT, F32, 0)),
            "the result starts from zero (init) or from the bias, not from both",
        ),
        (product(F16, 16, 16, 16, bias=Operand(BT, S32, 0)), "bias must be f32 like dst, not s32"),
        (
            product(F16, 16, 16, 16, bias=Operand(BT, F32, 32)),
            "bias must start at a multiple of 64 bytes in bt, not at 0x20",
        ),
        (product(F16, 16, 16, 16, a=Operand(UB, F16, 0)), "a must be in l0a, not ub"),
        (product(F16, 256, 256, 16), "bytes 0..131,072 leave the 65,536 bytes of l0a"),
        (product(F16, 16, 16, 300, bias=Operand(BT, F32, 0)), "bytes 0..1,200 leave the 1,024 bytes of bt"),
        (product(F16, 256, 64, 256), "bytes 0..262,144 leave the 131,072 bytes of l0c"),
    ],
)
def test_errors(chip: object, op: Mmad, message: str) -> None:
    with pytest.raises(OperandError) as caught:
        op.check(chip, RESET)
    assert str(caught.value) == f"Mmad: {message}"


def test_chips_have_their_own_types(coupled: object, newer: object) -> None:
    with pytest.raises(OperandError) as caught:
        product(BF16, 16, 16, 16).check(coupled, RESET)
    assert str(caught.value) == "Mmad: the cube of ascend-310 has no bf16; it has f16 s8"
    with pytest.raises(OperandError) as caught:
        product(S4, 16, 64, 16).check(newer, RESET)
    assert str(caught.value) == "Mmad: the cube of ascend-950pr has no s4; it has f16 bf16 f32 hf32 s8"
    with pytest.raises(OperandError) as caught:
        product(F16, 16, 16, 16, bias=Operand(BT, F32, 0)).check(coupled, RESET)
    assert str(caught.value) == "Mmad: bias is in bt, which ascend-310 does not have"


def test_a_documented_stream_takes_its_measured_time(chip: object) -> None:
    """Eight products 128 x 256 x 64 of halves: 4209 to 4225 cycles measured by the vendor."""
    work = product(F16, 128, 64, 256).work(chip, RESET)
    assert work.cycles - chip.cube.head_streamed_cycles == 512
    assert 8 * work.cycles + work.latency == pytest.approx(4209, rel=0.02)
    assert work.cycles + work.latency == 512 + chip.cube.head_isolated_cycles
    assert work.macs == 128 * 64 * 256


@pytest.mark.parametrize(
    ("dtype", "extents", "steps"),
    [
        (F16, (128, 128, 128), 512),
        (F16, (17, 17, 17), 8),
        (F32, (16, 8, 16), 2),
        (F32, (16, 9, 16), 4),
        (S8, (128, 128, 128), 256),
        (S8, (1, 33, 1), 2),
        (S4, (16, 64, 32), 2),
    ],
)
def test_steps_count_whole_fractals(chip: object, dtype: DType, extents: tuple, steps: int) -> None:
    work = product(dtype, *extents).work(chip, RESET)
    assert work.cycles == steps + chip.cube.head_streamed_cycles
    assert work.prices == (
        f"cube.rates.{dtype.short}",
        "cube.head_streamed_cycles",
        "cube.head_isolated_cycles",
    )


def test_cost_never_falls_when_an_extent_grows(chip: object) -> None:
    for grow in ("m", "k", "n"):
        costs = [
            product(F32, **{"m": 40, "k": 40, "n": 40, grow: x}).work(chip, RESET).cycles for x in range(99)
        ]
        assert all(a <= b for a, b in pairwise(costs))


def test_the_cube_orders_large_results_by_itself(chip: object) -> None:
    assert [product(F16, m, 16, n).result_fractals for m, n in ((16, 16), (17, 144), (0, 5))] == [1, 18, 0]
    ordered = [product(F16, m, 16, n).self_ordered(chip) for m, n in ((16, 144), (16, 160), (33, 49))]
    assert ordered == [False, True, True]  # 9, 10 and 12 fractals
    assert product(F16, 1, 1, 1).pipe is Pipe.M


def test_encoding_round_trip() -> None:
    for op in (product(F16, 1, 2, 3), product(S8, 4, 5, 6, bias=Operand(BT, S32, 64))):
        assert Mmad.decode(op.encode()) == op


def test_pairs_of_4_bit_elements_keep_their_order() -> None:
    """Products cannot tell, since A and B are unpacked alike."""
    assert unpack_s4(np.array([[0x21, 0xF7], [0x80, 0x9A]], np.uint8)).tolist() == [
        [1, 2, 7, -1],
        [0, -8, -6, -7],
    ]


class Eager(CoreMemory):
    """A core that writes every product to L0C at once."""

    def hold(self, tile, result, put):
        put(result)


@pytest.mark.parametrize("dtype", [F16, S8])
@pytest.mark.parametrize("seed", range(6))
def test_products_are_kept_back_until_somebody_looks(chip, dtype, seed):
    """Products of tiles that overlap in L0C, of other extents at one address, with and without what is there;
    what a store sees in between and all of L0C at the end are as if every product were written at once.
    """
    rng = np.random.default_rng(seed)
    late, early = Bench(chip), Bench(chip)
    early.core.__class__ = Eager
    result = {F16: F32, S8: S32}[dtype]
    for _ in range(30):
        m, n, k = (int(rng.choice(sizes)) for sizes in ((16, 32, 40), (16, 32), (16, 32)))
        at = int(rng.choice([0, 1024, 4096]))
        a, b = operands(rng, dtype, m, k, n)
        op = mmad(
            Operand(L0C, result, at),
            Operand(L0A, dtype, 0),
            Operand(L0B, dtype, 0),
            m,
            k,
            n,
            init=bool(rng.integers(2)),
        )
        for bench in (late, early):
            place(bench, dtype, a, b)
            bench.run(op)
        store = store_nd(Operand(GM, result, 0), Operand(L0C, result, at), m, n)
        if not rng.integers(3):
            for bench in (late, early):
                bench.run(store)
        for space in (GM,) if rng.integers(3) else (GM, L0C):
            assert (late.memory(space) == early.memory(space)).all()
