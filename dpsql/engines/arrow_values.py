"""Values of Arrow columns as Python, pandas and text have them, where those reach less far than DuckDB's types."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["narrow_integers", "read_values", "spell_beyond_calendar"]

_LAST_DAY, _LAST_MICROSECOND = 2**31 - 1, 2**63 - 1  # DuckDB's infinite date and timestamp


def _is_huge_integer(type_: pa.DataType) -> bool:
    """Say whether a type is that of HUGEINT: sums of whole numbers."""
    return str(type_) == "decimal128(38, 0)"


def narrow_integers(table: pa.Table) -> pa.Table:
    """Return the table with each HUGEINT as a BIGINT or, where a value is too large for that, as a DOUBLE."""
    import pyarrow as pa

    for at, column in enumerate(table.columns):
        if _is_huge_integer(column.type):
            fits = all(value is None or -(2**63) <= value < 2**63 for value in column.to_pylist())
            table = table.set_column(at, table.column_names[at], column.cast(pa.int64() if fits else pa.float64()))
    return table


def spell_beyond_calendar(table: pa.Table) -> pa.Table:
    """Return the table with dates outside Python's calendar as text, because Arrow cannot write them as CSV."""
    import pyarrow as pa

    for position, column in enumerate(table.columns):
        values = read_values(column) if pa.types.is_temporal(column.type) else []
        if any(isinstance(value, str) for value in values):
            texts = [None if value is None else str(value) for value in values]
            table = table.set_column(position, table.column_names[position], pa.array(texts, pa.string()))
    return table


def read_values(column: pa.ChunkedArray) -> list[object]:
    """Return Python values, or text where Python's calendar ends before Arrow's."""
    if _is_huge_integer(column.type):
        return [None if value is None else int(value) for value in column.to_pylist()]
    try:
        return list(column.to_pylist())
    except (OverflowError, ValueError):
        return [_scalar(value) for value in column]


def _scalar(value: pa.Scalar) -> object:
    try:
        return value.as_py()
    except (OverflowError, ValueError):
        return _beyond_calendar(value)


def _beyond_calendar(value: pa.Scalar) -> str:
    """Return a date or timestamp as numpy spells it, ISO 8601 with as many digits of a year as it takes."""
    import pyarrow as pa

    is_date = pa.types.is_date32(value.type)
    ticks = int(value.value)
    if abs(ticks) == (_LAST_DAY if is_date else _LAST_MICROSECOND):
        return "infinity" if ticks > 0 else "-infinity"
    return str(np.datetime64(ticks, "D" if is_date else "us")).replace("T", " ")
