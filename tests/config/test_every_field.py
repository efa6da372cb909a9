"""Every number of a chip changes some result: one that acts on nothing would be the worst of errors."""

from __future__ import annotations

import json
import re

import pytest
from pydantic import ValidationError

import npusim
from npusim import Builder, Chip, Imm, Operand, Pipe, Space, isa, program
from npusim.config.load import load_chip
from npusim.errors import NpusimError
from npusim.isa.dtype import DType
from npusim.isa.instruction import REGISTRY
from npusim.isa.state import State
from npusim.program.core import SPACES

SLOW_MEMORY = {"hbm.nominal_gb_per_s": 20, "l2.size_mib": 1, "l2.writeback_buffer_kib": 64}
"""Makes a single core feel what only many cores feel otherwise."""
CHIPS = ["ascend-910b4", "ascend-310"]


def start(k, cube=None, vector=None, **options):
    """Launch on whatever cores the chip has."""
    if k.chip.coupled:
        k.launch("probe", coupled=cube or vector, **options)
    else:
        k.launch("probe", cube=cube, vector=vector, **options)


def instructions(chip):
    """Costs of every instruction alone, in every element type it takes."""
    found = []
    for name, cls in sorted(REGISTRY.items()):
        for dtype in (None, *DType):
            flat, at = list(cls.example().encode()), 0
            for f in cls.spec:
                if f.form == "operand" and dtype is not None and flat[at] >= 0:
                    flat[at + 1] = dtype.code
                if f.form == "dtype" and dtype is not None:
                    flat[at] = dtype.code
                at += {"operand": 4, "scalar": 2, "ints": 1 + flat[at]}.get(f.form, 1)
            op = cls.decode(tuple(flat))
            try:
                op.check(chip, State())
                if op.kind.name in ("WORK", "SCALAR", "STATE"):
                    found.append((name, op.work(chip, State())))
            except NpusimError as error:
                found.append((name, str(error)))
    return repr(found)


def products(chip):
    """Costs of products of every type, none of whose extents is whole."""
    found = []
    for name, sums in (("F16", "F32"), ("BF16", "F32"), ("F32", "F32"), ("S8", "S32"), ("S4", "S32")):
        operand, acc = DType[name], DType[sums]
        op = isa.Mmad(
            dst=Operand(Space.L0C, acc, 0),
            a=Operand(Space.L0A, operand, 0),
            b=Operand(Space.L0B, operand, 0),
            m=70,
            k=192,
            n=70,
            init=True,
        )
        for state in (State(), State(hf32=True)):
            try:
                op.check(chip, state)
                found.append(op.work(chip, state))
            except NpusimError as error:
                found.append(str(error))
    return repr(found)


def at(space, dtype, address=0):
    return Operand(space, dtype, address)


def others(chip):
    """Costs that no example shows: shared paths, conflicts between banks, halves gathered."""
    ub, l1 = Space.UB, Space.L1
    ops = [
        isa.DataCopy(dst=at(Space.BT, isa.F32), src=at(l1, isa.F32), block_len=2),
        isa.DataCopy(dst=at(Space.FB, isa.U64), src=at(l1, isa.U64), block_len=2),
        isa.DataCopy(dst=at(l1, isa.F16), src=at(ub, isa.F16), block_len=64),
        isa.DataCopy(dst=at(ub, isa.F16), src=at(l1, isa.F16), block_len=64),
        isa.load_b(at(Space.L0B, isa.F16), at(l1, isa.F16), 64, 64),
        isa.Add(dst=at(ub, isa.F32, 0x8020), src0=at(ub, isa.F32), src1=at(ub, isa.F32, 0x12000), repeat=63),
        *(
            isa.Gather(dst=at(ub, t, 0x8000), src=at(ub, t), offsets=at(ub, isa.U32, 0x4000), src_bytes=512)
            for t in (isa.F16, isa.BF16, isa.S16, isa.U16)
        ),
    ]
    found = []
    for op in ops:
        try:
            op.check(chip, State())
            found.append(op.work(chip, State()))
        except NpusimError as error:
            found.append(str(error))
    return repr(found)


def run(maker, chip, **options):
    try:
        report = npusim.simulate(maker, chip, **options)
    except NpusimError as error:
        return f"{type(error).__name__}: {error}"
    return report.model_copy(update={"run_id": "", "chip": ""}).to_json()


