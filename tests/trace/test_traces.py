"""Timelines and traces: lanes hold what the report says, in order, whatever the program."""

from __future__ import annotations

import io
import json
import linecache
from collections import Counter, defaultdict
from itertools import pairwise

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from random_programs import changed, chip_for, launches, numbers, resolved

from npusim import Builder, Pipe, components, isa, program, simulate
from npusim.errors import ConfigError
from npusim.report.component_file import components_from, components_json
from npusim.report.rates import rates, spread
from npusim.report.simulate import run
from npusim.report.timeline import load_timeline, timeline
from npusim.trace.chrome import chrome_events, write_chrome
from npusim.trace.perfetto import write_perfetto
from npusim.trace.write import check_trace_file

CAUSES = ("flag", "cross_core", "barrier", "link", "issue", "queue")


@program
def two(k: Builder) -> None:
    """Copy two tiles in each of two launches."""
    x, y, z = (
        k.input("x", (2, 64), "float32"),
        k.workspace("y", (2, 64), "float32"),
        k.output("z", (2, 64), "float32"),
    )

    def copy(a, b):
        def stream(c):
            tile, loaded, free = c.ub(64, isa.F32), c.flag(Pipe.MTE2, Pipe.MTE3), c.flag(Pipe.MTE3, Pipe.MTE2)
            for i in range(2):
                if i:
                    yield free.wait
                yield isa.copy_in(tile, a[i])
                yield loaded.set
                yield loaded.wait
                yield isa.copy_out(b[i], tile)
                if not i:
                    yield free.set

        return stream

    k.launch("first", vector=copy(x, y))
    k.launch("second", vector=copy(y, z))


def timed(maker=two, chip="toy", **params):
    return simulate(maker, chip, timing_only=True, spans=True, **params)


def names(events):
    """Return the names of processes by number, and of threads by process and number."""
    named = [e for e in events if e["ph"] == "M" and e["name"].endswith("_name")]
    return {(e["pid"], e["tid"]) if "tid" in e else e["pid"]: e["args"]["name"] for e in named}


def lanes(events):
    """Return the slices by process and thread, as `core0.vec0.MTE2` or `core0.vec0.MTE2 wait`."""
    found, known = defaultdict(list), names(events)
    for e in events:
        if e["ph"] == "X" and e["pid"]:
            found[f"{known[e['pid']]}.{known[e['pid'], e['tid']]}"].append(e)
    return found


def ns(us):
    return round(us * 1000)


def check_lanes(events, report):
    """Hold the slices against the report: nothing negative, nothing overlaps, every cycle is there."""
    found = lanes(events)
    for name, there in found.items():
        assert all(e["dur"] >= 0 and e["args"]["cycles"] > 0 for e in there), name
        for a, b in pairwise(there):
            assert ns(a["ts"]) + ns(a["dur"]) <= ns(b["ts"]), name
            assert a["args"]["start"] + a["args"]["cycles"] <= b["args"]["start"], name
    for name, pipe in report.pipes.items():
        assert sum(e["args"]["cycles"] for e in found[name]) == pipe.work
        waits = Counter()
        for e in found[f"{name} wait"]:
            waits[e["cat"]] += e["args"]["cycles"]
        assert waits == {c: getattr(pipe, c) for c in CAUSES if getattr(pipe, c)}
    return found


# ---- any program -------------------------------------------------------------------------------------------


