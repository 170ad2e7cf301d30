"""A policy read back: who is protected, what is exposed, what the budget buys, and what to look at again.

Every number comes from the plans and terms that a session would use; nothing here reads data.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from fractions import Fraction
from itertools import combinations
from pathlib import Path

from dpsql.accounting import BudgetState, compute_used_share
from dpsql.dialects import ENUM
from dpsql.errors import Error
from dpsql.ledger.base_ledger import find_other_unit
from dpsql.ledger.record import Event
from dpsql.mechanisms import CountRelease
from dpsql.plan.plan import Plan
from dpsql.policy import Bounds, ColumnBounds, Policy, PrivateTable
from dpsql.policy.name_evidence import somebody_in
from dpsql.policy.settings import UNLISTED
from dpsql.policy.tables import find_owner
from dpsql.policy.toml import quote, spell
from dpsql.policy.validation import fold
from dpsql.receipt import format_share
from dpsql.report.balance import Spending, compute_balance
from dpsql.report.tile_prices import list_kinds, plan_sample
from dpsql.terms import Terms, compute_delta, compute_limit

_PAIR = 2
_ALERTED = Fraction(4, 5)  # of a limit


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found: `severity` is error or warning; `place` is a key path with its line in the file."""

    code: str
    place: str
    message: str
    hint: str
    severity: str = "warning"

    @classmethod
    def from_error(cls, error: Error) -> Finding:
        """Return an error as a finding."""
        return cls(error.code, str(error.place or ""), error.reason, error.hint, "error")


@dataclass(frozen=True, slots=True)
class Exposed:
    """A column that exists for analysts; its type as DuckDB names it, if the data was looked at."""

    name: str
    type: str | None


@dataclass(frozen=True, slots=True)
class CheckedTable:
    """A table of the policy; columns are None, and so is what is hidden, where only the data knows them.

    With a `link` the unit is that of another table, such as "customers.household_id via customer_id -> customers.id".
    `bounds` are lines such as "rows = 20" and "amount = {min = 0, max = 500}", and `calendar`
    lines such as "ts = {first = 2025-01-01, last = 2026-12-31}". Each value of the column `budget_by` has a budget.
    """

    name: str
    privacy_unit: str | None
    source: str | None
    columns: tuple[Exposed, ...] | None
    hidden: tuple[str, ...] | None
    max_groups_contributed: int | None
    min_units: int | None
    checked: bool
    one_value_per_unit: tuple[str, ...] = ()
    link: str | None = None
    population: int | None = None
    materialized: tuple[tuple[str, ...], ...] = ()
    bounds: tuple[str, ...] = ()
    calendar: tuple[str, ...] = ()
    budget_by: str | None = None
    not_null: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CertificatePurchase:
    """One kind of query, and how often the budget buys it at its worst case.

    `threshold` is how many units above group number k_bar + 1 a group has an even chance, and `least_threshold`, which
    is 0 without min_units, how many it must have at least; `reach` is how far a released count is from the exact one,
    at most, in 95 of 100 cases.
    """

    k: int
    counts: bool
    max_groups_contributed: int | None
    min_units: int | None
    k_bar: int
    worst_items: int
    queries: int
    threshold: float
    least_threshold: float
    reach: int | None


@dataclass(frozen=True, slots=True)
class AccountLimit:
    """Limit of an analyst within the total, and what it should buy; without an epsilon they may run no query.

    With an epsilon of 0 they may run what is free.

    The name is None for analysts that the policy does not list. `share` is the part of the total's rho, or of its
    epsilon under the certificate pure, and `delta_share` the part of the delta that queries draw from.
    """

    name: str | None
    epsilon: float | None
    delta: float
    share: float
    items: int
    queries: int
    delta_share: float


@dataclass(frozen=True, slots=True)
class TotalAfter:
    """Guarantee after so many periods of a budget that is granted in each, rounded up."""

    periods: int
    epsilon: float
    delta: float


