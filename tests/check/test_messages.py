"""Whole messages of everything that can be wrong with a program: one small wrong program for every rule."""

from __future__ import annotations

import pytest
from small import ONE_EACH, TOY, mixed, passes, place, refuses, simple

from npusim import Builder, Operand, Pipe, Reg, Space, isa, program, simulate
from npusim.errors import ConfigError, DeadlockError, HazardError, OperandError

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


def plus_one(dst, src, repeat=4):
    return isa.Adds(dst=dst, src=src, scalar=1.0, repeat=repeat)


def zero(dst, repeat=4):
    return isa.Duplicate(dst=dst, scalar=0.0, repeat=repeat)


def ub(address, dtype=F32):
    return Operand(Space.UB, dtype, address)


# ---- races between pipes -----------------------------------------------------------------------------------


def test_store_does_not_wait_for_the_vector_unit():
    def stream(c, x, y):
        a, b = c.ub(256, F32), c.ub(256, F32)
        loaded = c.flag(MTE2, V)
        yield isa.copy_in(a, x)
        yield loaded.set
        yield loaded.wait
        yield plus_one(b, a)  # add
        yield isa.copy_out(y, b)  # store

    refuses(
        HazardError,
        f"{place(stream, 'store')}: core0.vec0: DataCopy (MTE3) reads ub bytes 1,024 to 2,048, which "
        f"Adds (V, {place(stream, 'add')}) writes, and nothing orders them; "
        f"set V->MTE3 behind the first and wait for it before the second",
        simple(stream),
    )


def test_vector_unit_does_not_wait_for_the_load():
    def stream(c, x, y):
        a, b = c.ub(256, F32), c.ub(256, F32)
        yield isa.copy_in(a, x)  # load
        yield plus_one(b, a)  # add

    refuses(
        HazardError,
        f"{place(stream, 'add')}: core0.vec0: Adds (V) reads ub bytes 0 to 1,024, which "
        f"DataCopy (MTE2, {place(stream, 'load')}) writes, and nothing orders them; "
        f"set MTE2->V behind the first and wait for it before the second",
        simple(stream),
    )


def test_loop_refills_a_buffer_that_may_still_be_stored():
    """The classic bug of double buffers: the flags forward are there, the one back is not."""

    def stream(c, x, y):
        tiles = [c.ub(64, F32) for _ in range(2)]
        filled = [c.flag(V, MTE3) for _ in range(2)]
        for i in range(4):
            yield zero(tiles[i % 2], 1)  # fill
            yield filled[i % 2].set
            yield filled[i % 2].wait
            yield isa.copy_out(y.flat(64 * i, 64), tiles[i % 2])  # store

    refuses(
        HazardError,
        f"{place(stream, 'fill')}: core0.vec0: Duplicate (V) writes ub bytes 0 to 256, which "
        f"DataCopy (MTE3, {place(stream, 'store')}) reads, and nothing orders them; "
        f"set MTE3->V behind the first and wait for it before the second",
        simple(stream),
    )


def test_load_overwrites_what_the_vector_unit_reads():
    def stream(c, x, y):
        a, b = c.ub(256, F32), c.ub(256, F32)
        loaded = c.flag(MTE2, V)
        yield isa.copy_in(a, x)
        yield loaded.set
        yield loaded.wait
        yield plus_one(b, a)  # add
        yield isa.copy_in(a, x)  # load again

    refuses(
        HazardError,
        f"{place(stream, 'load again')}: core0.vec0: DataCopy (MTE2) writes ub bytes 0 to 1,024, which "
        f"Adds (V, {place(stream, 'add')}) reads, and nothing orders them; "
        f"set V->MTE2 behind the first and wait for it before the second",
        simple(stream),
    )


def test_vector_unit_overwrites_what_a_load_writes():
    def stream(c, x, y):
        a = c.ub(256, F32)
        yield isa.copy_in(a, x)  # load
        yield zero(a[128:], 2)  # clear

    refuses(
        HazardError,
        f"{place(stream, 'clear')}: core0.vec0: Duplicate (V) writes ub bytes 512 to 1,024, which "
        f"DataCopy (MTE2, {place(stream, 'load')}) writes, and nothing orders them; "
        f"set MTE2->V behind the first and wait for it before the second",
        simple(stream),
    )


def test_scalar_unit_reads_what_the_vector_unit_writes():
    def stream(c, x, y):
        a = c.ub(64, F32)
        yield zero(a, 1)  # clear
        yield isa.GetValue(reg=0, src=a.flat(3, 1))  # read

    refuses(
        HazardError,
        f"{place(stream, 'read')}: core0.vec0: GetValue (S) reads ub bytes 12 to 16, which "
        f"Duplicate (V, {place(stream, 'clear')}) writes, and nothing orders them; "
        f"set V->S behind the first and wait for it before the second",
        simple(stream),
    )


def test_race_with_an_instruction_that_a_form_made():
    def stream(c, x, y):
        a, b = c.ub(100, F32), c.ub(100, F32)
        yield from c.vector(isa.Duplicate, count=100, dst=a, scalar=0.0)  # clear
        yield from c.vector(isa.Adds, count=100, dst=b, src=a, scalar=1.0)  # add

    refuses(
        HazardError,
        f"{place(stream, 'add')}: core0.vec0: Adds (V) reads ub bytes 0 to 256, which "
        f"Duplicate (V, {place(stream, 'clear')}, expansion) writes, and nothing orders them; "
        f"put PipeBarrier V between them",
        simple(stream),
    )


