"""Reading assembly text: `npusim.asm/1` back to a program that runs."""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NoReturn, get_args

import numpy as np

from npusim.errors import ConfigError, did_you_mean
from npusim.isa.dtype import BY_NAME, DType
from npusim.isa.instruction import Array, Instruction
from npusim.isa.text import parse_instruction
from npusim.program.asm import SCHEMA
from npusim.program.core import CoreId, CoreKind, Launch, LaunchKind, StreamFunction, launch_cores
from npusim.program.program import Builder, ProgramMaker, SegmentRole
from npusim.program.stream import Listing
from npusim.units import grouped

_TOKEN = re.compile(r'\s*("(?:[^"\\]|\\.)*"|[^\s"#]+)')
_CORE = re.compile(r"core(\d{1,6})\.([a-z]+)(\d{1,6})")
_KINDS = {k.name.lower(): k for k in LaunchKind}
_CORE_KINDS = {k.value: k for k in CoreKind}
_ROLES = get_args(SegmentRole)
_DIRECTIVES = {
    ".schema": "ID",
    ".program": "NAME",
    ".param": "NAME JSON",
    ".segment": "INDEX NAME TYPE SHAPE ROLE",
    ".data": "INDEX BASE64",
    ".launch": "NAME KIND BLOCKS",
    ".core": "CORE",
}
_MOST_BYTES = 1 << 40
"""More than this is no segment of any chip; it keeps the size of a constant a plain number."""


@dataclass(slots=True)
class _Segment:
    name: str
    dtype: DType
    shape: tuple[int, ...]
    role: str
    line: int
    data: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Launch:
    name: str
    kind: LaunchKind
    blocks: int
    cores: dict[CoreId, Listing] = field(default_factory=dict)


def parse_asm(text: str, file: str = "<text>") -> ProgramMaker:
    """Return the program that assembly text stands for; `file` is its name in errors and places.

    Raises `ConfigError` with file and line.
    """
    parser = _Parser(file)
    for number, line in enumerate(text.splitlines(), 1):
        parser.read(number, line.strip())
    return parser.maker()


