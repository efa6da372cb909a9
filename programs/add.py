"""Addition of two arrays on all vector cores, as the vendor's tuning sample steps through it (asc-devkit
add_high_performance).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

import numpy as np
from pydantic import NonNegativeInt, PositiveInt

from npusim import Builder, Chip, Expected, Kernel, Pipe, isa, program
from npusim.errors import ConfigError
from npusim.units import align_up, grouped

from ._prefix_sum import saturated
from ._share import elements_of, shares, vector_cores


@program
def add(
    k: Builder,
    *,
    n: PositiveInt = 1 << 20,
    dtype: Literal["float16", "float32"] = "float16",
    piece: PositiveInt = 32512,
    buffers: Literal[1, 2] = 2,
    place: Literal["free", "packed"] = "free",
    cores: NonNegativeInt = 0,
    l2_bypass: bool = False,
) -> None:
    """Add two arrays of n elements on all vector cores, or on `cores` of them.

    A core takes pieces of `piece` bytes of each array with `buffers` pieces under way. `place=packed` lays
    the pieces one behind the other in the unified buffer, where both sources of a repeat may lie in the same
    bank groups; `place=free` puts them half the groups apart and the results into a bank of their own. Sums
    are rounded once; those of halves saturate, and NaN becomes zero. With `l2_bypass` the loads do not
    stay in L2.
    """
    x, y = k.input("x", (n,), dtype, _numbers(n, dtype)), k.input("y", (n,), dtype, _numbers(n, dtype))
    z = k.output("z", (n,), dtype)
    count = elements_of("add", piece, x.dtype.size)
    parts = shares(n, x.dtype.size, vector_cores(k.chip, "add", cores))
    spots = _places(k.chip, piece, buffers, free=place == "free")

    def stream(c: Kernel) -> Iterator[isa.Instruction]:
        part = parts[c.block]

        def tiles(addresses: list[int]) -> list[isa.Tile]:
            return [isa.Tile(isa.Operand(isa.Space.UB, x.dtype, at), (count,)) for at in addresses]

        lefts, rights = tiles(spots.x), tiles(spots.y)
        loads = c.queue(Pipe.MTE2, Pipe.V, lefts)
        stores = c.queue(Pipe.V, Pipe.MTE3, tiles(spots.z))
        for number, start in enumerate(range(part.start, part.stop, count)):
            length = min(count, part.stop - start)
            right = rights[number % buffers]
            left = yield from loads.alloc()
            yield isa.copy_in(left.flat(0, length), x.flat(start, length), l2_bypass=l2_bypass)
            yield isa.copy_in(right.flat(0, length), y.flat(start, length), l2_bypass=l2_bypass)
            yield from loads.enque()
            left = yield from loads.deque()
            result = yield from stores.alloc()
            yield from c.vector(isa.Add, count=length, dst=result, src0=left, src1=right)
            yield from loads.free()
            yield from stores.enque()
            result = yield from stores.deque()
            yield isa.copy_out(z.flat(start, length), result.flat(0, length))
            yield from stores.free()

    k.launch("add", vector=stream, blocks=len(parts))

    @k.reference
    def expected(inputs: Mapping[str, np.ndarray]) -> dict[str, Expected]:
        with np.errstate(over="ignore", invalid="ignore"):
            sums = (inputs["x"].astype(np.float64) + inputs["y"]).astype(dtype)
        return {"z": Expected(saturated(sums) if dtype == "float16" else sums)}


class Places(NamedTuple):
    """Byte addresses in the unified buffer, one of each array for every buffer."""

    x: list[int]
    y: list[int]
    z: list[int]


def _places(chip: Chip, piece: int, buffers: int, *, free: bool) -> Places:
    """Lay out the pieces; raise `ConfigError` where they do not fit."""
    banks = chip.vector.banks
    period = 32 * banks.groups
    if free:
        second = align_up(piece, period) + period // 2
        second -= period if second - period >= piece else 0
        pair = align_up(second + piece, period)
        x = [i * pair for i in range(buffers)]
        y = [at + second for at in x]
        first = align_up(y[-1] + piece, 1 << banks.bank_low_bit)
        z = [first + i * align_up(piece, period) for i in range(buffers)]
    else:
        x = [3 * i * piece for i in range(buffers)]
        y, z = [at + piece for at in x], [at + 2 * piece for at in x]
    room = chip.capacity_bytes("ub")
    if z[-1] + piece > room:
        raise ConfigError(
            f"add: {3 * buffers} pieces of {grouped(piece)} bytes take {grouped(z[-1] + piece)} bytes of the "
            f"{grouped(room)} of ub on {chip.name} with place={'free' if free else 'packed'}; use a smaller "
            "piece"
        )
    return Places(x, y, z)


def _numbers(n: int, dtype: str) -> object:
    return lambda generator: generator.standard_normal(n).astype(dtype)


@add.from_inputs
def _sizes(inputs: Mapping[str, np.ndarray]) -> dict[str, object]:
    for name in ("x", "y"):
        if name in inputs:
            return {"n": inputs[name].size, "dtype": inputs[name].dtype.name}
    return {}
