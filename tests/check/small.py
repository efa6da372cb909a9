"""Small programs out of bare stream functions, and where their lines are."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from npusim import Builder, Report, load_chip, program, simulate

TOY = load_chip("toy")
ONE_EACH = TOY.model_copy(update={"cores": TOY.cores.model_copy(update={"vector_per_cube": 1})})
"""The toy chip with one vector core for its cube core."""


def simple(stream: Callable[..., Any], *, n: int = 256, dtype: str = "float32", **launch: Any) -> Any:
    """Return a program of one launch on one vector core: `stream(kernel, x, y)`, x an input, y an output."""

    @program
    def small(k: Builder) -> None:
        x, y = k.input("x", (n,), dtype), k.output("y", (n,), dtype)
        k.launch("small", vector=lambda c: stream(c, x, y), **launch)

    return small


def mixed(
    cube: Callable[..., Any] | None, vector: Callable[..., Any] | None, *, n: int = 256, **launch: Any
) -> Any:
    """Return a program with streams for the cube core, the vector cores, or both, and a workspace w."""

    @program
    def mixed(k: Builder) -> None:
        x, y = k.input("x", (n,), "float32"), k.output("y", (n,), "float32")
        w = k.workspace("w", (n,), "float32")
        k.launch(
            "mixed",
            cube=None if cube is None else lambda c: cube(c, x, y, w),
            vector=None if vector is None else lambda c: vector(c, x, y, w),
            **launch,
        )

    return mixed


def passes(maker: Any, chip: Any = TOY, **options: Any) -> Report:
    """Run a program with all checks on."""
    return simulate(maker, chip, **options)


def refuses(error: type[Exception], message: str, maker: Any, chip: Any = TOY, **options: Any) -> None:
    """Run a wrong program and compare the whole message of its error."""
    with pytest.raises(error) as caught:
        simulate(maker, chip, **options)
    assert str(caught.value) == message


def place(function: Callable[..., Any], mark: str) -> str:
    """Return folder, file and line of the only line of a function that ends with the comment `# mark`."""
    lines, first = inspect.getsourcelines(function)
    found = [i for i, line in enumerate(lines) if line.rstrip().endswith(f"# {mark}")]
    assert len(found) == 1, f"{len(found)} lines are marked {mark}"
    file = Path(inspect.getsourcefile(function) or "")
    return f"{file.parent.name}/{file.name}:{first + found[0]}"
