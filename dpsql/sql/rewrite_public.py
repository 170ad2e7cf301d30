"""The rewriter of public queries: the same writer and the same totality as for private ones, and an exact answer.

A grouped query is written in two stages, keys and aggregates first and what is computed from them after, so that an
expression of a key is found again whatever it looks like, and TRY never stands around an aggregate.
"""

from __future__ import annotations

from dataclasses import replace

from dpsql.sql.functions import AGGREGATES
from dpsql.sql.passes.rebuild import rebuild, rebuild_body
from dpsql.sql.passes.total import total
from dpsql.sql.query import PublicQuery, Sorted
from dpsql.sql.rewrite import CountingQuery
from dpsql.sql.tree import Body, Call, Column, Derived, Exists, Expression, InQuery
from dpsql.sql.types import BIGINT, answered_as
from dpsql.sql.write import Writer

__all__ = ["rewrite_public"]

_GROUPED = 0  # tables of the query itself are numbered from 1
_AGGREGATES = AGGREGATES | {"count_star", "count", "count_distinct"}


def rewrite_public(query: PublicQuery, rows: int) -> CountingQuery:
    """Return the SQL of a query over public tables, cut to `rows`; its columns come in the order of the outputs."""
    if query.keys is not None:
        query = _staged(query, query.keys)
    writer = Writer()
    outputs = ", ".join(f"{writer.expression(total(each))} AS c{at}" for at, each in enumerate(query.outputs, start=1))
    parts = [f"SELECT {'DISTINCT ' if query.distinct else ''}{outputs} {writer.body(rebuild_body(query.body, total))}"]
    if query.order:
        parts.append(f"ORDER BY {', '.join(_term(writer, term, outputs=query.outputs) for term in query.order)}")
    limit = rows if query.limit is None else min(query.limit, rows)
    sql = f"{' '.join(parts)} LIMIT {limit:d} OFFSET {query.offset:d}"
    return CountingQuery(_exactly(sql, query.outputs), tuple(writer.parameters))


def _exactly(sql: str, outputs: tuple[Expression, ...]) -> str:
    """Return the statement with its answer as it is handed out: as text, what Arrow and Python do not hold exactly."""
    kept = [answered_as(output.type) == output.type for output in outputs]
    if all(kept):
        return sql
    cells = (f"c{at}" if as_it_is else f"TRY_CAST(c{at} AS VARCHAR) AS c{at}" for at, as_it_is in enumerate(kept, 1))
    return f"SELECT {', '.join(cells)} FROM ({sql})"  # noqa: S608 - nothing in it is the analyst's text


def _term(writer: Writer, term: Sorted, *, outputs: tuple[Expression, ...]) -> str:
    ends = f"{'DESC' if term.descending else 'ASC'} NULLS {'FIRST' if term.nulls_first else 'LAST'}"
    if term.expression in outputs:
        return f"{outputs.index(term.expression) + 1} {ends}"
    return f"{writer.expression(total(term.expression))} {ends}"


def _staged(query: PublicQuery, keys: tuple[Expression, ...]) -> PublicQuery:
    """Return the query over a subquery that groups: keys and aggregates become its columns, HAVING a filter of it."""
    columns = list(dict.fromkeys(keys))

    def outside(expression: Expression) -> Expression:
        aggregated = isinstance(expression, Call) and expression.function in _AGGREGATES
        if aggregated and expression not in columns:
            columns.append(expression)
        if aggregated or expression in columns:
            return Column(_GROUPED, f"c{columns.index(expression) + 1}", expression.type, expression.longest)
        if isinstance(expression, InQuery):  # whose subquery sees nothing of the groups
            return replace(expression, argument=outside(expression.argument))
        return expression if isinstance(expression, Exists) else rebuild(expression, outside)

    outputs = tuple(map(outside, query.outputs))
    order = tuple(replace(term, expression=outside(term.expression)) for term in query.order)
    having = None if query.having is None else outside(query.having)
    columns = columns or [Call("count_star", (), BIGINT)]
    positions = ", ".join(str(at) for at, _ in enumerate(dict.fromkeys(keys), start=1))
    grouped = Derived(_GROUPED, tuple(columns), query.body, grouping="ALL" if query.by_all else positions)
    return replace(query, outputs=outputs, order=order, having=None, keys=None, body=Body(grouped, having))
