"""What the durable ledger promises beyond the contract: it stays, and processes share it until they are killed."""

from __future__ import annotations

import contextlib
import functools
import json
import sqlite3
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest
from support.ledger_kit import ALICE, ASK, BUDGET, ITEM, TOTAL, code_of, opened, raw
from support.ledger_programs import start

from dpsql.accounting import ApproximateDP, BudgetState, BudgetVector
from dpsql.errors import Error, LedgerError, UsageError
from dpsql.ledger import Request, SQLiteLedger, verify
from dpsql.quantities import Delta, Epsilon

# what stays


def test_everything_is_there_after_reopening(made: Path) -> None:
    with opened(made) as ledger:
        assert ledger.durable
        assert ledger.state() == BudgetState(Fraction("0.5"), Fraction("2e-9"), Fraction(1))
        assert [entry.query for entry in ledger.entries()] == ["settled", "held"]
        ledger.reserve(Request("the rest", BudgetVector("48.5", 0)))
        with pytest.raises(Error, match="budget-exceeded"):
            ledger.reserve(Request("too much", BudgetVector("1e-12", 0)))


def test_two_ledgers_on_one_file_share_the_budget(path: Path) -> None:
    with opened(path) as one, opened(path) as other:
        one.reserve(Request("a", BudgetVector(30, 0))).settle(Fraction(20), "d")
        other.reserve(Request("b", BudgetVector(30, 0)))
        assert one.state() == other.state() == BudgetState(Fraction(20), Fraction(0), Fraction(30))
        with pytest.raises(Error, match="budget-exceeded"):
            one.reserve(ASK)


def test_numbers_are_kept_as_exact_fractions(made: Path) -> None:
    with raw(made) as connection:
        assert connection.execute("SELECT * FROM balances").fetchall() == [("total", "1/2", "1/500000000", "1/1")]
        bodies = connection.execute("SELECT body FROM events WHERE kind <> 'created' ORDER BY seq").fetchall()
    assert [json.loads(body) for (body,) in bodies] == [
        {"query": query, "rho": "1/1", "delta": "1/1000000000", "account": None, "key": "", "data_version": 0}
        if query
        else {"entry": 2, "loss": "1/2", "digest": "digest", "answer": ""}
        for query in ("settled", "", "held")
    ]


def test_everything_of_a_rich_ledger_is_there_after_reopening(rich: Path) -> None:
    with contextlib.closing(SQLiteLedger.open(rich)) as ledger:
        assert (ledger.budget, ledger.total, ledger.data_version) == (BUDGET, TOTAL, 1)
        assert ledger.state("alice") == BudgetState(Fraction("0.5"), Fraction("1e-9"), Fraction(0))
        assert ledger.state() == BudgetState(Fraction("0.5"), Fraction("3e-9"), Fraction(1))
        kinds = "created registered reserved settled reserved bumped settled granted reserved".split()
        assert [event.kind for event in ledger.events()] == kinds
        assert ledger.stored("key", None) is None
    with raw(rich) as connection:
        assert connection.execute("SELECT * FROM answers").fetchall() == [(3, b"an answer"), (5, b"another")]


def test_the_file_is_private_to_its_owner(path: Path) -> None:
    with opened(path) as ledger:
        ledger.reserve(ASK)
        for file in path.parent.iterdir():
            assert file.stat().st_mode & 0o777 == 0o600


def test_a_text_path_with_odd_letters_names_that_file(tmp_path: Path) -> None:
    odd = tmp_path / "a b?mode=memory#%41é.ledger"
    with contextlib.closing(SQLiteLedger(str(odd), BUDGET, total=TOTAL)):
        assert odd.is_file()


def test_a_number_too_long_to_keep_is_refused_uncharged(path: Path) -> None:
    with opened(path) as ledger:
        with pytest.raises(UsageError, match="number-too-long"):
            ledger.reserve(Request("q", BudgetVector(Fraction(1, 10**400), 0)))
        assert ledger.state() == BudgetState()
        assert ledger.entries() == ()


