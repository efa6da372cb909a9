"""No false alarms: correct programs of every shape pass with all checks on, and compute what they should."""

from __future__ import annotations

import numpy as np
import pytest
from small import TOY, mixed, passes, simple

from npusim import Builder, Expected, Operand, Pipe, Reg, Space, isa, program
from npusim.errors import HazardError

S, V, M, MTE1, MTE2, MTE3, FIX = (
    Pipe.S,
    Pipe.V,
    Pipe.M,
    Pipe.MTE1,
    Pipe.MTE2,
    Pipe.MTE3,
    Pipe.FIX,
)
F32, F16 = isa.F32, isa.F16


def ub(address, dtype=F32):
    return Operand(Space.UB, dtype, address)


def output(report):
    return report.outputs["y"]


@pytest.mark.parametrize("buffers", [1, 2, 3])
@pytest.mark.parametrize("check", [True, False])
def test_queues_of_tiles_in_and_out(buffers, check):
    def stream(c, x, y):
        loads = c.queue(MTE2, V, [c.ub(64, F32) for _ in range(buffers)])
        stores = c.queue(V, MTE3, [c.ub(64, F32) for _ in range(buffers)])
        for i in range(10):
            a = yield from loads.alloc()
            yield isa.copy_in(a, x.flat(64 * i, 64))
            yield from loads.enque()
            a = yield from loads.deque()
            b = yield from stores.alloc()
            yield from c.vector(isa.Adds, count=64, dst=b, src=a, scalar=1.0)
            yield from loads.free()
            yield from stores.enque()
            b = yield from stores.deque()
            yield isa.copy_out(y.flat(64 * i, 64), b)
            yield from stores.free()

    x = np.arange(640, dtype=np.float32)
    np.testing.assert_array_equal(output(passes(simple(stream, n=640), inputs={"x": x}, check=check)), x + 1)


def test_flags_by_hand_with_two_buffers():
    def stream(c, x, y):
        tiles = [c.ub(64, F32) for _ in range(2)]
        loaded = [c.flag(MTE2, V) for _ in tiles]
        summed = [c.flag(V, MTE3) for _ in tiles]
        free = [c.flag(MTE3, MTE2) for _ in tiles]
        for event in free:
            yield event.set
        for i in range(8):
            k = i % 2
            yield free[k].wait
            yield isa.copy_in(tiles[k], x.flat(64 * i, 64))
            yield loaded[k].set
            yield loaded[k].wait
            yield isa.Adds(dst=tiles[k], src=tiles[k], scalar=-1.0)
            yield summed[k].set
            yield summed[k].wait
            yield isa.copy_out(y.flat(64 * i, 64), tiles[k])
            yield free[k].set
        for event in free:
            yield event.wait

    x = np.arange(512, dtype=np.float32)
    np.testing.assert_array_equal(output(passes(simple(stream, n=512), inputs={"x": x})), x - 1)


def test_wait_that_comes_before_its_set_in_the_stream():
    def stream(c, x, y):
        a, loaded, done = c.ub(256, F32), c.flag(MTE2, V), c.flag(V, MTE3)
        yield loaded.wait
        yield isa.Adds(dst=a, src=a, scalar=1.0, repeat=4)
        yield done.set
        yield done.wait
        yield isa.copy_out(y, a)
        yield isa.copy_in(a, x)
        yield loaded.set

    x = np.arange(256, dtype=np.float32)
    np.testing.assert_array_equal(output(passes(simple(stream), inputs={"x": x})), x + 1)


def test_reading_back_through_the_scalar_unit():
    """A vector result becomes a register, which becomes a scalar operand and a stored value."""

    def stream(c, x, y):
        a, b = c.ub(64, F32), c.ub(64, F32)
        loaded, counted, done = c.flag(MTE2, V), c.flag(V, S), c.flag(V, MTE3)
        stored = c.flag(S, V)
        yield isa.copy_in(a, x)
        yield loaded.set
        yield loaded.wait
        yield isa.Adds(dst=b, src=a, scalar=1.0)
        yield counted.set
        yield counted.wait
        last = yield isa.GetValue(reg=5, src=b.flat(63, 1))
        assert last == 64.0
        yield isa.ScalarAlu(op=isa.ScalarOp.ADD, reg=6, a=Reg(5), b=0.5, dtype=F32)
        yield isa.SetValue(dst=a.flat(0, 1), value=Reg(6))
        yield stored.set
        yield stored.wait
        yield isa.Adds(dst=b, src=a, scalar=Reg(5))
        yield done.set
        yield done.wait
        yield isa.copy_out(y, b)

    x = np.arange(64, dtype=np.float32)
    expected = x + 64
    expected[0] = 64.5 + 64
    np.testing.assert_array_equal(output(passes(simple(stream, n=64), inputs={"x": x})), expected)


