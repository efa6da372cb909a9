"""The instruction reference, derived from the registry: for the terminal, and as a page of the documentation.

`python -m npusim.report.reference` writes docs/isa.md.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import MISSING
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from npusim.config.chip import Chip
from npusim.config.schema import write_page
from npusim.errors import ConfigError, OperandError, did_you_mean
from npusim.isa.fields import FieldSpec
from npusim.isa.instruction import REGISTRY, Instruction
from npusim.isa.operand import Pipe
from npusim.isa.state import RESET
from npusim.units import grouped

FILE = Path(__file__).resolve().parents[2] / "docs" / "isa.md"
_FAMILIES = {
    "sync": "Synchronisation",
    "scalar": "Scalar unit",
    "control": "Control state",
    "dma": "Data movement",
    "cube": "Cube",
    "vector": "Vector",
}
_FORMS = {"scalar": "register or value", "int": "number", "bool": "switch", "dtype": "element type"}
_WIDTH = 100
_NARROW = 34
"""Columns of what a field takes; more goes below the field."""

Family = tuple[str, list[type[Instruction]]]


def families() -> list[Family]:
    """Return all instructions by family, each in the order of the source."""
    found: dict[str, list[type[Instruction]]] = {}
    modules: dict[str, list[type[Instruction]]] = {}
    for cls in REGISTRY.values():
        modules.setdefault(cls.__module__, []).append(cls)
    for key, title in _FAMILIES.items():
        for module in sorted(modules):
            if module.removeprefix("npusim.isa.").split(".")[0] == key:
                found.setdefault(title, []).extend(modules.pop(module))
    for module in sorted(modules):
        found.setdefault("Instructions of other packages", []).extend(modules[module])
    return list(found.items())


def find_instruction(name: str) -> type[Instruction]:
    """Return an instruction by its mnemonic, in any case.

    Raises `ConfigError` with the nearest mnemonic.
    """
    by_case = {n.lower(): c for n, c in REGISTRY.items()}
    if name.lower() not in by_case:
        near = did_you_mean(name.lower(), by_case)
        for low, cls in by_case.items():
            near = near.replace(f" {low}?", f" {cls.mnemonic}?")
        raise ConfigError(f"instruction {name!r} is not known{near}; list them with `npusim isa`")
    return by_case[name.lower()]


def summary(cls: type[Instruction]) -> str:
    """Return the first sentence of what an instruction does."""
    paragraph = " ".join((inspect.getdoc(cls) or "").partition("\n\n")[0].split())
    return re.split(r"(?<=[.])\s", paragraph, maxsplit=1)[0].removesuffix(".")


def pipe_words(cls: type[Instruction]) -> str:
    """Return the pipe of an instruction, or in words how it follows from the operands."""
    pipe = inspect.getattr_static(cls, "pipe")
    if isinstance(pipe, Pipe):
        return pipe.name
    words = (inspect.getdoc(pipe) or "").partition("\n")[0].removesuffix(".")
    return words[:1].lower() + words[1:] if words[1:2].islower() else words


def list_text(width: int = 80) -> str:
    """Return one line for every instruction, by family."""
    lines: list[str] = []
    indent = max(map(len, REGISTRY)) + 2
    for title, classes in families():
        lines += ["", title] if lines else [title]
        for cls in classes:
            pipe = inspect.getattr_static(cls, "pipe")
            name = pipe.name if isinstance(pipe, Pipe) else "*"
            head = f"  {cls.mnemonic:<{indent}}{name:<5}"
            room = max(20, width - len(head))
            words = summary(cls).replace("`", "")
            if len(words) > room:
                words = textwrap.shorten(words.partition(": ")[0], room, placeholder=" ...")
            lines.append(head + words)
    lines += ["", "* the pipe follows from the operands; npusim isa NAME: fields, example and cost"]
    return "\n".join(lines) + "\n"


def instruction_text(cls: type[Instruction], chip: Chip, width: int = 80) -> str:
    """Return what there is to know about one instruction, with the cost of its example on a chip."""
    width = min(max(width, 60), _WIDTH)
    lines = [f"{cls.mnemonic} ({_family_of(cls)})", f"pipe: {pipe_words(cls)}", ""]
    for paragraph in re.split(r"\n\n|\n(?=Cost: )", inspect.getdoc(cls) or ""):
        lines += [*textwrap.wrap(paragraph, width), ""]
    if cls.spec:
        lines.append("fields")
        rows = [(f.name, field_words(cls, f), _default(f), field_doc(cls, f.name)) for f in cls.spec]
        widths = [max(len(row[i]) for row in rows if len(row[i]) <= _NARROW) for i in range(3)]
        for name, what, default, doc in rows:
            long = "" if len(what) <= _NARROW else what
            what = "one of" if long else what
            lines.append(f"  {name:<{widths[0]}}  {what:<{widths[1]}}  {default}".rstrip())
            for words in (long, doc):
                lines += textwrap.wrap(words, width, initial_indent="      ", subsequent_indent="      ")
        lines.append("")
    example = cls.example()
    lines += textwrap.wrap(f"example: {_caption(cls)}", width)
    lines += textwrap.wrap(
        str(example), width, initial_indent="  ", subsequent_indent="      ", break_long_words=False
    )
    lines += ["", *_cost(example, chip, width)]
    return "\n".join(lines) + "\n"


def _cost(op: Instruction, chip: Chip, width: int) -> Iterator[str]:
    """Yield what an instruction costs on a chip, and the numbers that make it."""
    yield f"cost of the example on {chip.name}"
    try:
        op.check(_roomy(chip), RESET)
        work = op.work(chip, RESET)
    except OperandError as error:
        yield from textwrap.wrap(f"none: {error}", width, initial_indent="  ", subsequent_indent="  ")
        return
    except NotImplementedError:
        flags = chip.flags
        yield f"  no work of its own; {_cycles(chip.scalar.issue_cycles)} to issue (scalar.issue_cycles),"
        yield f"  {_cycles(flags.latency_cycles)} from a flag's set to its wait (flags.latency_cycles)"
        return
    words = f"{_cycles(work.cycles)} of pipe {op.pipe.name}"
    if work.latency:
        words += f", the result {_cycles(work.latency)} later"
    if work.transfer is not None:
        port = work.transfer
        where = "to" if port.write else "from"
        words += f"; {grouped(port.access.total)} bytes {where} global memory, at least "
        words += f"{_cycles(port.port_cycles)} on port {port.port}"
    yield from textwrap.wrap(words, width, initial_indent="  ", subsequent_indent="  ")
    numbers = chip.numbers()
    for path in work.prices:
        values = [v for name, v in numbers.items() if name == path or name.startswith(f"{path}[")]
        yield f"  {path} = {' x '.join(f'{v:g}' for v in values)} ({chip.confidence(path)})"


def _roomy(chip: Chip) -> Chip:
    """Return a chip with large buffers, on which an example fits whatever its addresses."""
    buffers = chip.buffers.model_dump()
    large = {name: size * 64 for name, size in buffers.items()}
    return chip.model_copy(update={"buffers": chip.buffers.model_copy(update=large)})


def _cycles(number: int) -> str:
    return f"{grouped(number)} cycle{'' if number == 1 else 's'}"


def _family_of(cls: type[Instruction]) -> str:
    return next(title for title, classes in families() if cls in classes)


def _caption(cls: type[Instruction]) -> str:
    return (inspect.getdoc(cls.example) or "").partition("\n")[0].removesuffix(".")


def field_words(cls: type[Instruction], spec: FieldSpec) -> str:
    """Say what goes into a field."""
    if spec.form == "operand":
        role = cls.roles.get(spec.name)
        if role is None:
            return "operand"
        verb = {(True, False): "read", (False, True): "written", (True, True): "read and written"}.get(
            (role.reads, role.writes), "named"
        )
        return f"{' '.join(s.short for s in role.spaces)}, {verb}"
    if spec.form == "enum":
        assert spec.enum is not None
        return " ".join(spec.enum.__members__)
    return _FORMS.get(spec.form, "numbers")


def _default(spec: FieldSpec) -> str:
    return "" if spec.default is MISSING else f"= {spec.print(spec.default)}"


def field_doc(cls: type[Instruction], name: str) -> str:
    """Return the docstring below a field, of the class or the nearest base that has the field."""
    for base in cls.__mro__:
        if name in vars(base).get("__annotations__", {}):
            doc = _documented(base).get(name)
            if doc is not None:
                return " ".join(doc.split())
    return ""


@cache
def _documented(cls: Any) -> dict[str, str]:
    """Return the docstrings below the fields of a class, read from its source."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    except (OSError, TypeError, SyntaxError):
        return {}
    body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
    return {
        above.target.id: below.value.value
        for above, below in pairwise(body)
        if isinstance(above, ast.AnnAssign)
        and isinstance(above.target, ast.Name)
        and isinstance(below, ast.Expr)
        and isinstance(below.value, ast.Constant)
        and isinstance(below.value.value, str)
    }


