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
from dpsql.answer import Answer
from dpsql.engines import Exact, Statement
from dpsql.errors import BudgetExceeded, EngineError, Refusal
from dpsql.ledger import Ledger
from dpsql.plan import Plan
from dpsql.plan.identity import derived_answers
from dpsql.plan.identity.replay_key import compute_keys
from dpsql.plan.release import ReleaseTerms
from dpsql.plan_finder import PlanFinder
from dpsql.policy.tables import Bounds
from dpsql.session import Session
from dpsql.terms import Sublimit

STRONG = {f"a{at:02}": 4_000 - 200 * at for at in range(16)}
POLICY = dpsql.Policy(dpsql.Budget(10, "1e-6"), {"reads": dpsql.PrivateTable("user_id")})
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
    assert ("first" in facts(session, text).get("stored", "")) == (plan.reused is not None)
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
            assert first.receipt.reused == f"first {k} of an answer of 6 of {DAY}"
            assert f"; first {k} of an answer of 6 of {DAY}" in str(first.receipt)


def test_explain_says_from_which_answer_it_comes() -> None:
    with opened() as session:
        session.sql(ask(12))
        assert facts(session, ask(5))["stored"] == (
            f"first 5 of an answer of 12 of {DAY}; asking shows it and costs nothing"
        )
        assert "stored" not in facts(session, ask(13))
        assert session.forecast(ask(5)).cost == ""


def test_of_several_longer_answers_the_shortest_is_taken_and_of_equal_ones_the_newest() -> None:
    nameless = f"{LEADERS}, known = false"
    with opened() as session:
        for k in (12, 7, 9):
            session.sql(ask(k, f"{nameless}, reuse = false"))
        assert ask_free(session, ask(5, nameless)).receipt.reused == f"first 5 of an answer of 7 of {DAY}"
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
            f"first 3 of an answer of 6 of {DAY}: free, of another law than a new answer; WITH (reuse = true) takes it"
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
        assert hint.startswith(f"For the first 5 of an answer of 6 of {DAY}, which is free, ")
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
        assert session.sql(ask(5)).receipt.reused == "first 5 of an answer of 6 of 2026-11-30"


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


CHECKS = [
    check_a_hit_is_free,
    check_another_filter,
    check_fresh,
    check_another_version,
    check_another_law,
    check_another_epsilon,
    check_another_account,
]


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


def of_any_filter(plan: Plan, **rest: object) -> object:
    keys = compute_keys(plan, **rest)  # type: ignore[arg-type]
    return keys if keys.series is None else replace(keys, series=("", keys.series[1]))


@pytest.mark.mutant
@pytest.mark.parametrize("mistake", ["charge", "filter", "fresh", "version", "law", "epsilon", "account"])
def test_every_known_mistake_is_caught(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check = CHECKS[["charge", "filter", "fresh", "version", "law", "epsilon", "account"].index(mistake)]
    with opened() as session:
        match mistake:
            case "charge":
                monkeypatch.setattr(PlanFinder, "_find_derived", lambda _, __, plan, **___: (plan, None))
            case "filter":
                monkeypatch.setattr("dpsql.plan.planner.compute_keys", of_any_filter)
            case "fresh":
                monkeypatch.setattr(Plan, "fresh", False)
            case "law":
                monkeypatch.setattr(derived_answers, "_has_law_of", lambda *_, **__: True)
            case "epsilon":
                terms = ReleaseTerms.of
                monkeypatch.setattr(
                    derived_answers.ReleaseTerms,
                    "of",
                    lambda plan: replace(terms(plan), epsilon=dpsql.Epsilon("1e-9"), threshold_offset=Fraction(10**9)),
                )
            case _:
                own = session._dependencies
                ledger = Careless(own.ledger, versions=mistake == "version")
                session = Session(replace(own, ledger=ledger))  # type: ignore[arg-type]  # noqa: PLW2901
        with pytest.raises((AssertionError, EngineError)):
            check(session)
