"""What the gates ask of a statement: its verdict, and what DuckDB says of the SQL that is made of it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from datetime import date, datetime
from functools import cache

import duckdb
from support.sql_reference import LONGEST, accepts_pattern, select_parser

from dpsql.errors import Error
from dpsql.sql.allow_list import FUNCTIONS
from dpsql.sql.analysis.analyze import analyze
from dpsql.sql.ir.catalog import Catalog
from dpsql.sql.ir.statements import OuterSelect, PrivateQuery, PublicQuery
from dpsql.sql.rewrite.engine_query import Bound, EngineQuery, rewrite_leaders

__all__ = ["BOUNDS", "PRIVATE", "PUBLIC", "Verdict", "fault_of", "outcome", "private_part", "verdict"]

PRIVATE = ("reads", "likes", "users")
PUBLIC = ("countries", "articles")
_OUTER = ") AS answer LIMIT "  # of a sentence with an outer SELECT
BOUNDS = (None, Bound(1, (1, 2)), Bound(2, (1, 2)), Bound(20, (1, 2)))
OURS = frozenset(  # what the writer calls besides the functions of the language
    "hash xor count count_star sum min max row_number rank dense_rank first_value last_value lag lead isnan any_value "
    "row struct_extract struct_extract_at try_strptime bool_or bool_and avg ntile percent_rank cume_dist "
    "nth_value signbit list list_sort list_aggregate list_extract".split()
)


@dataclass(frozen=True)
class Verdict:
    """What analysis makes of a text: the code of a refusal, or all that the engine and the release will use."""

    kind: str
    meaning: tuple[object, ...] = ()

    @property
    def is_answered(self) -> bool:
        return self.kind != "refused"


def outcome(text: str, catalog: Catalog) -> object | Error:
    """Return the statement or the refusal; any other exception, or a long wait, fails."""
    started = time.thread_time()
    found: object
    try:
        parser = select_parser() if _OUTER in text else None
        found = analyze(text, catalog, accepts_pattern=accepts_pattern, parser=parser)
    except Error as error:
        found = error
    assert time.thread_time() - started < LONGEST, f"this takes too long: {text}"
    if isinstance(found, Error):
        assert found.code, text
        assert found.reason, text
    return found


def private_part(statement: object) -> PrivateQuery | None:
    """Return the private query of a statement, also of one that wraps it; None where there is none."""
    if isinstance(statement, PrivateQuery):
        return statement
    if isinstance(statement, OuterSelect):
        return statement.inners[0]
    if not is_dataclass(statement) or isinstance(statement, PublicQuery | Error):
        return None
    parts = (private_part(getattr(statement, field.name)) for field in fields(statement))
    return next((part for part in parts if part is not None), None)


def _kept(value: object) -> object:
    """Return a value without what the clock put there."""
    return "time" if isinstance(value, date | datetime) else value


def verdict(text: str, catalog: Catalog) -> Verdict:
    """Return what analysis makes of a text, without names and places."""
    found = outcome(text, catalog)
    if isinstance(found, Error):
        return Verdict("refused")
    query = private_part(found)
    if query is None:
        return Verdict(type(found).__name__)
    counting, clause = rewrite_leaders(replace(query, item_salts=(1, 2)), 10), query.clause
    options = tuple(sorted((name, str(option.value).lower()) for name, option in clause.options.items()))
    released = (query.order, query.limit, query.keep, tuple(output.key for output in query.outputs))
    return Verdict(
        type(found).__name__,
        (counting.sql, tuple(map(_kept, counting.parameters)), clause.k, options, released, query.explained),
    )


def _nodes(tree: object) -> Iterator[dict[str, object]]:
    left = [tree]
    while left:
        node = left.pop()
        if isinstance(node, dict):
            yield node
            left += node.values()
        elif isinstance(node, list):
            left += node


@cache
def fault_of(sql: str) -> str:
    """Say what is wrong with a SQL text by DuckDB's own parse; nothing for one SELECT that is as it must be."""
    if not sql.isascii() or any(part in sql for part in ("'", "--", "/*")):
        return "it carries text"
    if [each.type for each in duckdb.extract_statements(sql)] != [duckdb.StatementType.SELECT]:
        return "it is not one SELECT"
    tree = json.loads(duckdb.execute("SELECT json_serialize_sql(?)", [sql]).fetchall()[0][0])
    if tree["error"]:
        return f"it is no SELECT: {tree['error_message']}"
    nodes = list(_nodes(tree))
    ctes = {entry["key"] for node in nodes if "cte_map" in node for entry in node["cte_map"]["map"]}  # type: ignore[index]
    faults = (_table_fault(node, ctes) or _function_fault(node) for node in nodes)
    return next(filter(None, faults), "")


def _table_fault(node: dict[str, object], ctes: set[str]) -> str:
    """Say what is wrong with the table that a node reads, if it reads one."""
    kind, name = node.get("type"), node.get("table_name")
    if kind in {"TABLE_FUNCTION", "SHOW_REF", "PIVOT"}:
        return f"it reads a {kind}"
    if kind != "BASE_TABLE" or name in ctes:
        return ""
    if (node["catalog_name"], node["schema_name"]) != ("memory", "main"):
        return f"table {name} is not named in full"
    return "" if name in {*PRIVATE, *PUBLIC} else f"it reads {name}"


def _function_fault(node: dict[str, object]) -> str:
    """Say what is wrong with the function that a node calls, if it calls one."""
    name = node.get("function_name")
    if name is None or node.get("is_operator"):
        return ""
    known = node["catalog"] == "system" and name in OURS | FUNCTIONS.keys()
    return "" if known else f"it calls {node['catalog']}.{name}"


def run(con: duckdb.DuckDBPyConnection, counting: EngineQuery) -> list[tuple[object, ...]]:
    return con.execute(counting.sql, list(counting.parameters)).fetchall()


def forms(query: PrivateQuery) -> Iterator[EngineQuery]:
    """Yield the SQL of a query in each form of bounding."""
    for bound in BOUNDS if query.domain is None else BOUNDS[:1]:
        yield rewrite_leaders(replace(query), None, bound=bound)