class _Parser:
    """Reads a text line by line."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._line = 1
        self._schema = False
        self._name = ""
        self._params: dict[str, Any] = {}
        self._segments: list[_Segment] = []
        self._launches: list[_Launch] = []
        self._core: Listing | None = None
        self._texts: dict[str, Instruction] = {}
        """Equal lines share one instruction: the machines work out its cost and its checks once."""

    def fail(self, text: str, line: int | None = None) -> NoReturn:
        """Raise an error at the current line, or at another one."""
        raise ConfigError(f"{self._file}:{line or self._line}: {text}") from None

    def read(self, number: int, line: str) -> None:
        """Take in one line."""
        self._line = number
        if not line or line[0] == "#":
            return
        if line[0] == ".":
            self._directive(*line.split(maxsplit=1))
        elif self._core is None:
            self.fail(f"an instruction stands below the .core of its core, not above: {line.split()[0]}")
        else:
            op = self._texts.get(line)
            if op is None:
                try:
                    op = self._texts[line] = parse_instruction(line.partition("#")[0])
                except ConfigError as error:
                    self.fail(str(error))
            self._core.append(op, number)

    def _directive(self, word: str, rest: str = "") -> None:
        if word not in _DIRECTIVES:
            self.fail(f"directive {word!r} is not known{did_you_mean(word, _DIRECTIVES)}")
        if self._schema == (word == ".schema"):
            self.fail(f"the first line, and no other, must be .schema {SCHEMA}")
        form = _DIRECTIVES[word]
        values = rest.split(maxsplit=1) if word == ".param" else self._words(rest)
        if len(values) != len(form.split()):
            self.fail(f"write it as {word} {form}")
        getattr(self, f"_read_{word[1:]}")(*values)

    def _words(self, text: str) -> list[str]:
        """Return the words of a line; a word in quotes is a JSON string."""
        words, at = [], 0
        while match := _TOKEN.match(text, at):
            at, word = match.end(), match[1]
            words.append(str(self._json(word)) if word[0] == '"' else word)
        rest = text[at:].strip()
        if rest and rest[0] != "#":
            self.fail(f"no word can be read at {rest}")
        return words

    def _json(self, text: str) -> Any:
        try:
            value, end = json.JSONDecoder().raw_decode(text)
        except (ValueError, RecursionError):
            self.fail(f"not JSON: {text}")
        rest = text[end:].strip()
        if rest and rest[0] != "#":
            self.fail(f"not JSON: {text}")
        return value

    def _known(self, what: str, word: str, known: Iterable[str]) -> None:
        known = list(known)
        if word not in known:
            near = did_you_mean(word, known) or f"; one of {' '.join(known)}"
            self.fail(f"{what} {word!r} is not known{near}")

    def _number(self, what: str, text: str, low: int) -> int:
        if not (text.isascii() and text.isdigit() and len(text) <= 15 and int(text) >= low):
            self.fail(f"{what} must be a whole number from {low} on, not {text}")
        return int(text)

    # ---- directives ----------------------------------------------------------------------------------------

    def _read_schema(self, schema: str) -> None:
        if schema != SCHEMA:
            self.fail(f"schema must be {SCHEMA}, not {schema}")
        self._schema = True

    def _read_program(self, name: str) -> None:
        if self._name:
            self.fail(f"the program has a name already, {self._name}")
        self._name = name

    def _read_param(self, name: str, value: str) -> None:
        self._params[name] = self._json(value)

    def _read_segment(self, index: str, name: str, dtype: str, shape: str, role: str) -> None:
        if self._launches:
            self.fail("segments stand before the first .launch")
        if index != str(len(self._segments)):
            self.fail(f"segments are numbered in order; this is {len(self._segments)}, not {index}")
        if any(s.name == name for s in self._segments):
            self.fail(f"segment {name} is declared twice")
        self._known("element type", dtype, BY_NAME)
        self._known("role", role, _ROLES)
        extents = tuple(self._number("extent", e, 1) for e in shape.split("x"))
        kind = BY_NAME[dtype]
        if kind.bytes_of(math.prod(extents)) > _MOST_BYTES:
            self.fail(f"segment {name} of shape {shape} is larger than any memory")
        self._segments.append(_Segment(name, kind, extents, role, self._line))

    def _read_data(self, index: str, text: str) -> None:
        number = self._number("segment", index, 0)
        if number >= len(self._segments) or self._segments[number].role != "constant":
            self.fail(f"segment {index} is no constant declared above; only constants have .data")
        self._segments[number].data.append(text)

    def _read_launch(self, name: str, kind: str, blocks: str) -> None:
        self._known("launch kind", kind, _KINDS)
        self._launches.append(_Launch(name, _KINDS[kind], self._number("blocks", blocks, 1)))
        self._core = None

    def _read_core(self, name: str) -> None:
        match = _CORE.fullmatch(name)
        if match is None or match[2] not in _CORE_KINDS:
            self.fail(f"core {name!r} must be written as core0.cube0, core0.vec1 or core0.ai0")
        if not self._launches:
            self.fail("a .core stands below the .launch it takes part in")
        core = CoreId(int(match[1]), _CORE_KINDS[match[2]], int(match[3]))
        launch = self._launches[-1]
        if core in launch.cores:
            self.fail(f"{core} is in launch {launch.name} already")
        self._core = launch.cores[core] = Listing(self._file, self._line)

    # ---- the program ---------------------------------------------------------------------------------------

    def maker(self) -> ProgramMaker:
        """Return the program, once every line has been read."""
        if not self._schema:
            self.fail(f"the text is empty; it starts with .schema {SCHEMA}")
        if not self._launches:
            self.fail("the text has no .launch, so nothing would run")
        segments, launches, params, file = self._segments, self._launches, self._params, self._file
        constants = {s.name: self._constant(s) for s in segments if s.role == "constant"}

        def build(k: Builder) -> None:
            """Assembly text; inputs are small integers unless given, and there is no reference."""
            for segment in segments:
                if segment.role == "constant":
                    k.constant(segment.name, constants[segment.name], segment.dtype)
                else:
                    getattr(k, segment.role)(segment.name, segment.shape, segment.dtype)
            k.program.launches += [_launch(k, launch, file) for launch in launches]
            k.program.params |= params
            k.program.source = file

        return ProgramMaker(build, self._name or "asm")

    def _constant(self, segment: _Segment) -> Array:
        """Return the content of a constant."""
        count = math.prod(segment.shape)
        size = count * segment.dtype.np.itemsize
        where = segment.line
        if not segment.data:
            self.fail(f"constant {segment.name} has no .data", where)
        try:
            packed = base64.b64decode("".join(segment.data), validate=True)
            content = zlib.decompressobj().decompress(packed, size + 1)
        except (binascii.Error, zlib.error, ValueError) as error:
            self.fail(f"the .data of constant {segment.name} cannot be read: {error}", where)
        if len(content) != size:
            got = f"more than {grouped(size)}" if len(content) > size else grouped(len(content))
            self.fail(f"constant {segment.name} needs {grouped(size)} bytes of .data, not {got}", where)
        return np.frombuffer(content, segment.dtype.np).reshape(segment.shape)


def _launch(k: Builder, launch: _Launch, file: str) -> Launch:
    """Return a launch for the builder's chip.

    Raises `ConfigError` where the cores of the text are not those the chip starts.
    """
    cores = launch_cores(k.chip, launch.kind, launch.blocks, launch.name)
    for core, listing in launch.cores.items():
        if core not in cores:
            raise ConfigError(
                f"{file}:{listing.start}: {core} does not take part in launch {launch.name}, which starts "
                f"{cores[0]} to {cores[-1]} on {k.chip.name}"
            )
    streams: dict[CoreId, tuple[StreamFunction, int]] = {}
    for core in cores:
        if core not in launch.cores:
            raise ConfigError(
                f"{file}: launch {launch.name} starts {core} on {k.chip.name}, which has no .core line; "
                f"add one, even for a core that does nothing"
            )
        streams[core] = (launch.cores[core].stream, core.group)
    return Launch(launch.name, launch.kind, launch.blocks, streams)
