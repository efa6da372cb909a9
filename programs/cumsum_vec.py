"""The vector-only baseline of the scan paper: row scans by the documented CumSum, carries as in ScanU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

import numpy as np
from pydantic import PositiveInt

from npusim import Builder, Expected, Kernel, isa, program

from ._cumsum import CumSum
from ._prefix_sum import chain_bound, elements, exact_sums, sizes


@program
def cumsum_vec(
    k: Builder,
    *,
    n: PositiveInt = 1 << 20,
    s: Literal[16, 32, 64, 128] = 128,
    dtype: Literal["float16", "float32"] = "float16",
) -> None:
    """Inclusive prefix sums of n elements on one vector core, tile by tile of s x s, without the cube.

    A tile is cast to float32 and transposed, so that its rows become columns; s - 1 dependent additions of
    whole rows sum along them, each behind a barrier; it is transposed back and copied, and the rows receive
    their carries one by one. NaN and infinities propagate. The order of steps is that of the vendor's CumSum
    in its line-by-line form; the kernel that the paper wrapped around it is not public.
    """
    x = k.input("x", (n,), dtype, elements(dtype, n))
    y = k.output("y", (n,), "float32")

    def stream(c: Kernel) -> Iterator[isa.Instruction]:
        core = CumSum(c, s, x.dtype)
        yield from core.start()
        yield from core.scan(x, y)
        yield from core.stop()

    k.launch("cumsum_vec", vector=stream)

    @k.reference
    def expected(inputs: Mapping[str, np.ndarray]) -> dict[str, Expected]:
        sums = exact_sums(inputs["x"])
        return {"y": Expected(sums, chain_bound(inputs["x"], sums, s, s))}


cumsum_vec.from_inputs(sizes)
