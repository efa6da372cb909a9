"""Comparing outputs with a reference, element by element."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from npusim.errors import ConfigError
from npusim.isa.dtype import float_limits
from npusim.isa.instruction import Array
from npusim.program.program import Expected, Program
from npusim.report.model import Values

_CHUNK = 1 << 17  # larger temporaries go back to the system each time, and are faulted in again

NOT_CHECKED = Values(
    checked=False, ok=None, max_abs_error=None, max_ulp=None, mismatches=None, tolerance=None
)


def compare(program: Program, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> Values:
    """Return how far the outputs are from what the program's reference expects.

    NaN is right where NaN is expected, an infinity where the same infinity is; what has an infinite tolerance
    is not compared. Raises `ConfigError` where the reference names an output that does not exist, or gives
    another shape.
    """
    if program.reference is None:
        return NOT_CHECKED
    with np.errstate(all="ignore"):
        expected = program.reference(inputs)
    if not isinstance(expected, Mapping):
        raise ConfigError(
            f"{program.name}: the reference must return a dictionary of Expected by output, not "
            f"{type(expected).__name__}"
        )
    worst = worst_ulp = widest = 0.0
    mismatches = not_compared = 0
    for name, wanted in expected.items():
        if name not in outputs:
            raise ConfigError(f"{program.name}: the reference names {name}, which is no output")
        _check_expected(program.name, name, wanted)
        if wanted.value.shape != outputs[name].shape:
            raise ConfigError(
                f"{program.name}: the reference gives {name} the shape {wanted.value.shape}, "
                f"the program {outputs[name].shape}"
            )
        error, ulp, tolerance, wrong, left_out = _compare(outputs[name].ravel(), wanted)
        worst, worst_ulp, widest = max(worst, error), max(worst_ulp, ulp), max(widest, tolerance)
        mismatches += wrong
        not_compared += left_out
    compared = sum(outputs[name].size for name in expected) > not_compared
    return Values(
        checked=True,
        ok=mismatches == 0,
        max_abs_error=worst if compared else None,
        max_ulp=worst_ulp if compared else None,
        mismatches=mismatches,
        tolerance=widest if compared else None,
        not_compared=not_compared,
    )


def _check_expected(program: str, name: str, wanted: object) -> None:
    """Raise where a reference gives something that nothing could be compared with."""
    if not isinstance(wanted, Expected) or not isinstance(wanted.value, np.ndarray):
        raise ConfigError(
            f"{program}: the reference of {name} must be an Expected with an array, not "
            f"{type(getattr(wanted, 'value', wanted)).__name__}"
        )
    tolerance = np.asarray(wanted.tolerance)
    if tolerance.dtype.kind not in "iuf" or np.isnan(tolerance).any() or (tolerance < 0).any():
        raise ConfigError(f"{program}: the tolerance of {name} must be numbers of 0 or more, and no NaN")


def _compare(got: Array, wanted: Expected) -> tuple[float, float, float, int, int]:
    """Return the largest error, also in units, and tolerance, how many elements are wrong, and how many have
    an infinite tolerance, which are left out of everything else.
    """
    value = wanted.value.ravel()
    limit = np.broadcast_to(wanted.tolerance, wanted.value.shape).reshape(-1)
    error = ulp = widest = 0.0
    wrong = left_out = 0
    for start in range(0, got.size, _CHUNK):
        part = slice(start, start + _CHUNK)
        a, b, most = got[part], value[part], limit[part]
        known = np.isfinite(most)
        if not known.all():
            left_out += int(most.size - np.count_nonzero(known))
            a, b, most = a[known], b[known], most[known]
        if a.dtype.kind in "iub" and b.dtype.kind in "iub":
            difference = np.abs(a.astype(object) - b.astype(object)) if a.itemsize == 8 else _gap(a, b)
            unit = np.ones(1)
        else:
            with np.errstate(invalid="ignore", over="ignore"):  # signalling NaN are there, too
                x, y = a.astype(np.float64), _in_range(b.astype(np.float64), got.dtype)
                difference = np.where((x == y) | (np.isnan(x) & np.isnan(y)), 0.0, np.abs(x - y))
            difference = np.where(np.isnan(difference), np.inf, difference)
            unit = _ulp(y, got.dtype)
        wrong += int(np.count_nonzero(difference > most))
        if difference.size:
            error = max(error, float(difference.max()))
            ulp = max(ulp, float((difference / unit).max()))
            widest = max(widest, float(most.max()))
    return error, ulp, widest, wrong, left_out


def _in_range(value: Array, dtype: np.dtype) -> Array:
    """Return values as a float type would hold them if they are too large for it: as infinities."""
    if dtype.kind in "iu":
        return value
    info = float_limits(dtype)
    half_unit = 2.0 ** (info.maxexp - 2 - info.nmant)
    return np.where(np.abs(value) >= float(info.max) + half_unit, np.copysign(np.inf, value), value)


def _gap(a: Array, b: Array) -> Array:
    return np.abs(a.astype(np.int64) - b.astype(np.int64))


def _ulp(value: Array, dtype: np.dtype) -> Array:
    """Return the distance of neighbouring numbers of a type at a value; 1 for integers."""
    if dtype.kind in "iu":
        return np.ones(1)
    info = float_limits(dtype)
    exponent = np.frexp(np.where(np.isfinite(value), value, 1.0))[1] - 1
    unit: Array = np.ldexp(1.0, np.maximum(exponent, info.minexp) - info.nmant)
    return unit
