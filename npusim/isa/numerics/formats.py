"""Binary formats, and roundings that are exact: one rounding of the real number the input stands for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from npusim.isa.dtype import BF16, F16, F32, DType, of_numpy
from npusim.isa.numerics.profile import Rounding

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Format:
    """A binary floating-point format with subnormals and infinities.

    `precision` counts the hidden bit; `emin` and `emax` are the exponents of the smallest and largest normal
    numbers, with significands in [1, 2).
    """

    precision: int
    emin: int
    emax: int

    @property
    def largest(self) -> float:
        """The largest finite number."""
        return (2.0 - 2.0 ** (1 - self.precision)) * 2.0**self.emax

    @property
    def smallest_normal(self) -> float:
        """The smallest positive normal number; everything below is subnormal."""
        return 2.0**self.emin


HALF = Format(11, -14, 15)
BFLOAT = Format(8, -126, 127)
SINGLE = Format(24, -126, 127)
FORMATS: dict[DType, Format] = {F16: HALF, BF16: BFLOAT, F32: SINGLE}

_NAN_BITS: dict[DType, Any] = {F16: np.uint16(0x7E00), BF16: np.uint16(0x7FC0), F32: np.uint32(0x7FC00000)}
"""The one NaN each format's instructions write. Payloads are not modelled: the vendor documents none, and the
host's own differ between x86 and Arm."""


def format_of(dtype: np.dtype[Any]) -> Format | None:
    """Return the format of a NumPy type; `None` for one that is no float of the machine."""
    kind = of_numpy(dtype)
    return None if kind is None else FORMATS.get(kind)


@cache
def canonical_nan(dtype: DType) -> Any:
    """Return the NaN that instructions write, as a NumPy scalar."""
    return _NAN_BITS[dtype].view(dtype.np)


_NO_OVERFLOW = 4.2e9
"""A float32 sum of up to 2^18 squares below this has none of a number beyond 65504, in whatever order."""

MAX_F32 = np.float32(SINGLE.largest)


_SIMPLE: dict[str, Callable[[Array], Array]] = {
    "rne": np.rint,
    "rz": np.trunc,
    "rd": np.floor,
    "ru": np.ceil,
}


def to_integral(x: Array, mode: Rounding) -> Array:
    """Round float64 `x` to integers in `mode`; infinities, NaN and the sign of zero pass through."""
    if mode in _SIMPLE:
        return _SIMPLE[mode](x)
    down = np.trunc(x)
    if mode == "rna":
        # floor(|x| + 0.5) would round 0.5 - 2^-54 up, as the sum rounds to 1
        away = np.abs(x - down) >= 0.5
    elif mode == "odd":
        away = (down != x) & (np.fmod(down, 2.0) == 0)
    else:
        raise ValueError(f"rounding must be rne, rz, rd, ru, rna or odd, not {mode}")
    rounded: Array = down + np.copysign(away, x)
    return rounded


def round_real(x: Array, fmt: Format, mode: Rounding = "rne", *, saturate: bool = False) -> Array:
    """Round float64 `x` to `fmt` once and return the result as float64.

    Overflow follows IEEE 754 (`rz` and `odd` stop at the largest number). With `saturate`, results beyond the
    range and infinities become the largest number and NaN becomes 0.
    """
    x = np.asarray(x, np.float64)
    exponent = np.frexp(x)[1]
    spacing = np.maximum(exponent - 1, fmt.emin) - (fmt.precision - 1)
    y: Array = np.ldexp(to_integral(np.ldexp(x, -spacing), mode), spacing)
    over = np.abs(y) > fmt.largest
    if saturate:
        y = np.where(over, np.copysign(fmt.largest, x), y)
        return np.where(np.isnan(x), 0.0, y)
    if over.any():
        to_inf = {"rne": True, "rna": True, "rz": False, "odd": False, "rd": x < 0, "ru": x > 0}[mode]
        limit = np.copysign(np.where(to_inf | np.isinf(x), np.inf, fmt.largest), x)
        y = np.where(over, limit, y)
    return y


def f32_round_frac(x: Array, frac: int, mode: Rounding = "rne") -> Array:
    """Round float32 `x` to `frac` fraction bits, as a new float32 array: HF32 has 11 or 10, TF32 10.

    `mode` is `rne`, `rna` or `rz`. A carry may overflow to infinity; NaN stays NaN.
    """
    drop = 23 - frac
    keep = np.uint32((0xFFFFFFFF << drop) & 0xFFFFFFFF)
    u = np.ascontiguousarray(x, np.float32).view(np.uint32)
    if mode == "rne":
        rounded = (u + (((u >> np.uint32(drop)) & np.uint32(1)) + np.uint32((1 << (drop - 1)) - 1))) & keep
    elif mode == "rna":
        rounded = (u + np.uint32(1 << (drop - 1))) & keep
    elif mode == "rz":
        rounded = u & keep
    else:
        raise ValueError(f"rounding of operands must be rne, rna or rz, not {mode}")
    magnitude = u & np.uint32(0x7FFFFFFF)
    special = magnitude >= np.uint32(0x7F800000)
    if special.any():
        rounded = np.where(special, u, rounded)
        rounded = np.where(magnitude > np.uint32(0x7F800000), _NAN_BITS[F32], rounded)
    result: Array = rounded.view(np.float32)
    return result


def narrow_to_f16(wide: Array, *, saturate: bool) -> Array:
    """Round float32 or float64 to float16 once, to nearest even, with a canonical NaN.

    With `saturate`, infinities and overflow become 65504 and NaN becomes 0.
    """
    if np.vdot(wide, wide) < _NO_OVERFLOW:
        return wide.astype(np.float16)
    nan = np.isnan(wide)
    if saturate:
        wide = np.clip(wide, -HALF.largest, HALF.largest)
    result = wide.astype(np.float16)
    result[nan] = np.float16(0) if saturate else canonical_nan(F16)
    return result


def quiet(x: Array) -> Array:
    """Make NaN in float32 `x` canonical, in place, and return `x`."""
    total = np.vdot(x, x)  # the cheapest way to see that there is none
    if total != total:
        x[np.isnan(x)] = canonical_nan(F32)
    return x


def clamp_to_f32(x: Array) -> None:
    """Make infinities of float32 `x` the largest number and NaN 0, in place."""
    np.nan_to_num(x, copy=False, nan=0.0, posinf=SINGLE.largest, neginf=-SINGLE.largest)