@settings(max_examples=20, deadline=None, derandomize=True)
@given(launches(), st.data())
def test_lanes_hold_what_the_report_says(launch, data):
    kind, streams = launch
    chip = changed(chip_for(kind), data.draw(numbers(kind)))
    built, _ = resolved(chip, kind, streams)
    report = run(built, chip, timing_only=True, spans=True)
    line = timeline(report)
    assert line.busy() == {name: pipe.work for name, pipe in report.pipes.items()}
    events = list(chrome_events(line))
    check_lanes(events, report)
    starts = {e["id"]: e for e in events if e["ph"] == "s"}
    ends = {e["id"]: e for e in events if e["ph"] == "f"}
    assert starts.keys() == ends.keys()
    assert all(starts[i]["ts"] <= ends[i]["ts"] for i in ends)
    begins = {(e["pid"], e["tid"], e["ts"]) for e in events if e["ph"] == "X" and e["cat"] == "work"}
    assert all((e["pid"], e["tid"], e["ts"]) in begins for e in ends.values())
    moves, gm = line.moves, report.gm
    assert int(moves.nbytes.sum()) == gm.read_bytes + gm.write_bytes
    assert int(moves.evicted.sum()) == gm.hbm_write_bytes
    assert int(moves.fetched.sum()) == gm.hbm_read_bytes
    assert (moves.start <= moves.stop).all()
    assert (moves.stop <= line.cycles).all()
    again = components_from(components_json(components(report)))
    assert again.to_dict() == components(report).to_dict()
    assert str(again) == str(components(report))


def test_both_formats_hold_the_same_slices_arrows_and_counters(tmp_path):
    pb2 = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    line = timeline(timed("mcscan", "ascend-910b4", n=20_000, cores=1))
    write_perfetto(line, tmp_path / "trace.pftrace")
    trace = pb2.Trace()
    trace.ParseFromString((tmp_path / "trace.pftrace").read_bytes())
    tracks = {
        p.track_descriptor.uuid: p.track_descriptor for p in trace.packet if p.HasField("track_descriptor")
    }
    processes = {u: t.process.process_name for u, t in tracks.items() if t.HasField("process")}
    opened, slices, flows, values = {}, Counter(), Counter(), Counter()
    last = 0
    for packet in trace.packet:
        if not packet.HasField("track_event"):
            continue
        assert packet.timestamp >= last
        last, event = packet.timestamp, packet.track_event
        track = tracks[event.track_uuid]
        if event.type == event.TYPE_SLICE_BEGIN:
            assert track.uuid not in opened, "slices of one lane do not nest"
            opened[track.uuid] = (event.name, last)
            flows.update(event.flow_ids)
            flows.update(event.terminating_flow_ids)
        elif event.type == event.TYPE_SLICE_END:
            name, start = opened.pop(track.uuid)
            slices[processes[track.parent_uuid], track.name, name, start, last] += 1
        else:
            values[track.name] += 1
    assert not opened
    events = list(chrome_events(line))
    known = names(events)
    expected = Counter(
        (
            known[e["pid"]],
            known[e["pid"], e["tid"]],
            e["name"],
            ns(e["ts"]),
            ns(e["ts"]) + ns(e["dur"]),
        )
        for e in events
        if e["ph"] == "X"
    )
    assert slices == expected
    assert flows == Counter({n + 1: 2 for n in range(len(line.flows.text))})
    assert values == Counter(e["name"].partition(",")[0] for e in events if e["ph"] == "C")


# ---- one program, by hand ----------------------------------------------------------------------------------


def test_a_copy_of_two_tiles_in_two_launches():
    report = timed()
    line = timeline(report)
    events = list(chrome_events(line))
    found = check_lanes(events, report)
    assert [e["name"] for e in found["core0.vec0.MTE2"]] == ["DataCopy"] * 4
    assert names(events)[0, 1] == "launches"
    first, second = report.launches
    assert [(e["name"], e["args"]) for e in events if e.get("cat") == "launch"] == [
        ("first", {"cycles": first.cycles, "start": 0}),
        ("second", {"cycles": second.cycles, "start": first.cycles}),
    ]
    inside = [e["args"]["start"] >= first.cycles for e in found["core0.vec0.MTE3"]]
    assert inside == [False, False, True, True]
    assert [line.texts[t] for t in line.flows.text] == ["MTE2->MTE3#0", "MTE3->MTE2#0", "MTE2->MTE3#0"] * 2
    # an arrow leaves the load and arrives at the store of the same tile
    loads, stores = found["core0.vec0.MTE2"], found["core0.vec0.MTE3"]
    assert int(line.flows.from_time[0]) == loads[0]["args"]["start"] + loads[0]["args"]["cycles"]
    assert int(line.flows.to_time[0]) == stores[0]["args"]["start"]
    assert int(line.flows.to_time[1]) == loads[1]["args"]["start"]
    file, _, number = stores[0]["args"]["source"].rpartition(":")
    assert linecache.getline(file, int(number)).strip() == "yield isa.copy_out(b[i], tile)"
    waits = [e["name"] for e in found["core0.vec0.MTE3 wait"]]
    assert any(name.startswith("flag WaitFlag") for name in waits)


