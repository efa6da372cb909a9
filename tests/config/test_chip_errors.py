"""Whole messages of everything that can be wrong with a chip file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from npusim.config import load_chip
from npusim.errors import ConfigError

Write = Callable[..., str]


def message(name: str, **options: object) -> str:
    with pytest.raises(ConfigError) as error:
        load_chip(name, **options)  # type: ignore[arg-type]
    return str(error.value)


@pytest.fixture(autouse=True)
def _empty(folder: Path) -> None:
    """Nothing but the test's own files is found."""


def sourced(body: str, section: str) -> str:
    return f"{body}\nsources: {{{section}: {{from: me, confidence: L}}}}\n"


@pytest.mark.parametrize(
    ("body", "section", "expected"),
    [
        ("buffers: {ub_kb: 64}", "buffers", "buffers.ub_kb: unknown field; did you mean ub_kib?"),
        ("ub_kib: 64", "ub_kib", "ub_kib: unknown field; did you mean buffers.ub_kib?"),
        ("ids: 3", "ids", "ids: unknown field; did you mean flags.ids?"),
        ("bufers: {ub_kib: 64}", "bufers", "bufers: unknown field; did you mean buffers?"),
        ("frobnicate: 64", "frobnicate", "frobnicate: unknown field"),
        ("hbm: {<<: {size_gib: 1}}", "hbm", "hbm.<<: unknown field"),
        ("hbm: 3", "hbm", "hbm: must be a mapping, got 3"),
        ("cores: {vector_per_cube: 3}", "cores", "cores.vector_per_cube: must be at most 2, got 3"),
        ("flags: {cross_ids: -1}", "flags", "flags.cross_ids: must be at least 0, got -1"),
        (
            "cube: {rates: {s16: [16, 16, 16]}}",
            "cube",
            "cube.rates.s16: must be one of f16, bf16, f32, hf32, s8, s4, got text 's16'; did you mean f16?",
        ),
        (
            "cube: {rates: {f16: [16, 16]}}",
            "cube",
            "cube.rates.f16: must be a list of three whole numbers (m, n, k), got 2",
        ),
        (
            "cube: {rates: {f16: [16, 16, 16, 16]}}",
            "cube",
            "cube.rates.f16: must be a list of three whole numbers (m, n, k), got 4",
        ),
        ("cube: {rates: {f16: [16, 16, 1.5]}}", "cube", "cube.rates.f16[2]: must be a whole number, got 1.5"),
        (
            "cube: {rates: {f16: 16}}",
            "cube",
            "cube.rates.f16: must be a list of three whole numbers (m, n, k), got 16",
        ),
        (
            "vector: {cycles_per_repeat: {two_sources: {default: 1}}}",
            "vector",
            "vector.cycles_per_repeat.two_sources: unknown cost class; did you mean two_source?",
        ),
        (
            "vector: {cycles_per_repeat: {two_source: {fp16: 1}}}",
            "vector",
            "vector.cycles_per_repeat.two_source.fp16: unknown element type; did you mean f16?",
        ),
        (
            "vector: {cycles_per_repeat: {two_source: {f16: 0}}}",
            "vector",
            "vector.cycles_per_repeat.two_source.f16: must be greater than 0, got 0",
        ),
        (
            "paths: {l1_to_l0a: {elements_per_cycle: 3}}",
            "paths",
            "paths.l1_to_l0a: give exactly one of bytes_per_cycle and elements_per_cycle",
        ),
        (
            "ports: {gm_to_ub: {bytes_per_cycle: null}}",
            "ports",
            "ports.gm_to_ub: give exactly one of bytes_per_cycle and elements_per_cycle",
        ),
        (
            "paths: {l0c_to_ub: {bytes_per_cycle: 128}}",
            "paths",
            "paths.l0c_to_ub.issue_cycles, paths.l0c_to_ub.latency_cycles: required, but missing",
        ),
    ],
)
def test_a_wrong_field(write: Write, body: str, section: str, expected: str) -> None:
    assert message(write(sourced(body, section))) == f"mine.yaml:4: {expected}"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("-3", "must be greater than 0, got -3"),
        ("0", "must be greater than 0, got 0"),
        ("on", "must be a whole number, got text 'on'"),
        ("1:30", "must be a whole number, got text '1:30'"),
        ("017", "must be a whole number, got text '017'"),
        ("0x10", "must be a whole number, got text '0x10'"),
        ('"64"', "must be a whole number, got text '64'"),
        ("2.5", "must be a whole number, got 2.5"),
        ("64.0", "must be a whole number, got 64.0"),
        ("true", "must be a whole number, got true"),
        ("[64]", "must be a whole number, got a list"),
        ("{a: 64}", "must be a whole number, got a mapping"),
        ("null", "required, but missing"),
        ("", "required, but missing"),
        (".inf", "must be a whole number, got inf"),
        (".nan", "must be a whole number, got nan"),
    ],
)
def test_a_value_that_is_no_size(write: Write, value: str, expected: str) -> None:
    body = sourced(f"buffers:\n  ub_kib: {value}", "buffers")
    assert message(write(body)) == f"mine.yaml:5: buffers.ub_kib: {expected}"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("-0.5", "must be greater than 0, got -0.5"),
        ("1.5", "must be at most 1, got 1.5"),
        (".inf", "must be a finite number, got inf"),
        ("-.INF", "must be a finite number, got -inf"),
        (".nan", "must be a finite number, got nan"),
        ("1e999", "must be a finite number, got inf"),
        ("yes", "must be a number, got text 'yes'"),
        ("1_000_", "not a number that can be read: text '1_000_'"),
    ],
)
def test_a_value_that_is_no_fraction(write: Write, value: str, expected: str) -> None:
    body = sourced(f"hbm: {{sustained_fraction: {value}}}", "hbm")
    assert message(write(body)) == f"mine.yaml:4: hbm.sustained_fraction: {expected}"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("hbm: null", "hbm: required, but missing"),
        ("paths: {l0c_to_bu: null}", "paths.l0c_to_bu: unknown field; did you mean l0c_to_ub?"),
        ("cube: {l0a_layout: NN}", "cube.l0a_layout: must be one of ZZ, NZ, got text 'NN'"),
        (
            "cores: {arrangement: couple}",
            "cores.arrangement: must be one of split, coupled, got text 'couple'; did you mean coupled?",
        ),
        ("cores: {arrangement: coupled}", "cores: a coupled chip has 1 vector unit per core, got 2"),
        ("description: ''", "description: must not be empty"),
        ("numerics: 3", "numerics: must be text, got 3"),
        (f"description: [{'x' * 50}]", "description: must be text, got a list"),
        (
            f"cube: {{l0a_layout: {'N' * 50}}}",
            f"cube.l0a_layout: must be one of ZZ, NZ, got text '{'N' * 37}...'",
        ),
    ],
)
def test_a_wrong_value_that_needs_no_source(write: Write, body: str, expected: str) -> None:
    assert message(write(f"{body}\n")) == f"mine.yaml:4: {expected}"


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("schema: npusim.chip/1\nextends: toy\n", ["mine.yaml:1: name: required, but missing"]),
        ("name: mine\nextends: toy\n", ["mine.yaml:1: schema: required, but missing"]),
        (
            "name: mine\n",
            [
                "mine.yaml:1: schema: required, but missing",
                "mine.yaml:1: description, clock_mhz, numerics and 12 more: required, but missing",
            ],
        ),
        (
            "clock_mhz: 3\n",
            [
                "mine.yaml:1: schema: required, but missing",
                "mine.yaml:1: name: required, but missing",
                "mine.yaml:1: description, numerics, cores and 11 more: required, but missing",
                "mine.yaml:1: no source for clock_mhz; list them in sources",
            ],
        ),
        (
            "# a chip\nschema: npusim.chip/2\nname: 3\nextends: toy\n",
            [
                "mine.yaml:2: schema: must be npusim.chip/1, got text 'npusim.chip/2'",
                "mine.yaml:3: name: must be text, got 3",
            ],
        ),
        (
            "schema: npusim.chip/1\nname: mine\nextend: toy\n",
            [
                "mine.yaml:1: description, clock_mhz, numerics and 12 more: required, but missing",
                "mine.yaml:3: extend: unknown field; did you mean extends?",
            ],
        ),
        (
            "schema: npusim.chip/1\nname: _mine\nextends: toy\n",
            ["mine.yaml: is a base for other chips and no chip; extend it"],
        ),
    ],
)
def test_a_wrong_header(write: Write, header: str, expected: list[str]) -> None:
    assert message(write("", header=header)).splitlines() == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("hbm: {size_gib: 1}\nhbm: {size_gib: 2}\n", "2: hbm: given twice, first in line 1"),
        ("hbm:\n  size_gib: 1\n  size_gib: 1\n", "3: hbm.size_gib: given twice, first in line 2"),
        ("hbm: {size_gib: 1\nl2: 3\n", "2: YAML syntax: expected ',' or '}', but got ':'"),
        ("hbm:\n\t- 3\n", "2: YAML syntax: found character '\\t' that cannot start any token"),
        ("a: b: c\n", "1: YAML syntax: mapping values are not allowed here"),
        (
            "a: 1\n---\nb: 1\n",
            "2: YAML syntax: expected a single document in the stream, but found another document",
        ),
        ("a: 'b\n", "2: YAML syntax: found unexpected end of stream"),
        ("a: 1\nb: a\x07b\n", "2: YAML syntax: character 0x7 is not allowed"),
        ("", "1: the file is empty; a chip is a mapping with schema, name and sections"),
        ("# only a comment\n", "1: the file is empty; a chip is a mapping with schema, name and sections"),
        ("---\n", "2: a chip must be a mapping, got nothing"),
        ("- a\n", "1: a chip must be a mapping, got a list"),
        ("\nhello\n", "2: a chip must be a mapping, got text 'hello'"),
        ("3\n", "1: a chip must be a mapping, got 3"),
        (
            "a: !!python/object/apply:os.system [ls]\n",
            "1: a: tag !!python/object/apply:os.system is not allowed",
        ),
        ("a: !!python/name:os.system\n", "1: a: tag !!python/name:os.system is not allowed"),
        ("!!python/name:os.system : a\n", "1: a key must be a word"),
        ("!!python/dict {a: 1}\n", "1: tag !!python/dict is not allowed"),
        ("a: !mine b\n", "1: a: tag !mine is not allowed"),
        ("a: !!set {b}\n", "1: a: tag !!set is not allowed"),
        ("a: !!bool b\n", "1: a: tag !!bool is not allowed"),
        ("a: {b: !!int c}\n", "1: a.b: not a number that can be read: text 'c'"),
        ("a: &x {b: 1}\nc: *x\n", "2: c: aliases are not supported; repeat the value or use extends"),
        ("a: &x [*x]\n", "1: a[0]: aliases are not supported; repeat the value or use extends"),
        ("? [a]\n: b\n", "1: a key must be a word"),
        (f"a: {'[' * 30}{']' * 30}\n", "1: a: nested deeper than 20 levels"),
        (f"a: {'[' * 600}{']' * 600}\n", "1: nested too deeply"),
    ],
)
def test_a_file_that_is_no_mapping(write: Write, text: str, expected: str) -> None:
    assert message(write(text, header="")) == f"mine.yaml:{expected}"


