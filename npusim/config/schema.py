"""JSON Schema of chip files, for editors and CI; `python -m npusim.config.schema` writes it to docs/schemas.

A file that extends another, or whose name marks it as a base (`_...`), may leave out anything but its schema
and its name; any other file has to be complete. What complete means is therefore said apart from the types.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from npusim.config.chip import Chip

ID = "urn:npusim:chip:1"
FILE = Path(__file__).resolve().parents[2] / "docs" / "schemas" / "chip-1.json"


def chip_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a chip file."""
    model = Chip.model_json_schema(by_alias=True)
    definitions = model.pop("$defs")
    complete = _complete(model, definitions)
    for section in (model, *definitions.values()):
        section.pop("title", None)
        if section is not definitions["Source"]:
            section.pop("required", None)
        for name, field in section["properties"].items():
            section["properties"][name] = _removable(field)
    properties = {
        "schema": model["properties"].pop("schema"),
        "name": model["properties"].pop("name"),
        "extends": {
            "description": "Name or path of the chip that this one changes.",
            "type": "string",
            "minLength": 1,
        },
        **model["properties"],
    }
    partial = {"anyOf": [{"required": ["extends"]}, {"properties": {"name": {"pattern": "^_"}}}]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": ID,
        "title": "npusim chip",
        "description": model["description"],
        "type": "object",
        "properties": properties,
        "required": ["schema", "name"],
        "additionalProperties": False,
        "if": partial,
        "else": complete,
        "$defs": definitions,
    }


def _complete(section: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """Return only what a complete section requires, for itself and for the sections in it."""
    inner = {}
    for name, field in section["properties"].items():
        variants = field.get("anyOf", [field])
        reference = next((v["$ref"] for v in variants if "$ref" in v), None)
        below = _complete(definitions[reference.rpartition("/")[2]], definitions) if reference else {}
        if below:
            inner[name] = below
    result: dict[str, Any] = {"required": section["required"]} if section.get("required") else {}
    return {**result, "properties": inner} if inner else result


def _removable(field: dict[str, Any]) -> dict[str, Any]:
    """Drop titles and defaults, which say nothing here, and let null remove an entry of a mapping."""
    field = {key: value for key, value in field.items() if key not in ("title", "default")}
    if "description" in field:
        field["description"] = " ".join(field["description"].split())
    if "propertyNames" in field:
        field["additionalProperties"] = {
            "anyOf": [_removable(field["additionalProperties"]), {"type": "null"}]
        }
    return field


def plain_schema(node: Any) -> Any:
    """Return a schema without the titles, which only repeat the names of fields, and with each description
    in one line.
    """
    if isinstance(node, list):
        return [plain_schema(item) for item in node]
    if not isinstance(node, dict):
        return node
    plain = {}
    for key, value in node.items():
        if isinstance(value, str) and key == "description":
            plain[key] = " ".join(value.split())
        elif not (isinstance(value, str) and key == "title"):
            plain[key] = plain_schema(value)
    return plain


def write_page(file: Path, text: str) -> int:
    """Write a generated file of a checkout, print its path, and return 0, the exit code."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    print(file)
    return 0


def schema_text() -> str:
    """Return the schema as the text of its file."""
    return json.dumps(chip_schema(), indent=2, ensure_ascii=False) + "\n"


def main() -> int:
    """Write the schema file of a checkout."""
    return write_page(FILE, schema_text())


if __name__ == "__main__":
    sys.exit(main())
