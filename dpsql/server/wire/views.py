"""Temporary views of a connection: names of queries, which stand as CTEs before the statements that read them.

Tools make one to learn the columns of a query. Making one is free; a statement that reads it is charged as with the
query in its place.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from sqlglot import Token

from dpsql.dialects import quote_name
from dpsql.server.catalog.statements import find_relations
from dpsql.server.memory import WireColumn, measure_columns
from dpsql.server.wire.command_parser import StatementText
from dpsql.server.wire.sqlstates import WireError
from dpsql.server.wire.values import OIDS
from dpsql.server.wire.words import value_of, word_of
from dpsql.sql.lexer import read_words
from dpsql.sql.syntax.block import Block, kinds_of, nest, split

_MAX_VIEWS, _MAX_TEXT = 20, 32 * 1024  # of a connection; characters of their queries together
_MAX_NAME, _MAX_COLUMNS = 63, 1600  # bytes, after which PostgreSQL cuts a name; columns of a relation of PostgreSQL
_MAX_WORDS = 20_000  # of a statement, more than a query may have
_QUERIES = frozenset(["SELECT", "WITH", "VALUES", "TABLE", "FROM", "("])
_STARTS = frozenset(["SELECT", "VALUES", "TABLE", "FROM"])
_TYPES = {
    OIDS["bool"]: "boolean",
    OIDS["bytea"]: "bytea",
    OIDS["int8"]: "bigint",
    OIDS["int2"]: "smallint",
    OIDS["int4"]: "integer",
    OIDS["float4"]: "real",
    OIDS["float8"]: "double precision",
    OIDS["numeric"]: "numeric",
    OIDS["varchar"]: "varchar",
    OIDS["date"]: "date",
    OIDS["time"]: "time",
    OIDS["timestamp"]: "timestamp",
    OIDS["timestamptz"]: "timestamptz",
}


@dataclass(frozen=True, slots=True)
class View:
    """The query of a view, which reads no other view, its columns, and the statement that creates it in the catalog.

    `size` is what it holds, in bytes.
    """

    query: str
    columns: tuple[WireColumn, ...]
    definition: str = ""
    size: int = field(init=False)

    def __post_init__(self) -> None:
        """Measure the view."""
        size = sys.getsizeof(self.query) + measure_columns(self.columns) + sys.getsizeof(self.definition)
        object.__setattr__(self, "size", size)

    @classmethod
    def define(cls, name: str, query: str, *, columns: tuple[WireColumn, ...]) -> View:
        """Return the view of a query.

        The catalog has it as a view that cannot be read there. It is temporary there too: in a schema that connections
        share, one of a name would wait for another's.
        """
        cells = list[str]()
        for column in columns:
            modifier = column.modifier - 4
            is_sized = column.oid == OIDS["numeric"] and modifier >= 0
            type_ = _TYPES.get(column.oid, "text")
            type_ += f"({modifier >> 16}, {modifier & 0xFFFF})" if is_sized else ""
            cells.append(f"NULL::{type_} AS {quote_name(column.name)}")
        unread = "WHERE (SELECT 'A temporary view cannot be read together with system catalogs.'::text)::boolean"
        created = f"CREATE TEMPORARY VIEW {quote_name(name)} AS SELECT {', '.join(cells)} {unread}"
        return cls(query, columns, f"{created}; GRANT SELECT ON pg_temp.{quote_name(name)} TO PUBLIC")


def add_view(views: Mapping[str, View], name: str, *, view: View, replaces: bool) -> dict[str, View]:
    """Return the views with one more; raise `WireError` for a name in use or unfit, and for too many views."""
    if not name or "\0" in name:
        raise WireError("42601", "The name of a view is not empty.", hint="CREATE TEMPORARY VIEW v AS SELECT ...")
    if _cut_name(name) != name:
        reason = f"The name of the view has more than {_MAX_NAME} bytes."
        raise WireError("42622", reason, hint="Give the view a shorter name.")
    if name in views and not replaces:
        raise WireError(
            "42P07", "A view of this name exists already.", hint="DROP VIEW it first, or CREATE OR REPLACE."
        )
    names = [_cut_name(column.name) for column in view.columns]
    if any(not each or "\0" in each for each in names):
        raise WireError("42601", "A column of the view has no name.", hint="Name it with AS.")
    if len(names) > _MAX_COLUMNS:
        raise WireError("54011", f"A view has at most {_MAX_COLUMNS} columns.", hint="Select fewer.")
    if len({*names}) < len(names):
        reason = f"Two columns of the view have one name, or the same first {_MAX_NAME} bytes."
        raise WireError("42701", reason, hint="Name them apart with AS.")
    known = {**views, name: view}
    if len(known) > _MAX_VIEWS or sum(len(one.query) for one in known.values()) > _MAX_TEXT:
        raise WireError("54000", "There are too many views.", hint="DROP VIEW some.")
    return known


def expand_views(source: StatementText, views: Mapping[str, View]) -> StatementText:
    """Return a statement with the views that it reads as CTEs; positions stay those in the text that was sent."""
    if not views:
        return source
    read = [parts[0] for parts in find_relations(source.text) if len(parts) == 1]
    names = dict.fromkeys(name if name.isascii() else name.lower() for name in read)
    if names.keys().isdisjoint(views):
        return source
    words = list(islice(read_words(source.text), _MAX_WORDS))
    start = next((at for at, word in enumerate(words) if word_of(word) in _QUERIES), None)
    if start is None:
        return source
    first, own = words[start], _find_ctes(words[start:])
    used = [name for name in names if name in views and name not in own]
    if not used:
        return source
    ctes = ", ".join(f"{quote_name(name)} AS ({views[name].query}\n)" for name in used)  # a query may end in a comment
    if word_of(first) == "WITH":
        following = words[start + 1] if start + 1 < len(words) else first
        at, inserted = (following if word_of(following) == "RECURSIVE" else first).end + 1, f" {ctes},"
    else:
        at, inserted = first.start, f"WITH {ctes} "
    text = source.text[:at] + inserted + source.text[at:]
    return StatementText(text, source.before - len(inserted))


def _find_ctes(words: Sequence[Token]) -> set[str]:
    """Return the names of the CTEs before a query, given its words; they hide views."""
    if word_of(words[0]) != "WITH":
        return set()
    nodes = nest(words).nodes[1:]
    # the query begins with a word, or with parentheses behind those of the last CTE
    begins = (
        at
        for at, node in enumerate(nodes)
        if kinds_of(nodes[at - 1 : at + 1]) == ["L_PAREN", "L_PAREN"]
        or (not isinstance(node, Block) and word_of(node) in _STARTS)
    )
    names = set[str]()
    for part in split(nodes[: next(begins, len(nodes))]):
        for node in part[:2]:  # the first of them may be RECURSIVE
            if isinstance(node, Block) or word_of(node) != "RECURSIVE":
                names |= set() if isinstance(node, Block) else {value_of(node)}
                break
    return names


def list_definitions(views: Mapping[str, View]) -> tuple[str, ...]:
    """Return the statements that create the views in the catalog, as views that cannot be read there."""
    return tuple(view.definition for view in views.values())


def _cut_name(name: str) -> str:
    return name.encode()[:_MAX_NAME].decode(errors="ignore")
