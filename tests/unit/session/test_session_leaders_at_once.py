"""The limited domain with Laplace noise through SQL: leaders, one price, and the law that is claimed."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest
from support.groups_kit import COUNTS, LABELS, NAMES, Law, Unit, drawn, rows_of, session_over, stick
from support.intervals_kit import interval
from support.laws import ROUNDING, chance, cks, discrete_laplace_law, singles_out
from support.pairs import list_pairs
from support.sets_kit import counted_over

from dpsql.mechanisms import LaplaceLimitedDomain
from dpsql.plan import Plan

AT_ONCE = ", mechanism = laplace_limited_domain, max_groups_contributed = 2"
REACH = 30  # of noise that is enumerated; beyond it lies less than 1e-4 of the mass


def mechanism_of(plan: Plan) -> LaplaceLimitedDomain:
    assert isinstance(plan.selection, LaplaceLimitedDomain)
    return plan.selection


def noise_of(mechanism: LaplaceLimitedDomain) -> dict[int, float]:
    return {n: mass for n, mass in discrete_laplace_law(mechanism.scale, 36.0).items() if abs(n) <= REACH}


def law_of(mechanism: LaplaceLimitedDomain, rows: list[tuple[object, ...]]) -> Law:
    """Return the joint law of what is seen of every label; the order and the cut are post-processing of it."""
    counts: dict[object, int] = dict(rows[: mechanism.k_bar])  # type: ignore[arg-type]
    following = int(str(rows[mechanism.k_bar][1])) if len(rows) > mechanism.k_bar else 0
    noise, size = noise_of(mechanism), 3 * REACH
    ones = []
    for label in LABELS:
        one = np.zeros((len(noise), size + 1))  # by the draw of BOTTOM; the first cell is for what is not seen
        for row, bottom in enumerate(noise):
            threshold = following + 1 + mechanism.offset + bottom
            for draw, part in noise.items() if label in counts else ():
                value = counts[label] + draw
                one[row, 0 if value < threshold else value + REACH + 1] += part
        ones.append(one if label in counts else one + (np.arange(size + 1) == 0))
    return np.einsum("i,ij,ik,il->jkl", np.array([*noise.values()]), *ones, optimize=True)


@pytest.mark.properties
def test_the_law_through_sql_is_as_claimed_for_all_neighbours() -> None:
    """Every data set of up to two units with any labels, NULL among them; leaders change places at the cut."""
    everybody = [unit for size in (1, 2, 3) for unit in combinations(LABELS, size)]
    plan = session_over().explain(COUNTS.format(more=AT_ONCE + ", k_bar = 2"))
    mechanism, worst = mechanism_of(plan), 0.0
    data = [units for size in (0, 1, 2) for units in product(everybody, repeat=size)]
    rows = {units: tuple(found) for units, found in counted_over(plan, data)}
    laws = {found: law_of(mechanism, list(found)) for found in set(rows.values())}
    for more, less in {(rows[units], rows[units[:-1]]) for units in data if units}:
        for p, q in ((laws[more], laws[less]), (laws[less], laws[more])):
            assert len(more) <= 3
            claims = [(stick(p, q, level), 0.1 + cks(plan.worst_case.rho.value, level)) for level in (0.1, 0.5, 1.0)]
            claims.append((stick(p, q, float(mechanism.epsilon)), 0.1))
            worst = max(worst, *(loss / claim for loss, claim in claims))
    assert 0.3 < worst <= 1 + ROUNDING


@pytest.mark.properties
@pytest.mark.parametrize("groups", [2, 3])
def test_one_unit_is_seen_with_the_probability_that_was_computed(groups: int) -> None:
    """One unit with two labels, or with three of which two are kept, against nobody; then one step too low."""
    session = session_over(*rows_of([LABELS[:groups]]))
    plan = session.explain(NAMES.format(more=AT_ONCE))
    mechanism = mechanism_of(plan)
    noise = discrete_laplace_law(mechanism.scale)

    def expected(offset: int) -> float:
        unseen = math.fsum(
            mass * math.fsum(part for draw, part in noise.items() if draw < offset + bottom) ** 2
            for bottom, mass in noise.items()
        )
        return 1 - unseen

    assert expected(mechanism.offset) <= 0.1
    laws = [chance(expected(mechanism.offset - less)) for less in (0, 1)]
    assert singles_out(*laws, sample=lambda runs: Counter(len(each.table) > 0 for each in drawn(session, plan, runs)))


@pytest.mark.properties
@pytest.mark.parametrize("larger", ["a", "b"])
def test_chance_decides_between_equal_noisy_counts(larger: str) -> None:
    counts = {"a": 60, "b": 60, larger: 62}
    session = session_over(
        *(f"INSERT INTO reads SELECT i, '{label}' FROM range({n}) t(i)" for label, n in counts.items())
    )
    plan = session.explain(COUNTS.format(more=AT_ONCE))
    answers = [each.table.to_pylist() for each in drawn(session, plan, 2_500)]
    ties = [rows[0]["article"] for rows in answers if len(rows) == 2 and rows[0]["n"] == rows[1]["n"]]
    low, high = interval(ties.count("a"), len(ties))
    assert len(ties) > 100
    assert low <= 0.5 <= high


@pytest.mark.parametrize(("k", "sql", "groups"), list_pairs([1, 3, 10], [NAMES, COUNTS], [1, 2, 50]))
def test_the_price_is_at_most_what_a_limited_domain_reserves(sql: str, k: int, groups: int) -> None:
    session = session_over()
    text = sql.replace("TOP 2", f"TOP {k}").replace("epsilon = 1", "epsilon = 0.3")
    bound = f", max_groups_contributed = {groups}"
    asked = text.format(more=f"{bound}, mechanism = laplace_limited_domain")
    plan, usual = session.explain(asked), session.explain(text.format(more=f"{bound}, mechanism = limited_domain"))
    assert plan.worst_items == usual.worst_items
    assert plan.k_bar == usual.k_bar
    assert plan.worst_case == mechanism_of(plan).worst_case
    assert plan.worst_case.delta == usual.worst_case.delta
    assert 0 <= usual.worst_case.rho.value - plan.worst_case.rho.value < Fraction(1, 10**11)
    told = session.forecast(asked)
    assert told.half_loss == told.loss == plan.worst_case
    assert session.sql(asked).receipt.loss == plan.worst_case


@pytest.mark.parametrize("units", [[], [("a",)], [("a", "b")] * 90])
def test_the_whole_price_is_charged_whatever_comes_back(units: list[Unit]) -> None:
    session = session_over(*rows_of(units))
    answer = session.sql(COUNTS.format(more=AT_ONCE))
    receipt = answer.receipt
    assert receipt.loss == session.explain(COUNTS.format(more=AT_ONCE)).worst_case
    assert (receipt.items_charged, receipt.k, receipt.k_bar) == (4, 2, 40)
    assert receipt.loss.rho.value == Fraction(1, 2)  # four items are e = 1, which is exact
    assert receipt.stopped_at_bottom == (len(answer) < 2)
    assert session.budget.rho.spent == receipt.loss.rho.value
    assert session.budget.delta.spent == Fraction(1, 10)
    assert len(answer) == 2 or len(units) < 90


def test_the_counts_are_those_that_chose_and_intervals_know_their_noise() -> None:
    session = session_over(*rows_of([("a", "b")] * 90))
    answer, mechanism = session.sql(COUNTS.format(more=AT_ONCE)), session.explain(COUNTS.format(more=AT_ONCE))
    noisy = [count for _, count in answer.fetchall()]
    law = discrete_laplace_law(mechanism_of(mechanism).scale)
    assert answer.counts is not None
    assert answer.counts.scale == mechanism_of(mechanism).scale == 2
    for level in (0.5, 0.9, 0.95, 0.999):
        within = [math.fsum(law[n] for n in range(-reach, reach + 1)) for reach in range(60)]
        assert answer.counts.reach(level) == next(reach for reach, mass in enumerate(within) if mass >= level)
    reach = answer.counts.reach(0.95)
    assert answer.intervals().column("high").to_pylist() == [count + reach for count in noisy]
    assert math.fsum(n * n * mass for n, mass in law.items()) <= answer.counts.variance
    assert session.sql(NAMES.format(more=AT_ONCE)).counts is None


def test_the_plan_says_what_is_read_and_what_must_be_reached() -> None:
    plan = session_over().explain(NAMES.format(more=AT_ONCE + ", k_bar = 7"))
    facts, mechanism = dict(plan.facts()), mechanism_of(plan)
    assert (plan.mechanism, plan.k_bar) == ("laplace_limited_domain", 7)
    assert facts["threshold"] == f"{mechanism.offset + 1} units above group number 8"
    assert plan.threshold_offset == mechanism.offset + 1
    assert f"scale {float(mechanism.scale):.1f}" in facts["noise"]
    assert "paid at once" in facts["items at most"]
    assert facts["groups per unit"] == "at most 2"
    assert "dpsql_rank <= 2" in plan.engine_sql
    assert plan.engine_sql.endswith("LIMIT 8")
