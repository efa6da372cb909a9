"""Bases of the vector instructions: what all of them check and cost, and those that work lane by lane."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import ceil
from typing import Any, ClassVar

import numpy as np

from npusim.config.chip import Chip
from npusim.isa.dtype import DType
from npusim.isa.instruction import ALIGNMENT, Array, CoreView, Instruction, Work
from npusim.isa.operand import Access, Imm, Operand, Pipe, Scalar, Space
from npusim.isa.state import State
from npusim.isa.vector.banks import Walk, bank_cycles
from npusim.isa.vector.layout import Layout, layout_of
from npusim.isa.vector.overlap import check_overlap
from npusim.isa.vector.walk import (
    Plan,
    Step,
    Strided,
    accesses,
    blocks_of,
    load,
    plan_of,
    store,
)
from npusim.units import BLOCK_BYTES, grouped

UB = Space.UB
MAX_REPEAT = 255


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorInstruction(Instruction):
    """Base of all vector instructions: operands in UB, a cost class, a set of element types."""

    pipe: ClassVar[Pipe] = Pipe.V
    cost_class: ClassVar[str] = "one_source"
    """Row of the chip's cost table."""
    types: ClassVar[frozenset[DType]] = frozenset()
    """Element types of the operands."""
    max_stride: ClassVar[int] = 255
    counts: ClassVar[bool] = True
    """Whether there is a counter mode."""

    # ---- rules ---------------------------------------------------------------------------------------------

    def check(self, chip: Chip, state: State) -> None:
        """Check placement, element types, repeat and stride limits, the mask, and the bounds of UB."""
        if self.cost_class not in chip.vector.cycles_per_repeat:
            raise self.error(
                f"{chip.name} does not have it: no {self.cost_class} in vector.cycles_per_repeat"
            )
        placed = [(n, getattr(self, n), r) for n, r in self.roles.items() if getattr(self, n) is not None]
        for name, operand, role in placed:
            if operand.space not in role.spaces:
                allowed = " or ".join(s.short for s in role.spaces)
                raise self.error(
                    f"{name} must be in {allowed}, not {operand.space.short}; copy it there first"
                )
        self.check_types()
        for name, operand, _ in placed:
            alignment = self.alignment(name)
            if operand.address % alignment or operand.address < 0:
                raise self.error(
                    f"{name} must start at a multiple of {alignment} bytes in {operand.space.short}, "
                    f"not at {operand.address:#x}"
                )
        self.check_fields()
        self.check_mask(state)
        self.check_bounds(chip, state)

    def alignment(self, name: str) -> int:
        """Bytes to which the start of an operand is aligned."""
        return ALIGNMENT[UB]

    def check_types(self) -> None:
        """Raise where an operand has an element type the instruction does not know, or types differ."""
        names = [name for name in self.roles if getattr(self, name) is not None]
        self.check_type(names[0], getattr(self, names[0]).dtype)
        for name in names[1:]:
            self.check_same(names[0], name)

    def check_same(self, first: str, second: str) -> None:
        """Raise where two operands differ in their element types."""
        a, b = getattr(self, first).dtype, getattr(self, second).dtype
        if a is not b:
            raise self.error(
                f"{first} and {second} must have one element type, not {a.short} and {b.short}; "
                f"convert one of them with Cast"
            )

    def check_type(self, name: str, dtype: DType, known: frozenset[DType] | None = None) -> None:
        """Raise where an operand has an element type that is not among the known ones."""
        known = self.types if known is None else known
        if dtype not in known:
            words = " ".join(d.short for d in DType if d in known)
            raise self.error(f"{name} must be {_one_of(words)}, not {dtype.short}")

    def check_fields(self) -> None:
        """Raise where a repeat count or a stride is outside what the instruction encodes."""
        repeat = getattr(self, "repeat", 0)
        if not 0 <= repeat <= MAX_REPEAT:
            raise self.error(
                f"repeat must be 0..{MAX_REPEAT}, not {repeat}; split it, or count elements in counter mode"
            )
        for name in _stride_fields(type(self)):
            stride = getattr(self, name)
            if not 0 <= stride <= self.max_stride:
                raise self.error(
                    f"{name} must be 0..{grouped(self.max_stride)}, not {grouped(stride)}; "
                    f"it counts {self.stride_unit(name)}"
                )

    def stride_unit(self, name: str) -> str:
        """Return what a stride field counts, in words."""
        return "blocks of 32 bytes"

    def check_mask(self, state: State) -> None:
        """Raise where the mask leaves nothing to do, or counts what no buffer holds."""
        check_count(self, state)

    def check_bounds(self, chip: Chip, state: State) -> None:
        """Raise where an operand leaves the buffer."""
        room = chip.capacity_bytes("ub")
        for name, found in _LAST.touched(self, state).items():
            for access in found:
                end = access.start + access.size
                for count, stride in zip(access.counts, access.strides, strict=True):
                    end += (count - 1) * stride
                if end > room:
                    raise self.error(
                        f"{name} must stay inside the {grouped(room)} bytes of ub, not end at byte "
                        f"{grouped(end)}; use fewer repeats, smaller strides or a lower address"
                    )

    def check_apart(self, state: State, *names: str) -> None:
        """Raise where two operands have bytes in common."""
        touched = _LAST.touched(self, state)
        first, second = ([r for a in touched.get(n, ()) for r in a.runs()] for n in names)
        if any(a < d and c < b for a, b in first for c, d in second):
            raise self.error(
                f"{names[0]} and {names[1]} must have no bytes in common; give dst a place of its own"
            )

    # ---- bytes ---------------------------------------------------------------------------------------------

    def touched(self, state: State) -> dict[str, list[Access]]:
        """Return the bytes the instruction touches, by operand."""
        raise NotImplementedError

    def reads(self, state: State) -> tuple[Access, ...]:
        """Return exactly the bytes the instruction reads."""
        roles = self.roles
        return tuple(
            a for name, found in _LAST.touched(self, state).items() if roles[name].reads for a in found
        )

    def writes(self, state: State) -> tuple[Access, ...]:
        """Return exactly the bytes the instruction writes."""
        roles = self.roles
        return tuple(
            a for name, found in _LAST.touched(self, state).items() if roles[name].writes for a in found
        )

    # ---- values and cost -----------------------------------------------------------------------------------

    def saturates(self, state: State, dtype: DType) -> bool:
        """Whether results of an element type are clamped: CTRL[48] for floats, CTRL[53] for integers."""
        return state.saturate if dtype.is_float else state.saturate_int

    def cost(
        self,
        chip: Chip,
        dtype: DType,
        repeats: int,
        elements: int,
        reads: tuple[Walk, ...],
        writes: tuple[Walk, ...],
    ) -> Work:
        """Return head + repeats x the larger of the throughput for an element type and bank conflicts."""
        vector = chip.vector
        try:
            table = vector.cycles_per_repeat[self.cost_class]
        except KeyError:
            raise self.error(
                f"{chip.name} does not have it: no {self.cost_class} in vector.cycles_per_repeat"
            ) from None
        column = dtype.short if dtype.short in table else "default"
        if not repeats:
            return Work(vector.head_cycles, prices=("vector.head_cycles",))
        body = bank_cycles(vector.banks, reads, writes, repeats, table[column])
        prices = ["vector.head_cycles", f"vector.cycles_per_repeat.{self.cost_class}.{column}"]
        if body > ceil(repeats * table[column]):
            prices.append("vector.banks.groups")
        return Work(vector.head_cycles + body, element_ops=elements, prices=tuple(prices))


