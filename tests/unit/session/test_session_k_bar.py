"""k_bar = AUTO through SQL: one item chooses k_bar in private, and the limited domain follows as ever."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction

import pytest
from support.groups_kit import drawn, session_over
from support.laws import BOTTOM, ROUNDING, fits, peeling_law
from support.pairs import list_pairs
from support.sets_kit import Seen, articles, goodness_of, spent, worst_excess
from support.shortfall_kit import POOL, asked, left_with

import dpsql
from dpsql.mechanisms import LimitedDomain
from dpsql.plan import Plan
from dpsql.plan.mechanisms.leaders import ChosenLimitedDomainPlan

NAMES = "SELECT article FROM reads GROUP BY article TOP 1 PRIVATE WITH (epsilon = 1, delta = 0.1, k_bar = AUTO{more})"
COUNTS = NAMES.replace("SELECT article", "SELECT article, COUNT(DISTINCT user_id) AS n")


def answering_of(plan: Plan) -> ChosenLimitedDomainPlan:
    assert isinstance(plan.mechanism_plan, ChosenLimitedDomainPlan)
    return plan.mechanism_plan


def keys_law(plan: Plan, ranked: tuple[tuple[object, ...], tuple[int, ...]]) -> Mapping[Seen, float]:
    """Return the law of the k_bar that is chosen and of the keys, from the formulas alone; epsilon is 1."""
    domain, candidates, (labels, counts) = plan.selection, answering_of(plan).choice.candidates, ranked
    assert isinstance(domain, LimitedDomain)
    padded, delta, least = [*counts, *[0] * (candidates[-1] + 1)], float(domain.delta), domain.min_units

    def threshold(k_bar: int) -> tuple[float, float]:
        lead = math.log(min(domain.max_groups_contributed or k_bar, k_bar) / delta)
        return 1 + lead, least - 1 + math.log(k_bar / delta) if least > 1 else 0.0

    scores = []
    for k_bar in candidates:
        lead, floor = threshold(k_bar)
        scores.append(-max(padded[k_bar] + math.ceil(lead), math.ceil(floor)))
    weights = [math.exp(score - max(scores)) for score in scores]
    law: dict[Seen, float] = {}
    for k_bar, weight in zip(candidates, weights, strict=True):
        lead, floor = threshold(k_bar)
        bottom = max(padded[k_bar] + lead, floor)
        for steps, mass in peeling_law(counts[:k_bar], bottom, 1.0, domain.k).items():
            shown = tuple(labels[at] for at in steps if isinstance(at, int))
            rho = Fraction(1 + len(steps), 8)
            law[shown, k_bar, rho, BOTTOM in steps] = weight / math.fsum(weights) * mass
    return law


@pytest.mark.properties
@pytest.mark.parametrize("sql", [NAMES, COUNTS])
@pytest.mark.parametrize("more", ["", ", max_groups_contributed = 1"])
def test_the_law_through_sql_is_as_claimed_for_all_neighbours(sql: str, more: str) -> None:
    assert 0.2 < worst_excess(sql.format(more=more), keys_law) <= 1 + ROUNDING


@pytest.mark.properties
def test_the_law_with_min_units_is_as_claimed_for_all_neighbours() -> None:
    assert 0.1 < worst_excess(NAMES.format(more=", max_groups_contributed = 1"), keys_law, min_units=2) <= 1 + ROUNDING
    assert 0.1 < worst_excess(COUNTS.format(more=""), keys_law, min_units=3) <= 1 + ROUNDING


DATA: dict[str, Mapping[str | None, int]] = {
    "nobody": {},
    "fewer labels than k": {"a": 7},
    "ties everywhere": dict.fromkeys(["b", "a", None, "c", "d"], 6),
    "counts that fall": {"b": 12, "c": 8, None: 7, "a": 6, "d": 2},
}


@pytest.mark.properties
@pytest.mark.parametrize(("data", "min_units", "k"), list_pairs([*DATA], [1, 4], [1, 2]))
def test_what_is_drawn_has_the_law(data: str, min_units: int, k: int) -> None:
    session = session_over(*articles(DATA[data]), min_units=min_units)
    sql = NAMES.format(more="").replace("TOP 1", f"TOP {k}")
    assert fits(lambda: goodness_of(session, sql, keys_law))


@pytest.mark.parametrize(
    ("k", "most", "candidates"),
    [
        (1, 10, (1, 2, 4, 8)),
        (3, 10, (3, 6)),
        (10, 10, (10,)),
        (7, 10, (7,)),
        (10, 10_000, (*[10 * 2**n for n in range(10)],)),
    ],
)
def test_the_candidates_double_up_to_the_ceiling(k: int, most: int, candidates: tuple[int, ...]) -> None:
    limits = dpsql.Limits(max_k=min(1000, most), max_k_bar=most)
    policy = dpsql.Policy(dpsql.Budget(1, "1e-6"), {"reads": dpsql.PrivateTable("user_id")}, limits=limits)
    plan = left_with(Fraction(1, 100), POOL, policy).explain(asked("names", k, "k_bar = AUTO"))
    assert answering_of(plan).choice.candidates == candidates
    assert plan.k_bar == candidates[-1]
    assert plan.engine_sql.endswith(f"LIMIT {candidates[-1] + 1}")
    assert dict(plan.facts())["k_bar"] == f"chosen in private among {', '.join(map(str, candidates))}"


@pytest.mark.parametrize(
    ("data", "sql", "k"),
    list_pairs([*DATA.values(), {"a": 100_000}, dict.fromkeys("abcdefgh", 400)], [NAMES, COUNTS], [1, 3]),
)
def test_one_item_more_is_charged(data: Mapping[str | None, int], sql: str, k: int) -> None:
    session = session_over(*articles(data))
    text = sql.format(more="").replace("TOP 1", f"TOP {k}")
    plan, answer = session.explain(text), session.sql(text)
    receipt = answer.receipt
    returned = len(answer) * (1 + (sql is COUNTS))
    assert receipt.items_charged == 1 + returned + receipt.stopped_at_bottom <= plan.worst_items
    assert plan.worst_items == 1 + k * (1 + (sql is COUNTS))
    assert receipt.loss.rho.value == Fraction(receipt.items_charged, 8)
    assert receipt.loss.delta == dpsql.Delta("0.1")
    assert spent(session, answer)
    assert receipt.k == k
    assert receipt.k_bar in answering_of(plan).choice.candidates
    assert receipt.chosen == "k_bar"
    assert f"k_bar = {receipt.k_bar} was chosen; " in str(receipt.details())
    assert (len(answer) < k) == receipt.stopped_at_bottom


def test_a_k_bar_of_a_low_threshold_is_preferred() -> None:
    counts = {**dict.fromkeys("abcd", 500), **{str(at): 200 for at in range(28)}, "z": 1}
    session = session_over(*articles(counts))
    plan = session.explain(NAMES.format(more="").replace("TOP 1", "TOP 4"))
    assert all((each.chosen or 0) >= 32 for each in drawn(session, plan, 50))


def test_the_worst_case_and_the_forecast_hold_the_item_of_the_choice() -> None:
    session = session_over()
    text = COUNTS.format(more="").replace("TOP 1", "TOP 10")
    told = session.forecast(text)
    assert told.loss.rho.value * 8 == 21
    assert told.half_loss.rho.value * 8 == 1 + 5 + 1 + 5
    facts = dict(session.explain(text).facts())
    assert facts["items at most"].endswith("and for the choice of k_bar)")
    assert "or less" in facts["threshold"]
    assert "and at least" in dict(session_over(min_units=9).explain(text).facts())["threshold"]
