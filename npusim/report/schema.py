"""JSON Schema of reports; `python -m npusim.report.schema` writes it to docs/schemas."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from npusim.config.schema import plain_schema, write_page
from npusim.report.model import Report

ID = "urn:npusim:report:1"
FILE = Path(__file__).resolve().parents[2] / "docs" / "schemas" / "report-1.json"


def report_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a report."""
    model = Report.model_json_schema(by_alias=True, mode="serialization")
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": ID, "title": "npusim report"}
    return {**head, **plain_schema(model)}


def schema_text() -> str:
    """Return the schema as the text of its file."""
    return json.dumps(report_schema(), indent=2, ensure_ascii=False) + "\n"


def main() -> int:
    """Write the schema file of a checkout."""
    return write_page(FILE, schema_text())


if __name__ == "__main__":
    sys.exit(main())
