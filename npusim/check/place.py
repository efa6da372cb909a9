"""Where in a program an instruction came from, in the words of an error."""

from __future__ import annotations

from typing import NamedTuple

from npusim.isa.instruction import Instruction, OriginKind
from npusim.isa.operand import Pipe
from npusim.program.core import CoreId
from npusim.program.stream import short_path


class Site(NamedTuple):
    """An instruction in the stream of a core."""

    core: CoreId
    file: str
    line: int
    number: int
    """Position in the stream, from 0."""
    op: Instruction
    pipe: Pipe

    @property
    def where(self) -> str:
        """File and line as `programs/scan.py:31`, or the position in a stream that has no file."""
        if not self.line:
            return f"#{self.number}"
        return f"{short_path(self.file)}:{self.line}"

    @property
    def words(self) -> str:
        """Mnemonic, pipe and line, with a note where a helper made the instruction."""
        made = "" if self.op.origin is OriginKind.EXPLICIT else f", {self.op.origin.value}"
        return f"{self.op.mnemonic} ({self.pipe.name}, {self.where}{made})"

    def message(self, text: str) -> str:
        """Put place and core before a text."""
        return f"{self.where}: {self.core}: {text}"
