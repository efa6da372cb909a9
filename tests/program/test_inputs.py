"""The content of inputs: seeds, makers, arrays of one's own, four-bit elements."""

from __future__ import annotations

import warnings

import ml_dtypes
import numpy as np
import pytest

from npusim import Builder, Expected, Pipe, isa, load_chip, program, simulate
from npusim.errors import ConfigError
from npusim.program.inputs import make_inputs

TOY = load_chip("toy")


def declared(*declare):
    @program
    def declared(k: Builder) -> None:
        for function in declare:
            function(k)

    return declared.build(TOY)


def test_every_segment_draws_from_its_own_child_of_the_seed():
    built = declared(
        lambda k: k.input("a", (50,), "float32", lambda g: g.uniform(size=50)),
        lambda k: k.output("y", (50,), "float32"),
        lambda k: k.input("b", (50,), "float32", lambda g: g.uniform(size=50)),
    )
    arrays = make_inputs(built, 7)
    assert list(arrays) == ["a", "b"]
    children = np.random.SeedSequence(7).spawn(3)
    for name, child in (("a", children[0]), ("b", children[2])):
        expected = np.random.Generator(np.random.PCG64(child)).uniform(size=50).astype(np.float32)
        np.testing.assert_array_equal(arrays[name], expected)


def test_one_input_does_not_change_with_the_others():
    def alone(k):
        k.input("a", (50,), "int32")

    def larger(k):
        k.input("b", (999,), "int32")

    one, two = make_inputs(declared(alone), 3), make_inputs(declared(alone, larger), 3)
    np.testing.assert_array_equal(one["a"], two["a"])
    given = make_inputs(declared(alone, larger), 3, {"b": np.zeros(999, np.int32)})
    np.testing.assert_array_equal(one["a"], given["a"])
    assert (make_inputs(declared(alone), 4)["a"] != one["a"]).any()


@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [("float16", -4, 4), ("bfloat16", -4, 4), ("int8", -4, 4), ("uint8", 0, 8), ("s4", -4, 4), ("u32", 0, 8)],
)
def test_without_a_maker_inputs_are_small_whole_numbers(dtype, low, high):
    array = make_inputs(declared(lambda k: k.input("a", (40, 50), dtype)), 0)["a"]
    assert array.shape == (40, 50)
    assert (array.min(), array.max()) == (low, high)
    np.testing.assert_array_equal(array, np.round(array.astype(np.float64)))


def test_constants_and_inouts_are_there_and_outputs_are_not():
    table = np.arange(6, dtype=ml_dtypes.bfloat16).reshape(2, 3)
    built = declared(
        lambda k: k.constant("table", table),
        lambda k: k.inout("both", (4,), "float32"),
        lambda k: k.output("out", (4,), "float32"),
        lambda k: k.workspace("work", (4,), "float32"),
    )
    arrays = make_inputs(built, 0)
    assert sorted(arrays) == ["both", "table"]
    np.testing.assert_array_equal(arrays["table"], table)
    assert built.useful_bytes == 16 + 16 + 16  # the inout twice, the output once
    assert [s.name for s in built.inputs] == ["both"]
    assert [s.name for s in built.outputs] == ["both", "out"]


def test_arrays_need_the_type_and_the_shape():
    built = declared(lambda k: k.input("a", (4, 2), "float16"))
    for array, shown in (
        (np.zeros((4, 2), np.float32), "float32 of shape (4, 2)"),
        (np.zeros((2, 4), np.float16), "float16 of shape (2, 4)"),
    ):
        with pytest.raises(ConfigError) as caught:
            make_inputs(built, 0, {"a": array})
        assert str(caught.value) == f"declared: input a must be float16 of shape (4, 2), not {shown}"
    for shape in ((8,), (4, 2, 1)):
        with pytest.raises(ConfigError) as caught:
            make_inputs(built, 0, {"a": np.zeros(shape, np.float16)})
        rule = "but 2 dimensions are needed, as in (4, 2); reshape it"
        assert str(caught.value) == f"declared: input a has shape {shape}, {rule}"