def test_race_in_a_stream_that_is_a_list():
    def stream(c, x, y):
        a, b = c.ub(256, F32), c.ub(256, F32)
        return [isa.PipeBarrier(on=V), isa.copy_in(a, x), plus_one(b, a)]

    refuses(
        HazardError,
        "#2: core0.vec0: Adds (V) reads ub bytes 0 to 1,024, which DataCopy (MTE2, #1) writes, and nothing "
        "orders them; set MTE2->V behind the first and wait for it before the second",
        simple(stream),
    )


# ---- overlap inside one pipe -------------------------------------------------------------------------------


def test_dependent_vector_instructions_without_a_barrier():
    def stream(c, x, y):
        a, b = c.ub(256, F32), c.ub(256, F32)
        yield zero(a)  # clear
        yield plus_one(b, a)  # add

    refuses(
        HazardError,
        f"{place(stream, 'add')}: core0.vec0: Adds (V) reads ub bytes 0 to 1,024, which "
        f"Duplicate (V, {place(stream, 'clear')}) writes, and nothing orders them; "
        f"put PipeBarrier V between them",
        simple(stream),
    )


def test_two_loads_into_one_place_without_a_barrier():
    def stream(c, x, y):
        a = c.ub(256, F32)
        yield isa.copy_in(a, x)  # first
        yield isa.copy_in(a, x)  # second

    refuses(
        HazardError,
        f"{place(stream, 'second')}: core0.vec0: DataCopy (MTE2) writes ub bytes 0 to 1,024, which "
        f"DataCopy (MTE2, {place(stream, 'first')}) writes, and nothing orders them; "
        f"put PipeBarrier MTE2 between them",
        simple(stream),
    )


def test_two_stores_to_one_place_without_a_barrier():
    def stream(c, x, y):
        a, filled = c.ub(256, F32), c.flag(V, MTE3)
        yield zero(a)
        yield filled.set
        yield filled.wait
        yield isa.copy_out(y, a)  # first
        yield isa.copy_out(y.flat(8, 8), a.flat(0, 8))  # second

    refuses(
        HazardError,
        f"{place(stream, 'second')}: core0.vec0: DataCopy (MTE3) writes y bytes 32 to 64, which "
        f"DataCopy (MTE3, {place(stream, 'first')}) writes, and nothing orders them; "
        f"put PipeBarrier MTE3 between them",
        simple(stream),
    )


def product(c, x, rows, *, barrier=False):
    """Two products of rows x 16 by 16 x 16 that add up in one place."""
    a1, b1 = c.l1((rows, 16), F16), c.l1((16, 16), F16)
    a0, b0, acc = c.l0a((rows, 16), F16), c.l0b((16, 16), F16), c.l0c((rows, 16), F32)
    loaded, ready = c.flag(MTE2, MTE1), c.flag(MTE1, M)
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


def test_chained_products_below_ten_fractals_without_a_barrier():
    def cube(c, x, y, w):
        halves = isa.Tile(x.as_type(F16), (256 * 16,))
        steps = list(product(c, halves, 144))
        yield from steps[:-2]
        yield steps[-2]  # first
        yield steps[-1]  # second

    refuses(
        HazardError,
        f"{place(cube, 'second')}: core0.cube0: Mmad (M) reads l0c bytes 0 to 9,216, which "
        f"Mmad (M, {place(cube, 'first')}) writes, and nothing orders them; put PipeBarrier M between them",
        mixed(cube, None, n=4096),
    )


# ---- flags -------------------------------------------------------------------------------------------------


def test_flag_set_twice():
    def stream(c, x, y):
        flag = c.flag(MTE2, V)
        yield flag.set  # first
        yield flag.set  # second
        yield flag.wait

    refuses(
        HazardError,
        f"{place(stream, 'second')}: core0.vec0: SetFlag: MTE2->V#0 is raised again before V has waited "
        f"for it (raised at {place(stream, 'first')}); wait in between, or use another id",
        simple(stream),
    )


def test_flag_that_may_be_set_before_the_wait():
    def stream(c, x, y):
        flag = c.flag(MTE2, V)
        for _ in range(2):
            yield flag.set  # set
            yield flag.wait

    refuses(
        HazardError,
        f"{place(stream, 'set')}: core0.vec0: SetFlag: MTE2->V#0 may be raised again before V has waited "
        f"for it, since nothing tells MTE2 of the wait; add a flag V->MTE2 behind the wait",
        simple(stream),
    )


def test_flag_that_nobody_waits_for():
    def stream(c, x, y):
        flag = c.flag(MTE2, V)
        yield flag.set  # set

    refuses(
        HazardError,
        f"{place(stream, 'set')}: core0.vec0: SetFlag: MTE2->V#0 is raised and never waited for, so the "
        f"next launch would find it; add WaitFlag MTE2->V#0 on V at the end",
        simple(stream),
    )


def test_flag_id_that_the_chip_lacks():
    def stream(c, x, y):
        yield isa.SetFlag(src=V, dst=MTE2, id=8)  # set

    refuses(
        OperandError,
        f"{place(stream, 'set')}: core0.vec0: SetFlag: flag id must be 0..7, not 8",
        simple(stream),
    )


def test_wait_with_an_id_that_the_chip_lacks():
    def stream(c, x, y):
        yield isa.WaitFlag(src=V, dst=MTE2, id=-1)  # wait

    refuses(
        OperandError,
        f"{place(stream, 'wait')}: core0.vec0: WaitFlag: flag id must be 0..7, not -1",
        simple(stream),
    )


