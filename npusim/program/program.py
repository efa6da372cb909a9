"""Programs: launches of streams over named segments of global memory, with inputs, a reference and a
tolerance.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, overload

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from npusim.config.chip import Chip
from npusim.errors import ConfigError, did_you_mean
from npusim.isa.dtype import DType, element_type, of_numpy
from npusim.isa.instruction import Array
from npusim.isa.operand import Operand, Space, Tile
from npusim.program.core import (
    CoreKind,
    Launch,
    LaunchKind,
    StreamFunction,
    blocks_at_once,
    launch_cores,
)
from npusim.program.inputs import check_array, check_ranks, check_type
from npusim.units import grouped

SegmentRole = Literal["input", "output", "inout", "constant", "workspace"]
Maker = Callable[[np.random.Generator], Array]
Check = Callable[[Array], None]
"""Raises `ConfigError` for an array that a program cannot use."""

RESERVED = frozenset(
    (
        "program",
        "chip",
        "inputs",
        "seed",
        "numerics",
        "l2",
        "check",
        "timing_only",
        "spans",
        "progress",
        "observe",
    )
)
"""Arguments of `npusim.simulate`: a parameter of a program with such a name could not be given there."""


@dataclass(frozen=True, slots=True)
class SegmentSpec:
    """A named array in global memory."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    role: SegmentRole
    maker: Maker | None = None
    """Makes the content of an input from a generator, or of a constant, when no file gives it."""
    check: Check | None = None
    """Looks at an array that the user gives, before anything runs."""

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        return self.dtype.bytes_of(math.prod(self.shape))


@dataclass(frozen=True, slots=True)
class Expected:
    """What a reference says an output should be, element by element."""

    value: Array
    """Exact or better-than-needed values, any real NumPy type."""
    tolerance: Array | float = 0.0
    """Largest absolute difference that is right, per element or for all."""


Reference = Callable[[Mapping[str, Array]], Mapping[str, Expected]]


@dataclass(slots=True)
class Program:
    """A program for one chip and one set of parameters, ready to run."""

    name: str
    params: dict[str, Any]
    segments: list[SegmentSpec] = field(default_factory=list)
    launches: list[Launch] = field(default_factory=list)
    reference: Reference | None = None
    source: str = ""
    """File that defines it."""

    @property
    def inputs(self) -> list[SegmentSpec]:
        """Segments that the user may fill."""
        return [s for s in self.segments if s.role in ("input", "inout")]

    @property
    def outputs(self) -> list[SegmentSpec]:
        """Segments that hold results."""
        return [s for s in self.segments if s.role in ("output", "inout")]

    @property
    def useful_bytes(self) -> int:
        """Compulsory traffic: every input read once, every output written once."""
        return sum(s.nbytes for s in self.inputs) + sum(s.nbytes for s in self.outputs)


