"""Rows that cross from the engine: what EXPLAIN says of them, the policy's limit, and the cut of engines elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction

import pytest
from support.looks_kit import second_alone
from support.session_kit import HookedEngine, shared, values_rows

import dpsql
from dpsql.connect import open_session
from dpsql.engines import Column, Engine, Exact, Registered, Statement, open_exact
from dpsql.engines.duckdb.engine import DuckDBEngine
from dpsql.mechanisms.gate import Look
from dpsql.session import Session
from dpsql.testing.kit import PortableEngine

CROWDS = {"moon": 900, "sun": 800, "star": 700, "comet": 300} | {f"dust {at:03}": 1 + at % 3 for at in range(300)}
FEW = dpsql.Limits(max_k=50, max_k_bar=5_000, max_rows_fetched=100)
TOP = "SELECT article, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY article TOP {k} PRIVATE"
PER = "SELECT country, article FROM reads GROUP BY ALL TOP {k} PRIVATE PER country WITH (partitions = {listed})"
NAMES = "SELECT article FROM reads GROUP BY article TOP {k} PRIVATE WITH (epsilon = 0.01, domain = [{names}])"


LISTED = [f"x{at}" for at in range(101)]


class Crossing:
    """What a session's engine was asked, and how many rows came back."""

    def __init__(self) -> None:
        self.statements: list[Statement] = []
        self.rows: list[int] = []

    def __call__(self, statement: Statement, execute: object) -> Exact:
        assert callable(execute)
        exact = execute(statement)
        assert isinstance(exact, Exact)
        self.statements.append(statement)
        self.rows.append(open_exact(exact).num_rows)
        return exact


@contextmanager
def over(
    kind: str, limits: dpsql.Limits | None = None, crowds: dict[str, int] = CROWDS
) -> Iterator[tuple[Session, Crossing]]:
    """Open a session over DuckDB, in this process or as if it were elsewhere."""
    connection = shared(*values_rows(crowds), "ALTER TABLE reads ADD COLUMN country VARCHAR DEFAULT 'DE'")
    columns = tuple(Column(row[0], row[1]) for row in connection.execute("DESCRIBE reads").fetchall())
    engine: Engine
    if kind == "elsewhere":
        engine = PortableEngine(connection, {"reads": Registered(("memory", "main", "reads"), columns)})
    else:
        engine = DuckDBEngine.borrow(connection, {"reads": None})
    tables = {"reads": dpsql.PrivateTable("user_id")}
    policy = dpsql.Policy(dpsql.Budget(100, "1e-6"), tables, limits=limits or dpsql.Limits())
    seen = Crossing()
    hooked = HookedEngine(engine, seen)
    hooked.dialect = engine.dialect  # type: ignore[attr-defined]
    with open_session(hooked, policy, ledger=":memory:") as session:  # type: ignore[arg-type]
        yield session, seen


def rows_fetched(session: Session, text: str) -> str:
    return dict(session.explain(text).facts())["rows fetched"]


OPTIONS = {
    "limited domain": (TOP.format(k=10) + " WITH (mechanism = limited_domain)", 201),
    "k_bar": (TOP.format(k=10) + " WITH (mechanism = limited_domain, k_bar = 30)", 31),
    "listed": (TOP.format(k=2) + " WITH (domain = ['moon', 'sun', 'dust'])", 3),
    "all": (TOP.format(k=2).replace("TOP 2", "ALL") + " WITH (domain = ['moon', 'sun'])", 2),
    "a total": ("SELECT COUNT(DISTINCT user_id) FROM reads PRIVATE", 1),
    "partitions": (PER.format(k=3, listed=["DE", "FR"]).replace(")", ", mechanism = limited_domain)"), 122),
    "partitions of all groups": (PER.format(k=3, listed=["DE", "FR"]), None),
    "adaptive": ("SELECT article FROM reads GROUP BY article TOP ADAPTIVE PRIVATE", 51),
    "two looks": (TOP.format(k=10), None),
    "weighted": (TOP.format(k=30) + " WITH (mechanism = weighted_gaussian)", None),
    "histogram": (
        TOP.format(k=5) + " WITH (mechanism = gaussian_histogram, max_groups_contributed = 3, epsilon = 0.2)",
        None,
    ),
}