def test_flag_from_a_pipe_to_itself():
    def stream(c, x, y):
        yield isa.SetFlag(src=V, dst=V, id=0)  # set

    refuses(
        OperandError,
        f"{place(stream, 'set')}: core0.vec0: SetFlag: a flag joins two different pipes, not V and V; "
        f"use PipeBarrier",
        simple(stream),
    )


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("flag", [isa.SetFlag(src=V, dst=M, id=0), isa.WaitFlag(src=M, dst=V, id=0)])
def test_flag_of_a_pipe_that_another_kind_of_core_has(flag, alone):
    def stream(c, x, y):
        yield flag  # flag

    refuses(
        OperandError,
        f"{place(stream, 'flag')}: core0.vec0: {flag.mnemonic}: this core has no pipe M; "
        f"it has S V MTE2 MTE3",
        simple(stream),
        timing_only=alone,
    )


@pytest.mark.parametrize("alone", [False, True])
def test_instruction_for_a_pipe_that_the_core_lacks(alone):
    def stream(c, x, y):
        yield isa.PipeBarrier(on=M)  # barrier

    refuses(
        OperandError,
        f"{place(stream, 'barrier')}: core0.vec0: PipeBarrier: this core has no pipe M; it has S V MTE2 MTE3",
        simple(stream),
        timing_only=alone,
    )


def test_barrier_on_the_scalar_pipe():
    def stream(c, x, y):
        yield isa.PipeBarrier(on=S)  # barrier

    refuses(
        OperandError,
        f"{place(stream, 'barrier')}: core0.vec0: PipeBarrier: pipe S has no barrier; "
        f"wait for a flag to S instead",
        simple(stream),
    )


def test_all_flags_of_a_pair_taken():
    def stream(c, x, y):
        for _ in range(8):
            yield c.flag(V, MTE2).set  # flag

    refuses(
        HazardError,
        f"{place(stream, 'flag')}: core0.vec0: flags V->MTE2: all 7 ids are taken (one more is kept for "
        f"autosync); "
        f"release one or share a flag",
        simple(stream),
    )


# ---- deadlocks ---------------------------------------------------------------------------------------------


def test_wait_that_nobody_ends():
    def stream(c, x, y):
        yield c.flag(MTE2, V).wait  # wait

    refuses(
        DeadlockError,
        f"deadlock: core0.vec0 V ({place(stream, 'wait')}) waits for flag MTE2->V#0, and no stream has an "
        f"instruction left that would set it",
        simple(stream),
    )


def test_two_pipes_wait_for_each_other():
    def stream(c, x, y):
        loaded, free = c.flag(MTE2, V), c.flag(V, MTE2)
        yield loaded.wait  # V
        yield free.set
        yield free.wait  # MTE2
        yield loaded.set

    refuses(
        DeadlockError,
        f"deadlock: core0.vec0 V ({place(stream, 'V')}) waits for flag MTE2->V#0; core0.vec0 MTE2 "
        f"({place(stream, 'MTE2')}) waits for flag V->MTE2#0; they wait in a circle",
        simple(stream),
    )


def test_two_pipes_wait_for_each_other_in_timing_alone():
    def stream(c, x, y):
        loaded, free = c.flag(MTE2, V), c.flag(V, MTE2)
        yield loaded.wait  # V
        yield free.set
        yield free.wait  # MTE2
        yield loaded.set

    refuses(
        DeadlockError,
        f"deadlock: core0.vec0 V ({place(stream, 'V')}) waits for flag MTE2->V#0; core0.vec0 MTE2 "
        f"({place(stream, 'MTE2')}) waits for flag V->MTE2#0; they wait in a circle",
        simple(stream),
        timing_only=True,
    )


def test_set_that_a_full_queue_keeps_from_being_issued():
    def stream(c, x, y):
        a, loaded = c.ub(64, F32), c.flag(MTE2, V)
        yield loaded.wait  # wait
        for _ in range(TOY.queues.v):
            yield zero(a, 1)  # clear
        yield loaded.set

    circle = (
        f"deadlock: core0.vec0 V ({place(stream, 'wait')}) waits for flag MTE2->V#0; core0.vec0 S "
        f"({place(stream, 'clear')}) cannot issue Duplicate, the queue of V is full; they wait in a circle"
    )
    refuses(DeadlockError, circle, simple(stream))
    refuses(DeadlockError, circle, simple(stream), timing_only=True)


def test_set_behind_a_value_that_never_comes():
    def stream(c, x, y):
        a, loaded = c.ub(64, F32), c.flag(MTE2, V)
        yield isa.copy_in(a, x)
        yield loaded.wait  # wait
        yield isa.GatherMask(dst=ub(1024), src=a, pattern=1)  # gather
        yield loaded.set

    circle = (
        f"deadlock: core0.vec0 V ({place(stream, 'wait')}) waits for flag MTE2->V#0; core0.vec0 S "
        f"({place(stream, 'gather')}) waits for the value of GatherMask on V; they wait in a circle"
    )
    refuses(DeadlockError, circle, simple(stream))
    refuses(DeadlockError, circle, simple(stream), timing_only=True)


def test_scalar_unit_waits_before_it_issues_the_set():
    def stream(c, x, y):
        counted = c.flag(V, S)
        yield counted.wait  # wait
        yield counted.set

    refuses(
        DeadlockError,
        f"deadlock: core0.vec0 S ({place(stream, 'wait')}) waits for flag V->S#0, and core0.vec0 issues "
        f"nothing more until then",
        simple(stream),
    )


