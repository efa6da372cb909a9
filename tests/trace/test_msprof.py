"""The export in the shape of the vendor's profiler: names, columns, and sums against the report."""

from __future__ import annotations

import csv
import json

import pytest

from npusim import simulate
from npusim.errors import ConfigError
from npusim.report.timeline import timeline
from npusim.trace.msprof import core_folder, write_msprof


@pytest.fixture(scope="module")
def report():
    return simulate("scan_u", "ascend-910b4", n=20_000, timing_only=True, spans=True)


def rows(file):
    with open(file, encoding="utf-8", newline="") as opened:
        return list(csv.DictReader(opened))


def test_folders_and_columns(tmp_path, report):
    write_msprof(timeline(report), report, tmp_path / "out")
    write_msprof(timeline(report), report, tmp_path / "out")  # over an export of its own
    found = sorted(str(f.relative_to(tmp_path / "out")) for f in (tmp_path / "out").rglob("*") if f.is_file())
    cores = ("core0.cubecore0", "core0.veccore0", "core0.veccore1")
    expected = ["PipeUtilization.csv", "simulator/trace.json"]
    for core in cores:
        files = (f"{core}_code_exe.csv", f"{core}_instr_exe.csv", "trace.json")
        expected += [f"simulator/{core}/{f}" for f in files]
    assert found == sorted(expected)
    folder = tmp_path / "out" / "simulator" / "core0.veccore0"
    head = (folder / "core0.veccore0_instr_exe.csv").read_text().partition("\n")[0]
    assert head == "instr,addr,pipe,call_count,cycles,running_time(us),detail"
    head = (folder / "core0.veccore0_code_exe.csv").read_text().partition("\n")[0]
    assert head == "code,call_count,cycles,running_time(us)"


def test_tables_add_up_to_the_report(tmp_path, report):
    line = timeline(report)
    write_msprof(line, report, tmp_path)
    for core in line.cores:
        name = core_folder(core)
        folder = tmp_path / "simulator" / name
        table = rows(folder / f"{name}_instr_exe.csv")
        for pipe, lane in (
            ("S", "SCALAR"),
            ("V", "VECTOR"),
            ("M", "CUBE"),
            ("FIX", "FIXP"),
            ("MTE2", "MTE2"),
        ):
            part = report.pipes.get(f"{core}.{pipe}")
            if part is not None:
                waits = part.flag + part.cross_core + part.barrier + part.link
                assert sum(int(r["cycles"]) for r in table if r["pipe"] == lane) == part.work + waits
        assert sum(int(r["cycles"]) for r in rows(folder / f"{name}_code_exe.csv")) == sum(
            int(r["cycles"]) for r in table
        )
        products = [r for r in table if r["instr"] == "Mmad" and r["pipe"] == "CUBE"]
        count = (tmp_path / "simulator" / name / "trace.json").read_text().count('"name":"Mmad"')
        issued = [r for r in table if r["instr"] == "Mmad" and r["pipe"] == "SCALAR"]
        assert sum(int(r["call_count"]) for r in products) == sum(int(r["call_count"]) for r in issued)
        assert count == sum(int(r["call_count"]) for r in products + issued)
    cube, *vectors = rows(tmp_path / "PipeUtilization.csv")
    assert (cube["block_id"], cube["sub_block_id"]) == ("0", "cube0")
    part = report.pipes["core0.cube0.M"]
    assert float(cube["aic_cube_ratio"]) == pytest.approx(part.work / report.total_cycles, abs=1e-6)
    assert float(cube["aic_cube_time(us)"]) == pytest.approx(part.work / report.clock_mhz, abs=1e-6)
    assert (cube["aiv_vec_ratio"], cube["aic_icache_miss_rate"]) == ("NA", "NA")
    part = report.pipes["core0.vec0.MTE2"]
    active = part.work + part.link
    assert float(vectors[0]["aiv_mte2_ratio"]) == pytest.approx(active / report.total_cycles, abs=1e-6)


def test_the_summary_holds_all_cores(tmp_path, report):
    write_msprof(timeline(report), report, tmp_path)
    whole = json.loads((tmp_path / "simulator" / "trace.json").read_text())["traceEvents"]
    parts = [
        e
        for f in sorted(tmp_path.glob("simulator/*/trace.json"))
        for e in json.loads(f.read_text())["traceEvents"]
    ]
    assert sorted(map(str, whole)) == sorted(map(str, parts))
    names = {e["args"]["name"] for e in whole if e["name"] == "thread_name"}
    assert names == {"SCALAR", "VECTOR", "CUBE", "MTE1", "MTE2", "MTE3", "FIXP"}


@pytest.mark.parametrize(
    ("core", "name"),
    [("core3.cube0", "core3.cubecore0"), ("core12.vec1", "core12.veccore1"), ("core7.ai0", "core7")],
)
def test_names_of_cores(core, name):
    assert core_folder(core) == name


def test_a_folder_of_something_else(tmp_path, report):
    (tmp_path / "mine.txt").touch()
    with pytest.raises(ConfigError) as error:
        write_msprof(timeline(report), report, tmp_path)
    assert str(error.value) == f"{tmp_path}: holds what is no export; name a new folder"