@program
def full(k: Builder, *, gib: int = 1, sizes: str = "", flags: int = 1, blocks: int = 1) -> None:
    """Take all there is of everything, on all cores."""
    k.workspace("w", (gib << 30,), "int8")

    def stream(c):
        for word in sizes.split():
            space, _, size = word.partition("=")
            if Space[space.upper()] in SPACES[c.core.kind] and int(size):
                c.alloc(Space[space.upper()], int(size), isa.S8)
        for _ in range(flags):
            c.flag(Pipe.MTE2, Pipe.MTE3)
        yield isa.PipeBarrier(on=Pipe.ALL)

    start(k, stream, stream, blocks=blocks)


@program
def scalars(k: Builder) -> None:
    """Scalar reads and writes of every kind, and state changes."""
    x, y = k.input("x", (4096,), "int32"), k.output("y", (8,), "int32")

    def stream(c):
        tile = c.ub(64, isa.S32)
        yield isa.SetMaskNorm()
        yield isa.ScalarWork(count=5)
        yield isa.SetValue(dst=tile, value=Imm(7))
        yield isa.GetValue(reg=1, src=tile)
        for i in (*range(0, 4096, 16), 0, 1, 17, 40):
            yield isa.GetValue(reg=2, src=x.flat(i, 1))
        yield isa.DataCacheCleanAndInvalid(at=x)
        yield isa.GetValue(reg=2, src=x.flat(0, 1))
        for i in range(8):
            yield isa.SetValue(dst=y.flat(i, 1), value=Imm(i))

    start(k, None, stream)


def storm(pipe):
    """Return a program that sends forty instructions to one pipe without waiting."""

    @program(name=f"storm_{pipe.name}")
    def storm(k: Builder) -> None:
        x = k.input("x", (1 << 16,), "float16")

        def vector(c):
            tile = c.ub(2048, isa.F16)
            for _ in range(40):
                if pipe is Pipe.V:
                    yield from c.vector(isa.Adds, count=2048, dst=tile, src=tile, scalar=1)
                elif pipe is Pipe.MTE2:
                    yield isa.copy_in(tile, x.flat(0, 2048))
                else:
                    yield isa.copy_out(x.flat(0, 2048), tile)

        def cube(c):
            acc, a, b = c.l0c((16, 16), isa.F32), c.l0a((16, 16), isa.F16), c.l0b((16, 16), isa.F16)
            l1 = c.l1((64, 16), isa.F16)
            for _ in range(40):
                if pipe is Pipe.FIX:
                    yield isa.store_nd(x.flat(0, 256).as_type(isa.F16), acc, 16, 16)
                elif pipe is Pipe.MTE1:
                    yield isa.nd_to_nz(l1, x, 64, 16)
                if pipe is Pipe.M:
                    yield isa.mmad(acc, a, b, 16, 16, 16, init=True)
                elif pipe is Pipe.MTE1:
                    yield isa.load_a(a, l1, 16, 16)
                else:
                    yield isa.store_nz(l1, acc, 16, 16)

        if pipe in (Pipe.M, Pipe.MTE1, Pipe.FIX):
            start(k, cube, None)
        else:
            start(k, None, vector)

    return storm


@program
def meet(k: Builder, *, sets: int = 15, event: int = 10) -> None:
    """Two cube cores meet, then each sets a flag of its vector cores `sets` times before they wait."""

    def cube(c):
        yield isa.CrossCoreSetFlag(group=isa.Group.ALL, on=Pipe.S, id=0)
        yield isa.CrossCoreWaitFlag(group=isa.Group.ALL, id=0)
        for _ in range(sets):
            yield isa.CrossCoreSetFlag(group=isa.Group.CUBE_VECTOR, on=Pipe.S, id=event)

    def vector(c):
        for _ in range(sets):
            yield isa.CrossCoreWaitFlag(group=isa.Group.CUBE_VECTOR, id=event)

    k.launch("meet", blocks=2, cube=cube, vector=vector)


@program
def chained(k: Builder) -> None:
    """Accumulate twice into 3 x 3 fractals without a barrier."""
    a, b = k.input("a", (48, 16), "float16"), k.input("b", (48, 16), "float16")

    def stream(c):
        a1, b1 = c.l1((48, 16), isa.F16), c.l1((48, 16), isa.F16)
        a0, b0, acc = c.l0a((48, 16), isa.F16), c.l0b((48, 16), isa.F16), c.l0c((48, 48), isa.F32)
        loaded, ready = c.flag(Pipe.MTE2, Pipe.MTE1), c.flag(Pipe.MTE1, Pipe.M)
        yield isa.nd_to_nz(a1, a, 48, 16)
        yield isa.nd_to_nz(b1, b, 48, 16)
        yield loaded.set
        yield loaded.wait
        yield isa.load_a(a0, a1, 48, 16)
        yield isa.load_b(b0, b1, 16, 48, transpose=False)
        yield ready.set
        yield ready.wait
        yield isa.mmad(acc, a0, b0, 48, 16, 48, init=True)
        yield isa.mmad(acc, a0, b0, 48, 16, 48)

    start(k, stream, None)


