"""`dpsql ledger verify | export | grant`, through the real command on a real ledger."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import duckdb
import pytest
from support.command_kit import run_command as run

import dpsql
from dpsql.ledger import SQLiteLedger

POLICY = """\
ledger = "ledger.sqlite"
[budget]
epsilon = {epsilon}
delta = 1e-6
[tables.reads]
privacy_unit = "user_id"
"""
SQL = "SELECT article FROM reads GROUP BY article TOP 3 PRIVATE"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A database, a policy and a ledger in which one query was settled."""
    with duckdb.connect(str(tmp_path / "events.duckdb")) as connection:
        connection.execute("CREATE TABLE reads AS SELECT i AS user_id, 'a' || i % 3 AS article FROM range(9000) t(i)")
    (tmp_path / "policy.toml").write_text(POLICY.format(epsilon="1.0"))
    with dpsql.connect(tmp_path / "events.duckdb", policy=tmp_path / "policy.toml") as session:
        session.sql(SQL)
    return tmp_path


def test_verify_says_how_much_holds_together(folder: Path) -> None:
    code, out, err = run(folder, "ledger", "verify", "ledger.sqlite")
    assert (code, err) == (0, "")
    with closing(SQLiteLedger.open(folder / "ledger.sqlite")) as ledger:
        *_, last = ledger.events()
    assert out.startswith(f"{last.seq:,} events hold together.")
    assert last.chain in out


def test_verify_finds_a_changed_event(folder: Path) -> None:
    with closing(sqlite3.connect(folder / "ledger.sqlite")) as connection, connection:
        triggers = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for name, _ in triggers:
            connection.execute(f"DROP TRIGGER {name}")
        connection.execute("UPDATE events SET at = '2020-01-01' WHERE kind = 'reserved'")
        for _, sql in triggers:
            connection.execute(sql)
    code, _, err = run(folder, "ledger", "verify", "ledger.sqlite")
    assert code == 7
    assert "ledger-tampered" in err
    assert SQL not in err


def test_verify_of_nothing_makes_nothing(folder: Path) -> None:
    code, _, err = run(folder, "ledger", "verify", "no.sqlite")
    assert code == 7
    assert "ledger-missing" in err
    assert not (folder / "no.sqlite").exists()


def history(folder: Path) -> list[dict[str, object]]:
    code, out, _ = run(folder, "ledger", "export", "ledger.sqlite")
    assert code == 0
    return [json.loads(line) for line in out.splitlines()]


def test_export_writes_the_history_as_lines_of_json(folder: Path) -> None:
    events = history(folder)
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert [event["kind"] for event in events][-2:] == ["reserved", "settled"]
    assert SQL in json.dumps(events[-2]["body"])


def grant(folder: Path, epsilon: str, delta: str) -> tuple[int, str, str]:
    words = ("--epsilon", epsilon, "--delta", delta, "--note", "the second year")
    return run(folder, "ledger", "grant", "ledger.sqlite", *words)


def test_a_grant_raises_the_total_and_what_was_spent_stays_spent(folder: Path) -> None:
    code, out, _ = grant(folder, "2", "1e-6")
    assert code == 0
    assert "(1, 1e-06)" in out
    assert "(2, 1e-06)" in out
    database, policy = folder / "events.duckdb", folder / "policy.toml"
    with pytest.raises(dpsql.LedgerError) as raised:  # a total of less than the ledger has
        dpsql.connect(database, policy=policy)
    assert raised.value.code == "ledger-budget"
    policy.write_text(POLICY.format(epsilon="2.0"))
    with (
        dpsql.connect(database, policy=policy) as session,
        dpsql.connect(database, policy=policy, ledger=":memory:") as fresh,
    ):
        assert session.budget.rho.spent > 0
        assert session.budget.rho.granted == fresh.budget.rho.granted
        assert session.budget.granted.epsilon == dpsql.Epsilon(2)
    assert "the second year" in json.dumps(history(folder))


def query(folder: Path) -> dict[str, object]:
    code, out, err = run(folder, "query", SQL, "--db", "events.duckdb", "--format", "json")
    assert code == 0, err
    return {**json.loads(out), "err": err}


def test_a_policy_is_granted_and_stored_answers_stay_free(folder: Path) -> None:
    before = query(folder)
    policy = folder / "policy.toml"
    policy.write_text(POLICY.format(epsilon="2.0"))
    # until the grant, sessions go on with the ledger's smaller total, and say so
    between = query(folder)
    assert "The policy grants (2, 1e-06)-differential privacy once, its ledger has (1, 1e-06)" in str(between["err"])
    assert 'dpsql ledger grant --policy policy.toml --note "why"' in str(between["err"])
    with pytest.warns(dpsql.UngrantedBudgetWarning), dpsql.connect(folder / "events.duckdb", policy=policy) as session:
        assert session.budget.granted.epsilon == session.terms.total.epsilon == dpsql.Epsilon(1)
    policy = policy.rename(folder / "our policy.toml")
    with (
        pytest.warns(dpsql.UngrantedBudgetWarning, match="--policy 'our policy.toml' --note"),
        dpsql.connect(folder / "events.duckdb", policy=policy),
    ):
        policy = policy.rename(folder / "policy.toml")
    code, out, err = run(folder, "ledger", "grant", "--policy", "policy.toml", "--note", "the second year")
    assert (code, err) == (0, "")
    assert out == ("The total was (1, 1e-06)-differential privacy and is (2, 1e-06)-differential privacy.\n")
    after = query(folder)
    assert after["err"] == ""
    for answer in (between, after):
        assert answer["rows"] == before["rows"]
        assert answer["receipt"]["replayed"]  # type: ignore[index]
    code, out, _ = run(folder, "explain", SQL, "--db", "events.duckdb")
    assert "answered before; asking again shows that answer and costs nothing" in out