@pytest.mark.parametrize(
    "total",
    [
        ApproximateDP(Epsilon("0.999999999"), Delta("2e-6")),
        ApproximateDP(Epsilon(2), Delta("1e-6")),
        ApproximateDP(Epsilon(1), Delta("1e-6")),
        ApproximateDP(Epsilon("0.5"), Delta("2e-6")),
    ],
)
def test_a_smaller_total_is_refused(made: Path, total: ApproximateDP) -> None:
    with pytest.raises(LedgerError) as caught:
        SQLiteLedger(made, BUDGET, total=total)
    assert caught.value.code == "ledger-budget"
    assert "epsilon 1 and delta 2e-06" in caught.value.reason
    assert "Write the ledger's epsilon and delta into the policy" in caught.value.hint
    with opened(made) as ledger:
        assert ledger.state().reserved == Fraction(1)


@pytest.mark.parametrize("total", [(Epsilon("1.000000001"), Delta("2e-6")), (Epsilon(2), Delta("3e-6"))])
def test_a_ledger_has_its_own_total_until_a_larger_one_is_granted(made: Path, total: tuple[Epsilon, Delta]) -> None:
    with contextlib.closing(SQLiteLedger(made, BudgetVector(1000, "0.5"), total=ApproximateDP(*total))) as ledger:
        assert (ledger.total, ledger.budget) == (TOTAL, BUDGET)
        with pytest.raises(Error, match=r"rho 48\.5 is left"):
            ledger.reserve(Request("q", BudgetVector(49, 0)))


@pytest.mark.parametrize("rho", [1, 49, 51, 1000])
def test_the_budget_is_what_the_file_says_whatever_the_total_is_converted_to_today(made: Path, rho: int) -> None:
    with opened(made, BudgetVector(rho, "0.5")) as ledger:
        assert ledger.budget == BUDGET
        with pytest.raises(Error, match=r"rho 48\.5 is left"):
            ledger.reserve(Request("q", BudgetVector(49, 0)))


def test_a_grant_is_seen_by_those_who_have_the_ledger_open(path: Path) -> None:
    more, total = BudgetVector(60, "2e-6"), ApproximateDP(Epsilon(2), Delta("3e-6"))
    with opened(path) as one, opened(path) as other:
        one.reserve(Request("q", BudgetVector(50, 0)))
        other.grant(more, total, note="more")
        one.reserve(Request("q", BudgetVector(10, 0)))
        assert (one.budget, one.total) == (more, total)
        assert one.state().reserved == Fraction(60)
    assert code_of(lambda: SQLiteLedger(path, BUDGET, total=TOTAL)) == "ledger-budget"
    with opened(path, more, total) as ledger:
        assert ledger.budget == more


def test_a_ledger_that_is_not_there_is_not_made_without_terms(path: Path) -> None:
    assert code_of(lambda: SQLiteLedger.open(path)) == "ledger-missing"
    assert list(path.parent.iterdir()) == []
    path.touch()
    assert code_of(lambda: SQLiteLedger.open(path)) == "ledger-missing"


# durability


def test_commits_are_written_ahead_and_flushed(path: Path) -> None:
    with opened(path) as ledger:
        connection = ledger._connection
        assert connection is not None
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,)


class Careless(sqlite3.Connection):
    """A connection that takes one wish lightly, as some file systems and builds do."""

    ignored = ""

    def execute(self, sql: str, *parameters: object) -> sqlite3.Cursor:
        name, _, wish = sql.partition(" = ")
        if wish and name == self.ignored:
            sql = {"PRAGMA synchronous": "PRAGMA synchronous = NORMAL", "PRAGMA journal_mode": name}[name]
        return super().execute(sql, *parameters)


@pytest.mark.parametrize("ignored", ["PRAGMA synchronous", "PRAGMA journal_mode"])
def test_a_place_where_commits_are_not_durable_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch, ignored: str
) -> None:
    monkeypatch.setattr(Careless, "ignored", ignored)
    monkeypatch.setattr(sqlite3, "connect", functools.partial(sqlite3.connect, factory=Careless))
    assert code_of(lambda: SQLiteLedger(path, BUDGET, total=TOTAL)) == "ledger-not-durable"


