"""Rows: one flat mapping a point, the same columns for all points of a sweep."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from typing import Any

from npusim.isa.operand import Pipe
from npusim.report.model import (
    BoundsPart,
    ConfidencePart,
    CubePart,
    GmPart,
    Part,
    PipePart,
    Report,
    VectorPart,
)
from npusim.sweeps.plan import Grid, Plan, Point

Row = dict[str, Any]
"""A row of a sweep, by column."""

_HEAD = ("point", "status", "error", "program", "chip")
_RUN = (
    "run_id", "result_id", "model_revision", "seed", "numerics", "l2", "clock_mhz",
    "values_ok", "max_abs_error", "mismatches",
    "total_cycles", "time_us", "launch_overhead_us", "host_overhead_us", "instructions",
)  # fmt: skip
_PARTS: dict[str, type[Part]] = {
    "gm": GmPart,
    "cube": CubePart,
    "vector": VectorPart,
    "bounds": BoundsPart,
    "confidence": ConfidencePart,
}
_CYCLES = tuple(name for name in PipePart.model_fields if name != "instructions")
_METRICS = (
    *_RUN,
    *(f"{part}.{name}" for part, model in _PARTS.items() for name in model.model_fields),
    *(f"pipes.{pipe.name}.{name}" for pipe in Pipe if pipe is not Pipe.ALL for name in _CYCLES),
)
_DERIVED = ("run_id", "chip", "program", "params", "bounds", "confidence")
"""Parts of a report that an axis may change without any effect on what the machine did."""


def columns(plan: Plan | Grid) -> list[str]:
    """Return the columns of the rows of a sweep: what it is, where it is, what came out."""
    params = [f"program.{name}" for name in plan.program.model.model_fields]
    places = dict.fromkeys([a for a in plan.axes if a != "chip"] + params)
    return [*_HEAD, *places, *(m for m in _METRICS if m not in places)]


def kinds() -> dict[str, Any]:
    """Return the types of the columns that come out of a run, by column; None where a run has no value."""
    fields = {name: field.annotation for name, field in Report.model_fields.items() if name in _RUN}
    found: dict[str, Any] = dict.fromkeys(_METRICS, int) | fields | {"result_id": str}
    found |= {"values_ok": bool | None, "max_abs_error": float | None, "mismatches": int | None}
    for part, model in _PARTS.items():
        found |= {f"{part}.{name}": field.annotation for name, field in model.model_fields.items()}
    return found


def report_row(point: Point, report: Report) -> Row:
    """Return the row of a run that came to an end: `ok`, or `wrong` where values differ from the reference.

    `result_id` hashes what the machine computed and how long it took: times, cycles of every pipe by cause,
    traffic and the comparison of values, and not the bounds and utilisations that are worked out from the
    chip's numbers.
    """
    row = _placed(point, "wrong" if report.values.ok is False else "ok", None)
    data = report.model_dump(mode="json", by_alias=True)
    values = report.values
    row |= {name: data[name] for name in _RUN if name in data}
    row |= {
        "result_id": _result_id(data),
        "values_ok": values.ok,
        "max_abs_error": values.max_abs_error,
        "mismatches": values.mismatches,
        "instructions": sum(p.instructions for p in report.pipes.values()),
    }
    row |= {f"{part}.{name}": value for part in _PARTS for name, value in data[part].items()}
    sums: Counter[str] = Counter()
    for name, pipe in report.pipes.items():
        kind = name.rpartition(".")[2]
        sums.update({f"pipes.{kind}.{cause}": getattr(pipe, cause) for cause in _CYCLES})
    return row | sums


def failed_row(point: Point, error: str) -> Row:
    """Return the row of a run that failed."""
    return _placed(point, "failed", error)


def _placed(point: Point, status: str, error: str | None) -> Row:
    row: Row = {
        "point": point.key,
        "status": status,
        "error": error,
        "program": point.name,
        "chip": point.chip_name,
        **{axis: value for axis, value in point.coords.items() if axis != "chip"},
        **{f"program.{name}": value for name, value in point.params.items()},
        "seed": point.seed,
        "l2": point.l2,
    }
    plain: Row = json.loads(json.dumps(row, default=str))  # as it will be read back
    return plain


def _result_id(data: dict[str, Any]) -> str:
    kept = {key: value for key, value in data.items() if key not in _DERIVED}
    kept["gm"] = {key: value for key, value in data["gm"].items() if key != "utilization"}
    del kept["seed"], kept["numerics"], kept["l2"]
    text = json.dumps(kept, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]
