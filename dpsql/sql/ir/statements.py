"""Statements as data, the intermediate representation: typed, closed and frozen.

Nothing of the analyst's text survives into it but literal values and output names; `tree.py` has its expressions and
relations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from enum import IntEnum
from typing import ClassVar, Literal, Protocol, Self

from dpsql.dialects import DUCKDB, Dialect
from dpsql.errors import Place, Refusal, Unsupported
from dpsql.sql.ir import tree
from dpsql.sql.ir.catalog import MaterializedSet
from dpsql.sql.ir.measures import DISTINCT_UNITS, Measure, Quantile, Statistic
from dpsql.sql.ir.tree import DOUBLE, Expression, FromWhere, Sorted, Type


@dataclass(frozen=True, slots=True)
class CutList:
    """Note on a list that is cut: SQL promises all groups, and a ranking returns the first.

    It says what is `found` of the groups, and what to write, and where, for `k` alone, more, or all. `more` groups are
    proposed at most, 0 for none.
    """

    found: str
    k: int
    place: str = ""
    alone: str = ""
    more: int = 0
    where: str = ""
    every: str = ""

    def describe(self, fits: Callable[[int], bool]) -> str:
        """Return the note, which proposes as many groups as fit the budget of the policy."""
        more = next((k for k in range(self.more, self.k, -1) if fits(k)), 0)
        hints = [self.alone, f"TOP {more} PRIVATE{self.where} for more" if more else "", self.every]
        *most, last = [each for each in hints if each] or [""]
        return f"{self.found}; write {self.place}{', '.join(most)}{' or ' * bool(most)}{last}" if last else self.found


class Explained(IntEnum):
    """Whether EXPLAIN stands before a statement, and VERBOSE behind it: how many words there are."""

    NO = 0
    PLAN = 1
    VERBOSE = 2


@dataclass(frozen=True, slots=True)
class IntervalEnd:
    """Lower or upper end of the interval that holds the exact value of a measure with probability `level`."""

    is_high: bool
    level: float


@dataclass(frozen=True, slots=True)
class Output:
    """A column of the answer: key number `key` (from 0) or, when `key` is None, a measure by its number.

    With `divisor` it is the quotient of two measures, which AVG is; NULL where the divisor is below 1. With a
    `statistic` it is that, computed from these two and the `others`. With `end` it is not the released value, but an
    end of its interval. With `quantile` it is that quantile, by its number, and neither a key nor a measure.
    """

    name: str
    key: int | None
    measure: int = 0
    divisor: int | None = None
    end: IntervalEnd | None = None
    quantile: int | None = None
    others: tuple[int, ...] = ()
    statistic: Statistic | None = None

    @property
    def is_measure(self) -> bool:
        """Whether it is a measure, or computed from measures."""
        return self.key is None and self.quantile is None

    @property
    def places(self) -> tuple[int, ...]:
        """Numbers of the measures that it is computed from: the divisor, if there is one, is the second."""
        return (self.measure,) if self.divisor is None else (self.measure, self.divisor, *self.others)

    @property
    def divided_name(self) -> str:
        """Name of the function of several measures that it is."""
        return "AVG" if self.statistic is None else self.statistic.value

    def place(self, places: Sequence[int]) -> Self:
        """Return the same output with other numbers of its measures."""
        measure, *more = places
        return replace(self, measure=measure, divisor=more[0] if more else None, others=tuple(more[1:]))


@dataclass(frozen=True, slots=True)
class Order:
    """One ORDER BY term over the released table: the position of an output, its direction, where NULLs go."""

    output: int
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class HavingTerm:
    """One HAVING term over the released table: the position of a released count, an operator, a number."""

    output: int
    operator: str
    value: int | float | Decimal


@dataclass(frozen=True, slots=True)
class LiteralDomain:
    """A known domain written in the query: values of the key's type, NULL among them where it is a group."""

    values: tuple[Expression, ...]

    @property
    def has_null(self) -> bool:
        """Whether the group of NULL is known."""
        bare = map(tree.strip_casts, self.values)  # text has its collation around it
        return any(isinstance(value, tree.Literal) and value.value is None for value in bare)


@dataclass(frozen=True, slots=True)
class TableDomain:
    """A known domain that a public table holds: `value`, of the key's type, over the rows of `body`.

    The group of NULL is none of them.
    """

    body: FromWhere
    value: Expression
    has_null: ClassVar[bool] = False


KeyDomain = LiteralDomain | TableDomain


