"""Queries that dpsql proposes can be run as they stand, whatever tables and columns are called."""

from __future__ import annotations

import duckdb
import pytest
from sqlglot.dialects.duckdb import DuckDB
from support.session_kit import filled, session_on

import dpsql
from dpsql.dialects import write_name
from dpsql.errors import Refusal


def words() -> list[str]:
    """Return the words that DuckDB, sqlglot or dpsql know."""
    known = {name for (name,) in duckdb.sql("SELECT keyword_name FROM duckdb_keywords()").fetchall()}
    known |= {name.lower() for name in DuckDB.Tokenizer.KEYWORDS if name.replace("_", "").isalpha()}
    return sorted(known | {"top", "private", "per", "adaptive", "private_top", "two words", 'a"b', "Ä", "1st"})


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def test_a_query_of_a_column_with_any_name_can_be_run() -> None:
    names = words()
    assert len(names) > 500
    columns = ", ".join(f"{quoted(name)} VARCHAR" for name in names)
    session = session_on(filled(f"CREATE TABLE reads (user_id BIGINT, {columns})"))
    for name in names:
        key = write_name(name)
        text = f"SELECT {key}, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY {key} TOP 10 PRIVATE"
        assert session.describe(text).names == [name, "n"], text


@pytest.mark.parametrize("name", ["order", "extract", "two words", 'a"b', "n", "N"])
def test_the_query_that_a_refusal_proposes_can_be_run(name: str) -> None:
    connection = filled(
        f"CREATE TABLE {quoted(name)} (s STRUCT(a INT), i INTERVAL, {quoted(name)} VARCHAR, user_id BIGINT)"
    )
    session = session_on(connection, dpsql.Policy(dpsql.Budget(1, "1e-6"), {name: dpsql.PrivateTable("user_id")}))
    with pytest.raises(Refusal) as refused:
        session.sql(f"SELECT * FROM {quoted(name)}")
    assert refused.value.hint is not None
    _, _, proposed = refused.value.hint.partition(": ")
    assert session.describe(proposed).names[0] == name
