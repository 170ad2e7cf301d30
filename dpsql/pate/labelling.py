"""Release of a batch as bytes; besides the planner, only this module opens exact results."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from dpsql.accounting import ZCDP, BudgetVector
from dpsql.engines import Exact, open_exact
from dpsql.errors import BudgetExceeded, EngineError, LedgerError, Refusal
from dpsql.ledger.base import Shortfall
from dpsql.mechanisms import Noise
from dpsql.pate.methods import Method, Value, VotesTable, check_values, find_votes_table
from dpsql.plan import ExternalRelease, ReleaseResult
from dpsql.session import Session, release_external
from dpsql.terms import Terms

if TYPE_CHECKING:
    import pyarrow as pa

Labels = tuple[tuple[Value, ...] | None, ...]
_COLUMNS = 3


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
    found: dict[Value, list[tuple[Value, int]]] = {example: [] for example in batch.examples}
    for example, label, votes in _check_rows(batch, open_exact(exact)):
        found[example].append((label, votes))
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


def _check_rows(batch: Batch, table: pa.Table) -> Sequence[tuple[Value, Value, int]]:
    """Return the rows; raise `EngineError` if the result violates the contract of the statement."""
    import pyarrow as pa

    is_valid = table.num_columns == _COLUMNS and table.num_rows <= len(batch.examples) * (batch.method.most_labels + 1)
    if is_valid and table.column(2).type == pa.int64() and not any(column.null_count for column in table.columns):
        return list(zip(*(column.to_pylist() for column in table.columns), strict=True))
    raise EngineError(
        "engine-result",
        "The engine returned a result of another shape than the statement defines.",
        hint="Ask the curator whether the data changed while the session was open.",
    )


FORMAT = "dpsql pate 1"


@dataclass(frozen=True, slots=True)
class Receipt:
    """Cost of a batch: `each` for one example, `loss` for all, which is zero for a `replayed` batch.

    The loss bounds the disclosure about any teacher. It holds for two sets of teachers that differ by the exchange of
    one teacher with all votes, and for two sets of which one has one more teacher. The guarantee over all queries of
    the ledger is its total, for one more teacher.
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
    receipt: Receipt

    @property
    def answered(self) -> int:
        """Number of examples with an answer."""
        return sum(labels is not None for labels in self.labels)


def label(session: Session, votes: str, *, examples: Iterable[Value], method: Method) -> Labelling:
    """Label public examples by the votes of teachers, which are a private table of the session's policy.

    The table has a row for each label that a teacher gives an example: the privacy unit, which is the teacher, and the
    columns example and label. `examples` are public, and all of them are labelled, also those without votes, because
    it is private which ones have votes. The loss of all of them is reserved in the ledger before a vote is read, and
    charged before a label is returned; the same batch again is free.
    Raises `Refusal` or `UsageError` for an invalid request and `BudgetExceeded` if the budget is too small (both are
    free), `EngineError` if the engine failed on the votes (charged in full), and `LedgerError`.
    """
    table = find_votes_table(session.catalog, votes)
    _check_terms(session.terms, table, method=method)
    named = check_values(tuple(examples), table.example.type, what="examples")
    batch = Batch(named, method, _compute_key(table, named, method=method))
    result = _release_batch(session, batch, table=table)
    return Labelling(named, unpack(batch, result.released), _make_receipt(session, batch, result=result))


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


def _compute_key(table: VotesTable, examples: Iterable[Value], *, method: Method) -> str:
    """Return the digest of everything besides the votes that the distribution of the labels depends on."""
    parts = [FORMAT, table.name, list(table.path), table.teacher.name, method.release_identity, list(examples)]
    return hashlib.sha256(json.dumps(parts).encode("ascii")).hexdigest()


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


def _make_receipt(session: Session, batch: Batch, *, result: ReleaseResult) -> Receipt:
    number, each = len(batch.examples), batch.method.loss
    return Receipt(
        method=batch.method.name,
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
