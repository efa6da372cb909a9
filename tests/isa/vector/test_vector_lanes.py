"""Lane-wise arithmetic against loops over single elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import vector_exact as exact
from hypothesis import given
from hypothesis import strategies as st
from vector_bench import (
    FEW,
    PLACES,
    Bench,
    Cells,
    expect_lanewise,
    on_bits,
    run,
    states,
    value_bits,
    value_of_type,
    walks,
)

from npusim.config.chip import Chip
from npusim.isa.dtype import BY_NAME
from npusim.isa.instruction import REGISTRY
from npusim.isa.operand import Imm, Reg
from npusim.isa.state import State
from npusim.isa.vector.lanes import ub

FLOATS = ("f16", "f32")
ALL = ("f16", "f32", "s16", "s32")


def floats(compute: Callable[..., float]) -> Callable[..., Any]:
    """Return a computation on numbers, clamped where the state says so."""

    def on_numbers(dtype: str, state: State, *numbers: float) -> float:
        return exact.clamp(compute(*numbers, dtype), dtype, saturate=state.saturate)

    return on_numbers


def either(on_floats: Callable[..., float], on_ints: Callable[..., int]) -> Callable[..., Any]:
    """Return a computation that has a form for floats and one for integers, which wrap or clamp."""

    def on_numbers(dtype: str, state: State, *numbers: Any) -> Any:
        if dtype in exact.FORMATS:
            return floats(on_floats)(dtype, state, *numbers)
        return exact.wrap(on_ints(*numbers), dtype, saturate=state.saturate_int)

    return on_numbers


ADD = either(exact.add, lambda a, b: a + b)
SUB = either(lambda a, b, t: exact.add(a, -b, t), lambda a, b: a - b)
MUL = either(exact.mul, lambda a, b: a * b)
MAX = either(lambda a, b, t: exact.larger(a, b), max)
MIN = either(lambda a, b, t: exact.smaller(a, b), min)
RELU = either(lambda x, t: exact.larger(x, 0.0), lambda x: max(x, 0))


def then_relu(first: Callable[..., Any]) -> Callable[..., Any]:
    """Return a computation followed by Relu."""
    return lambda t, state, *numbers: RELU(t, state, first(t, state, *numbers))


def leaky(dtype: str, state: State, x: float, slope: float) -> float:
    """LeakyRelu."""
    result = x if x >= 0 else exact.mul(x, slope, dtype)
    return exact.clamp(result, dtype, saturate=state.saturate)


def shift_left(dtype: str, state: State, x: int, count: int) -> int:
    """ShiftLeft: a signed type keeps its sign bit."""
    width = exact.WIDTH[dtype]
    bits = x & ((1 << width) - 1)
    if dtype[0] == "u":
        return bits << count & ((1 << width) - 1)
    sign = bits >> (width - 1)
    return sign << (width - 1) | bits << count & ((1 << (width - 1)) - 1)


TWO = {
    "Add": (ADD, ALL),
    "Sub": (SUB, ALL),
    "Mul": (MUL, ALL),
    "Div": (floats(exact.div), FLOATS),
    "Max": (MAX, ALL),
    "Min": (MIN, ALL),
    "AddRelu": (then_relu(ADD), ("f16", "f32", "s16")),
    "SubRelu": (then_relu(SUB), ("f16", "f32", "s16")),
    "And": (lambda t, s, a, b: a & b, ("s16", "u16")),
    "Or": (lambda t, s, a, b: a | b, ("s16", "u16")),
}
ONE = {
    "Exp": (floats(lambda x, t: exact.function("exp", x, t)), FLOATS),
    "Ln": (floats(lambda x, t: exact.function("ln", x, t)), FLOATS),
    "Sqrt": (floats(lambda x, t: exact.function("sqrt", x, t)), FLOATS),
    "Rsqrt": (floats(lambda x, t: exact.function("rsqrt", x, t)), FLOATS),
    "Reciprocal": (floats(lambda x, t: exact.function("rec", x, t)), FLOATS),
    "Abs": (floats(lambda x, t: abs(x)), FLOATS),
    "Relu": (RELU, ("f16", "f32", "s32")),
    "Not": (lambda t, s, x: ~x, ("s16", "u16")),
}
VALUE = {
    "Adds": (ADD, ALL),
    "Muls": (MUL, ALL),
    "Maxs": (MAX, ALL),
    "Mins": (MIN, ALL),
    "LeakyRelu": (leaky, FLOATS),
    "ShiftLeft": (shift_left, ("s16", "u16", "s32", "u32")),
    "ShiftRight": (lambda t, s, x, n: x >> n, ("s16", "u16", "s32", "u32")),
}
FMA = {
    "MulAddDst": lambda t, s, d, a, b: floats(exact.fma)(t, s, a, b, d),
    "FusedMulAdd": lambda t, s, d, a, b: floats(exact.fma)(t, s, a, d, b),
    "MulAddRelu": then_relu(lambda t, s, d, a, b: floats(exact.fma)(t, s, a, d, b)),
}


@pytest.mark.parametrize("mnemonic", TWO)
@FEW
@given(data=st.data(), seed=st.integers(0, 1 << 30))
def test_two_sources(chip: Chip, mnemonic: str, data: st.DataObject, seed: int) -> None:
    compute, types = TWO[mnemonic]
    dtype = data.draw(st.sampled_from(types))
    state = data.draw(states(2048 // exact.WIDTH[dtype]))
    fields = data.draw(walks("dst", "src0", "src1"))
    at = {n: ub(BY_NAME[dtype], PLACES[n]) for n in ("dst", "src0", "src1")}
    if data.draw(st.booleans()):  # in place
        source = data.draw(st.sampled_from(("src0", "src1")))
        at[source] = at["dst"]
        fields |= {"dst_repeat": 40, f"{source}_repeat": 40, f"{source}_block": fields["dst_block"]}
    op = REGISTRY[mnemonic](**at, **fields)
    bits = on_bits(op, state, [dtype, dtype], dtype, compute)
    run(
        chip, op, state, seed,
        lambda cells, _: expect_lanewise(cells, op, state, ["dst", "src0", "src1"], ["src0", "src1"], bits),
    )  # fmt: skip


@pytest.mark.parametrize("mnemonic", ONE)
@FEW
@given(data=st.data(), seed=st.integers(0, 1 << 30))
def test_one_source(chip: Chip, mnemonic: str, data: st.DataObject, seed: int) -> None:
    compute, types = ONE[mnemonic]
    dtype = data.draw(st.sampled_from(types))
    state = data.draw(states(2048 // exact.WIDTH[dtype]))
    op = REGISTRY[mnemonic](
        **{n: ub(BY_NAME[dtype], PLACES[n]) for n in ("dst", "src")}, **data.draw(walks("dst", "src"))
    )
    bits = on_bits(op, state, [dtype], dtype, compute)
    run(
        chip,
        op,
        state,
        seed,
        lambda cells, _: expect_lanewise(cells, op, state, ["dst", "src"], ["src"], bits),
    )


@pytest.mark.parametrize("mnemonic", VALUE)
@FEW
@given(data=st.data(), seed=st.integers(0, 1 << 30))
def test_source_and_value(chip: Chip, mnemonic: str, data: st.DataObject, seed: int) -> None:
    compute, types = VALUE[mnemonic]
    dtype = data.draw(st.sampled_from(types))
    width = exact.WIDTH[dtype]
    state = data.draw(states(2048 // width))
    number = st.integers(0, width) if "Shift" in mnemonic else value_of_type(dtype)
    value = Imm(data.draw(number))
    fields = data.draw(walks("dst", "src"))
    if mnemonic == "ShiftRight" and dtype[0] == "s" and data.draw(st.booleans()):
        fields["round"] = True

        def compute(t: str, s: State, x: int, n: int) -> int:
            return (x >> n) + (x >> (n - 1) & 1 if n else 0)

    at = {n: ub(BY_NAME[dtype], PLACES[n]) for n in ("dst", "src")}
    op = REGISTRY[mnemonic](**at, **fields, scalar=Reg(3) if data.draw(st.booleans()) else value)

    def expect(cells: Cells, bench: Bench) -> None:
        scalar = exact.decode(value_bits(op, bench.core), dtype)
        bits = on_bits(op, state, [dtype], dtype, lambda t, s, x: compute(t, s, x, scalar))
        expect_lanewise(cells, op, state, ["dst", "src"], ["src"], bits)

    run(chip, op, state, seed, expect, register=value.bits)


@pytest.mark.parametrize("mnemonic", FMA)
@FEW
@given(data=st.data(), seed=st.integers(0, 1 << 30))
def test_multiply_add(chip: Chip, mnemonic: str, data: st.DataObject, seed: int) -> None:
    compute = FMA[mnemonic]
    pairs = [("f16", "f16"), ("f32", "f32"), *([("f32", "f16")] if mnemonic == "MulAddDst" else [])]
    result, source = data.draw(st.sampled_from(pairs))
    state = data.draw(states(2048 // exact.WIDTH[result]))
    types = {"dst": result, "src0": source, "src1": source}
    at = {n: ub(BY_NAME[t], PLACES[n]) for n, t in types.items()}
    fields = data.draw(walks("dst", "src0", "src1"))
    fields["dst_repeat"] = max(fields["dst_repeat"], 36)  # the destination is a source: repeats stay apart
    op = REGISTRY[mnemonic](**at, **fields)
    bits = on_bits(op, state, [result, source, source], result, compute)
    names = ["dst", "src0", "src1"]
    run(chip, op, state, seed, lambda cells, _: expect_lanewise(cells, op, state, names, names, bits))


@FEW
@given(data=st.data(), seed=st.integers(0, 1 << 30))
def test_axpy(chip: Chip, data: st.DataObject, seed: int) -> None:
    result, source = data.draw(st.sampled_from([("f16", "f16"), ("f32", "f32"), ("f32", "f16")]))
    state = data.draw(states(2048 // exact.WIDTH[result]))
    value = data.draw(value_of_type(source))
    fields = data.draw(walks("dst", "src"))
    fields["dst_repeat"] = max(fields["dst_repeat"], 36)
    at = {"dst": ub(BY_NAME[result], PLACES["dst"]), "src": ub(BY_NAME[source], PLACES["src"])}
    op = REGISTRY["Axpy"](**at, **fields, scalar=Imm(value))
    alpha = exact.decode(value, source)
    bits = on_bits(
        op, state, [result, source], result,
        lambda t, s, d, x: floats(exact.fma)(t, s, x, alpha, d),
    )  # fmt: skip
    names = ["dst", "src"]
    run(chip, op, state, seed, lambda cells, _: expect_lanewise(cells, op, state, names, names, bits))


@pytest.mark.parametrize("mnemonic", ["Add", "Sub", "Mul", "Max", "Min", "AddRelu", "SubRelu"])
@FEW
@given(data=st.data(), seed=st.integers(0, 1 << 30))
def test_accumulation_over_repeats(chip: Chip, mnemonic: str, data: st.DataObject, seed: int) -> None:
    """The second source may be what earlier repeats wrote, where it or the destination stays in place."""
    compute, types = TWO[mnemonic]
    dtype = data.draw(st.sampled_from([t for t in types if t != "s16"]))
    state = State(mask=data.draw(st.integers(1, (1 << 64) - 1)), saturate=data.draw(st.booleans()))
    at = {n: ub(BY_NAME[dtype], PLACES[n]) for n in ("dst", "src0")}
    still = data.draw(st.sampled_from([(0, 0), (8, 0)]))
    fields = {"dst_repeat": still[0], "src1_repeat": still[1], "repeat": data.draw(st.integers(0, 5))}
    op = REGISTRY[mnemonic](**at, src1=at["dst"], **fields)
    bits = on_bits(op, state, [dtype, dtype], dtype, compute)
    run(
        chip, op, state, seed,
        lambda cells, _: expect_lanewise(cells, op, state, ["dst", "src0", "src1"], ["src0", "src1"], bits),
    )  # fmt: skip


@pytest.mark.parametrize(("block", "repeat"), [(1, 3), (4, 1), (5, 5), (2, 0)])
def test_later_repeats_overwrite_earlier_ones(chip: Chip, block: int, repeat: int) -> None:
    """Repeats that write the same bytes run in order."""
    at = {n: ub(BY_NAME["f32"], PLACES[n]) for n in ("dst", "src")}
    op = REGISTRY["Abs"](**at, dst_block=block, dst_repeat=repeat, repeat=40)
    bits = on_bits(op, State(), ["f32"], "f32", ONE["Abs"][0])

    def expect(cells: Cells, _: Bench) -> None:
        expect_lanewise(cells, op, State(), ["dst", "src"], ["src"], bits)

    run(chip, op, State(), 5, expect)
