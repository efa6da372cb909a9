"""Random programs for the timing machines: every pipe, random costs, flags that never wait for ever.

A flag is set before it is waited for in the stream of its core, and all cores of a launch meet in the same
order, so that no program can lock up; whether the values would make sense is of no interest here.
"""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st

from npusim import Builder, Operand, Pipe, Reg, Space, isa, load_chip, program
from npusim.config.chip import Chip
from npusim.isa.sync import Group
from npusim.machine.resolve import resolve

S, V, M, MTE1, MTE2, MTE3, FIX = (
    Pipe.S,
    Pipe.V,
    Pipe.M,
    Pipe.MTE1,
    Pipe.MTE2,
    Pipe.MTE3,
    Pipe.FIX,
)
WORDS = 1 << 16
"""Elements of float32 in each of the two arrays: 64 granules of 4 KiB."""


class Ops(list[Any]):
    """A stream that prints as assembly text."""

    def __repr__(self) -> str:
        return "\n".join(["", *map(str, self), ""])


def at(space: Space, dtype: Any, address: int = 0) -> Operand:
    return Operand(space, dtype, address)


def gm(draw: Any, dtype: Any, nbytes: int) -> Operand:
    """Return a place in one of two arrays where so many bytes fit, most often near the start."""
    room = WORDS * 4 - nbytes
    address = draw(st.one_of(st.integers(0, min(room, 8192)), st.integers(0, room))) // 32 * 32
    return Operand(Space.GM, dtype, address, draw(st.integers(0, 1)))


def vector_work(draw: Any) -> Any:
    return draw(
        st.sampled_from(
            [
                isa.Duplicate(dst=at(Space.UB, isa.F32), scalar=0.0, repeat=draw(st.integers(0, 255))),
                isa.Adds(dst=at(Space.UB, isa.F16), src=at(Space.UB, isa.F16), scalar=Reg(0), repeat=3),
                isa.Exp(dst=at(Space.UB, isa.F32), src=at(Space.UB, isa.F32), repeat=draw(st.integers(1, 9))),
                isa.WholeReduceSum(dst=at(Space.UB, isa.F32, 8192), src=at(Space.UB, isa.F32), repeat=7),
                isa.GatherMask(dst=at(Space.UB, isa.F32, 8192), src=at(Space.UB, isa.F32), pattern=1),
            ]
        )
    )


def load(draw: Any, space: Space = Space.UB) -> Any:
    blocks = draw(st.sampled_from([1, 2, 7, 64, 300, 1024]))
    if draw(st.booleans()):
        source, past = gm(draw, isa.F32, 32 * blocks), draw(st.booleans())
        return isa.DataCopy(dst=at(space, isa.F32), src=source, block_len=blocks, l2_bypass=past)
    rows = draw(st.integers(1, 8))
    source = gm(draw, isa.F32, 32 * 8 * (2 + 5))
    return isa.DataCopy(dst=at(space, isa.F32), src=source, block_len=2, block_count=rows, src_gap=5)


def store(draw: Any) -> Any:
    blocks = draw(st.sampled_from([1, 3, 16, 200, 1024]))
    target, past = gm(draw, isa.F32, 32 * blocks), draw(st.booleans())
    return isa.DataCopy(dst=target, src=at(Space.UB, isa.F32), block_len=blocks, l2_bypass=past)


def scalar_work(draw: Any) -> Any:
    word = Operand(Space.GM, isa.F32, 64 * draw(st.integers(0, 2)))
    return draw(
        st.sampled_from(
            [
                isa.ScalarWork(count=draw(st.integers(0, 50))),
                isa.GetValue(reg=0, src=at(Space.UB, isa.F32, 4)),
                isa.GetValue(reg=0, src=word),
                isa.GetValue(reg=0, src=word),
                isa.SetValue(dst=word, value=1.0),
                isa.DataCacheCleanAndInvalid(at=word),
                isa.DataCacheCleanAndInvalid(at=word, all=True),
                isa.SetMaskCount(),
                isa.SetMaskNorm(),
                isa.SetVectorMask(mask=draw(st.integers(1, 200))),
            ]
        )
    )


