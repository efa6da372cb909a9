"""The tables of `validation/`: what is there, and what a mistake in them is told as."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import pytest

from npusim import load_chip
from npusim.errors import ConfigError
from npusim.program.discover import shipped_programs
from npusim.validation.measure import cases_of
from npusim.validation.rows import read_published

HERE = Path(__file__).parents[2] / "validation"
PUBLISHED = read_published()


@pytest.fixture
def folder(tmp_path):
    """A small copy: two groups, a row of each metric they have."""
    for name in ("groups.csv", "host.csv", "not_run.csv"):
        shutil.copy(HERE / name, tmp_path)
    tmp_path.joinpath("rows").mkdir()
    for name in ("unit.csv", "launch_310.csv"):
        shutil.copy(HERE / "rows" / name, tmp_path / "rows")
    return tmp_path


def change(file, line, **cells):
    """Change cells of one line, counted from 1 for the first row below the head."""
    with file.open(newline="", encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    rows[line - 1].update(cells)
    with file.open("w", newline="", encoding="utf-8") as lines:
        table = csv.DictWriter(lines, list(rows[0]), lineterminator="\n")
        table.writeheader()
        table.writerows(rows)


def test_every_group_of_the_issue_has_its_rows():
    counts = {g.name: len(PUBLISHED.of(g)) for g in PUBLISHED.groups}
    assert {"copy", "row_scan", "complete_rows", "mcscan_s32", "mcscan_s128", "mcscan_nosplit"} <= set(counts)
    assert {g for g, n in counts.items() if not n} == {"cast", "block_scan", "mcscan_int8"}
    assert counts["copy"] == 100
    assert (counts["scan_batch_s32"], counts["scan_batch_s128"], counts["radix_sort"]) == (19, 17, 38)
    assert counts["compress"] == 20
    assert counts["mcscan_s32"] == 113


def test_every_row_says_where_it_comes_from_and_how_it_is_run():
    """Programs and their parameters are shipped, and a published rate makes a possible time."""
    programs = shipped_programs()
    for row in PUBLISHED.rows:
        assert row.source
        assert row.how_obtained
        for case in cases_of(row):
            maker = programs[case.program]
            assert {name for name, _ in case.params} <= set(maker.model.model_fields), row.id
        if row.measured_us is not None:
            assert 0.5 < row.measured_us < 1e5, row.id
        if row.metric == "gb_per_s":  # 2-byte or 4-byte elements, each read once and written once
            assert row.n
            matrix = dict(row.params) if row.program.startswith("tri_inv") else {}  # n is a side there
            each = row.amount / row.n / (int(matrix["n"]) * int(matrix["batch"]) if matrix else 1)
            if row.program == "compress":  # values and mask in, one value of a thousand out
                assert each == pytest.approx(5.004, rel=1e-5), row.id
            else:
                assert each in {"radix_sort": (6,), "scan_batch": (6,)}.get(row.program, (4, 6, 8)), row.id


def test_no_rate_beats_main_memory():
    """Useful bytes of a kernel that reads and writes every one of them cannot move faster than it."""
    rows = [row for row in PUBLISHED.rows if row.metric == "gb_per_s"]
    limits = {device: load_chip(device).hbm.nominal_gb_per_s for device in {row.device for row in rows}}
    for row in rows:
        assert row.value < limits[row.device], row.id


def test_rows_of_a_batch_have_the_elements_of_all():
    found = {row.id: row for row in PUBLISHED.rows}
    assert found["scan_batch_s128-fig67-5570560"].n == 5570560 == 85 * 65536
    assert found["mmad-8x128x256x64"].n == 256
    assert found["launch-one-core"].n is None


def test_groups_are_chosen_by_name_in_their_own_order():
    assert [g.name for g in PUBLISHED.chosen(["unit", "copy"])] == ["copy", "unit"]
    assert PUBLISHED.chosen([]) == PUBLISHED.groups
    with pytest.raises(ConfigError, match=r"^validation: no group 'units'; did you mean unit\?$"):
        PUBLISHED.chosen(["units"])
    with pytest.raises(ConfigError, match=r"^validation: no group 'x'; groups: copy cast row_scan "):
        PUBLISHED.chosen(["x"])


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ({"value": "-1"}, "value must be a number above 0, not '-1'"),
        ({"value": "nan"}, "value must be a number above 0, not 'nan'"),
        ({"value": "1e999"}, "value must be a number above 0, not '1e999'"),
        ({"value": ""}, "value must not be empty"),
        ({"unit": "us"}, "unit 'us' is not known; one of cycles"),
        ({"metric": "pipe_cycle"}, "metric 'pipe_cycle' is not known; did you mean pipe_cycles?"),
        ({"device": "ascend-910b9"}, "device 'ascend-910b9' is not known; did you mean ascend-910b4?"),
        ({"group": "copy"}, "group 'copy' is not known; one of unit"),
        ({"part": ""}, "part must not be empty"),
        ({"l2": "hot"}, "l2 'hot' is not known; one of cold, warm, dirty"),
        ({"params": "place"}, "params must be name=value;name=value with distinct names, not 'place'"),
        ({"params": "a=1;a=2"}, "params must be name=value;name=value with distinct names, not 'a=2'"),
        ({"params": "n=many"}, "params must give n as a whole number, not 'many'"),
        ({"params": "batch=2;length=2.5"}, "params must give length as a whole number, not '2.5'"),
        ({"versus": "count=1"}, "versus must be given for slopes and time_ratio, and only there"),
        ({"host": "custom"}, "host must be none: pipe_cycles has no host time in it"),
        ({"host": "here"}, "host 'here' is not known; one of "),
        ({"scored": "no", "note": ""}, "note must not be empty"),
        ({"source": " "}, "source must not be empty"),
    ],
)
def test_a_wrong_cell_is_named_with_its_line(folder, cells, message):
    change(folder / "rows" / "unit.csv", 3, **cells)
    with pytest.raises(ConfigError) as caught:
        read_published(folder)
    assert str(caught.value).startswith(f"validation/rows/unit.csv:4: {message}")


@pytest.mark.parametrize(
    ("file", "line", "cells", "message"),
    [
        ("groups.csv", 1, {"rule": "worst"}, "groups.csv:2: rule 'worst' is not known; one of mean, each"),
        ("groups.csv", 2, {"group": "copy"}, "groups.csv: group 'copy' is there twice; give each its own"),
        ("host.csv", 2, {"us": "-2"}, "host.csv:3: us must be a number not below 0, not '-2'"),
        ("not_run.csv", 1, {"rows": "0"}, "not_run.csv:2: rows must be a whole number above 0, not '0'"),
        ("rows/unit.csv", 1, {"id": "load-8k"}, "rows: id 'load-8k' is there twice; give each its own"),
    ],
)
def test_a_wrong_cell_of_any_table(folder, file, line, cells, message):
    change(folder / file, line, **cells)
    with pytest.raises(ConfigError) as caught:
        read_published(folder)
    assert str(caught.value) == f"validation/{message}"


def test_tables_that_are_none(folder):
    table = folder / "rows" / "unit.csv"
    text = table.read_text(encoding="utf-8")
    table.write_text(text + "unit,x\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"^validation/rows/unit.csv:8: must have 18 cells"):
        read_published(folder)
    table.write_text(text.replace(",metric,", ",measure,"), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"unit.csv:2: metric is missing from the first line of the table$"):
        read_published(folder)
    table.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match=r"^validation/rows/unit.csv: cannot be read: "):
        read_published(folder)
    table.rename(folder / "rows" / "units.csv")
    with pytest.raises(ConfigError, match=r"^validation/rows/units.csv: no such group; add it to"):
        read_published(folder)
