"""Macros: fixed sequences of instructions that a stream yields as one."""

from __future__ import annotations

from collections.abc import Iterable

from npusim.errors import ConfigError
from npusim.isa.instruction import Instruction, Kind
from npusim.isa.state import State


class Macro:
    """A fixed sequence of instructions that a stream yields again and again: the row loop of a tile, say.

    It stands for its instructions everywhere: values, checks, text, hash and times are those of the expanded
    stream. What it saves is work: where the pipes meet it in the same state as before, its times are known.
    So make one macro per buffer, outside the loop, and yield the same object each time.

    Raises `ConfigError` for none, for what is no instruction, and for one that returns a value to the stream.
    """

    __slots__ = ("_changes", "ops")

    def __init__(self, ops: Iterable[Instruction]) -> None:
        self.ops = tuple(ops)
        """The instructions, in order."""
        if not self.ops:
            raise ConfigError("a macro holds one instruction or more, not none")
        for op in self.ops:
            if not isinstance(op, Instruction):
                raise ConfigError(f"a macro holds instructions, not {type(op).__name__}")
            if op.returns_value:
                raise ConfigError(
                    f"{op.mnemonic} returns a value to the stream, so it cannot stand in a macro; yield it "
                    f"by itself"
                )
        self._changes = tuple(op for op in self.ops if op.kind is Kind.STATE)

    def update(self, state: State) -> State:
        """Return the control state behind the macro."""
        for op in self._changes:
            state = op.update(state)
        return state

    def __len__(self) -> int:
        return len(self.ops)


Item = Instruction | Macro
"""What a stream yields."""