@dataclass(frozen=True, slots=True)
class ProductDomain:
    """A known domain of several keys: all combinations of the values of each, in the order of the keys."""

    factors: tuple[KeyDomain, ...]


@dataclass(frozen=True, slots=True)
class ReleasedDomain:
    """The names of the keys that earlier answers released, as WITH (domain = released) says: `names` of the query."""


Domain = KeyDomain | ProductDomain | ReleasedDomain


class KnownNames(Protocol):
    """Values of the group keys, one combination for each group, that earlier answers of this analyst have released.

    They are public since.
    """

    @property
    def count(self) -> int:
        """How many names there are, at least one."""
        ...

    @property
    def evident(self) -> bool:
        """Whether they need evidence that some row has them (known = true), or are returned in any case (all)."""
        ...


def list_factors(domain: Domain) -> tuple[KeyDomain, ...]:
    """Return the domain of each key; names that were released have none of a single key."""
    if isinstance(domain, ReleasedDomain):
        return ()
    return domain.factors if isinstance(domain, ProductDomain) else (domain,)


def count_groups(domain: Domain | None) -> int | None:
    """Return how many groups a known domain has, None where only the database knows, or where there is no domain."""
    if domain is None or isinstance(domain, ReleasedDomain):
        return None
    sizes = [len(each.values) for each in list_factors(domain) if isinstance(each, LiteralDomain)]
    return math.prod(sizes) if len(sizes) == len(list_factors(domain)) else None


OptionValue = Decimal | str | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Option:
    """A value of WITH (name = value) as written, and where; `word` marks a bare word such as AUTO.

    `parameter` is how the text writes it where its value is bound, such as ?.
    """

    value: OptionValue
    place: Place
    word: bool = False
    parameter: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Name:
    """Name in the statement, with its place."""

    text: str
    place: Place


@dataclass(frozen=True, slots=True)
class StatedTotal:
    """Terms of SELECT WITH DIFFERENTIAL_PRIVACY, as written: `epsilon` and `delta` are of the whole query.

    `min_units` is the number of units that a group must have, and `unit_column` the privacy unit.
    """

    epsilon: Option | None
    delta: Option | None
    min_units: Option | None
    unit_column: Option | None
    place: Place


@dataclass(frozen=True, slots=True)
class Clause:
    """TOP k PRIVATE [PER name] [WITH (...)], ALL PRIVATE of all known groups, or PRIVATE alone, of one total.

    `k` is None for ADAPTIVE, and where the `shape` is not "top" but "all" or "total". Options are by lower-case name;
    `per` is PER's name. It is `implied` where k comes from LIMIT, as in LIMIT k PRIVATE, or the statement is standard
    SQL that is read as private. `stated` are the terms of the whole query; a plan has none, since they become options
    of an item. For hints the `form` says whether it ends the query, follows SELECT ("leading"), has k from a LIMIT, or
    is that of a WITH DIFFERENTIAL_PRIVACY ("header"), and `parameter` how the text writes a k that is bound.
    """

    k: int | None
    options: Mapping[str, Option]
    place: Place
    per: Name | None = None
    shape: Literal["top", "all", "total"] = "top"
    implied: bool = False
    stated: StatedTotal | None = None
    form: Literal["end", "leading", "limit", "header"] = field(default="end", compare=False)
    parameter: str = field(default="", compare=False)

    def __str__(self) -> str:
        """Return the clause as SQL writes it, without PER and options."""
        match self.shape:
            case "all":
                return "ALL PRIVATE"
            case "total":
                return "PRIVATE"
        return f"TOP {self.k or 'ADAPTIVE'} PRIVATE"

    @property
    def words(self) -> str:
        """The clause with PER, as a receipt says how standard SQL was read."""
        return str(self) if self.per is None else f"{self} PER {self.per.text}"

    @property
    def is_adaptive(self) -> bool:
        """Whether the number of keys is chosen in private."""
        return self.shape == "top" and self.k is None


@dataclass(frozen=True, slots=True)
class Partitions:
    """TOP k PRIVATE PER a key: of each of these public values of key number `key` (from 0), the first k groups.

    `values` are distinct literals of the key's type, in their natural order; those that a public table holds are in
    `source` until it is read. `column` is the one stored column of a private table that the key is worked out from, as
    (table, column), or None. With `salts`, which are private to the session, each unit counts in one of the values
    alone, chosen by a hash under them.
    """

    key: int
    values: tuple[tree.Literal, ...]
    place: Place
    source: TableDomain | None = None
    column: tuple[str, str] | None = None
    salts: tuple[int, int] | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, repr=False)
