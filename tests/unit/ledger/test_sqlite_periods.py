"""Files whose budget is granted in periods: made, taken over from a budget granted once, shared, verified."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import closing
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path

import pytest
from support.ledger_kit import ALICE, ASK, BUDGET, ITEM, TOTAL, code_of, raw, retell, tampering, version_of
from support.ledger_makers import make_state
from support.ledger_programs import start

from dpsql.accounting import BudgetState, BudgetVector, Periods
from dpsql.ledger import Request, SQLiteLedger, sum_entries, verify
from dpsql.ledger.record import Clock, encode_terms

START = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
YEAR = Periods(30 * DAY, 12)


def at(days: float) -> Clock:
    return lambda: START + DAY * days


def opened(path: Path, days: float, periods: Periods | None = YEAR) -> closing[SQLiteLedger]:
    return closing(SQLiteLedger(path, BUDGET, total=TOTAL, periods=periods, clock=at(days)))


@pytest.fixture
def used(path: Path) -> Path:
    """Return a ledger of three periods, the second of which was passed over."""
    with opened(path, 0) as ledger:
        ledger.reserve(Request("of alice", ITEM, ALICE)).settle(Fraction("0.5"), "digest")
        ledger.reserve(ASK)
    with opened(path, 61) as ledger:
        ledger.reserve(ASK).settle(Fraction("0.25"), "digest")
        ledger.bump("monday")
    with opened(path, 90) as ledger:
        ledger.reserve(ASK)
    return path


def test_a_ledger_without_periods_stays_what_it_was_for_an_earlier_dpsql(path: Path) -> None:
    shutil.copy(Path(__file__).with_name("version2.ledger"), path)
    before = path.read_bytes()
    assert verify(path).events == 7
    with closing(SQLiteLedger(path, BUDGET, total=TOTAL)) as ledger:
        assert ledger.calendar is None
        assert ledger.state() == BudgetState(Fraction("0.5"), Fraction("2e-9"), Fraction(1))
        assert ledger.stored("key", "alice") is None  # of the data before monday
        told = [event.kind for event in ledger.events()]
    assert told == ["created", "registered", "reserved", "settled", "reserved", "bumped", "granted"]
    assert path.read_bytes() == before
    with closing(SQLiteLedger.open(path)) as ledger:
        ledger.reserve(ASK)
    assert (version_of(path), verify(path).events) == (2, 8)


def test_a_ledger_without_periods_is_given_some_by_a_grant(path: Path) -> None:
    shutil.copy(Path(__file__).with_name("version2.ledger"), path)
    with opened(path, 0) as ledger:  # without them until they are granted
        assert ledger.calendar is None
    with closing(SQLiteLedger.open(path, clock=at(0))) as ledger:
        ledger.grant(BUDGET, TOTAL, note="monthly", periods=YEAR)
        assert ledger.state().reserved == Fraction(1)
    assert version_of(path) == 3
    with opened(path, 30) as ledger:
        assert (ledger.calendar.number, ledger.state()) == (1, BudgetState())
        ledger.reserve(Request("all of it", BUDGET)).settle(BUDGET.refundable, "d")
    verify(path)


def test_what_was_begun_is_found_by_the_next_process(used: Path) -> None:
    with opened(used, 0) as ledger:  # its clock is set back
        assert (ledger.calendar.number, ledger.calendar.since) == (3, 9)
        assert ledger.state() == BudgetState(Fraction(0), ITEM.delta.value, Fraction(1))
        assert ledger.state("alice") == BudgetState()
        assert [entry.period for entry in ledger.entries()] == [0, 0, 2, 3]
        assert sum_entries(ledger.entries(), period=0).spent == Fraction("0.5")
    assert verify(used).events == 10


@pytest.mark.parametrize(
    ("periods", "words"),
    [
        (None, "grant it once"),
        (Periods(YEAR.length, 11), "at most 11 times"),
        (Periods(DAY, 12), "per 1 day, at most 12 times"),
    ],
)
def test_a_ledger_is_not_opened_for_fewer_or_other_periods(used: Path, periods: Periods | None, words: str) -> None:
    with pytest.raises(Exception, match=words) as caught:
        opened(used, 100, periods)
    assert caught.value.code == "ledger-period"


@pytest.mark.parametrize("most", [13, None])
def test_a_ledger_has_its_own_periods_until_more_are_granted(used: Path, most: int | None) -> None:
    with opened(used, 100, Periods(YEAR.length, most)) as ledger:
        assert ledger.calendar is not None
        assert ledger.calendar.periods == YEAR


def test_a_file_of_periods_says_so(used: Path) -> None:
    assert version_of(used) == 3
    with raw(used) as connection:
        (row,) = connection.execute("SELECT * FROM periods").fetchall()
    assert row == (1, 30 * 86400, 12, "2026-01-01T00:00:00.000000+00:00", 3, 9)


@pytest.mark.parametrize(
    "change",
    [
        *(f"UPDATE periods SET {column} = {column} + 1" for column in ("length_seconds", "most", "number", "since")),
        "UPDATE periods SET length_seconds = 2 * length_seconds",
        "UPDATE periods SET most = NULL",
        "UPDATE periods SET most = 'many'",
        "UPDATE periods SET length_seconds = -3600",
        "UPDATE periods SET length_seconds = 'long'",
        "UPDATE periods SET began = '2026-01-02T00:00:00.000000+00:00'",
        "UPDATE periods SET began = 'some day'",
        "UPDATE periods SET began = '2026-01-01'",
        "UPDATE periods SET number = 'x'",
        "DELETE FROM periods",
        "DROP TABLE periods",
        "PRAGMA user_version = 2",
        "INSERT INTO balances VALUES ('account bob', '0/1', '0/1', '0/1')",
        "UPDATE balances SET reserved_rho = '0/1'",
    ],
)
def test_a_changed_calendar_is_found(used: Path, change: str) -> None:
    with tampering(used) as connection:
        connection.execute(change)
    for act in (lambda: verify(used), lambda: SQLiteLedger.open(used)):
        assert code_of(act) in {"ledger-tampered", "ledger-damaged"}


def test_a_version_without_its_table_is_damaged(path: Path) -> None:
    with closing(SQLiteLedger(path, BUDGET, total=TOTAL)):
        pass
    with raw(path) as connection:
        connection.execute("PRAGMA user_version = 3")
    assert code_of(lambda: verify(path)) == "ledger-damaged"


def edit(path: Path, seq: int, change: str) -> None:
    retell(path, f"{change} WHERE seq = {seq}")
    Path(f"{path}.mark").unlink()


ONCE = json.dumps(encode_terms(BUDGET, TOTAL))  # a grant that says nothing of periods


def test_the_history_is_the_one_that_is_edited_below(used: Path) -> None:
    with closing(SQLiteLedger.open(used)) as ledger:
        kinds = [event.kind for event in ledger.events()]
        turns = [(event.seq, json.loads(event.body)) for event in ledger.events() if event.kind == "period"]
    assert kinds == "created reserved settled reserved period reserved settled bumped period reserved".split()
    assert turns == [(5, {"number": 2}), (9, {"number": 3})]


@pytest.mark.parametrize(
    ("seq", "change", "first"),
    [
        (9, """body = '{"number":4}'""", 9),
        (9, """body = '{"number":2}'""", 9),
        (9, """body = '{"number":true}'""", 9),
        (9, "body = '{}'", 9),
        (9, "at = '2026-03-31T23:59:59.999999+00:00'", 9),  # one tick before it began
        (9, "at = '2026-05-01T00:00:00.000000+00:00'", 9),  # in the period after
        (9, "at = '2026-04-01T00:00:00.000000'", 9),  # in no time zone
        (9, """at = '2026-02-01T00:00:00+00:00', body = '{"number":1}'""", 9),  # backwards
        (9, """at = '2026-03-03T00:00:00+00:00', body = '{"number":2}'""", 9),  # a second time
        (8, f"kind = 'granted', body = '{ONCE}'", 8),
        (9, "kind = 'bumped', body = '{\"data_version\":2}'", 9),
        (5, """body = '{"number":1}'""", 5),
        (5, "at = '2026-02-01T00:00:00.000000+00:00'", 5),
        (6, "at = '2026-04-01T00:00:00.000000+00:00'", 6),  # asked in a period that nobody had begun
        (8, "at = '2026-04-01T00:00:00.000000+00:00'", 8),
        (1, "at = '2025-12-01T00:00:00.000000+00:00'", 2),
        (1, """body = replace(body, '"periods":12', '"periods":2')""", 6),
        (1, """body = replace(body, '"periods":12', '"periods":0')""", 1),
        (1, """body = replace(body, '"periods":12', '"periods":"12"')""", 1),
        (1, """body = replace(body, '"period_seconds":2592000,', '')""", 5),
        (1, """body = replace(body, '2592000', '2591999')""", 1),
        (1, """body = replace(body, '2592000', '1e400')""", 1),
        (1, """body = replace(body, '2592000', '5184000')""", 5),
    ],
)
def test_an_edited_period_is_found_though_the_chain_fits(used: Path, seq: int, change: str, first: int) -> None:
    edit(used, seq, change)
    for act in (lambda: verify(used), lambda: SQLiteLedger.open(used)):
        with pytest.raises(Exception, match=f"event {first} does not follow") as caught:
            act()
        assert caught.value.code == "ledger-tampered"


def test_the_moment_of_a_period_may_be_any_within_it(used: Path) -> None:
    edit(used, 9, "at = '2026-04-01T00:00:00.000000+00:00'")
    assert verify(used).events == 10


def test_a_reservation_taken_out_of_a_full_period_into_the_next_is_found(path: Path) -> None:
    with opened(path, 0) as ledger:
        ledger.reserve(Request("most", BudgetVector(40, 0)))
    with opened(path, 30) as ledger:
        ledger.reserve(Request("as much again", BudgetVector(40, 0)))
    edit(path, 3, """kind = 'registered', body = '{"units":{}}', at = '2026-01-02T00:00:00+00:00'""")
    assert code_of(lambda: verify(path)) == "ledger-tampered"


# processes

ROLLOVER = """
from datetime import UTC, datetime, timedelta
from dpsql.accounting import Periods
moments = [datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=30 * number) for number in range(6)]
periods = Periods(timedelta(days=30))
gate, opener = os.pipe()
children = []
for _ in range(2):
    child = os.fork()
    if child == 0:
        os.close(opener)
        now = [moments[0]]
        ledger = SQLiteLedger(sys.argv[1], BUDGET, total=TOTAL, periods=periods, clock=lambda: now[0])
        os.read(gate, 1)
        for now[0] in moments:
            for _ in range(int(sys.argv[2])):
                try:
                    ledger.reserve(ASK).settle(ITEM.refundable, 'd')
                except BudgetExceeded:
                    pass
        ledger.close()
        os._exit(0)
    children.append(child)
