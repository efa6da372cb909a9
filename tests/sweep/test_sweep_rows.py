"""Rows: the same as single runs, on every backend, after a kill, with failures; effects of axes."""

from __future__ import annotations

import csv
import importlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time

import pytest

import npusim
from npusim.config.load import load_chip
from npusim.errors import ConfigError
from npusim.sweeps.backends import run_points
from npusim.sweeps.effects import effects
from npusim.sweeps.plan import make_plan
from npusim.sweeps.play import Player, run_point
from npusim.sweeps.rows import columns
from npusim.sweeps.space import read_space
from npusim.sweeps.tables import write_parquet
from npusim.sweeps.watched import ReadNotes

SPACE = {
    "program": "few.py:copy",
    "chips": ["toy", "ascend-910b4"],
    "axes": {
        "program.part": [64, 128],
        "chip.hbm.read_latency_ns": [100, 300, 900],
        "chip.hbm.size_gib": [1, 2],
    },
}


def one_process(space, **options):
    return npusim.sweep(space, backend="sequential", **options)


@pytest.mark.parametrize("program", ["copy", "by_cores", "by_data"])
@pytest.mark.parametrize("timing_only", [False, True])
def test_every_row_is_that_of_a_run_of_its_own(folder, program, timing_only):
    if program == "by_data" and timing_only:
        return  # an error, see below
    axes = {
        "chip.cores.cube": [1, 2],
        "chip.scalar.alu_cycles": [1, 7],
        "chip.hbm.read_latency_ns": [100, 900],
        "run.l2": ["cold", "warm"],
        "run.seed": [0, 1],
    }
    space = {"program": f"few.py:{program}", "chips": ["toy"], "axes": axes, "timing_only": timing_only}
    found = one_process(space)
    assert len(found.rows) == 32
    for row in found.rows:
        numbers = {a.removeprefix("chip."): row[a] for a in axes if a.startswith("chip.")}
        report = npusim.simulate(
            f"few.py:{program}",
            load_chip("toy", overrides=numbers),
            seed=row["run.seed"],
            l2=row["run.l2"],
            timing_only=timing_only,
        )
        assert row["run_id"] == report.run_id
        assert row["total_cycles"] == report.total_cycles
        assert row["bounds.flag_only_cycles"] == report.bounds.flag_only_cycles
        assert row["values_ok"] is report.values.ok
        assert row["confidence.L"] == report.confidence.L
        work = sum(p.work for name, p in report.pipes.items() if name.endswith(".MTE2"))
        assert row["pipes.MTE2.work"] == work


def test_streams_are_played_once_for_chips_that_look_the_same_to_them(folder):
    def plays(program, **axes):
        plan = make_plan(read_space({"program": f"few.py:{program}", "chips": ["toy"], "axes": axes}))
        player = Player()
        rows = [run_point(point, player) for point in plan.points]
        assert all(row["status"] == "ok" for row in rows)
        return player.plays

    timing = {
        "chip.hbm.read_latency_ns": [1, 2],
        "chip.l2.size_mib": [1, 2],
        "chip.clock_mhz": [500, 900],
        "run.l2": ["cold", "dirty"],
    }
    assert plays("copy", **timing) == 1
    assert plays("copy", **{"chip.cores.cube": [1, 2]}, **timing) == 2, "a launch asks for the cores"
    assert plays("by_cores", **{"chip.cores.cube": [1, 2]}, **timing) == 2
    assert plays("by_data", **{"run.seed": [0, 1]}, **timing) == 2, "streams may follow the inputs"
    assert plays("copy", **{"program.part": [64, 128]}, **timing) == 2


def test_notes_of_what_was_read():
    chip = load_chip("toy")
    notes = ReadNotes(chip)
    seen = notes.chip
    assert (seen.cores.cube, seen.coupled, seen.cycles(100)) == (chip.cores.cube, False, chip.cycles(100))
    assert seen.paths.l0c_to_ub is chip.paths.l0c_to_ub
    assert notes.paths == ["clock_mhz", "cores.arrangement", "cores.cube", "paths.l0c_to_ub"]
    assert notes.match(load_chip("toy", overrides={"hbm.size_gib": 1, "queues.v": 3}))
    assert not notes.match(load_chip("toy", overrides={"cores.cube": chip.cores.cube + 1}))
    assert not notes.match(load_chip("toy", overrides={"clock_mhz": 7}))
    with pytest.raises(AttributeError):
        _ = seen.no_such_field  # type: ignore[attr-defined]


