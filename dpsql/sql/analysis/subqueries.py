"""Subqueries in FROM and CTEs: what they select, under which names, and whether they pass the privacy unit on.

This file has three parts: (1) `read_subquery` reads one SELECT; (2) `combine_branches` puts two together by UNION,
INTERSECT or EXCEPT, so that every private row still belongs to its unit; (3) from `read_unnest` on, unnest([a, b,
...]): a list that is written out makes of each row as many rows as it has items.

Every new row is one of the same unit, since its items are computed from the row alone. It is written without a list:
the rows meet the numbers 1 to n, and item number i is CASE number WHEN 1 THEN a WHEN 2 THEN b ... END. So what a row
becomes is bounded by the text, n rows of n expressions, and lists are no type of ours.

In FROM the items may name the tables before it. In the select list of a subquery several lists go side by side, and
the shorter give NULL at the end, as in DuckDB.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dpsql.errors import Refusal, Unsupported
from dpsql.sql.allow_list import INSIDE
from dpsql.sql.analysis.reader import Reader, read_alias, read_row_count
from dpsql.sql.analysis.select_clauses import (
    SUBQUERY_READERS,
    Grouping,
    SelectClauses,
    Selected,
    break_ties,
    has_aggregate,
    has_windows,
)
from dpsql.sql.coercion import unify_types
from dpsql.sql.ir.literals import fill_unbound
from dpsql.sql.ir.scope import Scope, ScopeColumn, ScopeTable
from dpsql.sql.ir.transforms import Stage, canonicalize, group_in_subquery
from dpsql.sql.ir.tree import (
    BOOLEAN,
    INTEGER,
    NULL,
    TEXT,
    Call,
    Case,
    Cast,
    ColumnRef,
    Combined,
    Cut,
    Derived,
    Expression,
    Family,
    FromWhere,
    Joined,
    Literal,
    Numbered,
    Sorted,
    Type,
    Window,
    find_collations,
    find_longest,
    has_one_form,
    output_column,
    set_collations,
    walk,
)
from dpsql.sql.lexer import FUNCTION_PREFIX, ascii_lower
from dpsql.sql.syntax.grammar import allow_only, is_unnest

if TYPE_CHECKING:
    from sqlglot.expressions import Expression as Node


_CUT = {"limit": "LIMIT", "offset": "OFFSET"}
LAST_ROW = (1 << 62) - 1
_PLAIN = ("expressions", "from_", "joins", "where")
SUBQUERY_PARTS = "with_ expressions from_ joins where group having qualify order limit offset distinct".split()
# relations inside subquery n are numbered from n + 100: tables are fewer
_GROUPED, _DISTINCT, _CUT_OFF, _INSIDE, _LISTED = 100, 200, 300, 400, 500
SET_OPERATIONS = frozenset(["Union", "Intersect", "Except"])
Branch = tuple[Derived, ScopeTable]
MAX_ITEMS = 64
_FORM = "Write unnest([a, b, c]), with the items in the text."


def is_plain(select: Node) -> bool:
    """Say whether a subquery chooses columns and rows, and nothing more."""
    if type(select).__name__ != "Select" or any(part and name not in _PLAIN for name, part in select.args.items()):
        return False
    # an aggregate or a window looks at more than one row
    return not any(
        type(node).__name__ in {"Window", "Count"}
        or (type(node).__name__ == "Anonymous" and str(node.this).removeprefix(FUNCTION_PREFIX) in INSIDE)
        for item in select.expressions
        for node in item.walk()
    )


def read_subquery(
    reader: Reader, select: Node, *, number: int, alias: str, body: FromWhere, scope: Scope
) -> tuple[Derived, ScopeTable]:
    """Return the subquery over `body`, as relation `number`, and the names that it brings under its alias."""
    lists = Lists(_LISTED + number)
    outputs = [each for item in select.expressions for each in _outputs(reader, item, scope=scope, lists=lists)]
    block = SelectClauses(reader, select, outputs, SUBQUERY_READERS)
    derived = _Subquery(block, scope, number).derived(lists.over(body, reader, node=select))
    parts = ("group", "having", "qualify", *(() if block.distinct else _CUT))  # DISTINCT comes after unnest
    if lists.longest and (
        any(has_aggregate(each.expression) or has_windows(each.expression) for each in block.outputs)
        or any(select.args.get(part) is not None for part in parts)
    ):
        reason, hint = "Beside unnest nothing is grouped, numbered or cut.", "Do so in a subquery over this one."
        raise Unsupported("unnest", reason, hint=hint, place=block.place)
    units = {unit.expression: unit.absent for unit in scope.units}  # a unit from outside is none of this block's rows
    keys = (
        {}
        if any(units.values())
        else {each.expression: each.row_keys for table in scope.tables for each in table.columns}
    )
    columns = tuple(
        ScopeColumn(
            output.name,
            output_column(number, index, expression=expression),
            is_unit=output.is_unit and output.expression in units,
            absent=output.is_unit and units.get(output.expression, False),
            row_keys=keys.get(output.expression, frozenset()),
        )
        for index, (output, expression) in enumerate(zip(block.outputs, derived.outputs, strict=True), start=1)
    )
    private = scope.private
    table = ScopeTable(alias, columns, *((private.private_table, private.unit_name) if private is not None else ()))
    return derived, table


@dataclass(frozen=True, slots=True)
class _Subquery:
    """One SELECT below the top: its block, the names it sees and its number."""

    block: SelectClauses
    scope: Scope
    number: int

    def derived(self, body: FromWhere) -> Derived:
        """Return the subquery, from the inside out: FROM and WHERE, groups or windows, DISTINCT, ORDER BY and LIMIT."""
        block, node = self.block, self.block.select.args.get("qualify")
        grouping, order = block.grouping(), block.order()
        qualify = None if node is None else block.condition(node)
        block.check(grouping, order)
        limit, offset = (read_row_count(block.reader, block.select, clause=name) for name in _CUT)
        outputs = tuple(output.expression for output in block.outputs)
        self._check_local(grouping, [*outputs, *(term.expression for term in order)], qualify=qualify)
        if limit is None and not offset:
            order = ()  # rows of a subquery have none
        parts = (*outputs, *(term.expression for term in order))
        if grouping.keys is not None:
            # SELECT x, n + COUNT(*) ... GROUP BY x, n   =>   SELECT c1, c2 + c3 FROM (SELECT x, n, COUNT(*) ...)
            self._check_forms(grouping.keys)
            having = () if grouping.having is None else (grouping.having,)
            found, source = group_in_subquery(
                (*parts, *having),
                grouping.keys,
                number=_GROUPED + self.number,
                body=body,
                by_all=grouping.by_all,
                form=canonicalize,
            )
            parts, body = found[: len(parts)], FromWhere(source, found[-1] if having else None)
        elif qualify is not None or any(map(has_windows, parts)):
            # SELECT rank() OVER w + 1 ... QUALIFY q   =>   SELECT c1 + 1 FROM (SELECT rank() OVER w ...) WHERE q
            every = parts if qualify is None else (*parts, qualify)
            ordered = break_ties(every, refuse=lambda column: self._no_form(column.type))
            stage = Stage(_GROUPED + self.number, lambda expression: isinstance(expression, ColumnRef | Window))
            found = tuple(map(stage.outside, ordered))
            source = Derived(stage.number, tuple(stage.columns), body)
            parts, body = found[: len(parts)], FromWhere(source, None if qualify is None else found[-1])
        if block.distinct:
            self._check_forms(parts)  # SELECT DISTINCT x FROM t   =>   SELECT c1 FROM (SELECT x FROM t GROUP BY x)
            parts, source = group_in_subquery(
                parts, parts, number=_DISTINCT + self.number, body=body, form=canonicalize
            )
            body = FromWhere(source, None)
        if limit is not None or offset:
            parts, body = self._cut(parts, order, rows=(limit, offset or 0), body=body)
        return Derived(self.number, parts[: len(outputs)], body)

    def _cut(
        self, parts: tuple[Expression, ...], order: tuple[Sorted, ...], *, rows: tuple[int | None, int], body: FromWhere
    ) -> tuple[tuple[Expression, ...], FromWhere]:
        """Return the rows that LIMIT and OFFSET leave, which the columns put out decide where ORDER BY does not."""
        outputs = parts[: len(self.block.outputs)]
        self._check_forms(outputs)
        inner = (*map(canonicalize, outputs), *parts[len(outputs) :])
        number = _CUT_OFF + self.number
        columns = tuple(output_column(number, at, expression=each) for at, each in enumerate(inner, start=1))
        terms = tuple(replace(term, expression=each) for term, each in zip(order, columns[len(outputs) :], strict=True))
        ties = tuple(
            Sorted(canonicalize(each), descending=False, nulls_first=False) for each in columns[: len(outputs)]
        )
        limit, offset = rows
        cut = Cut(Derived(number, inner, body), (*terms, *ties), LAST_ROW if limit is None else limit, offset)
        # SELECT a FROM t ORDER BY b LIMIT 3   =>
        # SELECT c1 FROM (SELECT * FROM (SELECT a AS c1, b AS c2 FROM t) ORDER BY c2, c1 LIMIT 3)
        return columns, FromWhere(cut, None)

    def _check_local(self, grouping: Grouping, parts: list[Expression], *, qualify: Expression | None) -> None:
        """Refuse what DuckDB refuses of windows, and over a private table all that looks at rows of several units."""
        place, every = self.block.place, parts if qualify is None else [*parts, qualify]
        windows = [part for each in every for part in walk(each) if isinstance(part, Window)]
        if (qualify is not None and not windows) or (windows and grouping.keys is not None):
            hint = "Group in a subquery and write the windows, and QUALIFY, over it."
            reason = "QUALIFY and windows stand only where nothing is grouped."
            raise Unsupported("window", reason, hint=hint, place=place)
        if self.scope.private is None:
            return
        name = self.scope.private.unit_name
        found = [column for table in self.scope.tables for column in table.columns if column.is_unit]
        units, always = {each.expression for each in found}, {each.expression for each in found if not each.absent}
        for part, word in _CUT.items():
            if (node := self.block.select.args.get(part)) is not None:
                numbered = f"row_number() OVER (PARTITION BY {name} ORDER BY ...)"
                reason = f"What {word} leaves out depends on other units' rows."
                hint = f"Number the rows of each unit by {numbered}, and keep the first."
                raise Refusal("not-row-local", reason, hint=hint, place=self.block.reader.place(node) or place)
        if grouping.keys is not None and not units & set(grouping.keys):
            hint = f"Group by {name} too: what is computed for each unit is its own."
            reason = "This grouping mixes rows of several privacy units."
            raise Refusal("not-row-local", reason, hint=hint, place=place)
        # a unit that an outer join leaves NULL would put rows of several units, which another column names, together
        if not all(any(canonicalize(unit) in window.partition for unit in always) for window in windows):
            hint = f"Write OVER (PARTITION BY {name} ...)."
            reason = "This window looks at rows of several privacy units."
            raise Refusal("not-row-local", reason, hint=hint, place=place)

    def _check_forms(self, expressions: Iterable[Expression]) -> None:
        for expression in expressions:
            if not has_one_form(expression.type):
                raise self._no_form(expression.type)

    def _no_form(self, type_: Type) -> Unsupported:
        reason, hint = f"Columns of type {type_} are neither grouped nor put in order.", "Leave it out, or cast it."
        return Unsupported("type", reason, hint=hint, place=self.block.place)


def _outputs(reader: Reader, item: Node, *, scope: Scope, lists: Lists) -> list[Selected]:
    """Return the outputs of one item of a subquery's select list."""
    if (starred := reader.star(item)) is not None:
        return [Selected(column.name, column.expression, column.is_unit) for column in starred]
    name, node = read_alias(reader, item)
    check_alias(reader, name, node=node, scope=scope)
    is_clock = reader.means_clock(node)
    if type(node).__name__ == "Column" and not is_clock:
        column = reader.column(node)
        return [Selected(name or column.name, column.expression, column.is_unit)]
    if is_unnest(node):
        return [Selected(name, lists.read(reader, node))]
    with reader.reading(SUBQUERY_READERS):
        expression = fill_unbound(reader.read(node), TEXT)
    if expression.type == NULL or expression.type.family is Family.INTERVAL:
        hint = "Such as CAST(NULL AS VARCHAR)."
        raise Unsupported("type", "This column has no type; cast it.", hint=hint, place=reader.place(node))
    return [Selected(name or (node.name if is_clock else ""), expression)]