def test_barrier_of_all_pipes_behind_a_wait_that_nobody_ends():
    def stream(c, x, y):
        yield c.flag(MTE2, V).wait  # wait
        yield isa.PipeBarrier(on=Pipe.ALL)  # barrier

    refuses(
        DeadlockError,
        f"deadlock: core0.vec0 V ({place(stream, 'wait')}) waits for flag MTE2->V#0; core0.vec0 S "
        f"({place(stream, 'barrier')}) waits at a barrier; they wait in a circle",
        simple(stream),
    )


def test_cores_wait_for_each_other():
    def cube(c, x, y, w):
        yield isa.CrossCoreWaitFlag(group=isa.Group.CUBE_VECTOR, id=0)  # cube waits
        yield isa.CrossCoreSetFlag(group=isa.Group.CUBE_VECTOR, on=FIX, id=1)

    def vector(c, x, y, w):
        yield isa.CrossCoreWaitFlag(group=isa.Group.CUBE_VECTOR, id=1)  # vector waits
        yield isa.CrossCoreSetFlag(group=isa.Group.CUBE_VECTOR, on=MTE3, id=0)

    circle = (
        f"deadlock: core0.cube0 S ({place(cube, 'cube waits')}) waits for cross-core flag 0 from core0.vec0 "
        f"and core0.vec1; core0.vec0 S ({place(vector, 'vector waits')}) waits for cross-core flag 1 from "
        f"core0.cube0; they wait in a circle"
    )
    refuses(DeadlockError, circle, mixed(cube, vector))
    refuses(DeadlockError, circle, mixed(cube, vector), timing_only=True)


def test_core_waits_for_one_that_has_ended():
    def cube(c, x, y, w):
        yield isa.CrossCoreWaitFlag(group=isa.Group.CUBE_VECTOR, id=3)  # wait

    def vector(c, x, y, w):
        if c.core.number == 0:
            yield isa.CrossCoreSetFlag(group=isa.Group.CUBE_VECTOR, on=MTE3, id=3)

    refuses(
        DeadlockError,
        f"deadlock: core0.cube0 S ({place(cube, 'wait')}) waits for cross-core flag 3 from core0.vec1, and "
        f"no stream has an instruction left that would set it",
        mixed(cube, vector),
    )


# ---- other cores -------------------------------------------------------------------------------------------


def test_cross_core_counter_overflows():
    def cube(c, x, y, w):
        for _ in range(16):
            yield isa.CrossCoreSetFlag(group=isa.Group.CUBE_VECTOR, on=FIX, id=2)  # set

    def vector(c, x, y, w):
        for _ in range(16):
            yield isa.CrossCoreWaitFlag(group=isa.Group.CUBE_VECTOR, id=2)

    refuses(
        HazardError,
        f"{place(cube, 'set')}: core0.cube0: CrossCoreSetFlag: set 16 of flag 2 may leave more than 15 sets "
        f"that core0.vec0 has not waited for, and the counter overflows; wait for a flag from "
        f"core0.vec0 at least every 15 sets",
        mixed(cube, vector),
    )


def test_cross_core_flag_that_one_receiver_never_waits_for():
    def cube(c, x, y, w):
        yield isa.CrossCoreSetFlag(group=isa.Group.CUBE_VECTOR, on=FIX, id=4)  # set

    def vector(c, x, y, w):
        if c.core.number == 0:
            yield isa.CrossCoreWaitFlag(group=isa.Group.CUBE_VECTOR, id=4)

    refuses(
        HazardError,
        f"{place(cube, 'set')}: core0.cube0: CrossCoreSetFlag: flag 4 reaches core0.vec1, which never waits "
        f"for it; add CrossCoreWaitFlag 4 there",
        mixed(cube, vector),
    )


def test_meeting_of_all_cores_of_a_kind_that_one_misses():
    def vector(c, x, y, w):
        if c.core.number == 0:
            yield isa.CrossCoreSetFlag(group=isa.Group.ALL, on=MTE3, id=5)
            yield isa.CrossCoreWaitFlag(group=isa.Group.ALL, id=5)  # wait

    refuses(
        DeadlockError,
        f"deadlock: core0.vec0 S ({place(vector, 'wait')}) waits for cross-core flag 5 from core0.vec1, and "
        f"no stream has an instruction left that would set it",
        mixed(None, vector, blocks=2),
    )


@pytest.mark.parametrize("alone", [False, True])
def test_cross_core_wait_for_cores_that_do_not_take_part(alone):
    def stream(c, x, y):
        yield isa.CrossCoreWaitFlag(group=isa.Group.CUBE_VECTOR, id=0)  # wait

    refuses(
        OperandError,
        f"{place(stream, 'wait')}: core0.vec0: CrossCoreWaitFlag: no core of the launch can set this flag, "
        f"so the wait never ends",
        simple(stream),
        timing_only=alone,
    )


@pytest.mark.parametrize("alone", [False, True])
def test_cross_core_set_for_cores_that_do_not_take_part(alone):
    def stream(c, x, y):
        yield isa.CrossCoreSetFlag(group=isa.Group.CUBE_VECTOR, on=MTE3, id=0)  # set

    refuses(
        OperandError,
        f"{place(stream, 'set')}: core0.vec0: CrossCoreSetFlag: no core of the launch receives this flag, so "
        f"the next launch would find it",
        simple(stream),
        timing_only=alone,
    )


