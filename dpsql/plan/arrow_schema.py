"""Arrow for the released table: types from the query, never from the data, and ORDER BY as DuckDB orders."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from dpsql.engines.arrow_types import find_arrow_type
from dpsql.sql.ir.statements import HavingTerm, Order
from dpsql.sql.ir.types import Family, Type

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["arrow_type", "filter_rows", "int64_array", "order_rows"]

_COMPARISONS = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def arrow_type(type_: Type) -> pa.DataType:
    """Return the Arrow type of a key, whose type is one that dpsql computes with."""
    known = None if type_.family is Family.OPAQUE else find_arrow_type(type_.name)
    if known is None:
        raise KeyError(type_.name)
    return known


def int64_array(values: Iterable[int]) -> pa.Array:
    """Return whole numbers as an array; raises OverflowError beyond 64 bits.

    Where pandas is installed `pa.array` imports it to ask whether these are its own, between the rows and the answer:
    half of what a first query takes, and a place that swallows an interrupt.
    """
    import pyarrow as pa

    numbers = np.fromiter(values, np.int64)
    return pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers)])


def filter_rows(table: pa.Table, keep: tuple[HavingTerm, ...]) -> pa.Table:
    """Return the rows whose released counts pass every comparison; NULL, as an average may be, passes none."""
    for term in keep:
        compare = _COMPARISONS[term.operator]
        counts = table.column(term.output).to_pylist()
        rows = [row for row, count in enumerate(counts) if count is not None and compare(count, term.value)]
        table = table.take(int64_array(rows))
    return table


def order_rows(table: pa.Table, order: tuple[Order, ...]) -> pa.Table:
    """Return the rows by the ORDER BY terms, ties in the order they came; NaN is the greatest number."""
    rows = list(range(table.num_rows))
    for term in reversed(order):
        values = _comparable(table.column(term.output))
        present = [row for row in rows if values[row] is not None]
        absent = [row for row in rows if values[row] is None]
        present.sort(key=lambda row: (_is_nan(values[row]), values[row]), reverse=term.descending)
        rows = absent + present if term.nulls_first else present + absent
    return table.take(int64_array(rows)) if order else table


def _comparable(column: pa.ChunkedArray) -> list[object]:
    """Return Python values that compare as the column's do; dates as numbers, since Arrow's reach beyond Python's."""
    import pyarrow as pa

    if pa.types.is_date(column.type):
        column = column.cast(pa.int32())
    elif pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    return list(column.to_pylist())


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)
