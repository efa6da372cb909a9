"""What `npusim plot sweep` draws, against rows that are made by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from matplotlib.figure import Figure

from npusim.errors import ConfigError
from npusim.plots.files import plot_sweep
from npusim.plots.sweep import label, sweep_grid, sweep_plot

S, RATE, L2 = "program.s", "chip.hbm.nominal_gb_per_s", "run.l2"


def rows():
    """Two axes of numbers and one of words; time is 1000 s / rate and half of it where L2 is warm."""
    made = [
        {
            "status": "ok",
            "program": "scan",
            "chip": "toy",
            S: s,
            RATE: rate,
            L2: l2,
            "time_us": 1000 * s / rate / (2 if l2 == "warm" else 1),
            "error": None,
        }
        for s, rate, l2 in itertools.product([64, 16, 32], [400.0, 100.0, 200.0, 800.0], ["cold", "warm"])
    ]
    made[0] |= {"status": "failed", "time_us": None}
    return made


AXES = (S, RATE, L2)


@pytest.fixture
def ax():
    return Figure(figsize=(7, 3)).add_subplot()


def test_most_numbers_along_and_most_change_apart(ax):
    grid = sweep_grid(rows(), AXES)
    assert (grid.x, grid.by, grid.others) == (RATE, S, [L2])
    assert (grid.xs, grid.bys) == ([100.0, 200.0, 400.0, 800.0], [16, 32, 64])
    np.testing.assert_allclose(grid.values, np.outer(grid.bys, 500 / np.array(grid.xs)))
    assert sweep_plot(grid, ax) is ax
    assert [line.get_label() for line in ax.lines] == [f"{S} = {s}" for s in grid.bys]
    for line, values in zip(ax.lines, grid.values, strict=True):
        assert line.get_xdata().tolist() == grid.xs
        assert line.get_ydata().tolist() == values.tolist()
    assert len({(line.get_color(), line.get_marker()) for line in ax.lines}) == 3
    assert ax.get_xlabel() == f"{RATE}, GB/s"
    assert ax.get_ylabel() == "device time, µs"
    assert ax.get_title(loc="left") == "scan on toy\nleast over run.l2"
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")


def test_chosen_axes_and_what_is_not_there(ax):
    cold = [row for row in rows() if row[L2] == "cold"]
    grid = sweep_grid(cold, AXES, x=S, by=RATE)
    assert (grid.others, grid.xs) == ([], [16, 32, 64])
    assert np.isnan(grid.values).tolist() == [[False] * 3, [False] * 3, [False, False, True], [False] * 3]
    sweep_plot(grid, ax)
    assert [len(line.get_xdata()) for line in ax.lines] == [3, 3, 2, 3]


def test_words_stand_side_by_side(ax):
    grid = sweep_grid(rows(), AXES, x=L2, by=S)
    sweep_plot(grid, ax)
    assert [t.get_text() for t in ax.get_xticklabels()] == ["warm", "cold"]
    assert ax.lines[0].get_xdata().tolist() == [0, 1]


def made(values, time):
    """Rows over all combinations of some axes, with a time worked out of them."""
    combined = (dict(zip(values, chosen, strict=True)) for chosen in itertools.product(*values.values()))
    return [{"status": "ok", "program": "p", "chip": "c", **at, "time_us": time(**at)} for at in combined]


def test_an_axis_without_effect_is_said_and_not_drawn(ax):
    """The idle axis has the most values, and the least over it is no least."""
    many = made({"idle": [1, 2, 3, 4, 5], "a": [1, 2, 3], "b": [1, 2]}, lambda idle, a, b: float(10 * a + b))
    grid = sweep_grid(many, ("idle", "a", "b"))
    assert (grid.x, grid.by, grid.others, grid.idle) == ("a", "b", [], ["idle"])
    sweep_plot(grid, ax)
    assert ax.get_title(loc="left") == "p on c\nno effect: idle"
    grid = sweep_grid([row for row in many if row["b"] == 1], ("idle", "a", "b"))
    assert (grid.x, grid.by, grid.others, grid.idle) == ("a", "", [], ["idle"])
    grid = sweep_grid(many, ("idle", "a", "b"), by="idle")
    assert (grid.x, grid.by, grid.others, grid.idle) == ("a", "idle", ["b"], ["idle"]), "where it is named"
    grid = sweep_grid([row for row in many if row["a"] == row["b"] == 1], ("idle", "a", "b"))
    assert (grid.x, grid.by, grid.idle) == ("idle", "", ["idle"]), "where nothing else varies"


def test_axes_that_move_together_act():
    pairs = [
        row for row in made({"a": [1, 2, 3], "b": [1, 2, 3]}, lambda a, b: float(a)) if row["a"] == row["b"]
    ]
    grid = sweep_grid(pairs, ("a", "b"))
    assert (grid.x, grid.by, grid.idle) == ("a", "b", [])


@pytest.mark.parametrize(
    ("xs", "scale", "ticks"),
    [
        ([100.0, 200.0, 400.0, 800.0], "log", ["100", "200", "400", "800"]),
        ([16, 64, 128, 1024], "log", ["16", "64", "128", "1024"]),
        ([*range(100, 1001, 100)], "linear", [str(100 * at) for at in range(1, 11)]),
        ([1.0, 12.0], "linear", ["1", "12"]),
        ([1, 2, 3, 99, 100], "linear", ["1", "100"]),
        ([5], "linear", ["5"]),
    ],
)
def test_a_scale_is_logarithmic_where_steps_are_geometric(ax, xs, scale, ticks):
    grid = sweep_grid(made({"x": xs}, lambda x: float(x)), ("x",))
    sweep_plot(grid, ax)
    assert ax.get_xscale() == scale
    assert [t.get_text() for t in ax.get_xticklabels()] == ticks


@pytest.mark.parametrize("count", [9, 40, 41, 42])
def test_a_map_labels_its_first_and_last_column(ax, count):
    grid = sweep_grid(
        made({"x": [*range(1, count + 1)], "y": [*range(1, 9)]}, lambda x, y: float(x * y)), ("x", "y")
    )
    sweep_plot(grid, ax)
    assert len(ax.collections) == 1
    words = [t.get_text() for t in ax.get_xticklabels()]
    if count == 9:
        assert words == [str(x) for x in range(1, 10)]
    assert (words[0], words[-1]) == ("1", str(count))
    ax.get_figure().draw_without_rendering()
    boxes = [t.get_window_extent() for t in ax.get_xticklabels()]
    assert not any(a.overlaps(b) for a, b in itertools.pairwise(boxes))
    assert ax.get_xticks()[-1] == count - 0.5
    assert [t.get_text() for t in ax.get_yticklabels()] == [str(y) for y in range(1, 9)]


def test_many_values_make_a_map(ax):
    many = [
        {"status": "ok", "program": "p", "chip": "c", "chip.a_ns": a, "chip.b_kib": b, "total_cycles": a * b}
        for a, b in itertools.product(range(1, 21), range(1, 10))
    ]
    grid = sweep_grid(many, ("chip.a_ns", "chip.b_kib"), column="total_cycles")
    sweep_plot(grid, ax)
    (drawn,) = ax.collections
    np.testing.assert_array_equal(
        np.asarray(drawn.get_array()).reshape(9, 20), np.outer(range(1, 10), range(1, 21))
    )
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("chip.a_ns, ns", "chip.b_kib, KiB")
    assert ax.get_figure().axes[1].get_ylabel() == "cycles"


def test_one_axis_has_no_legend(ax):
    grid = sweep_grid([row for row in rows() if row[L2] == "warm" and row[S] == 16], (RATE,))
    assert (grid.by, grid.bys) == ("", [None])
    sweep_plot(grid, ax)
    assert ax.get_legend() is None
    assert ax.lines[0].get_ydata().tolist() == [80.0, 40.0, 20.0, 10.0]


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("chip.ports.gm_to_ub.bytes_per_cycle", "chip.ports.gm_to_ub.bytes_per_cycle, B per cycle"),
        ("gm.hbm_read_bytes", "gm.hbm_read_bytes, bytes"),
        ("program.n", "program.n"),
        ("pipes.MTE2.link", "pipes.MTE2.link, cycles"),
        ("pipes.M.work", "pipes.M.work, cycles"),
        ("pipes.M.instructions", "pipes.M.instructions"),
    ],
)
def test_units(name, wanted):
    assert label(name) == wanted


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"column": "time"}, "plot: no column of numbers time; did you mean time_us?"),
        ({"column": "error"}, "plot: no column of numbers error"),
        ({"x": "program.z"}, "plot: no axis program.z; did you mean program.s?"),
        ({"by": "zzz"}, f"plot: no axis zzz; axes: {S} {RATE} {L2}"),
        ({"x": S, "by": S}, f"plot: {S} is given as both axes; name two"),
    ],
)
def test_what_cannot_be_drawn(options, message):
    with pytest.raises(ConfigError) as error:
        sweep_grid(rows(), AXES, **options)
    assert str(error.value) == message


def test_no_rows_and_no_axes():
    with pytest.raises(ConfigError, match=r"^plot: no row of the sweep ran to right values; look at its"):
        sweep_grid([row | {"status": "wrong"} for row in rows()], AXES)
    with pytest.raises(ConfigError, match=r"^plot: the sweep has no axis to draw over$"):
        sweep_grid(rows(), ())


@pytest.mark.parametrize("width", ["column", "page"])
def test_nothing_overlaps_or_leaves_the_figure(tmp_path, monkeypatch, width):
    """Ticks, labels, title and legend keep clear of each other at the widths of papers."""
    drawn = []
    save = Figure.savefig

    def keep(figure, *args, **options):
        save(figure, *args, **options)
        drawn.append(figure)

    monkeypatch.setattr(Figure, "savefig", keep)
    plot_sweep(rows(), AXES, str(tmp_path / "a.png"), width=width)
    (figure,) = drawn
    figure.draw_without_rendering()  # where things are now, at the resolution of the screen
    (axes,) = figure.axes
    ticks = [t for t in axes.get_xticklabels() if t.get_text()]
    parts = [*ticks, axes.xaxis.label, axes.yaxis.label, figure.legends[0], axes._left_title]
    boxes = [p.get_window_extent() for p in parts]
    for a, b in itertools.combinations(boxes, 2):
        assert not (a.width and b.width and a.overlaps(b))
    width_px, height_px = figure.get_size_inches() * figure.dpi
    assert all(b.x0 >= 0 and b.x1 <= width_px and b.y0 >= 0 and b.y1 <= height_px for b in boxes if b.width)
