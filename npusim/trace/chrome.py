"""Timelines as Chrome trace JSON, which chrome://tracing, ui.perfetto.dev and Speedscope open.

One process for each core, one thread for each pipe, a second one beside it for its waits, flags as arrows,
counters of traffic. `ts` and `dur` are microseconds in steps of a nanosecond; `args` have the cycles.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

from npusim.errors import ConfigError
from npusim.report.timeline import Timeline
from npusim.trace.lanes import WAIT, counters, slices

DEVICE = "device"
"""Process of launches and counters."""


def chrome_events(timeline: Timeline) -> Iterator[dict[str, Any]]:
    """Yield the events of a trace."""
    pids = {core: number for number, core in enumerate(timeline.cores, 1)}
    places = []
    yield _named("process", DEVICE, 0)
    yield {"ph": "M", "name": "process_sort_index", "pid": 0, "args": {"sort_index": 0}}
    yield _named("thread", "launches", 0, 1)
    for core, pid in pids.items():
        yield _named("process", core, pid)
        yield {"ph": "M", "name": "process_sort_index", "pid": pid, "args": {"sort_index": pid}}
    for number, lane in enumerate(timeline.lanes):
        core, _, pipe = lane.rpartition(".")
        pid, tid = pids[core], 2 * number + 2
        places.append((pid, tid))
        for wait in (0, 1):
            yield _named("thread", pipe + WAIT * wait, pid, tid + wait)
            order = {"sort_index": tid + wait}
            yield {"ph": "M", "name": "thread_sort_index", "pid": pid, "tid": tid + wait, "args": order}
    for name, start, cycles in timeline.launches:
        begin, end = _ns(timeline, start), _ns(timeline, start + cycles)
        yield _slice(name, "launch", 0, 1, begin, end, {"cycles": cycles, "start": start})
    instants: set[tuple[int, int]] = set()
    for s in slices(timeline):
        pid, tid = places[s.lane]
        if not s.waits and s.start_ns == s.stop_ns:
            instants.add((s.lane, s.start + s.cycles))
        args: dict[str, Any] = {"cycles": s.cycles, "start": s.start, "instruction": s.text}
        if s.source:
            args["source"] = s.source
        category = s.cause if s.waits else "work"
        yield _slice(s.name, category, pid, tid + s.waits, s.start_ns, s.stop_ns, args)
    yield from _arrows(timeline, places, instants)
    for counter in counters(timeline):
        name = f"{counter.name}, {counter.unit}" if counter.unit else counter.name
        for time, value in zip(counter.times_ns, counter.values, strict=True):
            point = {counter.unit or "number": round(value, 3)}
            yield {"ph": "C", "name": name, "pid": 0, "ts": time / 1000, "args": point}


def write_chrome(timeline: Timeline, file: str | os.PathLike[str]) -> None:
    """Write a trace as JSON.

    Raises `ConfigError` where the file cannot be written.
    """
    about = {
        "program": timeline.program,
        "chip": timeline.chip,
        "run_id": timeline.run_id,
        "clock_mhz": timeline.clock_mhz,
        "cycles": timeline.cycles,
    }
    try:
        with open(file, "w", encoding="utf-8", newline="\n") as out:
            out.write('{"displayTimeUnit": "ns", "otherData": ' + json.dumps(about) + ', "traceEvents": [\n')
            comma = ""
            for event in chrome_events(timeline):
                out.write(comma + json.dumps(event, separators=(",", ":")))
                comma = ",\n"
            out.write("\n]}\n")
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigError(f"{os.fspath(file)}: cannot be written: {reason}") from error


def _arrows(
    timeline: Timeline, places: list[tuple[int, int]], instants: set[tuple[int, int]]
) -> Iterator[dict[str, Any]]:
    """Yield two events for each flag. A start counts to the slice in which it lies, so it lies a nanosecond
    before its end; an end to the slice that begins there. `instants` are lane and end, in cycles, of the
    work that takes less than a nanosecond, which has no time before its end.
    """
    flows = timeline.flows
    starts, ends = timeline.ns(flows.from_time), timeline.ns(flows.to_time)
    columns = (flows.text, flows.from_lane, flows.from_time, starts, flows.to_lane, ends)
    for i, (text, lane, cycle, start, to, end) in enumerate(zip(*(c.tolist() for c in columns), strict=True)):
        common = {"cat": "flag", "name": timeline.texts[text], "id": i}
        (pid, tid), (to_pid, to_tid) = places[lane], places[to]
        inside = start if (lane, cycle) in instants else start - 1
        yield {"ph": "s", **common, "pid": pid, "tid": tid, "ts": inside / 1000}
        yield {"ph": "f", "bp": "e", **common, "pid": to_pid, "tid": to_tid, "ts": end / 1000}


def _ns(timeline: Timeline, cycles: int) -> int:
    return cycles * 1000 // timeline.clock_mhz


def _named(what: str, name: str, pid: int, tid: int | None = None) -> dict[str, Any]:
    thread = {} if tid is None else {"tid": tid}
    return {"ph": "M", "name": f"{what}_name", "pid": pid, **thread, "args": {"name": name}}


def _slice(
    name: str, category: str, pid: int, tid: int, start_ns: int, stop_ns: int, args: dict[str, Any]
) -> dict[str, Any]:
    return {
        "ph": "X",
        "name": name,
        "cat": category,
        "pid": pid,
        "tid": tid,
        "ts": start_ns / 1000,
        "dur": (stop_ns - start_ns) / 1000,
        "args": args,
    }
