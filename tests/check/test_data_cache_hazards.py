"""What the data cache of the scalar unit hides is reported: stale lines, and stores that never left it."""

from __future__ import annotations

import inspect
import re

import pytest

from npusim import Builder, Pipe, isa, program, simulate
from npusim.errors import HazardError


def line_of(mark):
    """Return the line of this file that ends with a mark."""
    lines = inspect.getsource(inspect.getmodule(line_of)).splitlines()
    return next(i for i, text in enumerate(lines, 1) if text.endswith(f"# {mark}"))


@program
def cached(k: Builder, *, clean: bool = True, case: str = "own") -> None:
    """Scalar and other accesses to one line of global memory."""
    y = k.inout("y", (64,), "float32")

    def stream(c):
        tile = c.ub(64, isa.F32)
        everything = isa.PipeBarrier(on=Pipe.ALL)
        if case == "stale":
            yield isa.GetValue(reg=0, src=y)
            yield from c.vector(isa.Duplicate, count=64, dst=tile, scalar=9)
            yield everything
            yield isa.copy_out(y, tile)  # newer
            yield everything
            if clean:
                yield isa.DataCacheCleanAndInvalid(at=y)
            yield isa.GetValue(reg=1, src=y)  # stale
            return
        yield isa.SetValue(dst=y.flat(3, 1), value=77)  # store
        yield isa.GetValue(reg=1, src=y.flat(3, 1))
        if clean:
            yield isa.DataCacheCleanAndInvalid(at=y)
        if case == "hidden":
            yield everything
            yield isa.copy_in(tile, y)  # load

    k.launch("cached", vector=stream)


@pytest.mark.parametrize("case", ["own", "stale", "hidden"])
def test_cleaned_lines_pass(case):
    assert simulate(cached, "toy", case=case).values.ok is None


MESSAGES = {
    "own": "store: core0.vec0: SetValue: the value is only in the data cache when the launch ends; "
    "clean its line with DataCacheCleanAndInvalid",
    "stale": "stale: core0.vec0: GetValue (S) reads y from a line of the data cache that is older than what "
    "DataCopy (MTE3, newer) wrote; put DataCacheCleanAndInvalid before it",
    "hidden": "load: core0.vec0: DataCopy (MTE2) reads y bytes 12 to 16, which SetValue (S, store) has put "
    "into the data cache only; clean the line with DataCacheCleanAndInvalid first",
}
"""Whole messages, with the marks of this file in the place of its lines."""


@pytest.mark.parametrize("case", MESSAGES)
def test_messages(case):
    with pytest.raises(HazardError) as caught:
        simulate(cached, "toy", case=case, clean=False)
    marks = {line_of(m): m for m in ("store", "stale", "newer", "load")}
    shown = re.sub(r"\S*?test_data_cache_hazards\.py:(\d+)", lambda m: marks[int(m[1])], str(caught.value))
    assert shown.replace("(MTE3,newer", "(MTE3, newer") == MESSAGES[case]
