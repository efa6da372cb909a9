"""Looking at kept runs: `run --trace`, `trace`, `plot`, `export`, `compare`, and what they refuse."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Npusim = Callable[..., Any]
RUN = ("run", "tiny.py:copy", "-c", "toy")


@pytest.fixture
def kept(npusim: Npusim, folder: Path) -> Path:
    """A run with its spans in the folder `a`."""
    assert npusim(*RUN, "--spans", "-o", "a").code == 0
    return folder / "a"


def test_a_trace_is_the_same_at_once_and_later(npusim, kept):
    done = npusim(*RUN, "--trace", "now.json")
    assert (done.code, done.err) == (0, "")
    assert done.out.endswith("next        open now.json in ui.perfetto.dev\n")
    done = npusim("trace", "a")
    assert (done.code, done.out, done.err) == (0, "a/trace.json: open it in ui.perfetto.dev\n", "")
    assert (kept / "trace.json").read_bytes() == Path("now.json").read_bytes()
    data = json.loads(Path("now.json").read_text())
    assert data["otherData"]["run_id"] == json.loads((kept / "report.json").read_text())["run_id"]
    assert npusim(*RUN, "--spans", "-o", "a").code == 0, "a trace in a folder of npusim does not bar it"


def test_spans_do_not_change_the_report(npusim, kept):
    assert npusim(*RUN, "-o", "b").code == 0
    assert (kept / "report.json").read_bytes() == Path("b/report.json").read_bytes()


def test_perfetto_by_option_and_by_ending(npusim, kept):
    pytest.importorskip("perfetto")
    assert npusim("trace", "a", "--format", "perfetto").out == "a/trace.pftrace: open it in ui.perfetto.dev\n"
    assert npusim("trace", "a", "-o", "t.pftrace").code == 0
    assert npusim(*RUN, "--trace", "u.pftrace").code == 0
    data = (kept / "trace.pftrace").read_bytes()
    assert data == Path("t.pftrace").read_bytes() == Path("u.pftrace").read_bytes()


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ([*RUN, "--trace", "x.foo"], "x.foo: its ending names no format of a trace"),
        (["trace", "a", "-o", "x.foo"], "x.foo: its ending names no format of a trace"),
        (
            ["trace", "a", "--format", "perfetto", "-o", "x.json"],
            "x.json: the ending .json contradicts format perfetto",
        ),
        (
            ["trace", "a", "--format", "chrome", "-o", "x.perfetto-trace"],
            "x.perfetto-trace: the ending .perfetto-trace contradicts format chrome",
        ),
    ],
)
def test_an_ending_that_is_none_or_another_one(npusim, kept, command, message):
    done = npusim(*command)
    assert (done.code, done.out) == (2, "")
    assert done.err == f"error: {message}; use .json for Chrome JSON, .pftrace for Perfetto\n"
    assert not list(Path().glob("x.*"))


def test_an_ending_of_no_format_where_one_is_asked_for(npusim, kept):
    assert npusim("trace", "a", "--format", "chrome", "-o", "x.txt").code == 0
    assert json.loads(Path("x.txt").read_text())["otherData"]


def test_perfetto_without_its_package(npusim, kept, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "perfetto.trace_builder.proto_builder", None)
    done = npusim(*RUN, "--trace", "u.pftrace")
    assert (done.code, done.out) == (2, "")
    assert done.err == (
        "error: the format perfetto needs the package perfetto; pip install 'npusim[perfetto]', "
        "or choose chrome\n"
    )


@pytest.mark.parametrize("kind", ["roofline", "pipes", "gantt", "bandwidth", "occupancy"])
def test_every_plot_is_a_picture(npusim, kept, kind):
    done = npusim("plot", kind, "a", "--width", "column")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"{kind}.png")
    assert Path(f"{kind}.png").read_bytes().startswith(b"\x89PNG")


def test_options_of_plots(npusim, kept):
    assert npusim("plot", "roofline", "a", "a", "--classic", "-o", "r.svg").code == 0
    text = Path("r.svg").read_text()
    assert "operations per byte of main memory" in text
    assert (
        npusim("plot", "gantt", "a", "--core", "core0.vec0", "--from", "10", "--to", "60", "-o", "g.svg").code
        == 0
    )
    assert "core0.vec0.MTE2" in Path("g.svg").read_text()
    assert npusim("plot", "pipes", "a", "--core", "core0.vec0", "-o", "p.svg").code == 0


def test_runs_of_one_program_are_called_by_their_folders(npusim, kept):
    assert npusim(*RUN, "--spans", "--set", "hbm.sustained_fraction=0.5", "-o", "b").code == 0
    done = npusim("plot", "roofline", "a", "b", "--classic", "-o", "r.svg")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("r.svg: a: latency bound")
    text = Path("r.svg").read_text()
    for whose in ("main memory of a  ", "main memory of b  "):
        assert whose in text


def test_export(npusim, kept):
    done = npusim("export", "msprof", "a")
    assert (done.code, done.err) == (0, "")
    assert (kept / "msprof" / "simulator" / "core0.veccore0" / "trace.json").is_file()
    assert npusim("export", "msprof", "a", "-o", "b").code == 0
    assert Path("b/PipeUtilization.csv").is_file()


# ---- compare -----------------------------------------------------------------------------------------------


def test_compare_says_what_changed(npusim, kept):
    assert npusim(*RUN, "-p", "n=512", "--set", "l2.read_latency_ns=500", "-o", "b").code == 0
    done = npusim("compare", "a", "b", "--json")
    assert (done.code, done.err) == (0, "")
    found = json.loads(done.out)
    a, b = (json.loads(Path(f, "report.json").read_text()) for f in "ab")
    assert [c["name"] for c in found["chip"]] == ["l2.read_latency_ns"]
    assert found["chip"][0]["after"] == 500.0
    assert found["program"] == [{"name": "n", "before": 256, "after": 512}]
    assert found["totals"][0] == {"name": "cycles", "before": a["total_cycles"], "after": b["total_cycles"]}
    assert found["instructions"] == {"before": 4, "after": 4, "both": 4}
    for pipe, causes in found["pipes"].items():
        for side, report in (("before", a), ("after", b)):
            assert sum(c[side] for c in causes.values()) == pytest.approx(report["total_cycles"]), pipe
    text = npusim("compare", "a", "b").out
    assert "program     n 256 -> 512\n" in text
    assert "stream      4 instructions gone, 4 new, 4 as before\n" in text


def test_compare_with_itself_changes_nothing(npusim, kept):
    text = npusim("compare", "a", "a", "--fail-over", "0")
    assert text.code == 0
    assert "chip        the same\nprogram     the same\nstream      the same 8 instructions\n" in text.out
    assert "change" not in text.out


def test_compare_fails_over_a_limit(npusim, kept):
    assert npusim(*RUN, "--set", "l2.write_latency_ns=5000", "-o", "b").code == 0
    growth = json.loads(npusim("compare", "a", "b", "--json").out)["growth_percent"]
    assert growth > 1
    done = npusim("compare", "a", "b", "--fail-over", "1")
    assert (done.code, done.err) == (
        1,
        f"error: compare: b takes {growth:,.2f} % more cycles than a, over the allowed 1 %\n",
    )
    assert npusim("compare", "b", "a", "--fail-over", "1").code == 0
    assert npusim("compare", "a", "b", "--fail-over", "1e9").code == 0


# ---- what is refused ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ((*RUN, "--spans"), "--spans keeps something in the folder of -o DIR; add it, or leave --spans out"),
        ((*RUN, "--trace", "no/t.json"), "no/t.json: there is no folder no; make it first"),
        (("trace", "none"), "none: no such folder; make one with: npusim run PROGRAM --spans -o none"),
        (
            ("compare", "none", "none"),
            "none: no such folder; make one with: npusim run PROGRAM --spans -o none",
        ),
        (("trace", "."), ".: is no folder of a run; npusim run PROGRAM -o DIR makes one"),
        (
            ("trace", "b"),
            "b: the run kept no spans; run it again: npusim run tiny.py:copy -c toy -o b --spans",
        ),
        (
            ("plot", "gantt", "b"),
            "b: the run kept no spans; run it again: npusim run tiny.py:copy -c toy -o b --spans",
        ),
        (("plot", "pipes", "b", "-o", "p.txt"), "p.txt: end the name of a plot in .png, .svg or .pdf"),
        (
            ("plot", "roofline", "b", "b"),
            "the roofs of components are those of one run, not of 2; use --classic",
        ),
        (
            ("plot", "roofline", "b", "--classic", "--scalar"),
            "--scalar belongs to the view of components; leave it or --classic out",
        ),
        (("plot", "gant", "b"), "npusim plot: no command 'gant'; did you mean gantt?"),
    ],
)
def test_what_cannot_be_looked_at(npusim, folder, argv, message):
    assert npusim(*RUN, "-o", "b").code == 0
    done = npusim(*argv)
    assert (done.code, done.out, done.err) == (2, "", f"error: {message}\n")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("spans.npz", "holds no spans of npusim"),
        ("components.json", "holds no components of npusim"),
        ("report.json", "names no schema, npusim.report/1 is needed"),
        ("manifest.json", "names no schema, npusim.manifest/1 is needed"),
    ],
)
def test_a_broken_file_of_a_run(npusim, kept, name, words):
    (kept / name).write_text("{}")
    argv = ("trace", "a") if name != "components.json" else ("plot", "roofline", "a")
    done = npusim(*argv)
    expected = f"error: a/{name}: {words}; run the program again\n"
    assert (done.code, done.out, done.err) == (2, "", expected)


def _cut(text: str) -> str:
    return "\n".join(text.split("\n")[:3])


DAMAGE: list[tuple[str, Callable[[str], str] | None, str]] = [
    ("manifest.json", None, "is missing"),
    ("report.json", None, "is missing"),
    ("manifest.json", lambda text: " \n", "is empty"),
    ("report.json", lambda text: "", "is empty"),
    ("manifest.json", _cut, "is no JSON at line 3"),
    ("report.json", _cut, "is no JSON at line 3"),
    ("report.json", lambda text: "[]", "names no schema, npusim.report/1 is needed"),
    ("report.json", lambda text: '{"schema": "npusim.report/1"}', "run_id: field required"),
    ("manifest.json", lambda text: '{"schema": "npusim.manifest/1"}', "holds no chip"),
    (
        "report.json",
        lambda text: text.replace("npusim.report/1", "npusim.report/9"),
        "schema npusim.report/9 is not one that this version reads, npusim.report/1",
    ),
    (
        "manifest.json",
        lambda text: text.replace("npusim.manifest/1", "npusim.manifest/2"),
        "schema npusim.manifest/2 is not one that this version reads, npusim.manifest/1",
    ),
    ("stream.asm", None, "is missing"),
    ("stream.asm", lambda text: "", "is damaged: holds 0 of the 8 instructions in report.json"),
    (
        "stream.asm",
        lambda text: "\n".join(text.split("\n")[:-2]) + "\n",
        "is damaged: holds 7 of the 8 instructions in report.json",
    ),
    (
        "stream.asm",
        lambda text: text[:-3],
        "is damaged: holds 8 of the 8 instructions in report.json, the last one cut short",
    ),
]


@pytest.mark.parametrize(("name", "damage", "words"), DAMAGE)
def test_a_damaged_folder_says_which_file_and_why(npusim, kept, name, damage, words):
    file = kept / name
    if damage is None:
        file.unlink()
    else:
        file.write_text(damage(file.read_text()))
    for argv in (("compare", "a", "a"), ("plot", "pipes", "a")):
        done = npusim(*argv)
        if argv[0] == "compare" or name != "stream.asm":
            assert (done.code, done.out) == (2, "")
            assert done.err == f"error: a/{name}: {words}; run the program again\n"
        else:
            assert done.code == 0, "pictures do not need the stream"


@pytest.mark.parametrize("name", ["stream.asm", "report.json", "manifest.json"])
def test_a_file_of_a_run_that_is_no_text(npusim, kept, name):
    (kept / name).write_bytes(b"{}\n\xff\xfe")
    done = npusim("compare", "a", "a")
    assert (done.code, done.out) == (2, "")
    assert done.err == f"error: a/{name}: is no UTF-8 text at byte 3; run the program again\n"


def test_a_chip_of_a_run_that_is_none(npusim, kept):
    data = json.loads((kept / "manifest.json").read_text())
    data["chip"]["clock_mhz"] = "fast"
    (kept / "manifest.json").write_text(json.dumps(data))
    done = npusim("plot", "roofline", "a", "--classic")
    assert (done.code, done.out) == (2, "")
    assert done.err == (
        "error: a/manifest.json: chip.clock_mhz: input should be a valid integer; run the program again\n"
    )


def test_pipes_of_a_run_that_has_none(npusim, kept):
    data = json.loads((kept / "report.json").read_text())
    (kept / "report.json").write_text(json.dumps(data | {"pipes": {}}))
    done = npusim("plot", "pipes", "a")
    assert (done.code, done.out) == (2, "")
    assert done.err == "error: plot: the run of copy has no pipe with an instruction to draw\n"
    assert not Path("pipes.png").exists()
