"""Arrow as DuckDB would have given it: what another engine answers is brought to the types that the statement names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["conformed", "find_arrow_type"]

_DECIMAL = re.compile(r"DECIMAL\((\d+),\s*(\d+)\)")


def find_arrow_type(type_: str) -> pa.DataType | None:
    """Return the Arrow type of values of a type of DuckDB's; None for one that dpsql does not compute with."""
    import pyarrow as pa

    if found := _DECIMAL.fullmatch(type_):
        return pa.decimal128(int(found[1]), int(found[2]))
    names = {
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
    return names.get(type_)


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
