"""Answers are stored where the tables and the user alone decide them; what depends on time or load is always run."""

from __future__ import annotations

import pytest
from support.catalog_corpus import CORPUS

from dpsql.server.catalog.shadow import Shadow, is_constant
from dpsql.server.catalog.system_catalog import CatalogError, Parameter, SystemCatalog
from dpsql.server.limits import BoundedCache

COLUMNS = "SELECT column_name FROM information_schema.columns WHERE table_name = $1 ORDER BY ordinal_position"


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT now()",
        "SELECT CURRENT_DATE",
        "SELECT statement_timestamp() FROM pg_class",
        "SELECT 'now'::timestamptz",
        "SELECT concat('{n', 'ow}')::_timestamptz",
        "SELECT concat('{[n', 'ow,]}')::tstzmultirange",
        "SELECT concat('n', 'ow')::information_schema.time_stamp",
        "SELECT timestamp 'today'",
        "SELECT ('no' || 'w')::timestamp",
        r"SELECT * FROM pg_roles WHERE rolvaliduntil < E'\x6eow'",
        "SELECT * FROM pg_roles WHERE rolvaliduntil < 'NOW'",
        "SELECT * FROM pg_roles WHERE rolvaliduntil < '10:00today'",
        "SELECT random()",
        "SELECT pg_backend_pid()",
        'SELECT "pg_backend_pid"()',
        "SELECT pg_catalog . pg_backend_pid ()",
        "SELECT txid_current()",
        "SELECT pg_current_snapshot()",
        "SELECT age(datfrozenxid) FROM pg_database",
        "SELECT * FROM pg_stat_activity",
        'SELECT * FROM "pg_locks"',
        "TABLE pg_catalog.pg_stat_database",
        "SELECT * FROM pg_class c, pg_timezone_names t",
        "WITH s AS (SELECT * FROM pg_stat_user_tables) SELECT * FROM s",
        "SELECT * FROM pg_class ORDER BY random()",
        "SELECT * FROM pg_class TABLESAMPLE system (50)",
        "SELECT pg_size_pretty(pg_total_relation_size(oid)) FROM pg_class",
        "SELECT gen_random_uuid()",
        "SHOW transaction_timeout",
        "SELECT 'open",
        "",
    ],
)
def test_what_may_change_is_not_stored(sql: str) -> None:
    assert not is_constant(sql, ())


@pytest.mark.parametrize("value", [b"now", b" TODAY ", b"2026-01-01 yesterday"])
def test_a_parameter_may_be_a_clock(value: bytes) -> None:
    sql = "SELECT rolname FROM pg_roles WHERE rolvaliduntil < $1"
    assert not is_constant(sql, [Parameter(value)])
    assert is_constant(sql, [Parameter(b"2026-01-01"), Parameter(None)])


def test_most_of_what_tools_send_is_stored() -> None:
    stored = [asked for asked in CORPUS if is_constant(asked.sql, ())]
    assert len(stored) > 0.85 * len(CORPUS)
    assert {asked.tool for asked in CORPUS} == {asked.tool for asked in stored}


def test_a_stored_answer_is_that_of_the_user_the_values_and_the_formats(shadow: SystemCatalog) -> None:
    assert isinstance(shadow, Shadow)
    reads, none = [Parameter(b"reads")], [Parameter(b"none")]
    first = shadow.execute(COLUMNS, reads, user="ana")
    assert shadow.execute(COLUMNS, reads, user="ana") is first
    assert shadow.find_answer(COLUMNS, reads, user="ana") is first
    assert shadow.find_answer(COLUMNS, reads, user="ben") is None
    assert shadow.find_answer(COLUMNS, reads, user="ana", formats=[1]) is None
    assert shadow.find_answer(COLUMNS, none, user="ana") is None
    assert list(shadow.execute(COLUMNS, none, user="ana").rows) == []
    named = "SELECT current_user, rolname FROM pg_roles WHERE rolname = current_user"
    for user in ("ana", "ben", "ana"):
        assert list(shadow.execute(named, user=user).rows) == [(user.encode(), user.encode())]


def test_what_is_run_always_is_run_again(shadow: SystemCatalog) -> None:
    for sql in ("SELECT clock_timestamp()", "SELECT now()", "SELECT 'now'::timestamptz"):
        assert list(shadow.execute(sql, user="ana").rows) != list(shadow.execute(sql, user="ana").rows), sql


def test_a_stored_description_lets_no_table_be_read(shadow: SystemCatalog) -> None:
    for _ in range(2):
        for sql in ("SELECT * FROM pg_class, reads", "SELECT * FROM reads"):
            with pytest.raises(CatalogError):
                shadow.describe(sql, user="ana")
            with pytest.raises(CatalogError):
                shadow.execute(sql, user="ana")
            assert shadow.find_description(sql) is None
    assert shadow.describe(COLUMNS, user="ana") is shadow.describe(COLUMNS, user="ben")
    assert shadow.find_description(COLUMNS, [25]) is None


def test_the_oldest_value_is_dropped_first() -> None:
    cache = BoundedCache[str](100)
    for key in "abcd":
        cache.add(key, key, size=25)
    assert cache.find("a") == "a"
    cache.add("e", "e", size=20)
    cache.add("huge", "huge", size=26)
    cache.add("a", "A", size=25)
    assert [cache.find(key) for key in ("a", "b", "c", "d", "e", "huge")] == ["A", None, "c", "d", "e", None]
