"""JupySQL and marimo, each in a Python of its own, on an engine and on a connection: one charge for each question."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.surfaces_kit import TOP, make_data

BEGIN = """
import json, os, sys
import sqlalchemy as sa
import dpsql.dbapi, dpsql.integrations.sqlalchemy
sa.dialects.registry.register("dpsql", "dpsql.integrations.sqlalchemy", "DPSQLDialect")
URL = "dpsql:///events.duckdb?policy=policy.toml&ledger=:memory:"
TOP = sys.argv[1]

def charges(engine):
    with engine.connect() as connection:
        return connection.connection.driver_connection.session.history.num_rows

def connected():
    return dpsql.dbapi.connect("events.duckdb", policy="policy.toml", ledger=":memory:")
"""

JUPYSQL = """
from IPython.core.interactiveshell import InteractiveShell
from sql.connection import ConnectionManager

shell = InteractiveShell.instance()

def cell(text):
    done = shell.run_cell(text)
    assert done.success, text
    return done.result

def charged():
    return ConnectionManager.current._connection.connection.driver_connection.session.history.num_rows

cell("%load_ext sql")
cell("%config SqlMagic.named_parameters = 'enabled'")
cell("%sql " + URL)
top = cell("%sql --save top " + TOP)
again = cell("%%sql\\n" + TOP)
whole = cell("%sql --with top SELECT sum(n) AS n FROM top")
country = "DE"
shell.user_ns["country"] = country
named = cell("%sql SELECT country FROM countries WHERE country = :country")
refused = shell.run_cell("%sql SELECT article FROM reads").success
told = {
    "articles": top.DataFrame()["article"].tolist(),
    "polars": top.PolarsDataFrame()["article"].to_list(),
    "same": list(map(tuple, top)) == list(map(tuple, again)),
    "adds_up": list(whole)[0][0] == sum(row[1] for row in top),
    "named": [row[0] for row in named],
    "tables": [row[0] for row in cell("%sqlcmd tables")._table.rows],
    "columns": [row[0] for row in cell("%sqlcmd columns --table reads")._table.rows],
    "refused": not refused,
    "charges": charged(),
}
shell.user_ns["lent"] = lent = connected()
cell("%sql lent --alias lent")
cell("%sql " + TOP)
cell("%sql " + TOP)
told["of_the_connection"] = lent.session.history.num_rows
"""

MARIMO = """
import marimo as mo

engine, lent = sa.create_engine(URL), connected()
frames = [mo.sql(TOP, engine=each, output=output) for each in (engine, lent) for output in (True, False)]
told = {
    "articles": [frame["article"].to_list() for frame in frames],
    "same": frames[0].equals(frames[1]) and frames[2].equals(frames[3]),
    "tables": sa.inspect(engine).get_table_names(),
    "charges": [charges(engine), lent.session.history.num_rows],
}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_data(tmp_path_factory.mktemp("notebooks"))


def told(program: str, folder: Path) -> dict[str, object]:
    """Return what a program says at its end; what a library would report of it is not sent."""
    whole = f"{BEGIN}\n{program}\nprint('\\n' + json.dumps(told))\n"
    environment = {**os.environ, "PLOOMBER_STATS_ENABLED": "false", "IPYTHONDIR": str(folder / "ipython")}
    done = subprocess.run(
        [sys.executable, "-c", whole, TOP],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    said: dict[str, object] = json.loads([line for line in done.stdout.splitlines() if line.startswith("{")][-1])
    return said


def test_jupysql_asks_through_an_engine_and_through_a_connection(folder: Path) -> None:
    assert told(JUPYSQL, folder) == {
        "articles": ["a0", "a1", "a2"],
        "polars": ["a0", "a1", "a2"],
        "same": True,
        "adds_up": True,
        "named": ["DE"],
        "tables": ["reads", "countries"],
        "columns": ["user_id", "article", "country", "ts"],
        "refused": True,
        "charges": 1,
        "of_the_connection": 1,
    }


def test_marimo_asks_through_an_engine_and_through_a_connection(folder: Path) -> None:
    assert told(MARIMO, folder) == {
        "articles": [["a0", "a1", "a2"]] * 4,
        "same": True,
        "tables": ["reads", "countries"],
        "charges": [1, 1],
    }


def test_the_documentation_runs_and_each_question_in_it_is_charged_once(folder: Path) -> None:
    text = (Path(__file__).parents[3] / "docs" / "how-to" / "dbapi.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (cells,) = re.findall(r"```ipython\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 5
    program = (
        *blocks,
        "asked = connection.session.history.num_rows",
        "from IPython.core.interactiveshell import InteractiveShell",
        "shell = InteractiveShell.instance()",
        f"done = [shell.run_cell(line).success for line in {cells.splitlines()!r}]",
        "asked_by_cells = connection.session.history.num_rows - asked",
        "told = {'asked': asked, 'articles': frame['article'].to_list(), 'done': done, 'by_cells': asked_by_cells}",
    )
    said = told("\n".join(program), folder)
    assert said == {"asked": 3, "articles": ["a0", "a1", "a2"], "done": [True] * 4, "by_cells": 1}
