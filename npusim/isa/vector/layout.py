"""Which operands of a vector instruction are walked, and how to read their fields fast."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from npusim.isa.vector.lanes import VectorInstruction


class Layout(NamedTuple):
    """Which operands of a class are walked, and how to read their fields fast."""

    names: tuple[str, ...]
    operands: Any
    """Returns the tuple of operands of an instruction."""
    geometry: Any
    """Returns (repeat, then type, block and repeat stride of every operand)."""
    reads_dst: bool
    reads: tuple[bool, ...]
    writes: tuple[bool, ...]


_LAYOUTS: dict[Any, Layout] = {}


def layout_of(cls: type[VectorInstruction]) -> Layout:
    """Return the layout of a class: its operands that have strides, destination first."""
    found = _LAYOUTS.get(cls)
    if found is None:
        fields = {f.name for f in cls.spec}
        found = make_layout(cls, *(n for n in cls.roles if f"{n}_block" in fields))
        _LAYOUTS[cls] = found
    return found


def make_layout(cls: type[VectorInstruction], *names: str) -> Layout:
    """Return a layout with the given operands, destination first."""
    geometry = [f"{n}{suffix}" for n in names for suffix in (".dtype", "_block", "_repeat")]
    get = attrgetter(*names)
    return Layout(
        names,
        get if len(names) > 1 else lambda op: (get(op),),
        attrgetter("repeat", *geometry),
        cls.roles[names[0]].reads,
        tuple(cls.roles[n].reads for n in names),
        tuple(cls.roles[n].writes for n in names),
    )
