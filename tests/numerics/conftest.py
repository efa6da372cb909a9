"""The numerics expect their caller to silence NumPy's floating-point warnings; any that leaks is an error."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest


@pytest.fixture(autouse=True)
def silent_numpy() -> Iterator[None]:
    with np.errstate(all="ignore"):
        yield
