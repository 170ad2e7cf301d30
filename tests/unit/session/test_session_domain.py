"""Known domains through SQL: the law of what is released, for all neighbours, and what it costs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Mapping
from fractions import Fraction
from itertools import combinations, combinations_with_replacement

import duckdb
import pytest
from support.domain_kit import exact_counts
from support.groups_kit import counted, drawn
from support.laws import Law, peeling_law, singles_out
from support.session_kit import filled, fresh_ledger, rebuilt, session_on, shared

import dpsql
from dpsql.accounting import ZCDP, BudgetState
from dpsql.engines import Exact
from dpsql.errors import EngineError
from dpsql.ledger import Request
from dpsql.plan import Plan
from dpsql.session import Session

CREATE = "CREATE TABLE reads (user_id BIGINT, article VARCHAR)"
LABELS = "CREATE TABLE labels AS SELECT * FROM (VALUES ('c', 3), ('a', 1), (NULL, 4), ('b', 2), ('a', 1)) v(article, n)"
POLICY = dpsql.Policy(
    dpsql.Budget(40, "1e-6"),
    {"reads": dpsql.PrivateTable("user_id"), "labels": dpsql.PublicTable()},
)
LISTED = "SELECT article FROM reads GROUP BY article TOP 2 PRIVATE WITH (epsilon = 1, domain = ['a', 'b', 'c'])"
STORED = LISTED.replace("['a', 'b', 'c']", "'labels.article'")
BOUNDED = LISTED.replace("epsilon = 1", "epsilon = 1, max_groups_contributed = 1")
PEELED = LISTED.replace("epsilon = 1", "epsilon = 1, mechanism = peeling")
FORMS = {"listed": LISTED, "stored": STORED, "bounded": BOUNDED}
DOMAIN = "abc"
SUBSETS = ["".join(chosen) for size in range(1, 4) for chosen in combinations("abz", size)]  # z is no candidate


def session_over(*statements: str) -> Session:
    return session_on(shared(CREATE, LABELS, *statements), POLICY)


def law_of(counts: Mapping[str, int]) -> dict[tuple[str, ...], float]:
    labels = sorted(counts)
    law = peeling_law([counts[label] for label in labels], None, 1.0, 2)
    return {tuple(labels[int(at)] for at in positions): mass for positions, mass in law.items()}


def released_labels(session: Session, sql: str, runs: int) -> Counter[Hashable]:
    """Return how often which labels were released: parsed and read once, one ledger that takes the price of a run."""
    ledger, plan, seen = fresh_ledger(session), session.explain(sql), Counter[Hashable]()
    reservation = ledger.reserve(Request(sql, plan.price(plan.worst_case)))
    for released in drawn(session, plan, runs):
        assert released.loss == ZCDP(dpsql.Rho(Fraction(2, 8)), dpsql.Delta(0))
        seen[tuple(released.table.column(0).to_pylist())] += 1
    reservation.settle(released.loss.rho.value, "")
    assert ledger.state() == BudgetState(Fraction(2, 8))
    return seen


ROWS = (
    "INSERT INTO reads SELECT i, 'a' FROM range(3) t(i)",
    "INSERT INTO reads SELECT i, 'b' FROM range(2) t(i)",
    "INSERT INTO reads SELECT i, 'a' FROM range(2) t(i)",
    "INSERT INTO reads SELECT i, 'z' FROM range(50) t(i)",
    "INSERT INTO reads SELECT i, NULL FROM range(50) t(i)",
    "INSERT INTO reads SELECT NULL, 'c' FROM range(50) t(i)",
)


@pytest.mark.properties
def test_the_law_is_that_of_peeling_over_every_candidate() -> None:
    session = session_over(*ROWS)
    assert exact_counts(session, LISTED) == {"a": 3, "b": 2, "c": 0}
    laws: list[Law] = [law_of({"a": 3, "b": 2, "c": count}) for count in (0, 1)]
    assert singles_out(*laws, sample=lambda runs: released_labels(session, LISTED, runs))


@pytest.mark.properties
def test_the_law_through_the_whole_session() -> None:
    session = session_over(*ROWS)

    def answers(runs: int) -> Counter[Hashable]:
        seen = Counter[Hashable]()
        for _ in range(runs):
            answer = rebuilt(session, ledger=fresh_ledger(session)).sql(STORED)
            seen[tuple(article for (article,) in answer.fetchall())] += 1
            assert answer.receipt.loss == ZCDP(dpsql.Rho(Fraction(2, 8)), dpsql.Delta(0))
        return seen

    laws: list[Law] = [law_of({"a": 3, "b": 2, "c": count}) for count in (0, 2)]
    assert singles_out(*laws, sample=answers)


@pytest.mark.properties
@pytest.mark.parametrize("form", FORMS)
def test_no_neighbour_exceeds_the_claim(form: str) -> None:
    """Every table of at most two units over {a, b, z}, and every unit more: two draws at epsilon 1, delta 0.

    The counts come from the generated SQL, the law from the formula; the candidates never depend on the rows.
    """
    connection = filled(CREATE, LABELS)
    session = session_on(connection, POLICY)
    plan = session.explain(FORMS[form])
    found: dict[tuple[str, ...], dict[str, int]] = {
        units: counted_units(connection, session, units=units, plan=plan)
        for size in range(4)
        for units in combinations_with_replacement(sorted(SUBSETS), size)
    }
    groups = 1 if form == "bounded" else 3
    worst = 0.0
    for base, before in found.items():
        for added in SUBSETS if len(base) < 3 else ():
            after = found[tuple(sorted((*base, added)))]
            moved = {label: after[label] - before[label] for label in DOMAIN}
            assert set(moved.values()) <= {0, 1}
            assert sum(moved.values()) == min(groups, len(added.strip("z")))
            p, q = law_of(before), law_of(after)
            assert p.keys() == q.keys()
            worst = max(worst, *(abs(math.log(p[event] / q[event])) for event in p))
    assert 0.9 < worst <= 2.0


def counted_units(
    connection: duckdb.DuckDBPyConnection, session: Session, *, units: tuple[str, ...], plan: Plan
) -> dict[str, int]:
    """Return the counts when there is one unit for each text of labels; a unit keeps its name whoever else is there."""
    connection.execute("DELETE FROM reads")
    unit_of = [10 * SUBSETS.index(labels) + units[:at].count(labels) for at, labels in enumerate(units)]
    rows = [f"({unit}, '{label}')" for unit, labels in zip(unit_of, units, strict=True) for label in labels]
    if rows:
        connection.execute(f"INSERT INTO reads VALUES {', '.join(rows)}")
    found = {str(label): int(str(count)) for label, count in counted(session, plan)}
    assert set(found) == set(DOMAIN)
    return found


@pytest.mark.mutant
def test_candidates_of_the_rows_alone_would_give_a_unit_away() -> None:
    """The mutant: without absent candidates an outcome is possible on one table and impossible on its neighbour."""
    with_unit, without = {"a": 1, "b": 1}, {"a": 1}
    p, q = law_of(with_unit), law_of(without)
    assert any(event not in q for event in p)


@pytest.mark.parametrize(
    ("sql", "keys", "items"),
    [
        (LISTED, 2, 2),
        (LISTED.replace("TOP 2", "TOP 50"), 3, 3),
        (STORED.replace("TOP 2", "TOP 50"), 3, 3),
        (PEELED.replace("SELECT article", "SELECT article, COUNT(DISTINCT user_id) AS n"), 2, 4),
        (
            PEELED.replace("SELECT article", "SELECT article, COUNT(DISTINCT user_id) AS n").replace(
                "epsilon = 1", "epsilon = 1, max_groups_contributed = 1"
            ),
            2,
            3,
        ),
        (STORED.replace("FROM reads", "FROM reads WHERE article = 'zz'").replace("TOP 2", "TOP 9"), 3, 3),
        (STORED.replace("TOP 2 PRIVATE", "TOP 9 PRIVATE") + " LIMIT 1", 1, 3),
        (LISTED.replace("['a', 'b', 'c']", "['zz']"), 1, 1),
    ],
)
def test_what_is_returned_is_charged_and_no_delta(sql: str, keys: int, items: int) -> None:
    session = session_over(*ROWS)
    before, plan = session.budget, session.explain(sql)
    answer = session.sql(sql)
    assert (len(answer), answer.receipt.items_charged) == (keys, items)
    assert answer.receipt.loss == ZCDP(dpsql.Rho(Fraction(items, 8)), dpsql.Delta(0))
    assert session.budget.rho.spent - before.rho.spent == Fraction(items, 8)
    assert session.budget.delta == before.delta
    assert answer.receipt.loss.rho <= plan.worst_case.rho
    assert (answer.receipt.mechanism, answer.receipt.stopped_at_bottom) == ("peeling", False)


def test_a_list_reserves_no_more_than_it_holds() -> None:
    session = session_over()
    assert session.explain(LISTED.replace("TOP 2", "TOP 50")).worst_items == 3
    assert session.explain(STORED.replace("TOP 2", "TOP 50")).worst_items == 50  # the table is not read to plan


def test_an_empty_domain_returns_nothing_and_costs_nothing() -> None:
    session = session_on(shared(CREATE, LABELS, "DELETE FROM labels WHERE article IS NOT NULL", *ROWS), POLICY)
    answer = session.sql(STORED)
    assert (len(answer), answer.receipt.loss) == (0, ZCDP.nothing())


def test_a_known_domain_is_answered_when_no_delta_is_left() -> None:
    session = session_over(*ROWS)
    session.sql("SELECT article FROM reads GROUP BY article TOP 1 PRIVATE WITH (delta = 5e-7)")
    with pytest.raises(dpsql.BudgetExceeded):
        session.sql("SELECT article FROM reads GROUP BY article TOP 1 PRIVATE")
    assert len(session.sql(LISTED)) == 2


def test_an_engine_that_forgets_candidates_or_counts_below_zero_is_not_believed() -> None:
    import pyarrow as pa

    session = session_over(*ROWS)
    for rows in ({"k": ["a"], "n": [-1]}, {"k": ["a"], "n": [None]}, {"k": ["a"], "m": ["b"], "n": [1]}):
        hooked = rebuilt(session, engine=lambda _statement, _run, rows=rows: Exact(pa.table(rows)))
        with pytest.raises(EngineError):
            hooked.sql(LISTED)


@pytest.mark.parametrize(
    ("key", "domain", "labels"),
    [
        ("CAST(user_id AS SMALLINT)", "'labels.n'", {1, 2, 3, 4}),
        ("user_id", "'labels.N'", {1, 2, 3, 4}),
        ("user_id", "['1', '-7', '1']", {1, -7}),
        ("user_id % 2 = 0", "['true', 'false']", {True, False}),
        ("user_id / 2", "['0.5', '1e0']", {0.5, 1.0}),
        ("upper(article)", '\'"main"."labels"."article"\'', {"a", "b", "c"}),
        ("length(article)", "['1', '2']", {1, 2}),
    ],
)
def test_candidates_take_the_type_of_the_key(key: str, domain: str, labels: set[object]) -> None:
    session = session_over(*ROWS)
    answer = session.sql(f"SELECT {key} AS k FROM reads GROUP BY 1 TOP 9 PRIVATE WITH (epsilon = 1, domain = {domain})")
    assert {row[0] for row in answer.fetchall()} == labels


def test_a_domain_may_be_large() -> None:
    session = session_over(*ROWS, "INSERT INTO labels SELECT 'label ' || i, i FROM range(100000) t(i)")
    answer = session.sql(STORED.replace("TOP 2", "TOP 5"))
    assert len(answer) == 5
    assert answer.receipt.items_charged == 5


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ("domain = ['a'], mechanism = limited_domain", "option"),
        ("domain = ['a'], k_bar = 50", "option"),
        ("domain = ['a'], delta = 1e-9", "option"),
        ("mechanism = peeling", "option"),
        ("domain = 'reads.article'", "domain"),
        ("domain = 'labels.x'", "domain"),
        ("domain = 'nothing.article'", "domain"),
        ("domain = 'article'", "domain"),
        ("domain = 'labels.article.'", "domain"),
        ("domain = ''", "domain"),
        ("domain = 'labels.n'", "domain"),
        ("domain = labels", "domain"),
        ("domain = 5", "domain"),
        ("domain = []", "option"),
    ],
)
def test_what_is_no_domain_is_refused(options: str, code: str) -> None:
    session = session_over(*ROWS)
    before = session.budget
    with pytest.raises(dpsql.Refusal) as raised:
        session.sql(f"SELECT article FROM reads GROUP BY article TOP 2 PRIVATE WITH ({options})")
    assert raised.value.code == code
    assert raised.value.hint
    assert session.budget == before


def test_the_plan_says_what_takes_part() -> None:
    facts = dict(session_over().explain(LISTED).facts())
    assert facts["domain"].startswith("3 values")
    assert "threshold" not in facts
    assert facts["delta"] == "0"
    assert "BOTTOM" not in facts["items at most"]
