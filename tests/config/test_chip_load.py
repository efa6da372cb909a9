"""Lookup, inheritance, overrides and the resolved form of chips."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import numpy as np
import pytest

from npusim.config import Chip, chip_names, find, load_chip, resolved_yaml
from npusim.config.shipped import shipped
from npusim.errors import ConfigError

Write = Callable[..., str]


@pytest.fixture(autouse=True)
def _empty(folder: Path) -> None:
    """Nothing but the test's own files is found."""


def message(name: str = "toy", **options: object) -> str:
    with pytest.raises(ConfigError) as error:
        load_chip(name, **options)  # type: ignore[arg-type]
    return str(error.value)


def header(name: str, extends: str) -> str:
    return f"schema: npusim.chip/1\nname: {name}\nextends: {extends}\n"


def hbm(gib: int) -> str:
    return f"hbm: {{size_gib: {gib}}}\nsources: {{hbm: {{from: me, confidence: H}}}}\n"


# lookup


def test_a_path_is_a_path(write: Write, folder: Path) -> None:
    write(hbm(7), name="sub/mine.yaml")
    write(hbm(8), name="mine.yml")
    assert load_chip("sub/mine.yaml").hbm.size_gib == 7
    assert load_chip(str(folder / "sub" / "mine.yaml")).hbm.size_gib == 7
    assert load_chip(folder / "sub" / "mine.yaml").hbm.size_gib == 7
    assert load_chip("mine.yml").hbm.size_gib == 8


CHIPS = (
    "chips: ascend-310 ascend-310p ascend-910a ascend-910b1 ascend-910b2 ascend-910b3 ascend-910b4 "
    "ascend-910c ascend-950pr toy"
)


def test_a_path_object_is_never_a_name(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"^toy: no such file; did you mean toy\?$"):
        load_chip(Path("toy"))


def test_a_name_in_configs_comes_before_a_shipped_one(write: Write) -> None:
    assert load_chip("toy").hbm.size_gib == 1
    write(hbm(7), name="configs/toy.yaml", header=header("toy", "toy"))
    assert load_chip("toy").hbm.size_gib == 7
    assert load_chip("toy").l2.size_mib == 1


def test_a_name_is_not_looked_up_in_the_working_folder(write: Write) -> None:
    write("", name="mine.yaml")
    assert message("mine") == f"no chip named 'mine'; {CHIPS}"


def test_the_default_chip() -> None:
    assert load_chip().name == "ascend-910b4"


def test_a_file_whose_name_marks_a_base_is_no_chip(write: Write) -> None:
    assert (
        message(write("", name="_mine.yaml"))
        == "_mine.yaml: is a base for other chips and no chip; extend it"
    )


def test_a_path_inside_the_working_folder_is_shown_relative(write: Write, folder: Path) -> None:
    write("x: 3\n", name="sub/mine.yaml")
    assert message(str(folder / "sub" / "mine.yaml")) == "sub/mine.yaml:4: x: unknown field"
    outside = folder.parent / "mine.yaml"
    outside.write_text((folder / "sub" / "mine.yaml").read_text(encoding="utf-8"), encoding="utf-8")
    assert message(str(outside)) == f"{outside}:4: x: unknown field"


def test_names(write: Write) -> None:
    write("", name="configs/mine.yaml")
    write("", name="configs/_base.yaml")
    assert chip_names() == [
        *("ascend-310", "ascend-310p", "ascend-910a", "ascend-910b1", "ascend-910b2", "ascend-910b3"),
        *("ascend-910b4", "ascend-910c", "ascend-950pr", "mine", "toy"),
    ]
    assert [load_chip(name).name for name in chip_names()] == chip_names()


def test_an_error_in_a_shipped_file_names_it(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(str(shipped("configs"))).parent)
    assert message("_dav-2201") == "configs/_dav-2201.yaml: is a base for other chips and no chip; extend it"


@pytest.mark.parametrize("kind", ["configs", "programs", "validation"])
def test_shipped_folders_are_there(kind: str) -> None:
    assert shipped(kind).is_dir()


def test_files_in_the_wheel_come_before_those_of_a_checkout(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "_shipped" / "configs").mkdir(parents=True)
    monkeypatch.setattr("npusim.config.shipped.files", lambda package: folder)
    assert shipped("configs") == folder / "_shipped" / "configs"


