"""Two looks through SQL: what each branch costs to the item, what it shows, and what the engine reads for it."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

import duckdb
import pytest
from support.laws import SeededNoise
from support.looks_kit import AT_ONCE, DISCOVERY, HISTOGRAM, LEADERS, WEIGHTS, find_answerer, price_looks
from support.session_kit import charged, fresh_ledger, rebuilt, seeded, session_on, shared, values_rows

import dpsql
from dpsql.engines import Exact, Statement
from dpsql.mechanisms import WEIGHT_STEPS, unit_weight
from dpsql.mechanisms.two_looks import TwoLooks
from dpsql.plan.mechanisms import choice
from dpsql.plan.mechanisms.base import MechanismOutput, ReadAgain
from dpsql.plan.mechanisms.record import Auto
from dpsql.plan.mechanisms.two_looks import TwoLooksPlan
from dpsql.report.answer_json import encode_receipt
from dpsql.session import Session

CREATE = "CREATE TABLE reads (user_id BIGINT, article VARCHAR, seconds INTEGER)"
LARGE = [f"large {n:02}" for n in range(12)]  # a limited domain finds them all
MIDDLE = [
    f"middle {n}" for n in range(5)
]  # below its threshold of 43; a weight of 28 is far above that of weights, 7.4
CROWD = [f"crowd {n}" for n in range(10)]
SPREAD = [f"spread {n:03}" for n in range(100)]
NAMES = "SELECT article FROM reads GROUP BY article TOP {k} PRIVATE WITH (epsilon = 0.5, delta = 1e-6{more})"
COUNTS = NAMES.replace("SELECT article", "SELECT article, COUNT(DISTINCT user_id) AS n")
RUNS = 30  # of which all lack what has a chance of .4 or more with less than 3e-7


def readers(groups: list[str], units: int, *, first: int = 0) -> list[str]:
    """Return statements that give each group readers of its own."""
    return [
        f"INSERT INTO reads SELECT {first + 10_000 * at} + i, '{article}', 10 FROM range({units}) t(i)"
        for at, article in enumerate(groups)
    ]


EMPTY = (CREATE,)
RICH = (CREATE, *readers(LARGE, 1_500))
FEW = (CREATE, *readers(LARGE[:4], 1_500))
HALF = (CREATE, *readers(MIDDLE, 28))
CROWDED = (CREATE, *readers(CROWD, 20))
SAME = (
    CREATE,
    "INSERT INTO reads SELECT i, printf('spread %03d', j), 10 FROM range(50) t(i), range(100) s(j)",
)


def session_over(*statements: str, limits: dpsql.Limits | None = None, **table: object) -> Session:
    policy = dpsql.Policy(
        dpsql.Budget(50, "0.5"),
        {"reads": dpsql.PrivateTable("user_id", **table)},  # type: ignore[arg-type]
        limits=limits or dpsql.Limits(max_epsilon=1),
    )
    return session_on(shared(*statements), policy)


class Run(NamedTuple):
    """An answer with the statements that the engine ran for it, and what was reserved while each was run."""

    answer: dpsql.Answer
    statements: list[Statement]
    reserved: list[Fraction]
    session: Session

    @property
    def answerer(self) -> str:
        """What answered, in the words of the receipt."""
        return find_answerer(self.answer.receipt.legs)


def watched(session: Session, seed: int, sql: str) -> Run:
    """Return a run with a budget and noise of its own."""
    statements, reserved, own = list[Statement](), list[Fraction](), seeded(session, seed)

    def look(statement: Statement, execute: Callable[[Statement], Exact]) -> Exact:
        statements.append(statement)
        reserved.append(own.budget.rho.reserved)
        return execute(statement)

    return Run(rebuilt(own, engine=look).sql(sql), statements, reserved, own)


def runs(session: Session, sql: str, count: int = RUNS) -> Iterator[Run]:
    return (watched(session, seed, sql) for seed in range(count))


def run_until(session: Session, sql: str, answerer: str) -> Run:
    """Return the first of the runs in which this answered."""
    return next(each for each in runs(session, sql, 400) if each.answerer == answerer)


def read_second(session: Session, plan: dpsql.Plan) -> list[tuple[object, ...]]:
    """Return what the second statement returns."""
    assert plan.spec.second is not None
    counting = plan.spec.second.counting
    connection: duckdb.DuckDBPyConnection = session._dependencies.engine._connection  # type: ignore[attr-defined]
    return connection.execute(counting.sql, list(counting.parameters)).fetchall()


def read_first(session: Session, plan: dpsql.Plan) -> list[tuple[object, ...]]:
    connection: duckdb.DuckDBPyConnection = session._dependencies.engine._connection  # type: ignore[attr-defined]
    return connection.execute(plan.counting.sql, list(plan.counting.parameters)).fetchall()


class Case(NamedTuple):
    """Data, what is asked, what may be found of it, and the branches that are likely enough to be seen."""

    rows: tuple[str, ...]
    k: int
    units: dict[str, int]
    seen: set[str]
    discovered: int = 0


CASES = {
    "nothing is there": Case(EMPTY, 10, {}, {LEADERS}),
    "all stand out": Case(RICH, 10, dict.fromkeys(LARGE, 1_500), {AT_ONCE}, discovered=12),
    "all are returned": Case(FEW, 4, dict.fromkeys(LARGE[:4], 1_500), {AT_ONCE}, discovered=4),
    "BOTTOM is drawn": Case(FEW, 5, dict.fromkeys(LARGE[:4], 1_500), {AT_ONCE}, discovered=4),
    "weights see half": Case(HALF, 10, dict.fromkeys(MIDDLE, 28), {WEIGHTS}, discovered=5),
    "weights see a crowd": Case(CROWDED, 10, dict.fromkeys(CROWD, 20), {DISCOVERY}, discovered=10),
    "counts see more than weights": Case(SAME, 10, dict.fromkeys(SPREAD, 50), {AT_ONCE}, discovered=10),
    "one group": Case((CREATE, *readers(LARGE[:1], 1_500)), 1, {LARGE[0]: 1_500}, {AT_ONCE}, discovered=1),
}
BOTH = [("weights see half", False), ("weights see a crowd", True), ("all stand out", True)]


@pytest.mark.parametrize(("case", "counted"), [*((case, at % 2 == 0) for at, case in enumerate(CASES)), *BOTH])
def test_each_branch_costs_its_items_exactly_and_reads_what_it_needs(case: str, counted: bool) -> None:
    rows, k, units, expected, discovered = CASES[case]
    session = session_over(*rows)
    sql = (COUNTS if counted else NAMES).format(k=k, more="")
    plan, seen = session.explain(sql), Counter[str]()
    assert plan.mechanism == "two_looks"
    assert plan.spec.second is not None
    assert plan.worst_case.rho == charged(plan, 2 * k if counted else k)
    for run in runs(session, sql):
        receipt, labels = run.answer.receipt, [row[0] for row in run.answer.fetchall()]
        assert receipt.mechanism == "two_looks"
        assert len(labels) == len(set(labels)) <= k
        assert set(map(str, labels)) <= units.keys()
        seen[run.answerer] += 1
        told = f"{run.answerer}: {len(labels)}"
        stands = receipt.legs.partition(";")[0]
        assert stands in {f"by counts about {n} of {k} stand out" for n in range(k + 1)}
        if run.answerer == AT_ONCE:
            assert receipt.legs == f"{stands}; {told}"
        else:
            does = {f"{stands}; by weights {word} does; {told}": word for word in ("nothing", "something")}[
                receipt.legs
            ]
            assert does == "something" or run.answerer == LEADERS
        assert receipt.stopped_at_bottom == (len(labels) < k)
        # what the engine read: leaders first, and groups with weights only where the first look settled nothing
        expected_sql = [plan.counting.sql, plan.spec.second.counting.sql][: 1 if run.answerer == AT_ONCE else 2]
        assert [each.sql for each in run.statements] == expected_sql
        # what it costs, to the last digit
        paid = price_looks(plan.epsilon, run.answerer, k=k, found=len(labels), discovered=discovered)
        paid += charged(plan, len(labels) if counted else 0).value
        assert receipt.loss.rho.value == paid <= plan.worst_case.rho.value
        assert receipt.items_charged == math.ceil(paid / charged(plan, 1).value) <= plan.worst_items
        assert receipt.loss.delta == plan.delta
        assert run.reserved == [plan.worst_case.rho.value] * len(run.statements)
        budget = run.session.budget
        assert (budget.rho.spent, budget.delta.spent, budget.rho.reserved) == (paid, plan.delta.value, 0)
        for label, count in run.answer.fetchall() if counted else ():
            assert abs(int(str(count)) - units[str(label)]) < 20  # about 7 sigma
    assert expected <= set(seen)


def test_nothing_costs_a_third_of_ten_items_on_average_and_a_ninth_of_a_hundred() -> None:
    session = session_over(*EMPTY)
    for k, share in ((10, Fraction(32, 100)), (100, Fraction(11, 100))):
        sql, opened = NAMES.format(k=k, more=""), 0
        plan = session.explain(sql)
        count = 60
        spent = Fraction(0)
        for run in runs(session, sql, count):
            assert run.answer.receipt.answered == 0
            assert len(run.statements) == 2  # the looks are noise where there is no row, too
            opened += run.answerer == WEIGHTS
            spent += run.answer.receipt.loss.rho.value
        height = plan.mechanism_plan.selection.open_probability
        assert abs(opened - count * height) <= 5.5 * math.sqrt(count * height * (1 - height)) + 1
        closed = price_looks(plan.epsilon, LEADERS, k=k, found=0)
        assert spent == opened * charged(plan, k).value + (count - opened) * closed
        expected = height * charged(plan, k).value + (1 - height) * closed
        assert expected / charged(plan, k).value == pytest.approx(float(share), abs=0.02)


def test_receipt_json_and_details_say_what_was_seen_and_what_answered() -> None:
    session = session_over(*HALF)
    receipt = run_until(session, NAMES.format(k=10, more=""), WEIGHTS).answer.receipt
    legs = receipt.legs
    assert legs.endswith(" of 10 stand out; by weights something does; weighted Gaussian: 5")
    assert encode_receipt(receipt)["legs"] == legs
    assert json.loads(json.dumps(encode_receipt(receipt)))["legs"] == legs
    details = dict(receipt.details())
    assert details["legs"] == legs
    assert details["ended"] == "nothing else stands out"
    others = session.sql(NAMES.format(k=10, more=", mechanism = limited_domain")).receipt
    assert others.legs == encode_receipt(others)["legs"] == ""
    assert "legs" not in dict(others.details())


def test_explain_says_what_is_looked_at_and_what_nothing_costs_and_reads_nothing() -> None:
    session, statements = session_over(*EMPTY), list[Statement]()

    def look(statement: Statement, execute: Callable[[Statement], Exact]) -> Exact:
        statements.append(statement)
        return execute(statement)

    sql = NAMES.format(k=10, more="")
    facts = dict(rebuilt(session, engine=look).sql("EXPLAIN " + sql).fetchall())
    assert facts["mechanism"] == "two_looks"
    assert facts["chosen because"] == "it looks first how much stands out, and then answers as that favours"
    assert facts["k_bar"] == "1000"
    assert facts["first look"] == "at counts: how many of 10 are far above group number 1001"
    assert facts["threshold"] == "43.1 units above group number 1001"
    assert str(facts["second look"]).startswith(
        "at weights, if the first settled nothing; a group needs a noisy weight of "
    )
    assert facts["if nothing stands out"] == "about 3.2 of 10 items are charged"
    assert facts["items at most"] == "10 (charged: the looks, and what answers after them)"
    assert statements == []
    assert session.budget.rho.spent == 0
    facts = dict(session.sql("EXPLAIN " + NAMES.format(k=100, more="")).fetchall())
    assert facts["if nothing stands out"] == "about 10.9 of 100 items are charged"


def test_explain_shows_both_statements_and_that_their_rows_have_no_bound() -> None:
    session = session_over(*EMPTY)
    plan = session.explain(NAMES.format(k=10, more=""))
    assert plan.spec.second is not None
    assert plan.max_rows_fetched is None
    facts = dict(plan.facts())
    assert facts["engine SQL"] == plan.engine_sql == plan.counting.sql
    assert facts["engine SQL, second look"] == plan.spec.second.counting.sql != plan.engine_sql
    assert facts["rows fetched"] == "at most 1,001; in the second look one for each group; their number has no bound"
    others = session.explain(NAMES.format(k=10, more=", mechanism = limited_domain"))
    assert dict(others.facts())["rows fetched"] == "at most 201"
    assert "engine SQL, second look" not in dict(others.facts())


# --- a second statement that fails


def failing(error: BaseException) -> Callable[[Statement, Callable[[Statement], Exact]], Exact]:
    """Return an engine's execute that answers the first statement, and fails at the second."""
    ran = list[Statement]()

    def run(statement: Statement, execute: Callable[[Statement], Exact]) -> Exact:
        ran.append(statement)
        if len(ran) == 2:
            raise error
        return execute(statement)

    return run


