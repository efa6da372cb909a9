"""Fields of instructions: how each kind is encoded, printed, checked, and read from an annotation."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import numpy as np

from npusim.isa.dtype import BY_CODE, DType
from npusim.isa.operand import Imm, Operand, Reg, Scalar, Space


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


def field_spec(name: str, hint: Any, default: Any) -> FieldSpec:
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
def own_hints(cls: Any) -> dict[str, Any]:
    """Return the field annotations of one class without those of its bases, each evaluated once."""
    scope = vars(sys.modules[cls.__module__])
    written = vars(cls).get("__annotations__", {})
    return {n: eval(h, scope) for n, h in written.items() if not h.startswith("ClassVar")}
