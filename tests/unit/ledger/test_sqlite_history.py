"""The chain, the balances and the mark: what was changed, taken out or put back is found when a ledger is opened."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from fractions import Fraction
from pathlib import Path

import pytest
from support.ledger_kit import ASK, BUDGET, ITEM, TOTAL, code_of, opened, raw, retell, tampering
from support.ledger_makers import spent_in

from dpsql.errors import LedgerError
from dpsql.ledger import Request, SQLiteLedger, verify
from dpsql.ledger.durable import Mark
from dpsql.ledger.sqlite_files import Sidecars

# verify


def test_verify_tells_how_many_events_and_the_head_of_the_chain(rich: Path) -> None:
    with closing(SQLiteLedger.open(rich)) as ledger:
        last = list(ledger.events())[-1]
    verified = verify(str(rich))
    assert (verified.events, verified.head) == (9, last.chain) == (last.seq, last.chain)


def test_verify_changes_nothing(rich: Path) -> None:
    Path(f"{rich}.mark").unlink()
    Path(f"{rich}.lock").unlink()
    before = rich.read_bytes()
    verify(rich)
    assert rich.read_bytes() == before
    assert [file.name for file in rich.parent.iterdir() if not file.name.endswith(("-shm", "-wal"))] == [rich.name]


def test_verify_refuses_what_is_no_ledger(path: Path) -> None:
    assert code_of(lambda: verify(path)) == "ledger-missing"
    assert code_of(lambda: verify(path / "no")) == "ledger-missing"
    path.touch()
    assert code_of(lambda: verify(path)) == "ledger-missing"
    path.write_bytes(b"SQLite, but no ledger")
    assert code_of(lambda: verify(path)) == "not-a-ledger"
    path.unlink()
    with raw(path) as connection:
        connection.execute("CREATE TABLE events (id INTEGER)")
    assert code_of(lambda: verify(path)) == "not-a-ledger"


# tampering

OTHER = {
    "seq": "seq + 1000",
    "entry": "entry + 1000",
    "data_version": "data_version + 1",
    "content": "content || x'00'",
}
BODIES = "replace(replace(replace(body, 'monday', 'sunday'), '1/', '2/'), 'user_id', 'user')"
TABLES = {
    "events": ("seq", "at", "kind", "body", "chain"),
    "answers": ("entry", "content"),
    "terms": ("data_set", "budget_rho", "budget_delta", "total_epsilon", "total_delta", "data_version"),
    "balances": ("holder", "spent_rho", "spent_delta", "reserved_rho"),
}
FOUND = {"ledger-tampered", "ledger-damaged", "ledger-rolled-back"}


def cells() -> Iterator[tuple[str, str, int]]:
    rows = {"events": 9, "answers": 2, "terms": 1, "balances": 2}
    for table, columns in TABLES.items():
        for column in columns:
            for row in range(rows[table]):
                yield table, column, row


@pytest.mark.parametrize(("table", "column", "row"), list(cells()))
def test_every_cell_that_is_changed_is_found(rich: Path, table: str, column: str, row: int) -> None:
    other = OTHER.get(column, f"CASE WHEN {column} LIKE '1/%' THEN '2/1' ELSE {column} || ' ' END")
    if column == "body":
        other = f"CASE WHEN {BODIES} <> body THEN {BODIES} ELSE body || ' ' END"
    with tampering(rich) as connection:
        place = f"rowid = (SELECT rowid FROM {table} ORDER BY rowid LIMIT 1 OFFSET {row})"
        changed = connection.execute(f"UPDATE {table} SET {column} = {other} WHERE {place}").rowcount
        assert changed == 1
    with pytest.raises(LedgerError) as caught:
        verify(rich)
    assert caught.value.code in FOUND
    if table == "events":
        assert f"event {row + 1} does not follow" in caught.value.reason
    if table != "answers":
        assert code_of(lambda: SQLiteLedger.open(rich)) in FOUND
        assert code_of(lambda: SQLiteLedger(rich, BUDGET, total=TOTAL)) in FOUND


def test_a_changed_answer_is_never_given_out(path: Path) -> None:
    with opened(path) as ledger:
        ledger.reserve(Request("q", ITEM, key="key")).settle(Fraction(0), "d", answer=b"what was released")
    for change in ("UPDATE answers SET content = x'00'", "UPDATE answers SET content = 'text'", "DELETE FROM answers"):
        with tampering(path) as connection:
            connection.execute(change)
        with opened(path) as ledger:
            assert code_of(lambda ledger=ledger: ledger.stored("key", None)) == "ledger-tampered"
        assert code_of(lambda: verify(path)) == "ledger-tampered"


@pytest.mark.parametrize(
    "change",
    [
        *(f"DELETE FROM events WHERE seq = {seq}" for seq in range(1, 10)),
        "DELETE FROM events",
        "DELETE FROM balances",
        "DELETE FROM balances WHERE holder = 'account alice'",
        "INSERT INTO balances VALUES ('account bob', '0/1', '0/1', '0/1')",
        "INSERT INTO events SELECT 10, at, kind, body, chain FROM events WHERE seq = 9",
        "INSERT INTO events SELECT 10, at, kind, body, chain FROM events WHERE seq = 6",
        "INSERT INTO events SELECT 0, at, kind, body, chain FROM events WHERE seq = 9",
    ],
)
def test_a_row_too_few_or_too_many_is_found(rich: Path, change: str) -> None:
    with tampering(rich) as connection:
        connection.execute(change)
    assert code_of(lambda: verify(rich)) in FOUND
    assert code_of(lambda: SQLiteLedger.open(rich)) in FOUND


@pytest.mark.parametrize("change", ["INSERT INTO answers VALUES (9, x'00')", "DELETE FROM answers WHERE entry = 3"])
def test_an_answer_too_few_or_too_many_is_found_by_verifying(rich: Path, change: str) -> None:
    with tampering(rich) as connection:
        connection.execute(change)
    assert code_of(lambda: verify(rich)) == "ledger-tampered"


def test_a_history_told_anew_from_some_event_on_is_found_by_the_mark(rich: Path) -> None:
    """Whoever knows the format can make the chain fit again; the mark remembers the one that was."""
    retell(rich, "body = replace(body, 'monday', 'sunday')")
    assert code_of(lambda: verify(rich)) == "ledger-rolled-back"
    assert code_of(lambda: SQLiteLedger.open(rich)) == "ledger-rolled-back"


# an older copy


@pytest.fixture
def older(path: Path) -> Path:
    """Return an older copy of the ledger at `path`, which has been spent from since."""
    with opened(path) as ledger:
        ledger.reserve(ASK).settle(ITEM.refundable, "d")
    copy = shutil.copy(path, path.with_name("backup"))
    with opened(path) as ledger:
        ledger.reserve(ASK).settle(ITEM.refundable, "d")
    return Path(copy)


def by_rename(older: Path, path: Path) -> None:
    older.replace(path)


def in_place(older: Path, path: Path) -> None:
    path.write_bytes(older.read_bytes())


@pytest.mark.parametrize("put_back", [by_rename, in_place])
def test_an_older_copy_is_refused_until_the_newest_is_back(
    path: Path, older: Path, put_back: Callable[[Path, Path], None]
) -> None:
    newest = path.read_bytes()
    put_back(older, path)
    acts = (lambda: SQLiteLedger(path, BUDGET, total=TOTAL), lambda: SQLiteLedger.open(path), lambda: verify(path))
    for act in acts:
        assert code_of(act) == "ledger-rolled-back"
    path.write_bytes(newest)
    with opened(path) as ledger:
        assert ledger.state().spent == Fraction(2)


def test_a_deleted_ledger_is_not_begun_anew_beside_its_mark(path: Path, older: Path) -> None:
    path.unlink()
    assert code_of(lambda: SQLiteLedger(path, BUDGET, total=TOTAL)) == "ledger-rolled-back"
    assert code_of(lambda: SQLiteLedger(path, BUDGET, total=TOTAL)) == "ledger-rolled-back"
    assert code_of(lambda: SQLiteLedger.open(path)) == "ledger-missing"
    older.replace(path)
    assert code_of(lambda: SQLiteLedger(path, BUDGET, total=TOTAL)) == "ledger-rolled-back"


def test_another_ledger_in_its_place_is_refused(path: Path, older: Path) -> None:
    other = path.with_name("other")
    with opened(other) as ledger:
        for _ in range(5):
            ledger.reserve(ASK)
    other.replace(path)
    assert code_of(lambda: SQLiteLedger(path, BUDGET, total=TOTAL)) == "ledger-rolled-back"
    assert code_of(lambda: verify(path)) == "ledger-rolled-back"
    assert older.exists()


def test_a_ledger_that_falls_behind_its_mark_while_it_is_open_writes_no_more(path: Path) -> None:
    with opened(path) as ledger:
        held = ledger.reserve(ASK)
        mark = Sidecars(path).read_mark()
        Sidecars(path).write_mark(Mark(mark.data_set, mark.seq + 1, mark.chain))
        assert code_of(lambda: ledger.reserve(ASK)) == "ledger-rolled-back"
        assert code_of(lambda: held.settle(Fraction(0), "d")) == "ledger-rolled-back"
        assert code_of(lambda: ledger.bump("n")) == "ledger-rolled-back"
        Sidecars(path).write_mark(Mark("another", mark.seq, mark.chain))
        assert code_of(lambda: ledger.reserve(ASK)) == "ledger-rolled-back"
        Sidecars(path).write_mark(mark)
        held.settle(Fraction(0), "d")


FILES = ("", "-wal", "-shm", ".mark", ".lock")


def copied(path: Path, folder: str, *files: str) -> Path:
    """Copy a ledger that is in use, with some of the files beside it, into a folder of its own."""
    copy = path.parent / folder / path.name
    copy.parent.mkdir()
    for file in files:
        shutil.copy(f"{path}{file}", f"{copy}{file}")
    return copy


def test_a_copy_in_use_has_all_with_its_log_and_without_it_is_older_than_its_mark(path: Path) -> None:
    with opened(path) as ledger:
        ledger._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        ledger.reserve(ASK)  # stands in the log alone
        whole, with_mark = copied(path, "whole", *FILES), copied(path, "marked", "", ".mark")
        bare, bare_log = copied(path, "bare", ""), copied(path, "log", "", "-wal")
    assert verify(whole).events == verify(bare_log).events == 2
    assert code_of(lambda: SQLiteLedger.open(with_mark)) == "ledger-rolled-back"
    assert code_of(lambda: verify(with_mark)) == "ledger-rolled-back"
    assert verify(bare).events == 1  # nothing beside it says that there was more: `docs/reference/ledger.md` says so


@pytest.mark.parametrize("files", [("",), ("", ".mark"), ("", ".mark", ".lock")])
def test_a_copy_that_was_spent_from_elsewhere_is_not_taken_back(path: Path, files: tuple[str, ...]) -> None:
    """Two copies are two totals (docs/reference/ledger.md); merging what they spent is noticed."""
    with opened(path) as ledger:
        ledger.reserve(ASK)
    copy = copied(path, "elsewhere", *files)
    for place, times in ((path, 1), (copy, 3)):
        with opened(place) as ledger:
            for _ in range(times):
                ledger.reserve(ASK)
    assert (verify(path).events, verify(copy).events) == (3, 5)
    copy.replace(path)
    assert code_of(lambda: SQLiteLedger(path, BUDGET, total=TOTAL)) == "ledger-rolled-back"
    assert code_of(lambda: SQLiteLedger.open(path)) == "ledger-rolled-back"


# the mark


def test_the_mark_follows_every_act(path: Path) -> None:
    with opened(path) as ledger:
        seen = [Sidecars(path).read_mark()]
        held = ledger.reserve(ASK)
        acts = [
            lambda: held.settle(Fraction(0), "d"),
            lambda: ledger.grant(BUDGET, TOTAL, note="more"),
            lambda: ledger.bump("n"),
            lambda: ledger.register({"t": "u"}),
        ]
        seen.append(Sidecars(path).read_mark())
        for act in acts:
            act()
            seen.append(Sidecars(path).read_mark())
        assert [(mark.seq, mark.chain) for mark in seen] == [(event.seq, event.chain) for event in ledger.events()]
        assert len({mark.data_set for mark in seen}) == 1


@pytest.mark.parametrize("content", [None, b"", b"\0" * 256, b"half of a", b"a 1 b c", b"\xff\xfe"])
def test_a_mark_that_is_gone_or_unreadable_is_made_again(path: Path, older: Path, content: bytes | None) -> None:
    """So an older copy passes if its mark is deleted with it: `docs/reference/ledger.md` says so."""
    mark = Path(f"{path}.mark")
    older.replace(path)
    mark.unlink()
    if content is not None:
        mark.write_bytes(content)
    assert verify(path).events == 3
    with opened(path) as ledger:
        assert Sidecars(path).read_mark().seq == 3
        ledger.reserve(ASK)
        assert Sidecars(path).read_mark().seq == 4


def test_a_mark_that_is_older_than_the_ledger_is_brought_up(path: Path) -> None:
    with opened(path) as ledger:
        mark = Sidecars(path).read_mark()
        ledger.reserve(ASK)
        Sidecars(path).write_mark(mark)  # as a kill between the commit and the mark leaves it
        assert verify(path).events == 2
        ledger.reserve(ASK)
        assert Sidecars(path).read_mark().seq == 3
        Sidecars(path).write_mark(mark)
    with opened(path):
        assert Sidecars(path).read_mark().seq == 3


def test_a_mark_that_cannot_be_written_undoes_no_commit(path: Path) -> None:
    with opened(path) as ledger:
        mark = Path(f"{path}.mark")
        mark.unlink()
        (mark.with_name("elsewhere")).mkdir()
        mark.symlink_to(mark.with_name("elsewhere") / "no" / "such")
        ledger.reserve(ASK).settle(ITEM.refundable, "d")
        assert spent_in(ledger.state()) == ITEM
    assert code_of(lambda: SQLiteLedger(path, BUDGET, total=TOTAL)) == "ledger-directory"
