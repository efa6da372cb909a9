"""What all instructions that move data share: limits, bounds, and the cost of ports and paths."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from npusim.config.chip import Chip, Path, Port
from npusim.isa.dtype import U8, DType
from npusim.isa.instruction import Array, Instruction, Transfer, Work
from npusim.isa.operand import Access, Operand, Space
from npusim.isa.state import Atomic, State
from npusim.units import grouped

GM, L1, L0A, L0B, L0C, UB, BT, FB = Space


@dataclass(frozen=True, slots=True, kw_only=True)
class Movement(Instruction):
    """Base of the instructions that move data: placement, then the rules of the class, then the bounds."""

    example_chip: ClassVar[str] = "ascend-910b4"
    """Chip on which `example()` is valid."""

    def check(self, chip: Chip, state: State) -> None:
        """Check placement, the class's own rules, alignment in GM, and that nothing leaves a memory."""
        super(Movement, self).check(chip, state)
        self.check_rules(chip, state)
        for name in self.roles:
            at = getattr(self, name)
            if at is not None and at.space is GM and at.address % max(1, at.dtype.bits // 8):
                raise self.error(
                    f"{name} must start at a multiple of {at.dtype.size} bytes in gm, not at {at.address:#x}"
                )
        for access in (*self.reads(state), *self.writes(state)):
            if access.space is not GM:
                self._check_bounds(chip, access)

    def _check_bounds(self, chip: Chip, access: Access) -> None:
        space = access.space.short
        room = chip.capacity_bytes(space)
        end = end_of(access)
        if end > room:
            raise self.error(
                f"bytes {grouped(access.start)}..{grouped(end)} leave the {grouped(room)} bytes of {space}"
            )

    def check_rules(self, chip: Chip, state: State) -> None:
        """Raise where a rule of this instruction is broken."""

    def check_one_type(self, dst: DType, src: DType) -> None:
        """Raise where source and destination have different element types."""
        if dst is not src:
            raise self.error(f"dst and src must have one element type, not {dst.short} and {src.short}")

    def check_range(self, name: str, low: int, high: int, unit: str = "", advice: str = "") -> None:
        """Raise where an integer field is outside `low`..`high`."""
        value = getattr(self, name)
        if not low <= value <= high:
            what = f" {unit}" if unit else ""
            more = f"; {advice}" if advice else ""
            raise self.error(f"{name} must be {low}..{high}{what}, not {value}{more}")

    def check_disjoint(self, access: Access, rule: str) -> None:
        """Raise where the runs of an access overlap."""
        if overlaps(access):
            raise self.error(rule)

    def check_path(self, chip: Chip, name: str) -> None:
        """Raise where the chip lacks a path or a port."""
        parts: Any = chip.ports if hasattr(chip.ports, name) else chip.paths
        if getattr(parts, name) is None:
            raise self.error(f"{chip.name} has no path {name.replace('_to_', ' -> ')}")

    def check_atomic(self, dst: Operand, state: State) -> None:
        """Raise where the atomic mode is on for another element type than that of a store to GM."""
        if dst.space is GM and state.atomic is not Atomic.NONE and dst.dtype is not state.atomic_dtype:
            raise self.error(
                f"the atomic {state.atomic.name.lower()} is set for {state.atomic_dtype.short}, "
                f"but dst is {dst.dtype.short}; set it with SetAtomic"
            )


def raw(at: Operand, offset: int = 0) -> Operand:
    """Return the bytes at an operand, `offset` further on."""
    return Operand(at.space, U8, at.address + offset, at.segment)


def touched(at: Operand, offset: int, size: int, *repeats: tuple[int, int]) -> Access:
    """Return runs of `size` bytes `offset` behind an operand, repeated (count, stride), outermost first."""
    kept = [(count, stride) for count, stride in repeats if count != 1]
    while kept and kept[-1][1] == size:
        size *= kept.pop()[0]
    counts, strides = zip(*kept, strict=True) if kept else ((), ())
    return Access(at.space, at.segment, at.address + offset, size, counts, strides)


def copy_runs(dst: Array, src: Array) -> None:
    """Copy bytes, (..., bytes of a run), where the bytes of a run adjoin.

    As elements of one run each, which go in an order that is several times as fast for the short runs of
    rows far apart.
    """
    run = np.dtype((np.void, src.shape[-1]))
    dst.view(run)[...] = src.view(run)


def end_of(access: Access) -> int:
    """Return one past the last byte of an access."""
    reach = sum((c - 1) * s for c, s in zip(access.counts, access.strides, strict=True))
    return access.start + reach + access.size


def overlaps(access: Access) -> bool:
    """Whether two runs of an access share a byte."""
    reach = access.size
    for stride, count in sorted(zip(access.strides, access.counts, strict=True)):
        if stride < reach:
            return _runs_meet(access)
        reach += (count - 1) * stride
    return False


def _runs_meet(access: Access) -> bool:
    if access.total > end_of(access) - access.start:
        return True
    starts = np.zeros(1, np.int64)
    for count, stride in zip(access.counts, access.strides, strict=True):
        starts = (starts[:, None] + np.arange(count) * stride).ravel()
    return bool((np.diff(np.sort(starts)) < access.size).any())


def _cycles(rate: Port | Path, nbytes: int, elements: int) -> tuple[int, str]:
    if rate.bytes_per_cycle is not None:
        return math.ceil(nbytes / rate.bytes_per_cycle), "bytes_per_cycle"
    assert rate.elements_per_cycle is not None
    return math.ceil(elements / rate.elements_per_cycle), "elements_per_cycle"


class Requests(NamedTuple):
    """How a transfer goes to global memory."""

    number: int
    """Requests: parts of rows inside one range of addresses."""
    extra: int
    """Bytes that move beyond the port in addition to those asked for."""


def requests_of(access: Access, whole: int, sector: int) -> Requests:
    """Cut the rows of an access into requests at multiples of `whole` bytes.

    A row that starts and ends at multiples of `sector` moves its own bytes; any other one moves all of the
    ranges that it touches.
    """
    starts: Array | None = None
    rows = 1
    if any(stride % whole for stride in access.strides):
        starts = np.array([access.start], np.int64)
        for count, stride in zip(access.counts, access.strides, strict=True):
            starts = (starts[:, None] + np.arange(count, dtype=np.int64) * stride).ravel()
    else:
        for count in access.counts:
            rows *= count
    if starts is None:  # all rows lie alike
        start, stop = access.start, access.start + access.size
        count = (stop - 1) // whole - start // whole + 1
        extra = count * whole - access.size if start % sector or stop % sector else 0
        return Requests(rows * count, rows * extra)
    stops = starts + access.size
    counts = (stops - 1) // whole - starts // whole + 1
    ragged = (starts % sector != 0) | (stops % sector != 0)
    return Requests(int(counts.sum()), int((counts * whole - access.size)[ragged].sum()))


def port_work(
    chip: Chip,
    name: str,
    access: Access,
    elements: int,
    *,
    write: bool,
    bypass: bool = False,
    bits: int = 8,
) -> Work:
    """Return the cost of a transfer with GM: the pipe is taken for the issue, the port for the data.

    The port moves whole requests (asc-devkit constraint pages: global memory is served in ranges of 512
    bytes, 128 on the 950), so one that is shorter takes as long. `elements` and `bits` of an element count on
    ports that have a rate in elements.
    """
    port: Port = getattr(chip.ports, name)
    number, extra = requests_of(access, chip.l2.request_bytes, chip.l2.sector_bytes)
    nbytes = number * chip.l2.request_bytes
    cycles, rate = _cycles(port, nbytes, max(elements, nbytes * 8 // bits))
    prices = (f"ports.{name}.{rate}", f"ports.{name}.issue_cycles")
    transfer = Transfer(name, access, write, cycles, number, extra, bypass)
    return Work(port.issue_cycles, transfer=transfer, prices=prices)


def path_work(chip: Chip, name: str, nbytes: int, elements: int) -> Work:
    """Return the cost of a move inside a core: issue and data take the pipe, then the latency passes."""
    path: Path = getattr(chip.paths, name)
    cycles, rate = _cycles(path, nbytes, elements)
    prices = (f"paths.{name}.{rate}", f"paths.{name}.issue_cycles", f"paths.{name}.latency_cycles")
    return Work(path.issue_cycles + cycles, path.latency_cycles, prices=prices)


_COMBINE = {Atomic.ADD: np.add, Atomic.MAX: np.fmax, Atomic.MIN: np.fmin}


def store_gm(dst: Array, values: Array, state: State) -> None:
    """Write to GM, or combine with what is there under the atomic mode.

    Floats are added with one rounding, to nearest even; the larger or smaller of a number and NaN is the
    number; integers wrap. How the device rounds and saturates here is not published (L).
    """
    dst[...] = values if state.atomic is Atomic.NONE else _COMBINE[state.atomic](dst, values)