@dataclass(frozen=True, slots=True)
class Check:
    """The whole report, in values that JSON supports.

    With a `period`, such as "30 days", everything is granted in each, at most `periods` times if that is a number. The
    rho is None under a certificate without rho. `isolation` is the place where the data is open, as in receipts, and
    `confinement` names the measures in force against a process of its own, `catalog_confinement` those against the
    PostgreSQL of the server's catalog, None without one. `implicit` says that standard SQL is read as private.
    """

    epsilon: float
    delta: float
    rho: float | None
    delta_of_queries: float
    item_epsilon: float
    items: int
    query_delta: float
    queries: int
    ledger: str | None
    tables: tuple[CheckedTable, ...]
    buys: tuple[CertificatePurchase, ...]
    findings: tuple[Finding, ...]
    period: str | None = None
    periods: int | None = None
    totals: tuple[TotalAfter, ...] = ()
    analysts: tuple[AccountLimit, ...] = ()
    certificate: str = "zcdp"
    isolation: str = "in_process"
    confinement: tuple[str, ...] = ()
    catalog_confinement: tuple[str, ...] | None = None
    implicit: bool = False

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is allowed and seldom meant, a sentence for each."""
        return tuple(finding.message for finding in self.findings)

    @property
    def private(self) -> list[CheckedTable]:
        """The tables whose units are protected."""
        return [table for table in self.tables if table.privacy_unit is not None]

    @property
    def public(self) -> list[CheckedTable]:
        """The tables in which nothing is protected."""
        return [table for table in self.tables if table.privacy_unit is None]


LARGE_DELTA = Fraction(1, 10**5)
LARGE_EPSILON = 10
_MANY_ROWS = 1_000  # of one unit in one group
_FEW = 10  # for each row of a unit, where nothing is said of the value of one row
_SIGNED = re.compile(r"TINYINT|SMALLINT|INTEGER|BIGINT|HUGEINT|FLOAT|DOUBLE|DECIMAL\(.*\)")
_WORD = re.compile(r"\w+")
_WITH_FIELDS = frozenset(["STRUCT", "UNION"])


@dataclass(frozen=True, slots=True)
class LedgerFacts:
    """What a ledger says of its data: the privacy unit of each table, the data version and when it `began`.

    `changed` has when each file of the data was written last, in seconds since 1970.
    """

    units: Mapping[str, str]
    data_version: int
    began: datetime
    changed: Mapping[Path, float]


@dataclass(frozen=True, slots=True)
class FormerUnit:
    """Privacy unit that a table had while queries were charged, and the time at which the curator changed it."""

    table: str
    unit: str
    until: datetime


@dataclass(frozen=True, slots=True)
class LedgerState:
    """What a ledger says of the promise: its history, spending, former units and published tables."""

    events: int
    head: str
    data_version: int
    spending: Spending
    former: tuple[FormerUnit, ...]
    published: tuple[str, ...]


def find_former_units(events: Iterable[Event]) -> Iterator[FormerUnit]:
    """Yield the former privacy units of tables that a ledger's events record, where queries were charged under them."""
    queries, known = 0, dict[str, tuple[str, int]]()
    for event in events:
        queries += event.kind == "reserved"
        if event.kind == "registered":
            for table, unit in json.loads(event.body)["units"].items():
                former, before = known.get(table, (unit, queries))
                if former and former != unit and before < queries:
                    yield FormerUnit(table, former, datetime.fromisoformat(event.at))
                known[table] = unit, queries


def lint_ledger(spending: Spending, facts: LedgerFacts, *, units: Mapping[str, str]) -> Iterator[Finding]:
    """Yield what does not fit between the `units` of a policy and its ledger, and which limits are nearly used up."""
    other = find_other_unit(facts.units, units)
    if other is not None and spending.entries:
        yield Finding.from_error(other)
    limits = {f"The limit of {each.name}": (each.state, each.limit) for each in spending.spenders if each.name}
    shares = [(what, compute_used_share(state, limit)) for what, (state, limit) in limits.items() if limit is not None]
    for what, used in (("The budget", spending.balance.used), *shares):
        if used >= _ALERTED:
            hint = "Write a larger epsilon into [budget] and run dpsql ledger grant --note why, or let analysts know."
            yield Finding("budget-low", "budget", f"{what} is used to {format_share(used)}.", hint)
    for path, at in facts.changed.items():
        written = datetime.fromtimestamp(at, UTC)
        if written > facts.began:
            hint = "If rows were added, changed or replaced, run: dpsql data bump --note why."
            reason = (
                f"{path.name} was written or replaced on {written:%Y-%m-%d %H:%M} UTC, after data version "
                f"{facts.data_version} began: questions that were asked before are answered from the rows of then. "
                f"{hint}"
            )
            yield Finding("data-changed", "source", reason, hint)