class Builder:
    """Collects the segments and launches of a program; its maker function receives it first."""

    def __init__(self, chip: Chip, name: str, params: dict[str, Any]) -> None:
        self.chip = chip
        self.program = Program(name, params)

    def input(
        self,
        name: str,
        shape: tuple[int, ...],
        dtype: DType | str,
        maker: Maker | None = None,
        check: Check | None = None,
    ) -> Tile:
        """Declare an input; without a maker it is filled with small integers (exact in every type).

        `check` raises `ConfigError` for a given array, of this shape and type, that the program cannot use.
        """
        return self._segment(name, shape, dtype, "input", maker, check)

    def output(self, name: str, shape: tuple[int, ...], dtype: DType | str) -> Tile:
        """Declare an output, never written before the program writes it."""
        return self._segment(name, shape, dtype, "output", None)

    def inout(
        self, name: str, shape: tuple[int, ...], dtype: DType | str, maker: Maker | None = None
    ) -> Tile:
        """Declare an array that is both read and left as a result."""
        return self._segment(name, shape, dtype, "inout", maker)

    def constant(self, name: str, value: Array, dtype: DType | str | None = None) -> Tile:
        """Declare an array that the host puts into global memory before the program starts."""
        kind = of_numpy(value.dtype) if dtype is None else dtype
        if kind is None:
            raise ConfigError(f"constant {name}: elements of type {value.dtype}, which no pipe knows")
        return self._segment(name, value.shape, kind, "constant", lambda _: value)

    def workspace(self, name: str, shape: tuple[int, ...], dtype: DType | str) -> Tile:
        """Declare scratch memory, never written before the program writes it."""
        return self._segment(name, shape, dtype, "workspace", None)

    def _segment(
        self,
        name: str,
        shape: tuple[int, ...],
        dtype: DType | str,
        role: SegmentRole,
        maker: Maker | None,
        check: Check | None = None,
    ) -> Tile:
        where = f"{self.program.name}: segment {name}"
        if not name.isidentifier():
            raise ConfigError(f"{where}: a name must be a word of letters, digits and underscores")
        if any(s.name == name for s in self.program.segments):
            raise ConfigError(f"{where} is declared twice")
        if not shape or min(shape) < 1:
            raise ConfigError(f"{where}: every extent must be 1 or more, not {_shape(shape)}")
        kind = element_type(dtype)
        size = kind.bytes_of(math.prod(shape)) + sum(s.nbytes for s in self.program.segments)
        room = self.chip.hbm.size_gib << 30
        if size > room:
            raise ConfigError(
                f"{where} of shape {_shape(shape)} needs {grouped(size)} bytes of global memory, "
                f"{self.chip.name} has {grouped(room)}"
            )
        index = len(self.program.segments)
        self.program.segments.append(SegmentSpec(name, kind, shape, role, maker, check))
        return Tile(Operand(Space.GM, kind, 0, index), shape)

    def launch(
        self,
        name: str,
        *,
        blocks: int = 1,
        cube: StreamFunction | None = None,
        vector: StreamFunction | None = None,
        coupled: StreamFunction | None = None,
        vectors_per_cube: int | None = None,
        autosync: bool = False,
    ) -> None:
        """Start streams on `blocks` groups: `cube` on every cube core, `vector` on every vector core.

        With `cube` and `vector` both vector cores of a group take part unless `vectors_per_cube` is 1. With
        `vector` alone, `blocks` counts vector cores. Blocks beyond the cores of the chip start when earlier
        ones have ended, so such a launch cannot hold a `SyncAll`. `coupled` is the stream of a coupled core.
        `autosync` adds the flags and barriers that the vendor's compiler would, see
        `npusim.program.autosync`. Raises `ConfigError` where the chip does not fit.
        """
        kind = _launch_kind(cube, vector, coupled, vectors_per_cube)
        functions = {CoreKind.CUBE: cube, CoreKind.VECTOR: vector, CoreKind.COUPLED: coupled}
        streams = {}
        for core in launch_cores(self.chip, kind, blocks, name):
            function = functions[core.kind]
            assert function is not None
            block = core.group
            if kind is LaunchKind.VECTOR:
                block = core.group * self.chip.cores.vector_per_cube + core.number
            streams[core] = (function, block)
        at_once = min(blocks, blocks_at_once(self.chip, kind))
        self.program.launches.append(Launch(name, kind, blocks, streams, autosync, at_once))

    def reference(self, function: Reference) -> Reference:
        """Declare the reference: from the inputs by name to the expected outputs. Shares no code with
        instructions.
        """
        self.program.reference = function
        return function


