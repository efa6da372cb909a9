"""References that nothing can be compared with are refused, and what is right for a type passes."""

from __future__ import annotations

import numpy as np
import pytest

from npusim import Builder, Expected, Pipe, isa, program, simulate
from npusim.config.load import load_chip
from npusim.errors import ConfigError
from npusim.report.checked import check
from npusim.report.text import check_text, report_text, values_words

ONES = np.ones(8, np.float32)


def copied(reference, dtype="float32", value=None):
    """Return a program that copies eight elements and has a reference."""

    @program
    def copied(k: Builder) -> None:
        x, y = (
            k.input("x", (8,), dtype, lambda _: ONES if value is None else value),
            k.output("y", (8,), dtype),
        )

        def stream(c):
            tile, loaded = c.ub(8, x.dtype), c.flag(Pipe.MTE2, Pipe.MTE3)
            yield isa.copy_in(tile, x)
            yield loaded.set
            yield loaded.wait
            yield isa.copy_out(y, tile)

        k.launch("copied", vector=stream)
        k.reference(reference)

    return copied


WRONG = {
    "copied: the reference must return a dictionary of Expected by output, not NoneType": lambda _: None,
    "copied: the reference of y must be an Expected with an array, not ndarray": lambda _: {"y": ONES},
    "copied: the reference of y must be an Expected with an array, not float": lambda _: {"y": Expected(1.0)},
    "copied: the reference names z, which is no output": lambda _: {"z": Expected(ONES)},
    "copied: the reference gives y the shape (3,), the program (8,)": lambda _: {"y": Expected(ONES[:3])},
}


@pytest.mark.parametrize("text", WRONG)
def test_references_of_the_wrong_kind(text):
    with pytest.raises(ConfigError) as caught:
        simulate(copied(WRONG[text]), "toy")
    assert str(caught.value) == text


@pytest.mark.parametrize("tolerance", [float("nan"), -1.0, np.full(8, np.nan), "much"])
def test_tolerances_that_would_pass_or_fail_everything(tolerance):
    with pytest.raises(ConfigError) as caught:
        simulate(copied(lambda _: {"y": Expected(ONES, tolerance)}), "toy")
    assert str(caught.value) == "copied: the tolerance of y must be numbers of 0 or more, and no NaN"


def test_a_wrong_value_is_counted():
    values = simulate(
        copied(lambda _: {"y": Expected(np.array([1, 1, 2, 1, 1, 1, 1, 3.0]), 1.5)}), "toy"
    ).values
    assert (values.ok, values.mismatches, values.max_abs_error, values.tolerance) == (False, 1, 2.0, 1.5)


def test_integers_against_a_float_reference():
    values = simulate(copied(lambda _: {"y": Expected(np.full(8, 1.25))}, "int32"), "toy").values
    assert (values.ok, values.max_abs_error, values.max_ulp) == (False, 0.25, 0.25)


@pytest.mark.parametrize(
    ("exact", "ok"), [(6e38, True), (3.5e38, True), (3.4028235e38, False), (-6e38, False)]
)
def test_beyond_the_type_infinity_is_right(exact, ok):
    value = np.full(8, np.inf, np.float32)
    made = copied(lambda _: {"y": Expected(np.full(8, exact))}, value=value)
    assert simulate(made, "toy").values.ok is ok


def test_misuse_of_simulate():
    made = copied(lambda _: {"y": Expected(ONES)})
    for options, text in (
        ({"l2": "hot"}, "l2 must be one of cold, warm, dirty, not 'hot'"),
        ({"seed": -1}, "copied: seed must be a whole number of 0 or more, not -1"),
        ({"inputs": {"x": [1.0] * 8}}, "copied: input x must be a NumPy array, not list"),
    ):
        with pytest.raises(ConfigError) as caught:
            simulate(made, "toy", **options)
        assert str(caught.value) == text


def test_arrays_of_any_layout():
    made = copied(lambda inputs: {"y": Expected(inputs["x"])})
    wide = np.arange(16, dtype=np.float32)
    for x in (wide[::2], wide[::-2], wide[:8].astype(">f4"), np.broadcast_to(np.float32(3), (8,))):
        report = simulate(made, "toy", inputs={"x": x})
        np.testing.assert_array_equal(report.outputs["y"], x)


def test_a_stream_function_without_a_yield():
    @program
    def empty(k: Builder) -> None:
        def forgot(c):
            return None

        k.launch("empty", vector=forgot)

    with pytest.raises(ConfigError) as caught:
        simulate(empty, "toy")
    assert str(caught.value) == (
        "launch empty: core0.vec0: forgot must yield instructions or return a list of them, not NoneType; "
        "is a yield missing?"
    )


def test_what_the_reference_cannot_say_is_not_compared():
    """Infinities of the program are no error there, and an infinite tolerance says nothing of the others."""
    wanted = np.array([9, 9, 1, 1, 1, 1, 1, 1.25])
    open_at_two = np.array([np.inf, np.inf, 0, 0, 0, 0, 0, 0.5])
    given = np.array([np.inf, np.nan, *[1] * 6], np.float32)
    values = simulate(copied(lambda _: {"y": Expected(wanted, open_at_two)}, value=given), "toy").values
    assert (values.ok, values.not_compared, values.max_abs_error, values.tolerance) == (True, 2, 0.25, 0.5)
    why = "2 elements not compared, since the reference cannot say what is right"
    assert values_words(values, computed=True) == f"ok: largest error 0.25, tolerance 0.5; {why}"
    values = simulate(copied(lambda _: {"y": Expected(wanted, np.minimum(open_at_two, 1))}), "toy").values
    assert (values.ok, values.not_compared, values.mismatches) == (False, 0, 2)


def test_nothing_compared():
    values = simulate(copied(lambda _: {"y": Expected(ONES * 3, np.inf)}), "toy").values
    assert (values.ok, values.not_compared, values.max_abs_error, values.tolerance) == (True, 8, None, None)
    words = "no element compared, since the reference cannot say what is right"
    assert values_words(values, computed=True) == words


def test_a_reference_that_gives_nothing_says_what_is_missing():
    made, words = copied(lambda _: {}), "no element compared, since the reference gives no y"
    report = simulate(made, "toy")
    assert report.values.ok is True
    assert f"values      {words}\n" in report_text(report, 110)
    chip = load_chip("toy")
    assert f"values      {words}\n" in check_text(check(made.build(chip), chip), width=110)
    nothing = "no element compared, since the reference gives no output"
    assert values_words(report.values, computed=True) == nothing
