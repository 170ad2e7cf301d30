"""Answers that follow from stored ones: first rows of a longer answer, given where their law is that of a new one."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from fractions import Fraction

import pytest
from support.session_kit import filled, rebuilt, seeded, session_on, shared, values_rows

import dpsql
from dpsql import plan as planning
from dpsql.answer import Answer
from dpsql.engines import Exact, Statement
from dpsql.errors import BudgetExceeded, EngineError, Refusal
from dpsql.intervals import ValueNoise
from dpsql.ledger import Ledger
from dpsql.plan import DerivedAnswer, Plan, planner
from dpsql.plan.identity import derived_answers, stored_release
from dpsql.plan.identity.replay_key import MeasuredRows, compute_keys
from dpsql.plan.release import ReleaseTerms
from dpsql.plan_finder import PlanFinder
from dpsql.policy.tables import Bounds
from dpsql.session import Session
from dpsql.terms import Sublimit

STRONG = {f"a{at:02}": 4_000 - 200 * at for at in range(16)}
POLICY = dpsql.Policy(dpsql.Budget(10, "1e-6"), {"reads": dpsql.PrivateTable("user_id", bounds=Bounds(rows=5))})
LISTED = f"domain = {list(STRONG)}"
SEEDS = {"epsilon = 0.3": 4}  # of noise with which the first look finds that enough stands out
LEADERS = "mechanism = limited_domain, k_bar = 100"  # whose first rows are given, whatever the looks would find
DAY = "2026-11-29"


def ask(k: int, options: str = "", *, where: str = "", counts: bool = False) -> str:
    selected = "article, COUNT(DISTINCT user_id) AS n" if counts else "article"
    return f"SELECT {selected} FROM reads {where} GROUP BY article TOP {k} PRIVATE{options and f' WITH ({options})'}"


def opened(seed: int = 2, policy: dpsql.Policy = POLICY) -> Session:
    """Return a session whose looks find that much stands out, on a known day."""
    return at_time("2026-11-29T23:59:00+00:00", seeded(session_on(shared(*values_rows(STRONG)), policy), seed))


def at_time(moment: str, session: Session) -> Session:
    """Return a session whose ledger's clock stands still."""
    session._dependencies.ledger._clock = lambda: datetime.fromisoformat(moment)  # type: ignore[method-assign]
    return session


def count_events(session: Session) -> int:
    return len(list(session._dependencies.ledger.events()))


def ask_free(session: Session, text: str) -> Answer:
    """Return an answer, having made sure that it costs nothing, reads nothing and writes nothing."""

    def refuse(statement: Statement, _: object) -> Exact:
        raise AssertionError(statement.sql)

    before, spent = count_events(session), session.budget.used
    answer = rebuilt(session, engine=refuse).sql(text)
    assert (answer.receipt.items_charged, answer.receipt.replayed, answer.receipt.used) == (0, True, 0)
    assert (count_events(session), session.budget.used) == (before, spent)
    return answer


def facts(session: Session, text: str) -> dict[str, str]:
    return dict(session.sql(f"EXPLAIN {text}").fetchall())  # type: ignore[arg-type]


def show_fate(session: Session, text: str) -> str:
    """Return whether a question is given from a stored answer, offered, or neither."""
    plan = session.explain(text)
    assert plan.stored == (plan.reused is not None)
    assert ("of an answer of" in facts(session, text).get("stored", "")) == (plan.reused is not None)
    assert ("offered" in facts(session, text)) == (plan.offered is not None)
    return "given" if plan.reused else "offered" if plan.offered else "neither"


@pytest.mark.parametrize("counts", [False, True])
@pytest.mark.parametrize("options", ["", "mechanism = limited_domain, k_bar = 100", LISTED, "epsilon = 0.3"])
def test_the_first_rows_of_a_longer_answer_are_free(options: str, counts: bool) -> None:
    with opened(SEEDS.get(options, 2)) as session:
        whole = session.sql(ask(6, options, counts=counts))
        assert len(whole) == 6
        for k in (5, 1):
            first = ask_free(session, ask(k, options, counts=counts))
            assert first.fetchall() == whole.fetchall()[:k]
            assert first.measures == whole.measures  # with the noise that was drawn
            assert (first.receipt.k, first.receipt.answered, first.receipt.wanted) == (k, k, k)
            assert first.receipt.reused == f"first {k} of an answer of 6 groups from {DAY}"
            assert f"; first {k} of an answer of 6 groups from {DAY}" in str(first.receipt)


def test_explain_says_from_which_answer_it_comes() -> None:
    with opened() as session:
        session.sql(ask(12))
        assert facts(session, ask(5))["stored"] == (
            f"first 5 of an answer of 12 groups from {DAY}; asking shows it and costs nothing"
        )
        assert "stored" not in facts(session, ask(13))
        assert session.forecast(ask(5)).cost == ""


def test_of_several_longer_answers_the_shortest_is_taken_and_of_equal_ones_the_newest() -> None:
    nameless = f"{LEADERS}, known = false"
    with opened() as session:
        for k in (12, 7, 9):
            session.sql(ask(k, f"{nameless}, reuse = false"))
        assert ask_free(session, ask(5, nameless)).receipt.reused == f"first 5 of an answer of 7 groups from {DAY}"
        again = session.sql(ask(7, f"{nameless}, fresh = true"))
        assert ask_free(session, ask(5, nameless)).fetchall() == again.fetchall()[:5]
        own = session.sql(ask(5, f"{nameless}, reuse = false"))
        assert not own.receipt.replayed
        assert ask_free(session, ask(5, nameless)).receipt.reused == ""
        assert ask_free(session, ask(5, nameless)).fetchall() == own.fetchall()


