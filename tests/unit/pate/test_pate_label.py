"""Labelling through a session: the labels, what is charged and when, what is refused."""

from __future__ import annotations

import math
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from fractions import Fraction
from pathlib import Path

import duckdb
import pytest
from support.laws import SeededNoise, discrete_gaussian_law, fits, goodness, rejects
from support.session_kit import WatchedLedger, filled, rebuilt, session_on, shared

import dpsql
import dpsql.pate
from dpsql import Delta, Epsilon, Rho
from dpsql.accounting import ZCDP, BudgetVector
from dpsql.engines import Exact, Statement
from dpsql.ledger import SQLiteLedger
from dpsql.mechanisms import VOTE_STEPS
from dpsql.pate import Argmax, Labelling, Majority, Method, Stable, label
from dpsql.session import Session

LABELS = tuple(f"L{at}" for at in range(8))
EPSILON, DELTA = Epsilon("0.5"), Delta("1e-8")
METHODS: dict[str, Method] = {
    "stable": Stable(EPSILON, DELTA, 5),
    "pate": Majority(EPSILON, LABELS, 400),
    "pate-tau": Majority(EPSILON, LABELS, 400, max_labels=3),
    "pate-argmax": Argmax(EPSILON, LABELS),
}
VOTES = (
    "CREATE TABLE votes (teacher INTEGER, example BIGINT, label VARCHAR)",
    "INSERT INTO votes SELECT t, e, 'L' || l FROM range(400) a(t), range(3) b(e), range(3) c(l) WHERE l <= e",
)
BUDGET = dpsql.Budget(5, "1e-6")
POLICY = dpsql.Policy(BUDGET, {"votes": dpsql.PrivateTable("teacher")})
EACH = Fraction(1, 16)  # rho of an example at epsilon 0.5


def session_of(policy: dpsql.Policy = POLICY, connection: duckdb.DuckDBPyConnection | None = None) -> Session:
    return session_on(shared(*VOTES) if connection is None else connection, policy)


def labelled(session: Session, method: Method, examples: Sequence[int] = (0, 1, 2)) -> Labelling:
    return label(session, "votes", examples=examples, method=method)


@pytest.mark.parametrize("name", ["stable", "pate", "pate-tau"])
def test_clear_votes_give_their_labels_in_the_order_of_the_examples(name: str) -> None:
    with session_of() as session:
        labelling = labelled(session, METHODS[name], (2, 0, 1))
        assert labelling.examples == (2, 0, 1)
        assert labelling.labels == (("L0", "L1", "L2"), ("L0",), ("L0", "L1"))
        assert labelling.answered == 3


def test_argmax_gives_one_label_of_the_most_votes() -> None:
    more = "INSERT INTO votes SELECT t, 9, 'L4' FROM range(300) a(t)"
    with session_of(connection=filled(*VOTES, more)) as session:
        assert labelled(session, METHODS["pate-argmax"], (0, 9)).labels == (("L0",), ("L4",))


def test_examples_that_nobody_votes_on_are_answered_and_charged_like_the_others() -> None:
    for name, method in METHODS.items():
        with session_of() as session:
            labelling = labelled(session, method, (77, 78))
            assert session.budget.rho.spent == 2 * EACH
            if name == "stable":
                assert labelling.labels == (None, None)
            elif name == "pate-argmax":
                assert all(names is not None and len(names) == 1 for names in labelling.labels)
            else:
                assert labelling.labels == ((), ())


def test_ties_fewer_labels_than_k_bar_and_a_k_bar_of_all_labels() -> None:
    tie = "INSERT INTO votes SELECT t, 5, 'L' || (t % 2) FROM range(400) a(t)"
    with session_of(connection=filled(*VOTES, tie)) as session:
        for k_bar in (2, 3, 8):
            labels = labelled(session, Stable(EPSILON, DELTA, k_bar), (0, 5)).labels
            assert labels == (("L0",), ("L0", "L1"))
    with session_of(connection=filled(*VOTES, tie)) as session:
        # with k_bar of 1 the tie is all that there is to choose
        assert labelled(session, Stable(EPSILON, DELTA, 1), (0, 5)).labels == (("L0",), None)


