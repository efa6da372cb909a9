"""What a chip takes up, as far as its numbers say: sums of memory and of lanes, in their own units.

These are no areas: how much silicon a KiB or a multiplier takes is not in a chip file. A search that wants
one number adds them up with weights of its own.
"""

from __future__ import annotations

from npusim.config.chip import Chip
from npusim.units import REPEAT_BYTES

NAMES = ("area.sram_kib", "area.buffers_kib", "area.cube_macs", "area.vector_bytes")
"""Names of the proxies."""


def proxies(chip: Chip) -> dict[str, float]:
    """Return the proxies by name.

    `area.sram_kib`: the buffers of all cores, and L2; `area.buffers_kib`: the same without L2, both in KiB.
    `area.cube_macs`: multiply-accumulates of 16-bit floats of all cubes in a cycle; `area.vector_bytes`:
    bytes of results of all vector units in a cycle.
    """
    cubes, b = chip.cores.cube, chip.buffers
    vectors = cubes * chip.cores.vector_per_cube
    buffers = cubes * (b.l1_kib + b.l0a_kib + b.l0b_kib + b.l0c_kib) + vectors * b.ub_kib
    m, n, k = chip.cube.rates["f16"]
    return {
        "area.sram_kib": buffers + 1024 * chip.l2.size_mib,
        "area.buffers_kib": buffers,
        "area.cube_macs": cubes * m * n * k,
        "area.vector_bytes": vectors * REPEAT_BYTES,
    }
