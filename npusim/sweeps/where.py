"""Conditions on the points of a sweep and goals of a search: arithmetic and comparisons of axes and numbers,
parsed and never run as code.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Collection, Mapping
from typing import Any

from npusim.errors import ConfigError, did_you_mean

_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_LONGEST = 80
"""Characters of a condition in an error."""
GRAMMAR = "use names, numbers, texts, + - * / // %, comparisons, and, or, not"


class Formula:
    """A formula such as `chip.l2.size_mib * 1024 + chip.buffers.l1_kib`."""

    def __init__(self, text: str, names: Collection[str]) -> None:
        """Parse a formula of some names.

        Raises `ConfigError`, without a place, for what the grammar does not have or a name that is not there.
        """
        self._condition = Condition(text, names)
        self.text = _shown(text)
        """The formula in errors."""

    @property
    def names(self) -> set[str]:
        """Names that it holds."""
        return self._condition.names

    def value(self, values: Mapping[str, Any]) -> float:
        """Return the value for those of a row.

        Raises `ConfigError` where it is no finite number.
        """
        try:
            found = float(self._condition.value(values))
        except (ValueError, TypeError):
            found = math.nan
        if not math.isfinite(found):
            raise ConfigError(f"'{self.text}' gives no finite number")
        return found


class Condition:
    """A condition such as `program.tile * 2 <= program.n and chip.l2.size_mib > 24`."""

    def __init__(self, text: str, names: Collection[str]) -> None:
        """Parse a condition on some names.

        Raises `ConfigError`, without a place, for what the grammar does not have or a name that is not there.
        """
        self.text = _shown(text)
        """The condition in errors."""
        try:
            self._tree = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise ConfigError(f"'{self.text}' cannot be read; {GRAMMAR}") from None
        self.names: set[str] = set()
        """Names that it holds."""
        self._check(self._tree, names)

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Whether the condition holds for the values of a point.

        Raises `ConfigError` where values cannot be compared or divided.
        """
        return bool(self.value(values))

    def value(self, values: Mapping[str, Any]) -> Any:
        """Return what it comes to; raises as `holds`."""
        try:
            return _value(self._tree, values)
        except (TypeError, ZeroDivisionError, OverflowError) as error:
            raise ConfigError(f"'{self.text}' cannot be worked out: {error}") from None

    def _check(self, node: ast.expr, names: Collection[str]) -> None:
        if isinstance(node, ast.Name | ast.Attribute):
            name = ast.unparse(node)
            if name not in names:
                near = did_you_mean(name, names) or f"; names: {' '.join(names)}"
                raise ConfigError(
                    f"'{self.text}' names {_shown(name)}, which is no axis and no fixed value{near}"
                )
            self.names.add(name)
            return
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float | str):
            return
        if not _known(node):
            part = _shown(ast.unparse(node))
            raise ConfigError(f"'{self.text}' holds '{part}', which is not allowed; {GRAMMAR}")
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self._check(child, names)


def _shown(text: str) -> str:
    """Return a text as it stands in an error, where a long one is cut."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def _known(node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp):
        return type(node.op) in _ARITHMETIC
    if isinstance(node, ast.Compare):
        return all(type(op) in _COMPARISONS for op in node.ops)
    return isinstance(node, ast.BoolOp) or (
        isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub)
    )


def _value(node: ast.expr, values: Mapping[str, Any]) -> Any:
    """Work out a node that has been checked."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.BinOp):
        return _ARITHMETIC[type(node.op)](_value(node.left, values), _value(node.right, values))
    if isinstance(node, ast.UnaryOp):
        operand = _value(node.operand, values)
        return not operand if isinstance(node.op, ast.Not) else -operand
    if isinstance(node, ast.BoolOp):
        wanted = isinstance(node.op, ast.Or)
        return wanted if any(bool(_value(n, values)) is wanted for n in node.values) else not wanted
    if isinstance(node, ast.Compare):
        left = _value(node.left, values)
        for op, right_node in zip(node.ops, node.comparators, strict=True):
            right = _value(right_node, values)
            if not _COMPARISONS[type(op)](left, right):
                return False
            left = right
        return True
    return values[ast.unparse(node)]
