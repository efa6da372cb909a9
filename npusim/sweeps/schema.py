"""JSON Schema of space files; `python -m npusim.sweeps.schema` writes it to docs/schemas."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from npusim.sweeps.space import AXIS, Space

ID = "urn:npusim:sweep:1"
FILE = Path(__file__).resolve().parents[2] / "docs" / "schemas" / "sweep-1.json"


def sweep_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a space file."""
    model = _plain(Space.model_json_schema(by_alias=True))
    model["properties"]["axes"]["propertyNames"] = {"pattern": AXIS}
    model["required"] = ["schema", "program"]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": ID,
        "title": "npusim sweep",
        **{key: value for key, value in model.items() if key != "title"},
    }


def _plain(node: Any) -> Any:
    """Drop the titles that only repeat field names, and unwrap descriptions."""
    if isinstance(node, dict):
        return {
            key: " ".join(value.split()) if key == "description" and isinstance(value, str) else _plain(value)
            for key, value in node.items()
            if key != "title" or not isinstance(value, str)
        }
    return [_plain(item) for item in node] if isinstance(node, list) else node


def schema_text() -> str:
    """Return the schema as the text of its file."""
    return json.dumps(sweep_schema(), indent=2, ensure_ascii=False) + "\n"


def main() -> int:
    """Write the schema file of a checkout."""
    FILE.parent.mkdir(parents=True, exist_ok=True)
    FILE.write_text(schema_text(), encoding="utf-8")
    print(FILE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