def test_one_teacher_is_hidden() -> None:
    lonely = filled(VOTES[0], "INSERT INTO votes VALUES (1, 0, 'L5'), (1, 1, 'L6')")
    with session_of(connection=lonely) as session:
        assert labelled(session, METHODS["stable"], (0, 1)).labels == (None, None)


def test_numbers_may_be_examples_and_labels_and_text_too() -> None:
    kinds = filled(
        "CREATE TABLE votes (teacher UUID, example VARCHAR, label USMALLINT)",
        "INSERT INTO votes SELECT uuid(), 'x', l FROM range(400) a(t), range(9, 11) b(l)",
    )
    with session_of(connection=kinds) as session:
        assert label(session, "votes", examples=["x"], method=Stable(EPSILON, DELTA, 4)).labels == ((9, 10),)
    with session_of(connection=kinds) as session:
        of_text = label(session, "VOTES", examples=["x", "y"], method=Majority(EPSILON, (10, 9, 8), 400))
        assert of_text.labels == ((10, 9), ())


@pytest.mark.parametrize("name", METHODS)
def test_the_loss_of_a_batch_is_that_of_its_examples_together(name: str) -> None:
    method = METHODS[name]
    with session_of() as session:
        receipt = labelled(session, method).receipt
        delta = 3 * DELTA.value if name == "stable" else Fraction(0)
        assert method.loss.rho == receipt.each.rho == Rho(EACH)
        assert receipt.loss == ZCDP(Rho(3 * EACH), Delta(delta))
        budget = session.budget
        assert (budget.rho.spent, budget.delta.spent, budget.rho.reserved) == (3 * EACH, delta, 0)
        assert receipt.remaining == budget.remaining
        assert receipt.method == name
        (entry,) = session._dependencies.ledger.entries()
        assert entry.worst_case == BudgetVector.of(receipt.loss)
        assert entry.query.startswith(f"PATE {name}: 3 examples of votes, epsilon 0.5")


def test_everything_is_reserved_before_a_vote_is_read_and_charged_before_a_label_is_seen() -> None:
    seen: list[tuple[str, Fraction, Fraction]] = []

    def look(moment: str) -> None:
        balance = session.budget
        seen.append((moment, balance.rho.reserved, balance.rho.spent))

    def watching(statement: Statement, execute: Callable[[Statement], Exact]) -> Exact:
        look("read")
        return execute(statement)

    plain = session_of()
    ledger = WatchedLedger(plain._dependencies.ledger, before=lambda: look("drawn"), after=lambda: look("settled"))
    with rebuilt(plain, engine=watching, ledger=ledger) as session:
        labelled(session, METHODS["stable"])
    assert seen == [("read", 3 * EACH, 0), ("drawn", 3 * EACH, 0), ("settled", 0, 3 * EACH)]


@pytest.mark.parametrize("failure", [RuntimeError("L0 of teacher 7"), KeyboardInterrupt()])
def test_what_fails_on_the_votes_is_charged_in_full_and_says_nothing(failure: BaseException) -> None:
    def failing(*_: object) -> Exact:
        raise failure

    with rebuilt(session_of(), engine=failing) as session:
        wanted = dpsql.EngineError if isinstance(failure, Exception) else KeyboardInterrupt
        with pytest.raises(wanted) as caught:
            labelled(session, METHODS["stable"])
        assert "teacher 7" not in str(caught.value)
        assert caught.value.__context__ is None
        assert (session.budget.rho.spent, session.budget.delta.spent) == (3 * EACH, 3 * DELTA.value)