def test_cross_core_id_that_the_chip_lacks():
    def stream(c, x, y):
        yield isa.CrossCoreSetFlag(group=isa.Group.ALL, on=MTE3, id=11)  # set

    refuses(
        OperandError,
        f"{place(stream, 'set')}: core0.vec0: CrossCoreSetFlag: cross-core flag id must be 0..10, not 11",
        simple(stream),
    )


def test_cross_core_flag_set_by_two_pipes_in_no_order():
    def cube(c, x, y, w):
        yield isa.CrossCoreSetFlag(group=isa.Group.CUBE_VECTOR, on=FIX, id=2)  # first
        yield isa.CrossCoreSetFlag(group=isa.Group.CUBE_VECTOR, on=MTE2, id=2)  # second

    def vector(c, x, y, w):
        for _ in range(2):
            yield isa.CrossCoreWaitFlag(group=isa.Group.CUBE_VECTOR, id=2)

    refuses(
        HazardError,
        f"{place(cube, 'second')}: core0.cube0: CrossCoreSetFlag: on flag 2 nothing orders pipe MTE2 behind "
        f"CrossCoreSetFlag (FIX, {place(cube, 'first')}), so either may be first; use one pipe for it, "
        f"or another id",
        mixed(cube, vector),
    )


def test_cross_core_flag_waited_for_by_two_pipes_in_no_order():
    def cube(c, x, y, w):
        for _ in range(2):
            yield isa.CrossCoreSetFlag(group=isa.Group.CUBE_VECTOR, on=FIX, id=2)

    def vector(c, x, y, w):
        yield isa.CrossCoreWaitFlag(group=isa.Group.CUBE_VECTOR, on=MTE2, id=2)  # first
        yield isa.CrossCoreWaitFlag(group=isa.Group.CUBE_VECTOR, id=2)  # second

    refuses(
        HazardError,
        f"{place(vector, 'second')}: core0.vec0: CrossCoreWaitFlag: on flag 2 nothing orders pipe S behind "
        f"CrossCoreWaitFlag (MTE2, {place(vector, 'first')}), so either may be first; use one pipe for it, "
        f"or another id",
        mixed(cube, vector),
    )


def test_two_cores_write_one_place():
    def stream(c, x, y):
        a, filled = c.ub(64, F32), c.flag(V, MTE3)
        yield zero(a, 1)
        yield filled.set
        yield filled.wait
        yield isa.copy_out(y.flat(0, 64), a)  # store

    refuses(
        HazardError,
        f"{place(stream, 'store')}: core0.vec1: DataCopy (MTE3) writes y bytes 0 to 256, which core0.vec0 "
        f"DataCopy (MTE3, {place(stream, 'store')}) writes, and nothing orders them; let core0.vec1 wait for "
        f"a cross-core flag that core0.vec0 sets behind it",
        simple(stream, n=64, blocks=2),
    )


def test_core_reads_what_another_may_still_be_writing():
    def stream(c, x, y):
        a, filled = c.ub(64, F32), c.flag(V, MTE3)
        if c.core.number == 0:
            yield zero(a, 1)
            yield filled.set
            yield filled.wait
            yield isa.copy_out(y.flat(0, 64), a)  # store
        else:
            yield isa.copy_in(a, y.flat(0, 64))  # load

    refuses(
        HazardError,
        f"{place(stream, 'load')}: core0.vec1: DataCopy (MTE2) reads y bytes 0 to 256, which core0.vec0 "
        f"DataCopy (MTE3, {place(stream, 'store')}) writes, and nothing orders them; let core0.vec1 wait for "
        f"a cross-core flag that core0.vec0 sets behind it",
        simple(stream, n=64, blocks=2),
    )


def test_cross_core_flag_set_before_the_store():
    """The flag is there, but on a pipe that does not know of the store."""

    def stream(c, x, y):
        a, filled = c.ub(64, F32), c.flag(V, MTE3)
        if c.core.number == 0:
            yield zero(a, 1)
            yield filled.set
            yield filled.wait
            yield isa.copy_out(y.flat(0, 64), a)  # store
        yield isa.CrossCoreSetFlag(group=isa.Group.VECTOR_PAIR, on=V, id=0)
        yield isa.CrossCoreWaitFlag(group=isa.Group.VECTOR_PAIR, id=0)
        if c.core.number == 1:
            yield isa.copy_in(a, y.flat(0, 64))  # load

    refuses(
        HazardError,
        f"{place(stream, 'load')}: core0.vec1: DataCopy (MTE2) reads y bytes 0 to 256, which core0.vec0 "
        f"DataCopy (MTE3, {place(stream, 'store')}) writes, and nothing orders them; let core0.vec1 wait for "
        f"a cross-core flag that core0.vec0 sets behind it",
        simple(stream, n=64, blocks=2),
    )


def test_atomic_store_on_top_of_a_plain_one_of_another_core():
    def stream(c, x, y):
        a, filled = c.ub(64, F32), c.flag(V, MTE3)
        yield zero(a, 1)
        yield filled.set
        yield filled.wait
        if c.core.number == 1:
            yield isa.SetAtomic(op=isa.Atomic.ADD, dtype=F32)
        yield isa.copy_out(y.flat(0, 64), a)  # store

    refuses(
        HazardError,
        f"{place(stream, 'store')}: core0.vec1: DataCopy (MTE3) writes y bytes 0 to 256, which core0.vec0 "
        f"DataCopy (MTE3, {place(stream, 'store')}) writes, and nothing orders them; let core0.vec1 wait for "
        f"a cross-core flag that core0.vec0 sets behind it",
        simple(stream, n=64, blocks=2),
    )


