"""The relay through SQL: what each of its outcomes costs to the item, what it shows, and what the engine reads."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import duckdb
import pytest
from dpsql.plan.mechanisms.relay import RelayPlan
from support.laws import SeededNoise
from support.session_kit import charged, rebuilt, seeded, session_on, shared, values_rows

import dpsql
from dpsql.answer_json import encode_receipt
from dpsql.engines import Exact, Statement
from dpsql.mechanisms import WEIGHT_STEPS, unit_weight
from dpsql.plan.mechanisms import choice
from dpsql.plan.mechanisms.base import MechanismOutput
from dpsql.plan.mechanisms.record import Auto
from dpsql.session import Session

CREATE = "CREATE TABLE reads (user_id BIGINT, article VARCHAR, seconds INTEGER)"
LARGE = [f"large {n}" for n in range(4)]  # found by the first leg
MIDDLE = [f"middle {n}" for n in range(5)]  # below its threshold of 41; a weight of 28 is far above that of the second
NAMES = "SELECT article FROM reads GROUP BY article TOP {k} PRIVATE WITH (epsilon = 0.5, delta = 1e-6{more})"
COUNTS = NAMES.replace("SELECT article", "SELECT article, COUNT(DISTINCT user_id) AS n")
NOTHING_LEFT = "nothing was left for a second leg"
OPEN = "gate open, weighted Gaussian"
CLOSED = "gate closed: the rest of the items was not charged"


def readers(groups: list[str], units: int, *, first: int = 0) -> list[str]:
    """Return statements that give each group readers of its own."""
    return [
        f"INSERT INTO reads SELECT {first + 10_000 * at} + i, '{article}', 10 FROM range({units}) t(i)"
        for at, article in enumerate(groups)
    ]


FEW = (CREATE, *readers(LARGE, 1_500))
BOTH = (*FEW, *readers(MIDDLE, 28, first=10**6))


def session_over(*statements: str, **table: object) -> Session:
    policy = dpsql.Policy(
        dpsql.Budget(50, "0.5"),
        {"reads": dpsql.PrivateTable("user_id", **table)},  # type: ignore[arg-type]
        limits=dpsql.Limits(max_epsilon=1),
    )
    return session_on(shared(*statements), policy)


def engine_rows(session: Session, plan: dpsql.Plan) -> list[tuple[object, ...]]:
    connection: duckdb.DuckDBPyConnection = session._dependencies.engine._connection  # type: ignore[attr-defined]
    return connection.execute(plan.counting.sql, list(plan.counting.parameters)).fetchall()


class Outcome(NamedTuple):
    rows: tuple[str, ...]
    k: int
    items: Fraction
    found: list[str]
    legs: str
    seed: int = 0


OUTCOMES = {
    "the first leg returns all": Outcome(FEW, 4, Fraction(4), LARGE, f"limited domain: 4; {NOTHING_LEFT}"),
    "BOTTOM was its last item": Outcome(FEW, 5, Fraction(5), LARGE, f"limited domain: 4; {NOTHING_LEFT}"),
    "one item is left": Outcome(FEW, 6, Fraction(51, 10), LARGE, f"limited domain: 4; {CLOSED}", seed=1),
    "the gate stays closed": Outcome(FEW, 10, Fraction(55, 10), LARGE, f"limited domain: 4; {CLOSED}"),
    "nothing is there": Outcome((CREATE,), 10, Fraction(19, 10), [], f"limited domain: 0; {CLOSED}"),
    "the gate opens": Outcome(BOTH, 10, Fraction(10), [*LARGE, *MIDDLE], f"limited domain: 4; {OPEN}: 5"),
    "the gate opens and k are returned": Outcome(
        BOTH, 8, Fraction(8), [*LARGE, *MIDDLE], f"limited domain: 4; {OPEN}: 4"
    ),
}


@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.parametrize("outcome", OUTCOMES)
def test_each_outcome_costs_its_items_exactly(outcome: str, counted: bool) -> None:
    rows, k, items, found, legs, seed = OUTCOMES[outcome]
    session = seeded(session_over(*rows), seed)
    sql = (COUNTS if counted else NAMES).format(k=k, more="")
    plan, answer = session.explain(sql), session.sql(sql)
    assert plan.mechanism == answer.receipt.mechanism == "relay"
    labels = [row[0] for row in answer.fetchall()]
    assert len(labels) == min(k, len(found)) == len(set(labels))
    assert set(labels) <= set(found)
    assert set(labels[:4]) == set(found[:4])  # the first leg's come first
    assert answer.receipt.legs == legs
    assert answer.receipt.stopped_at_bottom == (len(labels) < k)
    items += len(labels) if counted else 0  # counts of groups of both legs, one item each
    assert answer.receipt.loss.rho == charged(plan, items)
    assert answer.receipt.items_charged == -(-items // 1)  # a part of an item counts as one
    assert answer.receipt.loss.delta == plan.delta
    assert session.budget.rho.spent == charged(plan, items).value
    assert session.budget.delta.spent == plan.delta.value
    assert session.budget.rho.reserved == 0
    assert plan.worst_case.rho == charged(plan, 2 * k if counted else k)
    for label, count in answer.fetchall() if counted else ():
        assert abs(int(str(count)) - (1_500 if label in LARGE else 28)) < 20  # about 7 sigma


def test_a_gate_that_opens_for_nothing_costs_all_items() -> None:
    """Its noise alone opens it once in 44 runs, and the price is that of k items; nothing lies between."""
    session = session_over(CREATE)
    sql = NAMES.format(k=5, more="")
    plan, found = session.explain(sql), dict[str, Fraction]()
    for seed in range(50):
        receipt = seeded(session, seed).sql(sql).receipt
        assert receipt.answered == 0
        assert receipt.stopped_at_bottom
        found[receipt.legs] = receipt.loss.rho.value
        assert receipt.loss.rho <= plan.worst_case.rho
    assert found == {
        f"limited domain: 0; {CLOSED}": charged(plan, Fraction(14, 10)).value,
        "limited domain: 0; gate open, weighted Gaussian: 0": charged(plan, 5).value,
    }


def test_never_is_more_charged_than_was_reserved() -> None:
    session = session_over(CREATE, *readers(LARGE, 45), *readers(MIDDLE, 20, first=10**6))
    for sql in (NAMES.format(k=6, more=""), COUNTS.format(k=6, more=", max_groups_contributed = 30")):
        plan, legs = session.explain(sql.replace("WITH (", "WITH (mechanism = relay, ")), set[str]()
        for seed in range(25):
            reserved: list[Fraction] = []
            own = seeded(session, seed)

            def look(
                statement: Statement,
                execute: Callable[[Statement], Exact],
                own: Session = own,
                reserved: list[Fraction] = reserved,
            ) -> Exact:
                reserved.append(own.budget.rho.reserved)
                return execute(statement)

            receipt = rebuilt(own, engine=look).sql(sql.replace("WITH (", "WITH (mechanism = relay, ")).receipt
            assert reserved == [plan.worst_case.rho.value]
            assert receipt.loss.rho.value <= reserved[0]
            assert own.budget.rho.spent == receipt.loss.rho.value
            legs.add(receipt.legs.partition(";")[2].partition(",")[0])
        assert len(legs) > 1  # of several outcomes


def test_receipt_json_and_details_say_what_each_leg_did() -> None:
    session = session_over(*BOTH)
    receipt = seeded(session, 0).sql(NAMES.format(k=10, more="")).receipt
    legs = "limited domain: 4; gate open, weighted Gaussian: 5"
    assert encode_receipt(receipt)["legs"] == legs
    assert json.loads(json.dumps(encode_receipt(receipt)))["legs"] == legs
    details = dict(receipt.details())
    assert details["legs"] == legs
    assert details["ended"] == "nothing else stands out"
    others = session.sql(NAMES.format(k=10, more=", mechanism = limited_domain")).receipt
    assert others.legs == encode_receipt(others)["legs"] == ""
    assert "legs" not in dict(others.details())


def test_explain_shows_both_legs_and_reads_nothing() -> None:
    session = session_over(CREATE)
    facts = dict(session.sql("EXPLAIN " + NAMES.format(k=10, more="")).fetchall())
    assert facts["mechanism"] == "relay"
    assert facts["legs"] == "limited domain; what it leaves buys a weighted Gaussian"
    assert str(facts["second leg"]).startswith("if the first returns nothing, a gate costs 0.9 items; behind it ")
    assert facts["k_bar"] == "200"
    assert "above group number 201" in str(facts["threshold"])
    assert session.budget.rho.spent == 0


def test_a_replay_keeps_the_legs(example: Path) -> None:
    sql = "SELECT article FROM reads WHERE article = '{}' GROUP BY article TOP 9 PRIVATE"
    with dpsql.connect(example / "events.duckdb", policy=example / "policy.toml") as session:
        first = [session.sql(sql.format(article)) for article in ("article 1", "nowhere")]
    assert [answer.receipt.legs.partition(";")[0] for answer in first] == ["limited domain: 1", "limited domain: 0"]
    with dpsql.connect(example / "events.duckdb", policy=example / "policy.toml") as session:
        for answer, article in zip(first, ("article 1", "nowhere"), strict=True):
            for again in (session.sql(sql.format(article)), session.replay(sql.format(article))):
                assert again.receipt.replayed
                assert again.receipt.legs == answer.receipt.legs
                assert again.receipt.items_charged == 0
                assert again.receipt.stopped_at_bottom
                assert again.fetchall() == answer.fetchall()


def test_a_stored_answer_of_the_former_default_is_still_free(monkeypatch: pytest.MonkeyPatch) -> None:
    session, sql = session_over(*FEW), NAMES.format(k=10, more="")
    with monkeypatch.context() as before:
        unchosen = (replace(each, auto=Auto.NEVER) if each.name == "relay" else each for each in choice.RECORDS)
        before.setattr(choice, "RECORDS", tuple(unchosen))
        first = session.sql(sql)
    assert (first.receipt.mechanism, first.receipt.items_charged, first.receipt.legs) == ("limited_domain", 5, "")
    stored = session._dependencies.ledger.stored(session.explain(sql).key, None)
    assert stored is not None
    assert b'"legs"' not in stored  # as it was written before there was a relay
    spent = session.budget.rho.spent
    assert session.explain(sql).mechanism == "relay"
    named = NAMES.format(k=10, more=", mechanism = limited_domain")
    for text in (sql, sql.replace("delta", "mechanism = auto, delta"), named):
        again = session.sql(text)
        assert again.receipt.replayed
        assert again.fetchall() == first.fetchall()
        assert (again.receipt.mechanism, again.receipt.items_charged, again.receipt.legs) == ("limited_domain", 0, "")
        assert again.receipt.threshold_offset == first.receipt.threshold_offset  # of the draw, not of today
    assert session.budget.rho.spent == spent
    assert not session.sql(NAMES.format(k=10, more=", mechanism = relay")).receipt.replayed
    assert session.sql(sql + " LIMIT 1").receipt.mechanism == "limited_domain"
    assert session.sql(NAMES.format(k=10, more=", fresh = true")).receipt.mechanism == "relay"


MEASURES = {"rows": 1, "seconds": {"min": 0, "max": 10}}
RANKED = {
    "rows": NAMES.replace("SELECT article", "SELECT article, COUNT(*) AS n"),
    "a sum": NAMES.replace("SELECT article", "SELECT article, SUM(seconds) AS n"),
    "a sum, and rows": NAMES.replace("SELECT article", "SELECT article, SUM(seconds) AS n, COUNT(*) AS m"),
}


@pytest.mark.parametrize("ranked", RANKED)
def test_other_measures_rank_both_legs_too(ranked: str) -> None:
    session = seeded(session_over(*BOTH, bounds=MEASURES), 0)
    sql = RANKED[ranked].format(k=10, more=", mechanism = relay")
    plan, answer = session.explain(sql), session.sql(sql)
    assert plan.mechanism == "relay"
    assert answer.receipt.legs == "limited domain: 4; gate open, weighted Gaussian: 5"
    labels = [row[0] for row in answer.fetchall()]
    assert (set(labels[:4]), set(labels[4:])) == (set(LARGE), set(MIDDLE))
    each = 1 if ranked == "rows" else 10
    for label, first, *others in answer.fetchall():
        units = 1_500 if label in LARGE else 28
        assert abs(int(str(first)) - units * each) < 20 * each
        assert all(abs(int(str(other)) - units) < 20 for other in others)
    measures = len(plan.query.measures)
    assert answer.receipt.loss.rho == charged(plan, 10 + 9 * measures)
    assert answer.receipt.items_charged == 10 + 9 * measures <= plan.worst_items
    rows = engine_rows(session, plan)
    assert [len(row) for row in rows] == [2 + measures + plan.counting.has_total] * 9
    assert sorted(int(str(row[2])) for row in rows) == [28 * WEIGHT_STEPS] * 5 + [1_500 * WEIGHT_STEPS] * 4


HEAVY = "INSERT INTO reads SELECT i % 50, 'a' || i, 10 FROM range(1000) t(i)"  # 50 units in 20 groups each


@pytest.mark.parametrize("bound", [1, 3, 20])
def test_under_a_bound_counts_are_within_it_and_weights_are_of_what_is_counted(bound: int) -> None:
    session = session_over(CREATE, HEAVY, max_groups_contributed=bound)
    plan = session.explain(COUNTS.format(k=10, more=", mechanism = relay"))
    rows = engine_rows(session, plan)
    assert sum(int(str(row[1])) for row in rows) == 50 * bound
    assert all(row[2] == row[1] * unit_weight(bound) for row in rows)  # type: ignore[operator]
    answer = session.sql(COUNTS.format(k=10, more=", mechanism = relay"))
    assert answer.receipt.bounded_by == bound
    assert answer.receipt.loss.rho <= plan.worst_case.rho
    assert plan.worst_case.rho == charged(plan, 10 + min(bound, 10))


def test_what_a_bound_leaves_out_is_in_no_released_count() -> None:
    """Forty units are in both groups, and each counts in one of them."""
    both = [f"INSERT INTO reads SELECT i, '{name}', 10 FROM range(4000) t(i)" for name in ("a", "b")]
    session = session_over(CREATE, *both, max_groups_contributed=1)
    answer = session.sql(COUNTS.format(k=2, more=", mechanism = relay"))
    assert answer.receipt.legs == f"limited domain: 2; {NOTHING_LEFT}"
    assert abs(sum(int(str(count)) for _, count in answer.fetchall()) - 4000) < 50
    free = session_over(CREATE, *both).sql(COUNTS.format(k=2, more=", mechanism = relay"))
    assert abs(sum(int(str(count)) for _, count in free.fetchall()) - 8000) < 50
    assert free.receipt.bounded_by is None


WIDE = "INSERT INTO reads SELECT 1, 'a' || i, 10 FROM range(150) t(i)"  # one unit in 150 groups, weighed in 100


@pytest.mark.parametrize("measure", ["", "COUNT(DISTINCT user_id)", "COUNT(*)", "SUM(seconds)"])
def test_every_group_that_has_a_count_is_read_also_without_weight(measure: str) -> None:
    session = session_over(CREATE, WIDE, **({"bounds": MEASURES} if "DISTINCT" not in measure and measure else {}))
    sql = NAMES.format(k=5, more=", mechanism = relay")
    plan = session.explain(sql.replace("SELECT article", f"SELECT article, {measure} AS n") if measure else sql)
    rows = engine_rows(session, plan)
    assert len(rows) == 150
    assert {row[1] for row in rows} == {10 if "SUM" in measure else 1}
    assert sorted(int(str(row[2])) for row in rows) == [0] * 50 + [unit_weight(100)] * 100
    leaders = session.explain(sql.replace("= relay", "= weighted_gaussian"))
    assert len(engine_rows(session, leaders)) == 100  # which has no use for the others
    answer = session.sql(sql.replace("SELECT article", f"SELECT article, {measure} AS n") if measure else sql)
    assert answer.receipt.mechanism == "relay"


def test_all_groups_are_read_and_the_limit_of_leaders_is_the_first_legs() -> None:
    session = session_over(CREATE, *readers([f"g{n:03}" for n in range(60)], 3))
    plan = session.explain(NAMES.format(k=2, more=", k_bar = 5"))
    assert len(engine_rows(session, plan)) == 60
    assert (plan.mechanism, plan.k_bar) == ("relay", 5)
    assert "LIMIT" not in plan.counting.sql


def test_labels_and_counts_stay_together_over_both_legs() -> None:
    """Rows come in the order of labels, and what is released is taken from the row that was drawn."""
    session = session_over(*BOTH)
    plan = session.explain(COUNTS.format(k=10, more=""))
    seen: list[MechanismOutput] = []
    original = RelayPlan.draw

    def watch(self: RelayPlan, groups: object, noise: object) -> MechanismOutput:
        seen.append(original(self, groups, noise))  # type: ignore[arg-type]
        return seen[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RelayPlan, "draw", watch)
        answer = rebuilt(session, noise=SeededNoise(0)).sql(COUNTS.format(k=10, more=""))
    (drawn,) = seen
    rows = engine_rows(session, plan)
    assert [row[0] for row in rows] == sorted(str(row[0]) for row in rows)
    assert [row[0] for row in answer.fetchall()] == [rows[at][0] for at in drawn.rows]
    assert drawn.counts is not None
    assert [row[1] for row in answer.fetchall()] == [round(Fraction(count, 2)) for count in drawn.counts]  # doubled


@pytest.mark.parametrize("seed", range(5))
def test_ordering_and_having_apply_after_both_legs(seed: int) -> None:
    session = seeded(session_on(shared(*values_rows({"a": 2000, "b": 1500}))), seed)
    sql = "SELECT article, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY article HAVING n > 1700 TOP 3 PRIVATE"
    answer = session.sql(f"{sql} WITH (epsilon = 0.05, mechanism = relay) ORDER BY article DESC")
    assert [row[0] for row in answer.fetchall()] == ["a"]
    assert answer.receipt.answered == 2  # before HAVING
    assert answer.receipt.items_charged == 5  # two names, BOTTOM and two counts; of three items none is left
