"""PATE: private labels for public examples, from the votes of teachers who were trained on private data.

    votes = dpsql.pate.Stable(Epsilon("0.3"), Delta("1e-9"), k_bar=8)
    labelling = dpsql.pate.label(session, "votes", examples=range(500), method=votes)

The votes are a private table (teacher, example, label) of the policy whose privacy unit is the teacher. Besides the
planner, only this module opens exact results.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Protocol

from dpsql.accounting import ZCDP, BudgetVector
from dpsql.dialects import DUCKDB, quote_path
from dpsql.engines import Exact, Statement, open_exact
from dpsql.errors import BudgetExceeded, EngineError, LedgerError, Refusal, Unsupported, UsageError
from dpsql.ledger.base import Shortfall
from dpsql.mechanisms import VOTE_STEPS, Histogram, Noise, NoisyVotes, StableTopK, vote_weight
from dpsql.plan import ExternalRelease, ReleaseResult
from dpsql.quantities import Delta, Epsilon
from dpsql.session import Session, release_external
from dpsql.sql.ir.catalog import Catalog
from dpsql.sql.ir.transforms import canonicalize
from dpsql.sql.ir.tree import ColumnRef, Family, Type
from dpsql.sql.lexer import ascii_lower
from dpsql.sql.render.duckdb import Writer
from dpsql.terms import Terms

__all__ = ["Argmax", "Labelling", "LabellingReceipt", "Majority", "Method", "Stable", "Value", "label"]

Value = int | str
Labels = tuple[tuple[Value, ...] | None, ...]
Votes = Sequence[tuple[Value, int]]
FORMAT = "dpsql pate 1"
EXCHANGED = 2  # by which a gap moves when a teacher is exchanged: one label has a vote less, another one more
_COLUMNS = 3
_NAMES = "dpsql_example, dpsql_label"


@dataclass(frozen=True, slots=True)
class LabellingReceipt:
    """Cost of a batch: `each` for one example, `loss` for all, which is zero for a `replayed` batch.

    The loss holds for two sets of teachers that differ by the exchange of one teacher, or by one more teacher.
    """

    method: str
    examples: int
    each: ZCDP
    loss: ZCDP
    remaining: BudgetVector
    sealed: bool
    durable: bool
    replayed: bool
    shared: bool
    isolation: str = "in_process"

    def __str__(self) -> str:
        charged = "answered before, charged nothing" if self.replayed else f"charged {self.loss}"
        notes = "; answers are shared among analysts, and the guarantee is the data set's" if self.shared else ""
        if not self.durable:
            notes += "; the ledger is in memory, for trials, and forgotten at the end"
        return (
            f"{self.method}: {charged} for {self.examples} examples of {self.each}; holds for a teacher exchanged and "
            f"for a teacher more; remaining {self.remaining}{notes}"
        )


@dataclass(frozen=True, slots=True)
class Labelling:
    """Labels of every example, in the order of the examples, with the receipt.

    None means that the method gave no answer; an empty tuple, that the answer is no label.
    """

    examples: tuple[Value, ...]
    labels: Labels
    receipt: LabellingReceipt

    @property
    def answered(self) -> int:
        """Number of examples with an answer."""
        return sum(labels is not None for labels in self.labels)


def label(session: Session, votes: str, *, examples: Iterable[Value], method: Method) -> Labelling:
    """Label public examples by the votes of teachers, which are a private table of the session's policy.

    All `examples` are labelled and charged, also those without votes; the same batch again is free
    (docs/how-to/pate.md).

    Raises `Refusal`, `UsageError` or `BudgetExceeded` (not charged), `EngineError` if the engine failed on the votes
    (charged in full), and `LedgerError`.
    """
    table = _find_votes_table(session.catalog, votes)
    _check_terms(session.terms, table, method=method)
    named = _check_values(tuple(examples), table.example.type, what="examples")
    # the digest of everything besides the votes that the distribution of the labels depends on
    identity = [FORMAT, table.name, list(table.path), table.teacher.name, method.release_identity, list(named)]
    batch = Batch(named, method, hashlib.sha256(json.dumps(identity).encode("ascii")).hexdigest())
    result, number, each = _release_batch(session, batch, table=table), len(named), method.loss
    receipt = LabellingReceipt(
        method=method.name,
        examples=number,
        each=each,
        loss=ZCDP.nothing() if result.replayed else ZCDP(each.rho * number, each.delta * number),
        remaining=session.budget.remaining,
        sealed=result.sealed,
        durable=result.durable,
        replayed=result.replayed,
        shared=result.shared,
        isolation=result.isolation,
    )
    return Labelling(named, unpack(batch, result.released), receipt)


def _check_terms(terms: Terms, table: VotesTable, *, method: Method) -> None:
    """Refuse a method outside the limits that the policy sets for a query; an example is one query."""
    private, limits = terms.tables[table.name], terms.limits
    if terms.rule is not None:
        reason = f"Labels have no loss under the certificate {terms.certificate.value}."
        raise Refusal("certificate", reason, hint="Label with a policy and a ledger of the certificate zcdp.")
    if private.min_units is not None:
        hint = "Leave min_units out of the policy for a table of votes."
        raise Refusal("min-units", "The policy wants groups of at least so many teachers.", hint=hint)
    if private.max_groups_contributed is not None:
        hint = "Leave it out of the policy for a table of votes; Majority has max_labels of its own."
        raise Refusal("pate-bound", "The policy bounds the groups of a teacher, over all examples.", hint=hint)
    if not limits.min_epsilon <= method.epsilon <= limits.max_epsilon:
        reason = f"epsilon must be at least {limits.min_epsilon} and at most {limits.max_epsilon}."
        raise Refusal("option-range", reason, hint="The policy sets the ceilings.")
    if limits.max_delta is not None and method.loss.delta > limits.max_delta:
        reason = f"The delta of an example must be at most {limits.max_delta}."
        raise Refusal("option-range", reason, hint="The policy sets the ceilings.")
    if method.most_labels > limits.max_k:
        hint = "The policy sets the ceiling max_k."
        raise Refusal("k", f"An example may get at most {limits.max_k} labels here.", hint=hint)


def _release_batch(session: Session, batch: Batch, *, table: VotesTable) -> ReleaseResult:
    """Release the batch; raise `BudgetExceeded`, with the number of examples that would fit, if it does not."""
    number, each = len(batch.examples), batch.method.loss
    text = f"PATE {batch.method.name}: {number} examples of {table.name}, epsilon {batch.method.epsilon}"
    if each.delta.value:
        text += f", delta {each.delta}"
    worst = ZCDP(each.rho * number, each.delta * number)
    statement = batch.method.statement(table, batch.examples)
    try:
        return release_external(
            session, ExternalRelease(text, BudgetVector.of(worst), batch.key, statement, partial(release, batch))
        )
    except Shortfall as error:
        short = error.remaining
    fit = short.rho.value // each.rho.value
    if each.delta.value:
        fit = min(fit, short.delta.value // each.delta.value)
    reason = f"{number} examples cost {worst}, and {short} is left."
    hint = f"{fit} of them would fit, or a smaller epsilon{' and delta' if each.delta.value else ''}."
    raise BudgetExceeded("budget-exceeded", reason, hint=hint)


@dataclass(frozen=True, slots=True)
class Batch:
    """Examples and the method to label them; `key` is the digest of all that the distribution of labels depends on."""

    examples: tuple[Value, ...]
    method: Method
    key: str


def release(batch: Batch, exact: Exact, *, noise: Noise) -> bytes:
    """Draw the labels of every example of the batch, also of those without votes, and return them as bytes.

    Given: the engine's answer to the method's statement, with the votes of each example in the order of the statement.
    Loss: the method's for every example.
    """
    import pyarrow as pa

    table, most = open_exact(exact), len(batch.examples) * (batch.method.most_labels + 1)
    is_valid = table.num_columns == _COLUMNS and table.num_rows <= most and table.column(2).type == pa.int64()
    if not is_valid or any(column.null_count for column in table.columns):
        raise EngineError(
            "engine-result",
            "The engine returned a result of another shape than the statement defines.",
            hint="Ask the curator whether the data changed while the session was open.",
        )
    # An example without votes is labelled, too: which ones have any is private. Another example is a KeyError, and
    # charged.
    found: dict[Value, list[tuple[Value, int]]] = {example: [] for example in batch.examples}
    for example, label_, votes in zip(*(column.to_pylist() for column in table.columns), strict=True):
        found[example].append((label_, votes))
    labels = [batch.method.draw(votes, noise) for votes in found.values()]
    return json.dumps({"key": batch.key, "labels": labels}).encode("ascii")


def unpack(batch: Batch, released: bytes) -> Labels:
    """Decode the labels that `release` returned for the batch; raise `LedgerError` for any other bytes."""
    reason = "A stored labelling is damaged, or another version of dpsql wrote it."
    damaged = LedgerError(
        "ledger-answer",
        reason,
        hint="Label other examples, or increment the data version: dpsql data bump LEDGER --note REASON",
    )
    try:
        known = json.loads(released)
    except ValueError:
        raise damaged from None
    if not isinstance(known, dict) or known.get("key") != batch.key:
        raise damaged
    return tuple(None if labels is None else tuple(labels) for labels in known["labels"])


@dataclass(frozen=True, slots=True)
class VotesTable:
    """Table of votes: its name in the policy, its path in the engine, and its three columns."""

    name: str
    path: tuple[str, ...]
    teacher: ColumnRef
    example: ColumnRef
    label: ColumnRef


def _find_votes_table(catalog: Catalog, name: str) -> VotesTable:
    """Return the table of votes that the policy calls `name`.

    Raises `Refusal` unless it is private and has the columns example and label, of whole numbers or text; and
    `Unsupported` for one that is not in DuckDB.
    """
    if catalog.dialect is not DUCKDB:
        reason = f"PATE needs the table of votes in DuckDB, not in {catalog.dialect.name}."
        raise Unsupported("engine-lacks", reason, hint="Move the table of votes to DuckDB.")
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


def _check_values(values: Sequence[Value], kind: Type, *, what: str) -> tuple[Value, ...]:
    """Return public values for a column of votes; raise `UsageError` for duplicates and values it cannot hold."""
    is_integer = kind.family is Family.INTEGER
    for value in values:
        is_text = type(value) is str and "\0" not in value and not any("\ud800" <= char <= "\udfff" for char in value)
        if not (type(value) is int and kind.holds(value) if is_integer else is_text):
            hint = "Give str values without NUL or surrogates."
            hint = "Give int values that the column can hold." if is_integer else hint
            raise UsageError("pate-values", f"The column cannot hold these {what}.", hint=hint)
    if not values or len(set(values)) < len(values):
        raise UsageError("pate-values", f"There must be {what}, and no two of them equal.", hint="Name each once.")
    return tuple(values)


def _leading_votes(table: VotesTable, examples: Sequence[Value], *, rows: int) -> Statement:
    """Return the SQL for the first `rows` labels of each example by votes, ties by the labels themselves."""
    writer = Writer()
    # Of 8 labels at most for each example, and of the next one:
    # SELECT dpsql_example, dpsql_label, dpsql_votes FROM (SELECT *, row_number() OVER (PARTITION BY dpsql_example
    # ORDER BY dpsql_votes DESC, dpsql_label) AS dpsql_rank FROM (counted)) WHERE dpsql_rank <= 9
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


def _weighted_votes(
    table: VotesTable, examples: Sequence[Value], *, labels: Sequence[Value], max_labels: int
) -> Statement:
    """Return the SQL for the votes of each example for every label of a list that has any.

    A vote of a teacher for more than `max_labels` labels of an example counts less, in whole steps.
    """
    known = _check_values(labels, table.label.type, what="labels")
    weights = [vote_weight(number, max_labels) for number in range(1, len(known) + 1)]  # of a vote for so many labels
    writer = Writer()
    votes = _select_votes(writer, table, examples=examples)
    condition = f"dpsql_label IN ({_unnest(writer, table.label, values=known)})"
    pairs = f"SELECT DISTINCT {_NAMES}, dpsql_teacher FROM ({votes}) WHERE {condition}"  # noqa: S608 - nothing in it is the analyst's text
    # WITH dpsql_pairs AS (SELECT DISTINCT dpsql_example, dpsql_label, dpsql_teacher FROM (votes) WHERE ...),
    # dpsql_own AS (SELECT dpsql_example, dpsql_teacher, weights[count()] AS dpsql_weight FROM dpsql_pairs GROUP BY ALL)
    # SELECT dpsql_example, dpsql_label, sum(dpsql_weight) FROM dpsql_pairs JOIN dpsql_own USING (...) GROUP BY ...
    weight = f"system.main.list_extract(CAST({writer.bind(weights)} AS INTEGER[]), system.main.count())"
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

    At most `k_bar` labels come back; `regulariser` favours some numbers of them. `delta` is that of one example.
    """

    name: ClassVar[str] = "stable"  # on receipts
    epsilon: Epsilon
    delta: Delta
    k_bar: int
    regulariser: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        _ = self.mechanism  # it refuses what it cannot use

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
        return _leading_votes(table, examples, rows=self.k_bar + 1)

    def draw(self, votes: Votes, noise: Noise) -> tuple[Value, ...] | None:
        """Return the stable labels, sorted, or None."""
        histogram = Histogram.of_leaders(tuple(count for _, count in votes), self.k_bar)
        stable = self.mechanism.select(histogram, noise).positions
        if stable is None:
            return None
        # all of one type, in an order of their own
        return tuple(sorted((votes[at][0] for at in stable), key=lambda value: (isinstance(value, str), value)))