def test_an_engine_that_answers_something_else_is_charged_and_refused() -> None:
    def other(_: Statement, execute: Callable[[Statement], Exact]) -> Exact:
        return execute(Statement("SELECT 1"))

    with rebuilt(session_of(), engine=other) as session:
        with pytest.raises(dpsql.EngineError, match=r"\[release-failed\]"):
            labelled(session, METHODS["pate"])
        assert session.budget.rho.spent == 3 * EACH


CHILD = """
import os, signal, sys
import dpsql
from dpsql.pate import Stable, label
from support.session_kit import WatchedLedger, rebuilt

moment, folder = sys.argv[1:]
die = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
session = dpsql.connect(f"{folder}/votes.duckdb", policy=f"{folder}/policy.toml")
if moment == "reading":
    session = rebuilt(session, engine=die)
else:
    session = rebuilt(session, ledger=WatchedLedger(session._dependencies.ledger, before=lambda: None, after=die))
print(label(session, "votes", examples=range(3), method=Stable(dpsql.Epsilon("0.5"), dpsql.Delta("1e-8"), 5)))
"""
POLICY_FILE = """\
ledger = "ledger.sqlite"
[budget]
epsilon = 5
delta = 1e-6
[tables.votes]
privacy_unit = "teacher"
"""


@pytest.mark.parametrize("moment", ["reading", "settled"])
def test_a_crash_never_refunds_and_loses_nothing_that_was_paid(tmp_path: Path, moment: str) -> None:
    with duckdb.connect(str(tmp_path / "votes.duckdb")) as connection:
        for statement in VOTES:
            connection.execute(statement)
    (tmp_path / "policy.toml").write_text(POLICY_FILE)
    command = [sys.executable, "-c", CHILD, moment, str(tmp_path)]
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, cwd=Path(__file__).parents[2], timeout=60
    )
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "")
    with dpsql.connect(tmp_path / "votes.duckdb", policy=tmp_path / "policy.toml") as session:
        balance = session.budget
        assert isinstance(session._dependencies.ledger, SQLiteLedger)
        assert balance.delta.spent == 3 * DELTA.value
        assert balance.rho.remaining == balance.rho.granted - 3 * EACH
        assert balance.rho.reserved == (3 * EACH if moment == "reading" else 0)
        labelling = labelled(session, METHODS["stable"])
        assert labelling.receipt.replayed is (moment == "settled")
        assert labelling.receipt.durable
        assert labelling.labels == (("L0",), ("L0", "L1"), ("L0", "L1", "L2"))


def test_the_same_batch_again_costs_nothing_and_another_costs_again() -> None:
    with session_of(dpsql.Policy(dpsql.Budget(20, "1e-6"), POLICY.tables)) as session:
        first = labelled(session, METHODS["pate"], (0, 99))
        again = labelled(session, METHODS["pate"], (0, 99))
        assert (again.labels, again.receipt.replayed, again.receipt.loss) == (first.labels, True, ZCDP.nothing())
        assert "charged nothing" in str(again.receipt)
        assert session.budget.rho.spent == 2 * EACH
        others = [
            (Majority(EPSILON, LABELS, 400), (99, 0)),
            (Majority(EPSILON, LABELS, 401), (0, 99)),
            (Majority(EPSILON, LABELS[::-1], 400), (0, 99)),
            (Majority(EPSILON, LABELS, 400, max_labels=7), (0, 99)),
            (Argmax(EPSILON, LABELS), (0, 99)),
        ]
        for method, examples in others:
            assert not labelled(session, method, examples).receipt.replayed
        assert labelled(session, Majority(EPSILON, LABELS, 400, max_labels=8), (0, 99)).receipt.replayed


