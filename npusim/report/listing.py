"""Lists of what is there: chips and programs, one or all, as text and as plain data."""

from __future__ import annotations

import inspect
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from npusim.config.chip import Chip, Path, Port
from npusim.config.find import chip_names
from npusim.config.load import load_chip
from npusim.errors import ConfigError
from npusim.program.program import ProgramMaker
from npusim.units import cycles_to_us

_PARAGRAPH = 100
"""Columns beyond which text is not stretched."""


def chips_data() -> list[dict[str, Any]]:
    """Return name, description and main numbers of every chip there is."""
    chips = [load_chip(name) for name in chip_names()]
    return [
        {
            "name": chip.name,
            "description": chip.description,
            "clock_mhz": chip.clock_mhz,
            "cube_cores": chip.cores.cube,
            "vector_cores": chip.cores.cube * chip.cores.vector_per_cube,
            "arrangement": chip.cores.arrangement,
            "hbm_gb_per_s": chip.hbm.nominal_gb_per_s,
            "l2_mib": chip.l2.size_mib,
        }
        for chip in chips
    ]


def chips_text(chips: Iterable[Mapping[str, Any]], width: int = 80) -> str:
    """Return the chips as a table."""
    rows = [("chip", "MHz", "cube", "vector", "GB/s", "description")]
    for c in chips:
        vector = "same" if c["arrangement"] == "coupled" else str(c["vector_cores"])
        numbers = (f"{c['clock_mhz']}", str(c["cube_cores"]), vector, f"{c['hbm_gb_per_s']:g}")
        rows.append((c["name"], *numbers, c["description"].partition(",")[0]))
    return _table(rows, width, right=range(1, 5))


def chip_text(chip: Chip, width: int = 80) -> str:
    """Return the main numbers of a chip in a few lines."""
    cores, hbm, l2, flags, start = chip.cores, chip.hbm, chip.l2, chip.flags, chip.launch
    split = f"{cores.cube} cube cores with {cores.vector_per_cube} vector cores each"
    held = f"{cores.cube} cores that hold a cube and a vector unit" if chip.coupled else split
    peaks = []
    for dtype, (m, n, k) in chip.cube.rates.items():
        tera = 2e-6 * m * n * k * cores.cube * chip.clock_mhz
        peaks.append(f"{dtype} {tera:,.0f}" if tera >= 10 else f"{dtype} {tera:.1f}")
    sizes = [f"{n} {getattr(chip.buffers, f'{n}_kib')} KiB" for n in ("l1", "l0a", "l0b", "l0c", "ub")]
    rate = f"{hbm.nominal_gb_per_s:,.0f} GB/s nominal, {100 * hbm.sustained_fraction:.0f} % sustained"
    read, write = (r * chip.clock_mhz / 1000 for r in (l2.read_bytes_per_cycle, l2.write_bytes_per_cycle))
    ports = [f"{name} {_per_cycle(port)}" for name, port in chip.ports if port is not None]
    ns = 1000 * cycles_to_us(flags.latency_cycles, chip.clock_mhz)
    grades = Counter(str(source.confidence) for source in chip.sources.values())
    rows = {
        "cores": f"{held}, at {chip.clock_mhz:,} MHz",
        "cube": f"{', '.join(peaks)} tera-operations/s at most; numerics {chip.numerics}",
        "buffers": f"{', '.join(sizes)} a core",
        "memory": f"{hbm.size_gib} GiB, {rate}, {hbm.read_latency_ns:g} ns to a core",
        "L2": f"{l2.size_mib} MiB, {read:,.0f} GB/s read, {write:,.0f} GB/s write, {l2.read_latency_ns:g} ns",
        "ports": ", ".join(ports),
        "flags": f"{flags.ids} a pair of pipes, {flags.latency_cycles} cycles ({ns:.1f} ns) from set to wait",
        "launch": f"{start.device_us:g} us + {start.device_per_ai_core_us:g} us an AI core on the device, "
        f"{start.host_us:g} us on the host",
        "trust": f"of its numbers {', '.join(f'{grades[g]} are {g}' for g in 'HML')}; see --resolved",
    }
    lines = [chip.name, *_filled("", chip.description, width, 0), ""]
    for label, words in rows.items():
        lines += _filled(f"{label:<12}", words, width, 12)
    return "\n".join(lines) + "\n"


