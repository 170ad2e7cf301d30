"""Prices of the usual queries of a dashboard, its tiles, as the planner prices them at a policy's settings.

A tile is planned on a sample table with the bounds of a private table of the policy, so that its price depends on the
policy alone. Planning reads no row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple, cast

from dpsql.accounting import ApproximateDP, BudgetVector, CertificateFilter
from dpsql.errors import Refusal
from dpsql.plan.plan import Plan
from dpsql.plan.planner import plan_unkeyed
from dpsql.policy import Limits, PrivateTable
from dpsql.quantities import Delta, Epsilon
from dpsql.sql.analysis.analyze import analyze
from dpsql.sql.ir.catalog import Catalog, Table
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.ir.tree import BIGINT, DATE, TEXT
from dpsql.terms import Terms

_USUAL_K = 10
_ASKED = "asked"
_COLUMNS = (("unit", BIGINT), ("item", TEXT), ("day", DATE))
_SAMPLE = Catalog((Table(_ASKED, (_ASKED,), _COLUMNS, "unit"),))
_SERIES = """SELECT date_trunc('month', day) AS month, COUNT(DISTINCT unit) AS units FROM asked
WHERE day >= DATE '2026-01-01' AND day < DATE '2027-01-01' GROUP BY month ALL PRIVATE"""
_KINDS = (  # name, what one and several are called, and the query
    (
        "names",
        ("list of names (TOP {k})", "lists of names (TOP {k})"),
        "SELECT item FROM asked GROUP BY item TOP {k} PRIVATE",
    ),
    (
        "names_with_counts",
        ("list of names with counts (TOP {k})", "lists of names with counts (TOP {k})"),
        "SELECT item, COUNT(DISTINCT unit) AS units FROM asked GROUP BY item TOP {k} PRIVATE",
    ),
    ("totals", ("total", "totals"), "SELECT COUNT(DISTINCT unit) AS units FROM asked PRIVATE"),
    ("series", ("series of 12 months", "series of 12 months"), _SERIES),
)


@dataclass(frozen=True, slots=True)
class TilePrice:
    """Worst case of one usual query: one price for each kind of private table that allows it, without repetition.

    `one` and `many` are what one and several such queries are called.
    """

    name: str
    one: str
    many: str
    prices: tuple[BudgetVector, ...]


class _Settings(NamedTuple):
    """The parts of terms on which a price depends, besides the bounds of a table."""

    total: ApproximateDP
    budget: BudgetVector
    epsilon: Epsilon
    delta: Delta
    limits: Limits
    rule: CertificateFilter | None


def list_kinds(terms: Terms) -> list[PrivateTable]:
    """Return a table for each kind of private table: those with the same bounds buy the same."""
    kinds = dict.fromkeys((table.max_groups_contributed, table.min_units) for table in terms.tables.values())
    return [PrivateTable("unit", max_groups_contributed=most, min_units=least) for most, least in kinds]


def plan_sample(sql: str, terms: Terms, *, kind: PrivateTable) -> Plan:
    """Return the plan of a query of the sample table `asked`, as a session with these terms plans it.

    The table has the columns `unit`, `item` and `day`, and the bounds of `kind`. Raises `Refusal` for a query that the
    terms do not allow.
    """
    query = analyze(sql, _SAMPLE, accepts_pattern=lambda _: False)
    return plan_unkeyed(cast("PrivateQuery", query), replace(terms, tables={_ASKED: kind}), salts=(0, 0))


def price_tiles(terms: Terms) -> tuple[TilePrice, ...]:
    """Return the price of each usual query on these terms, without those that no private table of theirs allows.

    Each price is that of a question that is new to the ledger, and known names make none cost more.
    """
    settings = _Settings(terms.total, terms.budget, terms.epsilon, terms.delta, terms.limits, terms.rule)
    found = [_price_kind(settings, kind) for kind in list_kinds(terms)]
    tiles, k = list[TilePrice](), _find_k(terms.limits)
    for at, (name, (one, many), _) in enumerate(_KINDS):
        prices = tuple(dict.fromkeys(price for each in found if (price := each[at]) is not None))
        tiles += [TilePrice(name, one.format(k=k), many.format(k=k), prices)] if prices else []
    return tuple(tiles)


@lru_cache(maxsize=256)  # SHOW BUDGET is what dashboards ask for most, and the settings of a session do not change
def _price_kind(settings: _Settings, kind: PrivateTable) -> tuple[BudgetVector | None, ...]:
    """Return the price of each usual query of one kind of table, None for one that the settings do not allow."""
    terms, prices = Terms(**settings._asdict(), tables={}), list[BudgetVector | None]()
    for _, _, sql in _KINDS:
        try:
            plan = plan_sample(sql.format(k=_find_k(terms.limits)), terms, kind=kind)
        except Refusal:
            prices.append(None)
        else:
            prices.append(plan.price(plan.worst_case))
    return tuple(prices)


def _find_k(limits: Limits) -> int:
    """Return the usual k, or the largest that a policy allows if that is less."""
    return min(_USUAL_K, limits.max_k)
