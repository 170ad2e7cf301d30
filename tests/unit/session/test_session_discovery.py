"""Domain discovery through SQL: a domain by weights, a top-k of it by counts, and the law that is claimed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from fractions import Fraction
from itertools import combinations, product

import pytest
from support.groups_kit import COUNTS, CREATE, LABELS, LEVELS, NAMES, counted, drawn, rows_of, session_over
from support.laws import ROUNDING, cks, hockey_stick, peeling_law, singles_out
from support.looks_kit import GATE, behind, find_opening
from support.pairs import list_pairs
from support.session_kit import fresh_ledger, rebuilt, session_on, shared
from support.sets_kit import counted_over
from support.weights_kit import reaching, weights_of

import dpsql
from dpsql.accounting import ZCDP
from dpsql.mechanisms import WEIGHT_STEPS, DomainDiscovery, SharedTotal, unit_weight
from dpsql.plan import Plan, planner

GATED = ", mechanism = domain_discovery"
OWN = f"{GATED}, gate = false"
TWO, TWO_GATED = (f"{each}, max_groups_contributed = 2" for each in (OWN, GATED))
Rows = Sequence[tuple[object, ...]]


def mechanism_of(plan: Plan) -> DomainDiscovery:
    assert isinstance(plan.selection, DomainDiscovery)
    return plan.selection


def opening(plan: Plan, rows: Rows) -> float:
    """Return the probability that anything is drawn at all: 1 without a gate."""
    if plan.mechanism_plan.gate is None:
        return 1.0
    stage, k = mechanism_of(plan).discovery, mechanism_of(plan).k
    square = min(k, stage.max_groups_contributed) * WEIGHT_STEPS**2
    return find_opening(weights_of(rows).values(), k=k, threshold=stage.threshold, square=square)


def law_of(plan: Plan, rows: Rows) -> dict[tuple[Hashable, ...], float]:
    """Return the joint law of the discovered labels and of those that come back, in their order, without a gate."""
    mechanism, weights = mechanism_of(plan), weights_of(rows)
    counts = {row[0]: int(str(row[1])) for row in rows}
    passing = {
        label: reaching(mechanism.discovery, weight, mechanism.discovery.threshold) for label, weight in weights.items()
    }
    law: dict[tuple[Hashable, ...], float] = {}
    for held in product((False, True), repeat=len(rows)):
        domain = [label for label, kept in zip(weights, held, strict=True) if kept]
        chance = math.prod(passing[label] if label in domain else 1 - passing[label] for label in weights)
        peeled = peeling_law([counts[label] for label in domain], None, float(mechanism.epsilon), mechanism.k)
        for steps, mass in peeled.items():
            law[tuple(domain), tuple(domain[int(at)] for at in steps)] = chance * mass
    return law


@pytest.mark.properties
@pytest.mark.parametrize("more", [OWN, TWO, GATED, TWO_GATED])
def test_the_law_through_sql_is_as_claimed_for_all_neighbours(more: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every data set of up to two units with any labels, and every unit more; weights keep to two groups either way.

    What is compared shows the discovered labels too, which no answer does.
    """
    monkeypatch.setattr(planner, "OWN_CAP", 2)
    everybody = [unit for size in (1, 2, 3) for unit in combinations(LABELS, size)]
    plan = session_over().explain(NAMES.format(more=more))
    assert mechanism_of(plan).max_groups_contributed == 2
    found, worst = {}, 0.0
    for units, rows in counted_over(plan, (units for size in (0, 1, 2) for units in product(everybody, repeat=size))):
        kept = [min(2, len(unit)) for unit in units]
        assert sum(weights_of(rows).values()) == sum(groups * unit_weight(groups) for groups in kept)
        seen = {row[0] for row in rows}
        assert {row[0]: row[1] for row in rows} == {
            label: sum(label in unit for unit in units) for label in seen
        } or more in {TWO, TWO_GATED}
        assert sum(int(str(row[1])) for row in rows) == sum(kept) or more in {OWN, GATED}
        found[units] = behind(opening(plan, rows), law_of(plan, rows))  # type: ignore[arg-type]
    rho, delta = plan.worst_case.rho.value, 0.1
    for units in filter(None, found):
        for p, q in ((found[units], found[units[:-1]]), (found[units[:-1]], found[units])):
            worst = max(worst, *(hockey_stick(p, q, level) / (delta + cks(rho, level)) for level in LEVELS))
    assert (0.5 if more in {OWN, TWO} else 0.3) < worst <= 1 + ROUNDING


