"""The data of plots, taken from the axes, against the report and against numbers worked out by hand."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from matplotlib.figure import Figure

from npusim import Pipe, components, simulate
from npusim.config.load import load_chip
from npusim.errors import ConfigError
from npusim.plots.gantt import gantt, gantt_rows, merged
from npusim.plots.pipes import pipe_shares, pipes
from npusim.plots.roofline import roofline
from npusim.plots.roofs import classic_roofline, component_roofline
from npusim.plots.style import CAUSES, check_plot_file, save_figure
from npusim.plots.traffic import bandwidth, hit_rate
from npusim.program.core import CoreKind
from npusim.report.component_model import Component, Part
from npusim.report.components import LATENCY, MEMORY, Components
from npusim.report.rates import rates
from npusim.report.timeline import timeline

CHIP = load_chip("ascend-910b4")


@pytest.fixture(scope="module")
def report():
    return simulate("mcscan", CHIP, n=40_000, cores=2, timing_only=True, spans=True)


@pytest.fixture
def ax():
    return Figure().add_subplot()


LITTLE = (
    "insufficient parallelism: no component is active for 80% of the time, cube MTE-GM most with 50.0%; "
    "the rest is mostly nothing"
)


def found(*, cube=0.0, load=0.0, memory=0.0, cycles=1000, chain=(0, 0)):
    """Return the components of one cube core with given shares of their rates; 8192 op, 77 B per cycle."""
    c = Component(CoreKind.CUBE, Pipe.M, 1, cycles, active_by_core=[round(cube * cycles)])
    c.parts["f16"] = Part(
        "f16", 1, round(8192 * cube * cycles), Fraction(round(cube * cycles)), round(cube * cycles)
    )
    m = Component(CoreKind.CUBE, Pipe.MTE2, 1, cycles, active_by_core=[round(load * cycles)])
    m.parts["gm_to_l1"] = Part(
        "gm_to_l1", 1, round(77 * load * cycles), Fraction(round(load * cycles)), round(load * cycles)
    )
    rate = CHIP.hbm_bytes_per_cycle
    moved = round(memory * rate * cycles)
    return Components(
        "made",
        CHIP.name,
        CHIP.clock_mhz,
        cycles,
        [c, m],
        moved,
        rate,
        chain_cycles=chain[0],
        busiest_cycles=chain[1],
    )


# ---- rooflines ---------------------------------------------------------------------------------------------


def test_every_point_lies_under_its_roofs_as_far_as_it_says(report):
    line = component_roofline(components(report))
    roofs = {r.name: r for r in line.roofs}
    assert {p.compute for p in line.points} == {"cube Cube", "vec Vector"}
    assert len(line.points) == 3 + 2 + 2
    for p in line.points:
        flat, slope = roofs[p.compute].rate, roofs[p.move].rate * p.intensity
        assert p.rate / min(flat, slope) == pytest.approx(p.utilization, rel=1e-9)


def test_roofs_and_points_are_drawn_where_they_are(report, ax):
    line = component_roofline(components(report))
    assert roofline(line, ax) is ax
    by_label = {drawn.get_label().partition("  ")[0]: drawn for drawn in ax.lines}
    for roof in line.roofs:
        x, y = by_label[roof.name].get_data()
        if roof.kind == "compute":
            np.testing.assert_allclose(y, roof.rate)
        else:
            np.testing.assert_allclose(np.asarray(y) / np.asarray(x), roof.rate)
    drawn = [
        (line_.get_xdata()[0], line_.get_ydata()[0]) for line_ in ax.lines if len(line_.get_xdata()) == 1
    ]
    assert drawn == [(p.intensity, p.rate) for p in line.points]
    (left, right), (low, high) = ax.get_xlim(), ax.get_ylim()
    assert all(left < x < right and low < y < high for x, y in drawn)
    assert ax.get_xlabel() == "operations per byte of the path"
    assert ax.get_ylabel() == "10⁹ operations per second"
    assert line.verdict in ax.get_title(loc="left").replace("\n", " ")


@pytest.mark.parametrize(
    ("shares", "chain", "binding", "bound", "verdict"),
    [
        (
            {"cube": 0.9, "load": 0.5, "memory": 0.4},
            (0, 0),
            "cube Cube",
            True,
            "compute bound: cube Cube (f16), 90.0% of its roof, 80% or more",
        ),
        (
            {"cube": 0.3, "load": 0.5, "memory": 0.85},
            (0, 0),
            MEMORY,
            True,
            "bound by main memory: 85% of its roof, 80% or more",
        ),
        (
            {"cube": 0.3, "load": 0.5, "memory": 0.6},
            (590, 400),
            MEMORY,
            False,
            "nearest roof: main memory, 60%; " + LITTLE,
        ),
        (
            {"cube": 0.3, "load": 0.5, "memory": 0.6},
            (610, 400),
            LATENCY,
            False,
            "latency binds: the longest chain of dependent steps takes 61% of the time; " + LITTLE,
        ),
        (
            {"cube": 0.3, "load": 0.5, "memory": 0.6},
            (1000, 800),  # the chain is the work of one pipe, which has a roof of its own
            MEMORY,
            False,
            "nearest roof: main memory, 60%; " + LITTLE,
        ),
    ],
)
def test_the_roof_that_binds(ax, shares, chain, binding, bound, verdict):
    line = component_roofline(found(**shares, chain=chain))
    assert (line.binding, line.bound, line.verdict) == (binding, bound, verdict)
    roofline(line, ax)
    thick = [d.get_label() for d in ax.lines if d.get_linewidth() > 2]
    assert [label.partition("  ")[0] for label in thick] == ([] if binding == LATENCY else [binding])
    assert all(label.endswith(f"reached  ← {'binds' if bound else 'nearest'}") for label in thick)
    assert [t.get_text() for t in ax.texts] == (["latency binds, not a roof"] if binding == LATENCY else [])


@pytest.mark.parametrize(
    ("cube", "memory", "bound", "verdict"),
    [
        (0.9, 0.79, False, "below 80% of every roof: latency bound; nearest is main memory, 79%"),
        (0.9, 0.81, True, "bound by main memory, 81% reached"),
    ],
)
def test_the_classic_roofs_are_those_of_the_whole_chip(cube, memory, bound, verdict):
    """One core of twenty at 90 % is far below the roof of all."""
    line = classic_roofline([(found(cube=cube, load=0.5, memory=memory), CHIP)])
    assert {r.name: r.rate for r in line.roofs} == {
        "cube": pytest.approx(20 * 8192 * 1.5),
        MEMORY: pytest.approx(640.0),
    }
    (point,) = line.points
    assert point.rate == pytest.approx(0.9 * 8192 * 1.5)
    assert point.intensity == pytest.approx(0.9 * 8192 / (memory * 640 / 1.5), rel=1e-3)
    assert (line.binding, line.bound, line.verdict) == (MEMORY, bound, verdict)


def test_latency_in_the_classic_view_is_said_once(ax):
    line = classic_roofline([(found(cube=0.3, load=0.5, memory=0.6, chain=(610, 400)), CHIP)])
    assert line.verdict == (
        "below 80% of every roof: latency bound; the longest chain of dependent steps takes 61% of the time"
    )
    roofline(line, ax)
    assert [t.get_text() for t in ax.texts] == ["latency binds, not a roof"]


def test_classic_roofs_of_several_runs_name_the_points(ax):
    a, b = found(cube=0.5, load=0.5, memory=0.4), found(cube=0.2, load=0.2, memory=0.9)
    b.program = "other"
    line = classic_roofline([(a, CHIP), (b, CHIP)])
    assert [p.run for p in line.points] == ["made", "other"]
    assert (line.binding, line.bound) == ("", False)
    assert line.verdict == "made: latency bound, nearest main memory 40%; other: bound by main memory, 90%"
    assert [(r.name, r.runs, r.shared) for r in line.roofs] == [("cube", (), True), (MEMORY, (), True)]
    roofline(line, ax)
    assert [t.get_text() for t in ax.texts] == ["made", "other"]
    with pytest.raises(ValueError, match=r"^the runs of one roofline are of one chip$"):
        classic_roofline([(a, CHIP), (b, load_chip("toy"))])


def test_every_run_has_the_classic_roofs_of_its_own_mix_and_chip(ax):
    """A mix of int8 is twice as fast as float16; half the sustained rate halves the roof of main memory."""
    half, slow = (
        load_chip("ascend-910b4", overrides=numbers)
        for numbers in ({"hbm.sustained_fraction": 0.4}, {"clock_mhz": 750})
    )
    a, b, c, d = (found(cube=cube, load=0.5, memory=0.4) for cube in (0.5, 0.8, 0.2, 0.4))
    b.found[0].parts["f16"].ideal /= 2  # the same operations in half the time
    d.clock_mhz = 750
    runs = [(a, CHIP), (b, CHIP), (c, half), (d, slow)]
    line = classic_roofline(runs, ["a", "b", "c", "d"])
    cube, whole = 20 * 8192 * 1.5, 1 / 20
    assert [(r.name, r.runs, r.shared) for r in line.roofs] == [
        ("cube", ("a", "c"), True),
        ("cube", ("b",), False),
        ("cube", ("d",), False),
        (MEMORY, ("a", "b", "d"), True),
        (MEMORY, ("c",), False),
    ]
    assert [r.rate for r in line.roofs] == pytest.approx([cube, 2 * cube, cube / 2, 640, 320])
    assert [r.utilization for r in line.roofs[:3]] == pytest.approx([0.5 * whole, 0.4 * whole, 0.4 * whole])
    for point, names in zip(line.points, "abcd", strict=True):
        (roof,) = (r for r in line.roofs if r.name == "cube" and names in r.runs)
        assert point.rate / roof.rate <= roof.utilization * (1 + 1e-9), "reached of a roof that is drawn"
    roofline(line, ax)
    drawn = {d.get_label(): d for d in ax.lines if len(d.get_xdata()) == 2}
    assert list(drawn) == [
        "cube of a, c  245,760 Gop/s, up to 2% reached",
        "cube of b  491,520 Gop/s, 2% reached",
        "cube of d  122,880 Gop/s, 2% reached",
        "main memory of a, b, d  640 GB/s, up to 40% reached",
        "main memory of c  320 GB/s, 40% reached",
    ]
    for roof, (label, shown) in zip(line.roofs, drawn.items(), strict=True):
        x, y = (np.asarray(v) for v in shown.get_data())
        np.testing.assert_allclose(y if roof.kind == "compute" else y / x, roof.rate, err_msg=label)
    assert len({(d.get_color(), str(d._dash_pattern)) for d in drawn.values()}) == len(drawn)


def test_runs_of_one_program_have_names_of_their_own():
    a, b = found(cube=0.5, load=0.5, memory=0.4), found(cube=0.4, load=0.5, memory=0.4)
    assert [p.run for p in classic_roofline([(a, CHIP), (b, CHIP)]).points] == ["made 1", "made 2"]


@pytest.mark.parametrize("count", [2, 6])
def test_names_of_points_that_lie_together_do_not_overlap(count):
    ax = Figure(figsize=(7, 4)).add_subplot()
    runs = [(found(cube=0.5 + at / 100, load=0.5, memory=0.4), CHIP) for at in range(count)]
    roofline(classic_roofline(runs, [f"a long name {at}" for at in range(count)]), ax)
    boxes = [text.get_window_extent() for text in ax.texts]
    assert len(boxes) == count
    assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))
    edge = ax.get_window_extent()
    assert all(edge.x0 <= box.x0 and box.x1 <= edge.x1 for box in boxes)


@pytest.mark.parametrize(
    ("name", "params", "numbers", "binding", "classic"),
    [
        # per core the rate of main memory of the whole chip, and more data than L2 holds
        (
            "mcscan",
            {"n": 600_000, "cores": 2},
            {"cores.cube": 2, "hbm.nominal_gb_per_s": 80, "l2.size_mib": 1},
            MEMORY,
            MEMORY,
        ),
        ("scan_u", {"n": 20_000}, {}, LATENCY, LATENCY),
        # products of float16 wait for their operands on the way from L2: 384 * 64 values at 77 B per cycle
        # take longer than 128 * 256 * 64 products at 4096 per cycle; in the classic view that is the cube
        (
            "gemm",
            {"m": 512, "n": 512, "k": 1024},
            {"cores.cube": 4},
            "cube MTE-GM",
            "cube",
        ),
        (
            "gemm",
            {"m": 256, "n": 512, "k": 512, "dtype": "float32"},
            {"cores.cube": 4},
            "cube Cube",
            "cube",
        ),
    ],
)
def test_what_binds_the_programs_that_everybody_asks_about(name, params, numbers, binding, classic):
    chip = load_chip("ascend-910b4", overrides=numbers)
    parts = components(simulate(name, chip, timing_only=True, spans=True, **params))
    assert component_roofline(parts).binding == parts.binding.name == binding
    assert classic_roofline([(parts, chip)]).binding == classic


# ---- pipes -------------------------------------------------------------------------------------------------


def test_pipes_stack_to_all_of_the_time(report, ax):
    shares = pipe_shares(report)
    assert list(shares)[:2] == ["2 cube cores S", "2 cube cores M"]
    assert "2 cube cores MTE3" not in shares, "a pipe without an instruction has no bar"
    for share in shares.values():
        assert sum(share.values()) == pytest.approx(100)
    mean = sum(report.pipes[f"core{i}.cube0.M"].work for i in range(2)) / 2
    assert shares["2 cube cores M"]["work"] == pytest.approx(100 * mean / report.total_cycles)
    assert pipes(report, ax) is ax
    drawn = {bars.get_label(): [b.get_width() for b in bars] for bars in ax.containers}
    for cause, widths in drawn.items():
        assert widths == pytest.approx([s[cause.replace(" ", "_")] for s in shares.values()])
    assert [t.get_text() for t in ax.get_yticklabels()] == list(shares)
    assert ax.get_xlabel() == f"percent of {report.total_cycles:,} cycles"


def test_pipes_of_single_cores(report):
    shares = pipe_shares(report, ["core1.vec0"])
    assert list(shares) == ["core1.vec0.S", "core1.vec0.V", "core1.vec0.MTE2", "core1.vec0.MTE3"]
    part = report.pipes["core1.vec0.V"]
    assert shares["core1.vec0.V"]["flag"] == pytest.approx(100 * part.flag / report.total_cycles)
    with pytest.raises(ConfigError) as error:
        pipe_shares(report, ["core1.vec9"])
    assert str(error.value) == "core1.vec9: no such core in this run; did you mean core1.vec1?"


# ---- gantt -------------------------------------------------------------------------------------------------


def test_gantt_shows_the_work_of_every_pipe(report, ax):
    line = timeline(report)
    rows = gantt_rows(line, ["core0.vec0"])
    for lane, causes in rows.items():
        drawn = int((causes["work"][:, 1] - causes["work"][:, 0]).sum())
        assert report.pipes[lane].work <= drawn <= report.pipes[lane].work + report.total_cycles // 20
        for intervals in causes.values():
            assert (intervals[:, 0] < intervals[:, 1]).all()
            assert (intervals[1:, 0] >= intervals[:-1, 1]).all()
    assert gantt(line, ax, cores=["core0.vec0"]) is ax
    assert [t.get_text() for t in ax.get_yticklabels()] == list(rows)
    assert ax.get_xlabel() == "time, µs"
    assert ax.get_xlim() == (0, report.total_cycles / report.clock_mhz)


def test_gantt_without_merging_is_exact(report):
    line = timeline(report)
    middle = report.total_cycles // 2
    spans = line.spans
    rows = gantt_rows(line, ["core0.vec0"], (middle, middle + 1500))
    number = line.lanes.index("core0.vec0.V")
    chosen = (spans.lane == number) & (spans.cause == 0)
    busy = sum(
        max(0, min(b, middle + 1500) - max(a, middle))
        for a, b in zip(spans.start[chosen].tolist(), spans.stop[chosen].tolist(), strict=True)
    )
    row = rows.get("core0.vec0.V", {"work": np.zeros((0, 2))})["work"]
    assert int((row[:, 1] - row[:, 0]).sum()) == busy


def test_merged_joins_what_nearly_touches():
    start, stop = np.array([0, 10, 13, 30]), np.array([10, 12, 20, 31])
    assert merged(start, stop, 1).tolist() == [[0, 12], [13, 20], [30, 31]]
    assert merged(start, stop, 2).tolist() == [[0, 20], [30, 31]]
    assert merged(start[:0], stop[:0], 2).tolist() == []


@pytest.mark.parametrize("window", [(5, 5), (7, 3), (-1, 4), (10**9, 10**9 + 1)])
def test_a_window_outside_of_the_run(report, window):
    with pytest.raises(ConfigError) as error:
        gantt_rows(timeline(report), (), window)
    assert str(error.value) == (
        f"window: must lie in the {report.total_cycles:,} cycles of the run and not be empty, "
        f"not {window[0]:,} to {window[1]:,}"
    )


# ---- traffic -----------------------------------------------------------------------------------------------


def test_bandwidth_adds_up_to_the_traffic(report, ax):
    line = timeline(report)
    assert bandwidth(line, ax, bins=37) is ax
    moved = {}
    for patch in ax.patches:
        values, edges, _ = patch.get_data()
        moved[patch.get_label()] = float((values * 1e9 * np.diff(edges) * 1e-6).sum())
    gm = report.gm
    assert moved["L2 to cores"] == pytest.approx(gm.read_bytes)
    assert moved["cores to L2"] == pytest.approx(gm.write_bytes)
    assert moved["main memory to L2"] == pytest.approx(gm.hbm_read_bytes)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("time, µs", "GB/s")
    assert ax.lines[0].get_ydata()[0] == pytest.approx(640.0)


def test_what_main_memory_sustains_is_a_line_where_traffic_comes_near(report, ax):
    most = 1.5 * max(rates(timeline(report), 200).read.max(), rates(timeline(report), 200).write.max())
    for limit in (most, 1.9 * most / 1.5):
        ax.clear()
        bandwidth(replace(timeline(report), hbm_bytes_per_cycle=limit / 1.5), ax)
        (line,) = ax.lines
        assert line.get_ydata()[0] == pytest.approx(limit)
        assert line.get_label() == f"main memory sustains {limit:,.4g}"
        assert ax.get_ylim()[1] > limit
    ax.clear()
    bandwidth(replace(timeline(report), hbm_bytes_per_cycle=100 * most / 1.5), ax)
    (line,) = ax.lines
    assert line.get_label() == f"main memory sustains {100 * most:,.4g}"
    assert len(line.get_xdata()) == 0, "words without a line"
    assert most < ax.get_ylim()[1] < 2 * most, "the scale is that of the data"


def test_hit_rate_is_a_share(report, ax):
    hit_rate(timeline(report), ax)
    values = ax.patches[0].get_data()[0]
    known = values[~np.isnan(values)]
    assert 0 <= known.min() <= known.max() <= 100 + 1e-6
    assert ax.get_ylabel() == "L2 hits, %"


# ---- style and files ---------------------------------------------------------------------------------------


def _seen(colour, matrix):
    rgb = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.array(matrix) @ rgb


@pytest.mark.parametrize(
    "matrix",
    [
        [[0.567, 0.433, 0], [0.558, 0.442, 0], [0, 0.242, 0.758]],  # protanopia
        [[0.625, 0.375, 0], [0.7, 0.3, 0], [0, 0.3, 0.7]],  # deuteranopia
        [[0.95, 0.05, 0], [0, 0.433, 0.567], [0, 0.475, 0.525]],  # tritanopia
    ],
)
def test_causes_differ_in_colour_or_hatching_for_everybody(matrix):
    """Simulated as commonly approximated by one matrix for each kind of colour blindness."""
    for (a, hatch_a), (b, hatch_b) in itertools.combinations(CAUSES.values(), 2):
        distance = np.abs(_seen(a, matrix) - _seen(b, matrix)).max()
        assert distance > 0.1 or hatch_a != hatch_b, (a, b)


def test_a_figure_is_written_in_its_size(tmp_path):
    from matplotlib.image import imread

    save_figure(lambda figure: None, tmp_path / "a.png", width=3.4, height=2)
    assert imread(tmp_path / "a.png").shape[:2] == (400, 680)
    with pytest.raises(ConfigError, match=r": the plot cannot be written: "):
        save_figure(lambda figure: None, tmp_path / "no" / "a.png", width=3.4, height=2)


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("", "'': end the name of a plot in .png, .svg or .pdf"),
        ("a.txt", "a.txt: end the name of a plot in .png, .svg or .pdf"),
        ("no/a.png", "no/a.png: there is no folder no; make it first"),
    ],
)
def test_a_name_that_no_plot_can_have(tmp_path, monkeypatch, file, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as error:
        check_plot_file(file)
    assert str(error.value) == message
