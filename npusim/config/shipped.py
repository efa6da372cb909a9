"""Where the files that come with npusim are: inside the wheel, or next to the package in a checkout."""

from __future__ import annotations

from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path


def shipped(kind: str) -> Traversable:
    """Return the folder of the shipped `configs`, `programs` or `validation` files."""
    inside = files("npusim").joinpath("_shipped", kind)
    return inside if inside.is_dir() else Path(__file__).resolve().parents[2] / kind
