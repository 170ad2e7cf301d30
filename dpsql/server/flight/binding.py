"""Parameters that a client binds: one row of Arrow, which is checked before any value of it is looked at."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa

from dpsql.errors import UsageError
from dpsql.sql.ir.types import WIDEST_DECIMAL

if TYPE_CHECKING:
    import pyarrow.flight as fl

__all__ = ["parameter_schema", "read_parameters"]

_MOST_PARAMETERS = 3_100  # as many as a statement has literals
_MOST_BATCHES = 16
_TYPES = {
    "BOOLEAN": pa.bool_(),
    "BIGINT": pa.int64(),
    "DOUBLE": pa.float64(),
    "VARCHAR": pa.string(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us"),
}


_PLAIN = (
    pa.types.is_null,
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_decimal,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_string_view,
    pa.types.is_date,
    pa.types.is_timestamp,
)


def parameter_schema(types: tuple[str, ...]) -> pa.Schema:
    """Return the columns in which a client binds parameters of these types of SQL; text where a type is not known."""
    return pa.schema([pa.field(str(position), _arrow(name)) for position, name in enumerate(types, start=1)])


def read_parameters(reader: fl.MetadataRecordBatchReader) -> tuple[object, ...]:
    """Return the one row of values that a client sends. Raises `UsageError` for none, several, and what is no value."""
    if len(reader.schema) > _MOST_PARAMETERS:
        raise _unbound("There are too many parameters.")
    if not all(_can_be_read(field.type) for field in reader.schema):
        raise _unbound("A parameter has a type that cannot be bound.")
    found: list[tuple[object, ...]] = []
    for _ in range(_MOST_BATCHES):
        batch = _next(reader)
        if batch is None:
            break
        found += _rows(batch, most=1 - len(found))
    else:
        raise _unbound("The parameters come in too many batches.")
    if len(found) != 1:
        raise _unbound("One row of parameters is bound.")
    return found[0]


def _can_be_read(type_: pa.DataType) -> bool:
    """Say whether values are plain: of anything nested, or known to Arrow by a name, nothing is looked at."""
    if pa.types.is_dictionary(type_):
        type_ = type_.value_type
    return any(is_one(type_) for is_one in _PLAIN)


def _next(reader: fl.MetadataRecordBatchReader) -> pa.RecordBatch | None:
    """Return the next batch that is sent, if there is one; None after the last."""
    while True:
        try:
            batch = reader.read_chunk().data
        except StopIteration:
            return None
        except Exception:  # noqa: BLE001 - what does not read as Arrow may fail in any way
            batch = None
            break
        if batch is not None:
            return batch
    raise _unbound("The parameters do not read as Arrow.")


def _rows(batch: pa.RecordBatch, *, most: int) -> list[tuple[object, ...]]:
    """Return the rows of a batch as Python values; offsets and lengths in it are the client's and are checked first."""
    problem = ""
    try:
        if batch.num_rows > most:
            problem = "One row of parameters is bound."
        else:
            batch.validate(full=True)  # before anything else of it: even its size is computed from its offsets
            return [tuple(_value(column[row]) for column in batch.columns) for row in range(batch.num_rows)]
    except (pa.ArrowException, ArithmeticError, ValueError, TypeError):
        problem = "A parameter has a value that cannot be bound."
    raise _unbound(problem)


def _value(cell: pa.Scalar) -> object:
    """Return a value as the language takes it: times to the microsecond, and whole numbers that are wider as such."""
    if pa.types.is_dictionary(cell.type):
        cell = cell.value
    if pa.types.is_timestamp(cell.type) and cell.type.tz is None:
        cell = cell.cast(pa.timestamp("us"))
    value = cell.as_py()
    if isinstance(value, Decimal) and value == value.to_integral_value() and value.adjusted() >= WIDEST_DECIMAL:
        return int(value)
    return value


def _arrow(name: str) -> pa.DataType:
    if name.startswith("DECIMAL("):
        width, _, scale = name.removeprefix("DECIMAL(").rstrip(")").partition(",")
        return pa.decimal128(int(width), int(scale or 0))
    return _TYPES.get(name, pa.int64() if name.endswith(("INT", "INTEGER")) else pa.string())


def _unbound(reason: str) -> UsageError:
    return UsageError("flight-parameters", reason, hint="Bind one value to each ? or $1 of the statement.")
