"""`connect` and the commands upon a ledger in PostgreSQL."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest
from support.command_kit import dpsql_command
from support.postgres_kit import fresh_schema, server

import dpsql
from dpsql.ledger.postgres_ledger import PostgresLedger, verify

SQL = "SELECT article FROM reads GROUP BY article TOP 3 PRIVATE"
POLICY = """\
ledger = "{ledger}"
[budget]
epsilon = {epsilon}
delta = 1e-6
[tables.reads]
privacy_unit = "user_id"
"""
SECRET = "s3cret"


@pytest.fixture
def url() -> str:
    return server().url(fresh_schema()).replace("tester@", f"tester:{SECRET}@")


@pytest.fixture
def folder(tmp_path: Path, url: str) -> Path:
    with duckdb.connect(str(tmp_path / "events.duckdb")) as connection:
        connection.execute("CREATE TABLE reads AS SELECT i AS user_id, 'a' || i % 3 AS article FROM range(9000) t(i)")
    (tmp_path / "policy.toml").write_text(POLICY.format(ledger=url, epsilon="1.0"))
    return tmp_path


def run(folder: Path, *words: str) -> tuple[int, str, str]:
    code, out, err = dpsql_command(*words, cwd=folder)
    assert "Traceback" not in err
    assert SECRET not in out.decode() + err
    return code, out.decode(), err


def test_a_query_is_charged_to_the_ledger_of_the_policy(folder: Path, url: str) -> None:
    with dpsql.connect(folder / "events.duckdb", policy=folder / "policy.toml") as session:
        assert isinstance(session._dependencies.ledger, PostgresLedger)
        answer = session.sql(SQL)
        assert SECRET not in f"{answer} {answer.receipt} {session.explain(SQL)} {session.budget}"
        spent = session.budget.rho.spent
        assert spent > 0
    with dpsql.connect(folder / "events.duckdb", policy=folder / "policy.toml", ledger=url) as session:
        assert session.budget.rho.spent == spent
        assert [entry.query for entry in session._dependencies.ledger.entries()] == [SQL]


def test_an_error_names_the_place_without_the_password(folder: Path) -> None:
    ledger = f"postgresql://tester:{SECRET}@/postgres?host=/nowhere"
    with pytest.raises(dpsql.LedgerError) as caught:
        dpsql.connect(folder / "events.duckdb", policy=folder / "policy.toml", ledger=ledger)
    assert caught.value.code == "ledger-unreachable"
    assert caught.value.place == "postgresql://tester@/postgres?host=/nowhere"


def test_check_tells_where_the_ledger_is_without_the_password(folder: Path) -> None:
    code, out, _ = run(folder, "check", "--policy", "policy.toml")
    assert code == 0
    assert "postgresql://tester@/postgres" in out.replace("\n", "")


def test_the_commands_take_the_address(folder: Path, url: str) -> None:
    assert run(folder, "ledger", "verify", url)[0] == 7
    code, _, err = run(folder, "query", "--db", "events.duckdb", "--policy", "policy.toml", SQL)
    assert (code, err) == (0, "")
    code, out, _ = run(folder, "ledger", "verify", url)
    assert code == 0
    assert out.startswith(f"{verify(url).events:,} events hold together.")
    assert verify(url).head in out
    assert run(folder, "data", "bump", url, "--note", "monday")[:2] == (0, "The data version is 1.\n")
    code, out, _ = run(folder, "ledger", "grant", url, "--epsilon", "2", "--delta", "1e-6", "--note", "more")
    assert code == 0
    code, out, _ = run(folder, "ledger", "export", url)
    assert [json.loads(line)["kind"] for line in out.splitlines()][-1] == "granted"
    code, _, err = run(folder, "budget", "--policy", "policy.toml")
    assert code == 7
    assert "ledger-budget" in err


@pytest.mark.parametrize("act", ["verify", "export"])
def test_an_address_that_cannot_be_read_is_refused_unseen(folder: Path, act: str) -> None:
    code, _, err = run(folder, "ledger", act, f"postgresql+psycopg://u:{SECRET}@h/d")
    assert code == 5
    assert "policy-url" in err


def test_without_the_extra_it_says_which(folder: Path) -> None:
    code = (
        "import sys; sys.modules['psycopg'] = None\n"
        "import dpsql\n"
        "try:\n    dpsql.connect('events.duckdb', policy='policy.toml')\n"
        "except dpsql.UsageError as error:\n    print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=folder, timeout=60
    )
    assert done.stdout.startswith("[not-installed]")
    assert "pip install 'dpsql[postgres]'" in done.stdout
    assert SECRET not in done.stdout