class _Last:
    """The bytes of the instruction looked at last: its bounds, its reads and its writes each ask for them."""

    def __init__(self) -> None:
        self._asked: tuple[VectorInstruction, State] | None = None
        self._found: dict[str, list[Access]] = {}

    def touched(self, op: VectorInstruction, state: State) -> dict[str, list[Access]]:
        """Return what `op.touched(state)` says."""
        asked = self._asked
        if asked is None or asked[0] is not op or asked[1] is not state:
            self._found = op.touched(state)
            self._asked = op, state
        return self._found


_LAST = _Last()


_STRIDES: dict[Any, tuple[str, ...]] = {}


def _stride_fields(cls: type[VectorInstruction]) -> tuple[str, ...]:
    found = _STRIDES.get(cls)
    if found is None:
        names = [f.name for f in cls.spec if f.form == "int"]
        found = _STRIDES[cls] = tuple(n for n in names if n.endswith(("_block", "_repeat")))
    return found


def _one_of(words: str) -> str:
    *head, last = words.split()
    return f"{', '.join(head)} or {last}" if head else last


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeated(VectorInstruction):
    """Base of the vector instructions that work in repeats."""

    repeat: int = 1
    """Repeats in normal mode, 0..255; counter mode ignores it unless the instruction says otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneWise(Repeated):
    """Base of the instructions that walk all operands in step: one result lane for one lane of every source.

    Subclasses name their operands in fields, each with `<name>_block` and `<name>_repeat` strides in blocks
    of 32 bytes, destination first, and give `compute`.
    """

    in_rows: ClassVar[bool] = True
    """Whether dense operands may be computed as one row, without looking at repeats."""
    accumulates: ClassVar[bool] = False
    """Whether a repeat may take as `src1` what the repeat before wrote (asc-devkit, address overlap; H)."""

    def layout(self) -> Layout:
        """Return which operands are walked."""
        return layout_of(type(self))

    def plan(self, state: State) -> Plan:
        """Return the walk of the operands in a state."""
        return plan_of(state.counter_mode, state.mask, self.layout().geometry(self))

    def strided(self) -> tuple[Strided, ...]:
        """Return the walked operands, destination first."""
        layout = self.layout()
        flat = layout.geometry(self)
        return tuple(
            Strided(at, flat[3 * i + 2], flat[3 * i + 3]) for i, at in enumerate(layout.operands(self))
        )

    def check_mask(self, state: State) -> None:
        """Raise where the mask selects no lane, or the lanes a result cannot be written to."""
        check_count(self, state)
        plan, dst = self.plan(state), self.strided()[0]
        if not state.counter_mode and self.repeat and not plan.pieces:
            raise self.error(
                f"the mask must select one of the {plan.lanes} lanes, not none; set it with SetVectorMask"
            )
        if plan.pieces and not dst.block and blocks_of(plan.pieces[0].lanes, dst.at.dtype) > 1:
            raise self.error("dst_block must be 1 or more, not 0, where a repeat writes more than one block")

    def check_bounds(self, chip: Chip, state: State) -> None:
        """Raise where an operand leaves the buffer, or where source and destination overlap."""
        super(LaneWise, self).check_bounds(chip, state)
        self.check_overlap(state)

    def check_overlap(self, state: State) -> None:
        """Raise where sources and destination overlap in a way the hardware does not define."""
        plan = self.plan(state)
        if not plan.pieces:
            return
        layout = self.layout()
        dst, *sources = zip(layout.names, self.strided(), strict=True)
        if layout.reads_dst:
            sources.insert(0, dst)
        check_overlap(self.error, dst, sources, plan, accumulates=self.accumulates)

    def touched(self, state: State) -> dict[str, list[Access]]:
        """Return the lanes that run, by operand."""
        pieces = self.plan(state).pieces
        names = self.layout().names
        return {n: accesses(s, pieces) for n, s in zip(names, self.strided(), strict=True)}

    def compute(self, core: CoreView, state: State, *sources: Array) -> Array:
        """Return the result lanes for source lanes of one shape, always as a new array.

        An operand that is read and written comes first.
        """
        raise NotImplementedError

    def compute_step(
        self, core: CoreView, state: State, plan: Plan, step: Step, sources: list[Array]
    ) -> Array:
        """Return the result lanes of some repeats, (repeats, lanes)."""
        return self.compute(core, state, *sources)

    def execute(self, core: CoreView, state: State) -> None:
        """Compute all repeats at once, or one by one where a repeat reads the result of the one before."""
        layout = self.layout()
        plan = self.plan(state)
        operands = layout.operands(self)
        row = plan.row
        if row is not None and self.in_rows:
            view = core.view
            target = view(operands[0], row)
            sources = [view(at, row) for at in operands[1:]]
            if layout.reads_dst:
                sources.insert(0, target)
            target[...] = self.compute(core, state, *sources)
            return
        serial = plan.rewrites or (plan.broadcast and plan.feeds(operands))
        steps = plan.serial if serial else plan.steps
        for step in steps:
            lanes = step.piece.lanes
            sources = [
                load(core, at, window, lanes)
                for at, window, read in zip(operands, step.windows, layout.reads, strict=True)
                if read
            ]
            result = self.compute_step(core, state, plan, step, sources)
            store(core, operands[0], step.windows[0], step, result)

    def work(self, chip: Chip, state: State) -> Work:
        """Return head + repeats x the larger of throughput and bank conflicts."""
        plan = self.plan(state)
        layout = self.layout()
        walks = self.walks(plan)
        return self.cost(
            chip,
            self.cost_dtype(),
            plan.repeats,
            plan.elements,
            tuple(w for w, read in zip(walks, layout.reads, strict=True) if read),
            tuple(w for w, written in zip(walks, layout.writes, strict=True) if written),
        )

    def walks(self, plan: Plan) -> list[Walk]:
        """Return how the operands visit blocks."""
        lanes = plan.pieces[0].lanes if plan.pieces else 0
        return [
            Walk(s.at.address, s.block * BLOCK_BYTES, s.repeat * BLOCK_BYTES, blocks_of(lanes, s.at.dtype))
            for s in self.strided()
        ]

    def cost_dtype(self) -> DType:
        """Element type that selects the column of the cost table: the widest one."""
        dtypes: tuple[DType, ...] = self.layout().geometry(self)[1::3]
        return max(dtypes, key=lambda d: d.bits)


def check_count(op: Instruction, state: State) -> None:
    """Raise where counter mode has been entered and the mask still holds lane bits."""
    if state.counter_mode and state.mask >= 1 << 32:
        raise op.error(
            "counter mode is on and the mask still holds lane bits; set the number of elements with "
            "SetVectorMask"
        )


def value_of(core: CoreView, value: Scalar, dtype: DType) -> Any:
    """Return a value operand as a NumPy scalar."""
    return immediate(value.bits, dtype) if type(value) is Imm else core.scalar(value, dtype)


@lru_cache(4096)
def immediate(bits: int, dtype: DType) -> Any:
    """Return the NumPy scalar that bits stand for."""
    return np.array(bits, f"u{dtype.size}").view(dtype.np)[()]


def ub(dtype: DType, address: int) -> Operand:
    """Return an operand in UB."""
    return Operand(UB, dtype, address)
