"""unnest([a, b, ...]): a list that is written out makes of each row as many rows as it has items.

Every new row is one of the same unit, since its items are computed from the row alone. It is written without a list:
the rows meet the numbers 1 to n, and item number i is CASE number WHEN 1 THEN a WHEN 2 THEN b ... END. So what a row
becomes is bounded by the text, n rows of n expressions, and lists are no type of ours.

In FROM the items may name the tables before it. In the select list of a subquery several lists go side by side, and
the shorter give NULL at the end, as in DuckDB.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dpsql.errors import Refusal, Unsupported
from dpsql.sql.analysis.reader import Reader
from dpsql.sql.functions.coercion import unify_types
from dpsql.sql.ir.scope import ScopeColumn, ScopeTable
from dpsql.sql.ir.tree import Call, Case, Column, Expression, FromWhere, Joined, Literal, Numbered
from dpsql.sql.ir.types import BOOLEAN, INTEGER, NULL
from dpsql.sql.syntax.sqlglot_nodes import only

if TYPE_CHECKING:
    from sqlglot.expressions import Expression as Node

__all__ = ["Lists", "read_unnest"]

MAX_ITEMS = 64
_FORM = "Write unnest([a, b, c]), with the items in the text."


def read_unnest(reader: Reader, node: Node, *, number: int) -> tuple[Numbered, ScopeTable]:
    """Return the source that unnest(...) [AS x [(name)]] is in FROM, over the names that the reader sees."""
    only(reader.statement, node, "this", "alias")
    items, alias = _items(reader, node.this), node.args.get("alias")
    name, column = "unnest", "unnest"
    if alias is not None:
        only(reader.statement, alias, "this", "columns")
        name = column = str(alias.name)
        names = alias.args.get("columns") or ()
        if len(names) > 1:
            reason, hint = "A list gives one column.", "Such as unnest([a, b]) AS x(item)."
            raise Refusal("source", reason, hint=hint, place=reader.place(node))
        column = str(names[0].name) if names else column
    item = _item(items, Column(number, "c1", INTEGER))
    reader.copy(item, node)
    reader.multiply(len(items), node)
    return Numbered(number, len(items)), ScopeTable(name, (ScopeColumn(column, item, is_unit=False),))


@dataclass(slots=True)
class Lists:
    """The lists of one select list: all are counted off by the same numbers, relation `number`."""

    number: int
    longest: int = 0

    @property
    def found(self) -> bool:
        """Say whether there is a list."""
        return self.longest > 0

    def read(self, reader: Reader, node: Node) -> Expression:
        """Return the item that unnest(...) is in each row."""
        items = _items(reader, node)
        self.longest = max(self.longest, len(items))
        return _item(items, Column(self.number, "c1", INTEGER))

    def over(self, body: FromWhere, reader: Reader, *, node: Node) -> FromWhere:
        """Return the rows of the block at `node`, each as many times as the longest list has items."""
        if not self.found:
            return body
        reader.multiply(self.longest, node)
        return replace(body, source=Joined(body.source, "CROSS", Numbered(self.number, self.longest), None))


def _items(reader: Reader, node: Node) -> tuple[Expression, ...]:
    only(reader.statement, node, "this", "expressions")
    lists = node.expressions
    if len(lists) != 1 or type(lists[0]).__name__ != "Array" or not lists[0].expressions:
        raise Unsupported("unnest", "This unnest is not read.", hint=_FORM, place=reader.place(node))
    only(reader.statement, lists[0], "expressions")
    if len(lists[0].expressions) > MAX_ITEMS:
        reason = f"A list in unnest has at most {MAX_ITEMS} items."
        raise Refusal("too-large", reason, hint="Join a public table instead.", place=reader.place(node))
    items = unify_types([reader.read(item) for item in lists[0].expressions], reader.at(node))
    if items[0].type == NULL:
        hint = "Cast one of them, such as CAST(NULL AS VARCHAR)."
        raise Refusal("type", "A list needs at least one item with a type.", hint=hint, place=reader.place(node))
    return items


def _item(items: tuple[Expression, ...], at: Column) -> Case:
    """Return the item whose number `at` is."""
    branches = tuple(
        (Call("=", (at, Literal(number, INTEGER)), BOOLEAN), item) for number, item in enumerate(items, start=1)
    )
    lengths = [item.longest for item in items]
    longest = None if None in lengths else max(length for length in lengths if length is not None)
    return Case(branches, None, items[0].type, longest)
