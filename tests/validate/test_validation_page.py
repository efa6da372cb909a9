"""The trust page is what the kept results say, and the kept results are what the simulator says now."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import npusim
from npusim.errors import ConfigError
from npusim.validation.measure import run_cases
from npusim.validation.page import END, START, groups_table, page_text, shipped_validation
from npusim.validation.plot import plot_errors, plot_times, plot_values, save_plot
from npusim.validation.results import read_results, results_csv, write_folder
from npusim.validation.rows import read_published
from npusim.validation.score import score_row
from npusim.validation.validate import Validation, validate

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "validation" / "results.csv"
CHEAP = 30_000
"""Instructions of a row that is run again here."""
PUBLISHED = read_published()
AGAIN = "npusim validate -j 2 -o validation && python -m npusim.validation.page > docs/trust.md"


@pytest.fixture(scope="module")
def kept():
    return shipped_validation()


def test_the_page_is_what_the_results_say(kept):
    assert ROOT.joinpath("docs", "trust.md").read_text(encoding="utf-8") == page_text(kept), AGAIN


def test_the_readme_shows_the_table_of_the_groups(kept):
    readme = ROOT.joinpath("README.md").read_text(encoding="utf-8")
    if START not in readme:
        pytest.skip("the README shows no table of groups")
    shown = START + readme.partition(START)[2].partition(END)[0] + END
    assert shown == groups_table(kept), AGAIN


def test_the_results_are_those_of_the_rows(kept):
    """Every row that is run has its result, with the published value it has now, and none failed."""
    ran = {r.id for r in kept.results}
    wanted = [r.id for r in PUBLISHED.rows if r.scored != "skip" or r.id in ran]
    assert [r.id for r in kept.results] == wanted, AGAIN
    assert results_csv(kept.results) == RESULTS.read_text(encoding="utf-8"), AGAIN
    assert [r.id for r in kept.results if r.failure] == []


def cheapest():
    """Return the result of every group that takes the fewest instructions, where they are few."""
    found = {}
    for result in read_results(RESULTS, PUBLISHED):
        best = found.get(result.group)
        if result.instructions <= CHEAP and (best is None or result.instructions < best.instructions):
            found[result.group] = result
    return list(found.values())


def test_the_results_are_those_of_the_simulator():
    """A cheap row of every group again, to the last digit; a change of the model or a chip shows here."""
    some = cheapest()
    assert len(some) > 8
    rows = {row.id: row for row in PUBLISHED.rows}
    groups = {group.name: group for group in PUBLISHED.groups}
    outcomes = run_cases([rows[r.id] for r in some])
    now = [score_row(rows[r.id], groups[r.group], outcomes) for r in some]
    assert results_csv(now) == results_csv(some), AGAIN


def test_every_group_meets_its_target_or_says_what_is_missing(kept):
    assert [s.name for s in kept.scores if s.verdict in ("miss", "failed", "not run")] == []
    assert kept.ok


# ---- a folder ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def launch():
    return validate("launch_310")


def test_it_is_public():
    assert npusim.validate is validate
    assert npusim.Validation is Validation


def test_a_folder_is_written_and_read(tmp_path, launch):
    folder = tmp_path / "a" / "b"
    write_folder(launch, folder)
    assert sorted(f.name for f in folder.iterdir()) == ["page.md", "results.csv", "results.json"]
    assert read_results(folder / "results.csv", PUBLISHED) == launch.results
    assert folder.joinpath("results.json").read_text(encoding="utf-8") == launch.to_json()
    page = folder.joinpath("page.md").read_text(encoding="utf-8")
    assert "| launch_310: kernel launch of the 310 | 1 | 1 |" in page
    assert "npusim run launch_empty -c ascend-310 --l2 cold --timing-only" in page
    assert "paths_310" not in page


def test_other_groups_are_kept_where_wanted(tmp_path, launch):
    write_folder(validate("unit"), tmp_path)
    write_folder(launch, tmp_path, keep=True)
    ids = [r.id for r in read_results(tmp_path / "results.csv", PUBLISHED)]
    assert "mmad-8x128x256x64" in ids
    assert ids[-1] == "launch-one-core"
    write_folder(launch, tmp_path)
    assert [r.id for r in read_results(tmp_path / "results.csv", PUBLISHED)] == ["launch-one-core"]


def test_a_published_value_that_changed_counts_at_once(tmp_path):
    """Results hold what was simulated; what was published is read from the rows."""
    text = RESULTS.read_text(encoding="utf-8").splitlines()
    line = next(line for line in text if line.startswith("mmad-8x128x256x64,"))
    table = tmp_path / "results.csv"
    table.write_text(f"{text[0]}\n{line.replace('4209', '1', 1)}\n", encoding="utf-8")
    (result,) = read_results(table, PUBLISHED)
    assert result.measured == 4209


@pytest.mark.parametrize("text", ["id,measured\nx,1\n", "\x00", "simulated\nx,y\n"])
def test_results_that_are_none(tmp_path, text):
    table = tmp_path / "results.csv"
    table.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        read_results(table, PUBLISHED)
    assert str(caught.value).startswith(f"{table}:")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_results(tmp_path / "none.csv", PUBLISHED)


# ---- plots -------------------------------------------------------------------------------------------------


def test_plots_draw_every_row_that_is_a_time(kept):
    from matplotlib.figure import Figure

    times, errors = Figure().subplots(2, 1)
    assert plot_times(kept, times) is times
    assert plot_errors(kept, errors) is errors
    shown = sum(len(c.get_offsets()) for c in times.collections)
    assert shown == sum(r.measured_us is not None for r in kept.results)
    assert times.get_xscale() == times.get_yscale() == errors.get_xscale() == "log"
    looks = {(c.get_facecolor().tobytes(), c.get_paths()[0].vertices.tobytes()) for c in times.collections}
    assert len({c.get_label() for c in times.collections}) == len(times.collections) == len(looks)
    assert (times.get_xlabel(), times.get_ylabel()) == ("measured, µs", "simulated, µs")


def test_a_plot_is_written_or_refused(tmp_path, launch):
    save_plot(launch, str(tmp_path / "x.svg"))
    assert "<svg" in tmp_path.joinpath("x.svg").read_text(encoding="utf-8")
    with pytest.raises(ConfigError, match=r"x\.zzz: end the name of a plot in \.png, \.svg or \.pdf$"):
        save_plot(launch, str(tmp_path / "x.zzz"))
    with pytest.raises(ConfigError, match=r"/no/x\.png: there is no folder .*/no; make it first$"):
        save_plot(launch, str(tmp_path / "no" / "x.png"))


def test_rows_that_are_no_times_are_drawn_in_their_unit(kept, tmp_path):
    from matplotlib.figure import Figure

    unit = next(g for g in kept.groups if g.name == "unit")
    rows = kept.of("unit")
    assert {r.unit for r in rows} == {"cycles", "GB/s"}
    assert all(r.measured_us is None for r in rows)
    above, below = Figure().subplots(2, 1)
    found = Validation((), (unit,), kept.rows, rows, ())
    plot_values(found, above)
    plot_errors(found, below, times=False)
    (drawn,) = above.collections
    assert drawn.get_offsets().tolist() == [[r.measured, r.simulated] for r in rows]
    assert drawn.get_label() == "unit: cycles, GB/s"
    errors = [c.get_offsets().tolist() for c in below.collections]
    assert errors == [[[r.measured, r.error_percent] for r in rows]]
    save_plot(found, str(tmp_path / "unit.svg"))
    text = tmp_path.joinpath("unit.svg").read_text(encoding="utf-8")
    assert "simulated, in the unit of the row" in text
    assert "µs" not in text, "no empty panel of times"
    save_plot(kept, str(tmp_path / "all.svg"))
    text = tmp_path.joinpath("all.svg").read_text(encoding="utf-8")
    assert "simulated, in the unit of the row" in text
    assert "simulated, µs" in text


def test_a_picture_of_nothing_says_why(kept, tmp_path):
    file = str(tmp_path / "x.png")
    failed = tuple(replace(r, simulated=None, simulated_us=None, failure="it broke") for r in kept.of("unit"))
    rows = tuple(r for r in kept.rows if r.group == "unit")
    with pytest.raises(ConfigError) as error:
        save_plot(Validation((), kept.groups, rows, failed, ()), file)
    assert str(error.value) == (
        f"{file}: nothing to draw: none of 6 rows ran to a value; the first: {failed[0].id}: it broke"
    )
    with pytest.raises(ConfigError) as error:
        save_plot(Validation((), kept.groups, rows, (), ()), file)
    assert str(error.value) == (
        f"{file}: nothing to draw: the rows of these groups are kept as data; add --all to run them"
    )


def test_nothing_to_plot_is_no_error():
    from matplotlib.figure import Figure

    empty = Validation((), (), (), (), ())
    axes = Figure().subplots()
    assert plot_times(empty, axes).get_legend() is None
    assert empty.ok
    assert empty.overall.verdict == "no rows"
