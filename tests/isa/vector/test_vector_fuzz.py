"""Any combination of fields is either refused with a reason or runs inside the buffer as declared."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from vector_bench import FEW, Bench, check_touched, states

from npusim.config.chip import Chip
from npusim.errors import OperandError
from npusim.isa.dtype import BY_NAME
from npusim.isa.fields import FieldSpec
from npusim.isa.instruction import REGISTRY
from npusim.isa.operand import Imm, Operand, Space
from npusim.isa.vector.lanes import VectorInstruction

VECTOR = {name: cls for name, cls in REGISTRY.items() if issubclass(cls, VectorInstruction)}
ADDRESSES = st.one_of(
    st.integers(0, 0x300).map(lambda n: 32 * n),
    st.integers(0, 48).map(lambda n: 0x1000 * n),
    st.integers(-8, 0x30008).map(lambda n: n),
)


def value(draw: st.DrawFn, cls: Any, f: FieldSpec) -> Any:
    """Draw a value for a field: often one that is allowed, now and then any."""
    known = sorted(cls.types, key=lambda d: d.code) or list(BY_NAME.values())
    likely = st.sampled_from(known[:1] * 6 + known + list(BY_NAME.values()))
    if f.form == "operand":
        if f.optional and draw(st.booleans()):
            return None
        space = draw(st.sampled_from([Space.UB] * 40 + [Space.L1, Space.GM]))
        return Operand(space, draw(likely), draw(ADDRESSES))
    if f.form == "scalar":
        return Imm(draw(st.integers(0, 40)))
    if f.form == "dtype":
        return draw(likely)
    if f.form == "enum":
        assert f.enum is not None
        return draw(st.sampled_from(list(f.enum)))
    if f.form == "bool":
        return draw(st.booleans())
    if f.form == "ints":
        start, step = draw(ADDRESSES), draw(st.sampled_from([32, 64, 512, -32]))
        return tuple(start + step * i for i in range(draw(st.sampled_from([16] * 9 + [15]))))
    small = st.integers(0, 9)
    return draw(st.one_of(small, small, st.sampled_from([16, 64, 255, 256, 300, 70000, -1])))


def reason(op: Any, chip: Chip, state: Any) -> str:
    """Return why an instruction is refused, or an empty string."""
    try:
        op.check(chip, state)
    except OperandError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("cls", VECTOR.values(), ids=VECTOR)
@FEW
@given(data=st.data(), seed=st.integers(0, 1 << 30), state=states())
def test_fields_are_refused_or_run(cls: Any, chip: Chip, data: st.DataObject, seed: int, state: Any) -> None:
    @st.composite
    def instructions(draw: st.DrawFn) -> Any:
        return cls(**{f.name: value(draw, cls, f) for f in cls.spec})

    op = data.draw(instructions())
    assert cls.decode(op.encode()) == op
    refused = reason(op, chip, state)
    if refused:
        assert refused.startswith(f"{cls.mnemonic}: ")
        return
    assert op.work(chip, state).cycles >= chip.vector.head_cycles
    bench = Bench(chip, seed)
    if cls.mnemonic in ("Gather", "Gatherb"):
        bench.memory[:] = 0  # offsets that are in reach
    check_touched(bench, op, state, all_written=cls.mnemonic not in ("GatherMask", "Gather", "Gatherb"))
