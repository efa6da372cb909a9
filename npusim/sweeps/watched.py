"""A chip that notes what is read of it: streams are the same on every chip that is the same in that."""

from __future__ import annotations

import types
from typing import Any, cast

from pydantic import BaseModel

from npusim.config.chip import Chip

KeyPath = tuple[str, ...]

_ALL = "*"


class ReadNotes:
    """What was read of a chip while a program was built and its streams ran."""

    def __init__(self, chip: Chip) -> None:
        self._read: dict[KeyPath, Any] = {}
        self.chip = cast(Chip, _Section(chip, (), self._read))
        """Stands for the chip; every field that is read through it is noted with its value."""

    @property
    def paths(self) -> list[str]:
        """Dotted paths of the fields that were read; one that ends in `*` stands for all below it."""
        return sorted(
            ".".join(p) for p, value in self._read.items() if p[-1] == _ALL or not _is_section(value)
        )

    def match(self, chip: Chip) -> bool:
        """Whether another chip has the same value in every field that was read."""
        for path, value in self._read.items():
            other = _at(chip, path)
            if _is_section(value) and path[-1] != _ALL:  # its fields have notes of their own
                if not _is_section(other):
                    return False
            elif value != other:
                return False
        return True


class _Section:
    """Stands for a section of a chip."""

    def __init__(self, section: BaseModel, path: KeyPath, read: dict[KeyPath, Any]) -> None:
        self.__dict__.update(_section=section, _path=path, _read=read)

    def __getattr__(self, name: str) -> Any:
        section, path, read = self._section, self._path, self._read
        if name in type(section).model_fields:
            value = read[(*path, name)] = getattr(section, name)
            if _is_section(value):
                value = _Section(value, (*path, name), read)
            self.__dict__[name] = value  # found there from now on, without a call
            return value
        own = vars(type(section)).get(name)
        if isinstance(own, property) and own.fget is not None:
            return own.fget(self)
        if isinstance(own, types.FunctionType):
            return types.MethodType(own, self)
        read[(*path, _ALL)] = section  # whatever it is, it may look at everything
        return getattr(section, name)


def _is_section(value: Any) -> bool:
    return isinstance(value, BaseModel)


def _at(chip: Chip, path: KeyPath) -> Any:
    """Return what stands at a path, None where nothing does."""
    node: Any = chip
    for name in path:
        node = node if name == _ALL else getattr(node, name, None)
    return node
