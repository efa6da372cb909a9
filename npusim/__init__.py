"""npusim: instruction streams on a model of an Ascend-like cube/vector NPU: values, cycles, reasons."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from npusim import isa
from npusim.config.chip import Chip
from npusim.config.load import load_chip
from npusim.errors import NpusimError
from npusim.isa.operand import Imm, Operand, Pipe, Reg, Space, Tile
from npusim.program.kernel import Kernel
from npusim.program.macro import Macro
from npusim.program.program import Builder, Expected, program
from npusim.report.model import Report
from npusim.report.simulate import simulate

if TYPE_CHECKING:
    from npusim.report.component_run import ceilings, components
    from npusim.sweeps.run import Sweep, sweep
    from npusim.sweeps.search import Search, search
    from npusim.validation.validate import Validation, validate

__version__ = "0.1.0"

__all__ = [
    "Builder",
    "Chip",
    "Expected",
    "Imm",
    "Kernel",
    "Macro",
    "NpusimError",
    "Operand",
    "Pipe",
    "Reg",
    "Report",
    "Search",
    "Space",
    "Sweep",
    "Tile",
    "Validation",
    "ceilings",
    "components",
    "isa",
    "load_chip",
    "program",
    "search",
    "simulate",
    "sweep",
    "validate",
]

_AT_FIRST_USE = {
    "ceilings": "npusim.report.component_run",
    "components": "npusim.report.component_run",
    "Sweep": "npusim.sweeps.run",
    "sweep": "npusim.sweeps.run",
    "Search": "npusim.sweeps.search",
    "search": "npusim.sweeps.search",
    "Validation": "npusim.validation.validate",
    "validate": "npusim.validation.validate",
}
"""Where names are that few scripts need, to keep the import short."""


def __getattr__(name: str) -> Any:
    """Import a name at its first use.

    Raises `AttributeError` for one that does not exist.
    """
    if name not in _AT_FIRST_USE:
        raise AttributeError(f"module 'npusim' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_AT_FIRST_USE[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
