"""The answer of a server as Arrow: PyMySQL hands out texts, which Arrow reads as the types that the server names."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from pymysql.cursors import Cursor

__all__ = ["build_table"]

_INTEGERS = frozenset([1, 2, 3, 8, 9, 13])  # TINY, SHORT, LONG, LONGLONG, INT24, YEAR
_DOUBLES = frozenset([4, 5])
_DECIMALS = frozenset([0, 246])


def build_table(cursor: Cursor) -> pa.Table:
    """Return all rows of a cursor; raise `pyarrow.ArrowInvalid` for a number that does not fit its type."""
    columns = list(zip(*cursor.fetchall(), strict=True)) or [()] * len(cursor.description)
    arrays = [_array(values, field) for values, field in zip(columns, cursor.description, strict=True)]
    return pa.table(arrays, names=[f"c{at}" for at in range(len(arrays))])


def _array(values: tuple[Any, ...], field: tuple[Any, ...]) -> pa.Array:
    kind = field[1]
    if kind not in _INTEGERS | _DOUBLES | _DECIMALS:
        has_bytes = any(isinstance(value, bytes) for value in values)
        return pa.array(values, pa.binary() if has_bytes else pa.string())
    texts = pa.array([None if value is None else str(value) for value in values], pa.string())
    if kind in _DECIMALS:
        return pa.array([None if value is None else Decimal(value) for value in values])
    return texts.cast(pa.int64() if kind in _INTEGERS else pa.float64())
