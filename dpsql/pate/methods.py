"""Votes of teachers as a table of the engine, and the methods that choose a label from them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from dpsql.accounting import ZCDP
from dpsql.dialects import DUCKDB, quote_path
from dpsql.engines import Statement
from dpsql.errors import Refusal, Unsupported, UsageError
from dpsql.mechanisms import VOTE_STEPS, Histogram, Noise, NoisyVotes, StableTopK, vote_weight
from dpsql.quantities import Delta, Epsilon
from dpsql.sql.ir.catalog import Catalog
from dpsql.sql.ir.tree import ColumnRef
from dpsql.sql.ir.types import Family, Type
from dpsql.sql.ir.visitor import canonicalize
from dpsql.sql.lexer import ascii_lower
from dpsql.sql.render.duckdb import Writer

Value = int | str
_NAMES = "dpsql_example, dpsql_label"


@dataclass(frozen=True, slots=True)
class VotesTable:
    """Table of votes: its name in the policy, its path in the engine, and its three columns."""

    name: str
    path: tuple[str, ...]
    teacher: ColumnRef
    example: ColumnRef
    label: ColumnRef


def find_votes_table(catalog: Catalog, name: str) -> VotesTable:
    """Return the table of votes that the policy calls `name`.

    Raises `Refusal` unless it is private and has the columns example and label, of whole numbers or text; and
    `Unsupported` for one that is not in DuckDB.
    """
    if catalog.dialect is not DUCKDB:
        reason, hint = (
            f"PATE needs the table of votes in DuckDB, not in {catalog.dialect.name}.",
            "Move the table of votes to DuckDB.",
        )
        raise Unsupported("engine-lacks", reason, hint=hint)
    table = catalog.find(name)
    if table is None:
        raise Refusal("unknown-table", "There is no such table.", hint="SHOW TABLES lists what the policy names.")
    if table.privacy_unit is None:
        hint = "Declare it as a private table whose privacy unit is the teacher."
        raise Refusal("nothing-private", "The table of votes is public.", hint=hint)
    if table.link is not None:
        hint = "Add a column with the teacher to the table, and make it the privacy unit."
        raise Unsupported("pate-link", "A table of votes linked to its teachers is not supported.", hint=hint)
    columns = {ascii_lower(column): ColumnRef(1, column, type_) for column, type_ in table.columns}
    for needed in ("example", "label"):
        if needed not in columns:
            hint = "A table of votes has the columns example and label besides the privacy unit."
            raise Refusal("unknown-column", f"The table of votes has no column {needed}.", hint=hint)
        if columns[needed].type.family not in {Family.INTEGER, Family.TEXT}:
            hint = "Use whole numbers up to BIGINT, or VARCHAR."
            raise Refusal("pate-column", f"The column {needed} is of a type that votes cannot have.", hint=hint)
    return VotesTable(
        table.name, table.path, columns[ascii_lower(table.privacy_unit)], columns["example"], columns["label"]
    )


def check_values(values: Sequence[Value], kind: Type, *, what: str) -> tuple[Value, ...]:
    """Return public values for a column of votes; raise `UsageError` for duplicates and values it cannot hold."""
    is_integer = kind.family is Family.INTEGER
    if not all(_fits(value, kind) for value in values):
        hint = (
            "Give int values that the column can hold." if is_integer else "Give str values without NUL or surrogates."
        )
        raise UsageError("pate-values", f"The column cannot hold these {what}.", hint=hint)
    if not values or len(set(values)) < len(values):
        raise UsageError("pate-values", f"There must be {what}, and no two of them equal.", hint="Name each once.")
    return tuple(values)


def _fits(value: Value, kind: Type) -> bool:
    if kind.family is Family.INTEGER:
        return type(value) is int and kind.holds(value)
    return type(value) is str and "\0" not in value and not any("\ud800" <= char <= "\udfff" for char in value)


def leading_votes(table: VotesTable, examples: Sequence[Value], *, rows: int) -> Statement:
    """Return the SQL for the first `rows` labels of each example by votes, ties by the labels themselves."""
    writer = Writer()
    counted = (
        f"SELECT {_NAMES}, system.main.count(DISTINCT dpsql_teacher) AS dpsql_votes "  # noqa: S608 - nothing in it is the analyst's text
        f"FROM ({_select_votes(writer, table, examples=examples)}) GROUP BY {_NAMES}"
    )
    order = "ORDER BY dpsql_votes DESC, dpsql_label ASC"
    ranked = (
        f"SELECT *, system.main.row_number() OVER (PARTITION BY dpsql_example {order}) AS dpsql_rank FROM ({counted})"  # noqa: S608 - as above
    )
    sql = (
        f"SELECT {_NAMES}, dpsql_votes FROM ({ranked}) WHERE dpsql_rank <= {rows:d} ORDER BY dpsql_example, dpsql_rank"  # noqa: S608 - as above
    )
    return Statement(sql, tuple(writer.parameters))


def weighted_votes(
    table: VotesTable, examples: Sequence[Value], *, labels: Sequence[Value], weights: Sequence[int]
) -> Statement:
    """Return the SQL for the votes of each example for every label of a list that has any.

    Each vote of a teacher for t labels of the list counts weights[t - 1], an integer; there is one for every t.
    """
    writer = Writer()
    votes = _select_votes(writer, table, examples=examples)
    condition = f"dpsql_label IN ({_unnest(writer, table.label, values=labels)})"
    pairs = f"SELECT DISTINCT {_NAMES}, dpsql_teacher FROM ({votes}) WHERE {condition}"  # noqa: S608 - nothing in it is the analyst's text
    weight = f"system.main.list_extract(CAST({writer.bind(list(weights))} AS INTEGER[]), system.main.count())"
    own = f"SELECT dpsql_example, dpsql_teacher, {weight} AS dpsql_weight FROM dpsql_pairs GROUP BY ALL"  # noqa: S608 - as above
    sql = (
        f"WITH dpsql_pairs AS MATERIALIZED ({pairs}), dpsql_own AS ({own}) "  # noqa: S608 - as above
        f"SELECT {_NAMES}, CAST(system.main.sum(dpsql_weight) AS BIGINT) AS dpsql_votes "
        f"FROM dpsql_pairs JOIN dpsql_own USING (dpsql_example, dpsql_teacher) GROUP BY {_NAMES} ORDER BY {_NAMES}"
    )
    return Statement(sql, tuple(writer.parameters))


def _select_votes(writer: Writer, table: VotesTable, *, examples: Sequence[Value]) -> str:
    """Return SQL for the votes on the examples, which are public; other rows are not read."""
    example, label, teacher = (
        writer.expression(canonicalize(column)) for column in (table.example, table.label, table.teacher)
    )
    condition = f"{example} IN ({_unnest(writer, table.example, values=examples)})"
    return (
        f"SELECT {example} AS dpsql_example, {label} AS dpsql_label, {teacher} AS dpsql_teacher "  # noqa: S608 - nothing in it is the analyst's text
        f"FROM {quote_path(table.path)} AS t1 "
        f"WHERE {condition} AND {label} IS NOT NULL AND {teacher} IS NOT NULL"
    )


def _unnest(writer: Writer, column: ColumnRef, *, values: Sequence[Value]) -> str:
    kind = "BIGINT" if column.type.family is Family.INTEGER else "VARCHAR"
    return f"SELECT system.main.unnest(CAST({writer.bind(list(values))} AS {kind}[]))"


EXCHANGED = 2  # by which a gap moves when a teacher is exchanged: one label has a vote less, another one more
Votes = Sequence[tuple[Value, int]]


class Method(Protocol):
    """Method that labels the examples of a batch."""

    @property
    def name(self) -> str:
        """Name on receipts."""
        ...

    @property
    def epsilon(self) -> Epsilon:
        """The epsilon of an item; an example costs two."""
        ...

    @property
    def loss(self) -> ZCDP:
        """Loss of one example, with or without an answer."""
        ...

    @property
    def most_labels(self) -> int:
        """Largest number of labels of an example; one more may be read."""
        ...

    @property
    def release_identity(self) -> tuple[object, ...]:
        """Parameters of the distribution of an example's labels besides its votes, as JSON."""
        ...

    def statement(self, table: VotesTable, examples: Sequence[Value]) -> Statement:
        """Return the SQL that reads the votes; raise UsageError for labels that the table cannot hold."""
        ...

    def draw(self, votes: Votes, noise: Noise) -> tuple[Value, ...] | None:
        """Return the labels of an example in an order that no vote decides; None where nothing is said."""
        ...


