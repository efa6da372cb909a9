"""Finding programs: a file, `file.py:name`, assembly text, a shipped name, or an entry point."""

from __future__ import annotations

import hashlib
import os
import re
import sys
import traceback
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType, TracebackType

from npusim.config.shipped import shipped
from npusim.errors import ConfigError, did_you_mean
from npusim.program.assemble import parse_asm
from npusim.program.program import ProgramMaker

GROUP = "npusim.programs"
"""Entry points of this group are programs of other packages, made by `@program`."""

_PACKAGE = "npusim_programs_"
_IN_FILE = re.compile(r"(.+\.py):([^:/\\]*)")


def find_program(name: str) -> ProgramMaker:
    """Return the program that `name` means: a `.py` or `.asm` file, `file.py:name`, a shipped name or an
    entry point, in that order.

    A file that changed since it was loaded is loaded again. Raises `ConfigError` where there is no such
    program, a file defines several, or a file cannot be loaded.
    """
    match = _IN_FILE.fullmatch(name)
    if match is not None:
        return _from_file(Path(match[1]), match[2])
    if name.endswith((".py", ".asm")) or "/" in name or os.sep in name:
        return _from_file(Path(name), None)
    own = Path(str(shipped("programs"))) / f"{name}.py"
    if name.isidentifier() and os.path.isfile(own):  # the usual case: a file named after its program
        for maker in _makers(own):
            if maker.name == name:
                return maker
    known = shipped_programs()
    if name in known:
        return known[name]
    entries = {e.name: e for e in entry_points(group=GROUP)}
    if name in entries:
        return _from_entry(entries[name])
    here = next((f"{name}{end}" for end in (".py", ".asm") if os.path.isfile(f"{name}{end}")), None)
    near = f"; did you mean {here}?" if here else did_you_mean(name, [*known, *entries])
    raise ConfigError(f"program {name!r} is not known{near}; list them with `npusim programs`")


def shipped_programs() -> dict[str, ProgramMaker]:
    """Return the programs that come with npusim, by name."""
    files = sorted((Path(str(f)) for f in shipped("programs").iterdir()), key=lambda f: f.name)
    files = [f for f in files if f.suffix == ".py" and not f.name.startswith("_")]
    return {m.name: m for file in files for m in _makers(file)}


def plugged_programs() -> dict[str, ProgramMaker]:
    """Return the programs of other packages, by name.

    Raises `ConfigError` where one cannot be loaded.
    """
    return {e.name: _from_entry(e) for e in entry_points(group=GROUP)}


def program_frame(trace: TracebackType | None) -> tuple[str, int] | None:
    """Return file and line of the innermost frame of a traceback that lies in a program file, if one does."""
    found = None
    for frame, line in traceback.walk_tb(trace):
        if str(frame.f_globals.get("__name__", "")).startswith(_PACKAGE):
            found = frame.f_code.co_filename, line
    return found


def _from_entry(entry: EntryPoint) -> ProgramMaker:
    where = f"entry point {entry.name} of {GROUP}"
    try:
        found = entry.load()
    except Exception as error:  # what another package does on import is not ours to know
        raise ConfigError(f"{where}: cannot be loaded: {type(error).__name__}: {error}") from error
    if not isinstance(found, ProgramMaker):
        raise ConfigError(f"{where}: must be a program made by @program, not {type(found).__name__}")
    return found


def _from_file(path: Path, wanted: str | None) -> ProgramMaker:
    shown = _shown(path)
    if os.path.isdir(path):
        raise ConfigError(f"{shown}: is a folder; name a program file in it")
    if path.suffix not in (".py", ".asm"):
        raise ConfigError(f"{shown}: a program file ends in .py or .asm")
    if not os.path.isfile(path):
        raise ConfigError(f"{shown}: no such program file{_near_file(path)}")
    if path.suffix == ".asm":
        try:
            text = _read(path).decode()
        except UnicodeDecodeError as error:
            raise ConfigError(f"{shown}: is no text: byte {error.start} is not UTF-8") from None
        return parse_asm(text, shown)
    makers = {m.name: m for m in _makers(path)}
    there = " ".join(makers) or "none"
    if wanted is None and len(makers) == 1:
        return next(iter(makers.values()))
    if wanted is None and not makers:
        raise ConfigError(f"{shown}: defines no program; decorate its function with @program")
    if wanted is None:
        raise ConfigError(f"{shown}: defines several programs; name one as {shown}:NAME; programs: {there}")
    if wanted not in makers:
        raise ConfigError(f"{shown}: no program {wanted!r}{did_you_mean(wanted, makers)}; programs: {there}")
    return makers[wanted]


