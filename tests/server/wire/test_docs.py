"""The code of docs/how-to/postgres.md runs against a server."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg
import pytest
from support.server_kit import PASSWORD, Served, serving

PAGE = (Path(__file__).parents[3] / "docs" / "how-to" / "postgres.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_code_of_postgres_md_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (python,), sql = blocks("python"), blocks("sql")
    with serving(tmp_path) as served:
        monkeypatch.setenv("PGPASSWORD", PASSWORD)
        exec(python.replace("alice@127.0.0.1:5433", f"ana@127.0.0.1:{served.port}"), {})
        said = capsys.readouterr().out.splitlines()
        notices = [line for line in said if not re.match(r"a\d ", line)]
        assert re.match(r"answered [23] of 3; used [56] % of the budget; about ", notices[-1])
        assert [line.split()[0] for line in said[len(notices) :]] in (
            ["a0", "a1"],
            ["a0", "a1", "a2"],
        )  # a2 has half a chance
        with psycopg.connect(served.conninfo(), autocommit=True) as connection:
            receipt, last = (run_block(connection, served, block) for block in sql)
            assert "nothing was charged" in receipt.fetchone()[0]
            assert last.statusmessage == "DROP VIEW"


def run_block(connection: psycopg.Connection, served: Served, sql: str) -> psycopg.Cursor:
    """Run a block of statements, which is charged once, and return the last result."""
    before, found = served.charges(), connection.cursor()
    for statement in filter(str.strip, sql.split(";")):
        if statement.strip().startswith("COPY"):
            with connection.cursor().copy(statement) as copy:
                assert bytes(next(iter(copy))) == b"article\n"
                list(copy)
        else:
            found = connection.execute(statement)
    assert served.charges() == before + 1
    return found
