"""What a stream's author works with: tiles, flags out of a pool, queues of tiles."""

from __future__ import annotations

import math

import pytest

from npusim import Builder, Kernel, Pipe, Space, isa, load_chip, program, simulate
from npusim.errors import ConfigError, HazardError
from npusim.program.core import CoreId, CoreKind

TOY = load_chip("toy")
V, MTE2, MTE3 = Pipe.V, Pipe.MTE2, Pipe.MTE3


def kernel(kind=CoreKind.VECTOR, chip=TOY):
    return Kernel(chip, CoreId(0, kind), 0)


def message(error, function, *args, **options):
    with pytest.raises(error) as caught:
        function(*args, **options)
    return str(caught.value)


# ---- tiles -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("space", "kind", "alignment"),
    [
        ("ub", CoreKind.VECTOR, 32),
        ("l1", CoreKind.CUBE, 32),
        ("l0a", CoreKind.CUBE, 512),
        ("l0b", CoreKind.CUBE, 512),
        ("l0c", CoreKind.CUBE, 1024),
    ],
)
def test_tiles_follow_each_other_at_the_alignment_of_the_memory(space, kind, alignment):
    k = kernel(kind)
    alloc = getattr(k, space)
    end = 0
    for shape in (1, (3, 5), alignment, (2, 2, 2), 7):
        tile = alloc(shape, isa.F16)
        assert tile.space.short == space
        assert tile.shape == (shape if isinstance(shape, tuple) else (shape,))
        assert tile.address % alignment == 0
        assert end <= tile.address < end + alignment
        end = tile.address + 2 * math.prod(tile.shape)


def test_memories_are_counted_apart():
    k = kernel(CoreKind.CUBE)
    assert [getattr(k, s)(8, isa.F32).address for s in ("l1", "l0a", "l0b", "l0c")] == [0, 0, 0, 0]
    assert k.alloc(Space.BT, 3, isa.F32).address == 0
    assert k.alloc(Space.BT, 3, isa.F32).address == 64
    assert k.alloc(Space.FB, 3, isa.U64).address == 0


def test_element_types_by_name():
    k = kernel()
    assert k.ub(8, "float32") == k.ub(8, "f32").offset(-32)
    assert k.ub(5, "s4").nbytes == 3
    assert message(ConfigError, k.ub, 8, "float33") == (
        "element type 'float33' is not known; did you mean float32?"
    )


def test_a_memory_holds_its_last_byte():
    k = kernel()
    assert k.ub(16384 - 8, isa.F32).nbytes == 65536 - 32
    assert k.ub(32, isa.S8).address == 65536 - 32
    assert message(ConfigError, k.ub, 1, isa.S8) == (
        "ub: 65,537 bytes needed, 65,536 available on toy; use smaller tiles"
    )


@pytest.mark.parametrize(
    ("shape", "text"), [(0, "0"), (-5, "-5"), ((3, 0), "3x0"), ((3, -1), "3x-1"), ((), "no extent")]
)
def test_empty_tiles_are_refused(shape, text):
    assert message(ConfigError, kernel().ub, shape, isa.F32) == (
        f"ub: every extent of a tile must be 1 or more, not {text}"
    )


@pytest.mark.parametrize(
    ("kind", "space", "there"),
    [
        (CoreKind.VECTOR, "l1", "ub"),
        (CoreKind.VECTOR, "l0c", "ub"),
        (CoreKind.CUBE, "ub", "l1 l0a l0b l0c bt fb"),
    ],
)
def test_memories_of_other_cores(kind, space, there):
    assert message(ConfigError, getattr(kernel(kind), space), 8, isa.F32) == (
        f"no {space} on this core; it has {there}"
    )


def test_a_coupled_core_has_both_kinds():
    k = kernel(CoreKind.COUPLED, load_chip("ascend-310"))
    assert k.ub(8, isa.F16).space is Space.UB
    assert k.l1(8, isa.F16).space is Space.L1


# ---- flags -------------------------------------------------------------------------------------------------


def test_flags_come_with_their_instructions():
    flag = kernel().flag(MTE2, V)
    assert flag.set == isa.SetFlag(src=MTE2, dst=V, id=0)
    assert flag.wait == isa.WaitFlag(src=MTE2, dst=V, id=0)


def test_pool_gives_the_lowest_free_id_of_every_ordered_pair():
    pool = kernel().events
    taken = [pool.take(MTE2, V) for _ in range(3)]
    assert [e.id for e in taken] == [0, 1, 2]
    assert pool.take(V, MTE2).id == 0
    assert pool.peek(MTE2, V) == 3
    pool.release(taken[1])
    assert pool.peek(MTE2, V) == 1
    assert pool.take(MTE2, V).id == 1
    assert pool.take(MTE2, V).id == 3


