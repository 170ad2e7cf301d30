"""The tree of a query: expressions, relations and query blocks, typed, closed and frozen.

Nothing of the analyst's text survives into it but literal values. An expression node carries its type and, for text,
the longest value it can have (None: as long as the stored value).
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from dpsql.sql.types import BOOLEAN, Type

__all__ = [
    "Body",
    "Call",
    "Case",
    "Cast",
    "Collate",
    "Column",
    "Derived",
    "Exists",
    "Expression",
    "In",
    "InQuery",
    "Joined",
    "Literal",
    "Relation",
    "Scan",
    "Try",
    "children",
    "walk",
]


@dataclass(frozen=True, slots=True)
class Column:
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
    """An operator or function of the allow-list (`sql/functions.py`), by its canonical name."""

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
    """NULL where `argument` would raise; put there by `passes/total.py`."""

    argument: Expression
    type: Type
    longest: int | None = None


@dataclass(frozen=True, slots=True)
class Collate:
    """Text compared by its bytes; put there by `passes/canonical.py`."""

    argument: Expression
    type: Type
    longest: int | None = None


Expression = Column | Literal | Call | Cast | Case | In | InQuery | Exists | Try | Collate


@dataclass(frozen=True, slots=True)
class Scan:
    """A stored table, by the engine's fully qualified path, and those of its columns that the query reads."""

    number: int
    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Derived:
    """A subquery in FROM, or a CTE put in place of its name; output i is called c{i} (from 1).

    `grouping` is what it groups by, positions or ALL, which only a public query does.
    """

    number: int
    outputs: tuple[Expression, ...]
    body: Body
    grouping: str = ""


@dataclass(frozen=True, slots=True)
class Joined:
    """left JOIN right; `kind` is INNER, LEFT, RIGHT, FULL, SEMI, ANTI or CROSS; `on` is absent for CROSS alone."""

    left: Relation
    kind: str
    right: Relation
    on: Expression | None


Relation = Scan | Derived | Joined


@dataclass(frozen=True, slots=True)
class Body:
    """FROM and WHERE of one query block."""

    source: Relation
    where: Expression | None


def children(expression: Expression) -> tuple[Expression, ...]:
    """Return the direct operands of an expression."""
    match expression:
        case Column() | Literal() | Exists():
            return ()
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
