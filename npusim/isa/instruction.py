"""What an instruction is: one frozen class that knows its operands, meaning, cost and words.

A class decorated with `@instruction` joins `REGISTRY`; assembly text, flat encoding, checks, the reference
page and the registry-wide tests are derived from it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from enum import Enum, auto
from types import UnionType
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
from npusim.isa.dtype import DType
from npusim.isa.fields import FieldSpec, field_spec, own_hints
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
    requests: int = 1
    """Parts of its rows, each inside one range of addresses."""
    extra: int = 0
    """Bytes that L2 and main memory move in addition, because rows do not start or end at whole sectors."""
    bypass: bool = False
    """Whether L2 stays as it is: bytes that it lacks are not kept there."""


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

    def hold(self, tile: Any, result: Array, put: Callable[[Array], None]) -> None:
        """Keep the result of a product of a tile of L0C, until `put` has to write it there: as late as before
        the next view of L0C. A result of the same tile takes the place of one that is kept.
        """

    def held(self, tile: Any) -> Array | None:
        """Return the result that is kept for a tile of L0C, or None."""

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

    @property
    def returns_value(self) -> bool:
        """Whether a queued instruction leaves a count in a register, for which the scalar unit then waits."""
        return False

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
"""Bytes to which the start of an operand is aligned (asc-devkit constraint pages, H)."""

REGISTRY: dict[str, type[Instruction]] = {}
"""Every instruction class by its mnemonic."""


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
    hints = {n: h for base in reversed(made.__mro__) for n, h in own_hints(base).items()}
    made.mnemonic = name
    made.spec = tuple(
        field_spec(f.name, hints[f.name], f.default) for f in fields(cast(Any, made)) if f.name != "origin"
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
