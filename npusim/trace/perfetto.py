"""Timelines in Perfetto's own format, which opens faster than JSON; needs `npusim[perfetto]`.

Slices, arrows and counters are those of the Chrome trace.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from npusim.errors import ConfigError
from npusim.report.timeline import Timeline
from npusim.trace.chrome import DEVICE
from npusim.trace.lanes import WAIT, counters, slices

_SEQUENCE = 1
_DEVICE_TRACK, _LAUNCH_TRACK = 1, 2
_FIRST_TRACK = 16


def write_perfetto(timeline: Timeline, file: str | os.PathLike[str]) -> None:
    """Write a trace as protocol buffers.

    Raises `ConfigError` where the package is not installed, or the file cannot be written.
    """
    data = _Trace(timeline).serialized()
    try:
        with open(file, "wb") as out:
            out.write(data)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigError(f"{os.fspath(file)}: cannot be written: {reason}") from error


def check_perfetto() -> None:
    """Raise `ConfigError` where the package is not installed."""
    _modules()


def _modules() -> tuple[Any, Any]:
    try:
        from perfetto.protos.perfetto.trace import perfetto_trace_pb2
        from perfetto.trace_builder.proto_builder import TraceProtoBuilder
    except ImportError as error:
        raise ConfigError(
            "the format perfetto needs the package perfetto; pip install 'npusim[perfetto]', or choose chrome"
        ) from error
    return TraceProtoBuilder, perfetto_trace_pb2


class _Trace:
    """The packets of a trace."""

    def __init__(self, timeline: Timeline) -> None:
        builder, self._protos = _modules()
        self._builder = builder()
        self._timeline = timeline
        self._tracks()
        for time, _, kind, track, fill in sorted(self._events(), key=lambda event: event[:2]):
            event = self._packet(time).track_event
            event.type, event.track_uuid = kind, track
            fill(event)

    def serialized(self) -> bytes:
        """Return the bytes of the file."""
        found: bytes = self._builder.serialize()
        return found

    def _packet(self, time: int = 0) -> Any:
        packet = self._builder.add_packet()
        packet.timestamp = time
        packet.trusted_packet_sequence_id = _SEQUENCE
        return packet

    def _tracks(self) -> None:
        timeline = self._timeline
        self._process(DEVICE, _DEVICE_TRACK, 1)
        self._track("launches", _LAUNCH_TRACK, _DEVICE_TRACK)
        cores = {core: _FIRST_TRACK + number for number, core in enumerate(timeline.cores)}
        for pid, (core, uuid) in enumerate(cores.items(), 2):
            self._process(core, uuid, pid)
        self._lanes = _FIRST_TRACK + len(cores)
        for number, lane in enumerate(timeline.lanes):
            core, _, pipe = lane.rpartition(".")
            for wait in (0, 1):
                self._track(pipe + WAIT * wait, self._lane(number, wait), cores[core], 2 * number + wait)
        self._counters = counters(timeline)
        for counter in self._counters:
            track = self._track(counter.name, self._counter(counter.name), _DEVICE_TRACK)
            track.counter.unit_name = counter.unit

    def _lane(self, number: int, wait: int) -> int:
        return self._lanes + 2 * number + wait

    def _counter(self, name: str) -> int:
        names = [counter.name for counter in self._counters]
        return self._lane(len(self._timeline.lanes), 0) + names.index(name)

    def _process(self, name: str, uuid: int, pid: int) -> None:
        track = self._packet().track_descriptor
        track.uuid = uuid
        track.process.pid = pid
        track.process.process_name = name
        track.child_ordering = self._protos.TrackDescriptor.EXPLICIT

    def _track(self, name: str, uuid: int, parent: int, rank: int = 0) -> Any:
        track = self._packet().track_descriptor
        track.uuid, track.parent_uuid, track.name = uuid, parent, name
        track.sibling_order_rank = rank
        return track

    def _events(self) -> Iterator[tuple[int, int, int, int, Any]]:
        """Yield time, order among the same time, kind, track and what fills an event in.

        At one time slices end before others begin, but a slice of no nanoseconds ends after its begin.
        """
        types, timeline = self._protos.TrackEvent, self._timeline
        begin, end = types.TYPE_SLICE_BEGIN, types.TYPE_SLICE_END
        leaving, arriving = self._arrows()
        for name, start, cycles in timeline.launches:
            first, last = (t * 1000 // timeline.clock_mhz for t in (start, start + cycles))
            yield first, 1, begin, _LAUNCH_TRACK, _Fill(name, "launch", {"cycles": cycles})
            yield last, 0 if last > first else 1, end, _LAUNCH_TRACK, _nothing
        for s in slices(timeline):
            track = self._lane(s.lane, s.waits)
            args = {"cycles": s.cycles, "start": s.start, "instruction": s.text, "source": s.source}
            fill = _Fill(s.name, s.cause, args)
            if not s.waits:
                fill.leaving = leaving.get((s.lane, s.start + s.cycles), ())
                fill.arriving = arriving.get((s.lane, s.start), ())
            yield s.start_ns, 1, begin, track, fill
            yield s.stop_ns, 0 if s.stop_ns > s.start_ns else 1, end, track, _nothing
        for counter in self._counters:
            track = self._counter(counter.name)
            for time, value in zip(counter.times_ns, counter.values, strict=True):
                yield time, 2, types.TYPE_COUNTER, track, _Value(value)

    def _arrows(self) -> tuple[dict[tuple[int, int], list[int]], dict[tuple[int, int], list[int]]]:
        """Return the numbers of arrows by lane and cycle: those that leave and those that arrive."""
        flows = self._timeline.flows
        leaving: dict[tuple[int, int], list[int]] = {}
        arriving: dict[tuple[int, int], list[int]] = {}
        columns = (flows.from_lane, flows.from_time, flows.to_lane, flows.to_time)
        for i, (lane, start, to, end) in enumerate(zip(*(c.tolist() for c in columns), strict=True), 1):
            leaving.setdefault((lane, start), []).append(i)
            arriving.setdefault((to, end), []).append(i)
        return leaving, arriving


class _Fill:
    """Fills in the begin of a slice."""

    __slots__ = ("args", "arriving", "category", "leaving", "name")

    def __init__(self, name: str, category: str, args: dict[str, Any]) -> None:
        self.name, self.category, self.args = name, category, args
        self.leaving: Any = ()
        self.arriving: Any = ()

    def __call__(self, event: Any) -> None:
        event.name = self.name
        event.categories.append(self.category)
        event.flow_ids.extend(self.leaving)
        event.terminating_flow_ids.extend(self.arriving)
        for name, value in self.args.items():
            if value == "":
                continue
            note = event.debug_annotations.add()
            note.name = name
            if isinstance(value, int):
                note.int_value = value
            else:
                note.string_value = value


class _Value:
    """Fills in a counter."""

    __slots__ = ("value",)

    def __init__(self, value: float) -> None:
        self.value = value

    def __call__(self, event: Any) -> None:
        event.double_counter_value = self.value


def _nothing(_: Any) -> None:
    """Fill nothing in: the end of a slice has only a time."""
