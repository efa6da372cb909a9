"""A chip, and floating-point traps off as the machine has them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from npusim.config.chip import Chip
from npusim.config.load import load_chip


@pytest.fixture(scope="session")
def chip() -> Chip:
    """The default chip."""
    return load_chip("ascend-910b4")


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Hold the error state that the machine holds around a run."""
    with np.errstate(all="ignore"):
        yield
