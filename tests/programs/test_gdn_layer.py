"""The chunked Gated DeltaNet layer: values against the recurrence, and what its stages wait for."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from npusim import simulate
from npusim.errors import ConfigError

SMALL = {"heads": 2, "key_heads": 1, "key_dim": 16, "value_dim": 32}


def layer(chip="toy", **params):
    return simulate("gdn_layer", chip, **{**SMALL, **params})


def cycles(report):
    return {launch.name: launch.cycles for launch in report.launches}


def token_by_token(inputs, lengths, group):
    """Plain loops over tokens and heads, with nothing but dot products."""
    q, k, v, beta, g = (np.asarray(inputs[name], np.float64) for name in ("q", "k", "v", "beta", "g"))
    o = np.zeros(v.shape)
    finals = []
    start = 0
    for length in lengths:
        for head in range(v.shape[1]):
            state = np.zeros((k.shape[2], v.shape[2]))
            for t in range(start, start + length):
                key = k[t, head // group]
                state = np.exp(g[t, head]) * state
                state = state + np.outer(key, beta[t, head] * (v[t, head] - key @ state))
                o[t, head] = q[t, head // group] @ state
            finals.append(state)
        start += length
    return o, np.array(finals)


def made_inputs(tokens, seed, heads=2, dk=16, dv=32):
    generator = np.random.default_rng(seed)
    rows = generator.standard_normal((2, tokens, 1, dk))
    q, k = (rows / np.linalg.norm(rows, axis=-1, keepdims=True)).astype(np.float16)
    return {
        "q": q,
        "k": k,
        "v": generator.standard_normal((tokens, heads, dv)).astype(np.float16),
        "beta": generator.uniform(0, 1, (tokens, heads)).astype(np.float16),
        "g": -generator.exponential(0.01, (tokens, heads)).astype(np.float32),
    }


def test_outputs_are_those_of_the_recurrence():
    inputs = made_inputs(107, 3)
    report = layer(inputs=inputs, lengths="74,33")
    assert report.values.ok
    o, finals = token_by_token(inputs, [74, 33], 2)
    error = np.linalg.norm(report.outputs["o"].astype(np.float64) - o) / np.linalg.norm(o)
    assert 1e-5 < error < 8e-4  # half precision: not exact, and not worse
    final = report.outputs["final"].astype(np.float64).reshape(finals.shape)
    assert np.linalg.norm(final - finals) < 8e-4 * np.linalg.norm(finals)


@pytest.mark.parametrize("lengths", ["1", "32,33", "31,2,65"])
def test_chunks_of_any_length_are_right(lengths):
    assert layer(lengths=lengths).values.ok


@pytest.mark.parametrize(
    "params",
    [
        {"gate": False, "lengths": "65"},
        {"inverse": "mbh"},
        {"inverse": "mch", "down": "strides"},
        {"reuse": True, "across": "scalar", "overflow": "saturate"},
        {"dtype": "bfloat16"},
        {"heads": 3, "key_heads": 3, "key_dim": 32, "value_dim": 16},
    ],
)
def test_every_way_to_compute_it_is_right(params):
    assert layer(**{"lengths": "40,5", **params}).values.ok


def test_chunks_of_128_on_a_device():
    report = layer("ascend-910b2", heads=1, chunk=128, lengths="129", key_dim=128, value_dim=64)
    assert report.values.ok


def test_one_launch_gives_the_same_bytes():
    apart, together = (layer(lengths="70,5", fused=fused) for fused in (False, True))
    for name in apart.outputs:
        assert together.outputs[name].tobytes() == apart.outputs[name].tobytes()
    assert list(cycles(together)) == ["gdn_layer"]
    assert list(cycles(apart)) == ["gdn_prepare", "gdn_kkt", "gdn_tril", "gdn_wy", "gdn_h", "gdn_o"]


def test_one_launch_saves_more_starts_than_meetings_cost():
    short = {"heads": 24, "key_heads": 24, "lengths": "64", "timing_only": True}
    apart, together = (layer("ascend-910b2", fused=fused, **short) for fused in (False, True))
    assert together.total_cycles > apart.total_cycles  # all cores meet five times
    assert together.time_us < apart.time_us


def test_only_the_recurrence_takes_longer_with_the_chunks_of_one_head():
    one = {"heads": 1, "key_heads": 1, "timing_only": True}
    short, long = (cycles(layer("ascend-910b2", length=64 * n, sequences=1, **one)) for n in (4, 16))
    assert 3.5 < long["gdn_h"] / short["gdn_h"] < 4.1
    for name in ("gdn_kkt", "gdn_tril", "gdn_wy", "gdn_o"):
        assert long[name] < 1.3 * short[name], name  # every chunk has a core of its own


def test_spreading_by_strides_saves_vector_time():
    runs = {down: cycles(layer(lengths="64", down=down, timing_only=True)) for down in ("copies", "strides")}
    assert runs["strides"]["gdn_kkt"] < runs["copies"]["gdn_kkt"]
    assert runs["strides"]["gdn_h"] == runs["copies"]["gdn_h"]  # it spreads columns only


def test_a_nan_stays_in_its_head_and_column():
    """Products of a chunk bring it to tokens before its own, too, so nothing is compared in that head."""
    inputs = made_inputs(70, 5)
    inputs["v"][40, 1, 3] = np.nan
    report = layer(inputs=inputs, lengths="70")
    o = report.outputs["o"]
    assert report.values.ok
    assert np.isnan(o[:, 1, 3]).all()
    assert np.isfinite(o[:, 0]).all()
    assert np.isfinite(np.delete(o[:, 1], 3, axis=1)).all()


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"heads": 3, "key_heads": 2}, "gdn_layer: heads=3 is no multiple of key_heads=2"),
        (
            {"lengths": "5,x"},
            "gdn_layer: lengths=5,x: numbers of 1 or more with commas are needed, as 100,37",
        ),
        (
            {"heads": 1024, "key_heads": 1, "lengths": "5"},
            "gdn_layer: heads=1024: rows lie 65536 elements apart, a copy takes 65535; use fewer heads",
        ),
    ],
)
def test_bad_parameters_are_refused(params, message):
    with pytest.raises(ConfigError) as raised:
        layer(**params)
    assert str(raised.value) == message


@pytest.mark.parametrize(
    ("name", "factor"), [("k", 3), ("k", 100), ("k", 60_000), ("v", 30_000), ("q", 60_000)]
)
def test_finite_inputs_whose_results_leave_the_type(name, factor):
    """Of the first sequence nothing can be said, all of the second is compared."""
    inputs = made_inputs(90, 5)
    rows = inputs[name][:70].astype(np.float64) * factor
    inputs[name][:70] = np.clip(rows, -65504, 65504)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report = layer(inputs=inputs, lengths="70,20")
    assert report.values.ok
    assert report.values.not_compared == 2 * 70 * 32 + 2 * 16 * 32
    assert report.values.tolerance < 0.1


@pytest.mark.parametrize(
    ("params", "shown"),
    [
        ({}, "sequences=2 of length=160 have 320"),
        ({"length": 35, "sequences": "3"}, "sequences=3 of length=35 have 105"),
        ({"sequences": 3}, "sequences=3 of length=160 have 480"),
        ({"length": 64}, "sequences=2 of length=64 have 128"),
        ({"lengths": "50,21"}, "lengths=50,21 have 71"),
    ],
)
def test_tokens_that_are_not_those_of_the_inputs(params, shown):
    with pytest.raises(ConfigError) as raised:
        simulate("gdn_layer", "toy", inputs=made_inputs(70, 1), **params)
    advice = "give lengths=70 for one sequence"
    assert str(raised.value) == f"gdn_layer: the inputs have 70 tokens, but {shown}; {advice}"


def test_sequences_follow_from_their_length_and_the_other_way_round():
    inputs = made_inputs(70, 1)
    for params in ({"sequences": 2}, {"length": "35"}, {"lengths": "35,35"}):
        report = simulate("gdn_layer", "toy", inputs=inputs, timing_only=True, **params)
        wanted = ("", 35, 2) if "lengths" not in params else ("35,35", 160, 2)
        assert tuple(report.params[name] for name in ("lengths", "length", "sequences")) == wanted


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_gate_that_is_not_finite(value):
    """It takes its own head of its own sequence with it, and no other."""
    g = np.full((70, 2), -0.1, np.float32)
    g[3, 1] = value
    sizes = {"heads": 2, "key_heads": 1, "key_dim": 16, "value_dim": 16}
    report = simulate("gdn_layer", "toy", inputs={"g": g}, lengths="50,20", **sizes)
    assert report.values.ok
    assert report.values.not_compared == 50 * 16 + 16 * 16
