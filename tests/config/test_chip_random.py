"""Whatever is thrown at the loader, it returns a chip or says what is wrong."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from npusim.config import Chip, load_chip, resolved_yaml
from npusim.config.document import Document, parse_document
from npusim.config.explain import field_paths
from npusim.config.merge import merge
from npusim.config.shipped import shipped
from npusim.errors import ConfigError

TOY = load_chip("toy")
LINES = shipped("configs").joinpath("toy.yaml").read_text(encoding="utf-8").splitlines()

words = st.text(max_size=8) | st.sampled_from(
    ["on", "null", "1:30", ".nan", "1e9", "[1, 2]", "{a: 1}", "*a", "!x y"]
)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | words | st.integers(-(10**400), 10**400)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
paths = st.sampled_from([*field_paths(), *TOY.sources]) | st.text(alphabet="abl2._ {}[]=", max_size=12)


def chip_or_error(**options: Any) -> Chip | str:
    """Load toy; an error has to be made of non-empty lines."""
    try:
        return load_chip("toy", **options)
    except ConfigError as error:
        lines = str(error).split("\n")
        assert all(line.strip() for line in lines)
        assert len(lines) <= 11
        return str(error)


@settings(deadline=None, max_examples=100)
@given(st.dictionaries(paths, values, max_size=3))
def test_override_mappings(overrides: dict[str, Any]) -> None:
    chip = chip_or_error(overrides=overrides)
    if isinstance(chip, Chip):
        assert all(value >= 0 for value in chip.numbers().values())
        assert {path.partition("[")[0] for path in chip.numbers()} == set(chip.sources)
        assert len(chip.digest()) == 12


@settings(deadline=None, max_examples=100)
@given(st.lists(st.builds("{}={}".format, paths, words | scalars.map(repr)) | words, max_size=3))
def test_override_texts(overrides: list[str]) -> None:
    chip_or_error(overrides=overrides)


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_a_number_takes_any_value_in_its_range(data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(sorted(TOY.sources)))
    value = data.draw(st.integers(1, 10**15) | st.floats(1e-300, 1e300))
    chip = chip_or_error(overrides={path: value})
    if isinstance(chip, Chip):
        assert chip.numbers()[path] == value
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "again.yaml"
            file.write_text(resolved_yaml(chip), encoding="utf-8")
            assert load_chip(file) == chip


def message_of(file: Path) -> list[str]:
    try:
        load_chip(file)
    except ConfigError as error:
        return str(error).split("\n")
    return []


@settings(deadline=None, max_examples=100)
@given(
    st.integers(0, len(LINES) - 1),
    st.sampled_from(["drop", "twice", "indent", "cut", "text"]),
    st.text(max_size=9),
)
def test_damaged_files(line: int, damage: str, text: str) -> None:
    lines = list(LINES)
    lines[line : line + 1] = {
        "drop": [],
        "twice": [lines[line]] * 2,
        "indent": [f" {lines[line]}"],
        "cut": [lines[line][: len(lines[line]) // 2]],
        "text": [f"{lines[line].partition(':')[0]}: {text}"],
    }[damage]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "mine.yaml"
        file.write_text("\n".join(lines), encoding="utf-8", errors="surrogatepass")
        for message in message_of(file):
            assert message.startswith((str(file), "... and"))


numbers = st.integers(0, 9)
inner = st.fixed_dictionaries({}, optional={"d": numbers, "e": st.lists(numbers, max_size=2)})
section = st.fixed_dictionaries({}, optional={"a": numbers, "b": inner, "c": inner})


def document(data: dict[str, Any]) -> Document:
    return parse_document(yaml.safe_dump(data), "x")


@settings(deadline=None, max_examples=60)
@given(section, section, section)
def test_merging_is_associative_and_leaves_its_operands(a: Any, b: Any, c: Any) -> None:
    first, second, third = map(document, (a, b, c))
    left = merge(merge(first, second), third)
    assert left.data == merge(first, merge(second, third)).data
    assert (first.data, second.data, third.data) == (a, b, c)
    assert merge(first, document({})).data == merge(document({}), first).data == a
