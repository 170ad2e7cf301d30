"""Table of votes, and the engine SQL that counts the teachers who give a label to an example.

A row is a vote of a teacher for a label of an example. Rows with a NULL are ignored, and repeated rows count once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dpsql.dialects import DUCKDB, quote_path
from dpsql.engines import Statement
from dpsql.errors import Refusal, Unsupported, UsageError
from dpsql.sql.ir.canonical_keys import canonicalize
from dpsql.sql.ir.catalog import Catalog
from dpsql.sql.ir.tree import Column
from dpsql.sql.ir.types import Family, Type
from dpsql.sql.lexer import ascii_lower
from dpsql.sql.render.duckdb import Writer

__all__ = ["Value", "VotesTable", "check_values", "find_votes_table", "leading_votes", "weighted_votes"]

Value = int | str
_NAMES = "dpsql_example, dpsql_label"


@dataclass(frozen=True, slots=True)
class VotesTable:
    """Table of votes: its name in the policy, its path in the engine, and its three columns."""

    name: str
    path: tuple[str, ...]
    teacher: Column
    example: Column
    label: Column


def find_votes_table(catalog: Catalog, name: str) -> VotesTable:
    """Return the table of votes that the policy calls `name`.

    Raises `Refusal` unless it is private and has the columns example and label, of whole numbers or text; and
    `Unsupported` for one that is not in DuckDB.
    """
    if catalog.dialect is not DUCKDB:
        reason, hint = (
            f"PATE needs the table of votes in DuckDB, not in {catalog.dialect.name}.",
            "Move the table of votes to DuckDB.",
        )
        raise Unsupported("engine-lacks", reason, hint=hint)
    table = catalog.find(name)
    if table is None:
        raise Refusal("unknown-table", "There is no such table.", hint="SHOW TABLES lists what the policy names.")
    if table.privacy_unit is None:
        hint = "Declare it as a private table whose privacy unit is the teacher."
        raise Refusal("nothing-private", "The table of votes is public.", hint=hint)
    if table.link is not None:
        hint = "Add a column with the teacher to the table, and make it the privacy unit."
        raise Unsupported("pate-link", "A table of votes linked to its teachers is not supported.", hint=hint)
    columns = {ascii_lower(column): Column(1, column, type_) for column, type_ in table.columns}
    for needed in ("example", "label"):
        if needed not in columns:
            hint = "A table of votes has the columns example and label besides the privacy unit."
            raise Refusal("unknown-column", f"The table of votes has no column {needed}.", hint=hint)
        if columns[needed].type.family not in {Family.INTEGER, Family.TEXT}:
            hint = "Use whole numbers up to BIGINT, or VARCHAR."
            raise Refusal("pate-column", f"The column {needed} is of a type that votes cannot have.", hint=hint)
    return VotesTable(
        table.name, table.path, columns[ascii_lower(table.privacy_unit)], columns["example"], columns["label"]
    )


def check_values(values: Sequence[Value], kind: Type, *, what: str) -> tuple[Value, ...]:
    """Return public values for a column of votes; raise `UsageError` for duplicates and values it cannot hold."""
    is_integer = kind.family is Family.INTEGER
    if not all(_fits(value, kind) for value in values):
        hint = (
            "Give int values that the column can hold." if is_integer else "Give str values without NUL or surrogates."
        )
        raise UsageError("pate-values", f"The column cannot hold these {what}.", hint=hint)
    if not values or len(set(values)) < len(values):
        raise UsageError("pate-values", f"There must be {what}, and no two of them equal.", hint="Name each once.")
    return tuple(values)


def _fits(value: Value, kind: Type) -> bool:
    if kind.family is Family.INTEGER:
        return type(value) is int and kind.holds(value)
    return type(value) is str and "\0" not in value and not any("\ud800" <= char <= "\udfff" for char in value)


def leading_votes(table: VotesTable, examples: Sequence[Value], *, rows: int) -> Statement:
    """Return the SQL for the first `rows` labels of each example by votes, ties by the labels themselves."""
    writer = Writer()
    counted = (
        f"SELECT {_NAMES}, system.main.count(DISTINCT dpsql_teacher) AS dpsql_votes "  # noqa: S608 - nothing in it is the analyst's text
        f"FROM ({_select_votes(writer, table, examples=examples)}) GROUP BY {_NAMES}"
    )
    order = "ORDER BY dpsql_votes DESC, dpsql_label ASC"
    ranked = (
        f"SELECT *, system.main.row_number() OVER (PARTITION BY dpsql_example {order}) AS dpsql_rank FROM ({counted})"  # noqa: S608 - as above
    )
    sql = (
        f"SELECT {_NAMES}, dpsql_votes FROM ({ranked}) WHERE dpsql_rank <= {rows:d} ORDER BY dpsql_example, dpsql_rank"  # noqa: S608 - as above
    )
    return Statement(sql, tuple(writer.parameters))


def weighted_votes(
    table: VotesTable, examples: Sequence[Value], *, labels: Sequence[Value], weights: Sequence[int]
) -> Statement:
    """Return the SQL for the votes of each example for every label of a list that has any.

    Each vote of a teacher for t labels of the list counts weights[t - 1], an integer; there is one for every t.
    """
    writer = Writer()
    votes = _select_votes(writer, table, examples=examples)
    condition = f"dpsql_label IN ({_unnest(writer, table.label, values=labels)})"
    pairs = f"SELECT DISTINCT {_NAMES}, dpsql_teacher FROM ({votes}) WHERE {condition}"  # noqa: S608 - nothing in it is the analyst's text
    weight = f"system.main.list_extract(CAST({writer.bind(list(weights))} AS INTEGER[]), system.main.count())"
    own = f"SELECT dpsql_example, dpsql_teacher, {weight} AS dpsql_weight FROM dpsql_pairs GROUP BY ALL"  # noqa: S608 - as above
    sql = (
        f"WITH dpsql_pairs AS MATERIALIZED ({pairs}), dpsql_own AS ({own}) "  # noqa: S608 - as above
        f"SELECT {_NAMES}, CAST(system.main.sum(dpsql_weight) AS BIGINT) AS dpsql_votes "
        f"FROM dpsql_pairs JOIN dpsql_own USING (dpsql_example, dpsql_teacher) GROUP BY {_NAMES} ORDER BY {_NAMES}"
    )
    return Statement(sql, tuple(writer.parameters))


def _select_votes(writer: Writer, table: VotesTable, *, examples: Sequence[Value]) -> str:
    """Return SQL for the votes on the examples, which are public; other rows are not read."""
    example, label, teacher = (
        writer.expression(canonicalize(column)) for column in (table.example, table.label, table.teacher)
    )
    condition = f"{example} IN ({_unnest(writer, table.example, values=examples)})"
    return (
        f"SELECT {example} AS dpsql_example, {label} AS dpsql_label, {teacher} AS dpsql_teacher "  # noqa: S608 - nothing in it is the analyst's text
        f"FROM {quote_path(table.path)} AS t1 "
        f"WHERE {condition} AND {label} IS NOT NULL AND {teacher} IS NOT NULL"
    )


def _unnest(writer: Writer, column: Column, *, values: Sequence[Value]) -> str:
    kind = "BIGINT" if column.type.family is Family.INTEGER else "VARCHAR"
    return f"SELECT system.main.unnest(CAST({writer.bind(list(values))} AS {kind}[]))"
