"""Element types of the simulated instruction set."""

from __future__ import annotations

from enum import Enum
from functools import cached_property
from typing import Any

import numpy as np

from npusim.errors import ConfigError, did_you_mean


class DType(Enum):
    """An element type: its short name, its code in the flat encoding, its width and its NumPy type.

    `S4` is stored two to a byte, low nibble first; in NumPy arrays it is held as one `int8` per element.
    """

    F16 = ("f16", 0, 16, np.float16)
    BF16 = ("bf16", 1, 16, None)
    F32 = ("f32", 2, 32, np.float32)
    S4 = ("s4", 3, 4, np.int8)
    S8 = ("s8", 4, 8, np.int8)
    U8 = ("u8", 5, 8, np.uint8)
    S16 = ("s16", 6, 16, np.int16)
    U16 = ("u16", 7, 16, np.uint16)
    S32 = ("s32", 8, 32, np.int32)
    U32 = ("u32", 9, 32, np.uint32)
    S64 = ("s64", 10, 64, np.int64)
    U64 = ("u64", 11, 64, np.uint64)

    def __init__(self, short: str, code: int, bits: int, numpy_type: type | None) -> None:
        self.short = short
        self.code = code
        self.bits = bits
        self._numpy_type = numpy_type
        self.is_float = short in ("f16", "bf16", "f32")
        self.is_signed = short[0] in ("s", "f", "b")

    @cached_property
    def np(self) -> np.dtype[Any]:
        """The NumPy type of one element."""
        if self._numpy_type is not None:
            return np.dtype(self._numpy_type)
        # here, as registering its types with NumPy takes longer than all other imports together
        import ml_dtypes

        bfloat16: type = ml_dtypes.bfloat16
        return np.dtype(bfloat16)

    @property
    def size(self) -> int:
        """Bytes of one element; `S4` has no whole number of bytes and raises `ValueError`."""
        if self.bits < 8:
            raise ValueError(f"{self.short}: elements are {self.bits} bits wide; count bytes with `bytes_of`")
        return self.bits // 8

    def bytes_of(self, count: int) -> int:
        """Bytes that `count` consecutive elements take, rounded up."""
        return -(-count * self.bits // 8)

    def __repr__(self) -> str:
        return self.short

    __hash__ = object.__hash__  # members are singletons, and this one runs in C


BY_NAME = {d.short: d for d in DType}
BY_CODE = {d.code: d for d in DType}
_BY_NUMPY: dict[np.dtype[Any], DType] = {d.np: d for d in DType if d not in (DType.S4, DType.BF16)}


def of_numpy(dtype: np.dtype[Any]) -> DType | None:
    """Return the element type of a NumPy type, `S8` for int8; `None` where there is none."""
    found = _BY_NUMPY.get(dtype)
    if found is None and dtype.name == "bfloat16":
        found = _BY_NUMPY[dtype] = DType.BF16
    return found


def float_limits(dtype: np.dtype[Any]) -> Any:
    """Return the `finfo` of a NumPy type, of bfloat16, too, which NumPy itself does not know."""
    if dtype.name != "bfloat16":
        return np.finfo(dtype)
    import ml_dtypes

    return ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]  # the package has no annotations


def element_type(name: DType | str) -> DType:
    """Return an element type from its short name or NumPy name.

    Raises `ConfigError` where there is none.
    """
    if isinstance(name, DType):
        return name
    if name in BY_NAME:
        return BY_NAME[name]
    by_numpy = {d.name: t for d, t in _BY_NUMPY.items()} | {"bfloat16": DType.BF16}
    if name in by_numpy:
        return by_numpy[name]
    known = [*BY_NAME, *by_numpy]
    raise ConfigError(f"element type {name!r} is not known{did_you_mean(name, known)}")


F16, BF16, F32 = DType.F16, DType.BF16, DType.F32
S4, S8, U8, S16, U16 = DType.S4, DType.S8, DType.U8, DType.S16, DType.U16
S32, U32, S64, U64 = DType.S32, DType.U32, DType.S64, DType.U64
