"""Commands of Flight SQL, parsed from the bytes of descriptors and tickets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from dpsql.errors import Refusal, Unsupported
from dpsql.server.flight.codec import Fields, malformed, packed, unpacked

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

_MOST_INFO = 1 << 32


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
    kind, fields = unpacked(message)
    if kind in _WRITING:
        hint = "Ask with SELECT; over Flight SQL nothing is written."
        raise Refusal("flight-update", "This connection only reads.", hint=hint)
    if "Substrait" in kind:
        raise Unsupported("flight-substrait", "Plans of Substrait are not read.", hint="Send the statement in SQL.")
    reader = _READERS.get(kind)
    if reader is None:
        raise malformed()
    return reader(fields)


def read_ticket(handle: bytes) -> bytes:
    """Return the ticket for an answer."""
    return packed("TicketStatementQuery", (1, handle))


def _schemas(fields: Fields) -> Schemas:
    return Schemas(_given(fields, 1), _given(fields, 2))


def _tables(fields: Fields) -> Tables:
    wanted = _given(fields, 1), _given(fields, 2), _given(fields, 3)
    return Tables(*wanted, types=fields.texts(4), with_columns=bool(fields.whole(5)))


def _type_info(fields: Fields) -> TypeInfo:
    code = fields.whole(1)  # an int32, which is written as 64 bits where it is negative
    return TypeInfo((code if code < 1 << 63 else code - (1 << 64)) if fields.has(1) else None)


def _given(fields: Fields, number: int) -> str | None:
    return fields.text(number) if fields.has(number) else None


_WRITING = frozenset(["CommandStatementUpdate", "CommandPreparedStatementUpdate", "CommandStatementIngest"])
_READERS: Mapping[str, Callable[[Fields], Command]] = MappingProxyType(
    {
        "CommandStatementQuery": lambda fields: Statement(fields.text(1)),
        "CommandPreparedStatementQuery": lambda fields: Prepared(fields.raw(1)),
        "TicketStatementQuery": lambda fields: Ticket(fields.raw(1)),
        "CommandGetSqlInfo": lambda fields: ServerInfo(tuple(code for code in fields.wholes(1) if code < _MOST_INFO)),
        "CommandGetXdbcTypeInfo": _type_info,
        "CommandGetCatalogs": lambda _: Catalogs(),
        "CommandGetDbSchemas": _schemas,
        "CommandGetTables": _tables,
        "CommandGetTableTypes": lambda _: TableTypes(),
        "CommandGetPrimaryKeys": lambda _: Keys(is_primary=True),
        "CommandGetExportedKeys": lambda _: Keys(is_primary=False),
        "CommandGetImportedKeys": lambda _: Keys(is_primary=False),
        "CommandGetCrossReference": lambda _: Keys(is_primary=False),
    }
)
