"""What one instruction contributes to a component: a part, an amount, and the least time it can take.

Ideal rates are by instruction and element type, so that a component that never idles and pays no heads, no
bank conflicts and no transfer set-up reaches an efficiency of one. A lane of a vector instruction counts one
operation, a multiply-add two; the cube two per multiply-accumulate.
"""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

from npusim.config.chip import Chip, Path, Port
from npusim.isa.cube import DataCopyEnhanced, Mmad
from npusim.isa.dtype import DType
from npusim.isa.instruction import Instruction, Kind, Work
from npusim.isa.operand import Operand, Pipe, Space
from npusim.isa.scalar import GetValue, ScalarWork, SetValue
from npusim.isa.state import State
from npusim.isa.vector.arithmetic import Axpy, FusedMulAdd, MulAddDst, MulAddRelu
from npusim.isa.vector.lanes import LaneWise, VectorInstruction
from npusim.units import FRACTAL_BYTES, REPEAT_BYTES

MULTIPLY_ADDS = (Axpy, FusedMulAdd, MulAddDst, MulAddRelu)
"""Vector instructions of two operations per lane."""


class Share(NamedTuple):
    """One instruction's share of its component."""

    part: str
    """Precision of the cube, instruction and type of the vector unit, path of a transfer."""
    amount: int
    """Operations, or bytes of a transfer."""
    ideal: Fraction
    """Cycles at the ideal rate of the part."""


def share(op: Instruction, chip: Chip, state: State) -> Share | None:
    """Return what an instruction does for the component of its pipe, or None where it only synchronises or
    changes the control state.
    """
    if op.kind not in (Kind.WORK, Kind.SCALAR):
        return None
    work = op.work(chip, state)
    if op.pipe is Pipe.S:
        count = op.count if isinstance(op, ScalarWork) else 1
        at = op.src if isinstance(op, GetValue) else op.dst if isinstance(op, SetValue) else None
        cached = at is not None and at.space is Space.GM  # a hit costs its issue
        return Share(op.mnemonic, count, Fraction(chip.scalar.issue_cycles if cached else work.cycles))
    if isinstance(op, Mmad):
        row = work.prices[0].rpartition(".")[2]
        m, n, k = chip.cube.rates[row]  # type: ignore[index]  # the row that priced it
        return Share(row, 2 * work.macs, Fraction(work.macs, m * n * k))
    if isinstance(op, VectorInstruction):
        return _vector(op, chip, work)
    if work.transfer is not None:
        port: Port = getattr(chip.ports, work.transfer.port)
        return _moved(op, work.transfer.port, port, work.transfer.access.total)
    name = work.prices[0].split(".")[1]
    path: Path = getattr(chip.paths, name)
    if isinstance(op, DataCopyEnhanced):  # a move by the vector unit: one operation per element
        found = _moved(op, name, path, sum(a.total for a in op.reads(state)))
        return Share(f"{name} {op.dst.dtype.short}", found.amount // op.src.dtype.size, found.ideal)
    return _moved(op, name, path, sum(a.total for a in op.writes(state)))


def _moved(op: Instruction, name: str, rate: Path | Port, nbytes: int) -> Share:
    if rate.bytes_per_cycle is not None:
        return Share(name, nbytes, Fraction(nbytes) / Fraction(rate.bytes_per_cycle))
    assert rate.elements_per_cycle is not None
    dst: Operand = op.dst  # type: ignore[attr-defined]  # every move has one
    return Share(name, nbytes, Fraction(nbytes * 8, dst.dtype.bits) / Fraction(rate.elements_per_cycle))


def _vector(op: VectorInstruction, chip: Chip, work: Work) -> Share:
    dtype = _priced_type(op)
    table = chip.vector.cycles_per_repeat[op.cost_class]
    price = Fraction(table.get(dtype.short, table["default"]))
    width = FRACTAL_BYTES if op.cost_class == "transpose" else REPEAT_BYTES
    amount = work.element_ops * (2 if isinstance(op, MULTIPLY_ADDS) else 1)
    return Share(f"{op.mnemonic} {dtype.short}", amount, price * work.element_ops * dtype.size / width)


def _priced_type(op: VectorInstruction) -> DType:
    """Element type that chose the row of the cost table."""
    if isinstance(op, LaneWise):
        return op.cost_dtype()
    found = [v for n in ("src0", "src", "dst") if isinstance(v := getattr(op, n, None), Operand)]
    return found[0].dtype if found else op.dtype  # type: ignore[attr-defined]