def _per_cycle(port: Port | Path) -> str:
    if port.bytes_per_cycle is not None:
        return f"{port.bytes_per_cycle:g} B/cycle"
    return f"{port.elements_per_cycle:g} elements/cycle"


def programs_data(programs: Mapping[str, ProgramMaker]) -> list[dict[str, Any]]:
    """Return name, summary and parameters of programs."""
    return [
        {
            "name": name,
            "summary": maker.summary,
            "parameters": {
                key: {"type": kind, "default": default} for key, (kind, default) in maker.parameters().items()
            },
        }
        for name, maker in programs.items()
    ]


def programs_text(programs: Mapping[str, ProgramMaker], width: int = 80) -> str:
    """Return the programs as a list."""
    indent = max(map(len, programs), default=0) + 2
    lines: list[str] = []
    for name, maker in programs.items():
        lines += _filled(f"{name:<{indent}}", maker.summary or "No description.", width, indent)
    return "\n".join([*lines, "", "For parameters, inputs and outputs: npusim programs NAME"]) + "\n"


def program_text(name: str, maker: ProgramMaker, chip: Chip, width: int = 80) -> str:
    """Return what a program does, its parameters, and the arrays it has on a chip with their defaults."""
    lines = [name, ""]
    for paragraph in (inspect.getdoc(maker.function) or "No description.").split("\n\n"):
        lines += [*_filled("", paragraph, width, 0), ""]
    parameters = maker.parameters()
    if parameters:
        lines.append("parameters")
        rows = [(f"  {key}", kind, f"= {default}") for key, (kind, default) in parameters.items()]
        lines += [*_table(rows, width).splitlines(), ""]
    try:
        program = maker.build(chip)
    except ConfigError as error:
        lines += _filled("", f"with these parameters it does not run on {chip.name}: {error}", width, 0)
        return "\n".join(lines) + "\n"
    lines.append(f"arrays, with the defaults on {chip.name}")
    arrays = [
        (f"  {s.name}", str(s.role), s.dtype.np.name, " x ".join(map(str, s.shape))) for s in program.segments
    ]
    lines += [*_table(arrays, width).splitlines(), "", "launches"]
    launches = [(f"  {n.name}", n.kind.value, f"on {len(n.streams)}") for n in program.launches]
    lines += [
        f"{line} core{'s' if line[-2:] != ' 1' else ''}" for line in _table(launches, width).splitlines()
    ]
    checked = "values are compared with a reference" if program.reference else "there is no reference"
    lines += ["", f"{checked}; run it: npusim run {name}{_example(parameters)}"]
    return "\n".join(lines) + "\n"


def _example(parameters: Mapping[str, tuple[str, Any]]) -> str:
    for key, (_, default) in parameters.items():
        return f" -p {key}={default}"
    return ""


def _filled(head: str, words: str, width: int, indent: int) -> list[str]:
    return textwrap.wrap(
        words,
        min(max(width, 60), _PARAGRAPH),
        initial_indent=head,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _table(rows: Sequence[Sequence[str]], width: int, right: Iterable[int] = ()) -> str:
    """Align columns; the last one is cut to the width."""
    if not rows:
        return ""
    last = len(rows[0]) - 1
    widths = [max(len(row[i]) for row in rows) for i in range(last)]
    to_right = set(right)
    lines = []
    for row in rows:
        cells = [
            f"{c:>{w}}" if i in to_right else f"{c:<{w}}"
            for i, (c, w) in enumerate(zip(row, widths, strict=False))
        ]
        head = "  ".join(cells) + ("  " if cells else "")
        room = max(20, width - len(head))
        words = row[last] if len(row[last]) <= room else textwrap.shorten(row[last], room, placeholder=" ...")
        lines.append((head + words).rstrip())
    return "\n".join(lines) + "\n"
