"""Every option: its default, its ceilings from the policy's limits, and every value that is refused by name."""

from __future__ import annotations

from fractions import Fraction

import pytest
from support.session_kit import PRIVATE, session_on, shared, values_rows

import dpsql
from dpsql.session import Session

BASE = "SELECT article FROM reads GROUP BY article TOP 10 PRIVATE"
LIMITS = dpsql.Limits(max_epsilon="0.2", min_epsilon="0.001", max_delta="1e-7", max_k=50, max_k_bar=300)


@pytest.fixture(scope="module")
def session() -> Session:
    policy = dpsql.Policy(dpsql.Budget(1, "1e-6", items=40, queries=10), PRIVATE, limits=LIMITS)
    return session_on(shared(*values_rows({"a": 5})), policy)


def asked(options: str, k: object = 10) -> str:
    return f"SELECT article FROM reads GROUP BY article TOP {k} PRIVATE WITH ({options})"


def test_defaults(session: Session) -> None:
    plan, terms = session.explain(BASE), session._dependencies.terms
    assert plan.epsilon == terms.epsilon
    assert plan.delta == dpsql.Delta(Fraction(1, 2 * 10**6) / 10)
    assert (plan.k, plan.k_bar, plan.mechanism) == (10, 300, "two_looks")
    assert plan.selection.max_groups_contributed is None
    assert plan.counts is None


@pytest.mark.parametrize(("k", "k_bar"), [(1, 20), (15, 300), (16, 300), (50, 300)])
def test_k_bar_is_twenty_k_up_to_its_ceiling(session: Session, k: int, k_bar: int) -> None:
    plan = session.explain(
        f"SELECT article FROM reads GROUP BY article TOP {k} PRIVATE WITH (mechanism = limited_domain)"
    )
    assert plan.k_bar == k_bar
    assert f"LIMIT {k_bar + 1}" in plan.engine_sql


ACCEPTED = [
    ("epsilon = 0.2", "epsilon", dpsql.Epsilon("0.2")),
    ("epsilon = 0.001", "epsilon", dpsql.Epsilon("0.001")),
    ("EPSILON = 1e-2", "epsilon", dpsql.Epsilon("0.01")),
    ("epsilon = .05", "epsilon", dpsql.Epsilon("0.05")),
    ("epsilon = 0.05000000000000000001", "epsilon", dpsql.Epsilon("0.05000000000000000001")),
    ("delta = 1e-7", "delta", dpsql.Delta("1e-7")),
    ("delta = 2.5e-8", "delta", dpsql.Delta("2.5e-8")),
    ("delta = 1e-30", "delta", dpsql.Delta("1e-30")),
    ("k_bar = 10", "k_bar", 10),
    ("k_bar = 300", "k_bar", 300),
    ("mechanism = AUTO", "mechanism", "two_looks"),
    ("mechanism = two_looks", "mechanism", "two_looks"),
    ("mechanism = limited_domain", "mechanism", "limited_domain"),
    ("fresh = true", "k", 10),
    ("fresh = FALSE", "k", 10),
    ("epsilon = 0.1, delta = 1e-8, k_bar = 20, max_groups_contributed = 3", "k_bar", 20),
]


@pytest.mark.parametrize(("options", "field", "value"), ACCEPTED)
def test_what_is_accepted(session: Session, options: str, field: str, value: object) -> None:
    assert getattr(session.explain(asked(options)), field) == value


@pytest.mark.parametrize(
    ("groups", "written"), [(1, "dpsql_least"), (7, "dpsql_rank <= 7"), (1_000_000, "dpsql_rank <= 1000000")]
)
def test_a_bound_on_contributions(session: Session, groups: int, written: str) -> None:
    plan = session.explain(asked(f"mechanism = limited_domain, max_groups_contributed = {groups}"))
    assert plan.selection.max_groups_contributed == groups
    assert written in plan.engine_sql
    assert f"at most {groups}" in str(plan)