def test_register_orders_the_scalar_read_before_the_vector_write():
    """An instruction that takes the register cannot start before the value has been read."""

    def stream(c, x, y):
        a, loaded, done = c.ub(64, F32), c.flag(MTE2, S), c.flag(V, MTE3)
        yield isa.copy_in(a, x)
        yield loaded.set
        yield loaded.wait
        yield isa.GetValue(reg=0, src=a.flat(7, 1))
        yield isa.Duplicate(dst=a, scalar=Reg(0))
        yield done.set
        yield done.wait
        yield isa.copy_out(y, a)

    x = np.arange(64, dtype=np.float32)
    np.testing.assert_array_equal(output(passes(simple(stream, n=64), inputs={"x": x})), np.full(64, 7))


def test_strided_accesses_that_interleave_without_touching():
    def stream(c, x, y):
        done = c.flag(V, MTE3)
        even = isa.DataCopy(dst=ub(0), src=x, block_count=16, block_len=1, dst_gap=1)
        yield even
        yield isa.SetVectorMask(mask=0xFF)
        yield isa.Duplicate(dst=ub(32), scalar=3.0, repeat=16, dst_repeat=2)
        yield isa.PipeBarrier(on=Pipe.ALL)
        yield isa.DataCopy(dst=y, src=ub(32), block_count=16, block_len=1, src_gap=1)
        yield isa.Duplicate(dst=ub(0), scalar=4.0, repeat=16, dst_repeat=2)
        yield done.set
        yield done.wait
        yield isa.DataCopy(dst=y.flat(128, 128), src=ub(0), block_count=16, block_len=1, src_gap=1)

    np.testing.assert_array_equal(output(passes(simple(stream))), [3.0] * 128 + [4.0] * 128)


def test_partial_last_repeat_ends_where_the_next_tile_begins():
    """100 floats end at byte 400, so a tile at 416 has no byte in common with them."""

    def stream(c, x, y):
        a, b = c.ub(100, F32), c.ub(100, F32)
        assert (a.address, b.address) == (0, 416)
        loaded, done = c.flag(MTE2, V), c.flag(V, MTE3)
        yield isa.copy_in(a, x)
        yield loaded.set
        yield loaded.wait
        yield from c.vector(isa.Adds, count=100, dst=b, src=a, scalar=1.0)
        yield done.set
        yield done.wait
        yield isa.copy_out(y, b)

    x = np.arange(100, dtype=np.float32)
    np.testing.assert_array_equal(output(passes(simple(stream, n=100), inputs={"x": x})), x + 1)


def test_many_reads_of_one_place_at_once():
    def stream(c, x, y):
        a, b, done = c.ub(64, F32), c.ub(64, F32), c.flag(V, MTE3)
        yield isa.copy_in(a, x)
        yield isa.PipeBarrier(on=Pipe.ALL)
        yield isa.Adds(dst=b, src=a, scalar=0.0)
        yield isa.GetValue(reg=0, src=a.flat(0, 1))
        yield isa.copy_out(y, a)
        yield done.set
        yield done.wait
        yield isa.copy_out(y.flat(64, 64), b)

    assert output(passes(simple(stream, n=128))).shape == (128,)


def test_barrier_of_all_pipes_orders_everything():
    everything = isa.PipeBarrier(on=Pipe.ALL)

    def stream(c, x, y):
        a = c.ub(256, F32)
        for scalar in (1.0, 2.0):
            yield isa.copy_in(a, x)
            yield everything
            yield isa.Adds(dst=a, src=a, scalar=scalar, repeat=4)
            yield everything
            yield isa.GetValue(reg=0, src=a.flat(0, 1))
            yield everything
            yield isa.copy_out(y, a)
            yield everything

    x = np.arange(256, dtype=np.float32)
    np.testing.assert_array_equal(output(passes(simple(stream), inputs={"x": x})), x + 2)


