"""Chips and a bench for the tests of data movement."""

from __future__ import annotations

import pytest
from movement_bench import Bench

from npusim.config.chip import Chip
from npusim.config.load import load_chip


@pytest.fixture(scope="session")
def chip() -> Chip:
    """The default chip."""
    return load_chip("ascend-910b4")


@pytest.fixture(scope="session")
def coupled() -> Chip:
    """A chip whose cores hold both units."""
    return load_chip("ascend-310")


@pytest.fixture
def bench(chip: Chip) -> Bench:
    """A core full of random bytes."""
    return Bench(chip)
