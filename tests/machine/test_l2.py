"""The shared cache against a model of sets of bytes, its states at the start, and copies through it."""

from __future__ import annotations

from math import ceil

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from random_programs import TOY, changed

from npusim import Builder, Space, isa, load_chip, program, simulate
from npusim.isa.operand import Access
from npusim.machine.timing.l2 import L2, Fetch
from npusim.program.program import SegmentSpec

GRANULE, ROOM = 16, 6
SMALL = changed(TOY, {"l2.granule_bytes": GRANULE, "l2.size_mib": GRANULE * ROOM / (1 << 20)})
"""A cache of six granules of sixteen bytes."""
SEGMENTS = [
    SegmentSpec("x", isa.U8, (70,), "input"),
    SegmentSpec("y", isa.U8, (33,), "output"),
    SegmentSpec("c", isa.U8, (20,), "constant"),
]


class Sets:
    """The cache as sets of bytes in a list, oldest first; every segment starts at a granule of its own."""

    room = ROOM

    def __init__(self, state):
        self.lines = []
        if state == "dirty":
            self.lines = [[("foreign", i), set(range(GRANULE)), True] for i in range(ROOM)]
        if state == "warm":
            for number, segment in enumerate(SEGMENTS):
                if segment.role != "output":
                    self.touch(number, [(0, segment.nbytes)], False)

    def touch(self, segment, runs, write):
        """Touch bytes in order; return how many hit, missed, and were written back."""
        hit = miss = evicted = 0
        for start, stop in runs:
            for granule in range(start // GRANULE, (stop - 1) // GRANULE + 1):
                asked = {byte for byte in range(start, stop) if byte // GRANULE == granule}
                line = next((line for line in self.lines if line[0] == (segment, granule)), None)
                if line is not None:
                    self.lines.remove(line)
                else:
                    if len(self.lines) == self.room:
                        _, held, dirty = self.lines.pop(0)
                        evicted += len(held) * dirty
                    line = [(segment, granule), set(), False]
                self.lines.append(line)
                known = len(asked & line[1])
                hit += len(asked) if write else known
                miss += 0 if write else len(asked) - known
                line[1] |= asked
                line[2] |= write
        return hit, miss, evicted

    def bypass(self, segment, runs, write):
        """Look bytes up and change nothing; what is written goes to main memory at once."""
        asked = {(segment, byte // GRANULE, byte) for start, stop in runs for byte in range(start, stop)}
        if write:
            return len(asked), 0, len(asked)
        held = {(*key, byte) for key, known, _ in self.lines if key[0] != "foreign" for byte in known}
        return len(asked & held), len(asked - held), 0


@st.composite
def accesses(draw):
    segment = draw(st.integers(0, 2))
    room = SEGMENTS[segment].nbytes
    size = draw(st.integers(1, min(20, room)))
    count, stride = 1, 0
    if draw(st.booleans()):
        stride = draw(st.integers(size, 30))
        count = draw(st.integers(1, max(1, (room - size) // stride + 1)))
    start = draw(st.integers(0, room - size - (count - 1) * stride))
    shape = ((count,), (stride,)) if count > 1 else ((), ())
    return Access(Space.GM, segment, start, size, *shape), draw(st.booleans()), draw(st.integers(0, 3)) == 0


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.sampled_from(["cold", "warm", "dirty"]), st.lists(accesses(), min_size=1, max_size=25))
def test_cache_against_sets_of_bytes(state, sequence):
    cache, sets = L2(SMALL, SEGMENTS, state), Sets(state)
    for access, write, past in sequence:
        runs = access.runs()
        expected = (sets.bypass if past else sets.touch)(access.segment, runs, write)
        assert (cache.bypass if past else cache.access)(access, write=write)[:3] == expected


def rows(segment, start, size, count, stride):
    return Access(Space.GM, segment, start, size, (count,), (stride,))


PACKETS = [
    rows(0, 0, 4, 4, 16),
    rows(0, 4, 4, 4, 16),
    rows(0, 0, 8, 4, 16),
    rows(0, 2, 3, 3, 20),
    rows(1, 0, 3, 3, 11),
    Access(Space.GM, 0, 0, 20),
    Access(Space.GM, 1, 5, 4),
]
STEPS = st.tuples(st.sampled_from(PACKETS), st.integers(0, 9).map(lambda x: x == 0), st.integers(1, 3))


@pytest.mark.parametrize("room", [4, 16])
@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(STEPS, min_size=1, max_size=40))
def test_who_is_waited_for_against_sets_of_bytes(room, sequence):
    """Packets of rows again and again, as products read them, in a cache they fit into and in one they do
    not: what a transfer fetches is waited for until it ends, by whoever hits the granule.
    """
    chip = changed(SMALL, {"l2.size_mib": GRANULE * room / (1 << 20)})
    cache, sets = L2(chip, SEGMENTS, "cold"), Sets("cold")
    sets.room = room
    fetching, ends = {}, {}
    for now, (access, write, lasts) in enumerate(sequence):
        for fetch, end in ends.items():
            if end == now:
                fetch.end(now)
        fetch = Fetch()
        ends[fetch] = now + lasts
        awaited, expected = set(), [0, 0, 0]
        for start, stop in access.runs():
            for granule in range(start // GRANULE, (stop - 1) // GRANULE + 1):
                key, run = (
                    (access.segment, granule),
                    (max(start, granule * GRANULE), min(stop, (granule + 1) * GRANULE)),
                )
                there = next((known for at, known, _ in sets.lines if at == key), set())
                present = len(there & set(range(*run)))
                if not there:
                    fetching.pop(key, None)
                by = fetching.get(key)
                if present and not write and by is not fetch and ends.get(by, -1) >= now:
                    awaited.add(by)
                if present < run[1] - run[0] and not write:
                    fetching[key] = fetch
                expected = [
                    a + b for a, b in zip(expected, sets.touch(access.segment, [run], write), strict=True)
                ]
        touched = cache.access(access, write=write, fetch=fetch, now=now)
        assert [*touched[:3]] == expected
        assert set(touched.awaited) == awaited


# ---- states at the start -----------------------------------------------------------------------------------


def one(size, *, store, role="input"):
    """Return a program that loads an array, or stores it as a whole."""

    @program
    def one(k: Builder) -> None:
        array = k.input("x", (size,), "int8") if role == "input" else k.output("x", (size,), "int8")

        def stream(c):
            tile = isa.Tile(isa.Operand(isa.Space.UB, isa.S8, 0), (size,))
            yield isa.copy_out(array, tile) if store else isa.copy_in(tile, array)

        k.launch("one", vector=stream)

    return one


def timed(maker, chip=TOY, **options):
    return simulate(maker, chip, timing_only=True, **options)


@pytest.mark.parametrize(
    ("l2", "read", "written"), [("cold", 40960, 0), ("warm", 0, 0), ("dirty", 40960, 40960)]
)
def test_a_load_in_every_state(l2, read, written):
    report = timed(one(40960, store=False), l2=l2)
    assert (report.gm.read_bytes, report.gm.write_bytes) == (40960, 0)
    assert (report.gm.hbm_read_bytes, report.gm.hbm_write_bytes) == (read, written)
    assert report.gm.l2_hit_rate == (0 if read else 1)


@pytest.mark.parametrize(("l2", "written"), [("cold", 0), ("warm", 0), ("dirty", 40960)])
def test_a_store_in_every_state(l2, written):
    report = timed(one(40960, store=True, role="output"), l2=l2)
    assert (report.gm.read_bytes, report.gm.write_bytes) == (0, 40960)
    assert (report.gm.hbm_read_bytes, report.gm.hbm_write_bytes) == (0, written)
    assert report.gm.l2_hit_rate == 1


@pytest.mark.parametrize(
    ("buffer", "rate", "expected"),
    [
        (64, 100.0, 640),  # the buffer takes all that is evicted: the port sets the pace
        (40, 1.0, 640),
        (36, 100.0, 640),  # it does not, but main memory is faster than the port
        (8, 32.0, 1024),  # the store waits until what does not fit is gone
        (0, 16.0, 2560),
    ],
)
def test_the_write_back_buffer_hides_evictions_that_fit(buffer, rate, expected):
    chip = changed(TOY, {"l2.writeback_buffer_kib": buffer, "hbm.nominal_gb_per_s": rate})
    report = timed(one(40960, store=True, role="output"), chip, l2="dirty")
    before = TOY.scalar.issue_cycles + TOY.ports.ub_to_gm.issue_cycles
    assert report.total_cycles == before + expected + 100


STORE = TOY.scalar.issue_cycles + TOY.ports.ub_to_gm.issue_cycles


@pytest.mark.parametrize(
    ("sizes", "pause", "expected"),
    [
        (
            [40960, 40960],
            6000,
            STORE + 6000 + TOY.scalar.issue_cycles + 640,
        ),  # the first left in 5,120 cycles
        # 5,120 bytes leave beside the first; of the second 11,264 do not fit
        ([40960, 40960], 0, STORE + 640 + 1408),
        ([20480] * 3, 0, STORE + 3 * 320),
        ([20480] * 4, 0, STORE + 3 * 320 + 1088),  # of the fourth 8,704 do not fit
    ],
)
def test_the_write_back_buffer_holds_what_has_not_left(sizes, pause, expected):
    @program
    def stores(k: Builder) -> None:
        y = k.output("y", (sum(sizes),), "int8")

        def stream(c):
            for number, size in enumerate(sizes):
                tile = isa.Tile(isa.Operand(isa.Space.UB, isa.S8, 0), (size,))
                yield isa.copy_out(y.flat(number * size, size), tile)
                yield isa.ScalarWork(count=pause)

        k.launch("stores", vector=stream)

    chip = changed(TOY, {"hbm.nominal_gb_per_s": 8.0})
    assert timed(stores, chip, l2="dirty").total_cycles == max(expected + 100, len(sizes) * (pause + 1))


def test_a_load_goes_before_what_it_evicts():
    """Dirty lines leave when no load wants main memory; what the buffer cannot hold shares it."""
    before = TOY.scalar.issue_cycles + TOY.ports.gm_to_ub.issue_cycles
    for buffer, cycles in ((0, 1280), (20, 960), (64, 640)):
        chip = changed(TOY, {"l2.writeback_buffer_kib": buffer, "hbm.nominal_gb_per_s": 64.0})
        report = timed(one(40960, store=False), chip, l2="dirty")
        assert report.total_cycles == before + cycles + 200


def test_the_cache_keeps_its_content_between_launches():
    @program
    def twice(k: Builder) -> None:
        x = k.input("x", (40960,), "int8")

        def stream(c):
            return [isa.copy_in(isa.Tile(isa.Operand(isa.Space.UB, isa.S8, 0), (40960,)), x)]

        k.launch("first", vector=stream)
        k.launch("second", vector=stream)

    report = timed(twice)
    assert report.gm.hbm_read_bytes == 40960
    assert [part.cycles for part in report.launches] == [1 + 10 + 640 + 200, 1 + 10 + 640 + 100]


# ---- copies ------------------------------------------------------------------------------------------------

MIB = 1 << 20
DEVICE = load_chip("ascend-910b4")
L2_BYTES = DEVICE.l2.size_mib * MIB


@pytest.mark.parametrize("l2", ["cold", "warm", "dirty"])
@pytest.mark.parametrize("mib", [8, 32, 80])
def test_a_copy_below_and_above_the_size_of_the_cache(mib, l2):
    """In and out together take 16, 64 and 160 MiB of the 96 MiB of the cache."""
    n = mib * MIB
    report = timed("memcopy", DEVICE, n=n, dtype="int8", tile=1 << 16, l2=l2)
    gm = report.gm
    assert (gm.read_bytes, gm.write_bytes, gm.useful_bytes) == (n, n, 2 * n)
    fits = 2 * n <= L2_BYTES
    if l2 != "warm":
        assert gm.hbm_read_bytes == n
    elif fits:
        assert gm.hbm_read_bytes == 0
    else:
        assert 0 < gm.hbm_read_bytes < n
    overflow = max(0, 2 * n - L2_BYTES)
    if l2 == "dirty":
        foreign = min(2 * n, L2_BYTES)
        assert gm.hbm_write_bytes == pytest.approx(foreign + overflow / 2, abs=4 << 16)
    elif l2 == "cold":
        # what leaves is the oldest, in turn a line that was read and one that was written
        assert gm.hbm_write_bytes == pytest.approx(overflow / 2, abs=4 << 16)
    elif fits:
        assert gm.hbm_write_bytes == 0
    else:
        assert 0 <= gm.hbm_write_bytes <= n
    assert gm.l2_hit_rate == pytest.approx(1 - gm.hbm_read_bytes / (2 * n), abs=1e-6)


def test_a_copy_is_faster_the_more_of_it_the_cache_holds():
    cycles = {
        l2: timed("memcopy", DEVICE, n=8 * MIB, dtype="int8", tile=1 << 16, l2=l2).total_cycles
        for l2 in ("cold", "warm", "dirty")
    }
    assert cycles["warm"] <= cycles["cold"] <= cycles["dirty"]
    assert cycles["warm"] < cycles["dirty"]


def test_traffic_of_the_copy_never_exceeds_the_sustained_rate():
    report = timed("memcopy", DEVICE, n=8 * MIB, dtype="int8", tile=1 << 16, l2="dirty")
    moved = report.gm.hbm_read_bytes + report.gm.hbm_write_bytes
    left = DEVICE.l2.writeback_buffer_kib * 1024
    assert report.total_cycles >= ceil((moved - left) / DEVICE.hbm_bytes_per_cycle)


# ---- bytes under way ---------------------------------------------------------------------------------------


def meeting(pause, size):
    """Return a program whose first core loads 40,960 bytes; the second loads some of them a little later."""

    @program
    def meeting(k: Builder) -> None:
        x = k.input("x", (40960,), "int8")

        def stream(c):
            length = size if c.core.number else 40960
            yield isa.ScalarWork(count=pause if c.core.number else 0)
            yield isa.copy_in(isa.Tile(isa.Operand(Space.UB, isa.S8, 0), (length,)), x.flat(0, length))

        k.launch("meeting", vector=stream, blocks=2)

    return meeting


@pytest.mark.parametrize("pause", [0, 1000, 2549, 2569, 4000])
def test_who_hits_bytes_under_way_waits_until_they_are_there(pause):
    """The first core's bytes are there after issue and 2,560 cycles; a hit takes a cycle of its own."""
    report = timed(meeting(pause, 64), changed(TOY, {"hbm.nominal_gb_per_s": 16.0}))
    there = 1 + 10 + 2560
    start = pause + 1 + 10
    assert report.total_cycles == max(there + 200, start + 1 + (100 if start > there else 200))
    assert report.gm.hbm_read_bytes == 40960
    second = report.pipes["core0.vec1.MTE2"]
    assert second.work == 10 + 1
    assert second.link == max(0, there - start - 1)


def test_bytes_beside_those_under_way_are_not_waited_for():
    """The first core's load is long, the second's is of other bytes of the same granule."""

    @program
    def beside(k: Builder) -> None:
        x = k.input("x", (4096 * 10,), "int8")

        def stream(c):
            first = isa.Tile(isa.Operand(Space.UB, isa.S8, 0), (40960 - 64,))
            if c.core.number == 0:
                yield isa.copy_in(first, x.flat(64, first.size))
            else:
                yield isa.ScalarWork(count=50)
                yield isa.copy_in(first.flat(0, 64), x.flat(0, 64))

        k.launch("beside", vector=stream, blocks=2)

    report = timed(beside, changed(TOY, {"hbm.nominal_gb_per_s": 16.0}))
    second = report.pipes["core0.vec1.MTE2"]
    assert second.work + second.link == 10 + 8  # half the rate of main memory
    assert report.gm.hbm_read_bytes == 40960


# ---- past the cache ----------------------------------------------------------------------------------------


def test_a_load_past_the_cache_leaves_nothing_there():
    """Both passes come from main memory; what was there before is taken and stays."""

    @program
    def twice(k: Builder, *, past: bool = True, first: bool = False) -> None:
        x = k.input("x", (40960,), "int8")
        tile = isa.Tile(isa.Operand(Space.UB, isa.S8, 0), (40960,))
        k.launch("first", vector=lambda c: [isa.copy_in(tile, x, l2_bypass=past and not first)])
        k.launch("second", vector=lambda c: [isa.copy_in(tile, x, l2_bypass=past)])

    reads = [timed(twice, past=p, first=f).gm.hbm_read_bytes for p, f in ((False, False), (True, False))]
    assert reads == [40960, 2 * 40960]
    report = timed(twice, past=True, first=True)
    assert report.gm.hbm_read_bytes == 40960
    assert [part.cycles for part in report.launches] == [1 + 10 + 640 + 200, 1 + 10 + 640 + 100]


@pytest.mark.parametrize("buffer", [0, 64])
def test_a_store_past_the_cache_takes_the_rate_of_main_memory(buffer):
    @program
    def stored(k: Builder) -> None:
        y = k.output("y", (40960,), "int8")
        tile = isa.Tile(isa.Operand(Space.UB, isa.S8, 0), (40960,))
        k.launch("stored", vector=lambda c: [isa.copy_out(y, tile, l2_bypass=True)])

    chip = changed(TOY, {"hbm.nominal_gb_per_s": 16.0, "l2.writeback_buffer_kib": buffer})
    report = timed(stored, chip)
    assert report.gm.hbm_write_bytes == 40960
    data = 640 if buffer else 2560  # the write-back buffer takes it
    assert report.total_cycles == STORE + data + 100


def test_loads_past_the_cache_save_what_they_would_push_out():
    """Reads of 768 KiB evict as many dirty bytes, unless they pass the cache by."""
    reports = [
        timed("copy", n=3 << 18, dtype="int8", piece=8192, l2="dirty", l2_bypass=past)
        for past in (False, True)
    ]
    assert [r.gm.hbm_read_bytes for r in reports] == [3 << 18] * 2
    assert reports[0].gm.hbm_write_bytes - reports[1].gm.hbm_write_bytes >= 1 << 18
    assert reports[1].total_cycles < reports[0].total_cycles
