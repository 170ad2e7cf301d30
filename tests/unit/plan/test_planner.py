"""Which mechanism answers: what is predicted of each, which wins over a grid, and that the predictions hold."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from support.laws import SeededNoise
from support.session_kit import filled, session_on

import dpsql
from dpsql.mechanisms import unit_weight
from dpsql.plan import Plan
from dpsql.plan.auto import CHOSEN, Candidate, assume_groups_per_unit, choose_candidate
from dpsql.plan.mechanisms.base import Groups
from dpsql.plan.report.simulation import expected_recall
from dpsql.session import Session

LISTED = "partitions = ['DE', 'FR', 'US']"


def session_over(budget: str = "0.9", **bounds: int) -> Session:
    limits = dpsql.Limits(max_epsilon=5, min_epsilon="1e-4", max_delta="0.5")
    tables = {"reads": dpsql.PrivateTable("user_id", **bounds), "places": dpsql.PublicTable()}
    connection = filled(
        "CREATE TABLE reads (user_id BIGINT, article VARCHAR, country VARCHAR)",
        "CREATE TABLE places (country VARCHAR)",
    )
    return session_on(connection, dpsql.Policy(dpsql.Budget(40, budget), tables, limits=limits))


SESSION = session_over()


def statement(*more: str, k: int = 10, counts: bool = False, per: bool = False, epsilon: str = "0.05") -> str:
    options = ", ".join([f"epsilon = {epsilon}", *more, *([LISTED] if per else [])])
    return (
        f"SELECT article{', country' if per else ''}{', COUNT(DISTINCT user_id) AS n' if counts else ''} FROM reads "
        f"GROUP BY ALL TOP {k} PRIVATE{' PER country' if per else ''} WITH ({options})"
    )


def bounded(groups: int | None) -> tuple[str, ...]:
    return () if groups is None else (f"max_groups_contributed = {groups}",)


def winner(*more: str, k: int = 10, counts: bool = False, per: bool = False, epsilon: str = "0.05") -> str:
    more = more if any("delta" in each for each in more) else ("delta = 2.5e-8", *more)
    return SESSION.explain(statement(*more, k=k, counts=counts, per=per, epsilon=epsilon)).mechanism


def candidate(plan: Plan, name: str) -> Candidate:
    (found,) = (each for each in plan.considered if each.name == name)
    return found


@pytest.mark.parametrize(
    ("k", "groups", "counts", "wins"),
    [
        (1, None, False, "limited_domain"),
        (11, None, False, "limited_domain"),
        (12, None, False, "weighted_gaussian"),
        (200, None, True, "weighted_gaussian"),
        (11, None, True, "limited_domain"),
        (1, 1, False, "weighted_gaussian"),
        (1, 1, True, "gaussian_histogram"),
        (15, 1, True, "gaussian_histogram"),
        (5, 5, True, "gaussian_histogram"),
        (20, 5, True, "weighted_gaussian"),
        (1, 20, True, "limited_domain"),
        (50, 20, True, "weighted_gaussian"),
        (10, 1000, False, "limited_domain"),
        (50, 1000, True, "weighted_gaussian"),
    ],
)
def test_k_the_bound_and_counts_decide(k: int, groups: int | None, counts: bool, wins: str) -> None:
    assert winner(*bounded(groups), k=k, counts=counts) == wins


def test_a_small_delta_favours_noise_on_everything_and_a_large_one_the_leaders() -> None:
    assert winner("delta = 1e-12", k=10) == "weighted_gaussian"
    assert winner("delta = 1e-5", k=14) == "limited_domain"


@pytest.mark.parametrize(("k", "groups", "counts"), [*product((2, 9, 20, 80), (None, 2, 5, 50), (False, True))])
def test_epsilon_decides_nothing_where_nothing_is_rounded(k: int, groups: int | None, counts: bool) -> None:
    assert len({winner(*bounded(groups), k=k, counts=counts, epsilon=each) for each in ("0.001", "0.01", "0.05")}) == 1


def test_whole_units_may_decide_where_two_need_nearly_the_same() -> None:
    """A bound of 1: the threshold of noisy counts is a whole number, that of weights is not."""
    assert (winner(*bounded(1), k=15, counts=True), winner(*bounded(1), k=20, counts=True)) == (
        "gaussian_histogram",
        "weighted_gaussian",
    )
    plan = SESSION.explain(statement("delta = 2.5e-8", *bounded(1), k=20, counts=True))
    needs = [candidate(plan, name).prediction.units for name in ("gaussian_histogram", "weighted_gaussian")]
    assert 0 < needs[0] - needs[1] < 1


def test_an_epsilon_so_large_that_a_unit_matters_may_decide() -> None:
    assert (winner(k=12, epsilon="0.05"), winner(k=12, epsilon="1")) == ("weighted_gaussian", "limited_domain")


def test_one_release_of_all_partitions_costs_less_than_one_for_each() -> None:
    assert winner(k=1, per=True) == "weighted_gaussian"
    assert winner(*bounded(5), k=1, counts=True, per=True) == "gaussian_histogram"
    plan = SESSION.explain(statement(*bounded(5), k=3, counts=True, per=True))
    assert (
        candidate(plan, "limited_domain").prediction.items == 3 * candidate(plan, "gaussian_histogram").prediction.items
    )


def test_without_a_bound_counts_of_partitions_are_for_the_limited_domain() -> None:
    assert winner(k=50, counts=True, per=True) == "limited_domain"


@pytest.mark.parametrize("more", ["k_bar = 20", "k_bar = AUTO"])
def test_k_bar_is_that_of_a_limited_domain(more: str) -> None:
    """Also in EXPLAIN, which shows others that would need fewer units beside it."""
    for groups, counts in product((None, 1, 5), (False, True)):
        text = statement(more, *bounded(groups), k=10, counts=counts)
        assert SESSION.explain(text).mechanism == "limited_domain"
        (mechanism,) = (value for name, value in SESSION.sql("EXPLAIN " + text).fetchall() if name == "mechanism")
        assert mechanism == "limited_domain"


def test_min_units_are_seen_to_by_the_limited_domain_alone() -> None:
    session = session_over(min_units=20)
    for k, groups in product((1, 12, 100), (None, 1, 5)):
        plan = session.explain(statement(*bounded(groups), k=k))
        assert [each.name for each in plan.considered] == [plan.mechanism] == ["limited_domain"]
        assert plan.considered[0].prediction.units >= plan.least_threshold >= 20


@pytest.mark.parametrize("certificate", ["pure", "optimal"])
def test_other_certificates_have_no_choice(certificate: str) -> None:
    budget = dpsql.Budget(1, "1e-6", items=60, certificate=certificate)
    tables = {"reads": dpsql.PrivateTable("user_id", max_groups_contributed=1)}
    connection = filled("CREATE TABLE reads (user_id BIGINT, article VARCHAR)")
    session = session_on(connection, dpsql.Policy(budget, tables))
    for k in (1, 30):
        plan = session.explain(f"SELECT article FROM reads GROUP BY article TOP {k} PRIVATE")
        assert [each.name for each in plan.considered] == ["limited_domain"]
        plan = session.explain(f"SELECT article FROM reads GROUP BY article TOP {k} PRIVATE WITH (domain = ['a', 'b'])")
        assert [each.name for each in plan.considered] == ["peeling"]


@pytest.mark.parametrize(("k", "values"), [(1, 2), (3, 2), (3, 3), (10, 100), (50, 900), (3, None)])
def test_over_a_known_domain_it_is_peeling(k: int, values: int | None) -> None:
    domain = "'places.country'" if values is None else f"[{', '.join(repr(f'v{n}') for n in range(values))}]"
    plan = SESSION.explain(statement(f"domain = {domain}", k=k))
    assert plan.mechanism == "peeling"
    peeling, joint = (candidate(plan, name).prediction for name in ("peeling", "joint"))
    assert peeling.units <= joint.units
    assert peeling.items == joint.items == plan.worst_items
    told = "if there are 1,000" if values is None else f"of {values:,}"
    assert f"{told} candidates" in str(peeling)


@pytest.mark.parametrize(
    ("k", "groups", "counts", "delta"),
    [*product((1, 3, 12, 100), (None, 1, 2, 10, 200), (False, True), ("1e-12", "2.5e-8", "1e-4"))],
)
def test_what_is_never_chosen_never_needs_fewer_units_at_the_price(
    k: int, groups: int | None, counts: bool, delta: str
) -> None:
    plan = SESSION.explain(statement(f"delta = {delta}", *bounded(groups), k=k, counts=counts))
    chosen = candidate(plan, plan.mechanism)
    assert chosen == choose_candidate(plan.considered)
    assert chosen.name in CHOSEN
    for each in plan.considered:
        assert each.prediction.items == chosen.prediction.items
        assert each.prediction.units >= chosen.prediction.units


@pytest.mark.properties
@pytest.mark.parametrize(
    ("k", "groups", "per", "epsilon"),
    [*product((1, 11, 12, 1000), (None, 1, 5, 65536, 65537), (False, True), ("1e-4", "0.05", "5"))],
)
def test_it_costs_no_more_than_a_limited_domain_and_explain_shows_what_answers(
    k: int, groups: int | None, per: bool, epsilon: str
) -> None:
    """Also where the others do not take so low or so high a rho, or so many groups."""
    text = statement(*bounded(groups), k=k, per=per, epsilon=epsilon)
    plan, usual = SESSION.explain(text), SESSION.explain(text.replace("WITH (", "WITH (mechanism = limited_domain, "))
    assert plan.worst_items <= usual.worst_items
    assert plan.price(plan.worst_case).rho <= usual.price(usual.worst_case).rho
    assert plan.delta.value <= usual.delta.value
    answer = SESSION._plan(SESSION._analyze(text, ()))[0]
    assert (answer.mechanism, answer.mechanism_plan) == (plan.mechanism, plan.mechanism_plan)
    assert {each.name for each in answer.considered} <= CHOSEN


def chosen(population: int, *more: str, k: int = 10, counts: bool = False, per: bool = False) -> Plan:
    told = session_over(population=population)
    return told.explain(statement("delta = 2.5e-8", *more, k=k, counts=counts, per=per))


@pytest.mark.parametrize("k", [5, 10, 50, 200])
@pytest.mark.parametrize("counts", [False, True])
def test_a_population_decides_for_who_ranks_by_counts_where_its_last_key_has_enough_units(k: int, counts: bool) -> None:
    plan = chosen(1, k=k, counts=counts)
    needs = {name: candidate(plan, name).prediction.units for name in ("limited_domain", "domain_discovery")}
    names = sorted(needs, key=lambda name: needs[name])
    lesser, greater = (-int(-needs[name] * k // 1) for name in names)
    answers = [chosen(units, k=k, counts=counts).mechanism for units in (lesser, greater)]
    assert answers == [names[0], "limited_domain"]
    below = chosen(lesser - 1, k=k, counts=counts)
    assert (
        below.mechanism == min(below.considered, key=lambda each: (each.name not in CHOSEN, each.prediction.units)).name
    )
    assert ("chosen because", "groups need the fewest units, at the least price") in below.facts()
    why = "it ranks by counts, and the population / k is as many units as groups need"
    assert ("chosen because", why) in chosen(lesser, k=k, counts=counts).facts()


def test_a_population_decides_nothing_under_a_bound_or_per_partition_or_where_a_mechanism_is_named() -> None:
    for more, per in ((bounded(5), False), ((), True), (("mechanism = weighted_gaussian",), False)):
        plan = chosen(10**12, *more, k=50, per=per)
        assert plan.mechanism == winner(*more, k=50, per=per)
    assert winner(*bounded(5), k=50) == "weighted_gaussian"


def test_the_least_population_of_the_tables_read_decides() -> None:
    tables = {
        "reads": dpsql.PrivateTable("user_id", population=10**9),
        "visits": dpsql.PrivateTable("user_id", population=10),
        "likes": dpsql.PrivateTable("user_id"),
    }
    columns = "(user_id BIGINT, article VARCHAR)"
    connection = filled(*[f"CREATE TABLE {name} {columns}" for name in tables])
    session = session_on(connection, dpsql.Policy(dpsql.Budget(40, "0.9"), tables))
    text = "SELECT article FROM reads {} GROUP BY article TOP 100 PRIVATE WITH (epsilon = 0.01)"
    semi = "SEMI JOIN {} USING (user_id)"
    assert session.explain(text.format("")).mechanism == "limited_domain"
    assert session.explain(text.format(semi.format("likes"))).mechanism == "limited_domain"
    assert session.explain(text.format(semi.format("visits"))).mechanism == "weighted_gaussian"


def test_who_asks_gets_what_explain_showed_also_where_a_population_is_told() -> None:
    told = session_over(population=30_000)
    for k in (5, 20, 50, 100, 300):
        text = statement("delta = 2.5e-8", k=k)
        drawn = told._plan(told._analyze(text, ()))[0]
        plan = told.explain(text)
        assert (drawn.mechanism, drawn.mechanism_plan) == (plan.mechanism, plan.mechanism_plan)


def test_nothing_is_best_of_nothing_or_of_what_is_only_compared() -> None:
    plan = SESSION.explain(statement(*bounded(1)))
    assert choose_candidate(()) is None
    assert choose_candidate(each for each in plan.considered if each.name not in CHOSEN) is None


def test_a_unit_is_taken_to_be_in_half_of_the_groups_and_in_forty_at_most() -> None:
    assert [assume_groups_per_unit(bound) for bound in (1, 2, 3, 10, 79, 80, 81, 10_000)] == [
        1,
        1,
        2,
        5,
        40,
        40,
        40,
        40,
    ]


EVEN = [
    ("limited_domain", None, False),
    ("limited_domain", 3, True),
    ("gaussian_histogram", 1, True),
    ("gaussian_histogram", 5, False),
    ("laplace_limited_domain", 1, True),
    ("laplace_limited_domain", 4, False),
    ("weighted_gaussian", None, False),
    ("weighted_gaussian", 1, True),
    ("weighted_gaussian", 10, False),
    ("domain_discovery", None, True),
    ("domain_discovery", 6, False),
]


@pytest.mark.properties
@pytest.mark.parametrize(("name", "groups", "counts"), EVEN)
@pytest.mark.parametrize("epsilon", ["0.01", "0.1"])
def test_a_group_of_the_units_predicted_has_an_even_chance(
    name: str, groups: int | None, counts: bool, epsilon: str
) -> None:
    """One group of so many units and no other; twice as many, or half, are far from even."""
    plan = SESSION.explain(statement("delta = 1e-6", *bounded(groups), k=5, counts=counts, epsilon=epsilon))
    found, noise = candidate(plan, name), SeededNoise(3)
    weight = unit_weight(assume_groups_per_unit(groups or 100))

    def share(units: int) -> float:
        row = Groups(np.array([units], np.int64), np.array([units * weight], np.int64))
        return sum(len(found.mechanism_plan.draw(row, noise).rows) for _ in range(2_000)) / 2_000

    units = round(found.prediction.units)
    assert 0.44 <= share(units) <= 0.56
    assert share(units // 2) < 0.1
    assert share(units * 2) > 0.9


@pytest.mark.properties
@pytest.mark.parametrize("name", ["peeling", "joint"])
@pytest.mark.parametrize("k", [1, 4])
def test_over_a_known_domain_that_margin_is_enough_in_one_of_two_draws(name: str, k: int) -> None:
    values = ", ".join(repr(f"v{n}") for n in range(40))
    plan = SESSION.explain(statement(f"domain = [{values}]", k=k))
    found, noise = candidate(plan, name), SeededNoise(5)
    lead = int(found.prediction.units) + 1
    groups = Groups(np.array([lead] * k + [0] * (40 - k), np.int64))
    right = sum(set(found.mechanism_plan.draw(groups, noise).rows) == set(range(k)) for _ in range(1_000))
    assert right >= 500


def test_recall_is_one_where_all_stand_out_and_nothing_where_none_do() -> None:
    plan = SESSION.explain(statement("delta = 1e-9", *bounded(3), k=3, counts=True))
    assert len(plan.considered) == 5
    for each in plan.considered:
        assert expected_recall(each.mechanism_plan, (10**8, 10**7, 10**6, 5), k=3, noise=SeededNoise(1)) == 1
        assert expected_recall(each.mechanism_plan, (1,), k=3, noise=SeededNoise(1)) == 0
        assert expected_recall(each.mechanism_plan, (), k=3, noise=SeededNoise(1)) == 1


def test_recall_is_the_share_of_those_that_stand_out() -> None:
    plan = SESSION.explain(statement("delta = 1e-9", *bounded(3), k=4, counts=True))
    for each in plan.considered:
        assert expected_recall(each.mechanism_plan, (10**8, 10**7, 2, 1, 1), k=4, noise=SeededNoise(1)) == 0.5


def test_what_ties_with_the_last_belongs_to_the_top() -> None:
    plan = SESSION.explain(statement("domain = ['a', 'b', 'c', 'd']", k=2))
    assert expected_recall(plan.mechanism_plan, (10**6, 7, 7, 7), k=2, noise=SeededNoise(1)) == 1
