"""Collations: where texts of two collations meet, all are compared by their bytes.

Otherwise DuckDB always refuses to compare them.
"""

from __future__ import annotations

from dpsql.sql.ir.tree import Collate, Expression, find_collations

__all__ = ["unify_collations"]

_BY_BYTES = "C"
_NONE = frozenset[str]()


def unify_collations(operands: tuple[Expression, ...]) -> tuple[Expression, ...]:
    """Return the operands of one operation, those of text by their bytes if they may be of several collations."""
    found = list(map(find_collations, operands))
    if len(_NONE.union(*found)) < 2:  # noqa: PLR2004 - one goes with itself, and with text that has none
        return operands
    return tuple(
        Collate(operand, operand.type, operand.longest) if names - {_BY_BYTES} else operand
        for operand, names in zip(operands, found, strict=True)
    )