def test_atomic_store_on_top_of_a_plain_one_of_the_same_pipe():
    def stream(c, x, y):
        a = c.ub(256, F32)
        yield zero(a)
        yield isa.PipeBarrier(on=Pipe.ALL)
        yield isa.copy_out(y, a)  # first
        yield isa.SetAtomic(op=isa.Atomic.ADD, dtype=F32)
        yield isa.copy_out(y, a)  # second

    refuses(
        HazardError,
        f"{place(stream, 'second')}: core0.vec0: DataCopy (MTE3) writes y bytes 0 to 1,024, which "
        f"DataCopy (MTE3, {place(stream, 'first')}) writes, and nothing orders them; "
        f"put PipeBarrier MTE3 between them",
        simple(stream),
    )


# ---- memories ----------------------------------------------------------------------------------------------


def test_unified_buffer_too_small_for_the_tiles():
    def stream(c, x, y):
        c.ub(16000, F32)
        a = c.ub(512, F32)  # tile
        yield isa.copy_in(a, x)

    refuses(
        ConfigError,
        f"{place(stream, 'tile')}: core0.vec0: ub: 66,048 bytes needed, 65,536 available on toy; "
        f"use smaller tiles",
        simple(stream),
    )


def test_unified_buffer_too_small_in_a_stream_that_is_a_list():
    def stream(c):
        a = c.ub(16385, F32)  # tile
        return [isa.PipeBarrier(on=V), zero(a)]

    @program
    def small(k: Builder) -> None:
        k.launch("small", vector=stream)

    refuses(
        ConfigError,
        f"{place(stream, 'tile')}: core0.vec0: ub: 65,540 bytes needed, 65,536 available on toy; use smaller "
        f"tiles",
        small,
    )


def test_tile_in_a_memory_of_another_kind_of_core():
    def stream(c, x, y):
        yield isa.copy_in(c.l1(64, F32), x)  # tile

    refuses(
        ConfigError,
        f"{place(stream, 'tile')}: core0.vec0: no l1 on this core; it has ub",
        simple(stream),
    )


def test_operand_in_a_memory_of_another_kind_of_core():
    def stream(c, x, y):
        yield isa.DataCopy(dst=Operand(Space.L1, F32, 0), src=x, block_len=1)  # load

    refuses(
        OperandError,
        f"{place(stream, 'load')}: core0.vec0: DataCopy: this core has no l1 for dst; it has ub",
        simple(stream),
    )


def test_start_that_is_not_aligned():
    def stream(c, x, y):
        yield isa.DataCopy(dst=ub(16), src=x, block_len=1)  # load

    refuses(
        OperandError,
        f"{place(stream, 'load')}: core0.vec0: DataCopy: dst must start at a multiple of 32 bytes in ub, "
        f"not at 0x10",
        simple(stream),
    )


def test_more_repeats_than_an_instruction_holds():
    def stream(c, x, y):
        yield zero(ub(0), 256)  # clear

    refuses(
        OperandError,
        f"{place(stream, 'clear')}: core0.vec0: Duplicate: repeat must be 0..255, not 256; split it, or "
        f"count elements in counter mode",
        simple(stream),
    )


def test_stride_beyond_its_field():
    def stream(c, x, y):
        yield isa.Adds(dst=ub(0), src=ub(0), scalar=1.0, src_repeat=256)  # add

    refuses(
        OperandError,
        f"{place(stream, 'add')}: core0.vec0: Adds: src_repeat must be 0..255, not 256; it counts blocks of "
        f"32 bytes",
        simple(stream),
    )


def test_mask_that_selects_nothing():
    def stream(c, x, y):
        yield isa.SetVectorMask(mask=1 << 64)
        yield zero(ub(0))  # clear

    refuses(
        OperandError,
        f"{place(stream, 'clear')}: core0.vec0: Duplicate: the mask must select one of the 64 lanes, not "
        f"none; set it with SetVectorMask",
        simple(stream),
    )


def test_load_that_leaves_its_array():
    def stream(c, x, y):
        yield isa.DataCopy(dst=ub(0), src=x, block_len=33)  # load

    refuses(
        OperandError,
        f"{place(stream, 'load')}: core0.vec0: DataCopy: reads bytes 0 to 1,056 of x, which has 1,024; check "
        f"address, length and strides",
        simple(stream),
    )


def test_store_that_starts_before_its_array():
    def stream(c, x, y):
        yield zero(ub(0))
        yield isa.PipeBarrier(on=Pipe.ALL)
        yield isa.copy_out(y.offset(-32), isa.Tile(ub(0), (8,)))  # store

    refuses(
        OperandError,
        f"{place(stream, 'store')}: core0.vec0: DataCopy: dst starts at the negative address -32",
        simple(stream),
    )


def test_operand_in_a_segment_that_does_not_exist():
    def stream(c, x, y):
        yield isa.DataCopy(dst=ub(0), src=Operand(Space.GM, F32, 0, 2), block_len=1)  # load

    refuses(
        OperandError,
        f"{place(stream, 'load')}: core0.vec0: DataCopy: gm2 is no segment; the program has 2",
        simple(stream),
    )


def test_copy_that_leaves_the_unified_buffer():
    def stream(c, x, y):
        yield isa.DataCopy(dst=ub(65536 - 32), src=x, block_len=2)  # load

    refuses(
        OperandError,
        f"{place(stream, 'load')}: core0.vec0: DataCopy: bytes 65,504..65,568 leave the 65,536 bytes of ub",
        simple(stream),
    )