def cube_work(draw: Any, coupled: bool) -> Any:
    m, n = draw(st.integers(1, 64)), draw(st.integers(1, 4)) * 16
    load_a = isa.load_a(at(Space.L0A, isa.F16), at(Space.L1, isa.F16), 64, 16)
    load_b = isa.load_b(at(Space.L0B, isa.F16), at(Space.L1, isa.F16), 16, n)
    product = isa.mmad(at(Space.L0C, isa.F32), at(Space.L0A, isa.F16), at(Space.L0B, isa.F16), m, 16, n)
    fill = isa.Fill(dst=at(Space.L1, isa.U16), value=0, block_num=draw(st.integers(1, 100)))
    matrix = isa.nd_to_nz(at(Space.L1, isa.F16), gm(draw, isa.F16, 64 * 16 * 2), 64, 16)
    common = [load_a, load_b, product, product, fill, matrix, matrix]
    if coupled:
        return draw(st.sampled_from([*common, load(draw, Space.L1)]))
    result = isa.store_nd(gm(draw, isa.F32, 64 * 64 * 4), at(Space.L0C, isa.F32), m, n)
    back = isa.store_nz(at(Space.L1, isa.F16), at(Space.L0C, isa.F32), m, n)
    return draw(st.sampled_from([*common, result, result, back]))


PIPES = {"cube": (S, MTE1, MTE2, M, FIX), "vec": (S, V, MTE2, MTE3), "ai": (S, V, M, MTE1, MTE2, MTE3)}


def work(draw: Any, kind: str) -> Any:
    if kind == "cube":
        return cube_work(draw, False) if draw(st.integers(0, 5)) else scalar_work(draw)
    choices = [vector_work, load, load, store, scalar_work]
    chosen = draw(st.integers(0, len(choices) - 1 + (kind == "ai") * 4))
    return choices[chosen](draw) if chosen < len(choices) else cube_work(draw, True)


def stretch(draw: Any, kind: str, length: int) -> list[Any]:
    """Return a part of a stream of one core, at whose end no flag is up."""
    ops = Ops()
    up: list[dict[str, Any]] = []
    for _ in range(draw(st.integers(0, length))):
        what = draw(st.sampled_from(["work"] * 6 + ["set"] * 2 + ["wait"] * 2 + ["hand over", "barrier"]))
        src, dst = draw(st.permutations(PIPES[kind]))[:2]
        flag = {"src": src, "dst": dst, "id": draw(st.integers(0, 1))}
        if what == "work":
            ops.append(work(draw, kind))
        elif what == "barrier":
            ops.append(isa.PipeBarrier(on=draw(st.sampled_from([*PIPES[kind][1:], Pipe.ALL]))))
        elif what == "hand over" and flag not in up:
            ops += [isa.SetFlag(**flag), isa.WaitFlag(**flag)]
        elif what == "set" and flag not in up:
            ops.append(isa.SetFlag(**flag))
            up.append(flag)
        elif up:
            ops.append(isa.WaitFlag(**up.pop(draw(st.integers(0, len(up) - 1)))))
    ops += [isa.WaitFlag(**flag) for flag in up]
    return ops


@st.composite
def launches(draw: Any) -> tuple[str, list[list[Any]]]:
    """Return the kind of a launch and the streams of its cores."""
    kind = draw(st.sampled_from(["vec", "vec", "cube", "mix", "ai"]))
    if kind != "mix":
        return kind, [stretch(draw, kind, 40) for _ in range(draw(st.integers(1, 2)) if kind == "vec" else 1)]
    streams: list[list[Any]] = [Ops(), Ops(), Ops()]
    ends: dict[Any, Any] = {}
    """Pipes that set and wait: always the same ones for a flag, since nothing orders two pipes."""
    for _ in range(draw(st.integers(1, 4))):
        event = draw(st.integers(0, 2))
        group = draw(st.sampled_from([Group.CUBE_VECTOR, Group.CUBE_VECTOR, Group.ALL, Group.VECTOR_PAIR]))
        for number, stream in enumerate(streams):
            name = "vec" if number else "cube"
            stream += stretch(draw, name, 8)
            if name == "cube" and group is Group.VECTOR_PAIR:
                continue
            raised, waits = ends.setdefault((number, event), draw(st.permutations(PIPES[name]))[:2])
            stream.append(isa.CrossCoreSetFlag(group=group, on=raised, id=event))
            stream += stretch(draw, name, 3)
            stream.append(isa.CrossCoreWaitFlag(group=group, on=waits, id=event))
    for number, stream in enumerate(streams):
        stream += stretch(draw, "vec" if number else "cube", 8)
    return kind, streams


