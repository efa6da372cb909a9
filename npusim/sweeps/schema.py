"""JSON Schema of space files; `python -m npusim.sweeps.schema` writes it to docs/schemas."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from npusim.config.schema import plain_schema, write_page
from npusim.sweeps.space import AXIS, Space

ID = "urn:npusim:sweep:1"
FILE = Path(__file__).resolve().parents[2] / "docs" / "schemas" / "sweep-1.json"


def sweep_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a space file."""
    model = plain_schema(Space.model_json_schema(by_alias=True))
    model["properties"]["axes"]["propertyNames"] = {"pattern": AXIS}
    model["required"] = ["schema", "program"]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": ID,
        "title": "npusim sweep",
        **model,
    }


def schema_text() -> str:
    """Return the schema as the text of its file."""
    return json.dumps(sweep_schema(), indent=2, ensure_ascii=False) + "\n"


def main() -> int:
    """Write the schema file of a checkout."""
    return write_page(FILE, schema_text())


if __name__ == "__main__":
    sys.exit(main())