def test_products_that_the_hardware_interlocks_need_no_barrier():
    """Ten result fractals and more accumulate without one; fewer do with one."""

    def cube(rows, barrier):
        def stream(c, x, y, w):
            a1, b1 = c.l1((rows, 16), F16), c.l1((16, 16), F16)
            a0, b0, acc = c.l0a((rows, 16), F16), c.l0b((16, 16), F16), c.l0c((rows, 16), F32)
            loaded, ready, done = c.flag(MTE2, MTE1), c.flag(MTE1, M), c.flag(M, FIX)
            x = x.as_type(F16)
            yield isa.nd_to_nz(a1, x, rows, 16)
            yield isa.nd_to_nz(b1, x, 16, 16)
            yield loaded.set
            yield loaded.wait
            yield isa.load_a(a0, a1, rows, 16)
            yield isa.load_b(b0, b1, 16, 16)
            yield ready.set
            yield ready.wait
            yield isa.mmad(acc, a0, b0, rows, 16, 16, init=True)
            if barrier:
                yield isa.PipeBarrier(on=M)
            yield isa.mmad(acc, a0, b0, rows, 16, 16)
            yield done.set
            yield done.wait
            yield isa.store_nd(y, acc, rows, 16)

        return stream

    ones = np.full(2 * 2560, 1.0, np.float16).view(np.float32)
    for rows, barrier in ((160, False), (144, True)):
        report = passes(mixed(cube(rows, barrier), None, n=16 * rows), inputs={"x": ones[: 16 * rows]})
        np.testing.assert_array_equal(output(report), np.full(16 * rows, 32.0))


def test_pipes_of_the_cube_core_that_order_themselves():
    """MTE1 and FIX keep their own loads and stores of one place in order; MTE2 needs a barrier."""

    def cube(c, x, y, w):
        a1, a0 = c.l1((16, 16), F16), c.l0a((16, 16), F16)
        b0, acc = c.l0b((16, 16), F16), c.l0c((16, 16), F32)
        loaded, ready, done = c.flag(MTE2, MTE1), c.flag(MTE1, M), c.flag(M, FIX)
        yield isa.Fill(dst=a1, value=1.0, block_num=16)
        yield isa.PipeBarrier(on=MTE2)
        yield isa.Fill(dst=a1, value=2.0, block_num=16)
        yield loaded.set
        yield loaded.wait
        for _ in range(2):
            yield isa.load_a(a0, a1, 16, 16)
        yield isa.load_b(b0, a1, 16, 16)
        yield ready.set
        yield ready.wait
        yield isa.mmad(acc, a0, b0, 16, 16, 16, init=True)
        yield done.set
        yield done.wait
        for _ in range(2):
            yield isa.store_nd(y, acc, 16, 16)

    np.testing.assert_array_equal(output(passes(mixed(cube, None))), np.full(256, 64.0))


def handshake(c, x, y, w, *, rounds):
    """A vector core hands tiles to the other through w, one at a time, and is told when each was taken."""
    a, ready, taken = c.ub(64, F32), 0, 1
    loaded, done, free = c.flag(MTE2, V), c.flag(V, MTE3), c.flag(MTE3, MTE2)
    yield free.set
    for i in range(rounds):
        yield isa.CrossCoreSetFlag(group=isa.Group.VECTOR_PAIR, on=MTE2, id=taken)
        yield isa.CrossCoreWaitFlag(group=isa.Group.VECTOR_PAIR, id=taken)
        yield free.wait
        if c.core.number == 0:
            yield isa.copy_in(a, x.flat(64 * i, 64))
            yield loaded.set
            yield loaded.wait
            yield isa.Adds(dst=a, src=a, scalar=1.0)
            yield done.set
            yield done.wait
            yield isa.copy_out(w.flat(0, 64), a)
            yield free.set
        yield isa.CrossCoreSetFlag(group=isa.Group.VECTOR_PAIR, on=MTE3, id=ready)
        yield isa.CrossCoreWaitFlag(group=isa.Group.VECTOR_PAIR, id=ready)
        if c.core.number == 1:
            yield isa.copy_in(a, w.flat(0, 64))
            yield loaded.set
            yield loaded.wait
            yield isa.Adds(dst=a, src=a, scalar=1.0)
            yield done.set
            yield done.wait
            yield isa.copy_out(y.flat(64 * i, 64), a)
            yield free.set
    yield free.wait


