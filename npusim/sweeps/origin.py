"""What a program was made from: a digest of its file and of the neighbours that it imports."""

from __future__ import annotations

import ast
import hashlib
import inspect
from pathlib import Path

from npusim.program.program import ProgramMaker


def program_digest(reference: str, maker: ProgramMaker) -> str:
    """Return 12 hex digits that change with the text of a program or of a neighbour that it imports."""
    named = Path(reference)
    source = named if named.suffix == ".asm" else Path(inspect.getsourcefile(maker.function) or "")
    digest = hashlib.sha256()
    for file in sorted(_with_neighbours(source)):
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:12]


def _with_neighbours(file: Path) -> set[Path]:
    found: set[Path] = set()
    todo = [file]
    while todo:
        file = todo.pop()
        if file in found or not file.is_file():
            continue
        found.add(file)
        if file.suffix == ".py":
            todo += [file.with_name(f"{name}.py") for name in _relative_imports(file)]
    return found


def _relative_imports(file: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.ImportFrom) and node.level == 1:
            names |= {node.module.partition(".")[0]} if node.module else {a.name for a in node.names}
    return names
