"""One expression at a time: what dpsql makes of it on every row of the nasty table, and DuckDB of its text."""

from __future__ import annotations

from dataclasses import dataclass

import duckdb
from support.sql_reference import EVERYTHING, Row, as_newest, private, same

from dpsql.errors import Error
from dpsql.sql.ir.catalog import Catalog
from dpsql.sql.rewrite.engine_query import rewrite_leaders

__all__ = ["Answer", "differences", "ours", "theirs"]

RAISED = "raised"


@dataclass(frozen=True)
class Answer:
    """The type of an expression and its value on each row, by the row's id; `RAISED` where there is none."""

    type: str
    values: dict[int, object]


def ours(
    con: duckdb.DuckDBPyConnection, catalog: Catalog, expression: str, parameters: object = ()
) -> tuple[str, Answer]:
    """Return the type of the IR, and the generated SQL's type and values; raise `dpsql.Error` when refused."""
    text = f"SELECT id, {expression} AS k FROM nasty GROUP BY ALL TOP 10 PRIVATE"
    query = private(text, catalog, parameters)
    counting = rewrite_leaders(query, EVERYTHING)
    relation = con.sql(counting.sql, params=list(counting.parameters))
    types = [str(type_) for type_ in relation.types]
    return str(query.keys[-1].type), Answer(types[len(query.keys) - 1], _by_id(relation.fetchall()))


def _by_id(rows: list[Row]) -> dict[int, object]:
    return {int(str(row[0])): same([row[1]]) for row in rows}


def theirs(con: duckdb.DuckDBPyConnection, expression: str, parameters: object = ()) -> Answer | None:
    """Return DuckDB's own answer to the raw text, row by row if it raises; None when it does not even bind."""
    expression = as_newest(expression)
    sql = f"SELECT id, {expression} AS k, typeof({expression}) FROM nasty WHERE unit IS NOT NULL"
    both = [*parameters, *parameters] if isinstance(parameters, list) else parameters
    con.execute("PRAGMA disable_optimizer")  # it moves terms about, so that some rows no longer raise
    try:
        rows = con.execute(sql, both).fetchall()
    except (duckdb.BinderException, duckdb.ParserException, duckdb.CatalogException):
        return None
    except duckdb.Error:
        rows = []
        for (row_id,) in con.execute("SELECT id FROM nasty WHERE unit IS NOT NULL").fetchall():
            try:
                rows += con.execute(f"{sql} AND id = {row_id}", both).fetchall()
            except duckdb.Error:
                rows.append((row_id, RAISED, None))
    finally:
        con.execute("PRAGMA enable_optimizer")
    types = {str(row[2]) for row in rows} - {"None"}
    values = {int(row[0]): RAISED if row[1] == RAISED else same([row[1]]) for row in rows}
    return Answer(types.pop() if len(types) == 1 else "", values)


def differences(
    con: duckdb.DuckDBPyConnection, catalog: Catalog, expression: str, parameters: object = ()
) -> list[str] | None:
    """Return where dpsql's answer to an expression is not DuckDB's; None when dpsql refuses it."""
    try:
        meant, answer = ours(con, catalog, expression, parameters)
    except Error:
        return None
    found = [] if meant == answer.type else [f"the IR says {meant}, the generated SQL {answer.type}"]
    raw = theirs(con, expression, parameters)
    if raw is None:
        return [*found, "DuckDB does not accept the text"]
    if raw.type and raw.type != answer.type and not _read_as_text(raw.type):
        found.append(f"DuckDB says {raw.type}, dpsql {answer.type}")
    for row_id, value in answer.values.items():
        wanted = raw.values.get(row_id, RAISED)
        if wanted != RAISED and str(wanted) != str(value):
            found.append(f"row {row_id}: DuckDB {str(wanted)[:80]}, dpsql {str(value)[:80]}")
            break
    return found


def _read_as_text(type_: str) -> bool:
    """Say whether dpsql reads a column of this type as another on purpose."""
    return type_ in {"FLOAT", "UUID"} or type_.startswith("ENUM")
