"""Requests to global memory: rows cut at ranges of addresses, and what ragged rows cost."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npusim import Builder, isa, load_chip, program, simulate
from npusim.isa.dma.movement import requests_of
from npusim.isa.operand import Access, Operand, Space
from npusim.isa.state import RESET

DEVICE = load_chip("ascend-910b1")


def rows_of(access):
    """Start and end of every row, a row that several repetitions name as often as they do."""
    offsets = product(
        *(range(0, c * s or c, s or 1) for c, s in zip(access.counts, access.strides, strict=True))
    )
    return [(access.start + sum(o), access.start + sum(o) + access.size) for o in offsets]


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    start=st.integers(0, 1200),
    size=st.integers(1, 1500),
    repeats=st.lists(st.tuples(st.integers(1, 4), st.integers(1, 1600)), max_size=2),
    whole=st.sampled_from([32, 128, 512]),
    sector=st.sampled_from([32, 128]),
)
def test_rows_are_cut_at_every_range(start, size, repeats, whole, sector):
    counts, strides = zip(*repeats, strict=True) if repeats else ((), ())
    access = Access(Space.GM, 0, start, size, counts, strides)
    count = extra = 0
    for low, high in rows_of(access):
        ranges = {byte // whole for byte in range(low, high)}
        count += len(ranges)
        if low % sector or high % sector:
            extra += len(ranges) * whole - size
    assert requests_of(access, whole, sector) == (count, extra)


@pytest.mark.parametrize("strides", [512, 1024, 24574, 24576])
def test_many_rows_are_counted_as_one_by_one(strides):
    access = Access(Space.GM, 0, 6, 2048, (64,), (strides,))
    alone = [requests_of(Access(Space.GM, 0, low, 2048), 512, 128) for low, _ in rows_of(access)]
    assert requests_of(access, 512, 128) == tuple(map(sum, zip(*alone, strict=True)))


def load(start, size, rows=1, pitch=0):
    """A load of rows of bytes."""
    return isa.DataCopyPad(
        dst=Operand(Space.UB, isa.U8, 0),
        src=Operand(Space.GM, isa.U8, start),
        block_len=size,
        block_count=rows,
        src_gap=pitch - size if rows > 1 else 0,
    )


@pytest.mark.parametrize(
    ("op", "requests", "extra"),
    [
        (load(0, 512), 1, 0),
        (load(0, 128), 1, 0),
        (load(384, 256), 2, 0),
        (load(0, 8192), 16, 0),
        (load(128, 8192), 17, 0),
        (load(0, 4), 1, 508),
        (load(0, 2046), 4, 2),
        (load(24574, 2048), 5, 512),
        (load(0, 128, rows=64, pitch=24576), 64, 0),
        (load(0, 2048, rows=64, pitch=24576), 256, 0),
        # of 64 rows, each 2 bytes further back than the one before, only the first starts at a range
        (load(0, 2048, rows=64, pitch=24574), 4 + 63 * 5, 63 * 512),
    ],
)
def test_the_port_takes_whole_requests(op, requests, extra):
    transfer = op.work(DEVICE, RESET).transfer
    assert transfer.port_cycles == -(-requests * 512 // DEVICE.ports.gm_to_ub.bytes_per_cycle)
    assert transfer.extra == extra


def test_results_leave_in_whole_requests_too():
    """The fixpipe counts elements: 32 a cycle, 256 halves or 128 floats to a request."""
    for dtype, n, cycles in ((isa.F16, 256, 8), (isa.F16, 64, 8), (isa.F32, 128, 4), (isa.F32, 64, 4)):
        target = Operand(Space.GM, dtype, 0)
        op = isa.store_nd(target, Operand(Space.L0C, isa.F32, 0), 16, n, pitch=4096)
        assert op.work(DEVICE, RESET).transfer.port_cycles == 16 * cycles


# ---- in a run ----------------------------------------------------------------------------------------------


@program
def matrix(k: Builder, *, columns: int = 12288, width: int = 1024) -> None:
    """Load 64 rows of a matrix of halves, tile by tile."""
    x = k.input("x", (64, columns), "float16")

    def stream(c):
        tile = c.ub((64, width), isa.F16)
        for at in range(0, columns - width + 1, width):
            yield isa.copy_in(tile, x.flat(at, 1), pitch=columns)

    k.launch("matrix", vector=stream)


def test_rows_that_are_not_aligned_move_the_ranges_they_touch():
    """Rows of 2,048 bytes touch four ranges where they start at one, five elsewhere."""
    slow = load_chip("ascend-910b1", overrides={"hbm.nominal_gb_per_s": 20})
    even = simulate(matrix, slow, timing_only=True)
    ragged = simulate(matrix, slow, timing_only=True, columns=12287, width=1024)
    tiles = 11  # of 1,024 columns; the aligned matrix has one more
    assert even.gm.read_bytes == 12 * 64 * 2048
    assert even.gm.hbm_read_bytes == even.gm.read_bytes
    assert ragged.gm.read_bytes == tiles * 64 * 2048
    assert ragged.gm.hbm_read_bytes == tiles * 64 * 2048 + tiles * 63 * 512
    ratio = (ragged.total_cycles / tiles) / (even.total_cycles / 12)
    assert ratio == pytest.approx(1 + 63 / 64 / 4, abs=0.01)


def test_short_rows_take_the_port_as_long_as_whole_ranges():
    warm = {
        width: simulate(matrix, DEVICE, timing_only=True, columns=1024, width=width, l2="warm").total_cycles
        for width in (64, 256)
    }
    assert warm[64] == pytest.approx(4 * warm[256], rel=0.08)