def test_handshake_of_two_cores_through_global_memory():
    x = np.arange(4 * 64, dtype=np.float32)
    maker = mixed(None, lambda c, x, y, w: handshake(c, x, y, w, rounds=4), blocks=2)
    np.testing.assert_array_equal(output(passes(maker, inputs={"x": x})), x + 2)


def test_cube_and_vector_cores_take_turns_more_often_than_a_counter_counts():
    def cube(c, x, y, w):
        for _ in range(3 * TOY.flags.cross_limit):
            yield isa.CrossCoreSetFlag(group=isa.Group.CUBE_VECTOR, on=FIX, id=0)
            yield isa.CrossCoreWaitFlag(group=isa.Group.CUBE_VECTOR, id=1)

    def vector(c, x, y, w):
        a, done = c.ub(128, F32), c.flag(V, MTE3)
        for _ in range(3 * TOY.flags.cross_limit):
            yield isa.CrossCoreWaitFlag(group=isa.Group.CUBE_VECTOR, id=0)
            yield isa.CrossCoreSetFlag(group=isa.Group.CUBE_VECTOR, on=MTE3, id=1)
        yield isa.Duplicate(dst=a, scalar=9.0, repeat=2)
        yield done.set
        yield done.wait
        yield isa.copy_out(y.flat(128 * c.core.number, 128), a)

    np.testing.assert_array_equal(output(passes(mixed(cube, vector))), np.full(256, 9))


def test_as_many_sets_as_a_counter_counts():
    def cube(c, x, y, w):
        for _ in range(TOY.flags.cross_limit):
            yield isa.CrossCoreSetFlag(group=isa.Group.CUBE_VECTOR, on=FIX, id=0)

    def vector(c, x, y, w):
        for _ in range(TOY.flags.cross_limit):
            yield isa.CrossCoreWaitFlag(group=isa.Group.CUBE_VECTOR, id=0)
        yield isa.Duplicate(dst=ub(0), scalar=1.0, repeat=2)
        yield isa.PipeBarrier(on=Pipe.ALL)
        yield isa.copy_out(y.flat(128 * c.core.number, 128), isa.Tile(ub(0), (128,)))

    assert output(passes(mixed(cube, vector))).sum() == 256


def adders(after=None):
    """Two vector cores add the halves of x to one sum; `after` is what core 1 does behind its own."""

    @program
    def adders(k: Builder) -> None:
        x = k.input("x", (128,), "float32")
        y = k.inout("y", (64,), "float32")

        def stream(c):
            a, loaded, done = c.ub(64, F32), c.flag(MTE2, V), c.flag(V, MTE3)
            yield isa.copy_in(a, x.flat(64 * c.core.number, 64))
            yield loaded.set
            yield loaded.wait
            yield isa.Muls(dst=a, src=a, scalar=2.0)
            yield done.set
            yield done.wait
            yield isa.SetAtomic(op=isa.Atomic.ADD, dtype=F32)
            yield isa.copy_out(y, a)
            yield isa.copy_out(y.flat(0, 8), a.flat(0, 8))  # adding twice needs no barrier either
            yield isa.SetAtomic(op=isa.Atomic.NONE, dtype=F32)
            if c.core.number and after is not None:
                yield from after(c, a, y)

        k.launch("adders", vector=stream, blocks=2)

        @k.reference
        def expected(inputs):
            both = 2 * inputs["x"].reshape(2, 64).sum(axis=0)
            total = inputs["y"] + both
            total[:8] += both[:8]
            return {"y": Expected(total)}

    return adders


def test_two_cores_add_atomically_without_order():
    assert passes(adders()).values.ok


def test_reading_a_sum_while_the_other_core_may_still_add():
    def after(c, a, y):
        yield isa.PipeBarrier(on=Pipe.ALL)
        yield isa.copy_in(a, y)

    with pytest.raises(
        HazardError, match=r"core0\.vec1: DataCopy \(MTE2\) reads y bytes 0 to 32, which core0\.vec0"
    ):
        passes(adders(after))


def test_overwriting_a_sum_while_the_other_core_may_still_add():
    def after(c, a, y):
        yield isa.PipeBarrier(on=Pipe.ALL)
        yield isa.copy_out(y, a)

    with pytest.raises(
        HazardError, match=r"core0\.vec1: DataCopy \(MTE3\) writes y bytes 0 to 32, which core0\.vec0"
    ):
        passes(adders(after))