def test_pool_keeps_its_last_id_for_automatic_synchronisation():
    pool = kernel().events
    assert [pool.take(MTE2, V).id for _ in range(TOY.flags.ids - 1)] == list(range(7))
    assert pool.peek(MTE2, V) is None
    assert message(HazardError, pool.take, MTE2, V) == (
        "flags MTE2->V: all 7 ids are taken (one more is kept for autosync); release one or share a flag"
    )


def test_releasing_what_was_not_taken():
    pool = kernel().events
    flag = pool.take(MTE2, V)
    pool.release(flag)
    assert message(ValueError, pool.release, flag) == "flag MTE2->V#0 was not taken"


# ---- queues ------------------------------------------------------------------------------------------------


def drawn(steps):
    """Run a helper to its end; return its instructions as text, and its value."""
    texts = []
    while True:
        try:
            texts.append(str(next(steps)))
        except StopIteration as stop:
            return texts, stop.value


def test_queue_protocol():
    k = kernel()
    tiles = [k.ub(8, isa.F32) for _ in range(2)]
    queue = k.queue(MTE2, V, tiles)
    full, free = "src=MTE2 dst=V id=", "src=V dst=MTE2 id="
    for turn in range(5):
        slot = turn % 2
        wait = [f"WaitFlag {free}{slot}"] if turn > 1 else []  # both tiles are free at first
        assert drawn(queue.alloc()) == (wait, tiles[slot])
        assert drawn(queue.enque()) == ([f"SetFlag {full}{slot}"], None)
        assert drawn(queue.deque()) == ([f"WaitFlag {full}{slot}"], tiles[slot])
        assert drawn(queue.free()) == ([f"SetFlag {free}{slot}"], None)
    assert [str(op) for op in k.finish()] == [f"WaitFlag {free}0", f"WaitFlag {free}1"]
    assert list(k.finish()) == []


def test_queue_runs_ahead_as_far_as_it_has_tiles():
    k = kernel()
    queue = k.queue(MTE2, V, [k.ub(8, isa.F32) for _ in range(3)])
    for _ in range(3):
        assert drawn(queue.alloc())[0] == []
        drawn(queue.enque())
    for slot in range(3):
        drawn(queue.deque())
        drawn(queue.free())
        assert drawn(queue.alloc())[0] == [f"WaitFlag src=V dst=MTE2 id={slot}"]
        drawn(queue.enque())


def test_waits_at_the_end_are_marked_as_such():
    seen = []

    @program
    def queued(k: Builder) -> None:
        x, y = k.input("x", (32,), "float32"), k.output("y", (32,), "float32")

        def stream(c):
            tiles = c.queue(MTE2, MTE3, [c.ub(8, isa.F32) for _ in range(2)])
            for i in range(4):
                tile = yield from tiles.alloc()
                yield isa.copy_in(tile, x.flat(8 * i, 8))
                yield from tiles.enque()
                tile = yield from tiles.deque()
                yield isa.copy_out(y.flat(8 * i, 8), tile)
                yield from tiles.free()

        k.launch("queued", vector=stream)

    simulate(queued, TOY, observe=lambda _, streams: seen.extend(streams[0].ops))
    kinds = [op.origin.value for op in seen]
    assert kinds[-2:] == ["pipe_end", "pipe_end"]
    assert kinds.count("queue") == 4 * 4 - 2
    assert kinds.count("explicit") == 8


def test_queue_without_tiles_and_queue_with_too_many():
    k = kernel()
    assert message(ConfigError, k.queue, MTE2, V, []) == (
        "queue MTE2->V: one tile or more is needed, not none"
    )
    tiles = [k.ub(8, isa.F32) for _ in range(8)]
    assert message(HazardError, k.queue, MTE2, V, tiles) == (
        "flags MTE2->V: all 7 ids are taken (one more is kept for autosync); release one or share a flag"
    )


# ---- forms that follow the state ---------------------------------------------------------------------------


def test_contiguous_forms_change_the_mask_only_where_it_differs():
    seen = []

    @program
    def masked(k: Builder) -> None:
        k.output("y", (8,), "float32")

        def stream(c):
            a = c.ub(128, isa.F32)
            yield from c.vector(isa.Duplicate, count=100, dst=a, scalar=0.0)
            yield from c.vector(isa.Duplicate, count=100, dst=a, scalar=1.0)
            yield from c.vector(isa.Duplicate, count=64, dst=a, scalar=1.0)
            yield from c.counter(64)
            yield isa.ResetMask()
            yield from c.counter(64)
            assert c.state.counter_mode
            assert c.state.mask == 64

        k.launch("masked", vector=stream)

    simulate(masked, TOY, timing_only=True, observe=lambda _, streams: seen.extend(streams[0].ops))
    names = [op.mnemonic for op in seen]
    assert names == [
        "SetMaskCount",
        "SetVectorMask",
        "Duplicate",
        "Duplicate",
        "SetVectorMask",
        "Duplicate",
        "ResetMask",
        "SetMaskCount",
        "SetVectorMask",
    ]