os.close(gate)
os.close(opener)
for child in children:
    say(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_two_processes_at_a_rollover_begin_each_period_once(path: Path) -> None:
    with start(ROLLOVER, path, rho=8) as process:
        assert process.communicate(timeout=100)[0].split() == ["0", "0"]
    with closing(SQLiteLedger.open(path, clock=at(0))) as ledger:
        turns = [json.loads(event.body)["number"] for event in ledger.events() if event.kind == "period"]
        entries = ledger.entries()
    assert turns == [1, 2, 3, 4, 5]
    for number in range(6):
        assert sum_entries(entries, period=number).spent <= Fraction(8)
    assert sum_entries(entries, period=5).spent == Fraction(8)
    verify(path)


def test_a_ledger_that_is_open_sees_the_periods_that_another_process_grants(path: Path) -> None:
    with (
        closing(SQLiteLedger(path, BUDGET, total=TOTAL, clock=at(31))) as mine,
        closing(SQLiteLedger.open(path, clock=at(0))) as other,
    ):
        held = mine.reserve(Request("q", BudgetVector(Fraction(40), 0)))
        other.grant(BUDGET, TOTAL, note="monthly", periods=YEAR)
        assert mine.calendar.number == 1
        assert mine.state() == BudgetState()
        mine.reserve(Request("q", BudgetVector(40, 0)))
        held.settle(Fraction(40), "late")
        assert mine.state() == other.state() == make_state(BudgetVector(0, 0), Fraction(40))
    verify(path)
