"""Conversions against exact fractions."""

from __future__ import annotations

import struct
from fractions import Fraction
from typing import Any

import pytest
import vector_exact as exact
from hypothesis import given
from hypothesis import strategies as st
from vector_bench import FEW, PLACES, Bench, Cells, expect_lanewise, place, run, running, states, walks

from npusim.config.chip import Chip
from npusim.isa.dtype import BY_NAME
from npusim.isa.numerics.cast import RoundMode
from npusim.isa.state import State
from npusim.isa.vector import AddReluCast, Cast, CastDequant, MulCast, SubReluCast
from npusim.isa.vector.lanes import ub

FIVE = "RINT FLOOR CEIL ROUND TRUNC"
PAIRS = {
    ("f32", "f16"): f"{FIVE} ODD NONE",
    ("f32", "bf16"): FIVE,
    ("f32", "f32"): FIVE,
    ("f32", "s16"): FIVE,
    ("f32", "s32"): FIVE,
    ("f32", "s64"): FIVE,
    ("f16", "s4"): f"{FIVE} NONE",
    ("f16", "s8"): f"{FIVE} NONE",
    ("f16", "u8"): f"{FIVE} NONE",
    ("f16", "s16"): FIVE,
    ("f16", "s32"): FIVE,
    ("bf16", "s32"): FIVE,
    ("s16", "f16"): f"{FIVE} NONE",
    ("s32", "f32"): f"{FIVE} NONE",
    ("s64", "f32"): FIVE,
    **dict.fromkeys(
        [("f16", "f32"), ("bf16", "f32"), ("s16", "f32"), ("s8", "f16"), ("u8", "f16"), ("s4", "f16")], "NONE"
    ),
    **dict.fromkeys([("s32", "s64"), ("s32", "s16"), ("s64", "s32")], "NONE"),
}
"""The A2 table of the vendor's Cast page: types and modes."""