def test_vector_instruction_that_leaves_the_unified_buffer():
    def stream(c, x, y):
        yield zero(ub(65536 - 256), 2)  # clear

    refuses(
        OperandError,
        f"{place(stream, 'clear')}: core0.vec0: Duplicate: dst must stay inside the 65,536 bytes of ub, not "
        f"end at byte 65,792; use fewer repeats, smaller strides or a lower address",
        simple(stream),
    )


def test_reading_a_buffer_that_nothing_has_written():
    def stream(c, x, y):
        a, b = c.ub(256, F32), c.ub(256, F32)
        yield zero(a, 3)
        yield isa.PipeBarrier(on=V)
        yield plus_one(b, a)  # add

    refuses(
        HazardError,
        f"{place(stream, 'add')}: core0.vec0: Adds (V) reads ub bytes 768 to 1,024, which nothing has "
        f"written; load or compute them first",
        simple(stream),
    )


def test_reading_an_output_that_nothing_has_written():
    def stream(c, x, y):
        yield isa.copy_in(c.ub(256, F32), y)  # load

    refuses(
        HazardError,
        f"{place(stream, 'load')}: core0.vec0: DataCopy (MTE2) reads y bytes 0 to 1,024, which nothing has "
        f"written; load or compute them first",
        simple(stream),
    )


def test_adding_to_an_output_that_nothing_has_written():
    def stream(c, x, y):
        yield zero(ub(0))
        yield isa.PipeBarrier(on=Pipe.ALL)
        yield isa.SetAtomic(op=isa.Atomic.ADD, dtype=F32)
        yield isa.copy_out(y, isa.Tile(ub(0), (256,)))  # store

    refuses(
        HazardError,
        f"{place(stream, 'store')}: core0.vec0: DataCopy (MTE3) reads y bytes 0 to 1,024, which nothing has "
        f"written; load or compute them first",
        simple(stream),
    )


def test_output_that_nothing_writes():
    def stream(c, x, y):
        yield isa.PipeBarrier(on=V)

    refuses(
        HazardError,
        "small: bytes 0 to 1,024 of output y are never written; let a stream store them, or make the output "
        "smaller",
        simple(stream),
    )


def test_output_with_a_hole():
    def stream(c, x, y):
        yield zero(ub(0))
        yield isa.PipeBarrier(on=Pipe.ALL)
        yield isa.DataCopy(dst=y, src=ub(0), block_count=4, block_len=7, dst_gap=1)

    refuses(
        HazardError,
        "small: bytes 224 to 256 of output y are never written; let a stream store them, or make the output "
        "smaller",
        simple(stream),
    )


# ---- operands ----------------------------------------------------------------------------------------------


def test_vector_operand_in_global_memory():
    def stream(c, x, y):
        yield isa.Adds(dst=y, src=ub(0), scalar=1.0)  # add

    refuses(
        OperandError,
        f"{place(stream, 'add')}: core0.vec0: Adds: dst must be in ub, not gm; copy it there first",
        simple(stream),
    )


def test_path_that_does_not_exist():
    def stream(c, x, y):
        yield isa.DataCopy(dst=y, src=x, block_len=1)  # copy

    refuses(
        OperandError,
        f"{place(stream, 'copy')}: core0.vec0: DataCopy: there is no path gm -> gm",
        simple(stream),
    )


def test_element_type_that_an_instruction_does_not_know():
    def stream(c, x, y):
        yield isa.Adds(dst=ub(0, isa.S8), src=ub(0, isa.S8), scalar=1)  # add

    refuses(
        OperandError,
        f"{place(stream, 'add')}: core0.vec0: Adds: dst must be f16, f32, s16 or s32, not s8",
        simple(stream),
    )


def test_operands_of_two_element_types():
    def stream(c, x, y):
        yield isa.Adds(dst=ub(0, F16), src=ub(0, F32), scalar=1.0)  # add

    refuses(
        OperandError,
        f"{place(stream, 'add')}: core0.vec0: Adds: dst and src must have one element type, not f16 and f32; "
        f"convert one of them with Cast",
        simple(stream),
    )


def test_register_that_nothing_has_set():
    def stream(c, x, y):
        yield isa.Duplicate(dst=ub(0), scalar=Reg(3))  # clear

    refuses(
        HazardError,
        f"{place(stream, 'clear')}: core0.vec0: Duplicate: r3 is used before anything set it; set it with "
        f"GetValue or ScalarAlu",
        simple(stream),
    )


def test_register_that_does_not_exist():
    def stream(c, x, y):
        yield isa.Duplicate(dst=ub(0), scalar=Reg(64))  # clear

    refuses(
        OperandError,
        f"{place(stream, 'clear')}: core0.vec0: Duplicate: register must be r0..r63, not r64",
        simple(stream),
    )


# ---- streams -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("thing", "name"),
    [
        (None, "NoneType"),
        (5, "int"),
        ([isa.PipeBarrier(on=V)], "list"),
        (isa.PipeBarrier, "the class PipeBarrier"),
        (isa.ResetMask, "the class ResetMask"),
    ],
)
def test_stream_that_yields_something_else(thing, name):
    def stream(c, x, y):
        yield isa.PipeBarrier(on=V)
        yield thing  # thing

    refuses(
        ConfigError,
        f"{place(stream, 'thing')}: core0.vec0: a stream yields instructions, not {name}; splice lists "
        f"and helpers in with `yield from`",
        simple(stream),
    )


