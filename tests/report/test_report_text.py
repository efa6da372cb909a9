"""Reports as text: whole pages of made-up reports, so that no chip number is in the way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npusim import Builder, isa, load_chip, program, simulate
from npusim.program.discover import find_program
from npusim.report.checked import CheckReport, check
from npusim.report.model import Report, Values
from npusim.report.simulate import run
from npusim.report.text import check_text, report_text, values_words

PIPE = {
    "instructions": 10,
    "work": 600,
    "flag": 100,
    "cross_core": 50,
    "barrier": 25,
    "link": 100,
    "issue": 75,
}
PIPE |= {"queue": 0, "tail": 50}
IDLE = dict.fromkeys(PIPE, 0) | {"tail": 1000}


def report(**changes: Any) -> Report:
    """Return a report of 1,000 cycles on one core group, with changes."""
    data: dict[str, Any] = {
        "schema": "npusim.report/1",
        "run_id": "0123456789ab",
        "model_revision": 1,
        "program": "scan",
        "chip": "toy",
        "clock_mhz": 1000,
        "params": {"n": 4096, "dtype": "float16"},
        "seed": 0,
        "numerics": "ascend-a2",
        "l2": "cold",
        "values": dict.fromkeys(("max_abs_error", "max_ulp", "mismatches", "tolerance"), 0)
        | {"checked": True, "ok": True},
        "total_cycles": 1000,
        "time_us": 3.5,
        "launch_overhead_us": 2.5,
        "host_overhead_us": 12.0,
        "launches": [{"name": "scan", "cycles": 1000, "cores": 3}],
        "pipes": {
            "core0.cube0.MTE2": PIPE,
            "core0.cube0.M": PIPE | {"work": 650, "flag": 50, "instructions": 1234},
            "core0.cube0.S": IDLE,
            "core0.vec0.V": PIPE | {"work": 1, "queue": 599},
            "core0.vec0.MTE3": PIPE | {"work": 0, "queue": 600},
        },
        "gm": {
            "read_bytes": 1, "write_bytes": 1, "useful_bytes": 1, "hbm_read_bytes": 1, "hbm_write_bytes": 1,
            "l2_hit_rate": 0.5, "achieved_gb_per_s": 123.4, "useful_gb_per_s": 45.67, "utilization": 0.0004,
        },
        "cube": {"macs": 2048, "utilization": 0.65},
        "vector": {"element_ops": 1, "utilization": 0.123},
        "bounds": {
            "compute_cycles": 650, "hbm_cycles": 100, "l2_cycles": 90, "flag_only_cycles": 700,
            "binding": "flag_only",
        },
        "confidence": {"H": 0.5, "M": 0.25, "L": 0.25},
    }  # fmt: skip
    return Report.model_validate(data | changes)


PAGE = """\
scan on toy

setup       n=4096 dtype=float16; seed 0, numerics ascend-a2, L2 cold at the
            start
values      ok: every element equals the reference
time        3.50 us on the device: 1,000 cycles at 1,000 MHz + 2.50 us to start
            1 launch (12.0 us of host time not counted)
memory      45.7 GB/s useful, 123 GB/s moved by the cores; 50 % of the bytes hit
            L2, main memory runs at under 0.1 % of its nominal rate
units       cube works 65 % of the time (2,048 multiply-accumulates); vector
            works 12 % of the time (1 element operation)
bound       70 % of the flag-only bound: the longest chain of issue, pipes and
            flags, with infinitely fast links, takes 700 cycles
cycles      in percent of 1,000; work + waits + tail = 100 for every pipe

                  work  flag cross barrier  link issue queue  tail instructions
core0.cube0 M     65.0   5.0   5.0     2.5  10.0   7.5     -   5.0        1,234
core0.cube0 MTE2  60.0  10.0   5.0     2.5  10.0   7.5     -   5.0           10
core0.vec0 V       0.1  10.0   5.0     2.5  10.0   7.5  59.9   5.0           10

            not shown: 1 pipe working under 0.1 %
confidence  50 % of the work is priced by documented numbers (H), 25 % by single
            measurements or fits (M), 25 % by assumptions (L)
