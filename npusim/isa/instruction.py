"""What an instruction is: one frozen class that knows its operands, meaning, cost and words.

A class decorated with `@instruction` joins `REGISTRY`; assembly text, flat encoding, checks, the reference
page and the registry-wide tests are derived from it.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, field, fields
from enum import Enum, auto
from functools import cache
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    NamedTuple,
    Protocol,
    TypeVar,
    Union,
    cast,
    dataclass_transform,
    get_args,
    get_origin,
)

import numpy as np
from numpy.typing import NDArray

from npusim.config.chip import Chip
from npusim.errors import OperandError
from npusim.isa.dtype import BY_CODE, DType
from npusim.isa.operand import Access, Imm, Operand, Pipe, Reg, Scalar, Space, from_bits
from npusim.isa.state import State

Array = NDArray[Any]


class Kind(Enum):
    """How the machines treat an instruction."""

    WORK = auto()
    """Queued on a pipe, does something to memory."""
    SCALAR = auto()
    """Runs on the scalar unit, which issues nothing else meanwhile."""
    STATE = auto()
    """Changes the control state, on the scalar unit."""
    SET = auto()
    WAIT = auto()
    BARRIER = auto()
    CROSS_SET = auto()
    CROSS_WAIT = auto()


class OriginKind(Enum):
    """Why an instruction is in a stream."""

    EXPLICIT = "explicit"
    QUEUE = "queue"
    AUTOSYNC = "autosync"
    EXPANSION = "expansion"
    PIPE_END = "pipe_end"


class Role(NamedTuple):
    """What an instruction does with an operand: where it may lie, and whether it is read, written or both."""

    spaces: tuple[Space, ...]
    reads: bool = False
    writes: bool = False


UbIn = Annotated[Operand, Role((Space.UB,), reads=True)]
UbOut = Annotated[Operand, Role((Space.UB,), writes=True)]
UbInOut = Annotated[Operand, Role((Space.UB,), reads=True, writes=True)]


class Transfer(NamedTuple):
    """Traffic of an instruction with global memory: the port it takes and the bytes it names there."""

    port: str
    """Name of the chip's port: `gm_to_ub`, `gm_to_l1`, `ub_to_gm` or `l0c_to_gm`."""
    access: Access
    write: bool
    port_cycles: int
    """Cycles that the data occupies the core's own port."""


class Work(NamedTuple):
    """What an instruction needs from the machine, in core cycles."""

    cycles: int
    """Occupancy: cycles before the next instruction of the same pipe may start."""
    latency: int = 0
    """Cycles from the end of the occupancy until its results are usable."""
    transfer: Transfer | None = None
    macs: int = 0
    element_ops: int = 0
    prices: tuple[str, ...] = ()
    """Dotted paths of the chip numbers that the cost was made of."""


