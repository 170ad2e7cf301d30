"""Labelling: public examples in, private labels out, in one reservation of a session's budget."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from dpsql.accounting import ZCDP, Amount, Certificate
from dpsql.errors import BudgetExceeded, Refusal
from dpsql.ledger.base import Shortfall
from dpsql.pate.methods import Method
from dpsql.pate.release import Batch, Labels, release, unpack
from dpsql.pate.votes import Value, VotesTable, known_values, votes_table
from dpsql.plan import Terms
from dpsql.session import ExternalRelease, ReleaseResult, Session, release_external

__all__ = ["FORMAT", "Labelling", "Receipt", "label"]

FORMAT = "dpsql pate 1"


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a batch cost: `each` for one example, `loss` for all, which is nothing for one that was `replayed`.

    The loss is a bound on what is told of any teacher: of two sets of teachers the labels are as alike as it says if
    one teacher is exchanged for another, with all votes, and also if one set has a teacher more. What is guaranteed
    with all else that is asked of the ledger is its total, for a teacher more.
    """

    method: str
    examples: int
    each: ZCDP
    loss: ZCDP
    remaining: ZCDP | Amount
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
    """The labels of every example, in the order in which they were named, and the receipt.

    None says that the method gave no answer; an empty tuple that the answer is no label.
    """

    examples: tuple[Value, ...]
    labels: Labels
    receipt: Receipt

    @property
    def answered(self) -> int:
        """How many examples have an answer."""
        return sum(labels is not None for labels in self.labels)


def label(session: Session, votes: str, *, examples: Iterable[Value], method: Method) -> Labelling:
    """Label public examples by the votes of teachers, which are a private table of the session's policy.

    The table has a row for each label that a teacher gives an example: the privacy unit, which is the teacher, and the
    columns example and label. `examples` are public, and all of them are labelled, also those that nobody votes on:
    which ones have votes is private. The loss of all of them is reserved in the ledger before a vote is read, and
    charged before a label is returned; the same batch again costs nothing.
    Raises `Refusal` or `UsageError` for what cannot be asked and `BudgetExceeded` for what does not fit (nothing is
    charged), `EngineError` when the engine failed on the votes (charged in full), and `LedgerError`.
    """
    table = votes_table(session.catalog, votes)
    _check_terms(session.terms, table, method=method)
    named = known_values(tuple(examples), table.example.type, what="examples")
    batch = Batch(named, method, _key(table, named, method=method))
    bought = _bought(session, batch, table=table)
    return Labelling(named, unpack(batch, bought.released), _receipt(session, batch, bought=bought))


def _check_terms(terms: Terms, table: VotesTable, *, method: Method) -> None:
    """Refuse what the policy does not allow of a query; an example is one query."""
    private, limits = terms.tables[table.name], terms.limits
    if terms.certificate is not Certificate.zcdp:
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


def _key(table: VotesTable, examples: Iterable[Value], *, method: Method) -> str:
    """Return the digest of all that the law of the labels depends on, besides the votes."""
    spelled = [FORMAT, table.name, list(table.path), table.teacher.name, method.law, list(examples)]
    return hashlib.sha256(json.dumps(spelled).encode("ascii")).hexdigest()


def _bought(session: Session, batch: Batch, *, table: VotesTable) -> ReleaseResult:
    """Return what the session releases; raise `BudgetExceeded`, with how many examples would fit, if all do not."""
    number, each = len(batch.examples), batch.method.loss
    text = f"PATE {batch.method.name}: {number} examples of {table.name}, epsilon {batch.method.epsilon}"
    if each.delta.value:
        text += f", delta {each.delta}"
    worst = ZCDP(each.rho * number, each.delta * number)
    statement = batch.method.statement(table, batch.examples)
    try:
        return release_external(session, ExternalRelease(text, worst, batch.key, statement, partial(release, batch)))
    except Shortfall as error:
        short = error.remaining
    fit = short.rho.value // each.rho.value
    if each.delta.value:
        fit = min(fit, short.delta.value // each.delta.value)
    reason = f"{number} examples cost {worst}, and {short} is left."
    hint = f"{fit} of them would fit, or a smaller epsilon{' and delta' if each.delta.value else ''}."
    raise BudgetExceeded("budget-exceeded", reason, hint=hint)


def _receipt(session: Session, batch: Batch, *, bought: ReleaseResult) -> Receipt:
    number, each = len(batch.examples), batch.method.loss
    return Receipt(
        method=batch.method.name,
        examples=number,
        each=each,
        loss=ZCDP.nothing() if bought.replayed else ZCDP(each.rho * number, each.delta * number),
        remaining=session.budget.remaining,
        sealed=bought.sealed,
        durable=bought.durable,
        replayed=bought.replayed,
        shared=bought.shared,
        isolation=bought.isolation,
    )
