"""A policy read back: who is protected, what is exposed, what the budget buys, and what to look at again.

Every number comes from the plans and terms that a session would use; nothing here reads data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import cast

from dpsql.accounting import BudgetState
from dpsql.mechanisms import CountRelease
from dpsql.plan.plan import Plan
from dpsql.plan.planner import build_plan
from dpsql.plan.terms import Terms, compute_limit
from dpsql.policy import Policy, PrivateTable
from dpsql.policy.limits import UNLISTED
from dpsql.policy.owners import find_owner
from dpsql.policy.validation import fold
from dpsql.report.balance import compute_balance
from dpsql.report.policy_lint import lint_policy
from dpsql.report.policy_report import AccountLimit, CertificatePurchase, Check, CheckedTable, Exposed, TotalAfter
from dpsql.sql.analysis.analyze import analyze
from dpsql.sql.ir.catalog import Catalog
from dpsql.sql.ir.catalog import Table as KnownTable
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.ir.types import BIGINT, TEXT

__all__ = ["StoredColumns", "report_policy"]

_SAMPLE = Catalog((KnownTable("asked", ("asked",), (("unit", BIGINT), ("item", TEXT)), "unit"),))
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
        if analyst.enabled:
            Terms.of_policy(policy, None if name == UNLISTED else name)
    tables = tuple(_table(policy, name, stored=stored.get(name)) for name in policy.tables)
    kinds = dict.fromkeys(
        PrivateTable("unit", max_groups_contributed=table.max_groups_contributed, min_units=table.min_units)
        for table in terms.tables.values()
    )
    buys = tuple(bought for kind in kinds for bought in _buys(terms, kind, reach=reach))
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
        period=None if terms.periods is None else str(terms.periods),
        periods=None if terms.periods is None else terms.periods.most,
        totals=tuple(_totals(terms)),
        analysts=tuple(_asking(policy, terms)),
        certificate=terms.certificate.value,
        implicit=policy.implicit,
    )


def _asking(policy: Policy, terms: Terms) -> Iterator[AccountLimit]:
    """Yield who is listed, and behind them what holds for whom the policy does not list."""
    grant = policy.budget
    for name, own in sorted(policy.analysts.items(), key=lambda item: item[0] == UNLISTED):
        epsilon = own.epsilon if own.enabled else None
        yield AccountLimit(
            name=None if name == UNLISTED else name,
            epsilon=None if epsilon is None else float(epsilon),
            delta=float(own.delta or grant.delta),
            share=float(compute_limit(own, grant).refundable / terms.budget.refundable) if epsilon is not None else 0.0,
            items=own.items or grant.items,
            queries=own.queries or grant.queries,
        )


def _totals(terms: Terms) -> Iterator[TotalAfter]:
    """Yield what holds in all after a few numbers of periods; exactly after the last where there is one."""
    if terms.periods is None:
        return
    for periods in _AFTER if terms.periods.most is None else (terms.periods.most,):
        total = terms.after(periods)
        if total is not None:
            yield TotalAfter(periods, float(total.epsilon), float(total.delta))


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
        link=None if owner is None or not owner.links else str(owner),
        population=None if private is None else private.population,
        materialized=() if private is None else private.materialized,
        bounds=() if private is None else tuple(private.bounds.list_lines()),
        calendar=() if private is None else tuple(map(str, private.calendar)),
        budget_by=None if private is None else private.budget_by,
    )


def _buys(terms: Terms, kind: PrivateTable, *, reach: Callable[[CountRelease], int]) -> Iterator[CertificatePurchase]:
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
    query = analyze(text, _SAMPLE, accepts_pattern=lambda _: False)
    return build_plan(cast("PrivateQuery", query), replace(terms, tables={"asked": kind}), salts=(0, 0))
