"""The Gaussian histogram through SQL: all groups in the order of labels, one price, and the law that is claimed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Mapping
from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest
from support.groups_kit import (
    COUNTS,
    CREATE,
    LABELS,
    LEVELS,
    NAMES,
    Law,
    Unit,
    counted,
    drawn,
    rows_of,
    session_over,
    stick,
)
from support.laws import ROUNDING, chance, cks, discrete_gaussian_law, singles_out
from support.looks_kit import GATE, find_opening
from support.pairs import list_pairs
from support.session_kit import session_on, shared
from support.sets_kit import counted_over

import dpsql
from dpsql.accounting import ZCDP, discrete_gaussian_tail
from dpsql.mechanisms import GaussianHistogram
from dpsql.plan import Plan, compute_release_key

GATED = ", mechanism = gaussian_histogram, max_groups_contributed = 2"
ALL = f"{GATED}, gate = false"


def mechanism_of(plan: Plan) -> GaussianHistogram:
    assert isinstance(plan.selection, GaussianHistogram)
    return plan.selection


def passing(mechanism: GaussianHistogram, count: int | None) -> dict[int | None, float]:
    """Return the law of what is seen of one label: its noisy count, or nothing."""
    if count is None:
        return {None: 1.0}
    law = discrete_gaussian_law(mechanism.variance, 9.0)
    seen: dict[int | None, float] = {count + n: mass for n, mass in law.items() if count + n >= mechanism.threshold}
    return {None: 1.0 - math.fsum(seen.values()), **seen}


def law_of(mechanism: GaussianHistogram, counts: dict[object, int]) -> Law:
    """Return the joint law of what is seen of every label; the order and the cut are post-processing of it."""
    events = (None, *range(mechanism.threshold, mechanism.threshold + 30))
    law = np.ones(())
    for label in LABELS:
        one = passing(mechanism, counts.get(label))
        law = np.multiply.outer(law, np.array([one.get(event, 0.0) for event in events]))
    return law


def opening(plan: Plan, counts: Mapping[object, object]) -> float:
    """Return the probability that an answer is drawn at all: 1 without a gate."""
    mechanism = mechanism_of(plan)
    if plan.mechanism_plan.gate is None:
        return 1.0
    moved, values = min(mechanism.k, mechanism.max_groups_contributed), [int(str(each)) for each in counts.values()]
    return find_opening(values, k=mechanism.k, threshold=mechanism.threshold, square=moved**2)


@pytest.mark.properties
@pytest.mark.parametrize("more", [ALL, GATED])
def test_the_law_through_sql_is_as_claimed_for_all_neighbours(more: str) -> None:
    """Every data set of up to two units with any labels, NULL among them, and every unit more; two groups count."""
    everybody = [unit for size in (1, 2, 3) for unit in combinations(LABELS, size)]
    plan = session_over().explain(NAMES.format(more=more))
    mechanism, worst = mechanism_of(plan), 0.0
    found: dict[tuple[Unit, ...], Law] = {}
    for units, rows in counted_over(plan, (units for size in (0, 1, 2) for units in product(everybody, repeat=size))):
        assert [row[0] for row in rows] == [label for label in LABELS if any(row[0] == label for row in rows)]
        assert sum(row[1] for row in rows) == sum(min(2, len(unit)) for unit in units)  # type: ignore[misc]
        opens = opening(plan, dict(rows))  # type: ignore[arg-type]
        found[units] = np.append(opens * law_of(mechanism, dict(rows)), 1 - opens)  # type: ignore[arg-type]
    for units in filter(None, found):
        less = units[:-1]  # whoever stays keeps their number, and with it the groups that count
        for p, q in ((found[units], found[less]), (found[less], found[units])):
            claims = [(stick(p, q, level), 0.1 + cks(plan.worst_case.rho.value, level)) for level in LEVELS]
            worst = max(worst, *(loss / claim for loss, claim in claims))
    assert (0.5 if more == ALL else 0.25) < worst <= 1 + ROUNDING


@pytest.mark.properties
@pytest.mark.parametrize("more", [ALL, GATED])
@pytest.mark.parametrize("groups", [2, 3])
def test_one_unit_is_seen_with_the_probability_that_is_claimed_and_no_more(groups: int, more: str) -> None:
    """One unit with two labels, or with three of which two are kept, against nobody; then one step too low."""
    session = session_over(*rows_of([LABELS[:groups]]))
    plan = session.explain(NAMES.format(more=more))
    mechanism, opens = mechanism_of(plan), opening(plan, {"a": 1, "b": 1})
    alone = discrete_gaussian_tail(mechanism.variance, mechanism.threshold - 1)
    expected, careless = (
        1 - (1 - tail) ** 2 for tail in (alone, discrete_gaussian_tail(mechanism.variance, mechanism.threshold - 2))
    )
    assert expected <= 0.1 < careless
    laws = chance(opens * expected), chance(opens * careless)
    assert singles_out(*laws, sample=lambda runs: Counter(len(each.table) > 0 for each in drawn(session, plan, runs)))


@pytest.mark.parametrize("larger", ["a", "b"])
def test_labels_and_never_exact_counts_decide_between_equal_noisy_counts(larger: str) -> None:
    counts = {"a": 40, "b": 40, larger: 42}
    session = session_over(
        *(f"INSERT INTO reads SELECT i, '{label}' FROM range({n}) t(i)" for label, n in counts.items())
    )
    plan = session.explain(COUNTS.format(more=ALL))
    answers = [each.table.to_pylist() for each in drawn(session, plan, 500)]
    ties = [tuple(row["article"] for row in rows) for rows in answers if len({row["n"] for row in rows}) == 1]
    assert set(ties) == {("a", "b")}
    assert len(ties) > 10  # of about 55


@pytest.mark.properties
@pytest.mark.parametrize("more", [ALL, GATED])
def test_what_is_sampled_has_the_law_that_was_computed(more: str) -> None:
    session = session_over(*rows_of([("a", "b"), ("a", None), ("a",)]))
    plan = session.explain(COUNTS.format(more=more).replace("TOP 2", "TOP 3"))
    mechanism, counts = mechanism_of(plan), dict(counted(session, plan))

    def law(counts: Mapping[object, object]) -> dict[Hashable, float]:
        ones = [passing(mechanism, counts[label]) for label in LABELS]  # type: ignore[arg-type]
        opens, none = opening(plan, counts), (None,) * len(LABELS)
        law: dict[Hashable, float] = {
            tuple(seen for seen, _ in event): opens * math.prod(mass for _, mass in event)
            for event in product(*(one.items() for one in ones))
        }
        return law | {none: law[none] + 1 - opens}

    def sample(runs: int) -> Counter[Hashable]:
        seen: Counter[Hashable] = Counter()
        for each in drawn(session, plan, runs):
            noisy = {row["article"]: row["n"] for row in each.table.to_pylist()}
            seen[tuple(noisy.get(label) for label in LABELS)] += 1
        return seen

    assert singles_out(law(counts), law(counts | {"a": 2}), sample=sample)


@pytest.mark.parametrize(
    ("k", "sql", "groups", "gate"), list_pairs([1, 2, 10], [NAMES, COUNTS], [1, 2, 50], [", gate = false", ""])
)
def test_the_price_is_what_a_limited_domain_reserves(sql: str, k: int, groups: int, gate: str) -> None:
    looked = 0 if gate else GATE
    session = session_over(*rows_of([("a", "b")]), budget="0.9")
    text = sql.replace("TOP 2", f"TOP {k}").replace("epsilon = 1", "epsilon = 0.3")
    bound = f", max_groups_contributed = {groups}"
    plan = session.explain(text.format(more=f"{bound}, mechanism = gaussian_histogram{gate}"))
    assert plan.worst_case == session.explain(text.format(more=bound)).worst_case
    items, item = k + (min(k, groups) if sql is COUNTS else 0), Fraction("0.09") / 8
    assert plan.worst_case == ZCDP(dpsql.Rho(items * item), plan.delta)
    left = dpsql.Rho((items - looked * k) * item)  # a look costs a share of the keys alone
    assert mechanism_of(plan).loss == ZCDP(left, plan.delta)
    assert mechanism_of(plan).variance == groups / (2 * left.value)
    told = session.forecast(text.format(more=f"{bound}, mechanism = gaussian_histogram{gate}"))
    assert told.half_loss == told.loss == plan.worst_case


@pytest.mark.parametrize("units", [[], [("a",)], [("a", "b")] * 60])
def test_the_whole_price_is_charged_whatever_comes_back(units: list[Unit]) -> None:
    session = session_over(*rows_of(units))
    answer = session.sql(COUNTS.format(more=ALL))
    receipt = answer.receipt
    assert len(answer) == (2 if len(units) > 1 else len(answer))
    assert receipt.loss == session.explain(COUNTS.format(more=ALL)).worst_case
    assert (receipt.items_charged, receipt.k, receipt.k_bar) == (4, 2, 0)
    assert receipt.loss.rho.value == receipt.items_charged * Fraction(1, 8)
    assert receipt.stopped_at_bottom == (len(answer) < 2)
    assert session.budget.rho.spent == receipt.loss.rho.value
    assert session.budget.delta.spent == Fraction(1, 10)
    assert session.budget.rho.reserved == 0
    assert ("all k were returned" in str(receipt.details())) == (len(answer) == 2)
    assert "BOTTOM" not in str(receipt.details())


@pytest.mark.parametrize("units", [[], [("a", "b")] * 9])
def test_a_gate_costs_its_share_of_the_keys_where_it_stays_closed_and_all_where_it_opens(units: list[Unit]) -> None:
    session = session_over(*rows_of(units))
    plan, opened = session.explain(COUNTS.format(more=GATED)), Counter[bool]()
    for each in drawn(session, plan, 200):
        open_ = each.legs == "looked first: something stands out"
        opened[open_] += 1
        items = 4 if open_ else 2 * GATE
        assert each.loss == ZCDP(dpsql.Rho(items / Fraction(8)), dpsql.Delta("0.1"))
        assert each.items_charged == math.ceil(items)
        assert open_ or (len(each.table), each.stopped_at_bottom) == (0, True)
    assert set(opened) == {True, False}, "each has a chance of a tenth or more"


def test_the_counts_are_those_that_chose_and_intervals_know_their_noise() -> None:
    session = session_over(*rows_of([("a", "b")] * 60))
    plan, answer = session.explain(COUNTS.format(more=ALL)), session.sql(COUNTS.format(more=ALL))
    noisy = [count for _, count in answer.fetchall()]
    assert noisy == sorted(noisy, reverse=True)
    assert answer.counts is not None
    assert answer.counts.variance == mechanism_of(plan).variance == 2  # 2 groups, four items of 1/8
    assert answer.intervals().column("low").to_pylist() == [count - answer.counts.reach(0.95) for count in noisy]
    assert session.sql(NAMES.format(more=ALL)).counts is None


def test_the_plan_says_what_is_read_and_what_must_be_reached() -> None:
    session = session_over(max_groups_contributed=4)
    plan = session.explain(NAMES.format(more=", mechanism = gaussian_histogram"))
    facts, mechanism = dict(plan.facts()), mechanism_of(plan)
    assert mechanism.max_groups_contributed == plan.max_groups_contributed == 4
    assert facts["mechanism"] == "gaussian_histogram"
    assert facts["groups per unit"] == "at most 4"
    assert f"a noisy count of {mechanism.threshold} units" in facts["threshold"]
    assert plan.threshold_offset == mechanism.threshold
    assert "all groups are read" in facts["noise"]
    assert "paid at once" in facts["items at most"]
    assert "LIMIT" not in plan.engine_sql
    assert plan.engine_sql.endswith("ORDER BY dpsql_key_1 ASC NULLS LAST")
    assert "dpsql_rank <= 4" in plan.engine_sql
    shown = session.sql("EXPLAIN " + NAMES.format(more=", mechanism = gaussian_histogram"))
    assert ("mechanism", "gaussian_histogram") in shown.fetchall()


@pytest.mark.parametrize(("more", "left"), [(ALL, Fraction(1)), (GATED, 1 - GATE)])
def test_more_than_the_noise_is_made_for_is_refused_with_words(more: str, left: Fraction) -> None:
    most = math.floor(100 * 8 / left)  # items of 1/8
    limits, table = dpsql.Limits(max_epsilon=1, max_k=most + 1), dpsql.PrivateTable("user_id")
    session = session_on(shared(CREATE), dpsql.Policy(dpsql.Budget(10, "0.5"), {"reads": table}, limits=limits))
    assert session.explain(NAMES.format(more=more).replace("TOP 2", f"TOP {most}")).k == most
    with pytest.raises(dpsql.Refusal, match="rho") as caught:
        session.explain(NAMES.format(more=more).replace("TOP 2", f"TOP {most + 1}"))
    assert caught.value.code == "option-range"


def test_another_price_is_another_question() -> None:
    """Nine keys at 0.8, and nine with seven counts at 0.6, are one mechanism, but told in other items."""
    session, more = session_over(), ALL.replace("= 2", "= 7")
    names, counts = NAMES.format(more=more), COUNTS.format(more=more)
    one = session.explain(names.replace("TOP 2", "TOP 9").replace("epsilon = 1", "epsilon = 0.8"))
    other = session.explain(counts.replace("TOP 2", "TOP 9").replace("epsilon = 1", "epsilon = 0.6"))
    assert one.selection == other.selection
    assert (one.worst_items, other.worst_items) == (9, 16)
    assert compute_release_key(one) != compute_release_key(other)


@pytest.mark.parametrize(
    "keys", ["s", "x", "d", "b", "t", "s, x", "d, b, s", "lower(s), t", "CASE WHEN x > 1 THEN 'big' END"]
)
def test_every_kind_of_key_comes_back_with_its_own_count(keys: str) -> None:
    """The counts differ by hundreds, so a count at a wrong label would be seen; NaN, -0.0, NULL and case are labels."""
    rows = [
        "('A', 'nan', DATE '2026-01-01', true, TIMESTAMP '2026-01-01 10:00:00', 100)",
        "('a', '0.0', DATE '2026-01-02', false, NULL, 300)",
        "(NULL, '-0.0', NULL, NULL, TIMESTAMP '1969-12-31 23:59:59', 600)",
        "('é', 'inf', DATE '0001-01-01', true, TIMESTAMP '2026-01-01 10:00:01', 1100)",
        "('', NULL, DATE '9999-12-31', false, TIMESTAMP '2026-01-01 10:00:00', 2100)",
    ]
    values = f"(VALUES {', '.join(rows)}) v(s, x, d, b, t, n)"
    connection = shared(
        f"CREATE TABLE kinds AS SELECT i AS user_id, s, x::DOUBLE AS x, d, b, t FROM {values}, range(n) AS r(i)",
        "ALTER TABLE kinds ALTER s TYPE VARCHAR COLLATE NOCASE",
    )
    private = {"kinds": dpsql.PrivateTable("user_id", max_groups_contributed=5)}
    policy = dpsql.Policy(dpsql.Budget(50, "0.5"), private, limits=dpsql.Limits(max_epsilon=1))
    session = session_on(connection, policy)
    asked = f"SELECT {keys}, COUNT(DISTINCT user_id) AS n FROM kinds GROUP BY ALL"
    sql = f"{asked} TOP {{k}} PRIVATE WITH (epsilon = 1{{how}})"
    how = ", mechanism = gaussian_histogram, gate = false"
    most = session.explain(sql.format(k=9, how=how))
    exact = counted(session, most)
    by_count = counted(session, session.explain(sql.format(k=9, how=", mechanism = limited_domain")))
    assert sorted(map(repr, exact)) == sorted(map(repr, by_count))
    answer = session.sql(sql.format(k=9, how=how))
    wanted = {repr(row[:-1]): row[-1] for row in exact}
    order = list(dict.fromkeys(most.query.outputs[at].key for at in range(len(answer.arrow().column_names) - 1)))
    for row in answer.fetchall():
        canonical = tuple(row[order.index(key)] for key in range(len(order)))
        assert abs(row[-1] - wanted[repr(canonical)]) < 40  # type: ignore[operator]
    assert len(answer) == len(exact)
