"""`dpsql publish` as a curator runs it: price, confirmation, refresh, due, drop, exit codes."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest
from support.command_kit import dpsql_command

POLICY = """\
ledger = "ledger.sqlite"

[budget]
epsilon = 10
delta = 1e-6
items = 60

[tables.reads]
privacy_unit = "user_id"

[tables.visits]
privacy_unit = "user_id"
"""
ASK = "SELECT article, COUNT(DISTINCT user_id) AS readers FROM reads GROUP BY article TOP 3 PRIVATE"
NONE_DUE = "No table is due: each is of this version of the data.\n"
TOTAL = "SELECT COUNT(DISTINCT user_id) AS n FROM visits PRIVATE"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with duckdb.connect(tmp_path / "data.duckdb") as connection:
        connection.execute(
            "CREATE TABLE reads AS SELECT i AS user_id, 'article ' || (i % 3) AS article FROM range(9000) t(i)"
        )
        connection.execute("CREATE TABLE visits AS SELECT i AS user_id FROM range(9000) t(i)")
    (tmp_path / "policy.toml").write_text(POLICY)
    return tmp_path


def publish(folder: Path, *words: str, stdin: bytes = b"") -> tuple[int, str, str]:
    """Run `dpsql publish`; return exit code, stdout and stderr."""
    code, out, error = dpsql_command("publish", *words, "--db", "data.duckdb", cwd=folder, stdin=stdin)
    return code, out.decode(), error


def query(folder: Path, sql: str) -> tuple[int, str, str]:
    """Return exit code, rows as CSV, and what was written beside them."""
    code, out, error = dpsql_command("query", sql, "--db", "data.duckdb", "--format", "csv", cwd=folder)
    return code, out.decode(), error


def test_the_price_is_confirmed_and_the_table_is_free_to_read(folder: Path) -> None:
    code, out, error = publish(folder, "weekly", "--sql", ASK)
    assert (code, "[not-confirmed]" in error, "--yes" in error) == (2, True, True)
    assert "more of the budget" in out
    assert query(folder, "SELECT * FROM weekly")[0] == 3
    code, out, error = publish(folder, "weekly", "--sql", ASK, "--comment", "readers", "--yes")
    assert (code, error) == (0, "")
    assert "weekly is published: 3 rows of version 0 of the data" in out
    code, rows, _ = query(folder, "SELECT * FROM weekly")
    assert (code, rows.splitlines()[0]) == (0, '"article","readers","readers_low","readers_high"')
    code, out, _ = dpsql_command("budget", cwd=folder)
    assert out.count(b"GROUP BY article") == 1


def test_standard_input_and_a_stored_answer_need_no_confirmation(folder: Path) -> None:
    code, out, error = publish(folder, "weekly", "--sql", "-", stdin=ASK.encode())
    assert (code, "[not-confirmed]" in error) == (2, True)
    assert query(folder, ASK)[0] == 0  # now it is stored
    code, out, error = publish(folder, "weekly", "--sql", "-", stdin=b"\xef\xbb\xbf" + ASK.encode())
    assert (code, error) == (0, "")
    assert "costs nothing" in out
    code, _, error = publish(folder, "other", "--sql", "-", stdin=b"\xff\xfe")
    assert (code, "[not-text]" in error) == (2, True)


def test_a_refresh_and_a_drop(folder: Path) -> None:
    publish(folder, "weekly", "--sql", ASK, "--yes")
    code, out, error = publish(folder, "weekly", "--refresh")  # free, and so without --yes
    assert (code, error, "is current" in out) == (0, "", True)
    dpsql_command("data", "bump", "ledger.sqlite", "--note", "tuesday", cwd=folder)
    code, out, error = publish(folder, "weekly", "--refresh")
    assert (code, "[not-confirmed]" in error) == (2, True)
    code, out, error = publish(folder, "weekly", "--refresh", "--yes")
    assert (code, error, "of version 1 of the data" in out) == (0, "", True)
    listed = query(folder, "SHOW TABLES")[1]
    assert (listed.count("published"), listed.count("weekly@")) == (2, 1)  # the last one by its own name alone
    code, out, error = publish(folder, "weekly", "--drop")
    assert (code, error) == (0, "")
    assert query(folder, "SELECT * FROM weekly")[0] == 3


def test_due_tells_by_its_exit_code_and_goes_on_after_a_failure(folder: Path) -> None:
    assert publish(folder, "--due") == (0, NONE_DUE, "")
    publish(folder, "total", "--sql", TOTAL, "--yes")
    publish(folder, "weekly", "--sql", ASK, "--yes")
    assert publish(folder, "--due") == (0, NONE_DUE, "")
    dpsql_command("data", "bump", "ledger.sqlite", "--note", "tuesday", cwd=folder)
    code, _, error = publish(folder, "--due")
    assert (code, "[not-confirmed]" in error) == (2, True)
    whole = (folder / "policy.toml").read_text()
    (folder / "policy.toml").write_text(whole.partition("[tables.visits]")[0])
    code, out, error = publish(folder, "--due", "--yes")
    assert (code, "total: [publication-source]" in error) == (3, True)
    assert "weekly is published" in out
    (folder / "policy.toml").write_text(whole)
    code, out, error = publish(folder, "--due", "--yes")
    assert (code, error) == (0, "")
    assert "total is published" in out
    assert "weekly" not in out
    assert publish(folder, "--due", "--yes") == (0, NONE_DUE, "")


@pytest.mark.parametrize(
    ("words", "code", "name"),
    [
        (("weekly",), 2, "publish-options"),
        ((), 2, "publish-options"),
        (("--refresh",), 2, "publish-options"),
        (("weekly", "--due"), 2, "publish-options"),
        (("weekly", "--refresh", "--drop"), 2, "publish-options"),
        (("weekly", "--refresh", "--comment", "no"), 2, "publish-options"),
        (("--due", "--sql", ASK), 2, "publish-options"),
        (("reads", "--sql", ASK), 3, "name-taken"),
        (("two words", "--sql", ASK), 3, "publication-name"),
        (("weekly", "--sql", "SHOW TABLES"), 3, "not-publishable"),
        (("weekly", "--sql", ASK.replace("3", "300")), 4, "budget-exceeded"),
        (("weekly", "--refresh"), 3, "not-published"),
    ],
)
def test_refusals_have_codes(folder: Path, words: tuple[str, ...], code: int, name: str) -> None:
    found, _, error = publish(folder, *words)
    assert (found, f"[{name}]" in error) == (code, True)


def test_what_was_published_is_said_in_lines(folder: Path) -> None:
    names = "SELECT article\r\n\tFROM reads\nGROUP BY article TOP 2 PRIVATE"
    _, out, _ = publish(folder, "weekly", "--sql", names, "--yes")
    assert ("\N{REPLACEMENT CHARACTER}" in out, "\nNo column has an interval" in out) == (False, True)
    for layout in ("csv", "table"):
        _, out, error = dpsql_command("query", "DESCRIBE weekly", "--format", layout, "--db", "data.duckdb", cwd=folder)
        said = out.decode() + error
        assert ("\N{REPLACEMENT CHARACTER}" in said, "    FROM reads\nGROUP BY" in said) == (False, True)


def test_a_misspelt_account_is_not_charged(folder: Path) -> None:
    listed = f"{POLICY}[analysts.alice]\nepsilon = 5\n[analysts.default]\nepsilon = 5\n"
    (folder / "policy.toml").write_text(listed)
    code, out, error = publish(folder, "weekly", "--sql", ASK, "--yes", "--account", "alcie")
    assert (code, out, "[analyst-unknown]" in error, "Did you mean alice?" in error) == (2, "", True, True)
    assert dpsql_command("bounds", "reads", "--yes", "--account", "ALICE", "--db", "data.duckdb", cwd=folder)[0] == 2
    assert publish(folder, "--due", "--account", "alcie")[0] == 2
    code, out, error = publish(folder, "weekly", "--sql", ASK, "--yes", "--account", "reports")
    assert " more of the share of reports; 100 % is left. An account with a larger share" in out
    assert (code, error.count("who has the share of default")) == (0, 1)
    assert publish(folder, "weekly", "--refresh", "--yes")[::2] == (0, "")  # the account is known from the ledger
    code, shown, error = dpsql_command("query", ASK, "--analyst", "alcie", "--db", "data.duckdb", cwd=folder)
    assert shown.decode().endswith("\nPercentages are of the share of alcie.\n")
    assert (code, "Did you mean alice?" in error) == (0, True)
    for name, words in [("alcei", "No query was run under this name. Did you mean alice?"), ("reports", "")]:
        code, _, error = dpsql_command("budget", "--analyst", name, cwd=folder)
        assert (code, words in error, bool(error)) == (0, True, bool(words))
