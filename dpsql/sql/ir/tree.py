"""The tree of a query: types, expressions, relations and query blocks, closed and frozen.

Nothing of the analyst's text survives into it but literal values. An expression node carries its type and, for text,
the longest value it can have (None: as long as the stored value).

This file has two parts: (1) types, named as DuckDB names them; (2) from `ColumnRef` on, the nodes of the tree, and
functions that look at them. Those that change a tree are in `transforms.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from decimal import Decimal
from enum import Enum

from dpsql.dialects import ENUM, strip_type_details

WIDEST_DECIMAL = 18  # digits of those that are computed with
MOST_DIGITS = 38  # of a DECIMAL
_INTEGER_BITS = {
    "TINYINT": (-7, 7),
    "SMALLINT": (-15, 15),
    "INTEGER": (-31, 31),
    "BIGINT": (-63, 63),
    "UTINYINT": (0, 8),
    "USMALLINT": (0, 16),
    "UINTEGER": (0, 32),
}
_EXACT = frozenset(["FLOAT", "BLOB", "UBIGINT", "HUGEINT"])
_ONE_FORM = frozenset([ENUM, "FLOAT", "UUID", "BLOB", "UBIGINT", "HUGEINT", "UHUGEINT"])
_DECIMAL = re.compile(r"DECIMAL\((\d+),\s*(\d+)\)")


class Family(Enum):
    """Types that compare with each other without an implicit cast that could fail."""

    BOOLEAN = "BOOLEAN"
    INTEGER = "integer"
    DECIMAL = "DECIMAL"
    DOUBLE = "DOUBLE"
    TEXT = "VARCHAR"
    DATE = "DATE"
    TIMESTAMP = "TIMESTAMP"
    INTERVAL = "INTERVAL"
    NULL = "NULL"
    OPAQUE = "a type that dpsql does not compute with"


@dataclass(frozen=True, slots=True)
class Type:
    """A family and the exact name in DuckDB.

    Text of stored columns may have `collations`: those by which the engine could compare it. They make no other type.
    """

    family: Family
    name: str
    collations: frozenset[str] = field(default=frozenset(), compare=False, repr=False)

    @property
    def is_number(self) -> bool:
        """Say whether arithmetic applies."""
        return self.family in {Family.INTEGER, Family.DECIMAL, Family.DOUBLE}

    def holds(self, value: int) -> bool:
        """Say whether an integer type can hold `value`."""
        least, greatest = self.ends
        return least <= value <= greatest

    @property
    def ends(self) -> tuple[int, int]:
        """Return the least and the greatest value of an integer type."""
        low, high = _INTEGER_BITS[self.name]
        return (-(1 << -low) if low else 0), (1 << high) - 1

    @property
    def precision(self) -> tuple[int, int]:
        """Return width and scale of a DECIMAL, or of the one that holds all of an integer type."""
        if self.name in _INTEGER_BITS:
            return len(str(1 << max(map(abs, _INTEGER_BITS[self.name])))), 0
        found = _DECIMAL.fullmatch(self.name)
        return (int(found[1]), int(found[2])) if found else (0, 0)

    def __str__(self) -> str:
        return self.name


BOOLEAN = Type(Family.BOOLEAN, "BOOLEAN")
BIGINT = Type(Family.INTEGER, "BIGINT")
INTEGER = Type(Family.INTEGER, "INTEGER")
DOUBLE = Type(Family.DOUBLE, "DOUBLE")
TEXT = Type(Family.TEXT, "VARCHAR")
DATE = Type(Family.DATE, "DATE")
TIMESTAMP = Type(Family.TIMESTAMP, "TIMESTAMP")
INTERVAL = Type(Family.INTERVAL, "INTERVAL")
NULL = Type(Family.NULL, "NULL")
_PLAIN = {type_.name: type_ for type_ in (BOOLEAN, DOUBLE, TEXT, DATE, TIMESTAMP)}


def decimal(width: int, scale: int) -> Type:
    """Return DECIMAL(width, scale)."""
    return Type(Family.DECIMAL, f"DECIMAL({width},{scale})")


def sum_type(added: Type) -> Type:
    """Return the type of a sum of values of a type, as wide as DuckDB's: whole numbers are DECIMAL(38, 0), its HUGEINT.

    None of the sums of 2**33 units leaves it.
    """
    return DOUBLE if added.family is Family.DOUBLE else decimal(MOST_DIGITS, added.precision[1])


def parse_type(name: str, collation: str = "") -> Type:
    """Return the type of a stored column from DuckDB's text for it; what is not computed with is OPAQUE.

    Labels, fields and tags in that text are left out: they may come from rows.
    """
    name = strip_type_details(name)
    if name == TEXT.name and collation:
        return set_collations(TEXT, frozenset([collation]))
    if name in _PLAIN:
        return _PLAIN[name]
    if name in _INTEGER_BITS:
        return Type(Family.INTEGER, name)
    if (found := _DECIMAL.fullmatch(name)) and int(found[1]) <= WIDEST_DECIMAL:
        return decimal(int(found[1]), int(found[2]))
    return Type(Family.OPAQUE, name)


def set_collations(type_: Type, collations: frozenset[str]) -> Type:
    """Return the type of text that the engine could compare by any of these collations."""
    return type_ if type_.collations == collations else replace(type_, collations=collations)


def find_read_type(stored: Type) -> Type:
    """Return the type as which a column is read: FLOAT as DOUBLE, ENUM and UUID as VARCHAR, by a total cast."""
    if stored.name == "FLOAT":
        return DOUBLE
    if stored.name in {"UUID", ENUM}:
        return TEXT
    return stored


def has_one_form(type_: Type) -> bool:
    """Say whether equal values of a type print alike, if text is compared by its bytes and floats with their sign.

    Intervals, nested and variant types do not: 1 day and 24 hours are equal.
    """
    known = type_.name in _ONE_FORM or _DECIMAL.fullmatch(type_.name) is not None
    return known or type_.family not in {Family.OPAQUE, Family.INTERVAL, Family.NULL}


def find_answer_type(stored: Type) -> Type:
    """Return the type as which a column that is not computed with is answered: text where Arrow or Python is inexact.

    Zones, times of 24:00, the ends of the calendar and the widest numbers would come out as other values.
    """
    exact = stored.name in _EXACT or _DECIMAL.fullmatch(stored.name) is not None or find_read_type(stored) == TEXT
    return stored if exact or stored.family is not Family.OPAQUE else TEXT


def find_integer_type(value: int) -> Type | None:
    """Return DuckDB's type for an integer literal: INTEGER, else BIGINT, else nothing we compute with."""
    return next((type_ for type_ in (INTEGER, BIGINT) if type_.holds(value)), None)


