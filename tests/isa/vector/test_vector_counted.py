"""Counter mode: what Copy costs by its elements, and a mask that still holds lane bits."""

from __future__ import annotations

import pytest

from npusim import Operand, Space, isa, load_chip
from npusim.errors import OperandError

COPY = isa.Copy(dst=Operand(Space.UB, isa.F32, 0x10000), src=Operand(Space.UB, isa.F32, 0))
STEPS = 64
COUNTED = isa.State(counter_mode=True, mask=64 * STEPS)


@pytest.mark.parametrize("price", [1, 3, 40])
def test_a_counted_copy_pays_for_every_256_bytes(price):
    chip = load_chip("toy", overrides={"vector.cycles_per_repeat.copy.default": price})
    assert COPY.work(chip, COUNTED).cycles == chip.vector.head_cycles + price * STEPS


def test_lane_bits_are_no_count():
    with pytest.raises(OperandError) as caught:
        COPY.check(load_chip("toy"), isa.State(counter_mode=True))
    assert str(caught.value) == (
        "Copy: counter mode is on and the mask still holds lane bits; set the number of elements with "
        "SetVectorMask"
    )