def test_whoever_reads_all_depends_on_all():
    chip = load_chip("toy")
    for read in (lambda c: c.identity(), lambda c: c.numbers(), lambda c: c.l2.model_dump()):
        notes = ReadNotes(chip)
        assert read(notes.chip) == read(chip)
        assert notes.match(load_chip("toy"))
        assert not notes.match(load_chip("toy", overrides={"l2.size_mib": 1234}))


def test_a_section_that_is_there_or_not():
    chip, other = load_chip("ascend-910b4"), load_chip("ascend-310")
    notes = ReadNotes(chip)
    assert notes.chip.paths.l0c_to_l1 is not None
    assert notes.match(load_chip("ascend-910b4", overrides={"paths.l0c_to_l1.issue_cycles": 99}))
    assert other.paths.l0c_to_l1 is None
    assert not notes.match(other)


def test_backends_give_the_same_rows(folder):
    expected = one_process(SPACE)
    assert [row["status"] for row in expected.rows] == ["ok"] * 24
    assert npusim.sweep(SPACE, backend="loky", jobs=2).rows == expected.rows


@pytest.mark.skipif(importlib.util.find_spec("distributed") is None, reason="needs npusim[cluster]")
@pytest.mark.filterwarnings("ignore")
def test_a_dask_cluster_gives_the_same_rows(folder):
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        assert npusim.sweep(SPACE, backend="dask", client=client).rows == one_process(SPACE).rows


@pytest.mark.skipif(importlib.util.find_spec("distributed") is None, reason="needs npusim[cluster]")
@pytest.mark.filterwarnings("ignore")
def test_a_point_that_ends_its_dask_workers_is_a_row(folder):
    import dask
    from distributed import Client, LocalCluster

    space = {"program": "few.py:leaves", "chips": ["toy"], "params": {"how": "exit"}}
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        (row,) = npusim.sweep(space, backend="dask", client=client).failed
    assert row["error"] == "leaves: the processes that ran it ended"


def test_a_backend_that_is_not_installed(folder, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError) as caught:
        npusim.sweep(SPACE, backend="dask")
    assert str(caught.value) == "backend dask needs Dask; install it with pip install 'npusim[cluster]'"
    with pytest.raises(ConfigError) as caught:
        write_parquet(one_process(SPACE | {"axes": {}}), "x.parquet")
    assert str(caught.value) == "parquet needs pyarrow; install it with pip install 'npusim[tables]'"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"backend": "ray"}, "sweep: no backend 'ray'; backends: loky sequential dask"),
        ({"backend": "lokey"}, "sweep: no backend 'lokey'; did you mean loky?"),
        ({"jobs": 0}, "sweep: jobs must be 1 or more, or -1 for all cores, not 0"),
        ({"resume": True}, "sweep: resume needs the folder with the rows; name it as output"),
    ],
)
def test_wrong_options(folder, options, message):
    with pytest.raises(ConfigError) as caught:
        npusim.sweep(SPACE, **options)
    assert str(caught.value) == message