def check_alias(reader: Reader, name: str, *, node: Node, scope: Scope) -> None:
    """Refuse to call anything but the privacy unit by the privacy unit's name."""
    private = scope.private
    if private is None or private.unit_name is None or ascii_lower(name) != ascii_lower(private.unit_name):
        return
    if type(node).__name__ != "Column" or reader.means_clock(node) or not reader.column(node).is_unit:
        reason = f"Only the privacy unit itself may be called {private.unit_name}."
        raise Refusal("unit-name", reason, hint="Choose another alias.", place=reader.place(node))


# Part 2: set operations.


def combine_branches(reader: Reader, node: Node, *, left: Branch, right: Branch, alias: str) -> Branch:
    """Return the set operation over two branches, under the names of the first.

    A column is the unit where it is the unit in both; columns that are compared are made canonical first.
    """
    (first, table), (second, other) = left, right
    where, columns_of = reader.at(node), list(zip(table.columns, other.columns, strict=False))
    if len(table.columns) != len(other.columns):
        reason, hint = "The two sides have different numbers of columns.", "Select the same columns on both sides."
        raise Refusal("subquery", reason, hint=hint, place=where)
    units = [(one, two) for one, two in columns_of if one.is_unit and two.is_unit]
    if (table.private_table is not None or other.private_table is not None) and not units:
        hint = "Select the privacy unit's column, unchanged, in the same place on both sides."
        raise Refusal("unit-lost", "One side has no privacy unit where the other has it.", hint=hint, place=where)
    if any(one.expression.type != two.expression.type for one, two in units):
        hint = "Ask about one of the tables at a time."
        raise Unsupported("type", "The privacy units are of different types.", hint=hint, place=where)
    compares = type(node).__name__ != "Union" or bool(node.args.get("distinct"))
    pairs = list[tuple[Expression, Expression]]()
    for pair in zip(first.outputs, second.outputs, strict=True):
        # each by its own type: a literal gives way to nothing here
        fixed: list[Expression] = [
            Cast(each, each.type, each.longest) if isinstance(each, Literal) else each for each in pair
        ]
        one, two = fixed
        if one.type != two.type:
            one, two = unify_types((reader.computed(one, node), reader.computed(two, node)), where)
        if compares and not has_one_form(one.type):
            hint = "Use UNION ALL, or cast the column to VARCHAR."
            raise Unsupported("type", f"Columns of type {one.type} are not compared.", hint=hint, place=where)
        pairs.append((canonicalize(one), canonicalize(two)) if compares else (one, two))
    branches = tuple(
        replace(derived, outputs=tuple(pair[at] for pair in pairs)) for at, derived in enumerate((first, second))
    )
    kind = type(node).__name__.upper() + ("" if compares else " ALL")
    # The set operation has a number of its own inside the subquery, which has that of the first branch.
    relation = Combined(first.number + _INSIDE, kind, branches)
    outputs = tuple(
        ColumnRef(
            relation.number,
            f"c{at}",
            set_collations(one.type, find_collations(one) | find_collations(two)),
            find_longest((one, two)),
        )
        for at, (one, two) in enumerate(pairs, start=1)
    )
    columns = tuple(
        ScopeColumn(
            known.name,
            ColumnRef(first.number, f"c{at}", each.type, each.longest),
            is_unit=known.is_unit and same.is_unit,
            absent=known.absent or same.absent,
        )
        for at, ((known, same), each) in enumerate(zip(columns_of, outputs, strict=True), start=1)
    )
    named = ascii_lower(table.unit_name or "")
    if table.private_table is not None and any(
        ascii_lower(each.name) == named and not each.is_unit for each in columns
    ):
        reason = f"Only the privacy unit itself may be called {table.unit_name}."
        raise Refusal("unit-name", reason, hint="Select it in the same place on both sides.", place=where)
    both = replace(table, alias=alias, columns=columns)
    return Derived(first.number, outputs, FromWhere(relation, None)), both


