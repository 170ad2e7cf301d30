"""The adapter for Harlequin over stand-ins for what it is made from; the application is run by a trial.

`tests/manual/harlequin_trial.py` is run by hand in an environment with Harlequin (docs/how-to/harlequin.md).
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import duckdb
import pytest

from dpsql.sql.syntax.options import OPTIONS

POLICY = """\
ledger = "ledger.sqlite"
[budget]
epsilon = 4.0
delta = 1e-6
[tables.reads]
privacy_unit = "user_id"
[tables."other.countries"]
public = true
"""
COUNTED = "SELECT article, COUNT(DISTINCT user_id) AS readers FROM reads GROUP BY article TOP 3 PRIVATE"


class Failure(Exception):
    def __init__(self, msg: str, title: str = "") -> None:
        super().__init__(msg)
        self.msg, self.title = msg, title


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return the module over stand-ins for the few names of Harlequin that it uses."""
    parts: dict[str, dict[str, object]] = {
        "harlequin": dict.fromkeys(["HarlequinAdapter", "HarlequinConnection", "HarlequinCursor"], object),
        "harlequin.autocomplete": {},
        "harlequin.autocomplete.completion": {"HarlequinCompletion": SimpleNamespace},
        "harlequin.catalog": dict.fromkeys(["Catalog", "CatalogItem"], SimpleNamespace),
        "harlequin.exception": {
            name: type(name, (Failure,), {})
            for name in ("HarlequinConfigError", "HarlequinConnectionError", "HarlequinQueryError")
        },
        "harlequin.options": {"TextOption": lambda *words: words, "FlagOption": lambda *words: words},
    }
    for name, names in parts.items():
        stand_in = ModuleType(name)
        vars(stand_in).update(names)
        monkeypatch.setitem(sys.modules, name, stand_in)
    monkeypatch.delitem(sys.modules, "dpsql.integrations.harlequin", raising=False)
    yield importlib.import_module("dpsql.integrations.harlequin")
    sys.modules.pop("dpsql.integrations.harlequin", None)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with duckdb.connect(str(tmp_path / "events.duckdb")) as connection:
        connection.execute("CREATE TABLE reads AS SELECT i AS user_id, 'a' || i % 3 AS article FROM range(9000) t(i)")
        connection.execute("CREATE SCHEMA other")
        connection.execute("""CREATE TABLE other.countries AS SELECT 'DE' AS "the ""country", 1.5 AS x""")
    (tmp_path / "policy.toml").write_text(POLICY)
    return tmp_path


@pytest.fixture
def connection(module: Any, folder: Path) -> Iterator[Any]:
    adapter = module.DpsqlAdapter((str(folder / "events.duckdb"),), policy=str(folder / "policy.toml"), theme="none")
    opened = adapter.connect()
    yield opened
    opened.close()


def test_the_catalog_is_what_the_policy_exposes(connection: Any) -> None:
    tables = {item.label: item for item in connection.get_catalog().items}
    assert {name: item.type_label for name, item in tables.items()} == {"reads": "prv", "other.countries": "pub"}
    assert [(column.label, column.type_label) for column in tables["reads"].children] == [
        ("user_id", "##"),
        ("article", "s"),
    ]
    public = tables["other.countries"]
    assert public.query_name == '"other"."countries"'
    first, second = public.children
    assert (first.query_name, second.type_label) == ('"the ""country"', "#.#")
    assert connection.execute(f"SELECT {first.query_name} FROM {public.query_name}").fetchall().num_rows == 1


def test_a_limit_cuts_the_answer_that_is_there_and_asking_again_is_free(connection: Any) -> None:
    left = connection._session.budget.items
    cursor = connection.execute(COUNTED)
    assert cursor.columns() == [("article", "s"), ("readers", "##")]
    assert cursor.set_limit(2).fetchall().num_rows == 2
    assert cursor.fetchall().num_rows == 3
    assert connection.execute(COUNTED).fetchall() == cursor.fetchall()
    assert connection._session.history.num_rows == 1
    assert connection._session.budget.items == left - 6


def test_no_rows_are_none(connection: Any) -> None:
    assert connection.execute("SELECT x FROM other.countries WHERE x > 2").fetchall() is None


def test_a_refusal_says_why_where_and_what_to_write(module: Any, connection: Any) -> None:
    with pytest.raises(module.HarlequinQueryError) as caught:
        connection.execute("SELECT article FROM reads")
    reason, place, hint = caught.value.msg.split("\n")
    assert caught.value.title == "dpsql: not-private"
    assert (reason[-1], place[:8], hint[:6]) == (".", "At line ", "Hint: ")
    assert caught.value.__context__ is None


def test_what_cannot_be_opened(module: Any, folder: Path) -> None:
    with pytest.raises(module.HarlequinConfigError):
        module.DpsqlAdapter(("a", "b"), policy="policy.toml")
    with pytest.raises(module.HarlequinConfigError, match="--policy"):
        module.DpsqlAdapter(("events.duckdb",))
    with pytest.raises(module.HarlequinConnectionError):
        module.DpsqlAdapter((str(folder / "nothing.duckdb"),), policy=str(folder / "policy.toml")).connect()


def test_one_analyst_is_not_another(module: Any) -> None:
    both = [module.DpsqlAdapter((), policy="policy.toml", analyst=name).connection_id for name in ("ana", "eve")]
    assert both[0] != both[1]


def test_the_words_of_the_language_are_completed(connection: Any) -> None:
    words = {completion.value for completion in connection.get_completions()}
    assert {"TOP", "PRIVATE", "limited_domain", "date_trunc", *OPTIONS} <= words


def test_standard_sql_is_read_as_private_where_it_is_told(module: Any, folder: Path) -> None:
    settings = {"policy": str(folder / "policy.toml")}
    adapter = module.DpsqlAdapter((str(folder / "events.duckdb"),), implicit=True, **settings)
    connection = adapter.connect()
    assert connection.execute("SELECT COUNT(DISTINCT user_id) AS n FROM reads").fetchall().num_rows == 1
    connection.close()
    assert adapter.connection_id != module.DpsqlAdapter((str(folder / "events.duckdb"),), **settings).connection_id