def second_read(session: Session, sql: str) -> int:
    """Return a seed with which the second statement is run."""
    return next(seed for seed in range(400) if len(watched(session, seed, sql).statements) == 2)


def own_session(session: Session, seed: int, error: BaseException) -> Session:
    return rebuilt(session, engine=failing(error), ledger=fresh_ledger(session), noise=SeededNoise(seed))


@pytest.mark.parametrize("error", [RuntimeError("a cell value"), dpsql.EngineError("a", "b", hint="c")])
def test_a_second_statement_that_fails_is_charged_in_full_and_says_so(error: BaseException) -> None:
    session, sql = session_over(*HALF), COUNTS.format(k=10, more="")
    own = own_session(session, second_read(session, sql), error)
    plan = own.explain(sql)
    with pytest.raises(dpsql.EngineError) as caught:
        own.sql(sql)
    assert caught.value.code == "engine-failed"
    assert str(caught.value).startswith("[engine-failed]: The engine could not answer; the query is charged in full: ")
    assert caught.value.__cause__ is caught.value.__context__ is None
    assert "cell value" not in str(caught.value)
    assert own.budget.rho.spent == plan.worst_case.rho.value
    assert own.budget.delta.spent == plan.delta.value
    assert own.budget.rho.reserved == 0
    (entry,) = own._dependencies.ledger.entries()
    assert entry.settlement is not None
    assert entry.settlement.digest == "failed"
    assert own._dependencies.ledger.stored(plan.key, None) is None
    again = own.sql(sql)  # which the engine answers
    assert not again.receipt.replayed
    assert own.budget.rho.spent == plan.worst_case.rho.value + again.receipt.loss.rho.value


