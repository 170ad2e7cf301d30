"""A shell of IPython in this process, and the documentation's example beside it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

POLICY = """\
ledger = "ledger.sqlite"
[budget]
epsilon = 1.0
delta = 1e-6
items = 100
queries = 20
[tables.reads]
privacy_unit = "user_id"
[tables.countries]
public = true
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with events.duckdb and policy.toml."""
    monkeypatch.chdir(tmp_path)
    with duckdb.connect("events.duckdb") as connection:
        connection.execute(
            "CREATE TABLE reads AS SELECT u AS user_id, 'article ' || a AS article, 'DE' AS country "
            "FROM range(6) AS x(a), range(4000) AS y(u) WHERE u < 1500 + 400 * a"
        )
        connection.execute("CREATE TABLE countries AS SELECT 'DE' AS country, 'Europe' AS continent")
    (tmp_path / "policy.toml").write_text(POLICY)
    return tmp_path


@pytest.fixture
def shell(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InteractiveShell]:
    """A shell with the extension loaded, whose kernel is only pretended where a test says so."""
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)  # another one may be active than the tests run in
    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.ipython_dir = str(folder)
    made = InteractiveShell(config=config)
    made.run_line_magic("load_ext", "dpsql")
    yield made
    made.run_line_magic("unload_ext", "dpsql")
