"""The weighted Gaussian mechanism through SQL: one weight for each unit, keys at once, and the law that is claimed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from fractions import Fraction
from itertools import combinations, pairwise, permutations, product

import numpy as np
import pytest
from support.groups_kit import COUNTS, LABELS, LEVELS, NAMES, Law, Unit, counted, drawn, rows_of, session_over, stick
from support.laws import ROUNDING, chance, cks, fits, goodness, singles_out
from support.looks_kit import GATE, behind, find_opening, second_alone
from support.pairs import list_pairs
from support.session_kit import session_on, shared
from support.sets_kit import counted_over
from support.weights_kit import Weights, reaching, weights_of

import dpsql
from dpsql.accounting import ZCDP
from dpsql.errors import UsageError
from dpsql.mechanisms import WEIGHT_STEPS, SharedTotal, WeightedGaussian, unit_weight
from dpsql.plan import Plan, compute_release_key
from dpsql.sql.rewrite.engine_query import Bound, rewrite_weighted

GATED = ", mechanism = weighted_gaussian"
OWN = f"{GATED}, gate = false"
TWO, TWO_GATED = (f"{each}, max_groups_contributed = 2" for each in (OWN, GATED))
CELL = WEIGHT_STEPS // 5  # noisy weights are told apart no finer than this: post-processing, so still within the claim


def mechanism_of(plan: Plan) -> WeightedGaussian:
    assert isinstance(plan.selection, WeightedGaussian)
    return plan.selection


def cells_of(mechanism: WeightedGaussian, weight: int | None, *, cell: int = CELL, reach: int = 40) -> Law:
    """Return the law of what is seen of one label: nothing, or the cell of its noisy weight from the threshold on."""
    if weight is None:
        return np.array([1.0, *([0.0] * reach)])
    edges = [reaching(mechanism, weight, mechanism.threshold + at * cell) for at in range(reach)] + [0.0]
    return np.array([1.0 - edges[0], *(above - below for above, below in pairwise(edges))])


def law_of(mechanism: WeightedGaussian, weights: Weights) -> Law:
    """Return the joint law of what is seen of every label; the order and the cut are post-processing of it."""
    law = np.ones(())
    for label in LABELS:
        law = np.multiply.outer(law, cells_of(mechanism, weights.get(label)))
    return law


def opening(plan: Plan, weights: Weights) -> float:
    """Return the probability that an answer is drawn at all: 1 without a gate."""
    mechanism = mechanism_of(plan)
    if plan.mechanism_plan.gate is None:
        return 1.0
    square = min(mechanism.k, mechanism.max_groups_contributed) * WEIGHT_STEPS**2
    return find_opening(weights.values(), k=mechanism.k, threshold=mechanism.threshold, square=square)


@pytest.mark.properties
@pytest.mark.parametrize("more", [TWO, TWO_GATED])
def test_the_law_through_sql_is_as_claimed_for_all_neighbours(more: str) -> None:
    """Every data set of up to two units with any labels, NULL among them, and every unit more; two groups count."""
    everybody = [unit for size in (1, 2, 3) for unit in combinations(LABELS, size)]
    plan = session_over().explain(NAMES.format(more=more))
    mechanism, worst = mechanism_of(plan), 0.0
    found: dict[tuple[Unit, ...], Law] = {}
    for units, rows in counted_over(plan, (units for size in (0, 1, 2) for units in product(everybody, repeat=size))):
        assert [row[0] for row in rows] == [label for label in LABELS if any(row[0] == label for row in rows)]
        kept = [min(2, len(unit)) for unit in units]
        assert sum(row[1] for row in rows) == sum(kept)  # type: ignore[misc]
        assert sum(weights_of(rows).values()) == sum(groups * unit_weight(groups) for groups in kept)
        opens = opening(plan, weights_of(rows))
        found[units] = np.append(opens * law_of(mechanism, weights_of(rows)), 1 - opens)
    for units in filter(None, found):
        less = units[:-1]  # whoever stays keeps their number, and with it the groups that count
        for p, q in ((found[units], found[less]), (found[less], found[units])):
            claims = [(stick(p, q, level), 0.1 + cks(plan.worst_case.rho.value, level)) for level in LEVELS]
            worst = max(worst, *(loss / claim for loss, claim in claims))
    assert (0.5 if more == TWO else 0.3) < worst <= 1 + ROUNDING


@pytest.mark.properties
@pytest.mark.parametrize("cap", [None, 1, 2, 3, 4])
def test_the_engine_adds_up_the_very_weights_of_the_mechanism(cap: int | None) -> None:
    """Rows repeat, NULL is a label, a NULL unit is nobody; what is kept of a unit is the same in all its groups."""
    units = [("a",), ("a", "b"), ("a", "b", None), ("b", None), ("a", "b", None)]
    nobody = "INSERT INTO reads VALUES (NULL, 'a'), (NULL, NULL), (NULL, 'z')"
    session = session_over(*rows_of(units), nobody)
    bound = "" if cap is None else f", max_groups_contributed = {cap}"
    rows = counted(session, session.explain(NAMES.format(more=OWN + bound)))
    wanted: dict[object, list[int]] = {}
    for number, unit in enumerate(units):
        alone = session_over(*rows_of([() if at != number else each for at, each in enumerate(units)]))
        plan = session.explain(NAMES.format(more=f"{OWN}{bound}"))
        kept = [row[0] for row in counted(alone, plan)]
        assert len(kept) == min(len(unit), cap or 3)
        for label in kept:
            count, weight = wanted.get(label, [0, 0])
            wanted[label] = [count + 1, weight + unit_weight(len(kept))]
    assert {label: measures for label, *measures in rows} == wanted


@pytest.mark.properties
@pytest.mark.parametrize("more", [TWO, TWO_GATED])
@pytest.mark.parametrize("groups", [1, 2, 3])
def test_one_unit_is_seen_with_the_probability_that_is_claimed(groups: int, more: str) -> None:
    """One unit with one, two or three labels, of which two are kept, against nobody."""
    session = session_over(*rows_of([LABELS[:groups]]))
    plan = session.explain(NAMES.format(more=more))
    mechanism, kept = mechanism_of(plan), min(groups, 2)
    opens = opening(plan, weights_of(counted(session, plan)))

    def expected(weight: int) -> float:
        return opens * (1 - (1 - reaching(mechanism, weight, mechanism.threshold)) ** kept)

    assert expected(unit_weight(kept)) <= 0.1
    careless = WEIGHT_STEPS if kept > 1 else WEIGHT_STEPS * 3 // 2
    laws = [chance(expected(weight)) for weight in (unit_weight(kept), careless)]
    assert singles_out(*laws, sample=lambda runs: Counter(len(each.table) > 0 for each in drawn(session, plan, runs)))


def order_law(mechanism: WeightedGaussian, weights: Weights, k: int) -> dict[Hashable, float]:
    """Return the law of the released labels in their order, to the width of fine cells, within which chance decides."""
    labels, reach = list(weights), 2_500
    cells = [cells_of(mechanism, weights[label], cell=WEIGHT_STEPS // 100, reach=reach) for label in labels]
    law: dict[Hashable, float] = {}
    for size in range(len(labels) + 1):
        for order in permutations(range(len(labels)), size):
            mass = math.prod(cells[at][0] for at in range(len(labels)) if at not in order)
            lowest, above = np.ones(1), np.ones(reach)
            for at in order:  # lowest: where the last of those so far stands; above: that it stands above a place
                lowest = cells[at][1:] * above
                above = np.cumsum(lowest[::-1])[::-1] - lowest / 2
            shown = tuple(labels[at] for at in order[:k])
            law[shown] = law.get(shown, 0.0) + mass * float(lowest.sum())
    return law


@pytest.mark.properties
@pytest.mark.parametrize("more", [TWO, TWO_GATED])
@pytest.mark.parametrize("k", [1, 2, 3])
def test_what_is_sampled_has_the_law_that_was_computed(k: int, more: str) -> None:
    session = session_over(*rows_of([("a", "b"), ("a", None), ("a",), ("b",)]))
    plan = session.explain(NAMES.format(more=more).replace("TOP 2", f"TOP {k}"))
    weights = weights_of(counted(session, plan))
    law = behind(opening(plan, weights), order_law(mechanism_of(plan), weights, k))
    assert sum(law.values()) == pytest.approx(1)

    def p_value() -> float:
        seen = Counter(tuple(each.table.column(0).to_pylist()) for each in drawn(session, plan, 1_500))
        return goodness(seen, law)  # type: ignore[arg-type]

    assert fits(p_value)


@pytest.mark.parametrize(
    ("k", "sql", "groups", "own"), list_pairs([1, 2, 10], [NAMES, COUNTS], [None, 1, 2, 50], [OWN, GATED])
)
def test_the_price_is_what_a_limited_domain_reserves(sql: str, k: int, groups: int | None, own: str) -> None:
    looked = GATE if own == GATED else 0
    session = session_over(*rows_of([("a", "b")]), budget="0.9")
    text = sql.replace("TOP 2", f"TOP {k}").replace("epsilon = 1", "epsilon = 0.3")
    bound = "" if groups is None else f", max_groups_contributed = {groups}"
    plan = session.explain(text.format(more=bound + own))
    item = Fraction("0.09") / 8
    assert plan.worst_case == session.explain(text.format(more=bound)).worst_case
    assert mechanism_of(plan).loss == ZCDP(dpsql.Rho(k * item * (1 - looked)), plan.delta)
    assert plan.worst_items == k + (min(k, groups or k) if sql is COUNTS else 0)
    half = -(-k // 2)
    counts = min(half, groups or half) if sql is COUNTS else 0
    told = session.forecast(text.format(more=bound + own))
    assert told.loss == plan.worst_case
    assert told.half_loss == ZCDP(dpsql.Rho((k + counts) * item), plan.delta)


@pytest.mark.parametrize("sql", [NAMES, COUNTS])
@pytest.mark.parametrize("units", [[], [("a",)], [("a", "b")] * 60, [("a", "b", None)] * 60])
def test_keys_are_charged_at_once_and_counts_by_what_comes_back(sql: str, units: list[Unit]) -> None:
    session = session_over(*rows_of(units))
    text = sql.format(more=OWN).replace("TOP 2", "TOP 3")
    answer = session.sql(text)
    receipt, items = answer.receipt, 3 + (len(answer) if sql is COUNTS else 0)
    assert len(answer) >= (len(units[0]) if len(units) > 1 else 0)
    assert receipt.loss == ZCDP(dpsql.Rho(Fraction(items, 8)), dpsql.Delta("0.1"))
    assert (receipt.items_charged, receipt.k, receipt.k_bar) == (items, 3, 0)
    assert receipt.stopped_at_bottom == (len(answer) < 3)
    assert session.budget.rho.spent == receipt.loss.rho.value
    assert session.budget.delta.spent == Fraction(1, 10)
    assert session.budget.rho.reserved == 0
    assert receipt.mechanism == "weighted_gaussian"
    assert ("all k were returned" in str(receipt.details())) == (len(answer) == 3)
    assert "BOTTOM" not in str(receipt.details())


@pytest.mark.parametrize("sql", [NAMES, COUNTS])
@pytest.mark.parametrize("units", [[], [("a", "b")] * 7])
def test_a_gate_costs_its_share_where_it_stays_closed_and_the_keys_where_it_opens(sql: str, units: list[Unit]) -> None:
    session = session_over(*rows_of(units))
    plan, opened = session.explain(sql.format(more=GATED).replace("TOP 2", "TOP 3")), Counter[bool]()
    for each in drawn(session, plan, 200):
        open_ = each.legs == "looked first: something stands out"
        opened[open_] += 1
        keys = 3 if open_ else 3 * GATE
        counts = len(each.table) if sql is COUNTS else 0
        assert each.loss == ZCDP(dpsql.Rho((keys + counts) / Fraction(8)), dpsql.Delta("0.1"))
        assert each.items_charged == math.ceil(keys + counts)
        assert open_ or (len(each.table), each.stopped_at_bottom) == (0, True)
    assert set(opened) == {True, False}, "each has a chance of a tenth or more"


def test_counts_are_of_the_kept_groups_with_their_own_noise() -> None:
    rows = "INSERT INTO reads SELECT i, l FROM range(600) t(i), (VALUES ('a'), ('b'), ('c')) v(l)"
    session = session_over(rows, budget="0.99")
    for more, bound, total in ((OWN, None, 1_800), (TWO, 2, 1_200), (TWO.replace("= 2", "= 1"), 1, 600)):
        answer = session.sql(COUNTS.format(more=more).replace("TOP 2", "TOP 3"))
        assert answer.counts is not None
        assert answer.counts.variance == (4 if bound == 1 else SharedTotal(dpsql.Epsilon(1), 3, bound).variance)
        assert sum(count for _, count in answer.fetchall()) == pytest.approx(total, abs=40)
    assert session.sql(NAMES.format(more=OWN)).counts is None


def test_the_order_is_that_of_weights_and_not_of_counts() -> None:
    """Forty units that are in b alone weigh more than sixty that are in a and nine others."""
    session = session_over(
        "INSERT INTO reads SELECT i, 'b' FROM range(40) t(i)",
        "INSERT INTO reads SELECT 100 + i, l FROM range(60) t(i), (SELECT 'a' || j FROM range(10) r(j)) v(l)",
    )
    answers = session.explain(COUNTS.format(more=OWN).replace("TOP 2", "TOP 11"))
    first = Counter(each.table.to_pylist()[0]["article"] for each in drawn(session, answers, 50))
    assert first["b"] == 50


def test_the_plan_says_what_a_weight_is_and_who_set_the_cap() -> None:
    session = session_over()
    plan = session.explain(COUNTS.format(more=OWN))
    facts, mechanism = dict(plan.facts()), mechanism_of(plan)
    assert mechanism.max_groups_contributed == plan.max_groups_contributed == 100
    assert facts["mechanism"] == "weighted_gaussian"
    assert facts["groups per unit"] == "at most 100 (the mechanism's own cap on weights; counts are of all groups)"
    assert facts["weights"] == "1/sqrt(t) of each unit in each of its t groups"
    assert facts["threshold"].startswith(f"a noisy weight of {mechanism.threshold / WEIGHT_STEPS:.1f},")
    assert facts["noise"].startswith(f"sigma {math.sqrt(1 / (2 * 2 / 8)):.1f} on the weight of every group")
    assert facts["items at most"] == "4 (the keys at once, and one for each count returned)"
    assert dict(session.explain(NAMES.format(more=OWN)).facts())["items at most"] == "2 (the keys at once)"
    behind_gate = dict(session.explain(COUNTS.format(more=GATED)).facts())
    opens = Fraction("0.375") - GATE  # of what is left: 37.5 % of the keys' price is what nothing costs on average
    assert behind_gate["if nothing stands out"] == (
        f"3 % of the keys' price, but for {float(100 * opens / (1 - GATE)):.0f} of 100 such queries"
    )
    sigma = math.sqrt(1 / (2 * float(1 - GATE) * 2 / 8))
    assert behind_gate["noise"].startswith(f"sigma {sigma:.1f} on the weight of every group")
    assert "if nothing stands out" not in facts
    assert plan.threshold_offset == Fraction(mechanism.threshold, WEIGHT_STEPS)
    assert plan.engine_sql.endswith("ORDER BY dpsql_key_1 ASC NULLS LAST")
    assert dict(session.explain(COUNTS.format(more=TWO)).facts())["groups per unit"] == "at most 2"
    of_policy = session_over(max_groups_contributed=4).explain(COUNTS.format(more=OWN))
    assert dict(of_policy.facts())["groups per unit"] == "at most 4"
    assert mechanism_of(of_policy).max_groups_contributed == 4
    shown = session.sql("EXPLAIN " + COUNTS.format(more=OWN))
    assert ("mechanism", "weighted_gaussian") in shown.fetchall()


def test_weights_of_another_bound_are_refused() -> None:
    plan = session_over().explain(NAMES.format(more=TWO))
    for weights in ([], [1], [3, 2, 1]):
        with pytest.raises(UsageError) as caught:
            rewrite_weighted(plan.query, bound=Bound(2, (1, 2)), weights=weights)
        assert caught.value.code == "bound-range"
    with pytest.raises(UsageError):
        rewrite_weighted(plan.query, bound=None, weights=[])


@pytest.mark.parametrize("keys", ["s", "x", "d", "s, x", "x, d, s", "lower(s), d"])
@pytest.mark.parametrize("name", ["weighted_gaussian", "domain_discovery", "two_looks"])
def test_every_kind_of_key_has_the_count_that_the_other_mechanisms_read(name: str, keys: str) -> None:
    """NaN, -0.0, NULL, case and the ends of the calendar are labels."""
    rows = [
        "('A', 'nan', DATE '2026-01-01', 10)",
        "('a', '0.0', DATE '2026-01-02', 30)",
        "(NULL, '-0.0', NULL, 60)",
        "('', NULL, DATE '9999-12-31', 110)",
    ]
    connection = shared(
        "CREATE TABLE kinds AS SELECT i AS user_id, s, x::DOUBLE AS x, d "
        f"FROM (VALUES {', '.join(rows)}) v(s, x, d, n), range(n) AS r(i)"
    )
    policy = dpsql.Policy(dpsql.Budget(50, "0.5"), {"kinds": dpsql.PrivateTable("user_id")})
    session = session_on(connection, policy)
    sql = f"SELECT {keys} FROM kinds GROUP BY ALL TOP 9 PRIVATE WITH (mechanism = {{}})"
    exact = counted(session, second_alone(session.explain(sql.format(name))))
    assert sorted(repr(row[:-1]) for row in exact) == sorted(
        map(repr, counted(session, session.explain(sql.format("limited_domain"))))
    )
    assert sum(int(str(row[-1])) for row in exact) == sum(
        groups * unit_weight(groups) * units for groups, units in sizes_of(exact).items()
    )


def test_a_gate_is_another_release_until_it_has_no_place() -> None:
    """Beside known names there is none: then both texts are of one law."""
    session = session_over(*rows_of([("a", "b")] * 60), budget="0.99")
    texts = [COUNTS.format(more=more) for more in (OWN, GATED)]
    assert len({compute_release_key(session.explain(text)) for text in texts}) == 2
    assert len(session.sql(texts[0])) == 2
    assert len({compute_release_key(session.explain(text)) for text in texts}) == 1


def sizes_of(exact: Sequence[tuple[object, ...]]) -> dict[int, int]:
    """Return how many units are in how many groups: each group holds the first units of all, up to its count."""
    counts = [int(str(row[-2])) for row in exact]
    return Counter(sum(count > unit for count in counts) for unit in range(max(counts)))
