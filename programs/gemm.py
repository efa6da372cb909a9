"""Matrix product on the cubes of all cores, blocked as the vendor's samples do it (asc-devkit@0156b0f,
matmul_high_performance and matmul_basic_api_high_performance).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

import numpy as np
from pydantic import NonNegativeInt, PositiveInt

from npusim import Builder, Expected, Kernel, Macro, isa, program
from npusim.errors import ConfigError
from npusim.isa.dtype import element_type, float_limits

from ._gemm import Blocking, BOrder, Order, schedule
from ._gemm_stream import FixpipeDrain, VectorDrain, product_stream
from ._kept import Kept
from ._share import ai_cores

RESULTS = {
    "float16": ("float16", "float32", "bfloat16"),
    "bfloat16": ("bfloat16", "float32", "float16"),
    "float32": ("float32", "float16", "bfloat16"),
    "int8": ("int32",),
}
"""What the sums of each type of operands may become, the default first."""

COUPLED_RESULTS = {"float16": ("float16", "float32"), "int8": ("int32",)}
"""The same where results leave through the vector unit."""


@program
def gemm(
    build: Builder,
    *,
    m: PositiveInt = 1024,
    n: PositiveInt = 1024,
    k: PositiveInt = 1024,
    dtype: Literal["float16", "bfloat16", "float32", "int8"] = "float16",
    out: Literal["auto", "float16", "bfloat16", "float32", "int32"] = "auto",
    b_order: BOrder = "kn",
    epilogue: Literal["none", "relu"] = "none",
    bm: PositiveInt = 128,
    bn: PositiveInt = 256,
    bk: NonNegativeInt = 0,
    step_a: PositiveInt = 8,
    step_b: PositiveInt = 4,
    l1_buffers: Literal[1, 2] = 2,
    l0_buffers: Literal[1, 2] = 2,
    cores: NonNegativeInt = 0,
    order: Order = "grid",
    grid_m: NonNegativeInt = 0,
    band: PositiveInt = 4,
    rounds: PositiveInt = 1,
) -> None:
    """Multiply an m x k matrix by a k x n matrix on the cubes of all cores.

    Base blocks of bm x bk and bk x bn (bk=0: 128 bytes deep) come to L1 in packets of `step_a` and `step_b`
    of them, are multiplied one after the other and summed in L0C in float32 (int32 for int8). `out=auto`
    gives the element type of the operands, int32 for int8. With `b_order=nk` b is given as n x k. `order`,
    `grid_m`, `band` and `rounds` share the tiles of the result out: see `schedule` in _gemm.py. `cores=0`
    takes all. The defaults are the fastest of the vendor's sample for large float16 products.

    On coupled chips the results leave through the vector unit; where they have too few flags, packets of both
    operands come together, in the longer of the steps. NaN reads as zero and infinities as the
    largest finite number, since the cube saturates.
    """
    chip = build.chip
    kinds = (COUPLED_RESULTS if chip.coupled else RESULTS).get(dtype)
    if kinds is None:
        raise ConfigError(f"gemm: the cube of {chip.name} has no {dtype}; it has {' '.join(COUPLED_RESULTS)}")
    result = kinds[0] if out == "auto" else out
    if result not in kinds:
        raise ConfigError(f"gemm: {dtype} does not become {out} on {chip.name}; it becomes {' '.join(kinds)}")
    # the 910A has three flags for the four packets of two buffers
    together = chip.flags.ids - 1 < 2 * l1_buffers
    if together:
        step_a = step_b = max(step_a, step_b)
    cut = Blocking(
        m=m,
        n=n,
        k=k,
        bm=bm,
        bn=bn,
        bk=bk or 128 // element_type(dtype).size,
        step_a=step_a,
        step_b=step_b,
        dtype=element_type(dtype),
        b_order=b_order,
        whole=chip.coupled,
        together=together,
    )
    cut.check(chip, l1_buffers, l0_buffers)
    most = ai_cores(build, cores)
    work = schedule(
        cut.rows,
        cut.columns,
        most,
        order,
        grid_m=grid_m,
        band=band,
        rounds=rounds,
    )
    a = build.input("a", (m, k), dtype)
    b = build.input("b", (k, n) if b_order == "kn" else (n, k), dtype)
    y = build.output("y", (m, n), result)
    relu, kept = epilogue == "relu", Kept()

    def cube(c: Kernel) -> Iterator[isa.Instruction | Macro]:
        drain = VectorDrain(c, cut, y, relu) if c.chip.coupled else FixpipeDrain(cut, y, relu)
        yield from product_stream(c, cut, a, b, work[c.block], drain, kept, l1=l1_buffers, l0=l0_buffers)

    if chip.coupled:
        build.launch("gemm", coupled=cube, blocks=len(work))
    else:
        build.launch("gemm", cube=cube, blocks=len(work))

    @build.reference
    def expected(inputs: Mapping[str, np.ndarray]) -> dict[str, Expected]:
        left, right = inputs["a"], inputs["b"]
        return {"y": product(left, right if b_order == "kn" else right.T, y.dtype.np, relu=relu)}


_ROWS = 64  # compared at once, so that they stay in a cache
_REACH = 0.99 * float(np.finfo(np.float32).max)


def product(left: np.ndarray, right: np.ndarray, result: np.dtype, *, relu: bool) -> Expected:
    """Return left @ right as an element type holds it, and how far float32 sums may be from it.

    Each of k additions of float32 loses at most half a unit of the magnitudes summed so far, which
    Cauchy-Schwarz bounds by the norms of the row and the column; the conversion loses half a unit of the
    result, which saturates. Where sums may leave the range of float32, nothing is compared.
    """
    x, y = as_read(left), as_read(right)
    exact = multiplied(x, y)
    if left.dtype == np.int8:
        value = np.rint(exact).astype(np.int64)  # below 2^53, so exact
        return Expected(np.maximum(value, 0) if relu else value)
    lost = 1.01 * 2.0**-24 * left.shape[1]
    rows = np.sqrt(np.square(x, dtype=np.float64).sum(axis=1))
    columns = np.sqrt(np.square(y, dtype=np.float64).sum(axis=0))
    info = float_limits(result)
    largest, half = float(info.max), float(info.eps) / 2
    bound = np.multiply.outer(lost * rows, columns)
    for first in range(0, len(bound), _ROWS):
        part, some = exact[first : first + _ROWS], bound[first : first + _ROWS]
        np.clip(part, 0 if relu else -largest, largest, out=part)
        if result != np.float32:
            some += half * (np.abs(part) + some) + float(info.smallest_subnormal)
    if rows.max() * columns.max() > _REACH:
        bound[np.multiply.outer(rows, columns) > _REACH] = np.inf
    return Expected(exact, bound)


def multiplied(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the product of float32 matrices in float64, in which it is exact or far better than float32.

    Where both hold small whole numbers every sum is exact in float32, which is multiplied in a third of the
    time.
    """
    largest = x.shape[1] * float(np.abs(x).max()) * float(np.abs(y).max())
    if largest <= 2**24 and (np.rint(x) == x).all() and (np.rint(y) == y).all():
        return (x @ y).astype(np.float64)
    return x.astype(np.float64) @ y.astype(np.float64)


def as_read(x: np.ndarray) -> np.ndarray:
    """Return what the cube reads in its saturating mode, as float32: NaN as zero, infinities as the largest
    finite number.
    """
    wide = x.astype(np.float32)
    if x.dtype == np.int8:
        return wide
    largest = float(float_limits(x.dtype).max)
    return np.nan_to_num(wide, copy=False, nan=0.0, posinf=largest, neginf=-largest)


@gemm.from_inputs
def _sizes(inputs: Mapping[str, np.ndarray]) -> dict[str, object]:
    if "a" not in inputs:
        return {}
    m, k = inputs["a"].shape
    found: dict[str, object] = {"m": m, "k": k, "dtype": inputs["a"].dtype.name}
    if "b" in inputs:
        rows, columns = inputs["b"].shape
        found["n"] = columns if rows == k else rows
    return found
