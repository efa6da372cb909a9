"""The trace of a run on all twenty AI cores, in both formats, read back from its file.

Perfetto's own checker is a program that its package downloads, so the native file is read with the classes of
its protocol, and everything that the checker would say of slices, tracks and arrows is asked here.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from npusim import Report, simulate
from npusim.report.timeline import Timeline, timeline
from npusim.trace.chrome import write_chrome
from npusim.trace.perfetto import write_perfetto

CAUSES = ("flag", "cross_core", "barrier", "link", "issue", "queue")


class Place(NamedTuple):
    """A lane: names of a process and of a thread."""

    process: str
    thread: str


class Slice(NamedTuple):
    """A span; nanoseconds, and cycles from its arguments."""

    begin: int
    end: int
    category: str
    start: int
    cycles: int


@dataclass
class Trace:
    """What a viewer would see of a file."""

    lanes: dict[Place, list[Slice]] = field(default_factory=lambda: defaultdict(list))
    """Slices in the order of the file."""
    starts: list[tuple[int, Place, int]] = field(default_factory=list)
    """Number, lane and time of each event that starts an arrow."""
    ends: list[tuple[int, Place, int]] = field(default_factory=list)
    counters: dict[str, list[tuple[int, float]]] = field(default_factory=lambda: defaultdict(list))
    processes: list[str] = field(default_factory=list)
    threads: list[Place] = field(default_factory=list)


def read_chrome(file: Path) -> Trace:
    """Read JSON, by the event types of the format."""
    events = json.loads(file.read_text(encoding="utf-8"))["traceEvents"]
    found, threads = Trace(), {}
    processes = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    found.processes = [e["args"]["name"] for e in events if e["name"] == "process_name"]
    for e in events:
        if e["name"] == "thread_name":
            threads[e["pid"], e["tid"]] = Place(processes[e["pid"]], e["args"]["name"])
            found.threads.append(threads[e["pid"], e["tid"]])
    for e in events:
        ns = round(1000 * e.get("ts", 0))
        if e["ph"] == "X":
            args, end = e["args"], round(1000 * (e["ts"] + e["dur"]))
            place = threads[e["pid"], e["tid"]]
            found.lanes[place].append(Slice(ns, end, e["cat"], args["start"], args["cycles"]))
        elif e["ph"] in "sf":
            where = found.starts if e["ph"] == "s" else found.ends
            where.append((e["id"], threads[e["pid"], e["tid"]], ns))
        elif e["ph"] == "C":
            (value,) = e["args"].values()
            found.counters[e["name"].partition(",")[0]].append((ns, value))
        else:
            assert e["ph"] == "M"
    return found


def read_perfetto(file: Path) -> Trace:
    """Read protocol buffers; a track is described before its first event, and its slices do not nest."""
    protos = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    packets = protos.Trace()
    packets.ParseFromString(file.read_bytes())
    found, tracks, opened = Trace(), {}, {}
    assert {p.trusted_packet_sequence_id for p in packets.packet} == {1}
    for packet in packets.packet:
        if packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            assert track.uuid not in tracks
            tracks[track.uuid] = track
            if track.HasField("process"):
                found.processes.append(track.process.process_name)
            elif not track.HasField("counter"):
                found.threads.append(Place(tracks[track.parent_uuid].process.process_name, track.name))
            continue
        event, time = packet.track_event, packet.timestamp
        track = tracks[event.track_uuid]
        if event.type == event.TYPE_COUNTER:
            assert track.HasField("counter")
            found.counters[track.name].append((time, event.double_counter_value))
            continue
        place = Place(tracks[track.parent_uuid].process.process_name, track.name)
        if event.type == event.TYPE_SLICE_BEGIN:
            assert place not in opened, f"{place}: a slice begins in another"
            numbers = {a.name: a.int_value for a in event.debug_annotations if a.HasField("int_value")}
            (category,) = event.categories
            opened[place] = time, category, numbers.get("start", 0), numbers["cycles"]
            found.starts += [(n, place, time) for n in event.flow_ids]
            found.ends += [(n, place, time) for n in event.terminating_flow_ids]
        else:
            assert event.type == event.TYPE_SLICE_END
            begin, category, start, cycles = opened.pop(place)
            found.lanes[place].append(Slice(begin, time, category, start, cycles))
    assert not opened
    return found


@pytest.fixture(scope="module")
def report() -> Report:
    """A scan on 20 cubes and 40 vector cores."""
    return simulate("mcscan", "ascend-910b4", n=60_000, s=32, timing_only=True, spans=True)


@pytest.fixture(scope="module")
def line(report: Report) -> Timeline:
    """Its timeline."""
    return timeline(report)


FORMATS: dict[str, tuple[Callable, Callable]] = {
    "chrome": (write_chrome, read_chrome),
    "perfetto": (write_perfetto, read_perfetto),
}


@pytest.fixture(scope="module", params=FORMATS)
def trace(request, line, tmp_path_factory) -> Trace:
    """The trace, written and read."""
    write, read = FORMATS[request.param]
    file = tmp_path_factory.mktemp("trace") / "trace"
    if request.param == "perfetto":
        pytest.importorskip("perfetto")
    write(line, file)
    return read(file)


def test_every_core_and_pipe_has_a_name(trace, report):
    cores = [f"core{n}.{unit}" for n in range(20) for unit in ("cube0", "vec0", "vec1")]
    assert sorted(trace.processes) == sorted(["device", *cores])
    pipes = [Place(*name.rsplit(".", 1)) for name in report.pipes]
    waits = [Place(process, f"{pipe} wait") for process, pipe in pipes]
    assert sorted(trace.threads) == sorted([Place("device", "launches"), *pipes, *waits])
    assert {process for process, _ in pipes} == set(cores)


def test_slices_of_a_lane_are_apart_and_inside_the_run(trace, report):
    end = report.total_cycles * 1000 // report.clock_mhz
    assert sum(map(len, trace.lanes.values())) > 20_000
    for place, slices in trace.lanes.items():
        assert slices[0].begin >= 0, place
        assert slices[-1].end <= end, place
        assert all(s.begin <= s.end and s.cycles > 0 for s in slices), place
        for a, b in pairwise(slices):
            assert a.end <= b.begin, place
            assert a.start + a.cycles <= b.start or place.process == "device", place
    (launch,) = trace.lanes[Place("device", "launches")]
    assert (launch.begin, launch.end, launch.cycles) == (0, end, report.total_cycles)


def test_a_slice_takes_the_time_of_its_cycles(trace, report):
    for place, slices in trace.lanes.items():
        for s in slices if place.process != "device" else ():
            assert s.begin == s.start * 1000 // report.clock_mhz, place
            assert s.end == (s.start + s.cycles) * 1000 // report.clock_mhz, place


def test_slices_add_up_to_the_report(trace, report):
    busy = {}
    for name, pipe in report.pipes.items():
        process, thread = name.rsplit(".", 1)
        work = trace.lanes[Place(process, thread)]
        assert {s.category for s in work} <= {"work"}
        busy[name] = sum(s.cycles for s in work)
        waits: Counter[str] = Counter()
        for s in trace.lanes[Place(process, f"{thread} wait")]:
            waits[s.category] += s.cycles
        assert waits == {c: getattr(pipe, c) for c in CAUSES if getattr(pipe, c)}, name
    assert busy == {name: pipe.work for name, pipe in report.pipes.items()}
    assert all(sum(n for name, n in busy.items() if name.endswith(p)) for p in (".M", ".V", ".MTE2", ".MTE3"))


def test_every_arrow_starts_once_ends_once_and_points_forward(trace, line):
    starts, ends = ({n: (place, time) for n, place, time in side} for side in (trace.starts, trace.ends))
    assert len(trace.starts) == len(starts) == len(trace.ends) == len(ends) == len(line.flows.text) > 1000
    assert starts.keys() == ends.keys()
    across = 0
    for number, (place, time) in starts.items():
        to, end = ends[number]
        assert time <= end, number
        across += place.process != to.process
    assert 60 < across < len(starts), "flags between cores and between pipes of a core"


def test_arrows_lie_on_the_work_that_they_join(trace, line):
    """A start lies in the slice that ends where the flag is set, an end at the start of the work behind."""
    flows, first = line.flows, min(n for n, _, _ in trace.starts)
    columns = zip(flows.from_lane, flows.from_time, flows.to_lane, flows.to_time, strict=True)
    work = {place: {s.start: s for s in slices} for place, slices in trace.lanes.items()}
    stops = {place: {s.start + s.cycles: s for s in slices} for place, slices in trace.lanes.items()}
    starts, ends = ({n: (place, time) for n, place, time in side} for side in (trace.starts, trace.ends))
    for number, (lane, left, to, right) in enumerate(columns, first):
        place, time = starts[number]
        assert place == Place(*line.lanes[lane].rsplit(".", 1))
        source = stops[place][int(left)]
        assert source.begin <= time <= source.end
        place, time = ends[number]
        assert place == Place(*line.lanes[to].rsplit(".", 1))
        assert time == work[place][int(right)].begin


def test_counters_go_forward_and_hold_the_traffic(trace, report):
    end = report.total_cycles * 1000 / report.clock_mhz
    sums = {}
    assert len(trace.counters) == 6
    for name, points in trace.counters.items():
        times, values = np.array(points).T
        assert (np.diff(times) > 0).all(), name
        assert times[0] >= 0, name
        assert times[-1] < end, name
        assert np.isfinite(values).all(), name
        assert (values >= 0).all(), name
        sums[name] = float((values * np.diff(times, append=end)).sum())  # GB/s times ns are bytes
    assert max(v for _, v in trace.counters["L2 hits"]) <= 100 + 1e-9
    gm = report.gm
    assert sums["L2 to cores"] == pytest.approx(gm.read_bytes, rel=0.01)
    assert sums["cores to L2"] == pytest.approx(gm.write_bytes, rel=0.01)
    assert sums["main memory to L2"] == pytest.approx(gm.hbm_read_bytes, rel=0.01)
