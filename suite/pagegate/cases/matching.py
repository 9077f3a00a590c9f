"""Names chosen by an expression, as in `pytest -k`."""

from __future__ import annotations

import ast

from pagegate.errors import UsageError


def matches(expression: str, name: str) -> bool:
    """Whether a name matches: words are parts of it, joined by and, or, not and parentheses.

    Raises UsageError for anything else.
    """
    try:
        tree = ast.parse(expression.strip(), mode="eval").body
        return _evaluate(tree, name)
    except (SyntaxError, TypeError, ValueError):
        raise UsageError(
            f"-k: required words joined by and, or, not and parentheses, found {expression!r}"
        ) from None


def _evaluate(node: ast.expr, name: str) -> bool:
    if isinstance(node, ast.Name):
        return node.id in name
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return not _evaluate(node.operand, name)
    if isinstance(node, ast.BoolOp):
        values = [_evaluate(value, name) for value in node.values]
        return all(values) if isinstance(node.op, ast.And) else any(values)
    raise ValueError(node)