# Part 3: unnest.


def read_unnest(reader: Reader, node: Node, *, number: int) -> tuple[Numbered, ScopeTable]:
    """Return the source that unnest(...) [AS x [(name)]] is in FROM, over the names that the reader sees."""
    allow_only(reader.statement, node, "this", "alias")
    items, alias = _items(reader, node.this), node.args.get("alias")
    name, column = "unnest", "unnest"
    if alias is not None:
        allow_only(reader.statement, alias, "this", "columns")
        name = column = str(alias.name)
        names = alias.args.get("columns") or ()
        if len(names) > 1:
            reason, hint = "A list gives one column.", "Such as unnest([a, b]) AS x(item)."
            raise Refusal("source", reason, hint=hint, place=reader.place(node))
        column = str(names[0].name) if names else column
    item = _item(items, ColumnRef(number, "c1", INTEGER))
    reader.copy(item, node)
    reader.multiply(len(items), node)
    return Numbered(number, len(items)), ScopeTable(name, (ScopeColumn(column, item, is_unit=False),))


@dataclass(slots=True)
class Lists:
    """The lists of one select list: all are counted off by the same numbers, relation `number`."""

    number: int
    longest: int = 0

    def read(self, reader: Reader, node: Node) -> Expression:
        """Return the item that unnest(...) is in each row."""
        items = _items(reader, node)
        self.longest = max(self.longest, len(items))
        return _item(items, ColumnRef(self.number, "c1", INTEGER))

    def over(self, body: FromWhere, reader: Reader, *, node: Node) -> FromWhere:
        """Return the rows of the block at `node`, each as many times as the longest list has items."""
        if not self.longest:
            return body
        reader.multiply(self.longest, node)
        return replace(body, source=Joined(body.source, "CROSS", Numbered(self.number, self.longest), None))