@program
def copies(k: Builder) -> None:
    """Copy 2 MiB twice, tile by tile, without ever waiting for a store."""
    x, y = k.input("x", (1 << 20,), "float16"), k.output("y", (1 << 20,), "float16")

    def stream(c):
        tiles = c.queue(Pipe.MTE2, Pipe.MTE3, [c.ub(8192, isa.F16) for _ in range(3)])
        for _ in range(2):
            for at in range(0, 1 << 20, 8192):
                free = yield from tiles.alloc()
                yield isa.copy_in(free, x.flat(at, 8192))
                yield from tiles.enque()
                tile = yield from tiles.deque()
                yield isa.copy_out(y.flat(at, 8192), tile)
                yield from tiles.free()

    start(k, None, stream)


def probes(base):
    """Return what together feels every number of a chip, the quick ones first."""
    sizes = " ".join(f"{s.short}={base.capacity_bytes(s.short)}" for s in Space if s is not Space.GM)
    everything = {
        "gib": base.hbm.size_gib,
        "sizes": sizes,
        "flags": base.flags.ids - 1,
        "blocks": base.cores.cube,
    }
    found = [
        instructions,
        products,
        others,
        lambda chip: run(full, chip, timing_only=True, **everything),
        lambda chip: run(scalars, chip, timing_only=True),
        lambda chip: run(chained, chip),
    ]
    pipes = [Pipe.V, Pipe.M, Pipe.MTE1, Pipe.MTE2, Pipe.MTE3] + ([] if base.coupled else [Pipe.FIX])
    found += [lambda chip, p=p: run(storm(p), chip, timing_only=True) for p in pipes]
    if not base.coupled:
        found += [
            lambda chip: run(meet, chip),
            lambda chip: run("scan_ul1", chip, n=2000, s=16, timing_only=True),
            lambda chip: run("same_address", chip, m=80, n=64, timing_only=True),
        ]
    return found + [lambda chip, s=s: run(copies, chip, l2=s, timing_only=True) for s in ("warm", "dirty")]


def changed(chip, path, value):
    """Return a chip with another number, or None where that is no chip."""
    data = json.loads(chip.model_dump_json(by_alias=True))
    *parents, last = re.findall(r"[^.\[\]]+", path)
    node = data
    for key in parents:
        node = node[key]
    node[int(last) if isinstance(node, list) else last] = value
    try:
        return Chip.model_validate(data)
    except ValidationError:
        return None


NOT_ON_COUPLED = {
    "cores.vector_per_cube",
    "buffers.bt_bytes",
    "buffers.fb_bytes",
    "queues.fix",
    "flags.cross_ids",
    "flags.cross_limit",
    "flags.group_latency_ns",
    "flags.all_latency_ns",
}
"""What a coupled chip states as absent: it has no pipe FIX, no bias table and no cross-core flags."""


def cases():
    for name in CHIPS:
        chip = load_chip(name)
        for path in chip.numbers():
            if chip.coupled and path in NOT_ON_COUPLED:
                continue
            yield pytest.param(name, path, id=f"{name}:{path}")


BASES: dict[tuple[str, bool], tuple[object, list, list]] = {}


def base_of(name, slow):
    if (name, slow) not in BASES:
        chip = load_chip(name, overrides=SLOW_MEMORY if slow else ())
        found = probes(chip)
        BASES[name, slow] = (chip, found, [None] * len(found))
    return BASES[name, slow]


@pytest.mark.parametrize(("name", "path"), list(cases()))
def test_every_number_changes_a_result(name, path):
    for slow in (False, True):
        chip, found, results = base_of(name, slow)
        old = chip.numbers()[path]
        for i, probe in enumerate(found):
            for new in dict.fromkeys([old * 2, old * 3, old // 3 or 1, old // 40 or 1, 0, old * 50]):
                new = type(old)(new)
                other = changed(chip, path, new) if new != old else None
                if other is None:
                    continue
                if results[i] is None:
                    results[i] = probe(chip)
                if probe(other) != results[i]:
                    return
    pytest.fail(f"{path} of {name} changes nothing")