def test_failures_are_rows(folder):
    space = {
        "program": "few.py:copy",
        "chips": ["toy"],
        "axes": {"program.part": [64, 100], "program.off": [0, 1]},
    }
    found = one_process(space, output="out")
    assert [row["status"] for row in found.rows] == ["ok", "wrong", "failed", "failed"]
    assert found.failed[0]["error"] == "copy: part=100 must divide n=256"
    assert (found.wrong[0]["values_ok"], found.wrong[0]["mismatches"]) == (False, 256)
    assert one_process({"program": "few.py:crash", "chips": ["toy"], "params": {"n": 1}}).failed[0][
        "error"
    ] == ("few.py:63: ZeroDivisionError: division by zero")
    assert one_process({"program": "few.py:by_data", "chips": ["toy"], "timing_only": True}).failed
    assert one_process(space, output="out", resume=True).resumed == 4


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX signals")
def test_a_point_that_ends_its_worker_is_a_row_and_the_others_run(folder):
    axes = {"program.how": ["", "exit", "kill"], "program.n": [3, 4]}
    space = {"program": "few.py:leaves", "chips": ["toy"], "axes": axes}
    found = npusim.sweep(space, jobs=2, output="out")
    ended = {"exit": "exit code {}", "kill": "SIGKILL; was memory short?"}
    assert len(found.rows) == 6
    for row in found.rows:
        how = row["program.how"]
        assert row["status"] == ("failed" if how else "ok")
        words = f"leaves: its process ended with {ended[how].format(row['program.n'])}" if how else None
        assert row["error"] == words
    lines = (folder / "out" / "rows.jsonl").read_text(encoding="utf-8").splitlines()
    assert sorted(map(str, map(json.loads, lines))) == sorted(map(str, found.rows)), "every point once"
    assert npusim.sweep(space, jobs=2, output="out", resume=True).rows == found.rows


def test_the_only_point_that_ends_its_worker_does_not_end_the_sweep(folder):
    space = {"program": "few.py:leaves", "chips": ["toy"], "params": {"n": 0, "how": "exit"}}
    (row,) = npusim.sweep(space, jobs=2).failed
    assert row["error"] == "leaves: its process ended with exit code 0"


def test_files_hold_every_row(folder):
    found = one_process(SPACE, output="out")
    lines = (folder / "out" / "rows.jsonl").read_text(encoding="utf-8").splitlines()
    by_point = {row["point"]: row for row in map(json.loads, lines)}
    assert len(lines) == len(by_point) == 24
    assert all(by_point[row["point"]] == row for row in found.rows)
    with (folder / "out" / "rows.csv").open(encoding="utf-8", newline="") as file:
        table = list(csv.DictReader(file))
    assert list(table[0]) == list(found.columns) == columns(make_plan(read_space(SPACE)))
    assert {row["point"]: row["total_cycles"] for row in table} == {
        point: str(row["total_cycles"]) for point, row in by_point.items()
    }
    record = json.loads((folder / "out" / "sweep.json").read_text(encoding="utf-8"))
    assert (record["schema"], record["points"]) == ("npusim.sweep-folder/1", 24)
    assert record["effects"][-1] == {"axes": ["chip.hbm.size_gib"], "compared": 12, "changed": 0}


def test_a_sweep_goes_on_where_it_stopped(folder, monkeypatch):
    whole = one_process(SPACE, output="whole")
    text = (folder / "whole" / "rows.jsonl").read_text(encoding="utf-8")
    lines = text.splitlines(keepends=True)
    (folder / "out").mkdir()
    (folder / "out" / "rows.jsonl").write_text("".join(lines[:9]) + lines[9][:40], encoding="utf-8")
    ran = []
    module = importlib.import_module("npusim.sweeps.run")  # the name npusim.sweep is the function's
    monkeypatch.setattr(
        module, "run_points", lambda points, **kw: ran.extend(points) or run_points(points, **kw)
    )
    found = one_process(SPACE, output="out", resume=True)
    assert (found.rows, found.resumed, len(ran)) == (whole.rows, 9, 15)
    again = (folder / "out" / "rows.jsonl").read_text(encoding="utf-8")
    assert sorted(again.splitlines()) == sorted(text.splitlines())
    table = (folder / "out" / "rows.csv").read_text(encoding="utf-8")
    assert sorted(table.splitlines()) == sorted(
        (folder / "whole" / "rows.csv").read_text("utf-8").splitlines()
    )
    ran.clear()
    assert one_process(SPACE, output="out", resume=True).rows == whole.rows
    assert not ran


def contents(place):
    """Return what every file of a folder holds."""
    return {file.name: file.read_bytes() for file in place.iterdir()}


