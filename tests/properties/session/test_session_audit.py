"""The audit of `maths.md` 13.1.5, through SQL: neighbouring tables, a large delta, and mutants that must be seen."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction

import pytest
from support.intervals_kit import ERROR, SQL, Outcomes, agrees, interval, outcomes
from support.session_kit import filled, fresh_ledger, rebuilt, session_on

import dpsql
from dpsql.mechanisms import LimitedDomain
from dpsql.session import Session

RUNS, MUTANT_RUNS, FULL_RUNS, PAIR_RUNS = 20_000, 4_000, 400, 5_000
DELTA = 0.1
BOUNDED = SQL.replace("k_bar = 2", "k_bar = 5, max_groups_contributed = 2")
POLICY = dpsql.Policy(
    dpsql.Budget(10, "0.5"), {"reads": dpsql.PrivateTable("user_id")}, limits=dpsql.Limits(max_epsilon=1)
)
CREATE = "CREATE TABLE reads (user_id BIGINT, article VARCHAR)"
USER = "INSERT INTO reads VALUES (1, 'a'), (1, 'b'), (1, 'a')"


def session_over(*statements: str) -> Session:
    return session_on(filled(CREATE, *statements), POLICY)


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
    left, right = outcomes(session_over(*base), PAIR_RUNS), outcomes(session_over(*base, USER), PAIR_RUNS)
    assert len(left | right) > 4
    assert epsilon_found(left, right, DELTA) <= 2.0


def test_the_audit_has_teeth(monkeypatch: pytest.MonkeyPatch) -> None:
    """A threshold that knows how many labels there are gives one user away."""
    monkeypatch.setattr(LimitedDomain, "threshold_offset", property(lambda _mechanism: Fraction(-2)))
    left, right = outcomes(session_over(), MUTANT_RUNS), outcomes(session_over(USER), MUTANT_RUNS)
    assert epsilon_found(left, right, DELTA) > 2.0
