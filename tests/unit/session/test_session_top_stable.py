"""Top stable through SQL: the law that is claimed, a set by label, and draws within it only where they are made."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from itertools import permutations

import pytest
from support.groups_kit import drawn, session_over
from support.laws import ROUNDING, fits
from support.pairs import list_pairs
from support.sets_kit import Seen, articles, goodness_of, seen, spent, worst_excess
from support.top_stable_kit import law_of_positions

import dpsql
from dpsql.mechanisms import TopStable
from dpsql.plan import Plan

NAMES = (
    "SELECT article FROM reads GROUP BY article "
    "TOP 2 PRIVATE WITH (epsilon = 1, delta = 0.1, mechanism = top_stable{more})"
)
COUNTS = NAMES.replace("SELECT article", "SELECT article, COUNT(DISTINCT user_id) AS n")


def mechanism_of(plan: Plan) -> TopStable:
    assert isinstance(plan.selection, TopStable)
    return plan.selection


def keys_law(plan: Plan, ranked: tuple[tuple[object, ...], tuple[int, ...]]) -> Mapping[Seen, float]:
    """Return the law of what is seen but for counts: a set by label, or what was drawn within it one by one."""
    mechanism, (labels, counts) = mechanism_of(plan), ranked
    law: dict[Seen, float] = {}
    for each, mass in law_of_positions(mechanism, counts[: mechanism.k_bar + 1]).items():
        members = sorted((labels[at] for at in each.members), key=lambda label: (label is None, str(label)))
        shown = (*members, *(labels[at] for at in each.ranked))
        event = shown, None, mechanism.loss(each).rho.value, len(shown) < mechanism.k
        law[event] = law.get(event, 0.0) + mass
    return law


@pytest.mark.properties
@pytest.mark.parametrize("sql", [NAMES, COUNTS])
@pytest.mark.parametrize("more", [", k_bar = 2", ", k_bar = 3"])
def test_the_law_through_sql_is_as_claimed_for_all_neighbours(sql: str, more: str) -> None:
    assert 0.2 < worst_excess(sql.format(more=more), keys_law) <= 1 + ROUNDING


DATA: dict[str, Mapping[str | None, int]] = {
    "nobody": {},
    "fewer labels than k": {"a": 27},
    "ties everywhere": dict.fromkeys(["b", "a", None, "c"], 15),
    "a gap after the first": {"b": 49, "c": 8, None: 7, "a": 1},
    "a gap after the third": {"b": 49, "c": 48, None: 50, "a": 1},
}


@pytest.mark.properties
@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("more", [", k_bar = 2", ", k_bar = 3"])
def test_what_is_drawn_has_the_law(data: str, more: str) -> None:
    session = session_over(*articles(DATA[data]))
    assert fits(lambda: goodness_of(session, NAMES.format(more=more), keys_law))


def test_the_order_of_a_set_says_nothing_of_the_counts() -> None:
    for counts in permutations((190, 195)):
        session = session_over(*articles({None: counts[0], "b": counts[1], "a": 2}))
        plan = session.explain(NAMES.format(more=", k_bar = 2"))
        shown = {each[0] for each in map(seen, drawn(session, plan, 60))}
        assert ("b", None) in shown
        assert (None, "b") not in shown


@pytest.mark.parametrize("k", [1, 2, 7])
@pytest.mark.parametrize("sql", [NAMES, COUNTS])
def test_the_price_is_at_most_what_a_limited_domain_reserves(k: int, sql: str) -> None:
    session, text = session_over(), sql.replace("TOP 2", f"TOP {k}").replace("epsilon = 1", "epsilon = 0.3")
    for more in ("", f", k_bar = {k}"):
        plan = session.explain(text.format(more=more))
        usual = session.explain(text.replace("top_stable", "auto").format(more=more))
        assert plan.worst_items == usual.worst_items
        assert plan.delta == usual.delta
        assert 0 <= usual.worst_case.rho.value - plan.worst_case.rho.value < Fraction(1, 10**11)
        told = session.forecast(text.format(more=more))
        assert told.loss == plan.worst_case
        assert told.half_loss == plan.worst_case or sql is COUNTS


def test_a_fifth_is_for_draws_within_where_a_rank_may_be_above_k() -> None:
    session, item = session_over(), Fraction(1, 8)
    some, none = (mechanism_of(session.explain(NAMES.format(more=more))) for more in ("", ", k_bar = 2"))
    assert some.within is not None
    assert none.within is None
    assert float(some.within) == pytest.approx(math.sqrt(1 / 5), rel=1e-11)
    assert some.epsilon.value**2 / 2 == pytest.approx(float(2 * item * 4 / 5), rel=1e-11)
    assert none.epsilon.value**2 / 2 == pytest.approx(float(2 * item), rel=1e-11)


@pytest.mark.properties
@pytest.mark.parametrize(
    ("data", "sql", "k"),
    list_pairs([*DATA.values(), {"a": 100_000}, dict.fromkeys("abcdefgh", 400)], [NAMES, COUNTS], [1, 3, 6]),
)
def test_the_tests_are_charged_and_the_draws_that_were_made(data: Mapping[str | None, int], sql: str, k: int) -> None:
    session = session_over(*articles(data))
    text = sql.format(more="").replace("TOP 2", f"TOP {k}")
    mechanism, answer = mechanism_of(session.explain(text)), session.sql(text)
    receipt, item = answer.receipt, Fraction(1, 8)
    of_counts = len(answer) * (sql is COUNTS)
    of_keys = receipt.loss.rho.value - of_counts * item
    assert of_keys in {mechanism.epsilon.value**2 / 2, mechanism.worst_case.rho.value}
    assert receipt.items_charged == math.ceil(of_keys / item) + of_counts
    assert receipt.loss.delta == dpsql.Delta("0.1")
    assert spent(session, answer)
    assert (receipt.mechanism, receipt.k, receipt.k_bar, receipt.chosen) == ("top_stable", k, 20 * k, "")
    assert receipt.stopped_at_bottom == (len(answer) < k)
    assert len(answer) <= k
    assert {row[0] for row in answer.fetchall()} <= data.keys()


def test_the_plan_says_what_must_be_reached() -> None:
    plan = session_over().explain(NAMES.format(more=", k_bar = 7"))
    facts, mechanism = dict(plan.facts()), mechanism_of(plan)
    assert plan.threshold_offset == mechanism.offset + 1
    assert f"{mechanism.offset + 1} units above the next" in facts["threshold"]
    assert facts["items at most"].startswith("2 (the tests at once")


def test_a_tiny_delta_works() -> None:
    session = session_over(*articles({"a": 5_000, "b": 2}))
    sql = NAMES.format(more="").replace("delta = 0.1", "delta = 1e-30").replace("TOP 2", "TOP 1")
    assert session.sql(sql).fetchall() == [("a",)]
