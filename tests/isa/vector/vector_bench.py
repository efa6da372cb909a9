"""A core whose buffer is full of chosen bytes, and element loops that say what should come out."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import vector_exact as exact
from hypothesis import settings
from hypothesis import strategies as st

from npusim.config.chip import Chip
from npusim.isa.dtype import BY_NAME
from npusim.isa.instruction import Instruction
from npusim.isa.numerics.profile import get_profile
from npusim.isa.operand import Access, Imm, Operand, Reg, Space
from npusim.isa.state import State
from npusim.machine.memory import CoreMemory

BLOCK = 32
FEW = settings(max_examples=30, deadline=None)
"""An example is some hundred elements, each computed on fractions."""


class Bench:
    """One vector core; every byte of its buffer is random, with special numbers strewn in."""

    def __init__(self, chip: Chip, seed: int = 0) -> None:
        self.core = CoreMemory(chip, (Space.UB,), [], get_profile("ascend-a2"))
        self.memory = self.core.bytes_of(Operand(Space.UB, BY_NAME["u8"], 0))
        self.fill(seed)

    def fill(self, seed: int) -> None:
        """Fill the buffer from a seed."""
        rng = np.random.default_rng(seed)
        self.memory[:] = rng.integers(0, 256, self.memory.size, np.uint8)

    def numbers(self, dtype: str, start: int, stop: int, seed: int) -> None:
        """Fill a range with elements of a type: most of moderate size, many special."""
        width = exact.WIDTH[dtype]
        pool = _pool(dtype)
        chosen = pool[np.random.default_rng(seed).integers(0, len(pool), (stop - start) * 8 // width)]
        if width < 8:
            self.memory[start:stop] = (chosen[0::2] | chosen[1::2] << np.uint64(4)).astype(np.uint8)
        else:
            self.memory[start:stop] = chosen.astype(f"<u{width // 8}").view(np.uint8)


@cache
def _pool(dtype: str) -> np.ndarray[Any, Any]:
    width = exact.WIDTH[dtype]
    if dtype in exact.FORMATS:
        some = np.random.default_rng(7).normal(0, 8, 200)
        values = [*(exact.to_format(exact.Fraction(float(x)), dtype) for x in some), *SPECIALS[dtype] * 8]
    else:
        low = -(1 << (width - 1)) if dtype[0] == "s" else 0
        high = low + (1 << width) - 1
        values = [*range(-8 if low else 0, min(24, high + 1)), low, low + 1, high, high - 1, high // 3]
    return np.array([exact.encode(v, dtype) for v in values], np.uint64)


def _specials(name: str) -> list[float]:
    top, tiny = exact.largest(name), exact.smallest_normal(name)
    least = exact.to_format(exact.Fraction(tiny) / 2 ** (exact.FORMATS[name][0] - 1), name)
    ones = [0.0, 1.0, 0.5, 1.5, 2.5, 3.0, 127.5, 255.5, 32767.0, 1000.0, top, tiny, least, tiny - least]
    ones = [exact.to_format(exact.Fraction(x), name) for x in ones]
    return [*ones, *[-x for x in ones], float("inf"), float("-inf"), float("nan")]


SPECIALS = {name: _specials(name) for name in exact.FORMATS}


class Cells:
    """The bytes of a buffer, read and written as single elements, and which bytes that has been."""

    def __init__(self, memory: np.ndarray[Any, Any]) -> None:
        self.data = bytearray(memory.tobytes())
        self.read = np.zeros(memory.size, np.bool_)
        self.written = np.zeros(memory.size, np.bool_)

    def get(self, bit: int, width: int) -> int:
        """Return the bits of an element at a bit address."""
        byte, shift = divmod(bit, 8)
        size = max(1, width // 8)
        self.read[byte : byte + size] = True
        raw = int.from_bytes(self.data[byte : byte + size], "little")
        return raw >> shift & ((1 << width) - 1)

    def put(self, bit: int, width: int, value: int) -> None:
        """Write the bits of an element."""
        byte, shift = divmod(bit, 8)
        size = max(1, width // 8)
        self.written[byte : byte + size] = True
        raw = int.from_bytes(self.data[byte : byte + size], "little")
        raw = raw & ~(((1 << width) - 1) << shift) | value << shift
        self.data[byte : byte + size] = raw.to_bytes(size, "little")


def running(state: State, repeat: int, lanes: int) -> Iterator[list[tuple[int, int]]]:
    """Yield, for every repeat, (repeat, lane) of the lanes that run."""
    if state.counter_mode:
        for start in range(0, state.mask, lanes):
            yield [(start // lanes, i) for i in range(min(lanes, state.mask - start))]
    else:
        for r in range(repeat):
            yield [(r, i) for i in range(lanes) if state.mask >> i & 1]


def place(address: int, dtype: str, block: int, repeat: int, r: int, lane: int) -> int:
    """Return the bit address of a lane of a strided operand."""
    width = exact.WIDTH[dtype]
    index, inside = divmod(lane * width, BLOCK * 8)
    return (address + (r * repeat + index * block) * BLOCK) * 8 + inside


def lane_count(*dtypes: str) -> int:
    """Return the lanes of a repeat: 256 bytes of the widest type."""
    return 2048 // max(exact.WIDTH[d] for d in dtypes)


def value_bits(op: Instruction, core: CoreMemory, name: str = "scalar") -> int:
    """Return the bits of a value operand."""
    value = getattr(op, name)
    if isinstance(value, Reg):
        return core.register(value.index)
    assert isinstance(value, Imm)
    return value.bits


Function = Callable[..., int]


def expect_lanewise(
    cells: Cells, op: Any, state: State, names: list[str], reads: list[str], compute: Function
) -> None:
    """Do a lane-wise instruction element by element.

    `compute` takes the bits of the operands that `reads` names and returns those of the result.
    """
    dtypes = {n: getattr(op, n).dtype.short for n in names}
    lanes = lane_count(*dtypes.values())

    def where(name: str, r: int, lane: int) -> int:
        block, repeat = getattr(op, f"{name}_block"), getattr(op, f"{name}_repeat")
        return place(getattr(op, name).address, dtypes[name], block, repeat, r, lane)

    for repeat in running(state, op.repeat, lanes):
        results = []
        for r, lane in repeat:
            sources = [cells.get(where(n, r, lane), exact.WIDTH[dtypes[n]]) for n in reads]
            results.append(compute(*sources))
        for (r, lane), result in zip(repeat, results, strict=True):
            cells.put(where(names[0], r, lane), exact.WIDTH[dtypes[names[0]]], result)


def covered(accesses: tuple[Access, ...], size: int) -> np.ndarray[Any, Any]:
    """Return which bytes of the buffer accesses name."""
    found = np.zeros(size, np.bool_)
    for access in accesses:
        for start, stop in access.runs():
            found[start:stop] = True
    return found


def check_touched(bench: Bench, op: Instruction, state: State, *, all_written: bool = True) -> None:
    """Check that nothing outside the declared writes changes and nothing outside the declared reads matters.

    With `all_written`, every declared byte must have been written as well.
    """
    before = bench.memory.copy()
    register = bench.core.compare_mask
    value = op.execute(bench.core, state)
    after, after_register = bench.memory.copy(), bench.core.compare_mask
    reads = covered(op.reads(state), before.size)
    writes = covered(op.writes(state), before.size)
    outside = ~writes & (before != after)
    assert not outside.any(), f"{op} writes undeclared byte {int(np.argmax(outside)):#x}"
    poison = before ^ 0xA5
    bench.memory[:] = np.where(reads, before, poison)
    bench.core.compare_mask = register
    again = op.execute(bench.core, state)
    poisoned = bench.memory.copy()
    assert again == value
    assert bench.core.compare_mask == after_register
    left = (poisoned == poison) & (after == before) & ~reads
    differs = writes & (poisoned != after) & ~(left & (not all_written))
    assert not differs.any(), f"{op}: byte {int(np.argmax(differs)):#x} hangs on undeclared bytes, or is left"
    bench.memory[:] = before


PLACES = {"dst": 0x18000, "src": 0x4000, "src0": 0x4000, "src1": 0xC100}


def value_of_type(dtype: str) -> st.SearchStrategy[int]:
    """Bits of a number of a type, special ones among them."""
    return st.sampled_from(sorted({int(b) for b in _pool(dtype)}))


@st.composite
def states(draw: st.DrawFn, lanes: int = 128) -> State:
    """A mask state with few elements, and any saturation."""
    switches = {n: draw(st.booleans()) for n in ("saturate", "saturate_int")}
    if draw(st.booleans()):
        return State(counter_mode=True, mask=draw(st.integers(0, 3 * lanes)), **switches)
    mask = draw(
        st.one_of(
            st.integers(1, lanes).map(lambda n: (1 << n) - 1),
            st.integers(0, 1 << 30).map(lambda seed: random.Random(seed).getrandbits(lanes)),
            st.integers(0, (1 << lanes) - 1),
            st.just((1 << 128) - 1),
        )
    )
    return State(mask=mask if mask & ((1 << lanes) - 1) else 1, **switches)


@st.composite
def walks(draw: st.DrawFn, *names: str) -> dict[str, int]:
    """Strides of operands and a repeat count."""
    fields = {"repeat": draw(st.integers(0, 4))}
    for name in names:
        dense = draw(st.booleans())
        least = 1 if name == "dst" else 0
        fields[f"{name}_block"] = 1 if dense else draw(st.integers(least, 5))
        fields[f"{name}_repeat"] = 8 if dense else draw(st.integers(0, 40))
    return fields


def run(
    chip: Chip,
    op: Any,
    state: State,
    seed: int,
    expect: Callable[[Cells, Bench], None],
    *,
    register: int = 0,
    compare_mask: int = 0,
    all_written: bool = True,
) -> None:
    """Check an instruction, what it touches, and that the whole buffer is what `expect` makes of it.

    `register` is the content of r3.
    """
    op.check(chip, state)
    bench = Bench(chip, seed)
    bench.core.set_register(3, register)
    bench.core.compare_mask = compare_mask
    for i, name in enumerate(op.roles):
        at = getattr(op, name)
        if at is not None:
            bench.numbers(at.dtype.short, at.address, at.address + 0x4000, seed + i)
    check_touched(bench, op, state, all_written=all_written)
    expected = Cells(bench.memory)
    expect(expected, bench)
    for what, declared, touched in (
        ("reads", op.reads(state), expected.read),
        ("writes", op.writes(state), expected.written),
    ):
        differs = covered(declared, bench.memory.size) != touched
        if all_written or what == "reads":
            assert not differs.any(), f"{op} in {state}: {what} byte {int(np.argmax(differs)):#x} or not"
    bench.core.compare_mask = compare_mask
    op.execute(bench.core, state)
    wrong = np.flatnonzero(np.frombuffer(bytes(expected.data), np.uint8) != bench.memory)
    assert not len(wrong), f"{op} in {state}: byte {int(wrong[0]):#x}"


def on_bits(op: Any, state: State, dtypes: list[str], result: str, compute: Any) -> Callable[..., int]:
    """Turn a computation on numbers into one on bits."""

    def compute_bits(*bits: int) -> int:
        numbers = [exact.decode(b, t) for b, t in zip(bits, dtypes, strict=True)]
        return exact.encode(compute(result, state, *numbers), result)

    return compute_bits