def test_counts_are_of_all_groups_unless_policy_or_query_bounds_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under the cap of weights a group that nobody keeps is not there, whatever it counts."""
    monkeypatch.setattr(planner, "OWN_CAP", 2)
    units = [("a", "b", None)] * 40 + [("a",)] * 7
    session = session_over(*rows_of(units))
    raw = counted(session, session.explain(NAMES.format(more=OWN)))
    bounded = counted(session, session.explain(NAMES.format(more=TWO)))
    assert [row[:2] for row in raw] == [("a", 47), ("b", 40), (None, 40)]
    assert [(row[0], row[2]) for row in raw] == [(row[0], row[2]) for row in bounded]
    assert sum(int(str(row[1])) for row in bounded) == 87
    of_policy = session_over(*rows_of(units), max_groups_contributed=2)
    assert sum(int(str(row[1])) for row in counted(of_policy, of_policy.explain(NAMES.format(more=OWN)))) == 87
    monkeypatch.setattr(planner, "OWN_CAP", 1)
    alone = session_over(*rows_of([("a", "b", None)]))
    ((_, count, weight),) = counted(alone, alone.explain(NAMES.format(more=OWN)))
    assert (count, weight) == (1, WEIGHT_STEPS)


@pytest.mark.properties
@pytest.mark.parametrize("more", [OWN, GATED])
@pytest.mark.parametrize("k", [1, 2, 5])
def test_what_is_sampled_has_the_law_that_was_computed(k: int, more: str) -> None:
    session = session_over(*rows_of([("a", "b"), ("a", None), ("a",), ("b",), ("b", None)]))
    plan = session.explain(NAMES.format(more=more).replace("TOP 2", f"TOP {k}"))
    rows = counted(session, plan)

    def law(*rows: tuple[object, ...]) -> dict[Hashable, float]:
        law: Counter[Hashable] = Counter()
        for (_, shown), mass in law_of(plan, rows).items():
            law[shown] += mass  # type: ignore[assignment]
        return behind(opening(plan, rows), law)

    def sample(runs: int) -> Counter[Hashable]:
        return Counter(tuple(each.table.column(0).to_pylist()) for each in drawn(session, plan, runs))

    less_weight = (*rows[0][:-1], int(str(rows[0][-1])) - 2 * WEIGHT_STEPS)
    assert singles_out(law(*rows), law(less_weight, *rows[1:]), sample=sample)


@pytest.mark.parametrize(
    ("k", "sql", "groups", "own"), list_pairs([1, 3, 10], [NAMES, COUNTS], [None, 1, 50], [OWN, GATED])
)
def test_both_halves_cost_no_more_than_a_limited_domain_reserves(
    sql: str, k: int, groups: int | None, own: str
) -> None:
    looked = GATE if own == GATED else Fraction(0)
    session = session_over(budget="0.9")
    text = sql.replace("TOP 2", f"TOP {k}").replace("epsilon = 1", "epsilon = 0.3")
    bound = "" if groups is None else f", max_groups_contributed = {groups}"
    plan, usual = session.explain(text.format(more=bound + own)), session.explain(text.format(more=bound))
    mechanism, item = mechanism_of(plan), Fraction("0.09") / 8
    stage = (1 - looked) * item / 2  # for each key
    assert mechanism.discovery.loss == ZCDP(dpsql.Rho(k * stage), plan.delta)
    assert 0 <= stage - mechanism.epsilon.value**2 / 8 < Fraction(1, 10**12)
    assert 0 <= usual.worst_case.rho.value - plan.worst_case.rho.value < Fraction(1, 10**10)
    assert (plan.worst_items, plan.delta) == (usual.worst_items, usual.delta)
    half, told = -(-k // 2), session.forecast(text.format(more=bound + own))
    counts = min(half, groups or half) if sql is COUNTS else 0
    assert told.loss == plan.worst_case
    found = looked * k * item + k * stage + counts * item
    assert told.half_loss.rho.value == found, "half of k are found, and nothing is to choose"


@pytest.mark.parametrize("sql", [NAMES, COUNTS])
@pytest.mark.parametrize(("labels", "k"), [("a", 3), ("", 3), ("abc", 2)])
def test_a_gate_costs_its_share_where_it_stays_closed_and_both_stages_theirs_behind_it(
    sql: str, labels: str, k: int
) -> None:
    session = session_over(*rows_of([tuple(labels)] * 20 if labels else []))
    plan, opened = session.explain(sql.format(more=GATED).replace("TOP 2", f"TOP {k}")), Counter[bool]()
    for each in drawn(session, plan, 300):
        open_ = each.legs == "looked first: something stands out"
        opened[open_] += 1
        keys = [GATE * k, (GATE + (1 - GATE) / 2) * k, GATE * k + (1 - GATE) / 2 * k + k * peeling_items(plan)]
        counts = len(each.table) if sql is COUNTS else 0
        costs = {dpsql.Rho((cost + counts) / 8): math.ceil(cost + counts) for cost in (keys[1:] if open_ else keys[:1])}
        assert costs[each.loss.rho] == each.items_charged  # type: ignore[union-attr]
        assert each.loss.rho.value <= plan.worst_case.rho.value  # type: ignore[union-attr]
        assert len(each.table) == k or each.loss.rho == dpsql.Rho((keys[open_] + counts) / 8)  # type: ignore[union-attr]
        assert open_ or (len(each.table), each.stopped_at_bottom) == (0, True)
    assert opened[True] > 0


def peeling_items(plan: Plan) -> Fraction:
    """Return how many items one draw of the second stage costs, which are of epsilon 1."""
    return mechanism_of(plan).epsilon.value ** 2


@pytest.mark.parametrize("sql", [NAMES, COUNTS])
@pytest.mark.parametrize(("labels", "k"), [("", 3), ("a", 3), ("ab", 3), ("abc", 3), ("abc", 1), ("abc", 2)])
def test_the_discovery_is_charged_and_the_rest_where_there_is_a_choice(sql: str, labels: str, k: int) -> None:
    session = session_over(*rows_of([tuple(labels)] * 300 if labels else []))
    answer = session.sql(sql.format(more=OWN).replace("TOP 2", f"TOP {k}"))
    receipt, returned = answer.receipt, len(answer)
    mechanism = mechanism_of(session.explain(sql.format(more=OWN).replace("TOP 2", f"TOP {k}")))
    assert returned == min(k, len(labels))
    counts = returned if sql is COUNTS else 0
    peeled = k if len(labels) > k else 0
    rho = Fraction(k, 16) + peeled * mechanism.epsilon.value**2 / 8 + Fraction(counts, 8)
    assert receipt.loss == ZCDP(dpsql.Rho(rho), dpsql.Delta("0.1"))
    assert receipt.items_charged == math.ceil((k + peeled) / 2) + counts
    assert Fraction(receipt.items_charged, 8) >= rho
    assert receipt.stopped_at_bottom == (returned < k)
    assert (session.budget.rho.spent, session.budget.rho.reserved) == (rho, 0)
    assert session.budget.delta.spent == Fraction(1, 10)


def test_counts_cost_an_item_each_without_a_bound_and_no_more_than_it_under_one() -> None:
    session = session_over(*rows_of([("a", "b")] * 300), budget="0.9")
    for more, counts in ((OWN, 2), (TWO, 2), (TWO.replace("= 2", "= 1"), 1)):
        answer = rebuilt(session, ledger=fresh_ledger(session)).sql(COUNTS.format(more=more))
        assert answer.receipt.items_charged == 1 + counts, "both labels are found, and nothing is to choose"
        assert answer.counts is not None
        assert answer.counts.variance == (SharedTotal(dpsql.Epsilon(1), 2).variance if counts == 2 else 4)
        wanted = 300 if counts == 2 else 150
        assert sum(count for _, count in answer.fetchall()) == pytest.approx(2 * wanted, abs=30)


def test_counts_of_all_groups_cost_an_item_each_beyond_the_cap_of_the_weights() -> None:
    table = {"reads": dpsql.PrivateTable("user_id")}
    policy = dpsql.Policy(dpsql.Budget(10, "0.5"), table, limits=dpsql.Limits(max_k=2_000))
    session = session_on(shared(CREATE), policy)
    text = COUNTS.replace("TOP 2", "TOP 1500").replace("epsilon = 1, delta = 0.1{more}", "mechanism = {}")
    worst = {name: session.explain(text.format(name)).worst_items for name in ("domain_discovery", "weighted_gaussian")}
    assert worst == {"domain_discovery": 3_000, "weighted_gaussian": 3_000}


def test_the_plan_says_what_is_capped_and_what_is_not() -> None:
    plan = session_over().explain(COUNTS.format(more=OWN))
    facts, mechanism = dict(plan.facts()), mechanism_of(plan)
    assert facts["mechanism"] == "domain_discovery"
    assert facts["groups per unit"] == "at most 100 (the mechanism's own cap on weights; counts are of all groups)"
    assert facts["peeling"].startswith("epsilon 0.7071 for each key")
    assert facts["threshold"].startswith(f"a noisy weight of {mechanism.discovery.threshold / WEIGHT_STEPS:.1f},")
    assert facts["items at most"] == (
        "4 (half of the keys at once, the other half only if more than k are found, and one for each count returned)"
    )
    behind_gate = dict(session_over().explain(COUNTS.format(more=GATED)).facts())
    assert behind_gate["if nothing stands out"].startswith("3 % of the keys' price, but for ")
    assert behind_gate["peeling"].startswith(f"epsilon {math.sqrt((1 - GATE) / 2):.4g} for each key")
    assert "if nothing stands out" not in facts
    assert plan.threshold_offset == Fraction(mechanism.discovery.threshold, WEIGHT_STEPS)
    assert (plan.max_groups_contributed, plan.k_bar) == (100, 0)
    of_query = dict(session_over().explain(NAMES.format(more=TWO)).facts())
    assert of_query["groups per unit"] == "at most 2"
    assert of_query["items at most"] == ("2 (half of the keys at once, the other half only if more than k are found)")