def point(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    known = EntryPoints([EntryPoint(name, value, find.GROUP)])
    monkeypatch.setattr(find, "entry_points", lambda **select: known.select(**select))


PATH = "plugin.yaml"
NUMBER = 3


def path() -> Path:
    return Path(PATH)


def broken() -> Path:
    raise RuntimeError("no such luck")


@pytest.mark.parametrize("value", ["PATH", "path"])
def test_an_entry_point_is_the_last_resort(write: Write, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    write(hbm(9), name="plugin.yaml", header=header("plugin", "toy"))
    point(monkeypatch, "plugin", f"{__name__}:{value}")
    assert "plugin" in chip_names()
    assert load_chip("plugin").hbm.size_gib == 9
    assert load_chip("toy").hbm.size_gib == 1


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("broken", "cannot be loaded: no such luck"),
        ("nothing", "cannot be loaded: module '{module}' has no attribute 'nothing'"),
        ("NUMBER", "must be a path, got int"),
    ],
)
def test_a_broken_entry_point(monkeypatch: pytest.MonkeyPatch, value: str, expected: str) -> None:
    point(monkeypatch, "plugin", f"{__name__}:{value}")
    expected = expected.format(module=__name__)
    assert message("plugin") == f"entry point plugin of npusim.chips: {expected}"


# extends


def test_mappings_merge_and_lists_are_replaced(write: Write) -> None:
    source = "sources: {cube: {from: me, confidence: H}}\n"
    chip = load_chip(write(f"cube: {{rates: {{f16: [8, 8, 8]}}}}\n{source}"))
    toy = load_chip("toy")
    assert chip.cube.rates == {**toy.cube.rates, "f16": (8, 8, 8)}
    assert chip.cube.head_isolated_cycles == toy.cube.head_isolated_cycles
    assert chip.buffers == toy.buffers
    assert chip.description == toy.description


def test_null_removes(write: Write) -> None:
    chip = load_chip(write("paths: {l1_to_bt: null}\ncube: {rates: {s4: null}}\n"))
    assert chip.paths.l1_to_bt is None
    assert "s4" not in chip.cube.rates
    assert not [path for path in chip.sources if path.startswith(("paths.l1_to_bt", "cube.rates.s4"))]


def test_a_removed_rate_can_be_replaced_by_the_other_kind(write: Write) -> None:
    body = "paths: {l0c_to_l1: {elements_per_cycle: null, bytes_per_cycle: 3}}\n"
    chip = load_chip(write(body + "sources: {paths: {from: me, confidence: H}}\n"))
    assert chip.paths.l0c_to_l1 is not None
    assert (chip.paths.l0c_to_l1.bytes_per_cycle, chip.paths.l0c_to_l1.elements_per_cycle) == (3, None)


def test_a_source_belongs_to_the_file_that_sets_the_number(write: Write) -> None:
    write(hbm(7), name="base.yaml", header=header("base", "toy"))
    body = "hbm: {read_latency_ns: 5}\nl2: {size_mib: 2}\nsources:\n"
    body += "  hbm: {from: you, confidence: M}\n  l2.size_mib: {from: them, confidence: L}\n"
    chip = load_chip(write(body, header=header("mine", "./base.yaml")))
    found = {path: (s.source, s.confidence) for path, s in chip.sources.items() if path[:2] in ("hb", "l2")}
    assert found["hbm.size_gib"] == ("me", "H")
    assert found["hbm.read_latency_ns"] == ("you", "M")
    assert found["l2.size_mib"] == ("them", "L")
    assert found["hbm.nominal_gb_per_s"] == found["l2.granule_bytes"] == ("chosen for teaching", "L")
    assert chip.confidence("hbm.size_gib") == "H"


def test_the_most_specific_source_counts(write: Write) -> None:
    body = "cube: {head_streamed_cycles: 1, rates: {f16: [8, 8, 8], s8: [8, 8, 8]}}\nsources:\n"
    body += "  cube: {from: a, confidence: L}\n  cube.rates: {from: b, confidence: M}\n"
    body += "  cube.rates.s8: {from: c, confidence: H}\n"
    chip = load_chip(write(body))
    paths = ["cube.head_streamed_cycles", "cube.rates.f16", "cube.rates.s8"]
    assert [chip.sources[path].source for path in paths] == ["a", "b", "c"]
    assert chip.confidence("cube.rates.s8[2]") == "H"


