"""How many usual queries still fit: so many are admitted by the ledger at their worst case, and one more is not.

The numbers of a budget are compared with what the ledger admits of queries that the session plans on tables of its own.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import pytest
from support.session_kit import rebuilt, shared
from support.values_kit import data_file, policy_of

import dpsql
from dpsql.accounting import BudgetVector, Certificate
from dpsql.errors import BudgetExceeded, PolicyError, Refusal
from dpsql.ledger import Account, Ledger, MemoryLedger, Request
from dpsql.ledger.base import Reservation, Shortfall
from dpsql.plan import Plan
from dpsql.report.balance import Balance
from dpsql.session import Session

TABLES = ("reads", "visits", "orders")
DATA = shared(
    *(f"CREATE TABLE {name} (user_id BIGINT, article VARCHAR, day DATE, amount INTEGER)" for name in TABLES),
    "INSERT INTO reads SELECT i, 'a' || (j % 12), DATE '2026-01-15' + 30 * j::INTEGER, 1 "
    "FROM range(6000) u(i), range(12) t(j)",
)
YEAR = "WHERE day >= DATE '2026-01-01' AND day < DATE '2027-01-01'"
LISTED = f"ALL PRIVATE WITH (domain = {[str(month) for month in range(1, 13)]})"
QUERIES = {  # of each tile, in several words
    "names": ["SELECT article FROM {table} GROUP BY article TOP {k} PRIVATE"],
    "names_with_counts": [
        "SELECT article, COUNT(DISTINCT user_id) AS n FROM {table} GROUP BY article TOP {k} PRIVATE",
        "SELECT article, COUNT(*) AS n FROM {table} GROUP BY article TOP {k} PRIVATE",
    ],
    "totals": ["SELECT COUNT(DISTINCT user_id) AS n FROM {table} PRIVATE", "SELECT COUNT(*) AS n FROM {table} PRIVATE"],
    "series": [
        f"SELECT date_trunc('month', day) AS m, COUNT(*) AS n FROM {{table}} {YEAR} GROUP BY m ALL PRIVATE",
        f"SELECT article, COUNT(DISTINCT user_id) AS n FROM {{table}} GROUP BY article {LISTED}",
    ],
}


def draw_policy(some: random.Random) -> dpsql.Policy:
    """Return a policy of one to three private tables with any bounds, perhaps with accounts and periods."""
    certificate = some.choice([each.value for each in Certificate])
    budget = dpsql.Budget(
        some.choice(["0.5", 1, 3]),
        some.choice(["1e-6", "1e-8"]),
        items=some.choice([5, 23, 40, 117]),
        queries=some.choice([1, 3, 8, 50]),
        certificate=certificate,
        period=some.choice([None, "30 days"]),
    )
    tables = {
        name: dpsql.PrivateTable(
            "user_id",
            max_groups_contributed=some.choice([None, None, 1, 4, 11, 12, 50]),
            min_units=some.choice([None, None, None, 5]),
            bounds={"rows": 3},
        )
        for name in some.sample(TABLES, some.randint(1, 3))
    }
    limits = dpsql.Limits(
        max_k=some.choice([1000, 1000, 10, 4]),
        max_rows_fetched=some.choice([None, None, 30]),
        max_delta=some.choice([None, None, "1e-9"]) if certificate != "optimal" else None,
        share_replays=some.random() < 0.2,
    )
    analysts = None
    if certificate in {"zcdp", "pure"} and some.random() < 0.6:
        analysts = {
            "ana": dpsql.Analyst(some.choice([None, "0.2", "0.4"]), items=some.choice([None, 10, 60])),
            "bob": dpsql.Analyst("0.5"),
        }
    return dpsql.Policy(budget, tables, limits=limits, analysts=analysts)


def spend(ledger: Ledger, terms: dpsql.session.Terms, some: random.Random) -> None:
    """Charge and hold random parts of the total and of the account's limit, and what others drew on the total."""
    own = None if terms.account is None else Account(terms.account.name, terms.account.budget)
    other = None if own is None else Account("somebody else", terms.budget)
    for _ in range(some.randint(0, 4)):
        account = some.choice([own, own, other])
        limit = terms.budget if account is None else account.budget
        whole = terms.certificate in {Certificate.theorem2, Certificate.optimal}
        amounts = [limit.refundable * some.choice([0, 1, 7, 19]) / 60, limit.permanent * some.choice([0, 1, 4]) / 13]
        if whole:
            amounts[0] = Fraction(int(amounts[0]))
        if terms.certificate is Certificate.theorem2:
            amounts[1] = Fraction(int(amounts[1]))
        worst = BudgetVector(*amounts, certificate=terms.certificate)
        try:
            made = ledger.reserve(Request("q", worst, account))
        except Shortfall:
            continue
        assert isinstance(made, Reservation)
        if some.random() < 0.6:
            made.settle(worst.refundable * some.choice([0, 1]), "digest")


