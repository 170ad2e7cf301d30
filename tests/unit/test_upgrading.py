"""What the upgrade page says of things that left: the former text is refused, and what to write instead works."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from support.command_kit import dpsql_command
from support.surfaces_kit import POLICY, make_data
from support.upgrade_page import PAGE, pasted, rows

import dpsql
import dpsql.pate

SQL, PYTHON, SHELL, KEYS = rows("SQL"), rows("Python"), rows("shell"), rows("policy")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_data(tmp_path_factory.mktemp("upgrading"))


@pytest.fixture(scope="module")
def session(folder: Path) -> Iterator[dpsql.Session]:
    with dpsql.connect(folder / "events.duckdb", policy=folder / "policy.toml", ledger=":memory:") as opened:
        yield opened


def read(folder: Path, line: str) -> dpsql.Policy:
    file = folder / "policy.toml"
    file.write_text(f"{POLICY}[server]\n{line}\n")
    return dpsql.Policy.from_toml(file)


def test_the_page_has_every_row() -> None:
    found = SQL + PYTHON + SHELL + KEYS + rows("client of Arrow Flight SQL")
    table = PAGE.read_text().partition("| where | what left |")[2].partition("\n\n")[0]
    assert len(found) == table.count("\n| ") == 15


@pytest.mark.parametrize(("former", "instead"), SQL)
def test_sql(session: dpsql.Session, former: str, instead: str) -> None:
    for ask in (session.sql, session.explain):
        with pytest.raises(dpsql.Refusal) as caught:
            ask(former)
        assert caught.value.hint
    assert session.sql(pasted(instead)).receipt.items_charged > 0


def test_the_error_of_private_top_has_the_statement_of_the_page(session: dpsql.Session) -> None:
    ((former, instead),) = [row for row in SQL if "PRIVATE_TOP" in row[0]]
    with pytest.raises(dpsql.Refusal) as caught:
        session.sql(former)
    assert pasted(instead) in str(caught.value.hint)


@pytest.mark.parametrize(("former", "instead"), KEYS)
def test_a_line_of_the_policy(tmp_path: Path, former: str, instead: str) -> None:
    (key,) = tomllib.loads(former)
    with pytest.raises(dpsql.PolicyError) as caught:
        read(tmp_path, former)
    assert caught.value.place == f"server.{key} (policy.toml, line 16)"
    assert (f"Delete the line {former}." if key == "flight" else pasted(instead)) in str(caught.value.hint)
    line = "" if instead.startswith("delete the line") else pasted(instead)
    assert read(tmp_path, line).server.catalog == tomllib.loads(line).get("catalog", "auto")


@pytest.mark.parametrize(("former", "instead"), PYTHON)
def test_python(former: str, instead: str) -> None:
    with pytest.raises((TypeError, AttributeError), match=r"'(flight|Receipt)'"):
        eval(former, {"dpsql": dpsql})
    assert eval(pasted(instead), {"dpsql": dpsql})


def test_a_command_that_moved_to_the_benchmarks() -> None:
    ((former, instead),) = [row for row in SHELL if "compare-budgets" in row[0]]
    program, file, *words = pasted(instead).split()
    code, out, err = dpsql_command(*former.split()[1:])
    assert (code, out) == (2, b"")
    assert f"run: {program} {file}" in err
    done = subprocess.run([sys.executable, PAGE.parents[2] / file, *words], check=True, capture_output=True, timeout=60)
    assert b"Items that (1, 1e-06)-differential privacy buys" in done.stdout


@pytest.mark.parametrize(("former", "instead"), [row for row in SHELL if " --db " in row[0]])
def test_an_option_that_was_accepted_unlisted(folder: Path, former: str, instead: str) -> None:
    code, _, err = dpsql_command(*former.split()[1:], cwd=folder, stdin=b"SHOW TABLES;")
    assert code == 2
    assert "No such option" in err
    assert dpsql_command(*pasted(instead).split()[1:], cwd=folder, stdin=b"SHOW TABLES;")[0] == 0


def test_a_terminal(folder: Path) -> None:
    ((former, instead),) = [row for row in SHELL if row[0].startswith("harlequin ")]
    assert former.split()[2:] == ["dpsql", *pasted(instead).split()[2:]]
    assert find_spec("dpsql.integrations.harlequin") is None
    code, out, err = dpsql_command(*pasted(instead).split()[1:], cwd=folder, stdin=b"SHOW TABLES;")
    assert (code, err) == (0, "")
    assert b"reads" in out
