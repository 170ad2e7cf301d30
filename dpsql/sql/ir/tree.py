"""The tree of a query: expressions, relations and query blocks, typed, closed and frozen.

Nothing of the analyst's text survives into it but literal values. An expression node carries its type and, for text,
the longest value it can have (None: as long as the stored value).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from decimal import Decimal

from dpsql.dialects import ENUM
from dpsql.sql.ir.types import BOOLEAN, TEXT, Family, Type, set_collations

_AGGREGATES = frozenset("count_star count count_distinct sum avg min max sum_sorted avg_sorted".split())


@dataclass(frozen=True, slots=True)
class ColumnRef:
    """A column of relation number `relation` of the same query block."""

    relation: int
    name: str
    type: Type
    longest: int | None = None


@dataclass(frozen=True, slots=True)
class Literal:
    """A value of the analyst's text or parameters; it reaches the engine as a bound parameter."""

    value: bool | int | float | Decimal | str | None
    type: Type
    longest: int | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """An operator or function of the allow-list (`sql/functions/allow_list.py`), by its canonical name."""

    function: str
    arguments: tuple[Expression, ...]
    type: Type
    longest: int | None = None


@dataclass(frozen=True, slots=True)
class Cast:
    """A cast that gives NULL where the value does not fit."""

    argument: Expression
    type: Type
    longest: int | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """CASE WHEN condition THEN result ... [ELSE default] END; conditions are BOOLEAN, results of one type."""

    branches: tuple[tuple[Expression, Expression], ...]
    default: Expression | None
    type: Type
    longest: int | None = None


@dataclass(frozen=True, slots=True)
class In:
    """argument IN (choices)."""

    argument: Expression
    choices: tuple[Expression, ...]
    type: Type = BOOLEAN
    longest: int | None = None


@dataclass(frozen=True, slots=True)
class InQuery:
    """argument IN (SELECT ...); `source` has one output, and may name relations of the blocks around it."""

    argument: Expression
    source: Derived
    type: Type = BOOLEAN
    longest: int | None = None


@dataclass(frozen=True, slots=True)
class Exists:
    """EXISTS (SELECT ...); `source` may name relations of the blocks around it."""

    source: Derived
    type: Type = BOOLEAN
    longest: int | None = None


@dataclass(frozen=True, slots=True)
class Try:
    """NULL where `argument` would raise; put there by `make_total` of `rewrite/passes.py`."""

    argument: Expression
    type: Type
    longest: int | None = None


@dataclass(frozen=True, slots=True)
class Collate:
    """Text compared by its bytes; put there by `canonicalize` and `compare_by_bytes`."""

    argument: Expression
    type: Type
    longest: int | None = None


@dataclass(frozen=True, slots=True)
class Scalar:
    """The one value of (SELECT ... of public tables alone); `source` has one output and, for certain, one row."""

    source: Derived
    type: Type
    longest: int | None = None


@dataclass(frozen=True, slots=True)
class Sorted:
    """One ORDER BY term: what is ordered by, its direction, where NULLs go."""

    expression: Expression
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class Window:
    """function(arguments) OVER (PARTITION BY ... ORDER BY ...), with the default frame of DuckDB.

    It occurs only in the outputs of a `Derived` that computes nothing from it.
    """

    function: str
    arguments: tuple[Expression, ...]
    partition: tuple[Expression, ...]
    order: tuple[Sorted, ...]
    type: Type
    longest: int | None = None


Expression = ColumnRef | Literal | Call | Cast | Case | In | InQuery | Exists | Scalar | Window | Try | Collate


@dataclass(frozen=True, slots=True)
class Scan:
    """A stored table, by the engine's fully qualified path, and those of its columns that the query reads."""

    number: int
    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Derived:
    """A subquery in FROM, or a CTE put in place of its name; output i is called c{i} (from 1).

    `grouping` is what it groups by, positions or ALL; without it outputs that aggregate make it one row.
    """

    number: int
    outputs: tuple[Expression, ...]
    body: FromWhere
    grouping: str = ""


@dataclass(frozen=True, slots=True)
class Joined:
    """left JOIN right; `kind` is INNER, LEFT, RIGHT, FULL, SEMI, ANTI or CROSS; `on` is absent for CROSS alone."""

    left: Relation
    kind: str
    right: Relation
    on: Expression | None


