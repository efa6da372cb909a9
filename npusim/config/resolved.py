"""A chip as one complete YAML file, every number with its source beside it."""

from __future__ import annotations

from typing import Any

import yaml

from npusim.config.chip import Chip
from npusim.config.document import KeyPath, dotted
from npusim.config.merge import numbers

_WIDTH = 44
"""Column of the sources beside the values."""


def resolved_yaml(chip: Chip) -> str:
    """Write a chip as YAML that loads again to an equal chip, each number with its source beside it."""
    data = chip.model_dump(by_alias=True, exclude_none=True)
    sources = data.pop("sources")
    lines = _section(chip, data, ())
    lines.append("sources:")
    order = {dotted(path): i for i, (path, _) in enumerate(numbers(data))}
    for path, source in sorted(sources.items(), key=lambda item: order.get(item[0], len(order))):
        lines.append(f"  {_key(path)}: {{from: {_text(source['from'])}, confidence: {source['confidence']}}}")
    return "\n".join(lines) + "\n"


def _section(chip: Chip, data: dict[str, Any], above: KeyPath) -> list[str]:
    lines = []
    for key, value in data.items():
        path = (*above, key)
        indent = "  " * len(above)
        if isinstance(value, dict) and value:
            lines += [f"{indent}{key}:", *_section(chip, value, path)]
        else:
            line = f"{indent}{key}: {_value(value)}"
            source = chip.sources.get(dotted(path))
            lines.append(
                f"{line:<{_WIDTH}} # {source.confidence}  {_comment(source.source)}" if source else line
            )
    return lines


def _value(value: Any) -> str:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return "{}" if isinstance(value, dict) else str(value)


def _key(path: str) -> str:
    return path if path.replace(".", "").replace("_", "").isalnum() else _text(path)


def _text(text: str) -> str:
    quoted: str = yaml.safe_dump(text, default_style='"', width=1 << 30, allow_unicode=True)
    return quoted.strip()


def _comment(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))
