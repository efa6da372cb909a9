"""The component-based roofline: the exact cases that follow from its definitions, and its identities."""

from __future__ import annotations

import json
import re
from fractions import Fraction
from operator import attrgetter
from pathlib import Path

import pytest
from components_bench import plain_chip, run

from npusim import Pipe, ceilings, components, isa, load_chip, simulate
from npusim.errors import ConfigError, NpusimError
from npusim.isa.instruction import REGISTRY
from npusim.isa.operand import Operand, Space
from npusim.isa.state import State
from npusim.program.core import CoreKind
from npusim.report.component_model import PAIRS, Component, Part
from npusim.report.component_work import share
from npusim.report.components import Components, Thresholds

PLACES = (Space.L0A, Space.L0B, Space.L0C)


def loads(c):
    """Twice as many bytes to L0A as to L0B, one after the other on one engine."""
    a1, a0, b0 = c.l1(16384, isa.F16), c.l0a(16384, isa.F16), c.l0b(16384, isa.F16)
    for _ in range(3):
        yield isa.LoadData2D(dst=a0, src=a1, repeat=64)
        yield isa.LoadData2D(dst=b0, src=a1, repeat=32)


def products(c):
    """As many operations on bytes as on halves."""
    a, b = Operand(Space.L0A, isa.F16, 0), Operand(Space.L0B, isa.F16, 0)
    halves, sums = Operand(Space.L0C, isa.F32, 0), Operand(Space.L0C, isa.S32, 65536)
    for _ in range(4):
        yield isa.mmad(halves, a, b, 64, 64, 64, init=True)
        yield isa.mmad(sums, a.as_type(isa.S8), b.as_type(isa.S8), 64, 64, 64, init=True)


# ---- exact cases -------------------------------------------------------------------------------------------


def test_serial_transfers_of_one_engine_fill_it():
    """A moves twice the bytes of B at the same rate: pairwise rooflines see 66.7 and 33.3 %."""
    found = run(loads, plain_chip(paths__l1_to_l0a__bytes_per_cycle=256))
    engine = found["MTE-L1"]
    assert found.cycles == engine.active == engine.ideal == 3 * 96 * 512 // 256
    assert engine.naive() == {"l1_to_l0a": 2 / 3, "l1_to_l0b": 1 / 3}
    assert (engine.utilization, engine.efficiency, engine.ratio) == (1.0, 1.0, 1.0)
    assert engine.actual_rate == engine.ideal_rate == 256
    verdict = found.verdict
    assert (verdict.code, verdict.component, verdict.value) == ("MB", engine, 1.0)
    assert verdict.text == "MTE bound: MTE-L1 (l1_to_l0a), U 100.0% >= 65%"


def test_equal_counts_of_two_precisions_fill_the_cube():
    """In units of the peak of bytes the ideal rate is 2/3, which the run reaches."""
    found = run(products, plain_chip())
    cube = found["Cube"]
    peaks = [part.peak for part in cube.parts.values()]
    assert sorted(peaks) == [8192, 16384]
    assert [part.amount for part in cube.parts.values()] == [4 * 2 * 64**3] * 2
    assert cube.ideal_rate / max(peaks) == cube.actual_rate / max(peaks) == Fraction(2, 3)
    assert (cube.utilization, cube.efficiency, cube.ratio) == (1.0, 1.0, 1.0)
    assert cube.naive() == {"f16": 2 / 3, "s8": 1 / 3}
    assert cube.actual_rate / (sum(peaks) / 2) == Fraction(8, 9)
    assert found.verdict.text == "compute bound: Cube (f16), U 100.0% >= 80%"


