"""Random flags, most of them in a bad order: all machines agree whether a program ends."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import event, given, settings
from plain_engine import Plain
from random_programs import PIPES, TOY, Ops, changed, resolved

from npusim import Operand, Pipe, Space, isa
from npusim.check.recurrence import Recurrence
from npusim.errors import DeadlockError
from npusim.isa.sync import Group
from npusim.machine.timing.engine import TimingMachine
from npusim.report.simulate import run

V = Pipe.V
WORK = [
    isa.Duplicate(dst=Operand(Space.UB, isa.F32, 0), scalar=0.0),
    isa.GatherMask(dst=Operand(Space.UB, isa.F32, 1024), src=Operand(Space.UB, isa.F32, 0), pattern=1),
    isa.DataCopy(dst=Operand(Space.UB, isa.F32, 0), src=Operand(Space.GM, isa.F32, 0), block_len=1),
    isa.DataCopy(dst=Operand(Space.GM, isa.F32, 0, 1), src=Operand(Space.UB, isa.F32, 0), block_len=1),
]


@st.composite
def stream(draw):
    """Return sets and waits of flags that are used once, in any order, among some work and barriers."""
    ops = Ops(draw(st.lists(st.sampled_from(WORK), max_size=6)))
    flags = draw(st.lists(st.permutations(PIPES["vec"]), max_size=6))
    for number, (src, dst, *_) in enumerate(flags):
        flag = {"src": src, "dst": dst, "id": number}
        first = draw(st.integers(0, len(ops)))
        ops.insert(first, isa.SetFlag(**flag))
        near = draw(st.booleans())  # most waits come soon after their set, or soon before
        place = draw(
            st.integers(max(0, first - 1), min(len(ops), first + 3)) if near else st.integers(0, len(ops))
        )
        ops.insert(place, isa.WaitFlag(**flag))
    for _ in range(draw(st.integers(0, 1))):
        ops.insert(draw(st.integers(0, len(ops))), isa.PipeBarrier(on=Pipe.ALL))
    return ops


@st.composite
def streams(draw):
    """Return the streams of one vector core, or of two that meet."""
    if draw(st.booleans()):
        return [draw(stream())]
    both = [draw(stream()), draw(stream())]
    for number in range(draw(st.integers(0, 3))):
        for ops in both:
            pipes = draw(st.permutations(PIPES["vec"]))[:2]
            first = draw(st.integers(0, len(ops)))
            ops.insert(first, isa.CrossCoreSetFlag(group=Group.VECTOR_PAIR, on=pipes[0], id=number))
            place = draw(st.integers(0, len(ops)))
            ops.insert(place, isa.CrossCoreWaitFlag(group=Group.VECTOR_PAIR, on=pipes[1], id=number))
    return both


def outcome(function, *args, **options):
    """Return the message of a deadlock, or None where there is none."""
    try:
        function(*args, **options)
    except DeadlockError as error:
        return str(error)
    return None


@settings(max_examples=250, deadline=None, derandomize=True)
@given(streams(), st.integers(1, 4), st.integers(1, 4), st.integers(1, 4))
def test_all_machines_agree_whether_a_program_ends(ops, v, mte2, mte3):
    chip = changed(TOY, {"queues.v": v, "queues.mte2": mte2, "queues.mte3": mte3})
    built, found = resolved(chip, "vec", ops)
    values = outcome(run, built, chip, check=False)
    timing = outcome(TimingMachine(chip, built.segments).run, "random", found)
    bounds = outcome(Recurrence(chip, [(s.core, s.items) for s in found]).run)
    assert timing == values
    assert (bounds is None) == (values is None)
    event("ends" if values is None else "circle" if "circle" in values else "dead end")
    plain = Plain(chip, built.segments)
    if values is None:
        plain.run(found)
    else:
        with pytest.raises(AssertionError, match="deadlock"):
            plain.run(found)
