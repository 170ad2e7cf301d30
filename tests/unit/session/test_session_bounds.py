"""What the policy says of a table, through SQL: max_groups_contributed and min_units."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from support.intervals_kit import agrees, outcomes
from support.session_kit import filled, session_on, shared

import dpsql
from dpsql.mechanisms import LimitedDomain
from dpsql.session import Session

CREATE = "CREATE TABLE reads (user_id BIGINT, article VARCHAR)"
HEAVY = "INSERT INTO reads SELECT i % 50, 'a' || i FROM range(1000) t(i)"  # 50 units in 20 groups each
NAMES = "SELECT article FROM reads GROUP BY article TOP 3 PRIVATE WITH (epsilon = 0.5)"
COUNTS = NAMES.replace("SELECT article", "SELECT article, COUNT(DISTINCT user_id) AS n")


def session_with(*statements: str, groups: int | None = None, units: int | None = None) -> Session:
    table = dpsql.PrivateTable("user_id", max_groups_contributed=groups, min_units=units)
    policy = dpsql.Policy(dpsql.Budget(50, "0.5"), {"reads": table, "likes": dpsql.PrivateTable("user_id")})
    return session_on(shared(CREATE, "CREATE TABLE likes AS FROM reads", *statements), policy)


def asking(sql: str, groups: object) -> str:
    return sql.replace("epsilon = 0.5", f"epsilon = 0.5, max_groups_contributed = {groups}")


def test_the_policy_bounds_every_query_of_its_table_and_no_other() -> None:
    session, leaders = session_with(groups=4), NAMES.replace("WITH (", "WITH (mechanism = limited_domain, ")
    assert session.explain(NAMES).max_groups_contributed == 4
    assert session.explain(leaders).selection == LimitedDomain(
        dpsql.Epsilon("0.5"), session.explain(NAMES).delta, k=3, k_bar=60, max_groups_contributed=4
    )
    assert session.explain(leaders.replace("reads", "likes")).max_groups_contributed is None
    assert session_with().explain(leaders).max_groups_contributed is None
    for free in (session.explain(NAMES.replace("reads", "likes")), session_with().explain(NAMES)):
        assert (free.mechanism, free.count_bound) == ("two_looks", None)  # its own cap is for weights alone
    assert "at most 4" in dict(session.explain(NAMES).facts())["groups per unit"]


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_a_query_may_ask_for_less(groups: int) -> None:
    assert session_with(groups=4).explain(asking(NAMES, groups)).max_groups_contributed == groups


@pytest.mark.parametrize("groups", [5, 1_000_000, 0, -1, 2.5, "'4'", "auto"])
def test_a_query_may_not_ask_for_more_or_for_nonsense(groups: object) -> None:
    session = session_with(groups=4)
    with pytest.raises(dpsql.Refusal) as raised:
        session.sql(asking(NAMES, groups))
    assert raised.value.code in {"option", "option-range"}
    assert raised.value.code == "option" or "from 1 to 4" in raised.value.reason


def test_where_the_policy_sets_none_a_query_may_ask_for_any() -> None:
    session = session_with()
    assert session.explain(asking(NAMES, 1_000_000)).max_groups_contributed == 1_000_000
    with pytest.raises(dpsql.Refusal):
        session.explain(asking(NAMES, 1_000_001))


@pytest.mark.parametrize(("groups", "items"), [(1, 4), (2, 5), (3, 6), (20, 6), (None, 6)])
def test_counts_under_a_bound_are_charged_at_most_the_bound(groups: int | None, items: int) -> None:
    rows = "INSERT INTO reads SELECT i, 'a' || (i % 3) FROM range(9000) t(i)"
    session = session_with(rows, groups=groups)
    leaders = COUNTS.replace("WITH (", "WITH (mechanism = limited_domain, ")
    assert session.explain(leaders).worst_items == session.explain(COUNTS).worst_items == items
    answer = session.sql(leaders)
    assert (len(answer), answer.receipt.items_charged) == (3, items)
    looked = session.sql(COUNTS)
    assert len(looked) == 3
    assert looked.receipt.items_charged <= items


def test_the_bound_is_kept_in_the_engine() -> None:
    """The units are in 20 groups each; at most 4 of them count, whichever form of bounding the engine runs."""
    for groups in (1, 4, 16, 20):
        session = session_with(HEAVY, groups=groups)
        connection = session._dependencies.engine._connection  # type: ignore[attr-defined]
        for mechanism in ("limited_domain", "two_looks"):
            plan = session.explain(NAMES.replace("0.5", f"0.5, k_bar = 2000, mechanism = {mechanism}"))
            for read in filter(None, [plan.spec.rows, plan.spec.second]):
                rows = connection.execute(read.counting.sql, list(read.counting.parameters)).fetchall()
                assert sum(row[1] for row in rows) == 50 * groups
            assert (plan.spec.second is None) == (mechanism == "limited_domain")


FLOORED = (
    "SELECT article FROM reads GROUP BY article TOP 1 PRIVATE "
    "WITH (mechanism = limited_domain, epsilon = 1, delta = 0.1, k_bar = 1)"
)
FOUR = "INSERT INTO reads SELECT i, 'a' FROM range(4) t(i)"


@pytest.mark.properties
def test_a_group_one_unit_short_appears_with_probability_delta_over_one_plus_delta() -> None:
    seen = outcomes(session_with(FOUR, units=5), 6_000, FLOORED)
    assert agrees(seen, 0.1 / 1.1)


@pytest.mark.properties
def test_without_the_floor_it_appears_more_often() -> None:
    seen = outcomes(session_with(FOUR), 6_000, FLOORED)
    above = 4 - (1 + math.log(10))
    assert agrees(seen, 1 / (1 + math.exp(-above)))
    assert not agrees(seen, 0.1 / 1.1)


def test_the_plan_says_so() -> None:
    plan = session_with(units=50).explain(NAMES)
    threshold = dict(plan.facts())["threshold"]
    floor = 49 + math.log(60 / float(plan.delta)) / 0.5
    assert f"at least {floor:.1f} units" in threshold
    assert "min_units = 50" in threshold
    assert "min_units" not in dict(session_with().explain(NAMES).facts())["threshold"]


def test_the_price_is_the_same() -> None:
    assert session_with(units=50).explain(COUNTS).worst_case == session_with().explain(COUNTS).worst_case
    answer = session_with(FOUR, units=50).sql(NAMES)
    assert answer.receipt.loss.rho.value == Fraction(1, 4) / 8


SPELLINGS = {
    "case": "FROM READS",
    "schema": 'FROM "main"."Reads"',
    "an alias": "FROM reads AS likes",
    "a subquery": "FROM (SELECT user_id, article FROM reads) AS likes",
    "a CTE of another table's name": "FROM likes",
    "a CTE over a CTE": "FROM b",
    "a join": "FROM reads AS likes JOIN labels ON TRUE",
    "a join that multiplies": "FROM labels, reads",
}
HEADINGS = {
    "a CTE of another table's name": "WITH likes AS (SELECT * FROM reads) ",
    "a CTE over a CTE": "WITH likes AS (SELECT * FROM main.reads), b AS (SELECT * FROM likes) ",
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_no_spelling_of_a_table_sheds_what_the_policy_says_of_it(spelling: str) -> None:
    bounded = dpsql.PrivateTable("user_id", max_groups_contributed=2, min_units=7)
    tables = {"reads": bounded, "likes": dpsql.PrivateTable("user_id"), "labels": dpsql.PublicTable()}
    labels = "CREATE TABLE labels AS SELECT 'l' || i AS label FROM range(5) t(i)"
    connection = filled(CREATE, "CREATE TABLE likes AS FROM reads", labels, HEAVY)
    session = session_on(connection, dpsql.Policy(dpsql.Budget(50, "0.5"), tables))
    key = "article || label" if "join" in spelling else "article"
    body = f"SELECT {key} AS k {SPELLINGS[spelling]} GROUP BY k"
    plan = session.explain(f"{HEADINGS.get(spelling, '')}{body} TOP 3 PRIVATE WITH (k_bar = 5000)")
    assert isinstance(plan.selection, LimitedDomain)
    assert (plan.max_groups_contributed, plan.selection.min_units) == (2, 7)
    rows = connection.execute(plan.counting.sql, list(plan.counting.parameters)).fetchall()
    assert sum(row[-1 - plan.counting.has_total] for row in rows) == 50 * 2
    for options in ("max_groups_contributed = 3", "domain = ['a1']"):
        with pytest.raises(dpsql.Refusal) as raised:
            session.explain(f"{HEADINGS.get(spelling, '')}{body} TOP 3 PRIVATE WITH ({options})")
        assert raised.value.code in {"option-range", "min-units"}