def test_a_base_may_be_anywhere_and_incomplete(write: Write) -> None:
    write(hbm(7), name="bases/_half.yaml", header="schema: npusim.chip/1\nname: _half\n")
    toy = shipped("configs").joinpath("toy.yaml").read_text(encoding="utf-8")
    write(
        toy.replace("name: toy\n", "name: mine\nextends: ../bases/_half.yaml\n"),
        name="sub/mine.yaml",
        header="",
    )
    assert load_chip("sub/mine.yaml").digest() == load_chip("toy").digest()


def test_a_name_means_a_file_beside_the_one_that_extends_it_first(write: Write) -> None:
    write(hbm(7), name="configs/base.yaml", header=header("base", "toy"))
    write(hbm(8), name="sub/base.yaml", header=header("base", "toy"))
    write("", name="sub/mine.yaml", header=header("mine", "base"))
    write("", name="mine.yaml", header=header("mine", "base"))
    assert load_chip("sub/mine.yaml").hbm.size_gib == 8
    assert load_chip("mine.yaml").hbm.size_gib == 7


@pytest.mark.parametrize(
    ("extends", "expected"),
    [
        ("toi", "no chip named 'toi'; did you mean toy? (mine.yaml -> toi)"),
        ("./nope.yaml", "nope.yaml: no such file (mine.yaml -> ./nope.yaml)"),
        ("mine", f"no other chip named 'mine'; {CHIPS} (mine.yaml -> mine)"),
        ("./mine.yaml", "chips extend each other in a circle (mine.yaml -> ./mine.yaml)"),
        ("[toy]", "must be the name or the path of a chip, got a list"),
        ("3", "must be the name or the path of a chip, got 3"),
        ("", "must be the name or the path of a chip, got nothing"),
        ("''", "must be the name or the path of a chip, got text ''"),
    ],
)
def test_a_parent_that_cannot_be_had(write: Write, extends: str, expected: str) -> None:
    assert message(write("", header=header("mine", extends))) == f"mine.yaml:3: extends: {expected}"


def test_a_chip_is_not_suggested_to_itself(write: Write) -> None:
    write("", name="configs/mine.yaml", header=header("mine", "mine"))
    expected = f"no other chip named 'mine'; {CHIPS} (configs/mine.yaml -> mine)"
    assert message("mine") == f"configs/mine.yaml:3: extends: {expected}"


def test_a_circle_of_three_names_all(write: Write) -> None:
    for name, extends in (("a", "b"), ("b", "c"), ("c", "a")):
        write("", name=f"configs/{name}.yaml", header=header(name, extends))
    walk = "configs/a.yaml -> configs/b.yaml -> configs/c.yaml -> a"
    assert message("a") == f"configs/c.yaml:3: extends: chips extend each other in a circle ({walk})"


def test_a_missing_grandparent_names_the_chain(write: Write) -> None:
    write("", name="configs/a.yaml", header=header("a", "b"))
    write("", name="configs/b.yaml", header=header("b", "zzz"))
    known = CHIPS.replace("chips: ", "chips: a ").replace(" toy", " b toy")
    expected = f"no chip named 'zzz'; {known} (configs/a.yaml -> configs/b.yaml -> zzz)"
    assert message("a") == f"configs/b.yaml:3: extends: {expected}"


def test_an_error_in_a_parent_is_reported_there(write: Write) -> None:
    write("a: [\n", name="base.yaml", header="")
    expected = "base.yaml:2: YAML syntax: expected the node content, but found '<stream end>'"
    assert message(write("", header=header("mine", "./base.yaml"))) == expected


# overrides


@pytest.mark.parametrize(
    "overrides",
    [
        ["hbm.size_gib=4", "hbm.sustained_fraction=0.5", "cube.rates.f16=[8, 8, 8]"],
        {"hbm.size_gib": 4, "hbm.sustained_fraction": 0.5, "cube.rates.f16": (8, 8, 8)},
        {"hbm": {"size_gib": 4, "sustained_fraction": 0.5}, "cube.rates.f16": [8, 8, 8]},
        {
            "hbm.size_gib": np.int32(4),
            "hbm.sustained_fraction": np.float32(0.5),
            "cube.rates.f16": [np.int64(8)] * 3,
        },
        ["hbm={size_gib: 4, sustained_fraction: 0.5}", "cube.rates={f16: [8, 8, 8]}"],
        ["hbm.size_gib = 3", "hbm.size_gib= 4", "hbm.sustained_fraction=5e-1", "cube.rates.f16=[8,8,8]"],
    ],
)
def test_overrides(overrides: object) -> None:
    chip, toy = load_chip("toy", overrides=overrides), load_chip("toy")  # type: ignore[arg-type]
    assert (chip.hbm.size_gib, chip.hbm.sustained_fraction, chip.cube.rates["f16"]) == (4, 0.5, (8, 8, 8))
    assert chip.cube.rates["f32"] == toy.cube.rates["f32"]
    assert chip.hbm.nominal_gb_per_s == toy.hbm.nominal_gb_per_s
    assert chip.name == "toy"
    changed = {path for path, source in chip.sources.items() if source.source == "override"}
    assert changed == {"hbm.size_gib", "hbm.sustained_fraction", "cube.rates.f16"}