def test_at_most_seven_pairs_and_none_that_data_never_takes():
    assert [len(PAIRS[kind]) for kind in (CoreKind.COUPLED, CoreKind.CUBE, CoreKind.VECTOR)] == [7, 5, 4]
    for pairs in PAIRS.values():
        assert not {(Pipe.V, Pipe.MTE1), (Pipe.S, Pipe.MTE1)} & set(pairs)

    def everything(c, x, y):
        a1, a0, b0 = c.l1((64, 16), isa.F16), c.l0a((64, 16), isa.F16), c.l0b((64, 16), isa.F16)
        acc, tile = c.l0c((64, 64), isa.F32), c.ub((64, 64), isa.F32)
        yield isa.copy_in(a1, x)
        yield isa.LoadData2D(dst=a0, src=a1, repeat=4)
        yield isa.LoadData2D(dst=b0, src=a1, repeat=4)
        yield isa.mmad(acc, a0, b0, 64, 16, 64, init=True)
        yield isa.DataCopyEnhanced(dst=tile, src=acc, block_len=16)
        yield isa.ScalarWork(count=7)
        yield isa.copy_out(y, tile)

    def segments(k):
        return k.input("x", (64, 16), "float16"), k.output("y", (64, 64), "float32")

    found = run(everything, load_chip("ascend-310"), segments)
    assert {c.name: c.amount for c in found} == {
        "Cube": 2 * 64 * 64 * 16,
        "Vector": 64 * 64,
        "Scalar": 7,
        "MTE-GM": 2048,
        "MTE-L1": 4096,
        "MTE-UB": 16384,
    }
    assert sorted((p.compute.name, p.move.name) for p in found.pairs) == [
        ("Cube", "MTE-GM"),
        ("Cube", "MTE-L1"),
        ("Cube", "MTE-UB"),
        ("Scalar", "MTE-GM"),
        ("Scalar", "MTE-UB"),
        ("Vector", "MTE-GM"),
        ("Vector", "MTE-UB"),
    ]
    for pair in found.pairs:  # a point is as far below the nearer line as the pair is from full use
        slope = Fraction(pair.compute.amount, pair.move.amount)
        roof = min(pair.compute.ideal_rate, slope * pair.move.ideal_rate)
        assert pair.utilization == pytest.approx(float(pair.compute.actual_rate / roof))
        assert pair.intensity == pair.compute.amount / pair.move.amount


def test_the_ceilings_of_the_310():
    found = ceilings(load_chip("ascend-310"))
    assert found["Vector f16"] == pytest.approx(348.16, abs=1e-9)
    assert found["MTE-GM gm_to_ub"] == found["MTE-GM gm_to_l1"] == pytest.approx(174.08, abs=1e-9)
    assert found["MTE-UB ub_to_gm"] == pytest.approx(87.04, abs=1e-9)
    assert found["Cube s8"] == 2 * found["Cube f16"] == pytest.approx(22282.24)


@pytest.mark.parametrize("name", ["ascend-910b4", "ascend-950pr", "toy"])
def test_ceilings_count_the_cores_that_have_the_unit(name):
    chip = load_chip(name)
    found = ceilings(chip)
    scale = chip.clock_mhz / 1000
    cubes, vectors = chip.cores.cube, chip.cores.cube * chip.cores.vector_per_cube
    assert found["MTE-GM gm_to_ub"] == pytest.approx(vectors * chip.ports.gm_to_ub.bytes_per_cycle * scale)
    assert found["MTE-GM gm_to_l1"] == pytest.approx(cubes * chip.ports.gm_to_l1.bytes_per_cycle * scale)
    assert found["FIX l0c_to_gm"] > 0
    assert found["HBM"] == pytest.approx(chip.hbm.nominal_gb_per_s * chip.hbm.sustained_fraction)


# ---- amounts of single instructions ------------------------------------------------------------------------


LEADS = {
    **dict.fromkeys(("LoadData2D", "LoadData3D"), "paths.l1_to_l0a.issue_cycles"),
    **dict.fromkeys(("Add", "Exp", "Cast", "Gather", "WholeReduceSum"), "vector.head_cycles"),
    "Fill": "paths.fill_l1.issue_cycles",
    "DataCopyEnhanced": "paths.l0c_to_ub.issue_cycles",
    "Mmad": "cube.head_streamed_cycles",
}
"""What an example takes beside its ideal time."""


@pytest.mark.parametrize("name", ["ascend-910b4", "ascend-310", "ascend-950pr", "toy"])
def test_no_instruction_is_faster_than_its_ideal(name):
    chip, seen = load_chip(name), 0
    for cls in REGISTRY.values():
        op = cls.example()
        try:
            op.check(chip, State())
        except NpusimError:
            continue
        found = share(op, chip, State())
        if found is None:
            assert op.kind.name not in ("WORK", "SCALAR")
            continue
        seen += 1
        work = op.work(chip, State())
        cycles = work.transfer.port_cycles if work.transfer else work.cycles
        assert found.amount > 0
        assert 0 < found.ideal <= cycles, cls
        if cls.__name__ in LEADS:  # whole repeats, fractals and blocks: all but the lead is ideal
            lead = attrgetter(LEADS[cls.__name__])(chip)
            assert cycles - lead - 1 < found.ideal <= cycles - lead, cls
    assert seen > (15 if name == "toy" else 50)  # most examples need a larger unified buffer