def test_a_stored_batch_that_cannot_be_read_is_refused() -> None:
    with session_of() as session:
        labelled(session, METHODS["pate"])
        ledger = session._dependencies.ledger

        class Damaged:
            def __getattr__(self, name: str) -> object:
                return getattr(ledger, name)

            def stored(self, *_: object) -> bytes:
                return b'{"key": "another", "labels": []}'

        with pytest.raises(dpsql.LedgerError, match=r"\[ledger-answer\]"):
            labelled(rebuilt(session, ledger=Damaged()), METHODS["pate"])  # type: ignore[arg-type]


def test_an_analyst_pays_from_their_own_limit_and_shared_answers_are_the_first() -> None:
    analysts = {"ann": dpsql.Analyst(epsilon=2), "bob": dpsql.Analyst(epsilon=2)}
    policy = dpsql.Policy(BUDGET, POLICY.tables, analysts=analysts, limits=dpsql.Limits(share_replays=True))
    connection, method = filled(*VOTES), Majority(EPSILON, LABELS, 400)
    ann = dpsql.connect(connection, policy=policy, ledger=":memory:", analyst="ann")
    bob = dpsql.connect(connection, policy=policy, ledger=":memory:", analyst="bob")
    with ann, rebuilt(bob, ledger=ann._dependencies.ledger) as other:
        first = label(ann, "votes", examples=[1], method=method)
        second = label(other, "votes", examples=[1], method=method)
        assert first.receipt.shared
        assert not second.receipt.replayed
        assert second.labels == first.labels
        assert [entry.account for entry in ann._dependencies.ledger.entries()] == ["ann", "bob"]
        assert ann.budget.rho.spent == EACH


def test_what_does_not_fit_is_refused_with_what_would() -> None:
    with session_of() as session:
        fits_now = session.budget.rho.remaining // EACH
        with pytest.raises(dpsql.BudgetExceeded, match=rf"\[budget-exceeded\].* {fits_now} of them would fit"):
            labelled(session, METHODS["pate"], range(int(fits_now) + 1))
        assert session.budget.rho.spent == 0
        assert session._dependencies.ledger.entries() == ()
        labelled(session, METHODS["pate"], range(int(fits_now)))
        with pytest.raises(dpsql.BudgetExceeded, match=r" 0 of them would fit"):
            labelled(session, METHODS["stable"])


def test_a_batch_that_is_short_of_delta_says_how_many_examples_it_buys() -> None:
    with session_of() as session, pytest.raises(dpsql.BudgetExceeded, match=r" 2 of them would fit"):
        labelled(session, Stable(EPSILON, Delta("2e-7"), 3))


