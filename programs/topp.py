"""Top-p sampling of one row by radix sort and MCScan (arXiv 2505.15112, section 5.5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, PositiveInt

from npusim import Builder, Expected, program

from ._inner import InnerBuilder
from ._share import ai_cores
from ._split import Generation, Side
from ._topp import Theta, sizes
from ._topp_cut import check_probabilities, expected_sample, probabilities, sample_sorted
from .mcscan import mcscan
from .radix_sort import radix_sort


@program
def topp(
    k: Builder,
    *,
    n: PositiveInt = 1 << 15,
    p: Annotated[float, Field(ge=0, le=1)] = 0.9,
    theta: Theta = 0.5,
    s: Side = 128,
    dtype: Literal["float16"] = "float16",
    generation: Generation = "scan",
    cores: PositiveInt | None = None,
) -> None:
    """Sample one of n probabilities out of the most likely ones, whose sum just passes p.

    In three launches: `radix_sort`, descending and stable; MCScan; and `sample`, which keeps an element where
    the sum of those before it (its prefix sum less itself) is at most p, divides by the sum of what is kept,
    and takes the first whose prefix sum is above theta times that of the last kept. Outputs are the places
    of the sorted elements (`index`), their new probabilities (`probs`, float32) and the `token`.

    Probabilities are finite, 0 or more, and need not add up to one; p compares with their sums as they are.
    Of equal ones the first in the input comes first. The token is that of exact arithmetic, theta being
    rounded down to 24 binary digits, where the sum of all has at most 2^24 units of the last digit of any;
    otherwise float32 sums decide. `generation` and `cores` as in `split`. Time does not depend on the values
    but for the splits of the sort; see `radix_sort` for runs with `--timing-only`.
    """
    x = k.input("x", (n,), dtype, probabilities(n, dtype), check_probabilities("topp"))
    token, index = k.output("token", (1,), "int32"), k.output("index", (n,), "int32")
    probs = k.output("probs", (n,), "float32")
    values, sums = k.workspace("values", (n,), dtype), k.workspace("sums", (n,), "float32")
    radix_sort.function(
        InnerBuilder(k, "radix_sort", x=x, y=values, y_index=index),
        n=n,
        s=s,
        dtype=dtype,
        order="descending",
        passes=16,
        generation=generation,
        cores=cores,
    )
    scan = InnerBuilder(k, "mcscan", x=values, y=sums)
    mcscan.function(scan, n=n, s=s, dtype=dtype, exclusive=False, l2_split=True, cores=cores)
    sample_sorted(
        k,
        values,
        sums,
        index,
        probs,
        token,
        p=p,
        theta=theta,
        piece=s * s // 2,
        blocks=ai_cores(k, cores) * k.chip.cores.vector_per_cube,
    )

    @k.reference
    def expected(inputs: Mapping[str, np.ndarray]) -> dict[str, Expected]:
        return expected_sample(inputs["x"], scan, p, theta)


topp.from_inputs(sizes)
