"""What holds for every shipped chip, and what the public figures say about some."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from npusim.config import Chip, chip_names, load_chip, resolved_yaml
from npusim.config.fields import COST_CLASSES
from npusim.config.shipped import shipped

FILES = sorted(file.name for file in shipped("configs").iterdir())
CHIPS = [name.removesuffix(".yaml") for name in FILES if not name.startswith("_")]


@pytest.fixture(params=CHIPS)
def chip(request: pytest.FixtureRequest) -> Chip:
    return load_chip(request.param)


def text(name: str) -> str:
    return shipped("configs").joinpath(name).read_text(encoding="utf-8")


def test_all_files_are_chips_or_bases() -> None:
    assert chip_names() == CHIPS
    assert [name for name in FILES if name.startswith("_")] == [
        "_dav-2201.yaml",
        "_dav-3510.yaml",
        "_dav-coupled.yaml",
    ]


@pytest.mark.parametrize("name", FILES)
def test_a_file_names_its_schema_and_itself(name: str) -> None:
    first = text(name).splitlines()[0]
    assert first == "# yaml-language-server: $schema=../docs/schemas/chip-1.json"
    assert yaml.safe_load(text(name))["name"] == name.removesuffix(".yaml")


@pytest.mark.parametrize("name", FILES)
def test_other_yaml_readers_see_the_same_values(name: str) -> None:
    """Nothing in the files reads differently in YAML 1.1."""
    for line in text(name).splitlines():
        assert len(line) <= 110
    found = yaml.safe_load(text(name))
    assert all(isinstance(entry["from"], str) for entry in found["sources"].values())
    assert {entry["confidence"] for entry in found["sources"].values()} <= {"H", "M", "L"}


@pytest.mark.parametrize("name", FILES)
def test_a_file_has_nothing_local(name: str) -> None:
    assert not re.search(r"/(?:work|root|home|tmp)\b|shared/", text(name))


def test_every_number_is_sourced_and_none_is_negative(chip: Chip) -> None:
    numbers = chip.numbers()
    assert len(numbers) > 100
    assert {path.partition("[")[0] for path in numbers} == set(chip.sources)
    assert all(value >= 0 for value in numbers.values())
    assert {chip.confidence(path) for path in numbers} <= {"H", "M", "L"}


def test_a_placeholder_has_confidence_l(chip: Chip) -> None:
    for path, source in chip.sources.items():
        if source.source.startswith(("placeholder", "chosen")):
            assert source.confidence == "L", path


def test_resolved_round_trip(chip: Chip, tmp_path: Path) -> None:
    file = tmp_path / "again.yaml"
    file.write_text(resolved_yaml(chip), encoding="utf-8")
    assert load_chip(file) == chip
    assert load_chip(file).digest() == chip.digest()


def test_units_fit_together(chip: Chip) -> None:
    banks, buffers = chip.vector.banks, chip.buffers
    assert banks.groups & (banks.groups - 1) == 0
    assert banks.bank_low_bit >= 5 + banks.groups.bit_length() - 1
    assert banks.banks << banks.bank_low_bit >= buffers.ub_kib * 1024 or banks.bank_low_bit < 10
    assert chip.hbm.read_latency_ns >= chip.l2.read_latency_ns
    assert chip.cube.head_isolated_cycles >= chip.cube.head_streamed_cycles
    assert set(COST_CLASSES) - set(chip.vector.cycles_per_repeat) <= {"brcb", "gather_block", "sort", "merge"}
    assert all("default" in table for table in chip.vector.cycles_per_repeat.values())
    assert (chip.flags.cross_ids == 0) == chip.coupled == (chip.queues.fix == 0)
    assert (chip.ports.l0c_to_gm is None) == (chip.paths.l0c_to_l1 is None) == chip.coupled
    assert chip.numerics == {
        **dict.fromkeys(("ascend-310", "ascend-310p", "ascend-910a"), "ascend-a1"),
        "ascend-950pr": "ascend-950",
    }.get(chip.name, "ascend-a2")


@pytest.mark.parametrize(
    ("name", "tflops", "tops"),
    [
        ("ascend-310", 11.14, 22.28),
        ("ascend-310p", 69.5, 138.9),
        ("ascend-910a", 262.1, 524.3),
        ("ascend-910b1", 363.7, 727.4),
        ("ascend-910b2", 353.9, 707.8),
        ("ascend-910b3", 294.9, 589.8),
        ("ascend-910b4", 245.8, 491.5),
        ("ascend-910c", 363.7, 727.4),
        ("ascend-950pr", 432.5, 865.1),
    ],
)
def test_peaks_are_the_published_ones(name: str, tflops: float, tops: float) -> None:
    chip = load_chip(name)
    for operand, peak in (("f16", tflops), ("s8", tops)):
        m, n, k = chip.cube.rates[operand]  # type: ignore[index]
        assert chip.cores.cube * m * n * k * 2 * chip.clock_mhz / 1e6 == pytest.approx(peak, rel=1e-3)


def gb_per_s(chip: Chip, bytes_per_cycle: float | None) -> float:
    assert bytes_per_cycle is not None
    return bytes_per_cycle * chip.clock_mhz / 1000


def test_the_scan_device() -> None:
    chip = load_chip("ascend-910b4")
    assert gb_per_s(chip, chip.hbm_bytes_per_cycle) == pytest.approx(640)
    assert gb_per_s(chip, chip.ports.gm_to_ub.bytes_per_cycle) == pytest.approx(60)
    assert gb_per_s(chip, chip.ports.gm_to_l1.bytes_per_cycle) == pytest.approx(115, rel=0.01)
    read_back = chip.flags.latency_cycles + chip.scalar.ub_read_cycles + chip.scalar.issue_cycles
    row = chip.vector.head_cycles + 1 + read_back
    assert 24 <= row * 1000 / chip.clock_mhz <= 26
    assert chip.launch.device_us + (chip.cores.cube - 1) * chip.launch.device_per_ai_core_us == pytest.approx(
        7, rel=0.01
    )


def test_the_single_core_add_of_the_910b1() -> None:
    chip = load_chip("ascend-910b1")
    port = chip.ports.gm_to_ub
    assert port.bytes_per_cycle is not None
    pair = 2 * (port.issue_cycles + 8192 / port.bytes_per_cycle) * 1000 / chip.clock_mhz
    assert pair + chip.hbm.read_latency_ns == pytest.approx(378, rel=0.01)
    assert gb_per_s(chip, chip.hbm_bytes_per_cycle) == pytest.approx(1490, rel=0.01)
    assert chip.flags.latency_cycles + chip.scalar.ub_read_cycles + chip.scalar.issue_cycles == 18


def test_the_bus_of_the_310() -> None:
    chip = load_chip("ascend-310")
    assert gb_per_s(chip, chip.hbm_bytes_per_cycle) == pytest.approx(42, rel=0.01)
    assert gb_per_s(chip, chip.paths.l1_to_l0a.bytes_per_cycle) == pytest.approx(347.99, rel=0.01)
    assert gb_per_s(chip, chip.paths.l1_to_l0b.bytes_per_cycle) == pytest.approx(174.37, rel=0.01)


def test_the_start_of_a_950_on_all_cores() -> None:
    chip = load_chip("ascend-950pr")
    assert 0.7 <= chip.launch.device_us + (chip.cores.cube - 1) * chip.launch.device_per_ai_core_us <= 0.9


# the digest


def edited(tmp_path: Path, name: str, old: str, new: str) -> Chip:
    changed = resolved_yaml(load_chip(name)).replace(old, new)
    file = tmp_path / "edited.yaml"
    file.write_text(changed, encoding="utf-8")
    return load_chip(file)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("# L ", "# X "),
        ("chosen for teaching", "found under a stone"),
        ("confidence: L", "confidence: H"),
        ('name: "toy"', "name: another"),
        ("A teaching chip", "A chip"),
        ("hbm:", "# what a memory\nhbm:"),
    ],
)
def test_comments_sources_and_names_leave_the_digest(tmp_path: Path, old: str, new: str) -> None:
    toy = load_chip("toy")
    chip = edited(tmp_path, "toy", old, new)
    assert chip.digest() == toy.digest()
    assert re.fullmatch(r"[0-9a-f]{12}", chip.digest())


def test_every_number_changes_the_digest() -> None:
    toy = load_chip("toy")
    digests = {toy.digest()}
    for path, value in toy.numbers().items():
        name, bracket, index = path.partition("[")
        new: object = 0.5 if path == "hbm.sustained_fraction" else 1 if value == 2 else value + 1
        if bracket:
            rate = list(toy.cube.rates[name.rpartition(".")[2]])  # type: ignore[index]
            rate[int(index[0])] += 1
            new = rate
        chip = load_chip("toy", overrides={name: new})
        assert chip.sources[name].source == "override"
        digests.add(chip.digest())
    assert len(digests) == len(toy.numbers()) + 1


@pytest.mark.parametrize("override", ["numerics=other", "cube.l0a_layout=NZ", "paths.l1_to_bt=null"])
def test_words_and_missing_sections_change_the_digest(override: str) -> None:
    assert load_chip("toy", overrides=[override]).digest() != load_chip("toy").digest()


# the model


def test_a_section_covers_its_numbers() -> None:
    chip = load_chip("toy")
    source = chip.sources["cube.rates.f16"]
    by_section = chip.model_copy(update={"sources": {"cube": source, "cube.rates.s8": source}})
    assert (
        by_section.confidence("cube.rates.s8[1]") == by_section.confidence("cube.head_isolated_cycles") == "L"
    )
    with pytest.raises(KeyError, match=r"^'hbm.size_gib'$|^''$"):
        by_section.confidence("hbm.size_gib")


def test_values_are_fixed_and_strict() -> None:
    chip = load_chip("toy")
    with pytest.raises(ValueError, match="frozen"):
        chip.clock_mhz = 3  # type: ignore[misc]
    with pytest.raises(ValueError, match="valid integer"):
        Chip.model_validate({**chip.model_dump(by_alias=True), "clock_mhz": True})
    with pytest.raises(ValueError, match="finite"):
        type(chip.hbm).model_validate({**chip.hbm.model_dump(), "read_latency_ns": float("inf")})


def test_capacities_and_conversions() -> None:
    chip = load_chip("ascend-910b4")
    spaces = ("l1", "l0a", "l0b", "l0c", "ub", "bt", "fb")
    sizes = (524288, 65536, 65536, 131072, 196608, 1024, 7168)
    assert tuple(map(chip.capacity_bytes, spaces)) == sizes
    assert chip.cycles(450) == 675
    assert chip.cycles(0.1) == 1
    assert not chip.coupled
    assert load_chip("ascend-310").coupled
