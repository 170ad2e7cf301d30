"""Queries over public tables alone: read into our own form like private ones, answered exactly, and free.

The same expressions are known as in private queries, and besides them COUNT, SUM, AVG, MIN and MAX, GROUP BY, HAVING,
DISTINCT, ORDER BY, LIMIT and OFFSET of the outermost SELECT. One without FROM has one row, as SELECT 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsql.errors import Refusal, Unsupported
from dpsql.sql.analysis.aggregates import EXACT
from dpsql.sql.analysis.empty_results import is_false
from dpsql.sql.analysis.from_clause import Sources
from dpsql.sql.analysis.reader import Reader
from dpsql.sql.analysis.released_clauses import read_row_count
from dpsql.sql.analysis.select_block import Block, Selected, read_output
from dpsql.sql.analysis.subqueries import read_alias
from dpsql.sql.ir.statements import PublicQuery
from dpsql.sql.lexer import ascii_lower
from dpsql.sql.syntax.sqlglot_nodes import only, pair_items_with_text

if TYPE_CHECKING:
    from sqlglot import Token
    from sqlglot.expressions import Expression as Node

__all__ = ["read_public", "seeks_no_row"]

_PARTS = "with_ expressions from_ joins where group having order limit offset distinct".split()


def read_public(sources: Sources, select: Node, *, tokens: list[Token]) -> PublicQuery:
    """Analyze the SELECT; the caller must ensure that `sources` found no private table."""
    reader = sources.reader
    only(reader.statement, select, *_PARTS)
    if select.args.get("with_") is not None:
        sources.define(select.args["with_"])
    body, _ = sources.nowhere(select) if _is_of_one_row(select) else sources.block(select)
    items = pair_items_with_text(reader.statement, select, tokens=tokens)
    block = Block(reader, select, [each for item, text in items for each in _named(reader, item, text=text)], EXACT)
    names = tuple(output.name for output in block.outputs)
    if len(set(map(ascii_lower, names))) < len(names):
        hint = "Give each output its own alias."
        raise Refusal("output-names", "Two outputs have the same name.", hint=hint, place=block.place)
    grouping, order = block.grouping(), block.order()
    block.check(grouping, order)
    return PublicQuery(
        names=names,
        outputs=tuple(output.expression for output in block.outputs),
        distinct=block.distinct,
        body=body,
        keys=grouping.keys,
        by_all=grouping.by_all,
        having=grouping.having,
        order=order,
        limit=read_row_count(reader, select.args.get("limit")),
        offset=read_row_count(reader, select.args.get("offset")) or 0,
    )


def seeks_no_row(reader: Reader, select: Node) -> bool:
    """Say whether a SELECT ends with LIMIT 0 or has a WHERE that is false without any column; it need not be read."""
    where = select.args.get("where")
    try:
        return read_row_count(reader, select.args.get("limit")) == 0 or (
            where is not None and is_false(reader.condition(where.this))
        )
    except (Refusal, Unsupported):
        return False


def _is_of_one_row(select: Node) -> bool:
    """Say whether a SELECT is only a list of values, which tools send to test a connection."""
    return not select.is_star and all(name == "expressions" for name, part in select.args.items() if part)


def _named(reader: Reader, item: Node, *, text: str) -> list[Selected]:
    """Return the outputs of one item of the select list, several for a star."""
    if (starred := reader.star(item)) is not None:
        return [Selected(column.name, column.column) for column in starred]
    name, node = read_alias(reader, item)
    if type(node).__name__ == "Column" and not reader.means_clock(node):
        name = name or reader.column(node).name
    return [Selected(name or text, read_output(reader, node, readers=EXACT))]
