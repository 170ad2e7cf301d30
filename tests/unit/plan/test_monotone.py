"""Monotone counts: the nearest that never rise and are at least 0, and only how an answer is shown."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import isotonic_regression
from support.session_kit import session_on, shared

import dpsql
from dpsql.plan.identity.stored_release import unpack
from dpsql.plan.release import COUNT, fit_monotone
from dpsql.session import Session

ROWS = "INSERT INTO reads SELECT u, 'a' || a FROM range(40) AS t(u), range(6) AS s(a) WHERE u % (a + 1) = 0"
ASK = (
    "SELECT article, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY article "
    "TOP 6 PRIVATE WITH (epsilon = 1, delta = 0.05{more})"
)


@pytest.fixture
def session() -> Session:
    policy = dpsql.Policy(dpsql.Budget(20, "0.5"), {"reads": dpsql.PrivateTable("user_id")})
    return session_on(shared("CREATE TABLE reads (user_id BIGINT, article VARCHAR)", ROWS), policy)


@given(st.lists(st.integers(-50, 50), max_size=12))
def test_they_are_the_nearest_that_never_rise_and_are_not_negative(counts: list[int]) -> None:
    found = fit_monotone(counts)
    nearest = isotonic_regression(np.array(counts, float), increasing=False).x if counts else []
    assert [max(0, np.floor(float(value) + 0.5 + 1e-9)) for value in nearest] == found
    assert found == sorted(found, reverse=True)


@given(st.lists(st.integers(-(10**25), 10**25), max_size=6))
def test_counts_of_any_size_are_exact(counts: list[int]) -> None:
    found = fit_monotone(counts)
    assert found == sorted(found, reverse=True)
    assert fit_monotone(found) == found


@pytest.mark.parametrize(
    ("counts", "shown"),
    [([], []), ([-4], [0]), ([3, 2, 1], [3, 2, 1]), ([1, 2], [2, 2]), ([0, 1, 5], [2, 2, 2]), ([5, -9, 2], [5, 0, 0])],
)
def test_small_cases(counts: list[int], shown: list[int]) -> None:
    assert fit_monotone(counts) == shown


def test_they_are_another_view_of_one_release(session: Session) -> None:
    plain = session.sql(ASK.format(more=""))
    shown = session.sql(ASK.format(more=", monotone = true"))
    assert shown.receipt.replayed
    assert shown.receipt.items_charged == 0
    plan = session.explain(ASK.format(more=""))
    stored = session._dependencies.ledger.stored(plan.key, None)
    assert stored is not None
    drawn = unpack(plan, stored)
    doubled = 1 if drawn.terms.noises[0].parts is None else 2  # where counts share a total
    fitted = [round(Fraction(count, doubled)) for count in fit_monotone(drawn.canonical.column(COUNT).to_pylist())]
    assert shown.fetchall() == list(zip((key for key, _ in plain.fetchall()), fitted, strict=True))
    assert session.sql(ASK.format(more=", monotone = false")).fetchall() == plain.fetchall()


def test_having_and_order_see_them(session: Session) -> None:
    shown = dict(session.sql(ASK.format(more=", monotone = true")).fetchall())  # type: ignore[arg-type]
    least = sorted(shown.values())[len(shown) // 2]
    cut = ASK.format(more=", monotone = true").replace("TOP 6", f"HAVING n >= {least} TOP 6") + " ORDER BY article"
    assert session.sql(cut).fetchall() == sorted((key, n) for key, n in shown.items() if n >= least)  # type: ignore[operator]


def test_intervals_are_those_of_the_noisy_counts(session: Session) -> None:
    with pytest.raises(dpsql.UsageError, match="as they were drawn") as caught:
        session.sql(ASK.format(more=", monotone = true")).intervals()
    assert caught.value.code == "adjusted-counts"


@pytest.mark.parametrize("more", [", monotone = 1", ", monotone = maybe", ", monotone = 'true'"])
def test_it_is_true_or_false(session: Session, more: str) -> None:
    with pytest.raises(dpsql.Refusal, match="monotone is true or false"):
        session.sql(ASK.format(more=more))


def test_it_is_for_counts(session: Session) -> None:
    names = ASK.format(more=", monotone = true").replace(", COUNT(DISTINCT user_id) AS n", "")
    with pytest.raises(dpsql.Refusal, match="none are selected"):
        session.sql(names)