def test_what_a_select_shows_of_it_is_computed_from_the_first_rows() -> None:
    with opened() as session:
        whole = session.sql(ask(12, counts=True)).fetchall()
        turned = ask(3, counts=True).replace(" TOP", " ORDER BY article DESC TOP")
        assert ask_free(session, turned).fetchall() == sorted(whole[:3], reverse=True)
        around = f"SELECT MAX(n) AS most, COUNT(*) AS rows FROM ({ask(3, counts=True)})"
        assert ask_free(session, around).fetchall() == [(max(n for _, n in whole[:3]), 3)]
        least = (
            "SELECT article, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY article HAVING COUNT(DISTINCT user_id)"
        )
        assert ask_free(session, f"{least} > 3700 TOP 3 PRIVATE").fetchall() == [
            row for row in whole[:3] if row[1] > 3700
        ]


def test_an_answer_that_bottom_ended_is_as_short_or_as_long_as_asked() -> None:
    weak = {"a": 3_000, "b": 2_800, "c": 2_600, "d": 3}
    with session_on(filled(*values_rows(weak)), POLICY) as own, seeded(own, 2) as session:
        whole = session.sql(ask(12, "mechanism = limited_domain, k_bar = 50"))
        assert (len(whole), whole.receipt.stopped_at_bottom) == (3, True)
        for k, stopped in ((7, True), (4, True), (3, False), (2, False)):
            first = ask_free(session, ask(k, "mechanism = limited_domain, k_bar = 50"))
            assert first.fetchall() == whole.fetchall()[:k]
            assert (first.receipt.stopped_at_bottom, first.receipt.wanted) == (stopped, k)


@pytest.mark.parametrize(
    ("options", "fate"),
    [
        ("", "given"),
        (LISTED, "given"),
        ("mechanism = limited_domain, k_bar = 100", "given"),
        ("mechanism = limited_domain", "offered"),  # 20 k leaders
        ("mechanism = limited_domain, k_bar = auto", "offered"),
        ("mechanism = weighted_gaussian", "given"),
        ("mechanism = weighted_gaussian, gate = false", "given"),
        ("mechanism = gaussian_histogram, max_groups_contributed = 2", "given"),
        ("mechanism = domain_discovery", "given"),  # 16 are found, and 6 chosen
        ("mechanism = laplace_limited_domain, max_groups_contributed = 2", "offered"),
        (f"mechanism = joint, {LISTED}", "neither"),
        ("mechanism = stable", "neither"),
        ("mechanism = top_stable", "neither"),
    ],
)
def test_what_is_given_what_is_offered_and_what_has_no_order(options: str, fate: str) -> None:
    with opened() as session:
        assert len(session.sql(ask(6, options))) > 0
        assert show_fate(session, ask(3, options)) == fate


@pytest.mark.parametrize(
    ("options", "fate"),
    [
        ("", "given"),
        (LEADERS, "given"),
        (f"{LEADERS}, max_groups_contributed = 3", "given"),
        ("mechanism = weighted_gaussian", "given"),
        (LISTED, "given"),
        (f"{LISTED}, max_groups_contributed = 1", "offered"),  # all candidates are counted, and not chosen among
        ("mechanism = stable", "neither"),
    ],
)
def test_names_follow_from_names_with_counts_and_not_the_reverse(options: str, fate: str) -> None:
    with opened() as session:
        whole = session.sql(ask(6, options, counts=True))
        for k in (6, 4):
            assert show_fate(session, ask(k, options)) == fate
            if fate != "neither":
                names = ask_free(session, ask(k, ", ".join(filter(None, [options, "reuse = true"]))))
                assert names.fetchall() == [row[:1] for row in whole.fetchall()[:k]]
                assert not names.measures
                assert names.receipt.total is None
                assert names.receipt.reused.startswith("names of" if k == 6 else "first 4 of")
    with opened() as session:
        session.sql(ask(6, options))
        assert [show_fate(session, ask(k, options, counts=True)) for k in (6, 4)] == ["neither"] * 2


def test_discovery_without_a_choice_is_offered() -> None:
    with opened() as session:
        whole = session.sql(ask(30, "mechanism = domain_discovery"))
        assert len(whole) == 16
        assert show_fate(session, ask(3, "mechanism = domain_discovery")) == "offered"


def test_a_gate_that_stayed_closed_is_offered() -> None:
    nothing = {f"a{at:02}": 1 for at in range(16)}
    with session_on(filled(*values_rows(nothing)), POLICY) as own, seeded(own, 5) as session:
        whole = session.sql(ask(30, "mechanism = weighted_gaussian"))
        assert "nothing stands out" in dict(whole.receipt.details())["legs"]
        assert show_fate(session, ask(10, "mechanism = weighted_gaussian")) == "offered"


def test_weights_behind_the_looks_are_offered() -> None:
    """Heads that no limited domain tells from the rest: the weights answer, and whether they do depends on k."""
    rows = [f"INSERT INTO reads SELECT 1000 * {at} + i, 'a{at:02}' FROM range(22) t(i)" for at in range(16)]
    con = filled("CREATE TABLE reads (user_id BIGINT, article VARCHAR)", *rows)
    with session_on(con, POLICY) as own, seeded(own, 3) as session:
        whole = session.sql(ask(12))
        assert "weighted Gaussian: " in dict(whole.receipt.details())["legs"]
        assert show_fate(session, ask(5)) == "offered"
        assert session.sql(ask(5, "reuse = true")).fetchall() == whole.fetchall()[:5]


