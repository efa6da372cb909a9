"""Options that several commands share, and what they mean to the library."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from npusim.config.chip import Chip
from npusim.config.find import chip_names
from npusim.config.load import load_chip
from npusim.errors import ConfigError, NpusimError
from npusim.isa.instruction import Array
from npusim.program.arrays import load_array
from npusim.program.discover import find_program, shipped_programs
from npusim.program.program import Program


def _known_programs(incomplete: str) -> list[str]:
    """Complete a program name; files are left to the shell."""
    try:
        return [name for name in shipped_programs() if name.startswith(incomplete)]
    except NpusimError:
        return []


def _known_chips(incomplete: str) -> list[str]:
    return [name for name in chip_names() if name.startswith(incomplete)]


ProgramName = Annotated[
    str,
    typer.Argument(
        metavar="PROGRAM",
        help="A file (scan.py, scan.py:NAME, scan.asm) or a name that `npusim programs` lists.",
        show_default=False,
        autocompletion=_known_programs,
    ),
]
ChipName = Annotated[
    str,
    typer.Option("-c", "--chip", metavar="CHIP", help="A chip file or a name.", autocompletion=_known_chips),
]
Params = Annotated[
    list[str],
    typer.Option("-p", "--param", metavar="NAME=VALUE", help="Parameter of the program; may be repeated."),
]
Overrides = Annotated[
    list[str],
    typer.Option("--set", metavar="PATH=VALUE", help="Number of the chip to change; may be repeated."),
]
Inputs = Annotated[
    list[str],
    typer.Option("--input", metavar="NAME=FILE", help="Input array from a .npy file; may be repeated."),
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of the inputs that no file gives.")]
Numerics = Annotated[
    str | None,
    typer.Option("--numerics", metavar="PROFILE", help="Numerics other than the chip's.", show_default=False),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]

ARGV: ContextVar[list[str]] = ContextVar("ARGV")
"""The arguments of the command that runs."""
DEFAULT_CHIP = "ascend-910b4"


@dataclass(frozen=True, slots=True)
class Request:
    """A program built for a chip, with the arrays it is given."""

    program: Program
    chip: Chip
    inputs: dict[str, Array]
    files: dict[str, str]
    """File of every given input."""


def build(
    program: str, chip: str, params: Sequence[str], overrides: Sequence[str], inputs: Sequence[str]
) -> Request:
    """Load a chip, the inputs and a program, and build it.

    Raises `ConfigError` for anything that cannot be used.
    """
    maker = find_program(program)
    loaded = load(chip, overrides)
    files = _pairs(inputs, "--input", "NAME=FILE")
    values: dict[str, Any] = {**_pairs(params, "-p", "NAME=VALUE")}
    arrays = {name: load_array(file) for name, file in files.items()}
    return Request(maker.build(loaded, values, arrays), loaded, arrays, files)


def load(chip: str, overrides: Sequence[str] = ()) -> Chip:
    """Load a chip with overrides.

    Raises `ConfigError` where there is no such chip, or an override cannot be used.
    """
    check_overrides(overrides)
    return load_chip(chip, overrides=overrides)


def check_overrides(overrides: Sequence[str]) -> None:
    """Check the form of overrides.

    Raises `ConfigError` where one is no `PATH=VALUE`, or a path is given twice.
    """
    _pairs(overrides, "--set", "PATH=VALUE")


def _pairs(items: Sequence[str], option: str, form: str) -> dict[str, str]:
    """Split `name=value` items.

    Raises `ConfigError` where one has another form, or two have one name.
    """
    pairs: dict[str, str] = {}
    for item in items:
        shown = item if item.isprintable() else repr(item)
        name, equals, value = (part.strip() for part in item.partition("="))
        if not (name and equals and value):
            raise ConfigError(f"{option} {shown}: must have the form {form}")
        if name in pairs:
            raise ConfigError(f"{option} {shown}: {name} is given twice, first as {pairs[name]}")
        pairs[name] = value
    return pairs