@dataclass(frozen=True, slots=True)
class Stable:
    """The labels before a wide gap in the votes, as many as there are; or nothing, if the gap does not hold.

    No list of labels is needed. At most `k_bar` labels come back, and `regulariser` favours some numbers of them, as
    `distance_regulariser` does. `delta` is that of one example.
    """

    epsilon: Epsilon
    delta: Delta
    k_bar: int
    regulariser: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        _ = self.mechanism  # it refuses what it cannot use

    @property
    def name(self) -> str:
        """Name on receipts."""
        return "stable"

    @property
    def mechanism(self) -> StableTopK:
        """Return the mechanism: Algorithm 2 of Zhu and Wang 2022, with the constants of an exchanged unit."""
        return StableTopK(self.epsilon, self.delta, self.k_bar, self.regulariser, EXCHANGED)

    @property
    def loss(self) -> ZCDP:
        """Loss of one example, with or without an answer."""
        return self.mechanism.loss

    @property
    def most_labels(self) -> int:
        """Largest number of labels of an example."""
        return self.k_bar

    @property
    def release_identity(self) -> tuple[object, ...]:
        """Parameters of the distribution of an example's labels besides its votes."""
        return self.name, str(self.epsilon.value), str(self.delta.value), self.k_bar, list(self.regulariser)

    def statement(self, table: VotesTable, examples: Sequence[Value]) -> Statement:
        """Return the SQL that reads the leading labels."""
        return leading_votes(table, examples, rows=self.k_bar + 1)

    def draw(self, votes: Votes, noise: Noise) -> tuple[Value, ...] | None:
        """Return the stable labels, sorted, or None."""
        histogram = Histogram.of_leaders(tuple(count for _, count in votes), self.k_bar)
        stable = self.mechanism.select(histogram, noise).positions
        return None if stable is None else _sorted(votes[at][0] for at in stable)


