"""A core with random bytes in every memory, and what an instruction really reads and writes there."""

from __future__ import annotations

import numpy as np

from npusim.config.chip import Chip
from npusim.isa.dtype import U8
from npusim.isa.instruction import Instruction
from npusim.isa.numerics.profile import get_profile
from npusim.isa.operand import Access, Operand, Space
from npusim.isa.state import RESET, State
from npusim.machine.memory import CoreMemory, Segment

GM, L1, L0A, L0B, L0C, UB, BT, FB = Space
SEGMENT_BYTES = 1 << 18


class Bench:
    """One core and two segments of global memory; every byte is random."""

    def __init__(self, chip: Chip, seed: int = 0, profile: str = "ascend-a2") -> None:
        rng = np.random.default_rng(seed)
        data = [np.zeros(SEGMENT_BYTES, np.uint8) for _ in range(2)]
        segments = [Segment(f"s{i}", U8, (SEGMENT_BYTES,), d) for i, d in enumerate(data)]
        spaces = tuple(s for s in Space if s is not GM and chip.capacity_bytes(s.short))
        self.chip = chip
        self.core = CoreMemory(chip, spaces, segments, get_profile(profile))
        self.places = [(s, 0) for s in spaces] + [(GM, 0), (GM, 1)]
        for place in self.places:
            memory = self.memory(*place)
            memory[:] = rng.integers(0, 256, memory.size, np.uint8)

    def memory(self, space: Space, segment: int = 0) -> np.ndarray:
        """All bytes of a memory, writable."""
        return self.core.bytes_of(Operand(space, U8, 0, segment))

    def poke(self, space: Space, address: int, values: np.ndarray, segment: int = 0) -> None:
        """Write an array's bytes at an address."""
        data = np.frombuffer(np.ascontiguousarray(values).tobytes(), np.uint8)
        self.memory(space, segment)[address : address + data.size] = data

    def peek(self, space: Space, address: int, dtype: np.dtype, count: int, segment: int = 0) -> np.ndarray:
        """Read `count` elements at an address."""
        dtype = np.dtype(dtype)
        stop = address + count * dtype.itemsize
        return self.memory(space, segment)[address:stop].copy().view(dtype)

    def run(self, op: Instruction, state: State = RESET) -> None:
        """Check an instruction and execute it as the machine does."""
        op.check(self.chip, state)
        with np.errstate(all="ignore"):
            op.execute(self.core, state)

    def copy(self) -> dict[tuple[Space, int], np.ndarray]:
        """The bytes of all memories."""
        return {place: self.memory(*place).copy() for place in self.places}

    def restore(self, saved: dict[tuple[Space, int], np.ndarray]) -> None:
        """Set the bytes of all memories."""
        for place, data in saved.items():
            self.memory(*place)[:] = data


def masks(bench: Bench, accesses: tuple[Access, ...]) -> dict[tuple[Space, int], np.ndarray]:
    """Which bytes accesses name, counted run by run from their definition."""
    found = {place: np.zeros(bench.memory(*place).size, bool) for place in bench.places}
    for access in accesses:
        starts = [access.start]
        for count, stride in zip(access.counts, access.strides, strict=True):
            starts = [s + i * stride for s in starts for i in range(count)]
        for start in starts:
            assert start >= 0
            assert start + access.size <= found[access.space, access.segment].size
            found[access.space, access.segment][start : start + access.size] = True
    return found


def assert_touches_what_it_declares(
    bench: Bench, op: Instruction, state: State = RESET, probes: int = 6
) -> None:
    """Prove reads sufficient, writes exact, and (by samples) every declared read needed.

    Runs the instruction twice on memories that agree on the declared reads only, being complements elsewhere.
    """
    reads, writes = masks(bench, op.reads(state)), masks(bench, op.writes(state))
    before = bench.copy()
    bench.run(op, state)
    after = bench.copy()
    for place in bench.places:
        changed = before[place] != after[place]
        assert not (changed & ~writes[place]).any(), f"{op} writes undeclared bytes of {place}"
    other = {place: np.where(reads[place], data, ~data) for place, data in before.items()}
    bench.restore(other)
    bench.run(op, state)
    for place in bench.places:
        data = bench.memory(*place)
        same = data == after[place]
        assert same[writes[place]].all(), f"{op} does not write all it declares of {place}, or reads more"
        assert (data == other[place])[~writes[place]].all()
    rng = np.random.default_rng(1)
    for place in bench.places:
        candidates = np.flatnonzero(reads[place] & ~writes[place])
        for index in rng.choice(candidates, min(probes, candidates.size), replace=False):
            flipped = {p: d.copy() for p, d in before.items()}
            flipped[place][index] ^= 0x41
            bench.restore(flipped)
            bench.run(op, state)
            differs = any(
                (bench.memory(*p) != after[p])[writes[p]].any() for p in bench.places if writes[p].any()
            )
            assert differs, f"{op} declares byte {index} of {place} but does not read it"
    bench.restore(after)
