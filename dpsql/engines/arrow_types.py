"""Arrow as DuckDB would have given it, and its values where Python, pandas and text reach less far.

What another engine answers is brought to the types that the statement names.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

_DECIMAL = re.compile(r"DECIMAL\((\d+),\s*(\d+)\)")


def find_arrow_type(type_: str) -> pa.DataType | None:
    """Return the Arrow type of values of a type of DuckDB's; None for one that dpsql does not compute with."""
    import pyarrow as pa

    if found := _DECIMAL.fullmatch(type_):
        return pa.decimal128(int(found[1]), int(found[2]))
    return _list_types().get(type_)


def find_type_name(type_: pa.DataType) -> str:
    """Return what DuckDB calls an Arrow type of `find_arrow_type`; VARCHAR for any other."""
    import pyarrow as pa

    if pa.types.is_decimal128(type_):
        return f"DECIMAL({type_.precision},{type_.scale})"
    return next((name for name, each in _list_types().items() if each == type_), "VARCHAR")


def _list_types() -> dict[str, pa.DataType]:
    import pyarrow as pa

    return {
        "BOOLEAN": pa.bool_(),
        "TINYINT": pa.int8(),
        "SMALLINT": pa.int16(),
        "INTEGER": pa.int32(),
        "BIGINT": pa.int64(),
        "UTINYINT": pa.uint8(),
        "USMALLINT": pa.uint16(),
        "UINTEGER": pa.uint32(),
        "DOUBLE": pa.float64(),
        "VARCHAR": pa.string(),
        "DATE": pa.date32(),
        "TIMESTAMP": pa.timestamp("us"),
    }


def conformed(table: pa.Table, types: Sequence[str]) -> pa.Table:
    """Return a table whose columns have these types, as DuckDB names them; others than dpsql knows stay as they are.

    Bytes that are no UTF-8, which some engines keep as text, are shown as U+FFFD, so that no row makes an answer fail.
    Raises `pyarrow.ArrowInvalid`, whose words may hold a value, for what does not fit.
    """
    import pyarrow as pa

    for at, type_ in enumerate(types):
        wanted, column = find_arrow_type(type_), table.column(at)
        if wanted is not None and column.null_count == len(column):  # of any type, where a driver infers it from values
            table = table.set_column(at, table.field(at).name, pa.chunked_array([pa.nulls(len(column), wanted)]))
        elif wanted is not None and type_ == "VARCHAR":
            table = table.set_column(at, table.field(at).name, _text(_storage_values(column)))
        elif wanted is not None and column.type != wanted:
            table = table.set_column(at, table.field(at).name, _storage_values(column).cast(wanted))
    return table


def _text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column of text or bytes as text."""
    import pyarrow as pa

    try:
        text = column.cast(pa.string())
        # A cast of text to text looks at no byte, and a driver may hand over text that is no UTF-8.
        text.validate(full=True)
    except pa.ArrowInvalid:
        raw = column.cast(pa.binary()).to_pylist()
        return pa.chunked_array(
            [[None if each is None else each.decode(errors="replace") for each in raw]], pa.string()
        )
    return text


def _storage_values(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the values of a column of an extension type as what they are stored as."""
    import pyarrow as pa

    if isinstance(column.type, pa.BaseExtensionType):
        return pa.chunked_array([chunk.storage for chunk in column.chunks], column.type.storage_type)
    return column


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
    import numpy as np
    import pyarrow as pa

    is_date = pa.types.is_date32(value.type)
    ticks = int(value.value)
    if abs(ticks) == (_LAST_DAY if is_date else _LAST_MICROSECOND):
        return "infinity" if ticks > 0 else "-infinity"
    return str(np.datetime64(ticks, "D" if is_date else "us")).replace("T", " ")
