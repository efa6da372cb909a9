"""The vector-only baseline of top-p sampling: Sort32 and merges, then the documented CumSum."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, PositiveInt

from npusim import Builder, Expected, program

from ._inner import InnerBuilder
from ._share import vector_cores
from ._sort_vec import Chunk
from ._topp import Theta, sizes
from ._topp_cut import check_probabilities, expected_sample, probabilities, sample_sorted
from .cumsum_vec import cumsum_vec
from .sort_vec import sort_vec


@program
def topp_vec(
    k: Builder,
    *,
    n: PositiveInt = 1 << 15,
    p: Annotated[float, Field(ge=0, le=1)] = 0.9,
    theta: Theta = 0.5,
    s: Literal[16, 32, 64, 128] = 128,
    dtype: Literal["float16", "float32"] = "float16",
    chunk: Chunk = 8192,
    cores: PositiveInt | None = None,
) -> None:
    """Sample one of n probabilities out of the most likely ones, whose sum just passes p, without the cube.

    As `topp`, but sorted by `sort_vec` in chunks and summed by `cumsum_vec`, which is one vector core, in
    tiles of s x s. Inputs, outputs and precision are those of `topp`; `cores` is the number of vector cores
    for the rest.
    """
    blocks = vector_cores(k.chip, "topp_vec", cores or 0)
    x = k.input("x", (n,), dtype, probabilities(n, dtype), check_probabilities("topp_vec"))
    token, index = k.output("token", (1,), "int32"), k.output("index", (n,), "int32")
    probs = k.output("probs", (n,), "float32")
    values, sums = k.workspace("values", (n,), dtype), k.workspace("sums", (n,), "float32")
    sort = InnerBuilder(k, "sort_vec", x=x, y=values, y_index=index)
    sort_vec.function(sort, n=n, dtype=dtype, order="descending", chunk=chunk, cores=cores)
    scan = InnerBuilder(k, "cumsum_vec", x=values, y=sums)
    cumsum_vec.function(scan, n=n, s=s, dtype=dtype)
    sample_sorted(k, values, sums, index, probs, token, p=p, theta=theta, piece=chunk // 2, blocks=blocks)

    @k.reference
    def expected(inputs: Mapping[str, np.ndarray]) -> dict[str, Expected]:
        return expected_sample(inputs["x"], scan, p, theta)


topp_vec.from_inputs(sizes)