def test_an_overridden_number_is_an_assumption_of_the_user() -> None:
    chip = load_chip(overrides=["clock_mhz=1800", "buffers.l1_kib=512"])
    assert (chip.sources["clock_mhz"].source, chip.sources["clock_mhz"].confidence) == ("override", "L")
    assert chip.sources["buffers.l1_kib"] == load_chip().sources["buffers.l1_kib"]  # not changed


def test_an_override_may_remove_and_add_optional_sections() -> None:
    assert load_chip("toy", overrides=["paths.l1_to_bt=null"]).paths.l1_to_bt is None
    whole = "paths.l0c_to_ub={bytes_per_cycle: 128, issue_cycles: 1, latency_cycles: 2}"
    chip = load_chip("toy", overrides=[whole])
    assert chip.paths.l0c_to_ub is not None
    assert chip.confidence("paths.l0c_to_ub.latency_cycles") == "L"
    chip = load_chip("ascend-310", overrides=["cube.rates.bf16=[16, 16, 16]", "numerics=ascend-a2"])
    assert (chip.cube.rates["bf16"], chip.numerics) == ((16, 16, 16), "ascend-a2")


def test_overrides_with_errors_of_the_file(write: Write) -> None:
    assert message(write("x: 3\n"), overrides=["hbm.y=3", "a.b=3"]).splitlines() == [
        "mine.yaml:4: x: unknown field",
        "override: a.b: unknown field",
        "override: hbm.y: unknown field",
    ]


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("buffers.ub_kb=3", "override: buffers.ub_kb: unknown field; did you mean ub_kib?"),
        ("bufers.ub_kib=3", "override: bufers.ub_kib: unknown field; did you mean buffers.ub_kib?"),
        ("ub_kib=3", "override: ub_kib: unknown field; did you mean buffers.ub_kib?"),
        ("hbm.size_gib.x=1", "override: hbm.size_gib.x: unknown field; did you mean hbm.size_gib?"),
        ("zzz=1", "override: zzz: unknown field"),
        (
            "vector.cycles_per_repeat.two_sorce.default=2",
            "override: {override}: unknown field; did you mean vector.cycles_per_repeat.two_source?",
        ),
        (
            "vector.cycles_per_repeat.two_source.f23=2",
            "override: vector.cycles_per_repeat.two_source.f23: unknown element type; did you mean f32?",
        ),
        (
            "paths.l0c_to_ub.bytes_per_cycle=3",
            "override: {override}: the chip has no paths.l0c_to_ub; give the whole section",
        ),
        (
            "paths.l0c_to_ub={bytes_per_cycle: 3}",
            "override: paths.l0c_to_ub.issue_cycles, paths.l0c_to_ub.latency_cycles: required, but missing",
        ),
        ("hbm={size_gib: 2, foo: 1}", "override: hbm.foo: unknown field"),
        ("hbm.size_gib=-1", "override: hbm.size_gib: must be greater than 0, got -1"),
        ("hbm.size_gib=on", "override: hbm.size_gib: must be a whole number, got text 'on'"),
        ("hbm.size_gib=1:30", "override: hbm.size_gib: must be a whole number, got text '1:30'"),
        ("hbm=null", "override: hbm: required, but missing"),
        ("cores.arrangement=coupled", "override: cores: a coupled chip has 1 vector unit per core, got 2"),
        ("name=_x", "{toy}: is a base for other chips and no chip; extend it"),
        ("schema=npusim.chip/1", "override: schema: schema cannot be overridden"),
        ("extends=toy", "override: extends: extends cannot be overridden"),
        ("sources.hbm.from=me", "override: sources.hbm.from: sources cannot be overridden"),
        ("hbm.size_gib", "override 'hbm.size_gib': must have the form path=value"),
        ("hbm.size_gib=", "override 'hbm.size_gib=': must have the form path=value"),
        ("=3", "override '': must be a dotted path"),
        ("hbm..size_gib=3", "override 'hbm..size_gib': must be a dotted path"),
        (
            "hbm.size_gib=[",
            "override 'hbm.size_gib=[': YAML syntax: expected the node content, but found '<stream end>'",
        ),
        (
            "hbm.size_gib=!!python/name:os.system",
            "override 'hbm.size_gib=!!python/name:os.system': tag !!python/name:os.system is not allowed",
        ),
        (
            "hbm={size_gib: 1, size_gib: 2}",
            "override 'hbm={{size_gib: 1, size_gib: 2}}': size_gib: given twice, first in line 1",
        ),
    ],
)
def test_a_wrong_override(override: str, expected: str) -> None:
    toy = shipped("configs").joinpath("toy.yaml")
    expected = expected.format(toy=toy, override=override.partition("=")[0])
    assert message(overrides=[override]) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (True, "must be a whole number, got true"),
        ("4", "must be a whole number, got text '4'"),
        (4.0, "must be a whole number, got 4.0"),
        (object(), "must be a whole number, got object"),
        (None, "required, but missing"),
        (np.ones(3), "must be a whole number, got ndarray"),
        (-(10**90), "must be greater than 0, got a number of 299 bits"),
    ],
)
def test_a_wrong_override_value(value: object, expected: str) -> None:
    assert message(overrides={"hbm.size_gib": value}) == f"override: hbm.size_gib: {expected}"