def test_an_interrupt_of_the_second_statement_is_charged_in_full() -> None:
    session, sql = session_over(*HALF), NAMES.format(k=10, more="")
    own = own_session(session, second_read(session, sql), KeyboardInterrupt())
    plan = own.explain(sql)
    with pytest.raises(KeyboardInterrupt) as caught:
        own.sql(sql)
    assert caught.value.__cause__ is caught.value.__context__ is None
    assert own.budget.rho.spent == plan.worst_case.rho.value
    assert own.budget.rho.reserved == 0
    (entry,) = own._dependencies.ledger.entries()
    assert entry.settlement is not None
    assert entry.settlement.digest == "interrupted"
    assert not own.explain(sql).stored


def test_a_second_answer_that_does_not_fit_is_charged_in_full() -> None:
    """As the leaders again, without weights: what cannot be drawn from, whatever it holds."""
    session, sql = session_over(*HALF), COUNTS.format(k=10, more="")
    seed, first = second_read(session, sql), list[Statement]()

    def repeat(statement: Statement, execute: Callable[[Statement], Exact]) -> Exact:
        first.append(statement)
        return execute(first[0])

    own = rebuilt(session, engine=repeat, ledger=fresh_ledger(session), noise=SeededNoise(seed))
    with pytest.raises(dpsql.EngineError) as caught:
        own.sql(sql)
    assert len(first) == 2
    assert caught.value.code == "release-failed"
    assert own.budget.rho.spent == own.explain(sql).worst_case.rho.value
    assert not own.explain(sql).stored