@dataclass(frozen=True, slots=True)
class Combined:
    """UNION ALL, UNION, INTERSECT or EXCEPT of subqueries whose outputs agree in number and type; called c{i} too."""

    number: int
    kind: str
    branches: tuple[Derived, ...]


@dataclass(frozen=True, slots=True)
class Cut:
    """Rows `offset` + 1 to `offset` + `limit` of `source`, of public tables alone, in an order that is total."""

    source: Derived
    order: tuple[Sorted, ...]
    limit: int
    offset: int

    @property
    def number(self) -> int:
        """Return the number of the relation."""
        return self.source.number


@dataclass(frozen=True, slots=True)
class Numbered:
    """The whole numbers from 1 to `count`, one a row, in the column c1."""

    number: int
    count: int


Relation = Scan | Derived | Joined | Combined | Cut | Numbered


@dataclass(frozen=True, slots=True)
class FromWhere:
    """FROM and WHERE of one query block."""

    source: Relation
    where: Expression | None


def stored_column(relation: int, name: str, *, type_: Type) -> Expression:
    """Return a column of a stored table as every query reads it: an ENUM as its text.

    Labels of an ENUM, and so their codes and their order, may come from rows: none of these may decide anything.
    """
    column = ColumnRef(relation, name, type_)
    return Cast(column, TEXT) if type_.name == ENUM else column


def find_collations(expression: Expression) -> frozenset[str]:
    """Return the collations that the engine could compare an expression by; functions of text pass them on."""
    if expression.type.family is not Family.TEXT:
        return frozenset()
    match expression:
        case Collate():
            return frozenset(["C"])
        case ColumnRef(type=type_):
            return type_.collations
        case Scalar(source=source):
            return find_collations(source.outputs[0])
    return frozenset[str]().union(*map(find_collations, children(expression)))


def output_column(relation: int, at: int, *, expression: Expression) -> ColumnRef:
    """Return output number `at`, from 1, of a subquery that computes `expression` there."""
    type_ = set_collations(expression.type, find_collations(expression))
    return ColumnRef(relation, f"c{at}", type_, expression.longest)


def is_column(expression: Expression) -> bool:
    """Say whether the expression is a column and nothing more, as it is stored or as `stored_column` reads it."""
    inner = expression.argument if isinstance(expression, Cast) else expression
    return isinstance(inner, ColumnRef) and expression in (
        inner,
        stored_column(inner.relation, inner.name, type_=inner.type),
    )


def strip_casts(expression: Expression) -> Expression:
    """Return an expression without the casts and collations around it."""
    while isinstance(expression, Cast | Collate):
        expression = expression.argument
    return expression


def children(expression: Expression) -> tuple[Expression, ...]:
    """Return the direct operands of an expression."""
    match expression:
        case ColumnRef() | Literal() | Exists() | Scalar():
            return ()
        case Window(arguments=arguments, partition=partition, order=order):
            return (*arguments, *partition, *(term.expression for term in order))
        case Call(arguments=arguments):
            return arguments
        case In(argument=argument, choices=choices):
            return (argument, *choices)
        case Case(branches=branches, default=default):
            inside = tuple(part for branch in branches for part in branch)
            return inside if default is None else (*inside, default)
        case Cast(argument=argument) | InQuery(argument=argument) | Try(argument=argument) | Collate(argument=argument):
            return (argument,)


def walk(expression: Expression) -> list[Expression]:
    """Return the expression and everything below it."""
    return [expression, *(node for child in children(expression) for node in walk(child))]


def has_scan(node: object) -> bool:
    """Return whether a query, or any part of one, reads a stored table."""
    return any(True for _ in list_scans(node))


def list_scans(node: object) -> Iterator[Scan]:
    """Yield the stored tables that a query, or any part of one, reads."""
    if isinstance(node, Scan):
        yield node
    elif isinstance(node, tuple):
        for each in node:
            yield from list_scans(each)
    elif is_dataclass(node):
        for field in fields(node):
            yield from list_scans(getattr(node, field.name))


def is_aggregate(expression: Expression) -> bool:
    """Say whether the expression itself is an aggregate."""
    return isinstance(expression, Call) and expression.function in _AGGREGATES