def lint_policy(policy: Policy, tables: Sequence[CheckedTable]) -> Iterator[Finding]:
    """Yield a finding for each thing that is allowed and seldom meant."""
    found = [*_check_settings(policy), *_check_shares(policy)]
    units = {fold(table.privacy_unit) for table in tables if table.privacy_unit is not None}
    for table in tables:
        if table.privacy_unit is None:
            found += _check_public(table, units)
        else:
            found += _check_private(policy, table, unit=table.privacy_unit)
    yield from (replace(finding, place=policy.where(finding.place)) for finding in found)


def _check_settings(policy: Policy) -> Iterator[Finding]:
    budget = policy.budget
    if policy.ledger is None:
        reason = (
            "No ledger is named: spending is lost when a session ends, and the next one has the whole budget again."
        )
        yield Finding("no-ledger", "ledger", reason, 'Write ledger = "ledger.sqlite" at the top of the policy.')
    if budget.delta.value >= LARGE_DELTA:
        reason = f"delta {budget.delta} is large: it should be far less than 1 divided by the number of units."
        yield Finding("large-delta", "budget.delta", reason, "Write delta = 1e-6.")
    if budget.epsilon.value > LARGE_EPSILON:
        reason = f"epsilon {budget.epsilon} is a weak guarantee: 1 is a strong one."
        yield Finding("large-epsilon", "budget.epsilon", reason, "Write epsilon = 1.")
    if budget.period is not None and budget.periods is None:
        reason = (
            "The budget is granted again in each period WITHOUT END: what all answers together reveal of a unit has no "
            "limit."
        )
        yield Finding("no-end", "budget.period", reason, "Write periods = 12, or as many as are meant.")
    if policy.limits.share_replays:
        reason = "share_replays: one draw answers a question for all analysts, and each is charged in full for it."
        yield Finding("share-replays", "limits.share_replays", reason, "Leave share_replays out.")
    if policy.engine.isolation == "process" and policy.engine.time_limit is None:
        reason = "isolation is process, and there is no time_limit: a statement that does not end is not killed."
        yield Finding("no-time-limit", "engine.isolation", reason, "Write time_limit = 60 below [engine].")


def _check_shares(policy: Policy) -> Iterator[Finding]:
    """Yield each pair of analysts of whom one, at their own limit, leaves the other less than theirs.

    It is an error unless the policy itself says the delta that is too much. Of the unlisted, who share an entry, there
    may be several or none: two of them are a warning.
    """
    grant, total = policy.budget, Terms.of_total(policy).budget
    limits = {name: compute_limit(own, grant) for name, own in policy.analysts.items() if own.has_share}
    if limits and UNLISTED not in policy.analysts:
        reason = (
            "[analysts] has no default: a name that is not listed, such as a misspelt one, may spend the whole total."
        )
        hint = "Write [analysts.default] with enabled = false, or with an epsilon."
        yield Finding("no-default-analyst", "analysts", reason, hint)
    pairs = [*combinations(limits, 2), *((name, name) for name in limits if name == UNLISTED)]
    for one, other in pairs:
        first, second = limits[one], limits[other]
        sums = first.refundable + second.refundable, first.permanent + second.permanent
        over = [*map(operator.gt, sums, (total.refundable, total.permanent))]
        if not any(over):
            continue
        is_said = not over[0] and any(policy.analysts[name].delta is not None for name in (one, other))
        which = (grant.certificate == "zcdp" and "epsilon") or total.certificate.currencies[0]
        what = which if over[0] else total.certificate.currencies[1]
        whose = "Two unlisted analysts" if one == other else f"{_name_analyst(one)} and {_name_analyst(other)}"
        reason = (
            f"{whose} have more {what} together than there is: one of them alone can use up a part of what the other "
            "was promised."
        )
        hint = f"Lower the {what} of one of them, so that both fit into the total."
        severity = "warning" if is_said or one == other else "error"
        yield Finding("policy-shares", f"analysts.{one}", reason, hint, severity)
    refundable = sum(each.refundable for each in limits.values())
    over = [refundable > total.refundable, sum(each.permanent for each in limits.values()) > total.permanent]
    if any(over) and len(limits) > _PAIR:
        what = total.certificate.currencies[0 if over[0] else 1]
        reason = (
            f"The limits of all {len(limits)} analysts together are more {what} than there is: who asks last may get "
            "less than their limit."
        )
        yield Finding("shares-sum", "analysts", reason, "Lower the epsilon of analysts, or raise that of [budget].")


