"""Chips and a bench for the tests of the cube; the bench is that of the data movement tests."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from npusim.config.chip import Chip
from npusim.config.load import load_chip

sys.path.append(str(Path(__file__).parents[1] / "dma"))

from movement_bench import Bench


@pytest.fixture(scope="session")
def chip() -> Chip:
    """The default chip: L0A is ZZ."""
    return load_chip("ascend-910b4")


@pytest.fixture(scope="session")
def newer() -> Chip:
    """A chip whose L0A is NZ."""
    return load_chip("ascend-950pr")


@pytest.fixture(scope="session")
def coupled() -> Chip:
    """A chip whose cores hold both units."""
    return load_chip("ascend-310")


@pytest.fixture
def bench(chip: Chip) -> Bench:
    """A core full of random bytes."""
    return Bench(chip)
