"""The random programs of the timing machines, which the tests of traces use, too."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "machine"))