REFUSED: dict[str, tuple[str, dict[str, object], Method, str]] = {
    "no such table": ("unknown-table", {}, METHODS["pate"], "ballots"),
    "a public table": ("nothing-private", {}, METHODS["pate"], "known"),
    "no label": ("unknown-column", {"columns": ["teacher", "example"]}, METHODS["pate"], "votes"),
    "min_units": ("min-units", {"min_units": 5}, METHODS["pate"], "votes"),
    "a bound": ("pate-bound", {"max_groups_contributed": 5}, METHODS["pate"], "votes"),
    "epsilon": ("option-range", {}, Stable(Epsilon(2), DELTA, 2), "votes"),
    "delta": ("option-range", {}, Stable(EPSILON, Delta("1e-3"), 2), "votes"),
    "k_bar": ("k", {}, Stable(EPSILON, DELTA, 9), "votes"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_the_policy_does_not_allow_is_refused_before_anything_is_read(case: str) -> None:
    code, more, method, table = REFUSED[case]
    tables = {"votes": dpsql.PrivateTable("teacher", **more), "known": dpsql.PublicTable()}  # type: ignore[arg-type]
    policy = dpsql.Policy(BUDGET, tables, limits=dpsql.Limits(max_delta="1e-4", max_k=8))

    def never(*_: object) -> Exact:
        raise AssertionError

    connection = filled(*VOTES, "CREATE TABLE known (teacher INTEGER, example INTEGER, label VARCHAR)")
    with rebuilt(session_of(policy, connection), engine=never) as session:
        with pytest.raises(dpsql.Refusal, match=rf"\[{code}\]") as caught:
            label(session, table, examples=[1], method=method)
        assert caught.value.hint
        assert session._dependencies.ledger.entries() == ()


def test_a_column_that_votes_cannot_have_is_refused() -> None:
    odd = filled("CREATE TABLE votes (teacher INTEGER, example DOUBLE, label VARCHAR)")
    with session_of(connection=odd) as session, pytest.raises(dpsql.Refusal, match=r"\[pate-column\]"):
        labelled(session, METHODS["pate"])


@pytest.mark.parametrize("examples", [[], [1, 1], ["1"], [True], [1.0], [2**63], [None]])
def test_examples_that_mean_nothing_are_refused(examples: list[int]) -> None:
    with session_of() as session, pytest.raises(dpsql.UsageError, match=r"\[pate-values\]"):
        labelled(session, METHODS["stable"], examples)


@pytest.mark.parametrize("labels", [("a", "a"), (1, 2), ("a\0",), ("\ud800",)])
def test_labels_that_mean_nothing_are_refused(labels: tuple[str, ...]) -> None:
    with session_of() as session:
        with pytest.raises(dpsql.UsageError, match=r"\[pate-values\]"):
            labelled(session, Majority(EPSILON, labels, 3))
        assert session._dependencies.ledger.entries() == ()


def test_methods_that_mean_nothing_are_refused() -> None:
    with pytest.raises(dpsql.UsageError, match=r"\[teachers-range\]"):
        Majority(EPSILON, LABELS, 0)
    for build in (
        lambda: Majority(EPSILON, (), 3),
        lambda: Argmax(EPSILON, ()),
        lambda: Majority(EPSILON, LABELS, 3, 9),
    ):
        with pytest.raises(dpsql.UsageError, match=r"\[labels-range\]"):
            build()
    with pytest.raises(dpsql.UsageError, match=r"\[delta-range\]"):
        Stable(EPSILON, Delta(0), 3)


def test_a_closed_session_labels_nothing() -> None:
    session = session_of()
    session.close()
    with pytest.raises(dpsql.UsageError, match=r"\[closed\]"):
        labelled(session, METHODS["pate"])


LED = (("L0", 720), ("L1", 400))
EPSILON_20TH = Fraction(1, 20)
MIXED = (("L0", 230), ("L1", 190), ("L2", 0))  # of 400 teachers


def majority_p_value(teachers: int) -> float:
    """Compare what sessions draw for 1,500 examples of the same votes with the law of the majority."""
    rows = [
        f"INSERT INTO votes SELECT t, e, '{name}' FROM range({votes}) a(t), range(1500) b(e)" for name, votes in MIXED
    ]
    method = Majority(Epsilon("0.05"), LABELS[:3], 400)
    policy = dpsql.Policy(dpsql.Budget(30, "1e-6"), POLICY.tables)
    with session_on(shared(VOTES[0], *rows), policy) as session:
        drawn: Counter[Hashable] = Counter(label(session, "votes", examples=range(1500), method=method).labels)
    noise = discrete_gaussian_law(method.mechanism.variance, reach=8.0)
    above = [
        math.fsum(mass for draw, mass in noise.items() if 2 * (VOTE_STEPS * votes + draw) > VOTE_STEPS * teachers)
        for _, votes in MIXED
    ]
    law: dict[Hashable, float] = {}
    for bits in range(8):
        chosen = [bits >> at & 1 for at in range(3)]
        law[tuple(LABELS[at] for at in range(3) if chosen[at])] = math.prod(
            one if held else 1 - one for one, held in zip(above, chosen, strict=True)
        )
    return goodness(drawn, law)


@pytest.mark.properties
def test_the_labels_of_a_session_follow_the_law_of_the_majority() -> None:
    assert fits(lambda: majority_p_value(400))


@pytest.mark.mutant
@pytest.mark.parametrize("teachers", [360, 440])
def test_another_majority_would_be_noticed(teachers: int) -> None:
    assert rejects(lambda: majority_p_value(teachers))


def stable_p_value(sensitivity: int) -> float:
    """Compare what sessions draw with the law of a stable top-k whose gaps move by so much between neighbours."""
    rows = [
        f"INSERT INTO votes SELECT t, e, '{name}' FROM range({votes}) a(t), range(1500) b(e)" for name, votes in LED
    ]
    method = Stable(Epsilon("0.05"), Delta("1e-4"), 2)
    policy = dpsql.Policy(dpsql.Budget(30, "0.5"), POLICY.tables)
    with session_on(shared(VOTES[0], *rows), policy) as session:
        drawn: Counter[Hashable] = Counter(label(session, "votes", examples=range(1500), method=method).labels)
    variance = Fraction(4 * sensitivity**2) / EPSILON_20TH**2
    noise = discrete_gaussian_law(variance)
    offset = next(at for at in range(2_000) if math.fsum(p for draw, p in noise.items() if draw >= at) <= 1e-4)
    gaps = [LED[0][1] - LED[1][1], LED[1][1]]
    weights = [math.exp(float(EPSILON_20TH) * gap / (2 * sensitivity)) for gap in gaps]
    law: dict[Hashable, float] = {None: 0.0}
    for k, (gap, weight) in enumerate(zip(gaps, weights, strict=True), start=1):
        held = math.fsum(p for draw, p in noise.items() if gap - sensitivity + draw >= offset)
        law[LABELS[:k]] = held * weight / math.fsum(weights)
        law[None] += (1 - held) * weight / math.fsum(weights)
    return goodness(drawn, law)


def test_the_labels_of_a_session_follow_the_law_for_a_teacher_exchanged() -> None:
    assert fits(lambda: stable_p_value(2))


@pytest.mark.mutant
@pytest.mark.properties
@pytest.mark.parametrize("sensitivity", [1, 3])
def test_the_law_for_a_teacher_more_would_be_noticed(sensitivity: int) -> None:
    assert rejects(lambda: stable_p_value(sensitivity))


def test_the_documentation_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with duckdb.connect("votes.duckdb") as connection:
        for statement in VOTES:
            connection.execute(statement)
    Path("policy.toml").write_text(POLICY_FILE.replace("epsilon = 5", "epsilon = 20"))
    text = (Path(__file__).parents[3] / "docs" / "how-to" / "pate.md").read_text()
    (block,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    scope: dict[str, object] = {}
    exec(compile(block, "docs/how-to/pate.md", "exec"), scope)
    assert scope["labelling"].labels[:4] == (("L0",), ("L0", "L1"), ("L0", "L1", "L2"), None)  # type: ignore[attr-defined]
    scope["session"].close()  # type: ignore[attr-defined]
    for name in dpsql.pate.__all__:
        assert getattr(dpsql.pate, name)
    for method in (Stable, Majority, Argmax):
        assert f"`{method.__name__}(" in text


def test_the_noise_of_a_session_is_used_anew_for_every_example() -> None:
    with rebuilt(session_of(), noise=SeededNoise(3)) as session:
        labels = labelled(session, Argmax(Epsilon("0.05"), LABELS), range(100, 160)).labels
    assert len(set(labels)) > 3


@pytest.mark.parametrize("certificate", ["pure", "theorem2", "optimal"])
@pytest.mark.parametrize("name", METHODS)
def test_labels_are_refused_under_a_certificate_that_does_not_cover_them(certificate: str, name: str) -> None:
    policy = dpsql.Policy(dpsql.Budget(5, "1e-6", certificate=certificate), POLICY.tables)
    with session_of(policy) as session, pytest.raises(dpsql.Refusal, match=certificate) as refused:
        labelled(session, METHODS[name])
    assert refused.value.code == "certificate"
