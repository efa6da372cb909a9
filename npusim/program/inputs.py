"""The content of the inputs and constants of a program: given by the user, or made from a seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, get_args, get_origin

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
            with np.errstate(over="ignore"):  # what the type does not hold is an infinity
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
    for name, array in given.items():
        check_array(program.name, name, array)
    check_ranks(program, given)  # first, as the extents of the others may follow from a wrong one
    for spec in program.inputs:
        if spec.name not in given:
            continue
        array = given[spec.name]
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


def check_ranks(program: Program, given: Mapping[str, Array]) -> None:
    """Raise `ConfigError` where an array has other dimensions than the input of a program."""
    for spec in program.inputs:
        if spec.name in given and given[spec.name].ndim != len(spec.shape):
            rank, shape = len(spec.shape), given[spec.name].shape
            needed = "1 dimension is" if rank == 1 else f"{rank} dimensions are"
            raise ConfigError(
                f"{program.name}: input {spec.name} has shape {shape}, but {needed} needed, "
                f"as in {spec.shape}; reshape it"
            )


def check_type(program: str, inputs: Mapping[str, Array], annotation: object, found: object) -> None:
    """Raise `ConfigError` where a parameter that follows from the inputs is the element type of one of them,
    but none of those that the parameter can be.
    """
    known = [str(kind) for kind in get_args(annotation)] if get_origin(annotation) is Literal else []
    name = next((n for n, a in inputs.items() if a.dtype.name == found), None)
    if known and name is not None and found not in known:
        raise ConfigError(f"{program}: input {name} is {found}, but must be {any_of(known)}; convert it")


def any_of(words: Sequence[str]) -> str:
    """Return `a, b or c`."""
    *others, last = words
    return f"{', '.join(others)} or {last}" if others else last


def small_integers(generator: np.random.Generator, spec: SegmentSpec) -> Array:
    """Return whole numbers from -4 to 4, or 0 to 8 for unsigned types."""
    low = -4 if spec.dtype.is_signed else 0
    return generator.integers(low, low + 9, spec.shape).astype(spec.dtype.np)