def test_list_of_something_else():
    def stream(c, x, y):
        return [5]

    refuses(
        ConfigError,
        "core0.vec0: a stream yields instructions, not int; splice lists and helpers in with `yield from`",
        simple(stream),
    )


def gathered(c, x):
    a, loaded = c.ub(64, F32), c.flag(MTE2, V)
    yield isa.copy_in(a, x.flat(0, 64))
    yield loaded.set
    yield loaded.wait


USES = {
    "range": range,
    "int": int,
    "float": float,
    "bool": bool,
    "hash": hash,
    "len": len,
    "abs": abs,
    "list": list,
    "n + 1": lambda n: n + 1,
    "2 * n": lambda n: 2 * n,
    "64 // n": lambda n: 64 // n,
    "n % 8": lambda n: n % 8,
    "divmod": lambda n: divmod(n, 8),
    "-n": lambda n: -n,
    "n << 1": lambda n: n << 1,
    "7 & n": lambda n: 7 & n,
    "n**2": lambda n: n**2,
    "n > 3": lambda n: n > 3,
    "n == 3": lambda n: n == 3,
    "n in": lambda n: n in (1, 2),
    "a[n]": lambda n: [1, 2][n],
    "max": lambda n: max(1, n),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_time_alone_of_a_stream_that_depends_on_values(use):
    def stream(c, x, y):
        yield from gathered(c, x)
        n = yield isa.GatherMask(dst=ub(1024), src=ub(0), pattern=1)  # gather
        use(n)  # use
        yield isa.PipeBarrier(on=V)

    refuses(
        ConfigError,
        f"{place(stream, 'use')}: core0.vec0: the stream depends on the value of GatherMask "
        f"({place(stream, 'gather')}), which timing alone does not know; run with values, or let the program "
        f"take the size as a parameter",
        simple(stream),
        timing_only=True,
    )


def test_time_alone_of_an_instruction_that_depends_on_a_value():
    def stream(c, x, y):
        yield from gathered(c, x)
        n = yield isa.GetValue(reg=0, src=x)  # read
        yield zero(ub(0), n)

    refuses(
        ConfigError,
        f"the stream depends on the value of GetValue ({place(stream, 'read')}), which timing alone does not "
        f"know; run with values, or let the program take the size as a parameter",
        simple(stream),
        timing_only=True,
    )


def test_time_alone_of_a_stream_that_only_passes_values_on():
    def stream(c, x, y):
        yield from gathered(c, x)
        kept = yield isa.GatherMask(dst=ub(1024), src=ub(0), pattern=1)
        yield isa.GetValue(reg=0, src=x)
        yield isa.Duplicate(dst=ub(2048), scalar=Reg(0))
        return kept

    assert passes(simple(stream), timing_only=True).total_cycles > 0


def test_time_alone_of_an_instruction_without_a_cost():
    """Timing alone checks no limits, but says what is wrong where a rule that is broken leaves no cost."""

    def stream(c, x, y):
        yield isa.SetMaskCount()
        yield zero(ub(0))  # clear

    refuses(
        OperandError,
        f"{place(stream, 'clear')}: core0.vec0: Duplicate: counter mode is on and the mask still holds lane "
        f"bits; set the number of elements with SetVectorMask",
        simple(stream),
        timing_only=True,
    )


# ---- launches ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("timing_only", [False, True])
def test_more_blocks_than_cores_can_meet(timing_only):
    def stream(c, x, y):
        yield from c.sync_all()  # sync_all

    refuses(
        DeadlockError,
        f"{place(stream, 'sync_all')}: core0.vec0: SyncAll: all 3 blocks of launch small are to meet, but "
        f"toy runs 2 at a time and the others start when these have ended, so the wait never ends; launch 2 "
        f"blocks or fewer and give each more work",
        simple(stream, blocks=3),
        timing_only=timing_only,
    )


def test_meeting_without_flags_between_cores():
    @program
    def lonely(k):
        k.launch("lonely", coupled=lambda c: c.sync_all())

    with pytest.raises(HazardError) as caught:
        simulate(lonely, "ascend-310")
    assert str(caught.value).endswith(
        "SyncAll: ascend-310 has no flags between cores; end the launch instead"
    )


def test_flag_that_would_leave_a_launch():
    @program
    def two(k: Builder) -> None:
        flag = isa.SetFlag(src=MTE2, dst=V, id=1), isa.WaitFlag(src=MTE2, dst=V, id=1)
        k.output("y", (8,), "float32")
        k.launch("first", vector=lambda c: [flag[0]])
        k.launch("second", vector=lambda c: [flag[1]])

    refuses(
        HazardError,
        "#0: core0.vec0: SetFlag: MTE2->V#1 is raised and never waited for, so the next launch would find "
        "it; add WaitFlag MTE2->V#1 on V at the end",
        two,
    )


def test_cross_core_flags_that_match_on_a_chip_with_one_vector_core():
    def cube(c, x, y, w):
        yield isa.CrossCoreWaitFlag(group=isa.Group.CUBE_VECTOR, id=0)

    def vector(c, x, y, w):
        yield isa.CrossCoreSetFlag(group=isa.Group.CUBE_VECTOR, on=MTE3, id=0)
        yield zero(ub(0))
        yield isa.PipeBarrier(on=Pipe.ALL)
        yield isa.copy_out(y, isa.Tile(ub(0), (256,)))

    assert passes(mixed(cube, vector), ONE_EACH).values.checked is False