@pytest.mark.parametrize(
    ("op", "part", "amount", "cycles"),
    [
        ("Add", "Add f16", 1280, 10),
        ("Axpy", "Axpy f16", 2560, 10),
        ("MulAddDst", "MulAddDst f16", 2560, 20),
        ("Exp", "Exp f16", 1280, 40),
        ("RepeatReduceSum", "RepeatReduceSum f16", 1280, 70),
    ],
)
def test_ideal_rates_are_by_instruction_and_type(op, part, amount, cycles):
    a, b, dst = (Operand(Space.UB, isa.F16, at) for at in (0, 0x8000, 0x10000))
    operands = {"src": a} if op in ("Exp", "RepeatReduceSum", "Axpy") else {"src0": a, "src1": b}
    if op == "Axpy":
        operands["scalar"] = 2.0
    made = REGISTRY[op](dst=dst, repeat=10, **operands)
    found = share(made, load_chip("ascend-310"), State())
    assert found == (part, amount, cycles)
    half = share(made, load_chip("ascend-310"), State(mask=(1 << 64) - 1))  # half of the lanes
    assert half == (part, amount // 2, Fraction(cycles, 2))


# ---- identities --------------------------------------------------------------------------------------------

RUNS = [
    ("scan_u", "toy", {"n": 700, "s": 16}),
    ("scan_ul1", "toy", {"n": 700, "s": 16}),
    ("cumsum_vec", "toy", {"n": 600, "s": 16}),
    ("mmad_repeat", "ascend-910b4", {}),
    ("path_repeat", "ascend-310", {"path": "vector_move", "cores": 2}),
    ("bus_share", "ascend-310", {"count": 40}),
]


@pytest.mark.parametrize(("name", "chip", "params"), RUNS, ids=[r[0] for r in RUNS])
def test_identities(name, chip, params):
    report = simulate(name, chip, spans=True, **params)
    found = components(report)
    assert found.cycles == report.total_cycles
    for c in found:
        total = c.cores * c.cycles
        assert c.active + sum(c.waits.values()) == total
        assert c.ideal <= c.active <= total
        assert c.active <= c.nonempty <= total
        assert c.active == sum(p.active for p in c.parts.values())
        assert c.utilization == pytest.approx(c.efficiency * c.ratio)
        assert c.ratios[0] <= c.ratio + 1e-12
        assert c.ratio <= c.ratios[1] + 1e-12
        if c.active:
            mean = sum(p.efficiency * p.active for p in c.parts.values()) / c.active
            assert c.efficiency == pytest.approx(mean)
        pipes = [p for n, p in report.pipes.items() if n.endswith(f".{c.pipe.name}") and c.kind.value in n]
        assert c.active == sum(p.work + p.link for p in pipes)
        assert c.waits["issue"] == sum(p.issue for p in pipes)
        assert sum(n for w, n in c.waits.items() if w.startswith("flag")) == sum(p.flag for p in pipes)
        assert sum(p.instructions for p in c.parts.values()) <= sum(p.instructions for p in pipes)
    moved = sum(c.amount for c in found if c.pipe in (Pipe.MTE2, Pipe.MTE3, Pipe.FIX))
    inside = sum(p.amount for c in found for p in c.parts.values() if p.name in ("fill_l1", "l0c_to_l1"))
    assert moved - inside == report.gm.read_bytes + report.gm.write_bytes
    assert sum(c.amount for c in found if c.pipe is Pipe.M) == 2 * report.cube.macs
    json.dumps(found.to_dict())
    assert components(simulate(name, chip, spans=True, **params)).to_dict() == found.to_dict()


def test_gaps_between_products():
    """Products of 64 cycles, issued 100 and 300 cycles apart, and two at once."""

    def stream(c):
        a, b, acc = (Operand(p, t, 0) for p, t in zip(PLACES, (isa.F16, isa.F16, isa.F32), strict=True))
        for wait in (0, 100, 300, 0):
            if wait:
                yield isa.ScalarWork(count=wait)
            yield isa.mmad(acc, a, b, 64, 64, 64, init=True)

    found = run(stream, plain_chip())
    cube, scalar = found["Cube"], found["Scalar"]
    assert (cube.intervals, cube.longest) == (2, 300 - 64)
    assert cube.waits == {"issue": (100 - 64) + (300 - 64)}
    assert (cube.active, cube.nonempty, found.cycles) == (4 * 64, 4 * 64, 400 + 2 * 64)
    assert (scalar.amount, scalar.active, scalar.utilization) == (400, 400, 400 / 528)
    assert found.to_dict()["verdict"] == {
        "code": "IP",
        "component": "Scalar",
        "part": "ScalarWork",
        "value": round(400 / 528, 6),
        "threshold": 0.8,
        "distance": round(0.8 - 400 / 528, 6),
        "text": "insufficient parallelism: the largest R is Scalar, 75.8% < 80%; the rest is mostly tail",
    }


def test_a_run_without_spans_is_refused():
    with pytest.raises(ConfigError) as caught:
        components(simulate("memcopy", "toy", n=64))
    assert str(caught.value) == (
        "components: the run of memcopy kept no spans; simulate it again with spans=True"
    )


# ---- the verdict -------------------------------------------------------------------------------------------


def made(pipe, *, ideal, active, cycles=1000, amount=100):
    component = Component(CoreKind.COUPLED, pipe, 1, cycles)
    component.parts["p"] = Part("p", 1, amount, Fraction(ideal), active)
    component.active_by_core.append(active)
    component.waits.update({"issue": cycles - active})
    return component


@pytest.mark.parametrize(
    ("parts", "code", "name"),
    [
        ([(Pipe.M, 800, 900), (Pipe.MTE2, 790, 990)], "CB", "Cube"),
        ([(Pipe.M, 799, 950), (Pipe.MTE2, 801, 900)], "MB", "MTE-GM"),
        ([(Pipe.M, 100, 799), (Pipe.MTE2, 700, 790)], "IP", "Cube"),
        ([(Pipe.M, 100, 800), (Pipe.MTE2, 700, 790)], "IC", "Cube"),
        ([(Pipe.M, 100, 700), (Pipe.MTE2, 700, 900)], "IM", "MTE-GM"),
        ([(Pipe.V, 100, 200), (Pipe.MTE3, 650, 700)], "MB", "MTE-UB"),
        ([(Pipe.V, 700, 990), (Pipe.MTE3, 649, 700)], "IC", "Vector"),
    ],
)
def test_the_verdict_asks_utilisation_first_then_the_time_ratio(parts, code, name):
    found = [made(pipe, ideal=ideal, active=active) for pipe, ideal, active in parts]
    verdict = Components("p", "c", 1000, 1000, found, 0, 1.0).verdict
    assert (verdict.code, verdict.component.name) == (code, name)


def test_thresholds_can_be_chosen_and_a_run_that_does_nothing_has_no_verdict():
    found = [made(Pipe.V, ideal=300, active=600)]
    assert Components("p", "c", 1000, 1000, found, 0, 1.0).verdict.code == "IP"
    assert Components("p", "c", 1000, 1000, found, 0, 1.0, Thresholds(ratio=0.6)).verdict.code == "IC"
    assert Components("p", "c", 1000, 1000, found, 0, 1.0, Thresholds(compute=0.3)).verdict.code == "CB"
    idle = Components("p", "c", 1000, 1000, [made(Pipe.V, ideal=0, active=0, amount=0)], 0, 1.0)
    assert idle.verdict is None
    assert "nothing was done" in str(idle)
    with pytest.raises(KeyError, match="no component Cube; there are Vector"):
        idle["Cube"]


# ---- the page ----------------------------------------------------------------------------------------------


def test_the_page_shows_what_its_code_prints():
    page = (Path(__file__).parents[2] / "docs" / "components.md").read_text(encoding="utf-8")
    code, shown = re.search(r"```python\n(.*?)```\n\n```\n(.*?)\n```", page, re.DOTALL).groups()
    assert 'simulate("bus_share", "ascend-310", count=200, timing_only=True, spans=True)' in code
    report = simulate("bus_share", "ascend-310", count=200, timing_only=True, spans=True)
    words, wanted = (re.findall(r"[\d.,]+|[^\s\d]+", text) for text in (shown, str(components(report))))
    assert [w for w in words if not w[0].isdigit()] == [w for w in wanted if not w[0].isdigit()]
    numbers, known = (
        [float(w.strip(".,").replace(",", "")) for w in ws if w[0].isdigit()] for ws in (words, wanted)
    )
    assert numbers == pytest.approx(known, rel=0.05, abs=0.5)
    assert max(map(len, shown.splitlines())) <= 90
