"""Streams: lists, generators, what is spliced into them, and the values that instructions send back."""

from __future__ import annotations

import numpy as np
import pytest

from npusim import Builder, Pipe, Reg, isa, load_chip, program, simulate
from npusim.program.stream import Reader

TOY = load_chip("toy")
F32 = isa.F32
V, MTE2, MTE3 = Pipe.V, Pipe.MTE2, Pipe.MTE3


def work(count):
    return isa.ScalarWork(count=count)


def run(stream, x=None, n=64, **options):
    """Run a stream on one vector core; y is left alone unless the stream stores to it."""

    @program
    def streamed(k: Builder) -> None:
        a, y = k.input("x", (n,), "float32"), k.inout("y", (n,), "float32")
        k.launch("streamed", vector=lambda c: stream(c, a, y))

    inputs = {} if x is None else {"x": np.asarray(x, np.float32)}
    return simulate(streamed, TOY, inputs=inputs, **options)


def counts(stream):
    """Return what the ScalarWork instructions of a stream count, in the order they ran."""
    seen = []
    run(stream, observe=lambda _, streams: seen.extend(op.count for op in streams[0].ops))
    return seen


def generated(*numbers):
    for number in numbers:
        yield work(number)


@pytest.mark.parametrize(
    "stream",
    [
        lambda c, x, y: [work(1), work(2), work(3)],
        lambda c, x, y: (work(1), work(2), work(3)),
        lambda c, x, y: map(work, (1, 2, 3)),
        lambda c, x, y: iter([work(1), work(2), work(3)]),
        lambda c, x, y: generated(1, 2, 3),
        lambda c, x, y: (work(i) for i in (1, 2, 3)),
    ],
    ids=["list", "tuple", "map", "iterator", "generator", "expression"],
)
def test_anything_that_gives_instructions_is_a_stream(stream):
    assert counts(stream) == [1, 2, 3]


def test_helpers_and_lists_are_spliced_in():
    def inner():
        yield from [work(3), work(4)]
        yield from ()
        yield work(5)
        return 6

    def outer():
        yield work(2)
        last = yield from inner()
        yield work(last)
        yield from map(work, (7, 8))

    def stream(c, x, y):
        yield work(1)
        yield from outer()
        yield from generated(9)
        yield from [work(10)]

    assert counts(stream) == list(range(1, 11))


def test_an_empty_stream_takes_no_time():
    assert run(lambda c, x, y: []).total_cycles == 0
    assert run(lambda c, x, y: iter(())).total_cycles == 0


def test_a_stream_is_made_anew_for_every_run():
    made = []

    @program
    def fresh(k: Builder) -> None:
        def stream(c):
            made.append(c.core)
            yield work(1)

        k.launch("fresh", vector=stream)

    for _ in range(2):
        simulate(fresh, TOY)
    assert len(made) == 2


# ---- values ------------------------------------------------------------------------------------------------


def load(c, x):
    a, loaded = c.ub(64, F32), c.flag(MTE2, V)
    yield isa.copy_in(a, x)
    yield loaded.set
    yield loaded.wait
    return a


