"""Canonical keys: equal values in a group print alike, so that no label shows the spelling of one unit.

Text is compared by its bytes under every collation. -0.0 becomes 0.0, and every NaN becomes the same NaN.
"""

from __future__ import annotations

from dpsql.sql.ir.tree import Call, Case, Collate, Expression, Literal
from dpsql.sql.ir.types import BOOLEAN, DOUBLE, Family

__all__ = ["canonicalize"]


def canonicalize(key: Expression) -> Expression:
    """Rewrite a group key so that equal values are identical."""
    if key.type.family is Family.TEXT:
        return Collate(key, key.type, key.longest)
    if isinstance(key, Literal) and key.value is None:
        return key
    if isinstance(key, Literal) and isinstance(key.value, float):  # its NaN is already the one NaN of `coercion.py`
        return Literal(key.value + 0.0, DOUBLE)
    if key.type.family is Family.DOUBLE or key.type.name == "FLOAT":
        is_nan = Call("isnan", (key,), BOOLEAN)
        is_zero = Call("=", (key, Literal(0.0, key.type)), BOOLEAN)
        return Case(((is_nan, Literal("nan", key.type)), (is_zero, Literal(0.0, key.type))), key, key.type)
    return key
