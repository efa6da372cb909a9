"""The instruction reference and the report schema: complete, and the stored files fresh."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from npusim import load_chip, simulate
from npusim.config.find import chip_names
from npusim.errors import ConfigError
from npusim.isa.instruction import REGISTRY
from npusim.report import reference, schema
from npusim.report.model import Report
from npusim.report.reference import field_doc, find_instruction, instruction_text, list_text, page_text

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_is_fresh() -> None:
    stored = (DOCS / reference.FILE.name).read_text(encoding="utf-8")
    assert stored == page_text(), "run `python -m npusim.report.reference` and commit docs/isa.md"


def test_the_schema_is_fresh() -> None:
    stored = (DOCS / "schemas" / schema.FILE.name).read_text(encoding="utf-8")
    assert stored == schema.schema_text(), "run `python -m npusim.report.schema` and commit the file"


def test_every_instruction_is_listed_once() -> None:
    headings = re.findall(r"^### (\w+)$", page_text(), re.MULTILINE)
    assert sorted(headings) == sorted(REGISTRY)
    families = [title for title, _ in reference.families()]
    assert families == [
        "Synchronisation",
        "Scalar unit",
        "Control state",
        "Data movement",
        "Cube",
        "Vector",
    ]
    for line in page_text().splitlines():
        if line.startswith("[") and "](#" in line:
            for name, anchor in re.findall(r"\[(\w+)\]\(#(\w+)\)", line):
                assert anchor == name.lower()


@pytest.mark.parametrize("name", REGISTRY)
def test_every_instruction_explains_itself(name: str) -> None:
    cls = REGISTRY[name]
    assert reference.summary(cls)
    assert reference.pipe_words(cls)
    text = instruction_text(cls, load_chip("ascend-910b4"), 80)
    assert text.startswith(f"{name} (")
    for spec in cls.spec:
        assert re.search(rf"^  {spec.name} +\S", text, re.MULTILINE)
    words = text.replace("\n", " ").split()
    assert all(word in words for word in str(cls.example()).split())


@pytest.mark.parametrize("chip", chip_names())
def test_every_chip_prices_or_refuses_every_example(chip: str) -> None:
    loaded = load_chip(chip)
    for name, cls in REGISTRY.items():
        text = instruction_text(cls, loaded, 80)
        cost = text.partition(f"cost of the example on {chip}\n")[2]
        assert re.match(r"  ([\d,]+ cycles? of pipe|none: |no work of its own; )", cost), (name, cost)
        for line in text.splitlines():
            assert len(line) <= 80 or "[" in line, (name, line)


def test_the_list_fits_a_terminal() -> None:
    for width in (80, 120):
        lines = list_text(width).splitlines()
        assert max(map(len, lines)) <= width
        assert [line.split()[0] for line in lines if line.startswith("  ")] == [
            cls.mnemonic for _, classes in reference.families() for cls in classes
        ]


def test_cost_names_its_numbers() -> None:
    chip = load_chip("toy", overrides=["vector.head_cycles=77"])
    text = instruction_text(find_instruction("ADDS"), chip)
    assert "\n  vector.head_cycles = 77 (L)\n" in text
    assert "\n  cube.rates.f16 = 16 x 16 x 16 (L)\n" in instruction_text(find_instruction("mmad"), chip)


def test_pipes_in_words() -> None:
    assert reference.pipe_words(REGISTRY["Adds"]) == "V"
    assert reference.pipe_words(REGISTRY["SetFlag"]) == "the pipe that raises the flag"
    assert reference.pipe_words(REGISTRY["DataCopy"]).startswith("MTE2 from GM, ")


def test_field_docstrings_come_from_the_source() -> None:
    assert field_doc(REGISTRY["Adds"], "repeat").startswith("Repeats in normal mode")
    assert field_doc(REGISTRY["Adds"], "dst") == ""


def test_unknown_instructions() -> None:
    for name, message in {
        "datacpy": "instruction 'datacpy' is not known; did you mean DataCopy?; list them with `npusim isa`",
        "": "instruction '' is not known; list them with `npusim isa`",
    }.items():
        with pytest.raises(ConfigError) as caught:
            find_instruction(name)
        assert str(caught.value) == message


def test_instructions_of_other_packages_have_a_family(monkeypatch: pytest.MonkeyPatch) -> None:
    cls = REGISTRY["ResetMask"]
    other = type(
        "Plugged", (cls,), {"__module__": "elsewhere", "__doc__": "Do something.", "mnemonic": "Plugged"}
    )
    monkeypatch.setitem(REGISTRY, "Plugged", other)
    assert reference.families()[-1] == ("Instructions of other packages", [other])
    assert "### Plugged\n" in page_text()


def test_the_pages_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    for module, text in ((reference, page_text()), (schema, schema.schema_text())):
        file = tmp_path / "new" / "file"
        monkeypatch.setattr(module, "FILE", file)
        assert module.main() == 0
        assert file.read_text(encoding="utf-8") == text
        assert capsys.readouterr().out == f"{file}\n"
        file.unlink()


def test_the_schema_describes_reports() -> None:
    made = schema.report_schema()
    assert made["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert made["$id"] == "urn:npusim:report:1"
    done = json.loads(simulate("memcopy", load_chip("toy"), n=300).to_json())
    assert set(made["properties"]) == set(done)
    assert set(made["required"]) <= set(done)
    parts = {"values": "Values", "gm": "GmPart", "bounds": "BoundsPart", "confidence": "ConfidencePart"}
    for key, name in parts.items():
        assert set(made["$defs"][name]["properties"]) == set(done[key])
        assert made["$defs"][name]["additionalProperties"] is False
    assert "title" not in made["$defs"]["Values"]
    assert made["properties"]["schema"]["const"] == "npusim.report/1"
    assert Report.model_validate(done).to_json() == json.dumps(done, indent=2) + "\n"
