"""Commands of Flight SQL, parsed from the bytes of descriptors and tickets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from dpsql.errors import Refusal, Unsupported
from dpsql.server.flight.codec import decode, malformed, pack, unpack

__all__ = [
    "Catalogs",
    "Command",
    "Keys",
    "Prepared",
    "Schemas",
    "ServerInfo",
    "Statement",
    "TableTypes",
    "Tables",
    "Ticket",
    "TypeInfo",
    "read_command",
    "read_ticket",
]


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement to be answered."""

    text: str


@dataclass(frozen=True, slots=True)
class Prepared:
    """A statement that was prepared, by its handle."""

    handle: bytes


@dataclass(frozen=True, slots=True)
class Ticket:
    """The answer to a statement that was described, by its handle."""

    handle: bytes


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """Request for information about the server; for all of it if no number is given."""

    wanted: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TypeInfo:
    """The types of columns, or the one of this code."""

    code: int | None


@dataclass(frozen=True, slots=True)
class Catalogs:
    """The catalogs that there are."""


@dataclass(frozen=True, slots=True)
class Schemas:
    """The schemas of a catalog whose names fit a pattern of LIKE; None is left out, and fits all."""

    catalog: str | None
    pattern: str | None


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables of a catalog whose schema, name and type fit, with their columns if these are wanted."""

    catalog: str | None
    schema: str | None
    name: str | None
    types: tuple[str, ...]
    with_columns: bool


@dataclass(frozen=True, slots=True)
class TableTypes:
    """The types of tables that there are."""


@dataclass(frozen=True, slots=True)
class Keys:
    """The primary keys of a table, or the keys between tables: there is none."""

    is_primary: bool


Command = Statement | Prepared | Ticket | ServerInfo | TypeInfo | Catalogs | Schemas | Tables | TableTypes | Keys


def read_command(message: bytes) -> Command:
    """Return the command of a descriptor or ticket.

    Raises `UsageError` for what is none, `Refusal` for one that writes, and `Unsupported` for one of another language.
    """
    kind, content = unpack(message)
    if kind in _WRITING:
        hint = "Ask with SELECT; over Flight SQL nothing is written."
        raise Refusal("flight-update", "This connection only reads.", hint=hint)
    if "Substrait" in kind:
        raise Unsupported("flight-substrait", "Plans of Substrait are not read.", hint="Send the statement in SQL.")
    reader = _READERS.get(kind)
    if reader is None:
        raise malformed()
    return reader(decode(kind, content))


def read_ticket(handle: bytes) -> bytes:
    """Return the ticket for an answer."""
    return pack("TicketStatementQuery", statement_handle=handle)


def _read_tables(fields: Any) -> Tables:  # noqa: ANN401 - its attributes are the fields of the command
    catalog, schema, name = (_read_optional(fields, each) for each in (_CATALOG, _SCHEMA, "table_name_filter_pattern"))
    return Tables(catalog, schema, name, types=tuple(fields.table_types), with_columns=fields.include_schema)


def _read_optional(fields: Any, name: str) -> Any:  # noqa: ANN401 - of the type of the field
    """Return a field, or None if the message does not have it."""
    return getattr(fields, name) if fields.HasField(name) else None


_CATALOG, _SCHEMA = "catalog", "db_schema_filter_pattern"
_WRITING = frozenset(["CommandStatementUpdate", "CommandPreparedStatementUpdate", "CommandStatementIngest"])
_READERS: Mapping[str, Callable[[Any], Command]] = MappingProxyType(
    {
        "CommandStatementQuery": lambda fields: Statement(fields.query),
        "CommandPreparedStatementQuery": lambda fields: Prepared(fields.prepared_statement_handle),
        "TicketStatementQuery": lambda fields: Ticket(fields.statement_handle),
        "CommandGetSqlInfo": lambda fields: ServerInfo(tuple(fields.info)),
        "CommandGetXdbcTypeInfo": lambda fields: TypeInfo(_read_optional(fields, "data_type")),
        "CommandGetCatalogs": lambda _: Catalogs(),
        "CommandGetDbSchemas": lambda fields: Schemas(
            _read_optional(fields, _CATALOG), _read_optional(fields, _SCHEMA)
        ),
        "CommandGetTables": _read_tables,
        "CommandGetTableTypes": lambda _: TableTypes(),
        "CommandGetPrimaryKeys": lambda _: Keys(is_primary=True),
        "CommandGetExportedKeys": lambda _: Keys(is_primary=False),
        "CommandGetImportedKeys": lambda _: Keys(is_primary=False),
        "CommandGetCrossReference": lambda _: Keys(is_primary=False),
    }
)
