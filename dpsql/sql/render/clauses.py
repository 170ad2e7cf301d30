"""Text of statements and clauses, from parts that are SQL already: names, numbers, and expressions that a writer wrote.

The passes of `rewrite` compose their SQL with these functions, so that SQL is formatted in this package alone. No part
is ever the text of an analyst, and names that come from data are quoted before.
"""

# ruff: noqa: S608 - every part is SQL of our own

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dpsql.sql.ir.tree import Sorted
from dpsql.sql.render.duckdb import format_direction, identifier

__all__ = [
    "add",
    "alias",
    "among",
    "assign",
    "at_least",
    "at_most",
    "bigint",
    "both",
    "choose",
    "clamp",
    "combine",
    "count",
    "create_table",
    "cross_join",
    "cte",
    "delete",
    "descending",
    "distinct",
    "divide",
    "either",
    "equal",
    "greatest",
    "hash_values",
    "in_query",
    "insert",
    "is_null",
    "join",
    "least",
    "least_struct",
    "left_join",
    "less_than",
    "list_parts",
    "maximum",
    "more_than",
    "multiply",
    "negate",
    "not_distinct",
    "not_equal",
    "not_exists",
    "not_null",
    "number_all",
    "number_rows",
    "one_if",
    "or_zero",
    "order_by",
    "over_all",
    "path",
    "qualify_column",
    "select",
    "sort_by",
    "sort_nulls_last",
    "struct_field",
    "subquery",
    "sum_column",
    "text",
    "try_text",
    "update",
    "values",
    "with_ctes",
    "zero_unless",
]


def list_parts(parts: Iterable[str]) -> str:
    """Return parts separated by commas."""
    return ", ".join(parts)


def path(parts: Sequence[str]) -> str:
    """Return the quoted name of a table, from its catalog to its own."""
    return ".".join(map(identifier, parts))


def alias(sql: str, name: str) -> str:
    """Return an expression or a relation with its name."""
    return f"{sql} AS {name}"


def subquery(sql: str) -> str:
    """Return a statement in parentheses."""
    return f"({sql})"


def select(  # noqa: PLR0913 - one for each clause
    columns: Iterable[str],
    source: str,
    *,
    distinct: bool = False,
    where: str = "",
    group_by: str = "",
    having: str = "",
    qualify: str = "",
    order_by: str = "",
) -> str:
    """Return SELECT ... FROM with those of its clauses that are given."""
    clauses = [f"SELECT {'DISTINCT ' if distinct else ''}{list_parts(columns)} FROM {source}"]
    given = {"WHERE": where, "GROUP BY": group_by, "HAVING": having, "QUALIFY": qualify, "ORDER BY": order_by}
    return " ".join([*clauses, *(f"{name} {clause}" for name, clause in given.items() if clause)])


def order_by(sql: str, terms: str, *, limit: int | None = None, offset: int | None = None) -> str:
    """Return a statement with ORDER BY, unless there are no terms, and with LIMIT and OFFSET where they are given."""
    clauses = [sql] if not terms else [sql, f"ORDER BY {terms}"]
    clauses += [f"{name} {rows:d}" for name, rows in (("LIMIT", limit), ("OFFSET", offset)) if rows is not None]
    return " ".join(clauses)


def sort_by(expression: str, term: Sorted) -> str:
    """Return an ORDER BY term: an expression in the direction of `term`."""
    return f"{expression} {format_direction(term)}"


def combine(kind: str, *selects: str) -> str:
    """Return statements combined by UNION ALL or EXCEPT."""
    return f" {kind} ".join(selects)


def cte(name: str, sql: str) -> str:
    """Return a common table expression that is computed once."""
    return f"{name} AS MATERIALIZED ({sql})"


def with_ctes(ctes: Sequence[str], sql: str) -> str:
    """Return a statement after its common table expressions, if there are any."""
    return f"WITH {list_parts(ctes)} {sql}" if ctes else sql


