"""Where a chip is found by name: ./configs, the shipped files, entry points."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import entry_points
from importlib.resources.abc import Traversable
from pathlib import Path

from npusim.config.shipped import shipped
from npusim.errors import ConfigError, did_you_mean

GROUP = "npusim.chips"
"""Entry points of this group are chips of other packages: a path, or a function that returns one."""

_SHOWN = 12
"""Names of chips that an error lists."""


@dataclass(frozen=True)
class Found:
    """A chip file and its name in errors."""

    file: Traversable
    shown: str

    def same(self, other: Found) -> bool:
        """Whether both are one file, however they were reached."""
        if isinstance(self.file, Path) and isinstance(other.file, Path):
            return self.file.resolve() == other.file.resolve()
        return self.file == other.file


def is_path(name: str) -> bool:
    """Tell a path from a name: it has a separator or ends in .yaml or .yml."""
    return "/" in name or os.sep in name or name.endswith((".yaml", ".yml"))


def find_chip(name: str, *, path: bool, near: Found | None = None) -> Found:
    """Find a chip file by path or by name.

    What a file extends (`near` is that file) is looked up relative to it first, and a name never means the
    file itself: `extends: ascend-910b4` in a file of that name is the shipped one.
    """
    folder = near.file.parent if near and isinstance(near.file, Path) else Path()
    if path:
        file = Path(os.path.normpath(folder / name))
        if not file.is_file() and not file.is_dir():
            raise ConfigError(f"{_shown(file)}: no such file{did_you_mean(file.stem, chip_names())}")
        return Found(file, _shown(file))
    other = ""
    for found in _candidates(name, folder if near else None):
        if near and found.same(near):
            other = "other "
        elif found.file.is_file():
            return found
    names = [known for known in chip_names() if known != name]
    hint = did_you_mean(name, names) or f"; chips: {' '.join(names[:_SHOWN])}{' ...' * (len(names) > _SHOWN)}"
    raise ConfigError(f"no {other}chip named {name!r}{hint}")


def chip_names() -> list[str]:
    """Return the names that `load_chip` knows, sorted; bases (names that start with `_`) are not chips."""
    names = {point.name for point in entry_points(group=GROUP)}
    for folder in (Path("configs"), shipped("configs")):
        if folder.is_dir():
            names |= {f.name.removesuffix(".yaml") for f in folder.iterdir() if f.name.endswith(".yaml")}
    return sorted(name for name in names if not name.startswith("_"))


def _candidates(name: str, folder: Path | None) -> Iterator[Found]:
    for place in (folder, Path("configs"), shipped("configs")):
        if place is not None:
            file = place / f"{name}.yaml"
            yield Found(file, _shown(file))
    for point in entry_points(group=GROUP, name=name):
        try:
            file = point.load()
            file = file() if callable(file) else file
        except Exception as error:  # what another package does on import is not ours to know
            raise ConfigError(f"entry point {name} of {GROUP}: cannot be loaded: {error}") from error
        if isinstance(file, str | os.PathLike):
            file = Path(file)
        if not isinstance(file, Traversable):
            raise ConfigError(f"entry point {name} of {GROUP}: must be a path, got {type(file).__name__}")
        yield Found(file, _shown(file))


def _shown(file: Traversable) -> str:
    here = Path.cwd()
    if isinstance(file, Path) and file.is_absolute() and file.is_relative_to(here):
        file = file.relative_to(here)
    text = str(file)
    return text if text.isprintable() else repr(text)
