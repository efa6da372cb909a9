"""What the formats of traces share: names of slices, and counters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from npusim.machine.timing.account import Cause
from npusim.report.rates import rates
from npusim.report.timeline import Timeline

WAIT = " wait"
"""Ending of the lane beside a pipe in which its waits lie, so that a lane holds one kind of thing."""


class Slice(NamedTuple):
    """One span as viewers show it; times are nanoseconds, rounded down."""

    lane: int
    waits: bool
    """Whether it lies in the lane of the waits."""
    name: str
    cause: str
    start_ns: int
    stop_ns: int
    cycles: int
    start: int
    """Cycle at which it begins."""
    text: str
    """The instruction as assembly text."""
    source: str
    """File and line; empty where the stream is no code."""


def slices(timeline: Timeline) -> Iterator[Slice]:
    """Yield the spans of all lanes, those of one lane in order of time.

    The name is the instruction of work, and the cause of a wait, with the flag that it waited for.
    """
    spans = timeline.spans
    starts, stops = timeline.ns(spans.start), timeline.ns(spans.stop)
    heads = [text.partition(" ")[0] for text in timeline.texts]
    causes = {int(cause): cause.name.lower() for cause in Cause}
    columns = (spans.lane, spans.cause, spans.text, spans.start, spans.stop, starts, stops)
    for i, (lane, cause, text, start, stop, start_ns, stop_ns) in enumerate(
        zip(*(c.tolist() for c in columns), strict=True)
    ):
        word, whole = causes[cause], timeline.texts[text]
        waits = cause != Cause.WORK
        name = heads[text]
        if waits:
            name = f"{word} {whole}" if cause in _FLAGS else word
        yield Slice(
            lane, waits, name, word, start_ns, stop_ns, stop - start, start, whole, timeline.source(i)
        )


_FLAGS = (int(Cause.FLAG), int(Cause.CROSS_CORE))


class Counter(NamedTuple):
    """A track of values over time; each holds until the next."""

    name: str
    unit: str
    times_ns: list[int]
    values: list[float]


def counters(timeline: Timeline, bins: int = 2000) -> list[Counter]:
    """Return traffic, hit rate and transfers under way; nothing where nothing was moved."""
    if not len(timeline.moves.start):
        return []
    found = rates(timeline, bins)
    scale = timeline.clock_mhz / 1000
    times = timeline.ns(found.edges[:-1]).tolist()
    made = [
        Counter("L2 to cores", "GB/s", times, (found.read * scale).tolist()),
        Counter("cores to L2", "GB/s", times, (found.write * scale).tolist()),
        Counter("main memory to L2", "GB/s", times, (found.fetched * scale).tolist()),
        Counter("L2 to main memory", "GB/s", times, (found.evicted * scale).tolist()),
        Counter("transfers under way", "", times, found.under_way.tolist()),
    ]
    known = found.hit_rate == found.hit_rate
    hits = (100 * found.hit_rate[known]).tolist()
    made.append(Counter("L2 hits", "%", [t for t, k in zip(times, known, strict=True) if k], hits))
    return made
