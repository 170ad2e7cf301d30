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
from support.sets_kit import Seen, articles, goodness_of, seen, spent, worst_excess
from support.shortfall_kit import ITEM, POOL, asked, assert_fits, fitting, hint_of, left_with

import dpsql
from dpsql.mechanisms import FixedStableTopK
from dpsql.plan import Plan, compute_release_key

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


@pytest.mark.parametrize("k", [1, 2, 7])
@pytest.mark.parametrize("sql", [NAMES, COUNTS])
@pytest.mark.parametrize("bound", ["", ", max_groups_contributed = 2"])
def test_the_worst_case_is_what_a_limited_domain_reserves(k: int, sql: str, bound: str) -> None:
    session, text = session_over(), sql.replace("TOP 2", f"TOP {k}").replace("epsilon = 1", "epsilon = 0.3")
    plan, usual = session.explain(text.format(more=STABLE + bound)), session.explain(text.format(more=bound + LEADERS))
    assert plan.worst_case == usual.worst_case
    assert (plan.worst_items, plan.k, plan.k_bar) == (usual.worst_items, k, usual.k_bar)
    told = session.forecast(text.format(more=STABLE + bound))
    assert told.loss == plan.worst_case
    assert told.half_loss.rho.value < told.loss.rho.value or k == 1


@pytest.mark.properties
@pytest.mark.parametrize("data", [*DATA.values(), {"a": 100_000}, dict.fromkeys("abcdefgh", 400)])
@pytest.mark.parametrize("sql", [NAMES, COUNTS])
@pytest.mark.parametrize("k", [1, 3, 6])
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


REFUSED = [
    (f"{STABLE}, prefer = 2", {}, "option", "prefer", STABLE),
    (f"{STABLE}, penalty = 2", {}, "option", "penalty", STABLE),
    (f"{STABLE}, k_bar = 1", {}, "option-range", "k_bar", f"{STABLE}, k_bar = 2"),
    (f"{STABLE}, k_bar = AUTO", {}, "option", "k_bar", STABLE),
    (f"{STABLE}, domain = ['a', 'b']", {}, "option", "mechanism", f"{STABLE}"),
    (STABLE, {"min_units": 5}, "min-units", "mechanism", ""),
    (", penalty = 2", {}, "option", "penalty", ""),
    (", mechanism = top_stable, penalty = 2", {}, "option", "penalty", ", mechanism = top_stable"),
]


@pytest.mark.parametrize(("more", "bounds", "code", "place", "instead"), REFUSED)
def test_what_is_refused(more: str, bounds: dict[str, int], code: str, place: str, instead: str) -> None:
    session = session_over(**bounds)
    for ask in (session.sql, session.explain):
        with pytest.raises(dpsql.Refusal) as caught:
            ask(NAMES.format(more=more))
        assert caught.value.code == code
        assert isinstance(caught.value.place, dpsql.Place)
        assert caught.value.place.fragment.startswith(place)
        assert caught.value.hint
    session.explain(NAMES.format(more=instead))


def test_k_may_be_a_parameter_and_the_answer_is_replayed() -> None:
    session = session_over(*articles({"b": 90, "a": 95, "c": 2}))
    first = session.sql(NAMES.format(more=STABLE))
    again = session.sql(NAMES.format(more=STABLE).replace("TOP 2", "TOP ?"), [2])
    assert again.receipt.replayed
    assert again.fetchall() == first.fetchall()
    fresh = session.sql(NAMES.format(more=f"{STABLE}, fresh = true"))
    assert not fresh.receipt.replayed
    texts = [NAMES.format(more=more) for more in ("", STABLE, f"{STABLE}, k_bar = 9")]
    texts += [COUNTS.format(more=STABLE), NAMES.format(more=", mechanism = top_stable")]
    assert len({compute_release_key(session.explain(text)) for text in texts}) == len(texts)


@pytest.mark.parametrize(("shape", "items_left", "keys"), [("names", 7, 7), ("counts", 7, 3), ("names", 1, 1)])
@pytest.mark.parametrize("mechanism", ["stable", "top_stable"])
def test_what_a_short_budget_says_would_fit_fits(shape: str, items_left: int, keys: int, mechanism: str) -> None:
    session = left_with(items_left * ITEM + ITEM / 3, POOL)
    others = ["epsilon = 0.05", f"mechanism = {mechanism}"]
    hint = hint_of(session, asked(shape, 10, *others))
    assert hint.startswith(f"TOP {keys} PRIVATE at this epsilon or WITH (epsilon = ")
    queries = fitting(hint, shape, 10, *others)
    assert len(queries) == 2
    for sql in queries:
        assert_fits(session, sql)


def test_what_the_mechanism_does_not_take_is_not_offered() -> None:
    session = left_with(Fraction(3, 2) * Fraction("2e-4") ** 2 / 8, POOL)
    hint = hint_of(session, asked("names", 10, "epsilon = 2e-4", "mechanism = stable"))
    assert hint == "What is left is not enough for a single row."
    with pytest.raises(dpsql.Refusal, match="1e-8"):
        session.explain(asked("names", 1, "epsilon = 2e-4", "mechanism = stable"))