def _items(reader: Reader, node: Node) -> tuple[Expression, ...]:
    allow_only(reader.statement, node, "this", "expressions")
    lists = node.expressions
    if len(lists) != 1 or type(lists[0]).__name__ != "Array" or not lists[0].expressions:
        raise Unsupported("unnest", "This unnest is not read.", hint=_FORM, place=reader.place(node))
    allow_only(reader.statement, lists[0], "expressions")
    if len(lists[0].expressions) > MAX_ITEMS:
        reason = f"A list in unnest has at most {MAX_ITEMS} items."
        raise Refusal("too-large", reason, hint="Join a public table instead.", place=reader.place(node))
    items = unify_types([reader.read(item) for item in lists[0].expressions], reader.at(node))
    if items[0].type == NULL:
        hint = "Cast one of them, such as CAST(NULL AS VARCHAR)."
        raise Refusal("type", "A list needs at least one item with a type.", hint=hint, place=reader.place(node))
    return items


def _item(items: tuple[Expression, ...], at: ColumnRef) -> Case:
    """Return the item whose number `at` is."""
    branches = tuple(
        (Call("=", (at, Literal(number, INTEGER)), BOOLEAN), item) for number, item in enumerate(items, start=1)
    )
    return Case(branches, None, items[0].type, find_longest(items))
