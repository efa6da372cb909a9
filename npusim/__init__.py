"""npusim: instruction streams on a model of an Ascend-like cube/vector NPU: values, cycles, reasons.

Names are imported at their first use, so that `import npusim` and the start of a command stay short.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from npusim import isa
    from npusim.config.chip import Chip
    from npusim.config.load import load_chip
    from npusim.errors import NpusimError
    from npusim.isa.operand import Imm, Operand, Pipe, Reg, Space, Tile
    from npusim.program.kernel import Kernel
    from npusim.program.macro import Macro
    from npusim.program.program import Builder, Expected, program
    from npusim.report.component_run import ceilings, components
    from npusim.report.model import Report
    from npusim.report.simulate import simulate
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

_HOMES = {
    "npusim.config.chip": ("Chip",),
    "npusim.config.load": ("load_chip",),
    "npusim.errors": ("NpusimError",),
    "npusim.isa.operand": ("Imm", "Operand", "Pipe", "Reg", "Space", "Tile"),
    "npusim.program.kernel": ("Kernel",),
    "npusim.program.macro": ("Macro",),
    "npusim.program.program": ("Builder", "Expected", "program"),
    "npusim.report.component_run": ("ceilings", "components"),
    "npusim.report.model": ("Report",),
    "npusim.report.simulate": ("simulate",),
    "npusim.sweeps.run": ("Sweep", "sweep"),
    "npusim.sweeps.search": ("Search", "search"),
    "npusim.validation.validate": ("Validation", "validate"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

# this package first, since its import sets an attribute of its name, which is to be the decorator's
import_module("npusim.program")
del globals()["program"]


def __getattr__(name: str) -> Any:
    """Import a public name.

    Raises `AttributeError` for one that does not exist.
    """
    if name == "isa":
        return import_module("npusim.isa")
    if name not in _HOME_OF:
        raise AttributeError(f"module 'npusim' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_HOME_OF[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])
