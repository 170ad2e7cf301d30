"""The intermediate representation: what a private query says, typed, closed and frozen.

Nothing of the analyst's text survives into it but literal values and output names. An expression node carries its
type and, for text, the longest value it can have (None: as long as the stored value).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from dpsql.errors import Place
from dpsql.sql.types import BOOLEAN, Type

__all__ = [
    "Body",
    "Call",
    "Case",
    "Cast",
    "Clause",
    "Collate",
    "Column",
    "Derived",
    "Describe",
    "Domain",
    "Expression",
    "In",
    "InQuery",
    "Joined",
    "Keep",
    "Listed",
    "Literal",
    "Name",
    "Option",
    "Order",
    "Output",
    "Partitions",
    "PrivateQuery",
    "PublicQuery",
    "Relation",
    "Scan",
    "ShowBudget",
    "ShowTables",
    "Sorted",
    "Statement",
    "Stored",
    "Try",
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
    """argument IN (SELECT ... of public tables alone); `source` has one output."""

    argument: Expression
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


Expression = Column | Literal | Call | Cast | Case | In | InQuery | Try | Collate


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
    """left JOIN right; `kind` is INNER, LEFT or CROSS; `on` is BOOLEAN and absent for CROSS."""

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


@dataclass(frozen=True, slots=True)
class Output:
    """A column of the answer: key number `key` (from 0), or the released count when `key` is None."""

    name: str
    key: int | None


@dataclass(frozen=True, slots=True)
class Order:
    """One ORDER BY term over the released table: the position of an output, its direction, where NULLs go."""

    output: int
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class Keep:
    """One HAVING term over the released table: the position of a released count, an operator, a number."""

    output: int
    operator: str
    value: int | float | Decimal


@dataclass(frozen=True, slots=True)
class Listed:
    """A known domain written in the query: values of the key's type."""

    values: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Stored:
    """A known domain that a public table holds: `value`, of the key's type, over the rows of `body`."""

    body: Body
    value: Expression


Domain = Listed | Stored
OptionValue = Decimal | str | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Option:
    """A value of WITH (name = value) as written, and where; `word` marks a bare word such as AUTO."""

    value: OptionValue
    place: Place
    word: bool = False


@dataclass(frozen=True, slots=True)
class Name:
    """A name of the statement, and where it stands."""

    text: str
    place: Place


@dataclass(frozen=True, slots=True)
class Clause:
    """TOP k PRIVATE [PER name] [WITH (...)]: k (None: ADAPTIVE), options by lower-case name, its place, PER's name."""

    k: int | None
    options: Mapping[str, Option]
    place: Place
    per: Name | None = None


@dataclass(frozen=True, slots=True)
class Partitions:
    """TOP k PRIVATE PER a key: of each of these public values of key number `key` (from 0), the first k groups.

    `values` are distinct literals of the key's type, in their natural order; those that a public table holds are in
    `source` until it is read. `column` is the one stored column of the private table that the key is worked out from,
    or None. With `salts`, which are private to the session, each unit counts in one of the values alone, chosen by a
    hash under them.
    """

    key: int
    values: tuple[Literal, ...]
    place: Place
    source: Stored | None = None
    column: str | None = None
    salts: tuple[int, int] | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, repr=False)
class Assumption:
    """A public guess of the counts, falling; those that a public table holds are in `source` until they are read."""

    counts: tuple[int, ...]
    source: Stored | None = None


@dataclass(frozen=True, slots=True)
class PrivateQuery:
    """A private top-k: whose units are protected, what is counted, and what the analyst asked for.

    With a `domain` the one key takes its values and no others; with `partitions` one of the keys does. What is
    `assumed` of the counts is for EXPLAIN alone.
    """

    text: str
    table: str
    unit_name: str
    unit: Column
    keys: tuple[Expression, ...]
    body: Body
    outputs: tuple[Output, ...]
    order: tuple[Order, ...]
    limit: int | None
    clause: Clause
    explained: bool = False
    keep: tuple[Keep, ...] = ()
    domain: Domain | None = None
    partitions: Partitions | None = None
    assumed: Assumption | None = None

    @property
    def releases_counts(self) -> bool:
        """Say whether the select list names COUNT(DISTINCT unit)."""
        return any(output.key is None for output in self.outputs)


@dataclass(frozen=True, slots=True)
class Sorted:
    """One ORDER BY term of a public query."""

    expression: Expression
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class PublicQuery:
    """A query over public tables alone, answered exactly; aggregates are calls, and `keys` None is no grouping.

    `by_all` keys are those of GROUP BY ALL, in which DuckDB takes no notice of constants and of collations.
    """

    names: tuple[str, ...]
    outputs: tuple[Expression, ...]
    distinct: bool
    body: Body
    keys: tuple[Expression, ...] | None
    by_all: bool
    having: Expression | None
    order: tuple[Sorted, ...]
    limit: int | None
    offset: int


@dataclass(frozen=True, slots=True)
class ShowBudget:
    """SHOW BUDGET."""


@dataclass(frozen=True, slots=True)
class ShowTables:
    """SHOW TABLES."""


@dataclass(frozen=True, slots=True)
class Describe:
    """DESCRIBE of a table of the policy, by the policy's name for it."""

    table: str


Statement = PrivateQuery | PublicQuery | ShowBudget | ShowTables | Describe


def children(expression: Expression) -> tuple[Expression, ...]:
    """Return the direct operands of an expression."""
    match expression:
        case Column() | Literal():
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
