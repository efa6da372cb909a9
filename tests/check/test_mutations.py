"""Shipped programs with one flag or barrier taken out: the checker finds every one that is needed.

A pair of a set and its wait is taken out together, then either of them alone. What may go without harm is
listed here with the reason; a list that names too much fails as well.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from small import TOY

from npusim import simulate
from npusim.errors import DeadlockError, HazardError
from npusim.isa.sync import PipeBarrier, SetFlag, WaitFlag
from npusim.program.core import PIPES
from npusim.program.discover import find_program
from npusim.report.checked import check
from npusim.report.simulate import run

FIRST = "first"
"""The set in front of the loop and the wait it serves: nothing has used the place before."""
LAST = "last"
"""The last set and the wait that clears it: nothing uses the place again, but a single one is an error."""
ENDS = (FIRST, LAST)

PROGRAMS: dict[str, tuple[str, dict[str, Any], dict[str, tuple[str, ...]]]] = {
    "memcopy": (
        "memcopy",
        {"n": 5 * 64 - 8, "tile": 64},
        {"vec0 MTE3->MTE2#0": (LAST,), "vec0 MTE3->MTE2#1": (LAST,)},
    ),
    "memcopy with one tile": (
        "memcopy",
        {"n": 5 * 64 - 8, "tile": 64, "buffers": 1},
        {"vec0 MTE3->MTE2#0": (LAST,)},
    ),
    "scan_u": (
        "scan_u",
        {"n": 2 * 256 + 100, "s": 16},
        {
            # The first also tells MTE2 that the flag forward may be set again.
            "cube0 MTE1->MTE2#0": (LAST,),
            "cube0 M->MTE1#0": ENDS,
            "cube0 FIX->M#0": ENDS,
            "vec0 MTE3->V#0": ENDS,
            # The scalar unit has waited for every row already, so that the barrier orders only the scalar
            # reads before the copy of the next tile; the last tile is short and reaches none that is open.
            "vec0 barrier ALL": ("1", LAST),
        },
    ),
    "scan_ul1": (
        "scan_ul1",
        {"n": 3 * 256 + 100, "s": 16},
        {
            "cube0 MTE1->MTE2#0": (LAST,),
            "cube0 FIX->M#0": ENDS,
            # The same pipes meet at b0_free and acc_free anyway: M is behind the store of C1, MTE1 behind M.
            "cube0 FIX->MTE1#0": ("all",),
            "cube0 MTE1->FIX#0": ("all",),
            # The operand of the third product is loaded behind the second product, so M is behind itself.
            "cube0 barrier M": ("all",),
            # b0_free tells MTE1 of the last use of A0 as well.
            "cube0 M->MTE1#0": ("all",),
            "cube0 M->MTE1#1": ENDS,
            # The scalar unit waits for V in every tile, before it issues the next load and the store.
            "vec0 V->MTE2#0": ("all",),
            "vec0 V->MTE3#0": ("all",),
            # The register that V takes is the one that the scalar unit has read.
            "vec0 S->V#0": ("all",),
            "vec0 MTE3->V#0": ENDS,
        },
    ),
    "cumsum_vec": (
        "cumsum_vec",
        {"n": 2 * 256 + 100, "s": 16},
        {
            "vec0 V->MTE2#0": ("all",),  # a barrier of all pipes ends every tile
            "vec0 MTE3->V#0": ENDS,
            "vec0 barrier ALL": (LAST,),  # the scalar unit has waited for every row
        },
    ),
}


def places(ops: list[Any]) -> Iterator[tuple[str, list[tuple[int, ...]]]]:
    """Return the flags and barriers of a stream by name, each with the positions of its pairs in order."""
    found: dict[str, list[tuple[int, ...]]] = {}
    up: dict[str, int] = {}
    for i, op in enumerate(ops):
        if isinstance(op, SetFlag | WaitFlag):
            name = f"{op.src.name}->{op.dst.name}#{op.id}"
            if isinstance(op, SetFlag):
                up[name] = i
            else:
                found.setdefault(name, []).append((up.pop(name), i))
        elif isinstance(op, PipeBarrier):
            found.setdefault(f"barrier {op.on.name}", []).append((i,))
    assert not up
    yield from found.items()


class Original:
    """A program that is right, and its streams as lists."""

    def __init__(self, name: str) -> None:
        program, self.params, self.redundant = PROGRAMS[name]
        self.maker = find_program(program)
        streams: list[Any] = []
        report = simulate(self.maker, TOY, observe=lambda _, found: streams.extend(found), **self.params)
        assert report.values.ok
        self.ops = {s.core: list(s.ops) for s in streams}

    def refused_without(self, core: Any, positions: tuple[int, ...]) -> bool:
        """Whether the checks refuse the program without some instructions of a core."""
        ops = dict(self.ops)
        ops[core] = [op for i, op in enumerate(ops[core]) if i not in positions]
        try:
            check(self.rebuilt(ops), TOY)
        except (HazardError, DeadlockError):
            return True
        return False

    def rebuilt(self, ops: dict[Any, list[Any]]) -> Any:
        """Return the program with other streams, as lists."""
        built = self.maker.build(TOY, self.params)
        launch = built.launches[0]
        streams = {c: (lambda _, kept=ops[c]: kept, block) for c, (_, block) in launch.streams.items()}
        built.launches[0] = dataclasses.replace(launch, streams=streams)
        return built


@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_that_orders_can_go_unnoticed(name):
    original = Original(name)
    harmless: dict[str, list[str]] = {}
    for core, ops in original.ops.items():
        for flag, pairs in places(ops):
            for number, positions in enumerate(pairs):
                if original.refused_without(core, positions):
                    continue
                key = f"{str(core).partition('.')[2]} {flag}"
                which = {0: FIRST, len(pairs) - 1: LAST}.get(number, str(number))
                harmless.setdefault(key, []).append("all" if len(pairs) == 1 else which)
            if len(harmless.get(key := f"{str(core).partition('.')[2]} {flag}", [])) == len(pairs):
                harmless[key] = ["all"]
    assert {k: tuple(v) for k, v in harmless.items()} == original.redundant


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_half_of_a_flag_can_go_unnoticed(name):
    original = Original(name)
    for core, ops in original.ops.items():
        for flag, pairs in places(ops):
            for positions in pairs:
                if len(positions) == 2:
                    for half in positions:
                        assert original.refused_without(core, (half,)), f"{core} {flag}"


@pytest.mark.parametrize("name", ["memcopy", "scan_u", "scan_ul1", "cumsum_vec"])
def test_a_flag_too_many_changes_no_value(name):
    """A set and its wait of a flag that nobody else uses, anywhere in a stream, between any two pipes."""
    original = Original(name)
    outputs = simulate(original.maker, TOY, **original.params).outputs["y"].tobytes()
    random = np.random.default_rng(len(name))
    for core, ops in original.ops.items():
        pipes = PIPES[core.kind]
        for position in random.integers(0, len(ops) + 1, 6):
            src, dst = (pipes[i] for i in random.permutation(len(pipes))[:2])
            flag = {"src": src, "dst": dst, "id": TOY.flags.ids - 1}
            more = [*ops[:position], SetFlag(**flag), WaitFlag(**flag), *ops[position:]]
            report = run(original.rebuilt({**original.ops, core: more}), TOY)
            assert report.outputs["y"].tobytes() == outputs, f"{core} {position} {flag}"