class _OfList:
    """Method of a public list of labels: noisy votes for each, `max_labels` of a teacher in full."""

    __slots__ = ()
    epsilon: Epsilon
    labels: tuple[Value, ...]

    @property
    def max_labels(self) -> int | None:
        """Number of labels for which a teacher's votes count in full; None for all."""
        return 1

    @property
    def mechanism(self) -> NoisyVotes:
        """Return the noise on the votes."""
        number = len(self.labels)
        return NoisyVotes(self.epsilon, number, number if self.max_labels is None else self.max_labels)

    @property
    def loss(self) -> ZCDP:
        """Loss of one example."""
        return self.mechanism.loss

    @property
    def most_labels(self) -> int:
        """Largest number of labels of an example."""
        return len(self.labels)

    def statement(self, table: VotesTable, examples: Sequence[Value]) -> Statement:
        """Return the SQL that reads the votes for the listed labels."""
        return _weighted_votes(table, examples, labels=self.labels, max_labels=self.mechanism.max_labels)

    def _draw_votes(self, votes: Votes, noise: Noise) -> list[int]:
        """Return the noisy votes for all listed labels, also of those that have none."""
        found = dict(votes)
        return list(self.mechanism.release([found.get(label, 0) for label in self.labels], noise))


@dataclass(frozen=True, slots=True)
class Majority(_OfList):
    """PATE for many labels: all that more than half of the teachers give, by noisy votes; always an answer.

    `labels` is the public list, and `teachers` their public number. `max_labels` makes it PATE-tau.
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
    def release_identity(self) -> tuple[object, ...]:
        """Parameters of the distribution of an example's labels besides its votes."""
        return "majority", str(self.epsilon.value), list(self.labels), self.teachers, self.mechanism.max_labels

    def draw(self, votes: Votes, noise: Noise) -> tuple[Value, ...]:
        """Return the labels of the majority, in the order of the list; it may be none."""
        noisy = self._draw_votes(votes, noise)
        half = VOTE_STEPS * self.teachers
        return tuple(label for label, count in zip(self.labels, noisy, strict=True) if 2 * count > half)


@dataclass(frozen=True, slots=True)
class Argmax(_OfList):
    """PATE for one label: that of the most noisy votes, always one of the public list.

    A teacher has one vote; where there are more for one example they count less.
    """

    name: ClassVar[str] = "pate-argmax"  # on receipts
    epsilon: Epsilon
    labels: tuple[Value, ...]

    def __post_init__(self) -> None:
        _ = self.mechanism  # it refuses what it cannot use

    @property
    def release_identity(self) -> tuple[object, ...]:
        """Parameters of the distribution of an example's labels besides its votes."""
        return self.name, str(self.epsilon.value), list(self.labels)

    def draw(self, votes: Votes, noise: Noise) -> tuple[Value, ...]:
        """Return the label of the most noisy votes; of equal ones the first of the list."""
        noisy = self._draw_votes(votes, noise)
        return (self.labels[noisy.index(max(noisy))],)