@pytest.mark.parametrize("kind", ["here", "elsewhere"])
@pytest.mark.parametrize("case", OPTIONS)
def test_explain_says_how_many_rows_the_engine_returns_at_most(kind: str, case: str) -> None:
    text, most = OPTIONS[case]
    with over(kind) as (session, seen):
        assert session.explain(text).max_rows_fetched == most
        told = rows_fetched(session, text)
        if most is None:
            assert told.endswith("; their number has no bound")
            assert ("or more, and few others" in told) == (kind == "elsewhere")
        else:
            assert told == f"at most {most}"
        session.sql(text)
        assert 1 <= len(seen.rows) <= (2 if case == "two looks" else 1)
        assert most is None or seen.rows[0] <= most


@pytest.mark.parametrize("k", [1, 2, 10, 11, 30, 200])
@pytest.mark.parametrize("options", ["", " WITH (max_groups_contributed = 2)"])
def test_without_a_limit_the_mechanism_is_the_same_on_all_engines(k: int, options: str) -> None:
    with over("here") as (here, _), over("elsewhere") as (elsewhere, _):
        plans = [session.explain(TOP.format(k=k) + options) for session in (here, elsewhere)]
        assert plans[0].mechanism == plans[1].mechanism
        assert plans[0].worst_case == plans[1].worst_case
        assert plans[0].release_key == plans[1].release_key


@pytest.mark.parametrize("kind", ["here", "elsewhere"])
@pytest.mark.parametrize("case", OPTIONS)
def test_under_a_limit_no_query_fetches_more(kind: str, case: str) -> None:
    text, _ = OPTIONS[case]
    asked = text if "limited_domain" in text else text.partition(" WITH (mechanism =")[0]
    with over(kind, FEW) as (session, seen):
        plan = session.explain(asked)
        assert plan.max_rows_fetched is not None
        assert plan.max_rows_fetched <= 100
        session.sql(asked)
        assert seen.rows[0] <= plan.max_rows_fetched
        assert "two_looks" not in {plan.mechanism, *(each.name for each in plan.considered)}


@pytest.mark.parametrize(
    ("text", "fix"),
    [
        (TOP.format(k=3) + " WITH (mechanism = weighted_gaussian)", TOP.format(k=3)),
        (TOP.format(k=3) + " WITH (mechanism = two_looks)", TOP.format(k=3) + " WITH (mechanism = limited_domain)"),
        (TOP.format(k=3) + f" WITH (domain = {LISTED})", TOP.format(k=3) + f" WITH (domain = {LISTED[:100]})"),
        (PER.format(k=9, listed=LISTED[:11]), PER.format(k=9, listed=LISTED[:10])),
        (
            PER.format(k=9, listed=["DE"]).replace(")", ", mechanism = weighted_gaussian)"),
            PER.format(k=9, listed=["DE"]).replace(")", ", mechanism = limited_domain)"),
        ),
    ],
)
def test_what_may_fetch_more_is_refused_before_it_is_charged(text: str, fix: str) -> None:
    with over("elsewhere", FEW) as (session, seen):
        before = session.budget
        with pytest.raises(dpsql.Refusal) as caught:
            session.sql(text)
        assert caught.value.code == "rows-fetched"
        assert "the policy allows 100" in caught.value.reason
        assert session.budget == before
        assert not seen.rows
        session.sql(fix)
        assert seen.rows[0] <= 100


def test_a_k_bar_above_the_limit_is_refused() -> None:
    with over("here", FEW) as (session, _):
        with pytest.raises(dpsql.Refusal, match=r"k_bar must be a whole number from 10 to 99\."):
            session.explain(TOP.format(k=10) + " WITH (k_bar = 100)")
        plan = session.explain(TOP.format(k=10) + " WITH (k_bar = AUTO)")
        assert plan.k_bar == 80


def know(session: Session, *names: str) -> None:
    listed = ", ".join(f"'{name}'" for name in names)
    session.sql(NAMES.format(k=len(names), names=listed))


def test_known_names_are_used_under_a_limit_where_the_statement_can_list_them() -> None:
    text = "SELECT article FROM reads GROUP BY article TOP 2 PRIVATE WITH (domain = released)"
    with over("elsewhere", FEW) as (session, seen):
        know(session, "moon", "sun", "none")
        assert session.explain(text).max_rows_fetched == 4
        assert sorted(session.sql(text).fetchall()) == [("moon",), ("sun",)]
        assert seen.rows[-1] <= 4
    with over("here", FEW) as (session, _):
        know(session, "moon", "sun", "none")
        with pytest.raises(dpsql.Refusal) as caught:
            session.sql(text)
        assert caught.value.code == "rows-fetched"
        session.sql(text.replace("released", "['a', 'b']"))


WEIGHTED = TOP.format(k=30) + " WITH (mechanism = weighted_gaussian{more})"