# ---- the page ----------------------------------------------------------------------------------------------

_HEAD = """# Instruction reference

Generated from the instruction classes by `python -m npusim.report.reference`; do not edit.

An instruction is written `Mnemonic field=value ...`. An operand is a memory, an element type and a byte
address, as `ub:f32@0x100`; global memory has numbered segments, as `gm0:f16@0x0`. A value operand is a
register (`r0`), the bits of an element (`0x3f800000`) or a number (`1.0`). Fields with a default may be left
out. `npusim isa NAME -c CHIP` adds the cost on a chip.
"""


def page_text() -> str:
    """Return the reference of all instructions as Markdown."""
    parts = [_HEAD]
    for title, classes in families():
        names = ", ".join(f"[{c.mnemonic}](#{c.mnemonic.lower()})" for c in classes)
        parts.append("\n".join([f"## {title}", "", *textwrap.wrap(names, 110, break_long_words=False), ""]))
        parts += [_entry(cls) for cls in classes]
    return "\n".join(parts)


def _entry(cls: type[Instruction]) -> str:
    lines = [f"### {cls.mnemonic}", "", f"Pipe: {pipe_words(cls)}.", "", inspect.getdoc(cls) or "", ""]
    if cls.spec:
        lines += ["| field | takes | default | meaning |", "|---|---|---|---|"]
        for f in cls.spec:
            cells = [
                f"`{f.name}`",
                field_words(cls, f),
                _default(f).removeprefix("= "),
                field_doc(cls, f.name),
            ]
            lines.append(_row(cells))
        lines.append("")
    lines += [f"Example: {_caption(cls)}.", "", "```", str(cls.example()), "```", ""]
    return "\n".join(lines)


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def main() -> int:
    """Write the page of a checkout."""
    return write_page(FILE, page_text())


if __name__ == "__main__":
    sys.exit(main())