def know(session: Session) -> None:
    session.sql(ask(16, "reuse = false"))


@pytest.mark.parametrize(
    ("options", "counts", "fate"),
    [
        ("domain = released, evidence = strict", False, "given"),
        ("domain = released, evidence = strict", True, "offered"),  # the line for counts depends on k
        ("domain = released", False, "offered"),  # the gate depends on k
        ("domain = released, known = all", False, "given"),
        ("mechanism = weighted_gaussian", False, "offered"),
    ],
)
def test_known_names(options: str, counts: bool, fate: str) -> None:
    with opened() as session:
        know(session)
        session.sql(ask(6, options, where="WHERE user_id > 3", counts=counts))
        assert show_fate(session, ask(3, options, where="WHERE user_id > 3", counts=counts)) == fate


def test_more_names_are_another_domain() -> None:
    with opened() as session:
        session.sql(ask(8))
        session.sql(ask(6, "domain = released, known = all", where="WHERE user_id > 3"))
        assert show_fate(session, ask(3, "domain = released, known = all", where="WHERE user_id > 3")) == "given"
        assert len(session.sql(ask(16))) > 8
        assert show_fate(session, ask(3, "domain = released, known = all", where="WHERE user_id > 3")) == "offered"


def test_what_is_offered_is_taken_with_reuse_and_nothing_is_with_reuse_false() -> None:
    options = "mechanism = limited_domain"
    with opened() as session:
        whole = session.sql(ask(6, options))
        assert facts(session, ask(3, options))["offered"] == (
            f"first 3 of an answer of 6 groups from {DAY}: free, of another law than a new answer; "
            "WITH (reuse = true) takes it"
        )
        assert ask_free(session, ask(3, f"{options}, reuse = true")).fetchall() == whole.fetchall()[:3]
        assert not session.sql(ask(3, options)).receipt.replayed
        session.sql(ask(6))
        plan = session.explain(ask(4, "reuse = false"))
        assert (plan.stored, plan.reused, plan.offered) == (False, None, None)


def test_reuse_without_a_stored_answer_is_charged_and_part_of_the_same_question() -> None:
    with opened() as session:
        first = session.sql(ask(3, "reuse = true"))
        assert first.receipt.items_charged > 0
        assert ask_free(session, ask(3)).fetchall() == first.fetchall()
        assert ask_free(session, ask(3, "reuse = false")).fetchall() == first.fetchall()


@pytest.mark.parametrize("option", ["reuse = maybe", "reuse = 1", "reuse = 'true'", "reuse = true, fresh = true"])
def test_other_values_and_contradictions_are_refused(option: str) -> None:
    with opened() as session, pytest.raises(Refusal, match="reuse"):
        session.sql(ask(3, option))


