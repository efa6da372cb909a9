"""The values of an axis."""

from __future__ import annotations

from typing import Any

from npusim.errors import ConfigError
from npusim.sweeps.space import AxisSpec, Number, Scale


def axis_values(spec: AxisSpec, base: Any) -> list[Any]:
    """Return the values that an axis takes; `base` is the number that `scale` multiplies.

    Whole ends, and a whole base, give whole numbers. Raises `ConfigError`, without a place, for a scale of
    what is no number, and for a value that comes twice.
    """
    if isinstance(spec, list):
        values = list(spec)
    elif isinstance(spec, Scale):
        values = _scaled(spec, base)
    else:
        first, last = spec.grid or spec.geom or []
        parts = [i / (spec.steps - 1) for i in range(spec.steps)]
        if spec.grid:
            values = [first + (last - first) * part for part in parts]
        else:
            values = [first * (last / first) ** part for part in parts]
        values[-1] = last  # the power may be off in its last bit
        if isinstance(first, int) and isinstance(last, int):
            values = [round(v) for v in values]
        if len(set(values)) < len(values):
            rule = f"{spec.steps} steps give only {len(set(values))} different values; lower steps"
            raise ConfigError(rule)
    for i, value in enumerate(values):
        if value in values[:i]:
            raise ConfigError(f"{value} is there twice; give every value once")
    return values


def _scaled(spec: Scale, base: Any) -> list[Number]:
    if isinstance(base, bool) or not isinstance(base, int | float):
        raise ConfigError("scale needs a number to multiply, and there is none; give the values as a list")
    if isinstance(base, int):
        return [round(base * factor) for factor in spec.scale]
    return [base * factor for factor in spec.scale]