def test_json_is_one_document_that_names_its_run(tmp_path):
    report = timed()
    write_chrome(timeline(report), tmp_path / "t.json")
    data = json.loads((tmp_path / "t.json").read_text())
    assert data["otherData"] == {
        "program": "two",
        "chip": "toy",
        "run_id": report.run_id,
        "clock_mhz": report.clock_mhz,
        "cycles": report.total_cycles,
    }
    assert data["traceEvents"] == list(chrome_events(timeline(report)))


# ---- files -------------------------------------------------------------------------------------------------


def test_a_timeline_reads_back(tmp_path):
    line = timeline(timed())
    line.save(tmp_path / "spans.npz")
    again = load_timeline(tmp_path / "spans.npz")
    assert list(chrome_events(again)) == list(chrome_events(line))
    assert (again.lanes, again.texts, again.launches) == (line.lanes, line.texts, line.launches)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"{}", "npz"])
def test_a_file_that_is_none(tmp_path, content):
    file = tmp_path / "spans.npz"
    if content == "npz":
        buffer = io.BytesIO()
        np.savez(buffer, head=np.frombuffer(b'{"schema": "other"}', np.uint8))
        content = buffer.getvalue()
    file.write_bytes(content)
    with pytest.raises(ConfigError) as error:
        load_timeline(file)
    assert str(error.value) == f"{file}: holds no spans of npusim; run the program again"


def test_a_run_without_spans_has_no_timeline():
    with pytest.raises(ConfigError) as error:
        timeline(simulate(two, "toy", timing_only=True))
    assert str(error.value) == "timeline: the run of two kept no spans; simulate it again with spans=True"


ENDINGS = "use .json for Chrome JSON, .pftrace for Perfetto"


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("", "'': is no file to write a trace to; name one, as trace.json"),
        (".", ".: is no file to write a trace to; name one, as trace.json"),
        ("no/t.json", "no/t.json: there is no folder no; make it first"),
        ("t.foo", f"t.foo: its ending names no format of a trace; {ENDINGS}"),
        ("t", f"t: its ending names no format of a trace; {ENDINGS}"),
    ],
)
def test_a_place_where_no_trace_can_be(tmp_path, monkeypatch, file, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as error:
        check_trace_file(file)
    assert str(error.value) == message


# ---- rates -------------------------------------------------------------------------------------------------

MOVE = st.tuples(st.integers(0, 40), st.integers(0, 25), st.integers(0, 1000))


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.lists(MOVE, max_size=12), st.integers(1, 70))
def test_spread_is_the_sum_over_cycles(moves, bins):
    """Against cycle by cycle addition."""
    every = np.zeros(70)
    for start, length, amount in moves:
        every[start : start + max(1, length)] += amount / max(1, length)
    edges = np.unique(np.linspace(0, 70, bins + 1).astype(int))
    expected = [every[a:b].sum() for a, b in pairwise(edges)]
    start, length, amount = (np.array([m[i] for m in moves], np.int64) for i in range(3))
    found = spread(start, start + length, amount, edges)
    np.testing.assert_allclose(found, expected, atol=1e-7)


def test_rates_add_up_to_the_traffic():
    report = timed("scan_u", "ascend-910b4", n=20_000)
    found = rates(timeline(report), 50)
    width = np.diff(found.edges)
    assert round(float((found.read * width).sum())) == report.gm.read_bytes
    assert round(float((found.write * width).sum())) == report.gm.write_bytes
    assert round(float((found.fetched * width).sum())) == report.gm.hbm_read_bytes
    known = found.hit_rate[~np.isnan(found.hit_rate)]
    assert known.min() >= 0
    assert known.max() <= 1 + 1e-9