def widen_integers(first: Type, second: Type) -> Type:
    """Return the type to which DuckDB brings two integer types: the wider, or the least signed type that holds both."""
    if first == second:
        return first
    low = min(_INTEGER_BITS[first.name][0], _INTEGER_BITS[second.name][0])
    high = max(_INTEGER_BITS[first.name][1], _INTEGER_BITS[second.name][1])
    names = [name for name, (bottom, top) in _INTEGER_BITS.items() if bottom <= low and top >= high]
    # SMALLINT with USMALLINT is INTEGER; UTINYINT with USMALLINT stays unsigned.
    return Type(Family.INTEGER, names[0] if low else next(name for name in names if name.startswith("U")))


# Part 2: expressions and relations.
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
    """An operator or function of the allow-list (`sql/allow_list.py`), by its canonical name."""

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
    """NULL where `argument` would raise; put there by `make_total` of `ir/transforms.py`."""

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


def find_longest(expressions: Iterable[Expression]) -> int | None:
    """Return the most characters that one of some expressions can have, None where one is as long as a stored value."""
    lengths = [each.longest for each in expressions]
    return None if None in lengths else max(length for length in lengths if length is not None)


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


def split_conjuncts(condition: Expression | None) -> list[Expression]:
    """Split a condition at the ANDs of its top level."""
    if condition is None:
        return []
    if isinstance(condition, Call) and condition.function == "and":
        return [part for argument in condition.arguments for part in split_conjuncts(argument)]
    return [condition]


def join_conjuncts(conditions: Sequence[Expression]) -> Expression | None:
    """Join the conditions by AND; return None if there are none."""
    if len(conditions) < 2:  # noqa: PLR2004 - nothing to join
        return conditions[0] if conditions else None
    return Call("and", tuple(conditions), BOOLEAN)
