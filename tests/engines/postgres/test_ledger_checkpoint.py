"""The checkpoint of a ledger in PostgreSQL is kept by who opens it, where no role of the database can write."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from support.ledger_kit import ALICE, ASK, BUDGET, ITEM, TOTAL, code_of
from support.postgres_kit import fresh_schema, server

from dpsql.accounting import BudgetState
from dpsql.ledger import Request, durable
from dpsql.ledger.postgres_ledger import PostgresLedger, verify


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(durable, "LEAST", 1)
    return tmp_path / "cache"


@pytest.fixture
def url(cache: Path) -> str:
    """Return the address of a ledger of eight events, whose checkpoint is of seven."""
    url = server().url(fresh_schema())
    with closing(PostgresLedger(url, BUDGET, total=TOTAL)) as ledger:
        ledger.reserve(Request("q", ITEM, ALICE, "key")).settle(Fraction("0.5"), "digest", answer=b"kept")
        ledger.reserve(ASK).settle(Fraction("0.5"), "digest")
        held = ledger.reserve(Request("q", ITEM, ALICE))
        ledger.register({"reads": "user_id"})
        shutil.rmtree(cache)
        PostgresLedger.open(url).close()
        held.settle(Fraction("0.25"), "digest")
    return url


def file_in(cache: Path) -> Path:
    [found] = cache.rglob("*.checkpoint")
    return found


def seen(url: str) -> tuple[BudgetState, BudgetState, bytes | None]:
    with closing(PostgresLedger.open(url)) as ledger:
        return ledger.state(), ledger.state("alice"), ledger.stored("key", "alice")


def test_an_opening_reads_on_from_the_checkpoint_that_the_same_user_kept(
    url: str, cache: Path, read_from: list[int]
) -> None:
    first = seen(url)
    assert first[1:] == (replace(first[1], reserved=Fraction(0)), b"kept")
    shutil.rmtree(cache)
    assert seen(url) == first
    assert read_from == [7, 0]
    assert [file.stat().st_mode & 0o777 for file in (file_in(cache), file_in(cache).parent)] == [0o600, 0o700]
    assert verify(url).events == 8
    assert set(read_from[2:]) == {0}


def test_balances_that_a_role_of_the_database_wrote_are_held_against_the_checkpoint(
    url: str, read_from: list[int]
) -> None:
    schema = url.partition("schema=")[2]
    server().run(f"""UPDATE {schema}.balances SET body = replace(body, '"spent_rho":"5/4"', '"spent_rho":"0/1"')""")
    assert code_of(lambda: seen(url)) == "ledger-tampered"
    assert read_from == [7, 0]


def test_a_checkpoint_that_says_otherwise_is_not_believed(url: str, cache: Path, read_from: list[int]) -> None:
    right, file = seen(url), file_in(cache)
    told = json.loads(file.read_text().splitlines()[0])
    told["states"][0][1] = "1/8"
    line = json.dumps(told, sort_keys=True, separators=(",", ":"))
    file.write_text(f"{line}\n{durable._digest(line)}\n")
    assert code_of(lambda: verify(url)) == "ledger-tampered"
    read_from.clear()
    assert seen(url) == right
    assert read_from == [8, 0]


def test_a_checkpoint_that_others_may_write_is_not_read(url: str, cache: Path, read_from: list[int]) -> None:
    seen(url)
    file_in(cache).chmod(0o620)
    seen(url)
    assert read_from == [7, 0]


def test_a_ledger_is_opened_where_nothing_can_be_kept(url: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = seen(url)
    for nowhere in ("/proc/nowhere", str(file_in(cache))):
        monkeypatch.setenv("XDG_CACHE_HOME", nowhere)
        assert seen(url) == right