def resolved(chip: Chip, kind: str, streams: list[list[Any]]) -> tuple[Any, list[Any]]:
    """Return the built program and the streams of its only launch as the timing machines take them."""

    @program
    def random(k: Builder) -> None:
        k.input("x", (WORDS,), "float32")
        k.inout("y", (WORDS,), "float32")

        def stream(c: Any) -> list[Any]:
            number = 1 + c.core.number if kind == "mix" and c.core.kind.value == "vec" else c.core.number
            return [isa.SetVectorMask(mask=64), *streams[number]]  # not too many elements in counter mode

        if kind == "mix":
            k.launch("random", cube=stream, vector=stream)
        else:
            name = {"vec": "vector", "ai": "coupled"}.get(kind, kind)
            k.launch("random", blocks=len(streams), **{name: stream})

    built = random.build(chip)
    return built, resolve(built.launches[0], chip)


# ---- chips -------------------------------------------------------------------------------------------------

TOY, COUPLED = load_chip("toy"), load_chip("ascend-310")


def chip_for(kind: str) -> Chip:
    return COUPLED if kind == "ai" else TOY


def changed(chip: Chip, changes: dict[str, Any]) -> Chip:
    """Return a chip with other numbers, given by dotted path; the result is not validated again."""
    for path, value in changes.items():
        chip = _changed(chip, path.split("."), value)
    return chip


def _changed(part: Any, path: list[str], value: Any) -> Any:
    inner = _changed(getattr(part, path[0]), path[1:], value) if path[1:] else value
    return part.model_copy(update={path[0]: inner})


@st.composite
def numbers(draw: Any, kind: str) -> dict[str, Any]:
    """Return random depths, rates and latencies for the chip that has the kind of cores."""
    chip = chip_for(kind)
    small = st.integers(1, 4)
    changes: dict[str, Any] = {f"queues.{p}": draw(small) for p in ("v", "m", "mte1", "mte2", "mte3")}
    if kind != "ai":
        changes["queues.fix"] = draw(small)
    for port in ("gm_to_ub", "gm_to_l1", "ub_to_gm", "l0c_to_gm"):
        if getattr(chip.ports, port) is not None:
            changes[f"ports.{port}.outstanding"] = draw(st.integers(1, 5))
            changes[f"ports.{port}.issue_cycles"] = draw(st.integers(0, 30))
    changes["scalar.issue_cycles"] = draw(st.integers(0, 5))
    changes["scalar.dcache_lines"] = draw(small)
    changes["flags.latency_cycles"] = draw(st.integers(0, 25))
    changes["flags.group_latency_ns"] = draw(st.sampled_from([0.0, 3.0, 100.0]))
    changes["l2.granule_bytes"] = draw(st.sampled_from([4096, 1 << 16, 1 << 18]))
    changes["l2.writeback_buffer_kib"] = draw(st.sampled_from([0, 8, 64]))
    changes["l2.same_range_requests_per_cycle"] = draw(st.sampled_from([None, 0.1, 0.7]))
    changes["l2.read_latency_ns"] = draw(st.sampled_from([0.0, 100.0]))
    changes["l2.write_bytes_per_cycle"] = draw(st.sampled_from([20.0, 200.0]))
    changes["hbm.nominal_gb_per_s"] = draw(st.sampled_from([33.0, 100.0]))
    changes["hbm.read_latency_ns"] = draw(st.sampled_from([0.0, 250.0]))
    return changes
