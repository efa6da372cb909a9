"""How full buffers and queues are, against spans that are looked up by hand."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.figure import Figure

from npusim import Pipe, Space, isa, program, simulate
from npusim.errors import ConfigError
from npusim.isa.operand import Access
from npusim.plots.occupancy import buffers, queues
from npusim.report.occupancy import _Lives, _mean, load_occupancy, occupancy
from npusim.report.timeline import timeline

SIZE = 4096


@program(name="two")
def two(k, *, twice: bool = False, in_place: bool = False):
    """Load, add to itself, store; the sum in a place of its own that is read once or twice."""
    x, y = k.input("x", (SIZE // 4,), "float32"), k.output("y", (SIZE // 4,), "float32")

    def stream(c):
        a = c.ub(SIZE // 4, isa.F32)
        b = a if in_place else c.ub(SIZE // 4, isa.F32)
        loaded, added = c.flag(Pipe.MTE2, Pipe.V), c.flag(Pipe.V, Pipe.MTE3)
        yield isa.copy_in(a, x)
        yield loaded.set
        yield loaded.wait
        yield from c.vector(isa.Add, count=SIZE // 4, dst=b, src0=a, src1=a)
        yield added.set
        yield added.wait
        yield isa.copy_out(y, b)
        if twice:
            yield isa.copy_out(y, b)

    k.launch("two", vector=stream)


def spans_of(report, lane):
    line = timeline(report)
    chosen = (line.spans.lane == line.lanes.index(lane)) & np.isin(line.spans.cause, (0, 4))
    return line.spans.start[chosen], line.spans.stop[chosen]


@pytest.mark.parametrize("twice", [False, True])
def test_bytes_are_there_from_their_writing_to_their_last_reading(twice):
    report = simulate(two, "toy", twice=twice, timing_only=True, spans=True)
    found = occupancy(report, bins=50)
    (load, _), (start, stop), (_, stored) = (
        spans_of(report, f"core0.vec0.{pipe}") for pipe in ("MTE2", "V", "MTE3")
    )
    filled = SIZE * (stop[-1] - load[0]) + SIZE * (stored[-1] - start[0])
    area = float((found.buffers["core0.vec0.UB"] * np.diff(found.edges)).sum())
    assert area == pytest.approx(filled)
    assert list(found.buffers) == ["core0.vec0.UB"]
    assert found.buffers["core0.vec0.UB"].max() <= 2 * SIZE * (1 + 1e-9)


def test_sums_in_place_stay():
    report = simulate(two, "toy", in_place=True, timing_only=True, spans=True)
    found = occupancy(report, bins=50)
    (load, _), (_, stored) = (spans_of(report, f"core0.vec0.{pipe}") for pipe in ("MTE2", "MTE3"))
    area = float((found.buffers["core0.vec0.UB"] * np.diff(found.edges)).sum())
    assert area == pytest.approx(SIZE * (stored[-1] - load[0]))


def test_instructions_wait_from_their_issue_to_their_work():
    report = simulate(two, "toy", timing_only=True, spans=True)
    found = occupancy(report)
    line = timeline(report)
    scalar = line.lanes.index("core0.vec0.S")
    for pipe in ("MTE2", "V", "MTE3"):
        lane = line.lanes.index(f"core0.vec0.{pipe}")
        number = line.spans.op[(line.spans.lane == lane) & (line.spans.cause == 0)][-1]
        chosen = (line.spans.lane == scalar) & (line.spans.op == number) & (line.spans.cause == 0)
        issued = line.spans.stop[chosen][-1]
        waited = spans_of(report, f"core0.vec0.{pipe}")[0][0] - issued
        area = float((found.queues[f"core0.vec0.{pipe}"] * np.diff(found.edges)).sum())
        assert area == pytest.approx(waited)
    assert found.queues["core0.vec0.V"].max() == pytest.approx(1.0), "the sum waits for the load"


def test_lives_of_blocks():
    life = _Lives(128)
    life.touch(10, True, Access(Space.UB, 0, 0, 64))
    life.touch(20, False, Access(Space.UB, 0, 0, 32))
    life.touch(30, True, Access(Space.UB, 0, 0, 64))  # the second block was never read
    life.touch(40, False, Access(Space.UB, 0, 32, 32))
    since, until, nbytes = life.ended()
    assert sorted(zip(since.tolist(), until.tolist(), nbytes.tolist(), strict=True)) == [
        (10, 20, 32),
        (10, 40, 32),
    ]


def test_means():
    edges = np.array([0.0, 10.0, 20.0])
    assert _mean(np.array([5, 12]), np.array([15, 14]), np.array([2, 10]), edges).tolist() == [1.0, 3.0]
    assert _mean(np.zeros(0), np.zeros(0), np.zeros(0), edges).tolist() == [0.0, 0.0]


def test_never_more_than_fits(tmp_path):
    report = simulate("scan_u", n=20_000, timing_only=True, spans=True)
    found = occupancy(report)
    assert {name.rpartition(".")[2] for name in found.buffers} == {"L1", "L0A", "L0B", "L0C", "UB"}
    for name, values in found.buffers.items():
        assert 0 < values.max() <= found.sizes[name] * (1 + 1e-9)
    for name, values in found.queues.items():
        assert values.max() <= found.depths[name]
    found.save(tmp_path / "a.npz")
    again = load_occupancy(tmp_path / "a.npz")
    assert (again.sizes, again.depths, again.cores) == (found.sizes, found.depths, found.cores)
    for name, values in found.buffers.items():
        np.testing.assert_array_equal(again.buffers[name], values)
    (tmp_path / "b.npz").write_text("{}", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"b\.npz: holds no occupancy of npusim; run the program again$"):
        load_occupancy(tmp_path / "b.npz")


def test_strips():
    found = occupancy(simulate(two, "toy", timing_only=True, spans=True), bins=20)
    above, below = Figure().subplots(2, 1)
    assert buffers(found, above) is above
    assert queues(found, below) is below
    size = found.sizes["core0.vec0.UB"]
    np.testing.assert_allclose(
        np.asarray(above.collections[0].get_array()).ravel(), 100 * found.buffers["core0.vec0.UB"] / size
    )
    peak = 100 * found.buffers["core0.vec0.UB"].max() / size
    assert [t.get_text() for t in above.get_yticklabels()] == [
        f"core0.vec0.UB, ≤ {peak:.3g}% of {size // 1024} KiB"
    ]
    assert above.collections[0].get_clim() == (0, pytest.approx(peak)), "two of 64 KiB are not white"
    assert [t.get_text().split(",")[0] for t in below.get_yticklabels()] == list(found.queues)
    assert above.get_xlabel() == below.get_xlabel() == "time, µs"
    bars = above.get_figure().axes[2:]
    assert [a.get_ylabel() for a in bars] == ["occupied, %", "instructions"]
    assert all(tick == round(tick) for tick in bars[1].get_yticks())  # there is no half instruction


def test_what_was_not_kept():
    with pytest.raises(
        ConfigError, match=r"^occupancy: the run of two kept no spans; simulate it again with"
    ):
        occupancy(simulate(two, "toy", timing_only=True))
    with pytest.raises(ConfigError, match=r"^core0\.vec9: no such core in this run"):
        occupancy(simulate(two, "toy", timing_only=True, spans=True), ["core0.vec9"])


@pytest.mark.parametrize(
    ("share", "top"), [(0.02, 2.0), (0.49, 49.0), (0.5, 100.0), (1.0, 100.0), (0.0, 100.0)]
)
def test_colours_show_what_is_used_where_it_is_little(share, top):
    found = occupancy(simulate(two, "toy", timing_only=True, spans=True), bins=20)
    found.buffers["core0.vec0.UB"] = np.linspace(0, share * found.sizes["core0.vec0.UB"], 20)
    ax = Figure().add_subplot()
    buffers(found, ax)
    assert ax.collections[0].get_clim() == (0, pytest.approx(top))
    assert ax.get_yticklabels()[0].get_text().startswith(f"core0.vec0.UB, ≤ {100 * share:.3g}% of ")
