"""Rewriter of public queries, with the writer and the totality pass of private ones, and an exact answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from dpsql.dialects import DUCKDB, Dialect
from dpsql.sql.ir.statements import PublicQuery
from dpsql.sql.ir.transforms import canonicalize, group_in_subquery, make_total, rebuild
from dpsql.sql.ir.tree import Call, Expression, FromWhere, find_answer_type
from dpsql.sql.render.duckdb import compose, format_direction
from dpsql.sql.render.portable import writer_for
from dpsql.sql.rewrite.engine_query import EngineQuery

Form = Callable[[Expression], Expression]
_GROUPED = 0  # tables of the query itself are numbered from 1


def rewrite_public(query: PublicQuery, rows: int, *, dialect: Dialect = DUCKDB) -> EngineQuery:
    """Return the SQL of a query over public tables, limited to `rows`, with columns in the order of the outputs."""
    form = _keep if dialect is DUCKDB else canonicalize  # elsewhere 0.0 and -0.0 may be two values
    query = _apply_to_counted(query, form)
    if query.keys is not None:
        query = _group_in_subquery(query, query.keys, form=form)
    writer, outputs, printed = writer_for(dialect), query.outputs, form if query.distinct else _keep
    cells = [f"{writer.expression(make_total(printed(each)))} AS c{at}" for at, each in enumerate(outputs, 1)]
    rows_sql = writer.select(cells, rebuild(query.body, make_total), distinct=query.distinct)
    order = list[str]()
    for term in query.order:
        if term.expression in outputs:  # by its position
            writer.check_order(term.expression.type)
            order.append(f"{outputs.index(term.expression) + 1} {format_direction(term)}")
        else:
            order.append(f"{writer.ordered(make_total(term.expression))} {format_direction(term)}")
    sql = compose(
        """
        {rows}
        ORDER BY {terms}
        LIMIT {limit}
        OFFSET {offset}
        """,
        rows=rows_sql,
        terms=order,
        limit=rows if query.limit is None else min(query.limit, rows),
        offset=query.offset,
    )
    types = [find_answer_type(output.type) for output in outputs]
    if types != [output.type for output in outputs]:  # Arrow or Python cannot represent some values exactly
        pairs = enumerate(zip(outputs, types, strict=True), 1)
        # SELECT c1, TRY_CAST(c2 AS VARCHAR) AS c2 FROM (SELECT t1.name AS c1, t1.opened_at AS c2 FROM shops AS t1)
        texts = [
            f"c{at}" if each.type == type_ else f"TRY_CAST(c{at} AS VARCHAR) AS c{at}" for at, (each, type_) in pairs
        ]
        sql = compose("SELECT {texts} FROM ({sql})", texts=texts, sql=sql)
    return EngineQuery(writer.finished(sql), tuple(writer.parameters), tuple(type_.name for type_ in types))


def _keep(expression: Expression) -> Expression:
    return expression


def _apply_to_counted(query: PublicQuery, form: Form) -> PublicQuery:
    """Apply `form` to the arguments of COUNT(DISTINCT x)."""

    def counted(expression: Expression) -> Expression:
        expression = rebuild(expression, counted)
        if isinstance(expression, Call) and expression.function == "count_distinct":
            return replace(expression, arguments=tuple(map(form, expression.arguments)))
        return expression

    order = tuple(replace(term, expression=counted(term.expression)) for term in query.order)
    having = None if query.having is None else counted(query.having)
    return replace(query, outputs=tuple(map(counted, query.outputs)), order=order, having=having)


def _group_in_subquery(query: PublicQuery, keys: tuple[Expression, ...], *, form: Form) -> PublicQuery:
    """Move the grouping into a subquery: keys and aggregates become its columns, HAVING a filter over it."""
    # SELECT city, count(*) + 1 FROM shops GROUP BY city HAVING count(*) > 3 becomes
    # SELECT t0.c1, t0.c2 + 1 FROM (SELECT city AS c1, count(*) AS c2 FROM shops GROUP BY 1) AS t0 WHERE t0.c2 > 3
    having = () if query.having is None else (query.having,)
    terms = tuple(term.expression for term in query.order)
    parts, source = group_in_subquery(
        (*query.outputs, *terms, *having), keys, number=_GROUPED, body=query.body, by_all=query.by_all, form=form
    )
    width = len(query.outputs)
    order = tuple(replace(term, expression=part) for term, part in zip(query.order, parts[width:], strict=False))
    body = FromWhere(source, parts[-1] if having else None)
    return replace(query, outputs=parts[:width], order=order, having=None, keys=None, body=body)