# --- which read answers


def test_counts_and_keys_are_of_the_read_that_answered() -> None:
    """Between the statements the data changes: new groups come, and those that were there grow."""
    session = session_over(*CROWDED, *readers(LARGE[:5], 1_500, first=10**6))
    grown = session_over(*CROWDED, *readers(LARGE[:5], 9_000, first=10**6), *readers(["new"], 5_000, first=10**7))
    sql, seen = COUNTS.format(k=7, more=""), Counter[str]()
    for seed in range(RUNS):
        ran = list[Statement]()

        def look(statement: Statement, execute: Callable[[Statement], Exact], ran: list[Statement] = ran) -> Exact:
            ran.append(statement)
            return execute(statement) if len(ran) == 1 else grown._dependencies.engine.execute(statement)

        answer = rebuilt(seeded(session, seed), engine=look).sql(sql)
        answerer = find_answerer(answer.receipt.legs)
        labels = [row[0] for row in answer.fetchall()]
        assert set(LARGE[:5]) <= set(labels)
        of_second = answerer in {WEIGHTS, DISCOVERY}
        seen["second" if of_second else "first"] += 1
        assert ("new" in labels) == of_second
        for label, count in answer.fetchall():
            expected = {"new": 5_000}.get(str(label), 20 if "crowd" in str(label) else 9_000 if of_second else 1_500)
            assert abs(int(str(count)) - expected) < 25
    assert seen.keys() == {"first", "second"}