def test_a_file_that_is_not_utf_8(folder: Path) -> None:
    (folder / "mine.yaml").write_bytes(b"schema: npusim.chip/1\nname: \xff\n")
    assert message("mine.yaml") == "mine.yaml:2: not UTF-8 text: byte 0xff"


def test_a_byte_order_mark_is_no_error(folder: Path) -> None:
    (folder / "mine.yaml").write_bytes(b"\xef\xbb\xbfschema: npusim.chip/1\nname: mine\nextends: toy\n")
    assert load_chip("mine.yaml").name == "mine"


def test_a_folder(folder: Path) -> None:
    (folder / "mine.yaml").mkdir()
    assert message("mine.yaml") == "mine.yaml: is a folder; expected a YAML file"


def test_a_file_that_cannot_be_read(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    assert message(write("")) == "mine.yaml: cannot be read: permission denied"


CHIPS = (
    "chips: ascend-310 ascend-310p ascend-910a ascend-910b1 ascend-910b2 ascend-910b3 ascend-910b4 "
    "ascend-910c ascend-950pr toy"
)


def test_a_long_list_of_chips_is_cut(write: Write) -> None:
    for number in range(5):
        write("", name=f"configs/a{number}.yaml")
    names = CHIPS.removesuffix(" ascend-910c ascend-950pr toy").replace("chips: ", "chips: a0 a1 a2 a3 a4 ")
    assert message("quantum") == f"no chip named 'quantum'; {names} ..."


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nope.yaml", "nope.yaml: no such file"),
        ("configs/ascend-910b5.yaml", "configs/ascend-910b5.yaml: no such file; did you mean ascend-910b4?"),
        ("./toyy.yml", "toyy.yml: no such file; did you mean toy?"),
        ("toyy", "no chip named 'toyy'; did you mean toy?"),
        ("quantum", f"no chip named 'quantum'; {CHIPS}"),
        ("", f"no chip named ''; {CHIPS}"),
        ("a\0b", f"no chip named 'a\\x00b'; {CHIPS}"),
        ("a\0b.yaml", "'a\\x00b.yaml': no such file"),
    ],
)
def test_a_chip_that_is_not_there(folder: Path, name: str, expected: str) -> None:
    assert message(name) == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            "sources: {hbm.size: {from: me, confidence: L}}",
            ["4: sources.hbm.size: matches no number of this file"],
        ),
        (
            "hbm: {size_gib: 2}\nsources: {hbm.size_gb: {from: me, confidence: L}}",
            [
                "4: no source for hbm.size_gib; list them in sources",
                "5: sources.hbm.size_gb: matches no number of this file; did you mean hbm.size_gib?",
            ],
        ),
        (
            "l2: {size_mib: 3, granule_bytes: 3}\nhbm: {size_gib: 2, read_latency_ns: 4}",
            ["4: no source for l2.size_mib, l2.granule_bytes, hbm.size_gib and 1 more; list them in sources"],
        ),
        (
            "hbm: {size_gib: 2}\nsources: {hbm: {from: me, confidence: X}}",
            ["5: sources.hbm.confidence: must be one of H, M, L, got text 'X'"],
        ),
        (
            "hbm: {size_gib: 2}\nsources: {hbm: {form: me, confidence: L}}",
            [
                "5: sources.hbm.form: unknown field; did you mean from?",
                "5: sources.hbm.from: required, but missing",
            ],
        ),
        ("sources: {hbm: {from: '', confidence: L}}", ["4: sources.hbm.from: must not be empty"]),
        ("sources: {hbm: me}", ["4: sources.hbm: must be a mapping, got text 'me'"]),
        ("sources: [hbm]", ["4: sources: must be a mapping, got a list"]),
        ("sources:", ["4: sources: must be a mapping, got nothing"]),
    ],
)
def test_wrong_sources(write: Write, body: str, expected: list[str]) -> None:
    assert message(write(f"{body}\n")).splitlines() == [f"mine.yaml:{line}" for line in expected]


