"""The vector-only baseline of batched scans: every vector core scans rows by the documented CumSum."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
from pydantic import PositiveInt

from npusim import Builder, Expected, Kernel, program

from ._carries import Steps
from ._cumsum import CumSum
from ._prefix_sum import chain_bound, elements, exact_sums
from ._share import vector_cores


@program
def scan_batch_vec(
    k: Builder,
    *,
    batch: PositiveInt = 80,
    length: PositiveInt = 1 << 16,
    s: Literal[16, 32, 64, 128] = 128,
    dtype: Literal["float16", "float32"] = "float16",
    cores: PositiveInt | None = None,
) -> None:
    """Inclusive prefix sums of each row of a batch, on vector cores without the cube.

    The cores take the rows in turn and scan each as `cumsum_vec` does, tile by tile of s x s elements, of
    which the last is filled up with zeros. NaN and infinities propagate inside a row. `cores` is the number
    of vector cores.
    """
    size = batch * length
    make = elements(dtype, size)
    x = k.input("x", (batch, length), dtype, lambda generator: make(generator).reshape(batch, length))
    y = k.output("y", (batch, length), "float32")
    blocks = min(vector_cores(k.chip, "scan_batch_vec", cores or 0), batch)

    def stream(c: Kernel) -> Steps:
        core = CumSum(c, s, x.dtype)
        yield from core.start()
        for row in range(c.block, batch, blocks):
            yield from core.scan(x.flat(row * length, length), y.flat(row * length, length))
        yield from core.stop()

    k.launch("scan_batch_vec", vector=stream, blocks=blocks)

    @k.reference
    def expected(inputs: Mapping[str, np.ndarray]) -> dict[str, Expected]:
        sums = [exact_sums(row) for row in inputs["x"]]
        bounds = [chain_bound(row, total, s, s) for row, total in zip(inputs["x"], sums, strict=True)]
        return {"y": Expected(np.stack(sums), np.stack(bounds))}


@scan_batch_vec.from_inputs
def _sizes(inputs: Mapping[str, np.ndarray]) -> dict[str, object]:
    x = inputs["x"]
    return {"batch": x.shape[0], "length": x.shape[1], "dtype": x.dtype.name}
