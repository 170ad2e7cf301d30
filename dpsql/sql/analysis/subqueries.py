"""Subqueries in FROM and CTEs: what they select, under which names, and whether they pass the privacy unit on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dpsql.errors import Refusal, Unsupported
from dpsql.sql.analysis.aggregates import LOCAL, has_aggregate
from dpsql.sql.analysis.reader import Read, Reader
from dpsql.sql.analysis.released_clauses import read_row_count
from dpsql.sql.analysis.select_block import Block, Grouping, Selected
from dpsql.sql.analysis.unnest import Lists
from dpsql.sql.analysis.windows import break_ties, has_windows, read_window
from dpsql.sql.functions.allow_list import INSIDE
from dpsql.sql.ir.canonical_keys import canonicalize
from dpsql.sql.ir.scope import Scope, ScopeColumn, ScopeTable
from dpsql.sql.ir.stages import Stage, group_in_subquery
from dpsql.sql.ir.tree import Column, Cut, Derived, Expression, FromWhere, Sorted, Window, output_column, walk
from dpsql.sql.ir.types import NULL, TEXT, Family, Type, has_one_form
from dpsql.sql.ir.unbound_parameters import fill_unbound
from dpsql.sql.lexer import FUNCTION_PREFIX, ascii_lower
from dpsql.sql.syntax.sqlglot_nodes import is_unnest, only

if TYPE_CHECKING:
    from sqlglot.expressions import Expression as Node

__all__ = ["check_alias", "check_shape", "is_plain", "read_alias", "read_subquery"]

_CUT = {"limit": "LIMIT", "offset": "OFFSET"}
READERS_INSIDE: Mapping[str, Read] = {**LOCAL, "Window": read_window}
LAST_ROW = (1 << 62) - 1
_PLAIN = ("expressions", "from_", "joins", "where")
_PARTS = "with_ expressions from_ joins where group having qualify order limit offset distinct".split()
_GROUPED, _DISTINCT, _CUT_OFF, _LISTED = (
    100,
    200,
    300,
    500,
)  # relations inside subquery n are numbered from n + 100: tables are fewer


def check_shape(reader: Reader, select: Node, *, node: Node) -> None:
    """Refuse a subquery that is no SELECT."""
    if type(select).__name__ != "Select":
        raise Unsupported(
            "subquery",
            "A subquery here must be one SELECT.",
            hint="Or several, with UNION, INTERSECT or EXCEPT between them.",
            place=reader.place(node),
        )
    only(reader.statement, select, *_PARTS)


def is_plain(select: Node) -> bool:
    """Say whether a subquery chooses columns and rows, and nothing more."""
    if type(select).__name__ != "Select" or any(part and name not in _PLAIN for name, part in select.args.items()):
        return False
    return not any(_looks_beyond(node) for item in select.expressions for node in item.walk())


def _looks_beyond(node: Node) -> bool:
    """Say whether a node looks at more than one row: an aggregate or a window."""
    if type(node).__name__ == "Anonymous":
        return str(node.this).removeprefix(FUNCTION_PREFIX) in INSIDE
    return type(node).__name__ in {"Window", "Count"}


def read_subquery(
    reader: Reader, select: Node, *, number: int, alias: str, body: FromWhere, scope: Scope
) -> tuple[Derived, ScopeTable]:
    """Return the subquery over `body`, as relation `number`, and the names that it brings under its alias."""
    lists = Lists(_LISTED + number)
    outputs = [each for item in select.expressions for each in _outputs(reader, item, scope=scope, lists=lists)]
    block = Block(reader, select, outputs, READERS_INSIDE)
    derived = _Subquery(block, scope, number).derived(lists.over(body, reader, node=select))
    if lists.found and _looks_at_rows(block):
        reason, hint = "Beside unnest nothing is grouped, numbered or cut.", "Do so in a subquery over this one."
        raise Unsupported("unnest", reason, hint=hint, place=block.place)
    units = {unit.column: unit.absent for unit in scope.units}  # a unit from outside is none of this block's rows
    keys = (
        {} if any(units.values()) else {each.column: each.row_keys for table in scope.tables for each in table.columns}
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
    table = ScopeTable(alias, columns, *((private.table, private.unit_name) if private is not None else ()))
    return derived, table


def _looks_at_rows(block: Block) -> bool:
    """Say whether a SELECT groups, numbers or cuts its rows, which DuckDB does before it unnests; DISTINCT is after."""
    parts = ("group", "having", "qualify", *(() if block.distinct else _CUT))
    computed = any(has_aggregate(each.expression) or has_windows(each.expression) for each in block.outputs)
    return computed or any(block.select.args.get(part) is not None for part in parts)


@dataclass(frozen=True, slots=True)
class _Subquery:
    """One SELECT below the top: its block, the names it sees and its number."""

    block: Block
    scope: Scope
    number: int

    def derived(self, body: FromWhere) -> Derived:
        """Return the subquery, from the inside out: FROM and WHERE, groups or windows, DISTINCT, ORDER BY and LIMIT."""
        grouping, order, qualify = self.block.grouping(), self.block.order(), self._qualify()
        self.block.check(grouping, order)
        limit, offset = (read_row_count(self.block.reader, self.block.select.args.get(name)) for name in _CUT)
        self._check_local(grouping, [*self._expressions, *(term.expression for term in order)], qualify=qualify)
        if limit is None and not offset:
            order = ()  # rows of a subquery have none
        parts = (*self._expressions, *(term.expression for term in order))
        if grouping.keys is not None:
            parts, body = self._grouped(parts, grouping, keys=grouping.keys, body=body)
        elif qualify is not None or any(map(has_windows, parts)):
            parts, body = self._windowed(parts, qualify, body=body)
        if self.block.distinct:
            parts, body = self._distinct(parts, body=body)
        if limit is not None or offset:
            parts, body = self._cut(parts, order, rows=(limit, offset or 0), body=body)
        return Derived(self.number, parts[: len(self.block.outputs)], body)

    @property
    def _expressions(self) -> tuple[Expression, ...]:
        return tuple(output.expression for output in self.block.outputs)

    def _grouped(
        self, parts: tuple[Expression, ...], grouping: Grouping, *, keys: tuple[Expression, ...], body: FromWhere
    ) -> tuple[tuple[Expression, ...], FromWhere]:
        for key in keys:
            self._check_form(key)
        having = () if grouping.having is None else (grouping.having,)
        found, source = group_in_subquery(
            (*parts, *having), keys, number=_GROUPED + self.number, body=body, by_all=grouping.by_all, form=canonicalize
        )
        return found[: len(parts)], FromWhere(source, found[-1] if having else None)

    def _windowed(
        self, parts: tuple[Expression, ...], qualify: Expression | None, *, body: FromWhere
    ) -> tuple[tuple[Expression, ...], FromWhere]:
        everything = parts if qualify is None else (*parts, qualify)
        ordered = break_ties(everything, refuse=lambda column: self._no_form(column.type))
        stage = Stage(_GROUPED + self.number, lambda expression: isinstance(expression, Column | Window))
        found = tuple(map(stage.outside, ordered))
        source = Derived(stage.number, tuple(stage.columns), body)
        return found[: len(parts)], FromWhere(source, None if qualify is None else found[-1])

    def _distinct(self, parts: tuple[Expression, ...], *, body: FromWhere) -> tuple[tuple[Expression, ...], FromWhere]:
        for part in parts:
            self._check_form(part)
        found, source = group_in_subquery(parts, parts, number=_DISTINCT + self.number, body=body, form=canonicalize)
        return found, FromWhere(source, None)

    def _cut(
        self, parts: tuple[Expression, ...], order: tuple[Sorted, ...], *, rows: tuple[int | None, int], body: FromWhere
    ) -> tuple[tuple[Expression, ...], FromWhere]:
        """Return the rows that LIMIT and OFFSET leave, which the columns put out decide where ORDER BY does not."""
        outputs = parts[: len(self.block.outputs)]
        for part in outputs:
            self._check_form(part)
        inner = (*map(canonicalize, outputs), *parts[len(outputs) :])
        number = _CUT_OFF + self.number
        columns = tuple(output_column(number, at, expression=each) for at, each in enumerate(inner, start=1))
        terms = tuple(replace(term, expression=each) for term, each in zip(order, columns[len(outputs) :], strict=True))
        ties = tuple(
            Sorted(canonicalize(each), descending=False, nulls_first=False) for each in columns[: len(outputs)]
        )
        limit, offset = rows
        cut = Cut(Derived(number, inner, body), (*terms, *ties), LAST_ROW if limit is None else limit, offset)
        return columns, FromWhere(cut, None)

    def _qualify(self) -> Expression | None:
        """Return the condition on windows."""
        qualify = self.block.select.args.get("qualify")
        return None if qualify is None else self.block.condition(qualify)

    def _check_local(self, grouping: Grouping, parts: list[Expression], *, qualify: Expression | None) -> None:
        """Refuse what DuckDB refuses of windows, and over a private table all that looks at rows of several units."""
        windows = [
            part
            for each in (*parts, *([] if qualify is None else [qualify]))
            for part in walk(each)
            if isinstance(part, Window)
        ]
        if (qualify is not None and not windows) or (windows and grouping.keys is not None):
            hint = "Group in a subquery and write the windows, and QUALIFY, over it."
            raise Unsupported(
                "window", "QUALIFY and windows stand only where nothing is grouped.", hint=hint, place=self.block.place
            )
        if self.scope.private is None:
            return
        name = self.scope.private.unit_name
        found = [column for table in self.scope.tables for column in table.columns if column.is_unit]
        units, always = {each.column for each in found}, {each.column for each in found if not each.absent}
        self._check_uncut()
        if grouping.keys is not None and not units & set(grouping.keys):
            hint = f"Group by {name} too: what is computed for each unit is its own."
            raise Refusal(
                "not-row-local", "This grouping mixes rows of several privacy units.", hint=hint, place=self.block.place
            )
        # a unit that an outer join leaves NULL would put rows of several units, which another column names, together
        if not all(any(canonicalize(unit) in window.partition for unit in always) for window in windows):
            hint = f"Write OVER (PARTITION BY {name} ...)."
            raise Refusal(
                "not-row-local",
                "This window looks at rows of several privacy units.",
                hint=hint,
                place=self.block.place,
            )

    def _check_uncut(self) -> None:
        for part, word in _CUT.items():
            if (node := self.block.select.args.get(part)) is not None:
                numbered = f"row_number() OVER (PARTITION BY {self.scope.private.unit_name} ORDER BY ...)"  # type: ignore[union-attr] # the caller has seen to it
                reason = f"What {word} leaves out depends on other units' rows."
                hint, place = (
                    f"Number the rows of each unit by {numbered}, and keep the first.",
                    self.block.reader.place(node),
                )
                raise Refusal("not-row-local", reason, hint=hint, place=place or self.block.place)

    def _check_form(self, expression: Expression) -> None:
        if not has_one_form(expression.type):
            raise self._no_form(expression.type)

    def _no_form(self, type_: Type) -> Unsupported:
        reason, hint = f"Columns of type {type_} are neither grouped nor put in order.", "Leave it out, or cast it."
        return Unsupported("type", reason, hint=hint, place=self.block.place)


def _outputs(reader: Reader, item: Node, *, scope: Scope, lists: Lists) -> list[Selected]:
    """Return the outputs of one item of a subquery's select list."""
    if (starred := reader.star(item)) is not None:
        return [Selected(column.name, column.column, column.is_unit) for column in starred]
    name, node = read_alias(reader, item)
    check_alias(reader, name, node=node, scope=scope)
    is_clock = reader.means_clock(node)
    if type(node).__name__ == "Column" and not is_clock:
        column = reader.column(node)
        return [Selected(name or column.name, column.column, column.is_unit)]
    if is_unnest(node):
        return [Selected(name, lists.read(reader, node))]
    with reader.reading(READERS_INSIDE):
        expression = fill_unbound(reader.read(node), TEXT)
    if expression.type == NULL or expression.type.family is Family.INTERVAL:
        raise Unsupported(
            "type",
            "This column has no type; cast it.",
            hint="Such as CAST(NULL AS VARCHAR).",
            place=reader.place(node),
        )
    return [Selected(name or (node.name if is_clock else ""), expression)]


def check_alias(reader: Reader, name: str, *, node: Node, scope: Scope) -> None:
    """Refuse to call anything but the privacy unit by the privacy unit's name."""
    private = scope.private
    if private is None or private.unit_name is None or ascii_lower(name) != ascii_lower(private.unit_name):
        return
    if type(node).__name__ != "Column" or reader.means_clock(node) or not reader.column(node).is_unit:
        reason = f"Only the privacy unit itself may be called {private.unit_name}."
        raise Refusal("unit-name", reason, hint="Choose another alias.", place=reader.place(node))


def read_alias(reader: Reader, item: Node) -> tuple[str, Node]:
    """Return the alias of a select item ('' without one) and the item itself."""
    if type(item).__name__ != "Alias":
        return "", item
    only(reader.statement, item, "this", "alias")
    return str(item.alias), item.this