def test_a_folder_that_cannot_be_used(folder):
    one_process(SPACE, output="out")

    def error_of(space, **options):
        with pytest.raises(ConfigError) as caught:
            one_process(space, output="out", **options)
        return str(caught.value)

    assert error_of(SPACE) == "out: holds rows of a sweep; add --resume, or name a new folder"
    assert error_of(SPACE | {"axes": {"program.n": [256]}}, resume=True) == (
        "out: holds rows of another space, with a column chip.hbm.read_latency_ns; name a new folder"
    )
    assert error_of(SPACE | {"seed": 1}, resume=True) == (
        "out: 24 of 24 rows are no points of this space, program and model; name a new folder"
    )
    rows = folder / "out" / "rows.jsonl"
    rows.write_text(rows.read_text(encoding="utf-8") + '{"cut": sho', encoding="utf-8")
    before = contents(folder / "out")
    for refused in (SPACE | {"seed": 1}, SPACE | {"axes": SPACE["axes"] | {"run.seed": [3]}}):
        assert "rows are no points of this space" in error_of(refused, resume=True)
        assert contents(folder / "out") == before
    wider = SPACE | {"axes": SPACE["axes"] | {"program.part": [64, 128, 256]}}
    assert one_process(wider, output="out", resume=True).resumed == 24
    (folder / "out" / "rows.jsonl").write_text("[]\n", encoding="utf-8")
    assert error_of(SPACE, resume=True) == (
        "out/rows.jsonl:1: is no row of a sweep; delete the line, or name a new folder"
    )


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ({"total_cycles": "x"}, "total_cycles must be a number, not text 'x'"),
        ({"time_us": None}, "time_us must be a number, not nothing"),
        ({"values_ok": 3}, "values_ok must be true, false or nothing, not 3"),
        ({"pipes.M.flag": True}, "pipes.M.flag must be a number, not true"),
        ({"result_id": 3}, "result_id must be text, not 3"),
        ({"status": "fine"}, "status must be ok, wrong or failed, not text 'fine'"),
    ],
)
def test_a_damaged_row_is_refused(folder, damage, words):
    space = SPACE | {"axes": {"program.part": [64, 128]}}
    whole = one_process(space, output="out")
    file = folder / "out" / "rows.jsonl"
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    wrong = json.dumps(json.loads(lines[1]) | damage) + "\n"
    file.write_text("".join([lines[0], wrong, *lines[2:]]), encoding="utf-8")
    before = contents(folder / "out")
    with pytest.raises(ConfigError) as caught:
        one_process(space, output="out", resume=True)
    assert str(caught.value) == f"out/rows.jsonl:2: {words}; delete the line to run its point again"
    assert contents(folder / "out") == before
    file.write_text("".join([lines[0], *lines[2:]]), encoding="utf-8")
    assert one_process(space, output="out", resume=True).rows == whole.rows


def test_a_row_that_is_there_twice_counts_once(folder):
    one_process(SPACE, output="out")
    file = folder / "out" / "rows.jsonl"
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    file.write_text("".join([*lines, lines[3]]), encoding="utf-8")
    assert one_process(SPACE, output="out", resume=True).resumed == 24


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX signals")
def test_a_kill_loses_no_finished_row(folder):
    axes = {"program.part": [64, 128], "run.seed": list(range(1000))}
    (folder / "s.yaml").write_text(
        json.dumps({"schema": "npusim.sweep/1", "program": "few.py:copy", "chips": ["toy"], "axes": axes}),
        encoding="utf-8",
    )
    code = "import npusim; npusim.sweep('s.yaml', backend='sequential', output='out')"
    child = subprocess.Popen([sys.executable, "-c", code])
    rows = folder / "out" / "rows.jsonl"
    try:
        for _ in range(1200):
            if rows.exists() and rows.stat().st_size > 10_000:
                break
            time.sleep(0.05)
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
    kept = rows.read_bytes()
    whole = kept[: kept.rfind(b"\n") + 1].splitlines()
    assert 0 < len(whole) < 2000
    assert all(json.loads(line)["status"] == "ok" for line in whole)