def test_a_grant_of_nothing_is_said_and_not_recorded(folder: Path) -> None:
    query(folder)
    _, before, _ = run(folder, "ledger", "verify", "ledger.sqlite")
    code, out, err = run(folder, "ledger", "grant", "--policy", "policy.toml", "--note", "again")
    assert (code, out) == (2, "")
    assert "[grant-nothing]" in err
    assert run(folder, "ledger", "verify", "ledger.sqlite")[1] == before


def test_periods_of_a_policy_are_granted_with_it(folder: Path) -> None:
    policy = folder / "policy.toml"
    policy.write_text(POLICY.format(epsilon='1.0\nperiod = "30d"\nperiods = 4'))
    assert "once, and this smaller budget holds" in str(query(folder)["err"])
    code, out, _ = run(folder, "ledger", "grant", "--note", "quarterly")
    assert code == 0
    assert "per 30 days, at most 4 times" in out
    assert query(folder)["err"] == ""


@pytest.mark.parametrize(
    "words",
    [
        ["--note", "x", "--epsilon", "2"],
        ["ledger.sqlite", "--note", "x", "--epsilon", "2"],
        ["ledger.sqlite", "--note", "x", "--policy", "policy.toml"],
    ],
)
def test_it_must_be_clear_what_is_granted(folder: Path, words: list[str]) -> None:
    before = history(folder)
    code, _, err = run(folder, "ledger", "grant", *words)
    assert code == 2
    assert "grant-terms" in err
    assert history(folder) == before


@pytest.mark.parametrize(
    ("epsilon", "delta", "code"),
    [("0.5", "1e-6", 7), ("2", "1e-7", 7), ("nan", "1e-6", 5), ("2", "1", 5), ("much", "1e-6", 5)],
)
def test_a_grant_of_less_or_of_nonsense_is_refused(folder: Path, epsilon: str, delta: str, code: int) -> None:
    before = history(folder)
    assert grant(folder, epsilon, delta)[0] == code
    assert history(folder) == before


def test_backup_copies_the_ledger_of_the_policy_or_another(folder: Path) -> None:
    code, out, err = run(folder, "ledger", "backup", "copy.sqlite")
    assert (code, err) == (0, "")
    assert out.startswith("copy.sqlite has ")
    assert (folder / "copy.sqlite").stat().st_mode & 0o777 == 0o600
    code, out, err = run(folder, "ledger", "backup", "--ledger", "copy.sqlite", "second.sqlite")
    assert (code, err) == (0, "")
    for copy in ("copy.sqlite", "second.sqlite"):
        assert run(folder, "ledger", "verify", copy)[1] == run(folder, "ledger", "verify", "ledger.sqlite")[1]
        assert sorted(file.name for file in folder.glob(f"{copy}*")) == [copy]
    code, out, err = run(folder, "ledger", "backup", "copy.sqlite")
    assert (code, out) == (2, "") or code
    assert "[ledger-exists] at copy.sqlite" in err


def test_a_ledger_whose_schema_is_damaged_is_one_sentence(folder: Path) -> None:
    with (folder / "ledger.sqlite").open("r+b") as file:
        text = file.read().replace(b"CREATE TABLE events", b"CREATE\xff\xfeABLE events")
        file.seek(0)
        file.write(text)
    for command in ("verify", "export"):
        code, out, err = run(folder, "ledger", command, "ledger.sqlite")
        assert (code > 0, out) == (True, "")
        assert err.startswith("dpsql: [ledger-damaged]")


def test_the_ledger_of_the_policy_here_is_the_default(folder: Path) -> None:
    code, out, _ = run(folder, "ledger", "verify")
    assert (code, "events hold together" in out) == (0, True)
    assert run(folder, "ledger", "export")[1] == run(folder, "ledger", "export", "ledger.sqlite")[1]
    assert run(folder, "data", "bump", "--note", "monday")[:2] == (0, "The data version is 1.\n")
    (folder / "policy.toml").unlink()
    code, _, err = run(folder, "ledger", "verify")
    assert code == 5
    assert "[policy-missing]" in err


@pytest.mark.parametrize("words", [["ledger", "verify"], ["ledger", "export"], ["data", "bump", "--note", "x"]])
def test_the_policy_of_a_ledger_may_be_in_another_folder(folder: Path, tmp_path: Path, words: list[str]) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    code, _, err = run(elsewhere, *words)
    assert (code, "--policy on the command line" in err) == (5, True)
    assert run(elsewhere, *words, "--policy", "../policy.toml")[0] == 0
    code, _, err = run(folder, *words, "policy.toml")
    assert (code, "the policy that names it: --policy FILE" in err) == (7, True)
