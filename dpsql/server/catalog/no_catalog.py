"""Catalog of a server without a PostgreSQL: it answers what drivers send when they connect, and refuses the rest.

These are constants about the connection, such as version() and current_schema(), and lookups of types that no server
has unless an extension adds them. Everything else would need the system catalogs of a PostgreSQL.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from dpsql.server.catalog.protocol import CatalogError, CatalogRows, Column, Description, Hold, Parameter
from dpsql.server.row_blocks import encode_rows
from dpsql.sql.ir.catalog import DATABASE, HOME
from dpsql.sql.lexer import ascii_lower

__all__ = ["NoCatalog"]

_VERSION = "18.0"
_MAX_LENGTH = 1_000  # characters
_BOOL, _CHAR, _NAME, _INT8, _INT4, _TEXT, _OID = 16, 18, 19, 20, 23, 25, 26
_SIZES = {_BOOL: 1, _CHAR: 1, _NAME: 64, _INT8: 8, _INT4: 4, _OID: 4}  # bytes; of other types they vary
_CASTS = {"int": _INT4, "int4": _INT4, "integer": _INT4, "int8": _INT8, "bigint": _INT8, "text": _TEXT}
_SETTINGS = {
    "bytea_output": "hex",
    "client_encoding": "UTF8",
    "datestyle": "ISO, MDY",
    "default_transaction_isolation": "read committed",
    "default_transaction_read_only": "on",
    "integer_datetimes": "on",
    "is_superuser": "off",
    "jit": "off",
    "lc_collate": "C",
    "lc_ctype": "C",
    "max_identifier_length": "63",
    "max_index_keys": "32",
    "search_path": HOME,
    "server_encoding": "UTF8",
    "server_version": _VERSION,
    "server_version_num": "180000",
    "standard_conforming_strings": "on",
    "statement_timeout": "0",
    "timezone": "UTC",
    "transaction_isolation": "read committed",
    "transaction_read_only": "on",
}
_BLANKS, _SHORT_NUMBER = re.compile(r"\s+"), re.compile(r"[0-9]{1,9}")
_FROM_FUNCTION = re.compile(r"select \* from (?=[a-z_.]+\(\)$)", re.IGNORECASE)  # as TypeORM writes it
_ITEM = re.compile(
    r"""
    \s* (?:pg_catalog\.)? (?P<name>[a-z_]+) \s*
    (?P<call>
        \( \s* (?: '(?P<first>[^']*)' \s* (?: , \s* (?:'(?P<second>[^']*)'|(?P<flag>true|false)) \s* ){0,2} )? \)
    )?
    (?: :: \s* (?:pg_catalog\.)? (?P<cast>[a-z0-9]+) )?
    (?: \s+ (?:as\s+)? (?!(?:from|where|group|having|order|limit|union)\b) (?P<alias>[a-z_][a-z0-9_]*|"[^"]+") )?
    \s* (?: , (?=\s*\S) | $ )
    """,
    re.VERBOSE | re.IGNORECASE,
)
_NAMES_OF_USER = frozenset(["current_user", "session_user", "user", "current_role"])
_WITHOUT_CALL = _NAMES_OF_USER | {"current_schema", "current_catalog"}
# Lookups of a type of an extension that drivers send when they connect, and their columns. No row is the right answer.
_ABSENT_TYPES = {
    "select typname as name, oid, typarray as array_oid, oid::regtype::text as regtype, typdelim as delimiter "
    "from pg_type t where t.oid = to_regtype($1) order by t.oid": (
        ("name", _NAME),
        ("oid", _OID),
        ("array_oid", _OID),
        ("regtype", _TEXT),
        ("delimiter", _CHAR),
    ),  # SQLAlchemy with psycopg
    "select t.oid, typarray from pg_type t join pg_namespace ns on typnamespace = ns.oid where typname = 'hstore'": (
        ("oid", _OID),
        ("typarray", _OID),
    ),  # SQLAlchemy with psycopg2
    "select oid, typbasetype from pg_type where typname = 'lo'": (("oid", _OID), ("typbasetype", _OID)),  # psqlODBC
}


@dataclass(frozen=True, slots=True)
class _Answer:
    """The columns and rows of an answer, and the OIDs of the parameters of the statement."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[str | None, ...], ...]
    parameters: tuple[int, ...] = ()
    is_show: bool = False


class NoCatalog:
    """Catalog that has no tables; `reason` says why there is no PostgreSQL, for the message at start."""

    version = _VERSION

    def __init__(self, reason: str = 'The policy says catalog = "none".') -> None:
        self.summary = f"none, so tools that list tables get an error. {reason}"

    def find_description(self, sql: str, types: Sequence[int] = ()) -> None:
        """Return None: nothing is stored."""

    def find_answer(
        self, sql: str, parameters: Sequence[Parameter] = (), *, user: str, formats: Sequence[int] = ()
    ) -> None:
        """Return None: nothing is stored."""

    def describe(
        self,
        sql: str,
        types: Sequence[int] = (),  # noqa: ARG002
        *,
        user: str,
        definitions: Sequence[str] = (),  # noqa: ARG002
    ) -> Description:
        """Return the parameters and columns of one statement. Raises `CatalogError`."""
        found = _find_answer(sql, user)
        return Description(found.parameters, found.columns)

    def execute(
        self,
        sql: str,
        parameters: Sequence[Parameter] = (),
        *,
        user: str,
        formats: Sequence[int] = (),
        definitions: Sequence[str] = (),  # noqa: ARG002
        hold: Hold | None = None,
    ) -> CatalogRows:
        """Answer one statement. Raises `CatalogError`."""
        found = _find_answer(sql, user)
        if found.parameters and [each.value for each in parameters] != [b"hstore"]:
            raise _refuse()
        count = len(found.columns)
        codes = list(formats) if len(formats) > 1 else [*formats, *[0] * (not formats)] * count
        if len(codes) != count or not {*codes} <= {0, 1}:
            raise CatalogError("08P01", "The formats of the results do not fit the columns.")
        rows = [
            tuple(
                _encode(value, column.type_oid, code=code)
                for value, column, code in zip(row, found.columns, codes, strict=True)
            )
            for row in found.rows
        ]
        answer = CatalogRows(found.columns, encode_rows(rows), "SHOW" if found.is_show else f"SELECT {len(rows)}")
        if hold is not None:
            hold(answer.size)
        return answer

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


def _find_answer(sql: str, user: str) -> _Answer:
    """Return the answer to a statement that constants answer; raise `CatalogError` for any other."""
    text = _BLANKS.sub(" ", sql[: _MAX_LENGTH + 1]).strip().rstrip("; ")
    if len(sql) > _MAX_LENGTH:
        raise _refuse()
    known = _ABSENT_TYPES.get(ascii_lower(text))
    if known is not None:
        columns = tuple(_make_column(name, oid) for name, oid in known)
        return _Answer(columns, (), (_TEXT,) if "$1" in text else ())
    verb, _, rest = _FROM_FUNCTION.sub("select ", text).partition(" ")
    if ascii_lower(verb) == "show":
        name = ascii_lower(rest).replace(" ", "_").replace("time_zone", "timezone").replace("_level", "")
        return _Answer((_make_column(name, _TEXT),), ((_read_setting(name),),), is_show=True)
    if ascii_lower(verb) != "select":
        raise _refuse()
    at, cells = 0, list[tuple[Column, str | None]]()
    while at < len(rest):
        item = _ITEM.match(rest, at)
        if item is None:
            raise _refuse()
        cells.append(_read_item(item, user))
        at = item.end()
    if not cells:
        raise _refuse()
    return _Answer(tuple(column for column, _ in cells), (tuple(value for _, value in cells),))


def _read_item(item: re.Match[str], user: str) -> tuple[Column, str | None]:
    """Return the column and the value of an item of a select list; raise `CatalogError` for one that is no constant."""
    name, first = ascii_lower(item["name"]), item["first"]
    if (item["call"] is None and name not in _WITHOUT_CALL) or (item["call"] and name in _NAMES_OF_USER):
        raise _refuse()
    oid, value = _NAME, None
    match name, first:
        case "version", None:
            oid, value = _TEXT, f"PostgreSQL {_VERSION} (dpsql, without a catalog)"
        case "current_schema", None:
            value = HOME
        case (("current_database" | "current_catalog"), None):
            value = DATABASE
        case (("current_user" | "session_user" | "user" | "current_role"), None):
            value = user
        case "pg_is_in_recovery", None:
            oid, value = _BOOL, "f"
        case "current_setting", str():
            is_optional = (item["flag"] or "") != "" and ascii_lower(item["flag"]) == "true"
            oid, value = _TEXT, _read_setting(first, is_optional=is_optional)
        case "set_config", str() if item["second"] is not None:
            oid, value = _TEXT, item["second"]
        case _:
            raise _refuse()
    if item["cast"] is not None:
        oid = _find_cast(item["cast"], value)
    return _make_column(_read_alias(item, name), oid), value


def _read_alias(item: re.Match[str], name: str) -> str:
    alias = item["alias"]
    return name if alias is None else alias.strip('"') if alias.startswith('"') else ascii_lower(alias)


def _find_cast(name: str, value: str | None) -> int:
    """Return the OID of the type of a cast; raise `CatalogError` where the value would change."""
    oid = _CASTS.get(ascii_lower(name))
    if oid is None or (oid != _TEXT and value is not None and not _SHORT_NUMBER.fullmatch(value)):
        raise _refuse()
    return oid


def _read_setting(name: str, *, is_optional: bool = False) -> str | None:
    value = _SETTINGS.get(ascii_lower(name))
    if value is None and not is_optional:
        raise CatalogError("42704", "There is no such setting.", hint="SHOW ALL lists the settings.")
    return value


def _make_column(name: str, oid: int) -> Column:
    return Column(name, oid, _SIZES.get(oid, -1), -1)


def _encode(value: str | None, oid: int, *, code: int) -> bytes | None:
    """Encode a value, as PostgreSQL writes it, as text (0) or binary (1)."""
    if value is None:
        return None
    if code and oid == _BOOL:
        return bytes([value == "t"])
    return int(value).to_bytes(_SIZES[oid], signed=True) if code and oid in {_INT4, _INT8} else value.encode()


def _refuse() -> CatalogError:
    reason = "This server has no catalog, so it does not answer what reads pg_catalog or information_schema."
    return CatalogError("0A000", reason, hint="SHOW TABLES lists the tables, and DESCRIBE a table its columns.")