class Assumption:
    """A public guess of the counts, falling; those that a public table holds are in `source` until they are read."""

    counts: tuple[int, ...]
    source: TableDomain | None = None


@dataclass(frozen=True, slots=True)
class ChargedValues:
    """Values of a column of a private table, by their names, whose units alone a query counts and is charged to.

    `condition` says of a row that its unit has one of them; None once it is part of the query's WHERE.
    """

    table: str
    column: str
    names: tuple[str, ...]
    condition: Expression | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class GroupCut:
    """Cut of the groups that the engine returns: those of which the ranked measure is at least `value`.

    So are those at `places` of the order of the keys, which are bound when the statement runs, and those with the keys
    of one of the `names`. Without a value these last are all.
    """

    value: int | None = None
    places: int = 0
    names: tuple[tuple[Expression, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class PrivateQuery:
    """Private top-k query: the protected units, the counted groups, and the options.

    `table` is the first of the `protected` tables, which are all private tables of the query, each with its privacy
    unit; `unit_name` is that of the first. The first of the `measures` ranks the groups; the `quantiles` are those of
    the groups that are returned. With a `domain` the keys
    take its values and no others; with `partitions` one of the keys does. The counts `assumed` are for EXPLAIN alone.
    `dialect` is that of the engine which has the tables. With `item_salts`, which are private to the session, each unit
    has its items counted in the order of a hash under them. Each `materialized` set comes with the path of its
    table; the answer is the same without it. `private_tables` are all private tables, each by its path and its
    name. `reads_seconds` says that the text means another query a second later, because it calls now(). `names` of the
    keys are known from earlier answers. `key_column` is the one stored column of a private table that a sole key is
    worked out from, as (table, column), or None. `bucket_note` says in words which time buckets a bound in WHERE cuts,
    and `list_note` what SQL means beyond the groups that rank first; of a `cut_list` the plan writes it. A query with
    `charged_values` counts units of these values alone. With `reads_total` the number of units in any group is read
    with the groups, and with a `group_cut` few of the groups below it. The keys have at most `key_values` combinations
    of values by the text alone, those of PER aside, and None where it does not tell; where k is lowered to that,
    `k_note` says so.
    """

    # what the text says (`read_private`)
    text: str
    table: str
    unit_name: str
    protected: tuple[tuple[str, str], ...]
    unit: Expression
    keys: tuple[Expression, ...]
    body: FromWhere
    outputs: tuple[Output, ...]
    order: tuple[Order, ...]
    limit: int | None
    clause: Clause
    explained: Explained = Explained.NO
    keep: tuple[HavingTerm, ...] = ()
    domain: Domain | None = None
    partitions: Partitions | None = None
    measures: tuple[Measure, ...] = (DISTINCT_UNITS,)
    quantiles: tuple[Quantile, ...] = ()
    assumed: Assumption | None = None
    dialect: Dialect = DUCKDB
    materialized: tuple[tuple[tuple[str, ...], MaterializedSet], ...] = ()
    private_tables: tuple[tuple[tuple[str, ...], str], ...] = field(default=(), repr=False, compare=False)
    key_column: tuple[str, str] | None = field(default=None, compare=False)
    bucket_note: str = field(default="", compare=False)
    charged_values: ChargedValues | None = None
    # notes of standard SQL (`read_implied`, `read_outer_select`)
    list_note: str = field(default="", compare=False)
    cut_list: CutList | None = field(default=None, repr=False, compare=False)
    # whether the text has another meaning later (`AnalysisCache.read`)
    reads_seconds: bool = field(default=False, compare=False)
    # how many values the keys can have (`read_private`), and what that makes of k (the planner)
    key_values: int | None = field(default=None, compare=False)
    k_note: str = field(default="", compare=False)
    # looked up before planning (`PlanFinder.complete`), with what tables have of `domain`, `partitions` and `assumed`
    names: KnownNames | None = field(default=None, repr=False, compare=False)
    # of the planner
    reads_total: bool = field(default=False, compare=False)
    item_salts: tuple[int, int] | None = field(default=None, repr=False, compare=False)
    # of a mechanism's plan
    group_cut: GroupCut | None = field(default=None, compare=False)

    @property
    def private_paths(self) -> frozenset[tuple[str, ...]]:
        """Paths of all private tables."""
        return frozenset(path for path, _ in self.private_tables)

    def at(self, data_version: int) -> Self:
        """Return the query without what is materialized of other versions of the data."""
        return replace(
            self, materialized=tuple(each for each in self.materialized if each[1].data_version == data_version)
        )

    @property
    def tables(self) -> tuple[str, ...]:
        """Return the names of all private tables that are read."""
        return tuple(table for table, _ in self.protected)

    @property
    def holders(self) -> str:
        """Return the names of the tables that hold the unit, in words; any whose unit has another name says so."""
        own, others = list[str](), list[str]()
        for table, unit in self.protected:
            if unit == self.unit_name:
                own.append(table)
            else:
                others.append(f"{unit} of {table}")
        *most, last = own + others
        return f"{', '.join(most)} and {last}" if most else last

    @property
    def releases_counts(self) -> bool:
        """Say whether the select list names a measure."""
        return any(output.key is None and output.quantile is None for output in self.outputs)

    @property
    def counts_units_alone(self) -> bool:
        """Whether COUNT(DISTINCT unit), released or not, is the only measure."""
        return self.measures == (DISTINCT_UNITS,)

    @property
    def output_types(self) -> tuple[Type, ...]:
        """Types of the columns of the answer, by the text of the query alone."""
        return tuple(
            self.keys[output.key].type
            if output.key is not None
            else self.quantiles[output.quantile].type
            if output.quantile is not None
            else (self.measures[output.measure].type if output.divisor is None else DOUBLE)
            for output in self.outputs
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicQuery:
    """A query over public tables alone, answered exactly; aggregates are calls, and `keys` None is no grouping.

    `by_all` keys are those of GROUP BY ALL, in which DuckDB takes no notice of constants and of collations.
    """

    names: tuple[str, ...]
    outputs: tuple[Expression, ...]
    distinct: bool = False
    body: FromWhere
    keys: tuple[Expression, ...] | None = None
    by_all: bool = False
    having: Expression | None = None
    order: tuple[Sorted, ...] = ()
    limit: int | None = None
    offset: int = 0
    explained: Explained = Explained.NO


@dataclass(frozen=True, slots=True)
class OutputMeasure:
    """Column number `column` of a SELECT is column `output` of private query `inner`, unchanged; all from 0."""

    column: int
    inner: int
    output: int


@dataclass(frozen=True, slots=True)
class OuterSelect:
    """A SELECT in DuckDB's own SQL over the answers of private queries and over public tables; post-processing.

    `sql` is what the evaluator runs with `parameters`. It finds the answers at `released_path`, in the order of
    `inners`, and each of the public tables `beside` at its path; their rows are what the query there fetches.
    Of each answer the first `visible` columns are those of its query; ends of intervals may follow. `is_empty` says
    that the text alone selects no row, and `is_deterministic` that the same rows always have the same result. Without
    private queries it is free. `otherwise` is what to say if it cannot be bound, where dpsql knows better than DuckDB.
    The last columns of `sql` are no part of the answer: two for each of the `ratios`, the ends of its 95 % interval.
    These are ratios of measures, and measures of a UNION ALL, each row of which has the noise of its own release.
    `values` are the columns that are released values or computed from them, and so no keys.
    `aliases` are names of the first columns as they are written, which DuckDB describes in the case of what they name.
    """

    inners: tuple[PrivateQuery, ...]
    sql: str
    parameters: tuple[object, ...]
    beside: tuple[tuple[tuple[str, str, str], PublicQuery], ...]
    measures: tuple[OutputMeasure, ...]
    visible: tuple[int, ...]
    is_empty: bool
    place: Place | None
    explained: Explained = Explained.NO
    is_deterministic: bool = False
    otherwise: Refusal | Unsupported | None = field(default=None, compare=False)
    ratios: tuple[int, ...] = ()
    values: tuple[int, ...] = ()
    aliases: tuple[str | None, ...] = ()


@dataclass(frozen=True, slots=True)
class ShowBudget:
    """SHOW BUDGET."""


@dataclass(frozen=True, slots=True)
class ShowAnswers:
    """SHOW ANSWERS."""


@dataclass(frozen=True, slots=True)
class ShowFunctions:
    """SHOW FUNCTIONS."""


@dataclass(frozen=True, slots=True)
class ShowTables:
    """SHOW TABLES."""


@dataclass(frozen=True, slots=True)
class Describe:
    """DESCRIBE of a table of the policy, by the policy's name for it."""

    table: str


Statement = PrivateQuery | OuterSelect | PublicQuery | ShowBudget | ShowTables | ShowAnswers | ShowFunctions | Describe
