"""The content of the inputs and constants of a program: given by the user, or made from a seed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from npusim.errors import ConfigError
from npusim.isa.dtype import DType
from npusim.isa.instruction import Array

if TYPE_CHECKING:
    from npusim.program.program import Program, SegmentSpec


def make_inputs(program: Program, seed: int, given: Mapping[str, Array] | None = None) -> dict[str, Array]:
    """Return the content of every input and constant, from the given arrays or from the makers and a seed.

    Every segment draws from a child of `SeedSequence(seed)` of its own. Raises `ConfigError` where a given
    array has another shape or element type than the segment.
    """
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise ConfigError(f"{program.name}: seed must be a whole number of 0 or more, not {seed!r}")
    children = np.random.SeedSequence(seed).spawn(len(program.segments))
    arrays = given_inputs(program, given or {})
    for spec, child in zip(program.segments, children, strict=True):
        if spec.role not in ("input", "inout", "constant"):
            continue
        if spec.name in arrays:
            array = arrays[spec.name]
        else:
            generator = np.random.Generator(np.random.PCG64(child))
            array = small_integers(generator, spec) if spec.maker is None else spec.maker(generator)
            array = np.ascontiguousarray(array, spec.dtype.np).reshape(spec.shape)
        arrays[spec.name] = array
    return arrays


def given_inputs(program: Program, given: Mapping[str, Array]) -> dict[str, Array]:
    """Return given arrays as the segments hold them: contiguous and in the byte order of the host.

    Raises `ConfigError` where one has another shape or element type than its segment, or values that the
    program cannot use.
    """
    arrays = {}
    for spec in program.inputs:
        if spec.name not in given:
            continue
        array: Any = given[spec.name]
        check_array(program.name, spec.name, array)
        native = array.dtype.newbyteorder("=")
        if array.shape != spec.shape or native != spec.dtype.np:
            raise ConfigError(
                f"{program.name}: input {spec.name} must be {spec.dtype.np.name} of shape {spec.shape}, "
                f"not {array.dtype.name} of shape {array.shape}"
            )
        if spec.dtype is DType.S4 and (array.min() < -8 or array.max() > 7):
            wrong = array.min() if array.min() < -8 else array.max()
            raise ConfigError(f"{program.name}: input {spec.name} must hold -8 to 7 in s4, not {wrong}")
        arrays[spec.name] = np.ascontiguousarray(array, native)
        if spec.check is not None:
            spec.check(arrays[spec.name])
    return arrays


def check_array(program: str, name: str, array: object) -> None:
    """Raise `ConfigError` where what is given as an input is no array."""
    if not isinstance(array, np.ndarray):
        kind = type(array).__name__
        raise ConfigError(f"{program}: input {name} must be a NumPy array, not {kind}")


def small_integers(generator: np.random.Generator, spec: SegmentSpec) -> Array:
    """Return whole numbers from -4 to 4, or 0 to 8 for unsigned types."""
    low = -4 if spec.dtype.is_signed else 0
    return generator.integers(low, low + 9, spec.shape).astype(spec.dtype.np)