def pairs_only(state: State) -> State:
    """Return a state whose mask runs both elements of every s4 byte or none."""
    if state.counter_mode:
        return State(counter_mode=True, mask=state.mask // 2 * 2, saturate=state.saturate)
    low = state.mask & int("01" * 64, 2)
    return State(mask=(low | low << 1) or 3, saturate=state.saturate)


@pytest.mark.parametrize("pair", PAIRS, ids="->".join)
@FEW
@given(data=st.data(), seed=st.integers(0, 1 << 30))
def test_cast(chip: Chip, pair: tuple[str, str], data: st.DataObject, seed: int) -> None:
    src, dst = pair
    mode = data.draw(st.sampled_from(PAIRS[pair].split()))
    state = data.draw(states(2048 // max(exact.WIDTH[src], exact.WIDTH[dst])))
    if "s4" in pair:
        state = pairs_only(state)
    at = {"dst": ub(BY_NAME[dst], PLACES["dst"]), "src": ub(BY_NAME[src], PLACES["src"])}
    op = Cast(**at, **data.draw(walks("dst", "src")), mode=RoundMode[mode])

    def compute(bits: int) -> int:
        value = exact.decode(bits, src)
        return exact.encode(exact.convert(value, src, dst, mode, saturate=state.saturate), dst)

    run(
        chip,
        op,
        state,
        seed,
        lambda cells, _: expect_lanewise(cells, op, state, ["dst", "src"], ["src"], compute),
    )


@pytest.mark.parametrize("in_place", [False, True])
def test_narrowing_in_place_reads_ahead_of_what_it_writes(chip: Chip, in_place: bool) -> None:
    at = 0x4000 if in_place else 0x18000
    op = Cast(
        dst=ub(BY_NAME["f16"], at),
        src=ub(BY_NAME["f32"], 0x4000),
        mode=RoundMode.RINT,
        dst_repeat=4,
        repeat=5,
    )

    def compute(bits: int) -> int:
        number = exact.convert(exact.decode(bits, "f32"), "f32", "f16", "RINT", saturate=True)
        return exact.encode(number, "f16")

    def expect(cells: Cells, _: Bench) -> None:
        expect_lanewise(cells, op, State(), ["dst", "src"], ["src"], compute)

    op.check(chip, State())
    bench = Bench(chip, 3)
    bench.numbers("f32", 0x4000, 0x8000, 1)
    expected = Cells(bench.memory)
    expect(expected, bench)
    op.execute(bench.core, State())
    assert bytes(expected.data) == bench.memory.tobytes()


def scale_bits(value: float) -> int:
    """Return the float32 bits of a number."""
    return int(struct.unpack("<I", struct.pack("<f", value))[0])


def read_scale(bits: int) -> Fraction:
    """Return a scale as the hardware reads it: one sign, eight exponent and ten fraction bits."""
    return Fraction(struct.unpack("<f", struct.pack("<I", bits >> 13 << 13))[0])


SCALES = st.sampled_from([1.0, 0.5, 0.1, -3.7, 1e-3, 1.0009765625, 1.00048828125]).map(scale_bits)


@pytest.mark.parametrize("cls", [Cast, CastDequant])
@FEW
@given(data=st.data(), seed=st.integers(0, 1 << 30), scale=SCALES)
def test_dequantised_halves(chip: Chip, cls: Any, data: st.DataObject, seed: int, scale: int) -> None:
    drawn = data.draw(states(64))
    state = State(counter_mode=drawn.counter_mode, mask=drawn.mask, saturate=drawn.saturate, deq_scale=scale)
    op = cls(
        dst=ub(BY_NAME["f16"], PLACES["dst"]), src=ub(BY_NAME["s32"], PLACES["src"]),
        **data.draw(walks("dst", "src")),
    )  # fmt: skip

    def compute(bits: int) -> int:
        exactly = exact.decode(bits, "s32") * read_scale(scale)
        number = exact.to_format(Fraction(exactly), "f16", zero=0.0 * float(read_scale(scale)))
        return exact.encode(exact.clamp(number, "f16", saturate=state.saturate), "f16")

    run(
        chip,
        op,
        state,
        seed,
        lambda cells, _: expect_lanewise(cells, op, state, ["dst", "src"], ["src"], compute),
    )


@FEW
@given(
    data=st.data(), seed=st.integers(0, 1 << 30), scale=SCALES, offset=st.integers(-256, 255),
    signed=st.booleans(), high=st.booleans(),
)  # fmt: skip
def test_dequantised_bytes(
    chip: Chip, data: st.DataObject, seed: int, scale: int, offset: int, signed: bool, high: bool
) -> None:
    drawn = data.draw(states(128))
    state = State(
        counter_mode=drawn.counter_mode,
        mask=drawn.mask,
        deq_scale=scale,
        quant_offset=offset,
        quant_signed=signed,
    )
    dtype = "s8" if signed else "u8"
    op = CastDequant(
        dst=ub(BY_NAME[dtype], PLACES["dst"]), src=ub(BY_NAME["s16"], PLACES["src"]), high_half=high,
        **data.draw(walks("dst", "src")),
    )  # fmt: skip

    def expect(cells: Cells, _: Bench) -> None:
        for repeat in running(state, op.repeat, 128):
            results = []
            for r, lane in repeat:
                bits = cells.get(place(op.src.address, "s16", op.src_block, op.src_repeat, r, lane), 16)
                number = exact.decode(bits, "s16") * read_scale(scale) + offset
                value = exact.wrap(exact.to_integer(Fraction(number), "RINT"), dtype, saturate=True)
                results.append(exact.encode(value, dtype))
            for (r, lane), result in zip(repeat, results, strict=True):
                block = op.dst.address + (r * op.dst_repeat + lane // 16 * op.dst_block) * 32
                cells.put((block + 16 * high + lane % 16) * 8, 8, result)

    run(chip, op, state, seed, expect)


def relu_cast(total: Any, src: str, dst: str, state: State) -> int:
    """Clip below zero and convert."""
    if src == "s16":
        return exact.encode(exact.wrap(max(total, 0), dst, saturate=state.saturate), dst)
    clipped = exact.clamp(exact.larger(total, 0.0), src, saturate=state.saturate)
    return exact.encode(exact.convert(clipped, src, dst, "NONE", saturate=state.saturate), dst)


@pytest.mark.parametrize("cls", [MulCast, AddReluCast, SubReluCast])
@FEW
@given(data=st.data(), seed=st.integers(0, 1 << 30))
def test_two_sources_and_a_conversion(chip: Chip, cls: Any, data: st.DataObject, seed: int) -> None:
    pairs = (
        [("f16", "s8"), ("f16", "u8")] if cls is MulCast else [("f16", "s8"), ("s16", "s8"), ("f32", "f16")]
    )
    src, dst = data.draw(st.sampled_from(pairs))
    state = data.draw(states(2048 // exact.WIDTH[src]))
    types = {"dst": dst, "src0": src, "src1": src}
    at = {n: ub(BY_NAME[t], PLACES[n]) for n, t in types.items()}
    op = cls(**at, **data.draw(walks("dst", "src0", "src1")))

    def compute(*bits: int) -> int:
        a, b = (exact.decode(x, src) for x in bits)
        if cls is MulCast:
            product = exact.clamp(exact.mul(a, b, src), src, saturate=state.saturate)
            return exact.encode(exact.convert(product, src, dst, "NONE", saturate=state.saturate), dst)
        b = b if cls is AddReluCast else -b
        if src == "s16":
            return relu_cast(exact.wrap(int(a + b), src, saturate=state.saturate_int), src, dst, state)
        return relu_cast(exact.clamp(exact.add(a, b, src), src, saturate=state.saturate), src, dst, state)

    names = ["dst", "src0", "src1"]
    run(chip, op, state, seed, lambda cells, _: expect_lanewise(cells, op, state, names, names[1:], compute))