class CoreView(Protocol):
    """What `execute` may use of a core: typed views of its memories, registers and numerics."""

    profile: Any
    compare_mask: int
    """The 128 bits of the compare-mask register; only the vector pipe reads and writes it."""

    def view(self, at: Operand, shape: tuple[int, ...], strides: tuple[int, ...] | None = None) -> Array:
        """Return a writable view of `shape` elements at an operand, dense or with byte `strides`.

        `S4` operands are seen as packed bytes; shape and strides then count bytes.
        """

    def scalar(self, value: Scalar, dtype: DType) -> Any:
        """Return a register or an immediate as a NumPy scalar of `dtype`."""

    def set_register(self, index: int, bits: int) -> None:
        """Write the bits of a scalar register."""

    def register(self, index: int) -> int:
        """Return the bits of a scalar register."""

    def load_scalar(self, at: Operand) -> int:
        """Return the bits of one element of UB or, through the data cache, of GM."""

    def store_scalar(self, at: Operand, bits: int) -> None:
        """Write one element of UB or, through the data cache, of GM."""

    def clean_line(self, at: Operand) -> None:
        """Write back and drop the data-cache line that holds an address of GM."""

    def clean_all(self) -> None:
        """Write back and drop every line of the data cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """Base of all instructions. Subclasses are frozen, keyword-only dataclasses made by `@instruction`."""

    origin: OriginKind = field(default=OriginKind.EXPLICIT, compare=False, repr=False)
    """Why the instruction is in the stream; not part of its value."""

    mnemonic: ClassVar[str] = ""
    kind: ClassVar[Kind] = Kind.WORK
    roles: ClassVar[dict[str, Role]] = {}
    spec: ClassVar[tuple[FieldSpec, ...]] = ()
    scalars: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        for name in self.scalars:
            value = getattr(self, name)
            if type(value) is not Reg and type(value) is not Imm:
                object.__setattr__(self, name, self._immediate(name, value))

    def _immediate(self, name: str, value: Any) -> Imm:
        """Return a number as an immediate.

        Raises `OperandError` for what is no number, and for a number that the type does not hold.
        """
        if isinstance(value, bool) or not isinstance(value, int | float | np.number):
            raise self.error(f"{name} must be a number, a register or an Imm, not {value!r}")
        dtype = self.scalar_dtype
        if not dtype.is_float and (not np.isfinite(value) or int(value) != value):
            raise self.error(f"{name} must be a whole number for {dtype.short}, not {value!r}")
        try:
            with np.errstate(over="ignore"):
                made = Imm.of(float(value) if dtype.is_float else int(value), dtype)
        except OverflowError:
            raise self.error(f"{name} must fit {dtype.short}, not {value!r}") from None
        if dtype.is_float and np.isfinite(value) and not np.isfinite(from_bits(made.bits, dtype)):
            raise self.error(f"{name} must fit {dtype.short}, not {value!r}; give infinity as such")
        return made

    def check_forms(self) -> None:
        """Raise `OperandError` where a field is not of the kind that the class declares."""
        for f in self.spec:
            value = getattr(self, f.name)
            if not f.fits(value):
                raise self.error(f"{f.name} must be {f.kind}, not {value!r}")

    @property
    def pipe(self) -> Pipe:
        """The pipe whose queue the instruction enters."""
        raise NotImplementedError

    @property
    def scalar_dtype(self) -> DType:
        """Element type of the instruction's value operands."""
        raise NotImplementedError

    def check(self, chip: Chip, state: State) -> None:
        """Raise `OperandError` where the instruction breaks a rule on this chip, in this state."""
        for name, role in self.roles.items():
            operand = getattr(self, name)
            if operand is None:
                continue
            if operand.space not in role.spaces:
                allowed = " or ".join(s.short for s in role.spaces)
                raise self.error(f"{name} must be in {allowed}, not {operand.space.short}")
            if operand.space is not Space.GM:
                alignment = ALIGNMENT[operand.space]
                if operand.address % alignment:
                    raise self.error(
                        f"{name} must start at a multiple of {alignment} bytes in {operand.space.short}, "
                        f"not at {operand.address:#x}"
                    )
                self._check_capacity(chip, name, operand.space)
            if operand.address < 0:
                raise self.error(f"{name} starts at the negative address {operand.address}")

    def _check_capacity(self, chip: Chip, name: str, space: Space) -> None:
        if chip.capacity_bytes(space.short) == 0:
            raise self.error(f"{name} is in {space.short}, which {chip.name} does not have")

    returns_value: ClassVar[bool] = False
    """Whether a queued instruction leaves a count in a register, for which the scalar unit then waits."""

    def self_ordered(self, chip: Chip) -> bool:
        """Whether its pipe keeps it behind earlier instructions of the same pipe that touch the same bytes.

        MTE1, FIX and S do; V, MTE2 and MTE3 need a PipeBarrier (asc-devkit synchronisation pages, H).
        """
        return self.pipe in (Pipe.S, Pipe.MTE1, Pipe.FIX)

    def reads(self, state: State) -> tuple[Access, ...]:
        """Return exactly the bytes the instruction reads."""
        return ()

    def writes(self, state: State) -> tuple[Access, ...]:
        """Return exactly the bytes the instruction writes."""
        return ()

    def registers_read(self) -> tuple[int, ...]:
        """Return the scalar registers whose values the instruction uses."""
        return tuple(v.index for name in self.scalars if type(v := getattr(self, name)) is Reg)

    def registers_written(self) -> tuple[int, ...]:
        """Return the scalar registers the instruction sets."""
        return ()

    def execute(self, core: CoreView, state: State) -> Any:
        """Do what the instruction does to memory and registers; return its value where it has one."""
        raise NotImplementedError

    def update(self, state: State) -> State:
        """Return the control state behind the instruction."""
        return state

    def work(self, chip: Chip, state: State) -> Work:
        """Return what the instruction needs from the machine."""
        raise NotImplementedError

    @classmethod
    def example(cls) -> Instruction:
        """Return one valid instance."""
        raise NotImplementedError

    # ---- derived forms -------------------------------------------------------------------------------------

    def encode(self) -> tuple[int, ...]:
        """Return the flat integer encoding: the fields in order, without the mnemonic and the origin."""
        flat: list[int] = []
        for f in type(self).spec:
            f.encode(getattr(self, f.name), flat)
        return tuple(flat)

    @classmethod
    def decode(cls, flat: tuple[int, ...]) -> Instruction:
        """Rebuild an instruction from `encode()`.

        Raises `ValueError` where the integers are not an encoding of this class.
        """
        source = iter(flat)
        try:
            values = {f.name: f.decode(source) for f in cls.spec}
        except (StopIteration, KeyError, IndexError) as error:
            raise ValueError(f"{cls.mnemonic}: not an encoding: {flat}") from error
        if next(source, None) is not None:
            raise ValueError(f"{cls.mnemonic}: not an encoding: {flat}")
        return cls(**values)

    def error(self, text: str) -> OperandError:
        """Return an error that starts with the mnemonic."""
        return OperandError(f"{self.mnemonic}: {text}")

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        parts = [self.mnemonic]
        for f in type(self).spec:
            value = getattr(self, f.name)
            if f.default is MISSING or value != f.default:
                parts.append(f"{f.name}={f.print(value)}")
        return " ".join(parts)


