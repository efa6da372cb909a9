"""Conversions between cycles, nanoseconds, bytes and rates: the one place where a rounding rule is chosen.

Cycles are integers and round up: a transfer that needs a part of a cycle occupies the whole cycle.
"""

from __future__ import annotations

KIB = 1024
BLOCK_BYTES = 32
"""Bytes of a datablock, the smallest unit of on-chip transfers and strides (Ascend C guide, H)."""
REPEAT_BYTES = 256
"""Bytes that one repeat of a vector instruction covers: eight datablocks (Ascend C guide, H)."""
FRACTAL_BYTES = 512
"""Bytes of a fractal of 1-, 2- and 4-byte types: 16 rows of 32 bytes (Ascend C guide, H)."""


def ceil_div(value: int, step: int) -> int:
    """Divide and round up; `step` is positive."""
    return -(-value // step)


def align_up(value: int, step: int) -> int:
    """Round `value` up to a multiple of `step`."""
    return -(-value // step) * step


def ns_to_cycles(ns: float, clock_mhz: float) -> int:
    """Convert nanoseconds to whole cycles, rounded up; a thousandth of a cycle is forgiven as float noise."""
    return -int(-(ns * clock_mhz / 1000.0 - 1e-3) // 1)


def cycles_to_us(cycles: float, clock_mhz: float) -> float:
    """Convert cycles to microseconds."""
    return cycles / clock_mhz


def gb_per_s_to_bytes_per_cycle(gb_per_s: float, clock_mhz: float) -> float:
    """Convert a rate in GB/s (1e9 bytes) to bytes per cycle."""
    return gb_per_s * 1000.0 / clock_mhz


def grouped(value: int) -> str:
    """Print an integer with thousands separators."""
    return f"{value:,}"
