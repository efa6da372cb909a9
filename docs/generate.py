"""Pages of the site that are made from the code when it is built: nothing in them is written by hand.

`write(folder)` puts them into a folder of the source of the site, with the notebooks beside them; `conf.py`
calls it. Nothing of it is kept in the repository.
"""

from __future__ import annotations

import dataclasses
import inspect
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import typer
from typer.cli import get_docs_for_click

import npusim
from npusim.cli.entry import command_line
from npusim.config.schema import chip_schema
from npusim.program.discover import shipped_programs
from npusim.report.listing import chips_data, programs_data
from npusim.report.schema import report_schema
from npusim.sweeps.schema import sweep_schema

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"

Schema = Mapping[str, Any]


def write(folder: Path) -> list[Path]:
    """Write all pages and return their files; what a page of an older build left there is removed."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    texts = {
        "cli.md": cli_page(),
        "chip.md": schema_page("The chip file", chip_schema(), "npusim schema chip"),
        "report.md": schema_page("The report", report_schema(), "npusim schema report"),
        "sweep.md": schema_page("The space file of a sweep", sweep_schema(), "npusim schema sweep"),
        "programs.md": programs_page(),
        "chips.md": chips_page(),
        "api.md": api_page(),
    }
    for name, text in texts.items():
        folder.joinpath(name).write_text(text, encoding="utf-8")
    copied = [Path(shutil.copy(file, folder)) for file in sorted(NOTEBOOKS.glob("*.ipynb"))]
    return [*(folder / name for name in texts), *copied]


def cli_page() -> str:
    """Return the commands with their arguments and options, from the application itself."""
    command = command_line()
    body = get_docs_for_click(
        obj=command, ctx=typer.Context(command), name="npusim", title="The command line"
    )
    return body.replace("```console", "```text")  # usage lines are patterns, no sessions


def schema_page(title: str, schema: Schema, command: str) -> str:
    """Return a JSON Schema as one table of fields a section.

    `command` prints the schema itself.
    """
    lines = [f"# {title}", "", _words(schema), "", f"`{command}` prints this as JSON Schema.", ""]
    lines += _table(schema)
    for name, section in schema.get("$defs", {}).items():
        lines += [f"## {name}", "", _words(section), "", *_table(section)]
    return "\n".join(lines)


def programs_page() -> str:
    """Return every shipped program with its parameters."""
    lines = ["# Shipped programs", "", "`npusim programs NAME` tells more about each.", ""]
    for data in programs_data(shipped_programs()):
        lines += [f"## {data['name']}", "", data["summary"], ""]
        if data["parameters"]:
            rows = [(f"`{n}`", p["type"], f"`{p['default']}`") for n, p in data["parameters"].items()]
            lines += [*_rows(("parameter", "takes", "default"), rows), ""]
    return "\n".join(lines)


def chips_page() -> str:
    """Return every shipped chip with its main numbers."""
    heads = ("chip", "MHz", "cube cores", "vector cores", "GB/s", "L2, MiB", "what it is")
    rows = [
        (
            f"`{c['name']}`",
            c["clock_mhz"],
            c["cube_cores"],
            "same" if c["arrangement"] == "coupled" else c["vector_cores"],
            f"{c['hbm_gb_per_s']:g}",
            f"{c['l2_mib']:g}",
            c["description"],
        )
        for c in chips_data()
    ]
    words = "`npusim chip NAME --resolved` prints every number of a chip with its source and confidence."
    return "\n".join(["# Shipped chips", "", words, "", *_rows(heads, rows), ""])


def api_page() -> str:
    """Return directives for every public name of the package, so that a new one is there by existing."""
    lines = [
        "# Python",
        "",
        "All of `npusim.__all__`. Instructions are on a [page of their own](../isa.md).",
        "",
    ]
    for name in npusim.__all__:
        thing = getattr(npusim, name)
        if inspect.ismodule(thing):
            continue
        kind = "class" if inspect.isclass(thing) else "function"
        members = ["   :members:"] if kind == "class" else []
        if dataclasses.is_dataclass(thing) and any(map(dataclasses.is_dataclass, thing.__bases__)):
            members.append("   :inherited-members:")
        lines += ["```{eval-rst}", f".. auto{kind}:: npusim.{name}", *members, "```", ""]
    return "\n".join(lines)


# ---- schemas -----------------------------------------------------------------------------------------------


def _table(section: Schema) -> list[str]:
    fields = section.get("properties", {})
    rows = [(f"`{name}`", _kind(field), _words(field)) for name, field in fields.items()]
    return [*_rows(("field", "takes", "meaning"), rows), ""] if rows else []


def _words(field: Schema) -> str:
    return " ".join(str(field.get("description", "")).split())


def _kind(field: Schema) -> str:
    """Return what a field takes, in words."""
    if "$ref" in field:
        name = field["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "const" in field:
        return f"`{field['const']}`"
    if "enum" in field:
        return " or ".join(f"`{value}`" for value in field["enum"])
    for many in ("anyOf", "oneOf"):
        if many in field:
            return " or ".join(dict.fromkeys(_kind(variant) for variant in field[many]))
    kind = field.get("type", "anything")
    if kind == "array":
        parts = [_kind(item) for item in field.get("prefixItems", ())] or [_kind(field.get("items", {}))]
        return f"list of {', '.join(parts)}"
    inner = field.get("additionalProperties")
    if kind == "object" and isinstance(inner, Mapping):
        return f"names to {_kind(inner)}"
    limits = "".join(_limits(field))
    return f"{kind}{limits}"


def _limits(field: Schema) -> Iterator[str]:
    for key, sign in (
        ("minimum", "≥"),
        ("exclusiveMinimum", ">"),
        ("maximum", "≤"),
        ("exclusiveMaximum", "<"),
    ):
        if key in field:
            yield f" {sign} {field[key]}"


def _rows(heads: tuple[str, ...], rows: list[tuple[Any, ...]]) -> list[str]:
    return [_line(heads), _line(["---"] * len(heads)), *(_line(row) for row in rows)]


def _line(cells: Any) -> str:
    return "| " + " | ".join(" ".join(str(cell).replace("|", "\\|").split()) for cell in cells) + " |"
