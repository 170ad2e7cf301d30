"""Sessions with each certificate: what they admit, charge, refund and refuse, to the end of the budget."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import closing
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import duckdb
import pytest
from support.laws import Law, discrete_laplace_law, singles_out
from support.session_kit import PRIVATE, filled, rebuilt, session_on, shared, values_rows

import dpsql
from dpsql.accounting import (
    ApproximateDP,
    Certificate,
    OptimalFilter,
    PureLoss,
    Steps,
    TheoremTwoFilter,
    item_epsilon,
    items_bought,
    laplace_offset,
)
from dpsql.connect import open_ledger
from dpsql.errors import BudgetExceeded, EngineError, LedgerError, Refusal
from dpsql.ledger import SQLiteLedger
from dpsql.mechanisms import LaplaceCounts, NoisyCounts
from dpsql.plan.mechanisms.choice import list_mechanism_names
from dpsql.quantities import Delta, Epsilon
from dpsql.session import Session

ALL = [each.value for each in Certificate]
OTHERS = [each for each in ALL if each != "zcdp"]
FIXED = ["theorem2", "optimal"]
ONE = "SELECT article FROM reads GROUP BY article TOP 1 PRIVATE WITH (mechanism = limited_domain, fresh = true)"
NAMES = "SELECT article FROM reads GROUP BY article TOP 5 PRIVATE"
COUNTS = "SELECT article, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY article TOP 3 PRIVATE"
COUNTS_BY_ITEM = f"{COUNTS} WITH (mechanism = limited_domain)"
KNOWN = "SELECT article FROM reads GROUP BY article TOP 2 PRIVATE WITH (domain = ['a0', 'a1', 'zz'])"
LARGE = {f"a{at}": 20_000 + 1_000 * at for at in range(4)}


def policy(certificate: str, **terms: int | str) -> dpsql.Policy:
    budget = dpsql.Budget(1, "1e-6", certificate=certificate, **{"items": 12, "queries": 40, **terms})  # type: ignore[arg-type]
    return dpsql.Policy(budget, PRIVATE)


@pytest.fixture(scope="module")
def reads() -> Iterator[duckdb.DuckDBPyConnection]:
    with filled(*values_rows(LARGE)) as connection:
        yield connection


@pytest.fixture
def session(reads: duckdb.DuckDBPyConnection, certificate: str) -> Iterator[Session]:
    with dpsql.connect(reads, policy=policy(certificate), ledger=":memory:") as opened:
        yield opened


def spent(session: Session) -> tuple[Fraction, Fraction]:
    balance = session.budget
    return balance.refunded.spent, balance.gone.spent


def unit_of(session: Session) -> Fraction:
    """Return what an item costs, spelled out here and not taken from the code under test."""
    epsilon = session.budget.epsilon.value
    return {"zcdp": epsilon**2 / 8, "pure": epsilon}.get(session.budget.certificate.value, Fraction(1))


def admitted(session: Session) -> int:
    """Ask for one item after another until none is admitted, and return how many were."""
    for count in range(100):
        try:
            session.sql(ONE)
        except BudgetExceeded:
            return count
    raise AssertionError


@pytest.mark.parametrize("items", [3, 12])
@pytest.mark.parametrize("certificate", ALL)
def test_a_session_admits_as_many_items_as_the_comparison_says(
    reads: duckdb.DuckDBPyConnection, certificate: str, items: int
) -> None:
    with dpsql.connect(reads, policy=policy(certificate, items=items), ledger=":memory:") as session:
        each, kind = session.budget.epsilon, Certificate(certificate)
        delta = Delta("1e-6") if certificate == "pure" else Delta("5e-7")  # nothing is converted under pure
        total = ApproximateDP(Epsilon(1), delta)
        assert each.value <= item_epsilon(kind, items, total=total).value < each.value * Fraction(1001, 1000)
        said = items_bought(kind, each, total=total)
        assert admitted(session) == items
        assert said >= items
        assert items_bought(kind, Epsilon(each.value * Fraction(1005, 1000)), total=total) < items
        if certificate not in FIXED:
            assert items == said
        assert session.budget.items == 0
        assert session.sql(NAMES.replace("5 PRIVATE", "1 PRIVATE")).receipt.replayed  # what was stored is still free


@pytest.mark.parametrize("items", [1, 7, 100])
@pytest.mark.parametrize("certificate", FIXED)
def test_what_a_certificate_promises_is_within_what_was_granted(certificate: str, items: int) -> None:
    with session_on(shared(*values_rows({"a": 1})), policy(certificate, items=items)) as s:
        rule = s._dependencies.terms.rule
    assert isinstance(rule, TheoremTwoFilter | OptimalFilter)
    assert rule.items == items
    assert rule.total.delta <= Delta("1e-6")
    assert 0.99 < float(rule.total.epsilon) <= 1.0 or rule.each == Epsilon(1)


@pytest.mark.parametrize("certificate", ALL)
def test_what_did_not_come_back_is_refunded_and_delta_is_not(session: Session, certificate: str) -> None:
    by_the_item = f"{NAMES} WITH (mechanism = limited_domain)"
    receipt = session.sql(by_the_item).receipt
    assert receipt.stopped_at_bottom
    assert receipt.items_charged == 5
    item = unit_of(session)
    assert spent(session)[0] == 5 * item  # four names and BOTTOM, of five that were held
    few = session.sql(by_the_item.replace("TOP 5 PRIVATE", "TOP 7 PRIVATE")).receipt
    assert few.items_charged == 5
    assert spent(session)[0] == 10 * item
    delta = session._dependencies.terms.delta.value
    assert spent(session)[1] == (2 if certificate == "theorem2" else 2 * delta)
    assert session.budget.refunded.reserved == 0


@pytest.mark.parametrize("certificate", ALL)
def test_a_failed_query_is_charged_in_full(session: Session, certificate: str) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError

    broken = rebuilt(session, engine=fails)  # type: ignore[arg-type]
    with pytest.raises(EngineError):
        broken.sql(NAMES)
    assert spent(broken)[0] == 5 * unit_of(session)
    assert spent(broken)[1] > 0
    names = Certificate(certificate).currencies
    history = broken.history.to_pylist()
    assert history[0]["state"] == "failed"
    assert history[0][f"{names[0]}_charged"] == history[0][f"{names[0]}_reserved"] > 0
    assert history[0][f"{names[1]}_charged"] > 0


@pytest.mark.parametrize("certificate", ALL)
def test_a_known_domain_spends_items_and_no_delta(session: Session) -> None:
    receipt = session.sql(KNOWN).receipt
    assert receipt.items_charged == 2
    assert receipt.loss.delta == Delta(0)
    assert spent(session) == (2 * unit_of(session), 0)


@pytest.mark.parametrize("certificate", ALL)
def test_counts_are_drawn_as_the_certificate_needs_them(session: Session, certificate: str) -> None:
    plan, each = session.explain(COUNTS), session.budget.epsilon
    scale = {"pure": 1, "theorem2": 2, "optimal": 2}.get(certificate)
    assert plan.counts == (NoisyCounts(each) if scale is None else LaplaceCounts(each, scale))
    answer = session.sql(COUNTS)
    assert answer.receipt.items_charged == 6
    assert answer.counts is not None
    if scale is not None:
        assert answer.counts.scale == scale / each.value
        reach = laplace_offset(answer.counts.scale, Fraction((1.0 - 0.95) / 2.0)) - 1
        low, high = (answer.intervals().column(name).to_pylist() for name in ("low", "high"))
        assert {b - a for a, b in zip(low, high, strict=True)} == {2 * reach}


@pytest.mark.parametrize("certificate", ALL)
def test_a_bound_saves_the_counts_that_no_unit_is_in(session: Session) -> None:
    bounded = COUNTS + " WITH (max_groups_contributed = 1)"
    assert session.explain(bounded).worst_items == 4
    assert session.sql(bounded).receipt.items_charged == 4


@pytest.mark.properties
@pytest.mark.parametrize(("certificate", "share"), [("pure", 1), ("theorem2", 2), ("optimal", 2)])
def test_released_counts_follow_the_law_and_no_narrower_one(certificate: str, share: int) -> None:
    connection = shared(
        "CREATE TABLE reads AS SELECT 0 AS user_id, 'a' || i AS article FROM range(100) t(i)",
        "CREATE TABLE labels AS SELECT article FROM reads",
    )
    tables = {**PRIVATE, "labels": dpsql.PublicTable()}
    known = dpsql.Policy(dpsql.Budget(100, "1e-6", certificate=certificate, items=200), tables)
    query = COUNTS.replace("TOP 3 PRIVATE", "TOP 100 PRIVATE WITH (domain = 'labels.article')")
    with dpsql.connect(connection, policy=known, ledger=":memory:") as session:
        scale = share / session.budget.epsilon.value
        laws: list[Law] = [discrete_laplace_law(scale * times) for times in (1, Fraction(1, 2), 2)]

        def sample(runs: int) -> Counter[Hashable]:
            draws = list[int]()
            while len(draws) < runs:
                ledger = open_ledger(":memory:", session._dependencies.terms)
                draws += [row[1] - 1 for row in rebuilt(session, ledger=ledger).sql(query).fetchall()]
                assert len(draws) % 100 == 0
            return Counter(draws[:runs])

        assert singles_out(*laws, sample=sample)


@pytest.mark.parametrize("certificate", OTHERS)
@pytest.mark.parametrize("mechanism", sorted(set(list_mechanism_names()) - {"auto", "limited_domain", "peeling"}))
def test_a_mechanism_that_is_not_proved_to_enter_is_refused(session: Session, mechanism: str) -> None:
    for place in ("max_groups_contributed = 2", "domain = ['a0', 'a1']"):
        text = f"SELECT article FROM reads GROUP BY article TOP 1 PRIVATE WITH (mechanism = {mechanism}, {place})"
        with pytest.raises(Refusal) as caught:
            session.explain(text)
        assert caught.value.hint
    assert spent(session) == (0, 0)


@pytest.mark.parametrize("certificate", OTHERS)
def test_gaussian_noise_is_refused_with_the_reason_and_a_hint_that_works(session: Session, certificate: str) -> None:
    text = NAMES + " WITH (mechanism = gaussian_histogram, max_groups_contributed = 2)"
    with pytest.raises(Refusal, match=rf"\[certificate\].*no loss under the certificate {certificate}") as caught:
        session.sql(text)
    assert caught.value.hint == "Leave the mechanism out."
    assert session.sql(text.replace("mechanism = gaussian_histogram, ", "")).receipt.mechanism == "limited_domain"


@pytest.mark.parametrize("certificate", ALL)
def test_fixed_epsilons_and_deltas_are_held(session: Session, certificate: str) -> None:
    each, delta = session.budget.epsilon.value, session._dependencies.terms.delta.value
    wanted = {
        "epsilon": {each: ALL, each / 2: ["zcdp", "pure", "optimal"], each * 2: ["zcdp", "pure"]},
        "delta": {delta: ALL, delta / 2: ["zcdp", "pure", "optimal"], delta * 2: ["zcdp", "pure", "optimal"]},
    }
    for name, values in wanted.items():
        for value, takers in values.items():
            digits = f"{float(value):.12g}"
            text = f"SELECT article FROM reads GROUP BY article TOP 1 PRIVATE WITH ({name} = {digits})"
            if certificate in takers:
                assert session.explain(text).worst_items == 1
                continue
            with pytest.raises(Refusal, match=rf"\[certificate\].*Leave {name} out") as caught:
                session.explain(text)
            assert getattr(caught.value.place, "fragment", "").startswith(name)
    assert session.explain(ONE).worst_items == 1  # which the hints say


@pytest.mark.parametrize("certificate", ["optimal"])
def test_an_item_of_a_smaller_epsilon_counts_in_full_under_optimal(session: Session) -> None:
    half = f"{float(session.budget.epsilon) / 2:.6g}"
    loss = session.sql(f"{ONE[:-1]}, epsilon = {half})").receipt.loss
    assert isinstance(loss, Steps)
    assert loss.each.epsilon == Epsilon(half)
    assert spent(session)[0] == 1


@pytest.mark.parametrize("certificate", ["pure"])
def test_under_pure_a_smaller_epsilon_costs_less(session: Session) -> None:
    loss = session.sql(f"{ONE[:-1]}, epsilon = 0.01)").receipt.loss
    assert loss == PureLoss(Fraction(1, 100), session._dependencies.terms.delta)
    assert spent(session)[0] == Fraction(1, 100)


@pytest.mark.parametrize("certificate", ALL)
def test_all_that_is_told_speaks_the_currency(session: Session, certificate: str) -> None:
    first, second = Certificate(certificate).currencies
    answer = session.sql(COUNTS)
    told = [
        str(answer.receipt.details()),
        str(session.explain(COUNTS)),
        str(session.budget),
        answer.statement(),
        str(session.sql("SHOW BUDGET")),
        str(session.sql(f"EXPLAIN {COUNTS}")),
        str(session.sql(COUNTS).receipt.details()),
        *session.history.column_names,
    ]
    for text in told:
        assert ("rho" in text) <= (certificate == "zcdp")
    assert session.sql("SHOW BUDGET").arrow().column("measure").to_pylist()[:3] == [
        "percent of the budget",
        first,
        second,
    ]
    cited = "zero-concentrated differential privacy" in answer.statement()
    assert cited == (certificate == "zcdp")
    assert Certificate(certificate).words in answer.statement()
    assert str(answer.receipt.remaining) in str(answer.receipt.details())
    with pytest.raises(BudgetExceeded) as caught:
        session.sql("SELECT article FROM reads GROUP BY article TOP 500 PRIVATE")
    assert "rho" not in str(caught.value)


@pytest.mark.parametrize("certificate", ALL)
def test_a_forecast_is_what_is_then_admitted(session: Session) -> None:
    told = session.forecast(ONE, times=3)
    assert told.fits
    assert admitted(session) == told.at_worst
    assert session.forecast(ONE).at_worst == 0


@pytest.mark.parametrize("certificate", ALL)
def test_the_queries_of_a_hint_fit(session: Session) -> None:
    with pytest.raises(BudgetExceeded) as caught:
        session.sql(NAMES.replace("TOP 5 PRIVATE", "TOP 500 PRIVATE"))
    hint = caught.value.hint
    keys = hint.split("TOP ")[1].split()[0]
    session.explain(NAMES.replace("TOP 5", f"TOP {keys}"))
    if "epsilon = " in hint:
        option = hint.split("WITH ")[1].split(" for")[0]
        session.sql(NAMES.replace("TOP 5 PRIVATE", f"TOP 500 PRIVATE WITH {option}"))
    else:
        session.sql(NAMES.replace("TOP 5", f"TOP {keys}"))


@pytest.mark.parametrize("certificate", ALL)
def test_when_delta_is_short_the_reason_says_so(reads: duckdb.DuckDBPyConnection, certificate: str) -> None:
    with dpsql.connect(reads, policy=policy(certificate, queries=2), ledger=":memory:") as session:
        for _ in range(2):
            session.sql(ONE)
        with pytest.raises(BudgetExceeded) as caught:
            session.sql(ONE)
        assert caught.value.reason.endswith(" % more of the budget, and 0 % is left.")
        assert caught.value.hint == "Only a query whose keys are known fits: name them, such as domain = ['DE', 'FR']."
        session.sql(KNOWN)


@pytest.mark.parametrize("certificate", ALL)
def test_a_reopened_ledger_goes_on(reads: duckdb.DuckDBPyConnection, tmp_path: Path, certificate: str) -> None:
    place = tmp_path / "a.ledger"
    with dpsql.connect(reads, policy=policy(certificate), ledger=place) as session:
        first = session.sql(COUNTS_BY_ITEM)
        before = spent(session)
    with dpsql.connect(reads, policy=policy(certificate), ledger=place) as session:
        assert spent(session) == before
        again = session.sql(COUNTS_BY_ITEM)
        assert again.receipt.replayed
        assert again.fetchall() == first.fetchall()
        assert float(again.receipt.loss.delta) == 0.0
        session.sql(ONE)
        assert spent(session)[0] == 7 * unit_of(session)


@pytest.mark.parametrize(("certificate", "other"), [*pairwise([*ALL, ALL[0]]), (ALL[0], ALL[0])])
def test_a_ledger_is_not_opened_with_a_policy_of_another_certificate(
    reads: duckdb.DuckDBPyConnection, tmp_path: Path, certificate: str, other: str
) -> None:
    place = tmp_path / "a.ledger"
    with dpsql.connect(reads, policy=policy(certificate), ledger=place) as session:
        session.sql(ONE)
    with closing(SQLiteLedger.open(place)) as ledger:
        events = list(ledger.events())
    if other != certificate:
        with pytest.raises(LedgerError, match=r"\[ledger-certificate\]"):
            dpsql.connect(reads, policy=policy(other), ledger=place)
    with closing(SQLiteLedger.open(place)) as ledger:
        assert list(ledger.events()) == events


@pytest.mark.parametrize("certificate", FIXED)
def test_items_that_are_fixed_are_not_planned_anew(
    reads: duckdb.DuckDBPyConnection, tmp_path: Path, certificate: str
) -> None:
    place = tmp_path / "a.ledger"
    dpsql.connect(reads, policy=policy(certificate), ledger=place).close()
    with pytest.raises(LedgerError, match=r"\[ledger-certificate\].*fixes 12 items"):
        dpsql.connect(reads, policy=policy(certificate, items=13), ledger=place)


@pytest.mark.parametrize("certificate", FIXED)
def test_ceilings_that_came_to_exclude_what_is_fixed_are_refused(
    reads: duckdb.DuckDBPyConnection, tmp_path: Path, certificate: str
) -> None:
    place, known = tmp_path / "a.ledger", policy(certificate)
    dpsql.connect(reads, policy=known, ledger=place).close()
    low = dpsql.Policy(known.budget, PRIVATE, limits=dpsql.Limits(max_epsilon="0.01"))
    with pytest.raises(LedgerError, match=r"\[ledger-certificate\].*Restore the policy's limits"):
        dpsql.connect(reads, policy=low, ledger=place)
    high = dpsql.Policy(known.budget, PRIVATE, limits=dpsql.Limits(max_epsilon=1))
    dpsql.connect(reads, policy=high, ledger=place).close()


@pytest.mark.parametrize("certificate", FIXED)
def test_the_epsilon_of_the_ledger_counts_where_the_policy_comes_to_another(
    reads: duckdb.DuckDBPyConnection, tmp_path: Path, certificate: str
) -> None:
    place, known = tmp_path / "a.ledger", policy(certificate)
    low = dpsql.Policy(known.budget, PRIVATE, limits=dpsql.Limits(max_epsilon="0.02"))
    dpsql.connect(reads, policy=low, ledger=place).close()
    with dpsql.connect(reads, policy=known, ledger=place) as session:
        assert session.explain(NAMES).epsilon == Epsilon("0.02")
        with pytest.raises(Refusal, match=r"\[certificate\]"):
            session.sql(f"{ONE[:-1]}, epsilon = 0.05)")
        session.sql(ONE)


@pytest.mark.parametrize("certificate", ALL)
def test_an_account_of_ones_own_is_counted_in_the_same_currency(
    reads: duckdb.DuckDBPyConnection, tmp_path: Path, certificate: str
) -> None:
    place = tmp_path / "a.ledger"
    with dpsql.connect(reads, policy=policy(certificate), ledger=place, analyst="alice") as session:
        session.sql(ONE)
        assert spent(session)[0] == unit_of(session)
    with dpsql.connect(reads, policy=policy(certificate), ledger=place, analyst="bob") as session:
        assert spent(session)[0] == 0
        assert session.budget.refunded.remaining == session.budget.refunded.granted - unit_of(session)


def test_a_limit_under_pure_is_an_epsilon(reads: duckdb.DuckDBPyConnection) -> None:
    analysts = {"alice": dpsql.Analyst("0.25", items=10)}
    known = dpsql.Policy(policy("pure").budget, PRIVATE, analysts=analysts)
    with dpsql.connect(reads, policy=known, ledger=":memory:", analyst="alice") as session:
        balance = session.budget
        assert balance.refunded.granted == Fraction(1, 4)
        assert balance.epsilon == Epsilon("0.025")
        for _ in range(10):
            session.sql(ONE)
        with pytest.raises(BudgetExceeded, match="of account alice"):
            session.sql(ONE)


@pytest.mark.parametrize("certificate", OTHERS)
def test_shared_answers_cost_what_the_first_one_did(
    reads: duckdb.DuckDBPyConnection, tmp_path: Path, certificate: str
) -> None:
    known = dpsql.Policy(policy(certificate).budget, PRIVATE, limits=dpsql.Limits(share_replays=True))
    answers = []
    for name in ("alice", "bob"):
        with dpsql.connect(reads, policy=known, ledger=tmp_path / "a.ledger", analyst=name) as session:
            answers.append(session.sql(COUNTS))
    assert answers[0].fetchall() == answers[1].fetchall()
    assert answers[0].receipt.loss == answers[1].receipt.loss
    assert not answers[1].receipt.replayed


@pytest.mark.parametrize("certificate", ["pure", "theorem2", "optimal"])
def test_what_holds_after_several_periods_is_what_their_items_come_to(certificate: str) -> None:
    known = policy(certificate, period="30d", periods=3)
    connection = shared(*values_rows({"a": 1}))
    with dpsql.connect(connection, policy=known, ledger=":memory:") as session:
        terms = session._dependencies.terms
        total, rule = terms.after(3), terms.rule
        assert rule is not None
        assert total is not None
        assert total.delta == Delta("3e-6")
        assert terms.after(1) == terms.total
        if certificate == "pure":
            assert total.epsilon == Epsilon(3)
        else:
            most = rule.times(3).total
            assert most.epsilon <= total.epsilon
            assert math.isclose(float(most.epsilon), float(total.epsilon), rel_tol=1e-5)
            assert 1.5 < float(total.epsilon) < 3
        assert "per 30 days" in str(session.budget)


@pytest.mark.parametrize("certificate", OTHERS)
@pytest.mark.parametrize("more", ["", " WITH (mechanism = stable)"])
def test_adaptive_is_refused_by_the_words_of_the_query(session: Session, more: str) -> None:
    text = f"SELECT article FROM reads GROUP BY article TOP ADAPTIVE PRIVATE{more}"
    with pytest.raises(Refusal, match="TOP ADAPTIVE PRIVATE has no loss") as refused:
        session.sql(text)
    assert refused.value.code == "certificate"
    assert "TOP 10 PRIVATE" in refused.value.hint
    assert getattr(refused.value.place, "fragment", None) == "TOP ADAPTIVE PRIVATE"