def spend(session: Session, *, left: int) -> None:
    """Spend all but so many items of the default."""
    items = int(session.budget.remaining.refundable // session.explain(ask(1, where="WHERE user_id > 9")).item_price)
    options = "known = false, mechanism = weighted_gaussian, gate = false"
    session.sql(ask(items - left, options, where="WHERE user_id > 9"))


@pytest.mark.parametrize("form", ["clause", "leading", "limit", "header"])
def test_a_short_budget_names_what_is_offered_and_the_hint_works(form: str) -> None:
    texts = {
        "clause": "SELECT article FROM reads GROUP BY article TOP {} PRIVATE WITH (mechanism = limited_domain)",
        "leading": "SELECT TOP {} PRIVATE article FROM reads GROUP BY article WITH (mechanism = limited_domain)",
        "limit": "SELECT user_id % 7 AS x, COUNT(*) AS n FROM reads GROUP BY x ORDER BY n DESC LIMIT {}",
        "header": "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (max_groups_contributed = 3) user_id % 7 AS x, "
        "COUNT(*) AS n FROM reads GROUP BY x ORDER BY n DESC LIMIT {}",
    }
    bounds = Bounds(rows=3)
    table = dpsql.PrivateTable("user_id", bounds=bounds)
    policy = replace(POLICY, tables={"reads": table}).with_implicit(True)
    with opened(policy=policy) as session:
        session.sql(texts[form].format(6))
        spend(session, left=2)
        with pytest.raises(BudgetExceeded) as error:
            session.sql(texts[form].format(5))
        hint = error.value.hint
        assert hint.startswith(f"For the first 5 of an answer of 6 groups from {DAY}, which is free, ")
        assert "reuse = true" in hint
        followed = {
            "clause": "SELECT article FROM reads GROUP BY article TOP 5 PRIVATE "
            "WITH (mechanism = limited_domain, reuse = true)",
            "leading": "SELECT TOP 5 PRIVATE article FROM reads GROUP BY article "
            "WITH (mechanism = limited_domain, reuse = true)",
            "limit": "SELECT user_id % 7 AS x, COUNT(*) AS n FROM reads GROUP BY x ORDER BY n DESC "
            "TOP 5 PRIVATE WITH (reuse = true)",
            "header": texts["header"].format(5).replace("= 3)", "= 3, reuse = true)"),
        }[form]
        written = re.search(r"(TOP 5 PRIVATE )?WITH \(.*?reuse = true\)", hint)
        assert written is None or written[0] in followed
        assert len(ask_free(session, followed)) == 5


def test_a_statement_of_several_queries_names_it_too() -> None:
    with opened() as session:
        session.sql(ask(6, "mechanism = limited_domain"))
        spend(session, left=2)
        two = f"SELECT * FROM ({ask(5, 'mechanism = limited_domain')}) UNION ALL ({ask(4, where='WHERE user_id > 4')})"
        with pytest.raises(BudgetExceeded) as error:
            session.sql(two)
        assert "first 5 of an answer of 6" in error.value.hint


def test_the_day_is_that_of_utc() -> None:
    own = seeded(session_on(shared(*values_rows(STRONG)), POLICY), 2)
    with at_time("2026-11-29T23:30:00-05:00", own) as session:
        session.sql(ask(6))
        assert session.sql(ask(5)).receipt.reused == "first 5 of an answer of 6 groups from 2026-11-30"


def test_an_answer_of_partitions_or_of_quantiles_has_no_first_rows() -> None:
    with opened() as session:
        text = (
            ask(6)
            .replace("TOP 6 PRIVATE", "TOP {} PRIVATE PER x")
            .replace("article FROM", "user_id % 2 AS x, article FROM")
        )
        text = text.replace("GROUP BY article", "GROUP BY x, article") + " WITH (partitions = ['0', '1'])"
        session.sql(text.format(4))
        assert show_fate(session, text.format(2)) == "neither"


# --- the number of all units


TOTAL = "SELECT COUNT(DISTINCT user_id) AS n FROM reads {} PRIVATE"


def show_total(session: Session, k: int, options: str = LEADERS, *, where: str = "") -> Answer:
    answer = session.sql(ask(k, options, where=where, counts=True))
    assert answer.receipt.total is not None
    return answer


def test_the_total_of_an_answer_is_free() -> None:
    with opened() as session:
        total = show_total(session, 6).receipt.total
        assert total is not None
        found = ask_free(session, TOTAL.format(""))
        assert found.fetchall() == [(total.value,)]
        assert [each.variance for each in found.measures] == [total.variance]  # type: ignore[union-attr]
        assert found.receipt.reused == f"number of all users of an answer of 6 groups from {DAY}"
        assert "legs" not in dict(found.receipt.details())
        ends = ask_free(session, TOTAL.format("").replace("PRIVATE", "PRIVATE WITH (intervals = true)")).fetchall()
        assert ends == [(total.value, *total.interval())]
        named = f"number of all users of an answer of 6 groups from {DAY}"
        assert facts(session, TOTAL.format(""))["stored"] == f"{named}; asking shows it and costs nothing"


def test_of_several_totals_that_with_the_least_noise_is_given() -> None:
    with opened() as session:
        first, second = (show_total(session, k, f"{LEADERS}, reuse = false").receipt.total for k in (9, 4))
        assert first is not None
        assert second is not None
        assert first.variance < second.variance
        assert ask_free(session, TOTAL.format("")).fetchall() == [(first.value,)]
        again = show_total(session, 9, f"{LEADERS}, fresh = true").receipt.total
        assert again is not None
        assert ask_free(session, TOTAL.format("")).fetchall() == [(again.value,)]


def test_a_total_with_more_noise_than_a_new_one_is_offered() -> None:
    with opened() as session:
        total = show_total(session, 2).receipt.total
        assert total is not None
        plan = session.explain(TOTAL.format(""))
        assert plan.spec.counts is not None
        assert total.variance > plan.spec.counts.variance
        reach, new = (ValueNoise(each.variance).reach(0.95) for each in (total, plan.spec.counts))
        assert facts(session, TOTAL.format(""))["offered"] == (
            f"number of all users of an answer of 2 groups from {DAY}: free, ± {reach} where a new answer has ± {new}; "
            "WITH (reuse = true) takes it"
        )
        taken = ask_free(session, f"{TOTAL.format('')} WITH (reuse = true)")
        assert taken.fetchall() == [(total.value,)]
        assert session.sql(TOTAL.format("")).receipt.items_charged == 1


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (ask(6, LEADERS, counts=True), TOTAL.format("WHERE user_id > 3")),
        (ask(6, LEADERS, counts=True), f"{TOTAL.format('')} WITH (fresh = true)"),
        (ask(6, LEADERS, counts=True), f"{TOTAL.format('')} WITH (reuse = false)"),
        (ask(6, LEADERS, counts=True), f"{TOTAL.format('')} WITH (epsilon = 0.6)"),  # which has less noise
        (ask(6, LEADERS, counts=True), "SELECT COUNT(DISTINCT user_id) FILTER (WHERE user_id > 3) FROM reads PRIVATE"),
        (ask(6, LISTED, counts=True), TOTAL.format("")),  # of the units in a group of the domain
        (ask(6, LEADERS), TOTAL.format("")),
    ],
)
def test_other_totals_are_charged(first: str, then: str) -> None:
    with opened() as session:
        session.sql(first)
        answer = session.sql(then)
        assert (answer.receipt.items_charged, answer.receipt.reused) == (1, "")


def test_a_total_among_known_names_is_of_their_units_alone() -> None:
    with opened() as session:
        know(session)
        where = "WHERE user_id > 3"
        total = show_total(session, 6, "domain = released, known = all", where=where).receipt.total
        assert total is not None
        assert show_fate(session, TOTAL.format(where)) == "neither"


# --- released numbers of one group, and sums of several