def find_plans(session: Session, sqls: Sequence[str]) -> list[Plan]:
    """Return the plans of those queries that the policy allows."""
    plans = []
    for sql in sqls:
        try:
            (plan,) = session.explain_all(sql)
        except Refusal:
            continue
        plans.append(plan)
    return plans


def count_by_asking(session: Session, plan: Plan, *, most: int) -> int:
    """Return how many such queries the ledger admits, each settled at its worst case; at most `most`."""
    own, worst = session._dependencies, plan.price(plan.worst_case)
    for count in range(most):
        try:
            made = own.ledger.reserve(own.request("q", worst, key="", repeated=False, values=plan.charged_values))
        except Shortfall:
            return count
        assert isinstance(made, Reservation)
        made.settle(worst.refundable, "digest")
    return most


def open_ledger(session: Session) -> MemoryLedger:
    terms = session._dependencies.terms
    return MemoryLedger(terms.budget, total=terms.total, periods=terms.periods, certified=terms.certified)


@dataclass
class Seen:
    """What a run of random policies came across."""

    zeros: int = 0
    positive: int = 0
    left_out: int = 0
    bounded: int = 0


@pytest.mark.parametrize("start", range(2))
def test_so_many_are_admitted_and_one_more_is_not(start: int) -> None:
    seen = Seen()
    for seed in range(start * 1000, start * 1000 + 24):
        some = random.Random(seed)
        while True:
            try:
                policy = draw_policy(some)
                analyst = None if not policy.analysts else some.choice(["ana", "bob"])
                opened = dpsql.connect(DATA.cursor(), policy=policy, ledger=":memory:", analyst=analyst)
            except PolicyError:  # a budget that buys too little, or a limit outside it
                continue
            break
        with opened:
            check(opened, policy, seed=seed, seen=seen)
    assert min(seen.zeros, seen.positive, seen.left_out, seen.bounded) > 0, seen


def check(opened: Session, policy: dpsql.Policy, *, seed: int, seen: Seen) -> None:
    def begin() -> Session:
        session = rebuilt(opened, ledger=open_ledger(opened))
        spend(session._dependencies.ledger, session._dependencies.terms, random.Random(-seed))
        return session

    balance = begin().budget
    tiles = {tile.name: tile for tile in balance.tiles}
    for name, sqls in QUERIES.items():
        k = min(10, policy.limits.max_k)
        plans = find_plans(begin(), [sql.format(table=table, k=k) for table in policy.tables for sql in sqls])
        if not plans:
            assert name not in tiles
            seen.left_out += 1
            continue
        tile = tiles[name]
        asked = [count_by_asking(begin(), plan, most=tile.remaining + 1) for plan in plans]
        assert min(asked) == tile.remaining, (seed, name, policy)
        seen.zeros += not tile.remaining
        seen.positive += tile.remaining > 0
        seen.bounded += len({plan.price(plan.worst_case) for plan in plans}) > 1
    check_amounts(balance)


def check_amounts(balance: Balance) -> None:
    """The numbers of a tile add up, to less where others drew on the total."""
    for tile in balance.tiles:
        left = tile.granted - tile.spent - tile.reserved
        assert min(tile.granted, tile.spent, tile.reserved, tile.remaining) >= 0
        assert tile.remaining == left or (tile.remaining < left and balance.analyst is not None)
    assert balance.queries == next((tile.remaining for tile in balance.tiles if tile.name == "names"), 0)


