"""Reading input arrays from `.npy` files, with one line for everything that can be wrong with one."""

from __future__ import annotations

import math
import os
import warnings
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy

from npusim.errors import ConfigError
from npusim.isa.dtype import BF16, DType, of_numpy
from npusim.isa.instruction import Array
from npusim.units import grouped

_MAGIC = b"\x93NUMPY"
_TWO_BYTES = np.dtype("V2")
_READERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


def load_array(path: str | os.PathLike[str]) -> Array:
    """Read one array, in native byte order and row by row whatever the file's order.

    Two-byte elements of no NumPy type are bfloat16, which is how NumPy saves them. Raises `ConfigError` for a
    file that cannot be read, is no `.npy` file, holds Python objects, no element type of the simulated
    machine, no element at all, or a single number without an extent.
    """
    shown = os.fspath(path)
    shown = shown if shown.isprintable() else repr(shown)
    if os.path.isdir(path):
        raise ConfigError(f"{shown}: is a folder; expected a .npy file")
    if os.path.exists(path) and not os.path.isfile(path):
        raise ConfigError(f"{shown}: is no plain file; expected a .npy file")
    try:
        with open(path, "rb") as file:
            return _read(file, os.fstat(file.fileno()).st_size)
    except ConfigError as error:
        raise ConfigError(f"{shown}: {error}") from None
    except FileNotFoundError:
        raise ConfigError(f"{shown}: no such file") from None
    except OSError as error:
        raise ConfigError(f"{shown}: cannot be read: {(error.strerror or str(error)).lower()}") from None
    except ValueError:  # a NUL in the path
        raise ConfigError(f"{shown}: no such file") from None


def _read(file: BinaryIO, size: int) -> Array:
    shape, by_columns, dtype = _header(file)
    kind = _element_type(dtype)
    if not shape:
        raise ConfigError("holds a single number without an extent; save an array of shape (1,)")
    if min(shape) < 0:
        raise ConfigError(f"has a damaged header: shape {shape}")
    if 0 in shape:
        raise ConfigError(f"is empty: shape {shape}")
    count = math.prod(shape)
    there, needed = size - file.tell(), count * dtype.itemsize
    if there != needed:
        how = "is cut off" if there < needed else "has bytes behind its array"
        raise ConfigError(
            f"{how}: {grouped(there)} bytes of data, {grouped(needed)} expected for "
            f"{kind.name} of shape {shape}"
        )
    array = np.fromfile(file, dtype, count).reshape(shape, order="F" if by_columns else "C")
    if dtype == _TWO_BYTES:
        return np.ascontiguousarray(array).view(kind)
    return np.ascontiguousarray(array, kind)


def _header(file: BinaryIO) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    magic = file.read(len(_MAGIC) + 2)
    if magic.startswith(b"PK\x03\x04"):
        raise ConfigError("is an .npz archive; save each array as a .npy file of its own")
    if not magic.startswith(_MAGIC):
        raise ConfigError("is no .npy file")
    version = tuple(magic[len(_MAGIC) :])
    if version == (3, 0):
        raise ConfigError("has elements with named fields; save plain numbers")
    if version not in _READERS:
        raise ConfigError("has a header of an unknown version")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            shape, by_columns, dtype = _READERS[version](file)
    except Exception:  # the header is Python text that NumPy evaluates; anything may be wrong with it
        raise ConfigError("has a damaged header") from None
    return shape, by_columns, dtype


def _element_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the element type in native byte order."""
    if dtype.hasobject:
        raise ConfigError("holds Python objects; save numbers")
    if dtype.names is not None or dtype.subdtype is not None:
        raise ConfigError("has elements with named fields; save plain numbers")
    if dtype == _TWO_BYTES:
        return BF16.np
    native: np.dtype[Any] = dtype.newbyteorder("=")
    if of_numpy(native) is None:
        known = ", ".join(dict.fromkeys(kind.np.name for kind in DType))
        raise ConfigError(f"has elements of type {native.name}, which no pipe knows; save one of {known}")
    return native
