"""The audit of `maths.md` 13.1, item 5, through SQL: neighbouring tables, a large delta, mutants that must be seen."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from itertools import product

import pytest
from support.fuzzing import WHOLE
from support.intervals_kit import ERROR, SQL, Outcomes, agrees, interval, outcomes
from support.looks_kit import DISCOVERY, WEIGHTS, execute_once, find_answerer, find_opening
from support.session_kit import filled, fresh_ledger, rebuilt, session_on, shared

import dpsql
import dpsql.mechanisms.limited_domain as limited_domain_module
from dpsql.accounting import discrete_gaussian_tail
from dpsql.engines import Statement
from dpsql.mechanisms import WEIGHT_STEPS, GaussianHistogram, LimitedDomain, WeightedGaussian, unit_weight
from dpsql.plan import release
from dpsql.session import Session

# A share of 1/6 in place of 1/11, the nearest mistake, is seen in 2,300 runs but for one time in a million; what is
# farther away, such as a share of 1/5 or an epsilon that is found in outcomes which never come, in 1,500.
RUNS, MUTANT_RUNS, FAR_RUNS, FULL_RUNS, LOOKED = 20_000 if WHOLE else 2_500, 2_500, 1_500, 150, 2_000
DELTA = 0.1
BOUNDED = SQL.replace("k_bar = 2", "k_bar = 5, max_groups_contributed = 2")
POLICY = dpsql.Policy(
    dpsql.Budget(10, "0.5"), {"reads": dpsql.PrivateTable("user_id")}, limits=dpsql.Limits(max_epsilon=1)
)
CREATE = "CREATE TABLE reads (user_id BIGINT, article VARCHAR)"
USER = "INSERT INTO reads VALUES (1, 'a'), (1, 'b'), (1, 'a')"


def session_over(*statements: str) -> Session:
    return session_on(shared(CREATE, *statements), POLICY)


def test_one_user_appears_with_probability_delta_over_one_plus_delta() -> None:
    assert agrees(outcomes(session_over(USER), RUNS), DELTA / (1 + DELTA))


def test_the_same_with_bounded_contributions() -> None:
    """Three labels of one user, of which two are kept."""
    session = session_over(USER, "INSERT INTO reads VALUES (1, 'c')")
    assert agrees(outcomes(session, MUTANT_RUNS, BOUNDED), DELTA / (1 + DELTA))


def test_an_empty_table_releases_nothing() -> None:
    assert outcomes(session_over(), 1000) == Counter({(): 1000})


def test_the_same_through_the_whole_session() -> None:
    session = session_over(USER)
    seen: Outcomes = Counter()
    for _ in range(FULL_RUNS):
        answer = rebuilt(session, ledger=fresh_ledger(session)).sql(SQL)
        seen[tuple(article for (article,) in answer.fetchall())] += 1
        assert answer.receipt.loss.rho.value == Fraction(answer.receipt.items_charged, 8)
    assert agrees(seen, DELTA / (1 + DELTA))


@pytest.mark.mutant
@pytest.mark.parametrize(
    "offset",
    [
        lambda mechanism: Fraction(math.log(2 / mechanism.delta.value)),  # without + 1
        lambda mechanism: Fraction(1 - math.log(mechanism.delta.value)),  # M = 1
        lambda mechanism: Fraction(1 + math.log10(2 / mechanism.delta.value)),
        lambda mechanism: Fraction(2 + math.log(2 / mechanism.delta.value)),  # too careful is wrong too
    ],
    ids=["without + 1", "M = 1", "log10", "+ 2"],
)
def test_a_wrong_threshold_is_seen(monkeypatch: pytest.MonkeyPatch, offset: object) -> None:
    monkeypatch.setattr(LimitedDomain, "threshold_offset", property(offset))  # type: ignore[arg-type]
    assert not agrees(outcomes(session_over(USER), MUTANT_RUNS), DELTA / (1 + DELTA))


def epsilon_found(left: Outcomes, right: Outcomes, delta: float) -> float:
    """Return the largest epsilon that the two samples prove at 1e-6 in all, over every set of two outcomes."""
    events = [{first, second} for first in left | right for second in left | right]
    level = ERROR / (4 * len(events))
    best = 0.0
    for event in events:
        for p, q in ((left, right), (right, left)):
            low, _ = interval(sum(p[outcome] for outcome in event), p.total(), level)
            _, high = interval(sum(q[outcome] for outcome in event), q.total(), level)
            if low > delta:
                best = max(best, math.log((low - delta) / high))
    return best


def other_users(labels: dict[str, int]) -> list[str]:
    return [f"INSERT INTO reads SELECT 100 + i, '{label}' FROM range({count}) t(i)" for label, count in labels.items()]


def test_no_audit_exceeds_the_claim() -> None:
    """Two labels of one user more: TOP 2 at epsilon 1 is (2, 0.1)-differentially private."""
    base = other_users({"a": 5, "b": 4, "c": 4})
    left, right = outcomes(session_over(*base), RUNS), outcomes(session_over(*base, USER), RUNS)
    assert len(left | right) > 4
    assert epsilon_found(left, right, DELTA) <= 2.0


@pytest.mark.mutant
def test_the_audit_has_teeth(monkeypatch: pytest.MonkeyPatch) -> None:
    """A threshold that knows how many labels there are gives one user away."""
    monkeypatch.setattr(LimitedDomain, "threshold_offset", property(lambda _mechanism: Fraction(-2)))
    left, right = outcomes(session_over(), FAR_RUNS), outcomes(session_over(USER), FAR_RUNS)
    assert epsilon_found(left, right, DELTA) > 2.0


# The default: two looks, and by them a limited domain, or weights; delta is spent by one of these

DEFAULT = "SELECT article FROM reads GROUP BY article TOP 10 PRIVATE WITH (epsilon = 1, delta = 0.1, k_bar = 10)"


def looked(session: Session, runs: int) -> tuple[Outcomes, int]:
    """Return how often which labels came back, and how often weights answered; what is charged was reserved."""
    parts, plan = session._dependencies, session.explain(DEFAULT)
    assert plan.mechanism == "two_looks"
    exact = parts.engine.execute(Statement(plan.counting.sql, plan.counting.parameters))
    seen, opened, execute = Outcomes(), 0, execute_once(session)
    for _ in range(runs):
        released = release(plan, exact, noise=parts.noise, execute=execute)
        assert plan.price(released.loss).refundable <= plan.price(plan.worst_case).refundable
        seen[tuple(released.table.column(0).to_pylist())] += 1
        opened += find_answerer(released.legs) in {WEIGHTS, DISCOVERY}
    return seen, opened


def test_one_user_appears_with_probability_delta_at_most_though_weights_may_answer() -> None:
    seen, opened = looked(session_over(USER), LOOKED)
    assert interval(seen.total() - seen[()], seen.total())[0] <= DELTA
    assert seen[()] < seen.total()  # it is not vacuous: a user in two groups is found now and then
    assert opened > 50
    seen, opened = looked(session_over(), 500)
    assert seen == Counter({(): 500})
    assert opened > 0


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("mechanism", "threshold"),
    [(LimitedDomain, ("threshold_offset", Fraction(2))), (WeightedGaussian, ("threshold", 1))],
    ids=["of leaders", "of weights"],
)
def test_a_wrong_threshold_of_whatever_answers_is_seen(
    monkeypatch: pytest.MonkeyPatch, mechanism: type, threshold: tuple[str, object]
) -> None:
    name, wrong = threshold
    plain = looked(session_over(USER), LOOKED)[0]
    monkeypatch.setattr(mechanism, name, property(lambda _mechanism: wrong))
    seen, _ = looked(session_over(USER), LOOKED)
    share = [1 - each[()] / each.total() for each in (plain, seen)]
    if mechanism is LimitedDomain:
        assert interval(seen.total() - seen[()], seen.total())[0] > DELTA
    assert share[1] > share[0] + 0.02  # weights answer as often as noise alone lets them


# Rankings by a sum: one unit adds all that it may, R, to each of its groups


MOST = 500  # R: whole numbers
SPENT = dpsql.Policy(
    dpsql.Budget(10, "0.5"),
    {"orders": dpsql.PrivateTable("user_id", bounds={"rows": 4, "amount": {"max": MOST}})},
    limits=dpsql.Limits(max_epsilon=1),
)
BUYER = "INSERT INTO orders VALUES (1, 'a', 300), (1, 'a', 300), (1, 'b', 9000), (1, 'c', NULL), (1, 'd', -7)"
LEADERS = ", mechanism = limited_domain, k_bar = 2"
BY_SUM = "SELECT product, SUM(amount) AS s FROM orders GROUP BY product TOP 2 PRIVATE WITH (epsilon = 1, delta = 0.1{})"


def orders(*statements: str) -> Session:
    return session_on(
        filled("CREATE TABLE orders (user_id BIGINT, product VARCHAR, amount INTEGER)", *statements), SPENT
    )


def shown(session: Session, options: str, runs: int = MUTANT_RUNS) -> Outcomes:
    """Return how often which products came back, at a fixed price or by the item."""
    if "k_bar" in options:
        return outcomes(session, runs, BY_SUM.format(options), values=1)
    parts, plan = session._dependencies, session.explain(BY_SUM.format(options))
    exact = parts.engine.execute(Statement(plan.counting.sql, plan.counting.parameters))
    released = (release(plan, exact, noise=parts.noise).table.column(0).to_pylist() for _ in range(runs))
    return Counter(tuple(labels) for labels in released)


def test_one_unit_of_the_largest_sums_appears_with_probability_delta() -> None:
    """Of four groups of one unit two have a score, R each: BOTTOM stands R (1 + ln(2 / delta)) above 0."""
    assert agrees(shown(orders(BUYER), LEADERS, RUNS), DELTA / (1 + DELTA))
    assert shown(orders(), LEADERS, 500) == Counter({(): 500})


def test_one_unit_of_the_largest_sums_passes_a_threshold_as_often_as_it_should() -> None:
    k = groups = 2  # those with a score
    for mechanism, gate in product(("gaussian_histogram", "weighted_gaussian"), ("true", "false")):
        session, options = orders(BUYER), f", max_groups_contributed = 4, mechanism = {mechanism}, gate = {gate}"
        plan = session.explain(BY_SUM.format(options))
        own = plan.selection
        assert isinstance(own, GaussianHistogram | WeightedGaussian)
        added = MOST if isinstance(own, GaussianHistogram) else unit_weight(4)  # it has rows in four groups
        each = discrete_gaussian_tail(own.variance, own.threshold - added)
        passes = 1 - (1 - each) ** groups
        assert passes <= DELTA
        # by one unit the sum of the k largest sums moves by k * R, and that of weights by the root of k
        square = (k * MOST) ** 2 if isinstance(own, GaussianHistogram) else k * WEIGHT_STEPS**2
        opens = find_opening([added] * groups, k=k, threshold=own.threshold, square=square) if gate == "true" else 1
        assert agrees(shown(session, options), opens * passes)
        assert shown(orders(), options, 300) == Counter({(): 300})


@pytest.mark.mutant
@pytest.mark.parametrize(
    "offset",
    [
        lambda mechanism: Fraction(1 + math.log(2 / mechanism.delta.value)),  # R left out
        lambda mechanism: Fraction(MOST + math.log(2 / mechanism.delta.value)),  # of the logarithm's part
        lambda mechanism: Fraction(1 + MOST * math.log(2 / mechanism.delta.value)),  # of the first part
    ],
    ids=["without R", "logarithm without R", "1 in place of R"],
)
def test_a_threshold_without_r_is_seen(monkeypatch: pytest.MonkeyPatch, offset: object) -> None:
    monkeypatch.setattr(LimitedDomain, "threshold_offset", property(offset))  # type: ignore[arg-type]
    assert not agrees(shown(orders(BUYER), LEADERS, FAR_RUNS), DELTA / (1 + DELTA))


@pytest.mark.mutant
def test_a_histogram_whose_threshold_leaves_r_out_gives_a_unit_away(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = GaussianHistogram.threshold.fget  # type: ignore[attr-defined]
    options = ", max_groups_contributed = 4, mechanism = gaussian_histogram, gate = false"
    monkeypatch.setattr(GaussianHistogram, "threshold", property(lambda own: kept(own) - own.sensitivity + 1))
    seen = shown(orders(BUYER), options)
    low, _ = interval(seen.total() - seen[()], seen.total())
    assert low > DELTA


def test_no_audit_of_a_ranking_by_sums_exceeds_the_claim() -> None:
    """One unit of R in two groups more: names and order of TOP 2 at epsilon 1 are (2, 0.1)-differentially private."""
    base = [
        f"INSERT INTO orders SELECT 100 + i, '{label}', {MOST} FROM range({count}) t(i)"
        for label, count in {"a": 5, "b": 4, "c": 4}.items()
    ]
    left, right = (shown(orders(*base, *more), LEADERS, RUNS) for more in ([], [BUYER]))
    assert len(left | right) > 4
    assert epsilon_found(left, right, DELTA) <= 2.0


@pytest.mark.mutant
def test_a_race_without_r_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scores of R for each unit, raced at epsilon and not at epsilon / R, name the leader with certainty."""
    base = [
        f"INSERT INTO orders SELECT 100 + i, '{label}', {MOST} FROM range({count}) t(i)"
        for label, count in {"a": 30, "b": 30}.items()
    ]
    one = "INSERT INTO orders VALUES (1, 'b', 500)"
    original = limited_domain_module.race

    def fast(*arguments: object, epsilon: Fraction, **named: object) -> list[int]:
        return original(*arguments, epsilon=epsilon * MOST, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(limited_domain_module, "race", fast)
    left, right = (shown(orders(*base, *more), LEADERS, FAR_RUNS) for more in ([], [one]))
    assert epsilon_found(left, right, DELTA) > 2.0