def test_the_count_of_a_gather_decides_what_follows():
    """Keep every second element, and store as many blocks as there are."""
    stored = []

    def stream(c, x, y):
        a = yield from load(c, x)
        kept, done = c.ub(64, F32), c.flag(V, MTE3)
        count = yield isa.GatherMask(dst=kept, src=a, pattern=1)
        assert count == 32
        assert type(count) is int
        yield done.set
        yield done.wait
        for block in range(count // 8):
            yield isa.copy_out(y.flat(8 * block, 8), kept.flat(8 * block, 8))
            stored.append(block)

    x = np.arange(64)
    y = run(stream, x).outputs["y"]
    np.testing.assert_array_equal(y[:32], x[::2])
    assert stored == [0, 1, 2, 3]


def test_a_gather_with_bits_counts_what_they_choose():
    def stream(c, x, y):
        a = yield from load(c, x)
        kept, bits = c.ub(64, F32), c.ub(2, isa.U32)
        stored = c.flag(Pipe.S, V)
        yield isa.SetValue(dst=bits.flat(0, 1), value=0b1011)
        yield isa.SetValue(dst=bits.flat(1, 1), value=1 << 31)
        yield stored.set
        yield stored.wait
        count = yield isa.GatherMask(dst=kept, src=a, bits=bits)
        found.append(count)
        yield isa.PipeBarrier(on=Pipe.ALL)
        for i in range(count):
            found.append((yield isa.GetValue(reg=0, src=kept.flat(i, 1))))

    found = []
    run(stream, np.arange(64) * 10)
    assert found == [4, 0.0, 10.0, 30.0, 630.0]


def test_scalar_reads_and_arithmetic_give_their_values():
    def stream(c, x, y):
        values.append((yield isa.GetValue(reg=1, src=x.flat(5, 1))))
        values.append((yield isa.ScalarAlu(op=isa.ScalarOp.MUL, reg=2, a=Reg(1), b=3.0, dtype=F32)))
        values.append((yield isa.ScalarAlu(op=isa.ScalarOp.SHL, reg=3, a=5, b=2)))
        values.append((yield work(1)))
        values.append((yield isa.PipeBarrier(on=V)))
        values.append((yield isa.SetVectorMask(mask=1)))

    values = []
    run(stream, np.arange(64))
    assert values == [5.0, 15.0, 20, None, None, None]


def test_values_reach_the_helper_that_asked():
    def ask(c, x, number):
        value = yield isa.GetValue(reg=0, src=x.flat(number, 1))
        return value + 0.5

    def both(c, x):
        first = yield from ask(c, x, 3)
        second = yield from ask(c, x, 4)
        return first + second

    def stream(c, x, y):
        yield from [isa.GetValue(reg=0, src=x.flat(9, 1))]  # a list takes no value
        total = yield from both(c, x)
        yield from [isa.GetValue(reg=0, src=x.flat(9, 1)), isa.PipeBarrier(on=V)]
        found.append(total)
        found.append((yield isa.GetValue(reg=0, src=x.flat(1, 1))))

    found = []
    run(stream, np.arange(64))
    assert found == [8.0, 1.0]


def test_a_value_that_comes_late():
    """The gather waits in its queue behind a flag that is set before it in the stream, on a slow pipe."""

    def stream(c, x, y):
        a, b = c.ub(64, F32), c.ub(64, F32)
        first, loaded, summed = c.flag(MTE2, V), c.flag(MTE2, V), c.flag(V, MTE2)
        yield isa.copy_in(a, x)
        yield first.set
        yield first.wait
        yield isa.Adds(dst=b, src=a, scalar=1.0)
        yield summed.set
        yield summed.wait
        yield isa.copy_in(a, x)
        yield loaded.set
        yield loaded.wait
        found.append((yield isa.GatherMask(dst=b, src=a, pattern=3)))
        yield work(found[-1])

    found = []
    report = run(stream, np.arange(64))
    assert found == [16]
    scalar = report.pipes["core0.vec0.S"]
    assert scalar.flag > 2 * 200  # both loads, one behind the other


def test_control_that_depends_on_values_takes_its_own_time():
    """The same program is timed by the path that its values take."""

    def stream(c, x, y):
        count = yield isa.GetValue(reg=0, src=x.flat(0, 1))
        for _ in range(int(count)):
            yield work(100)

    first = TOY.scalar.issue_cycles + TOY.cycles(TOY.scalar.gm_read_ns)
    for count in (0, 1, 7):
        assert run(stream, np.full(64, count)).total_cycles == first + 100 * count


def test_reader_gives_instructions_and_takes_values():
    def stream():
        value = yield work(1)
        yield work(value)
        yield from [work(3), work(4)]
        yield work(5)

    reader = Reader(stream())
    assert [reader.fetch(v) for v in (None, 2, None, 99, None, None)] == [*map(work, (1, 2, 3, 4, 5)), None]
    assert reader.fetch(None) is None
    reader = Reader([work(1), work(2)])
    assert [reader.fetch(v) for v in (None, 7, 8)] == [work(1), work(2), None]


def test_places_of_instructions():
    """Lines are those of the stream function, also for what a helper or a list gives."""
    places = []

    def helper():
        yield work(2)

    def stream(c, x, y):
        yield work(1)
        yield from helper()
        yield from [work(3)]

    def keep(_, streams):
        places.extend(streams[0].line(i) for i in range(len(streams[0].ops)))

    run(stream, observe=keep)
    first = stream.__code__.co_firstlineno
    assert places == [first + 1, first + 2, first + 3]
    places.clear()
    run(lambda c, x, y: [work(1), work(2)], observe=keep)
    assert places == [0, 0]


def test_an_exception_of_the_author_comes_through():
    def stream(c, x, y):
        yield work(1)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        run(stream)