def _name_analyst(name: str) -> str:
    return "an unlisted analyst" if name == UNLISTED else name


def _check_private(policy: Policy, table: CheckedTable, *, unit: str) -> Iterator[Finding]:
    name, place, declared = spell(table.name), f"tables.{table.name}", policy.tables[table.name]
    columns = table.columns or ()
    if declared.columns is None:
        reason = f"{name}: no columns are listed, so all of them exist for analysts, also those added later."
        listed = ", ".join(quote(column.name) for column in columns) or f'{quote(unit)}, "column"'
        yield Finding("all-columns", place, reason, f"Write columns = [{listed}] below [tables.{name}].")
    # labels and fields of types, which engines make from rows
    types = {column.name: set(_WORD.findall(column.type or "")) for column in columns}
    if labelled := [column for column, words in types.items() if ENUM in words]:
        reason = (
            f"{name}: the labels of {', '.join(map(spell, labelled))} came from data; they are not shown: analysts "
            "see the type ENUM alone, and its values are compared as text."
        )
        yield Finding("hidden-labels", place, reason, _leave_out(*labelled))
    if fielded := [column for column, words in types.items() if words & _WITH_FIELDS and ENUM not in words]:
        reason = f"{name}: the fields of {', '.join(map(spell, fielded))} may have come from data; they are not shown."
        yield Finding("hidden-fields", place, reason, _leave_out(*fielded))
    if isinstance(declared, PrivateTable):
        yield from _check_bounds(table, declared.bounds)
    for column in columns:
        naming = somebody_in(column.name, column.type)
        if naming is not None and fold(column.name) != fold(unit):
            reason = (
                f"{name}: {spell(column.name)} ({naming.reason}) may name a person other than {spell(unit)}, who is "
                "not protected by it."
            )
            yield Finding("other-person", f"{place}.columns", reason, _leave_out(column.name))


def _leave_out(*columns: str) -> str:
    return f"Leave {', '.join(map(spell, columns))} out of columns, unless analysts need it."


def _check_bounds(table: CheckedTable, bounds: Bounds) -> Iterator[Finding]:
    """Yield which bounds are more than is meant, or contradict each other."""
    name, place = spell(table.name), f"tables.{table.name}.bounds"
    if bounds.rows is not None and bounds.rows > _MANY_ROWS:
        reason = (
            f"{name}: rows = {bounds.rows:,}: the noise of COUNT(*) is {bounds.rows:,} times that of a count of units. "
            "Few units have so many rows in one group: 20 is a good start."
        )
        yield Finding("many-rows", f"{place}.rows", reason, "Write rows = 20.")
    types = {fold(column.name): column.type or "" for column in table.columns or ()}
    for column, found in bounds.columns:
        where = f"{name}: {spell(column)}"
        for words, hint in _find_contradictions(found, bounds.rows):
            yield Finding("bounds-contradict", f"{place}.{column}", f"{where}: {words} {hint}", hint)
        may_be_below = found.max is not None and found.min is None and (found.each is None or found.each[0] < 0)
        if may_be_below and _SIGNED.fullmatch(types.get(fold(column), "")):
            hint = "Write min = -500, or another number, or min = 0 if there are none."
            reason = f"{where} may hold values below 0, which count as 0 without a min. {hint}"
            yield Finding("bounds-no-min", f"{place}.{column}", reason, hint)


