"""Automatic synchronisation: what the vendor's compiler would add, and nothing else."""

from __future__ import annotations

import dataclasses

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from npusim import Builder, Operand, Pipe, Reg, Space, isa, load_chip, program, simulate
from npusim.errors import HazardError
from npusim.isa.instruction import OriginKind
from npusim.isa.sync import PipeBarrier, SetFlag, WaitFlag
from npusim.program import autosync
from npusim.program.discover import find_program
from npusim.report.checked import check
from npusim.report.simulate import run

TOY = load_chip("toy")
F32 = isa.F32
S, V, MTE2, MTE3 = Pipe.S, Pipe.V, Pipe.MTE2, Pipe.MTE3


def at(word):
    return Operand(Space.UB, F32, 4 * word)


def add(dst, src):
    """Add one to 64 words."""
    return isa.Adds(dst=at(dst), src=at(src), scalar=1.0)


def fill(dst):
    return isa.Duplicate(dst=at(dst), scalar=0.0)


def load(dst, words=64):
    return isa.DataCopy(dst=at(dst), src=Operand(Space.GM, F32, 0, 0), block_len=words // 8)


def store(src, words=64):
    return isa.DataCopy(dst=Operand(Space.GM, F32, 0, 1), src=at(src), block_len=words // 8)


def get(word):
    return isa.GetValue(reg=0, src=at(word))


def put(word):
    return isa.SetValue(dst=at(word), value=1.0)


def words(op):
    """Return a short form: `V|` a barrier, `V>S` a set, `V<S` a wait, a dot for what was there."""
    if op.origin is not OriginKind.AUTOSYNC:
        return "."
    if isinstance(op, PipeBarrier):
        return f"{op.on.name}|"
    assert op.id == TOY.flags.ids - 1
    return f"{op.src.name}{'>' if isinstance(op, SetFlag) else '<'}{op.dst.name}"


def synchronised(ops, kind="vector", chip=TOY):
    """Return the short forms of a stream behind automatic synchronisation."""
    seen = []

    @program
    def automatic(k: Builder) -> None:
        k.input("x", (64,), "float32")
        k.output("y", (64,), "float32")
        k.launch("automatic", autosync=True, **{kind: lambda c: list(ops)})

    simulate(automatic, chip, timing_only=True, observe=lambda _, streams: seen.extend(streams[0].ops))
    return " ".join(map(words, seen))


@pytest.mark.parametrize(
    ("ops", "expected"),
    [
        # between vector instructions
        ([fill(0), add(64, 0)], ". V| ."),
        ([fill(0), fill(0)], ". V| ."),
        ([fill(0), fill(64)], ". ."),
        ([add(64, 0), add(128, 0)], ". ."),
        ([add(64, 0), fill(0)], ". ."),  # a pipe never overtakes its own reads
        ([fill(0), fill(64), add(128, 0), add(192, 64)], ". . V| . ."),  # one barrier serves both
        ([fill(0), add(64, 0), add(128, 64)], ". V| . V| ."),
        ([fill(0), isa.PipeBarrier(on=V), add(64, 0)], ". . ."),
        ([fill(0), isa.PipeBarrier(on=Pipe.ALL), add(64, 0)], ". . ."),
        # around scalar accesses
        ([fill(0), get(5)], ". V>S V<S ."),
        ([fill(0), get(64)], ". ."),
        ([add(64, 0), get(5)], ". ."),
        ([add(64, 0), put(5)], ". V>S V<S ."),
        ([put(5), fill(0)], ". S>V S<V ."),
        ([get(5), fill(0)], ". S>V S<V ."),
        ([get(5), add(64, 0)], ". ."),
        ([load(0), get(5)], ". MTE2>S MTE2<S ."),
        ([get(5), load(0)], ". S>MTE2 S<MTE2 ."),
        ([store(0), put(5)], ". MTE3>S MTE3<S ."),
        ([store(0), get(5)], ". ."),
        ([put(5), store(0)], ". S>MTE3 S<MTE3 ."),
        ([put(0), get(0), put(0)], ". . ."),
        ([fill(0), get(5), get(6)], ". V>S V<S . ."),
        # a second signal to a pipe hears from it first
        ([put(5), fill(0), put(70), fill(64)], ". S>V S<V . . V>S V<S S>V S<V ."),
        # unless it has heard from it since, in whatever way
        ([put(5), fill(0), get(5), put(70), fill(64)], ". S>V S<V . V>S V<S . . S>V S<V ."),
        ([put(5), fill(0), isa.PipeBarrier(on=Pipe.ALL), put(70), fill(64)], ". S>V S<V . . . S>V S<V ."),
        (
            [
                *(put(5), fill(0)),
                *(isa.SetFlag(src=V, dst=S, id=0), isa.WaitFlag(src=V, dst=S, id=0)),
                *(put(70), fill(64)),
            ],
            ". S>V S<V . . . . S>V S<V .",
        ),
        # never between the pipes that the author orders
        ([load(0), add(64, 0)], ". ."),
        ([add(0, 64), store(0)], ". ."),
        ([load(0), store(0)], ". ."),
        ([load(0), load(0)], ". ."),
        ([store(0), load(0), fill(0), store(0)], ". . . ."),
        # flags by hand count
        (
            [fill(0), isa.SetFlag(src=V, dst=S, id=0), isa.WaitFlag(src=V, dst=S, id=0), get(5)],
            ". . . .",
        ),
        (
            [isa.SetFlag(src=V, dst=S, id=0), fill(0), isa.WaitFlag(src=V, dst=S, id=0), get(5)],
            ". . . V>S V<S .",
        ),
        # registers order by themselves, and touch no memory
        ([isa.ScalarAlu(op=isa.ScalarOp.MOV, reg=0, a=1), isa.Duplicate(dst=at(0), scalar=Reg(0))], ". ."),
        ([isa.ScalarWork(count=5), fill(0), isa.ScalarWork(count=5)], ". . ."),
    ],
)
def test_what_is_added_to_a_vector_core(ops, expected):
    assert synchronised(ops) == expected


def test_the_state_decides_how_far_an_instruction_reaches():
    count = [isa.SetMaskCount(), isa.SetVectorMask(mask=64)]
    assert synchronised([*count, fill(0), add(64, 0)]) == ". . . V| ."
    more = [isa.SetMaskCount(), isa.SetVectorMask(mask=65)]
    assert synchronised([*count, fill(0), fill(64), *more[1:], add(128, 0)]) == ". . . . . V| ."
    assert synchronised([*more, fill(0), fill(64)]) == ". . . V| ."
    same = fill(0)  # one instruction, met in two states
    assert synchronised([*count, same, isa.PipeBarrier(on=V), more[1], same, get(64)]) == (
        ". . . . . . V>S V<S ."
    )


def test_nothing_is_added_to_a_cube_core():
    l1 = Operand(Space.L1, isa.U16, 0)
    ops = [isa.Fill(dst=l1, value=0, block_num=4), isa.Fill(dst=l1, value=1, block_num=4)]
    assert synchronised(ops, "cube") == ". ."


def test_coupled_cores_are_treated_as_vector_cores():
    assert synchronised([fill(0), add(64, 0)], "coupled", load_chip("ascend-310")) == ". V| ."


STEPS = st.one_of(
    st.builds(fill, st.sampled_from([0, 64])),
    st.builds(add, st.sampled_from([0, 64]), st.just(128)),
    st.builds(add, st.just(128), st.sampled_from([0, 64])),
    st.builds(get, st.sampled_from([0, 64, 128])),
    st.builds(put, st.sampled_from([0, 64, 128])),
    st.builds(load, st.sampled_from([0, 64])),
    st.builds(store, st.sampled_from([0, 128])),
    st.builds(isa.PipeBarrier, on=st.sampled_from([V, Pipe.ALL, Pipe.ALL])),
    st.sampled_from([isa.SetFlag(src=V, dst=S, id=0), isa.WaitFlag(src=V, dst=S, id=0)]),
    st.sampled_from([isa.SetFlag(src=S, dst=V, id=0), isa.WaitFlag(src=S, dst=V, id=0)]),
)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.lists(STEPS, min_size=8, max_size=40))
def test_forgetting_what_is_settled_changes_nothing(ops):
    """Accesses that everybody is ordered behind are dropped now and then; here as often as can be."""

    def followed(limit):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(autosync, "_PRUNE_AT", limit)
            follower = autosync.AutoSync(TOY)
            return [[words(added) for added in follower.before(op, isa.State())] for op in ops]

    assert followed(0) == followed(10**9)


SYNC = (SetFlag, WaitFlag)


def vector_only(op):
    """Whether the vendor's compiler would have added an instruction: barriers of V, flags from or to S."""
    if isinstance(op, PipeBarrier):
        return op.on is V
    return isinstance(op, SYNC) and S in (op.src, op.dst)


def stripped(name, params):
    """Return a shipped program without what the compiler adds, with automatic synchronisation in its place or
    not.
    """
    maker = find_program(name)
    streams = []
    report = simulate(maker, TOY, observe=lambda _, found: streams.extend(found), **params)

    def build(autosync):
        built = maker.build(TOY, params)
        launch = built.launches[0]
        new = {}
        for stream in streams:
            ops = list(stream.ops)
            if stream.core.kind.value == "vec":
                ops = [op for op in ops if not vector_only(op)]
            new[stream.core] = (lambda _, ops=ops: ops, launch.streams[stream.core][1])
        built.launches[0] = dataclasses.replace(launch, streams=new, autosync=autosync)
        return built

    return report, build


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("scan_u", {"n": 700, "s": 16}),
        ("scan_ul1", {"n": 700, "s": 16}),
        ("cumsum_vec", {"n": 700, "s": 16}),
    ],
)
def test_shipped_programs_without_their_own_flags_and_barriers(name, params):
    report, build = stripped(name, params)
    with pytest.raises(HazardError):
        check(build(False), TOY)
    added = []
    checked = check(build(True), TOY, observe=lambda _, found: added.extend(s.ops for s in found))
    assert checked.values.ok
    ops = [op for stream in added for op in stream if op.origin is OriginKind.AUTOSYNC]
    assert ops
    assert all(vector_only(op) for op in ops)
    again = run(build(True), TOY)
    np.testing.assert_array_equal(again.outputs["y"], report.outputs["y"])