MIXED = [
    "CREATE TABLE reads (user_id BIGINT, article VARCHAR, age INTEGER, day DATE)",
    """INSERT INTO reads SELECT i % 900, 'a' || (i % 4), CASE WHEN i % 7 > 0 THEN i % 30 END,
    DATE '2026-01-01' + CAST(i % 20 AS INTEGER) FROM range(4000) AS t(i)""",
]
ROWS = "SELECT {} COUNT(*) AS n FROM reads {} PRIVATE"
CLASSES = ROWS.format("age > 10 AS old, month(day) AS m,", "WHERE day > '2026-01-03' GROUP BY old, m ALL")
RANKED, OLD, LIMITED = ask(3, LEADERS, counts=True), "WHERE age > 3", f"{LEADERS}, max_groups_contributed = 2"
AFTER = "WHERE day > '2026-01-03'"
LISTED_DAYS = ROWS.format("article,", "GROUP BY article ALL") + " WITH (domain = ['a0', 'a1', 'a2', 'a3'])"

LIMITED_DAYS = LISTED_DAYS.replace("'a3']", "'a3'], max_groups_contributed = 2")


def opened_mixed() -> Session:
    return at_time(f"{DAY}T12:00:00+00:00", seeded(session_on(shared(*MIXED), POLICY), 3))


@pytest.mark.parametrize(
    ("first", "then", "fate"),
    [
        (RANKED, TOTAL.format("WHERE article = '{}'"), "given"),
        (RANKED, TOTAL.format("WHERE '{}' = article"), "given"),
        (RANKED, TOTAL.format("WHERE article = '{}' AND age > 3"), "neither"),
        (RANKED, TOTAL.format("WHERE article = '{}' AND article = 'a9'"), "neither"),
        (RANKED, TOTAL.format("WHERE article = 'a9' AND article = '{}'"), "neither"),
        (RANKED, TOTAL.format("WHERE article IN ('a9', 'a8') AND article = '{}'"), "neither"),
        (RANKED, TOTAL.format("WHERE article = '{0}' AND article = '{0}'"), "given"),
        (RANKED, TOTAL.format("WHERE article > '{}'"), "neither"),
        (RANKED, TOTAL.format("WHERE lower(article) = '{}'"), "neither"),
        (RANKED, TOTAL.format("WHERE article = 'nowhere'"), "neither"),
        (RANKED, ROWS.format("", "WHERE article = '{}'"), "neither"),
        (RANKED, TOTAL.format("WHERE article = '{}'") + " WITH (epsilon = 0.6)", "offered"),
        (ask(3, LEADERS), TOTAL.format("WHERE article = '{}'"), "neither"),
        (ask(3, LEADERS, where=OLD, counts=True), TOTAL.format(f"{OLD} AND article = '{{}}'"), "given"),
        (ask(3, LEADERS, where=OLD, counts=True), TOTAL.format("WHERE article = '{}' AND age > 3"), "given"),
        (ask(3, LEADERS, where=OLD, counts=True), TOTAL.format("WHERE article = '{}'"), "neither"),
        (ask(3, LIMITED, counts=True), TOTAL.format("WHERE article = '{}'"), "neither"),
        # of each group the bounds of a unit are those of the question
        (ROWS.format("article,", "GROUP BY article TOP 3"), ROWS.format("", "WHERE article = '{}'"), "given"),
        (CLASSES, ROWS.format("", f"{AFTER} AND (age > 10) IS NULL AND month(day) = 1"), "given"),
        (LISTED_DAYS, ROWS.format("", "WHERE article = 'a2'"), "given"),
        (LISTED_DAYS, ROWS.format("", ""), "neither"),  # rows may have other articles
        (ROWS.format("age,", "GROUP BY age TOP 30"), ROWS.format("", "WHERE age IS NULL"), "given"),
        (ROWS.format("age,", "GROUP BY age TOP 30"), ROWS.format("", "WHERE age = 7"), "given"),
        (ROWS.format("age,", "GROUP BY age TOP 30"), ROWS.format("", ""), "neither"),
        (ROWS.format("day,", "GROUP BY day TOP 30"), ROWS.format("", "WHERE day = DATE '2026-01-07'"), "given"),
        (ROWS.format("age, article,", "GROUP BY age, article TOP 9"), ROWS.format("", "WHERE age = 7"), "neither"),
        # listed keys
        (RANKED, ask(2, where="WHERE article IN ('{}', 'nowhere')", counts=True), "offered"),
        (RANKED, ask(3, where="WHERE article = '{}'", counts=True), "offered"),
        (RANKED, ask(2, where="WHERE article IN ('nowhere')", counts=True), "neither"),
        (RANKED, ask(2, where="WHERE article NOT IN ('{}')", counts=True), "neither"),
        (RANKED, ask(2, where="WHERE article IN ('{}') OR age > 3", counts=True), "neither"),
        (RANKED, ask(2, where="WHERE article IN ('{}') AND age > 3", counts=True), "neither"),
        (RANKED, ask(2, where="WHERE article IN ('{}')"), "neither"),
        (RANKED, ask(2, "domain = ['a0']", where="WHERE article IN ('{}', 'a0')", counts=True), "neither"),
        (ROWS.format("article, COUNT(DISTINCT user_id),", "GROUP BY article TOP 4"),  # ranked by users
         ROWS.format("article,", "WHERE article IN ('{}', 'a0') GROUP BY article TOP 2"), "neither"),
        (ROWS.format("article,", "GROUP BY article TOP 4"),
         ROWS.format("article,", "WHERE article IN ('{}', 'a0') GROUP BY article TOP 2"), "offered"),
        (ROWS.format("article,", "GROUP BY article TOP 4"), ROWS.format("", "WHERE article IN ('{}', 'a0')"),
         "offered"),
        (RANKED, TOTAL.format("WHERE article IN ('{}', 'a0', 'a1')"), "neither"),  # a unit can be in several
        (LISTED_DAYS, ask(2, where="WHERE article IN ('a1')", counts=True), "neither"),  # in no order
        (LISTED_DAYS, ROWS.format("", "WHERE article IN ('a1', 'a2')"), "offered"),
        (LISTED_DAYS, ROWS.format("", "WHERE article IN ('a1', 'a2', 'a1')"), "offered"),
        (LISTED_DAYS, ROWS.format("", "WHERE article IN ('a1', 'a9')"), "neither"),  # rows may have it
        (LISTED_DAYS, ROWS.format("", "WHERE article IN ('a1', NULL)"), "neither"),
        (LIMITED_DAYS, ROWS.format("", "WHERE article IN ('a1', 'a2')"), "neither"),
        (CLASSES, ROWS.format("", f"{AFTER} AND month(day) IN (1, 2)"), "offered"),
        (CLASSES, ROWS.format("age > 10 AS old,", f"{AFTER} AND month(day) IN (1, 2) GROUP BY old ALL"), "offered"),
        # sums of groups that have all rows by the text
        (CLASSES, ROWS.format("", AFTER), "offered"),
        (CLASSES, ROWS.format("month(day) AS m,", f"{AFTER} GROUP BY m ALL"), "offered"),
        (CLASSES, ROWS.format("age > 10 AS old,", f"{AFTER} GROUP BY old ALL"), "offered"),
        (CLASSES, ROWS.format("", f"{AFTER} AND month(day) = 1"), "offered"),
        (CLASSES, ROWS.format("", "WHERE day > '2026-01-04'"), "neither"),
        (CLASSES, TOTAL.format(AFTER), "neither"),
        (CLASSES.replace("COUNT(*)", "COUNT(DISTINCT user_id)"), TOTAL.format(AFTER), "neither"),
        (f"{CLASSES} WITH (max_groups_contributed = 2)", ROWS.format("", AFTER), "neither"),
        (ROWS.format("day,", "WHERE day >= '2026-01-03' AND day < '2026-01-09' GROUP BY day ALL"),
         ROWS.format("", "WHERE day >= '2026-01-03' AND day < '2026-01-09'"), "offered"),
        # fewer measures of the same groups
        (CLASSES.replace(" AS n", " AS n, COUNT(DISTINCT user_id) AS users"), CLASSES, "given"),
        (CLASSES.replace(" AS n", " AS n, COUNT(DISTINCT user_id) AS users"),
         f"{CLASSES} WITH (max_groups_contributed = 2)", "neither"),
        (ROWS.format("COUNT(DISTINCT user_id),", ""), ROWS.format("", ""), "given"),
    ],
)  # fmt: skip
def test_which_questions_released_numbers_answer(first: str, then: str, fate: str) -> None:
    with opened_mixed() as session:
        rows = session.sql(first).fetchall()
        then = then.format(rows[1][0] if len(rows) > 1 else "")
        assert show_fate(session, then) == fate
        if fate == "given":
            assert len(ask_free(session, then)) > 0
        if "WITH" not in then:
            assert show_fate(session, f"{then} WITH (reuse = false)") == "neither"
            found = session.sql(f"{then} WITH (reuse = true)").receipt
            assert (found.reused != "", found.items_charged > 0) == (fate != "neither", fate == "neither")


