"""Assembly text of whole programs, `npusim.asm/1`: segments, launches, and the resolved stream of every core.

    .schema npusim.asm/1
    .program NAME                            then .param NAME JSON for every parameter, for information
    .segment INDEX NAME TYPE SHAPE ROLE      a shape is extents joined by x, as 1024 or 128x64
    .data INDEX BASE64                       content of a constant, zlib-compressed; lines of one index join
    .launch NAME KIND BLOCKS
    .core CORE                               followed by its instructions, one a line

A text runs alone: constants are in it, inputs come from files or from a seed. It has no reference, so values
are not checked. What follows a `#` is a comment. Names that are no plain words are JSON strings.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import numpy as np

from npusim.isa.instruction import Array, Instruction, OriginKind
from npusim.program.core import CoreId, Launch
from npusim.program.program import Program, SegmentSpec
from npusim.program.stream import short_path

SCHEMA = "npusim.asm/1"
WORD = re.compile(r"[A-Za-z_][\w.-]*")
_DATA_WIDTH = 96


class CoreStream(Protocol):
    """The stream of one core as it ran."""

    @property
    def core(self) -> CoreId:
        """The core."""

    def __iter__(self) -> Iterator[Instruction]:
        """Go through its instructions."""

    def line(self, number: int) -> int:
        """Return the source line of an instruction, 0 where there is none."""

    @property
    def file(self) -> str:
        """File of those lines."""


def asm_header(program: Program) -> Iterator[str]:
    """Yield the lines that come before the first launch."""
    yield f".schema {SCHEMA}"
    yield f".program {_word(program.name)}"
    for name, value in program.params.items():
        yield f".param {_word(name)} {json.dumps(value, default=str)}"
    for index, spec in enumerate(program.segments):
        shape = "x".join(map(str, spec.shape))
        yield f".segment {index} {_word(spec.name)} {spec.dtype.short} {shape} {spec.role}"
        if spec.role == "constant":
            yield from _data(index, constant_of(spec))


def asm_launch(launch: Launch, streams: Iterable[CoreStream], *, origins: bool = False) -> Iterator[str]:
    """Yield the lines of one launch; `origins` adds to each instruction why it is there and its source line.

    Origins are comments: a text parsed and printed again has none.
    """
    yield f".launch {_word(launch.name)} {launch.kind.name.lower()} {launch.blocks}"
    texts: dict[int, tuple[Instruction, str]] = {}
    for stream in streams:
        yield f".core {stream.core}"
        for number, op in enumerate(stream):
            line = stream.line(number) if origins else 0
            found = texts.get(id(op))
            if found is None:
                if len(texts) >= 1 << 16:
                    texts.clear()
                found = texts[id(op)] = (op, str(op))
            yield found[1] + _origin(op, stream.file, line) if origins else found[1]


def asm_text(program: Program, launches: Iterable[Iterable[CoreStream]], *, origins: bool = False) -> str:
    """Return a program as text, from the streams of every launch as they ran."""
    lines = list(asm_header(program))
    for launch, streams in zip(program.launches, launches, strict=True):
        lines += asm_launch(launch, streams, origins=origins)
    return "\n".join(lines) + "\n"


def constant_of(spec: SegmentSpec) -> Array:
    """Return the content of a constant."""
    assert spec.maker is not None
    value = spec.maker(np.random.default_rng(0))  # constants do not draw
    return np.ascontiguousarray(value, spec.dtype.np).reshape(spec.shape)


def _word(name: str) -> str:
    return name if WORD.fullmatch(name) else json.dumps(name)


def _data(index: int, value: Array) -> Iterator[str]:
    text = base64.b64encode(zlib.compress(value.tobytes(), 9)).decode()
    for start in range(0, len(text), _DATA_WIDTH):
        yield f".data {index} {text[start : start + _DATA_WIDTH]}"


def _origin(op: Instruction, file: str, line: int) -> str:
    words: list[Any] = [] if op.origin is OriginKind.EXPLICIT else [op.origin.value]
    if line:
        words.append(f"{short_path(file)}:{line}")
    return f"  # {' '.join(words)}" if words else ""