class Contended(sqlite3.Connection):
    """A connection that finds others changing the journal at the same moment, twice."""

    found = 0

    def execute(self, sql: str, *parameters: object) -> sqlite3.Cursor:
        if sql.startswith("PRAGMA journal_mode") and self.found < 2:
            self.found += 1
            error = sqlite3.OperationalError("database is locked")
            error.sqlite_errorcode = sqlite3.SQLITE_BUSY
            raise error
        return super().execute(sql, *parameters)


def test_an_opening_among_others_asks_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "connect", functools.partial(sqlite3.connect, factory=Contended))
    with opened(path) as ledger:
        assert ledger.state() == BudgetState()


def test_a_making_cut_short_is_taken_up_again(path: Path) -> None:
    with raw(path) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
    with opened(path) as ledger:
        assert ledger.state() == BudgetState()


class Failing(sqlite3.Connection):
    """A connection whose next statement but so many fails, as on a bad disk; a rollback still works."""

    left = -1

    def execute(self, sql: str, *parameters: object) -> sqlite3.Cursor:
        if sql != "ROLLBACK":
            Failing.left -= 1
            if Failing.left == -1:
                error = sqlite3.OperationalError("disk I/O error")
                error.sqlite_errorcode = sqlite3.SQLITE_IOERR_WRITE
                raise error
        return super().execute(sql, *parameters)


def failing_at(statement: int, act: Callable[[], object]) -> str | None:
    """Return the code of the error that an act ends with when this statement of it fails; None if it has fewer."""
    Failing.left = statement
    try:
        act()
    except LedgerError as error:
        return error.code
    finally:
        Failing.left = -1
    return None


@pytest.mark.parametrize("name", ["reserve", "settle", "grant", "bump", "register"])
def test_an_error_at_any_statement_leaves_all_as_it_was(path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(sqlite3, "connect", functools.partial(sqlite3.connect, factory=Failing))
    monkeypatch.setattr(Failing, "left", -1)
    with opened(path) as ledger:
        held = ledger.reserve(Request("q", ITEM, ALICE, "key"))
        acts = {
            "reserve": lambda: ledger.reserve(Request("q", ITEM, ALICE, "key")),
            "settle": lambda: held.settle(Fraction("0.5"), "d", answer=b"answer"),
            "grant": lambda: ledger.grant(BudgetVector(60, "1e-6"), TOTAL, note="more"),
            "bump": lambda: ledger.bump("note"),
            "register": lambda: ledger.register({"t": "u"}),
        }
        before = ledger.state(), ledger.state("alice"), list(ledger.events())
        statements = 0
        while (code := failing_at(statements, acts[name])) is not None:
            assert code == "ledger-failed"
            assert (ledger.state(), ledger.state("alice"), list(ledger.events())) == before
            statements += 1
        assert statements >= 5
        assert len(list(ledger.events())) == len(before[2]) + 1
    assert verify(path).events == 3


FULL = """
import resource
ledger = opened()
resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, resource.RLIM_INFINITY))
held = None
for number in range(1000):
    try:
        held = ledger.reserve(ASK)
        say("reserved")
        held.settle(ITEM.refundable, "d", answer=b"x" * 500)
        say("settled")
    except Error as error:
        say(error.code)
        break
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
ledger.reserve(ASK)
say("reserved")
ledger.close()
"""


def test_a_file_that_may_not_grow_loses_nothing_that_was_acknowledged(path: Path) -> None:
    with start(FULL, path, rho=10**6) as process:
        words = process.communicate(timeout=60)[0].split()
    assert words[-2:] in (["ledger-failed", "reserved"], ["ledger-disk-full", "reserved"])
    assert words.count("settled") > 5
    with contextlib.closing(SQLiteLedger.open(path)) as ledger:
        entries = ledger.entries()
        assert len(entries) == words.count("reserved")
        assert sum(entry.settlement is not None for entry in entries) == words.count("settled")
    assert verify(path)