ALIGNMENT = {
    Space.GM: 1,
    Space.L1: 32,
    Space.L0A: 512,
    Space.L0B: 512,
    Space.L0C: 64,
    Space.UB: 32,
    Space.BT: 64,
    Space.FB: 64,
}
"""Bytes to which the start of an operand is aligned (hardware.md 8.5, H)."""

REGISTRY: dict[str, type[Instruction]] = {}
"""Every instruction class by its mnemonic."""


# ---- fields and their forms --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """One field of an instruction: how it is encoded, printed and parsed."""

    name: str
    form: str
    """`operand`, `scalar`, `int`, `bool`, `enum`, `dtype` or `ints`."""
    optional: bool
    default: Any
    enum: type[Enum] | None = None

    @property
    def kind(self) -> str:
        """What the field holds, in words."""
        if self.form == "enum":
            assert self.enum is not None
            return f"one of {self.enum.__name__}." + f" {self.enum.__name__}.".join(self.enum.__members__)
        return _KINDS[self.form]

    def fits(self, value: Any) -> bool:
        """Whether a value is of the kind that the field holds."""
        if self.form == "operand":
            return isinstance(value, Operand) or (self.optional and value is None)
        if self.form == "scalar":
            return isinstance(value, Reg | Imm)
        if self.form == "enum":
            assert self.enum is not None
            return isinstance(value, self.enum)
        if self.form == "dtype":
            return isinstance(value, DType)
        if self.form == "bool":
            return isinstance(value, bool)
        if self.form == "ints":
            return isinstance(value, tuple) and all(_whole(v) for v in value)
        return _whole(value)

    def encode(self, value: Any, flat: list[int]) -> None:
        """Append the integers of a value."""
        if self.form == "operand":
            flat += (
                (-1, 0, 0, 0)
                if value is None
                else (value.space, value.dtype.code, value.segment, value.address)
            )
        elif self.form == "scalar":
            flat += (1, value.index) if type(value) is Reg else (0, value.bits)
        elif self.form == "dtype":
            flat.append(value.code)
        elif self.form == "enum":
            assert self.enum is not None
            flat.append(list(self.enum).index(value))
        elif self.form == "ints":
            flat.append(len(value))
            flat += value
        else:
            flat.append(int(value))

    def decode(self, source: Iterator[int]) -> Any:
        """Take the integers of a value from an iterator and return the value."""
        first = next(source)
        if self.form == "operand":
            dtype, segment, address = next(source), next(source), next(source)
            return None if first < 0 else Operand(Space(first), BY_CODE[dtype], address, segment)
        if self.form == "scalar":
            return Reg(next(source)) if first else Imm(next(source))
        if self.form == "dtype":
            return BY_CODE[first]
        if self.form == "enum":
            assert self.enum is not None
            return list(self.enum)[first]
        if self.form == "ints":
            return tuple(next(source) for _ in range(first))
        return bool(first) if self.form == "bool" else first

    def print(self, value: Any) -> str:
        """Return the assembly text of a value."""
        if value is None:
            return "none"
        if self.form == "dtype":
            return str(value.short)
        if self.form == "enum":
            return str(value.name)
        if self.form == "bool":
            return "true" if value else "false"
        if self.form == "ints":
            return "[" + ",".join(map(str, value)) + "]"
        return str(value)


