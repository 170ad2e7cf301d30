"""Published tables: answers that are charged once, and that the ledger keeps under a name for all analysts.

    request ──▶ checked, planned and priced ──▶ run as a query of one account ──▶ stored under the name

The statement goes the way of every query: it is reserved, charged and settled before its table is stored. So nothing is
lost where a run ends between the two: the next one finds the stored answer, free of charge, and publishes it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from dpsql.errors import Refusal, Unsupported
from dpsql.ledger.base import Shortfall
from dpsql.ledger.base_ledger import find_published, refuse_taken, refuse_unpublished
from dpsql.ledger.record import NamedTable, TableContent
from dpsql.plan import Plan
from dpsql.receipt import NO_MECHANISM, Receipt
from dpsql.report.forecast import check_together, describe_together, explain_shortfall
from dpsql.report.stored_tables import NAME, StoredTables, add_intervals, name_versions, write_stream
from dpsql.session import Session, find_ledger
from dpsql.sql.lexer import ascii_lower

if TYPE_CHECKING:
    from dpsql.answer import Answer

_NOT_THERE = frozenset(["unknown-table", "unknown-column"])  # what is said of a statement whose table is gone
_MAX_COMMENT = 1000


@dataclass(frozen=True, slots=True)
class PublicationRequest:
    """Table to publish: its name, its statement and a comment; without a statement, one that is to be refreshed."""

    name: str
    sql: str | None = None
    comment: str = ""


@dataclass(frozen=True, slots=True)
class Publication:
    """Published table: `version` names it with its day; `receipt` is that of its answer.

    One that `is_current` was of this version of the data already, and nothing was made or charged.
    """

    name: str
    version: str
    data_version: int
    at: datetime
    columns: tuple[str, ...]
    rows: int
    receipt: Receipt | None = None
    is_current: bool = False

    def __str__(self) -> str:
        if self.is_current:
            return (
                f"{self.name} is current: {self.version} is of this version of the data ({self.data_version}). "
                "Nothing was made, and nothing charged."
            )
        rows = "1 row" if self.rows == 1 else f"{self.rows:,} rows"
        shown = f"{self.name} is published: {rows} of version {self.data_version} of the data, also as {self.version}."
        lines = [f"{shown} {self.receipt}."]
        if not any(name.endswith("_low") for name in self.columns):
            lines.append("No column has an interval: WITH (intervals = true) in a private query adds them.")
        return "\n".join(lines)


class PublicationPlan:
    """Table to publish over an open session: checked and priced; nothing is charged before `publish`."""

    __slots__ = ("_account", "_comment", "_is_refresh", "_ledger", "_plans", "_session", "is_current", "name", "sql")

    def __init__(self, session: Session, request: PublicationRequest) -> None:
        self._session = session
        self._ledger, self._account = find_ledger(session)
        version, tables = self._ledger.tables()
        known = find_published(tables, request.name)
        self._is_refresh, self.is_current = request.sql is None, False
        self._plans = list[Plan]()
        if request.sql is None:
            if known is None:
                raise refuse_unpublished(request.name)
            self.name, self.is_current = known.name, known.data_version == version
            first = next(each for each in tables if each.is_published and _is_same(each.name, known.name))
            content = self._ledger.read_table(first.number)
            self.sql, self._comment = content.text, content.comment
            _check_policy(session, self.name)
            if not self.is_current:
                self._plans = _plan_again(session, self.name, sql=self.sql)
            return
        self.name, self.sql, self._comment = request.name, request.sql, _check_comment(request.comment)
        if not NAME.fullmatch(self.name):
            reason = "The name of a published table is a word of at most 63 letters, digits and underscores."
            raise Refusal("publication-name", reason, hint="Write one that does not begin with a digit, as weekly.")
        _check_policy(session, self.name)
        if known is not None:
            hint = (
                "Take another name. To make this table again for a new version of the data, add --refresh in place "
                "of the SQL; --drop removes it."
            )
            taken = refuse_taken(self.name)
            taken.hint = hint
            raise taken
        self._plans = _plan_statement(session, self.sql)

    def describe_price(self) -> str:
        """Return in one sentence what is published, and what it costs of the budget."""
        if self.is_current:
            return f"{self.name}: it is of this version of the data already, and nothing is made."
        return f"{self.name}: {describe_together(self._plans, self._session.budget)}."

    @property
    def is_free(self) -> bool:
        """Whether nothing is charged: the answer is stored, or nothing is made."""
        return all(plan.stored for plan in self._plans)

    def check_budget(self) -> None:
        """Raise `BudgetExceeded` where the budget is too small; nothing is charged then."""
        drawn = [plan for plan in self._plans if not plan.stored]
        terms = self._session.terms
        if len(drawn) > 1:
            check_together(drawn, self._session.budget, terms=terms)
        for plan in drawn:
            balance = self._session.budget.of(plan.charged_values)
            worst, left = plan.price(plan.worst_case), balance.remaining
            if worst.refundable > left.refundable or worst.permanent > left.permanent:
                account = None if terms.account is None else terms.account.name
                short = Shortfall(worst, left, account=account)
                raise explain_shortfall(plan, short, terms=terms, calendar=balance.calendar)

    def publish(self) -> Publication:
        """Run the statement and store its table under the name; return what was published.

        Raises as `Session.sql`, and `Refusal` where another process took the name, or the data version, meanwhile.
        """
        if self.is_current:
            return self._describe(self._find_last())
        self.check_budget()
        version = self._ledger.tables()[0]  # before the answer, which is of this version if it is still the present one
        answer = self._session.sql(self.sql)
        content = self._build_content(answer)
        is_new = self._ledger.publish(
            self.name, content, account=self._account, again=self._is_refresh, data_version=version
        )
        self.is_current = not is_new
        return self._describe(self._find_last(), answer.receipt)

    def _build_content(self, answer: Answer) -> TableContent:
        """Return the table of an answer with the intervals of its numbers, as the ledger stores it."""
        question = hashlib.sha256("\n".join([*(plan.key for plan in self._plans), self.sql]).encode()).hexdigest()
        return TableContent(self.sql, write_stream(add_intervals(answer)), question, self._comment)

    def _find_last(self) -> NamedTable:
        found = find_published(self._ledger.tables()[1], self.name)
        if found is None:  # dropped by another process just now
            raise refuse_unpublished(self.name)
        return found

    def _describe(self, stored: NamedTable, receipt: Receipt | None = None) -> Publication:
        return describe_publication(self._session, stored, receipt=receipt, is_current=self.is_current)


def describe_publication(
    session: Session, stored: NamedTable, *, receipt: Receipt | None = None, is_current: bool = False
) -> Publication:
    """Return what there is of a published table."""
    ledger, _ = find_ledger(session)
    table = StoredTables(ledger, None).read(stored.number)
    names = [name for name, each in name_versions(ledger.tables()[1]) if each.number == stored.number and "@" in name]
    return Publication(
        stored.name,
        f'"{names[0]}"',
        stored.data_version,
        stored.at,
        tuple(table.column_names),
        table.num_rows,
        receipt,
        is_current=is_current,
    )


def list_due(version: int, tables: Sequence[NamedTable]) -> list[NamedTable]:
    """Return the published tables whose last one is of an earlier data version, the last of each, by first name."""
    last = dict[str, NamedTable]()
    for each in tables:
        if each.is_published:
            last[ascii_lower(each.name)] = each
    return [each for each in last.values() if each.data_version < version]


def _is_same(name: str, other: str) -> bool:
    return name.lower() == other.lower()


def _check_comment(comment: str) -> str:
    """Return a comment on one line; raise `Refusal` for one that is too long."""
    line = " ".join(comment.split())
    if len(line) > _MAX_COMMENT or not line.isprintable():
        reason = f"A comment is a text of at most {_MAX_COMMENT} printable characters."
        raise Refusal("publication-comment", reason, hint="Write a shorter or plainer one.")
    return line


def _check_policy(session: Session, name: str) -> None:
    """Refuse the name of a table of the policy: it hides a published one."""
    table = session.catalog.find(name)
    if table is not None and not table.stored_kind:
        reason = f'The policy has a table "{table.name}".'
        hint = "Take another name: a statement that reads this one reads the table of the policy."
        raise Refusal("name-taken", reason, hint=hint)


def _plan_statement(session: Session, sql: str) -> list[Plan]:
    """Return the plans of a statement that can be published; charge nothing."""
    try:
        answer: Answer | None = session.replay(sql)
    except Refusal as error:
        if error.code != "not-stored":
            raise
        answer = None
    if answer is not None and answer.receipt.mechanism == NO_MECHANISM:
        reason = "This statement releases nothing: it has no private query, and every analyst may run it, free."
        hint = "Publish a statement with a private query, such as SELECT ... GROUP BY article TOP 10 PRIVATE."
        raise Refusal("not-publishable", reason, hint=hint)
    plans = session.explain_all(sql)
    if any(plan.fresh for plan in plans):
        reason = "With fresh = true a run that was interrupted would be charged again."
        hint = "Leave fresh = true out: each new version of the data is drawn with new noise."
        raise Refusal("not-publishable", reason, hint=hint, place=plans[0].query.clause.place)
    names = [ascii_lower(name) for name in session.describe(sql).names]
    if len(set(names)) < len(names) or "" in names:
        hint = "Give each column a name of its own: SELECT ... AS users."
        raise Refusal("not-publishable", "Two columns of this statement have one name.", hint=hint)
    return plans


def _plan_again(session: Session, name: str, *, sql: str) -> list[Plan]:
    """Return the plans of the statement of a published table, for a refresh."""
    try:
        return _plan_statement(session, sql)
    except (Refusal, Unsupported) as error:
        if error.code not in _NOT_THERE:
            raise
        gone = error.with_traceback(None)
    reason = f"{name} was made from a table or column that the policy does not have any more: {gone.reason}"
    hint = (
        "What was published stays readable. Put the table back into the policy, or drop this one with --drop and "
        "publish it with other SQL."
    )
    raise Refusal("publication-source", reason, hint=hint)
