"""The pages that the site makes from the code: complete, and nothing but Markdown."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

import npusim
from npusim.cli.entry import command_line
from npusim.config.find import chip_names
from npusim.config.schema import chip_schema
from npusim.program.discover import shipped_programs

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def generate():
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_command_and_option_is_on_the_page(generate):
    page = generate.cli_page()

    def look(command, name):
        assert f"`{name}`" in page
        for option in command.params:
            for word in getattr(option, "opts", ()):
                assert word in page or not word.startswith("-"), f"{name} {word}"
        for below, inner in getattr(command, "commands", {}).items():
            look(inner, f"{name} {below}")

    top = command_line()
    assert {"run", "check", "sweep", "plot", "validate"} <= set(top.commands)
    for name, command in top.commands.items():
        look(command, f"npusim {name}")


def test_every_field_of_a_chip_is_on_the_page(generate):
    schema = chip_schema()
    page = generate.schema_page("The chip file", schema, "npusim schema chip")
    sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", page, re.M | re.S))
    assert list(sections) == list(schema["$defs"])
    for name, section in schema["$defs"].items():
        fields = re.findall(r"^\| `(\w+)` \|", sections[name], re.M)
        assert fields == list(section["properties"])
    assert "| `clock_mhz` | integer > 0 | Clock of the cores; all cycles are cycles of this clock. |" in page


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ({"type": "integer", "minimum": 0}, "integer ≥ 0"),
        ({"enum": ["a", "b"]}, "`a` or `b`"),
        ({"const": "npusim.chip/1"}, "`npusim.chip/1`"),
        ({"$ref": "#/$defs/L2"}, "[L2](#l2)"),
        ({"anyOf": [{"$ref": "#/$defs/L2"}, {"type": "null"}]}, "[L2](#l2) or null"),
        ({"type": "array", "items": {"type": "string"}}, "list of string"),
        (
            {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}]},
            "list of integer, string",
        ),
        ({"type": "object", "additionalProperties": {"type": "number"}}, "names to number"),
        ({}, "anything"),
    ],
)
def test_what_a_field_takes_in_words(generate, field, words):
    page = generate.schema_page("T", {"description": "D.", "properties": {"f": field}}, "c")
    assert f"| `f` | {words} |  |" in page


def test_all_programs_chips_and_names_are_listed(generate):
    programs, chips, api = generate.programs_page(), generate.chips_page(), generate.api_page()
    assert re.findall(r"^## (\w+)$", programs, re.M) == list(shipped_programs())
    assert re.findall(r"^\| `([\w-]+)` \|", chips, re.M) == list(chip_names())
    assert re.findall(r":: npusim\.(\w+)$", api, re.M) == [n for n in npusim.__all__ if n != "isa"]


def test_pages_of_an_older_build_go(generate, tmp_path):
    folder = tmp_path / "generated"
    folder.mkdir()
    (folder / "gone.md").touch()
    made = generate.write(folder)
    assert sorted(folder.iterdir()) == sorted(made)
    assert {"cli.md", "chip.md", "report.md", "sweep.md"} <= {file.name for file in made}


def test_every_page_is_in_a_table_of_contents():
    docs = ROOT / "docs"
    tables = {
        (page.parent / entry).resolve().relative_to(docs).as_posix()
        for page in (docs / "index.md", docs / "reference" / "index.md")
        for block in re.findall(r"```\{toctree\}\n(.*?)```", page.read_text(encoding="utf-8"), re.S)
        for entry in re.findall(r"^[\w./*]+$", block, re.M)
    }
    written = {p.relative_to(docs).with_suffix("").as_posix() for p in docs.rglob("*.md")}
    written = {p for p in written if not p.startswith("generated/")}
    assert written - tables == {"index"}
