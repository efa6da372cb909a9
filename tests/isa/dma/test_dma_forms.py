"""The forms pick the instruction and its fields that move what a program names."""

from __future__ import annotations

import numpy as np
import pytest
from movement_bench import GM, L1, UB, Bench

from npusim.errors import OperandError
from npusim.isa.dma import DataCopy, DataCopyPad
from npusim.isa.dma.forms import copy_in, copy_out, nd_to_nz
from npusim.isa.dtype import F16, F32
from npusim.isa.operand import Operand, Tile
from npusim.isa.state import RESET


def tile(space: object, dtype: object, address: int, *shape: int) -> Tile:
    """A tile of a space."""
    return Tile(Operand(space, dtype, address), shape)


@pytest.mark.parametrize(("columns", "kind"), [(16, DataCopy), (13, DataCopyPad)])
def test_a_strided_load_and_store_round_trip(bench: Bench, columns: int, kind: type) -> None:
    values = np.arange(6 * 24, dtype=np.float32).reshape(6, 24)
    bench.poke(GM, 0, values)
    buffer = tile(UB, F32, 32, 6, columns)
    load = copy_in(buffer, Operand(GM, F32, 16), pitch=24)
    store = copy_out(Operand(GM, F32, 16, 1), buffer, pitch=24)
    assert type(load) is type(store) is kind
    bench.run(load)
    bench.run(store)
    assert (
        bench.peek(GM, 0, np.float32, 144, 1).reshape(6, 24)[:, 4 : 4 + columns] == values[:, 4 : 4 + columns]
    ).all()


def test_a_gap_that_is_no_block_needs_padding(bench: Bench) -> None:
    assert type(copy_in(tile(UB, F32, 0, 2, 8), Operand(GM, F32, 0), pitch=9)) is DataCopyPad
    assert type(copy_out(Operand(GM, F32, 0), tile(UB, F32, 0, 2, 8), pitch=9)) is DataCopyPad
    assert type(copy_in(tile(UB, F32, 0, 2, 8), Operand(GM, F32, 0), pitch=16)) is DataCopy


def test_a_dense_tile_is_one_run() -> None:
    load = copy_in(tile(UB, F16, 64, 5, 48), Operand(GM, F16, 0))
    assert load == DataCopy(dst=Operand(UB, F16, 64), src=Operand(GM, F16, 0), block_len=15)
    short = copy_out(Operand(GM, F16, 0), tile(UB, F16, 64, 3))
    assert short == DataCopyPad(dst=Operand(GM, F16, 0), src=Operand(UB, F16, 64), block_len=6)


def test_l1_takes_whole_blocks_only(chip: object) -> None:
    with pytest.raises(OperandError) as caught:
        copy_in(tile(L1, F16, 0, 15), Operand(GM, F16, 0)).check(chip, RESET)
    assert str(caught.value) == "DataCopy: block_len must be 1..65535 blocks of 32 bytes, not 0"


def test_nd_to_nz_makes_columns_of_whole_fractals(bench: Bench) -> None:
    values = np.arange(20 * 50, dtype=np.float16).reshape(20, 50)
    bench.poke(GM, 0, values)
    bench.run(nd_to_nz(Operand(L1, F16, 0), Operand(GM, F16, 6), 20, 40, pitch=50))
    tile_nz = bench.peek(L1, 0, np.float16, 3 * 32 * 16).reshape(3, 32, 16)
    flat = np.concatenate(list(tile_nz), axis=1)
    assert (flat[:20, :40] == values[:, 3:43]).all()
    dense = nd_to_nz(Operand(L1, F16, 0), Operand(GM, F16, 0), 16, 32, height=64)
    assert (dense.src_d_value, dense.dst_c0_stride) == (32, 64)
