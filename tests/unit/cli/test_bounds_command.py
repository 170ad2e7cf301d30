"""`dpsql bounds` as a curator runs it: price, confirmation, lines in the policy, stored suggestions, refusals."""

from __future__ import annotations

import tomllib
from pathlib import Path

import duckdb
import pytest
from support.command_kit import dpsql_command

POLICY = """\
ledger = "ledger.sqlite"  # of the team

[budget]
epsilon = 20
delta = 1e-6
items = 10_000

[tables.visits]
privacy_unit = "user_id"  # SECRET is no name
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with duckdb.connect(tmp_path / "data.duckdb") as connection:
        connection.execute(
            "CREATE TABLE visits AS SELECT u::INTEGER AS user_id, 'SECRET' AS city, 5 AS dwell "
            "FROM range(2000) a(u), range(10) b(r) WHERE r <= u % 10"
        )
    (tmp_path / "policy.toml").write_text(POLICY)
    return tmp_path


def test_the_price_is_confirmed_and_the_lines_are_written(folder: Path) -> None:
    # an item has 0.07, so that the rank is 43: a bin above all users is drawn with a chance of 128 exp(-3 * 43 / 4)
    asked = ("bounds", "visits", "dwell", "--db", "data.duckdb", "--epsilon", "1")
    code, out, error = dpsql_command(*asked, cwd=folder)
    assert (code, "[not-confirmed]" in error, "--yes" in error) == (2, True, True)
    assert b"2 draws of epsilon" in out
    assert b"more of the budget" in out
    assert (folder / "policy.toml").read_text() == POLICY
    code, out, error = dpsql_command(*asked, "--yes", "--no-write", cwd=folder)
    assert (code, error) == (0, "")
    assert b"\nrows = 10\ndwell = { max = 50 }\n" in out
    assert (folder / "policy.toml").read_text() == POLICY
    code, out, error = dpsql_command(*asked, "--yes", cwd=folder)  # stored, so free and the same
    assert (code, error) == (0, "")
    assert b"stored, and free" in out
    written = (folder / "policy.toml").read_text()
    assert written == POLICY + "bounds = { rows = 10, dwell = { max = 50 } }\n"
    assert tomllib.loads(written)["tables"]["visits"]["bounds"] == {"rows": 10, "dwell": {"max": 50}}
    sql = "SELECT SUM(dwell) FROM visits PRIVATE"
    assert dpsql_command("explain", sql, "--db", "data.duckdb", cwd=folder)[0] == 0
    code, out, _ = dpsql_command("budget", cwd=folder)
    assert out.count(b"BOUNDS ") == 2


def test_refusals_have_codes_and_no_values(folder: Path) -> None:
    small = POLICY.replace("ledger.sqlite", "small.sqlite").replace("= 20", "= 0.1").replace("10_000", "10")
    (folder / "small.toml").write_text(small)
    refused = {
        ("visits", "dwel"): (2, "bounds-column"),
        ("nowhere",): (2, "bounds-table"),
        ("visits", "--epsilon", "0"): (2, "epsilon-range"),
        ("visits", "--no-rows"): (2, "bounds-nothing"),
        ("visits", "--epsilon", "9"): (3, "option-range"),
        ("visits", "dwell", "--policy", "small.toml"): (4, "budget-exceeded"),
    }
    for words, (exit_code, name) in refused.items():
        code, _, error = dpsql_command("bounds", *words, "--yes", "--db", "data.duckdb", cwd=folder)
        assert (code, f"[{name}]" in error, "SECRET" in error) == (exit_code, True, False), words
    (folder / "policy.toml").write_text(
        POLICY.partition("[tables")[0] + '[tables]\nvisits = { privacy_unit = "user_id" }\n'
    )
    code, _, error = dpsql_command("bounds", "visits", "--yes", "--db", "data.duckdb", cwd=folder)
    assert (code, "[policy-form]" in error) == (5, True)
    code, out, _ = dpsql_command("budget", cwd=folder)
    assert b"BOUNDS" not in out


def test_init_offers_the_command(folder: Path) -> None:
    code, out, _ = dpsql_command("init", "data.duckdb", "--output", "new.toml", cwd=folder)
    assert code == 0
    assert b"dpsql bounds visits dwell --db data.duckdb --policy new.toml" in out