@pytest.mark.parametrize("bumped_at", [1, 2])
def test_an_answer_is_not_reused_once_the_data_version_changed_between_its_reads(bumped_at: int) -> None:
    """As of the version of its reservation it is of no use any more, and as of the next it was never stored."""
    session, sql = session_over(*HALF), NAMES.format(k=10, more="")
    seed, ran = second_read(session, sql), list[Statement]()

    def bump(statement: Statement, execute: Callable[[Statement], Exact]) -> Exact:
        ran.append(statement)
        exact = execute(statement)
        if len(ran) == bumped_at:  # after the first read, or after both
            own._dependencies.ledger.bump("new data")
        return exact

    own = rebuilt(session, engine=bump, ledger=fresh_ledger(session), noise=SeededNoise(seed))
    first = own.sql(sql)
    assert len(ran) == 2
    paid = own.budget.rho.spent
    assert paid == first.receipt.loss.rho.value
    plan = own.explain(sql)
    assert not plan.stored
    assert own._dependencies.ledger.stored(plan.key, None, *plan.named_keys) is None
    again = own.sql(sql)
    assert not again.receipt.replayed
    assert own.budget.rho.spent == paid + again.receipt.loss.rho.value > paid
    assert own.sql(sql).receipt.replayed  # that of the new version


@pytest.mark.parametrize("answerer", [AT_ONCE, WEIGHTS, DISCOVERY])
def test_labels_and_counts_stay_together_in_either_read(answerer: str) -> None:
    """Leaders come by count, the second read in the order of labels; what is released is of the row that was drawn."""
    rows = {AT_ONCE: RICH, WEIGHTS: HALF, DISCOVERY: CROWDED}[answerer]
    session, sql = session_over(*rows), COUNTS.format(k=10, more="")
    plan, seen = session.explain(sql), list[MechanismOutput]()
    begin, finish = TwoLooksPlan.begin, ReadAgain

    def watch(self: TwoLooksPlan, groups: object, noise: object) -> MechanismOutput | ReadAgain:
        begun = begin(self, groups, noise)  # type: ignore[arg-type]
        if isinstance(begun, MechanismOutput):
            seen.append(begun)
            return begun
        resume = begun.resume

        def resumed(again: object, others: object) -> MechanismOutput:
            seen.append(resume(again, others))  # type: ignore[arg-type]
            return seen[-1]

        return finish(resumed)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TwoLooksPlan, "begin", watch)
        run = run_until(session, sql, answerer)
    drawn = seen[-1]
    assert drawn.of_second_read == (answerer != AT_ONCE)
    read = read_second(session, plan) if drawn.of_second_read else read_first(session, plan)
    if drawn.of_second_read:
        assert [row[0] for row in read] == sorted(str(row[0]) for row in read)
    assert [row[0] for row in run.answer.fetchall()] == [read[at][0] for at in drawn.rows]
    assert drawn.counts is not None
    doubled = 2 if drawn.total is not None else 1
    assert [row[1] for row in run.answer.fetchall()] == [round(Fraction(count, doubled)) for count in drawn.counts]


