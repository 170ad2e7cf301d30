"""The rewriter of public queries: the same writer and the same totality as for private ones, and an exact answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from dpsql.dialects import DUCKDB, Dialect
from dpsql.sql.ir.canonical_keys import canonical
from dpsql.sql.ir.stages import grouped
from dpsql.sql.ir.statements import PublicQuery
from dpsql.sql.ir.tree import Call, Expression, FromWhere, Sorted
from dpsql.sql.ir.types import answered_as
from dpsql.sql.ir.visitor import rebuild, rebuild_body
from dpsql.sql.render.duckdb import Writer, ends
from dpsql.sql.render.portable import writer_for
from dpsql.sql.rewrite.engine_query import CountingQuery
from dpsql.sql.rewrite.total import total

__all__ = ["rewrite_public"]

Form = Callable[[Expression], Expression]
_GROUPED = 0  # tables of the query itself are numbered from 1


def rewrite_public(query: PublicQuery, rows: int, *, dialect: Dialect = DUCKDB) -> CountingQuery:
    """Return the SQL of a query over public tables, cut to `rows`; its columns come in the order of the outputs."""
    form = _as_it_is if dialect is DUCKDB else canonical  # elsewhere 0.0 and -0.0 may be two values
    query = _counted_apart(query, form)
    if query.keys is not None:
        query = _staged(query, query.keys, form=form)
    writer, printed = writer_for(dialect), form if query.distinct else _as_it_is
    cells = (f"{writer.expression(total(printed(each)))} AS c{at}" for at, each in enumerate(query.outputs, start=1))
    outputs = ", ".join(cells)
    parts = [f"SELECT {'DISTINCT ' if query.distinct else ''}{outputs} {writer.body(rebuild_body(query.body, total))}"]
    if query.order:
        parts.append(f"ORDER BY {', '.join(_term(writer, term, outputs=query.outputs) for term in query.order)}")
    limit = rows if query.limit is None else min(query.limit, rows)
    sql = f"{' '.join(parts)} LIMIT {limit:d} OFFSET {query.offset:d}"
    types = tuple(answered_as(output.type).name for output in query.outputs)
    return CountingQuery(writer.finished(_exactly(sql, query.outputs)), tuple(writer.parameters), types)


def _exactly(sql: str, outputs: tuple[Expression, ...]) -> str:
    """Return the statement with its answer as it is handed out: as text, what Arrow and Python do not hold exactly."""
    kept = [answered_as(output.type) == output.type for output in outputs]
    if all(kept):
        return sql
    cells = (f"c{at}" if as_it_is else f"TRY_CAST(c{at} AS VARCHAR) AS c{at}" for at, as_it_is in enumerate(kept, 1))
    return f"SELECT {', '.join(cells)} FROM ({sql})"  # noqa: S608 - nothing in it is the analyst's text


def _term(writer: Writer, term: Sorted, *, outputs: tuple[Expression, ...]) -> str:
    if term.expression in outputs:
        return f"{outputs.index(term.expression) + 1} {ends(term)}"
    return f"{writer.ordered(total(term.expression))} {ends(term)}"


def _as_it_is(expression: Expression) -> Expression:
    return expression


def _counted_apart(query: PublicQuery, form: Form) -> PublicQuery:
    """Return the query with values in this form where distinct ones are counted."""

    def counted(expression: Expression) -> Expression:
        expression = rebuild(expression, counted)
        if isinstance(expression, Call) and expression.function == "count_distinct":
            return replace(expression, arguments=tuple(map(form, expression.arguments)))
        return expression

    order = tuple(replace(term, expression=counted(term.expression)) for term in query.order)
    having = None if query.having is None else counted(query.having)
    return replace(query, outputs=tuple(map(counted, query.outputs)), order=order, having=having)


def _staged(query: PublicQuery, keys: tuple[Expression, ...], *, form: Form) -> PublicQuery:
    """Return the query over a subquery that groups: keys and aggregates become its columns, HAVING a filter of it."""
    having = () if query.having is None else (query.having,)
    terms = tuple(term.expression for term in query.order)
    parts, source = grouped(
        (*query.outputs, *terms, *having), keys, number=_GROUPED, body=query.body, by_all=query.by_all, form=form
    )
    width = len(query.outputs)
    order = tuple(replace(term, expression=part) for term, part in zip(query.order, parts[width:], strict=False))
    body = FromWhere(source, parts[-1] if having else None)
    return replace(query, outputs=parts[:width], order=order, having=None, keys=None, body=body)
