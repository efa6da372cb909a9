"""What the README says in prose and tables; its blocks run in tests/docs/test_pages.py."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import npusim

README = Path(__file__).parents[1].joinpath("README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.S)


def test_python_example():
    scope: dict[str, object] = {}
    exec(BLOCKS[0], scope)
    report = scope["report"]
    assert report.outputs["y"][-1] == 1000.0
    assert report.pipes["core0.vec0.V"].flag > 0


def test_smaller_tiles_take_longer(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tmp_path.joinpath("scale.py").write_text(BLOCKS[1], encoding="utf-8")
    assert npusim.simulate("scale.py", tile=1024).time_us > npusim.simulate("scale.py").time_us


def rows():
    """Return published and simulated values of the trust table by the words of the row."""
    table = README.partition("| what | published |")[2].partition("\n\n")[0]
    found = {}
    for line in table.splitlines()[2:]:
        what, published, simulated, *_ = (cell.strip() for cell in line.strip("|").split("|"))
        found[what.partition(",")[0]] = (float(published), float(simulated))
    return found


def test_trust_table():
    """Every simulated figure of the table, to the digits it is given with."""
    n, ticks = 1 << 22, 0.02 * 1850

    def run(name, chip="ascend-910b4", **params):
        return npusim.simulate(name, chip, timing_only=True, **params)

    adds = {p: run("add_repeat", "ascend-910b1", place=p) for p in ("free", "sources", "shifted")}
    works = {p: r.pipes["core0.vec0.V"].work / ticks for p, r in adds.items()}
    u, ul1, vec = (run(p, n=n) for p in ("scan_u", "scan_ul1", "cumsum_vec"))
    chip = npusim.load_chip("ascend-910b1").cube
    product = run("mmad_repeat", "ascend-910b1").pipes["core0.cube0.M"].work
    simulated = {
        "8 products of 128x256x64": product + chip.head_isolated_cycles - chip.head_streamed_cycles,
        "1000 Add of 64 repeats": works["free"],
        "the same": ul1.gm.useful_gb_per_s,
        "8 KiB loads of one core": run("load_repeat", "ascend-910b1").total_cycles / 1.85 / 256,
        "ScanU": u.gm.useful_gb_per_s,
        "ScanUL1": ul1.gm.useful_gb_per_s,
        "ScanU / ScanUL1": u.time_us / ul1.time_us,
        "vector-only baseline / ScanU": vec.time_us / u.time_us,
    }
    del simulated["the same"]
    table = rows()
    for what, value in simulated.items():
        shown = table[what][1]
        assert float(f"{value:.3g}") == pytest.approx(float(f"{shown:.3g}"), rel=5e-3), what
    for place, published in (("sources", 4167), ("shifted", 3751)):
        assert works[place] == pytest.approx(published, rel=0.02)
        assert f"| {published} | {works[place]:.0f} |" in README