def _shape(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "no extent"


def _launch_kind(cube: Any, vector: Any, coupled: Any, vectors_per_cube: int | None) -> LaunchKind:
    if coupled is not None:
        return LaunchKind.COUPLED
    if cube is not None and vector is not None:
        return LaunchKind.MIX_1_1 if vectors_per_cube == 1 else LaunchKind.MIX_1_2
    if cube is not None:
        return LaunchKind.CUBE
    if vector is not None:
        return LaunchKind.VECTOR
    raise TypeError("a launch needs a stream function: cube, vector or coupled")


class ProgramMaker:
    """A function that builds programs, with its typed parameters; made by `@program`."""

    def __init__(self, function: Callable[..., None], name: str) -> None:
        self.name = name
        self.function = function
        paragraph = " ".join((inspect.getdoc(function) or "").partition("\n\n")[0].split())
        self.summary = re.split(r"(?<=\.)\s", paragraph, maxsplit=1)[0]
        self.model = _parameter_model(function, name)
        self._infer: Callable[..., Mapping[str, Any]] | None = None
        self._infers_with_given = False

    def from_inputs(self, function: Callable[..., Mapping[str, Any]]) -> Any:
        """Declare which parameters the shapes and types of given inputs decide.

        The function takes the arrays by name and, where it has a second argument, the parameters that are
        given.
        """
        self._infer = function
        self._infers_with_given = len(inspect.signature(function).parameters) > 1
        return function

    def parameters(self) -> dict[str, tuple[str, Any]]:
        """Return type and default of every parameter."""
        return {n: (_type_name(f.annotation), f.default) for n, f in self.model.model_fields.items()}

    def build(
        self, chip: Chip, params: Mapping[str, Any] | None = None, inputs: Mapping[str, Array] | None = None
    ) -> Program:
        """Build the program for a chip.

        Parameters that the given inputs decide need not be named; naming another value is an error. Raises
        `ConfigError` for unknown or invalid parameters and for inputs the program does not have.
        """
        for key, array in (inputs or {}).items():
            check_array(self.name, key, array)
        try:
            return self._build(chip, dict(params or {}), inputs or {})
        except ConfigError:
            if inputs:
                self._check_ranks(chip, inputs)  # which tells more than what follows from a wrong one
            raise

    def _check_ranks(self, chip: Chip, inputs: Mapping[str, Array]) -> None:
        """Raise `ConfigError` where an input has other dimensions than the program declares by default."""
        try:
            declared = self._build(chip, {}, {})
        except ConfigError:  # a chip that has no room for the default sizes
            return
        check_ranks(declared, inputs)

    def _build(self, chip: Chip, given: dict[str, Any], inputs: Mapping[str, Array]) -> Program:
        inferred: Mapping[str, Any] = {}
        missing = None
        if inputs and self._infer is not None:
            try:
                inferred = self._inferred(inputs, given)
            except KeyError as error:  # raised below, since another name may be a slip for this one
                missing = error.args[0]
        for key, value in inferred.items():
            if str(given.get(key, value)) != str(value):
                wrong = f"{key}={given[key]}"
                raise ConfigError(f"{self.name}: {wrong} contradicts the input, which gives {value}")
            field = self.model.model_fields.get(key)
            if field is not None and key not in given:
                check_type(self.name, inputs, field.annotation, value)
        given = {**inferred, **given}
        values = self.validate(given)
        builder = Builder(chip, self.name, values)
        self.function(builder, **values)
        builder.program.source = builder.program.source or inspect.getsourcefile(self.function) or ""
        names = [s.name for s in builder.program.inputs]
        for key in inputs:
            if key not in names:
                there = " ".join(names) or "none"
                raise ConfigError(f"{self.name}: no input {key}{did_you_mean(key, names)}; inputs: {there}")
        if missing is not None:
            raise ConfigError(f"{self.name}: parameters follow from input {missing}; give it, too")
        return builder.program

    def _inferred(self, inputs: Mapping[str, Array], given: Mapping[str, Any]) -> Mapping[str, Any]:
        assert self._infer is not None
        try:
            return self._infer(inputs, given) if self._infers_with_given else self._infer(inputs)
        except KeyError:
            raise
        except (IndexError, TypeError, ValueError, AttributeError) as error:
            shapes = ", ".join(f"{n} {a.dtype.name} of shape {a.shape}" for n, a in inputs.items())
            rule = f"no parameters follow from the inputs ({shapes})"
            raise ConfigError(f"{self.name}: {rule}: {error}") from error

    def validate(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of all parameters, defaults for those that are not given.

        Raises `ConfigError` for unknown or invalid ones.
        """
        known = list(self.model.model_fields)
        for key in given:
            if key not in known:
                there = " ".join(known) or "none"
                raise ConfigError(
                    f"{self.name}: no parameter {key}{did_you_mean(key, known)}; parameters: {there}"
                )
        fields = self.model.model_fields
        try:
            return dict(self.model(**{k: _member(fields[k].annotation, v) for k, v in given.items()}))
        except ValidationError as error:
            first = error.errors()[0]
            key, message = str(first["loc"][0]), first["msg"]
            message = message[0].lower() + message[1:]
            raise ConfigError(f"{self.name}: {key}={given.get(key)}: {message}") from None


@overload
def program(function: Callable[..., None]) -> ProgramMaker: ...
@overload
def program(*, name: str) -> Callable[[Callable[..., None]], ProgramMaker]: ...
def program(function: Callable[..., None] | None = None, *, name: str | None = None) -> Any:
    """Turn a function of a `Builder` and keyword-only parameters with types and defaults into a program
    maker.
    """
    if function is None:
        return lambda f: ProgramMaker(f, name or f.__name__)
    return ProgramMaker(function, function.__name__)


def _parameter_model(function: Callable[..., None], name: str) -> type[BaseModel]:
    signature = inspect.signature(function, eval_str=True)
    fields: dict[str, Any] = {}
    for parameter in list(signature.parameters.values())[1:]:
        if parameter.kind is not parameter.KEYWORD_ONLY or parameter.default is parameter.empty:
            raise TypeError(f"{name}: parameter {parameter.name} must be keyword-only and have a default")
        if parameter.annotation is parameter.empty:
            raise TypeError(f"{name}: parameter {parameter.name} must have a type")
        if parameter.name in RESERVED:
            rule = "is an argument of npusim.simulate; name it otherwise"
            raise TypeError(f"{name}: parameter {parameter.name} {rule}")
        fields[parameter.name] = (parameter.annotation, parameter.default)
    return create_model(name, __config__=ConfigDict(extra="forbid", validate_default=True), **fields)


def _member(annotation: Any, value: Any) -> Any:
    """Return the member of a `Literal` that a text spells, for values from the command line."""
    if get_origin(annotation) is Literal and isinstance(value, str):
        return next((m for m in get_args(annotation) if str(m) == value), value)
    return value


def _type_name(annotation: Any) -> str:
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return " | ".join(map(str, args))
    if origin is Annotated:
        return _type_name(args[0])
    if origin in (Union, UnionType):
        return " | ".join("None" if a is NoneType else _type_name(a) for a in args)
    return str(getattr(annotation, "__name__", annotation))