@dataclass(frozen=True, slots=True)
class Majority:
    """PATE for many labels: all that more than half of the teachers give, by noisy votes; always an answer.

    `labels` is the public list, and `teachers` their public number. With `max_labels`, PATE-tau: the votes of a teacher
    for more labels of one example count less, and the noise is that of so many.
    """

    epsilon: Epsilon
    labels: tuple[Value, ...]
    teachers: int
    max_labels: int | None = None

    def __post_init__(self) -> None:
        _ = self.mechanism  # it refuses what it cannot use
        if type(self.teachers) is not int or self.teachers < 1:
            raise UsageError("teachers-range", "There must be at least 1 teacher.", hint="Give their public number.")

    @property
    def name(self) -> str:
        """Name on receipts."""
        return "pate" if self.max_labels is None else "pate-tau"

    @property
    def mechanism(self) -> NoisyVotes:
        """Return the noise on the votes."""
        return _noisy(self.epsilon, self.labels, max_labels=self.max_labels)

    @property
    def loss(self) -> ZCDP:
        """Loss of one example."""
        return self.mechanism.loss

    @property
    def most_labels(self) -> int:
        """Largest number of labels of an example."""
        return len(self.labels)

    @property
    def release_identity(self) -> tuple[object, ...]:
        """Parameters of the distribution of an example's labels besides its votes."""
        return "majority", str(self.epsilon.value), list(self.labels), self.teachers, self.mechanism.max_labels

    def statement(self, table: VotesTable, examples: Sequence[Value]) -> Statement:
        """Return the SQL that reads the votes for the listed labels."""
        return _weighted_statement(table, examples, labels=self.labels, max_labels=self.mechanism.max_labels)

    def draw(self, votes: Votes, noise: Noise) -> tuple[Value, ...]:
        """Return the labels of the majority, in the order of the list; it may be none."""
        noisy = self.mechanism.release(_in_order(votes, self.labels), noise)
        half = VOTE_STEPS * self.teachers
        return tuple(label for label, count in zip(self.labels, noisy, strict=True) if 2 * count > half)


@dataclass(frozen=True, slots=True)
class Argmax:
    """PATE for one label: that of the most noisy votes, always one of the public list.

    A teacher has one vote; where there are more for one example they count less.
    """

    epsilon: Epsilon
    labels: tuple[Value, ...]

    def __post_init__(self) -> None:
        _ = self.mechanism  # it refuses what it cannot use

    @property
    def name(self) -> str:
        """Name on receipts."""
        return "pate-argmax"

    @property
    def mechanism(self) -> NoisyVotes:
        """Return the noise on the votes."""
        return _noisy(self.epsilon, self.labels, max_labels=1)

    @property
    def loss(self) -> ZCDP:
        """Loss of one example."""
        return self.mechanism.loss

    @property
    def most_labels(self) -> int:
        """Largest number of labels of an example."""
        return len(self.labels)

    @property
    def release_identity(self) -> tuple[object, ...]:
        """Parameters of the distribution of an example's labels besides its votes."""
        return self.name, str(self.epsilon.value), list(self.labels)

    def statement(self, table: VotesTable, examples: Sequence[Value]) -> Statement:
        """Return the SQL that reads the votes for the listed labels."""
        return _weighted_statement(table, examples, labels=self.labels, max_labels=1)

    def draw(self, votes: Votes, noise: Noise) -> tuple[Value, ...]:
        """Return the label of the most noisy votes; of equal ones the first of the list."""
        noisy = self.mechanism.release(_in_order(votes, self.labels), noise)
        return (self.labels[noisy.index(max(noisy))],)


def _noisy(epsilon: Epsilon, labels: Sequence[Value], *, max_labels: int | None) -> NoisyVotes:
    return NoisyVotes(epsilon, len(labels), len(labels) if max_labels is None else max_labels)


def _weighted_statement(
    table: VotesTable, examples: Sequence[Value], *, labels: Sequence[Value], max_labels: int
) -> Statement:
    known = check_values(labels, table.label.type, what="labels")
    weights = [vote_weight(number, max_labels) for number in range(1, len(known) + 1)]
    return weighted_votes(table, examples, labels=known, weights=weights)


def _in_order(votes: Votes, labels: Sequence[Value]) -> list[int]:
    """Return the votes of all listed labels, 0 where there are none."""
    found = dict(votes)
    return [found.get(label, 0) for label in labels]


def _sorted(labels: Iterable[Value]) -> tuple[Value, ...]:
    """Return labels, all of one type, in an order of their own."""
    return tuple(sorted(labels, key=lambda label: (isinstance(label, str), label)))