def test_a_filter_on_a_released_key_shows_its_number() -> None:
    with opened_mixed() as session:
        whole = session.sql(ask(3, LEADERS, counts=True))
        for article, count in whole.fetchall():
            found = ask_free(session, TOTAL.format(f"WHERE article = '{article}'"))
            assert found.fetchall() == [(count,)]
            assert found.receipt.reused == f"one group of an answer of 3 groups from {DAY}"
            assert [each.variance for each in found.measures] == [whole.measures[0].variance]  # type: ignore[union-attr]


def test_listed_keys_come_in_the_order_of_the_stored_answer() -> None:
    with opened_mixed() as session:
        rows = session.sql(ask(4, LEADERS, counts=True)).fetchall()
        wanted = [rows[3], rows[1]]
        listed = ", ".join(f"'{article}'" for article, _ in wanted)
        text = ask(2, "reuse = true", where=f"WHERE article IN ({listed}, 'nowhere')", counts=True)
        found = ask_free(session, text)
        assert found.fetchall() == [rows[1], rows[3]]
        assert found.receipt.reused == f"groups of a list of an answer of 4 groups from {DAY}"
        assert ask_free(session, text.replace("TOP 2", "TOP 1")).fetchall() == [rows[1]]


def test_the_sum_of_groups_has_the_noise_of_all_of_them() -> None:
    with opened_mixed() as session:
        whole = session.sql(CLASSES)
        (measure,) = whole.measures
        total = ask_free(session, f"{ROWS.format('', AFTER)} WITH (reuse = true)")
        assert total.fetchall() == [(sum(row[2] for row in whole.fetchall()),)]
        assert total.measures[0].variance == len(whole) * measure.variance  # type: ignore[union-attr]
        assert (
            total.receipt.reused == f"sum of 39 groups of an answer of 39 groups from {DAY}, "
            "with the bounds of a user in each"
        )
        assert total.receipt.bounds == ""
        by_month = ask_free(
            session, f"{ROWS.format('month(day) AS m,', f'{AFTER} GROUP BY m ALL')} WITH (reuse = true)"
        )
        months = dict.fromkeys(row[1] for row in whole.fetchall())
        assert by_month.fetchall() == [
            (month, sum(row[2] for row in whole.fetchall() if row[1] == month)) for month in months
        ]
        with_ends = f"SELECT COUNT(*) AS n FROM reads {AFTER} PRIVATE WITH (reuse = true, intervals = true)"
        ((n, low, high),) = ask_free(session, with_ends).fetchall()
        reach = ValueNoise(len(whole) * measure.variance).reach(0.95)  # type: ignore[union-attr]
        assert (n - low, high - n) == (reach, reach)
        assert f"free, ± {reach} where a new answer has ± " in facts(session, ROWS.format("", AFTER))["offered"]


