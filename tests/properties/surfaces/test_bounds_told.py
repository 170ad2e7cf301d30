"""What bounds a unit is told beside the numbers on every surface: of groups, of rows, and of values."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa
from IPython.core.interactiveshell import InteractiveShell
from rich.console import Console
from support.command_kit import dpsql_command
from support.surfaces_kit import POLICY, make_data
from traitlets.config import Config

import dpsql
from dpsql import dbapi
from dpsql.integrations.sqlalchemy import DPSQLDialect
from dpsql.report.answer_json import encode_answer, encode_notes

sa.dialects.registry.register("dpsql", DPSQLDialect.__module__, DPSQLDialect.__name__)
SQL = (
    "SELECT article, COUNT(*) AS visits, AVG(secret) AS mean FROM reads GROUP BY article "
    "TOP 2 PRIVATE WITH (max_groups_contributed = 2, gate = false)"
)
NOTE = (
    "each user counted in at most 2 groups: true values can be higher or lower; COUNT(*): each user counted with at "
    "most 20 rows, so the true number can be higher; intervals are of the values counted so; AVG(secret): each user "
    "weighs as at most 20 rows and 9 of secret, so one beyond that counts less, values below 0 count as 0 and a row "
    "above 9 counts as 9: the plain average can be higher or lower; its interval is of the weighted average"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = make_data(tmp_path_factory.mktemp("bounds"))
    policy = POLICY.replace('"ts"]', '"ts", "secret"]')
    policy = policy.replace(
        "[tables.countries]", "[tables.reads.bounds]\nrows = 20\nsecret = {max = 9}\n[tables.countries]"
    )
    (found / "policy.toml").write_text(policy)
    return found


@pytest.fixture(autouse=True)
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


def ask(folder: Path) -> dpsql.Answer:
    with dpsql.connect(folder / "events.duckdb", policy=folder / "policy.toml") as session:
        return session.sql(SQL)


def by_terminal(folder: Path) -> str:
    console = Console(width=400, record=True, file=io.StringIO())
    console.print(ask(folder))
    return console.export_text()


def by_dbapi(folder: Path) -> str:
    with dbapi.connect(folder / "events.duckdb", policy=folder / "policy.toml") as connection:
        return "\n".join(str(message) for _, message in connection.execute(SQL).messages)


def by_sqlalchemy(_: Path) -> str:
    engine = sa.create_engine("dpsql:///events.duckdb?policy=policy.toml")
    try:
        with engine.connect() as connection:
            cursor = connection.execute(sa.text(SQL)).cursor
            assert cursor is not None
            return "\n".join(str(message) for _, message in cursor.messages)
    finally:
        engine.dispose()


def by_magic(folder: Path) -> str:
    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.ipython_dir = str(folder)
    shell = InteractiveShell(config=config)
    cells = ["%load_ext dpsql", "%dpsql connect events.duckdb --policy policy.toml", f"%%dpsql top\n{SQL}"]
    for cell in [*cells, "words = top._repr_html_()", "%unload_ext dpsql"]:
        shell.run_cell(cell).raise_error()
    return str(shell.user_ns["words"])


def by_command(layout: str) -> Callable[[Path], str]:
    def run(folder: Path) -> str:
        command = f"query --db events.duckdb --policy policy.toml --format {layout}".split()
        code, out, err = dpsql_command(*command, SQL, cwd=folder)
        assert code == 0
        return out.decode(errors="replace") + err

    return run


def by_shell(folder: Path) -> str:
    code, out, _ = dpsql_command(
        *"shell events.duckdb --policy policy.toml".split(), cwd=folder, stdin=f"{SQL};".encode()
    )
    assert code == 0
    return out.decode()


SURFACES: dict[str, Callable[[Path], str]] = {
    "repr": lambda folder: repr(ask(folder)),
    "terminal": by_terminal,
    "notebook": lambda folder: ask(folder)._repr_html_(),
    "citation": lambda folder: ask(folder).statement(),
    "receipt": lambda folder: dict(ask(folder).receipt.details())["bounds"],
    "JSON": lambda folder: str(encode_answer(ask(folder))["note"]),
    "metadata": lambda folder: str(encode_notes(ask(folder))["note"]),
    "plot": lambda folder: ask(folder).plot().get_xlabel(),
    "dbapi": by_dbapi,
    "SQLAlchemy": by_sqlalchemy,
    "magic": by_magic,
    **{f"dpsql query, {layout}": by_command(layout) for layout in ("table", "csv", "json", "arrow")},
    "dpsql shell": by_shell,
}


@pytest.mark.parametrize("surface", SURFACES)
def test_every_surface_says_what_bounds_a_unit(folder: Path, surface: str) -> None:
    assert NOTE in " ".join(SURFACES[surface](folder).split())