def test_few_rows_cross_from_an_engine_elsewhere_and_the_answer_is_as_good() -> None:
    with over("here") as (session, seen):
        session.sql(WEIGHTED.format(more=""))
        assert seen.rows[0] > 150
    with over("elsewhere") as (session, seen):
        answer = session.sql(WEIGHTED.format(more=", gate = false"))
        assert {"moon", "sun", "star"} <= {row[0] for row in answer.fetchall()}
        again = session.sql(WEIGHTED.format(more=", gate = false, fresh = true"))
        assert {"moon", "sun", "star"} <= {row[0] for row in again.fetchall()}
        assert 4 <= seen.rows[0] < 30
        first, second = (each.parameters for each in seen.statements[:2])
        assert first != second, "each release has places of its own"


def test_few_rows_of_the_second_look_cross_from_an_engine_elsewhere() -> None:
    """What is cut is below what the look sees of a group, so that nothing that it adds up is missing."""
    rows = dict[str, int]()
    for kind in ("here", "elsewhere"):
        with over(kind) as (session, seen):
            plan = session.explain(TOP.format(k=30))
            assert plan.spec.second is not None
            for _ in range(4):
                answer = session.sql(TOP.format(k=30) + " WITH (fresh = true)")
                assert "star" in {row[0] for row in answer.fetchall()} or "nothing does" in answer.receipt.legs
            read = [at for at, each in enumerate(seen.statements) if "dpsql_weight" in each.sql]
            assert len(read) == 4  # of 30 groups never enough are far above the others
            rows[kind] = max(seen.rows[at] for at in read)
            if kind == "elsewhere":
                assert plan.spec.second.cut is not None
                assert plan.spec.second.cut.value <= plan.mechanism_plan.selection.gate.start
                assert len({seen.statements[at].parameters for at in read}) == 4  # each with places of its own
    assert rows["here"] > 150
    assert 4 <= rows["elsewhere"] < 30


@pytest.mark.parametrize("second", [False, True])
def test_a_plan_has_no_places_and_shows_none(second: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Look, "draw", lambda *_: Fraction(0))  # after which both statements are run
    with over("elsewhere") as (session, seen):
        text = TOP.format(k=30) if second else WEIGHTED.format(more="")
        plan = session.explain(text)
        counting = second_alone(plan).counting
        assert (plan.spec.second is not None) == second
        start = counting.cut_at
        assert start is not None
        assert set(counting.parameters[start:]) == {0}
        session.sql(text)
        ran = seen.statements[-1]
        assert counting.sql == ran.sql
        assert plan.engine_sql == seen.statements[0].sql
        drawn = ran.parameters[start : start + 65]
        assert list(drawn[:64]) == sorted(set(drawn[:64]))
        assert drawn[64] == drawn[63]


@pytest.fixture
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Gaussian noise be 0, so that what the engine read can be seen; thresholds and choices stay as they are."""
    for module in ("gaussian_threshold", "noisy_counts", "sampling.above"):
        monkeypatch.setattr(f"dpsql.mechanisms.{module}.discrete_gaussian", lambda *_, count: [0] * count)


@pytest.mark.usefixtures("_quiet")
@pytest.mark.parametrize("mechanism", ["weighted_gaussian", "peeling"])
def test_the_number_of_units_is_read_where_no_known_name_has_rows(mechanism: str) -> None:
    """Without any row it would be 0, and one unit that adds the first row would bring all of them."""
    with over("elsewhere", crowds={f"dust {at:03}": 1 + at % 3 for at in range(40)}) as (session, seen):
        names = [f"absent {at:02}" for at in range(60)]
        know(session, *names)
        domain = ", domain = released" if mechanism == "peeling" else ""
        answer = session.sql(TOP.format(k=10) + f" WITH (epsilon = 1, known = all, mechanism = {mechanism}{domain})")
        assert len(answer) == 10
        assert answer.total is not None
        assert answer.total.value == 3
        assert seen.rows[-1] == 1


@pytest.mark.usefixtures("_quiet")
def test_a_known_name_below_the_cut_has_its_exact_count() -> None:
    few = dict(list(CROWDS.items())[:34])  # each user is in few enough to add to all of them
    with over("elsewhere", crowds=few) as (session, seen):
        know(session, "moon", "dust 002", "dust 003", "none", "comet")
        options = "epsilon = 1, known = all, mechanism = weighted_gaussian"
        answer = dict(session.sql(TOP.format(k=5) + f" WITH ({options})").fetchall())
        assert answer == {"moon": 900, "sun": 800, "star": 700, "comet": 300, "dust 002": 3}
        assert seen.rows[-1] < 20
