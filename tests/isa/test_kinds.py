"""Fields of the wrong kind and numbers that do not fit are refused with the rule and the value."""

from __future__ import annotations

import numpy as np
import pytest

from npusim import Builder, Imm, Operand, Pipe, Reg, Space, isa, program, simulate
from npusim.errors import OperandError


def ub(dtype, address=0):
    return Operand(Space.UB, dtype, address)


@pytest.mark.parametrize(
    ("dtype", "value", "text"),
    [
        (isa.F32, None, "scalar must be a number, a register or an Imm, not None"),
        (isa.F32, "3", "scalar must be a number, a register or an Imm, not '3'"),
        (isa.F32, True, "scalar must be a number, a register or an Imm, not True"),
        (isa.S32, 1.5, "scalar must be a whole number for s32, not 1.5"),
        (isa.S32, float("nan"), "scalar must be a whole number for s32, not nan"),
        (isa.S32, 2**40, "scalar must fit s32, not 1099511627776"),
        (isa.F16, 1e6, "scalar must fit f16, not 1000000.0; give infinity as such"),
    ],
)
def test_numbers_that_do_not_fit(dtype, value, text):
    with pytest.raises(OperandError) as caught:
        isa.Adds(dst=ub(dtype, 0x1000), src=ub(dtype), scalar=value)
    assert str(caught.value) == f"Adds: {text}"


@pytest.mark.parametrize(
    ("dtype", "value", "bits"),
    [
        (isa.F32, 2, 0x40000000),
        (isa.F32, np.float16(0.5), 0x3F000000),
        (isa.F16, float("inf"), 0x7C00),
        (isa.S32, -1, 0xFFFFFFFF),
        (isa.S32, 3.0, 3),
        (isa.S16, np.int64(7), 7),
    ],
)
def test_numbers_that_fit(dtype, value, bits):
    assert isa.Adds(dst=ub(dtype, 0x1000), src=ub(dtype), scalar=value).scalar == Imm(bits)
    assert isa.Adds(dst=ub(dtype, 0x1000), src=ub(dtype), scalar=Reg(3)).scalar == Reg(3)


WRONG = {
    "PipeBarrier: on must be one of Pipe.S Pipe.V Pipe.M Pipe.MTE1 Pipe.MTE2 Pipe.MTE3 Pipe.FIX Pipe.ALL, "
    "not 'ALL'": lambda: isa.PipeBarrier(on="ALL"),
    "SetFlag: id must be a whole number, not 0.5": lambda: isa.SetFlag(src=Pipe.V, dst=Pipe.MTE3, id=0.5),
    "WholeReduceMax: order must be one of ReduceOrder.VALUE_INDEX ReduceOrder.INDEX_VALUE "
    "ReduceOrder.ONLY_VALUE ReduceOrder.ONLY_INDEX, not 'ONLY_VALUE'": lambda: isa.WholeReduceMax(
        dst=ub(isa.F32, 0x1000), src=ub(isa.F32), order="ONLY_VALUE"
    ),
    "Abs: repeat must be a whole number, not 1.5": lambda: isa.Abs(
        dst=ub(isa.F32, 0x1000), src=ub(isa.F32), repeat=1.5
    ),
    "Abs: dst must be a tile or an operand, not None": lambda: isa.Abs(dst=None, src=ub(isa.F32)),
}


@pytest.mark.parametrize("text", WRONG)
def test_fields_of_the_wrong_kind(text):
    @program
    def wrong(k: Builder) -> None:
        k.launch("wrong", vector=lambda c: [WRONG[text]()])

    with pytest.raises(OperandError) as caught:
        simulate(wrong, "toy")
    assert str(caught.value) == f"#0: core0.vec0: {text}"
