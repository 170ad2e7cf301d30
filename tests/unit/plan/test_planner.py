"""Which mechanism answers: what is predicted of each, which wins over a grid, and that the predictions hold."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from support.laws import SeededNoise
from support.session_kit import session_on, shared

import dpsql
from dpsql.mechanisms import WEIGHT_STEPS, WeightedGaussian, unit_weight
from dpsql.mechanisms.limited_domain import LimitedDomain
from dpsql.mechanisms.two_looks import Answerer, TwoLooks
from dpsql.plan import Plan
from dpsql.plan.mechanisms.base import Groups
from dpsql.plan.mechanisms.choice import list_records, take_cheapest
from dpsql.plan.mechanisms.record import Auto, Candidate, QueryKind, assume_groups_per_unit
from dpsql.plan.mechanisms.two_looks import TwoLooksPlan
from dpsql.quantities import Delta, Rho
from dpsql.report.forecast import expected_recall
from dpsql.session import Session

CHOSEN = {each.name for each in list_records() if each.auto is not Auto.NEVER}
LISTED = "partitions = ['DE', 'FR', 'US']"


def session_over(budget: str = "0.9", **bounds: object) -> Session:
    limits = dpsql.Limits(max_epsilon=5, min_epsilon="1e-4", max_delta="0.5")
    tables = {"reads": dpsql.PrivateTable("user_id", **bounds), "places": dpsql.PublicTable()}  # type: ignore[arg-type]
    connection = shared(
        "CREATE TABLE reads (user_id BIGINT, article VARCHAR, country VARCHAR)",
        "CREATE TABLE places (country VARCHAR)",
    )
    return session_on(connection, dpsql.Policy(dpsql.Budget(40, budget), tables, limits=limits))


SESSION = session_over()
BY_ROWS = session_over(bounds={"rows": 1})  # of which one unit changes a count by 1 as well, and at which nothing looks


def statement(*more: str, k: int = 10, counts: bool = False, per: bool = False, epsilon: str = "0.05") -> str:
    options = ", ".join([f"epsilon = {epsilon}", *more, *([LISTED] if per else [])])
    return (
        f"SELECT article{', country' if per else ''}{', COUNT(DISTINCT user_id) AS n' if counts else ''} FROM reads "
        f"GROUP BY ALL TOP {k} PRIVATE{' PER country' if per else ''} WITH ({options})"
    )


def bounded(groups: int | None) -> tuple[str, ...]:
    return () if groups is None else (f"max_groups_contributed = {groups}",)


def rank_by_rows(text: str) -> str:
    """Return the statement with rows counted in place of users."""
    return text.replace("COUNT(DISTINCT user_id)", "COUNT(*)").replace(
        "GROUP BY ALL", "GROUP BY ALL ORDER BY COUNT(*) DESC"
    )


def winner(*more: str, k: int = 10, counts: bool = False, per: bool = False, epsilon: str = "0.05") -> str:
    """Return what AUTO chooses where it does not look first."""
    more = more if any("delta" in each for each in more) else ("delta = 2.5e-8", *more)
    return BY_ROWS.explain(rank_by_rows(statement(*more, k=k, counts=counts, per=per, epsilon=epsilon))).mechanism


def candidate(plan: Plan, name: str) -> Candidate:
    (found,) = (each for each in plan.considered if each.name == name)
    return found


@pytest.mark.parametrize(
    ("k", "groups", "counts", "wins"),
    [
        (1, None, False, "limited_domain"),
        (2, None, False, "limited_domain"),
        (12, None, False, "limited_domain"),
        (13, None, False, "weighted_gaussian"),
        (200, None, True, "weighted_gaussian"),
        (11, None, True, "limited_domain"),
        (1, 1, False, "gaussian_histogram"),
        (50, 1, False, "weighted_gaussian"),
        (1, 1, True, "gaussian_histogram"),
        (15, 1, True, "gaussian_histogram"),
        (5, 5, True, "gaussian_histogram"),
        (20, 5, True, "weighted_gaussian"),
        (1, 20, True, "limited_domain"),
        (2, 20, True, "limited_domain"),
        (50, 20, True, "weighted_gaussian"),
        (10, 1000, False, "limited_domain"),
        (50, 1000, True, "weighted_gaussian"),
    ],
)
def test_k_the_bound_and_counts_decide_where_nothing_looks_first(
    k: int, groups: int | None, counts: bool, wins: str
) -> None:
    assert winner(*bounded(groups), k=k, counts=counts) == wins


@pytest.mark.parametrize(
    ("k", "groups", "counts", "by_counts"),
    [
        (1, None, False, False),
        (2, None, False, False),
        (12, None, True, False),
        (200, None, True, False),
        (1, 1, False, False),
        (1, 1, True, True),
        (15, 1, True, True),
        (5, 5, True, True),
        (20, 5, True, False),
        (2, 20, True, True),
        (50, 20, True, False),
        (10, 1000, False, False),
    ],
)
def test_two_looks_answer_in_front_of_weights_or_of_a_histogram(
    k: int, groups: int | None, counts: bool, by_counts: bool
) -> None:
    """The k, the bound and the counts decide what answers behind them where weights could."""
    text = statement("delta = 2.5e-8", *bounded(groups), k=k, counts=counts)
    plan = SESSION.explain(text)
    looks = read_looks(plan)
    assert plan.mechanism == "two_looks"
    assert (looks.counts_rho is not None) == by_counts
    weights = WeightedGaussian(Rho(looks.rho.value * 94 / 100), Delta("2.5e-8"), k, groups or 100)
    needed = weights.threshold / WEIGHT_STEPS * assume_groups_per_unit(groups or 100) ** 0.5
    if by_counts:
        assert looks.histogram.threshold < needed
        assert looks.worst_case.rho == plan.worst_case.rho
    assert SESSION._plans.find(SESSION._analyze(text, ())).plan.mechanism_plan == plan.mechanism_plan


def test_a_small_delta_favours_noise_on_everything_and_a_large_one_the_leaders() -> None:
    assert winner("delta = 1e-12", k=10) == "weighted_gaussian"
    assert winner("delta = 1e-5", k=13) == "limited_domain"
    assert winner("delta = 2.5e-8", k=13) == "weighted_gaussian"


@pytest.mark.parametrize(("k", "groups", "counts"), [*product((2, 9, 20, 80), (None, 2, 5, 50), (False, True))])
def test_epsilon_decides_nothing_where_nothing_is_rounded(k: int, groups: int | None, counts: bool) -> None:
    assert len({winner(*bounded(groups), k=k, counts=counts, epsilon=each) for each in ("0.001", "0.003", "0.01")}) == 1


def test_whole_units_may_decide_where_two_need_nearly_the_same() -> None:
    """A bound of 1: the threshold of noisy counts is a whole number, that of weights is not."""
    assert (winner(*bounded(1), k=20, counts=True), winner(*bounded(1), k=28, counts=True)) == (
        "gaussian_histogram",
        "weighted_gaussian",
    )
    plan = BY_ROWS.explain(rank_by_rows(statement("delta = 2.5e-8", *bounded(1), k=28, counts=True)))
    needs = [candidate(plan, name).prediction.units for name in ("gaussian_histogram", "weighted_gaussian")]
    assert 0 < needs[0] - needs[1] < 1


def test_an_epsilon_so_large_that_a_unit_matters_may_decide() -> None:
    assert (winner(k=13, epsilon="0.05"), winner(k=13, epsilon="1")) == ("weighted_gaussian", "limited_domain")


def test_one_release_of_all_partitions_costs_less_than_one_for_each() -> None:
    def chosen_per(*more: str, k: int, counts: bool = False) -> str:
        return SESSION.explain(statement("delta = 2.5e-8", *more, k=k, counts=counts, per=True)).mechanism

    assert chosen_per(k=1) == "weighted_gaussian"
    assert chosen_per(*bounded(5), k=1, counts=True) == "gaussian_histogram"
    plan = SESSION.explain(statement(*bounded(5), k=3, counts=True, per=True))
    assert (
        candidate(plan, "limited_domain").prediction.items == 3 * candidate(plan, "gaussian_histogram").prediction.items
    )


def test_without_a_bound_counts_of_partitions_are_for_the_limited_domain() -> None:
    assert winner(k=50, counts=True, per=True) == "limited_domain"


@pytest.mark.parametrize(("more", "wins"), [("k_bar = 20", "two_looks"), ("k_bar = AUTO", "limited_domain")])
def test_k_bar_is_that_of_a_limited_domain_or_of_two_looks(more: str, wins: str) -> None:
    """Also in EXPLAIN, which shows others that would need fewer units beside it."""
    for groups, counts in product((None, 1, 5), (False, True)):
        text = statement(more, *bounded(groups), k=10, counts=counts)
        assert SESSION.explain(text).mechanism == wins
        (mechanism,) = (value for name, value in SESSION.sql("EXPLAIN " + text).fetchall() if name == "mechanism")
        assert mechanism == wins


def read_looks(plan: Plan) -> TwoLooks:
    assert isinstance(plan.mechanism_plan, TwoLooksPlan)
    return plan.mechanism_plan.selection


@pytest.mark.parametrize(
    ("k", "groups", "counts", "epsilon"), [*product((1, 5, 14, 100), (None, 1, 30), (False, True), ("0.01", "0.5"))]
)
def test_the_need_of_two_looks_is_the_lesser_of_what_may_answer(
    k: int, groups: int | None, counts: bool, epsilon: str
) -> None:
    """After one look a limited domain over more leaders, and after two what noise on all groups returns."""
    options = ("mechanism = two_looks", "delta = 2e-6", *bounded(groups))
    plan = SESSION.explain(statement(*options, k=k, counts=counts, epsilon=epsilon))
    need, looks = candidate(plan, "two_looks").prediction, read_looks(plan)
    assert need.items == plan.worst_items == candidate(plan, "limited_domain").prediction.items
    assert plan.k_bar == looks.k_bar == max(1_000, 20 * k)
    rho = k * looks.epsilon.value**2 / 8
    leaders = LimitedDomain(
        dpsql.Epsilon(looks.leaders(Answerer.AT_ONCE).epsilon.value), Delta("2e-6"), k, looks.k_bar, groups
    )
    assert 0 <= rho * 97 / 100 - k * leaders.epsilon.value**2 / 8 < Fraction(1, 10**9)  # rounded down
    weights = WeightedGaussian(Rho(rho * 94 / 100), Delta("2e-6"), k, groups or 100)
    by_weight = weights.threshold / WEIGHT_STEPS * assume_groups_per_unit(groups or 100) ** 0.5
    found = {float(leaders.threshold_offset): plan.k_bar + 1, by_weight: None}
    if looks.counts_rho is not None:
        found = {float(leaders.threshold_offset): plan.k_bar + 1, float(looks.histogram.threshold): None}
    least = min(found)
    assert (need.units, need.rank) == (pytest.approx(least, rel=1e-6), found[least])


def test_either_answer_behind_two_looks_may_need_less() -> None:
    """Many items make a low threshold of weights."""
    few, many = (SESSION.explain(statement("mechanism = two_looks", k=k)) for k in (5, 100))
    assert candidate(few, "two_looks").prediction.rank == 1_001
    assert candidate(many, "two_looks").prediction.rank is None
    assert candidate(many, "two_looks").prediction.units < candidate(many, "limited_domain").prediction.units


def test_two_looks_are_preferred_to_what_they_answer_with_also_where_they_need_more_units() -> None:
    """The looks cost a little, and what they save where nothing stands out is not in the need."""
    for k, groups, counts in product((1, 5, 11, 100), (None, 5, 200), (False, True)):
        text = statement("delta = 2.5e-8", *bounded(groups), k=k, counts=counts)
        plan = SESSION.explain(text)
        assert plan.mechanism == "two_looks"
        parts = [each for each in plan.considered if each.name in CHOSEN]
        ours = candidate(plan, "two_looks")
        assert {each.name for each in parts} >= {"limited_domain", "two_looks", "weighted_gaussian"}
        assert min(each.prediction.units for each in parts) < ours.prediction.units
        assert {each.prediction.items for each in parts} == {ours.prediction.items}
        assert take_cheapest(parts) == take_cheapest(parts[::-1]) == ours
        assert take_cheapest(parts[:1]) == parts[0] != ours
        drawn = SESSION._plans.find(SESSION._analyze(text, ())).plan
        assert drawn.mechanism_plan == plan.mechanism_plan


@pytest.mark.parametrize(("more", "k", "per"), [(("k_bar = AUTO",), 5, False), ((), 5, True), ((), 1, True)])
def test_where_there_are_no_two_looks_others_answer(more: tuple[str, ...], k: int, per: bool) -> None:
    text = statement("delta = 2.5e-8", *more, k=k, counts=True, per=per)
    plan = SESSION.explain(text)
    assert plan.mechanism == "limited_domain"
    assert "two_looks" not in [each.name for each in plan.considered]
    assert SESSION._plans.find(SESSION._analyze(text, ())).plan.mechanism == "limited_domain"


@pytest.mark.parametrize(("per", "more", "code"), [(True, (), "partitions"), (False, ("k_bar = AUTO",), "option")])
def test_two_looks_that_cannot_be_are_refused_with_a_hint_that_works(
    per: bool, more: tuple[str, ...], code: str
) -> None:
    text = statement("mechanism = two_looks", *more, k=5, per=per)
    with pytest.raises(dpsql.Refusal) as refused:
        SESSION.explain(text)
    assert refused.value.code == code
    place = refused.value.place
    assert place is not None
    fixed = {
        "partitions": (
            "Write mechanism = limited_domain, or leave the mechanism out.",
            text.replace("two_looks", "limited_domain"),
        ),
        "option": ("Write a number, or leave it out.", text.replace("k_bar = AUTO", "k_bar = 50")),
    }
    hint, repaired = fixed[code]
    assert refused.value.hint == hint
    assert SESSION.explain(repaired).k == 5
    assert SESSION.explain(text.replace(", mechanism = two_looks", "")).k == 5


def test_two_looks_do_not_see_to_min_units_and_their_refusal_says_what_does() -> None:
    session = session_over(min_units=20)
    text = statement("mechanism = two_looks", k=5)
    with pytest.raises(dpsql.Refusal) as refused:
        session.explain(text)
    assert (refused.value.code, refused.value.hint) == (
        "min-units",
        "Leave the mechanism out: limited_domain sees to it.",
    )
    assert session.explain(text.replace(", mechanism = two_looks", "")).mechanism == "limited_domain"


@pytest.mark.parametrize("certificate", ["pure", "optimal"])
def test_two_looks_are_for_one_certificate(certificate: str) -> None:
    budget = dpsql.Budget(1, "1e-6", items=60, certificate=certificate)
    connection = shared("CREATE TABLE reads (user_id BIGINT, article VARCHAR)")
    session = session_on(connection, dpsql.Policy(budget, {"reads": dpsql.PrivateTable("user_id")}))
    with pytest.raises(dpsql.Refusal) as refused:
        session.explain("SELECT article FROM reads GROUP BY article TOP 5 PRIVATE WITH (mechanism = two_looks)")
    assert refused.value.code == "certificate"


def test_rows_are_not_looked_at_by_name_either() -> None:
    text = statement("mechanism = two_looks", k=5)
    with pytest.raises(dpsql.Refusal, match="ranks by numbers of users alone") as refused:
        BY_ROWS.explain(rank_by_rows(text))
    assert refused.value.code == "option"
    assert BY_ROWS.explain(rank_by_rows(text.replace("two_looks", "limited_domain"))).mechanism == "limited_domain"


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
    connection = shared("CREATE TABLE reads (user_id BIGINT, article VARCHAR)")
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
    assert chosen == take_cheapest(plan.considered)
    assert chosen.name in CHOSEN
    for each in plan.considered:
        assert each.prediction.items == chosen.prediction.items
        if each.name not in chosen.mechanism.replaces:
            assert each.prediction.units >= chosen.prediction.units


@pytest.mark.properties
@pytest.mark.parametrize(
    ("k", "groups", "per", "epsilon"),
    [  # each pair of them at least once
        (k, groups, (at + of) % 2 == 1, ("1e-4", "0.05", "5")[(at + 2 * of) % 3])
        for (at, k), (of, groups) in product(enumerate((1, 11, 12, 1000)), enumerate((None, 1, 5, 65536, 65537)))
    ],
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
    answer = SESSION._plans.find(SESSION._analyze(text, ())).plan
    assert (answer.mechanism, answer.mechanism_plan) == (plan.mechanism, plan.mechanism_plan)
    assert {each.name for each in answer.considered} <= CHOSEN


def chosen(population: int, *more: str, k: int = 10, counts: bool = False, per: bool = False) -> Plan:
    told = session_over(population=population)
    return told.explain(statement("delta = 2.5e-8", *more, k=k, counts=counts, per=per))


@pytest.mark.parametrize("k", [1, 5, 11, 12, 50, 200])
@pytest.mark.parametrize("counts", [False, True])
def test_a_population_decides_nothing(k: int, counts: bool) -> None:
    """Population / k says too little of the k-th count of skewed data."""
    text = statement("delta = 2.5e-8", k=k, counts=counts)
    usual = SESSION.explain(text)
    for population in (1, 30_000, 10**12):
        told = session_over(population=population)
        for plan in (told.explain(text), told._plans.find(told._analyze(text, ())).plan):
            assert (plan.mechanism, plan.mechanism_plan) == (usual.mechanism, usual.mechanism_plan)
        assert told.explain(text).considered == usual.considered
        assert dict(told.explain(text).facts())["chosen because"] == dict(usual.facts())["chosen because"]


@pytest.mark.parametrize("k", [1, 2, 10, 50, 200])
def test_a_population_still_tells_whether_k_is_more_than_can_stand_out(k: int) -> None:
    plan = chosen(1, k=k)
    need = candidate(plan, plan.mechanism).prediction.units
    enough = math.ceil(need * k)
    (warning,) = chosen(enough - 1, k=k).warnings
    if Fraction(need) * 10 > enough - 1:  # a share of the population says more
        assert warning.startswith(f"Each article needs about {need:,.0f} ")
        return
    assert warning.startswith(f"TOP {k} is more than is likely to stand out: each needs about {need:,.0f} ")
    assert f"of about {enough - 1:,} in all perhaps the first {max(1, k - 1)} " in warning
    assert chosen(enough, k=k).warnings == ()
    assert not chosen(enough - 1, *bounded(5), k=k).warnings
    assert not any(each.startswith("TOP") for each in chosen(1, k=k, per=True).warnings)


def test_the_least_population_of_the_tables_read_counts() -> None:
    tables = {
        "reads": dpsql.PrivateTable("user_id", population=10**9),
        "visits": dpsql.PrivateTable("user_id", population=10),
        "likes": dpsql.PrivateTable("user_id"),
    }
    columns = "(user_id BIGINT, article VARCHAR)"
    connection = shared(*[f"CREATE TABLE {name} {columns}" for name in tables])
    session = session_on(connection, dpsql.Policy(dpsql.Budget(40, "0.9"), tables))
    text = "SELECT article FROM reads {} GROUP BY article TOP 100 PRIVATE WITH (epsilon = 0.01)"
    semi = "SEMI JOIN {} USING (user_id)"
    found = [session.explain(text.format(more)) for more in ("", semi.format("likes"), semi.format("visits"))]
    assert [plan.population for plan in found] == [10**9, 10**9, 10]
    assert [len(plan.warnings) for plan in found] == [0, 0, 1]
    assert {plan.mechanism for plan in found} == {"two_looks"}


def test_nothing_is_best_of_nothing_or_of_what_is_only_compared() -> None:
    plan = SESSION.explain(statement(*bounded(1)))
    assert take_cheapest(()) is None
    assert take_cheapest(each for each in plan.considered if each.name not in CHOSEN) is None


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


GATED = {each.name for each in list_records(QueryKind.UNKNOWN) if "gate" in each.options}


@pytest.mark.properties
@pytest.mark.parametrize(("name", "groups", "counts"), EVEN)
@pytest.mark.parametrize("epsilon", ["0.01", "0.1"])
def test_a_group_of_the_units_predicted_has_an_even_chance(
    name: str, groups: int | None, counts: bool, epsilon: str
) -> None:
    """One group of so many units and no other; twice as many, or half, are far from even."""
    named = f"mechanism = {name}" + (", gate = false" if name in GATED else "")
    plan = SESSION.explain(statement("delta = 1e-6", named, *bounded(groups), k=5, counts=counts, epsilon=epsilon))
    found, noise = candidate(plan, name), SeededNoise(3)
    planned = found.mechanism.plan(found.request)
    weight = unit_weight(assume_groups_per_unit(groups or 100))

    def share(units: int, draws: int = 300) -> float:
        row = Groups(np.array([units], np.int64), np.array([units * weight], np.int64))
        return sum(len(planned.draw(row, noise).rows) for _ in range(draws)) / draws

    units = round(found.prediction.units)
    assert 0.44 <= share(units, 2_000) <= 0.56
    assert share(units // 2) < 0.1
    assert share(units * 2) > 0.9


@pytest.mark.properties
@pytest.mark.parametrize("name", ["two_looks", *sorted(GATED)])
@pytest.mark.parametrize(("k", "epsilon", "groups"), [(5, "0.1", 20), (50, "0.1", 20), (50, "0.1", 3), (10, "0.5", 1)])
def test_groups_of_the_units_predicted_come_back_as_often_as_not_after_a_look(
    name: str, k: int, epsilon: str, groups: int
) -> None:
    """Where there are k of them: of one alone a look sees a part in k."""
    plan = SESSION.explain(statement(f"mechanism = {name}", "delta = 1e-6", *bounded(groups), k=k, epsilon=epsilon))
    found, noise = candidate(plan, name), SeededNoise(3)
    planned = found.mechanism.plan(found.request)
    weight, units = unit_weight(assume_groups_per_unit(groups)), round(found.prediction.units)

    def share(units: int, draws: int = 200) -> float:
        rows = Groups(np.full(k, units, np.int64), np.full(k, units * weight, np.int64))
        return sum(len(planned.draw(rows, noise).rows) for _ in range(draws)) / draws / k

    assert 0.28 <= share(units, 500) <= 0.72
    assert share(units // 2) < 0.05
    assert share(units * 2) > 0.9


@pytest.mark.properties
@pytest.mark.parametrize("name", [each.name for each in list_records(QueryKind.KNOWN)])
@pytest.mark.parametrize("k", [1, 4])
def test_over_a_known_domain_that_margin_is_enough_in_one_of_two_draws(name: str, k: int) -> None:
    values = ", ".join(repr(f"v{n}") for n in range(40))
    plan = SESSION.explain(statement(f"domain = [{values}]", k=k))
    found, noise = candidate(plan, name), SeededNoise(5)
    lead = int(found.prediction.units) + 1
    groups = Groups(np.array([lead] * k + [0] * (40 - k), np.int64))
    planned = found.mechanism.plan(found.request)
    right = sum(set(planned.draw(groups, noise).rows) == set(range(k)) for _ in range(400))
    assert right >= 200


def test_recall_is_one_where_all_stand_out_and_nothing_where_none_do() -> None:
    plan = SESSION.explain(statement("delta = 1e-9", *bounded(3), k=3, counts=True))
    assert len(plan.considered) == 6
    for each in plan.considered:
        assert expected_recall(each, (10**8, 10**7, 10**6, 5), k=3, noise=SeededNoise(1)) == 1
        assert expected_recall(each, (1,), k=3, noise=SeededNoise(1)) == 0
        assert expected_recall(each, (), k=3, noise=SeededNoise(1)) == 1


def test_recall_is_the_share_of_those_that_stand_out() -> None:
    plan = SESSION.explain(statement("delta = 1e-9", *bounded(3), k=4, counts=True))
    open_gates = statement("delta = 1e-9", "mechanism = weighted_gaussian, gate = false", *bounded(3), k=4, counts=True)
    candidates = [*plan.considered, *SESSION.explain(open_gates).considered]
    assert len(candidates) == 9
    for each in candidates:
        found = expected_recall(each, (10**8, 10**7, 2, 1, 1), k=4, noise=SeededNoise(1))
        if each.name == "two_looks" or getattr(each.mechanism.plan(each.request), "gate", None) is not None:
            assert 0.3 < found <= 0.5  # a look may miss that half of them stand out
        else:
            assert found == 0.5


def test_what_ties_with_the_last_belongs_to_the_top() -> None:
    plan = SESSION.explain(statement("domain = ['a', 'b', 'c', 'd']", k=2))
    assert expected_recall(candidate(plan, plan.mechanism), (10**6, 7, 7, 7), k=2, noise=SeededNoise(1)) == 1
