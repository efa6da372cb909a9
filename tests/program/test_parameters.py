"""Parameters of programs: types, values from texts, and whole messages; inputs that decide them."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
from pydantic import PositiveInt

from npusim import Builder, isa, load_chip, program, simulate
from npusim.errors import ConfigError

TOY = load_chip("toy")


@program
def typed(
    k: Builder,
    *,
    n: PositiveInt = 8,
    scale: float = 1.0,
    exact: bool = False,
    dtype: Literal["float16", "float32"] = "float16",
    s: Literal[16, 32] = 16,
    limit: int | None = None,
) -> None:
    """Do nothing at all.

    This line is no part of the summary.
    """
    k.input("x", (n,), dtype)


def message(maker, *args, **options):
    with pytest.raises(ConfigError) as caught:
        maker.build(TOY, *args, **options)
    return str(caught.value)


def test_what_a_program_says_of_itself():
    assert typed.name == "typed"
    assert typed.summary == "Do nothing at all."
    assert typed.parameters() == {
        "n": ("int", 8),
        "scale": ("float", 1.0),
        "exact": ("bool", False),
        "dtype": ("float16 | float32", "float16"),
        "s": ("16 | 32", 16),
        "limit": ("int | None", None),
    }


def test_defaults_and_texts_become_values():
    assert typed.build(TOY).params == {
        "n": 8,
        "scale": 1.0,
        "exact": False,
        "dtype": "float16",
        "s": 16,
        "limit": None,
    }
    texts = {"n": "100", "scale": "1e3", "exact": "true", "dtype": "float32", "s": "32", "limit": "7"}
    assert typed.build(TOY, texts).params == {
        "n": 100,
        "scale": 1000.0,
        "exact": True,
        "dtype": "float32",
        "s": 32,
        "limit": 7,
    }


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"m": 1}, "typed: no parameter m; parameters: n scale exact dtype s limit"),
        (
            {"scales": 1},
            "typed: no parameter scales; did you mean scale?; parameters: n scale exact dtype s limit",
        ),
        (
            {"n": "many"},
            "typed: n=many: input should be a valid integer, unable to parse string as an integer",
        ),
        ({"n": 1.5}, "typed: n=1.5: input should be a valid integer, got a number with a fractional part"),
        ({"n": 0}, "typed: n=0: input should be greater than 0"),
        ({"n": -3}, "typed: n=-3: input should be greater than 0"),
        (
            {"exact": "perhaps"},
            "typed: exact=perhaps: input should be a valid boolean, unable to interpret input",
        ),
        ({"dtype": "int8"}, "typed: dtype=int8: input should be 'float16' or 'float32'"),
        ({"s": 64}, "typed: s=64: input should be 16 or 32"),
        ({"s": "64"}, "typed: s=64: input should be 16 or 32"),
        ({"n": 4, "s": 5}, "typed: s=5: input should be 16 or 32"),
    ],
)
def test_wrong_parameters(given, expected):
    assert message(typed, given) == expected


def test_a_program_without_parameters():
    @program
    def plain(k):
        pass

    assert message(plain, {"n": 1}) == "plain: no parameter n; parameters: none"


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("def f(k, n=5): pass", "f: parameter n must be keyword-only and have a default"),
        ("def f(k, *, n): pass", "f: parameter n must be keyword-only and have a default"),
        ("def f(k, **rest): pass", "f: parameter rest must be keyword-only and have a default"),
        ("def f(k, *, n=5): pass", "f: parameter n must have a type"),
    ],
)
def test_functions_that_are_no_programs(source, text):
    scope = {}
    exec(source, scope)
    with pytest.raises(TypeError) as caught:
        program(scope["f"])
    assert str(caught.value) == text


# ---- segments ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("declare", "expected"),
    [
        (
            lambda k: k.input("a b", (8,), "f32"),
            "segment a b: a name must be a word of letters, digits and underscores",
        ),
        (lambda k: (k.input("a", (8,), "f32"), k.output("a", (8,), "f32")), "segment a is declared twice"),
        (lambda k: k.input("a", (8, 0), "f32"), "segment a: every extent must be 1 or more, not 8x0"),
        (lambda k: k.output("a", (), "f32"), "segment a: every extent must be 1 or more, not no extent"),
        (
            lambda k: k.workspace("a", (999999999,), "f32"),
            "segment a of shape 999999999 needs 3,999,999,996 bytes of global memory, toy has 1,073,741,824",
        ),
    ],
)
def test_wrong_segments(declare, expected):
    @program
    def wrong(k):
        declare(k)

    assert message(wrong) == f"wrong: {expected}"


def test_room_is_that_of_all_segments_together():
    @program
    def large(k):
        k.input("a", (1 << 27,), "f32")
        k.output("b", (1 << 27,), "f32")
        k.workspace("c", (1,), "s8")

    assert message(large) == (
        "large: segment c of shape 1 needs 1,073,741,825 bytes of global memory, toy has 1,073,741,824"
    )


def test_unknown_element_type_of_a_segment():
    @program
    def wrong(k):
        k.input("a", (8,), "float23")

    assert message(wrong) == "element type 'float23' is not known; did you mean float32?"


# ---- launches ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"blocks": 0, "vector": list}, "launch l: blocks must be 1 or more, not 0"),
        ({"coupled": list}, "launch l: toy has split cores, so a coupled launch does not fit it"),
    ],
)
def test_wrong_launches(options, expected):
    @program
    def wrong(k):
        k.launch("l", **options)

    assert message(wrong) == expected


def test_launch_without_a_stream():
    @program
    def wrong(k):
        k.launch("l")

    with pytest.raises(TypeError) as caught:
        wrong.build(TOY)
    assert str(caught.value) == "a launch needs a stream function: cube, vector or coupled"


@pytest.mark.parametrize(
    ("options", "cores"),
    [
        ({"vector": list}, ["core0.vec0"]),
        ({"vector": list, "blocks": 3}, ["core0.vec0", "core0.vec1", "core1.vec0"]),
        ({"cube": list, "blocks": 2}, ["core0.cube0", "core1.cube0"]),
        ({"cube": list, "vector": list}, ["core0.cube0", "core0.vec0", "core0.vec1"]),
        ({"cube": list, "vector": list, "vectors_per_cube": 1}, ["core0.cube0", "core0.vec0"]),
    ],
)
def test_cores_of_a_launch(options, cores):
    @program
    def launched(k):
        k.launch("l", **options)

    launch = launched.build(load_chip("ascend-910b4")).launches[0]
    assert [str(core) for core in launch.streams] == cores


def test_blocks_number_the_vector_cores_or_the_groups():
    blocks = {}

    @program
    def numbered(k):
        def stream(c):
            blocks[str(c.core)] = c.block
            return [isa.PipeBarrier(on=isa.Pipe.ALL)]

        k.launch("vectors", vector=stream, blocks=3)
        k.launch("both", cube=stream, vector=stream, blocks=2)

    simulate(numbered, "ascend-910b4", timing_only=True)
    assert blocks["core1.vec0"] == 1  # the second launch came last; there it is the group
    assert blocks == {
        "core0.cube0": 0,
        "core1.cube0": 1,
        "core0.vec0": 0,
        "core0.vec1": 0,
        "core1.vec0": 1,
        "core1.vec1": 1,
    }


# ---- parameters from inputs --------------------------------------------------------------------------------


@program
def sized(k: Builder, *, n: int = 4, dtype: Literal["float16", "float32"] = "float16") -> None:
    """A program whose parameters follow from its input."""
    k.input("x", (n,), dtype)
    k.input("other", (2,), "float32")


@sized.from_inputs
def _sizes(inputs):
    return {"n": inputs["x"].size, "dtype": inputs["x"].dtype.name}


def test_inputs_decide_parameters():
    other = np.zeros(2, np.float32)
    built = sized.build(TOY, {}, {"x": np.zeros(9, np.float32), "other": other})
    assert built.params == {"n": 9, "dtype": "float32"}
    assert sized.build(TOY, {"n": "9"}, {"x": np.zeros(9, np.float16)}).params["n"] == 9


def test_what_inputs_decide_may_depend_on_what_is_given():
    @program
    def cut(k: Builder, *, rows: int = 2, columns: int = 2) -> None:
        k.input("x", (rows * columns,), "float32")

    @cut.from_inputs
    def _sizes(inputs, given):
        return {"columns": inputs["x"].size // int(given.get("rows", 2))}

    x = np.zeros(12, np.float32)
    assert cut.build(TOY, {}, {"x": x}).params == {"rows": 2, "columns": 6}
    assert cut.build(TOY, {"rows": "3"}, {"x": x}).params == {"rows": 3, "columns": 4}


@pytest.mark.parametrize(
    ("params", "inputs", "expected"),
    [
        ({"n": 8}, {"x": np.zeros(9, np.float16)}, "sized: n=8 contradicts the input, which gives 9"),
        (
            {"dtype": "float32"},
            {"x": np.zeros(9, np.float16)},
            "sized: dtype=float32 contradicts the input, which gives float16",
        ),
        (
            {},
            {"x": np.zeros(9, np.int8)},
            "sized: input x is int8, but must be float16 or float32; convert it",
        ),
        (
            {},
            {"x": np.zeros((3, 3), np.int8)},
            "sized: input x has shape (3, 3), but 1 dimension is needed, as in (4,); reshape it",
        ),
        (
            {},
            {"x": np.zeros(9, np.float16), "others": np.zeros(2)},
            "sized: no input others; did you mean other?; inputs: x other",
        ),
        (
            {},
            {"other": np.zeros(2, np.float32)},
            "sized: parameters follow from input x; give it, too",
        ),
    ],
)
def test_inputs_that_do_not_fit(params, inputs, expected):
    assert message(sized, params, inputs) == expected