LIMITED = """
import resource, sys
from npusim.cli import main
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), int(sys.argv[1])))
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX limits")
@pytest.mark.parametrize("resume", [False, True])
def test_a_file_that_cannot_grow(folder, resume):
    (folder / "s.yaml").write_text(json.dumps({"schema": "npusim.sweep/1"} | SPACE), encoding="utf-8")
    rows = folder / "out" / "rows.jsonl"
    if resume:
        one_process(SPACE, output="out")
        rows.write_bytes(b"".join(rows.read_bytes().splitlines(keepends=True)[:2]))
    command = ["sweep", "s.yaml", "--backend", "sequential", "-o", "out", *["--resume"][:resume]]
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, "20000", *command], capture_output=True, text=True, check=False
    )
    kept = rows.read_bytes().splitlines(keepends=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"error: out/rows.jsonl: cannot be written: file too large; {len(kept)} rows are kept in rows.jsonl: "
        f"make room, then go on with --resume\n"
    )
    assert 2 < len(kept) < 24
    assert all(json.loads(line)["status"] == "ok" and line.endswith(b"\n") for line in kept)
    assert one_process(SPACE, output="out", resume=True).rows == one_process(SPACE).rows


def test_axes_without_effect_are_told(folder):
    found = one_process(SPACE)
    assert found.without_effect == ("chip.hbm.size_gib",)
    told = {str(e) for e in found.effects}
    assert "chip.hbm.size_gib: NO EFFECT on cycles, traffic or values" in told
    assert "program.part: acts" in told
    lone = one_process(SPACE | {"axes": {"chip.hbm.size_gib": [4]}, "chips": ["toy"]})
    assert [str(e) for e in lone.effects] == [
        "chip.hbm.size_gib: not compared, no two finished rows differ in nothing else"
    ]


def test_an_effect_on_derived_figures_alone_is_none(folder):
    # a rate of main memory beyond what a core takes changes a utilisation, and nothing of the run
    axes = {"chip.hbm.nominal_gb_per_s": [10_000, 20_000]}
    found = one_process({"program": "few.py:copy", "chips": ["toy"], "axes": axes})
    assert (
        len({row["gm.utilization"] for row in found.rows}) == len({row["run_id"] for row in found.rows}) == 2
    )
    assert found.without_effect == ("chip.hbm.nominal_gb_per_s",)


def test_effects_are_counted_by_sets():
    def row(a, b, result, status="ok"):
        return {"a": a, "b": b, "result_id": result, "status": status}

    rows = [row(0, 0, "x"), row(1, 0, "x"), row(0, 1, "x"), row(1, 1, "y"), row(0, 2, "x")]
    rows += [{"a": 1, "b": 2, "status": "failed"}]
    first, second = effects([("a",), ("b",)], ["a", "b"], rows)
    assert (first.compared, first.changed, first.none) == (2, 1, False)
    assert str(first) == "a: acts in 1 of 2 comparisons"
    assert (second.compared, second.changed) == (2, 1)
    (both,) = effects([("a", "b")], ["a", "b"], rows)
    assert str(both) == "a and b together: acts"


@pytest.mark.skipif(importlib.util.find_spec("pyarrow") is None, reason="needs npusim[tables]")
def test_parquet_holds_every_row(folder):
    import pyarrow.parquet as pq

    found = one_process(SPACE)
    write_parquet(found, "rows.parquet")
    table = pq.read_table("rows.parquet")
    assert table.schema.metadata[b"schema"] == b"npusim.sweep-rows/1"
    assert table.column_names == list(found.columns)
    assert table.column("total_cycles").to_pylist() == found.column("total_cycles")


def test_a_column_that_is_not_there(folder):
    found = one_process(SPACE | {"axes": {}})
    for name, hint in (
        ("nope", "the attribute columns holds all names"),
        ("total_cycle", "did you mean total_cycles?"),
    ):
        with pytest.raises(ConfigError) as caught:
            found.column(name)
        assert str(caught.value) == f"sweep: no column '{name}'; {hint}"


def test_progress_is_told(folder):
    calls = []
    one_process(SPACE, progress=lambda *call: calls.append(call))
    assert calls[0] == (0, 24, 0)
    assert calls[-1] == (24, 24, 0)