_KINDS = {
    "operand": "a tile or an operand",
    "scalar": "a number, a register or an Imm",
    "int": "a whole number",
    "bool": "True or False",
    "dtype": "an element type",
    "ints": "a tuple of whole numbers",
}


def _whole(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _field_spec(name: str, hint: Any, default: Any) -> FieldSpec:
    optional = False
    if get_origin(hint) in (Union, UnionType) and NoneType in get_args(hint):
        optional = True
        hint = next(h for h in get_args(hint) if h is not NoneType)
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    if hint is Operand:
        form, enum = "operand", None
    elif hint == Scalar:
        form, enum = "scalar", None
    elif hint is DType:
        form, enum = "dtype", None
    elif isinstance(hint, type) and issubclass(hint, Enum):
        form, enum = "enum", hint
    elif hint is bool:
        form, enum = "bool", None
    elif hint is int:
        form, enum = "int", None
    elif hint == tuple[int, ...]:
        form, enum = "ints", None
    else:
        raise TypeError(f"{name}: a field of type {hint} has no encoding")
    return FieldSpec(name, form, optional, default, enum)


@cache
def _own_hints(cls: Any) -> dict[str, Any]:
    """Return the field annotations of one class without those of its bases, each evaluated once."""
    scope = vars(sys.modules[cls.__module__])
    written = vars(cls).get("__annotations__", {})
    return {n: eval(h, scope) for n, h in written.items() if not h.startswith("ClassVar")}


C = TypeVar("C", bound=type[Instruction])


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
def instruction(cls: C) -> C:
    """Make a class an instruction: a frozen, slotted, keyword-only dataclass in `REGISTRY`.

    Raises `TypeError` for a second class of the same name, a class without a docstring of its own, or a field
    that has no flat encoding.
    """
    name = cls.__name__
    if name in REGISTRY:
        raise TypeError(f"{name}: the mnemonic is taken by {REGISTRY[name].__module__}")
    if not inspect.getdoc(cls) or "__doc__" not in vars(cls):
        raise TypeError(f"{name}: an instruction needs a docstring")
    made = cast(C, dataclass(frozen=True, slots=True, kw_only=True, repr=False)(cls))
    hints = {n: h for base in reversed(made.__mro__) for n, h in _own_hints(base).items()}
    made.mnemonic = name
    made.spec = tuple(
        _field_spec(f.name, hints[f.name], f.default) for f in fields(cast(Any, made)) if f.name != "origin"
    )
    made.scalars = tuple(f.name for f in made.spec if f.form == "scalar")
    made.roles = {}
    for f in made.spec:
        hint = hints[f.name]
        candidates = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
        for candidate in candidates:
            if get_origin(candidate) is Annotated:
                made.roles[f.name] = next(m for m in get_args(candidate) if isinstance(m, Role))
    REGISTRY[name] = made
    return made
