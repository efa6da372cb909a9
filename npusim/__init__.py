"""npusim: instruction streams on a model of an Ascend-like cube/vector NPU: values, cycles, reasons."""

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
from npusim.sweep.run import Sweep, sweep
from npusim.sweep.search import Search, search
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
