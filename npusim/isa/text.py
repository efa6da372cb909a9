"""Assembly text of single instructions: `parse_instruction(str(op)) == op` for every instruction.

`Mnemonic field=value ...`, the fields in any order, those with a default optional. Values:

    operand   ub:f32@0x100    gm2:f16@0x0 (segment 2)    none
    value     r3 (register)   0x3f800000 (bits)          1.5 (a number, rounded to the operand's type)
    others    16    true    [1,2,3]    f32 (element type)    MTE2 (a name of the field's enumeration)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import MISSING, replace
from typing import Any

from npusim.errors import ConfigError, OperandError, did_you_mean
from npusim.isa.dtype import BY_NAME, DType
from npusim.isa.fields import FieldSpec
from npusim.isa.instruction import REGISTRY, Instruction
from npusim.isa.operand import Imm, Operand, Reg, Space

_FIELD = re.compile(r"\s+(?:(?P<name>\w+)=(?P<value>\[[^\]]*\]|\S+)|(?P<other>\S+))")
_OPERAND = re.compile(r"(?P<space>[A-Za-z]\w*?)(?P<segment>(?<=gm)\d+)?:(?P<dtype>\w+)@(?P<address>-?\w+)")
_SPACES = {s.short: s for s in Space}
_BITS = re.compile(r"-?0[xX]")


def parse_instruction(text: str) -> Instruction:
    """Return the instruction that a line of assembly text stands for.

    Raises `ConfigError`, which names the instruction and the field, but no place.
    """
    mnemonic, *_ = text.split(maxsplit=1) or [""]
    cls = REGISTRY.get(mnemonic)
    if cls is None:
        raise ConfigError(f"instruction {mnemonic!r} is not known{did_you_mean(mnemonic, REGISTRY)}")
    specs = {f.name: f for f in cls.spec}
    values: dict[str, Any] = {}
    numbers: dict[str, str] = {}
    for name, value in _fields(mnemonic, text.strip()[len(mnemonic) :]):
        spec = specs.get(name)
        if spec is None:
            known = " ".join(specs) or "none"
            raise ConfigError(f"{mnemonic}: no field {name}{did_you_mean(name, specs)}; fields: {known}")
        if name in values:
            raise ConfigError(f"{mnemonic}: field {name} is given twice")
        try:
            if spec.form == "scalar" and not _is_raw(value):
                values[name], numbers[name] = Imm(0), value
            else:
                values[name] = _parse(spec, value)
        except ValueError as error:
            raise ConfigError(f"{mnemonic}: {name}={value}: {error}") from None
    missing = [f.name for f in cls.spec if f.default is MISSING and f.name not in values]
    if missing:
        what = f"field {missing[0]} is" if len(missing) == 1 else f"fields {' '.join(missing)} are"
        raise ConfigError(f"{mnemonic}: {what} missing")
    op = cls(**values)
    return _with_numbers(op, numbers) if numbers else op


def _fields(mnemonic: str, rest: str) -> Iterator[tuple[str, str]]:
    for match in _FIELD.finditer(rest):
        if match["other"] is not None:
            raise ConfigError(f"{mnemonic}: {match['other']!r} is no field; fields are written name=value")
        yield match["name"], match["value"]


def _is_raw(value: str) -> bool:
    """Whether a value operand is a register or bits, so that its meaning needs no element type."""
    return bool(re.fullmatch(r"r-?\d+", value) or _BITS.match(value))


def _with_numbers(op: Instruction, numbers: dict[str, str]) -> Instruction:
    """Fill in value operands that are written as numbers, which needs the element type of the others."""
    for name, text in numbers.items():
        where = f"{op.mnemonic}: {name}={text}"
        try:
            dtype = op.scalar_dtype
            value = float(text) if dtype.is_float else int(text, 0)
            filled: dict[str, Any] = {name: Imm.of(value, dtype)}
            op = replace(op, **filled)
        except OverflowError:
            raise ConfigError(f"{where}: does not fit {dtype.short}") from None
        except ValueError:
            what = "a number" if dtype.is_float else "a whole number"
            raise ConfigError(f"{where}: must be a register (r0), bits (0x1) or {what}") from None
        except OperandError as error:
            raise ConfigError(str(error)) from None
    return op


def _parse(spec: FieldSpec, text: str) -> Any:
    """Return the value of a field; `ValueError` says what it must be."""
    if text == "none" and spec.optional:
        return None
    if spec.form == "operand":
        return _operand(text)
    if spec.form == "scalar":
        return Reg(int(text[1:])) if text[0] == "r" else Imm(_whole(text))
    if spec.form == "dtype":
        return _one_of("element type", text, BY_NAME)
    if spec.form == "enum":
        assert spec.enum is not None
        return _one_of("name", text, spec.enum.__members__)
    if spec.form == "bool":
        return _one_of("switch", text, {"true": True, "false": False})
    if spec.form == "ints":
        if not (text.startswith("[") and text.endswith("]")):
            raise ValueError("must be whole numbers in brackets, as [1,2]")
        return tuple(_whole(part.strip()) for part in text[1:-1].split(",")) if text[1:-1].strip() else ()
    return _whole(text)


def _whole(text: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        raise ValueError("must be a whole number") from None


def _one_of(what: str, text: str, known: Any) -> Any:
    if text not in known:
        near = did_you_mean(text, known)
        few = f"; one of {' '.join(known)}" if not near and len(known) <= 12 else ""
        raise ValueError(f"{what} {text!r} is not known{near or few}")
    return known[text]


def _operand(text: str) -> Operand:
    match = _OPERAND.fullmatch(text)
    if match is None:
        raise ValueError("must be MEMORY:TYPE@ADDRESS, as ub:f32@0x100 or gm0:f16@0x0")
    space: Space = _one_of("memory", match["space"], _SPACES)
    dtype: DType = _one_of("element type", match["dtype"], BY_NAME)
    if (space is Space.GM) != (match["segment"] is not None):
        raise ValueError("must name a segment of global memory by its number, as gm0")
    return Operand(space, dtype, _whole(match["address"]), int(match["segment"] or 0))