def test_made_numbers_that_the_type_does_not_hold_are_infinities():
    built = declared(
        lambda k: k.input("a", (2,), "float16", lambda _: np.array([1e9, -1e9])),
        lambda k: k.input("b", (2,), "float16", lambda _: np.array([1e9, -1e9]).astype(np.float16)),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        arrays = make_inputs(built, 0)
    assert arrays["a"].tolist() == arrays["b"].tolist() == [np.inf, -np.inf]


def copying(n, dtype):
    """Return a program that copies n elements, whole blocks of them."""

    @program
    def copying(k: Builder) -> None:
        x, y = k.input("x", (n,), dtype), k.output("y", (n,), dtype)

        def stream(c):
            a, loaded = c.ub(n, x.dtype), c.flag(Pipe.MTE2, Pipe.MTE3)
            yield isa.copy_in(a, x)
            yield loaded.set
            yield loaded.wait
            yield isa.copy_out(y, a)

        k.launch("copying", vector=stream)

        @k.reference
        def expected(inputs):
            return {"y": Expected(inputs["x"])}

    return copying


def test_arrays_of_any_order_in_memory():
    @program
    def transposed(k: Builder) -> None:
        x, y = k.input("x", (8, 16), "float32"), k.output("y", (8, 16), "float32")

        def stream(c):
            a, loaded = c.ub((8, 16), x.dtype), c.flag(Pipe.MTE2, Pipe.MTE3)
            yield isa.copy_in(a, x)
            yield loaded.set
            yield loaded.wait
            yield isa.copy_out(y, a)

        k.launch("transposed", vector=stream)

    x = np.arange(128, dtype=np.float32).reshape(16, 8).T
    np.testing.assert_array_equal(simulate(transposed, TOY, inputs={"x": x}).outputs["y"], x)
    strided = np.arange(512, dtype=np.float32).reshape(16, 32)[::2, ::2]
    np.testing.assert_array_equal(simulate(transposed, TOY, inputs={"x": strided}).outputs["y"], strided)


def test_given_arrays_are_not_written_to():
    @program
    def negated(k: Builder) -> None:
        y = k.inout("y", (64,), "float32")

        def stream(c):
            a = c.ub(64, isa.F32)
            yield isa.copy_in(a, y)
            yield isa.PipeBarrier(on=Pipe.ALL)
            yield isa.Muls(dst=a, src=a, scalar=-1.0)
            yield isa.PipeBarrier(on=Pipe.ALL)
            yield isa.copy_out(y, a)

        k.launch("negated", vector=stream)

    given = np.arange(64, dtype=np.float32)
    kept = given.copy()
    np.testing.assert_array_equal(simulate(negated, TOY, inputs={"y": given}).outputs["y"], -kept)
    np.testing.assert_array_equal(given, kept)


def test_four_bit_elements_are_held_one_to_a_byte_outside_and_two_inside():
    x = np.resize(np.arange(-8, 8), 128).astype(np.int8)
    report = simulate(copying(128, "s4"), TOY, inputs={"x": x})
    np.testing.assert_array_equal(report.outputs["y"], x)
    assert report.values.ok
    assert report.gm.useful_bytes == 2 * 64

    @program
    def bytes_of_nibbles(k: Builder) -> None:
        x, y = k.input("x", (64,), "s4"), k.output("y", (32,), "uint8")

        def stream(c):
            a, loaded = c.ub(32, isa.U8), c.flag(Pipe.MTE2, Pipe.MTE3)
            yield isa.copy_in(a, x.as_type(isa.U8))
            yield loaded.set
            yield loaded.wait
            yield isa.copy_out(y, a)

        k.launch("bytes", vector=stream)

    y = simulate(bytes_of_nibbles, TOY, inputs={"x": x[:64]}).outputs["y"]
    np.testing.assert_array_equal(y, (x[:64:2] & 0xF) | (x[1:64:2].astype(np.uint8) << 4))


@pytest.mark.parametrize("value", [-9, 8])
def test_numbers_that_four_bits_do_not_hold(value):
    x = np.zeros(64, np.int8)
    x[5] = value
    with pytest.raises(ConfigError) as caught:
        simulate(copying(64, "s4"), TOY, inputs={"x": x})
    assert str(caught.value) == f"copying: input x must hold -8 to 7 in s4, not {value}"


def test_an_odd_number_of_four_bit_elements():
    @program
    def odd(k: Builder) -> None:
        y = k.inout("y", (5,), "s4")

        def stream(c):
            a = c.ub(32, isa.U8)
            yield isa.DataCopyPad(dst=a, src=y.as_type(isa.U8), block_len=3)
            yield isa.PipeBarrier(on=Pipe.ALL)
            yield isa.DataCopyPad(dst=y.as_type(isa.U8), src=a, block_len=3)

        k.launch("odd", vector=stream)

    y = np.array([-8, 7, 0, -1, 3], np.int8)
    np.testing.assert_array_equal(simulate(odd, TOY, inputs={"y": y}).outputs["y"], y)