def test_misuse_is_a_type_error() -> None:
    with pytest.raises(
        TypeError, match=r"^overrides must be a mapping or a list of 'path=value', got the text 'a=1'$"
    ):
        load_chip("toy", overrides="a=1")
    with pytest.raises(TypeError, match=r"^an override must be text 'path=value', got int$"):
        load_chip("toy", overrides=[3])  # type: ignore[list-item]


# resolved


@pytest.mark.parametrize("name", ["ascend-910b4", "ascend-310", "toy"])
def test_the_resolved_form_loads_again_to_an_equal_chip(folder: Path, name: str) -> None:
    chip = load_chip(name, overrides={"hbm.sustained_fraction": 1 / 3, "description": "ü \x85\n: # '\" 😀"})
    text = resolved_yaml(chip)
    (folder / "again.yaml").write_text(text, encoding="utf-8")
    again = load_chip("again.yaml")
    assert again == chip
    assert resolved_yaml(again) == text


def test_the_resolved_form_shows_source_and_confidence_beside_each_number() -> None:
    chip = load_chip("toy", overrides=["hbm.size_gib=2"])
    lines = resolved_yaml(chip).partition("sources:")[0].splitlines()
    beside = [line for line in lines if " # " in line]
    assert len(beside) == len(chip.sources)
    assert "  size_gib: 2                                # L  override" in lines
    assert "    f16: [16, 16, 16]                        # L  chosen for teaching" in lines
    assert "  nominal_gb_per_s: 100                      # L  chosen for teaching" in lines


def test_the_resolved_form_has_a_line_per_source_in_the_order_of_the_values() -> None:
    chip = load_chip("ascend-910b4")
    lines = resolved_yaml(chip).partition("\nsources:\n")[2].splitlines()
    assert [line.partition(":")[0].strip() for line in lines] == list(
        dict.fromkeys(path.partition("[")[0] for path in chip.numbers())
    )
    assert '  hbm.size_gib: {from: "CANNBot device sheet", confidence: M}' in lines


def test_any_source_text_survives_the_resolved_form(write: Write, folder: Path) -> None:
    text = r"a\n# b\x07: \x85 {c} " + "long " * 60
    name = write(f'hbm: {{size_gib: 7}}\nsources: {{hbm: {{from: "{text}", confidence: M}}}}\n')
    chip = load_chip(name)
    assert chip.sources["hbm.size_gib"].source.startswith("a\n# b\x07: \x85 {c} long")
    (folder / "again.yaml").write_text(resolved_yaml(chip), encoding="utf-8")
    assert load_chip("again.yaml") == chip


def test_a_chip_survives_json(folder: Path) -> None:
    chip = load_chip("ascend-910b4")
    assert Chip.model_validate_json(chip.model_dump_json(by_alias=True)) == chip
