"""The timing machine against a plain one, and what must hold of it whatever the program."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import pairwise
from math import inf

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import event, given, settings
from plain_engine import Plain
from random_programs import TOY, changed, chip_for, launches, numbers, resolved

from npusim import load_chip, simulate
from npusim.check.bounds import link_bounds
from npusim.check.recurrence import Recurrence
from npusim.machine.timing.account import Cause
from npusim.machine.timing.engine import TimingMachine

L2_STATES = st.sampled_from(["cold", "warm", "dirty"])


def by_cause(clock, total):
    """Return the cycles of a pipe by cause, the tail included and zeros left out."""
    found = {cause.name.lower(): cycles for cause, cycles in zip(Cause, clock.cycles, strict=True)}
    found["tail"] = total - sum(clock.cycles)
    return {cause: cycles for cause, cycles in found.items() if cycles}


@settings(max_examples=150, deadline=None, derandomize=True)
@given(launches(), st.data())
def test_two_engines_agree(launch, data):
    kind, streams = launch
    chip = changed(chip_for(kind), data.draw(numbers(kind)))
    l2 = data.draw(L2_STATES)
    built, ops = resolved(chip, kind, streams)
    timed = TimingMachine(chip, built.segments, l2=l2).run("random", ops)
    plain = Plain(chip, built.segments, l2)
    total = plain.run(ops)
    if plain.tied:
        event("two accesses to L2 in one cycle")
        return
    expected = {
        f"{core.id}.{pipe.name}": core.cycles(pipe, total) for core in plain.cores for pipe in core.log
    }
    assert timed.cycles == total
    assert {c.name: by_cause(c, total) for c in timed.clocks} == expected


@settings(max_examples=60, deadline=None, derandomize=True)
@given(launches(), st.data())
def test_spans_tile_the_time_of_every_pipe_and_change_nothing(launch, data):
    kind, streams = launch
    chip = changed(chip_for(kind), data.draw(numbers(kind)))
    built, ops = resolved(chip, kind, streams)
    bare = TimingMachine(chip, built.segments).run("random", ops)
    timed = TimingMachine(chip, built.segments, spans=True).run("random", ops)
    assert (timed.cycles, [c.cycles for c in timed.clocks]) == (bare.cycles, [c.cycles for c in bare.clocks])
    rows = list(
        zip(*(getattr(timed.spans, n) for n in ("pipe", "cause", "start", "stop", "op")), strict=True)
    )
    for clock in timed.clocks:
        mine = [row[1:] for row in rows if row[0] == clock.index]
        assert all(start < stop for _, start, stop, _ in mine)
        assert all(a[2] == b[1] for a, b in pairwise(mine))
        assert not mine or mine[0][1] == 0
        assert clock.cursor == (mine[-1][2] if mine else 0) <= timed.cycles
        for cause in Cause:
            assert clock.cycles[cause] == sum(stop - start for c, start, stop, _ in mine if c == cause)
        stream = next(s for s in ops if s.core == clock.core).ops
        assert all(stream[op].pipe in (clock.pipe, Cause) or clock.pipe == 0 for *_, op in mine)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(launches(), st.data())
def test_time_is_never_below_a_bound(launch, data):
    kind, streams = launch
    chip = changed(chip_for(kind), data.draw(numbers(kind)))
    built, ops = resolved(chip, kind, streams)
    timed = TimingMachine(chip, built.segments, l2=data.draw(L2_STATES)).run("random", ops)
    flag_only, compute = Recurrence(chip, [(s.core, s.items) for s in ops]).run()
    t = timed.traffic
    hbm, l2 = link_bounds(chip, t.read_bytes, t.write_bytes, t.hbm_read_bytes, t.hbm_write_bytes)
    assert timed.cycles >= max(flag_only, compute, l2)
    assert timed.cycles >= hbm
    for clock in timed.clocks:
        assert min(clock.cycles) >= 0
        assert sum(clock.cycles) <= timed.cycles


@settings(max_examples=100, deadline=None, derandomize=True)
@given(launches(), st.data())
def test_infinite_links_leave_the_chain_of_flags_and_pipes(launch, data):
    kind, streams = launch
    chip = changed(chip_for(kind), data.draw(numbers(kind)))
    fast = {"l2.read_bytes_per_cycle": inf, "l2.write_bytes_per_cycle": inf, "hbm.nominal_gb_per_s": inf}
    fast["hbm.read_latency_ns"] = chip.l2.read_latency_ns
    for name in ("gm_to_ub", "gm_to_l1", "ub_to_gm", "l0c_to_gm"):
        port = getattr(chip.ports, name)
        if port is not None:
            unit = "bytes" if port.bytes_per_cycle is not None else "elements"
            fast[f"ports.{name}.{unit}_per_cycle"] = inf
    chip = changed(chip, fast)
    built, ops = resolved(chip, kind, streams)
    timed = TimingMachine(chip, built.segments, l2=data.draw(L2_STATES)).run("random", ops)
    flag_only, _ = Recurrence(chip, [(s.core, s.items) for s in ops]).run()
    assert timed.cycles == flag_only


@pytest.mark.parametrize(
    ("program", "params"),
    [
        ("memcopy", {"n": 5000, "tile": 512}),
        ("scan_u", {"n": 5000, "s": 32}),
        ("scan_ul1", {"n": 5000, "s": 32}),
        ("cumsum_vec", {"n": 1000, "s": 16}),
    ],
)
def test_values_do_not_depend_on_the_timing(program, params):
    """Every chip with the same numerics gives the same bits, however slow its parts are."""
    slow = {"queues.v": 1, "queues.mte2": 1, "flags.latency_cycles": 999, "hbm.nominal_gb_per_s": 1.0}
    chips = [TOY, load_chip("ascend-910b4"), load_chip("ascend-910b1"), changed(TOY, slow)]
    reports = [simulate(program, chip, **params) for chip in chips]
    assert len({r.numerics for r in reports}) == 1
    assert all(r.values.ok for r in reports)
    assert len({r.outputs["y"].tobytes() for r in reports}) == 1
    assert len({r.total_cycles for r in reports}) == len(chips)


def test_report_does_not_depend_on_the_order_of_hashes():
    code = (
        "from npusim import simulate\n"
        "for program, n in (('scan_u', 3000), ('memcopy', 3000)):\n"
        "    print(simulate(program, 'ascend-910b4', n=n).to_json())\n"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


def test_same_run_gives_the_same_report():
    reports = [simulate("scan_ul1", "ascend-910b4", n=20000, s=64) for _ in range(2)]
    assert reports[0].to_json() == reports[1].to_json()
    np.testing.assert_array_equal(reports[0].outputs["y"], reports[1].outputs["y"])
