"""Sorting: Sort32 makes sorted runs of 32 records, MrgSort merges up to four sorted queues of records.

A record has 8 bytes: a float value in the lowest bytes (a half leaves two bytes unused, which are cleared
here) and an index of 32 bits in the upper four (asc-devkit Sort32 and MrgSort pages; H).
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from npusim.config.chip import Chip
from npusim.isa.dtype import F16, F32, U16, U32, U64, DType
from npusim.isa.instruction import Array, CoreView, UbIn, UbOut, Work, instruction
from npusim.isa.operand import Access, Operand
from npusim.isa.state import State
from npusim.isa.vector.banks import Walk
from npusim.isa.vector.lanes import Repeated, ub
from npusim.units import BLOCK_BYTES, ceil_div, grouped

RECORD_BYTES = 8
RUN = 32
"""Records of a repeat of Sort32."""
LONGEST_QUEUE = 4095
FLOATS = frozenset({F16, F32})


def order_of(values: Array) -> Array:
    """Return numbers that compare as the sorter compares values, given as unsigned bits.

    They compare as sign and magnitude: -0 equals +0, and a NaN lies beyond the infinity of its sign. What the
    device does with a NaN is not documented.
    """
    sign = values.dtype.type(1 << (values.dtype.itemsize * 8 - 1))
    magnitude = (values & ~sign).astype(np.int64)
    order: Array = np.where(values & sign, -magnitude, magnitude)
    return order


@instruction
class Sort32(Repeated):
    """Sort 32 values a repeat in descending order, together with their indices, into records of 8 bytes.

    Of equal values the first comes first; -0 equals +0, and a NaN lies beyond the infinity of its sign. `src`
    (f16 or f32) and `index` (u32) are dense. The mask has no effect. Cost: class sort, one repeat for 32
    records.
    """

    dst: UbOut
    src: UbIn
    index: UbIn

    types: ClassVar[frozenset[DType]] = FLOATS
    cost_class: ClassVar[str] = "sort"
    counts: ClassVar[bool] = False

    def check_types(self) -> None:
        """Check the element types."""
        self.check_type("dst", self.dst.dtype)
        self.check_same("dst", "src")
        self.check_type("index", self.index.dtype, frozenset({U32}))

    def check_mask(self, state: State) -> None:
        """Accept every mask."""

    def check_bounds(self, chip: Chip, state: State) -> None:
        """Check bounds, and that the destination has nothing in common with the sources."""
        super(Sort32, self).check_bounds(chip, state)
        self.check_apart(state, "dst", "src")
        self.check_apart(state, "dst", "index")

    def touched(self, state: State) -> dict[str, list[Access]]:
        """Return the records, the values and the indices."""
        count = RUN * self.repeat
        if not count:
            return {}
        sizes = {"dst": RECORD_BYTES, "src": self.src.dtype.size, "index": U32.size}
        return {name: [_bytes(getattr(self, name), count * size)] for name, size in sizes.items()}

    def execute(self, core: CoreView, state: State) -> None:
        """Sort every 32."""
        if not self.repeat:
            return
        shape = (self.repeat, RUN)
        values = core.view(self.src.as_type(_bits(self.src.dtype)), shape)
        records = values.astype(np.uint64) | core.view(self.index, shape).astype(np.uint64) << np.uint64(32)
        first = np.argsort(-order_of(values), axis=1, kind="stable")
        core.view(self.dst.as_type(U64), shape)[...] = np.take_along_axis(records, first, axis=1)

    def work(self, chip: Chip, state: State) -> Work:
        """Return head + repeats x the larger of throughput and bank conflicts."""
        size = self.src.dtype.size
        reads = (_walk(self.src, RUN * size), _walk(self.index, RUN * U32.size))
        writes = (_walk(self.dst, RUN * RECORD_BYTES),)
        return self.cost(chip, self.src.dtype, self.repeat, RUN * self.repeat, reads, writes)

    @classmethod
    def example(cls) -> Sort32:
        """Sort twice 32 floats."""
        return cls(dst=ub(F32, 0x10000), src=ub(F32, 0), index=ub(U32, 0x1000), repeat=2)


@instruction
class MrgSort(Repeated):
    """Merge two to four queues of records, each in descending order, into one.

    `lengths` are the records of each queue, 0 to 4,095 (asc-devkit MrgSort page). Of equal values that of the
    earlier queue comes first; values compare as in Sort32. A queue that is not in order gives what a merge by
    its first record makes of it. With `suspend` the merge ends with the record that exhausts a queue, and the
    instruction returns how many records of each queue it took (the vendor's GetMrgSortResult). More than one
    repeat needs four equal queues, one behind the other, and no `suspend`; each takes the next four. Types
    f16, f32. The mask has no effect. Cost: class merge, one repeat for 32 records of all queues, taken or
    not.
    """

    dst: UbOut
    src0: UbIn
    src1: UbIn
    src2: UbIn | None = None
    src3: UbIn | None = None
    lengths: tuple[int, ...]
    suspend: bool = False

    types: ClassVar[frozenset[DType]] = FLOATS
    cost_class: ClassVar[str] = "merge"
    counts: ClassVar[bool] = False

    @property
    def returns_value(self) -> bool:
        """Whether the scalar unit waits for how many records were taken."""
        return self.suspend

    @property
    def queues(self) -> list[Operand]:
        """The queues that take part."""
        return [q for q in (self.src0, self.src1, self.src2, self.src3) if q is not None]

    def check_fields(self) -> None:
        """Check the queues, their lengths, and what repeats need."""
        super(MrgSort, self).check_fields()
        queues, lengths = self.queues, self.lengths
        if self.src3 is not None and self.src2 is None:
            raise self.error("src2 must be given where src3 is")
        if len(lengths) != len(queues):
            raise self.error(f"lengths must be {len(queues)} numbers, one for each queue, not {len(lengths)}")
        for i, count in enumerate(lengths):
            if not 0 <= count <= LONGEST_QUEUE:
                limit = grouped(LONGEST_QUEUE)
                raise self.error(f"lengths[{i}] must be 0..{limit} records of a queue, not {grouped(count)}")
        if self.repeat <= 1:
            return
        if len(queues) < 4 or self.suspend:
            what = "four queues" if len(queues) < 4 else "suspend=False"
            raise self.error(f"repeat must be 1 without {what}, not {self.repeat}")
        step = lengths[0] * RECORD_BYTES
        if len(set(lengths)) > 1 or any(
            q.address != self.src0.address + i * step for i, q in enumerate(queues)
        ):
            raise self.error(
                f"repeat must be 1, not {self.repeat}, where the queues are not equally long and one behind "
                f"the other"
            )

    def check_mask(self, state: State) -> None:
        """Accept every mask."""

    def check_bounds(self, chip: Chip, state: State) -> None:
        """Check bounds, and that the destination has nothing in common with a queue."""
        super(MrgSort, self).check_bounds(chip, state)
        for i in range(len(self.queues)):
            self.check_apart(state, "dst", f"src{i}")

    def touched(self, state: State) -> dict[str, list[Access]]:
        """Return the queues, and what is written if all records are taken."""
        step = sum(self.lengths) * RECORD_BYTES
        if not step * self.repeat:
            return {}
        times = ((self.repeat,), (step,)) if self.repeat > 1 else ((), ())
        found = {"dst": [_bytes(self.dst, step * self.repeat)]}
        for i, (at, count) in enumerate(zip(self.queues, self.lengths, strict=True)):
            if count:
                found[f"src{i}"] = [Access(at.space, at.segment, at.address, count * RECORD_BYTES, *times)]
        return found

    def execute(self, core: CoreView, state: State) -> tuple[int, ...] | None:
        """Merge, and return how many records were taken of each queue where that may be fewer than all."""
        taken = self.lengths
        total = sum(taken)
        step = total * RECORD_BYTES
        for repeat in range(self.repeat if total else 0):
            queues = [
                core.view(at.offset(repeat * step).as_type(U64), (count,))
                for at, count in zip(self.queues, taken, strict=True)
            ]
            merged, taken = self._merge(queues)
            core.view(self.dst.offset(repeat * step).as_type(U64), merged.shape)[...] = merged
        if not self.suspend:
            return None
        return taken if self.repeat else (0,) * len(taken)

    def _merge(self, queues: list[Array]) -> tuple[Array, tuple[int, ...]]:
        """Return the merged records, and how many of each queue are among them."""
        bits = _bits(self.dst.dtype).np.type
        # a record comes out no earlier than those before it, so the smallest so far decides
        keys = [np.minimum.accumulate(order_of(q.astype(bits))) for q in queues]
        order = np.argsort(-np.concatenate(keys), kind="stable")
        if not self.suspend:
            return np.concatenate(queues)[order], self.lengths
        owner = np.repeat(np.arange(len(queues)), self.lengths)[order]
        ends = [
            int(np.flatnonzero(owner == i)[-1]) + 1 if count else 0 for i, count in enumerate(self.lengths)
        ]
        order = order[: min(ends)]
        taken = np.bincount(owner[: min(ends)], minlength=len(queues))
        return np.concatenate(queues)[order], tuple(int(n) for n in taken)

    def work(self, chip: Chip, state: State) -> Work:
        """Return head + 32-record steps x the larger of throughput and bank conflicts."""
        records = sum(self.lengths) * self.repeat
        steps = ceil_div(records, RUN)
        writes = (_walk(self.dst, RUN * RECORD_BYTES),)
        return self.cost(chip, self.dst.dtype, steps, records, (), writes)

    @classmethod
    def example(cls) -> MrgSort:
        """Merge four queues of 32 records with float values."""
        first, second, third, fourth = (ub(F32, 0x100 * i) for i in range(4))
        return cls(
            dst=ub(F32, 0x10000), src0=first, src1=second, src2=third, src3=fourth, lengths=(32, 32, 32, 32)
        )


def _bits(dtype: DType) -> DType:
    return U16 if dtype.size == 2 else U32


def _bytes(at: Operand, size: int) -> Access:
    return Access(at.space, at.segment, at.address, size)


def _walk(at: Operand, size: int) -> Walk:
    return Walk(at.address, BLOCK_BYTES, size, size // BLOCK_BYTES)