next        do this
"""


def test_a_page() -> None:
    assert report_text(report(), 80, next_step="do this") == PAGE
    assert report_text(report(), 10, next_step="do this") == PAGE
    assert report_text(report()) == PAGE.removesuffix("next        do this\n")


def test_a_wide_page_has_the_same_words() -> None:
    wide = report_text(report(), 200, next_step="do this")
    assert wide.split() == PAGE.split()
    assert max(map(len, wide.splitlines())) == max(map(len, PAGE.splitlines())) or len(wide) < len(PAGE)
    assert max(map(len, wide.splitlines())) <= 100


def row(text: str, label: str) -> str:
    """Return a row of a page as one line."""
    lines = iter(text.splitlines())
    words = next(line for line in lines if line.startswith(f"{label} ")).split()[1:]
    for line in lines:
        if not line.startswith(" " * 12):
            break
        words += line.split()
    return " ".join(words)


@pytest.mark.parametrize(
    ("binding", "words"),
    [
        ("compute", "65 % of the compute bound: the work of the busiest pipe alone takes 650 cycles"),
        (
            "hbm",
            "10 % of the HBM bound: the traffic at the sustained rate of main memory takes 100 cycles",
        ),
        ("l2", "9 % of the L2 bound: the traffic at the rate of L2 takes 90 cycles"),
    ],
)
def test_bounds(binding: str, words: str) -> None:
    bounds = report().bounds.model_dump() | {"binding": binding}
    assert row(report_text(report(bounds=bounds)), "bound") == words


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ((False, None, None, None, None, None), "not computed"),
        ((True, True, 0.0, 0.0, 0, 0.5), "ok: every element equals the reference"),
        ((True, True, 0.25, 1.5, 0, 0.5), "ok: largest error 0.25 (1.5 ulp), tolerance 0.5"),
        (
            (True, False, 1234.5, 2e6, 1, 0.0),
            "WRONG: 1 element outside the tolerance; largest error 1,234, tolerance 0",
        ),
        (
            (True, False, None, None, 2000, 1e-9),
            "WRONG: 2,000 elements outside the tolerance; largest error infinite, tolerance 1e-09",
        ),
    ],
)
def test_values(values: tuple[Any, ...], words: str) -> None:
    names = ("checked", "ok", "max_abs_error", "max_ulp", "mismatches", "tolerance")
    made = Values.model_validate(dict(zip(names, values, strict=True)))
    assert values_words(made, computed=False) == words
    assert row(report_text(report(values=made)), "values") == words


def test_values_without_a_reference() -> None:
    unchecked = dict.fromkeys(Values.model_fields) | {"checked": False}
    made = report(values=unchecked)
    assert row(report_text(made), "values") == "not computed"
    made.outputs["y"] = np.zeros(1)
    assert row(report_text(made), "values") == "computed, with no reference to compare them with"


def test_times() -> None:
    assert row(report_text(report(host_overhead_us=0.0, time_us=2500.0)), "time") == (
        "2.50 ms on the device: 1,000 cycles at 1,000 MHz + 2.50 us to start 1 launch"
    )
    assert row(report_text(report(launch_overhead_us=0, time_us=3.2e6)), "time").startswith(
        "3.20 s on the device: 1,000 cycles at 1,000 MHz + 0 us to start 1 launch"
    )


def test_launches() -> None:
    launches = [
        {"name": name, "cycles": 1, "cores": 1, "time_us": us, "share": 0.0}
        for name, us in (("a", 5), ("b", 1489), ("a", 6))
    ]
    text = report_text(report(launches=launches))
    assert row(text, "launches") == "b 1.49 ms, 99 %; a (2 times) 11.0 us, 0.7 %"
    assert "to start 3 launches" in row(text, "time")
    before = [{"name": f"l{i}", "cycles": 1000 * (12 - i), "cores": 1} for i in range(12)]
    words = row(report_text(report(launches=before)), "launches")
    assert words.startswith("l0 12.0 us, 15 %; l1 11.0 us, 14 %; ")
    assert words.endswith("l7 5.00 us, 6.4 %; 4 others 10.0 us, 13 %")


def test_times_of_launches_add_up_to_the_time_of_the_run() -> None:
    """Each has its start in it, which the last, on more cores, has more of."""
    chip = load_chip("ascend-910b4", overrides={"launch.device_per_ai_core_us": 0.25})

    @program
    def three(k: Builder) -> None:
        k.output("y", (1,), "float32")
        for number, blocks in enumerate((1, 1, 4)):
            work = isa.ScalarWork(count=1000 * (number + 1))
            k.launch(f"l{number}", vector=lambda c, work=work: [work], blocks=blocks)

    found = simulate(three, chip, timing_only=True)
    start, clock = chip.launch.device_us, chip.clock_mhz
    for part, used in zip(found.launches, (1, 1, 2), strict=True):
        wanted = part.cycles / clock + start + 0.25 * (used - 1)
        assert part.time_us == pytest.approx(wanted, abs=1e-6)
        assert part.share == pytest.approx(wanted / found.time_us, abs=1e-6)
    assert sum(part.time_us or 0 for part in found.launches) == pytest.approx(found.time_us, abs=1e-5)
    assert sum(part.share or 0 for part in found.launches) == pytest.approx(1, abs=1e-5)
    assert row(report_text(found), "launches").startswith(f"l2 {found.launches[2].time_us:.2f} us, ")


def test_where_no_pipe_works_all_are_shown() -> None:
    waiting = {"core0.vec0.V": PIPE | {"work": 0, "queue": 600}, "core0.vec0.S": IDLE}
    text = report_text(report(pipes=waiting))
    assert "\ncore0.vec0 V     -  10.0   5.0     2.5  10.0   7.5  60.0   5.0           10\n" in text
    assert "not shown" not in text


def test_many_cores_are_added_up() -> None:
    pipes = {
        f"core{i}.{kind}{j}.{pipe}": PIPE | {"work": 600 - 10 * i, "flag": 100 + 10 * i}
        for i in range(20)
        for kind, j, pipe in (("cube", 0, "M"), ("vec", 0, "V"), ("vec", 1, "V"), ("vec", 1, "S"))
    }
    text = report_text(report(pipes=pipes))
    assert "cube x20 M    50.5  19.5   5.0     2.5  10.0   7.5     -   5.0          200\n" in text
    assert "vector x40 V  50.5  19.5   5.0     2.5  10.0   7.5     -   5.0          400\n" in text
    assert "vector x20 S  50.5  19.5" in text
    spread = "means over the cores; M works from 41.0 % (core19.cube0) to 60.0 % (core0.cube0)"
    assert spread in " ".join(text.split())
    even = report_text(report(pipes=dict.fromkeys(pipes, PIPE)))
    assert "            means over the cores; M works 60.0 % on every one\n" in even
    coupled = {f"core{i}.ai0.V": PIPE for i in range(8)}
    assert "\nAI x8 V " in report_text(report(pipes=coupled))


def test_a_program_that_does_nothing() -> None:
    text = report_text(
        report(
            params={}, total_cycles=0, pipes={}, launches=[], launch_overhead_us=0.0, time_us=0.0,
            cube={"macs": 0, "utilization": 0.0}, vector={"element_ops": 0, "utilization": 0.0},
            confidence={"H": 0.0, "M": 0.0, "L": 0.0},
        )
    )  # fmt: skip
    assert row(text, "setup") == "seed 0, numerics ascend-a2, L2 cold at the start"
    assert "units" not in text
    assert "confidence" not in text
    assert "percent" not in text
    assert row(text, "bound").startswith("flag-only bound: the longest")
    assert "to start 0 launches" in row(text, "time")


@pytest.mark.parametrize("name", ["memcopy", "scan_u", "scan_ul1", "cumsum_vec"])
def test_real_reports_fit_the_page(name: str) -> None:
    done = simulate(name, n=3000)
    for width in (80, 120):
        assert max(map(len, report_text(done, width).splitlines())) <= min(width, 100)
    for part in done.pipes.values():
        causes = part.model_dump(exclude={"instructions"})
        assert sum(causes.values()) == done.total_cycles


# ---- checks ------------------------------------------------------------------------------------------------


def test_a_page_of_a_check() -> None:
    made = CheckReport.model_validate(
        {
            "schema": "npusim.check/1",
            "program": "scan",
            "chip": "toy",
            "clock_mhz": 1000,
            "params": {"n": 4},
            "seed": 1,
            "numerics": "fast",
            "values": report().values,
            "launches": [
                {"name": "a", "cores": 2, "instructions": 1000},
                {"name": "b", "cores": 1, "instructions": 1},
            ],
            "pipes": {"MTE2": 1000, "V": 1},
            "read_bytes": 3 << 20,
            "write_bytes": 1,
            "useful_bytes": 1536,
            "bounds": {"compute_cycles": 5000, "l2_cycles": 40, "flag_only_cycles": 30, "binding": "compute"},
        }
    )
    assert check_text(made, next_step="run it") == (
        "scan on toy, checked without timing\n"
        "\n"
        "setup       n=4; seed 1, numerics fast\n"
        "values      ok: every element equals the reference\n"
        "hazards     none: limits, unwritten bytes, races, flags and waits are all right\n"
        "stream      1,001 instructions on 2 cores: MTE2 1,000, V 1\n"
        "memory      3.00 MiB read and 1 byte written; inputs and outputs are 1.50 KiB\n"
        "bound       5,000 cycles at least (5.00 us): the work of the busiest pipe alone\n"
        "            takes that long. Other bounds: L2 40, flag-only 30; that of main\n"
        "            memory needs a run\n"
        "next        run it\n"
    )


@pytest.mark.parametrize(
    ("name", "params"), [("memcopy", {}), ("scan_u", {"s": 32}), ("cumsum_vec", {"s": 32})]
)
def test_checks_agree_with_runs(name: str, params: dict[str, Any]) -> None:
    toy = load_chip("toy")
    program = find_program(name).build(toy, {"n": 3000, **params})
    found = check(program, toy, seed=3)
    done = simulate(name, toy, n=3000, seed=3, **params)
    assert found.values == done.values
    assert found.bounds.compute_cycles == done.bounds.compute_cycles
    assert found.bounds.flag_only_cycles == done.bounds.flag_only_cycles
    assert found.bounds.l2_cycles == done.bounds.l2_cycles
    assert (found.read_bytes, found.write_bytes) == (done.gm.read_bytes, done.gm.write_bytes)
    assert found.useful_bytes == done.gm.useful_bytes
    counts: dict[str, int] = {}
    for pipe, part in done.pipes.items():
        pipe = pipe.rpartition(".")[2]
        counts[pipe] = counts.get(pipe, 0) + part.instructions
    state = sum(found.pipes.values()) - sum(counts.values())
    assert {p: n for p, n in found.pipes.items() if p != "S"} == {
        p: n for p, n in counts.items() if p != "S" and n
    }
    assert state >= 0
    assert found.to_json() == check(program, toy, seed=3).to_json()


def test_launches_of_a_check_add_up() -> None:
    toy = load_chip("toy")
    tiny = Path(__file__).parents[1] / "cli" / "tiny.py"
    program = find_program(f"{tiny}:two words").build(toy)
    found, done = check(program, toy), run(program, toy)
    assert [(part.name, part.cores, part.instructions) for part in found.launches] == [
        ("first # launch", 1, 8),
        ("second", 1, 8),
    ]
    assert found.bounds.compute_cycles == done.bounds.compute_cycles
    assert found.bounds.flag_only_cycles == done.bounds.flag_only_cycles


def test_a_check_does_not_time(monkeypatch: pytest.MonkeyPatch) -> None:
    toy = load_chip("toy")
    said: list[str] = []
    monkeypatch.setattr("npusim.machine.timing.engine.TimingMachine.run", lambda *_: 1 / 0)
    program = find_program("memcopy").build(toy, {"n": 300})
    seen = []
    check(program, toy, progress=lambda what, _: said.append(what), observe=lambda *args: seen.append(args))
    assert said == ["comparing"]
    assert [launch.name for launch, _ in seen] == ["memcopy"]
