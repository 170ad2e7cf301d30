"""Keys as columns of Arrow: their types, and names that earlier answers released."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dpsql.engines.arrow_types import find_arrow_type
from dpsql.errors import EngineError
from dpsql.sql.ir.tree import Family, Type

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa


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


def read_int64(columns: Iterable[pa.ChunkedArray]) -> list[npt.NDArray[np.int64]]:
    """Return columns of whole numbers as arrays; raise `EngineError` where they are of another type, or have a NULL."""
    import pyarrow as pa

    arrays: list[npt.NDArray[np.int64]] = []
    for column in columns:
        if column.type != pa.int64() or column.null_count:
            raise refuse_result()
        # to_numpy would import pandas, which swallows an interrupt
        arrays.append(np.concatenate([np.empty(0, np.int64), *map(np.from_dlpack, column.chunks)]))
    return arrays


def refuse_result() -> EngineError:
    """Return the error for a result that is not what the statement asked for."""
    hint = "Ask the curator whether the data changed while the session was open."
    return EngineError("engine-result", "The engine's answer does not have the expected columns.", hint=hint)


_NAN = "NaN"  # of a column of numbers, in which no text is


@dataclass(frozen=True, slots=True, repr=False)
class ReleasedNames:
    """Names of the keys of a query, each once: a column for each key, in the order of the plan, the oldest name first.

    The order depends on earlier answers alone, so it may break ties. Names that are not `evident` are returned whether
    rows have them or not, as `known = all` says.
    """

    table: pa.Table
    evident: bool = True

    @property
    def count(self) -> int:
        """How many names there are."""
        return int(self.table.num_rows)

    @property
    def digest(self) -> str:
        """Digest of the names, of their order, and of what they need."""
        import pyarrow as pa

        sink = pa.BufferOutputStream()
        combined = self.table.combine_chunks()
        with pa.ipc.new_stream(sink, combined.schema) as writer:
            writer.write_table(combined)
        digest = hashlib.sha256(sink.getvalue())
        if self.evident:
            digest.update(b" evident")
        return digest.hexdigest()


def match_names(columns: Sequence[pa.ChunkedArray], names: ReleasedNames) -> npt.NDArray[np.int64]:
    """Return for each group, whose keys are the `columns`, the number of its name, -1 where the name is not known.

    Raises `EngineError` where two groups have one name, which the engine never returns.
    """
    found = number_rows(columns, names.table)
    if np.bincount(found[found >= 0], minlength=1).max() > 1:
        raise EngineError("engine-result", "Two groups have the same keys.", hint="Report this as a defect of dpsql.")
    return found


def number_rows(columns: Sequence[pa.ChunkedArray], known: pa.Table) -> npt.NDArray[np.int64]:
    """Return for each row, whose keys are the `columns`, which row of the `known` keys has them; -1 for none."""
    if len(columns) == 1:
        return _number(columns[0], known.column(0))
    return _number_combinations(columns, known.columns)


def list_rows(table: pa.Table) -> list[tuple[object, ...]]:
    """Return the rows of a table of keys as values that are equal where the keys are; every NaN is the same."""
    columns = [[_NAN if value != value else value for value in list_values(column)] for column in table.columns]  # noqa: PLR0124 - NaN alone differs from itself
    return list(zip(*columns, strict=True))


def list_values(column: pa.ChunkedArray) -> list[object]:
    """Return values of a column that compare as it does; times as numbers, since Arrow's reach beyond Python's."""
    import pyarrow as pa

    if pa.types.is_date(column.type):
        column = column.cast(pa.int32())
    elif pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    return list(column.to_pylist())


def _number_combinations(columns: Sequence[pa.ChunkedArray], known: Sequence[pa.ChunkedArray]) -> npt.NDArray[np.int64]:
    """Return the number of the known combination that each row has, -1 for none; keys are added one after another."""
    import pyarrow.compute as pc

    rows, names = np.zeros(len(columns[0]), np.int64), np.zeros(len(known[0]), np.int64)
    for column, values in zip(columns, known, strict=True):
        distinct = pc.unique(values)
        own, found = _number(values, distinct), _number(column, distinct)
        # A pair (combination so far, value) is one number. Only pairs of known names are kept and numbered again, so
        # that numbers stay below names * values, far from 64 bits; a row that leaves the known pairs stays at -1.
        combined, names = np.unique(names * len(distinct) + own, return_inverse=True)
        rows = _look_up(np.where((rows < 0) | (found < 0), -1, rows * len(distinct) + found), combined)
    order = np.argsort(names, kind="stable")
    at = _look_up(rows, names[order])
    return np.where(at < 0, -1, order[at])


def _look_up(values: npt.NDArray[np.int64], ascending: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return where each value is in an ascending array that is not empty, -1 for those that are not in it."""
    # searchsorted returns len(ascending) for a value above all of them, which is no place.
    at = np.minimum(np.searchsorted(ascending, values), len(ascending) - 1)
    return np.where(ascending[at] == values, at, -1)


def _number(column: pa.ChunkedArray, values: pa.ChunkedArray | pa.Array) -> npt.NDArray[np.int64]:
    """Return where each value of a column is among distinct values, -1 for those that are not; NULL is a value."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if values.type != column.type:
        values = values.cast(column.type)
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    found = pc.fill_null(pc.index_in(column, value_set=values), -1).cast(pa.int64())
    return read_int64([found if isinstance(found, pa.ChunkedArray) else pa.chunked_array([found])])[0]