@pytest.mark.parametrize("column", [[], ["article"]])
def test_units_of_several_groups_add_up_where_each_is_in_one_by_the_policy(column: list[str]) -> None:
    policy = dpsql.Policy(dpsql.Budget(10, "1e-6"), {"reads": dpsql.PrivateTable("user_id", one_value_per_unit=column)})
    users = ask(3, "", counts=True).replace("TOP 3", "ALL") + " WITH (domain = ['a0', 'a1', 'a2'])"
    of_two = TOTAL.format("WHERE article IN ('a0', 'a1')")
    with seeded(session_on(shared(*MIXED), policy), 3) as session:
        whole = session.sql(users)
        assert show_fate(session, TOTAL.format("WHERE article IN ('a0', 'a3')")) == "neither"
        assert show_fate(session, TOTAL.format("WHERE article IS NULL")) == "neither"
        assert show_fate(session, TOTAL.format("")) == "neither"  # some may have another value
        assert show_fate(session, of_two) == ("offered" if column else "neither")
        if column:
            found = ask_free(session, f"{of_two} WITH (reuse = true)")
            assert found.fetchall() == [(sum(row[1] for row in whole.fetchall()[:2]),)]
            assert found.measures[0].variance == 2 * whole.measures[0].variance  # type: ignore[union-attr]
            assert "bounds" not in found.receipt.reused


def test_a_short_budget_names_the_sum_of_groups() -> None:
    with opened_mixed() as session:
        session.sql(CLASSES)
        spend(session, left=0)
        with pytest.raises(
            BudgetExceeded, match=r"For the sum of 39 groups of an answer of 39 .* PRIVATE WITH \(reuse = t"
        ):
            session.sql(ROWS.format("", AFTER))


# --- what must never be: each check fails where the mistake beside it is made


def check_a_hit_is_free(session: Session) -> None:
    session.sql(ask(6, LEADERS))
    assert ask_free(session, ask(3, LEADERS)).receipt.reused


def check_another_filter(session: Session) -> None:
    session.sql(ask(6, LEADERS))
    assert session.sql(ask(3, LEADERS, where="WHERE user_id > 5")).receipt.items_charged > 0


def check_fresh(session: Session) -> None:
    session.sql(ask(6, LEADERS))
    assert session.sql(ask(3, f"{LEADERS}, fresh = true")).receipt.items_charged > 0


def check_another_version(session: Session) -> None:
    session.sql(ask(6, LEADERS))
    session._dependencies.ledger.bump("new rows")
    assert session.sql(ask(3, LEADERS)).receipt.items_charged > 0


def check_another_law(session: Session) -> None:
    session.sql(ask(6, "mechanism = limited_domain"))
    assert session.sql(ask(3, "mechanism = limited_domain")).receipt.items_charged > 0


def check_another_epsilon(session: Session) -> None:
    """Of a larger epsilon it is given, of a smaller one offered: a grant changes the epsilon of the day."""
    session.sql(ask(6, LEADERS))
    terms = session._dependencies.terms
    for factor, is_given in ((2, False), (Fraction(1, 2), True)):
        epsilon = dpsql.Epsilon(terms.epsilon.value * factor)
        plan = Session(replace(session._dependencies, terms=replace(terms, epsilon=epsilon))).explain(ask(3, LEADERS))
        assert (plan.reused is not None, plan.offered is not None) == (is_given, not is_given)


def check_another_account(session: Session) -> None:
    alice, bob = (use_account(session, name) for name in ("alice", "bob"))
    alice.sql(ask(6, LEADERS))
    assert ask_free(alice, ask(3, LEADERS)).receipt.reused
    assert bob.sql(ask(3, LEADERS)).receipt.items_charged > 0


def check_a_total_of_other_rows(session: Session) -> None:
    show_total(session, 6)
    assert session.sql(TOTAL.format("WHERE user_id > 900")).receipt.items_charged == 1


def check_a_noisier_total(session: Session) -> None:
    show_total(session, 2)
    assert session.sql(TOTAL.format("")).receipt.items_charged == 1


def check_a_total_of_known_names(session: Session) -> None:
    know(session)
    show_total(session, 6, "domain = released, known = all", where="WHERE user_id > 3")
    assert session.sql(TOTAL.format("WHERE user_id > 3")).receipt.items_charged == 1


def check_a_total_of_another_account(session: Session) -> None:
    show_total(use_account(session, "alice"), 6)
    assert use_account(session, "bob").sql(TOTAL.format("")).receipt.items_charged == 1


