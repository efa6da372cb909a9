"""The components of a run as JSON that reads back exactly."""

from __future__ import annotations

import json
from collections import Counter
from fractions import Fraction
from typing import Any

from npusim.isa.operand import Pipe
from npusim.program.core import CoreKind
from npusim.report.component_model import Component, Part
from npusim.report.components import Components

SCHEMA = "npusim.components/1"


def components_json(found: Components) -> str:
    """Return components as JSON; ideal cycles are fractions as text. Thresholds are not part of it."""
    data: dict[str, Any] = {"schema": SCHEMA}
    data |= {name: getattr(found, name) for name in _HEAD}
    data["found"] = [
        {
            "kind": c.kind.value,
            "pipe": c.pipe.name,
            "cores": c.cores,
            "cycles": c.cycles,
            "parts": [[p.name, p.instructions, p.amount, str(p.ideal), p.active] for p in c.parts.values()],
            "active_by_core": c.active_by_core,
            "waits": dict(c.waits),
            "intervals": c.intervals,
            "longest": c.longest,
        }
        for c in found
    ]
    return json.dumps(data, indent=1) + "\n"


def components_from(text: str) -> Components:
    """Return what `components_json` wrote.

    Raises `ValueError`, `KeyError` or `TypeError` where it is something else.
    """
    data = json.loads(text)
    if data["schema"] != SCHEMA:
        raise ValueError(f"schema {data['schema']}")
    found = []
    for c in data["found"]:
        parts = {
            name: Part(name, instructions, amount, Fraction(ideal), active)
            for name, instructions, amount, ideal, active in c.pop("parts")
        }
        kind, pipe, waits = CoreKind(c.pop("kind")), Pipe[c.pop("pipe")], Counter(c.pop("waits"))
        found.append(Component(kind, pipe, parts=parts, waits=waits, **c))
    return Components(**{name: data[name] for name in _HEAD}, found=found)


_HEAD = (
    "program", "chip", "clock_mhz", "cycles", "memory_bytes", "memory_rate", "chain_cycles", "busiest_cycles",
)  # fmt: skip
