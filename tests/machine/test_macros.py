"""Macros change nothing but the work it takes to time them."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from plain_engine import Plain
from random_programs import (
    COUPLED,
    MTE2,
    MTE3,
    TOY,
    S,
    V,
    at,
    changed,
    load,
    numbers,
    resolved,
    store,
    stretch,
    vector_work,
)

from npusim import Builder, Macro, Operand, Pipe, Reg, Space, isa, program, simulate
from npusim.check.recurrence import Recurrence
from npusim.errors import ConfigError, DeadlockError
from npusim.machine.timing.account import Cause
from npusim.machine.timing.engine import TimingMachine
from npusim.machine.timing.macros import Player

LEFT = at(Space.UB, isa.F32)


def flag(src: Pipe, dst: Pipe, event: int = 2) -> list[Any]:
    return [isa.SetFlag(src=src, dst=dst, id=event), isa.WaitFlag(src=src, dst=dst, id=event)]


def inside(draw: Any) -> list[Any]:
    """Instructions for a macro; some may be played at once, some must not."""
    ops: list[Any] = []
    for _ in range(draw(st.integers(1, 5))):
        what = draw(st.sampled_from(["work", "work", "read", "state", "barrier", "back", "there", "odd"]))
        if what == "work":
            work = vector_work(draw)
            ops.append(isa.Duplicate(dst=at(Space.UB, isa.F32), scalar=0.0) if work.returns_value else work)
        elif what == "read":
            ops += [*flag(V, S), isa.GetValue(reg=0, src=at(Space.UB, isa.F32, 4))]
        elif what == "state":
            ops += [isa.SetVectorMask(mask=draw(st.integers(1, 64))), isa.ScalarWork(count=2)]
        elif what == "barrier":
            ops.append(isa.PipeBarrier(on=V))
        elif what == "back":
            ops += flag(V, S)
        elif what == "there":
            ops += flag(S, V)
        elif draw(st.booleans()):
            odd = [
                load(draw),
                isa.PipeBarrier(on=Pipe.ALL),
                isa.GetValue(reg=0, src=Operand(Space.GM, isa.F32, 0)),
            ]
            ops.append(draw(st.sampled_from(odd)))
    if draw(st.integers(0, 3)) or not ops:
        ops += flag(V, S)
    return ops


def open_macro(draw: Any) -> list[Any]:
    """Return what stands before a macro, the macro, and what stands behind it: it may wait for flags raised
    before it, raise some for others, and take one from the macro before and hand it on.
    """
    ops, before, behind = inside(draw), [], []
    if draw(st.booleans()):
        ops.insert(draw(st.integers(0, len(ops))), isa.WaitFlag(src=MTE2, dst=V, id=3))
        before = [load(draw), isa.SetFlag(src=MTE2, dst=V, id=3)]
    if draw(st.booleans()):
        ops.insert(draw(st.integers(0, len(ops))), isa.SetFlag(src=V, dst=MTE3, id=3))
        behind = [isa.WaitFlag(src=V, dst=MTE3, id=3), store(draw)]
    if draw(st.booleans()):
        src = draw(st.sampled_from([S, MTE2]))
        taken, given = isa.WaitFlag(src=src, dst=V, id=4), isa.SetFlag(src=src, dst=V, id=4)
        at = draw(st.integers(0, len(ops)))
        ops[at:at] = [taken, *([] if draw(st.booleans()) else [isa.Duplicate(dst=LEFT, scalar=0.0)]), given]
        before = [given, *before]
        behind = [*behind, taken]
    body = [*before, Macro(ops), *behind]
    if draw(st.booleans()):
        return body
    return [*before, *before, body[len(before)], body[len(before)], *behind, *behind]


@st.composite
def streams(draw: Any) -> list[list[Any]]:
    """Return streams of vector cores with macros that come again, between loads and stores."""
    found = []
    for _ in range(draw(st.integers(1, 2))):
        macros = [Macro(inside(draw)) for _ in range(draw(st.integers(1, 3)))]
        others = [open_macro(draw) for _ in range(draw(st.integers(0, 2)))]
        ops: list[Any] = []
        for _ in range(draw(st.integers(2, 16))):
            kinds = ["macro", "macro", "open", "open", "ahead", "load", "store", "stretch"]
            what = draw(st.sampled_from(kinds))
            if what == "macro":
                ops += [draw(st.sampled_from(macros))] * draw(st.integers(1, 4))
            elif what == "open" and others:
                ops += draw(st.sampled_from(others)) * draw(st.integers(1, 4))
            elif what == "ahead":
                ops += [vector_work(draw) for _ in range(draw(st.integers(1, 4)))]
            elif what == "load":
                ops += [load(draw), *flag(MTE2, V)]
            elif what == "store":
                ops += [*flag(V, MTE3), store(draw), *flag(MTE3, V)]
            else:
                ops += stretch(draw, "vec", 4)
        found.append(ops)
    return found


def flat(ops: list[Any]) -> list[Any]:
    return [op for item in ops for op in (item.ops if isinstance(item, Macro) else [item])]


def causes(clock: Any) -> dict[str, int]:
    return {c.name: n for c, n in zip(Cause, clock.cycles, strict=True)} | {
        "instructions": clock.instructions
    }


@settings(max_examples=120, deadline=None, derandomize=True)
@given(streams(), st.data())
def test_macros_take_the_time_of_their_instructions(found, data):
    chip = changed(TOY, data.draw(numbers("vec")))
    built, expanded = resolved(chip, "vec", [flat(ops) for ops in found])
    _, kept = resolved(chip, "vec", found)
    plain = Plain(chip, built.segments)
    plain.run(expanded)
    flag_only = Recurrence(chip, [(s.core, s.items) for s in expanded]).run()
    assert Recurrence(chip, [(s.core, s.items) for s in kept]).run() == flag_only
    if plain.tied:
        return
    one_by_one = TimingMachine(chip, built.segments).run("random", expanded)
    at_once = TimingMachine(chip, built.segments).run("random", kept)
    assert at_once.cycles == one_by_one.cycles
    assert [causes(c) for c in at_once.clocks] == [causes(c) for c in one_by_one.clocks]
    assert at_once.priced == one_by_one.priced
    assert at_once.element_ops == one_by_one.element_ops
    assert at_once.traffic == one_by_one.traffic


@st.composite
def buffered(draw: Any) -> list[Any]:
    """Return a stream that loads into some buffers, works on them in macros, and stores: every buffer has a
    flag that says it is full and one that says it is free, most of which are raised outside the macro that
    waits for them.
    """
    buffers = draw(st.integers(1, 3))
    sizes = [draw(st.integers(0, 255)) for _ in range(buffers)]
    loads = draw(st.lists(st.sampled_from([1, 64, 300, 1024]), min_size=1, max_size=3))
    inner = draw(st.booleans())
    """Whether the result waits in the macro, for a flag that the macro before it raised."""

    def product(buffer: int) -> list[Any]:
        work = isa.Duplicate(dst=LEFT, scalar=0.0, repeat=sizes[buffer])
        ops = [isa.WaitFlag(src=MTE2, dst=V, id=buffer), work, isa.SetFlag(src=V, dst=MTE2, id=buffer)]
        if inner:
            ops[1:1] = [isa.WaitFlag(src=S, dst=V, id=3), *flag(V, V, 4), isa.SetFlag(src=S, dst=V, id=3)]
        return [*ops, isa.SetFlag(src=V, dst=MTE3, id=buffer)]

    macros = [Macro(product(b)) for b in range(buffers)]
    free = [isa.SetFlag(src=V, dst=MTE2, id=b) for b in range(buffers)]
    ops: list[Any] = [isa.SetFlag(src=S, dst=V, id=3), *free]
    rounds, ahead = draw(st.integers(1, 30)), draw(st.integers(0, buffers - 1))
    for number in range(rounds + ahead):
        buffer = number % buffers
        if number < rounds:
            length = loads[number % len(loads)]
            load_one = isa.DataCopy(dst=LEFT, src=Operand(Space.GM, isa.F32, 0), block_len=length)
            full = isa.SetFlag(src=MTE2, dst=V, id=buffer)
            ops += [isa.WaitFlag(src=V, dst=MTE2, id=buffer), load_one, full]
        if number >= ahead:
            buffer = (number - ahead) % buffers
            ops += [macros[buffer], isa.WaitFlag(src=V, dst=MTE3, id=buffer), store_one]
    return [*ops, *(isa.WaitFlag(src=V, dst=MTE2, id=b) for b in range(buffers))]


load_eight = isa.DataCopy(dst=LEFT, src=Operand(Space.GM, isa.F32, 0), block_len=8)
store_one = isa.DataCopy(dst=Operand(Space.GM, isa.F32, 0), src=LEFT, block_len=8)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(buffered(), st.data())
def test_macros_between_flags_of_others(ops, data):
    both_ways(changed(TOY, data.draw(numbers("vec"))), "vec", ops)


def both_ways(chip: Any, kind: str, ops: list[Any]) -> None:
    """A stream with macros takes the time of the same stream without."""
    built, kept = resolved(chip, kind, [ops])
    _, expanded = resolved(chip, kind, [flat(ops)])
    plain = Plain(chip, built.segments)
    timed = TimingMachine(chip, built.segments).run("one", kept)
    assert timed.cycles == plain.run(expanded)
    one_by_one = TimingMachine(chip, built.segments).run("one", expanded)
    assert [causes(c) for c in timed.clocks] == [causes(c) for c in one_by_one.clocks]
    assert Recurrence(chip, [(kept[0].core, kept[0].items)]).run() == (
        Recurrence(chip, [(kept[0].core, expanded[0].items)]).run()
    )


def fill(repeat: int) -> Any:
    return isa.Duplicate(dst=at(Space.UB, isa.F32), scalar=0.0, repeat=repeat)


def test_a_pipe_that_waits_for_the_flag_of_a_macro_takes_it():
    """Three times over, so that what the macro did the first time could be done again."""
    done = isa.SetFlag(src=V, dst=MTE3, id=0)
    round_ = [isa.WaitFlag(src=V, dst=MTE3, id=0), store_one, Macro([fill(9), done, *flag(V, S)])]
    both_ways(TOY, "vec", round_ * 3)


def test_a_macro_whose_flag_is_raised_behind_it():
    """The load before it waits for a flag that the scalar unit sets behind it."""
    late = [isa.WaitFlag(src=S, dst=MTE2, id=0), load_eight, isa.SetFlag(src=MTE2, dst=V, id=0)]
    early = [load_eight, isa.SetFlag(src=MTE2, dst=V, id=0)]
    body = Macro([isa.WaitFlag(src=MTE2, dst=V, id=0), fill(9)])
    behind = [isa.SetFlag(src=S, dst=MTE2, id=0), *flag(V, S)]
    both_ways(TOY, "vec", [*early, body, *flag(V, S), *[*late, body, *behind] * 3])


def test_a_flag_that_is_raised_twice_before_a_macro_that_raises_it_too():
    """The macro waits for it twice: for the one before and for its own, or for two from before."""
    taken, given = isa.WaitFlag(src=S, dst=V, id=0), isa.SetFlag(src=S, dst=V, id=0)
    body = Macro([taken, isa.ScalarWork(count=500), given, taken, fill(1)])
    idle = [*flag(V, S), isa.ScalarWork(count=9000)]
    once, twice = [given, *idle, body], [given, given, *idle, body, *flag(V, S), taken]
    both_ways(TOY, "vec", [*once, *once, *twice])


def test_the_room_in_the_queue_is_part_of_what_a_macro_meets():
    """Before it the pipe is busy for the same time, but the queue has room at another."""
    body = Macro([fill(1), fill(1), fill(1), *flag(V, S)])
    for depth in (1, 2, 3, 4):
        chip = changed(TOY, {"queues.v": depth, "scalar.issue_cycles": 3})
        both_ways(chip, "vec", [fill(200), fill(9), body, fill(9), fill(200), body, fill(209), body])


def test_results_that_come_later_are_part_of_what_a_macro_meets():
    """A product is ready some time after the unit is free again."""
    product = isa.mmad(at(Space.L0C, isa.F32), at(Space.L0A, isa.F16), at(Space.L0B, isa.F16), 16, 16, 16)
    load_a = isa.load_a(at(Space.L0A, isa.F16), at(Space.L1, isa.F16), 64, 16)
    body = Macro([*flag(Pipe.M, S), product, *flag(Pipe.M, S), load_a, *flag(Pipe.MTE1, S)])
    chip = changed(COUPLED, {"paths.l1_to_l0a.latency_cycles": 100, "cube.head_isolated_cycles": 200})
    wait = isa.ScalarWork(count=40)
    both_ways(
        chip, "ai", [product, body, product, wait, body, load_a, wait, wait, body, product, load_a, body]
    )


def test_a_macro_that_does_not_wait_for_its_pipes_holds_nothing_up():
    """The store behind it starts at once, though the vector unit still waits for the load before it."""
    far = isa.DataCopy(dst=at(Space.UB, isa.F32), src=Operand(Space.GM, isa.F32, 0), block_len=1024)
    away = isa.DataCopy(dst=Operand(Space.GM, isa.F32, 0, 1), src=at(Space.UB, isa.F32), block_len=1024)
    both_ways(TOY, "vec", [far, *flag(MTE2, V), Macro([fill(1), fill(2)]), away])


def test_macros_are_played(monkeypatch):
    """A row loop behind a load is played, and worked out for two states only."""
    played, worked = [], []
    play, work_out = Player.play, Player._work_out
    monkeypatch.setattr(Player, "play", lambda *a: played.append(1) or play(*a))
    monkeypatch.setattr(Player, "_work_out", lambda *a: worked.append(1) or work_out(*a))
    simulate(rows, TOY, timing_only=True)
    assert (len(played), len(worked)) == (20, 2)


@program
def rows(k: Builder, *, tiles: int = 20, macros: bool = True) -> None:
    """Add a carry to row after row."""
    x, y = k.input("x", (tiles, 8, 16), "float32"), k.output("y", (tiles, 8, 16), "float32")

    def vector(c: Any) -> Any:
        tile = c.ub((8, 16), isa.F32)
        loaded, stored, counted = c.flag(MTE2, V), c.flag(MTE3, MTE2), c.flag(V, S)
        yield from c.counter(16)
        yield isa.ScalarAlu(op=isa.ScalarOp.MOV, reg=0, a=0, dtype=isa.F32)
        loop: list[Any] = []
        for row in (tile[r] for r in range(8)):
            loop += isa.contiguous(
                isa.Adds,
                count=16,
                state=isa.State(counter_mode=True, mask=16),
                dst=row,
                src=row,
                scalar=Reg(0),
            )
            loop += [counted.set, counted.wait, isa.GetValue(reg=0, src=row.flat(15, 1))]
        body = Macro(loop)
        yield stored.set
        for t in range(tiles):
            yield stored.wait
            yield isa.copy_in(tile, x[t])
            yield loaded.set
            yield loaded.wait
            if macros:
                yield body
            else:
                yield from loop
            yield isa.PipeBarrier(on=Pipe.ALL)
            yield isa.copy_out(y[t], tile)
            yield stored.set
        yield stored.wait

    k.launch("rows", vector=vector)


@pytest.mark.parametrize("options", [{}, {"timing_only": True}, {"spans": True}, {"check": False}])
def test_reports_are_the_same_but_for_the_parameter(options):
    one, other = (
        simulate(rows, TOY, macros=m, **options).model_dump(exclude={"params", "run_id"})
        for m in (True, False)
    )
    assert one == other


def test_a_pipe_that_waits_for_what_stands_behind_the_macro():
    """V waits for a flag of S that comes after the macro; the queue is long enough, so nothing locks up."""
    body = Macro([isa.Duplicate(dst=at(Space.UB, isa.F32), scalar=0.0), *flag(V, S)])

    def stream(behind: list[Any]) -> list[list[Any]]:
        return [[isa.WaitFlag(src=MTE2, dst=V, id=0), *behind, load_one, isa.SetFlag(src=MTE2, dst=V, id=0)]]

    load_one = isa.DataCopy(dst=at(Space.UB, isa.F32), src=Operand(Space.GM, isa.F32, 0), block_len=1)
    built, ops = resolved(TOY, "vec", stream([body]))
    with pytest.raises(DeadlockError):  # the scalar unit waits inside the macro for V, and V for MTE2
        TimingMachine(TOY, built.segments).run("random", ops)
    with pytest.raises(DeadlockError):
        Recurrence(TOY, [(s.core, s.items) for s in ops]).run()


@pytest.mark.parametrize(
    ("ops", "expected"),
    [
        ([], "a macro holds one instruction or more, not none"),
        ([3], "a macro holds instructions, not int"),
        (
            [isa.GatherMask(dst=at(Space.UB, isa.F32, 8192), src=at(Space.UB, isa.F32), pattern=1)],
            "GatherMask returns a value to the stream, so it cannot stand in a macro; yield it by itself",
        ),
    ],
)
def test_wrong_macros(ops, expected):
    with pytest.raises(ConfigError) as caught:
        Macro(ops)
    assert str(caught.value) == expected
