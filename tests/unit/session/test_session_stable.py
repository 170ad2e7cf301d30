"""Stable top-k of a fixed k through SQL: the law that is claimed, a set by label, one price less what was not drawn."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from itertools import permutations

import pytest
from support.fixed_stable_kit import law_of_positions
from support.groups_kit import counted, drawn, session_over
from support.laws import ROUNDING, fits
from support.pairs import list_pairs
from support.sets_kit import Seen, articles, goodness_of, seen, spent, worst_excess
from support.shortfall_kit import POOL, asked, hint_of, left_with

import dpsql
from dpsql.mechanisms import FixedStableTopK
from dpsql.plan import Plan

NAMES = "SELECT article FROM reads GROUP BY article TOP 2 PRIVATE WITH (epsilon = 1, delta = 0.1{more})"
COUNTS = NAMES.replace("SELECT article", "SELECT article, COUNT(DISTINCT user_id) AS n")
STABLE = ", mechanism = stable"


def mechanism_of(plan: Plan) -> FixedStableTopK:
    assert isinstance(plan.selection, FixedStableTopK)
    return plan.selection


def keys_law(plan: Plan, ranked: tuple[tuple[object, ...], tuple[int, ...]]) -> Mapping[Seen, float]:
    """Return the law of what is seen but for counts: the set by label, and then what was drawn one by one."""
    mechanism, (labels, counts) = mechanism_of(plan), ranked
    law: dict[Seen, float] = {}
    for each, mass in law_of_positions(mechanism, counts).items():
        members = sorted((labels[at] for at in each.stable), key=lambda label: (label is None, str(label)))
        shown = (*members, *(labels[at] for at in each.filled))
        event = shown, None, mechanism.loss(each).rho.value, len(shown) < mechanism.k
        law[event] = law.get(event, 0.0) + mass
    return law


@pytest.mark.properties
@pytest.mark.parametrize("sql", [NAMES, COUNTS])
@pytest.mark.parametrize("more", [", k_bar = 2", ", k_bar = 3", ", k_bar = 3, max_groups_contributed = 2"])
def test_the_law_through_sql_is_as_claimed_for_all_neighbours(sql: str, more: str) -> None:
    assert 0.2 < worst_excess(sql.format(more=STABLE + more), keys_law) <= 1 + ROUNDING


DATA: dict[str, Mapping[str | None, int]] = {
    "nobody": {},
    "fewer labels than k": {"a": 27},
    "ties everywhere": dict.fromkeys(["b", "a", None, "c"], 15),
    "a gap after the first": {"b": 29, "c": 8, None: 7, "a": 1},
    "a gap after the second": {"b": 28, None: 29, "c": 8, "a": 7},
    "a gap after the third": {"b": 29, "c": 28, None: 30, "a": 1},
}


@pytest.mark.properties
@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("more", ["", ", k_bar = 2", ", k_bar = 4"])
def test_what_is_drawn_has_the_law(data: str, more: str) -> None:
    session = session_over(*articles(DATA[data]))
    sql = NAMES.format(more=STABLE + (more or ", k_bar = 3"))
    assert fits(lambda: goodness_of(session, sql, keys_law))


def test_the_order_of_a_set_says_nothing_of_the_counts() -> None:
    """Whatever the counts of three leaders of which one is dropped, the two that stay come by label."""
    for counts in permutations((90, 91, 92)):
        session = session_over(*articles({"d": counts[0], None: counts[1], "b": counts[2], "a": 2}))
        plan = session.explain(NAMES.format(more=f"{STABLE}, k_bar = 3"))
        shown = {each[0] for each in map(seen, drawn(session, plan, 60)) if len(each[0]) == 2}
        assert {("b", "d"), ("b", None), ("d", None)} & shown
        assert shown <= {("b", "d"), ("b", None), ("d", None)}


def test_with_counts_rows_come_by_these_and_equal_ones_by_label() -> None:
    session = session_over(*articles({"b": 60, "a": 60}))
    plan, equal = session.explain(COUNTS.format(more=STABLE)), 0
    for each in drawn(session, plan, 300):
        rows = [(-row["n"], row["article"]) for row in each.table.to_pylist()]
        assert rows == sorted(rows)
        equal += len({count for count, _ in rows}) < len(rows)
    assert equal > 10


LEADERS = ", mechanism = limited_domain"


@pytest.mark.parametrize(
    ("k", "sql", "bound"), list_pairs([1, 2, 7], [NAMES, COUNTS], ["", ", max_groups_contributed = 2"])
)
def test_the_worst_case_is_what_a_limited_domain_reserves(k: int, sql: str, bound: str) -> None:
    session, text = session_over(), sql.replace("TOP 2", f"TOP {k}").replace("epsilon = 1", "epsilon = 0.3")
    plan, usual = session.explain(text.format(more=STABLE + bound)), session.explain(text.format(more=bound + LEADERS))
    assert plan.worst_case == usual.worst_case
    assert (plan.worst_items, plan.k, plan.k_bar) == (usual.worst_items, k, usual.k_bar)
    told = session.forecast(text.format(more=STABLE + bound))
    assert told.loss == plan.worst_case
    assert told.half_loss.rho.value < told.loss.rho.value or k == 1


@pytest.mark.properties
@pytest.mark.parametrize(
    ("data", "sql", "k"),
    list_pairs([*DATA.values(), {"a": 100_000}, dict.fromkeys("abcdefgh", 400)], [NAMES, COUNTS], [1, 3, 6]),
)
def test_what_was_not_drawn_is_not_charged(data: Mapping[str | None, int], sql: str, k: int) -> None:
    session = session_over(*articles(data))
    text = sql.format(more=STABLE).replace("TOP 2", f"TOP {k}")
    plan, answer = session.explain(text), session.sql(text)
    receipt, item = answer.receipt, Fraction(1, 8)
    of_counts = len(answer) * (sql is COUNTS)
    of_keys = receipt.loss.rho.value - of_counts * item
    assert k * item / 2 - Fraction(1, 10**9) < of_keys <= k * item
    assert receipt.items_charged == math.ceil(of_keys / item) + of_counts <= plan.worst_items
    assert receipt.loss.delta == plan.delta == dpsql.Delta("0.1")
    assert spent(session, answer)
    assert (receipt.mechanism, receipt.k, receipt.chosen) == ("stable", k, "")
    assert receipt.stopped_at_bottom == (len(answer) < k)
    assert len(answer) <= k
    assert {row[0] for row in answer.fetchall()} <= data.keys()


def test_the_plan_says_what_must_be_reached() -> None:
    session = session_over()
    plan = session.explain(NAMES.format(more=f"{STABLE}, k_bar = 7"))
    facts, mechanism = dict(plan.facts()), mechanism_of(plan)
    assert plan.threshold_offset == mechanism.test.offset + 1
    assert f"{mechanism.test.offset + 1} units above the next" in facts["threshold"]
    assert facts["penalty"] == "1 units for each rank away from 2"
    assert facts["k"] == "2"
    assert "LIMIT 8) ORDER BY" in plan.engine_sql
    assert len(counted(session_over(*articles(dict.fromkeys("abcdefghijkl", 2))), plan)) == 8


def test_what_the_mechanism_does_not_take_is_not_offered() -> None:
    session = left_with(Fraction(3, 2) * Fraction("2e-4") ** 2 / 8, POOL)
    hint = hint_of(session, asked("names", 10, "epsilon = 2e-4", "mechanism = stable"))
    assert hint == "What is left is not enough for a single row."
    with pytest.raises(dpsql.Refusal, match="1e-8"):
        session.explain(asked("names", 1, "epsilon = 2e-4", "mechanism = stable"))