def _near_file(path: Path) -> str:
    try:
        others = [f.name for f in path.parent.iterdir() if f.suffix in (".py", ".asm")]
    except (OSError, ValueError):
        others = []
    near = did_you_mean(path.name, others)
    return near or did_you_mean(path.stem, shipped_programs())


def _makers(path: Path) -> list[ProgramMaker]:
    """Return the programs that a file defines, in its order; those it imports are not its own."""
    module = _load(path)
    own = [v for v in vars(module).values() if isinstance(v, ProgramMaker)]
    return [m for m in own if m.function.__module__ == module.__name__]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigError(f"{_shown(path)}: cannot be read: {reason}") from None


_DIGESTS: dict[str, bytes] = {}
"""Digest of the text of every loaded program file and neighbour, by module name."""


def _load(path: Path) -> ModuleType:
    """Return a program file as a module; where a file of its folder changed, those of the folder run again.

    The module belongs to a package that stands for its folder, so that neighbours can be imported.
    """
    path = path.resolve()
    package = _PACKAGE + hashlib.sha256(str(path.parent).encode()).hexdigest()[:8]
    if _changed(package):
        for name in _members(package):
            del sys.modules[name]
    if package not in sys.modules:
        parent = ModuleType(package)
        parent.__path__ = [str(path.parent)]
        sys.modules[package] = parent
    name = f"{package}.{path.stem}"
    if name in sys.modules:
        return sys.modules[name]
    source = _read(path)
    module = ModuleType(name)
    module.__file__ = str(path)
    module.__package__ = package
    sys.modules[name] = module
    bytecode, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # a neighbour may change any time
    try:
        exec(compile(source, str(path), "exec", dont_inherit=True), module.__dict__)
    except (Exception, SystemExit) as error:  # a program file may raise anything
        del sys.modules[name]
        raise ConfigError(_why(path, error)) from error
    finally:
        sys.dont_write_bytecode = bytecode
        _DIGESTS.update({n: _digest(n) for n in _members(package)})
    return module


def _members(package: str) -> list[str]:
    return [n for n in sys.modules if n.startswith(f"{package}.")]


def _changed(package: str) -> bool:
    return any(_DIGESTS.get(name) != _digest(name) for name in _members(package))


def _digest(module: str) -> bytes:
    file = sys.modules[module].__file__ or ""
    try:
        return hashlib.sha256(Path(file).read_bytes()).digest()
    except OSError:
        return b""


def _why(path: Path, error: BaseException) -> str:
    """Say in one line why a program file cannot be loaded, with the line of it that is to blame."""
    text = " ".join(str(error).split())
    if isinstance(error, SyntaxError):
        place = f"{_shown(Path(error.filename or path))}:{error.lineno or 1}"
        return f"{place}: {type(error).__name__}: {error.msg}"
    frame = program_frame(error.__traceback__)
    place = f"{_shown(Path(frame[0]))}:{frame[1]}" if frame else _shown(path)
    return f"{place}: cannot be loaded: {type(error).__name__}{f': {text}' if text else ''}"


def _shown(path: Path) -> str:
    """Return a path as errors show it: from the current folder, or from that of the shipped programs."""
    folder = Path(str(shipped("programs"))).parent
    if path.is_absolute():
        for base in (Path.cwd(), folder):
            if path.is_relative_to(base) and path != base:
                path = path.relative_to(base)
                break
    text = str(path)
    return text if text.isprintable() else repr(text)