def _find_contradictions(bounds: ColumnBounds, rows: int | None) -> Iterator[tuple[str, str]]:
    """Yield in words how the bounds of a column contradict each other, and the rows of a unit, each with a hint."""
    if bounds.distinct is not None and rows is not None and bounds.distinct > rows:
        yield f"distinct = {bounds.distinct:,} is more than rows = {rows:,}, which then holds.", "Lower distinct."
    if bounds.max is None:
        return
    most = float(bounds.max)
    if bounds.each is None:
        if rows is not None and rows > 1 and bounds.max < rows * _FEW:
            each_row = f"rows = {rows:,} and max = {most:,g} are {most / rows:,.3g} for each row"
            yield (
                f"{each_row}: a unit with all its rows is cut at that.",
                "Raise max, lower rows, or say each = {min = 1, max = 10}, the range of one row's value.",
            )
        return
    low, high = map(float, bounds.each)
    if high > most:
        yield (
            f"each reaches {high:,g} and max = {most:,g}: one row alone is cut.",
            "Raise max, or lower that of each.",
        )
    if rows is None:
        return
    if low > 0 and rows * low > most:
        yield (
            f"rows = {rows:,} of at least {low:,g} are more than max = {most:,g}: a unit with all its rows is cut.",
            "Raise max, or lower rows.",
        )
    if 0 < rows * high < most:
        added = f"rows = {rows:,} of at most {high:,g} add up to {rows * high:,g}"
        yield f"{added}, so that max = {most:,g} is never reached.", "Lower max."


def _check_public(table: CheckedTable, units: set[str]) -> Iterator[Finding]:
    name, place = spell(table.name), f"tables.{table.name}"
    for column in table.columns or ():
        naming = somebody_in(column.name, column.type)
        hint = f"If something is, write privacy_unit = {quote(column.name)} in place of public = true."
        if fold(column.name) in units:
            reason = (
                f"{name} is public, but {spell(column.name)} is called like a privacy unit: is nothing in it private?"
            )
            yield Finding("public-unit", place, reason, hint)
        elif naming is not None:
            reason = f"{name} is public, but {spell(column.name)} is {naming.reason}: is nothing in it private?"
            yield Finding("public-person", place, reason, hint)


_ASKED = ((10, False), (10, True), (100, True))
_AFTER = (1, 4, 12)
StoredColumns = Mapping[str, tuple[tuple[str, str], ...]]


def report_policy(policy: Policy, stored: StoredColumns, *, reach: Callable[[CountRelease], int]) -> Check:
    """Return what `policy` means, given the columns and types of those tables whose data was looked at.

    `reach` is how far a released count is from the exact one in 95 of 100 cases. Raises `PolicyError` where
    the budget, or the limit of an analyst, cannot buy what it is meant to.
    """
    terms = Terms.of_total(policy)
    for name, analyst in policy.analysts.items():
        if analyst.has_share:
            Terms.of_policy(policy, None if name == UNLISTED else name)
    tables = tuple(_table(policy, name, stored=stored.get(name)) for name in policy.tables)
    periods = terms.periods
    buys = tuple(bought for kind in list_kinds(terms) for bought in _buys(terms, kind, reach=reach))
    usual = _plan(terms, PrivateTable("unit"), k=min(10, terms.limits.max_k), counts=False)
    return Check(
        epsilon=float(terms.total.epsilon),
        delta=float(terms.total.delta),
        rho=None if terms.rule else float(terms.budget.refundable),
        delta_of_queries=float(terms.pool),
        item_epsilon=float(usual.epsilon),
        items=compute_balance(terms, BudgetState()).items,
        query_delta=float(usual.delta),
        queries=terms.budget.permanent // usual.price(usual.worst_case).permanent,
        ledger=None if policy.ledger is None else str(policy.ledger),
        tables=tables,
        buys=buys,
        findings=tuple(lint_policy(policy, tables)),
        period=None if periods is None else str(periods),
        periods=None if periods is None else periods.most,
        totals=tuple(list_totals(terms)),
        analysts=tuple(_asking(policy, terms)),
        certificate=terms.certificate.value,
        implicit=policy.implicit,
    )


