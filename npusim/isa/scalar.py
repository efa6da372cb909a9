"""Instructions of the scalar unit: registers, single elements, and time between calls."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, ClassVar

import numpy as np

from npusim.config.chip import Chip
from npusim.isa.dtype import F32, S4, S32, DType
from npusim.isa.instruction import CoreView, Instruction, Kind, Role, Work, instruction
from npusim.isa.operand import REGISTERS, Access, Imm, Operand, Pipe, Scalar, Space, from_bits
from npusim.isa.state import State

Element = Annotated[Operand, Role((Space.UB, Space.GM), reads=True)]
Place = Annotated[Operand, Role((Space.UB, Space.GM), writes=True)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalarInstruction(Instruction):
    """Base of the instructions that the scalar unit executes itself."""

    kind: ClassVar[Kind] = Kind.SCALAR
    pipe: ClassVar[Pipe] = Pipe.S

    def check(self, chip: Chip, state: State) -> None:
        """Check placement; elements are aligned to their own size, not to blocks."""
        for name, role in self.roles.items():
            operand = getattr(self, name)
            if operand.space not in role.spaces:
                allowed = " or ".join(s.short for s in role.spaces)
                raise self.error(f"{name} must be in {allowed}, not {operand.space.short}")
            if operand.dtype.bits < 8:
                raise self.error(
                    f"{name} cannot be a single {operand.dtype.short} element; read the byte that holds it"
                )
            if operand.address % operand.dtype.size:
                raise self.error(
                    f"{name} must start at a multiple of {operand.dtype.size} bytes, "
                    f"not at {operand.address:#x}"
                )
        for index in (*self.registers_read(), *self.registers_written()):
            if not 0 <= index < REGISTERS:
                raise self.error(f"register must be r0..r{REGISTERS - 1}, not r{index}")


def element(at: Operand) -> tuple[Access, ...]:
    """Return the bytes of one element."""
    return (Access(at.space, at.segment, at.address, at.dtype.size),)


def to_bits(value: Any) -> int:
    """Return the bits of a NumPy scalar."""
    return int(value.view(f"u{value.dtype.itemsize}"))


@instruction
class GetValue(ScalarInstruction):
    """Read one element of UB or GM into register `reg` and give its value to the producer of the stream.

    GM is read through the data cache, which does not see stores by others: invalidate the line first.
    Cost: the read latency of UB; for GM one cycle on a hit and the chip's miss time otherwise.
    """

    reg: int
    src: Element

    def registers_written(self) -> tuple[int, ...]:
        """Return the register."""
        return (self.reg,)

    def reads(self, state: State) -> tuple[Access, ...]:
        """Return the element."""
        return element(self.src)

    def execute(self, core: CoreView, state: State) -> Any:
        """Return the element as a Python number."""
        bits = core.load_scalar(self.src)
        core.set_register(self.reg, bits)
        return from_bits(bits, self.src.dtype).item()

    def work(self, chip: Chip, state: State) -> Work:
        """Return the time of a read; the timing machine adds the miss of a GM line."""
        if self.src.space is Space.GM:
            return Work(1, prices=("scalar.gm_read_ns",))
        return Work(chip.scalar.ub_read_cycles, prices=("scalar.ub_read_cycles",))

    @classmethod
    def example(cls) -> GetValue:
        """Read the first float of UB."""
        return cls(reg=1, src=Operand(Space.UB, F32, 0))


@instruction
class SetValue(ScalarInstruction):
    """Write a register or an immediate to an element of UB, or through the data cache to GM.

    A store to GM reaches memory when its line is cleaned. Cost: the store time of UB, one cycle into the
    cache.
    """

    dst: Place
    value: Scalar

    @property
    def scalar_dtype(self) -> DType:
        """Element type of the destination."""
        return self.dst.dtype

    def writes(self, state: State) -> tuple[Access, ...]:
        """Return the element."""
        return element(self.dst)

    def execute(self, core: CoreView, state: State) -> None:
        """Store the element."""
        core.store_scalar(self.dst, to_bits(core.scalar(self.value, self.dst.dtype)))

    def work(self, chip: Chip, state: State) -> Work:
        """Return the time of a store."""
        if self.dst.space is Space.GM:
            return Work(1, prices=("scalar.gm_read_ns",))
        return Work(chip.scalar.ub_write_cycles, prices=("scalar.ub_write_cycles",))

    @classmethod
    def example(cls) -> SetValue:
        """Write the float one."""
        return cls(dst=Operand(Space.UB, F32, 64), value=1.0)


class ScalarOp(Enum):
    """What `ScalarAlu` computes from two values."""

    MOV = "first"
    ADD = "first + second"
    SUB = "first - second"
    MUL = "first * second"
    MAX = "larger"
    MIN = "smaller"
    AND = "bitwise and"
    OR = "bitwise or"
    SHL = "first << second"
    SHR = "first >> second"


_ALU: dict[ScalarOp, Any] = {
    ScalarOp.MOV: lambda a, b: a,
    ScalarOp.ADD: np.add,
    ScalarOp.SUB: np.subtract,
    ScalarOp.MUL: np.multiply,
    ScalarOp.MAX: np.maximum,
    ScalarOp.MIN: np.minimum,
    ScalarOp.AND: np.bitwise_and,
    ScalarOp.OR: np.bitwise_or,
    ScalarOp.SHL: np.left_shift,
    ScalarOp.SHR: np.right_shift,
}
_INTEGER_ONLY = {ScalarOp.AND, ScalarOp.OR, ScalarOp.SHL, ScalarOp.SHR}


@instruction
class ScalarAlu(ScalarInstruction):
    """Compute `reg = op(a, b)` on registers and immediates of one element type; integers wrap.

    Gives the result to the producer of the stream. Cost: one scalar operation.
    """

    op: ScalarOp
    reg: int
    a: Scalar
    b: Scalar = Imm(0)
    dtype: DType = S32

    @property
    def scalar_dtype(self) -> DType:
        """The element type of the operation."""
        return self.dtype

    def registers_written(self) -> tuple[int, ...]:
        """Return the register."""
        return (self.reg,)

    def check(self, chip: Chip, state: State) -> None:
        """Check registers and that bit operations are on integers."""
        super(ScalarAlu, self).check(chip, state)
        if self.dtype is S4:
            raise self.error(f"registers hold no single {self.dtype.short}; use s8")
        if self.op in _INTEGER_ONLY and self.dtype.is_float:
            raise self.error(f"{self.op.name} needs an integer type, not {self.dtype.short}")

    def execute(self, core: CoreView, state: State) -> Any:
        """Return the result as a Python number."""
        a, b = core.scalar(self.a, self.dtype), core.scalar(self.b, self.dtype)
        result = self.dtype.np.type(_ALU[self.op](a, b))
        core.set_register(self.reg, to_bits(result))
        return result.item()

    def work(self, chip: Chip, state: State) -> Work:
        """Return the time of one operation."""
        return Work(chip.scalar.alu_cycles, prices=("scalar.alu_cycles",))

    @classmethod
    def example(cls) -> ScalarAlu:
        """Add two to three."""
        return cls(op=ScalarOp.ADD, reg=2, a=2, b=3)


@instruction
class ScalarWork(ScalarInstruction):
    """Stand for `count` scalar operations between calls: addresses, loop control, argument set-up."""

    count: int

    def check(self, chip: Chip, state: State) -> None:
        """Refuse a negative count."""
        if self.count < 0:
            raise self.error(f"count must be 0 or more, not {self.count}")

    def execute(self, core: CoreView, state: State) -> None:
        """Do nothing."""

    def work(self, chip: Chip, state: State) -> Work:
        """Return the time of `count` operations."""
        return Work(chip.scalar.alu_cycles * self.count, prices=("scalar.alu_cycles",))

    @classmethod
    def example(cls) -> ScalarWork:
        """Ten operations."""
        return cls(count=10)


@instruction
class DataCacheCleanAndInvalid(ScalarInstruction):
    """Write back and drop data-cache lines: the one that holds `at`, or all of them.

    Needed before a scalar read of GM that others wrote, and after a scalar store that others read.
    """

    at: Annotated[Operand, Role((Space.GM,))]
    all: bool = False

    def execute(self, core: CoreView, state: State) -> None:
        """Clean and invalidate."""
        if self.all:
            core.clean_all()
        else:
            core.clean_line(self.at)

    def work(self, chip: Chip, state: State) -> Work:
        """Return the time of one line, or of the whole cache."""
        lines = chip.scalar.dcache_lines if self.all else 1
        return Work(chip.cycles(chip.scalar.gm_clean_ns * lines), prices=("scalar.gm_clean_ns",))

    @classmethod
    def example(cls) -> DataCacheCleanAndInvalid:
        """Drop the first line of the first segment."""
        return cls(at=Operand(Space.GM, F32, 0))