def join(left: str, right: str, *, kind: str = "", using: Iterable[str]) -> str:
    """Return a join on columns of the same names; `kind` is LEFT, SEMI, ANTI or nothing."""
    return f"{left} {kind + ' ' if kind else ''}JOIN {right} USING ({list_parts(using)})"


def left_join(left: str, right: str, *, name: str, on: str) -> str:
    """Return a left join with a relation that is then called `name`, on a condition."""
    return f"{left} LEFT JOIN {right} AS {name} ON {on}"


def cross_join(relations: Iterable[str]) -> str:
    """Return all combinations of the rows of several relations."""
    return " CROSS JOIN ".join(relations)


def equal(left: str, right: str) -> str:
    """Return the condition that two expressions are equal."""
    return f"{left} = {right}"


def not_equal(left: str, right: str) -> str:
    """Return the condition that two expressions differ."""
    return f"{left} <> {right}"


def not_exists(sql: str) -> str:
    """Return the condition that a statement returns no row."""
    return f"NOT EXISTS ({sql})"


def add(left: str, right: str) -> str:
    """Return the sum of two numbers."""
    return f"{left} + {right}"


def not_distinct(left: str, right: str) -> str:
    """Return the condition that two expressions are equal, or both NULL."""
    return f"{left} IS NOT DISTINCT FROM {right}"


def values(rows: Iterable[Sequence[str]], name: str, *, columns: Iterable[str]) -> str:
    """Return a list of rows as a relation."""
    listed = list_parts(subquery(list_parts(row)) for row in rows)
    return f"(VALUES {listed}) AS {name}({list_parts(columns)})"


def qualify_column(relation: str, column: str) -> str:
    """Return a column by the name of its relation."""
    return f"{relation}.{column}"


def distinct(expression: str) -> str:
    """Return the argument of COUNT that counts each value once."""
    return f"DISTINCT {expression}"


def or_zero(expression: str) -> str:
    """Return a number, 0 in place of NULL."""
    return f"COALESCE({expression}, 0)"


def descending(expression: str) -> str:
    """Return the term that sorts the largest first."""
    return f"{expression} DESC"


def more_than(left: str, right: str) -> str:
    """Return the condition that one expression is greater than another."""
    return f"{left} > {right}"


def negate(expression: str) -> str:
    """Return the negative of a number."""
    return f"-{expression}"


def less_than(left: str, right: str) -> str:
    """Return the condition that one expression is less than another."""
    return f"{left} < {right}"


def at_least(expression: str, number: int) -> str:
    """Return the condition that a number is at least a constant."""
    return f"{expression} >= {number:d}"


def at_most(expression: str, number: int) -> str:
    """Return the condition that a number is at most a constant."""
    return f"{expression} <= {number:d}"


def text(expression: str) -> str:
    """Return an expression as text."""
    return f"CAST({expression} AS VARCHAR)"


def try_text(expression: str) -> str:
    """Return an expression as text, NULL where it has none."""
    return f"TRY_CAST({expression} AS VARCHAR)"


def bigint(expression: str) -> str:
    """Return an expression as a BIGINT."""
    return f"CAST({expression} AS BIGINT)"


def both(*conditions: str) -> str:
    """Return the conjunction of conditions."""
    return " AND ".join(conditions)


def not_null(expression: str) -> str:
    """Return the condition that an expression is not NULL."""
    return f"{expression} IS NOT NULL"


def is_null(expression: str) -> str:
    """Return the condition that an expression is NULL."""
    return f"{expression} IS NULL"


def either(*conditions: str) -> str:
    """Return the disjunction of conditions, in parentheses."""
    return f"({' OR '.join(conditions)})"


def among(expression: str, values: Iterable[str]) -> str:
    """Return the condition that a value is one of several."""
    return f"{expression} IN ({list_parts(values)})"


def in_query(expression: str, sql: str) -> str:
    """Return the condition that a value is among those of a statement."""
    return f"{expression} IN ({sql})"


