"""Settlements that repeat an answer, in files and schemas: the version that tells of them, and false ones."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from fractions import Fraction
from pathlib import Path

import pytest
from support.ledger_kit import ALICE, BUDGET, ITEM, TOTAL, code_of, opened, raw, retell, version_of
from support.ledger_programs import start
from support.postgres_kit import server
from support.postgres_ledger_kit import Place, recipe
from support.replay_kit import CREATED, Act, rows, settled

from dpsql.accounting import BudgetState, Certificate, CertificateTerms, Periods
from dpsql.errors import LedgerError
from dpsql.ledger import Ledger, Request, SQLiteLedger, durable, sqlite_tables, verify
from dpsql.ledger import postgres_server as tables
from dpsql.ledger.base import Reservation, Settled
from dpsql.ledger.durable import decode_checkpoint, encode_checkpoint
from dpsql.ledger.history import History
from dpsql.ledger.postgres_ledger import PostgresLedger
from dpsql.ledger.postgres_ledger import verify as verify_postgres
from dpsql.quantities import Epsilon

QUESTION = Request("q", ITEM, ALICE, "key", repeated=True)
ONCE = BudgetState(Fraction(1), ITEM.delta.value, Fraction(0))


def repeat(ledger: Ledger, question: Request = QUESTION) -> None:
    """Ask one question twice at once, so that the second repeats the first."""
    first, second = ledger.reserve(question), ledger.reserve(question)
    assert isinstance(first, Reservation)
    assert isinstance(second, Reservation)
    assert first.settle(ITEM.refundable, "d", answer=b"first") == Settled(b"first")
    assert second.settle(ITEM.refundable, "e", answer=b"second") == Settled(b"first", repeats=True)


# a history


def reserved(rho: str = "1/3", delta: str = "1/100") -> Act:
    return "reserved", {"query": "q", "rho": rho, "delta": delta, "account": None, "key": "k", "data_version": 0}


def repeats(entry: object, repeated: object, delta: str = "1/100", **more: object) -> Act:
    kind, body = settled(entry, "0/1")
    assert isinstance(body, Mapping)
    return kind, {**body, "repeats": repeated, "freed_delta": delta, **more}


def test_a_settlement_that_repeats_frees_rho_and_delta() -> None:
    replay = History()
    replay.read(rows(CREATED, reserved(), reserved("1/5", "1/30"), reserved(), settled(2), repeats(3, 2, "1/30")))
    third = BudgetState(Fraction(1, 7), Fraction(2, 100), Fraction(1, 3))
    assert replay.states()[None] == third
    assert replay.repeats == 1


@pytest.mark.parametrize(
    "act",
    [
        repeats(3, 3),
        repeats(3, 4),
        repeats(3, 6),
        repeats(3, 99),
        repeats(3, 1),
        repeats(3, 0),
        repeats(3, -2),
        repeats(3, None),
        repeats(3, "2"),
        repeats(3, 2.0),
        repeats(3, [2]),
        repeats(3, True),
        repeats(2, 3),
        repeats(3, 2, loss="1/7"),
        repeats(3, 2, answer="00"),
        repeats(3, 2, "1/99"),
        repeats(3, 2, "0/1"),
        repeats(3, 2, "much"),
        ("settled", {"entry": 3, "loss": "0/1", "digest": "", "answer": "", "repeats": 2}),
        ("settled", {"entry": 3, "loss": "0/1", "digest": "", "answer": "", "freed_delta": "1/100"}),
    ],
)
def test_a_settlement_that_cannot_repeat_is_refused(act: Act) -> None:
    before = [CREATED, reserved(), reserved(), reserved(), settled(2)]
    History().read(rows(*before, repeats(3, 2)))
    with pytest.raises(LedgerError, match="event 6 "):
        History().read(rows(*before, act))


def test_what_is_repeated_after_a_checkpoint_frees_what_was_held_before_it() -> None:
    history = rows(
        CREATED, reserved(), reserved("1/5", "1/30"), settled(2), reserved("1/7", "1/70"), repeats(3, 2, "1/30")
    )
    full = History()
    full.read(history)
    growing = History()
    for number, row in enumerate(history, 1):
        growing.read([row])
        resumed = History(decode_checkpoint(encode_checkpoint(growing.sums())))
        resumed.read(history[number:])
        assert resumed.sums() == full.sums()


def test_an_opening_from_a_checkpoint_believes_a_repeat(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durable, "LEAST", 1)
    with opened(path) as ledger:
        first, second = ledger.reserve(QUESTION), ledger.reserve(QUESTION)
        with opened(path) as beside:  # which writes the checkpoint
            assert beside.state().reserved == Fraction(2)
        first.settle(ITEM.refundable, "d", answer=b"first")
        second.settle(ITEM.refundable, "e", answer=b"second")
    with opened(path) as ledger:
        assert ledger.state() == ONCE
    assert verify(path).events == 5


# files


@pytest.mark.parametrize("certified", [CertificateTerms(), CertificateTerms(Certificate.pure)])
@pytest.mark.parametrize("periods", [None, 30])
def test_only_a_file_in_which_something_is_repeated_has_the_newest_version(
    path: Path, monkeypatch: pytest.MonkeyPatch, certified: CertificateTerms, periods: int | None
) -> None:
    length = None if periods is None else Periods(timedelta(days=periods))
    item, budget = (replace(amounts, certificate=certified.certificate) for amounts in (ITEM, BUDGET))
    question = Request("q", item, None, "key", repeated=True)
    least = 4 if certified.certificate is not Certificate.zcdp else 3 if periods else 2
    with closing(SQLiteLedger(path, budget, total=TOTAL, periods=length, certified=certified)) as ledger:
        held = ledger.reserve(question)
        assert isinstance(held, Reservation)
        held.settle(ITEM.refundable, "d", answer=b"x")
        assert ledger.reserve(question) == Settled(b"x", repeats=True)
        assert version_of(path) == least
        repeat(ledger, Request("q", item, None, "another", repeated=True))
        assert version_of(path) == 5
        assert ledger.certified == certified
    with closing(SQLiteLedger.open(path)) as ledger:
        assert ledger.state() == BudgetState(Fraction(2), (ITEM.delta + ITEM.delta).value, Fraction(0))
        if periods is None and certified.certificate is Certificate.zcdp:
            ledger.grant(BUDGET, TOTAL, note="in periods", periods=Periods(timedelta(days=7)))
            assert version_of(path) == 5
    assert verify(path).events >= 7
    monkeypatch.setattr(sqlite_tables, "VERSION", 4)  # what an earlier dpsql knows
    assert code_of(lambda: SQLiteLedger.open(path)) == "ledger-newer"


def test_a_file_that_says_it_repeats_nothing_is_read_all_the_same_and_by_no_earlier_version(path: Path) -> None:
    with opened(path) as ledger:
        repeat(ledger)
    with raw(path) as connection:
        connection.execute("PRAGMA user_version = 2")
    assert verify(path).events == 5  # an earlier one finds that the delta is not what its events add up to


def test_a_repeat_of_another_question_or_of_no_answer_is_found_by_verifying(path: Path) -> None:
    with opened(path) as ledger:
        other, failed = (ledger.reserve(Request("q", ITEM, ALICE, key)) for key in ("other", "key"))
        other.settle(Fraction(0), "d", answer=b"other")
        failed.settle(Fraction(0), "d")
        repeat(ledger)
    assert verify(path).events == 9
    for before, after in (("6", "2"), ("2", "3"), ("3", "6")):
        retell(path, f"""body = replace(body, '"repeats":{before}', '"repeats":{after}')""")
        Path(f"{path}.mark").unlink(missing_ok=True)
        if after == "6":
            assert verify(path).events == 9
        else:
            assert code_of(lambda: verify(path)) == "ledger-tampered"


KILLED = """
import os, signal
ledger = opened()
held = ledger.reserve(ASK)
say('held')
sys.stdin.readline()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_kill_after_the_reservation_leaves_it_held_beside_the_answer_of_another(path: Path) -> None:
    ask = Request("q", ITEM, key="key", repeated=True)
    with opened(path) as ledger:
        with start(KILLED, path) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            held = ledger.reserve(ask)
            assert isinstance(held, Reservation)
            assert not held.settle(ITEM.refundable, "d", answer=b"first").repeats
            process.kill()
        assert ledger.reserve(ask) == Settled(b"first", repeats=True)
        before = ledger.state()
        assert (before.spent, before.reserved) == (Fraction(1), Fraction(1))
    with opened(path) as ledger:
        assert ledger.state() == before