NUMBERS = ["NaN", "nan", "infinity", "0", "0.0", "'0.05'", "TRUE", "NULL", "['0.05']", "0x1", "'x'", "ALL"]
REFUSED = [
    *((f"epsilon = {value}", "epsilon") for value in [*NUMBERS, "0.2000001", "0.00099", "1e309", "1e999", "1e-400"]),
    *((f"delta = {value}", "delta") for value in [*NUMBERS, "1.1e-7", "1", "1e309", "9e-31", "1e-999"]),
    *((f"k_bar = {value}", "k_bar") for value in [*NUMBERS, "9", "301", "20.0", "2e1", "99999999999"]),
    *((f"max_groups_contributed = {value}", "max_groups_contributed") for value in [*NUMBERS, "1000001", "1.5"]),
    ("epsilon = -0.05", "epsilon"),
    ("delta = -1e-8", "delta"),
    ("k_bar = -20", "k_bar"),
    ("k_bar = 'AUTO'", "k_bar"),
    ("mechanism = laplace", "mechanism"),
    ("mechanism = 5", "mechanism"),
    ("mechanism = adaptive", "mechanism"),
    ("mechanism = 'stabel'", "mechanism"),
    ("domain = 'countries.country'", "domain"),
    *((f"{name} = 3", name) for name in ("prefer", "penalty")),
    ("mechanism = stable, penalty = 1", "penalty"),
    *((f"mechanism = {name}, k_bar = AUTO", "k_bar") for name in ("stable", "top_stable")),
    ("fresh = 1", "fresh"),
    ("fresh = 'true'", "fresh"),
    ("fresh = maybe", "fresh"),
    ("nothing = 1", "nothing"),
    ("seed = 1", "seed"),
    ("rho = 1", "rho"),
    ('"epsilon" = 0.05', "epsilon"),
    ("epsilon = 0.05, EPSILON = 0.05", "epsilon"),
    ("epsilon 0.05", "epsilon"),
    ("epsilon =", "epsilon"),
    ("epsilon = 0.05,", ""),
    ("", ""),
]


@pytest.mark.parametrize(("options", "name"), REFUSED)
def test_what_is_refused(session: Session, options: str, name: str) -> None:
    sql = asked(options)
    before = session.budget
    for ask in (session.sql, session.explain):
        with pytest.raises((dpsql.Refusal, dpsql.Unsupported)) as caught:
            ask(sql)
        error = caught.value
        assert isinstance(error.place, dpsql.Place)
        column = error.place.column - 1
        assert sql[column:].startswith(error.place.fragment)
        assert column >= sql.index("WITH")
        if error.code != "syntax":  # what cannot be read at all is only placed
            assert name.lower() in (error.reason + error.place.fragment).lower()
    assert session.budget == before


@pytest.mark.parametrize(
    ("k", "code"),
    [
        (51, "k"),
        (1000, "k"),
        (999999999, "k"),
        (10**10, "k"),
        (10**400, "k"),
        (0, "k"),
        ("ADAPTIVELY", "clause"),
        ("1.5", "k"),
        ("'10'", "k"),
        ("?", "parameters"),
    ],
)
def test_k_in_the_text(session: Session, k: object, code: str) -> None:
    with pytest.raises(dpsql.Error) as caught:
        session.sql(f"SELECT article FROM reads GROUP BY article TOP {k} PRIVATE")
    assert caught.value.code == code
    assert isinstance(caught.value.place, dpsql.Place)


@pytest.mark.parametrize("k", [0, -1, 51, 10**400, True, 1.0, "10", None, float("nan")])
def test_k_as_a_parameter(session: Session, k: object) -> None:
    with pytest.raises(dpsql.Refusal) as caught:
        session.sql("SELECT article FROM reads GROUP BY article TOP ? PRIVATE", [k])
    assert caught.value.code == "k"


def test_the_ceilings_are_named(session: Session) -> None:
    with pytest.raises(dpsql.Refusal, match=r"epsilon must be a number, at least 0\.001 and at most 0\.2\."):
        session.sql(asked("epsilon = 1"))
    with pytest.raises(dpsql.Refusal, match=r"k_bar must be a whole number from 10 to 300\."):
        session.sql(asked("k_bar = 1"))
    with pytest.raises(dpsql.Refusal, match="k may be at most 50 here"):
        session.sql("SELECT article FROM reads GROUP BY article TOP 51 PRIVATE")


def test_without_limits_delta_may_take_the_whole_pool() -> None:
    session = session_on(shared(*values_rows({})))
    assert session.explain(asked("delta = 5e-7")).delta == dpsql.Delta("5e-7")
    with pytest.raises(dpsql.Refusal, match="at most 5e-07"):
        session.explain(asked("delta = 5.1e-7"))