def test_the_leaders_are_k_bar_and_one_more_and_the_second_read_is_of_all_groups() -> None:
    session = session_over(CREATE, *readers([f"g{n:03}" for n in range(60)], 3))
    plan = session.explain(NAMES.format(k=2, more=", k_bar = 5"))
    assert (plan.mechanism, plan.k_bar) == ("two_looks", 5)
    assert plan.counting.sql.endswith("LIMIT 6")
    assert len(read_first(session, plan)) == 6
    assert len(read_second(session, plan)) == 60
    assert plan.spec.second is not None
    assert "LIMIT" not in plan.spec.second.counting.sql


@pytest.mark.parametrize(
    ("k", "option", "limit", "k_bar"),
    [
        (10, "", None, 1_000),
        (1, "", None, 1_000),
        (51, "", None, 1_020),
        (10, "", 400, 400),
        (10, ", k_bar = 77", None, 77),
        (10, ", k_bar = 10", 400, 10),
        (200, "", 400, 400),
    ],
)
def test_a_thousand_leaders_are_read_where_the_policy_lets_them(
    k: int, option: str, limit: int | None, k_bar: int
) -> None:
    limits = dpsql.Limits(max_epsilon=1, max_k=200, **({} if limit is None else {"max_k_bar": limit}))
    plan = session_over(*EMPTY, limits=limits).explain(NAMES.format(k=k, more=option))
    assert (plan.mechanism, plan.k_bar) == ("two_looks", k_bar)
    assert plan.counting.sql.endswith(f"LIMIT {k_bar + 1}")


WIDE = "INSERT INTO reads SELECT 1, 'a' || i, 10 FROM range(150) t(i)"  # one unit in 150 groups, weighed in 100


def test_the_first_statement_has_every_group_that_has_a_count_and_the_second_those_with_a_weight() -> None:
    session = session_over(CREATE, WIDE)
    plan = session.explain(COUNTS.format(k=5, more=""))
    assert [row[1] for row in read_first(session, plan)] == [1] * 150
    rows = read_second(session, plan)
    assert len(rows) == 100
    assert {(row[1], row[2]) for row in rows} == {(1, unit_weight(100))}


# --- bounds


HEAVY = "INSERT INTO reads SELECT i % 50, 'a' || i, 10 FROM range(1000) t(i)"  # 50 units in 20 groups each


@pytest.mark.parametrize("bound", [1, 3, 20])
def test_under_a_bound_counts_are_within_it_and_weights_are_of_what_is_counted(bound: int) -> None:
    session = session_over(CREATE, HEAVY, max_groups_contributed=bound)
    plan = session.explain(COUNTS.format(k=10, more=""))
    assert plan.mechanism == "two_looks"
    first, rows = read_first(session, plan), read_second(session, plan)
    assert sum(int(str(row[1])) for row in first) == sum(int(str(row[1])) for row in rows) == 50 * bound
    assert {row[0]: row[1] for row in first} == {row[0]: row[1] for row in rows}  # the same groups of each unit
    assert all(row[2] == row[1] * unit_weight(bound) for row in rows)  # type: ignore[operator]
    answer = session.sql(COUNTS.format(k=10, more=""))
    assert answer.receipt.bounded_by == bound
    assert answer.receipt.loss.rho <= plan.worst_case.rho
    assert plan.worst_case.rho == charged(plan, 10 + min(bound, 10))


def test_what_a_bound_leaves_out_is_in_no_released_count() -> None:
    """Four thousand units are in both groups, and each counts in one of them."""
    both = [f"INSERT INTO reads SELECT i, '{name}', 10 FROM range(4000) t(i)" for name in ("a", "b")]
    bounded, free = session_over(CREATE, *both, max_groups_contributed=1), session_over(CREATE, *both)
    sql, answerers = COUNTS.format(k=2, more=""), set[str]()
    for session, total in ((bounded, 4_000), (free, 8_000)):
        for run in runs(session, sql):
            assert abs(sum(int(str(count)) for _, count in run.answer.fetchall()) - total) < 60
            answerers.add(run.answerer)
    assert {AT_ONCE, DISCOVERY} <= answerers  # of the leaders, and of the second read
    assert free.sql(sql).receipt.bounded_by is None


