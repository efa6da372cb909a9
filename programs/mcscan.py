"""MCScan: prefix sums on all cores (arXiv 2505.15112, section 5.2)."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import PositiveInt

from npusim import Builder, program
from npusim.errors import ConfigError

from ._cube_scan import RowScan
from ._mcscan import Method, multi_core_scan
from ._prefix_sum import ACCUMULATOR, elements, rows_bound, sizes


@program
def mcscan(
    k: Builder,
    *,
    n: PositiveInt = 1 << 20,
    s: Literal[16, 32, 64, 128] = 128,
    dtype: Literal["float16", "int8"] = "float16",
    exclusive: bool = False,
    l2_split: bool = True,
    cores: PositiveInt | None = None,
) -> None:
    """Prefix sums of n elements on all cores: cubes sum rows while vector cores sum their share of the input;
    then the vector cores add the carries, row after row.

    float16 gives float32, int8 gives int32 (which wraps). With `exclusive` an element is the sum before it.
    `l2_split` works through the input in stretches that fill L2 with input and output, as the authors' code
    does; a stretch that is no whole number of s x s tiles is first copied into a workspace with zeros behind.
    `cores` is the number of cores (cube and vectors), by default all that have a tile. On the cube NaN reads
    as zero and infinities as the largest finite number; in the sums of whole cores they stay what they are.
    """
    if dtype == "int8" and s == 16:
        raise ConfigError("mcscan: s=16 is half a fractal of int8, which is 32 wide; use s=32 or more")
    x = k.input("x", (n,), dtype, elements(dtype, n))
    y = k.output("y", (n,), ACCUMULATOR[dtype])
    lower = k.constant("lower", np.tril(np.ones((s, s), x.dtype.np)))
    method = Method(
        scan=lambda c: RowScan(c, s, lower, y.dtype),
        complete=lambda pieces, slot: pieces.add_to_rows(slot, s * s // 2, s),
        piece=s * s // 2,
        buffers=2,
        inside=lambda given, sums: rows_bound(given, sums, s, s),
    )
    multi_core_scan(k, "mcscan", x, y, s * s, method, exclusive=exclusive, l2_split=l2_split, cores=cores)


mcscan.from_inputs(sizes)