# PostgreSQL


@pytest.mark.parametrize("certified", [CertificateTerms(), CertificateTerms(Certificate.optimal, Epsilon("0.03"))])
def test_a_schema_repeats_under_every_certificate_and_no_earlier_version_opens_it(
    place: Place,
    monkeypatch: pytest.MonkeyPatch,
    certified: CertificateTerms,
) -> None:
    item, budget = (replace(amounts, certificate=certified.certificate) for amounts in (ITEM, BUDGET))
    question = Request("q", item, None, "key", repeated=True)
    with closing(PostgresLedger(place.url, budget, total=TOTAL, certified=certified)) as ledger:
        repeat(ledger, question)
        assert ledger.certified == certified
        ledger.bump("more rows")
        repeat(ledger, question)
    with closing(PostgresLedger.open(place.url)) as ledger:
        assert ledger.state() == BudgetState(Fraction(2), (ITEM.delta + ITEM.delta).value, Fraction(0))
    assert verify_postgres(place.url).events == 10
    monkeypatch.setattr(tables, "VERSION", 2)  # what an earlier dpsql knows
    assert code_of(lambda: PostgresLedger.open(place.url)) == "ledger-newer"


def test_a_role_that_may_not_raise_an_old_version_leaves_the_delta_spent(
    place: Place,
    role: str,
) -> None:
    PostgresLedger(place.url, BUDGET, total=TOTAL).close()
    place.tamper("UPDATE terms SET version = 1")
    server().run(*recipe(place.schema, role))
    with closing(PostgresLedger(server().url(place.schema, role), BUDGET, total=TOTAL)) as ledger:
        repeat(ledger)
        assert ledger.state() == BudgetState(Fraction(1), (ITEM.delta + ITEM.delta).value, Fraction(0))
        assert place.rows("SELECT version FROM terms") == [(1,)]
        assert ledger.stored("key", "alice") == b"first"
    assert verify_postgres(place.url).events == 5
    PostgresLedger.open(place.url).close()  # by the owner
    assert place.rows("SELECT version FROM terms") == [(3,)]
    assert verify_postgres(place.url).events == 5