def check_a_group_of_bounded_units(session: Session) -> None:
    """Units that are in more groups than are counted are not in the count of each: another number."""
    session.sql(ask(6, "mechanism = limited_domain, k_bar = 100, max_groups_contributed = 2", counts=True))
    assert session.sql(TOTAL.format("WHERE article = 'a00'")).receipt.items_charged == 1


def check_a_group_that_its_noise_chose(session: Session) -> None:
    """A count below the evidence line is left out: those that are shown are too high on average."""
    know(session)
    session.sql(ask(6, "domain = released", where="WHERE user_id > 3", counts=True))
    assert session.sql(TOTAL.format("WHERE user_id > 3 AND article = 'a00'")).receipt.items_charged == 1


def check_a_sum_of_units(session: Session) -> None:
    session.sql("SELECT user_id > 3 AS b, COUNT(DISTINCT user_id) FROM reads GROUP BY b ALL PRIVATE")
    assert session.sql(f"{TOTAL.format('')} WITH (reuse = true)").receipt.items_charged == 1


def check_a_sum_of_listed_groups(session: Session) -> None:
    session.sql(f"SELECT article, COUNT(*) FROM reads GROUP BY article ALL PRIVATE WITH ({LISTED})")
    assert session.sql("SELECT COUNT(*) FROM reads PRIVATE WITH (reuse = true)").receipt.items_charged == 1


CHECKS = [
    check_a_hit_is_free,
    check_another_filter,
    check_fresh,
    check_another_version,
    check_another_law,
    check_another_epsilon,
    check_another_account,
    check_a_total_of_other_rows,
    check_a_noisier_total,
    check_a_total_of_known_names,
    check_a_total_of_another_account,
    check_a_group_of_bounded_units,
    check_a_group_that_its_noise_chose,
    check_a_sum_of_units,
    check_a_sum_of_listed_groups,
]
MISTAKES = ("charge filter fresh version law epsilon account rows noise names account bound choice units list").split()


@pytest.mark.parametrize("check", CHECKS)
def test_only_what_is_the_answer_is_given(check: Callable[[Session], None]) -> None:
    with opened() as session:
        check(session)


def use_account(session: Session, name: str) -> Session:
    own = session._dependencies
    return Session(replace(own, terms=replace(own.terms, account=Sublimit(name, own.terms.budget))))


class Careless:
    """A ledger that confuses accounts, or versions of the data, in what it has stored."""

    def __init__(self, ledger: Ledger, *, versions: bool = False) -> None:
        self._ledger, self._versions = ledger, versions

    def __getattr__(self, name: str) -> object:
        return getattr(self._ledger, name)

    def answers(self, account: str | None, after: int) -> tuple[int, list[bytes]]:
        return self._ledger.answers(account if self._versions else "alice", after)

    def stored(self, key: str, account: str | None, *others: str) -> bytes | None:
        if not self._versions:
            return self._ledger.stored(key, "alice", *others)
        every = [read for read in self._ledger.answers(account, 0)[1] if f'"key": "{key}"'.encode() in read]
        return every[-1] if every else None


def give_any_cell(plan: Plan, rows: MeasuredRows, *, stored: bytes) -> DerivedAnswer | None:
    found = derived_answers.take_cells(plan, rows, stored=stored)
    return None if found is None else replace(found, is_given=True)


def of_any_filter(plan: Plan, **rest: object) -> object:
    keys = compute_keys(plan, **rest)  # type: ignore[arg-type]
    return keys if keys.series is None else replace(keys, series=("", keys.series[1]))


def confuse(mistake: str, session: Session, monkeypatch: pytest.MonkeyPatch) -> Session:
    """Make a mistake, and return a session that makes it."""
    own, terms, read = session._dependencies, ReleaseTerms.of, derived_answers.read_terms
    cells = {"names": {"total": True}, "choice": {"independent": True}, "list": {"groups": 16}}.get(mistake)
    replaced: dict[str, tuple[object, str, object]] = {
        "charge": (PlanFinder, "_find_otherwise", lambda _, __, plan: (plan, None)),
        "fresh": (Plan, "fresh", False),
        "law": (derived_answers, "_has_law_of", lambda *_, **__: True),
        "rows": (stored_release, "list_measured_rows", lambda query: iter([MeasuredRows(("units",), query.keys, {})])),
        "noise": (planning, "take_cells", give_any_cell),
        "units": (derived_answers, "_can_be_added", lambda *_, **__: True),
        "bound": (derived_answers, "read_terms", lambda known: replace(read(known), bounded_by=None)),
        "filter": (planner, "compute_keys", of_any_filter),
        "epsilon": (
            derived_answers.ReleaseTerms,
            "of",
            lambda plan: replace(terms(plan), epsilon=dpsql.Epsilon("1e-9"), threshold_offset=Fraction(10**9)),
        ),
    }
    if cells is not None:
        describe = stored_release._describe_cells
        monkeypatch.setattr(stored_release, "_describe_cells", lambda *known: {**describe(*known), **cells})
    elif mistake in replaced:
        monkeypatch.setattr(*replaced[mistake])
    else:
        ledger = Careless(own.ledger, versions=mistake == "version")
        return Session(replace(own, ledger=ledger))  # type: ignore[arg-type]
    return session


@pytest.mark.mutant
@pytest.mark.parametrize(("check", "mistake"), list(zip(CHECKS, MISTAKES, strict=True)))
def test_every_known_mistake_is_caught(
    check: Callable[[Session], None], mistake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened() as session, pytest.raises((AssertionError, EngineError)):
        check(confuse(mistake, session, monkeypatch))
