"""The JSON Schema of chip files is fresh and agrees with the loader."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from npusim.config import load_chip, resolved_yaml, schema
from npusim.config.schema import chip_schema, schema_text
from npusim.config.shipped import shipped

FILES = sorted(file.name for file in shipped("configs").iterdir())
SCHEMA = chip_schema()

KEYWORDS = {
    *("$ref", "additionalProperties", "anyOf", "const", "else", "enum", "exclusiveMinimum", "if", "maxItems"),
    *("maximum", "minItems", "minLength", "minimum", "pattern", "prefixItems", "properties", "propertyNames"),
    *("required", "type"),
}
NOTES = {"$schema", "$id", "$defs", "title", "description"}
TYPES = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
    "null": type(None),
}


def accepts(rule: Any, value: Any) -> bool:
    """Validate with the keywords the schema uses; an unknown keyword is an error of this function."""
    if isinstance(rule, bool):
        return rule
    assert set(rule) <= KEYWORDS | NOTES, set(rule) - KEYWORDS - NOTES
    if "$ref" in rule and not accepts(SCHEMA["$defs"][rule["$ref"].removeprefix("#/$defs/")], value):
        return False
    if "type" in rule and (not isinstance(value, TYPES[rule["type"]]) or isinstance(value, bool)):
        return False
    if "const" in rule and value != rule["const"]:
        return False
    if "enum" in rule and value not in rule["enum"]:
        return False
    if "anyOf" in rule and not any(accepts(option, value) for option in rule["anyOf"]):
        return False
    if "if" in rule and not accepts(rule["if"], value) and not accepts(rule["else"], value):
        return False
    checks = {dict: _accepts_object, list: _accepts_list, str: _accepts_text, int: _accepts_number}
    check = checks.get(type(value), _accepts_number if isinstance(value, float) else None)
    return check is None or check(rule, value)


def _accepts_object(rule: dict[str, Any], value: dict[str, Any]) -> bool:
    if not set(rule.get("required", ())) <= set(value):
        return False
    properties = rule.get("properties", {})
    return all(accepts(rule.get("propertyNames", True), key) for key in value) and all(
        accepts(properties.get(key, rule.get("additionalProperties", True)), item)
        for key, item in value.items()
    )


def _accepts_list(rule: dict[str, Any], value: list[Any]) -> bool:
    if not rule.get("minItems", 0) <= len(value) <= rule.get("maxItems", len(value)):
        return False
    return all(accepts(item, v) for item, v in zip(rule.get("prefixItems", ()), value, strict=False))


def _accepts_text(rule: dict[str, Any], value: str) -> bool:
    return len(value) >= rule.get("minLength", 0) and bool(re.search(rule.get("pattern", ""), value))


def _accepts_number(rule: dict[str, Any], value: float) -> bool:
    return (
        value >= rule.get("minimum", value)
        and value <= rule.get("maximum", value)
        and ("exclusiveMinimum" not in rule or value > rule["exclusiveMinimum"])
    )


def loaded(name: str) -> Any:
    return yaml.safe_load(shipped("configs").joinpath(name).read_text(encoding="utf-8"))


def test_the_file_is_fresh() -> None:
    """If this fails, run `python -m npusim.config.schema`."""
    written = Path(__file__).parents[2] / "docs" / "schemas" / "chip-1.json"
    assert written.read_text(encoding="utf-8") == schema_text()


def test_main_writes_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "docs" / "schemas" / "chip-1.json"
    monkeypatch.setattr(schema, "FILE", file)
    assert schema.main() == 0
    assert capsys.readouterr().out == f"{file}\n"
    assert file.read_text(encoding="utf-8") == schema_text()


def test_it_says_what_it_is() -> None:
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert SCHEMA["$id"] == "urn:npusim:chip:1"
    assert json.loads(schema_text()) == SCHEMA


def test_every_field_is_described() -> None:
    sections = {"Chip": SCHEMA, **SCHEMA["$defs"]}
    bare = [
        f"{name}.{key}"
        for name, section in sections.items()
        for key, rule in section["properties"].items()
        if "description" not in rule and "$ref" not in rule and "anyOf" not in rule and "const" not in rule
    ]
    assert bare == ["Queues.v", "Queues.m", "Queues.mte1", "Queues.mte2", "Queues.mte3"]
    assert all("description" in section for section in sections.values())


@pytest.mark.parametrize("name", FILES)
def test_shipped_files_are_accepted(name: str) -> None:
    assert accepts(SCHEMA, loaded(name))


@pytest.mark.parametrize("name", ["ascend-910b4", "ascend-310", "ascend-950pr", "toy"])
def test_resolved_chips_are_accepted(name: str) -> None:
    assert accepts(SCHEMA, yaml.safe_load(resolved_yaml(load_chip(name))))


def drop(path: str) -> dict[str, Any]:
    chip: dict[str, Any] = loaded("toy.yaml")
    *above, last = path.split(".")
    section = chip
    for key in above:
        section = section[key]
    del section[last]
    return chip


@pytest.mark.parametrize("path", ["hbm", "hbm.size_gib", "vector.banks.ports", "paths.l1_to_l0a", "sources"])
def test_only_a_file_without_a_parent_must_be_complete(path: str) -> None:
    chip = drop(path)
    assert not accepts(SCHEMA, chip)
    assert accepts(SCHEMA, {**chip, "extends": "toy"})
    assert accepts(SCHEMA, {**chip, "name": "_base"})
    assert not accepts(SCHEMA, {**chip, "name": "no_base"})


@pytest.mark.parametrize("path", ["schema", "name"])
def test_schema_and_name_are_always_required(path: str) -> None:
    assert not accepts(SCHEMA, {**drop(path), "extends": "toy"})


@pytest.mark.parametrize("path", ["paths.l1_to_bt", "cube.rates.s4", "vector.cycles_per_repeat.brcb"])
def test_optional_parts_may_be_absent_or_null(path: str) -> None:
    assert accepts(SCHEMA, drop(path))
    *above, last = path.split(".")
    removal: Any = {last: None}
    for key in reversed(above):
        removal = {key: removal}
    assert accepts(SCHEMA, {"schema": "npusim.chip/1", "name": "mine", "extends": "toy", **removal})


@pytest.mark.parametrize(
    "part",
    [
        {"buffers": {"ub_kb": 3}},
        {"buffers": {"ub_kib": 0}},
        {"buffers": {"ub_kib": "64"}},
        {"buffers": {"ub_kib": 2.5}},
        {"buffers": {"ub_kib": True}},
        {"hbm": {"sustained_fraction": 1.5}},
        {"hbm": None},
        {"cube": {"rates": {"f8": [1, 1, 1]}}},
        {"cube": {"rates": {"f16": [1, 1]}}},
        {"cube": {"rates": {"f16": [1, 1, 0]}}},
        {"cube": {"l0a_layout": "NN"}},
        {"vector": {"cycles_per_repeat": {"two_sources": {"default": 1}}}},
        {"vector": {"cycles_per_repeat": {"two_source": {"f8": 1}}}},
        {"sources": {"hbm": {"from": "me"}}},
        {"sources": {"hbm": {"from": "", "confidence": "H"}}},
        {"sources": {"hbm": {"from": "me", "confidence": "X"}}},
        {"extends": ""},
        {"schema": "npusim.chip/2"},
        {"frobnicate": 1},
    ],
)
def test_what_the_loader_refuses_is_refused(part: dict[str, Any]) -> None:
    chip = {"schema": "npusim.chip/1", "name": "mine", "extends": "toy"}
    assert accepts(SCHEMA, chip)
    assert not accepts(SCHEMA, {**chip, **part})