def test_a_number_needs_a_source_in_the_file_that_sets_it(write: Write) -> None:
    write("hbm: {size_gib: 2}\nsources: {hbm: {from: me, confidence: H}}\n", name="base.yaml")
    name = write("hbm: {size_gib: 3}\n", header="schema: npusim.chip/1\nname: mine\nextends: ./base.yaml\n")
    assert message(name) == "mine.yaml:4: no source for hbm.size_gib; list them in sources"


def test_all_errors_at_once_in_the_order_of_the_file(write: Write) -> None:
    name = write("hbm: {size_gib: -1, sustained: 2}\nbuffers:\n  ub_kb: 3\nl2: {size_mib: 2}\n")
    assert message(name).splitlines() == [
        "mine.yaml:4: hbm.size_gib: must be greater than 0, got -1",
        "mine.yaml:4: hbm.sustained: unknown field; did you mean sustained_fraction?",
        "mine.yaml:6: buffers.ub_kb: unknown field; did you mean ub_kib?",
        "mine.yaml:7: no source for l2.size_mib; list them in sources",
    ]


def test_at_most_ten_lines(write: Write) -> None:
    name = write("".join(f"x{i}: 1\n" for i in range(13)))
    expected = [f"mine.yaml:{4 + i}: x{i}: unknown field" for i in range(10)]
    assert message(name).splitlines() == [*expected, "... and 3 more"]


def test_an_error_names_the_file_of_the_key(write: Write) -> None:
    write("hbm:\n  size_gib: -1\nsources: {hbm: {from: me, confidence: L}}\n", name="base.yaml")
    name = write("l2: {size_gb: 1}\n", header="schema: npusim.chip/1\nname: mine\nextends: ./base.yaml\n")
    assert message(name).splitlines() == [
        "base.yaml:5: hbm.size_gib: must be greater than 0, got -1",
        "mine.yaml:4: l2.size_gb: unknown field; did you mean size_mib?",
    ]


def test_a_replaced_list_belongs_to_the_file_that_replaces_it(write: Write) -> None:
    source = "sources: {cube: {from: me, confidence: L}}\n"
    write(f"cube:\n  rates:\n    f16: [8, 8, 8]\n{source}", name="base.yaml")
    header = "schema: npusim.chip/1\nname: mine\nextends: ./base.yaml\n"
    name = write(f"cube: {{rates: {{f16: [8, 8]}}}}\n{source}", header=header)
    rule = "must be a list of three whole numbers (m, n, k), got 2"
    assert message(name) == f"mine.yaml:4: cube.rates.f16: {rule}"
