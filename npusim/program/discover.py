"""Finding programs: a path, `file.py:name`, a shipped name, or an entry point."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType

from npusim.config.shipped import shipped
from npusim.errors import ConfigError, did_you_mean
from npusim.program.program import ProgramMaker


def find_program(name: str) -> ProgramMaker:
    """Return the program that a path, `file.py:name`, a shipped name or an entry point names, in that order.

    Raises `ConfigError` where there is none, or the file does not define exactly one.
    """
    path, _, wanted = name.partition(":")
    if path.endswith(".py") or "/" in path:
        return _from_file(Path(path), wanted or None)
    known = shipped_programs()
    if name in known:
        return known[name]
    for entry in entry_points(group="npusim.programs", name=name):
        found = entry.load()
        if isinstance(found, ProgramMaker):
            return found
    raise ConfigError(
        f"program {name!r} is not known{did_you_mean(name, known)}; list them with `npusim programs`"
    )


def shipped_programs() -> dict[str, ProgramMaker]:
    """Return the programs that come with npusim, by name."""
    found: dict[str, ProgramMaker] = {}
    for file in sorted(shipped("programs").iterdir(), key=lambda f: f.name):
        if file.name.endswith(".py") and not file.name.startswith("_"):
            found.update({m.name: m for m in _makers(_load(Path(str(file))))})
    return found


def _from_file(path: Path, wanted: str | None) -> ProgramMaker:
    if not path.is_file():
        raise ConfigError(f"{path}: no such program file")
    makers = {m.name: m for m in _makers(_load(path))}
    if wanted is not None:
        if wanted not in makers:
            there = " ".join(makers) or "none"
            raise ConfigError(f"{path}: no program {wanted}{did_you_mean(wanted, makers)}; programs: {there}")
        return makers[wanted]
    if len(makers) != 1:
        there = " ".join(makers) or "none"
        raise ConfigError(f"{path}: name one program as {path}:NAME; programs: {there}")
    return next(iter(makers.values()))


def _makers(module: ModuleType) -> list[ProgramMaker]:
    return [
        v
        for v in vars(module).values()
        if isinstance(v, ProgramMaker) and v.function.__module__ == module.__name__
    ]


def _load(path: Path) -> ModuleType:
    """Import a program file as a module of a package that stands for its folder, so that neighbours can be
    imported.
    """
    folder = path.resolve().parent
    package = "npusim_programs_" + hashlib.sha256(str(folder).encode()).hexdigest()[:8]
    if package not in sys.modules:
        parent = ModuleType(package)
        parent.__path__ = [str(folder)]
        sys.modules[package] = parent
    name = f"{package}.{path.stem}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise ConfigError(f"{path}: cannot be loaded: {type(error).__name__}: {error}") from error
    return module