def test_a_stream_written_for_the_compiler():
    """As one would write it in the vendor's language: flags between MTE2, V and MTE3 only."""

    @program
    def compiled(k: Builder) -> None:
        x, y = k.input("x", (256,), "float32"), k.output("y", (256,), "float32")

        def stream(c):
            a, b = c.ub(256, F32), c.ub(256, F32)
            loaded, summed = c.flag(MTE2, V), c.flag(V, MTE3)
            yield isa.copy_in(a, x)
            yield loaded.set
            yield loaded.wait
            yield from c.vector(isa.Adds, count=256, dst=b, src=a, scalar=1.0)
            yield from c.vector(isa.Muls, count=256, dst=b, src=b, scalar=2.0)
            last = yield isa.GetValue(reg=0, src=b.flat(255, 1))
            assert last == 2 * (255 + 1)
            yield isa.SetValue(dst=b.flat(0, 1), value=-1.0)
            yield from c.vector(isa.Adds, count=256, dst=b, src=b, scalar=Reg(0))
            yield summed.set
            yield summed.wait
            yield isa.copy_out(y, b)

        k.launch("compiled", vector=stream, autosync=True)

    x = np.arange(256, dtype=np.float32)
    expected = 2 * (x + 1) + 512
    expected[0] = 511
    np.testing.assert_array_equal(simulate(compiled, TOY, inputs={"x": x}).outputs["y"], expected)
