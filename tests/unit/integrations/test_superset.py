"""The engine spec for Superset, where Superset is not installed: what it makes is SQL that dpsql reads.

`tests/manual/superset_trial.py` is run by hand in an environment with Superset (docs/how-to/superset.md).
"""

from __future__ import annotations

import enum
import importlib
import sys
from collections.abc import Iterator
from datetime import datetime
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import sqlglot
from support.sql_reference import accepts_pattern, catalog_of, corpus_tables

from dpsql.integrations.sqlglot import Dpsql
from dpsql.sql.analysis.analyze import analyze
from dpsql.sql.ir.statements import Describe

CATALOG = catalog_of(corpus_tables(), {"reads": "user_id", "users": "user_id"}, ["countries"])
GRAINS = "SECOND MINUTE FIVE_MINUTES TEN_MINUTES FIFTEEN_MINUTES THIRTY_MINUTES HOUR DAY WEEK MONTH QUARTER YEAR"


@pytest.fixture
def spec(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return the spec over stand-ins for the few names of Superset that it uses."""
    names = "superset superset.constants superset.db_engine_specs superset.db_engine_specs.base superset.sql".split()
    modules = {name: ModuleType(name) for name in [*names, "superset.sql.parse"]}
    modules["superset.constants"].TimeGrain = enum.StrEnum("TimeGrain", GRAINS.split())  # type: ignore[attr-defined]
    modules["superset.db_engine_specs.base"].BaseEngineSpec = type("BaseEngineSpec", (), {})  # type: ignore[attr-defined]
    modules["superset.sql.parse"].LimitMethod = enum.Enum("LimitMethod", "FORCE_LIMIT FETCH_MANY")  # type: ignore[attr-defined]
    modules["superset.sql.parse"].SQLGLOT_DIALECTS = {}  # type: ignore[attr-defined]
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, "dpsql.integrations.superset", raising=False)
    yield importlib.import_module("dpsql.integrations.superset").DpsqlEngineSpec
    sys.modules.pop("dpsql.integrations.superset", None)


def written_anew(sql: str) -> str:
    """Return a statement as Superset sends it."""
    return sqlglot.parse_one(sql, read="dpsql").sql("dpsql", pretty=True)


def test_every_time_grain_is_read(spec: Any) -> None:
    grains = spec._time_grain_expressions
    assert len(grains) == len(GRAINS.split()) + 1
    for expression in grains.values():
        sql = f"SELECT {expression.replace('{col}', 'ts')} AS t FROM reads GROUP BY ALL TOP 10 PRIVATE"
        assert analyze(written_anew(sql), CATALOG, accepts_pattern=accepts_pattern)


def test_the_ends_of_a_time_range_are_read(spec: Any) -> None:
    moment = datetime(2026, 2, 3, 4, 5, 6)  # noqa: DTZ001 - Superset's have none
    assert spec.convert_dttm("DATE", moment) == "DATE '2026-02-03'"
    assert spec.convert_dttm("VARCHAR", moment) is None
    assert spec.convert_dttm(target_type=None, dttm=moment, db_extra=None) is None
    where = f"ts >= {spec.convert_dttm('TIMESTAMP', moment)} AND ts < {spec.convert_dttm('DATE', moment)}"
    sql = f"SELECT article FROM reads WHERE {where} GROUP BY article TOP 3 PRIVATE"
    assert analyze(written_anew(sql), CATALOG, accepts_pattern=accepts_pattern)


def test_a_preview_shows_the_columns_and_asks_for_no_row(spec: Any) -> None:
    for schema in (None, "main"):
        sql = written_anew(spec.select_star(None, SimpleNamespace(schema=schema, table="reads"), None, limit=100))
        assert isinstance(analyze(sql, CATALOG, accepts_pattern=accepts_pattern), Describe)


def test_superset_is_told_of_the_dialect_and_cuts_rows_after_the_answer(spec: Any) -> None:
    assert {"dpsql": Dpsql} == sys.modules["superset.sql.parse"].SQLGLOT_DIALECTS  # type: ignore[attr-defined]
    assert spec.limit_method.name == "FETCH_MANY"
    assert "date_trunc" in spec.get_function_names(None)


def test_who_is_logged_in_asks(spec: Any) -> None:
    sqlalchemy = pytest.importorskip("sqlalchemy.engine.url")
    url = sqlalchemy.make_url("dpsql:///events.duckdb?policy=policy.toml&analyst=eve")
    asked = spec.get_url_for_impersonation(url, True, "ana", None)
    assert dict(asked.query) == {"policy": "policy.toml", "analyst": "ana"}
    assert spec.get_url_for_impersonation(url, False, "ana", None) is url


def test_series_are_limited_by_a_query_of_their_own(spec: Any) -> None:
    assert spec.allows_joins is False


def test_an_order_is_not_selected_a_second_time(spec: Any) -> None:
    assert not hasattr(spec, "allows_hidden_orderby_agg")  # Superset's own value is True
