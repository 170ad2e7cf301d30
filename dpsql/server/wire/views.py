"""Temporary views of a connection: names of queries, which stand as CTEs before the statements that read them.

Tools make one to learn the columns of a query. Making one is free; a statement that reads it is charged as with the
query in its place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from dpsql.server.wire.codec import Column
from dpsql.server.wire.command_parser import StatementText
from dpsql.server.wire.rows import OIDS
from dpsql.server.wire.sqlstates import WireError
from dpsql.server.wire.words import read_words

__all__ = ["View", "add_view", "expand_views", "list_definitions", "quote_name"]

_MAX_VIEWS, _MAX_TEXT = 20, 32 * 1024  # of a connection; characters of their queries together
_BEFORE_TABLES = frozenset(["FROM", "JOIN", ",", "TABLE"])
_QUERIES = frozenset(["SELECT", "WITH", "VALUES", "TABLE", "FROM", "("])
_TYPES = {
    OIDS["bool"]: "boolean",
    OIDS["bytea"]: "bytea",
    OIDS["int8"]: "bigint",
    OIDS["int2"]: "smallint",
    OIDS["int4"]: "integer",
    OIDS["float4"]: "real",
    OIDS["float8"]: "double precision",
    OIDS["varchar"]: "varchar",
    OIDS["date"]: "date",
    OIDS["time"]: "time",
    OIDS["timestamp"]: "timestamp",
    OIDS["timestamptz"]: "timestamptz",
}


@dataclass(frozen=True, slots=True)
class View:
    """The query of a view, which reads no other view, and its columns."""

    query: str
    columns: tuple[Column, ...]


def add_view(views: Mapping[str, View], name: str, *, view: View, replaces: bool) -> dict[str, View]:
    """Return the views with one more; raise `WireError` for a name in use, and for too many views."""
    if name in views and not replaces:
        raise WireError(
            "42P07", "A view of this name exists already.", hint="DROP VIEW it first, or CREATE OR REPLACE."
        )
    names = [column.name for column in view.columns]
    if len({*names}) < len(names):
        raise WireError("42701", "Two columns of the view have one name.", hint="Name them apart with AS.")
    known = {**views, name: view}
    if len(known) > _MAX_VIEWS or sum(len(one.query) for one in known.values()) > _MAX_TEXT:
        raise WireError("54000", "There are too many views.", hint="DROP VIEW some.")
    return known


def expand_views(source: StatementText, views: Mapping[str, View]) -> StatementText:
    """Return a statement with the views that it reads as CTEs; positions stay those in the text that was sent."""
    if not views:
        return source
    words = list(read_words(source.text))
    pairs = pairwise(words)
    read = [
        word.value
        for before, word in pairs
        if (before.upper or before.written) in _BEFORE_TABLES and word.kind in {"word", "quoted"}
    ]
    used = [name for name in dict.fromkeys(read) if name in views]
    first = next((word for word in words if (word.upper or word.written) in _QUERIES), None)
    if not used or first is None:
        return source
    ctes = ", ".join(f"{quote_name(name)} AS ({views[name].query})" for name in used)
    if first.upper == "WITH":
        at, inserted = first.end, f" {ctes},"
    else:
        at, inserted = first.start, f"WITH {ctes} "
    text = source.text[:at] + inserted + source.text[at:]
    return StatementText(text, source.before - len(inserted))


def list_definitions(views: Mapping[str, View]) -> tuple[str, ...]:
    """Return the statements that create the views in the catalog, as views that cannot be read there."""
    unread = "WHERE (SELECT 'A temporary view cannot be read together with system catalogs.'::text)::boolean"
    return tuple(
        f"CREATE VIEW main.{quote_name(name)} AS SELECT "
        + ", ".join(f"NULL::{_find_type(column)} AS {quote_name(column.name)}" for column in view.columns)
        + f" {unread}; GRANT SELECT ON main.{quote_name(name)} TO PUBLIC"
        for name, view in views.items()
    )


def _find_type(column: Column) -> str:
    """Return PostgreSQL's name for the type of a column."""
    if column.oid != OIDS["numeric"]:
        return _TYPES.get(column.oid, "text")
    modifier = column.modifier - 4
    return "numeric" if modifier < 0 else f"numeric({modifier >> 16}, {modifier & 0xFFFF})"


def quote_name(name: str) -> str:
    """Return a name in double quotes."""
    return '"' + name.replace('"', '""') + '"'