@pytest.mark.parametrize(("bound", "k"), [(1, 6), (3, 4), (5, 5)])
def test_behind_a_bound_a_histogram_may_answer_with_its_counts_and_costs_all(bound: int, k: int) -> None:
    """Its threshold is lower than what weights need, from the rho of the counts that it releases as well."""
    session = session_over(*HALF, max_groups_contributed=bound)
    sql = COUNTS.format(k=k, more="")
    plan, seen = session.explain(sql), Counter[str]()
    looks: TwoLooks = plan.mechanism_plan.selection
    assert looks.counts_rho is not None
    deviation = math.sqrt(looks.histogram.variance)
    for run in runs(session, sql, 12):  # whose noise is the same in every run
        receipt = run.answer.receipt
        seen[run.answerer] += 1
        assert run.answerer in {AT_ONCE, LEADERS, HISTOGRAM}
        assert receipt.loss.rho <= plan.worst_case.rho
        assert receipt.items_charged <= plan.worst_items
        if run.answerer == HISTOGRAM:
            assert receipt.loss.rho == plan.worst_case.rho == charged(plan, k + min(bound, k))
            assert receipt.items_charged == plan.worst_items
            assert len(run.statements) == 2
            assert {str(row[0]) for row in run.answer.fetchall()} <= set(MIDDLE)
            assert all(abs(int(str(count)) - 28) < 8 * deviation for _, count in run.answer.fetchall())
    assert seen[HISTOGRAM] > 0
    assert session.explain(NAMES.format(k=k, more="")).mechanism_plan.selection.counts_rho is None


# --- where two looks do not apply


MEASURES = {"rows": 3, "seconds": {"min": 0, "max": 10}}


def test_measures_after_a_number_of_users_are_of_the_read_that_answered() -> None:
    session = session_over(*HALF, bounds=MEASURES)
    sql = NAMES.replace(
        "SELECT article", "SELECT article, COUNT(DISTINCT user_id) AS n, SUM(seconds) AS s, COUNT(*) AS r"
    )
    sql = sql.format(k=10, more=", mechanism = two_looks")
    plan, seen = session.explain(sql), Counter[str]()
    assert plan.worst_case.rho == charged(plan, 40)
    for run in runs(session, sql, 20):
        found = run.answer.fetchall()
        seen[run.answerer] += 1
        paid = (
            price_looks(plan.epsilon, run.answerer, k=10, found=len(found), discovered=5)
            + charged(plan, 3 * len(found)).value
        )
        assert run.answer.receipt.loss.rho.value == paid
        for _, units, seconds, rows in found:
            assert abs(int(str(units)) - 28) < 25
            assert abs(float(str(seconds)) - 280) < 250
            assert abs(int(str(rows)) - 28) < 75
    assert seen[WEIGHTS] > 4


def test_where_names_are_known_two_looks_by_name_use_none_of_them() -> None:
    session = session_over(*RICH)
    session.sql(NAMES.format(k=12, more=", mechanism = limited_domain"))
    narrower = NAMES.replace("GROUP BY", "WHERE user_id >= 0 GROUP BY")
    assert session.explain(narrower.format(k=3, more="")).mechanism != "two_looks"
    assert session.explain(narrower.format(k=3, more=", known = false")).mechanism == "two_looks"
    named = session.explain(narrower.format(k=3, more=", mechanism = two_looks"))
    assert dict(named.facts())["known names"] == "12 that earlier answers released; two_looks uses none of them"
    assert session.sql(narrower.format(k=3, more=", mechanism = two_looks")).receipt.mechanism == "two_looks"


# --- stored answers


@pytest.mark.parametrize("answerer", [LEADERS, WEIGHTS])
def test_an_answer_of_two_reads_is_stored_once_and_free_from_then_on(answerer: str) -> None:
    session, sql = session_over(*EMPTY), COUNTS.format(k=10, more="")
    run = run_until(session, sql, answerer)
    spent = run.session.budget.rho.spent
    for text in (
        sql,
        sql.replace("delta", "mechanism = auto, delta"),
        sql.replace("delta", "mechanism = two_looks, delta"),
    ):
        again = run.session.sql(text)
        assert again.receipt.replayed
        assert again.receipt.legs == run.answer.receipt.legs
        assert again.fetchall() == run.answer.fetchall()
    assert run.session.budget.rho.spent == spent
    assert not run.session.sql(sql.replace("delta", "fresh = true, delta")).receipt.replayed


