"""One question through every surface over one ledger: each gives the same rows, all together are charged once."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pytest
import sqlalchemy as sa
from IPython.core.interactiveshell import InteractiveShell
from support.command_kit import dpsql_command
from support.surfaces_kit import TOP, charges, make_data
from traitlets.config import Config

import dpsql
from dpsql import dbapi
from dpsql.integrations.sqlalchemy import DPSQLDialect

sa.dialects.registry.register("dpsql", DPSQLDialect.__module__, DPSQLDialect.__name__)
QUESTION = TOP + " WITH (mechanism = limited_domain)"
Rows = list[tuple[str, int]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_data(tmp_path_factory.mktemp("one"))


@pytest.fixture(scope="module")
def first(folder: Path) -> Rows:
    """The answer of the first who asked, which the others are given again."""
    return by_session(folder)


@pytest.fixture(autouse=True)
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


def by_session(folder: Path) -> Rows:
    with dpsql.connect(folder / "events.duckdb", policy=folder / "policy.toml") as session:
        return rows_of(session.sql(QUESTION).fetchall())


def by_dbapi(folder: Path) -> Rows:
    with dbapi.connect(folder / "events.duckdb", policy=folder / "policy.toml") as connection:
        cursor = connection.execute(QUESTION)
        assert cursor.receipt is not None
        assert cursor.receipt.replayed
        return rows_of(cursor.fetchall())


def by_engine(read: Callable[[Any], Rows]) -> Rows:
    engine = sa.create_engine("dpsql:///events.duckdb?policy=policy.toml")
    try:
        return read(engine)
    finally:
        engine.dispose()


def by_core(engine: Any) -> Rows:
    with engine.connect() as connection:
        return rows_of(tuple(row) for row in connection.execute(sa.text(QUESTION)))


def by_magic(folder: Path) -> Rows:
    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.ipython_dir = str(folder)
    shell = InteractiveShell(config=config)
    cells = ["%load_ext dpsql", "%dpsql connect events.duckdb --policy policy.toml", f"%%dpsql top\n{QUESTION}"]
    for cell in [*cells, "rows, words = top.fetchall(), top._repr_html_()", "%unload_ext dpsql"]:
        shell.run_cell(cell).raise_error()
    assert "stored answer, nothing was charged" in shell.user_ns["words"]
    return rows_of(shell.user_ns["rows"])


def by_query(folder: Path) -> Rows:
    code, out, err = dpsql_command(
        *"query --db events.duckdb --policy policy.toml --format csv".split(), QUESTION, cwd=folder
    )
    assert code == 0
    assert "stored answer, nothing was charged" in err
    return rows_of(list(csv.reader(io.StringIO(out.decode())))[1:])


def by_shell(folder: Path) -> Rows:
    code, out, _ = dpsql_command(
        *"shell events.duckdb --policy policy.toml".split(), cwd=folder, stdin=f".mode json\n{QUESTION};".encode()
    )
    assert code == 0
    told = json.loads(out)
    assert told["receipt"]["replayed"]
    return rows_of(told["rows"])


def rows_of(rows: Any) -> Rows:
    return [(article, int(count)) for article, count in rows]


SURFACES: dict[str, Callable[[Path], Rows]] = {
    "session": by_session,
    "dbapi": by_dbapi,
    "SQLAlchemy": lambda _: by_engine(by_core),
    "pandas": lambda _: by_engine(lambda engine: rows_of(pd.read_sql(QUESTION, engine).to_numpy().tolist())),
    "polars": lambda _: by_engine(lambda engine: rows_of(pl.read_database(QUESTION, engine).rows())),
    "magic": by_magic,
    "dpsql query": by_query,
    "dpsql shell": by_shell,
}


@pytest.mark.parametrize("surface", SURFACES)
def test_a_question_is_charged_once_whoever_asks_it_again(folder: Path, first: Rows, surface: str) -> None:
    assert len(first) == 3
    assert SURFACES[surface](folder) == first
    with dpsql.connect(folder / "events.duckdb", policy=folder / "policy.toml") as session:
        assert charges(session) == 1