@pytest.mark.parametrize("certificate", [each.value for each in Certificate])
def test_a_query_of_some_values_has_the_numbers_of_these(certificate: str, tmp_path: Path) -> None:
    path = data_file(tmp_path / "reads.duckdb")
    wheres = {None: "", "DE": "WHERE country = 'DE'", "FR": "WHERE country = 'FR'", "IT": "WHERE country = 'IT'"}
    words = [
        "SELECT article FROM reads {where} GROUP BY article TOP 10 PRIVATE",
        "SELECT COUNT(DISTINCT user_id) AS n FROM reads {where} PRIVATE",
    ]
    with dpsql.connect(path, policy=policy_of(certificate), ledger=":memory:") as opened:
        own = opened._dependencies

        def begin() -> Session:
            session = rebuilt(
                opened, ledger=MemoryLedger(own.terms.budget, total=own.terms.total, certified=own.terms.certified)
            )
            ledger = session._dependencies.ledger
            assert own.division is not None
            ledger.divide(own.division)
            for sql, where in ((0, "FR"), (1, "FR"), (1, "DE"), (0, None)):
                (plan,) = session.explain_all(words[sql].format(where=wheres[where]))
                count_by_asking(session, plan, most=1)
            return session

        balance, found = begin().budget, set[tuple[int, ...]]()
        assert set(balance.values) == {"DE", "FR"}
        for value, where in wheres.items():
            tiles = balance.of(() if value is None else (value,)).tiles
            fit = {tile.name: tile.remaining for tile in tiles}
            found.add(tuple(fit.values()))
            for name, sql in zip(("names", "totals"), words, strict=True):
                (plan,) = begin().explain_all(sql.format(where=where))
                assert plan.charged_values == (() if value is None else (value,))
                assert count_by_asking(begin(), plan, most=fit[name] + 1) == fit[name]
        assert len(found) >= 3
        both = balance.of(("DE", "FR")).tiles
        (plan,) = begin().explain_all(words[0].format(where="WHERE country IN ('DE', 'FR')"))
        assert count_by_asking(begin(), plan, most=both[0].remaining + 1) == both[0].remaining


@pytest.mark.parametrize("certificate", [each.value for each in Certificate])
@pytest.mark.parametrize("name", QUERIES)
def test_whole_queries_fit_as_often_as_the_budget_says(certificate: str, name: str) -> None:
    """Each query returns all that it may, so that it costs its worst case."""
    budget = dpsql.Budget(40, "1e-6", items=50, queries=4, certificate=certificate)
    policy = dpsql.Policy(
        budget, {"reads": dpsql.PrivateTable("user_id", max_groups_contributed=12, bounds={"rows": 1})}
    )
    sql = QUERIES[name][0].format(table="reads", k=10)
    with dpsql.connect(DATA.cursor(), policy=policy, ledger=":memory:") as session:
        session.sql("SELECT COUNT(DISTINCT user_id) AS n FROM reads WHERE article = 'a1' PRIVATE")
        (tile,) = (tile for tile in session.budget.tiles if tile.name == name)
        assert tile.remaining > 0
        for left in range(tile.remaining, 0, -1):
            now = next(tile for tile in session.budget.tiles if tile.name == name)
            assert now.remaining == left
            with pytest.warns(dpsql.WastedChargeWarning):
                session.sql(with_option(sql, "fresh = true"))
        with pytest.warns(dpsql.WastedChargeWarning), pytest.raises(BudgetExceeded):
            session.sql(with_option(sql, "fresh = true"))


def with_option(sql: str, option: str) -> str:
    return sql.replace("WITH (", f"WITH ({option}, ") if "WITH (" in sql else f"{sql} WITH ({option})"


def test_known_names_make_no_query_dearer() -> None:
    policy = dpsql.Policy(
        dpsql.Budget(20, "1e-6", items=200), {"reads": dpsql.PrivateTable("user_id", bounds={"rows": 1})}
    )
    others = "reads WHERE day > DATE '2026-02-01'"
    with dpsql.connect(DATA.cursor(), policy=policy, ledger=":memory:") as session:
        session.sql("SELECT article FROM reads GROUP BY article TOP 12 PRIVATE")
        fit = {tile.name: tile.remaining for tile in session.budget.tiles}
        for name in ("names", "names_with_counts"):
            for plan in find_plans(session, [sql.format(table=others, k=10) for sql in QUERIES[name]]):
                assert plan.spec.rows.known == 12
                worst, left = plan.price(plan.worst_case), session.budget.remaining
                assert worst.refundable * fit[name] <= left.refundable
                assert worst.permanent * fit[name] <= left.permanent