def test_reading_a_sum_behind_a_meeting():
    @program
    def met(k: Builder) -> None:
        x = k.input("x", (64,), "float32")
        y, z = k.inout("y", (64,), "float32"), k.output("z", (64,), "float32")

        def stream(c):
            a, loaded = c.ub(64, F32), c.flag(MTE2, MTE3)
            yield isa.copy_in(a, x)
            yield loaded.set
            yield loaded.wait
            yield isa.SetAtomic(op=isa.Atomic.ADD, dtype=F32)
            yield isa.copy_out(y, a)
            yield isa.SetAtomic(op=isa.Atomic.NONE, dtype=F32)
            yield isa.CrossCoreSetFlag(group=isa.Group.ALL, on=MTE3, id=0)
            yield isa.CrossCoreWaitFlag(group=isa.Group.ALL, id=0)
            if c.core.number == 0:
                yield isa.copy_in(a, y)
                yield loaded.set
                yield loaded.wait
                yield isa.copy_out(z, a)

        k.launch("met", vector=stream, blocks=2)

        @k.reference
        def expected(inputs):
            total = inputs["y"] + 2 * inputs["x"]
            return {"y": Expected(total), "z": Expected(total)}

    assert passes(met).values.ok


def test_launches_follow_each_other():
    """The end of a launch orders everything, and leaves nothing in the unified buffer."""

    def two(forget):
        @program
        def two(k: Builder) -> None:
            x, y = k.input("x", (64,), "float32"), k.output("y", (64,), "float32")
            w = k.workspace("w", (64,), "float32")

            def first(c):
                a, loaded = c.ub(64, F32), c.flag(MTE2, MTE3)
                yield isa.copy_in(a, x)
                yield loaded.set
                yield loaded.wait
                yield isa.copy_out(w, a)

            def second(c):
                a, loaded = c.ub(64, F32), c.flag(MTE2, MTE3)
                if not forget:
                    yield isa.copy_in(a, w)
                    yield loaded.set
                    yield loaded.wait
                yield isa.copy_out(y, a)

            k.launch("first", vector=first)
            k.launch("second", vector=second)

            @k.reference
            def expected(inputs):
                return {"y": Expected(inputs["x"])}

        return two

    assert passes(two(False)).values.ok
    with pytest.raises(HazardError, match="reads ub bytes 0 to 256, which nothing has written"):
        passes(two(True))


def test_scalar_access_to_global_memory_through_the_data_cache():
    def stream(c, x, y):
        done = c.flag(S, MTE2)
        loaded = c.flag(MTE2, MTE3)
        a = c.ub(16, F32)
        for i in range(16):
            yield isa.GetValue(reg=0, src=x.flat(i, 1))
            yield isa.ScalarAlu(op=isa.ScalarOp.MUL, reg=0, a=Reg(0), b=3.0, dtype=F32)
            yield isa.SetValue(dst=y.flat(i, 1), value=Reg(0))
        yield isa.DataCacheCleanAndInvalid(at=y)
        yield done.set
        yield done.wait
        yield isa.copy_in(a, y.flat(0, 16))
        yield loaded.set
        yield loaded.wait
        yield isa.copy_out(y.flat(16, 16), a)

    x = np.arange(32, dtype=np.float32)
    y = output(passes(simple(stream, n=32), inputs={"x": x}))
    np.testing.assert_array_equal(y, np.tile(3 * x[:16], 2))


def test_alloc_beside_what_another_pipe_still_uses():
    """Bytes that adjoin are not shared, down to a single block."""

    def stream(c, x, y):
        done = c.flag(MTE2, MTE3)
        yield isa.copy_in(isa.Tile(ub(0), (8,)), x.flat(0, 8))
        yield isa.SetVectorMask(mask=0xFF)
        yield isa.Duplicate(dst=ub(32), scalar=1.0, repeat=1)
        yield done.set
        yield done.wait
        yield isa.copy_out(y.flat(0, 8), isa.Tile(ub(0), (8,)))

    assert output(passes(simple(stream, n=8))).shape == (8,)


def test_unchecked_program_runs_and_gives_something():
    """Without checks a race is no error; it is the author's."""

    def stream(c, x, y):
        a = c.ub(256, F32)
        yield isa.copy_in(a, x)
        yield isa.copy_out(y, a)

    x = np.arange(256, dtype=np.float32)
    np.testing.assert_array_equal(output(passes(simple(stream), inputs={"x": x}, check=False)), x)
    with pytest.raises(HazardError):
        passes(simple(stream), inputs={"x": x})
