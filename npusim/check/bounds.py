"""Lower bounds on the time of a launch, worked out from the same `work` values without simulating.

`compute_cycles` is the busiest pipe, `l2_cycles` and `hbm_cycles` the bytes over the rates of the links, and
`flag_only_cycles` the longest chain through issue, queues, pipes, flags and barriers when links are
infinitely fast and every read takes the shortest latency there is, as a rule that of a hit; see
`npusim.check.recurrence`.
"""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

from npusim.config.chip import Chip
from npusim.units import KIB


class Bounds(NamedTuple):
    """Lower bounds in cycles, and which of them is the largest."""

    compute_cycles: int
    hbm_cycles: int
    l2_cycles: int
    flag_only_cycles: int

    @property
    def binding(self) -> str:
        """Name of the largest bound, without its unit."""
        values = self._asdict()
        return max(values, key=lambda name: values[name]).removesuffix("_cycles")

    def __add__(self, other: object) -> Bounds:  # launches follow each other
        if not isinstance(other, Bounds):
            return NotImplemented
        return Bounds(*(a + b for a, b in zip(self, other, strict=True)))


def link_bounds(
    chip: Chip, read_bytes: int, write_bytes: int, hbm_read_bytes: int, hbm_write_bytes: int
) -> tuple[int, int]:
    """Return the cycles that main memory and L2 need at least for a launch's traffic.

    What is written back may still lie in the write-back buffer when the launch ends.
    """
    written = max(0, hbm_write_bytes - chip.l2.writeback_buffer_kib * KIB)
    hbm = ceil((hbm_read_bytes + written) / chip.hbm_bytes_per_cycle)
    l2 = max(read_bytes / chip.l2.read_bytes_per_cycle, write_bytes / chip.l2.write_bytes_per_cycle)
    return hbm, ceil(l2)