def list_totals(terms: Terms) -> Iterator[TotalAfter]:
    """Yield what holds after a few numbers of periods; after the last alone where there is one."""
    periods = terms.periods
    if periods is not None:
        for number in _AFTER if periods.most is None else (periods.most,):
            total = terms.after(number)
            if total is not None:
                yield TotalAfter(number, float(total.epsilon), float(total.delta))


def _asking(policy: Policy, terms: Terms) -> Iterator[AccountLimit]:
    """Yield who is listed, and behind them what holds for whom the policy does not list."""
    grant = policy.budget
    for name, own in sorted(policy.analysts.items(), key=lambda item: item[0] == UNLISTED):
        epsilon, limit = (own.epsilon or 0) if own.enabled else None, compute_limit(own, grant)
        yield AccountLimit(
            name=None if name == UNLISTED else name,
            epsilon=None if epsilon is None else float(epsilon),
            delta=float(compute_delta(own, grant)),
            share=float(limit.refundable / terms.budget.refundable) if epsilon is not None else 0.0,
            items=own.items or grant.items,
            queries=own.queries or grant.queries,
            delta_share=float(limit.permanent / terms.budget.permanent) if epsilon is not None else 0.0,
        )


def _table(policy: Policy, name: str, *, stored: tuple[tuple[str, str], ...] | None) -> CheckedTable:
    table = policy.tables[name]
    private = table if isinstance(table, PrivateTable) else None
    owner = None if private is None else find_owner(policy.tables, name)
    types = {fold(column): (column, type_) for column, type_ in stored or ()}
    names = [column for column, _ in types.values()] if table.columns is None else table.columns
    exposed = tuple(Exposed(*types.get(fold(column), (column, None))) for column in names)
    kept = {fold(column.name) for column in exposed}
    if exposed and owner is not None and owner.links:  # the unit comes with the link
        exposed = (*exposed, Exposed(owner.column, None))
    return CheckedTable(
        name=name,
        privacy_unit=None if owner is None else owner.column,
        source=None if table.source is None else str(table.source),
        columns=exposed or None,
        hidden=None if stored is None else tuple(column for column, _ in stored if fold(column) not in kept),
        max_groups_contributed=None if private is None else private.max_groups_contributed,
        min_units=None if private is None else private.min_units,
        checked=stored is not None,
        one_value_per_unit=() if private is None else private.one_value_per_unit,
        not_null=() if private is None else private.not_null,
        link=None if owner is None or not owner.links else str(owner),
        population=None if private is None else private.population,
        materialized=() if private is None else private.materialized,
        bounds=() if private is None else tuple(private.bounds.list_lines()),
        calendar=() if private is None else tuple(map(str, private.calendar)),
        budget_by=None if private is None else private.budget_by,
    )


def _buys(terms: Terms, kind: PrivateTable, *, reach: Callable[[CountRelease], int]) -> Iterator[CertificatePurchase]:
    # With max_k = 10, TOP 10 and TOP 100 are the same query, which is listed once.
    for k, counts in dict.fromkeys((min(k, terms.limits.max_k), counts) for k, counts in _ASKED):
        plan = _plan(terms, kind, k=k, counts=counts)
        worst, budget = plan.price(plan.worst_case), terms.budget
        yield CertificatePurchase(
            k=k,
            counts=counts,
            max_groups_contributed=kind.max_groups_contributed,
            min_units=kind.min_units,
            k_bar=plan.k_bar,
            worst_items=plan.worst_items,
            queries=min(budget.refundable // worst.refundable, budget.permanent // worst.permanent),
            threshold=float(plan.threshold_offset),
            least_threshold=float(plan.least_threshold),
            reach=None if plan.counts is None else reach(plan.counts),
        )


def _plan(terms: Terms, kind: PrivateTable, *, k: int, counts: bool) -> Plan:
    """Return the plan of a query for `k` items of such a table, as a session with these terms would draw it."""
    count = ", COUNT(DISTINCT unit) AS units" if counts else ""
    text = f"SELECT item{count} FROM asked GROUP BY item TOP {k} PRIVATE WITH (mechanism = limited_domain)"  # noqa: S608 - a number alone
    return plan_sample(text, terms, kind=kind)