def test_a_stored_answer_of_a_former_default_is_still_free(monkeypatch: pytest.MonkeyPatch) -> None:
    session, sql = session_over(*FEW), NAMES.format(k=10, more="")
    with monkeypatch.context() as before:
        unchosen = (
            replace(each, auto=Auto.NEVER, replaces=()) if each.name == "two_looks" else each for each in choice.RECORDS
        )
        before.setattr(choice, "RECORDS", tuple(unchosen))
        first = session.sql(sql)
    assert (first.receipt.mechanism, first.receipt.items_charged, first.receipt.legs) == ("limited_domain", 5, "")
    stored = session._dependencies.ledger.stored(session.explain(sql).key, None)
    assert stored is not None
    assert b'"legs"' not in stored  # as it was written before there were any
    spent = session.budget.rho.spent
    assert session.explain(sql).mechanism == "two_looks"
    named = NAMES.format(k=10, more=", mechanism = limited_domain")
    for text in (sql, sql.replace("delta", "mechanism = auto, delta"), named):
        again = session.sql(text)
        assert again.receipt.replayed
        assert again.fetchall() == first.fetchall()
        assert (again.receipt.mechanism, again.receipt.items_charged, again.receipt.legs) == ("limited_domain", 0, "")
        assert again.receipt.threshold_offset == first.receipt.threshold_offset  # of the draw, not of today
    assert session.budget.rho.spent == spent
    assert not session.sql(NAMES.format(k=10, more=", mechanism = two_looks")).receipt.replayed
    assert session.sql(sql + " LIMIT 1").receipt.mechanism == "limited_domain"
    assert session.sql(NAMES.format(k=10, more=", fresh = true")).receipt.mechanism == "two_looks"


def test_the_relay_is_refused_by_name_with_a_hint_that_works() -> None:
    session = session_over(*FEW)
    text = NAMES.format(k=4, more=", mechanism = relay")
    for run in (session.sql, session.explain, session.replay):
        with pytest.raises(dpsql.Refusal) as refused:
            run(text)
        assert refused.value.code == "option"
        assert refused.value.reason == "The mechanism relay has left dpsql."
        assert refused.value.place is not None
        assert refused.value.place.fragment == "mechanism = relay"
    assert "write mechanism = auto" in refused.value.hint
    assert session.budget.rho.spent == 0
    for repaired in (text.replace("relay", "auto"), text.replace(", mechanism = relay", "")):
        assert session.sql(repaired).receipt.mechanism == "two_looks"


# --- what the query makes of the answer


def test_ordering_and_having_apply_after_the_looks() -> None:
    session = seeded(session_on(shared(*values_rows({"a": 2000, "b": 1500}))), 0)
    sql = "SELECT article, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY article HAVING n > 1700 TOP 3 PRIVATE"
    answer = session.sql(f"{sql} WITH (epsilon = 0.05, mechanism = two_looks) ORDER BY article DESC")
    assert [row[0] for row in answer.fetchall()] == ["a"]
    assert answer.receipt.answered == 2  # before HAVING


def test_weights_of_the_second_read_are_those_of_the_groups_of_each_unit() -> None:
    session = session_over(
        CREATE,
        *readers(["a", "b"], 7),
        "INSERT INTO reads SELECT 90000 + i, j, 1 FROM range(3) t(i), (VALUES ('a'), ('c')) v(j)",
    )
    plan = session.explain(COUNTS.format(k=10, more=""))
    rows = {row[0]: row[1:3] for row in read_second(session, plan)}
    two = unit_weight(2)
    assert rows == {"a": (10, 7 * WEIGHT_STEPS + 3 * two), "b": (7, 7 * WEIGHT_STEPS), "c": (3, 3 * two)}
    assert [row[:2] for row in read_first(session, plan)] == [("a", 10), ("b", 7), ("c", 3)]
