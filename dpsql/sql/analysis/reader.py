"""The reader: one expression at a time, with the names of its query block, counting literals and depth."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from dpsql.errors import Place, Refusal, Unsupported
from dpsql.sql.allow_list import PatternCheck
from dpsql.sql.coercion import read_whole_number
from dpsql.sql.ir.catalog import is_database
from dpsql.sql.ir.literals import CLOCK_WORDS, Clock, fill_unbound, read_clock
from dpsql.sql.ir.scope import Scope, ScopeColumn, ScopeTable, list_names, propose_name, propose_text
from dpsql.sql.ir.tree import (
    BOOLEAN,
    NULL,
    Cast,
    Derived,
    Exists,
    Expression,
    Family,
    InQuery,
    Literal,
    Scalar,
    find_read_type,
    is_column,
    walk,
)
from dpsql.sql.lexer import ScannedStatement, Value, ascii_lower
from dpsql.sql.syntax.grammar import allow_only, place

if TYPE_CHECKING:
    from sqlglot.expressions import Expression as Node


DEEPEST = 32
MAX_LITERALS = 3_100
MAX_COPIED = 2_000
MAX_STARRED = 2_000
LIKE_A_PART = 64  # characters of a literal, which is sent as often as it is written
MAX_UNNESTED = 1 << 16
MAX_CONJOINED = 500  # DuckDB's optimizer takes seconds for a thousand conditions joined by AND
PREDICATES = frozenset(
    "EQ NEQ LT LTE GT GTE NullSafeEQ NullSafeNEQ Is In Between Like ILike RegexpLike RegexpILike Escape Not And "
    "Or".split()
)
_INTEGER = re.compile(r"[0-9]{1,18}")
Read = Callable[["Reader", "Node"], Expression]


@dataclass(frozen=True, slots=True)
class Inside:
    """A subquery in an expression, and what it brings; `tied` if each of its rows is of the unit of the row outside.

    `unit` is that of its rows, where names around it are in scope. `linked` are pairs of units, one of them outside,
    that equal keys of a link make equal.
    """

    source: Derived
    table: ScopeTable
    tied: bool
    unit: ScopeColumn | None = None
    linked: tuple[tuple[ScopeColumn, ScopeColumn], ...] = ()


@dataclass(slots=True)
class Reader:
    """Reader of the expressions of one statement, which also counts literals and depth.

    `subquery` reads a SELECT inside an expression; the reader of FROM provides it. It sees the outer names only where
    the reader `correlates`: in a WHERE, and in the keys of a private query.
    """

    statement: ScannedStatement
    bound: dict[Value, object]
    accepts_pattern: PatternCheck
    readers: Mapping[str, Read]
    subquery: Callable[..., Inside] = field(init=False)
    clock: Clock | None = None
    literals: int = 0
    copied: int = 0
    starred: int = 0
    conjoined: int = 0
    unnested: int = 1
    negated: bool = False
    depth: int = 0
    correlates: bool = False
    scope: Scope = field(default_factory=partial(Scope, ()))
    moment: datetime | None = None

    @contextmanager
    def reading(self, readers: Mapping[str, Read]) -> Iterator[None]:
        """Read other nodes than usual inside the block."""
        usual, self.readers = self.readers, readers
        try:
            yield
        finally:
            self.readers = usual

    @contextmanager
    def correlating(self, *, correlates: bool = True) -> Iterator[None]:
        """Let subqueries see the names around them, or not, inside the block."""
        usual, self.correlates = self.correlates, correlates
        try:
            yield
        finally:
            self.correlates = usual

    @contextmanager
    def negating(self) -> Iterator[None]:
        """Read what NOT negates, where OR becomes AND, inside the block."""
        usual, self.negated = self.negated, True
        try:
            yield
        finally:
            self.negated = usual

    def read(self, node: Node) -> Expression:
        """Return the typed expression of a node; refuse columns of a type that dpsql does not compute with."""
        self.depth += 1
        if self.depth > DEEPEST:
            raise Refusal("too-deep", f"Expressions may be nested {DEEPEST} deep.", hint="Split the expression.")
        # by name: sqlglot is imported only where it parses, so that a session starts without it
        reader = self.readers.get(type(node).__name__)
        if reader is None:
            hint = "Leave this part out, or write it in another way."
            raise Unsupported("construct", "This construct is not supported.", hint=hint, place=self.place(node))
        expression = reader(self, node)
        self.depth -= 1
        return self.computed(expression, node)

    def computed(self, expression: Expression, node: Node) -> Expression:
        """Return an expression in the type it is computed with; refuse a type that dpsql does not compute with."""
        wanted = find_read_type(expression.type)
        if wanted.family is Family.OPAQUE:
            reason = f"Columns of type {wanted} are not computed with."
            hint = "Leave it out, or ask the curator for a view that casts it, such as to text or DECIMAL(18, 2)."
            raise Unsupported("type", reason, hint=hint, place=self.place(node))
        return expression if wanted == expression.type else Cast(expression, wanted)

    def condition(self, node: Node) -> Expression:
        """Return a BOOLEAN expression."""
        expression = fill_unbound(self.read(node), BOOLEAN)
        if expression.type == NULL:
            return Literal(None, BOOLEAN)
        if expression.type != BOOLEAN:
            hint = "Write a comparison, such as x <> 0."
            raise Refusal("type", "A condition must be BOOLEAN here.", hint=hint, place=self.place(node))
        return expression

    def operand(self, node: Node) -> Expression:
        """Return the operand of a predicate: no predicate itself, unless in parentheses."""
        if type(node).__name__ in PREDICATES:
            hint = "Write a range as 0 < x AND x < 100; otherwise put one of them in parentheses."
            raise Refusal("precedence", "These operators can be read in two ways.", hint=hint, place=self.place(node))
        return self.read(node)

    def count_literals(self, count: int) -> None:
        """Count literals, and parameters with a value."""
        self.literals += count
        if self.literals > MAX_LITERALS:
            reason = f"A statement may hold {MAX_LITERALS} literals."
            raise Refusal("too-long", reason, hint="Join a public table instead.")

    def copy(self, expression: Expression, node: Node) -> None:
        """Count an expression that is written twice: nested copies would double with every level."""
        parts = walk(expression)
        texts = [part.value for part in parts if isinstance(part, Literal) and isinstance(part.value, str)]
        self.copied += len(parts) + sum(map(len, texts)) // LIKE_A_PART
        if self.copied > MAX_COPIED or any(isinstance(part, InQuery | Exists | Scalar) for part in parts):
            hint = "Nest fewer CASE x WHEN and nullif, and none over a subquery; CASE WHEN x = ... copies nothing."
            raise Refusal("too-large", "This expression grows too large.", hint=hint, place=self.place(node))

    def conjoin(self, conditions: int, node: Node) -> None:
        """Count conditions that AND joins, or OR under NOT."""
        self.conjoined += conditions
        if self.conjoined > MAX_CONJOINED:
            hint = "Write x NOT IN (...) for many values."
            reason = f"AND may join {MAX_CONJOINED} conditions of a statement."
            raise Refusal("too-large", reason, hint=hint, place=self.place(node))

    def multiply(self, rows: int, node: Node) -> None:
        """Count the rows that lists make of one: with fifteen lists one unit's row alone could stop the engine."""
        self.unnested *= rows
        if self.unnested > MAX_UNNESTED:
            reason = f"The lists in unnest may make {MAX_UNNESTED:,} rows of one, all of a statement multiplied."
            hint = "Write fewer or shorter lists."
            raise Refusal("too-large", reason, hint=hint, place=self.place(node))

    def star(self, item: Node) -> list[ScopeColumn] | None:
        """Return the columns of * or alias.*; None for any other item of a select list."""
        is_named = type(item).__name__ == "Column" and type(item.this).__name__ == "Star"
        if not is_named and type(item).__name__ != "Star":
            return None
        allow_only(self.statement, item, *(("this", "table", "db", "catalog") if is_named else ()))
        if is_named:
            allow_only(self.statement, item.this)
        database, schema, qualifier = item.text("catalog"), item.text("db"), item.text("table")
        columns = self.scope.star(qualifier, schema) if is_database(database) else []
        if not columns:
            hint = list_names("The tables here are", [table.alias for table in self.scope.tables], wanted=qualifier)
            raise Refusal("unknown-table", "There is no such table here.", hint=hint, place=self.place(item))
        self.starred += len(columns)  # SELECT *, * in subqueries of subqueries doubles with every level
        if self.starred > MAX_STARRED:
            reason = f"The stars of a statement may stand for {MAX_STARRED:,} columns."
            raise Refusal("too-large", reason, hint="Name the columns that you need.", place=self.place(item))
        for column in columns:
            if not is_column(column.expression):
                self.copy(column.expression, item)
        return columns

    def column(self, node: Node) -> ScopeColumn:
        """Return the column that a name means."""
        allow_only(self.statement, node, "this", "table", "db", "catalog")
        database, schema, qualifier = node.text("catalog"), node.text("db"), node.text("table")
        found = None
        if is_database(database):
            found = self.scope.find(node.name, qualifier, place=partial(self.place, node), schema=schema)
        if type(node.this).__name__ == "Identifier" and found is not None:
            if not is_column(found.expression):  # an item of unnest, or what FULL JOIN ... USING makes of one
                self.copy(found.expression, node)
            return found
        known, where = self.scope.star(qualifier, schema), self.place(node)
        if qualifier and not known:
            hint = list_names("The tables here are", [table.alias for table in self.scope.tables], wanted=qualifier)
            raise Refusal("unknown-column", "There is no such table here.", hint=hint, place=where)
        names = [column.name for column in known]
        is_text = bool(node.this.args.get("quoted")) and not qualifier and not propose_name(node.name, names)
        hint = list_names("The columns here are", names, wanted=node.name)
        hint = f"{propose_text(node.name) if is_text else ''}{hint}"
        raise Refusal("unknown-column", "There is no such column here.", hint=hint, place=where)

    def read_name(self, node: Node) -> Expression:
        """Return what a name means: a column, or the clock where no column and no output has its word."""
        if not self.means_clock(node):
            return self.column(node).expression
        word, block = ascii_lower(node.name), node.parent_select
        for item in () if block is None else block.expressions:
            if type(item).__name__ != "Alias" or ascii_lower(item.alias) != word:
                continue
            named = item.this
            if type(named).__name__ != "Column" or ascii_lower(named.name) != word or named.args.get("table"):
                hint = "Choose another alias, or write today() or now() for the clock."
                reason = "This name could mean the clock or an output."
                raise Refusal("ambiguous-column", reason, hint=hint, place=self.place(node))
        return read_clock(self.now(), word)

    def means_clock(self, node: Node) -> bool:
        """Say whether a name is a word of the clock, which a column of that name would come before, as in DuckDB."""
        if type(node).__name__ != "Column" or ascii_lower(node.name) not in CLOCK_WORDS or node.args.get("table"):
            return False
        return self.scope.find(node.name, "", place=lambda: None) is None

    def now(self) -> datetime:
        """Return the one reading of the clock that this statement sees; refuse where there is no clock."""
        if self.moment is None:
            if self.clock is None:
                hint = "Write the date or the time stamp itself."
                raise Unsupported("clock", "There is no clock here.", hint=hint)
            self.moment = self.clock()
        return self.moment

    def place(self, node: Node) -> Place | None:
        """Return the place of the node."""
        return place(self.statement, node)

    def at(self, node: Node) -> Place:
        """Return the place of the node, or the start of the statement."""
        return self.place(node) or Place(1, 1)


def read_alias(reader: Reader, item: Node) -> tuple[str, Node]:
    """Return the alias of a select item ('' without one) and the item itself."""
    if type(item).__name__ != "Alias":
        return "", item
    allow_only(reader.statement, item, "this", "alias")
    return str(item.alias), item.this


def read_position(node: Node, most: int) -> int:
    """Return the position in the select list, from 1, that a number means; 0 when it means none."""
    position = int(node.this) if _INTEGER.fullmatch(str(node.this)) else 0
    return position if position <= most else 0


def read_row_count(reader: Reader, select: Node, *, clause: str) -> int | None:
    """Return the number of LIMIT or OFFSET, written or bound; None without the clause."""
    node = select.args.get(clause)
    if node is None:
        return None
    allow_only(reader.statement, node, "expression")
    count = node.expression
    if type(count).__name__ == "Literal":
        if _INTEGER.fullmatch(str(count.this)):
            return int(count.this)
        given = read_whole_number(reader.statement.value(str(count.this)), reader.bound.__getitem__, min_value=0)
        if given is not None:
            return given
    hint = "Such as LIMIT 10."
    raise Unsupported("limit", "LIMIT takes a plain whole number.", hint=hint, place=reader.place(node))
