"""What `npusim.simulate` takes, and what a program may not call its parameters."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from npusim import load_chip, program, simulate
from npusim.errors import ConfigError
from npusim.program.program import RESERVED

PROGRAM = "simulate: program must be a shipped name, a file or what @program made, not"
CHIP = "simulate: chip must be a name, a file or what load_chip returned, not"


def plain(k, *, n: int = 3):
    """No program, as nothing stands above it."""


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((None,), f"{PROGRAM} nothing"),
        ((3,), f"{PROGRAM} 3"),
        ((plain,), f"{PROGRAM} function; put @program on it"),
        (([],), f"{PROGRAM} a list"),
        (("copy", None), f"{CHIP} nothing"),
        (("copy", 910), f"{CHIP} 910"),
        (("copy", {"name": "x"}), f"{CHIP} a mapping"),
    ],
)
def test_arguments_that_are_no_program_or_no_chip(given, message):
    with pytest.raises(ConfigError) as caught:
        simulate(*given)
    assert str(caught.value) == message


def test_paths_are_taken(tmp_path: Path):
    file = tmp_path / "nothing.asm"
    with pytest.raises(ConfigError, match=r"nothing\.asm"):
        simulate(file, load_chip("toy"))
    with pytest.raises(ConfigError, match=r"none\.yaml: no such file"):
        simulate("copy", tmp_path / "none.yaml")


def test_names_of_parameters_that_could_not_be_given():
    assert set(inspect.signature(simulate).parameters) - {"params"} == RESERVED
    for name in RESERVED:
        scope: dict[str, object] = {}
        exec(f"def f(k, *, n: int = 1, {name}: int = 1): pass", scope)
        with pytest.raises(TypeError) as caught:
            program(scope["f"])
        assert str(caught.value) == (
            f"f: parameter {name} is an argument of npusim.simulate; name it otherwise"
        )
