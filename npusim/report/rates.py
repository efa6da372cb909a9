"""What moves over time: bytes of transfers spread evenly over the time in which they move."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from npusim.isa.instruction import Array
from npusim.report.timeline import Timeline


@dataclass(frozen=True)
class Rates:
    """Traffic in equal stretches of time; all arrays have one element for each.

    What leaves L2 for main memory counts at the transfer that pushes it out; the write-back buffer may keep
    it for a while.
    """

    edges: Array
    """Cycles at which the stretches begin, and the end of the last."""
    read: Array
    """Bytes per cycle from L2 to cores."""
    write: Array
    """Bytes per cycle from cores to L2."""
    fetched: Array
    """Bytes per cycle from main memory."""
    evicted: Array
    """Bytes per cycle to main memory."""
    hit_rate: Array
    """Share of the bytes that L2 took without main memory; NaN where nothing moved."""
    under_way: Array
    """Transfers whose data moves, on average."""


def rates(timeline: Timeline, bins: int = 400) -> Rates:
    """Return the traffic of a run in at most so many stretches of whole cycles."""
    count = max(1, min(bins, timeline.cycles))
    edges = np.linspace(0, max(1, timeline.cycles), count + 1)
    moves = timeline.moves
    width = np.diff(edges)
    write = moves.write.astype(bool)

    def amount(column: Array, chosen: Array | None = None) -> Array:
        picked = column if chosen is None else np.where(chosen, column, 0)
        return spread(moves.start, moves.stop, picked, edges)

    total, hit = amount(moves.nbytes), amount(moves.hit)
    return Rates(
        edges=edges,
        read=amount(moves.nbytes, ~write) / width,
        write=amount(moves.nbytes, write) / width,
        fetched=amount(moves.fetched) / width,
        evicted=amount(moves.evicted) / width,
        hit_rate=np.divide(hit, total, out=np.full(count, np.nan), where=total > 0.5),
        under_way=amount(np.maximum(moves.stop - moves.start, 1)) / width,
    )


def spread(start: Array, stop: Array, amount: Array, edges: Array) -> Array:
    """Return how much of evenly spread amounts falls between neighbouring edges, float64.

    What takes no time counts for one cycle.
    """
    stop = np.maximum(stop, start + 1)
    rate = amount / (stop - start)
    times = np.concatenate([start, stop])
    order = np.argsort(times, kind="stable")
    times = times[order].astype(np.float64)
    slopes = np.cumsum(np.concatenate([rate, -rate])[order])
    if not len(times):
        return np.zeros(len(edges) - 1)
    sums = np.concatenate([[0.0], np.cumsum(slopes[:-1] * np.diff(times))])
    reached: Array = np.diff(np.interp(edges, times, sums))
    return np.maximum(reached, 0.0)