def zero_unless(condition: str, expression: str) -> str:
    """Return an expression where a condition holds, else 0."""
    return f"CASE WHEN {condition} THEN {expression} ELSE 0 END"


def choose(condition: str, expression: str, *, otherwise: str) -> str:
    """Return an expression where a condition holds, else another one."""
    return f"CASE WHEN {condition} THEN {expression} ELSE {otherwise} END"


def multiply(left: str, right: str | int) -> str:
    """Return the product of two numbers, in parentheses."""
    return f"({left} * {right})"


def one_if(condition: str) -> str:
    """Return 1 where a condition holds, else 0."""
    return zero_unless(condition, "1")


def over_all(aggregate: str) -> str:
    """Return an aggregate over all rows of a statement, beside each of them."""
    return f"{aggregate} OVER ()"


def count(what: str = "", *, partition_by: str = "") -> str:
    """Return the number of rows, or of what is given, of a group or of a partition."""
    return f"system.main.count({what})" + (f" OVER (PARTITION BY {partition_by})" if partition_by else "")


def least(*expressions: str) -> str:
    """Return the least of several numbers."""
    return f"system.main.least({list_parts(expressions)})"


def greatest(*expressions: str) -> str:
    """Return the greatest of several numbers."""
    return f"system.main.greatest({list_parts(expressions)})"


def clamp(expression: str, low: int, *, high: int) -> str:
    """Return a number between two bounds: the nearer bound where it is beyond."""
    return f"system.main.least(system.main.greatest({expression}, {low:d}), {high:d})"


def divide(left: str, right: str, *, by: int) -> str:
    """Return the product of two whole numbers that are not negative, divided by a constant and rounded down."""
    return f"({left} * {right}) // {by:d}"


def maximum(expression: str) -> str:
    """Return the greatest value of a group."""
    return f"system.main.max({expression})"


def least_struct(expressions: Iterable[str]) -> str:
    """Return the least struct of a group, compared by its fields in order."""
    return f"system.main.min(system.main.row({list_parts(expressions)}))"


def struct_field(struct: str, position: int) -> str:
    """Return a field of a struct by its position, counted from 1."""
    return f"system.main.struct_extract_at({struct}, {position:d})"


def hash_values(expressions: Iterable[str]) -> str:
    """Return the 64-bit hash of several values."""
    return f"system.main.hash({list_parts(expressions)})"


def sum_column(column: str) -> str:
    """Return the sum of a column."""
    return f"system.main.sum({column})"


def number_rows(partition_by: str, order_by: str) -> str:
    """Return the number of a row within its partition."""
    return f"system.main.row_number() OVER (PARTITION BY {partition_by} ORDER BY {order_by})"


def number_all(order_by: str) -> str:
    """Return the number of a row among all rows of a statement."""
    return f"system.main.row_number() OVER (ORDER BY {order_by})"


def sort_nulls_last(names: Iterable[str]) -> str:
    """Return the terms that sort by the names in order, NULL last."""
    return list_parts(f"{name} ASC NULLS LAST" for name in names)


def create_table(name: str, sql: str, *, replace: bool = False, temporary: bool = False) -> str:
    """Return the statement that creates a table of the rows of another statement."""
    return f"CREATE {'OR REPLACE ' if replace else ''}{'TEMP ' if temporary else ''}TABLE {name} AS {sql}"


def insert(name: str, sql: str) -> str:
    """Return the statement that adds the rows of another statement to a table."""
    return f"INSERT INTO {name} {sql}"


def delete(name: str, *, where: str) -> str:
    """Return the statement that deletes rows of a table."""
    return f"DELETE FROM {name} WHERE {where}"


def assign(column: str, expression: str) -> str:
    """Return a column and its new value, for `update`."""
    return f"{column} = {expression}"


def update(name: str, columns: Iterable[str], *, source: str, where: str) -> str:
    """Return the statement that changes the rows of a table which a condition joins to those of another."""
    return f"UPDATE {name} SET {list_parts(columns)} FROM {source} WHERE {where}"
